"""A corpus as pieces and as blocks: what is read, what becomes of every token, what is cached and how it is shared."""

import copy
import json
import math
import os
import shutil
from itertools import chain
from pathlib import Path

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from support.corpora import ids_of, rows_of, write_books
from support.files import write_rows
from support.refusals import refusal
from torch.utils.data import DataLoader

from tokenization import GPT1Tokenizer, count_tokens, load_blocks
from tokenization.corpus import preparation as corpus
from tokenization.errors import UserError

# ---- Blocks on disk.


def test_blocks_hold_every_token_once(plain_tokenizer, tmp_path):
    documents = ["the old farmer walked\nto the market", "", "the", "nobody knew", "he needed a new plough"]
    path = write_rows(tmp_path / "rows.jsonl", [{"text": text} for text in documents])
    ids = [ids_of(plain_tokenizer, text) for text in documents]
    assert list(map(len, ids)) == [18, 0, 1, 8, 10]
    blocks = load_blocks(path, plain_tokenizer, block_length=9, cache_dir=tmp_path / "cache")
    assert rows_of(blocks) == [ids[0][:9], ids[0][9:], ids[3], ids[4][:8], ids[4][8:]]
    assert blocks.features == {"input_ids": datasets.List(datasets.Value("uint16"))}
    assert (count_tokens(blocks), count_tokens(blocks.select([0, 3]))) == (36, 17)
    for some in (blocks, blocks.select([0, 3])):
        tokens = list(chain(*rows_of(some)))
        entropy = -sum(math.log(tokens.count(token) / len(tokens)) for token in tokens) / len(tokens)
        assert corpus.unigram_perplexity(some) == pytest.approx(math.exp(entropy))


def test_mixed_documents_fill_each_block_but_the_last(plain_tokenizer, tmp_path):
    books = write_books(tmp_path, [100, 60, 10])
    ids = list(chain(*(ids_of(plain_tokenizer, book.read_text()) for book in books)))
    blocks = load_blocks(books, plain_tokenizer, 32, mix_documents=True, cache_dir=tmp_path / "cache")
    assert list(chain(*rows_of(blocks))) == ids
    assert {len(row) for row in rows_of(blocks)[:-1]} == {32}


