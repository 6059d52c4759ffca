"""Frozen weights: which they are in each family, that training leaves them alone, and what it costs no memory for."""

import logging
import re

import pytest
import torch
import transformers
from support.families import make_family_model, make_family_tokenizer
from support.finetuning import Rows, resumes_after, settings_of
from support.refusals import refusal
from transformers import EsmConfig, EsmForSequenceClassification, OPTConfig, OPTForSequenceClassification

from modeling_gpt1 import (
    GPT1ForCausalLM,
    GPT1LSTMForCausalLM,
    GPT1Trainer,
    GPT1TrainingArguments,
    prepare_finetuning,
)
from modeling_gpt1.training.freezing import describe_freezing, freeze_weights
from tokenization import Task

TASK = Task("own", "classification", {"text": "a", "label": "label"}, ("no", "yes"))
# Of GPT-1 with three layers.
GPT1_EMBEDDINGS = {"transformer.tokens_embed", "transformer.positions_embed"}


@pytest.fixture
def folder(tiny_model, plain_tokenizer, tmp_path):
    return write_start(GPT1ForCausalLM, tiny_model, plain_tokenizer, tmp_path / "start")


def write_start(model_class, tiny_model, tokenizer, place, **fields):
    fields = {"num_hidden_layers": 3, "max_position_embeddings": 96, "initializer_range": 0.1, **fields}
    tiny_model(model_class, vocab_size=len(tokenizer), **fields).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def prepare(folder, freeze, **options):
    torch.manual_seed(0)
    return prepare_finetuning(folder, TASK, freeze=freeze, **options)


def make_trainer(parts, output, **settings) -> GPT1Trainer:
    arguments = GPT1TrainingArguments(**settings_of(output, 8, 1, **{"optim": "adamw_torch", **settings}))
    rows = Rows("classification", 24)
    return GPT1Trainer(args=arguments, train_dataset=rows, eval_dataset=rows, **parts)


def frozen_modules(model) -> set[str]:
    return {name.rpartition(".")[0] for name, weight in model.named_parameters() if not weight.requires_grad}


def weights_of(model) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


# ---- Which weights


@pytest.mark.parametrize(("freeze", "num_layers"), [("embeddings", 0), (0, 0), ("0", 0), (1, 1), ("2", 2), (3, 3)])
def test_the_embeddings_and_the_first_layers_are_frozen(folder, freeze, num_layers):
    model = prepare(folder, freeze)["model"]
    frozen = frozen_modules(model)
    layers = frozen - GPT1_EMBEDDINGS
    assert GPT1_EMBEDDINGS <= frozen
    assert {name.rpartition(".")[0].split(".attn")[0].split(".mlp")[0] for name in layers} == {
        f"transformer.h.{layer}" for layer in range(num_layers)
    }
    assert not any(weight.requires_grad for layer in model.transformer.h[:num_layers] for weight in layer.parameters())
    assert all(weight.requires_grad for weight in model.task_head.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_of_everything_but_the_head_the_head_alone_is_trained(tiny_model, plain_tokenizer, tmp_path, tied):
    folder = write_start(GPT1ForCausalLM, tiny_model, plain_tokenizer, tmp_path, tie_word_embeddings=tied)
    model = prepare(folder, "base")["model"]
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"task_head.score.weight", "task_head.score.bias"}


def test_the_layers_of_the_lstm_are_frozen(tiny_model, plain_tokenizer, tmp_path):
    folder = write_start(GPT1LSTMForCausalLM, tiny_model, plain_tokenizer, tmp_path, num_hidden_layers=2)
    frozen = frozen_modules(prepare(folder, 1)["model"])
    parts = ("ln_1", "lstm", "c_proj", "ln_2")
    assert frozen == {"transformer.tokens_embed", *(f"transformer.h.0.{part}" for part in parts)}


def test_without_the_argument_everything_is_trained(folder):
    assert frozen_modules(prepare(folder, None)["model"]) == set()


