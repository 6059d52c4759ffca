"""The text of a corpus as pieces: what is read, what is refused, and where a document may be cut."""

import gzip
import json
import logging
import random

import datasets
import fsspec.utils
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.corpora import WORDS, ids_of, rows_of, write_books
from support.files import COMPRESS, write_rows
from support.refusals import refusal

from tokenization import GPT1Tokenizer, load_blocks, training_texts
from tokenization.corpus import preparation as corpus
from tokenization.text import documents


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


ROWS = [{"title": 1, "text": "first line\nsecond"}, {"title": 2, "text": 'other, "row"'}, {"title": 3, "text": "NA"}]


@pytest.mark.parametrize(
    "ending", [kind + packed for kind in (".jsonl", ".json", ".csv") for packed in COMPRESS] + [".parquet"]
)
def test_a_row_is_a_document(ending, tmp_path):
    assert texts_of(write_rows(tmp_path / f"rows{ending}", ROWS)) == [row["text"] for row in ROWS]


def test_another_column_is_read_and_rows_without_text_are_empty(tmp_path):
    path = write_rows(tmp_path / "rows[1].jsonl", [{"body": "one"}, {"body": None}, {"body": ""}, {"body": "two"}])
    assert texts_of(str(path), text_column="body") == ["one", "two"]


@pytest.mark.parametrize("packed", COMPRESS)
def test_a_text_file_is_a_document(packed, tmp_path):
    path = tmp_path / f"book[1].txt{packed}"
    path.write_bytes(COMPRESS[packed]("Ein Müller\r\nund\n\n sein Esel\n".encode()))
    assert texts_of(path) == ["Ein Müller\nund\n\n sein Esel\n"]


@pytest.mark.parametrize("packed", COMPRESS)
def test_a_byte_order_mark_is_no_text(packed, tmp_path):
    path = tmp_path / f"book.txt{packed}"
    path.write_bytes(COMPRESS[packed]("\ufeffthe \ufeffold farmer".encode()))
    assert texts_of(path) == ["the \ufeffold farmer"]


