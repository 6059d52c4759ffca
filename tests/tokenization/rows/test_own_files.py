"""Rows of the paper's tasks and of one's own files: what is read, which labels come out, and what is refused."""

import gzip
import json
import logging
import re
from unittest.mock import Mock

import datasets
import pandas
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split
from support.files import content_of, write_rows
from support.refusals import refusal

import tokenization
from tokenization import TASKS, Task, TraversalCollator, load_files, load_task
from tokenization.rows.columns import PLACE
from tokenization.rows.files import read_file
from tokenization.rows.labels import are_all_labelled, logger
from tokenization.text import documents


def check_refused(action, *parts):
    """Whether an action ends with a message that has all these parts: what was given, and what to do."""
    told = refusal(action)
    assert [part for part in map(str, parts) if part not in told] == [], told


SST2_ROWS = [{"idx": 7, "sentence": "a warm, funny film", "label": 1}, {"idx": 8, "sentence": "None", "label": 0}]
PAIR = {"sentence1": "A cat sits.", "sentence2": "A cat sat."}


def films(*labels):
    return [{"sentence": "a film", "label": label} for label in labels]


def test_texts_before_a_number_stay_texts(tmp_path):
    """A column of both would be read as JSON's source behind the first 10 MB."""
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a" * 10_000}] * 1_100 + [{"text": 5}])
    for action in (lambda: read_file(path), lambda: [*documents._read_rows(str(path), "json")]):
        check_refused(action, path, "Column(/text) changed from string to number in row")


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".csv", ".parquet"])
@pytest.mark.parametrize("folder", ["", "sst2"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path, ending, folder):
    write_rows(tmp_path / folder / f"train{ending}", SST2_ROWS)
    write_rows(tmp_path / folder / f"validation{ending}", SST2_ROWS[:1])
    if folder:  # which comes before its parent
        write_rows(tmp_path / "train.jsonl", films(0))
    splits = load_task("sst2", tmp_path)
    assert list(splits) == ["train", "validation"]
    assert splits["train"].to_dict() == {"sentence": ["a warm, funny film", "None"], "label": [1, 0]}
    assert splits["train"].column_names == ["sentence", "label"]
    assert splits["validation"].to_dict() == {"sentence": ["a warm, funny film"], "label": [1]}
    assert splits["train"].features["label"] == datasets.Value("int64")


def test_mnli_has_two_validation_splits(tmp_path):
    names = ("train", "validation_matched", "validation_mismatched", "test_matched")
    for number, split in enumerate(names):
        write_rows(tmp_path / f"{split}.jsonl", [{"premise": "It rains.", "hypothesis": "Wet.", "label": number % 3}])
    labels = {split: rows["label"][:] for split, rows in load_task("mnli", str(tmp_path)).items()}
    assert labels == dict(zip(names, ([0], [1], [2], [0]), strict=True))


def test_a_task_of_ones_own(tmp_path):
    task = Task("moods", "classification", {"text": "review", "label": "mood"}, label_names=("sad", "glad"))
    write_rows(tmp_path / "train.csv", [{"mood": "glad", "review": "lovely"}, {"mood": "sad", "review": "dull"}])
    assert load_task(task, tmp_path)["train"].to_dict() == {"review": ["lovely", "dull"], "mood": [1, 0]}


def test_regression_labels_are_numbers(tmp_path):
    write_rows(tmp_path / "train.csv", [{**PAIR, "label": label} for label in (4, 2, 0)])
    train = load_task("stsb", tmp_path)["train"]
    assert train["label"][:] == [4.0, 2.0, 0.0] and train.features["label"] == datasets.Value("float32")


def test_snli_loses_its_rows_without_an_agreed_label_outside_the_test_split(tmp_path):
    rows = [{"premise": "A man.", "hypothesis": f"Claim {label}.", "label": label} for label in (2, -1, 0, -1, 1)]
    for split in ("train", "test"):
        write_rows(tmp_path / f"{split}.jsonl", rows)
    splits = load_task("snli", tmp_path)
    assert splits["train"]["hypothesis"][:] == ["Claim 2.", "Claim 0.", "Claim 1."]
    assert splits["train"]["label"][:] == [2, 0, 1]
    assert splits["test"]["label"][:] == [2, -1, 0, -1, 1]
    write_rows(tmp_path / "sst2" / "test.jsonl", films(-1))
    assert load_task("sst2", tmp_path)["test"]["label"][:] == [-1]
    assert are_all_labelled(splits["train"], "label") and not are_all_labelled(splits["test"], "label")


def test_scitail_writes_its_labels_as_text(tmp_path):
    rows = [{"premise": "Ice melts.", "hypothesis": "It is warm.", "label": name} for name in ("neutral", "entails")]
    write_rows(tmp_path / "train.jsonl", rows)
    assert load_task("scitail", tmp_path)["train"]["label"][:] == [1, 0]
    path = write_rows(tmp_path / "train.jsonl", [*rows, {**rows[0], "label": "contradicts"}])
    parts = f"1 of 3 rows of {path}", "row 2: column 'label' has 'contradicts'", "one of entails, neutral"
    check_refused(lambda: load_task("scitail", tmp_path), *parts)


def test_a_test_file_may_lack_some_labels_or_all(tmp_path):
    def test_labels(task, rows):
        write_rows(tmp_path / task / "test.csv", rows)
        return load_task(task, tmp_path)["test"]["label"][:]

    assert test_labels("sst2", films("1", "", "0")) == [1, None, 0]
    assert test_labels("stsb", [{**PAIR, "label": label} for label in ("2.5", "")]) == [2.5, None]
    assert test_labels("story_cloze", [{**RELEASED_STORY, "AnswerRightEnding": x} for x in ("2", "")]) == [1, None]
    assert test_labels("story_cloze", [{**CANONICAL_STORY, "label": x} for x in ("1", "", "0")]) == [1, None, 0]
    story = [{**RELEASED_STORY, "AnswerRightEnding": 0}]
    check_refused(lambda: test_labels("story_cloze", story), "row 0: ", "has '0'", "one of 1, 2")
    write_rows(tmp_path / "sst2" / "test.csv", [{"sentence": "a long film"}])
    assert load_task("sst2", tmp_path)["test"].to_dict() == {"sentence": ["a long film"]}
    write_rows(tmp_path / "sst2" / "validation.csv", [{"sentence": "a long film"}])
    check_refused(lambda: load_task("sst2", tmp_path), "validation.csv has no column label", "Rename them in the file")


@pytest.mark.parametrize(
    ("task", "name", "rows", "parts"),
    [
        ("sst2", "train.csv", films(1, 0, "", 1, " "), ["row 2: column 'label' has ''; row 4", "2 of 5", "remove"]),
        ("sst2", "validation.csv", films("1", ""), ["row 1: ", "1 of 2"]),
        ("sst2", "train.jsonl", films(1.0, 0.5), ["row 1: ", "0.5", "a whole number"]),
        ("sst2", "train.jsonl", films(1.0, 1e300), ["row 1: ", "1e+300", "a whole number"]),
        ("stsb", "train.csv", [{**PAIR, "label": x} for x in ("2.5", "high")], ["row 1: ", "'high'", "a number"]),
        ("cola", "train.jsonl", films([1]), ["'label'", "[1]", "Correct or remove"]),
        ("sst2", "train.jsonl", [{"text": "x", "label": 1}], ["no column sentence", "text, label", "Rename"]),
        ("race", "train.jsonl", [{"article": "A", "question": "Q", "options": ["a"]}], ["no column label or answer"]),
        ("race", "middle_train.jsonl", [{"article": "A."}], ["No file of task 'race'", "middle_train, high_train"]),
        ("sst2", "other.jsonl", films(1), ["No file of task 'sst2'", "train, validation, test", ".parquet"]),
    ],
)
def test_rows_that_are_refused(tmp_path, task, name, rows, parts):
    write_rows(tmp_path / name, rows)
    check_refused(lambda: load_task(task, tmp_path), *parts)


def race_row(number, **label):
    return {"article": f"Article {number}.", "question": "Who?", "options": ["w", "x", "y", "z"], **label}


def test_race_joins_middle_and_high(tmp_path):
    write_rows(tmp_path / "race" / "middle_train.jsonl.gz", [race_row(1, label=3)])
    write_rows(tmp_path / "race" / "high_train.jsonl.gz", [race_row(2, label=0)])
    write_rows(tmp_path / "race" / "middle_validation.jsonl", [race_row(3, label=1)])
    write_rows(tmp_path / "race" / "high_validation.jsonl", [race_row(4, label=2)])
    splits = load_task("race", tmp_path)
    assert splits["train"].to_list() == [race_row(1, label=3), race_row(2, label=0)]
    assert splits["validation"]["label"][:] == [1, 2]
    assert load_task("race-middle", tmp_path)["train"]["article"][:] == ["Article 1."]
    assert load_task("race-high", tmp_path / "race")["validation"]["article"][:] == ["Article 4."]


def test_race_answers_are_letters_on_the_hub(tmp_path, tiny_tokenizer):
    write_rows(tmp_path / "train.parquet", [race_row(number, answer=letter) for number, letter in enumerate("CADB")])
    train = load_task("race", tmp_path)["train"]
    assert train["label"][:] == [2, 0, 3, 1]
    assert train.column_names == ["article", "question", "options", "label"]
    write_rows(tmp_path / "csv" / "train.csv", [race_row(1, label=3)])  # which cannot hold lists
    collator = TraversalCollator(tiny_tokenizer, "multiple_choice", TASKS["race"].columns)
    check_refused(lambda: collator.check(load_task("race", tmp_path / "csv")["train"]), "needs a list of texts")


SENTENCES = [f"Sentence {number}." for number in range(1, 5)]
CANONICAL_STORY = {"context": " ".join(SENTENCES), "ending1": "He slept.", "ending2": "He flew."}
HUB_STORY = {f"input_sentence_{number}": text for number, text in enumerate(SENTENCES, start=1)}
HUB_STORY |= {"sentence_quiz1": "He slept.", "sentence_quiz2": "He flew."}
RELEASED_STORY = {f"InputSentence{number}": text for number, text in enumerate(SENTENCES, start=1)}
RELEASED_STORY |= {"RandomFifthSentenceQuiz1": "He slept.", "RandomFifthSentenceQuiz2": "He flew."}


@pytest.mark.parametrize(
    ("story", "answer", "first"),
    [(HUB_STORY, "answer_right_ending", 1), (RELEASED_STORY, "AnswerRightEnding", 1), (CANONICAL_STORY, "label", 0)],
)
def test_story_cloze_has_one_form_whatever_its_columns_were(tmp_path, story, answer, first):
    write_rows(tmp_path / "test.csv", [{**story, answer: first}, {**story, answer: first + 1}])
    assert load_task("story_cloze", tmp_path)["test"].to_list() == [{**CANONICAL_STORY, "label": x} for x in (0, 1)]


def test_story_cloze_is_split_as_in_the_released_code(tmp_path):
    stories = [{**CANONICAL_STORY, "ending1": f"Ending {number}.", "label": number % 2} for number in range(1871)]
    write_rows(tmp_path / "validation.jsonl", stories)
    splits = load_task("story_cloze", tmp_path)
    endings = [story["ending1"] for story in stories]
    train, validation = train_test_split(endings, test_size=374, random_state=3535999445)
    assert splits["train"]["ending1"][:] == train and splits["validation"]["ending1"][:] == validation
    write_rows(tmp_path / "validation.jsonl", stories[:374])
    write_rows(tmp_path / "train.jsonl", stories[:3])
    assert load_task("story_cloze", tmp_path).num_rows == {"train": 3, "validation": 374}


def test_the_hub(monkeypatch):
    rows = datasets.Dataset.from_dict({"question": ["Who?"], "sentence": ["He did."], "label": [1], "idx": [0]})
    rows = rows.cast_column("label", datasets.ClassLabel(names=["entailment", "not_entailment"]))

    def answer(*asked):
        if asked != ("nyu-mll/glue", "qnli"):
            raise ConnectionError(f"Couldn't reach {asked[0]!r} on the Hub")
        return datasets.DatasetDict({"test": rows, "train": rows, "extra": rows})

    monkeypatch.setattr("tokenization.rows.task_files.load_dataset", answer)
    splits = load_task("qnli")
    assert list(splits) == ["train", "test"]
    assert splits["train"].to_dict() == {"question": ["Who?"], "sentence": ["He did."], "label": [1]}
    assert splits["train"].features["label"] == datasets.Value("int64")
    with pytest.raises(OSError, match="Couldn't reach 'stanfordnlp/snli'.* pass data_dir"):
        load_task("snli")
    mine = Task("mine", "classification", {"text": "text", "label": "label"})
    check_refused(lambda: load_task(mine), "'mine' names no data set", "Pass data_dir")


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "row_counts", "labels"),
    [
        ("sst2", {"train": 67349, "validation": 872, "test": 1821}, {0, 1}),
        ("stsb", {"train": 5749, "validation": 1500}, None),
        ("cola", {"train": 8551, "validation": 1043, "test": 1063}, {0, 1}),
        ("mrpc", {"train": 3668, "validation": 408}, {0, 1}),
        ("rte", {"train": 2490, "validation": 277, "test": 3000}, {0, 1}),
        ("race-middle", {"train": 25421, "validation": 1436}, {0, 1, 2, 3}),
        ("race-high", {"train": 62445, "validation": 3451}, {0, 1, 2, 3}),
        ("race", {"train": 87866, "validation": 4887}, {0, 1, 2, 3}),
        ("story_cloze", {"train": 1497, "validation": 374, "test": 1871}, {0, 1}),
    ],
)
def test_real_rows(real_data_dir, name, row_counts, labels):
    splits = load_task(name, real_data_dir)
    assert {split: len(rows) for split, rows in splits.items()} == row_counts
    assert labels is None or set(splits["train"]["label"]) == set(splits["validation"]["label"]) == labels
    assert splits["train"].column_names == TASKS[name].column_names


