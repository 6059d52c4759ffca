"""Tells before training whether a model's scores depend on the padding of a batch, and so on its other rows."""

from dataclasses import replace

import torch
from transformers import PreTrainedModel

from tokenization import TraversalCollator
from tokenization.family import any_word

from ..inference.probing import unchanged
from ..inference.task_scores import TaskScores

NUM_WORDS = 12  # of the longer row, beside a row of one word
# Differences up to this are rounding, as a part of the largest score. An accelerator may multiply in fewer bits than
# the weights have, and by another kernel for another batch.
ROUNDING, ROUNDING_OF_FEW_BITS = 1e-3, 5e-2


def check_padding(model: PreTrainedModel, data_collator: TraversalCollator) -> None:
    """Scores one short row alone and beside a longer one.

    BERT scores its first token and XLNet its last column, so each reads padding on the wrong side. Some models mix all
    columns without a mask, as FNet does, on either side.

    Raises:
        ValueError: the scores differ.
    """
    device = next(model.parameters()).device
    if device.type == "meta":
        return
    collator = replace(data_collator)  # a copy, with counts of its own
    short, long = (_row(collator, number) for number in (1, NUM_WORDS))
    alone, together = (collator([short, *rows]) for rows in ([], [long]))
    if alone["input_ids"].shape[-1] == together["input_ids"].shape[-1]:  # `pad_to_multiple_of` pads every batch
        return
    with unchanged(model):
        first, second = (
            TaskScores(model)(**{name: tensor.to(device) for name, tensor in batch.items()})["logits"][0].float()
            for batch in (alone, together)
        )
    is_exact = device.type == "cpu" and model.dtype in (torch.float32, torch.float64)
    rounding = ROUNDING if is_exact else ROUNDING_OF_FEW_BITS
    if not (first - second).abs().max().item() <= rounding * max(1.0, first.abs().max().item()):
        side = collator.padding_side
        raise ValueError(
            f"The batches are padded on the {side}, where the scores of {type(model).__name__} depend on the padding, "
            f"and so on the rows beside. Set the tokenizer's `padding_side` to "
            f'"{"left" if side == "right" else "right"}" and save it, or pad all batches to one length, with '
            f"`pad_to_multiple_of={collator.max_length}`."
        )


def _row(data_collator: TraversalCollator, num_words: int) -> dict:
    """A row with so many words in each text, and two choices."""
    text = " ".join([any_word(data_collator.tokenizer)[0]] * num_words)
    row = {}
    for role, column in data_collator.columns.items():
        if role == "label":
            continue
        columns = [column] if isinstance(column, str) else column
        is_list = role == "choices" and isinstance(column, str)
        row |= dict.fromkeys(columns, [text, text] if is_list else text)
    return row
