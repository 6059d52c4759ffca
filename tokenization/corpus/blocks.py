"""Contiguous blocks of token ids for pre-training; the last block of a document may be shorter.

Source: section 4.1 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018), which
pre-trains on contiguous sequences of 512 tokens.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import UserError

IdList = Sequence[int]


def pack_documents(
    documents: Iterable[IdList | Mapping[str, IdList]], block_length: int = 512, mix_documents: bool = False
) -> list[list[int]]:
    """Cuts documents in memory into contiguous blocks; `load_blocks` does the same for a corpus of any size.

    The last block of a document may be shorter. A block of one token would have no target: where one would be left
    over, the last two blocks of the document have `block_length - 1` and 2 tokens instead. Documents of a single token
    are left out. For a data set of token ids:

        dataset.map(lambda rows: {"input_ids": pack_documents(rows["input_ids"])}, batched=True,
                    remove_columns=dataset.column_names)

    Args:
        documents: id lists, or rows with a column `input_ids` such as those of a `datasets.Dataset`.
        block_length: tokens per block.
        mix_documents: let blocks continue into the next document, so that only the end of the last one is shorter.

    Raises:
        ValueError: `block_length` is below 3.
    """
    check_block_length(block_length)
    pieces = ((not mix_documents, _ids_of(document)) for document in documents)
    return [block for block in cut_blocks(pieces, block_length) if len(block) > 1]


def _ids_of(document: IdList | Mapping[str, IdList]) -> IdList:
    return document["input_ids"] if isinstance(document, Mapping) else document


def check_block_length(block_length: int) -> None:
    """Raises ValueError below 3: some documents could then only be cut into blocks without a target."""
    if block_length < 3:
        raise UserError(
            f"`block_length` is {block_length}, but must be at least 3, so that every block, even the last of a "
            "document, has a token to read and a token to predict."
        )


def cut_blocks(pieces: Iterable[tuple[bool, IdList]], block_length: int) -> Iterator[list[int]]:
    """Cuts a stream of token ids into blocks, holding about one piece and one block at a time.

    A piece is whether a document begins with it, and its ids. Blocks at the end of a document may be shorter than
    `block_length`, 3 or more; one has a single token only if its document has one.
    """
    pending: list[int] = []
    for starts_document, ids in pieces:
        if starts_document:
            yield from _last_blocks(pending, block_length)
            pending = []
        pending.extend(ids)
        # At least two tokens are held back, so that the last block of a longer document never has only one.
        ready = max(0, len(pending) - 2) // block_length * block_length
        for start in range(0, ready, block_length):
            yield pending[start : start + block_length]
        del pending[:ready]
    yield from _last_blocks(pending, block_length)


def _last_blocks(pending: list[int], block_length: int) -> list[list[int]]:
    """The last one or two blocks of a document, from its remaining tokens (at most `block_length + 1`)."""
    if len(pending) == block_length + 1:
        return [pending[:-2], pending[-2:]]
    return [pending] if pending else []
