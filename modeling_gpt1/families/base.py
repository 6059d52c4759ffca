"""`Family`: what is asked of a kind of model, whatever it is.

Whoever holds a model, such as a trainer, a scorer, a card or a command, asks its family. The files beside this one
answer: `gpt1.py` for this package's models, `decoder.py`, `encoder.py` and `encoder_decoder.py` for those of
transformers. A new family is a class or an object in one of them, and a line in `families/__init__.py`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization import BlockCollator, TraversalCollator
from tokenization.corpus.noise import NoiseCollator
from tokenization.errors import UserError
from tokenization.rows.tasks import Task

from ..configuration_gpt1 import DOUBLE_HEADS, has_choices, is_regression
from ..hub.card import CardFacts, base_model_of, is_packaged_model, names_of_classes
from .probing import num_parameters

# GPT-1's sizes: each family gets them by default, so that families differ in nothing else.
SIZES = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
}
# Endings of the names of transformers' classifiers.
CLASSIFIERS = ("ForSequenceClassification", "ForMultipleChoice")
TASK_MODELS = (DOUBLE_HEADS, *CLASSIFIERS)
# The hub's names of what other heads do, by the endings of their classes' names.
TAGS_OF_HEADS = {"ForTokenClassification": "token-classification", "ForQuestionAnswering": "question-answering"}
# Traversals of two texts.
PAIRS = ("entailment", "similarity")


def check_lm_coef(lm_coef: float) -> None:
    """Refuses a λ that is no weight of a loss."""
    if not 0 <= lm_coef < math.inf:
        raise UserError(f"`lm_coef` is {lm_coef}, but it must be a finite number of at least 0, such as 0.5.")


@dataclass(frozen=True)
class Family(ABC):
    """How the models of a family are opened, made, checked, trained, scored and described.

    A general family, such as that of all decoders that have none of their own, has neither `config_class` nor
    `model_class`: its models are opened and fine-tuned, but not made and pre-trained here.

    Args:
        name: as `gpt1 pretrain --family` has it.
        config_class: its configuration.
        model_class: the model that is pre-trained.
        collator_class: makes the batches of pre-training.
        fields: fields of a fresh configuration that differ from the class's defaults.
    """

    name: str
    config_class: type[PreTrainedConfig] | None = None
    model_class: type[PreTrainedModel] | None = None
    collator_class: type[BlockCollator] | type[NoiseCollator] = BlockCollator
    fields: dict[str, Any] = field(default_factory=dict)

    # ---- What it can do

    objective: ClassVar[Literal["causal", "masked", "denoising"]]
    """What pre-training minimises: −log P of the next token, of masked tokens, or of a text that was damaged."""

    has_control_tokens: ClassVar[bool] = False
    """Whether its sequences are the paper's, with start, delimiter and extract tokens."""

    can_generate: ClassVar[bool] = False
    """Whether `continue_prompts` goes on from prompts with its models."""

    has_example_losses: ClassVar[bool] = False
    """Whether its models give the loss of each example, so that a trainer adds none of its own."""

    is_exact_in_batches: ClassVar[bool] = False
    """Whether its models are known to read each row of a padded batch as they read it alone."""

    resets_layers: ClassVar[bool] = False
    """Whether `keep_first_layers` resets the layers of its models."""

    has_positions: ClassVar[bool] = True
    """Whether its models know a token's position, of which training reaches as many as the longest text has tokens."""

    common_sizes: ClassVar[Collection[str]] = tuple(SIZES)
    """Names of sizes that `make_config` knows beside the configuration's own names."""

    @property
    def is_causal(self) -> bool:
        """Whether its models predict each token from those before it."""
        return self.objective == "causal"

    @property
    def needs_stored_blocks(self) -> bool:
        """Whether the collator of pre-training draws from all blocks, so that a stream of them is not enough."""
        return False

    @abstractmethod
    def has_head_for(self, traversal: str, config: PreTrainedConfig) -> bool:
        """Whether a folder with this configuration can be opened with a task head for this traversal."""

    @abstractmethod
    def describes(self, config: PreTrainedConfig) -> bool:
        """Whether a configuration is of this family."""

    # ---- What a model or its configuration has

    def has_task(self, config: PreTrainedConfig) -> bool:
        """Whether a saved model has a task head, as its configuration tells."""
        return any(name.endswith(TASK_MODELS) for name in config.architectures or ())

    @abstractmethod
    def has_task_head(self, model: PreTrainedModel) -> bool:
        """Whether a model has a task head."""

    @abstractmethod
    def has_lm_head(self, model: PreTrainedModel) -> bool:
        """Whether a model predicts tokens."""

    def has_auxiliary_loss(self, model: PreTrainedModel) -> bool:
        """Whether a model has both heads, so that language modelling can be the auxiliary objective of a task."""
        return self.has_task_head(model) and self.has_lm_head(model)

    def has_own_output_matrix(self, model: PreTrainedModel) -> bool:
        """Whether a model with both heads trains weights that only its language-model loss reads."""
        return self.has_auxiliary_loss(model) and not model.config.tie_word_embeddings

    def has_sentence_loss(self, model: PreTrainedModel) -> bool:
        """Whether a model is pre-trained on the relation of two segments, too."""
        return False

    def reads_both_orders(self, config: PreTrainedConfig) -> bool:
        """Whether a fine-tuned model reads a pair of similarity in both orders by choice, as GPT-1 always does."""
        return False

    # ---- Opening

    @abstractmethod
    def open_config(self, checkpoint: str, trust_remote_code: bool = False) -> PreTrainedConfig:
        """The configuration of a folder or hub id, with the task's fields: None if it has no task."""

    @abstractmethod
    def open_tokenizer(self, name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
        """The tokenizer of a folder or hub id, which can pad, and reads text as text."""

    @abstractmethod
    def open_language_model(self, checkpoint: str, **options: Any) -> PreTrainedModel:
        """The model of a folder or hub id that predicts tokens, to continue texts or to score them.

        Args:
            options: those of `from_pretrained`.
        """

    @abstractmethod
    def open_for_pretraining(self, checkpoint: str) -> PreTrainedModel:
        """The model of a folder or hub id with all heads of its pre-training."""

    @abstractmethod
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
        """The model of a folder or hub id with the head of the configuration's task, in float32.

        Args:
            ignore_mismatched_sizes: start a new head where that of the checkpoint has another size.
            trust_remote_code: run the code that the model brings.
            gets_adapter: whether an adapter of PEFT will lie on it.
            gets_lm_head: whether `add_auxiliary_loss` will read the weights that the classifier leaves out.
            quantization_config: that of transformers' `from_pretrained`, for a model in few bits.
        """

    # ---- Making

    def make_config(self, tokenizer: PreTrainedTokenizerBase | None = None, **overrides: Any) -> PreTrainedConfig:
        """A fresh configuration; the sizes `SIZES` have the same names for each family."""
        of_tokenizer = {} if tokenizer is None else self.fields_of_tokenizer(tokenizer)
        # A size given by the configuration's own name, such as `n_embd`, replaces the default of the common name.
        replaced = {common for common, own in self.config_class.attribute_map.items() if own in overrides}
        defaults = {name: value for name, value in self.default_fields().items() if name not in replaced}
        own_name_of_width = self.config_class.attribute_map.get("hidden_size", "hidden_size")
        width = overrides.get("hidden_size", overrides.get(own_name_of_width))
        if width is not None and "intermediate_size" in defaults:
            defaults["intermediate_size"] = 4 * width  # as GPT-1's own configuration
        return self.config_class(**self.with_own_names({**defaults, **of_tokenizer, **overrides}))

    def default_fields(self) -> dict[str, Any]:
        """Fields of a fresh configuration."""
        positions = SIZES["max_position_embeddings"] + self.num_added
        return {**SIZES, "max_position_embeddings": positions, **self.fields}

    @abstractmethod
    def fields_of_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        """Fields of a fresh configuration that follow from the tokenizer."""

    def with_own_names(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields with the configuration's own names where the class does not know the common ones."""
        return fields

    def check_sizes(self, config: PreTrainedConfig) -> None:
        """Builds the model without memory for its weights."""
        try:
            with torch.device("meta"):
                self.model_class(config)
        except Exception as error:  # of many types: transformers checks few sizes
            raise UserError(f"{self.model_class.__name__} cannot be built: {error}.") from error

    def make_language_model(self, config: PreTrainedConfig) -> PreTrainedModel:
        """A new model to pre-train."""
        return self.model_class(config)

    def make_task_model(self, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """A new model with the head of the configuration's task and the tokenizer's vocabulary."""
        raise UserError(
            f"A configuration of type {config.model_type!r} describes a new model, but only a new GPT-1 is fine-tuned "
            "without pre-training. Pass a checkpoint of this model, or a GPT1Config."
        )

    # ---- Pre-training

    @property
    def num_added(self) -> int:
        """Special tokens that are added to a block."""
        return 0

    def longest_sequence(self, config: PreTrainedConfig) -> int:
        """Tokens that a model can read, special ones included."""
        return config.max_position_embeddings

    def block_length(self, config: PreTrainedConfig, wanted: int | None = None) -> int:
        """Tokens of text in a block: `wanted`, or as many as the model has positions for."""
        most = self.longest_sequence(config) - self.num_added
        if wanted is None:
            return most
        if wanted > most:
            needed = wanted + config.max_position_embeddings - most
            raise UserError(
                f"Blocks of {wanted} tokens (`block_length`) need {needed} positions with {self.name}, but the model "
                f"has {config.max_position_embeddings}. Pass a smaller `block_length`, or give a new model "
                f"max_position_embeddings={needed} (`config_overrides`)."
            )
        return wanted

    def pretraining_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
        """The tokenizer with the family's special tokens, if it has any."""
        is_of_masked_models = tokenizer.mask_token is not None and tokenizer.cls_token is not None
        if is_of_masked_models and tokenizer.num_special_tokens_to_add() > 0:
            raise UserError(
                f"The tokenizer writes {tokenizer.cls_token} before each text, as for masked models, but {self.name} "
                "reads texts alone in training. Pass the tokenizer of a model that continues text, such as GPT-1's."
            )
        return tokenizer

    @property
    def noise_options(self) -> tuple[str, ...]:
        """What can be chosen of the noise in pre-training."""
        return ()

    def pretraining_collator(
        self, tokenizer: PreTrainedTokenizerBase, seed: int, blocks: Sequence[Mapping], **noise: Any
    ) -> BlockCollator | NoiseCollator:
        """Makes batches of blocks of text; a seed and all blocks matter where it masks tokens or pairs segments.

        Args:
            noise: values of `noise_options`.
        """
        return BlockCollator(tokenizer)

    @abstractmethod
    def check_pretraining(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        """Checks that model and tokenizer fit together, and completes each from the other.

        Raises:
            ValueError: the vocabularies do not fit.
        """

    # ---- Fine-tuning

    @abstractmethod
    def check_head(self, checkpoint: str, config: PreTrainedConfig, task: Task) -> None:
        """Refuses a checkpoint with a task head for other classes than the task's."""

    @abstractmethod
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
        """Makes batches of a task's rows. The tokenizer gets the tokens that the family's sequences need.

        Args:
            max_length: maximum tokens of a sequence; None for as many as the model reads.
            pad_to_multiple_of: pad the length of a batch to a multiple of this, unless it is None.
            both_orders: read a similarity pair in both orders where the family does not always do so.
        """

    @abstractmethod
    def complete_task_model(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        collator: TraversalCollator,
        max_length: int | None,
    ) -> None:
        """Completes a model that was opened for a task from its tokenizer, and the collator from the model."""

    @abstractmethod
    def check_finetuning(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, collator: Callable
    ) -> None:
        """Checks before a training that its parts fit together, and completes each from the others.

        Raises:
            ValueError: vocabularies, traversals, labels or lengths differ, or the scores depend on the padding.
        """

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
        """Gives a model with a task head the auxiliary objective with the weight λ, in place.

        Args:
            checkpoint: folder or hub id of the language model that it was; None for a fresh one.
            lm_coef: λ, 0 or more; with 0 the model stays as it is.
            freeze_lm_head: do not train an output matrix that is not the input embeddings.
            trust_remote_code: run the code that the model brings.
            quantization_config: that by which the model was opened.

        Raises:
            ValueError: λ is negative or not finite; the model predicts no next tokens.
        """
        check_lm_coef(lm_coef)
        if lm_coef:
            raise UserError(
                f"`lm_coef` is {lm_coef:g}, but {type(model).__name__} does not predict next tokens, so it has no "
                "auxiliary language-model loss. Fine-tune a causal decoder, or leave `lm_coef` out."
            )

    def set_lm_coef(self, config: PreTrainedConfig, lm_coef: float) -> None:
        """Sets λ of a model that has both heads.

        Raises:
            ValueError: it is negative or not finite.
        """
        check_lm_coef(lm_coef)
        config.lm_coef = lm_coef

    def write_unsaved_weights(self, model: PreTrainedModel, folder: Path) -> None:
        """Writes trained weights that `save_pretrained` leaves out into the folder of a checkpoint."""
        return  # most models save all

    def read_unsaved_weights(self, model: PreTrainedModel, folder: Path) -> None:
        """Reads what [`write_unsaved_weights`] wrote into a model.

        Raises:
            ValueError: the checkpoint has none, but the model trains such weights.
        """
        return

    def complete_adapter(self, peft_config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        """Completes the configuration of an adapter of PEFT, in place."""
        return  # most families need nothing more

    # ---- Scores and losses

    def has_known_loss(self, model: PreTrainedModel) -> bool:
        """Whether a model's loss is computed as the trainers know it: a subclass may add to it."""
        return True

    @abstractmethod
    def scores_of(self, model: torch.nn.Module, own_model: PreTrainedModel | None = None) -> Callable:
        """What gives a task's scores when it is called with a whole batch.

        Args:
            model: what is called: the model, or a wrapper such as DistributedDataParallel.
            own_model: the model without wrapper. Default: `model`.
        """

    def task_logits(self, outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """A task's scores in the output of `scores_of`, `[B, K]`, or `[B, C]` of choices."""
        return outputs["logits"]

    def loss_settings(self, config: PreTrainedConfig) -> SimpleNamespace:
        """What the task's loss reads of a configuration."""
        return SimpleNamespace(problem_type="regression" if is_regression(config) else config.problem_type)

    # ---- The card

    def card_facts(self, model: PreTrainedModel, repo_id: str, is_adapter: bool = False) -> CardFacts:
        """What the card says of a model.

        Args:
            repo_id: hub id, or the name that stands for the folder's path.
            is_adapter: whether the files are an adapter for the model.
        """
        config = model.config
        facts = CardFacts(
            config=config,
            class_name=type(model).__name__,
            num_parameters=f"{num_parameters(model):,}",
            repo_id=repo_id,
            model_name=repo_id,
            model_tag=self.model_tag(config),
            pipeline_tag=self.pipeline_tag(model),
            is_of_gpt1=self.has_control_tokens,
            is_finetuned=self.has_task_head(model),
            is_adapter=is_adapter,
            needs_package=is_adapter and is_packaged_model(model),
            base_model=base_model_of(model),
        )
        if facts.is_finetuned:
            traversal = self.traversal_of(model)
            facts.is_pair = traversal in PAIRS
            facts.is_regression = is_regression(config)
            if not facts.is_regression and not has_choices(traversal):
                facts.classes = names_of_classes(config)
        if facts.pipeline_tag == "token-classification":
            facts.classes = names_of_classes(config)
        if self.has_auxiliary_loss(model):
            facts.lm_coef = config.lm_coef
        return facts

    def model_tag(self, config: PreTrainedConfig) -> str:
        """The first tag of a model on the hub."""
        return config.model_type

    def pipeline_tag(self, model: PreTrainedModel) -> str | None:
        """The hub's name of what a model does; None if there is none."""
        if self.has_task_head(model):
            return "multiple-choice" if has_choices(self.traversal_of(model)) else "text-classification"
        for ending, tag in TAGS_OF_HEADS.items():
            if type(model).__name__.endswith(ending):
                return tag
        return self.pretraining_tag(model)

    @abstractmethod
    def pretraining_tag(self, model: PreTrainedModel) -> str | None:
        """The hub's name of what a model without a task head does."""

    def traversal_of(self, model: PreTrainedModel) -> str | None:
        """The traversal of a model's task; None if another program fine-tuned it."""
        return model.config.traversal
