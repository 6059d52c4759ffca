"""Rows of the paper's tasks, from files in a folder and from the hub."""

import datasets
import pytest
from sklearn.model_selection import train_test_split
from support.files import write_rows
from support.refusals import check_refused

from tokenization import TASKS, Task, TraversalCollator, load_task
from tokenization.rows.labels import are_all_labelled

SST2_ROWS = [{"idx": 7, "sentence": "a warm, funny film", "label": 1}, {"idx": 8, "sentence": "None", "label": 0}]
PAIR = {"sentence1": "A cat sits.", "sentence2": "A cat sat."}


def films(*labels):
    return [{"sentence": "a film", "label": label} for label in labels]


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


def test_files_as_the_hub_names_them_are_found(tmp_path):
    """Of `hf download nyu-mll/glue` and `hf download ehovy/race`: a folder per configuration, a split in parts."""
    glue = tmp_path / "glue" / "sst2"
    for number in (1, 0, 2):
        write_rows(glue / f"train-{number:05}-of-00003.parquet", films(number % 2))
    write_rows(glue / "validation-00000-of-00001-0123456789abcdef.parquet", films(1))
    splits = load_task("sst2", tmp_path / "glue")
    assert {split: rows["label"][:] for split, rows in splits.items()} == {"train": [0, 1, 0], "validation": [1]}
    for config, number in (("middle", 1), ("high", 2), ("all", 3)):
        write_rows(tmp_path / "race" / config / "test-00000-of-00001.parquet", [race_row(number, answer="B")])
    tests = [load_task(name, tmp_path / "race")["test"] for name in ("race-middle", "race-high", "race")]
    assert [rows["article"][0] for rows in tests] == ["Article 1.", "Article 2.", "Article 3."]


def test_a_download_that_lacks_a_part_of_a_split_is_refused(tmp_path):
    for number in (0, 2):
        write_rows(tmp_path / f"train-{number:05}-of-00003.parquet", films(1))
    told = f"{tmp_path} has 2 of the 3 files train-00000-of-00003.parquet and so on", "Download all of them"
    check_refused(lambda: load_task("sst2", tmp_path), *told)


def test_mnli_has_two_validation_splits(tmp_path):
    names = ("train", "validation_matched", "validation_mismatched", "test_matched")
    for number, split in enumerate(names):
        write_rows(tmp_path / f"{split}.jsonl", [{"premise": "It rains.", "hypothesis": "Wet.", "label": number % 3}])
    labels = {split: rows["label"][:] for split, rows in load_task("mnli", str(tmp_path)).items()}
    assert labels == dict(zip(names, ([0], [1], [2], [0]), strict=True))


def test_a_task_of_ones_own_reads_its_columns_and_classes(tmp_path):
    task = Task("moods", "classification", {"text": "review", "label": "mood"}, label_names=("sad", "glad"))
    write_rows(tmp_path / "train.csv", [{"mood": "glad", "review": "lovely"}, {"mood": "sad", "review": "dull"}])
    assert load_task(task, tmp_path)["train"].to_dict() == {"review": ["lovely", "dull"], "mood": [1, 0]}


def test_regression_labels_are_numbers(tmp_path):
    write_rows(tmp_path / "train.csv", [{**PAIR, "label": label} for label in (4, 2, 0)])
    train = load_task("stsb", tmp_path)["train"]
    assert train["label"][:] == [4.0, 2.0, 0.0]
    assert train.features["label"] == datasets.Value("float32")


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
    assert are_all_labelled(splits["train"], "label")
    assert not are_all_labelled(splits["test"], "label")


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
        (
            "race",
            "train.jsonl",
            [{"article": "A", "question": "Q", "options": list("wxyz"), "answer": 1}],  # the first or the second?
            ["row 0: column 'label' has 1", "one of A, B, C, D"],
        ),
        ("race", "middle_train.jsonl", [{"article": "A."}], ["No file of task 'race'", "middle_train, high_train"]),
        ("sst2", "other.jsonl", films(1), ["No file of task 'sst2'", "train, validation, test", ".parquet"]),
    ],
)
def test_files_and_rows_that_a_task_cannot_use_are_refused(tmp_path, task, name, rows, parts):
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
    check_refused(lambda: collator.check(load_task("race", tmp_path / "csv")["train"]), "a list of texts is needed")


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


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (["He woke.", None], "column 'InputSentence2' of row 1 (the first is 0) has None"),
        ([5, 6], "column 'InputSentence2' of row 0 (the first is 0) has 5"),
    ],
)
def test_a_sentence_of_a_story_that_is_no_text_is_refused(tmp_path, cells, told):
    stories = [{**RELEASED_STORY, "InputSentence2": cell} for cell in cells]
    path = write_rows(tmp_path / "test.jsonl", stories)
    check_refused(lambda: load_task("story_cloze", tmp_path), f"{path}: {told}", "Correct or remove the row")


def test_story_cloze_is_split_as_in_the_released_code(tmp_path):
    stories = [{**CANONICAL_STORY, "ending1": f"Ending {number}.", "label": number % 2} for number in range(1871)]
    write_rows(tmp_path / "validation.jsonl", stories)
    splits = load_task("story_cloze", tmp_path)
    endings = [story["ending1"] for story in stories]
    train, validation = train_test_split(endings, test_size=374, random_state=3535999445)
    assert splits["train"]["ending1"][:] == train
    assert splits["validation"]["ending1"][:] == validation
    write_rows(tmp_path / "validation.jsonl", stories[:374])
    write_rows(tmp_path / "train.jsonl", stories[:3])
    assert load_task("story_cloze", tmp_path).num_rows == {"train": 3, "validation": 374}


def test_rows_of_the_hub_have_the_tasks_columns_and_ids(monkeypatch):
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
    with pytest.raises(OSError, match="Couldn't reach 'stanfordnlp/snli'.* as `data_dir`"):
        load_task("snli")
    mine = Task("mine", "classification", {"text": "text", "label": "label"})
    check_refused(lambda: load_task(mine), "'mine' has no data set", "`data_dir`")


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
def test_the_real_data_sets_have_their_rows_and_labels(real_data_dir, name, row_counts, labels):
    splits = load_task(name, real_data_dir)
    assert {split: len(rows) for split, rows in splits.items()} == row_counts
    assert labels is None or set(splits["train"]["label"]) == set(splits["validation"]["label"]) == labels
    assert splits["train"].column_names == TASKS[name].column_names
