"""Files of one's own: which classes their labels make, what the task knows of them, and what is refused."""

import gzip
import json
from pathlib import Path

import datasets
import pytest

from tokenization import Task, load_files
from tokenization.own_files import class_names, encode_labels

ROWS = [{"body": "a good film", "mood": "happy"}, {"body": "a slow film", "mood": "sad"}]
COLUMNS = {"text": "body", "label": "mood"}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def write(name, rows):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(tmp_path / name)

    return write


def test_classes_of_the_train_file_are_those_of_all_splits(write):
    unlabelled = [{"body": "a film"}]
    splits = {"train": ROWS[::-1], "validation": ROWS, "test": unlabelled}
    files = {split: write(f"{split}.own.jsonl", rows) for split, rows in splits.items()}
    task, rows = load_files(files, "classification", COLUMNS)
    assert task == Task("train", "classification", COLUMNS, label_names=("happy", "sad"))
    assert {split: rows[split].to_list() for split in rows} == {
        "train": [{"body": "a slow film", "mood": 1}, {"body": "a good film", "mood": 0}],
        "validation": [{"body": "a good film", "mood": 0}, {"body": "a slow film", "mood": 1}],
        "test": unlabelled,
    }


def test_numbers_and_choices_stay_as_they_are(write):
    pairs = write("pairs.jsonl", [{"a": "x", "b": "y", "label": 0.5}])
    task, rows = load_files({"train": pairs}, "similarity", {"text_a": "a", "text_b": "b"}, regression=True)
    assert (task.regression, task.metrics, task.label_names) == (True, ("pearson", "spearmanr"), ())
    assert task.columns == {"label": "label", "text_a": "a", "text_b": "b"} and rows["train"]["label"][0] == 0.5
    stories = write("stories.jsonl", [{"story": "x", "ends": ["y", "z"], "label": 1}])
    task, rows = load_files({"train": stories}, "multiple_choice", {"context": "story", "choices": "ends"})
    assert task.label_names == () and rows["train"]["label"][0] == 1


def test_classes_of_a_model_name_those_of_a_file_without_training(write):
    files = {"test": write("new.jsonl", ROWS)}
    task, rows = load_files(files, "classification", COLUMNS, label_names=["sad", "so-so", "happy"])
    assert task.label_names == ("sad", "so-so", "happy") and list(rows["test"]["mood"]) == [2, 0]
    with pytest.raises(ValueError) as error:
        load_files(files, "classification", COLUMNS)
    assert str(error.value) == (
        "The classes are unknown without the labels of a train file. Pass one, or `label_names`, such as those of the "
        "model's `config.id2label`."
    )


def test_integers_without_0_are_names_of_classes():
    assert class_names([5, 10, 1], None, "Column 'stars'") == ("1", "5", "10")
    assert class_names([2, 0, 1], None, "Column 'stars'") == ("0", "1", "2")
    rows = datasets.Dataset.from_dict({"text": ["a", "b", "c", "d"], "stars": [10, 1, 5, None]})
    task = Task("own", "classification", {"text": "text", "label": "stars"}, ("1", "5", "10"))
    assert list(encode_labels(rows, task, "file")["stars"]) == [2, 0, 1, None]


@pytest.mark.parametrize("regression", [False, True])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_blank_label_is_an_error_that_names_its_row(write, tmp_path, split, regression):
    path = tmp_path / "blank.csv"
    path.write_text("body,label\na film,1\nb film,0\nc film,\nd film,1\n", encoding="utf-8")
    files = {"train": write("whole.jsonl", [{"body": "x", "label": 0}, {"body": "y", "label": 1}]), split: str(path)}
    with pytest.raises(ValueError) as error:
        load_files(files, "classification", {"text": "body"}, regression=regression)
    assert str(error.value) == (
        f"Row 2 of {path} (the first is 0) has no label: its column 'label' holds ''. Every row needs one for "
        "training and evaluation; 1 of 4 have none. Label or remove them."
    )
    task, rows = load_files(
        {"test": path}, "classification", {"text": "body"}, regression=regression, label_names=["0", "1"]
    )
    assert rows["test"]["label"][:] == [1, 0, None, 1]


