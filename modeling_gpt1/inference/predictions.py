"""What a fine-tuned model of any family predicts for rows of a task."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from tokenization import Task, TraversalCollator
from tokenization.errors import UserError
from tokenization.rows.tasks import TRAINER_PADDING

from ..families import family_of_model
from .generation import not_numbers


@dataclass
class _ReadableRow:
    """A row that the collator can read, and what is known of its prediction."""

    index: int
    row: dict[str, Any]
    record: dict[str, Any]
    """The prediction, once the batch is scored."""
    is_cut: bool


def predict_rows(
    rows: Dataset | list[dict[str, Any]],
    task: Task,
    model: PreTrainedModel,
    collator: TraversalCollator,
    batch_size: int = 32,
) -> Iterator[dict]:
    """Yields each row's prediction, as `describe_prediction` gives it, or the `error` for which it cannot be read.

    A list of rows has the columns of texts alone. Its cells may be of any kind.
    """
    family = family_of_model(model)
    scores_of = family.scores_of(model)
    texts = rows if isinstance(rows, list) else rows.select_columns(task.text_columns)
    for first in range(0, len(rows), batch_size):
        records: list[dict[str, Any]] = []
        batch: list[_ReadableRow] = []
        end = min(first + batch_size, len(rows))
        chunk = texts[first:end] if isinstance(texts, list) else texts.select(range(first, end))
        for index, row in enumerate(chunk, start=first):
            record: dict[str, Any] = {}
            records.append(record)
            try:
                _, num_cut = collator.check([row])
            except ValueError as error:
                record["error"] = re.sub(r"^Row 0 of the data( \(.*?\))?: ", "", str(error))
            else:
                batch.append(_ReadableRow(index, row, record, is_cut=num_cut > 0))
        if batch:
            inputs = collator([read.row for read in batch])
            with torch.inference_mode():
                output = scores_of(**{name: tensor.to(model.device) for name, tensor in inputs.items()})
            logits = family.task_logits(output).cpu().double()
            for read, of_row in zip(batch, logits, strict=True):
                if of_row.isnan().any():
                    raise UserError(not_numbers(f"The scores of row {read.index}", model))
                read.record.update(describe_prediction(of_row, task))
                if read.is_cut:
                    read.record["truncated"] = True
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


def texts_and_label(row: dict[str, Any], task: Task) -> dict[str, Any]:
    """A row's texts by their roles, a list where a role has several columns, and its label in words as `gold`."""
    fields: dict[str, Any] = {}
    for role, columns in task.columns.items():
        if role != "label":
            fields[role] = row[columns] if isinstance(columns, str) else [row[column] for column in columns]
    label = row[task.columns["label"]]
    if task.multi_label:
        fields["gold"] = [name for name, holds in zip(task.label_names, label, strict=True) if holds]
    else:
        fields["gold"] = task.label_names[label] if task.label_names else label
    return fields


def number_of(record: dict, task: Task) -> float | list[float]:
    """A prediction as the place of its class, as 0 or 1 for each, or as a number."""
    found = record.get("label", record.get("score"))
    if task.multi_label:
        return [float(name in found) for name in task.label_names]
    return task.label_names.index(found) if task.label_names else found
