"""Labels of one's own files: the classes that they name, the ids that are written, and rows that cannot be used."""

import datasets
import pytest
from support.files import write_rows
from support.own_rows import COLUMNS, ROWS, moods
from support.refusals import check_refused

from tokenization import TraversalCollator, load_files
from tokenization.rows.columns import PLACE


def test_numbers_to_predict_stay_as_they_are(tmp_path):
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"a": "x", "b": "y", "label": 0.5}])
    task, rows = load_files({"train": pairs}, "similarity", {"text_a": "a", "text_b": "b"}, regression=True)
    assert (task.regression, task.metrics, task.label_names) == (True, ("pearson", "spearmanr"), ())
    assert task.columns == {"label": "label", "text_a": "a", "text_b": "b"}
    assert rows["train"]["label"][:] == [0.5]


def test_places_of_choices_stay_as_they_are(tmp_path):
    stories = write_rows(tmp_path / "stories.jsonl", [{"story": "x", "ends": ["y", "z"], "label": 1}])
    task, rows = load_files({"train": stories}, "multiple_choice", {"context": "story", "choices": "ends"})
    assert task.label_names == ()
    assert rows["train"]["label"][:] == [1]


def test_choices_that_look_like_numbers_stay_texts(tmp_path):
    sums = [{"q": "two and two", "a": "4", "b": "True", "label": 0}, {"q": "one", "a": "3", "b": "False", "label": 1}]
    path = write_rows(tmp_path / "sums.csv", sums)
    rows = load_files({"train": path}, "multiple_choice", {"context": "q", "choices": ["a", "b"]})[1]["train"]
    assert rows.to_list() == sums


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
    assert task.label_names == names
    assert rows["train"]["label"][:] == ids
    rows = [{"body": "a film", "label": label} for label in (*labels, "", labels[0])]
    files = {"train": path, "test": write_rows(tmp_path / "test.csv", rows)}
    assert load_files(files, "classification", {"text": "body"})[1]["test"]["label"][:] == [*ids, None, ids[0]]


def test_a_class_whose_name_is_a_number_is_that_class_in_every_file(tmp_path):
    """A split of such names alone was read as numbers, and 1.0 as the place of the second class."""
    files = {"train": write_rows(tmp_path / "train.csv", moods("1.0", "2.0", "1.50", "unrated"))}
    files["validation"] = write_rows(tmp_path / "validation.csv", moods("2.0", "1.0", "1.50"))
    task, splits = load_files(files, "classification", COLUMNS)
    assert task.label_names == ("1.0", "1.50", "2.0", "unrated")
    assert splits["validation"]["mood"][:] == [2, 0, 1]
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
    assert batch["labels"].tolist() == [[1.0, 1.0], [0.0, 1.0]]
    assert batch["labels"].is_floating_point()
    assert collator.check(splits["train"], needs_labels=True) == (3, 0)
    check_refused(lambda: collator([{"body": "a film", name: [1.0]}]), "is [1.0]", "0 or 1 for each of 2 classes")
    check_refused(lambda: collator([{"body": "a film", name: 1}]), "the label is 1", "0 or 1 for each of 2 classes")
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
    refused("differ in spelling alone: 'Sea' and 'sea'", "`num_labels`", tags=[["Sea"], ["sea"]])
    refused("[1, 0, 0], which names a class twice", "label=first,second", tags=[[1, 0, 0], [0, 1]])
    files = {"validation": datasets.Dataset.from_dict({"body": ["a film"], "tags": [["rain"]]})}
    columns = {"text": "body", "label": "tags"}
    names = {"label_names": ["sea", "sun"]}
    check_refused(lambda: load_files(files, "classification", columns, **names), "['rain']", "some of sea, sun")


SPOILED = [*ROWS, {"body": " ", "mood": "sad"}, {"body": "a film", "mood": ""}, {"body": "", "mood": ""}, *ROWS]


@pytest.fixture
def spoiled(tmp_path):
    """Files of which the second, third and fourth row of three lack a text or a label."""
    return {"train": write_rows(tmp_path / "rows.csv", SPOILED), "test": write_rows(tmp_path / "test.csv", SPOILED)}


