"""Fine-tuning of other families: transformers' own classifiers on the task's loss, under the contract of GPT-1's.

The loss is L2 / N, where N is the number of examples in the whole optimizer step, of all processes. Many classifiers
of transformers take the mean over a micro-batch instead: there an example's weight depends on how the step is cut.
"""

from functools import partial
from types import SimpleNamespace

import torch
from transformers import PreTrainedModel, TrainerCallback, TrainingArguments
from transformers.utils import logging

from tokenization import TraversalCollator

from ..hub.model_kinds import is_regression, without_adapter
from ..inference.task_scores import TaskScores
from ..loss_gpt1 import count_items, count_labels, task_losses
from .padding_probe import check_padding
from .task_models import (
    check_collator_of_family,
    check_has_head,
    check_lm_coef,
    counts_positions_from_padding,
    match_vocabulary,
)
from .trainer import GPT1Trainer

logger = logging.get_logger(__name__)


class TaskTrainer(GPT1Trainer):
    """Fine-tunes a model of `AutoModelForSequenceClassification` or `AutoModelForMultipleChoice` on L2.

    Checkpoints, resume, evaluation, order of the rows, card and pushes are those of [`GPT1Trainer`]. Loss, gradient
    and weights do not depend on micro-batches or the number of processes, whatever the model's own loss does.

    Raises:
        ValueError: before training starts, if model, tokenizer, collator and arguments do not fit together.
    """

    def __init__(self, model=None, args: TrainingArguments | None = None, *others, **kwargs):
        if args is not None:
            args.use_cache = False  # a classifier generates nothing
            # The base of some classifiers has weights that no score depends on. None: as transformers chooses.
            args.ddp_find_unused_parameters = args.ddp_find_unused_parameters or None
        self._keep_positions = _KeepPositions()
        super().__init__(model, args, *others, **kwargs)
        self.add_callback(self._keep_positions)

    def _check_model(self, model: PreTrainedModel) -> None:
        check_has_head(model)
        check_lm_coef(getattr(self.args, "lm_coef", None), model.config)
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if tokenizer is not None:
            match_vocabulary(model, tokenizer)
        check_collator_of_family(model, self.data_collator)
        if isinstance(self.data_collator, TraversalCollator):
            check_padding(model, self.data_collator)
        if counts_positions_from_padding(model):
            self._keep_positions.pad_token_id = model.config.pad_token_id
        self.model_accepts_loss_kwargs = False  # the model is called without labels
        if self._has_own_loss:
            self.compute_loss_func = partial(mean_loss, self._loss_settings)

    @property
    def _loss_settings(self) -> SimpleNamespace:
        config = self._own_model.config
        return SimpleNamespace(
            problem_type=config.problem_type,
            is_regression=is_regression(config),
            traversal=getattr(config, "traversal", None),
        )

    def compute_loss(self, model, *args, **kwargs):
        return super().compute_loss(TaskScores(model, self._own_model), *args, **kwargs)

    def prediction_step(self, model, inputs, *args, **kwargs):
        # With labels, `compute_loss` is called.
        scores = model if "labels" in inputs else TaskScores(model, self._own_model)
        return super().prediction_step(scores, inputs, *args, **kwargs)


class _KeepPositions(TrainerCallback):
    """Undoes a change of `pad_token_id` by `Trainer.train`, which would move a model's positions at the next load."""

    pad_token_id: int | None = None
    """That of the configuration where positions begin after it; None elsewhere."""

    def on_train_begin(self, args, state, control, model: PreTrainedModel, **kwargs):
        config = without_adapter(model).config
        if self.pad_token_id not in (None, config.pad_token_id):
            config.pad_token_id = self.pad_token_id
            logger.warning(f"`pad_token_id` stays {self.pad_token_id}: the positions of the model begin after it.")


def mean_loss(settings, outputs, labels: torch.Tensor, num_items_in_batch=None) -> torch.Tensor:
    """L2 / N of a batch."""
    losses, counts = task_losses(outputs["logits"], labels, settings), count_labels(labels)
    return (losses * counts).sum() / count_items(counts, num_items_in_batch)


__all__ = ["TaskTrainer"]