def test_a_large_vocabulary_has_wider_ids(plain_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(GPT1Tokenizer, "__len__", lambda self: (1 << 16) + 1)
    blocks = load_blocks(write_books(tmp_path, [20]), plain_tokenizer, cache_dir=tmp_path / "cache")
    assert blocks.features == {"input_ids": datasets.List(datasets.Value("uint32"))}


@pytest.mark.parametrize("num_proc", [None, 2])
def test_a_fault_in_a_later_file_names_it(num_proc, plain_tokenizer, tmp_path, one_file_shards):
    files = [*write_books(tmp_path, [20]), tmp_path / "late.txt"]
    files[-1].write_bytes(b"caf\xe9 au lait")
    with pytest.raises(UserError, match=f"^{tmp_path}/late.txt is not UTF-8 text"):
        load_blocks(files, plain_tokenizer, num_proc=num_proc, cache_dir=tmp_path / "cache")


def test_a_stream_takes_no_processes(plain_tokenizer, tmp_path):
    message = refusal(load_blocks, write_books(tmp_path, [20]), plain_tokenizer, streaming=True, num_proc=2)
    assert "`num_proc` is 2" in message
    assert "dataloader_num_workers" in message


def test_a_block_of_two_tokens_is_refused(plain_tokenizer, tmp_path):
    message = refusal(load_blocks, write_books(tmp_path, [20]), plain_tokenizer, 2)
    assert "`block_length` is 2, but must be at least 3" in message


def test_documents_of_one_token_alone_are_refused(plain_tokenizer, tmp_path):
    (tmp_path / "the.txt").write_text("the\nthe\n")
    message = refusal(load_blocks, tmp_path / "the.txt", plain_tokenizer, document_per="line")
    assert "No document has two tokens" in message
    assert "Pass `mix_documents`" in message


def test_several_processes_prepare_the_same_blocks(plain_tokenizer, tmp_path, one_file_shards):
    books = write_books(tmp_path, [200, 50, 100])
    one = load_blocks(books, plain_tokenizer, 16, cache_dir=tmp_path / "one")
    two = load_blocks(books, plain_tokenizer, 16, cache_dir=tmp_path / "two", num_proc=2)
    assert rows_of(two) == rows_of(one)
    assert len(two.cache_files) == 2


def test_processes_beside_each_other_have_no_threads(plain_tokenizer, tmp_path, one_file_shards, monkeypatch):
    def ids_by_setting(parts, backend):
        yield True, [1, 2, 3 if os.environ["TOKENIZERS_PARALLELISM"] == "false" else 4]

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    monkeypatch.setattr(corpus, "_tokenise", ids_by_setting)
    books = write_books(tmp_path, [20, 30])
    for num_proc, last in ((None, 4), (2, 3)):
        blocks = load_blocks(books, plain_tokenizer, cache_dir=tmp_path / f"{num_proc}", num_proc=num_proc)
        assert rows_of(blocks) == [[1, 2, last]] * 2
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"


def test_the_cache_follows_files_tokenizer_and_options(plain_tokenizer, tmp_path, monkeypatch):
    pytest.importorskip("ftfy")
    books = write_books(tmp_path, [100, 50])

    def place(tokenizer=plain_tokenizer, **options) -> str:
        return load_blocks(books, tokenizer, cache_dir=tmp_path / "cache", **options).cache_files[0]["filename"]

    first = place()
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_tokenise", None)  # tokenising again would fail
        assert place() == first
        assert place(copy.deepcopy(plain_tokenizer)) == first
        truncating = copy.deepcopy(plain_tokenizer)
        truncating(["the old farmer", "the"], truncation=True, max_length=2, padding=True)
        assert place(truncating) == first
        with pytest.raises(TypeError):
            place(block_length=16)
    other = GPT1Tokenizer.train(iter(["the new plough"]), num_merges=5, show_progress=False)
    places = [first, place(other), *(place(**option) for option in ({"block_length": 16}, {"mix_documents": True}))]
    places += [place(fix_text=True), load_blocks(books[0], plain_tokenizer, cache_dir=tmp_path / "cache").cache_files]
    books[1].write_text(books[1].read_text().replace("the", "teh"))
    assert len(set(map(str, [*places, place()]))) == 7


@pytest.mark.parametrize("damage", [lambda file: os.truncate(file, os.path.getsize(file) // 2), os.unlink])
def test_damaged_blocks_in_the_cache_are_named_with_their_folder(damage, plain_tokenizer, tmp_path):
    books = write_books(tmp_path, [200])
    blocks = load_blocks(books, plain_tokenizer, cache_dir=tmp_path / "cache")
    rows, file = rows_of(blocks), Path(blocks.cache_files[0]["filename"])
    damage(file)
    message = refusal(load_blocks, books, plain_tokenizer, cache_dir=tmp_path / "cache")
    assert f"The prepared blocks in {file.parent} cannot be read: " in message
    assert "Delete that folder" in message
    shutil.rmtree(file.parent)
    assert rows_of(load_blocks(books, plain_tokenizer, cache_dir=tmp_path / "cache")) == rows


def test_a_damaged_description_of_blocks_in_the_cache_is_told_with_the_remedy(plain_tokenizer, tmp_path):
    books = write_books(tmp_path, [200])
    blocks = load_blocks(books, plain_tokenizer, cache_dir=tmp_path / "cache")
    rows, file = rows_of(blocks), Path(blocks.cache_files[0]["filename"])
    (file.parent / "dataset_info.json").write_text("", encoding="utf-8")
    message = refusal(load_blocks, books, plain_tokenizer, cache_dir=tmp_path / "cache")
    assert (
        "(dataset_info.json) cannot be read: Expecting value: line 1 column 1 (char 0). Delete the folder" in message
    )
    assert f"`generator` in {tmp_path / 'cache'}, and" in message
    shutil.rmtree(tmp_path / "cache" / "generator")
    assert rows_of(load_blocks(books, plain_tokenizer, cache_dir=tmp_path / "cache")) == rows


# ---- Streams.


@pytest.fixture
def make_stream(plain_tokenizer, tmp_path, one_file_shards):
    """A stream of as many shards as sizes, and the rows on disk."""

    def make(sizes: list[int]):
        books = write_books(tmp_path, sizes)
        books[1::2] = [write_rows(book.with_suffix(".jsonl"), [{"text": book.read_text()}]) for book in books[1::2]]
        blocks = load_blocks(books, plain_tokenizer, 8, cache_dir=tmp_path / "cache")
        return load_blocks(books, plain_tokenizer, 8, streaming=True), rows_of(blocks)

    return make


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(("files", "processes"), [(4, 2), (3, 2), (1, 3)])
@pytest.mark.parametrize("shuffled", [False, True])
def test_processes_and_workers_share_every_row(files, processes, num_workers, shuffled, make_stream):
    stream, rows = make_stream([60, 90, 50, 70][:files])
    assert (stream.num_shards, rows_of(stream)) == (files, rows)
    stream = stream.shuffle(seed=0, buffer_size=16) if shuffled else stream
    shares = []
    for rank in range(processes):
        share = split_dataset_by_node(stream, rank, processes)
        shares.append(rows_of(DataLoader(share, batch_size=None, num_workers=num_workers)))
        assert shares[-1]
    assert sorted(chain(*shares)) == sorted(rows)
    assert len({tuple(row) for row in rows}) == len(rows)


@pytest.mark.parametrize("taken", [0, 1, 12, 13, 20])
def test_a_stream_goes_on_where_it_was(taken, make_stream):
    stream, rows = make_stream([100, 40, 70])
    rank_rows = rows_of(split_dataset_by_node(stream, 1, 2))
    assert rank_rows == rows[1::2]
    first, second = (split_dataset_by_node(stream, 1, 2) for _ in range(2))
    taking = iter(first)
    assert rows_of(next(taking) for _ in range(taken)) == rank_rows[:taken]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert rows_of(second) == rank_rows[taken:]