ROWS = [{"body": "a good film", "mood": "happy"}, {"body": "a slow film", "mood": "sad"}]
COLUMNS = {"text": "body", "label": "mood"}


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


def test_numbers_and_choices_stay_as_they_are(tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"a": "x", "b": "y", "label": 0.5}])
    task, rows = load_files({"train": pairs}, "similarity", {"text_a": "a", "text_b": "b"}, regression=True)
    assert (task.regression, task.metrics, task.label_names) == (True, ("pearson", "spearmanr"), ())
    assert task.columns == {"label": "label", "text_a": "a", "text_b": "b"} and rows["train"]["label"][:] == [0.5]
    stories = write_rows(tmp_path / "stories.jsonl", [{"story": "x", "ends": ["y", "z"], "label": 1}])
    task, rows = load_files({"train": stories}, "multiple_choice", {"context": "story", "choices": "ends"})
    assert task.label_names == () and rows["train"]["label"][:] == [1]
    sums = [{"q": "two and two", "a": "4", "b": "True", "label": 0}, {"q": "one", "a": "3", "b": "False", "label": 1}]
    path = write_rows(tmp_path / "sums.csv", sums)
    rows = load_files({"train": path}, "multiple_choice", {"context": "q", "choices": ["a", "b"]})[1]["train"]
    assert rows.to_list() == sums


