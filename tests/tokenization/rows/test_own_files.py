"""Files of one's own as a task: their splits and columns, whose classes count, and what is refused."""

import datasets
import numpy as np
import pandas
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.files import content_of, write_rows
from support.own_rows import COLUMNS, ROWS, moods
from support.refusals import check_refused

from tokenization import Task, TraversalCollator, load_files
from tokenization.rows.columns import PLACE
from tokenization.rows.labels import logger


def test_classes_of_the_train_file_are_those_of_all_splits(tmp_path):
    splits = {"train": ROWS[::-1], "validation": ROWS, "test": [{"body": "a film"}]}
    files = {split: write_rows(tmp_path / f"{split}.own.jsonl", rows) for split, rows in splits.items()}
    task, rows = load_files(files, "classification", COLUMNS)
    assert task == Task("train", "classification", COLUMNS, label_names=("happy", "sad"))
    assert {split: rows[split].to_list() for split in rows} == {
        "train": [{"body": "a slow film", "mood": 1}, {"body": "a good film", "mood": 0}],
        "validation": [{"body": "a good film", "mood": 0}, {"body": "a slow film", "mood": 1}],
        "test": [{"body": "a film"}],
    }


def test_classes_of_a_model_name_those_of_a_file_without_training(tmp_path):
    files = {"test": write_rows(tmp_path / "new.jsonl", ROWS)}
    task, rows = load_files(files, "classification", COLUMNS, label_names=["sad", "so-so", "happy"])
    assert task.label_names == ("sad", "so-so", "happy")
    assert list(rows["test"]["mood"]) == [2, 0]
    check_refused(lambda: load_files(files, "classification", COLUMNS), "classes are not known", "`label_names`")


def test_labels_that_are_read_as_places_of_named_classes_are_told(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(logger, "warning_once", said.append)
    ids = write_rows(tmp_path / "ids.jsonl", [{**row, "mood": place} for place, row in enumerate(ROWS)])
    for path, names in ((ids, ("0", "1")), (ids, ("good", "bad"))):
        load_files({"test": path}, "classification", COLUMNS, label_names=names)
    assert said == [f"{ids}: the labels are numbers of classes; 0 means good, 1 bad."]


@pytest.mark.parametrize(
    ("rows", "options", "parts"),
    [
        (moods("0.5", "1"), {}, ["0.5", "pass `regression`"]),
        (moods("a", "", "b"), {}, ["row 1: ", "''", "1 of 3 rows", "`skip_bad_rows`"]),
        (moods("1.0", "", "0.0"), {}, ["row 1: ", "''", "1 of 3 rows", "one of 0, 1."]),  # as pandas writes them
        (moods("0", "-1", "1"), {}, ["row 1: ", "'-1'", "1 of 3 rows", "without a label", "give the classes names"]),
        (moods("-1", "-1"), {}, ["1 class (-1)", "without a label"]),
        (moods("a", "a"), {}, ["1 class (a)", "at least two"]),
        (moods(None, None), {}, ["Column 'mood'", "has no label. Add some, or name another column."]),
        (moods("a", "b"), {"num_labels": 3}, ["2 classes (a, b)", "`num_labels` is 3"]),
        (moods("0", "3"), {"num_labels": 3}, ["class 3", "0 to 2"]),
        (moods("a", "b"), {"label_names": ["a", "c"]}, ["row 1: ", "'b'", "one of a, c"]),
        ([{"body_": "1", "text": "a", "mood": "b"}], {"columns": {"text": "body", "label": "mood"}}, ["mean 'text'"]),
        (moods("a", "b"), {"columns": {"text": "text", "label": "mood"}}, ["no column 'text'", "'body', 'mood'"]),
        (moods("a", "b"), {"columns": {"text": "bode", "label": "mood"}}, ["'bode'", "(did you mean 'body'?)"]),
        (moods("a", "b"), {"columns": {"text": ["body", "mood"], "label": "mood"}}, ["'mood' twice", "its own"]),
        (moods("3,5", "1"), {"regression": True}, ["'3,5'", "A label must be a number such as 3 or 3.5"]),
        (
            moods("a", "b"),
            {"regression": True},
            ["2 of 2 rows", "Correct or remove these rows."],
        ),  # none would be left
        (moods("1", "x"), {"regression": True}, ["row 1: ", "'x'", "1 of 2 rows"]),
        (moods("1", "2"), {"regression": True, "num_labels": 3}, ["1 class (", "`num_labels` is 3"]),
        (moods("a", "b"), {"traversal": "ranking"}, ["'ranking'", "Choose one of classification"]),
        (moods("a", "b"), {"columns": {"body": "text", "mood": "label"}}, ["the role 'body'", "Write the role first"]),
    ],
)
def test_rows_and_settings_that_do_not_fit_are_refused(tmp_path, rows, options, parts):
    files = {"train": write_rows(tmp_path / "rows.csv", rows)}
    check_refused(lambda: load_files(files, **{"traversal": "classification", "columns": COLUMNS, **options}), *parts)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ("train.csv", "`files` is 'train.csv'."),
        (datasets.Dataset.from_list(ROWS), "`files` is Dataset."),
        (pandas.DataFrame(ROWS), "`files` is DataFrame."),
        (ROWS, "`files` is list of dict."),
        ({"train": ["a.csv"]}, "`files` has {'train': 'list of str'}."),
        ({"train": ROWS, "test": 5}, "`files` has {'test': 'int'}."),
        ({}, "`files` is {}."),
        ({"train": []}, "the split 'train' has no rows."),
    ],
)
def test_what_is_no_file_of_a_split_is_refused(files, told):
    check_refused(lambda: load_files(files, "classification", COLUMNS), told, "Give ")


