"""The task table, loading from files of every kind, the columns and labels that come out, the scores for Trainer."""

import csv
import gzip
import json

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from sklearn.model_selection import train_test_split
from transformers import EvalPrediction

from tokenization.tasks import TASKS, Task, compute_metrics_for, get_task, load_task, predictions_from_logits


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), path)
    else:
        opened = gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w", encoding="utf-8")
        with opened as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


SST2_ROWS = [
    {"idx": 7, "sentence": "a warm, funny film", "label": 1},
    {"idx": 8, "sentence": "None", "label": 0},
]


# ---- the table


def test_the_paper_has_twelve_tasks_and_race_has_two_parts():
    assert " ".join(TASKS) == (
        "sst2 cola mrpc stsb qqp mnli snli qnli rte scitail race race-middle race-high story_cloze"
    )


@pytest.mark.parametrize(
    ("name", "hub", "traversal", "num_labels", "metrics"),
    [
        ("sst2", ("nyu-mll/glue", "sst2"), "classification", 2, ("accuracy",)),
        ("cola", ("nyu-mll/glue", "cola"), "classification", 2, ("matthews_correlation",)),
        ("mrpc", ("nyu-mll/glue", "mrpc"), "similarity", 2, ("f1", "accuracy")),
        ("stsb", ("nyu-mll/glue", "stsb"), "similarity", 1, ("pearson", "spearmanr")),
        ("qqp", ("nyu-mll/glue", "qqp"), "similarity", 2, ("f1", "accuracy")),
        ("mnli", ("nyu-mll/glue", "mnli"), "entailment", 3, ("accuracy",)),
        ("snli", ("stanfordnlp/snli", "plain_text"), "entailment", 3, ("accuracy",)),
        ("qnli", ("nyu-mll/glue", "qnli"), "entailment", 2, ("accuracy",)),
        ("rte", ("nyu-mll/glue", "rte"), "entailment", 2, ("accuracy",)),
        ("scitail", ("allenai/scitail", "tsv_format"), "entailment", 2, ("accuracy",)),
        ("race", ("ehovy/race", "all"), "multiple_choice", 1, ("accuracy",)),
        ("race-middle", ("ehovy/race", "middle"), "multiple_choice", 1, ("accuracy",)),
        ("race-high", ("ehovy/race", "high"), "multiple_choice", 1, ("accuracy",)),
        ("story_cloze", ("LSDSem/story_cloze", "2016"), "multiple_choice", 1, ("accuracy",)),
    ],
)
def test_tasks(name, hub, traversal, num_labels, metrics):
    task = TASKS[name]
    assert (task.hub_path, task.hub_config) == hub
    assert (task.traversal, task.num_labels, task.metrics) == (traversal, num_labels, metrics)
    assert task.regression is (name == "stsb")


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("SST-2", "sst2"),
        ("STS-B", "stsb"),
        ("StoryCloze", "story_cloze"),
        ("race_high", "race-high"),
        ("MNLI", "mnli"),
    ],
)
def test_names_as_people_type_them(typed, name):
    assert get_task(typed) is TASKS[name]


def test_unknown_task():
    with pytest.raises(ValueError) as e:
        get_task("wnli")
    assert str(e.value) == (
        "Unknown task 'wnli'. Known tasks: sst2, cola, mrpc, stsb, qqp, mnli, snli, qnli, rte, scitail, race, "
        "race-middle, race-high, story_cloze. For data of your own build a Task with its traversal, columns and "
        "label_names."
    )


def test_task_of_an_unknown_traversal():
    with pytest.raises(ValueError) as e:
        Task(name="mine", traversal="ranking", columns={"text": "text", "label": "label"})
    assert str(e.value) == (
        "Task 'mine' has the traversal 'ranking'. Choose one of classification, entailment, similarity, "
        "multiple_choice."
    )


def test_task_without_a_label_column():
    with pytest.raises(ValueError) as e:
        Task(name="mine", traversal="entailment", columns={"premise": "a", "hypothesis": "b"})
    assert str(e.value) == "Task 'mine' maps the roles premise, hypothesis to columns. Add the role label."