def test_classes_of_a_model_name_those_of_a_file_without_training(tmp_path, monkeypatch):
    files = {"test": write_rows(tmp_path / "new.jsonl", ROWS)}
    task, rows = load_files(files, "classification", COLUMNS, label_names=["sad", "so-so", "happy"])
    assert task.label_names == ("sad", "so-so", "happy") and list(rows["test"]["mood"]) == [2, 0]
    check_refused(lambda: load_files(files, "classification", COLUMNS), "classes are unknown", "`label_names`")
    said = []
    monkeypatch.setattr(logger, "warning_once", said.append)
    ids = write_rows(tmp_path / "ids.jsonl", [{**row, "mood": place} for place, row in enumerate(ROWS)])
    for path, names in ((ids, "01"), (ids, ("good", "bad"))):
        load_files({"test": path}, "classification", COLUMNS, label_names=names)
    assert said == [f"{ids}: labels are read as places of classes: 0 is 'good', and so on."]


@pytest.mark.parametrize("texts", [["007", "42"], ["1.50", "2e5"], ["True", "False"], ["NA", "null", "None", "nan"]])
def test_texts_of_a_csv_file_stay_as_they_are_content_of(tmp_path, texts):
    path = write_rows(tmp_path / "rows.csv", [{"body": text, "label": place % 2} for place, text in enumerate(texts)])
    rows = load_files({"train": path}, "classification", {"text": "body"})[1]["train"]
    assert rows["body"][:] == texts and rows["label"][:] == [0, 1, 0, 1][: len(texts)]


