"""Scores of a task by transformers' own classifiers.

Shape legend: B examples, C sequences per example, T tokens, K classes.
"""

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from ..configuration_gpt1 import scores_choices
from .auxiliary import AuxiliaryOutput


def scores_choices_as_pairs(model: PreTrainedModel) -> bool:
    """Whether a classifier gives each choice of an example one score, as to a pair of its own."""
    return scores_choices(model.config) and type(model).__name__.endswith("ForSequenceClassification")


def reads_choices(model: PreTrainedModel) -> bool:
    """Whether a classifier reads all choices of an example at once, `[B, C, T]`."""
    return type(model).__name__.endswith("ForMultipleChoice")


class TaskScores:
    """A model of `AutoModelForSequenceClassification` or `AutoModelForMultipleChoice`, called on whole batches.

    - The scores of a pair in both orders, `[B, 2, T]`, are averaged.
    - Choices, `[B, C, T]`, are scored by a classifier of one score each as a pair of its own, where the model is one.
    - Choices that an example does not have (`choice_mask`) get the score −inf.
    - Segments are left out for a model that does not read them.
    - With `example_weights` a classifier that has the auxiliary objective gives L1, too.

    Args:
        model: what is called: the model, or a wrapper such as DistributedDataParallel.
        own_model ([`PreTrainedModel`], *optional*): the model without wrapper. Default: `model`.
    """

    def __init__(self, model: torch.nn.Module, own_model: PreTrainedModel | None = None):
        self.model = model
        own_model = model if own_model is None else own_model
        self.reads_segments = "token_type_ids" in inspect.signature(own_model.forward).parameters
        self.reads_choices = reads_choices(own_model)
        self.scores_pairs = scores_choices_as_pairs(own_model)

    @property
    def training(self) -> bool:
        return self.model.training

    def __call__(
        self,
        choice_mask: torch.Tensor | None = None,
        example_weights: torch.Tensor | None = None,
        expected_grad: torch.Tensor | float = 1.0,
        **inputs: Any,
    ) -> SequenceClassifierOutput | AuxiliaryOutput:
        """`logits`, `[B, K]` or `[B, C]`, alone: other outputs would be gathered with the predictions.

        With the factors `example_weights` `[B]` also the weighted sum of the examples' L1 / C, `lm_sum`, and these,
        `lm_losses` `[B]`. C is 2 for pairs in both orders, the number of choices, or 1.
        """
        if not self.reads_segments:
            inputs.pop("token_type_ids", None)
        num_sequences = 1
        is_flattened = inputs["input_ids"].dim() == 3 and not self.reads_choices
        if is_flattened:
            num_sequences = inputs["input_ids"].shape[1]
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        if example_weights is not None:
            num_examples = len(example_weights)
            shares = torch.full((num_examples, num_sequences), 1 / num_sequences, device=example_weights.device)
            if choice_mask is not None:
                shares = choice_mask / choice_mask.sum(1, keepdim=True)
            inputs["sequence_weights"] = (shares * example_weights[:, None]).flatten()
            inputs["expected_grad"] = expected_grad
        outputs = self.model(**inputs)
        logits = outputs.logits
        if is_flattened:
            logits = self._of_examples(logits, num_sequences)
        if choice_mask is not None:
            logits = logits.masked_fill(~choice_mask, -torch.inf)
        if example_weights is None:
            return SequenceClassifierOutput(logits=logits)
        return AuxiliaryOutput(
            logits=logits,
            lm_sum=outputs.lm_sum,
            lm_losses=(outputs.lm_losses.unflatten(0, shares.shape) * shares).sum(1),
        )

    def _of_examples(self, logits: torch.Tensor, num_sequences: int) -> torch.Tensor:
        """`[B, C]` of choices, else the mean `[B, K]`, from the scores of sequences, `[B · C, 1]` or `[B · C, K]`."""
        of_examples = logits.unflatten(0, (-1, num_sequences))  # [B, C, K]
        return of_examples.squeeze(-1) if self.scores_pairs else of_examples.mean(1)