def test_all_rows_that_cannot_be_used_are_refused_at_once(spoiled):
    shown = "row 2: column 'body' has ' '; row 3: column 'mood' has ''; row 4: column 'body' has ''."
    check_refused(lambda: load_files(spoiled, "classification", COLUMNS), "3 of 7 rows", shown, "`skip_bad_rows`")


def test_rows_that_cannot_be_used_are_left_out_on_request(tmp_path, spoiled, logged):
    spoiled["validation"] = write_rows(tmp_path / "other.csv", moods("odd", "sad", "odd", "happy"))
    splits = load_files(spoiled, "classification", COLUMNS, skip_bad_rows=True)[1]
    assert splits["train"]["body"][:] == ["a good film", "a slow film"] * 2
    assert splits["train"]["mood"][:] == [0, 1, 0, 1]
    assert splits["validation"]["mood"][:] == [1, 0]
    assert splits["validation"][PLACE][:] == [1, 3]
    assert "3 of 7 rows" in logged.text
    assert "2 of 4 rows" in logged.text
    assert "These rows are left out" in logged.text


def test_a_row_to_predict_is_never_left_out(tmp_path, spoiled):
    assert len(load_files(spoiled, "classification", COLUMNS, skip_bad_rows=True)[1]["test"]) == 7
    spoiled["test"] = write_rows(tmp_path / "other.csv", moods("odd", "sad"))
    check_refused(
        lambda: load_files(spoiled, "classification", COLUMNS, skip_bad_rows=True), "'odd'", "remove these rows."
    )


def test_a_split_of_which_nothing_would_be_left_is_refused(tmp_path, spoiled):
    spoiled["validation"] = write_rows(tmp_path / "all.csv", moods("odd", "odd"))
    told = "'odd'", "2 of 2 rows"
    check_refused(lambda: load_files(spoiled, "classification", COLUMNS, skip_bad_rows=True), *told)


def test_numbers_that_are_none_are_refused_or_left_out(tmp_path):
    files = {"train": write_rows(tmp_path / "numbers.csv", moods("1.5", "x", "", "nan", "2", "y"))}
    shown = "row 1: column 'mood' has 'x'; row 2: column 'mood' has ''; row 3: ", "'nan'; and 1 more."
    told = "4 of 6 rows", *shown, "a number"
    check_refused(lambda: load_files(files, "classification", COLUMNS, regression=True), *told)
    rows = load_files(files, "classification", COLUMNS, regression=True, skip_bad_rows=True)[1]["train"]
    assert rows["mood"][:] == [1.5, 2.0]


QUIZ = [
    {"q": "one", "a": "3", "b": "4", "label": 1},
    {"q": "one", "a": "3", "b": "4", "label": 2},
    {"q": "one", "a": "3", "b": "", "label": 1},
    {"q": "one", "a": "3", "b": "", "label": 0},
]
CHOICES = {"traversal": "multiple_choice", "columns": {"context": "q", "choices": ["a", "b"]}}


def test_a_choice_that_a_row_does_not_have_is_refused_or_left_out(tmp_path):
    files = {"train": write_rows(tmp_path / "quiz.csv", QUIZ)}
    check_refused(lambda: load_files(files, **CHOICES), "2 of 4 rows", "row 1: column 'label' has '2'; row 2: ")
    assert load_files(files, **CHOICES, skip_bad_rows=True)[1]["train"]["label"][:] == [1, 0]


def test_choices_that_count_from_1_are_refused_even_where_rows_may_be_left_out(tmp_path):
    """Without the second row, all others would be one place off."""
    files = {"train": write_rows(tmp_path / "from1.csv", [row for row in QUIZ if row["label"]])}
    told = "2 of 3 rows", "No label is 0: if they count from 1, subtract 1"
    check_refused(lambda: load_files(files, **CHOICES, skip_bad_rows=True), *told)


