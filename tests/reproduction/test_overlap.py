"""How much of a task's rows a text holds: which n-grams count, which rows overlap, and scores without them."""

import json
import math

import pytest
from datasets import Dataset
from support.files import write_rows
from support.refusals import refusal

from modeling_gpt1.commands import overlap as command
from modeling_gpt1.reproduction.models import write_finished_cells
from modeling_gpt1.reproduction.overlap import (
    ScoredRows,
    gram_hashes,
    overlaps_of,
    rows_in_training,
    scores_without,
    words_of,
)
from tokenization import get_task

SST2, RTE = get_task("sst2"), get_task("rte")


def sentences(*texts):
    return ScoredRows(SST2, "validation", Dataset.from_list([{"sentence": text, "label": 1} for text in texts]))


def pieces(*documents):
    """Each document as its pieces."""
    return [
        {"text": text, "starts_document": number == 0}
        for document in documents
        for number, text in enumerate(document)
    ]


def told(rows, *documents, length=3):
    (found,) = overlaps_of(pieces(*documents), [rows], [length])
    return found


# ---- Which n-grams count


def test_words_are_letters_and_digits_in_lower_case():
    assert words_of("He said: “It's 5_6 o’clock!”") == ["he", "said", "it", "s", "5", "6", "o", "clock"]


def test_equal_ngrams_have_equal_numbers():
    hashes = gram_hashes("a b c a b c b".split(), 3)
    assert len(hashes) == 5
    assert hashes[0] == hashes[3]
    assert len(set(hashes.tolist())) == 4


def test_the_order_of_words_counts():
    assert gram_hashes(["a", "b"], 2) != gram_hashes(["b", "a"], 2)


def test_a_text_of_fewer_words_has_no_ngram():
    assert len(gram_hashes(["a", "b"], 3)) == 0


def test_ngrams_that_the_text_has_are_counted():
    found = told(sentences("the old man left", "green tea"), ["He saw THE OLD, MAN there."])
    assert (found["ngrams"], found["ngrams_found"], found["share"]) == (2, 1, 0.5)


def test_rows_that_overlap_are_named():
    found = told(sentences("a b c", "x y z", "w b c d"), ["b c d", "and a b c"])
    assert found["overlapping"] == [0, 2]
    assert (found["rows"], found["rows_with_ngrams"]) == (3, 3)


def test_rows_that_are_too_short_are_told():
    found = told(sentences("a b"), ["a b c"])
    assert (found["share"], found["rows_with_ngrams"], found["overlapping"]) == (None, 0, [])


def test_an_ngram_may_go_from_piece_to_piece_of_a_document():
    assert told(sentences("a b c"), ["x a ", "b ", "c y"])["overlapping"] == [0]


def test_an_ngram_does_not_go_from_document_to_document():
    assert told(sentences("a b c"), ["x a b"], ["c y"])["overlapping"] == []


def test_an_ngram_does_not_go_from_text_to_text_of_a_row():
    rows = Dataset.from_list([{"sentence1": "a b", "sentence2": "c d", "label": 0}])
    assert told(ScoredRows(RTE, "validation", rows), ["a b c d"])["ngrams"] == 0


def test_each_choice_is_a_text():
    rows = Dataset.from_list([{"article": "x", "question": "y", "options": ["a b c", "d e f"], "label": 0}])
    found = told(ScoredRows(get_task("race-middle"), "validation", rows), ["d e f"])
    assert (found["ngrams"], found["ngrams_found"]) == (2, 1)


def test_lengths_and_splits_are_told_one_by_one():
    all_rows = [sentences("a b c d"), sentences("q r s t")]
    found = overlaps_of(pieces(["a b c d"]), all_rows, [2, 4])
    assert [(of["ngram"], of["share"]) for of in found] == [(2, 1.0), (4, 1.0), (2, 0.0), (4, 0.0)]


# ---- Rows of the training split


def test_rows_that_stand_in_the_training_rows_are_named():
    training = Dataset.from_list([{"sentence1": "a", "sentence2": "b", "label": 0}])
    scored = [{"sentence1": "a", "sentence2": "b", "label": 1}, {"sentence1": "a", "sentence2": "c", "label": 1}]
    assert rows_in_training(RTE, Dataset.from_list(scored), training) == [0]


# ---- Scores


def run(variant, predictions, seed=1, n_transfer=None):
    answers = {"validation": {"labels": "1 1 0 0", "predictions": predictions}}
    return {"task": "sst2", "variant": variant, "n_transfer": n_transfer, "seed": seed, "answers": answers}


def test_scores_are_given_with_and_without_rows():
    cells = [run("full", "1 1 1 1"), run("full", "1 1 0 0", seed=2), run("transfer", "0 0 0 0", n_transfer=0)]
    assert scores_without(cells, SST2, "validation", 4, [0, 1]) == [
        {"variant": "full", "seeds": 2, "failed": 0, "with": 75.0, "without": 50.0},
        {"variant": "transfer-0", "seeds": 1, "failed": 0, "with": 50.0, "without": 100.0},
    ]


FAILED = {"task_loss": 0.69, "loss_of_frequencies": 0.69}


def test_a_run_that_failed_to_train_is_counted_and_is_in_no_mean():
    cells = [run("full", "1 1 0 0"), {**run("full", "1 1 1 1", seed=2), "training": FAILED}]
    assert scores_without(cells, SST2, "validation", 4, [0]) == [
        {"variant": "full", "seeds": 1, "failed": 1, "with": 100.0, "without": 100.0}
    ]


