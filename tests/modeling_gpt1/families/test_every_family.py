"""Every family answers every question that `Family` asks, about models of its own."""

from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from support.tiny import SENTENCES, byte_level
from transformers import DistilBertConfig, LlamaConfig, PreTrainedConfig, PreTrainedModel, T5Config

from modeling_gpt1 import prepare_finetuning
from modeling_gpt1.families import FAMILIES, GENERAL_FAMILIES, Family, family_of_config
from modeling_gpt1.hub.card import CardFacts
from tokenization import Task, TraversalCollator

TASK = Task("own", "entailment", {"premise": "a", "hypothesis": "b", "label": "label"}, ("no", "yes"))
ROWS = [{"a": "ann sees", "b": "a dog", "label": 1}, {"a": "ben", "b": "ann goes home", "label": 0}]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
LSTM_SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "lstm_hidden_size": 24}


@dataclass
class Parts:
    """A pre-trained model of a family in a folder, and what a fine-tuning makes of it."""

    family: Family
    folder: Path
    plain_tokenizer: Any

    @cached_property
    def tokenizer(self):
        return self.family.pretraining_tokenizer(self.plain_tokenizer)

    @cached_property
    def config(self) -> PreTrainedConfig:
        sizes = SIZES if self.family.common_sizes else LSTM_SIZES
        return self.family.make_config(self.tokenizer, **sizes, max_position_embeddings=64)

    @cached_property
    def model(self) -> PreTrainedModel:
        torch.manual_seed(0)
        model = self.family.make_language_model(self.config)
        model.save_pretrained(self.folder)
        self.tokenizer.save_pretrained(self.folder)
        return model

    @cached_property
    def finetuned(self) -> dict[str, Any]:
        assert self.model is not None
        return prepare_finetuning(self.folder, TASK, auto_model=True)


@pytest.fixture(params=list(FAMILIES), scope="module")
def parts(request, tmp_path_factory, plain_tokenizer):
    # GPT-1's BPE would make GPT-1's sequences.
    tokenizer = byte_level(SENTENCES) if request.param == "gpt2" else plain_tokenizer
    return Parts(FAMILIES[request.param], tmp_path_factory.mktemp(request.param), tokenizer)


def finetuned_model(parts: Parts) -> PreTrainedModel:
    return parts.finetuned["model"]


def scores_of_rows(parts: Parts) -> torch.Tensor:
    model, collator = finetuned_model(parts), parts.finetuned["data_collator"]
    with torch.no_grad():
        outputs = parts.family.scores_of(model.eval())(**collator(ROWS))
    return parts.family.task_logits(outputs)


def fresh_task_model(parts: Parts) -> PreTrainedModel | None:
    """Only GPT-1 is fine-tuned without pre-training; the others refuse it with a sentence."""
    if parts.family.has_control_tokens:
        config = deepcopy(parts.config)
        config.traversal = "entailment"
        return parts.family.make_task_model(config, parts.tokenizer)
    with pytest.raises(ValueError, match="Pass a checkpoint of this model, or a GPT1Config"):
        parts.family.make_task_model(parts.config, parts.tokenizer)
    return None


def adapter_of(parts: Parts) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules="all-linear")
    parts.family.complete_adapter(config, parts.finetuned["processing_class"])
    return config