# ---- files


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".csv", ".parquet"])
@pytest.mark.parametrize("folder", ["", "sst2"])
def test_every_kind_of_file_gives_the_same_rows(tmp_path, ending, folder):
    write(tmp_path / folder / f"train{ending}", SST2_ROWS)
    write(tmp_path / folder / f"validation{ending}", SST2_ROWS[:1])
    splits = load_task("sst2", tmp_path)
    assert list(splits) == ["train", "validation"]
    assert splits["train"].to_dict() == {"sentence": ["a warm, funny film", "None"], "label": [1, 0]}
    assert splits["validation"].to_dict() == {"sentence": ["a warm, funny film"], "label": [1]}
    assert splits["train"].features["label"] == datasets.Value("int64")


def test_the_tasks_own_folder_comes_before_its_parent(tmp_path):
    write(tmp_path / "train.jsonl", [{"sentence": "of another data set", "label": 0}])
    write(tmp_path / "sst2" / "train.jsonl", SST2_ROWS)
    assert load_task("sst2", tmp_path)["train"]["label"][:] == [1, 0]


def test_mnli_has_two_validation_splits(tmp_path):
    row = {"premise": "It rains.", "hypothesis": "It is wet.", "label": 0}
    for number, split in enumerate(("train", "validation_matched", "validation_mismatched", "test_matched")):
        write(tmp_path / f"{split}.jsonl", [{**row, "label": number % 3}])
    splits = load_task("mnli", str(tmp_path))
    assert {split: rows["label"][:] for split, rows in splits.items()} == {
        "train": [0],
        "validation_matched": [1],
        "validation_mismatched": [2],
        "test_matched": [0],
    }


def test_a_folder_without_files(tmp_path):
    with pytest.raises(ValueError) as e:
        load_task("sst2", tmp_path)
    assert str(e.value) == (
        f"No file of task 'sst2' found in {tmp_path}/sst2, {tmp_path}. Needed: files named train, validation, test "
        "(at least one), each ending in .jsonl, .jsonl.gz, .csv, .parquet."
    )


def test_two_files_for_one_split(tmp_path):
    write(tmp_path / "train.jsonl", SST2_ROWS)
    write(tmp_path / "train.csv", SST2_ROWS)
    with pytest.raises(ValueError) as e:
        load_task("sst2", tmp_path)
    assert str(e.value) == f"{tmp_path} has train.jsonl and train.csv; one file is needed for train. Keep one."


# ---- columns


def test_missing_column(tmp_path):
    write(tmp_path / "train.jsonl", [{"text": "a warm, funny film", "label": 1}])
    with pytest.raises(ValueError) as e:
        load_task("sst2", tmp_path)
    assert str(e.value) == (
        "Split 'train' of task 'sst2' has no column sentence. Its columns: text, label. Needed: sentence, label. "
        "Rename the columns of the file, or build a Task with the names that it has."
    )


def test_missing_column_that_may_be_made_from_others(tmp_path):
    write(tmp_path / "train.jsonl", [{"article": "A dog.", "question": "What?", "options": ["a dog", "a cat"]}])
    with pytest.raises(ValueError) as e:
        load_task("race", tmp_path)
    assert str(e.value) == (
        "Split 'train' of task 'race' has no column label or answer. Its columns: article, question, options. Needed: "
        "article, question, options, label. Rename the columns of the file, or build a Task with the names that it "
        "has."
    )


def test_only_the_test_split_may_lack_labels(tmp_path):
    write(tmp_path / "train.jsonl", SST2_ROWS)
    write(tmp_path / "test.csv", [{"sentence": "a long film"}])
    assert load_task("sst2", tmp_path)["test"].to_dict() == {"sentence": ["a long film"]}
    write(tmp_path / "validation.csv", [{"sentence": "a long film"}])
    with pytest.raises(ValueError, match="^Split 'validation' of task 'sst2' has no column label."):
        load_task("sst2", tmp_path)


