"""Scores of a task by transformers' own classifiers.

Shape legend: B examples, C sequences per example, T tokens, K classes.
"""

import inspect
from typing import Any

import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from .auxiliary import AuxiliaryOutput


class TaskScores:
    """A model of `AutoModelForSequenceClassification` or `AutoModelForMultipleChoice`, called on whole batches.

    - The scores of a pair in both orders, `[B, 2, T]`, are averaged.
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
        self.reads_choices = type(own_model).__name__.endswith("ForMultipleChoice")

    @property
    def training(self) -> bool:
        return self.model.training

    def __call__(
        self, choice_mask: torch.Tensor | None = None, example_weights: torch.Tensor | None = None, **inputs: Any
    ) -> SequenceClassifierOutput | AuxiliaryOutput:
        """`logits`, `[B, K]` or `[B, C]`, alone: other outputs would be gathered with the predictions.

        With the factors `example_weights` `[B]` also the weighted sum of the examples' L1 / C, `lm_sum`, and these,
        `lm_losses` `[B]`.
        """
        if example_weights is not None:
            return self._with_auxiliary_loss(example_weights, **inputs)
        if not self.reads_segments:
            inputs.pop("token_type_ids", None)
        input_ids = inputs["input_ids"]
        if self.reads_choices or input_ids.dim() == 2:
            logits = self.model(**inputs).logits
        else:
            flat = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
            logits = self.model(**flat).logits.unflatten(0, input_ids.shape[:2]).mean(1)
        if choice_mask is not None:
            logits = logits.masked_fill(~choice_mask, -torch.inf)
        return SequenceClassifierOutput(logits=logits)

    def _with_auxiliary_loss(self, example_weights: torch.Tensor, **inputs: Any) -> AuxiliaryOutput:
        """Scores and L1 of a causal classifier; C is 2 for pairs in both orders, otherwise 1."""
        if not self.reads_segments:
            inputs.pop("token_type_ids", None)
        expected_grad = inputs.pop("expected_grad", 1.0)
        shape = inputs["input_ids"].shape
        num_sequences = 1 if len(shape) == 2 else shape[1]
        if len(shape) == 3:
            inputs = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
        weights = (example_weights / num_sequences).repeat_interleave(num_sequences)
        outputs = self.model(**inputs, sequence_weights=weights, expected_grad=expected_grad)
        return AuxiliaryOutput(
            logits=outputs.logits.unflatten(0, (-1, num_sequences)).mean(1),
            lm_sum=outputs.lm_sum,
            lm_losses=outputs.lm_losses.unflatten(0, (-1, num_sequences)).mean(1),
        )
