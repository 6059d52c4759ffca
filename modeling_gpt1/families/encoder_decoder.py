"""Encoder-decoders of transformers, such as BART and T5: the decoder restores a damaged text that the encoder read."""

from dataclasses import dataclass
from typing import Any, ClassVar

from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from tokenization.corpus.noise import InfillingCollator
from tokenization.errors import UserError

from ..hub.card import CardFacts
from .encoder import NoisyFamily


@dataclass(frozen=True)
class EncoderDecoderFamily(NoisyFamily):
    """A model whose decoder restores what its encoder has read in a damaged form."""

    objective: ClassVar[str] = "denoising"
    auto_class: ClassVar[Any] = AutoModelForSeq2SeqLM

    def is_of_kind(self, config: PreTrainedConfig) -> bool:
        return config.is_encoder_decoder

    def card_facts(self, model: PreTrainedModel, repo_id: str, is_adapter: bool = False) -> CardFacts:
        facts = super().card_facts(model, repo_id, is_adapter)
        if not facts.is_finetuned:
            facts.auto_class = self.auto_class.__name__
        return facts


@dataclass(frozen=True)
class BartFamily(EncoderDecoderFamily):
    """BART: the layers of a size are shared out among encoder and decoder."""

    def fields_of_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        fields = super().fields_of_tokenizer(tokenizer)
        # The decoder begins with the end token, and ends with it.
        fields["decoder_start_token_id"] = fields["eos_token_id"]
        fields["forced_eos_token_id"] = fields["eos_token_id"]
        return fields

    def with_own_names(self, fields: dict[str, Any]) -> dict[str, Any]:
        common = {"num_hidden_layers": 12, "num_attention_heads": 12, **fields}
        # Half of the layers each, as its base size has 6 and 6 beside the 12 of the others.
        num_layers = common.pop("num_hidden_layers")
        if num_layers < 2:
            raise UserError(
                f"`num_hidden_layers` is {num_layers}, but BART's encoder and decoder share them. Pass 2 or more."
            )
        num_heads = common.pop("num_attention_heads")
        inner_size = common.pop("intermediate_size")
        of_sides = {
            "encoder_layers": num_layers - num_layers // 2,
            "encoder_attention_heads": num_heads,
            "encoder_ffn_dim": inner_size,
            "decoder_layers": num_layers // 2,
            "decoder_attention_heads": num_heads,
            "decoder_ffn_dim": inner_size,
        }
        return {**of_sides, **common}


ENCODER_DECODER = EncoderDecoderFamily("encoder-decoder")
BART = BartFamily("bart", BartConfig, BartForConditionalGeneration, InfillingCollator)