@pytest.mark.parametrize(
    ("labels", "names", "ids"),
    [
        (["2", "0", "1"], ("0", "1", "2"), [2, 0, 1]),
        (["5", "10", "1"], ("1", "5", "10"), [1, 2, 0]),  # sorted as numbers
        (["-1", " 1", "2"], ("-1", "1", "2"), [0, 1, 2]),
        (["2.0", "0.0", "1.0"], ("0", "1", "2"), [2, 0, 1]),
        (["007", "01", "1"], ("007", "01", "1"), [0, 1, 2]),  # texts: as numbers, two of them would be one
        (["1", "x", "10"], ("1", "10", "x"), [0, 2, 1]),
        (["1", str(10**30), "2"], ("1", str(10**30), "2"), [0, 1, 2]),
        (["True", "False", "True"], ("False", "True"), [1, 0, 1]),
    ],
)
def test_classes_of_a_csv_file(tmp_path, labels, names, ids):
    path = write_rows(tmp_path / "rows.csv", [{"body": "a film", "label": label} for label in labels])
    task, rows = load_files({"train": path}, "classification", {"text": "body"})
    assert task.label_names == names and rows["train"]["label"][:] == ids
    rows = [{"body": "a film", "label": label} for label in (*labels, "", labels[0])]
    files = {"train": path, "test": write_rows(tmp_path / "test.csv", rows)}
    assert load_files(files, "classification", {"text": "body"})[1]["test"]["label"][:] == [*ids, None, ids[0]]


def test_a_class_whose_name_is_a_number_is_that_class_in_every_file(tmp_path):
    """A split of such names alone was read as numbers, and 1.0 as the place of the second class."""
    files = {"train": write_rows(tmp_path / "train.csv", moods("1.0", "2.0", "1.50", "unrated"))}
    files["validation"] = write_rows(tmp_path / "validation.csv", moods("2.0", "1.0", "1.50"))
    task, splits = load_files(files, "classification", COLUMNS)
    assert task.label_names == ("1.0", "1.50", "2.0", "unrated") and splits["validation"]["mood"][:] == [2, 0, 1]
    test = load_files({"test": files["validation"]}, "classification", COLUMNS, label_names=task.label_names)[1]
    assert test["test"]["mood"][:] == [2, 0, 1]


def test_a_class_label_column_names_the_classes(tmp_path):
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
    labels = {split: rows[split]["label"][:] for split in rows}
    assert labels == {"train": [1, 0, 1], "validation": [1, 0, 1], "test": [None, 2, 0]}
    files["train"] = write_labels("hidden.parquet", ["sad", "glad"], [1, -1, 0])
    kept = load_files({"train": files["train"]}, "classification", {"text": "body"}, skip_bad_rows=True)[1]["train"]
    assert kept["label"][:] == [1, 0]


