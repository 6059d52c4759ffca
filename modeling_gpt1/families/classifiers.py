"""What the families of transformers' own models share: they are fine-tuned as the classifiers of its Auto classes.

Their sequences are what their tokenizers write around one text or a pair.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from transformers import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING,
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tokenization import TraversalCollator
from tokenization.rows.tasks import Task

from ..configuration_gpt1 import has_choices
from ..hub.card import CardFacts
from .adapters import open_task_adapter
from .base import CLASSIFIERS, Family
from .checks import (
    check_collator_of_classifier,
    check_embeddings,
    check_padding,
    check_same_head,
    match_vocabulary,
    options_of_task,
)
from .opening import load_model, open_other_tokenizer
from .probing import limit_of_tokens
from .task_scores import TaskScores, scores_choices_as_pairs

DEFAULT_LENGTH = 512  # tokens, where neither model nor tokenizer has a limit
# Each name of sentence labels, and that of their logits.
SENTENCE_LOGITS = {"next_sentence_label": "seq_relationship_logits", "sentence_order_label": "sop_logits"}
# The hub's names of what language models do, by objective; it has none for the repair of texts.
PRETRAINING_TAGS = {"causal": "text-generation", "masked": "fill-mask", "denoising": None}


@dataclass(frozen=True)
class ClassifierFamily(Family):
    """A model of transformers, whose task model is one of its classifiers."""

    auto_class: ClassVar[Any]
    """Opens the model that predicts tokens."""

    scores_pairs: ClassVar[bool] = False
    """Whether a choice is scored as a pair by a classifier of one score, where transformers has no head of choices."""

    def has_head_for(self, traversal: str, config: PreTrainedConfig) -> bool:
        return self.scores_pairs or has_choice_class(config) or not has_choices(traversal)

    def describes(self, config: PreTrainedConfig) -> bool:
        is_of_type = self.config_class is None or config.model_type == self.config_class.model_type
        return is_of_type and self.is_of_kind(config)

    @abstractmethod
    def is_of_kind(self, config: PreTrainedConfig) -> bool:
        """Whether a configuration is of a model that works as those of the family do."""

    # ---- What a model or its configuration has

    def has_task_head(self, model: PreTrainedModel) -> bool:
        return type(model).__name__.endswith(CLASSIFIERS)

    def has_lm_head(self, model: PreTrainedModel) -> bool:
        return not self.has_task_head(model) and model.get_output_embeddings() is not None

    def has_auxiliary_loss(self, model: PreTrainedModel) -> bool:
        return False

    def has_sentence_loss(self, model: PreTrainedModel) -> bool:
        return not SENTENCE_LOGITS.keys().isdisjoint(inspect.signature(model.forward).parameters)

    def reads_both_orders(self, config: PreTrainedConfig) -> bool:
        return getattr(config, "both_orders", False)  # not a field of transformers

    # ---- Opening

    def open_config(self, checkpoint: str, trust_remote_code: bool = False) -> PreTrainedConfig:
        config = AutoConfig.from_pretrained(checkpoint, trust_remote_code=trust_remote_code)
        for name in ("traversal", "columns"):  # which transformers' own classifiers do not have
            if not hasattr(config, name):
                setattr(config, name, None)
        return config

    def open_tokenizer(self, name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
        return open_other_tokenizer(name_or_path, trust_remote_code)

    def open_language_model(self, checkpoint: str, **options: Any) -> PreTrainedModel:
        return self.auto_class.from_pretrained(checkpoint, **options)

    def open_for_pretraining(self, checkpoint: str) -> PreTrainedModel:
        return load_model(self.model_class, checkpoint)

    def open_task_model(
        self,
        checkpoint: str,
        config: PreTrainedConfig,
        *,
        ignore_mismatched_sizes: bool,
        trust_remote_code: bool,
        gets_adapter: bool,
        gets_lm_head: bool,
        quantization_config: Any | None,
    ) -> PreTrainedModel:
        is_choice = has_choices(config.traversal) and has_choice_class(config)
        auto_class = AutoModelForMultipleChoice if is_choice else AutoModelForSequenceClassification
        options = {
            "config": config,
            "dtype": torch.float32,  # of the weights; the trainer's `bf16` computes in half precision
            "ignore_mismatched_sizes": ignore_mismatched_sizes,
            "trust_remote_code": trust_remote_code,
            "quantization_config": quantization_config,
        }
        adapted = open_task_adapter(auto_class, checkpoint, gets_adapter, **options)
        if adapted is not None:
            return adapted
        return load_model(auto_class, checkpoint, reports_left_out=not gets_lm_head, **options)

    # ---- Making

    def fields_of_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        begin_id, end_id = self.ends_of_texts(tokenizer)
        return {
            "vocab_size": len(tokenizer),
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": begin_id,
            "eos_token_id": end_id,
        }

    def ends_of_texts(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int | None, int | None]:
        """Ids of the tokens that begin and end a text. A tokenizer such as BERT's has other names for them."""
        begin_id, end_id = tokenizer.bos_token_id, tokenizer.eos_token_id
        if begin_id is None:
            begin_id = tokenizer.cls_token_id
        if end_id is None:
            end_id = tokenizer.sep_token_id
        return begin_id, end_id

    # ---- Pre-training

    def check_pretraining(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        check_embeddings(model, tokenizer)

    # ---- Fine-tuning

    def check_head(self, checkpoint: str, config: PreTrainedConfig, task: Task) -> None:
        heads = [name for name in config.architectures or () if name.endswith(CLASSIFIERS)]
        if heads:
            # A head of multiple choice gives each choice one score, whatever the configuration calls `num_labels`.
            num_scores = 1 if heads[0].endswith("ForMultipleChoice") else config.num_labels
            check_same_head(checkpoint, config, task, num_scores)

    def finetuning_collator(
        self,
        config: PreTrainedConfig,
        tokenizer: PreTrainedTokenizerBase,
        task: Task,
        *,
        max_length: int | None,
        pad_to_multiple_of: int | None,
        both_orders: bool,
    ) -> TraversalCollator:
        return TraversalCollator(
            tokenizer,
            task.traversal,
            task.columns,
            max_length=max_length or DEFAULT_LENGTH,
            pad_to_multiple_of=pad_to_multiple_of,
            both_orders=both_orders,
            **options_of_task(task),
        )

    def complete_task_model(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        collator: TraversalCollator,
        max_length: int | None,
    ) -> None:
        match_vocabulary(model, tokenizer)
        if not max_length:
            longest = limit_of_tokens(model, tokenizer) or DEFAULT_LENGTH
            replace(collator, max_length=longest)  # a new collator refuses a length that is too short
            collator.max_length = longest
        check_collator_of_classifier(model, collator)

    def check_finetuning(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, collator: Callable
    ) -> None:
        if tokenizer is not None:
            match_vocabulary(model, tokenizer)
        if isinstance(collator, TraversalCollator):
            check_collator_of_classifier(model, collator)
            check_padding(model, collator)

    # ---- Scores

    def scores_of(self, model: torch.nn.Module, own_model: PreTrainedModel | None = None) -> Callable:
        return TaskScores(model, own_model)

    # ---- The card

    def pipeline_tag(self, model: PreTrainedModel) -> str | None:
        return "text-classification" if scores_choices_as_pairs(model) else super().pipeline_tag(model)

    def card_facts(self, model: PreTrainedModel, repo_id: str, is_adapter: bool = False) -> CardFacts:
        facts = super().card_facts(model, repo_id, is_adapter)
        facts.is_pair |= scores_choices_as_pairs(model)
        if not facts.is_finetuned:
            facts.objective = self.objective
            facts.has_sentences = self.has_sentence_loss(model)
        return facts

    def pretraining_tag(self, model: PreTrainedModel) -> str | None:
        return PRETRAINING_TAGS[self.objective]

    def traversal_of(self, model: PreTrainedModel) -> str | None:
        return getattr(model.config, "traversal", None)  # not a field of transformers


def has_choice_class(config: PreTrainedConfig) -> bool:
    """Whether `AutoModelForMultipleChoice` opens the models that a configuration describes."""
    own_classes = getattr(config, "auto_map", None) or {}  # of a model that brings its code
    return type(config) in MODEL_FOR_MULTIPLE_CHOICE_MAPPING or "AutoModelForMultipleChoice" in own_classes