EMBEDDINGS_OF_FAMILIES = {
    "bert": {f"bert.embeddings.{name}" for name in ("word_embeddings", "position_embeddings", "token_type_embeddings")}
    | {"bert.embeddings.LayerNorm"},
    "albert": {f"albert.embeddings.{name}" for name in ("word_embeddings", "position_embeddings", "LayerNorm")}
    | {"albert.embeddings.token_type_embeddings", "albert.encoder.embedding_hidden_mapping_in"},
    "gpt2": {"transformer.wte", "transformer.wpe"},
    "llama": {"model.embed_tokens"},
    "t5": {"transformer.shared"},
    "bart": {"model.shared"}
    | {
        f"model.{side}.{part}"
        for side in ("encoder", "decoder")
        for part in ("embed_positions", "layernorm_embedding")
    },
}
HEADS_OF_FAMILIES = {
    "bert": {"bert.pooler.dense", "classifier"},
    "albert": {"albert.pooler", "classifier"},
    "gpt2": {"score"},
    "llama": {"score"},
    "t5": {"classification_head.dense", "classification_head.out_proj"},
    "bart": {"classification_head.dense", "classification_head.out_proj"},
}


def family_model(family):
    return make_family_model(family, make_family_tokenizer(family), "ForSequenceClassification")


@pytest.mark.parametrize("family", EMBEDDINGS_OF_FAMILIES)
def test_the_embeddings_of_a_family_are_frozen(family):
    assert frozen_modules(freeze_weights(family_model(family), "embeddings")) == EMBEDDINGS_OF_FAMILIES[family]


def test_a_projection_before_the_first_block_is_frozen_with_the_embeddings():
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "ffn_dim": 8, "vocab_size": 9}
    model = OPTForSequenceClassification(OPTConfig(**sizes, word_embed_proj_dim=4, max_position_embeddings=8))
    places = {f"model.decoder.{name}" for name in ("embed_tokens", "embed_positions", "project_in")}
    assert frozen_modules(freeze_weights(model, "embeddings")) == places


def test_a_norm_behind_the_last_block_is_trained_whatever_its_name():
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    model = EsmForSequenceClassification(EsmConfig(**sizes, vocab_size=9, max_position_embeddings=8, pad_token_id=0))
    frozen = frozen_modules(freeze_weights(model, "embeddings"))
    assert "esm.embeddings.word_embeddings" in frozen
    assert "esm.encoder.emb_layer_norm_after" not in frozen


@pytest.mark.parametrize("family", HEADS_OF_FAMILIES)
def test_the_head_of_a_family_is_trained_with_its_pooler(family):
    model = freeze_weights(family_model(family), "base")
    trained = {name.rpartition(".")[0] for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == HEADS_OF_FAMILIES[family]


@pytest.mark.parametrize(
    ("family", "places"),
    [
        ("bert", {"bert.encoder.layer.0"}),
        ("llama", {"model.layers.0"}),
        ("bart", {"model.encoder.layers.0", "model.encoder.layers.1", "model.decoder.layers.0"}),
    ],
)
def test_the_first_layers_of_a_family_are_frozen(family, places):
    model = freeze_weights(family_model(family), len(places))
    layers = frozen_modules(model) - EMBEDDINGS_OF_FAMILIES[family]
    assert {re.match(r".*?\.\d+", name)[0] for name in layers} == places


# ---- What training does


@pytest.mark.parametrize("freeze", ["embeddings", 2, "base"])
def test_training_changes_the_other_weights_alone(folder, tmp_path, freeze):
    parts = prepare(folder, freeze, lm_coef=0 if freeze == "base" else 0.5)
    before = weights_of(parts["model"])
    trainer = make_trainer(parts, tmp_path)
    trainer.train()
    names = dict(trainer.model.named_parameters())
    changed = {name for name in names if not torch.equal(before[name], names[name])}
    assert changed == {name for name, weight in names.items() if weight.requires_grad}


@pytest.mark.parametrize("freeze", ["embeddings", 2, "base"])
def test_frozen_weights_have_neither_gradient_nor_state_of_the_optimizer(folder, tmp_path, freeze):
    trainer = make_trainer(prepare(folder, freeze), tmp_path)
    trainer.train()
    frozen = [weight for weight in trainer.model.parameters() if not weight.requires_grad]
    assert frozen
    assert all(weight.grad is None for weight in frozen)
    held = {weight for group in trainer.optimizer.param_groups for weight in group["params"]}
    assert held == {weight for weight in trainer.model.parameters() if weight.requires_grad}


def test_the_gradients_of_the_others_are_those_of_a_training_of_all(folder):
    batches = []
    for freeze in (None, 2):
        parts = prepare(folder, freeze)
        parts["model"](**parts["data_collator"](Rows("classification", 6).rows)).loss.backward()
        batches.append({name: weight.grad for name, weight in parts["model"].named_parameters()})
    of_all, of_others = batches
    trained = {name: grad for name, grad in of_others.items() if grad is not None}
    assert len(trained) > 10
    assert all(torch.equal(grad, of_all[name]) for name, grad in trained.items())


def test_a_run_with_frozen_weights_resumes_to_the_bit(folder, tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 1}
    whole = make_trainer(prepare(folder, 1), tmp_path / "run", **settings)
    whole.train()
    resumed = make_trainer(prepare(folder, 1), tmp_path / "resumed", **settings)
    with resumes_after(1):
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-1"))
    expected = weights_of(whole.model)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(resumed.model).items())