def test_a_run_that_diverged_is_counted_though_it_has_no_answers():
    diverged = {"task": "sst2", "variant": "full", "n_transfer": None, "seed": 2, "metrics": {}}
    diverged["training"] = {"task_loss": math.nan, "loss_of_frequencies": 0.7}
    assert scores_without([run("full", "1 1 0 0"), diverged], SST2, "validation", 4, [0]) == [
        {"variant": "full", "seeds": 1, "failed": 1, "with": 100.0, "without": 100.0}
    ]


def test_where_all_runs_failed_there_is_no_score():
    cells = [{**run("full", "1 1 1 1"), "training": FAILED}]
    assert scores_without(cells, SST2, "validation", 4, [0]) == [
        {"variant": "full", "seeds": 0, "failed": 1, "with": None, "without": None}
    ]


def test_without_any_row_there_is_no_score():
    (found,) = scores_without([run("full", "1 1 1 1")], SST2, "validation", 4, [0, 1, 2, 3])
    assert found["without"] is None


def test_runs_on_other_rows_are_left_out():
    assert scores_without([run("full", "1 1 1 1")], SST2, "validation", 5, []) == []


# ---- The command


@pytest.fixture
def words(tmp_path):
    """Words of the command, on a text with the first of two rows."""
    row = {"sentence": "one two three four five six seven eight", "label": 1}
    other = {"sentence": "a fine film", "label": 0}
    write_rows(tmp_path / "data" / "sst2" / "validation.jsonl", [row, other])
    write_rows(tmp_path / "data" / "sst2" / "train.jsonl", [other])
    (tmp_path / "book.txt").write_text("He counted: one, two, three, four, five, six, seven, eight, nine.")
    return ["--train_files", str(tmp_path / "book.txt"), "--task", "SST-2", "--data_dir", str(tmp_path / "data")]


def test_the_command_prints_a_line_for_each_length(words, capsys):
    command.main(words)
    assert capsys.readouterr().out.splitlines() == [
        "sst2 validation, 8-grams: 100.00% of 1 n-grams in the text; 1 of 2 rows overlap, 1 are long enough; "
        "1 rows stand in the training rows",
        "sst2 validation, 13-grams: no n-gram in the text; 0 of 2 rows overlap, 0 are long enough; "
        "1 rows stand in the training rows",
    ]


def test_the_command_writes_what_it_found(words, tmp_path):
    answers = {"validation": {"labels": "1 0", "predictions": "1 1"}}
    write_finished_cells(
        tmp_path / "cells.json.gz", [{"task": "sst2", "variant": "full", "seed": 1, "answers": answers}]
    )
    output = tmp_path / "overlap.json"
    command.main([*words, "--cells", str(tmp_path / "cells.json.gz"), "--output_file", str(output)])
    eight, _ = json.loads(output.read_text())["results"]
    assert eight["overlapping"] == [0]
    assert eight["in_training"] == [1]
    assert eight["scores"] == [{"variant": "full", "seeds": 1, "failed": 0, "with": 50.0, "without": 0.0}]


def test_the_command_says_how_many_runs_failed(words, tmp_path, capsys):
    answers = {"validation": {"labels": "1 0", "predictions": "1 0"}}
    fine = {"task": "sst2", "variant": "full", "seed": 1, "answers": answers}
    failed = {**fine, "seed": 2, "training": FAILED}
    fresh = {**failed, "variant": "without_pretraining"}
    write_finished_cells(tmp_path / "cells.json.gz", [fine, failed, fresh])
    command.main([*words, "--ngrams", "8", "--cells", str(tmp_path / "cells.json.gz")])
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  full (1 run, 1 more failed to train): 100.0 with all rows, 100.0 without them",
        "  without_pretraining (0 runs, 1 more failed to train): no score",
    ]


def test_the_command_says_that_no_run_has_answers_to_the_rows(words, tmp_path, capsys):
    """As runs with --max_eval_samples, which are left out."""
    answers = {"validation": {"labels": "1", "predictions": "1"}}
    path = tmp_path / "cells.json.gz"
    write_finished_cells(path, [{"task": "sst2", "variant": "full", "seed": 1, "answers": answers}])
    command.main([*words, "--ngrams", "8", "--cells", str(path)])
    assert capsys.readouterr().out.splitlines()[1:] == [f"  no scores: no run of {path} has answers to all 2 rows"]


@pytest.mark.parametrize("damage", [lambda content: b"{}", lambda content: content[:-9], lambda content: b""])
def test_a_file_that_has_no_cells_is_named(damage, words, tmp_path):
    path = tmp_path / "cells.json.gz"
    write_finished_cells(path, [{"task": "sst2", "answers": "0 1 1 0"}])
    path.write_bytes(damage(path.read_bytes()))
    told = refusal(command.main, [*words, "--cells", str(path)])
    assert f"{path} cannot be read as cells" in told
    assert "Pass the cells.json.gz" in told


@pytest.mark.parametrize(
    ("own", "given", "remedy"),
    [
        (["--task", "sst2", "--train_files", "a", "--ngrams", "0"], "--ngrams is 0", "such as 8 13"),
        (["--task", "sst2"], "--train_files is missing", "Pass --train_files"),
        (["--train_files", "a"], "--task is missing", "--task with a task"),
        (
            ["--task", "mrpc", "--train_files", "a", "--data_dir", "nowhere"],
            "No file of task 'mrpc'",
            "pass another `data_dir`: files",
        ),
    ],
)
def test_refuses(own, given, remedy):
    sentence = refusal(command.main, own)
    assert given in sentence
    assert remedy in sentence
