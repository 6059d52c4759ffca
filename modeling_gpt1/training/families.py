"""The families of models that are pre-trained on the same blocks: model, objective, collator, sizes and trainer.

Models, heads and masks are transformers' own. GPT-3 is a configuration of this package's decoder, because transformers
has no model with its dense and locally banded layers; so is GPT-1.

Shapes: B rows, T tokens, V vocabulary, P parts of the loss.
"""

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers
from torch import nn
from transformers import BartConfig, GPT2Config, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tokenization import BlockCollator
from tokenization.corpus.noise import (
    InfillingCollator,
    MaskedCollator,
    NextSentenceCollator,
    NoiseCollator,
    SentenceOrderCollator,
)
from tokenization.errors import UserError
from tokenization.text.forms import family_tokenizer

from ..configuration_gpt1 import GPT1Config
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.card import write_model_card
from ..modeling_gpt1 import GPT1ForCausalLM
from ..modeling_gpt1_lstm import GPT1LSTMForCausalLM
from .checks import check_embeddings
from .measures import perplexity
from .preparation import OPENED_TYPES
from .trainer import GPT1PretrainingTrainer

# Each name of sentence labels, and that of their logits.
SENTENCE_LOGITS = {"next_sentence_label": "seq_relationship_logits", "sentence_order_label": "sop_logits"}
LABELS = ("labels", *SENTENCE_LOGITS)


