"""Decoders of transformers, such as GPT-2 and Llama: causal models, and their classifiers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import transformers
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from ..hub.card import CardFacts
from .auxiliary import (
    add_auxiliary_head,
    auxiliary_head,
    check_output_matrix,
    read_trained_head,
    write_trained_head,
)
from .base import check_lm_coef
from .classifiers import ClassifierFamily
from .probing import num_parameters


@dataclass(frozen=True)
class DecoderFamily(ClassifierFamily):
    """A model that predicts each token from those before it."""

    objective: ClassVar[str] = "causal"
    auto_class: ClassVar[Any] = AutoModelForCausalLM
    scores_pairs: ClassVar[bool] = True

    def has_auxiliary_loss(self, model: PreTrainedModel) -> bool:
        return auxiliary_head(model) is not None

    def has_own_output_matrix(self, model: PreTrainedModel) -> bool:
        head = auxiliary_head(model)
        return head is not None and head.is_trained

    def check_finetuning(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, collator: Callable
    ) -> None:
        super().check_finetuning(model, tokenizer, collator)
        if tokenizer is not None:
            check_output_matrix(model, tokenizer)

    def add_auxiliary_loss(
        self,
        model: PreTrainedModel,
        checkpoint: str | None,
        tokenizer: PreTrainedTokenizerBase,
        lm_coef: float,
        *,
        freeze_lm_head: bool = False,
        trust_remote_code: bool = False,
        quantization_config: Any | None = None,
    ) -> None:
        check_lm_coef(lm_coef)
        if not lm_coef:
            return
        add_auxiliary_head(
            model,
            checkpoint,
            tokenizer,
            is_frozen=freeze_lm_head,
            trust_remote_code=trust_remote_code,
            quantization_config=quantization_config,
        )
        self.set_lm_coef(model.config, lm_coef)

    def write_unsaved_weights(self, model: PreTrainedModel, folder: Path) -> None:
        write_trained_head(model, folder)

    def read_unsaved_weights(self, model: PreTrainedModel, folder: Path) -> None:
        read_trained_head(model, folder)

    def card_facts(self, model: PreTrainedModel, repo_id: str, is_adapter: bool = False) -> CardFacts:
        facts = super().card_facts(model, repo_id, is_adapter)
        head = auxiliary_head(model)
        if head is not None:  # which is not saved
            num_unsaved = sum(weight.numel() for weight in head.parameters())
            facts.num_parameters = f"{num_parameters(model) - num_unsaved:,}"
        return facts

    def is_of_kind(self, config: PreTrainedConfig) -> bool:
        # BERT and RoBERTa can be decoders, too.
        is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_decoder(config)
        return not is_masked and not config.is_encoder_decoder


@dataclass(frozen=True)
class GPT2Family(DecoderFamily):
    """transformers' own GPT-2, for a new model. Its folders open as GPT-1, a configuration of which it is."""

    def has_head_for(self, traversal: str, config: PreTrainedConfig) -> bool:
        return True  # GPT-1's

    def with_own_names(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"n_inner" if name == "intermediate_size" else name: value for name, value in fields.items()}


def is_decoder(config: PreTrainedConfig) -> bool:
    """Whether a configuration of a model that can be both says that it is a decoder."""
    return getattr(config, "is_decoder", False)  # many have no such field


DECODER = DecoderFamily("decoder")
GPT2 = GPT2Family("gpt2", GPT2Config, transformers.GPT2LMHeadModel)