def test_a_task_of_ones_own(tmp_path):
    task = Task(
        name="moods",
        traversal="classification",
        columns={"text": "review", "label": "mood"},
        label_names=("sad", "glad"),
        metrics=("f1", "matthews_correlation"),
    )
    write(tmp_path / "train.csv", [{"mood": "glad", "review": "lovely"}, {"mood": "sad", "review": "dull"}])
    assert load_task(task, tmp_path)["train"].to_dict() == {"review": ["lovely", "dull"], "mood": [1, 0]}
    logits = np.array([[0.0, 1.0], [0.0, 1.0]])
    assert compute_metrics_for(task)(EvalPrediction(logits, np.array([1, 0]))) == {
        "f1": pytest.approx(2 / 3),
        "matthews_correlation": 0.0,
    }


# ---- labels


def test_regression_labels_are_numbers(tmp_path):
    rows = [{"sentence1": "A cat sits.", "sentence2": "A cat sat.", "label": label} for label in (4, 2, 0)]
    write(tmp_path / "train.csv", rows)
    train = load_task("stsb", tmp_path)["train"]
    assert train["label"][:] == [4.0, 2.0, 0.0]
    assert train.features["label"] == datasets.Value("float32")


def test_snli_loses_its_rows_without_an_agreed_label(tmp_path):
    rows = [{"premise": "A man.", "hypothesis": f"Claim {label}.", "label": label} for label in (2, -1, 0, -1, 1)]
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "test.jsonl", rows)
    splits = load_task("snli", tmp_path)
    assert splits["train"].to_dict() == {
        "premise": ["A man."] * 3,
        "hypothesis": ["Claim 2.", "Claim 0.", "Claim 1."],
        "label": [2, 0, 1],
    }
    assert splits["test"]["label"][:] == [2, -1, 0, -1, 1]  # each row to predict keeps its place


def test_other_tasks_keep_hidden_labels(tmp_path):
    write(tmp_path / "test.jsonl", [{"sentence": "a long film", "label": -1}])
    assert load_task("sst2", tmp_path)["test"]["label"][:] == [-1]


def test_scitail_writes_its_labels_as_text(tmp_path):
    rows = [{"premise": "Ice melts.", "hypothesis": "It is warm.", "label": name} for name in ("neutral", "entails")]
    write(tmp_path / "train.jsonl", rows)
    assert load_task("scitail", tmp_path)["train"]["label"][:] == [1, 0]


def test_unknown_label(tmp_path):
    write(tmp_path / "train.jsonl", [{"premise": "Ice melts.", "hypothesis": "It is warm.", "label": "contradicts"}])
    with pytest.raises(ValueError) as e:
        load_task("scitail", tmp_path)
    assert str(e.value) == (
        f"Split 'train' of task 'scitail' has the label 'contradicts' in row 0 of {tmp_path}/train.jsonl (the first "
        "is 0). Known labels: 'entails', 'neutral'. Correct the file, or write class ids from 0."
    )


def refused(*arguments):
    with pytest.raises(ValueError) as e:
        load_task(*arguments)
    return str(e.value)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_blank_label_is_an_error_that_names_its_row(tmp_path, split):
    rows = [{"sentence": "a film", "label": label} for label in ("1", "0", "", "1", " ")]
    write(tmp_path / f"{split}.csv", rows)
    assert refused("sst2", tmp_path) == (
        f"Row 2 of {tmp_path}/{split}.csv (the first is 0) has no label: its column 'label' holds ''. Every row needs "
        "one for training and evaluation; 2 of 5 have none. Label or remove them."
    )


def test_a_test_file_may_lack_some_labels(tmp_path):
    write(tmp_path / "test.csv", [{"sentence": "a film", "label": label} for label in ("1", "", "0")])
    assert load_task("sst2", tmp_path)["test"]["label"][:] == [1, None, 0]
    pair = {"sentence1": "A cat sits.", "sentence2": "A cat sat."}
    write(tmp_path / "stsb" / "test.csv", [{**pair, "label": label} for label in ("2.5", "")])
    assert load_task("stsb", tmp_path)["test"]["label"][:] == [2.5, None]
    write(tmp_path / "story_cloze" / "test.csv", [{**RELEASED_STORY, "AnswerRightEnding": x} for x in ("2", "")])
    assert load_task("story_cloze", tmp_path)["test"]["label"][:] == [1, None]
    write(tmp_path / "story_cloze" / "test.csv", [{**CANONICAL_STORY, "label": label} for label in ("1", "", "0")])
    assert load_task("story_cloze", tmp_path)["test"]["label"][:] == [1, None, 0]


