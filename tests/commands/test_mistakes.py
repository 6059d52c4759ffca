"""What `gpt1 finetune` and `gpt1 predict` show of mistakes, with a model that finds every text happy."""

import copy
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from support.files import read_rows, save_folder, write_rows

from modeling_gpt1 import GPT1Config, prepare_finetuning
from modeling_gpt1.commands import finetune, predict, rows
from modeling_gpt1.commands.confusion import draw_confusion
from tokenization import Task
from tokenization.rows.metrics import confusion_matrix, counts_of_recall

SIZE = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64}
FAIR, DULL, GREEN = "the whole room will laugh .", "nobody in the village smiled .", "the river had turned green ."
ROWS = [{"title": FAIR, "body": DULL, "mood": mood} for mood in ("happy", "sad", "happy")]
RECALL = "recall: happy 1.00 (2 of 2) · sad 0.00 (0 of 1)"


@pytest.fixture(scope="module")
def happy_model(plain_tokenizer, tmp_path_factory):
    """A folder whose model finds each text happy; a text is a title and a body."""
    task = Task("moods", "classification", {"text": ["title", "body"], "label": "mood"}, ("happy", "sad"))
    parts = prepare_finetuning(GPT1Config(**SIZE), task, copy.deepcopy(plain_tokenizer))
    with torch.no_grad():
        parts["model"].task_head.score.weight.zero_()
        parts["model"].task_head.score.bias.copy_(torch.tensor([1.0, 0.0]))
    return save_folder(tmp_path_factory.mktemp("happy"), parts["model"], parts["processing_class"])


@pytest.fixture
def evaluate(happy_model, tmp_path, caplog):
    """Evaluates rows by `gpt1 finetune`, and returns the folder of the results."""

    def run(of_file: list[dict], *more: str) -> Path:
        file = write_rows(tmp_path / "rows.jsonl", of_file)
        words = ["--model", happy_model, "--validation_file", file, "--do_eval", "--use_cpu", "--disable_tqdm", "true"]
        caplog.set_level(logging.INFO)
        finetune.main([*words, "--output_dir", str(tmp_path / "out"), *more])
        return tmp_path / "out"

    return run


@pytest.fixture
def predicted(happy_model, tmp_path, capsys):
    """Predicts rows by `gpt1 predict`, and returns what stands on stderr."""

    def run(of_file: list[dict]) -> list[str]:
        capsys.readouterr()
        predict.main([happy_model, "--file", write_rows(tmp_path / "new.jsonl", of_file), "--device", "cpu"])
        return capsys.readouterr().err.splitlines()

    return run


def test_evaluated_predictions_have_the_texts_by_role_and_the_gold_label(evaluate):
    lines = read_rows((evaluate(ROWS) / "eval_predictions.jsonl").read_text(encoding="utf-8"))
    assert [line.pop("scores")["happy"] > 0.5 for line in lines] == [True] * 3
    assert lines == [
        {"index": index, "text": [FAIR, DULL], "gold": gold, "label": "happy"}
        for index, gold in enumerate(["happy", "sad", "happy"])
    ]


def test_an_evaluation_ends_with_the_recall_of_each_class(evaluate, caplog):
    evaluate(ROWS)
    assert [line.partition(" · ")[2] for line in caplog.messages if "recall" in line] == [RECALL]


def test_predicted_test_rows_with_labels_have_a_recall_too(evaluate, tmp_path, caplog):
    test_file = write_rows(tmp_path / "test.jsonl", ROWS[:2])
    evaluate(ROWS, "--test_file", test_file, "--do_predict")
    assert f"{test_file} · recall: happy 1.00 (1 of 1) · sad 0.00 (0 of 1)" in caplog.messages


def test_an_evaluation_draws_its_confusion_matrix(evaluate):
    pytest.importorskip("matplotlib")
    assert (evaluate(ROWS) / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_an_evaluation_draws_nothing(evaluate, monkeypatch):
    monkeypatch.setattr("modeling_gpt1.commands.finetune.run.is_matplotlib_available", lambda: False)
    assert not (evaluate(ROWS) / "confusion_matrix.png").exists()


def test_a_prediction_ends_with_the_recall_of_each_class(predicted):
    assert predicted(ROWS)[-2:] == ["3 rows have a label · accuracy 0.667", RECALL]


def test_one_unknown_label_is_named_and_the_other_rows_are_scored(predicted, caplog):
    assert predicted([*ROWS, {**ROWS[0], "mood": "happy "}])[-2:] == ["3 rows have a label · accuracy 0.667", RECALL]
    told = "row 3 has the unknown label 'happy '. It is predicted, but not scored. A label must be one of happy, sad."
    assert [line.partition(": ")[2] for line in caplog.messages if "unknown label" in line] == [told]


def test_many_unknown_labels_are_named_in_one_line(predicted, caplog):
    predicted([{**ROWS[0], "mood": mood} for mood in "abcde"])
    (told,) = [line for line in caplog.messages if "unknown label" in line]
    assert "row 2 has the unknown label 'c', and 2 more do. They are predicted, but not scored." in told


def test_a_row_without_a_label_is_no_unknown_label(predicted, caplog):
    predicted([*ROWS, {**ROWS[0], "mood": None}])
    assert "unknown label" not in caplog.text


def test_of_many_classes_those_with_the_least_recall_are_shown():
    task = Task("many", "classification", {"text": "a", "label": "b"}, tuple(f"c{index}" for index in range(12)))
    labels = np.arange(12)
    predictions = np.where(labels == 11, 0, labels)
    told = rows.describe_recall(predictions, labels, task)
    assert told.startswith("least recall of 12 classes: c11 0.00 (0 of 1) · c0 1.00 (1 of 1) · ")
    assert told.count(" of 1)") == 10


def test_a_class_without_a_row_has_no_recall():
    task = Task("moods", "classification", {"text": "a", "label": "b"}, ("happy", "sad"))
    assert rows.describe_recall(np.array([0]), np.array([0]), task) == "recall: happy 1.00 (1 of 1)"


def test_a_confusion_matrix_has_true_classes_as_rows():
    counts = confusion_matrix(np.array([1, 1, 0, 2]), np.array([0, 1, 0, -1]), 3)
    assert counts.tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_rows_of_several_labels_have_the_recall_of_each():
    predictions, labels = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 1], [0, 1], [1, -100]])
    found, of = counts_of_recall(predictions, labels, 2)
    assert (found.tolist(), of.tolist()) == ([1, 1], [2, 2])


def test_the_picture_has_the_classes_and_their_counts():
    pytest.importorskip("matplotlib")
    (axes,) = draw_confusion(np.array([[3, 1], [0, 2]]), ("happy", "a$b")).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["happy", r"a\$b"]
    assert [text.get_text() for text in axes.texts] == ["3", "1", "0", "2"]
