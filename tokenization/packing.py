"""Contiguous blocks for pre-training: tokenized documents are cut into blocks of equal length and nothing is lost.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), which
pre-trains on contiguous sequences of 512 tokens.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

IdList = Sequence[int]


@dataclass(frozen=True)
class PackedDocuments:
    """Blocks of equal length, and the remainders that were too short for a block.

    Every token of the documents is in exactly one of the two.
    """

    blocks: list[list[int]]
    remainders: list[list[int]]

    @property
    def num_tokens(self) -> int:
        """How many tokens the blocks hold."""
        return sum(map(len, self.blocks))

    @property
    def num_left_over(self) -> int:
        """How many tokens the remainders hold."""
        return sum(map(len, self.remainders))


def pack_documents(
    documents: Iterable[IdList | Mapping[str, IdList]], block_length: int = 512, mix_documents: bool = False
) -> PackedDocuments:
    """Cuts documents into contiguous blocks.

    Args:
        documents: id lists, or rows with a column `input_ids` such as those of a `datasets.Dataset`.
        block_length: tokens of a block.
        mix_documents: a block may go on into the next document, so that only the end of the last document is left
            over. By default each document starts a block of its own and leaves over its own end.

    Raises:
        ValueError: `block_length` is below 2: a block needs a token to read and a token to predict.
    """
    if block_length < 2:
        raise ValueError(
            f"block_length is {block_length}; it must be at least 2: one token to read and one token to predict."
        )
    blocks: list[list[int]] = []
    remainders: list[list[int]] = []
    pending: list[int] = []
    for document in documents:
        pending += document["input_ids"] if isinstance(document, Mapping) else document
        whole = len(pending) - len(pending) % block_length
        blocks += [pending[start : start + block_length] for start in range(0, whole, block_length)]
        pending = pending[whole:]
        if pending and not mix_documents:
            remainders.append(pending)
            pending = []
    return PackedDocuments(blocks, remainders + [pending] if pending else remainders)


def pack_batch(
    batch: Mapping[str, Any], block_length: int = 512, mix_documents: bool = False
) -> dict[str, list[list[int]]]:
    """`pack_documents` for `datasets.map`, with the remainders kept as shorter rows after the blocks.

    A mixed block never goes beyond one batch of `map`. To train on whole blocks alone, filter by length:

        blocks = dataset.map(pack_batch, batched=True, remove_columns=dataset.column_names)
        blocks = blocks.filter(lambda row: len(row["input_ids"]) == 512)
    """
    packed = pack_documents(batch["input_ids"], block_length, mix_documents)
    return {"input_ids": packed.blocks + packed.remainders}