def test_labels_of_a_wrong_kind_are_errors_that_name_their_row(tmp_path):
    write(tmp_path / "train.jsonl", [{"sentence": "a film", "label": label} for label in (1.0, 0.5)])
    assert refused("sst2", tmp_path) == (
        f"Row 1 of {tmp_path}/train.jsonl (the first is 0): the label in column 'label' is 0.5 of type float; a whole "
        "number, the id of a class or the index of a choice, is needed. Correct or remove the row."
    )
    write(tmp_path / "train.jsonl", [{"sentence": "a film", "label": label} for label in (1.0, 1e300)])
    assert refused("sst2", tmp_path) == (
        f"Row 1 of {tmp_path}/train.jsonl (the first is 0): the label in column 'label' is 1e+300 of type float; a "
        "whole number, the id of a class or the index of a choice, is needed. Correct or remove the row."
    )
    pair = {"sentence1": "A cat sits.", "sentence2": "A cat sat."}
    write(tmp_path / "stsb" / "train.csv", [{**pair, "label": label} for label in ("2.5", "high")])
    assert refused("stsb", tmp_path) == (
        f"Row 1 of {tmp_path}/stsb/train.csv (the first is 0): the label in column 'label' is 'high' of type str; a "
        "number is needed. Correct or remove the row."
    )
    write(tmp_path / "cola" / "train.jsonl", [{"sentence": "a film", "label": [1]}])
    assert refused("cola", tmp_path) == (
        f"Column 'label' of {tmp_path}/cola/train.jsonl holds lists, objects or values of several types, such as [1] "
        "in row 0; a label is a single text or number. Name another column, or write one value per row."
    )


# ---- RACE


def race_row(number, **label):
    return {"article": f"Article {number}.", "question": "Who?", "options": ["w", "x", "y", "z"], **label}


def test_race_joins_middle_and_high(tmp_path):
    write(tmp_path / "race" / "middle_train.jsonl.gz", [race_row(1, label=3)])
    write(tmp_path / "race" / "high_train.jsonl.gz", [race_row(2, label=0)])
    write(tmp_path / "race" / "middle_validation.jsonl", [race_row(3, label=1)])
    write(tmp_path / "race" / "high_validation.jsonl", [race_row(4, label=2)])
    splits = load_task("race", tmp_path)
    assert splits["train"].to_dict() == {
        "article": ["Article 1.", "Article 2."],
        "question": ["Who?", "Who?"],
        "options": [["w", "x", "y", "z"], ["w", "x", "y", "z"]],
        "label": [3, 0],
    }
    assert splits["validation"]["label"][:] == [1, 2]
    assert load_task("race-middle", tmp_path)["train"]["article"][:] == ["Article 1."]
    assert load_task("race-high", tmp_path / "race")["validation"]["article"][:] == ["Article 4."]


def test_race_answers_are_letters_on_the_hub(tmp_path):
    write(tmp_path / "train.parquet", [race_row(number, answer=letter) for number, letter in enumerate("CADB")])
    train = load_task("race", tmp_path)["train"]
    assert train["label"][:] == [2, 0, 3, 1]
    assert train.column_names == ["article", "question", "options", "label"]


def test_race_with_one_part_only(tmp_path):
    write(tmp_path / "middle_train.jsonl", [race_row(1, label=3)])
    with pytest.raises(ValueError) as e:
        load_task("race", tmp_path)
    assert str(e.value) == (
        f"Task 'race' joins middle_train and high_train, but {tmp_path} has no file high_train. Add it, or load the "
        "part alone by its own task name."
    )


