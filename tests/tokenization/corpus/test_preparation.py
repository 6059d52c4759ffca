"""A corpus as pieces and as blocks: what is read, what becomes of every token, what is cached and how it is shared."""

import copy
import gzip
import json
import logging
import math
import os
import random
from itertools import chain
from pathlib import Path

import datasets
import pytest
from datasets.distributed import split_dataset_by_node
from hypothesis import given
from hypothesis import strategies as st
from support.files import COMPRESS, write_rows
from support.refusals import refusal
from torch.utils.data import DataLoader

from tokenization import GPT1Tokenizer, count_tokens, load_blocks, training_texts
from tokenization.corpus import preparation as corpus
from tokenization.text import documents

WORDS = "the old farmer walked to the market because he needed a new plough and nobody knew why".split()


def write_books(folder: Path, sizes: list[int], seed: int = 0) -> list[Path]:
    """A text file of so many words each, a few words a line; no two lines are alike."""
    generator, folder = random.Random(seed), folder / "books"
    folder.mkdir()
    for number, size in enumerate(sizes):
        lines = [" ".join([*generator.choices(WORDS, k=9), f"{number} {line}"]) for line in range(size // 10)]
        (folder / f"book{number:02}.txt").write_text("\n\n".join(lines))
    return sorted(folder.iterdir())


def pieces_of(source, name=None, split="train", text_column="text", fix_text=False, document_per="file") -> list[dict]:
    reading = documents.check_corpus(source, name, split, text_column, fix_text, document_per)
    return list(documents.generate_pieces(**reading))


def texts_of(*source, **options) -> list[str]:
    """The pieces of each document joined."""
    texts = []
    for piece in pieces_of(*source, **options):
        texts += [piece["text"]] if piece["starts_document"] else []
        texts[-1] += "" if piece["starts_document"] else piece["text"]
    return texts


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def rows_of(blocks) -> list[list[int]]:
    return [row["input_ids"] for row in blocks]


@pytest.fixture
def one_file_shards(monkeypatch):
    monkeypatch.setattr(documents, "SHARD_BYTES", 1)


# ---- What is read.

ROWS = [{"title": 1, "text": "first line\nsecond"}, {"title": 2, "text": 'other, "row"'}, {"title": 3, "text": "NA"}]


@pytest.mark.parametrize(
    "ending", [kind + packed for kind in (".jsonl", ".json", ".csv") for packed in COMPRESS] + [".parquet"]
)
def test_a_row_is_a_document(ending, tmp_path):
    assert texts_of(write_rows(tmp_path / f"rows{ending}", ROWS)) == [row["text"] for row in ROWS]


def test_another_column_and_rows_without_text(tmp_path):
    path = write_rows(tmp_path / "rows[1].jsonl", [{"body": "one"}, {"body": None}, {"body": ""}, {"body": "two"}])
    assert texts_of(str(path), text_column="body") == ["one", "two"]


@pytest.mark.parametrize("packed", COMPRESS)
def test_a_text_file_is_a_document(packed, tmp_path):
    path = tmp_path / f"book[1].txt{packed}"
    path.write_bytes(COMPRESS[packed]("Ein Müller\r\nund\n\n sein Esel\n".encode()))
    assert texts_of(path) == ["Ein Müller\nund\n\n sein Esel\n"]


def test_folders_patterns_and_lists(tmp_path):
    for name in ("b.txt", "a.txt", "deep/c.txt", ".hidden.txt", ".git/d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    write_rows(tmp_path / "deep" / "rows.jsonl.gz", ROWS[:1])
    assert texts_of(tmp_path / "*.txt") == ["a.txt", "b.txt"]
    assert texts_of(f"{tmp_path}/**/*.txt") == ["a.txt", "b.txt", "deep/c.txt"]
    several = [tmp_path / "deep" / "rows.jsonl.gz", tmp_path / "b.txt", tmp_path / "*.txt"]
    assert texts_of(several) == [ROWS[0]["text"], "b.txt", "a.txt"]
    (tmp_path / "deep" / "rows.jsonl.gz").unlink()
    assert texts_of(tmp_path) == ["a.txt", "b.txt", "deep/c.txt"]


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A data set `anyone/tales` of two files and a configuration, on disk in place of the hub; its revision."""
    folder, revision = tmp_path / "hub", ["1"]
    folder.mkdir()
    for number in range(2):
        rows = [{"text": f"tale {number} {row} of the old farmer"} for row in range(3)]
        write_rows(folder / f"train-{number}.jsonl", rows)
    write_rows(folder / "test-0.jsonl", [{"text": "a test"}])
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: long\n  data_files:\n  - {split: train, path: train-*.jsonl}\n"
        "  - {split: test, path: test-*.jsonl}\n---\n"
    )

    def load_builder(name, config):
        assert name == "anyone/tales"
        builder = datasets.load_dataset_builder(str(folder), config)
        builder.hash = revision[0]
        return builder

    def load(name, config, split, revision, streaming):
        assert (name, streaming) == ("anyone/tales", True)
        return datasets.load_dataset(str(folder), config, split=split, streaming=True)

    monkeypatch.setattr(documents, "load_dataset_builder", load_builder)
    monkeypatch.setattr(documents, "load_dataset", load)
    yield revision
    documents._hub_split.cache_clear()


def test_a_data_set_of_the_hub(hub, plain_tokenizer, tmp_path):
    tales = [f"tale {number} {row} of the old farmer" for number in range(2) for row in range(3)]
    assert texts_of("anyone/tales", "long") == tales
    assert texts_of("anyone/tales", "long", split="test") == ["a test"]
    stream = load_blocks("anyone/tales", plain_tokenizer, name="long", streaming=True)
    assert (stream.num_shards, rows_of(stream)) == (2, [ids_of(plain_tokenizer, tale) for tale in tales])
    first = load_blocks("anyone/tales", plain_tokenizer, name="long", cache_dir=tmp_path / "cache")
    assert rows_of(first) == rows_of(stream)
    hub[0] = "2"
    second = load_blocks("anyone/tales", plain_tokenizer, name="long", cache_dir=tmp_path / "cache")
    assert first.cache_files != second.cache_files


def test_texts_for_training_a_bpe(tmp_path):
    books = write_books(tmp_path, [300, 500])
    assert list(training_texts(tmp_path / "books")) == [book.read_text() for book in books]
    from_texts = GPT1Tokenizer.train((book.read_text() for book in books), num_merges=50, show_progress=False)
    from_files = GPT1Tokenizer.train(books, num_merges=50, show_progress=False)
    assert from_texts.backend_tokenizer.to_str() == from_files.backend_tokenizer.to_str()
    one = GPT1Tokenizer.train(books[0], num_merges=50, show_progress=False)
    assert one.backend_tokenizer.to_str() != from_files.backend_tokenizer.to_str()


LINES = "one two\n  \nthree\nfour\n\n\nfive"
PARTS = {"file": [LINES], "line": ["one two\n", "three\n", "four\n", "five"]}
PARTS["blank_line"] = ["one two\n", "three\nfour\n", "five"]


@pytest.mark.parametrize("document_per", PARTS)
@pytest.mark.parametrize("size", [1, 5, 1 << 16])
def test_documents_of_a_text_file(document_per, size, tmp_path, monkeypatch, plain_tokenizer):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", size)
    path = tmp_path / "childes.train.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    assert texts_of(path, document_per=document_per) == PARTS[document_per]
    expected = [ids_of(plain_tokenizer, text) for text in PARTS[document_per]]
    blocks = load_blocks(path, plain_tokenizer, document_per=document_per, cache_dir=tmp_path)
    assert rows_of(blocks) == [ids for ids in expected if len(ids) > 1]
    assert "must be one of file, line, blank_line" in refusal(training_texts, path, document_per="word")


def test_a_file_of_any_other_ending_is_text(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    logging.Logger.warning_once.cache_clear()
    (tmp_path / "spoken.dev").write_text("é" * 40_000, encoding="utf-8")
    (tmp_path / "plain").write_text("words")
    assert len(texts_of(tmp_path)) == 2
    assert {f"Files that end in '{end}' are read as text." for end in ("", ".dev")} <= {*caplog.messages}
    # Before any text is read.
    for content, reason in ((b"\x89PNG\0", "is not UTF-8 text"), (b"a\0b", "holds no text")):
        (tmp_path / "zoo.png").write_bytes(content)
        message = refusal(training_texts, tmp_path)
        assert f"zoo.png {reason}" in message and "eave it out" in message


ERRORS = {
    "latin.txt": (b"caf\xe9 au lait", "not UTF-8 text (invalid continuation byte). If it is text in ENCODING (often"),
    "wide.txt.gz": (gzip.compress("wide".encode("utf-16")), "not UTF-8 text"),
    "cut.txt.gz": (gzip.compress(b"words " * 100)[:-9], "ended before the end-of-stream marker"),
    "no.txt.xz": (b"plain", "cannot be read: Input format not supported"),
    "la tin.csv": (b"text\ncaf\xe9 au lait", "`iconv -f ENCODING -t UTF-8 '{path}' > NEW`"),
    "latin.jsonl": (b'{"text": "caf\xe9 au lait"}', "`iconv -f ENCODING -t UTF-8 {path} > NEW`"),
    "wide.csv": ("text\nwide".encode("utf-16"), "`iconv -f UTF-16 -t UTF-8 {path} > NEW`"),
    "book.xlsx": (b"PK\3\4\xff", "If it is a spreadsheet, save it as CSV (UTF-8)"),
    "three.ZIP": (b"PK\3\4\xff", "is an archive. Unpack it, and give the folder of its files"),  # only one was read
    "near.JSONL": (b'{"Text": "a"}', "row 0 has no column 'text' (did you mean 'Text'?)"),
    "other.jsonl": (b'{"body": "a"}', "row 0 has no column 'text'; it has 'body'. Name the column of the text"),
    "number.jsonl": (b'{"text": 5}', "row 0: column 'text' holds 5, no text. Name the column"),
    "blank.txt": (b" \n\n ", "has no text. Give a corpus with text in it"),
    "empty.txt": (b"", "has no text"),
    "empty.jsonl": (b"", "has no text"),
    "empty.csv": (b"", "cannot be read as csv: No columns to parse"),
}


@pytest.mark.parametrize("file_name", ERRORS)
def test_what_is_wrong_with_a_file(file_name, tmp_path):
    content, expected = ERRORS[file_name]
    path = tmp_path / file_name
    path.write_bytes(content)
    message = refusal(training_texts, path)
    assert message.startswith(str(path)) and expected.format(path=path) in message


def test_what_is_wrong_with_a_source(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for missing in ("no.txt", "*.txt", "", "a/b/c"):
        message = refusal(training_texts, f"{tmp_path}/{missing}")
        assert f"{tmp_path / missing} matches no file" in message and "Give the path of a file" in message
    monkeypatch.chdir(tmp_path)  # the text is shown as it was given, however deep the folder
    message = refusal(training_texts, "it was " * 1000)
    assert message.startswith("'it was it was ") and ", and so on, matches no file" in message and len(message) < 200
    message = refusal(training_texts, "anyone/no_such_tales")
    assert "anyone/no_such_tales is not a file or folder" in message and "OfflineModeIsEnabled" in message
    (book,) = write_books(tmp_path, [10])
    assert "no configuration long. Leave name out" in refusal(training_texts, book, name="long")
    write_rows(book.parent / "b.jsonl", ROWS)
    assert "more than one kind" in (message := refusal(training_texts, book.parent)) and "/*.txt." in message


@given(
    ending=st.sampled_from([".jsonl", ".csv", ".txt.gz", ".jsonl.bz2", ".parquet", ".txt", ".json"]),
    texts=st.lists(st.text(max_size=9) | st.none() | st.integers(), min_size=1, max_size=3),
    place=st.integers(0, 500),
    new=st.sampled_from([b"", b"\x00", b"\xff", b"\xe9", b"[", b'"', b"\n"]),
    keeps_rest=st.booleans(),
)
def test_any_file_is_read_or_refused_with_a_sentence(tmp_path_factory, ending, texts, place, new, keeps_rest):
    path = tmp_path_factory.mktemp("any") / f"rows{ending}"
    content = json.dumps([{"text": text} for text in texts]).encode()
    if ending != ".json":
        content = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)
    content = content[:place] + new + content[place + len(new) :] * keeps_rest
    path.write_bytes(COMPRESS[path.suffixes[-1]](content) if len(path.suffixes) > 1 else content)
    try:
        found = texts_of(str(path))
    except ValueError as error:
        assert str(path) in str(error) and len(str(error).split()) > 4
    else:
        assert any(text.strip() for text in found)


BROKEN = "The Mona Lisa doesnâ€™t\nhave &quot;eyebrows&quot;\r\n" * 3


@pytest.mark.parametrize("piece", [40, 1 << 16])
def test_ftfy_cleans_pieces_as_it_cleans_the_whole(piece, tmp_path, monkeypatch):
    ftfy = pytest.importorskip("ftfy")
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", piece)
    monkeypatch.setattr(documents, "CONTEXT_CHARACTERS", 4)
    path = write_rows(tmp_path / "rows.jsonl", [{"text": BROKEN}, {"text": "&quot;another&quot; â€™"}])
    expected = [ftfy.fix_text(BROKEN), '"another" \'']
    assert texts_of(path, fix_text=True) == expected and '"eyebrows"' in expected[0]
    assert texts_of(path) == [BROKEN, "&quot;another&quot; â€™"]
    assert (len(pieces_of(path)) > 3) == (piece == 40)


# ---- Token ids of pieces and of whole documents.

SIGNS = ["\n"] * 6 + [" "] * 6 + list("aZ.,'<&;-~/\t\r\x00\x01\x0b\x0c\x1c\x85\u00a0\u2028\u200b\ufeff\u0301éΣ°F$%:=8")
SIGNS += [*"&amp; &lt; &quot;".split(), "\n\n", "\r\n", " \n ", *"don't i'm [s] ... 's e\u0301 \u1100\u1161".split()]


nasty_texts = st.lists(st.sampled_from(SIGNS), max_size=60).map("".join)
# An HTML entity so far behind a "<" that it is just decoded, or just not.
far_entities = st.integers(980, 1030).map(lambda number: f"<{'a' * number}&quot;")


def parts_of(*texts: str) -> list[dict]:
    """The pieces of each text, as rows of one stream of documents."""
    return [
        {"text": piece, "starts_document": number == 0}
        for text in texts
        for number, piece in enumerate(documents._pieces(documents._chunks(text)))
    ]


def tokens_in_parts(tokenizer, *texts: str) -> list[list[int]]:
    """Token ids of each text."""
    rows = []
    backend = corpus._backend(tokenizer.backend_tokenizer.to_str())
    for starts_document, ids in corpus._tokenise(iter(parts_of(*texts)), backend):
        rows += [[]] if starts_document else []
        rows[-1] += ids
    return rows


FAR = " ".join(["the old", "farmer\n", "\u732b A"] * 70)  # longer than a cut looks around itself


@given(
    texts=st.lists(
        st.lists(nasty_texts | far_entities | st.sampled_from([FAR, " so it"]), max_size=9).map("".join), max_size=4
    ),
    piece=st.integers(1, 100),
)
def test_nasty_texts_in_pieces(texts, piece, tiny_tokenizer):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PIECE_CHARACTERS", piece)
        patch.setattr(corpus, "BATCH_PIECES", 2)
        texts = [text for text in texts if text]
        assert tokens_in_parts(tiny_tokenizer, *texts) == [ids_of(tiny_tokenizer, text) for text in texts]


@pytest.mark.parametrize("distance", [2, 900, 999, 1000, 1001])
@pytest.mark.parametrize("gap", [" ", "\n"])
@pytest.mark.parametrize("looks_around", [True, False])
def test_an_entity_far_from_an_angle_bracket(distance, gap, looks_around, tiny_tokenizer, monkeypatch):
    """Behind it or before it; where a cut does not look for it, they part."""
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 20)
    if not looks_around:
        monkeypatch.setattr(documents, "CONTEXT_CHARACTERS", 2)
    filler = "the old farmer" + gap
    text = "a girl\n<\n" + (filler * 100)[: distance - 2] + "&quot;the end&quot;" + filler * 200
    is_same = tokens_in_parts(tiny_tokenizer, text) == [ids_of(tiny_tokenizer, text)]
    assert is_same == (looks_around or distance in (2, 1001))


@pytest.mark.parametrize("gap", [" ", "\n"])
def test_a_text_is_cut_between_words(gap, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 2000)
    rare = ["Mr. X", "° F.", "can't", "a  b", "(no)", "- -", "&quot;", "<", "5 % ."]
    draw = random.Random(0)
    text = "".join(draw.choice([" ", gap]) + word for word in draw.choices(WORDS * 9 + rare, k=9000))
    parts = [part["text"] for part in parts_of(text)]
    assert len(parts) > 3 and max(map(len, parts)) < 20_000 and "".join(parts) == text
    assert tokens_in_parts(tiny_tokenizer, text) == [ids_of(tiny_tokenizer, text)]


@pytest.mark.parametrize("sign", ["\u732b", "\u732b ", " ", "\u0410", "5 \n", "a\n"])
def test_a_text_without_words_is_not_held_whole(sign, monkeypatch):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 1000)
    monkeypatch.setattr(documents, "MOST_CHARACTERS", 5000)
    text = sign * (40_000 // len(sign))
    parts = [part["text"] for part in parts_of(text)]
    assert "".join(parts) == text and max(map(len, parts)) <= 5000 + 6000
    assert " " not in sign or all(part[0] == " " for part in parts[1:])  # between words if there are any


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


def test_blocks_of_mixed_documents(plain_tokenizer, tmp_path):
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
def test_a_fault_in_a_later_file(num_proc, plain_tokenizer, tmp_path, one_file_shards):
    files = [*write_books(tmp_path, [20]), tmp_path / "late.txt"]
    files[-1].write_bytes(b"caf\xe9 au lait")
    with pytest.raises(Exception, match=f"{tmp_path}/late.txt is not UTF-8 text"):
        load_blocks(files, plain_tokenizer, num_proc=num_proc, cache_dir=tmp_path / "cache")


def test_arguments_that_do_not_fit(plain_tokenizer, tmp_path):
    books = write_books(tmp_path, [20])
    message = refusal(load_blocks, books, plain_tokenizer, streaming=True, num_proc=2)
    assert "num_proc is 2" in message and "dataloader_num_workers" in message
    assert "block_length is 2; it must be at least 3" in refusal(load_blocks, books, plain_tokenizer, 2)
    (tmp_path / "the.txt").write_text("the\nthe\n")
    message = refusal(load_blocks, tmp_path / "the.txt", plain_tokenizer, document_per="line")
    assert message == "No document has two tokens, so nothing can be predicted. Pass `mix_documents`."


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


def test_a_link_that_loops_shows_a_file_once(tmp_path):
    folder = tmp_path / "books"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.txt").write_text("the old farmer")
    (folder / "two.txt").write_text("a girl")
    (folder / "sub" / "up").symlink_to(folder)
    for source in (folder, [folder, f"{folder}/*.txt"]):
        assert texts_of(source) == ["the old farmer", "a girl"]


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
