"""Tells before training whether a model's scores depend on the padding of a batch, and so on its other rows."""

from functools import partial

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from tokenization import TraversalCollator
from tokenization.family import any_word

from ..inference.probing import rounding_of, unchanged
from ..inference.task_scores import TaskScores

NUM_WORDS = 12  # of the longer text, beside a text of one word


def check_padding(model: PreTrainedModel, data_collator: TraversalCollator) -> None:
    """Scores one short text alone and beside a longer one.

    BERT scores its first token and XLNet its last column, so each reads padding on the wrong side. Some models mix all
    columns without a mask, as FNet does, on either side.

    Raises:
        ValueError: the scores differ.
    """
    device, tokenizer = next(model.parameters()).device, data_collator.tokenizer
    if device.type == "meta" or (data_collator.pad_to_multiple_of or 1) >= data_collator.max_length:
        return
    word, side, scores = any_word(tokenizer), tokenizer.padding_side, TaskScores(model)
    texts = [torch.tensor(tokenizer(" ".join([word] * number))["input_ids"]) for number in (1, NUM_WORDS)]
    pad = partial(pad_sequence, batch_first=True, padding_side=side)

    def first_scores(texts: list[torch.Tensor]) -> torch.Tensor:
        ids = pad(texts, padding_value=tokenizer.pad_token_id).to(device)
        mask = pad([torch.ones_like(text) for text in texts]).to(device)
        if scores.reads_choices:
            ids, mask = ids[:, None], mask[:, None]
        return scores(input_ids=ids, attention_mask=mask)["logits"][0].float()

    with unchanged(model):
        first, second = first_scores(texts[:1]), first_scores(texts)
    if not (first - second).abs().max().item() <= rounding_of(model) * max(1.0, first.abs().max().item()):
        raise ValueError(
            f"The batches are padded on the {side}, where the scores of {type(model).__name__} depend on the padding, "
            f"and so on the rows beside. Set the tokenizer's `padding_side` to "
            f'"{"left" if side == "right" else "right"}" and save it, or pad all batches to one length, with '
            f"`pad_to_multiple_of={data_collator.max_length}`."
        )