def test_race_in_a_csv_has_no_list_of_choices(tmp_path):
    write(tmp_path / "train.csv", [race_row(1, label=3)])
    with pytest.raises(ValueError) as e:
        load_task("race", tmp_path)
    assert str(e.value) == (
        "Column 'options' of split 'train' of task 'race' holds one text per row; a list of choices is needed. A .csv "
        "file cannot hold lists: use .jsonl or .parquet, or a Task with one column per choice."
    )


# ---- Story Cloze

HUB_STORY = {
    **{f"input_sentence_{number}": f"Sentence {number}." for number in range(1, 5)},
    "sentence_quiz1": "He slept.",
    "sentence_quiz2": "He flew.",
}
RELEASED_STORY = {
    **{f"InputSentence{number}": f"Sentence {number}." for number in range(1, 5)},
    "RandomFifthSentenceQuiz1": "He slept.",
    "RandomFifthSentenceQuiz2": "He flew.",
}
CANONICAL_STORY = {
    "context": "Sentence 1. Sentence 2. Sentence 3. Sentence 4.",
    "ending1": "He slept.",
    "ending2": "He flew.",
}


@pytest.mark.parametrize(
    ("story", "answer", "first"),
    [(HUB_STORY, "answer_right_ending", 1), (RELEASED_STORY, "AnswerRightEnding", 1), (CANONICAL_STORY, "label", 0)],
)
def test_story_cloze_has_one_form_whatever_its_columns_were(tmp_path, story, answer, first):
    write(tmp_path / "test.csv", [{**story, answer: first}, {**story, answer: first + 1}])
    test = load_task("story_cloze", tmp_path)["test"]
    assert test[0] == {**CANONICAL_STORY, "label": 0}
    assert test["label"][:] == [0, 1]


def stories(count):
    return [{**CANONICAL_STORY, "ending1": f"Ending {number}.", "label": number % 2} for number in range(count)]


def test_story_cloze_is_split_as_in_the_released_code(tmp_path):
    write(tmp_path / "validation.jsonl", stories(1871))
    splits = load_task("story_cloze", tmp_path)
    endings = [f"Ending {number}." for number in range(1871)]
    train, validation = train_test_split(endings, test_size=374, random_state=3535999445)
    assert list(splits) == ["train", "validation"]
    assert splits["train"]["ending1"][:] == train
    assert splits["validation"]["ending1"][:] == validation
    assert (len(train), len(validation)) == (1497, 374)


def test_story_cloze_with_a_train_file_is_left_as_it_is(tmp_path):
    write(tmp_path / "train.jsonl", stories(3))
    write(tmp_path / "validation.jsonl", stories(2))
    splits = load_task("story_cloze", tmp_path)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 3, "validation": 2}


def test_story_cloze_with_too_few_rows_to_split(tmp_path):
    write(tmp_path / "validation.jsonl", stories(374))
    with pytest.raises(ValueError) as e:
        load_task("story_cloze", tmp_path)
    assert str(e.value) == (
        "Task 'story_cloze' has no train file, so it is trained on the rows of its validation split beyond the 374 "
        "held out, but the split has only 374. Add a train file."
    )


# ---- the hub


def test_the_hub_is_asked_for_the_tasks_configuration(monkeypatch):
    rows = datasets.Dataset.from_dict({"question": ["Who?"], "sentence": ["He did."], "label": [1], "idx": [0]})
    rows = rows.cast_column("label", datasets.ClassLabel(names=["entailment", "not_entailment"]))
    asked = []

    def answer(*arguments):
        asked.append(arguments)
        return datasets.DatasetDict({"test": rows, "train": rows, "extra": rows})

    monkeypatch.setattr("tokenization.tasks.load_dataset", answer)
    splits = load_task("qnli")
    assert asked == [("nyu-mll/glue", "qnli")]
    assert list(splits) == ["train", "test"]
    assert splits["train"].to_dict() == {"question": ["Who?"], "sentence": ["He did."], "label": [1]}
    assert splits["train"].features["label"] == datasets.Value("int64")