class FamilyPretrainingTrainer(GPT1PretrainingTrainer):
    r"""Pre-trains a model of transformers on batches with `labels`, and with sentence labels where it has such a head.

    The models of transformers take the mean of a micro-batch as its loss. Micro-batches have different numbers of
    masked tokens, so the result of an update would depend on how it is cut. Here the loss of an update is a sum
    divided by the number of targets of the whole update.

    A causal model predicts the next label, other models the label at its own place. `loss` is the sum of the means
    over tokens and over pairs of sentences. The log and the evaluation name what they measure:

    | model | beside `loss` |
    |---|---|
    | causal | `perplexity` |
    | masked | `mlm_loss`, the mean −log P of the masked tokens |
    | with pairs of sentences | also `sentence_loss`; evaluations have `eval_sentence_accuracy` |
    | encoder-decoder | `denoising_loss`, the mean −log P of a restored token |

    Only a causal model has a perplexity: the other losses are no probability of a text. `mfu` is not logged.
    """

    _WITHOUT_LOGITS = {}  # other models have no such arguments

    def _check_model(self, model: PreTrainedModel) -> None:
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if tokenizer is not None:
            check_embeddings(model, tokenizer)
        arguments = inspect.signature(model.forward).parameters
        self._without_cache = {"use_cache": False} if "use_cache" in arguments else {}
        self._num_parts = 2 if any(name in arguments for name in SENTENCE_LOGITS) else 1
        is_causal = type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        self._kind = "denoising" if model.config.is_encoder_decoder else "causal" if is_causal else "masked"
        self.model_accepts_loss_kwargs = True  # Trainer leaves the loss as it is: an update's targets divide it

    # ---- Data

    def get_batch_samples(self, *args, **kwargs):
        batches, num_items = super().get_batch_samples(*args, **kwargs)
        counts = torch.zeros(2, device=self.args.device)
        for batch in batches:
            targets = [self._targets(batch["labels"]), *(batch[name] for name in SENTENCE_LOGITS if name in batch)]
            for part, labels in enumerate(targets):
                counts[part] += (labels != -100).sum()
        counts = self.accelerator.reduce(counts, "sum")
        self._num_targets = counts.clamp(min=1)  # tokens and pairs of the current update
        return batches, num_items

    def _targets(self, labels: torch.Tensor) -> torch.Tensor:
        """What the logits at each place predict, `[B, T]`."""
        return nn.functional.pad(labels[:, 1:], (0, 1), value=-100) if self._kind == "causal" else labels

    # ---- Loss

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = model(**{name: part for name, part in inputs.items() if name not in LABELS}, **self._without_cache)
        parts = [self._token_losses(outputs, inputs["labels"])]
        parts += [
            self._sentence_losses(outputs[logits], inputs[name])
            for name, logits in SENTENCE_LOGITS.items()
            if name in inputs
        ]
        if model.training:
            means = torch.stack([part[:, 0].sum() for part in parts]) / self._num_targets[: len(parts)]
            self.add_parts(*means)
            loss = means.sum() * self.accelerator.num_processes  # which average their gradients
        else:
            self._example_losses.append(self.gather_function(torch.cat(parts, 1)))
            loss = sum(part[:, 0].sum() / part[:, 1].sum().clamp(min=1) for part in parts)
        return (loss, outputs) if return_outputs else loss

    def _token_losses(self, outputs, labels: torch.Tensor) -> torch.Tensor:
        """The sum of −log P over a row's targets, and their number, `[B, 2]`."""
        logits = outputs["prediction_logits"] if "prediction_logits" in outputs else outputs["logits"]  # [B, T, V]
        targets = self._targets(labels)
        is_target = targets != -100
        losses = nn.functional.cross_entropy(logits[is_target].float(), targets[is_target], reduction="none")
        sums = logits.new_zeros(targets.shape, dtype=torch.float32).masked_scatter(is_target, losses).sum(1)
        return torch.stack([sums, is_target.sum(1)], dim=1)

    def _sentence_losses(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """−log P of a row's label, whether it has one, and whether it is the most probable; `[B, 3]`."""
        losses = nn.functional.cross_entropy(logits.float(), labels, ignore_index=-100, reduction="none")
        return torch.stack([losses, labels != -100, logits.argmax(-1) == labels], dim=1)

    # ---- Figures

    def _named(self, means: list[float]) -> dict[str, float]:
        if self._kind == "causal":
            return {"perplexity": perplexity(means[0])}
        name = "denoising_loss" if self._kind == "denoising" else "mlm_loss"
        return dict(zip((name, "sentence_loss"), means, strict=False))

    def _evaluated_losses(self, example_losses: torch.Tensor) -> dict[str, float]:
        sums = example_losses.sum(0).tolist()  # of tokens: −log P, number; of sentences: −log P, number, right ones
        means = [loss / max(number, 1) for loss, number in (sums[:2], sums[2:4])[: self._num_parts]]
        accuracy = {"sentence_accuracy": sums[4] / max(sums[3], 1)} if self._num_parts > 1 else {}
        return {"loss": sum(means), **self._named(means), **accuracy}

    def _logged_figures(self, loss: float) -> dict[str, float]:
        return {} if self.sums_of_parts is None else self._named(self.means_of_parts())

    def _flops_per_token(self) -> None:
        return None

    # ---- Hub

    def create_model_card(self, **card_data) -> None:
        """As in [`GPT1PretrainingTrainer`], with a card that suits any model."""
        if self.is_world_process_zero():
            write_model_card(self, objective=self._kind, has_sentences=self._num_parts > 1, **card_data)


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
    def num_added(self) -> int:
        """Special tokens that are added to a block."""
        return 0 if self.is_causal else self.collator_class.num_added

    def make_config(self, tokenizer: PreTrainedTokenizerBase | None = None, **overrides: Any) -> PreTrainedConfig:
        """A fresh configuration; the sizes `SIZES` have the same names for each family."""
        of_tokenizer = {} if tokenizer is None else self._fields_of(tokenizer)
        sizes = {**SIZES, "max_position_embeddings": SIZES["max_position_embeddings"] + self.num_added}
        fields = self.fields if self.trainer_class is GPT1PretrainingTrainer else {**sizes, **self.fields}
        # A size given by the configuration's own name, such as `n_embd`, replaces the default of the common name.
        given = {common for common, own in self.config_class.attribute_map.items() if own in overrides}
        defaults = {name: value for name, value in fields.items() if name not in given}
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
        if self.config_class is BartConfig:
            # Half of the layers each, as its base size has 6 and 6 beside the 12 of the others.
            num_layers, num_heads = fields.pop("num_hidden_layers", 12), fields.pop("num_attention_heads", 12)
            sizes = {"attention_heads": num_heads, "ffn_dim": fields.pop("intermediate_size")}
            own = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in sizes.items()}
            own |= {"encoder_layers": num_layers - num_layers // 2, "decoder_layers": num_layers // 2}
            fields = {**own, **fields}
        return fields

    def check_sizes(self, config: PreTrainedConfig) -> None:
        """Builds the model without memory for its weights."""
        try:
            with torch.device("meta"):
                self.model_class(config)
        except Exception as error:  # of many types: transformers checks few sizes
            raise UserError(f"{self.model_class.__name__} cannot be built: {error}.") from error

    @property
    def trainer_class(self) -> type[GPT1PretrainingTrainer]:
        is_own = self.config_class in (GPT1Config, GPT1LSTMConfig)
        return GPT1PretrainingTrainer if is_own else FamilyPretrainingTrainer

    def longest_sequence(self, config: PreTrainedConfig) -> int:
        """Tokens that a model can read, special ones included. RoBERTa counts positions from the id of padding."""
        return config.max_position_embeddings - (config.pad_token_id + 1 if self.name == "roberta" else 0)

    def block_length(self, config: PreTrainedConfig, wanted: int | None = None) -> int:
        """Tokens of text in a block: `wanted`, or as many as the model has positions for."""
        most = self.longest_sequence(config) - self.num_added
        if wanted is not None and wanted > most and self.config_class is not GPT1LSTMConfig:
            needed = wanted + config.max_position_embeddings - most
            raise UserError(
                f"Blocks of {wanted} tokens need {needed} positions with {self.name}, but the model has "
                f"{config.max_position_embeddings}. Give a fresh model max_position_embeddings={needed} "
                "(`config_overrides`), or make the blocks shorter (`block_length`)."
            )
        return most if wanted is None else wanted

    def tokenizer_of(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """The tokenizer with the family's special tokens, if it has any."""
        if not self.is_causal:
            return family_tokenizer(tokenizer, self.name)
        if tokenizer.mask_token is not None and tokenizer.cls_token is not None:
            raise UserError(
                f"The tokenizer writes {tokenizer.cls_token} before each text, as for masked models, but {self.name} "
                "reads texts alone in training. Give the tokenizer of a model that continues text, such as GPT-1's."
            )
        return tokenizer

    def collator(self, tokenizer: PreTrainedTokenizerBase, seed: int, blocks) -> BlockCollator | NoiseCollator:
        """Makes batches of the training blocks."""
        if self.is_causal:
            return BlockCollator(tokenizer)
        return self.collator_class(tokenizer, seed, blocks)


FAMILIES = {
    family.name: family
    for family in (
        Family("gpt1", GPT1Config, GPT1ForCausalLM),
        Family("gpt1-lstm", GPT1LSTMConfig, GPT1LSTMForCausalLM),
        Family("gpt2", GPT2Config, transformers.GPT2LMHeadModel),
        Family(
            "gpt3",
            GPT1Config,
            GPT1ForCausalLM,
            fields={"do_layer_norm_before": True, "rescale_prenorm_residual": True, "sliding_window": 128},
        ),
        Family("bert", transformers.BertConfig, transformers.BertForPreTraining, NextSentenceCollator),
        # RoBERTa leaves the position of the padding's id, 0, out. It has no segments.
        Family(
            "roberta",
            transformers.RobertaConfig,
            transformers.RobertaForMaskedLM,
            MaskedCollator,
            {"max_position_embeddings": 515, "type_vocab_size": 1},
        ),
        Family("albert", transformers.AlbertConfig, transformers.AlbertForPreTraining, SentenceOrderCollator),
        Family("bart", BartConfig, transformers.BartForConditionalGeneration, InfillingCollator),
    )
}


def family_of(checkpoint: str) -> Family:
    """The family of a folder or hub id. openai-gpt and GPT-2 open as GPT-1."""
    model_type = PreTrainedConfig.get_config_dict(checkpoint)[0].get("model_type")
    if model_type in (None, GPT1Config.model_type, *OPENED_TYPES):
        return FAMILIES["gpt1"]
    if model_type == GPT1LSTMConfig.model_type:
        return FAMILIES["gpt1-lstm"]
    if model_type not in FAMILIES:
        raise UserError(
            f"{checkpoint} is a model of type {model_type!r}, which is of no family that can be pre-trained here: "
            f"{', '.join(FAMILIES)}. Pass a model of one of them, or --family to train a fresh one."
        )
    return FAMILIES[model_type]