TAGS = [["sea", "sun"], [], ["sun"]]


@pytest.mark.parametrize("kind", ["texts", "classes", "columns", "joined"])
def test_rows_of_several_labels(tmp_path, tiny_tokenizer, kind):
    """Lists of texts or of class ids, or a column of 0 and 1 for each class; an unlabelled row to predict."""
    columns = {"text": "body", "label": "tags"}
    rows = [{"body": "a film", "tags": tags} for tags in TAGS]
    if kind in ("columns", "joined"):
        rows = [{"body": "a film", "sea": int("sea" in tags), "sun": "sun" in tags} for tags in TAGS]
        columns["label"] = ["sea", "sun"] if kind == "columns" else "sea,sun"  # as a model's folder holds it
    files = {split: write_rows(tmp_path / f"{split}.csv", rows) for split in ("train", "validation")}
    if kind in ("texts", "classes"):
        rows = datasets.Dataset.from_list(rows)
        if kind == "classes":
            rows = datasets.Dataset.from_dict({"body": rows["body"][:], "tags": [[0, 1], [], [1]]})
            rows = rows.cast_column("tags", datasets.List(datasets.ClassLabel(names=["sea", "sun"])))
        files = dict(train=rows, validation=rows, test=datasets.Dataset.from_dict({"body": ["b"], "tags": [None]}))
    task, splits = load_files(files, "classification", columns)
    assert (task.label_names, task.multi_label, task.metrics) == (("sea", "sun"), True, ("f1_micro", "accuracy"))
    name = task.columns["label"]
    assert name == ("tags" if kind in ("texts", "classes") else "sea,sun")
    for split in ("train", "validation"):
        assert splits[split][name][:] == [[1.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
    collator = TraversalCollator(tiny_tokenizer, "classification", task.columns, num_labels=2, multi_label=True)
    batch = collator([splits["train"][0], splits["train"][2]])
    assert batch["labels"].tolist() == [[1.0, 1.0], [0.0, 1.0]] and batch["labels"].is_floating_point()
    assert collator.check(splits["train"], needs_labels=True) == (3, 0)
    check_refused(lambda: collator([{"body": "a film", name: [1.0]}]), "the label is [1.0]", "0 or 1 for 2 classes")
    check_refused(lambda: collator([{"body": "a film", name: 1}]), "the label is 1", "0 or 1 for 2 classes")
    if "test" in files:
        assert not collator.is_labelled(splits["test"][0])


def test_lists_of_labels_that_cannot_be_used(tmp_path):
    def refused(*parts, columns="tags", **rows):
        rows = {"body": ["a film"] * len(next(iter(rows.values()))), **rows}
        files = {split: datasets.Dataset.from_dict(rows) for split in ("train", "validation")}
        check_refused(lambda: load_files(files, "classification", {"text": "body", "label": columns}), *parts)

    refused("row 1: ", "['sea', 'sun=2']", "0 or 1", columns=["sea", "sun"], sea=[0, 1], sun=[1, 2])
    refused("row 1: ", "'sun=ja'", "1 of 2 rows", columns=["sea", "sun"], sea=["No", "yes"], sun=["1", "ja"])
    refused("has no column 'rain'", "'sea', 'sun'", columns=["sea", "rain"], sea=[0, 1], sun=[1, 0])
    refused("row 1: ", "has None", "[] for none", tags=[["a", "b"], None])
    refused("classes 'Sea' and 'sea'", "`num_labels`", tags=[["Sea"], ["sea"]])
    refused("[1, 0, 0], which names a class twice", "a column for each: label=first,second", tags=[[1, 0, 0], [0, 1]])
    files = {"validation": datasets.Dataset.from_dict({"body": ["a film"], "tags": [["rain"]]})}
    columns = {"text": "body", "label": "tags"}
    names = {"label_names": ["sea", "sun"]}
    check_refused(lambda: load_files(files, "classification", columns, **names), "['rain']", "some of sea, sun")


def moods(*labels):
    return [{"body": "a film", "mood": label} for label in labels]


@pytest.mark.parametrize(
    ("rows", "options", "parts"),
    [
        (moods("0.5", "1"), {}, ["0.5", "pass `regression`"]),
        (moods("a", "", "b"), {}, ["row 1: ", "''", "1 of 3 rows", "`skip_bad_rows`"]),
        (moods("1.0", "", "0.0"), {}, ["row 1: ", "''", "1 of 3 rows", "one of 0, 1."]),  # as pandas writes them
        (moods("0", "-1", "1"), {}, ["row 1: ", "'-1'", "1 of 3 rows", "without a label", "give the classes names"]),
        (moods("-1", "-1"), {}, ["1 class (-1)", "without a label"]),
        (moods("a", "a"), {}, ["1 class (a)", "at least two"]),
        (moods("a", "b"), {"num_labels": 3}, ["2 classes (a, b)", "`num_labels` is 3"]),
        (moods("0", "3"), {"num_labels": 3}, ["class 3", "0 to 2"]),
        (moods("a", "b"), {"label_names": ["a", "c"]}, ["row 1: ", "'b'", "one of a, c"]),
        ([{"body_": "1", "text": "a", "mood": "b"}], {"columns": {"text": "body", "label": "mood"}}, ["mean 'text'"]),
        (moods("a", "b"), {"columns": {"text": "text", "label": "mood"}}, ["no column 'text'", "'body', 'mood'"]),
        (moods("a", "b"), {"columns": {"text": "bode", "label": "mood"}}, ["'bode'", "(did you mean 'body'?)"]),
        (moods("a", "b"), {"columns": {"text": ["body", "mood"], "label": "mood"}}, ["'mood' twice", "its own"]),
        (moods("3,5", "1"), {"regression": True}, ["'3,5'", "The label needs a number such as 3 or 3.5"]),
        (moods("a", "b"), {"regression": True}, ["2 of 2 rows", "Correct or remove them."]),  # none would be left
        (moods("1", "x"), {"regression": True}, ["row 1: ", "'x'", "1 of 2 rows"]),
        (moods("1", "2"), {"regression": True, "num_labels": 3}, ["1 class (", "`num_labels` is 3"]),
        (moods("a", "b"), {"traversal": "ranking"}, ['"ranking"', "Choose one of: classification"]),
        (moods("a", "b"), {"columns": {"body": "text", "mood": "label"}}, ["the roles body, mood;", "comes first"]),
    ],
)
def test_refusals(tmp_path, rows, options, parts):
    files = {"train": write_rows(tmp_path / "rows.csv", rows)}
    check_refused(lambda: load_files(files, **{"traversal": "classification", "columns": COLUMNS, **options}), *parts)


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.jsonl", b"", ["no rows", "at least one"]),
        ("b.csv", b"", ["no rows"]),
        ("c.csv", b"body,label\n", ["no rows"]),
        ("d.jsonl", b'{"body": "a", "label": "x"}\n{"body": "b", "label": \n', ["row 1", "Correct the file"]),
        ("e.jsonl", b'{"body": "a", "label": "x"}\n[1]\n', ["changed from object"]),
        ("f.csv", b"body,label\ncaf\xe9,x\n", ["byte 0xe9", "`iconv -f ENCODING -t UTF-8 {path} > NEW`", "1251"]),
        ("h.csv", "body,label\na,x\n".encode("utf-16"), ["byte 0xff", "`iconv -f UTF-16 -t UTF-8 {path} > NEW`"]),
        ("i.jsonl", b'{"body": "a", "label": "x"}\n{"body": "caf\xe9", "label": "y"}\n', ["0xe9", "UTF-8"]),
        ("j.csv", b'body,label\na,x\n"b,y\n', ["as csv", "string starting at row 2", "Correct the file"]),
        ("k.csv", b"body,label\nhello, world,x\na, b,y\n", ["first row has more cells than the 2", "Quote cells"]),
        ("l.csv", b"body,label\na,x\nb,c,d,e,y\n", ["saw 5", "`delimiter`"]),
        ("m.jsonl.gz", gzip.compress(b'{"body": "a"}\n' * 9, mtime=0)[:-9], ["file ended before"]),
        ("n.parquet", b"xx", ["as parquet", "2 bytes"]),
        ("o.xlsx", b"", ["unknown file type", ".jsonl, .jsonl.gz, .csv, .parquet", "CSV (UTF-8)"]),
        ("p.json", b'[{"body": "a"},\n{"body": }]', ["as json", "Correct the file"]),
        ("p.csv", b"body,label,body\na,x,b\n", ["names two columns 'body'"]),
        ("q.json", b'{"body": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}', ["holds columns", "'records'"]),
        ("s.json", b'{"body": ["a", "b"], "label": ["x", "y"]}', ["holds columns", "Write a list of rows"]),
        ("r.csv", b"a film,x\nb film,y\n", ["its columns are: 'a film', 'x'", "If its first line is a row, add"]),
        ("q.csv", b"body^label\na^x\nb^y\n", ["no column 'label'", "body^label", "`delimiter`"]),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, parts, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("datasets"), "propagate", True)
    path = tmp_path / name
    path.write_bytes(content)
    parts = [part.format(path=path) for part in parts]
    check_refused(lambda: load_files({"train": path}, "classification", {"text": "body"}), path, *parts)
    assert not caplog.messages


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_file(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "a.csv", [{"body": "a"}])
    for error in (OSError(30, "Read-only file system", "/cache"), OSError("Not enough disk space. Needed: 9 bytes")):
        monkeypatch.setattr(tokenization.rows.files, "load_dataset", Mock(side_effect=error))
        with pytest.raises(OSError, match=f"^{re.escape(str(error))}$"):
            read_file(path)


def test_lines_that_a_quotation_mark_joins_are_told(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    path = tmp_path / "quote.csv"
    for content, num_rows in (('body,label\n"a,x\nb,y\nc",x\n\nd,y\n', 2), ("body,label\na,x\n\nb,y\n", 2)):
        path.write_text(content)
        assert len(read_file(path)) == num_rows
        told = "4 lines make 2 rows, as some cells hold line ends. If none should, a quotation mark is missing."
        assert (f"{path}: {told}" in caplog.text) == bool(caplog.text) == ('"' in content)
        caplog.clear()


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("a.csv", 'body,mood\n"a; b, c",1\n007,0\n', None),
        ("a.tsv", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("b.csv", "body;mood\na; b, c;1\n007;0\n".replace("a; b, c", '"a; b, c"'), None),
        ("C.CSV", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("d.csv", "body|mood\na; b, c|1\n007|0\n", None),
        ("e.csv", "body\tmood\na; b, c\t1\n007\t0\n", "\\t"),
        ("f.json", json.dumps([{"body": "a; b, c", "mood": 1}, {"body": "007", "mood": 0}], indent=1), None),
        ("g.json", '{"body": "a; b, c", "mood": 1}\n{"body": "007", "mood": 0}\n', None),
    ],
)
def test_kinds_of_files_that_people_have(tmp_path, name, content, delimiter, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    path = tmp_path / name
    path.write_text(content)
    rows = load_files({"train": path}, "classification", COLUMNS, delimiter=delimiter)[1]["train"]
    assert rows.to_list() == [{"body": "a; b, c", "mood": 1}, {"body": "007", "mood": 0}]
    read_file(path, delimiter=delimiter)  # as `gpt1 predict --keep` does; the mark is told once
    found = {"b.csv": "';'", "C.CSV": "'\\t'", "d.csv": "'|'"}.get(name)
    assert caplog.messages == ([f"{path}: cells are separated by {found}."] if found else [])


def test_rows_that_cannot_be_used_are_refused_at_once_or_left_out(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    rows = [*ROWS, {"body": " ", "mood": "sad"}, {"body": "a film", "mood": ""}, {"body": "", "mood": ""}, *ROWS]
    files = {"train": write_rows(tmp_path / "rows.csv", rows), "test": write_rows(tmp_path / "test.csv", rows)}
    given = ["3 of 7 rows", "row 2: column 'body' has ' '; row 3: column 'mood' has ''; row 4: column 'body' has ''."]
    check_refused(lambda: load_files(files, "classification", COLUMNS), *given, "`skip_bad_rows`")
    files["validation"] = write_rows(tmp_path / "other.csv", moods("odd", "sad", "odd", "happy"))
    splits = load_files(files, "classification", COLUMNS, skip_bad_rows=True)[1]
    assert splits["train"]["body"][:] == ["a good film", "a slow film"] * 2
    assert splits["train"]["mood"][:] == [0, 1, 0, 1] and len(splits["test"]) == 7
    assert splits["validation"]["mood"][:] == [1, 0] and splits["validation"][PLACE][:] == [1, 3]
    assert "3 of 7 rows" in caplog.text and "2 of 4 rows" in caplog.text and "They are left out" in caplog.text
    other = {"train": files["train"], "test": files["validation"]}  # a row to predict is never left out
    check_refused(lambda: load_files(other, "classification", COLUMNS, skip_bad_rows=True), "'odd'", "remove them.")
    files["validation"] = write_rows(tmp_path / "all.csv", moods("odd", "odd"))
    check_refused(lambda: load_files(files, "classification", COLUMNS, skip_bad_rows=True), "'odd'", "2 of 2 rows")
    files = {"train": write_rows(tmp_path / "numbers.csv", moods("1.5", "x", "", "nan", "2", "y"))}
    given = "4 of 6 rows", "row 1: column 'mood' has 'x'; row 2: column 'mood' has ''; row 3: ", "'nan'; and 1 more."
    check_refused(lambda: load_files(files, "classification", COLUMNS, regression=True), *given, "a number")
    rows = load_files(files, "classification", COLUMNS, regression=True, skip_bad_rows=True)[1]["train"]
    assert rows["mood"][:] == [1.5, 2.0]
    quiz = [{"q": "one", "a": "3", "b": b, "label": label} for b, label in (("4", 1), ("4", 2), ("", 1), ("", 0))]
    files = {"train": write_rows(tmp_path / "quiz.csv", quiz)}
    options = {"traversal": "multiple_choice", "columns": {"context": "q", "choices": ["a", "b"]}}
    check_refused(lambda: load_files(files, **options), "2 of 4 rows", "row 1: column 'label' has '2'; row 2: ")
    assert load_files(files, **options, skip_bad_rows=True)[1]["train"]["label"][:] == [1, 0]
    files = {"train": write_rows(tmp_path / "from1.csv", [row for row in quiz if row["label"]])}
    from_1 = "No label is 0: if they count from 1, subtract 1"  # without row 1 all would be one place off
    check_refused(lambda: load_files(files, **options, skip_bad_rows=True), "2 of 3 rows", from_1)
    ids = write_rows(tmp_path / "ids.csv", moods("0", "3", "1"))
    options = {"label_names": ["a", "b"], "skip_bad_rows": True}
    assert load_files({"validation": ids}, "classification", COLUMNS, **options)[1]["validation"]["mood"][:] == [0, 1]


def test_a_class_only_of_rows_that_are_left_out_is_none(tmp_path):
    files = {"train": write_rows(tmp_path / "rows.csv", [*ROWS, {"body": "", "mood": "odd"}])}
    assert load_files(files, "classification", COLUMNS, skip_bad_rows=True)[0].label_names == ("happy", "sad")


def test_of_many_classes_ten_are_listed(tmp_path):
    files = {"train": write_rows(tmp_path / "rows.csv", moods(*(f"c{place:04}" for place in range(1244))))}
    files["validation"] = write_rows(tmp_path / "other.csv", moods("new"))
    ends = "c0008, c0009, … and 1,234 more. Is 'mood' the label? Correct"
    check_refused(lambda: load_files(files, "classification", COLUMNS), "'new'", "one of c0000, ", ends)


SEVERAL = "must be a list, or a column of 0 and 1 for each class"
COMMAS = "with a decimal point, and pass `regression`"
LOOK_LIKE = [("a a|b b", SEVERAL), ("a|c a|b b", SEVERAL), ("a b a|c", SEVERAL), ("a b c|", ""), ("a b c", "")]


@pytest.mark.parametrize("text, told", [*LOOK_LIKE, ("3,5 -0,5", COMMAS), ("3,5 x", "")])
def test_classes_that_look_like_several_labels_or_numbers_are_told(tmp_path, text, told, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    load_files({"train": write_rows(tmp_path / "rows.csv", moods(*text.split()))}, "classification", COLUMNS)
    assert len(caplog.messages) == bool(told) and told in caplog.text


def test_classes_that_differ_by_a_slip_are_refused_or_kept(tmp_path):
    names = (" bad", "Good", "bad", "cafe\u0301", "caf\u00e9", "good")  # one letter, or two that look like it
    files = {"train": datasets.Dataset.from_list(moods(*names))}
    slips = "the split 'train' has the classes ' bad' and 'bad', 'Good' and 'good', 'cafe\u0301' and 'caf\u00e9'."
    check_refused(lambda: load_files(files, "classification", COLUMNS), slips, "`num_labels` (6)")
    assert load_files(files, "classification", COLUMNS, num_labels=6)[0].label_names == names


@pytest.mark.parametrize(
    "files, kind",
    [
        *(("train.csv", "'train.csv'"), (datasets.Dataset.from_list(ROWS), "Dataset(")),
        *(({"train": ROWS}, "{'train': 'list'}"), ({"train": pandas.DataFrame(ROWS)}, "{'train': 'DataFrame'}")),
    ],
)
def test_what_is_no_file_of_a_split(files, kind):
    told = ('{"train": "a.csv"}', "`Dataset.from_pandas` and `from_list` make one")
    check_refused(lambda: load_files(files, "classification", COLUMNS), kind, *told)
    check_refused(lambda: load_files({"trian": "a.csv"}, "classification", COLUMNS), "'trian' (did you mean 'train'?)")


def test_a_label_of_minus_one_is_told_or_left_out(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    path = write_rows(tmp_path / "ids.csv", moods("0", "-1", "1"))
    splits = load_files({"train": path, "test": path}, "classification", COLUMNS, skip_bad_rows=True)[1]
    assert {split: rows["mood"][:] for split, rows in splits.items()} == {"train": [0, 1], "test": [0, -1, 1]}
    load_files({"train": write_rows(tmp_path / "names.csv", moods("1", "-1", "2"))}, "classification", COLUMNS)
    assert "names.csv has the class -1. -1 marks a row without a label" in caplog.messages[-1]


def test_a_file_whose_name_looks_like_a_pattern_and_two_that_are_none(tmp_path):
    path = write_rows(tmp_path / "rows[1]*.jsonl", ROWS)
    assert len(load_files({"train": path}, "classification", COLUMNS)[1]["train"]) == 2
    for missing in (tmp_path / "no.jsonl", tmp_path):
        check_refused(lambda missing=missing: load_files({"train": missing}, "classification", COLUMNS), missing)


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
        assert content != content_of(rows, ending) and len(str(error).split()) > 5, error
        return
    labels = splits["train"]["label"][:]
    blanks = [row["label"] in ("", " ", "\t", None) for row in given]
    assert content != content_of(given, ending) or not any(blanks)
    if content == content_of(rows, ending):
        assert splits["train"]["body"][:] == [row["body"] for row in rows]
        found = [task.label_names[label] for label in labels] if kind == "names" else labels
        assert found == [row["label"] for row in rows]