@pytest.mark.parametrize(
    ("first", "second", "told"), [(None, "base", "trains 2 weights"), ("base", None, "trained 2.")]
)
def test_a_resume_that_trains_other_weights_is_refused(folder, tmp_path, first, second, told):
    settings = {"save_strategy": "steps", "save_steps": 1}
    make_trainer(prepare(folder, first), tmp_path / "run", max_steps=1, **settings).train()
    other = make_trainer(prepare(folder, second), tmp_path / "run", max_steps=2, **settings)
    message = refusal(other.train, resume_from_checkpoint="auto")
    assert told in message
    assert "Freeze what that run froze (`freeze`, `freeze_lm_head`)" in message
    assert other.state.global_step == 0


# ---- What is said


@pytest.mark.parametrize(
    ("freeze", "told"),
    [("embeddings", "embeddings ("), (1, "embeddings and first 1 layer ("), ("base", "everything but the head (")],
)
def test_the_card_says_what_was_frozen(folder, tmp_path, freeze, told):
    trainer = make_trainer(prepare(folder, freeze), tmp_path)
    trainer.create_model_card()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    num_frozen = sum(weight.numel() for weight in trainer.model.parameters() if not weight.requires_grad)
    assert f"| frozen | {told}{num_frozen:,} of " in card


def test_the_card_of_a_training_of_all_says_nothing_of_it(folder, tmp_path):
    trainer = make_trainer(prepare(folder, None), tmp_path)
    assert describe_freezing(trainer.model) is None
    trainer.create_model_card()
    assert "frozen" not in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_new_tokens_whose_embeddings_stay_as_they_were_drawn_are_counted(folder, caplog):
    with caplog.at_level(logging.WARNING):
        prepare(folder, "embeddings")
    assert "the embeddings of 3 new tokens as they were drawn" in caplog.text


def test_a_language_model_loss_that_changes_no_weight_is_named(folder, tmp_path, caplog):
    parts = prepare(folder, "base")
    with caplog.at_level(logging.WARNING):
        make_trainer(parts, tmp_path)
    assert "`lm_coef` is 0.5, but all weights that the language-model loss could change are frozen" in caplog.text


@pytest.mark.parametrize("freeze", ["head", "1.5", -1, 1.0, True])
def test_another_word_is_refused(folder, freeze):
    message = refusal(prepare, folder, freeze)
    assert f"`freeze` is {freeze!r}" in message
    assert "'embeddings', a number of first layers" in message


def test_more_layers_than_there_are_are_refused(folder):
    message = refusal(prepare, folder, 4)
    assert "`freeze` is 4, but the model has 3 layers" in message


def test_layers_that_share_their_weights_are_refused():
    message = refusal(freeze_weights, family_model("albert"), 1)
    assert "AlbertForSequenceClassification cannot be frozen one by one" in message
    assert "Pass 'embeddings' or 'base'" in message


def test_an_adapter_is_refused(folder):
    from peft import LoraConfig

    assert "an adapter freezes everything but itself" in refusal(prepare, folder, "base", peft_config=LoraConfig(r=2))


def test_a_new_model_is_refused(tiny_config, plain_tokenizer):
    message = refusal(prepare_finetuning, tiny_config(), TASK, plain_tokenizer, freeze=1)
    assert "a new model has no trained weights to keep" in message


@pytest.mark.parametrize(("freeze", "n_transfer"), [(2, 1), ("base", 2), ("embeddings", -1)])
def test_layers_that_were_drawn_anew_are_not_frozen(folder, freeze, n_transfer):
    message = refusal(prepare, folder, freeze, n_transfer=n_transfer)
    assert f"`n_transfer` is {n_transfer}: layers would be frozen that were drawn anew" in message


def test_layers_that_are_kept_may_be_frozen(folder):
    model = prepare(folder, 1, n_transfer=1)["model"]
    kept = transformers.AutoModelForCausalLM.from_pretrained(folder).transformer.h[0].attn.q_proj.weight
    assert torch.equal(model.transformer.h[0].attn.q_proj.weight, kept)
    assert not model.transformer.h[0].attn.q_proj.weight.requires_grad