def test_a_failure_of_the_hub_is_passed_on_with_the_way_out(monkeypatch):
    def fail(*arguments):
        raise ConnectionError("Couldn't reach 'stanfordnlp/snli' on the Hub")

    monkeypatch.setattr("tokenization.tasks.load_dataset", fail)
    with pytest.raises(OSError) as e:
        load_task("snli")
    assert str(e.value) == (
        "Could not load task 'snli' from the hub (data set 'stanfordnlp/snli', configuration 'plain_text'): "
        "ConnectionError: Couldn't reach 'stanfordnlp/snli' on the Hub. To load it from files, pass data_dir: a "
        "folder with files named train, validation, test (at least one), each ending in .jsonl, .jsonl.gz, .csv, "
        ".parquet."
    )
    assert isinstance(e.value.__cause__, ConnectionError)


def test_a_task_that_is_not_on_the_hub():
    with pytest.raises(ValueError) as e:
        load_task(Task(name="mine", traversal="classification", columns={"text": "text", "label": "label"}))
    assert str(e.value) == "Task 'mine' names no data set on the hub. Pass data_dir, a folder with its files."


# ---- scores for Trainer


def test_predictions_are_the_greatest_logits_of_the_first_output():
    logits = np.array([[0.1, 0.9, 0.0], [-200.0, -300.0, -250.0]])
    assert predictions_from_logits("mnli", logits).tolist() == [1, 0]
    assert predictions_from_logits("mnli", (logits, np.zeros((2, 7)))).tolist() == [1, 0]


def test_regression_predictions_are_the_logits():
    assert predictions_from_logits("stsb", np.array([[0.5], [4.25]])).tolist() == [0.5, 4.25]


def test_absent_choices_are_never_predicted():
    absent = float("-inf")
    # The last row's real scores lie below the -100 with which Trainer fills up batches of fewer choices.
    logits = np.array([[0.3, 0.7, absent, absent], [2.0, 1.0, -1.0, 0.0], [-150.0, -120.0, absent, -100.0]])
    assert predictions_from_logits("race", logits).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "logits", "labels", "expected"),
    [
        ("sst2", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 1, 1], {"accuracy": 2 / 3}),
        ("cola", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 0, 0], {"matthews_correlation": 0.5}),
        ("mrpc", [[1.0, 2.0], [2.0, 1.0], [0.0, 3.0]], [1, 0, 0], {"f1": 2 / 3, "accuracy": 2 / 3}),
        ("race", [[1.0, 2.0, -np.inf], [2.0, 1.0, 5.0]], [1, 1], {"accuracy": 0.5}),
        ("stsb", [[1.0], [3.0], [2.0], [6.0]], [1.0, 2.0, 3.0, 4.0], {"pearson": 7 / 70**0.5, "spearmanr": 0.8}),
    ],
)
def test_scores_of_trainers_predictions(name, logits, labels, expected):
    compute_metrics = compute_metrics_for(name)
    logits = np.array(logits, dtype=np.float32)
    for predictions in (logits, (logits, np.zeros((len(labels), 4)))):
        scores = compute_metrics(EvalPrediction(predictions=predictions, label_ids=np.array(labels)))
        assert scores == pytest.approx(expected, abs=1e-7)


def test_unknown_metric():
    task = Task(name="mine", traversal="classification", columns={"text": "t", "label": "l"}, metrics=("bleu",))
    with pytest.raises(ValueError) as e:
        compute_metrics_for(task)
    assert str(e.value) == (
        "Task 'mine' asks for the metric 'bleu'. Known metrics: accuracy, f1, matthews_correlation, pearson, "
        "spearmanr."
    )


# ---- real data


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("name", "row_counts", "labels"),
    [
        ("sst2", {"train": 67349, "validation": 872, "test": 1821}, {0, 1}),
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
    assert set(splits["train"]["label"]) == labels
    assert set(splits["validation"]["label"]) == labels
    assert splits["train"].column_names == TASKS[name].column_names


@pytest.mark.real_data
def test_real_graded_similarity(real_data_dir):
    splits = load_task("stsb", real_data_dir)
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 5749, "validation": 1500}
    assert (min(splits["train"]["label"]), max(splits["train"]["label"])) == (0.0, 5.0)
