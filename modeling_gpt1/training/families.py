"""The families of models that are pre-trained on the same blocks: model, objective, collator and sizes of each.

Models, heads and masks are transformers' own. GPT-3 is a configuration of this package's decoder, because transformers
has no model with its dense and locally banded layers; so is GPT-1.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForPreTraining,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
)

from tokenization import BlockCollator
from tokenization.family import family_tokenizer
from tokenization.noise import (
    InfillingCollator,
    MaskedCollator,
    NextSentenceCollator,
    NoiseCollator,
    SentenceOrderCollator,
)

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..modeling_gpt1 import GPT1ForCausalLM
from ..modeling_gpt1_lstm import GPT1LSTMForCausalLM
from .family_trainer import FamilyPretrainingTrainer
from .task_models import OPENED_TYPES
from .trainer import GPT1PretrainingTrainer

# GPT-1's sizes: each family gets them by default, so that families differ in nothing else.
SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}


@dataclass(frozen=True)
class Family:
    """How the models of a family are made and pre-trained."""

    name: str
    config_class: type[PreTrainedConfig]
    model_class: type[PreTrainedModel]
    collator_class: type[BlockCollator] | type[NoiseCollator] = BlockCollator
    fields: dict[str, Any] = field(default_factory=dict)
    """Fields of a fresh configuration that differ from the class's defaults."""

    @property
    def is_causal(self) -> bool:
        """Whether the model predicts each token from those before it."""
        return self.collator_class is BlockCollator

    @property
    def draws_blocks(self) -> bool:
        """Whether a batch needs blocks beside its own."""
        return self.collator_class is NextSentenceCollator

    @property
    def num_added(self) -> int:
        """Special tokens that are added to a block."""
        return 0 if self.is_causal else self.collator_class.num_added

    @property
    def common_names(self) -> tuple[str, ...]:
        """Names of sizes that every Transformer here has, whatever its configuration calls them."""
        return () if self.config_class is GPT1LSTMConfig else tuple(SIZES)

    def make_config(self, tokenizer: PreTrainedTokenizerBase | None = None, **overrides: Any) -> PreTrainedConfig:
        """A fresh configuration; the sizes `SIZES` have the same names for each family."""
        of_tokenizer = {} if tokenizer is None else self._fields_of(tokenizer)
        # A size given by the configuration's own name, such as `n_embd`, replaces the default of the common name.
        given = {common for common, own in self.config_class.attribute_map.items() if own in overrides}
        defaults = {name: value for name, value in self.fields.items() if name not in given}
        return self.config_class(**self._translate({**defaults, **of_tokenizer, **overrides}))

    def _fields_of(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        fields = {"vocab_size": len(tokenizer)}
        if self.trainer_class is GPT1PretrainingTrainer:
            return fields
        fields |= {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
        if self.name != "bert":  # a tokenizer such as BERT's names its ends otherwise
            for end, name in (("bos", "cls"), ("eos", "sep")):
                if fields[f"{end}_token_id"] is None:
                    fields[f"{end}_token_id"] = getattr(tokenizer, f"{name}_token_id")
        if self.config_class is BartConfig:  # its decoder begins with the end token, and ends with it
            fields |= {"decoder_start_token_id": fields["eos_token_id"], "forced_eos_token_id": fields["eos_token_id"]}
        return fields

    def _translate(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields with the configuration's own names where the class does not know the common ones."""
        if self.config_class is GPT2Config:
            return {"n_inner" if name == "intermediate_size" else name: value for name, value in fields.items()}
        if self.config_class is not BartConfig:
            return fields
        fields = dict(fields)
        # Half of the layers each, as its base size has 6 and 6 beside the 12 of the others.
        num_layers = fields.pop("num_hidden_layers", SIZES["num_hidden_layers"])
        if isinstance(num_layers, int) and (num_layers < 2 or num_layers % 2):
            raise ValueError(
                f"num_hidden_layers is {num_layers}, but bart gets half of the layers for each side. Pass an even "
                "number from 2, or encoder_layers and decoder_layers."
            )
        half = num_layers // 2 if isinstance(num_layers, int) else num_layers  # the class refuses the latter
        fields = {"encoder_layers": half, "decoder_layers": half, **fields}
        for own, common in (("attention_heads", "num_attention_heads"), ("ffn_dim", "intermediate_size")):
            value = fields.pop(common, SIZES[common])
            fields = {f"encoder_{own}": value, f"decoder_{own}": value, **fields}
        return fields

    def check_sizes(self, config: PreTrainedConfig) -> None:
        """Builds the model without memory for its weights.

        Raises:
            ValueError: its sizes do not fit together.
        """
        heads = getattr(config, "num_attention_heads", None) or 1
        if config.hidden_size % heads:
            raise ValueError(f"hidden_size ({config.hidden_size}) is not divisible by num_attention_heads ({heads}).")
        if self.collator_class in (NextSentenceCollator, SentenceOrderCollator) and config.type_vocab_size < 2:
            raise ValueError(
                f"type_vocab_size is {config.type_vocab_size}, but {self.name} reads pairs of segments. Pass 2."
            )
        try:
            with torch.device("meta"):
                self.model_class(config)
        except Exception as error:  # of many types: transformers checks few sizes
            raise ValueError(f"{self.model_class.__name__} cannot be built: {error}.") from error

    @property
    def trainer_class(self) -> type[GPT1PretrainingTrainer]:
        is_own = self.config_class in (GPT1Config, GPT1LSTMConfig)
        return GPT1PretrainingTrainer if is_own else FamilyPretrainingTrainer

    def longest_sequence(self, config: PreTrainedConfig) -> int:
        """Tokens that a model can read, special ones included. RoBERTa counts positions from the id of padding."""
        return config.max_position_embeddings - (config.pad_token_id + 1 if self.name == "roberta" else 0)

    def block_length(self, config: PreTrainedConfig, wanted: int | None = None) -> int:
        """Tokens of text in a block: `wanted`, or as many as the model has positions for.

        Raises:
            ValueError: `wanted` is more.
        """
        most = self.longest_sequence(config) - self.num_added
        if wanted is not None and wanted > most and self.config_class is not GPT1LSTMConfig:
            needed = wanted + config.max_position_embeddings - most
            raise ValueError(
                f"Blocks of {wanted} tokens need {needed} positions with {self.name}, but the model has "
                f"{config.max_position_embeddings}. Give it max_position_embeddings={needed}, or make the blocks "
                "shorter."
            )
        return most if wanted is None else wanted

    def tokenizer_of(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """The tokenizer with the family's special tokens, if it has any.

        Raises:
            ValueError: the family cannot use it.
        """
        if not self.is_causal:
            return family_tokenizer(tokenizer, self.name)
        if tokenizer.mask_token is not None and tokenizer.cls_token is not None:
            raise ValueError(
                f"The tokenizer writes {tokenizer.cls_token} before each text, as for masked models, but {self.name} "
                "reads texts alone in training. Give the tokenizer of a model that continues text, such as GPT-1's."
            )
        return tokenizer

    def collator(self, tokenizer: PreTrainedTokenizerBase, seed: int, blocks) -> BlockCollator | NoiseCollator:
        """Makes batches of the training blocks."""
        if self.is_causal:
            return BlockCollator(tokenizer)
        return self.collator_class(tokenizer, seed, **({"blocks": blocks} if self.draws_blocks else {}))


def _with_positions(num_added: int) -> dict[str, int]:
    return {**SIZES, "max_position_embeddings": SIZES["max_position_embeddings"] + num_added}


FAMILIES = {
    family.name: family
    for family in (
        Family("gpt1", GPT1Config, GPT1ForCausalLM),
        Family("gpt1-lstm", GPT1LSTMConfig, GPT1LSTMForCausalLM),
        Family("gpt2", GPT2Config, GPT2LMHeadModel, fields=SIZES),
        Family(
            "gpt3",
            GPT1Config,
            GPT1ForCausalLM,
            fields={"do_layer_norm_before": True, "rescale_prenorm_residual": True, "sliding_window": 128},
        ),
        Family("bert", BertConfig, BertForPreTraining, NextSentenceCollator, _with_positions(3)),
        # RoBERTa leaves the position of the padding's id, 0, out. It has no segments.
        Family(
            "roberta",
            RobertaConfig,
            RobertaForMaskedLM,
            MaskedCollator,
            {**_with_positions(3), "type_vocab_size": 1},
        ),
        Family("albert", AlbertConfig, AlbertForPreTraining, SentenceOrderCollator, _with_positions(3)),
        Family("bart", BartConfig, BartForConditionalGeneration, InfillingCollator, _with_positions(2)),
    )
}


def family_of(checkpoint: str) -> Family:
    """The family of a folder or hub id. openai-gpt and GPT-2 open as GPT-1.

    Raises:
        ValueError: it is of none.
    """
    model_type = PreTrainedConfig.get_config_dict(checkpoint)[0].get("model_type")
    if model_type in (None, GPT1Config.model_type, *OPENED_TYPES):
        return FAMILIES["gpt1"]
    if model_type == GPT1LSTMConfig.model_type:
        return FAMILIES["gpt1-lstm"]
    if model_type not in FAMILIES:
        raise ValueError(
            f"{checkpoint} is a model of type {model_type!r}, which is of no family that can be pre-trained here: "
            f"{', '.join(FAMILIES)}. Pass a model of one of them, or --family to train a fresh one."
        )
    return FAMILIES[model_type]


__all__ = ["FAMILIES", "Family", "family_of"]
