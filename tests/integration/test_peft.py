"""PEFT's LoRA on both heads: what trains, what is saved, and that adapter, reloaded adapter and merged model agree."""

import json

import pytest
import torch
from helpers_refusals import refusal
from helpers_training import make_model, make_tokenizer, make_trainer
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, PromptTuningConfig, TaskType, get_peft_model
from torch import nn

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
)

PROJECTIONS = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj"]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=2e-5)


def batch_of(shape: tuple[int, ...], labels: list[int] | None = None) -> dict[str, torch.Tensor]:
    input_ids = torch.randint(1, 98, shape, generator=torch.Generator().manual_seed(0))
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, ..., -2:] = 0
    labels = input_ids if labels is None else torch.tensor(labels)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def train(model: nn.Module, batch: dict[str, torch.Tensor]) -> set[str]:
    """Two steps of descent on the parameters that are free; names of those that moved."""
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    free = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(free, lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model.train()(**batch).loss.backward()
        optimizer.step()
    model.eval()
    return {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}


def adapter_files(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("targets", [PROJECTIONS, "all-linear"])
def test_double_heads(targets, tiny_model, tmp_path):
    """Both losses train the adapters of every projection and the whole task head; the shared embeddings stay."""
    fields = {"traversal": "multiple_choice"}
    base = tiny_model(GPT1DoubleHeadsModel, **fields)
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules=targets, modules_to_save=["task_head"]))
    batch = batch_of((3, 2, 9), labels=[0, 1, 1])
    before = model(**batch)
    close(before.loss, GPT1DoubleHeadsModel.from_pretrained(tmp_path / "base")(**batch).loss)
    moved = train(model, batch)
    prefix, factors = "base_model.model", ("lora_A.default.weight", "lora_B.default.weight")
    expected = {
        f"{prefix}.transformer.h.{layer}.{place}.{factor}"
        for layer in range(2)
        for place in [f"attn.{x}_proj" for x in "qkvo"] + ["mlp.up_proj", "mlp.down_proj"]
        for factor in factors
    }
    expected |= {f"{prefix}.task_head.modules_to_save.default.score.weight"}
    # Choices compete, so a bias that they share does nothing; rounding may move it, as it may that of the keys.
    assert moved - {f"{prefix}.task_head.modules_to_save.default.score.bias"} == expected
    after = model(**batch, output_lm_logits=True)
    assert after.task_loss < before.task_loss and after.lm_loss < before.lm_loss

    model.save_pretrained(tmp_path / "adapter")
    assert adapter_files(tmp_path / "adapter") == {"README.md", "adapter_config.json", "adapter_model.safetensors"}
    base = GPT1DoubleHeadsModel.from_pretrained(tmp_path / "base")
    reloaded = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    merged = model.merge_and_unload()
    assert type(merged) is GPT1DoubleHeadsModel
    assert merged.lm_head.weight is merged.transformer.tokens_embed.weight
    for other in (reloaded, merged):
        output = other(**batch, output_lm_logits=True)
        for name in ("loss", "task_loss", "lm_loss", "task_logits", "lm_logits"):
            close(output[name], after[name])
    merged.save_pretrained(tmp_path / "merged")
    close(GPT1ForMultipleChoice.from_pretrained(tmp_path / "merged")(**batch).logits, after.task_logits)
    with pytest.raises(AssertionError):  # the base alone says something else
        close(GPT1ForMultipleChoice.from_pretrained(tmp_path / "base")(**batch).logits, after.task_logits)


@pytest.mark.parametrize("model_class", [GPT1ForSequenceClassification, GPT1DoubleHeadsModel])
def test_the_task_type_of_classification_trains_the_task_head(model_class, tiny_model, tmp_path):
    """`TaskType.SEQ_CLS` keeps what is called "score" or "classifier", which `task_head.score` is."""
    fields = {"traversal": "classification", "num_labels": 3}
    base = tiny_model(model_class, **fields)
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(r=2, target_modules=PROJECTIONS, task_type=TaskType.SEQ_CLS))
    batch = batch_of((3, 9), labels=[0, 1, 2])
    moved = train(model, batch)
    heads = {name for name in moved if "task_head" in name}
    head = "base_model.model.task_head.score.modules_to_save.default"
    assert heads == {f"{head}.weight", f"{head}.bias"} and len(moved) == 2 * 12 + 2
    model.save_pretrained(tmp_path / "adapter")
    reloaded = PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter").eval()
    after, merged = model(**batch), model.merge_and_unload()
    scores = "task_logits" if model_class is GPT1DoubleHeadsModel else "logits"
    for other in (reloaded, merged):
        close(other(**batch)[scores], after[scores])
        close(other(**batch).loss, after.loss)


