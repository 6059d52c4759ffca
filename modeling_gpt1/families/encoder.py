"""Encoders of transformers, such as BERT, RoBERTa and ALBERT: they restore masked tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import transformers
from transformers import AutoModelForMaskedLM, PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from tokenization.corpus.noise import MaskedCollator, NextSentenceCollator, NoiseCollator, SentenceOrderCollator
from tokenization.text.forms import family_tokenizer

from .classifiers import ClassifierFamily
from .decoder import is_decoder


@dataclass(frozen=True)
class NoisyFamily(ClassifierFamily):
    """A model that restores texts to which its collator has done something."""

    @property
    def num_added(self) -> int:
        return self.collator_class.num_added

    def pretraining_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        return family_tokenizer(tokenizer, self.name)

    @property
    def noise_options(self) -> tuple[str, ...]:
        return self.collator_class.options

    def pretraining_collator(
        self, tokenizer: PreTrainedTokenizerBase, seed: int, blocks: Sequence[Mapping], **noise: Any
    ) -> NoiseCollator:
        return self.collator_class(tokenizer, seed, blocks, **noise)


@dataclass(frozen=True)
class EncoderFamily(NoisyFamily):
    """A model that predicts masked tokens from those on both sides."""

    objective: ClassVar[str] = "masked"
    auto_class: ClassVar[Any] = AutoModelForMaskedLM

    def is_of_kind(self, config: PreTrainedConfig) -> bool:
        has_masked_model = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
        return has_masked_model and not config.is_encoder_decoder and not is_decoder(config)


@dataclass(frozen=True)
class BertFamily(EncoderFamily):
    """BERT, which also tells whether a segment follows another one. Its configuration has no ends of texts."""

    @property
    def needs_stored_blocks(self) -> bool:
        return True  # the segments that do not follow are drawn from all of them

    def ends_of_texts(self, tokenizer: PreTrainedTokenizerBase) -> tuple[int | None, int | None]:
        return tokenizer.bos_token_id, tokenizer.eos_token_id


@dataclass(frozen=True)
class RobertaFamily(EncoderFamily):
    """RoBERTa, which counts positions from the id of padding."""

    def longest_sequence(self, config: PreTrainedConfig) -> int:
        return config.max_position_embeddings - (config.pad_token_id + 1)


ENCODER = EncoderFamily("encoder")
BERT = BertFamily("bert", transformers.BertConfig, transformers.BertForPreTraining, NextSentenceCollator)
ROBERTA = RobertaFamily(
    "roberta",
    transformers.RobertaConfig,
    transformers.RobertaForMaskedLM,
    MaskedCollator,
    # The position of the padding's id, 0, is left out. There are no segments.
    fields={"max_position_embeddings": 515, "type_vocab_size": 1},
)
ALBERT = EncoderFamily("albert", transformers.AlbertConfig, transformers.AlbertForPreTraining, SentenceOrderCollator)
