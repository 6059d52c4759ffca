"""Tiny causal decoders of transformers in folders, their fine-tuning on L3, and the same loss computed naively."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from modeling_gpt1 import GPT1Trainer, GPT1TrainingArguments, prepare_finetuning
from support.families import make_family_tokenizer
from support.finetuning import Rows, settings_of
from tokenization import Task

TASK = Task("own", "entailment", {"premise": "a", "hypothesis": "b", "label": "label"}, ("no", "yes"))
CHOICE_TASK = Task("own", "multiple_choice", {"context": "a", "choices": "options", "label": "label"})
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"max_position_embeddings": 96, "initializer_range": 0.2}
GROUPED = {**SIZES, "num_key_value_heads": 2}
GPT2_SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96, "initializer_range": 0.2}
NO_DROPOUT = dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0.0)
# Each with what is special in it: tied or untied, a bias, a projection, a soft cap that cuts.
DECODERS = {
    "llama": ("LlamaConfig", GROUPED),
    "llama tied": ("LlamaConfig", {**GROUPED, "tie_word_embeddings": True}),
    "qwen2": ("Qwen2Config", {**GROUPED, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {**GROUPED, "head_dim": 8, "tie_word_embeddings": True}),
    "olmo2": ("Olmo2Config", GROUPED),
    "gpt_neox": ("GPTNeoXConfig", {**SIZES, "attention_dropout": 0.0, "hidden_dropout": 0.0}),
    "opt": (
        "OPTConfig",
        {"hidden_size": 32, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
        | {"ffn_dim": 48, "max_position_embeddings": 96, "dropout": 0.0, "init_std": 0.2},
    ),
    "gemma2": ("Gemma2Config", {**GROUPED, "head_dim": 8, "final_logit_softcapping": 2.0}),
    "mistral": ("MistralConfig", {**GROUPED, "sliding_window": 8}),
    "phi": ("PhiConfig", {**SIZES, "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "gpt2": ("GPT2Config", {**GPT2_SIZES, **NO_DROPOUT}),
}


def decoder_tokenizer(padding_side: str = "right") -> PreTrainedTokenizerBase:
    tokenizer = make_family_tokenizer("llama")
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.padding_side = padding_side
    return tokenizer


def make_decoder(name: str, tokenizer: PreTrainedTokenizerBase, **fields: Any) -> PreTrainedModel:
    """A random causal model in evaluation mode, whose biases are not 0."""
    torch.manual_seed(0)
    config_name, sizes = DECODERS[name]
    ids = {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("pad", "bos", "eos")}
    config = getattr(transformers, config_name)(vocab_size=len(tokenizer), **{**sizes, **ids, **fields})
    model = AutoModelForCausalLM.from_config(config)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith("bias"):
            nn.init.normal_(parameter, std=0.2)
    return model.eval()


def write_decoder(name: str, folder: Path, padding_side: str = "right", **fields: Any) -> Path:
    tokenizer = decoder_tokenizer(padding_side)
    make_decoder(name, tokenizer, **fields).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prepare_decoder(
    folder: Path, lm_coef: float | None = 0.5, padding_side: str = "right", task: Task = TASK, **options: Any
) -> dict[str, Any]:
    """The parts of a fine-tuning, with the same new score head each time."""
    torch.manual_seed(1)
    tokenizer = decoder_tokenizer(padding_side)
    return prepare_finetuning(folder, task, tokenizer, auto_model=True, lm_coef=lm_coef, **options)


def make_decoder_trainer(
    parts: dict[str, Any],
    output_dir: Path,
    batch_size: int = 8,
    accumulation: int = 1,
    rows: Sequence | None = None,
    **settings: Any,
) -> GPT1Trainer:
    args = GPT1TrainingArguments(**settings_of(output_dir, batch_size, accumulation, **settings))
    rows = Rows("classification", 19) if rows is None else rows  # which have choices, too
    return GPT1Trainer(args=args, train_dataset=rows, eval_dataset=Rows("classification", 11), **parts)


def naive_gradients(
    classifier: PreTrainedModel, causal: PreTrainedModel, rows: Sequence[dict[str, Any]], lm_coef: float
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """L3 of rows and its gradients, by names of the classifier and of the causal model's output embeddings.

    Each sequence is computed alone and without padding, by two forward passes whose losses are added.

    Args:
        rows: `sequences`, each `[T]`, of which several are choices, and `label` of each.
    """
    for model in (classifier, causal):
        model.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        sequences = row["sequences"]
        scores = torch.cat([classifier(input_ids=ids[None]).logits for ids in sequences])
        if len(sequences) > 1:
            scores = scores.T  # [1, C]
        task_loss = nn.functional.cross_entropy(scores, torch.tensor([row["label"]]))
        lm_losses = [
            nn.functional.cross_entropy(causal(input_ids=ids[None]).logits[0, :-1], ids[1:]) for ids in sequences
        ]
        loss = (task_loss + lm_coef * sum(lm_losses) / len(sequences)) / len(rows)
        loss.backward()
        total += loss.detach()
    gradients = {
        name: weight.grad.clone() for name, weight in classifier.named_parameters() if weight.grad is not None
    }
    prefix = f"{classifier.base_model_prefix}."
    for name, weight in causal.base_model.named_parameters():
        if weight.grad is not None:
            whole = prefix + name
            gradients[whole] = weight.grad + gradients.get(whole, torch.zeros_like(weight))
    output = causal.get_output_embeddings()
    if output.weight is not causal.get_input_embeddings().weight:
        gradients["auxiliary_head.weight"] = output.weight.grad
    if output.bias is not None:
        gradients["auxiliary_head.bias"] = output.bias.grad
    return total, gradients