# Of each question: how it is asked, and what answers it has.
QUESTIONS = {
    "is_causal": (lambda parts: parts.family.is_causal, bool),
    "needs_stored_blocks": (lambda parts: parts.family.needs_stored_blocks, bool),
    "num_added": (lambda parts: parts.family.num_added, int),
    "has_head_for": (lambda parts: parts.family.has_head_for("entailment", parts.config), bool),
    "describes": (lambda parts: parts.family.describes(parts.config), bool),
    "has_task": (lambda parts: parts.family.has_task(parts.config), bool),
    "has_task_head": (lambda parts: parts.family.has_task_head(finetuned_model(parts)), bool),
    "has_lm_head": (lambda parts: parts.family.has_lm_head(parts.model), bool),
    "has_auxiliary_loss": (lambda parts: parts.family.has_auxiliary_loss(finetuned_model(parts)), bool),
    "has_own_output_matrix": (lambda parts: parts.family.has_own_output_matrix(finetuned_model(parts)), bool),
    "has_sentence_loss": (lambda parts: parts.family.has_sentence_loss(parts.model), bool),
    "has_known_loss": (lambda parts: parts.family.has_known_loss(parts.model), bool),
    "reads_both_orders": (lambda parts: parts.family.reads_both_orders(parts.config), bool),
    "open_config": (lambda parts: parts.model and parts.family.open_config(str(parts.folder)), PreTrainedConfig),
    "open_tokenizer": (lambda parts: parts.model and parts.family.open_tokenizer(str(parts.folder)), object),
    "open_language_model": (
        lambda parts: parts.model and parts.family.open_language_model(str(parts.folder)),
        PreTrainedModel,
    ),
    "open_for_pretraining": (
        lambda parts: parts.model and parts.family.open_for_pretraining(str(parts.folder)),
        PreTrainedModel,
    ),
    "open_task_model": (finetuned_model, PreTrainedModel),
    "make_config": (lambda parts: parts.config, PreTrainedConfig),
    "default_fields": (lambda parts: parts.family.default_fields(), dict),
    "fields_of_tokenizer": (lambda parts: parts.family.fields_of_tokenizer(parts.tokenizer), dict),
    "with_own_names": (lambda parts: parts.family.with_own_names(dict(SIZES)), dict),
    "check_sizes": (lambda parts: parts.family.check_sizes(parts.config), type(None)),
    "make_language_model": (lambda parts: parts.model, PreTrainedModel),
    "make_task_model": (fresh_task_model, PreTrainedModel | None),
    "longest_sequence": (lambda parts: parts.family.longest_sequence(parts.config), int),
    "block_length": (lambda parts: parts.family.block_length(parts.config), int),
    "pretraining_tokenizer": (lambda parts: parts.tokenizer, object),
    "noise_options": (lambda parts: parts.family.noise_options, tuple),
    "pretraining_collator": (
        lambda parts: parts.family.pretraining_collator(parts.tokenizer, 0, [{"input_ids": [5, 6, 7, 8]}]),
        object,
    ),
    "check_pretraining": (lambda parts: parts.family.check_pretraining(parts.model, parts.tokenizer), type(None)),
    "check_head": (lambda parts: parts.family.check_head("folder", parts.config, TASK), type(None)),
    "finetuning_collator": (lambda parts: parts.finetuned["data_collator"], TraversalCollator),
    "complete_task_model": (finetuned_model, PreTrainedModel),
    "check_finetuning": (
        lambda parts: parts.family.check_finetuning(
            finetuned_model(parts), parts.finetuned["processing_class"], parts.finetuned["data_collator"]
        ),
        type(None),
    ),
    "add_auxiliary_loss": (
        lambda parts: parts.family.add_auxiliary_loss(
            deepcopy(finetuned_model(parts)), str(parts.folder), parts.finetuned["processing_class"], 0.0
        ),
        type(None),
    ),
    "set_lm_coef": (lambda parts: parts.family.set_lm_coef(deepcopy(parts.config), 0.5), type(None)),
    "write_unsaved_weights": (
        lambda parts: parts.family.write_unsaved_weights(finetuned_model(parts), parts.folder),
        type(None),
    ),
    "read_unsaved_weights": (
        lambda parts: parts.family.read_unsaved_weights(finetuned_model(parts), parts.folder),
        type(None),
    ),
    "complete_adapter": (adapter_of, object),
    "scores_of": (scores_of_rows, torch.Tensor),
    "task_logits": (scores_of_rows, torch.Tensor),
    "loss_settings": (lambda parts: parts.family.loss_settings(finetuned_model(parts).config), object),
    "card_facts": (lambda parts: parts.family.card_facts(parts.model, "me/model"), CardFacts),
    "model_tag": (lambda parts: parts.family.model_tag(parts.config), str),
    "pipeline_tag": (lambda parts: parts.family.pipeline_tag(parts.model), str | None),
    "pretraining_tag": (lambda parts: parts.family.pretraining_tag(parts.model), str | None),
    "traversal_of": (lambda parts: parts.family.traversal_of(finetuned_model(parts)), str),
}


def test_each_question_of_the_base_class_is_asked_here():
    fields = set(Family.__dataclass_fields__)
    constants = {name for name in Family.__annotations__ if "ClassVar" in str(Family.__annotations__[name])}
    public = {name for name in vars(Family) if not name.startswith("_")}
    assert public - fields - constants == QUESTIONS.keys()


@pytest.mark.parametrize("question", QUESTIONS)
def test_each_family_answers(parts, question):
    ask, kind = QUESTIONS[question]
    assert isinstance(ask(parts), kind)


def test_scores_are_those_of_the_classes(parts):
    assert scores_of_rows(parts).shape == (len(ROWS), len(TASK.label_names))


def test_a_new_family_pretrains_one_of_three_objectives(parts):
    assert parts.family.objective in ("causal", "masked", "denoising")


@pytest.mark.parametrize(
    ("config", "objective"), [(LlamaConfig(), "causal"), (DistilBertConfig(), "masked"), (T5Config(), "denoising")]
)
def test_models_without_a_family_of_their_own_have_a_general_one(config, objective):
    family = family_of_config(config)
    assert family in GENERAL_FAMILIES
    assert family.objective == objective
    assert family.model_class is None


def test_a_general_family_is_of_one_kind_alone():
    for config in (LlamaConfig(), DistilBertConfig(), T5Config()):
        assert sum(family.describes(config) for family in GENERAL_FAMILIES) == 1
