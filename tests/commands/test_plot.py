"""`gpt1 plot` on made-up logs: which records become which curves, where they are read from, and refusals."""

import json
import math
import resource
from pathlib import Path

import pytest
from support.refusals import refusal

from modeling_gpt1.commands import plot

pytest.importorskip("matplotlib")


def make_records(scale=1.0, num_steps=4):
    records = []
    for step in range(1, num_steps + 1):
        place = {"step": step, "num_input_tokens_seen": 1000 * step}
        figures = {"loss": scale / step, "learning_rate": 0.1, "grad_norm": scale, "tokens_per_second": 5.0}
        records.append({**place, **figures, "mfu": 0.4})
    records.append({**place, "eval_loss": 2.0, "eval_perplexity": 7.4 * scale})
    records.append({"step": step, "samples": ["it was"]})
    return [*records, {**place, "train_runtime": 3.0, "train_loss": 1.0}]


def write_state(folder: Path, records) -> Path:
    """A trainer's; NaN stands there as Trainer writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {"global_step": max((record["step"] for record in records), default=0), "log_history": records}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def curves_of(figure) -> dict[str, list[tuple[list, list]]]:
    return {
        axes.get_title(): [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
        for axes in figure.axes
    }


def test_every_run_is_a_line_in_every_panel():
    figure = plot.draw({"small": make_records(), "large": make_records(2.0, num_steps=3)})
    curves, small, large = curves_of(figure), [1000, 2000, 3000, 4000], [1000, 2000, 3000]
    assert curves == {
        "training loss": [(small, [1.0, 0.5, 1 / 3, 0.25]), (large, [2.0, 1.0, 2 / 3])],
        "held-out perplexity": [([4000], [7.4]), ([3000], [14.8])],
        "learning rate": [(small, [0.1] * 4), (large, [0.1] * 3)],
        "gradient norm": [(small, [1.0] * 4), (large, [2.0] * 3)],
        "tokens per second": [(small, [5.0] * 4), (large, [5.0] * 3)],
        "model FLOP utilisation": [(small, [0.4] * 4), (large, [0.4] * 3)],
    }
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["small", "large"]
    of_logarithms = {axes.get_title() for axes in figure.axes if axes.get_yscale() == "log"}
    assert of_logarithms == {"held-out perplexity", "gradient norm"}
    assert {axes.get_xlabel() for axes in figure.axes} == {"tokens seen"}


def test_a_fine_tuning_has_panels_of_its_losses_and_scores():
    records = [
        {"step": 1, "loss": 3.0, "task_loss": 1.0, "lm_loss": 4.0, "learning_rate": 0.1},
        {"step": 2, "eval_loss": 2.5, "eval_accuracy": 0.75, "eval_task_loss": 0.5, "eval_runtime": 1.0},
    ]
    assert curves_of(plot.draw({"run": records})) == {
        "training loss": [([1], [3.0])],
        "task loss": [([1], [1.0])],
        "auxiliary loss": [([1], [4.0])],
        "evaluation loss": [([2], [2.5])],
        "accuracy": [([2], [0.75])],
        "learning rate": [([1], [0.1])],
    }


def test_scores_of_several_evaluated_splits_have_a_panel_each():
    records = [{"step": 2, f"eval_{split}_f1": 0.5} for split in ("matched", "mismatched")]
    assert list(curves_of(plot.draw({"run": records}))) == ["matched f1", "mismatched f1"]


def test_what_a_run_has_not_logged_has_no_panel():
    records = [{"step": 2, "loss": 0.5, "grad_norm": math.nan}, {"step": 4, "loss": math.inf, "grad_norm": 1.5}]
    assert curves_of(plot.draw({"run": records})) == {"training loss": [([2], [0.5])], "gradient norm": [([4], [1.5])]}


def test_where_the_log_is_read_from(tmp_path):
    run = tmp_path / "run"
    for step in (90, 100):
        write_state(run / f"checkpoint-{step}", [{"step": step}])
    assert plot.read_run(run) == [{"step": 100}]
    write_state(run, [{"step": 120, "loss": math.nan}])
    assert plot.read_run(run)[0]["step"] == 120
    write_state(run / "checkpoint-130", [{"step": 130}])  # the finished run was prolonged
    assert plot.read_run(run / "trainer_state.json") == [{"step": 130}]


def test_a_picture_is_written(tmp_path, capsys):
    runs = [str(write_state(tmp_path / name, make_records())) for name in ("one", "a $_{$ name")]
    plot.main([*runs, "--output_file", str(tmp_path / "curves.png")])
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out == f"written to {tmp_path / 'curves.png'}\n"
    plot.main([*runs, "--output_file", str(tmp_path / "curves.svg")])  # texts are comments there
    before, limits = (tmp_path / "curves.png").read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limits[1]))  # files no longer than this: EFBIG
    try:
        with pytest.raises(OSError, match="File too large"):
            plot.main([*runs, "--output_file", str(tmp_path / "curves.png")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "curves.png").read_bytes() == before
    assert "10^" not in (svg := (tmp_path / "curves.svg").read_text())
    assert r"\mathdefault{0.1}" in svg


def test_refusals(tmp_path):
    output = ["--output_file", str(tmp_path / "curves.png")]
    assert f"There is no folder {tmp_path / 'run'}. Pass" in refusal(plot.main, [str(tmp_path / "run"), *output])
    assert f"{tmp_path} has no log" in refusal(plot.main, [str(tmp_path), *output])
    assert "has logged nothing yet" in refusal(plot.main, [str(write_state(tmp_path / "empty", [])), *output])
    assert not (tmp_path / "curves.png").exists()


def test_a_run_whose_name_begins_with_a_line_is_in_the_legend():
    figure = plot.draw({"_old": make_records(), "new": make_records()})
    assert [text.get_text().strip() for text in figure.axes[0].get_legend().get_texts()] == ["_old", "new"]