KINDS_IN_MEMORY = {"list": list, "DataFrame": pandas.DataFrame, "Dataset": datasets.Dataset.from_list}


@pytest.mark.parametrize("make", KINDS_IN_MEMORY.values(), ids=KINDS_IN_MEMORY)
def test_rows_in_memory_are_read_as_those_of_a_file(make):
    task, rows = load_files({"train": make(ROWS), "test": make(ROWS[1:])}, "classification", COLUMNS)
    assert task.label_names == ("happy", "sad")
    assert rows["train"].to_list() == [{"body": "a good film", "mood": 0}, {"body": "a slow film", "mood": 1}]
    assert rows["test"].to_list() == [{"body": "a slow film", "mood": 1}]


def test_a_table_of_pandas_is_read_without_its_index_and_its_missing_labels():
    frame = pandas.DataFrame({"body": ["a", "b", "c"], "mood": [1, None, 0], "x": [1, "a", None]}, index=[7, 8, 9])
    rows = load_files({"train": frame}, "classification", COLUMNS, skip_bad_rows=True)[1]["train"]
    assert rows.to_list() == [{"body": "a", "mood": 1, PLACE: 0}, {"body": "c", "mood": 0, PLACE: 2}]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (pandas.NA, "column 'body' has the text 'a' in row 1, but the number 1 in row 2"),
        (pandas.NaT, "column 'body' has the text 'a' in row 1, but the number 1 in row 2"),
        (np.array([1, 2]), "column 'body' has the ndarray array([1, 2]) in row 0, but the text 'a' in row 1"),
    ],
    ids=["NA", "NaT", "array"],
)
def test_a_mixed_column_of_a_table_of_pandas_is_refused_whatever_else_it_has(other, told):
    frame = pandas.DataFrame({"body": [other, "a", 1], "mood": [0, 1, 0]})
    check_refused(lambda: load_files({"train": frame}, "classification", COLUMNS), told, "Write all cells as one kind")


def test_columns_of_one_name_in_a_table_of_pandas_are_refused():
    frame = pandas.DataFrame([["a", "b", 1]], columns=["body", "body", "mood"])
    told = "the split 'train' has two columns 'body'. Rename one."
    check_refused(lambda: load_files({"train": frame}, "classification", COLUMNS), told)


def test_rows_in_memory_may_lack_columns():
    rows = [{"body": "a", "mood": "x"}, {"body": "b", "mood": "y", "id": 5}, {"body": "c", "mood": "x"}]
    assert load_files({"train": rows}, "classification", COLUMNS)[1]["train"]["id"][:] == [None, 5, None]


def test_a_file_with_the_column_of_places_is_refused(tmp_path):
    path = write_rows(tmp_path / "rows.csv", [{**row, PLACE: "b"} for row in ROWS])
    check_refused(lambda: load_files({"train": path}, "classification", COLUMNS), f"{path} has a column {PLACE!r}")


@pytest.mark.parametrize("names", [None, 0, [], [None], {"body": 1}])
def test_what_names_no_column_is_refused(names):
    told = f"`columns` has {names!r} for the role text. Name its column, or a list"
    check_refused(lambda: load_files({"train": ROWS}, "classification", {**COLUMNS, "text": names}), told)