@pytest.mark.parametrize("ending", [".txt", ".txt.gz", ".jsonl"])
def test_two_colons_in_a_name_are_part_of_it(ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = b'{"text": "mine"}' if ending == ".jsonl" else b"mine"
    (tmp_path / f"Test::More{ending}").write_bytes(COMPRESS[".gz"](content) if ending == ".txt.gz" else content)
    (tmp_path / "Test").write_text("another")
    assert texts_of(f"Test::More{ending}") == ["mine"]


def test_folders_patterns_and_lists_name_files_in_order(tmp_path):
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


def test_a_data_set_of_the_hub_is_read_and_prepared_again_when_it_changes(hub, plain_tokenizer, tmp_path):
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


def test_training_texts_are_those_of_the_corpus(tmp_path):
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
def test_a_text_file_has_a_document_per_file_line_or_blank_line(
    document_per, size, tmp_path, monkeypatch, plain_tokenizer
):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", size)
    path = tmp_path / "childes.train.gz"
    path.write_bytes(gzip.compress(LINES.encode()))
    assert texts_of(path, document_per=document_per) == PARTS[document_per]
    expected = [ids_of(plain_tokenizer, text) for text in PARTS[document_per]]
    blocks = load_blocks(path, plain_tokenizer, document_per=document_per, cache_dir=tmp_path)
    assert rows_of(blocks) == [ids for ids in expected if len(ids) > 1]
    assert "must be one of file, line, blank_line" in refusal(training_texts, path, document_per="word")


def test_a_file_of_any_other_ending_is_text(tmp_path, logged):
    logging.Logger.warning_once.cache_clear()
    (tmp_path / "spoken.dev").write_text("é" * 40_000, encoding="utf-8")
    (tmp_path / "plain").write_text("words")
    assert len(texts_of(tmp_path)) == 2
    assert {f"Files that end in '{end}' are read as text." for end in ("", ".dev")} <= {*logged.messages}
    # Before any text is read.
    for content, reason in ((b"\x89PNG\0", "is not UTF-8 text"), (b"a\0b", "is not a text file")):
        (tmp_path / "zoo.png").write_bytes(content)
        message = refusal(training_texts, tmp_path)
        assert f"zoo.png {reason}" in message
        assert "eave it out" in message


ERRORS = {
    "latin.txt": (b"caf\xe9 au lait", "not UTF-8 text (invalid continuation byte). If it is text in ENCODING (often"),
    "wide.txt.gz": (gzip.compress("wide".encode("utf-16")), "not UTF-8 text"),
    "cut.txt.gz": (gzip.compress(b"words " * 100)[:-9], "ended before the end-of-stream marker"),
    "no.txt.xz": (b"plain", "cannot be read: Input format not supported"),
    "la tin.csv": (b"text\ncaf\xe9 au lait", "`iconv -f ENCODING -t UTF-8 '{path}' > NEW`"),
    "latin.jsonl": (b'{"text": "caf\xe9 au lait"}', "`iconv -f ENCODING -t UTF-8 {path} > NEW`"),
    "wide.csv": ("text\nwide".encode("utf-16"), "`iconv -f UTF-16 -t UTF-8 {path} > NEW`"),
    "book.xlsx": (b"PK\3\4\xff", "If it is a spreadsheet, save it as CSV (UTF-8)"),
    "three.ZIP": (b"PK\3\4\xff", "is an archive. Unpack it, and pass the folder of its files"),  # only one was read
    "near.JSONL": (b'{"Text": "a"}', "has no column 'text' (did you mean 'Text'?)"),
    "other.jsonl": (b'{"body": "a"}', "has no column 'text'; it has 'body'. Pass the name of the column"),
    "number.jsonl": (b'{"text": 5}', "row 0: column 'text' holds 5, which is not a text. Pass the name"),
    "half.jsonl": (b'{"text": "a \\ud83d b"}', "row 0: column 'text' has half a character, '\\ud83d', at place 2"),
    "a::b.csv": (b"text\nmine", "has '::' in its path, which a table cannot be read from. Rename"),
    "blank.txt": (b" \n\n ", "has no text. Pass files with text"),
    "empty.txt": (b"", "has no text"),
    "empty.jsonl": (b"", "has no text"),
    "empty.csv": (b"", "cannot be read as csv: No columns to parse"),
}


@pytest.mark.parametrize("file_name", ERRORS)
def test_a_file_that_is_no_text_is_refused(file_name, tmp_path):
    content, expected = ERRORS[file_name]
    path = tmp_path / file_name
    path.write_bytes(content)
    message = refusal(training_texts, path)
    assert message.startswith(str(path))
    assert expected.format(path=path) in message


@pytest.mark.parametrize("name", ["book.txt.zst", "book.csv.ZST"])
def test_a_zst_file_is_refused_where_nothing_unpacks_it(name, tmp_path, monkeypatch):
    """It is no requirement of this package, nor of those that it needs."""
    monkeypatch.delitem(fsspec.utils.compressions, "zst", raising=False)  # as fsspec has it without zstandard
    path = tmp_path / name
    path.write_bytes(b"\x28\xb5\x2f\xfd")
    message = refusal(training_texts, path)
    assert message.startswith(f"{path} is compressed by Zstandard")
    assert "`pip install zstandard`" in message


FARMERS = "".join(f"the old farmer {number} went home {number * number % 977} .\n" for number in range(3000))
# What a corpus of each kind holds, and its texts.
FOR_ZST = {
    "book.txt": (FARMERS, [FARMERS]),
    "book.csv": ("text,n\n" + "".join(f"{line},1\n" for line in FARMERS.splitlines()), FARMERS.splitlines()),
    "book.jsonl": ("".join(f'{{"text": "{line}"}}\n' for line in FARMERS.splitlines()), FARMERS.splitlines()),
}


@pytest.mark.parametrize("name", FOR_ZST)
def test_a_zst_file_is_read_whole_or_refused(name, tmp_path):
    """Also behind its first frame; one that is cut off, as by a download, is not read as far as it goes."""
    zstandard = pytest.importorskip("zstandard")
    content, texts = FOR_ZST[name]
    half = len(content) // 2
    frames = [zstandard.ZstdCompressor().compress(part.encode()) for part in (content[:half], content[half:])]
    path = tmp_path / f"{name}.zst"
    path.write_bytes(b"".join(frames))
    assert "".join(training_texts(path)).split() == "".join(texts).split()
    path.write_bytes(b"".join(frames)[:-9])
    with pytest.raises(ValueError, match="ended before the end-of-stream marker was reached. Correct it, or leave it"):
        list(training_texts(path))
    path.write_bytes(b"text\nno frame\n")
    assert f"{path} cannot be read" in refusal(training_texts, path)


@pytest.mark.parametrize("missing", ["no.txt", "*.txt", "", "a/b/c"])
def test_a_path_of_no_file_is_refused(missing, tmp_path):
    message = refusal(training_texts, f"{tmp_path}/{missing}")
    assert f"{tmp_path / missing} matches no file" in message
    assert "Pass the path of a file" in message


def test_a_text_in_place_of_its_path_is_shown_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # however deep the folder
    message = refusal(training_texts, "it was " * 1000)
    assert message.startswith("'it was it was ")
    assert ", and so on, matches no file" in message
    assert len(message) < 200


def test_a_data_set_that_the_hub_does_not_give_is_refused(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    message = refusal(training_texts, "anyone/no_such_tales")
    assert "anyone/no_such_tales is not a file or folder" in message
    assert "OfflineModeIsEnabled" in message


def test_a_file_has_no_configuration(tmp_path):
    (book,) = write_books(tmp_path, [10])
    assert "no configuration 'long'. Leave `name` out" in refusal(training_texts, book, name="long")


def test_a_folder_of_texts_and_rows_is_refused(tmp_path):
    (book,) = write_books(tmp_path, [10])
    write_rows(book.parent / "b.jsonl", ROWS)
    message = refusal(training_texts, book.parent)
    assert "more than one kind" in message
    assert "/*.txt." in message


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
        assert str(path) in str(error)
        assert len(str(error).split()) > 4
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
    assert texts_of(path, fix_text=True) == expected
    assert '"eyebrows"' in expected[0]
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
def test_pieces_of_nasty_texts_have_the_ids_of_the_whole(texts, piece, tiny_tokenizer):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "PIECE_CHARACTERS", piece)
        patch.setattr(corpus, "BATCH_PIECES", 2)
        texts = [text for text in texts if text]
        assert tokens_in_parts(tiny_tokenizer, *texts) == [ids_of(tiny_tokenizer, text) for text in texts]


@pytest.mark.parametrize("distance", [2, 900, 999, 1000, 1001])
@pytest.mark.parametrize("gap", [" ", "\n"])
@pytest.mark.parametrize("looks_around", [True, False])
def test_no_cut_parts_an_entity_from_an_angle_bracket_that_changes_it(
    distance, gap, looks_around, tiny_tokenizer, monkeypatch
):
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
    assert len(parts) > 3
    assert max(map(len, parts)) < 20_000
    assert "".join(parts) == text
    assert tokens_in_parts(tiny_tokenizer, text) == [ids_of(tiny_tokenizer, text)]


@pytest.mark.parametrize("sign", ["\u732b", "\u732b ", " ", "\u0410", "5 \n", "a\n"])
def test_a_text_without_words_is_not_held_whole(sign, monkeypatch):
    monkeypatch.setattr(documents, "PIECE_CHARACTERS", 1000)
    monkeypatch.setattr(documents, "MOST_CHARACTERS", 5000)
    text = sign * (40_000 // len(sign))
    parts = [part["text"] for part in parts_of(text)]
    assert "".join(parts) == text
    assert max(map(len, parts)) <= 5000 + 6000
    assert " " not in sign or all(part[0] == " " for part in parts[1:])  # between words if there are any


def test_a_link_that_loops_shows_a_file_once(tmp_path):
    folder = tmp_path / "books"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.txt").write_text("the old farmer")
    (folder / "two.txt").write_text("a girl")
    (folder / "sub" / "up").symlink_to(folder)
    for source in (folder, [folder, f"{folder}/*.txt"]):
        assert texts_of(source) == ["the old farmer", "a girl"]


def test_a_file_and_a_link_to_it_are_read_once(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    (folder / "a.txt").write_text("the old farmer")
    (folder / "b.txt").symlink_to(folder / "a.txt")
    (tmp_path / "c.txt").symlink_to(folder / "a.txt")
    for source in (folder, [tmp_path / "c.txt", folder / "a.txt"]):
        assert texts_of(source) == ["the old farmer"]


def test_a_link_to_another_folder_is_told(tmp_path, logged):
    logging.Logger.warning_once.cache_clear()
    for name in ("books", "others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.txt").write_text(name)
    (tmp_path / "books" / "link").symlink_to(tmp_path / "others")
    (tmp_path / "books" / "up").symlink_to(tmp_path / "books")
    assert texts_of(tmp_path / "books") == ["books"]
    told = f"{tmp_path}/books/link is a link to another folder, which is not read. Pass that folder as well."
    assert logged.messages == [told]