def test_a_label_of_a_row_with_an_empty_list_of_choices_is_not_at_fault(tmp_path):
    """The collator names such a row by its choices."""
    rows = [{"q": "one", "ends": ["3", "4"], "label": 0}, {"q": "two", "ends": [], "label": 0}]
    files = {"train": write_rows(tmp_path / "quiz.jsonl", rows)}
    columns = {"context": "q", "choices": "ends"}
    assert load_files(files, "multiple_choice", columns)[1]["train"]["label"][:] == [0, 0]


@pytest.mark.parametrize("choices", ["ends", ["a"]])
def test_training_rows_with_one_choice_each_are_refused(choices, tmp_path):
    rows = [{"q": "one", "ends": ["3"], "a": "3", "label": 0}, {"q": "two", "ends": ["4"], "a": "4", "label": 0}]
    path = write_rows(tmp_path / "quiz.jsonl", rows)
    columns = {"context": "q", "choices": choices}
    told = f"No row of {path} has more than one choice", "Add wrong choices, or name the columns of all choices."
    check_refused(lambda: load_files({"train": path}, "multiple_choice", columns), *told)
    assert load_files({"test": path}, "multiple_choice", columns)[1]["test"]["label"][:] == [0, 0]


def test_an_id_that_no_class_has_is_left_out_on_request(tmp_path):
    ids = write_rows(tmp_path / "ids.csv", moods("0", "3", "1"))
    options = {"label_names": ["a", "b"], "skip_bad_rows": True}
    assert load_files({"validation": ids}, "classification", COLUMNS, **options)[1]["validation"]["mood"][:] == [0, 1]


def test_rows_whose_places_are_known_keep_them(tmp_path):
    files = {"train": write_rows(tmp_path / "rows.csv", SPOILED)}
    kept = load_files(files, "classification", COLUMNS, skip_bad_rows=True)[1]["train"]
    again = load_files({"train": kept}, "classification", COLUMNS)[1]["train"]
    assert again[PLACE][:] == [0, 1, 5, 6]


def test_a_class_only_of_rows_that_are_left_out_is_none(tmp_path):
    files = {"train": write_rows(tmp_path / "rows.csv", [*ROWS, {"body": "", "mood": "odd"}])}
    assert load_files(files, "classification", COLUMNS, skip_bad_rows=True)[0].label_names == ("happy", "sad")


def test_of_many_classes_ten_are_listed(tmp_path):
    files = {"train": write_rows(tmp_path / "rows.csv", moods(*(f"c{place:04}" for place in range(1244))))}
    files["validation"] = write_rows(tmp_path / "other.csv", moods("new"))
    ends = "c0008, c0009, … and 1,234 more. Is 'mood' the column of the labels? Correct"
    check_refused(lambda: load_files(files, "classification", COLUMNS), "'new'", "one of c0000, ", ends)


SEVERAL = "write them as a list, or give each class a column of 0 and 1"
COMMAS = "with a decimal point, and pass `regression`"
LOOK_LIKE = [("a a|b b", SEVERAL), ("a|c a|b b", SEVERAL), ("a b a|c", SEVERAL), ("a b c|", ""), ("a b c", "")]


@pytest.mark.parametrize("text, told", [*LOOK_LIKE, ("3,5 -0,5", COMMAS), ("3,5 x", "")])
def test_classes_that_look_like_several_labels_or_numbers_are_told(tmp_path, text, told, logged):
    load_files({"train": write_rows(tmp_path / "rows.csv", moods(*text.split()))}, "classification", COLUMNS)
    assert len(logged.messages) == bool(told)
    assert told in logged.text


def test_classes_that_differ_by_a_slip_are_refused_or_kept(tmp_path):
    names = (" bad", "Good", "bad", "cafe\u0301", "caf\u00e9", "good")  # one letter, or two that look like it
    files = {"train": datasets.Dataset.from_list(moods(*names))}
    slips = "differ in spelling alone: ' bad' and 'bad', 'Good' and 'good', 'cafe\\u0301' and 'caf\\xe9'."
    check_refused(lambda: load_files(files, "classification", COLUMNS), slips, "`num_labels` (6)")
    assert load_files(files, "classification", COLUMNS, num_labels=6)[0].label_names == names