@pytest.fixture
def write_csv(tmp_path, write):
    def write_csv(*lines, name="rows.csv"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(tmp_path / name)

    return write_csv


@pytest.mark.parametrize("texts", [["007", "42"], ["1.50", "2e5"], ["True", "False"], ["NA", "null", "None", "nan"]])
def test_texts_of_a_csv_file_stay_as_they_are_written(write_csv, texts):
    path = write_csv("body,label", *(f"{text},{place % 2}" for place, text in enumerate(texts)))
    rows = load_files({"train": path}, "classification", {"text": "body"})[1]["train"]
    assert rows["body"][:] == texts and rows["label"][:] == [0, 1, 0, 1][: len(texts)]


def test_choices_of_a_csv_file_may_be_numbers(write_csv):
    path = write_csv("q,a,b,label", "two and two,4,True,0", "one and one,3,False,1")
    columns = {"context": "q", "choices": ["a", "b"]}
    rows = load_files({"train": path}, "multiple_choice", columns)[1]["train"]
    assert [*zip(rows["a"][:], rows["b"][:], rows["label"][:], strict=True)] == [("4", "True", 0), ("3", "False", 1)]


@pytest.mark.parametrize(
    ("labels", "names", "ids"),
    [
        (["2", "0", "1"], ("0", "1", "2"), [2, 0, 1]),
        (["5", "10", "1"], ("1", "5", "10"), [1, 2, 0]),  # sorted as numbers
        (["-1", " 1", "2"], ("-1", "1", "2"), [0, 1, 2]),
        (["007", "01", "1"], ("007", "01", "1"), [0, 1, 2]),  # texts: as numbers, two of them would be one
        (["1", "x", "10"], ("1", "10", "x"), [0, 2, 1]),
        (["1", str(10**30), "2"], ("1", str(10**30), "2"), [0, 1, 2]),
        (["True", "False", "True"], ("False", "True"), [1, 0, 1]),
    ],
)
def test_classes_of_a_csv_file(write_csv, labels, names, ids):
    path = write_csv("body,label", *(f"a film,{label}" for label in labels))
    task, rows = load_files({"train": path}, "classification", {"text": "body"})
    assert task.label_names == names and rows["train"]["label"][:] == ids


def test_a_csv_file_has_one_type_per_column_however_long_it_is(write_csv):
    """pandas guesses the types of every 10,000 rows anew."""
    many = [f"a film,{place % 5}" for place in range(10_001)]
    path = write_csv("body,label", *many, "a film,2.5", name="scores.csv")
    columns = {"text_a": "body", "text_b": "body"}
    rows = load_files({"train": path}, "similarity", columns, regression=True)[1]["train"]
    assert rows["label"][-2:] == [0.0, 2.5]
    path = write_csv("body,label", *many, "a film,", name="tests.csv")
    rows = load_files({"test": path}, "classification", {"text": "body"}, label_names=list("01234"))[1]["test"]
    assert rows["label"][-2:] == [0, None]


def test_a_class_label_column_names_the_classes(write, tmp_path):
    def write_labels(name, names, labels):
        features = datasets.Features({"body": datasets.Value("string"), "label": datasets.ClassLabel(names=names)})
        rows = {"body": ["a film"] * len(labels), "label": labels}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / name)
        return tmp_path / name

    files = {
        "train": write_labels("train.parquet", ["sad", "glad", "odd"], [1, 0, 1]),
        "validation": write_labels("validation.parquet", ["glad", "sad"], [0, 1, 0]),  # in another order
        "test": write_labels("test.parquet", ["sad", "glad", "odd"], [-1, 2, 0]),
    }
    task, rows = load_files(files, "classification", {"text": "body"})
    assert task.label_names == ("sad", "glad", "odd")
    assert {split: rows[split]["label"][:] for split in rows} == {
        **{"train": [1, 0, 1], "validation": [1, 0, 1]},
        "test": [None, 2, 0],
    }


def test_numbers_of_a_csv_file_are_no_classes(write_csv):
    path = write_csv("body,label", "a film,0.5", "b film,1")
    with pytest.raises(ValueError) as error:
        load_files({"train": path}, "classification", {"text": "body"})
    assert str(error.value) == (
        f"Row 0 of {path} (the first is 0): the label in column 'label' is 0.5 of type float; a class is needed: a "
        "text, or an integer from 0. Correct or remove the row, or pass `regression` to predict numbers."
    )