def test_language_model(tiny_model, tmp_path):
    """The auto class opens base and adapter by the adapter's folder; it generates as the merged model does."""
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path / "base")
    base = GPT1ForCausalLM.from_pretrained(tmp_path / "base")
    config = LoraConfig(r=2, target_modules="all-linear", task_type=TaskType.CAUSAL_LM)
    model = get_peft_model(base, config)
    batch = batch_of((2, 9))
    moved = train(model, batch)
    assert len(moved) == 2 * 12 and not any("lm_head" in name or "embed" in name for name in moved)
    model.save_pretrained(tmp_path / "adapter")
    reloaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").eval()
    assert type(reloaded.get_base_model()) is GPT1ForCausalLM
    after = model(**batch)
    options = {"max_new_tokens": 6, "do_sample": False}
    generated = model.generate(input_ids=batch["input_ids"], **options)
    merged = model.merge_and_unload()
    for other in (reloaded, merged):
        close(other(**batch).logits, after.logits)
        close(other(**batch).loss, after.loss)
        assert other.generate(input_ids=batch["input_ids"], **options).tolist() == generated.tolist()


def test_new_control_tokens_train_alone(tiny_model):
    """The rows of the control tokens are new, so fine-tuning with an adapter must move them and no others."""
    model = tiny_model(GPT1DoubleHeadsModel, traversal="classification", num_labels=3)
    config = LoraConfig(
        r=2, target_modules="all-linear", modules_to_save=["task_head"], trainable_token_indices=[98, 99, 100]
    )
    model = get_peft_model(model, config)
    batch = batch_of((3, 9), labels=[0, 1, 2])
    batch["input_ids"][:, 0], batch["input_ids"][:, -1] = 98, 100
    rows = model.get_input_embeddings().weight.detach().clone()
    train(model, batch)
    after, merged = model(**batch, output_lm_logits=True), model.merge_and_unload()
    changed = (merged.transformer.tokens_embed.weight != rows).any(1).nonzero()[:, 0]
    assert changed.tolist() == [98, 99, 100]
    assert merged.lm_head.weight is merged.transformer.tokens_embed.weight
    output = merged(**batch, output_lm_logits=True)
    for name in ("loss", "lm_loss", "task_logits", "lm_logits"):
        close(output[name], after[name])


def test_trainer(tmp_path):
    """GPT1Trainer trains the adapter, logs both losses and saves the adapter alone."""
    base = make_model("entailment", make_tokenizer())
    config = LoraConfig(r=2, target_modules="all-linear", modules_to_save=["task_head"])
    trainer = make_trainer("entailment", tmp_path, 4, 1, model=get_peft_model(base, config), learning_rate=0.5)
    trainer.train()
    records = [record for record in trainer.state.log_history if "lm_loss" in record]
    assert len(records) == 3
    for record in records:
        assert record["loss"] == pytest.approx(record["task_loss"] + 0.5 * record["lm_loss"], rel=1e-4)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "README.md").write_text("a user's card")
    trainer.save_model(tmp_path / "saved")
    assert (tmp_path / "saved" / "README.md").read_text() == "a user's card"
    files = adapter_files(tmp_path / "saved")
    assert {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json"} <= files
    assert not {name for name in files if name.endswith((".bin", ".pt", ".pkl"))} and "model.safetensors" not in files
    saved = json.loads((tmp_path / "saved" / "adapter_config.json").read_text(encoding="utf-8"))
    assert saved["modules_to_save"] == ["task_head"]
    start = make_model("entailment", make_tokenizer())
    reloaded = PeftModel.from_pretrained(start, tmp_path / "saved").eval()
    batch = trainer.data_collator([trainer.train_dataset[0], trainer.train_dataset[1]])
    close(reloaded(**batch).task_logits, trainer.model.eval()(**batch).task_logits)
    fresh = make_model("entailment", make_tokenizer()).eval()
    assert not torch.allclose(fresh(**batch).task_logits, reloaded(**batch).task_logits, atol=1e-3)


def test_virtual_tokens_are_refused(tmp_path):
    base = make_model("classification", make_tokenizer())
    sizes = {"token_dim": 32, "num_layers": 2, "num_attention_heads": 4}
    model = get_peft_model(base, PromptTuningConfig(TaskType.SEQ_CLS, num_virtual_tokens=4, **sizes))
    message = refusal(make_trainer, "classification", tmp_path, 4, 1, model=model)
    assert "virtual tokens before each sequence (PROMPT_TUNING)" in message and "Use LoRA" in message