def test_a_hidden_label_is_left_out_of_training_and_kept_for_prediction(tmp_path):
    path = write_rows(tmp_path / "ids.csv", moods("0", "-1", "1"))
    splits = load_files({"train": path, "test": path}, "classification", COLUMNS, skip_bad_rows=True)[1]
    assert {split: rows["mood"][:] for split, rows in splits.items()} == {"train": [0, 1], "test": [0, -1, 1]}


def test_a_class_called_minus_one_is_told(tmp_path, logged):
    load_files({"train": write_rows(tmp_path / "names.csv", moods("1", "-1", "2"))}, "classification", COLUMNS)
    assert "names.csv has the class -1. -1 marks a row without a label" in logged.messages[-1]


def test_a_text_in_a_test_split_of_lists_is_no_list_of_its_letters():
    files = {
        "train": [{"body": "a", "mood": ["x"]}, {"body": "b", "mood": ["y"]}],
        "test": [{"body": "c", "mood": "xy"}],
    }
    told = "row 0: column 'mood' has 'xy'. A label must be a list of some of x, y"
    check_refused(lambda: load_files(files, "classification", COLUMNS), told)


def test_a_number_in_a_test_split_of_lists_is_refused():
    files = {"train": moods([1], [2]), "test": moods(1, 2)}
    told = "row 0: column 'mood' has 1; row 1: column 'mood' has 2. A label must be a list of some of 1, 2"
    check_refused(lambda: load_files(files, "classification", COLUMNS), "2 of 2 rows", told)


def test_nested_lists_of_labels_are_refused():
    told = "Column 'mood' of the split 'train' has the label [1], but a class is a text or an integer."
    check_refused(lambda: load_files({"train": moods([[1]], [[2]])}, "classification", COLUMNS), told)


@pytest.mark.parametrize("labels", [[[1, 0], [0, 1]], [[1.0, 0.0], [1.0, 1.0]], [[True, False], [False, False]]])
def test_a_0_or_1_for_each_class_is_no_list_of_ids(labels):
    files = {"train": moods(*labels)}
    told = f"has lists of 0 and 1, such as {labels[0]}, in all rows. If it holds 0 or 1 for each class, give"
    check_refused(lambda: load_files(files, "classification", COLUMNS), told, "label=first,second")


def test_a_0_or_1_for_each_class_of_a_model_is_no_list_of_ids():
    test = {"test": moods([0, 1], [1, 0])}
    told = "has lists of 0 and 1, such as [0, 1], in all rows."
    check_refused(lambda: load_files(test, "classification", COLUMNS, label_names=("0", "1")), told)


def test_a_list_that_names_a_class_twice_is_refused_in_each_split():
    files = {"train": moods([0], [1], [2]), "validation": moods([1, 0, 0])}
    told = "row 0: column 'mood' has [1, 0, 0]. A label must be a list of some of 0, 1, 2, or [] for none; with"
    check_refused(lambda: load_files(files, "classification", COLUMNS), told, "with a column for each class, 0 or 1")


def test_rows_that_all_name_the_classes_0_and_1_of_three_are_ids():
    rows = load_files({"test": moods([0, 1])}, "classification", COLUMNS, label_names=("0", "1", "2"))[1]["test"]
    assert rows["mood"][:] == [[1.0, 1.0, 0.0]]


@pytest.mark.parametrize("other", ["very\u200b good", "very  good", "very\u00a0good", "\ufeffVery good"])
def test_classes_that_differ_in_what_nobody_sees_are_refused(other):
    rows = moods("very good", other, "bad")
    check_refused(
        lambda: load_files({"train": rows}, "classification", COLUMNS), "in spelling alone", ascii(other)[1:-1]
    )