def test_refusals(write):
    def message(files, *arguments, **options):
        with pytest.raises(ValueError) as error:
            load_files(files, *arguments, **options)
        return str(error.value)

    train = {"train": write("train.jsonl", ROWS)}
    assert message({"train": "no.jsonl"}, "classification", COLUMNS) == (
        "The train file no.jsonl does not exist. Pass the path of a file."
    )
    folder = Path(train["train"]).parent
    assert message({"train": folder}, "classification", COLUMNS) == (
        f"The train file {folder} is a folder. Pass the path of a file."
    )
    assert message({"train": __file__}, "classification", COLUMNS) == (
        f"The train file {__file__} has an unknown file type. Pass a file that ends in .jsonl, .jsonl.gz, .csv, "
        ".parquet."
    )
    assert message(train, "ranking", COLUMNS) == (
        "Task 'train' has the traversal 'ranking'. Choose one of classification, entailment, similarity, "
        "multiple_choice."
    )
    assert message(train, "multiple_choice", COLUMNS, regression=True) == (
        "`regression` does not apply to multiple_choice, whose label is the index of the right choice. Leave it out."
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "{path} has no rows. Give a file with at least one, or leave it out."),
        ("b.csv", b"", "{path} has no rows. Give a file with at least one, or leave it out."),
        ("c.csv", b"body,label\n", "{path} has no rows. Give a file with at least one, or leave it out."),
        (
            "d.jsonl",
            b'{"body": "a", "label": "x"}\n{"body": "b", "label": \n',
            "{path}, line 2: this is not JSON (Expecting value at character 24). A line is one JSON object. Correct "
            "or remove it.",
        ),
        (
            "e.jsonl",
            b'{"body": "a", "label": "x"}\n{"body": "b \\ud800", "label": "y"}\n',
            "{path}, line 2: the unpaired surrogate '\\ud800' is not a character. A line is one JSON object. Correct "
            "or remove it.",
        ),
        *(
            (
                name,
                content,
                "{path}, line 2: byte 0xe9 is not UTF-8. Save the file as UTF-8, for example with `iconv -f LATIN1 -t "
                "UTF-8` if that is what it is.",
            )
            for name, content in (
                ("f.csv", b"body,label\ncaf\xe9,x\n"),
                ("g.jsonl", b'{"body": "a", "label": "x"}\n{"body": "caf\xe9", "label": "y"}\n'),
            )
        ),
        (
            "h.csv",
            b'body,label\na,x\n"b,y\n',
            "{path} cannot be read as csv: Error tokenizing data. C error: EOF inside string starting at row 2. "
            "Correct the file.",
        ),
        (
            "h.csv",
            b"\x00\x00",
            "{path} cannot be read as csv: a name in its first line holds a zero byte. Correct the file.",
        ),
        (
            "i.jsonl.gz",
            # An impossible block of data behind a right header.
            bytes.fromhex("1f8b080000000000020354564aca4fa954b252504a54d251"),
            "{path} is not a valid gzip file (Error -3 while decompressing data: invalid code lengths set). Compress "
            "it again.",
        ),
        (
            "i.jsonl.gz",
            b"body",
            "{path} is not a valid gzip file (Not a gzipped file (b'bo')). Compress it again.",
        ),
        (
            "j.parquet",
            b"xx",
            "{path} cannot be read as parquet: Parquet file size is 2 bytes, smaller than the minimum file footer (8 "
            "bytes). Correct the file.",
        ),
        (
            "k[1].jsonl.gz",
            gzip.compress(b'{"body": "a", "label": "x"}\n', mtime=0),
            '{path} has "[" or "]" in its name, so `datasets` cannot read it as a compressed file. Rename it.',
        ),
        (
            "k::l.jsonl",
            b'{"body": "a", "label": "x"}\n',
            '{path} has "::" in its name, which `datasets` reads as a file within another. Rename it.',
        ),
    ],
)
def test_files_that_cannot_be_read(tmp_path, monkeypatch, name, content, message):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError) as error:
        load_files({"train": path}, "classification", {"text": "body"})
    assert str(error.value) == message.format(path=path)


def test_a_file_whose_name_looks_like_a_pattern(write):
    files = {"train": write("rows[1]*.jsonl", [{"body": "a", "label": "x"}, {"body": "b", "label": "y"}])}
    assert len(load_files(files, "classification", {"text": "body"})[1]["train"]) == 2
