"""Scores of a task by transformers' own classifiers, and what a fine-tuned model of any family predicts for rows.

Shape legend: B examples, C sequences per example, T tokens, K classes.
"""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from tokenization import Task, TraversalCollator
from tokenization.rows.tasks import TRAINER_PADDING


class TaskScores:
    """A model of `AutoModelForSequenceClassification` or `AutoModelForMultipleChoice`, called on whole batches.

    - The scores of a pair in both orders, `[B, 2, T]`, are averaged.
    - Choices that an example does not have (`choice_mask`) get the score −inf.
    - Segments are left out for a model that does not read them.

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

    def __call__(self, choice_mask: torch.Tensor | None = None, **inputs: Any) -> SequenceClassifierOutput:
        """`logits`, `[B, K]` or `[B, C]`, alone: other outputs would be gathered with the predictions."""
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


def predict_rows(
    rows: Dataset, task: Task, model: PreTrainedModel, collator: TraversalCollator, batch_size: int = 32
) -> Iterator[dict]:
    """Yields each row's prediction, as `describe_prediction` gives it, or the `error` for which it cannot be read."""
    scores_of = model if hasattr(model, "task_head") else TaskScores(model)
    texts = rows.select_columns(task.text_columns)
    for first in range(0, len(rows), batch_size):
        records, batch = [], []
        for row in texts.select(range(first, min(first + batch_size, len(rows)))):
            records.append({})
            try:
                _, num_cut = collator.check([row])
            except ValueError as error:
                records[-1]["error"] = re.sub(r"^Row 0 of the data( \(.*?\))?: ", "", str(error))
            else:
                batch.append((row, records[-1], {"truncated": True} if num_cut else {}))
        if batch:
            inputs = collator([row for row, *_ in batch])
            with torch.inference_mode():
                output = scores_of(**{name: tensor.to(model.device) for name, tensor in inputs.items()})
            logits = output["task_logits" if scores_of is model else "logits"].cpu().double()
            for (_, record, cut), of_row in zip(batch, logits, strict=True):
                record |= describe_prediction(of_row, task) | cut
        yield from records


def describe_prediction(logits: torch.Tensor, task: Task) -> dict[str, Any]:
    """What a row's logits say: a number, or the class (without names: the choice) with the probability of each.

    If a row may have several labels, each class has a probability of its own, and those above 0.5 are named.
    """
    if task.regression:
        return {"score": logits.item()}
    if not task.label_names:  # choices, of which a row may have fewer
        logits = logits[logits.isfinite() & (logits != TRAINER_PADDING)]
        return {"label": int(logits.argmax()), "scores": logits.softmax(-1).tolist()}
    scores = logits.sigmoid() if task.multi_label else logits.softmax(-1)
    of_class = dict(zip(task.label_names, scores.tolist(), strict=True))
    several = [name for name, score in of_class.items() if score > 0.5]
    return {"label": several if task.multi_label else task.label_names[int(logits.argmax())], "scores": of_class}


def number_of(record: dict, task: Task) -> float | list[float]:
    """A prediction as the place of its class, as 0 or 1 for each, or as a number."""
    found = record.get("label", record.get("score"))
    if task.multi_label:
        return [float(name in found) for name in task.label_names]
    return task.label_names.index(found) if task.label_names else found
