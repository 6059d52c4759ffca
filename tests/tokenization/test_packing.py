"""Contiguous blocks: literal cuts, and no token lost."""

import random
from itertools import chain

import pytest
from datasets import Dataset

from tokenization.packing import pack_batch, pack_documents

DOCUMENTS = [[1, 2, 3, 4, 5, 6, 7], [8, 9], [], [10, 11, 12]]


def test_each_document_has_blocks_of_its_own():
    packed = pack_documents(DOCUMENTS, block_length=3)
    assert packed.blocks == [[1, 2, 3], [4, 5, 6], [10, 11, 12]]
    assert packed.remainders == [[7], [8, 9]]
    assert (packed.num_tokens, packed.num_left_over) == (9, 3)


def test_blocks_go_on_into_the_next_document_where_asked():
    packed = pack_documents(DOCUMENTS, block_length=5, mix_documents=True)
    assert packed.blocks == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    assert packed.remainders == [[11, 12]]
    assert (packed.num_tokens, packed.num_left_over) == (10, 2)


@pytest.mark.parametrize("mix_documents", [False, True])
def test_every_token_is_in_one_block_or_one_remainder(mix_documents):
    generator = random.Random(0)
    for _ in range(100):
        lengths = [generator.randint(0, 40) for _ in range(generator.randint(0, 6))]
        documents = [[(index, position) for position in range(length)] for index, length in enumerate(lengths)]
        block_length = generator.randint(2, 16)
        packed = pack_documents(iter(documents), block_length, mix_documents)
        assert all(len(block) == block_length for block in packed.blocks)
        assert all(0 < len(remainder) < block_length for remainder in packed.remainders)
        assert sorted(chain(*packed.blocks, *packed.remainders)) == list(chain(*documents))
        assert packed.num_tokens + packed.num_left_over == sum(lengths)
        for block in chain(packed.blocks, packed.remainders):
            assert mix_documents or block == [(block[0][0], block[0][1] + step) for step in range(len(block))]
        if mix_documents:
            assert list(chain(*packed.blocks, *packed.remainders)) == list(chain(*documents))
            assert len(packed.remainders) <= 1


def test_rows_of_a_dataset():
    dataset = Dataset.from_dict({"input_ids": DOCUMENTS, "title": ["a", "b", "c", "d"]})
    assert pack_documents(dataset, block_length=3) == pack_documents(DOCUMENTS, block_length=3)


def test_map_keeps_the_remainders_as_shorter_rows():
    dataset = Dataset.from_dict({"input_ids": DOCUMENTS, "title": ["a", "b", "c", "d"]})
    packed = dataset.map(pack_batch, batched=True, remove_columns=dataset.column_names, fn_kwargs={"block_length": 3})
    assert packed.column_names == ["input_ids"]
    assert list(packed["input_ids"]) == [[1, 2, 3], [4, 5, 6], [10, 11, 12], [7], [8, 9]]


def test_map_mixes_documents_where_asked():
    dataset = Dataset.from_dict({"input_ids": DOCUMENTS})
    packed = dataset.map(pack_batch, batched=True, fn_kwargs={"block_length": 5, "mix_documents": True})
    assert list(packed["input_ids"]) == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]]


def test_the_documents_stay_as_they_are():
    documents = [[1, 2, 3], [4, 5]]
    pack_documents(documents, block_length=2, mix_documents=True)
    assert documents == [[1, 2, 3], [4, 5]]


def test_a_block_of_one_token_is_refused():
    with pytest.raises(ValueError) as error:
        pack_documents(DOCUMENTS, block_length=1)
    assert str(error.value) == (
        "block_length is 1; it must be at least 2: one token to read and one token to predict."
    )
