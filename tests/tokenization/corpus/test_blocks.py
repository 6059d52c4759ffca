"""Contiguous blocks: literal cuts, no token lost, and no block without a target."""

from itertools import chain

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from tokenization.corpus.blocks import cut_blocks, pack_documents

DOCUMENTS = [[1, 2, 3, 4, 5, 6, 7, 8], [9, 10], [], [11, 12, 13]]


def test_each_document_has_blocks_of_its_own_or_they_go_on_into_the_next():
    assert pack_documents(DOCUMENTS, block_length=3) == [[1, 2, 3], [4, 5, 6], [7, 8], [9, 10], [11, 12, 13]]
    blocks = pack_documents(DOCUMENTS, block_length=5, mix_documents=True)
    assert blocks == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13]]


@pytest.mark.parametrize(
    ("length", "lengths"), [(2, [2]), (3, [3]), (4, [4]), (5, [3, 2]), (8, [4, 4]), (9, [4, 3, 2]), (10, [4, 4, 2])]
)
def test_no_last_block_is_one_token(length, lengths):
    assert list(map(len, pack_documents([range(length)], block_length=4))) == lengths


@given(
    lengths=st.lists(st.just(0) | st.integers(2, 40), max_size=6),
    block_length=st.integers(3, 16),
    mix_documents=st.booleans(),
    cuts=st.lists(st.integers(0, 100), max_size=8).map(sorted),
)
def test_every_token_is_in_one_block_however_documents_come(lengths, block_length, mix_documents, cuts):
    documents = [[(index, position) for position in range(length)] for index, length in enumerate(lengths)]
    blocks = pack_documents(iter(documents), block_length, mix_documents)
    assert all(2 <= len(block) <= block_length for block in blocks)
    assert list(chain(*blocks)) == list(chain(*documents))
    for block in blocks:
        assert mix_documents or block == [(block[0][0], block[0][1] + step) for step in range(len(block))]
    expected = [sum(lengths)] if mix_documents else lengths
    assert len(blocks) == sum(-(-length // block_length) for length in expected)
    document, bounds = list(range(100)), [0, *cuts, 100]
    pieces = [(i == 0, document[bounds[i] : bounds[i + 1]]) for i in range(len(bounds) - 1)]
    assert list(cut_blocks(iter(pieces), block_length)) == pack_documents([document], block_length)


def test_rows_of_a_data_set_are_cut_by_map():
    dataset = Dataset.from_dict({"input_ids": DOCUMENTS, "title": ["a", "b", "c", "d"]})
    assert pack_documents(dataset, block_length=3) == pack_documents(DOCUMENTS, block_length=3)