def test_a_number_that_a_32_bit_float_cannot_hold_is_refused():
    told = "1 of 2 rows of the split 'train'", "row 1: column 'mood' has -1e+39"
    check_refused(lambda: load_files({"train": moods(1.0, -1e39)}, "classification", COLUMNS, regression=True), *told)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_labels_of_a_formatted_data_set_are_read_as_they_stand(kind):
    rows = datasets.Dataset.from_list(moods([0], [1, 2], [])).with_format(kind)
    written = load_files({"train": rows}, "classification", COLUMNS)[1]["train"]
    assert written["mood"][:] == [[1.0, 0.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]


def test_a_column_that_a_format_hides_is_read():
    rows = datasets.Dataset.from_list(moods("a", "b")).with_format(columns=["body"])
    assert load_files({"train": rows}, "classification", COLUMNS)[1]["train"]["mood"][:] == [0, 1]


def test_rows_without_any_text_are_refused_for_it():
    rows = [{"body": None, "mood": "a"}, {"body": " ", "mood": "b"}]
    told = "the split 'train' has no text in its column 'body'. Name another."
    check_refused(lambda: load_files({"train": rows}, "classification", COLUMNS), told)


def test_other_numbers_than_the_numbers_that_are_names_are_refused():
    """Stars from 3 to 5: 1 and 2 are none of them, and no ids either."""
    files = {"train": moods(3, 4, 5), "validation": moods(1, 2)}
    check_refused(lambda: load_files(files, "classification", COLUMNS), "column 'mood' has 1", "one of 3, 4, 5")
    names = ("3", "4", "5")
    check_refused(
        lambda: load_files({"test": moods(1, 2)}, "classification", COLUMNS, label_names=names), "column 'mood' has 1"
    )


def test_numbers_beside_names_that_are_none_are_ids():
    """Negative control."""
    files = {"test": moods(0, 1)}
    rows = load_files(files, "classification", COLUMNS, label_names=("bad", "good"))[1]["test"]
    assert rows["mood"][:] == [0, 1]


def test_yes_and_no_say_whether_a_class_holds():
    rows = [{"body": "a", "sea": "No", "sun": "yes"}, {"body": "b", "sea": "YES", "sun": "no"}]
    task, splits = load_files({"train": rows}, "classification", {"text": "body", "label": ["sea", "sun"]})
    assert splits["train"][task.columns["label"]][:] == [[0.0, 1.0], [1.0, 0.0]]


def test_a_label_that_is_not_a_number_is_missing():
    """Other libraries keep NaN in a Parquet file where a label is missing."""
    rows = datasets.Dataset.from_dict({"body": ["a", "b", "c"], "mood": [1.0, float("nan"), 0.0]})
    task, splits = load_files({"train": rows}, "classification", COLUMNS, skip_bad_rows=True)
    assert task.label_names == ("0", "1")
    assert splits["train"]["mood"][:] == [1, 0]


def test_unknown_labels_are_hidden_in_a_test_split_alone():
    files = {"train": moods("a", "b"), "test": moods("odd", "b")}
    options = {"label_names": ["a", "b"], "hide_unknown_labels": True}
    assert load_files(files, "classification", COLUMNS, **options)[1]["test"]["mood"][:] == [None, 1]
    files["validation"] = moods("a", "odd")
    told = "1 of 2 rows of the split 'validation'", "row 1: column 'mood' has 'odd'"
    check_refused(lambda: load_files(files, "classification", COLUMNS, **options), *told)


def test_places_that_are_known_stay_those_of_the_rows_that_are_kept():
    rows = datasets.Dataset.from_list(moods("a", None, "b")).add_column(PLACE, [4, 7, 9])
    kept = load_files({"train": rows}, "classification", COLUMNS, skip_bad_rows=True)[1]["train"]
    assert kept[PLACE][:] == [4, 9]


def test_a_text_of_several_columns_may_have_a_blank_one_but_none_that_is_missing():
    rows = [{"title": title, "body": "a film", "mood": mood} for title, mood in (("", "a"), (None, "b"), ("x", "b"))]
    columns = {"text": ["title", "body"], "label": "mood"}
    check_refused(lambda: load_files({"train": rows}, "classification", columns), "row 1: column 'title' has None")
    kept = load_files({"train": rows}, "classification", columns, skip_bad_rows=True)[1]["train"]
    assert kept["title"][:] == ["", "x"]