@pytest.mark.parametrize(("names", "told"), [("ab", "is 'ab'. Pass a list"), (["a", "b", "a"], "has 'a' twice. Give")])
def test_names_of_classes_are_a_list_of_different_texts(names, told):
    check_refused(lambda: load_files({"train": moods("a", "b")}, "classification", COLUMNS, label_names=names), told)


def test_names_of_classes_that_are_numbers_become_texts():
    task, splits = load_files({"train": moods(1, 2, 1)}, "classification", COLUMNS, label_names=[1, 2])
    assert task.label_names == ("1", "2")
    assert splits["train"]["mood"][:] == [0, 1, 0]


def test_a_column_of_a_class_with_a_comma_is_refused():
    """Its name would be two where a model's folder joins the names."""
    rows = [{"body": "a", "x,y": 1, "z": 0}]
    columns = {"text": "body", "label": ["x,y", "z"]}
    check_refused(lambda: load_files({"train": rows}, "classification", columns), "'x,y'", "comma", "Rename it.")


def test_numbers_that_one_float_would_stand_for_stay_different_classes(tmp_path):
    names = ("123456789012345677.0", "123456789012345678.0")
    path = write_rows(tmp_path / "rows.csv", moods(*names))
    assert load_files({"train": path}, "classification", COLUMNS)[0].label_names == names


def test_texts_in_the_column_of_places_are_refused():
    rows = [{**row, PLACE: "b"} for row in ROWS]
    check_refused(lambda: load_files({"train": rows}, "classification", COLUMNS), f"has a column {PLACE!r}", "Rename")


def test_an_unknown_split_is_refused_with_the_nearest():
    check_refused(lambda: load_files({"trian": "a.csv"}, "classification", COLUMNS), "'trian' (did you mean 'train'?)")


NAMES = ("good", "bad", "so-so", "none", "NA", "007")
SPOILED = ("", " ", "\t", None, 1.5, float("nan"), 1e300, -1, 10**30, True, "two", "0x1", "\u0661", [1], {"a": 1})


VALUES = {"names": st.sampled_from(NAMES), "ids": st.integers(0, 3), "numbers": st.integers(-99, 99).map(float)}


@st.composite
def own_files(draw):
    """Rows, their labels' kind, the file's ending, and its bytes, perhaps with a fault."""
    kind, ending = draw(st.sampled_from([*VALUES])), draw(st.sampled_from([".csv", ".jsonl"]))
    labels = draw(st.lists(VALUES[kind], min_size=2, max_size=8))
    assume(kind == "numbers" or len(set(labels)) > 1)
    assume(kind != "ids" or set(labels) == set(range(max(labels) + 1)))
    rows = [{"body": f"text {place}", "label": label} for place, label in enumerate(labels)]
    fault = draw(st.sampled_from(["none", "label", "cut", "byte"]))
    given = [dict(row) for row in rows]
    if fault == "label":
        given[draw(st.integers(0, len(rows) - 1))]["label"] = draw(st.sampled_from(SPOILED))
    content = content_of(given, ending)
    place = draw(st.integers(0, len(content) - 1))
    if fault == "cut":
        content = content[:place]
    if fault == "byte":
        content = content[:place] + bytes([draw(st.integers(0, 255))]) + content[place + 1 :]
    return rows, given, kind, ending, content


@given(own_files())
def test_any_file_is_read_as_it_stands_or_refused_with_a_sentence(tmp_path_factory, tiny_tokenizer, case):
    rows, given, kind, ending, content = case
    path = tmp_path_factory.mktemp("any") / f"own{ending}"
    path.write_bytes(content)
    options = {"regression": kind == "numbers"}
    try:
        task, splits = load_files({"train": path}, "classification", {"text": "body"}, **options)
        hidden = None if task.regression else -1
        collator = TraversalCollator(tiny_tokenizer, "classification", task.columns, hidden_label=hidden, **options)
        collator.check(splits["train"])
    except ValueError as error:
        assert content != content_of(rows, ending), error
        assert len(str(error).split()) > 5, error
        return
    labels = splits["train"]["label"][:]
    blanks = [row["label"] in ("", " ", "\t", None) for row in given]
    assert content != content_of(given, ending) or not any(blanks)
    if content == content_of(rows, ending):
        assert splits["train"]["body"][:] == [row["body"] for row in rows]
        found = [task.label_names[label] for label in labels] if kind == "names" else labels
        assert found == [row["label"] for row in rows]
