"""Each argument of docs/scale.md, "Less memory, or more speed": the numbers of a plain run, and its bytes."""

from dataclasses import fields

import torch
from support.finetuning import make_letter_tokenizer, make_small_config
from support.pretraining import LENGTH, NUM_ROWS, make_pretraining_trainer
from transformers import TrainerCallback

from modeling_gpt1 import GPT1ForCausalLM, GPT1PretrainingArguments
from tokenization import BlockCollator

NAMES = {field.name for field in fields(GPT1PretrainingArguments)}
CHECKPOINTING = "activation_checkpointing" if "activation_checkpointing" in NAMES else "gradient_checkpointing"


class Watch(TrainerCallback):
    """Gradients of the first update."""

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        if state.global_step == 0:
            self.gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}


def run(folder, dropout=0.1, **arguments):
    """A trained trainer, its losses, the gradients of its first update and its weights."""
    torch.manual_seed(0)
    model = GPT1ForCausalLM(make_small_config(NUM_ROWS + 16, dropout, max_position_embeddings=LENGTH))
    trainer = make_pretraining_trainer(folder, 1, model, **{"max_steps": 2, **arguments})
    trainer.data_collator = BlockCollator(make_letter_tokenizer())
    trainer.add_callback(watch := Watch())
    trainer.train()
    losses = [record["loss"] for record in trainer.state.log_history if "loss" in record]
    return trainer, {"losses": losses, "gradients": watch.gradients, "weights": trainer.model.state_dict()}


def test_checkpointing_computes_the_same(tmp_path):
    """With dropout; test_modeling_gpt1.py has what is kept for the backward pass."""
    _, expected = run(tmp_path)
    trainer, found = run(tmp_path, **{CHECKPOINTING: True})
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert trainer.model.is_gradient_checkpointing


def test_compilation_computes_the_same(tmp_path):
    """What dynamo traces; `eager` is a backend that needs no compiler."""
    _, expected = run(tmp_path, dropout=0.0, max_steps=1)
    compiled = {"torch_compile": True, "torch_compile_backend": "eager"}
    trainer, found = run(tmp_path, dropout=0.0, max_steps=1, **compiled)
    assert trainer.model_wrapped is trainer.model  # not compiled as a whole
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
