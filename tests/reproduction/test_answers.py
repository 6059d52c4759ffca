"""The answers that `gpt1 finetune` keeps of an evaluation, whose figures are those of the trainer."""

import json

import pytest
from support.files import write_rows

from modeling_gpt1.commands import finetune
from modeling_gpt1.reproduction import cells
from modeling_gpt1.reproduction.scores import resample


@pytest.fixture
def train(models, data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("modeling_gpt1.commands.finetune.run.end_processes", lambda trainer: None)
    cells.scored_splits.cache_clear()

    def run(task: str, name: str, *words: str):
        settings = ["--task", task, "--data_dir", str(data_dir), "--model", str(models[0]), "--do_train", "--do_eval"]
        settings += ["--max_steps", "2", "--use_cpu", "--report_to", "none", "--save_strategy", "no"]
        finetune.main([*settings, "--output_dir", str(tmp_path / name), *words])
        return tmp_path / name

    return run


@pytest.mark.parametrize("hidden", [None, -1])
def test_a_split_whose_labels_are_hidden_is_not_scored(tmp_path, hidden):
    row = {"premise": "the old farmer walked", "hypothesis": "the farmer walked"}
    row |= {"sentence1": "the old farmer walked", "sentence2": "the farmer walked"}
    for task, of_test in (("scitail", hidden), ("mrpc", 1)):  # GLUE's own labels of MRPC's test split are there, too
        for split, label in (("validation", 0), ("test", of_test)):
            write_rows(tmp_path / task / f"{split}.jsonl", [{**row, "label": value} for value in (1, label)])
        cells.scored_splits.cache_clear()
        assert cells.scored_splits(task, str(tmp_path)) == {"eval": ("validation",)}


def test_the_evaluation_is_that_of_the_trainer(train, data_dir):
    """The one during the training is made by `Trainer.evaluate`, the last one is read of the kept predictions."""
    kept = train("rte", "kept", "--eval_strategy", "steps", "--eval_steps", "2")
    history = json.loads((kept / "trainer_state.json").read_text())["log_history"]
    of_trainer = next(record for record in history if "eval_loss" in record)
    results = json.loads((kept / "eval_results.json").read_text())
    times = ("runtime", "per_second", "preparation_time", "step")
    found = [{key: of[key] for key in of if not key.endswith(times)} for of in (of_trainer, results)]
    assert found[0] == found[1]
    assert {"eval_accuracy", "eval_loss", "eval_task_loss", "epoch"} <= set(found[0])
    assert not (kept / "predictions.jsonl").exists()

    answers = cells.read_answers("rte", str(data_dir), kept)
    assert list(answers) == ["validation"]
    assert answers["validation"]["labels"] == "0 0 0 0 1 1 1 1"
    accuracy = resample(**answers["validation"], metric="accuracy").mean()
    assert accuracy == pytest.approx(100 * results["eval_accuracy"], abs=3)


def test_only_a_newline_ends_a_line_of_the_predictions(tmp_path, data_dir):
    """Other characters at which `str.splitlines` ends a line stand in the texts of evaluated rows."""
    for character in "\u2028\u2029\x85":
        line = {"index": 4, "premise": f"he{character}paid", "label": "not_entailment"}
        text = json.dumps(line, ensure_ascii=False) + "\n"
        (tmp_path / "eval_predictions.jsonl").write_text(text, encoding="utf-8")
        expected = {"validation": {"labels": "1", "predictions": "1"}}
        assert cells.read_answers("rte", str(data_dir), tmp_path) == expected


def test_choices_are_kept_as_their_places(train, data_dir):
    answers = cells.read_answers("story_cloze", str(data_dir), train("story_cloze", "choices", "--do_predict"))
    assert {split: of["labels"] for split, of in answers.items()} == {"validation": "0 1", "test": "0 1"}
    assert all(set(of["predictions"].split()) <= {"0", "1"} for of in answers.values())


def test_splits_in_parts_have_files_of_their_own(tmp_path, data_dir):
    line = {"index": 0, "label": "contradiction", "scores": []}
    write_rows(tmp_path / "eval_predictions_validation_matched.jsonl", [line])
    expected = {"labels": "1", "predictions": "2"}
    assert cells.read_answers("mnli", str(data_dir), tmp_path) == {"validation_matched": expected}


def test_answers_of_a_regression_are_kept_whole(tmp_path):
    """Rounded, predictions that differ little would be ties, and their resampled correlation another one."""
    given = [2.7000001, 2.7000002, 2.7000004]
    rows = [{"sentence1": "he paid", "sentence2": "she paid", "label": label} for label in (0.0, 3.8, 5.0)]
    write_rows(tmp_path / "stsb" / "validation.jsonl", rows)
    write_rows(tmp_path / "eval_predictions.jsonl", [{"index": at, "score": of} for at, of in enumerate(given)])
    answers = cells.read_answers("stsb", str(tmp_path), tmp_path)["validation"]
    assert [float(score) for score in answers["predictions"].split()] == given
    assert [float(label) for label in answers["labels"].split()] == pytest.approx([0.0, 3.8, 5.0])
    resampled = resample(**answers, metric="pearson")
    assert resampled[resampled != 0].mean() > 90  # of three rows, or of the two that are drawn
