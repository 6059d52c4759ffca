"""Decoders of transformers, such as GPT-2 and Llama: causal models, and their classifiers."""

from dataclasses import dataclass
from typing import Any, ClassVar

import transformers
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from .classifiers import ClassifierFamily


@dataclass(frozen=True)
class DecoderFamily(ClassifierFamily):
    """A model that predicts each token from those before it."""

    objective: ClassVar[str] = "causal"
    auto_class: ClassVar[Any] = AutoModelForCausalLM

    def is_of_kind(self, config: PreTrainedConfig) -> bool:
        # BERT and RoBERTa can be decoders, too.
        is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not is_decoder(config)
        return not is_masked and not config.is_encoder_decoder


@dataclass(frozen=True)
class GPT2Family(DecoderFamily):
    """transformers' own GPT-2, for a fresh model. Its folders open as GPT-1, a configuration of which it is."""

    def has_head_for(self, traversal: str, config: PreTrainedConfig) -> bool:
        return True  # GPT-1's

    def with_own_names(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {"n_inner" if name == "intermediate_size" else name: value for name, value in fields.items()}


def is_decoder(config: PreTrainedConfig) -> bool:
    """Whether a configuration of a model that can be both says that it is a decoder."""
    return getattr(config, "is_decoder", False)  # many have no such field


DECODER = DecoderFamily("decoder")
GPT2 = GPT2Family("gpt2", GPT2Config, transformers.GPT2LMHeadModel)
