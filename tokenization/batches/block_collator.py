"""Batches of a corpus' blocks, for the pre-training of a language model.

Source: section 3.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018).
Shape legend: B blocks, T tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ..rows.columns import IGNORED_LABEL
from ..text.control_tokens import check_tokenizer
from .plan import BatchPlan, plan_blocks


@dataclass
class BlockCollator:
    """Makes a batch of blocks: pads shorter ones on the right. Rows without `labels` have every real token as a label.

    transformers' `DataCollatorForLanguageModeling` ignores every label with the id of the padding token. GPT-1 pads
    with its unknown token, so unknown characters would never be predicted.

    Args:
        tokenizer: pads the blocks.
        plan: whether batches carry a [`BatchPlan`], which GPT-1's models follow.
    """

    tokenizer: PreTrainedTokenizerBase
    plan: bool = True

    def __post_init__(self):
        check_tokenizer(self.tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, "torch.Tensor | BatchPlan"]:
        """`input_ids`, `attention_mask` and `labels`, each `[B, T]`, and `plan`; labels are -100 at padding."""
        id_lists = {"input_ids": [np.asarray(row["input_ids"]).tolist() for row in rows]}
        batch = dict(self.tokenizer.pad(id_lists, padding_side="right", return_tensors="pt"))
        batch["labels"] = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, IGNORED_LABEL)
        for labels, row in zip(batch["labels"], rows, strict=True):
            if row.get("labels") is not None:  # such as of a dialogue whose prompts are no targets
                labels[: len(row["labels"])] = torch.as_tensor(row["labels"])
        if self.plan:
            batch["plan"] = plan_blocks(batch["attention_mask"])
        return batch
