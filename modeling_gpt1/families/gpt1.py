"""The models of this package: GPT-1; GPT-2 and GPT-3, which are configurations of it; and the LSTM.

Their sequences have control tokens, and their task models a language-model head beside the task's. They give the loss
of each example themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from tokenization import TraversalCollator, add_control_tokens, open_tokenizer
from tokenization.errors import UserError
from tokenization.rows.tasks import Task
from tokenization.rows.traversals import TRAVERSALS
from tokenization.text.control_tokens import check_vocabulary

from ..configuration_gpt1 import GPT1Config, has_choices
from ..configuration_gpt1_lstm import GPT1LSTMConfig
from ..hub.card import CardFacts
from ..modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM, GPT1TaskModel
from ..modeling_gpt1_lstm import GPT1LSTMDoubleHeadsModel, GPT1LSTMForCausalLM
from .base import Family
from .checks import check_collator, check_length_of_collator, check_same_head, options_of_task
from .opening import load_model

# Folders of transformers that the classes of GPT-1 open.
OPENED_TYPES = GPT1Config.translated_types
# Classes whose `forward` computes the losses, by name: a folder's own code has others of the same names.
LOSS_CLASSES = (GPT1ForCausalLM.__name__, GPT1DoubleHeadsModel.__name__, GPT1TaskModel.__name__)


@dataclass(frozen=True)
class GPT1Family(Family):
    """A model of this package.

    Args:
        task_model_class: the model with both heads.
    """

    task_model_class: type[PreTrainedModel] = GPT1DoubleHeadsModel

    objective: ClassVar[str] = "causal"
    has_control_tokens: ClassVar[bool] = True
    can_generate: ClassVar[bool] = True
    has_example_losses: ClassVar[bool] = True
    is_exact_in_batches: ClassVar[bool] = True
    resets_layers: ClassVar[bool] = True

    def has_head_for(self, traversal: str, config: PreTrainedConfig) -> bool:
        return True

    def describes(self, config: PreTrainedConfig) -> bool:
        # By name, too: a folder's own code has another class of the same name.
        return isinstance(config, self.config_class) or config.model_type == self.config_class.model_type

    # ---- What a model or its configuration has

    def has_task(self, config: PreTrainedConfig) -> bool:
        return config.extract_token_id is not None and super().has_task(config)

    def has_task_head(self, model: PreTrainedModel) -> bool:
        return hasattr(model, "task_head")

    def has_lm_head(self, model: PreTrainedModel) -> bool:
        return hasattr(model, "lm_head")

    # ---- Opening

    def open_config(self, checkpoint: str, trust_remote_code: bool = False) -> PreTrainedConfig:
        return self.config_class.from_pretrained(checkpoint)

    def open_tokenizer(self, name_or_path: str, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
        return open_tokenizer(name_or_path, trust_remote_code)

    def open_language_model(self, checkpoint: str, **options: Any) -> PreTrainedModel:
        return self.model_class.from_pretrained(checkpoint, **options)

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
        return load_model(
            self.task_model_class,
            checkpoint,
            config=config,
            dtype=torch.float32,  # of the weights; the trainer's `bf16` computes in half precision
            ignore_mismatched_sizes=ignore_mismatched_sizes,
            quantization_config=quantization_config,
        )

    # ---- Making

    def default_fields(self) -> dict[str, Any]:
        return self.fields  # the configuration's own defaults are GPT-1's sizes

    def fields_of_tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
        return {"vocab_size": len(tokenizer)}

    def make_task_model(self, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        config.vocab_size = len(tokenizer)
        return self.task_model_class(config)

    # ---- Pre-training

    def check_pretraining(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        check_vocabulary(model.config, tokenizer)
        give_padding(model, tokenizer)

    # ---- Fine-tuning

    def check_head(self, checkpoint: str, config: PreTrainedConfig, task: Task) -> None:
        if config.traversal is not None:
            # A head of choices gives each one score, whatever the configuration calls `num_labels`.
            num_scores = 1 if has_choices(config.traversal) else config.num_labels
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
        add_control_tokens(tokenizer)
        collator = TraversalCollator(
            tokenizer,
            task.traversal,
            task.columns,
            max_length=config.max_position_embeddings if max_length is None else max_length,
            pad_to_multiple_of=pad_to_multiple_of,
            **options_of_task(task),
        )
        check_length_of_collator(collator, config.max_position_embeddings, " (`max_position_embeddings`)")
        return collator

    def complete_task_model(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        collator: TraversalCollator,
        max_length: int | None,
    ) -> None:
        add_control_tokens(tokenizer, model)

    def check_finetuning(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None, collator: Callable
    ) -> None:
        if tokenizer is not None:
            check_vocabulary(model.config, tokenizer)
            give_padding(model, tokenizer)
        if isinstance(collator, TraversalCollator):
            check_collator(model.config, collator)

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
        if freeze_lm_head:
            raise UserError(
                "`freeze_lm_head` is for decoders of other families: GPT-1's output matrix is its input embeddings. "
                "Leave it out."
            )
        self.set_lm_coef(model.config, lm_coef)

    def set_lm_coef(self, config: PreTrainedConfig, lm_coef: float) -> None:
        config.lm_coef = lm_coef
        config.validate()

    def complete_adapter(self, peft_config: Any, tokenizer: PreTrainedTokenizerBase) -> None:
        # With a type such as SEQ_CLS, PEFT would save the layer `score` as another module, beside the head.
        peft_config.task_type = None
        tied = [name for name in ("lm_head", "tokens_embed") if name in peft_config.target_modules]
        if tied == ["lm_head"]:  # merging would lose what the tokens' rows have learnt
            raise UserError(
                "`target_modules` has lm_head, which is one weight with the embeddings of the control tokens. Leave "
                "it out, or add tokens_embed."
            )
        # Of the kinds of adapters, LoRA alone trains rows of the embeddings.
        if getattr(peft_config, "trainable_token_indices", ()) is None and not tied:
            peft_config.trainable_token_indices = [
                tokenizer.start_token_id,
                tokenizer.delimiter_token_id,
                tokenizer.extract_token_id,
            ]

    # ---- Scores and losses

    def has_known_loss(self, model: PreTrainedModel) -> bool:
        computing = next(one for one in type(model).__mro__ if "forward" in vars(one))
        return computing.__name__ in LOSS_CLASSES

    def scores_of(self, model: torch.nn.Module, own_model: PreTrainedModel | None = None) -> Callable:
        return model

    def task_logits(self, outputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        # The models with the task head alone name them as transformers does.
        return outputs["task_logits"] if "task_logits" in outputs else outputs["logits"]

    # ---- The card

    def card_facts(self, model: PreTrainedModel, repo_id: str, is_adapter: bool = False) -> CardFacts:
        facts = super().card_facts(model, repo_id, is_adapter)
        if facts.is_finetuned:
            facts.sequences = TRAVERSALS[model.config.traversal].form
        return facts

    def model_tag(self, config: PreTrainedConfig) -> str:
        return GPT1Config.model_type

    def pretraining_tag(self, model: PreTrainedModel) -> str:
        return "text-generation" if self.has_lm_head(model) else "feature-extraction"


@dataclass(frozen=True)
class GPT1LSTMFamily(GPT1Family):
    """The LSTM, which has no positions: its blocks may have any length, and its sizes have other names."""

    common_sizes: ClassVar[Sequence[str]] = ()
    has_positions: ClassVar[bool] = False

    def block_length(self, config: PreTrainedConfig, wanted: int | None = None) -> int:
        return self.longest_sequence(config) if wanted is None else wanted


def give_padding(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Gives a model the id of padding where it has none."""
    settings = [model.config]
    if model.can_generate():
        settings.append(model.generation_config)
    for one in settings:
        if one.pad_token_id is None:
            one.pad_token_id = tokenizer.pad_token_id


GPT1 = GPT1Family("gpt1", GPT1Config, GPT1ForCausalLM)
GPT1_LSTM = GPT1LSTMFamily("gpt1-lstm", GPT1LSTMConfig, GPT1LSTMForCausalLM, task_model_class=GPT1LSTMDoubleHeadsModel)
# Of this package, because transformers has no model with GPT-3's dense and locally banded layers.
GPT3 = GPT1Family(
    "gpt3",
    GPT1Config,
    GPT1ForCausalLM,
    fields={"do_layer_norm_before": True, "rescale_prenorm_residual": True, "sliding_window": 128},
)
