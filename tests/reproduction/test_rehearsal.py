"""`gpt1 reproduce --rehearse`: which cells it runs, what it says of each, and that nothing of it enters the report."""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from modeling_gpt1.commands import finetune, zero_shot
from modeling_gpt1.commands import reproduce as reproduce_command
from modeling_gpt1.reproduction import grid, measuring, rehearsal
from modeling_gpt1.reproduction.cells import Cell


@pytest.fixture
def rehearse(command, data_dir, monkeypatch):
    """Runs the rehearsal with the commands of its cells in this process. Gives the exit status."""
    rehearsal.tokens_per_row.cache_clear()
    monkeypatch.setattr(finetune, "end_processes", lambda trainer: None)
    names = {"finetune": finetune.main, "zero-shot": zero_shot.main}

    def run_here(_, line, log):
        python, *start, file, module, name = line[:6]
        assert (python, *start) == (sys.executable, "-m", "modeling_gpt1.reproduction.measuring")
        assert module == "modeling_gpt1.commands"
        Path(file).write_text(json.dumps({"host": 3 * 2**29, "device": None}))
        try:
            names[name](line[6:])
        except ValueError as error:
            log.write(f"gpt1 {name}: {error}\n")
            log.flush()
            raise subprocess.CalledProcessError(2, line) from error

    monkeypatch.setattr(grid.CellStore, "run_command", run_here)

    def run(*words: str, finetune: tuple[str, ...] = ()) -> int:
        line = command("--rehearse", "3", "--rehearse_rows", "4", *words, finetune=("--use_cpu", *finetune))
        return grid.run_grid(reproduce_command.parse_arguments(line)[0], ["gpt1", "reproduce", *line])

    return run


def found_in(folder: Path) -> dict:
    return json.loads((folder / "rehearsal" / "rehearsal.json").read_text())


def test_every_cell_is_rehearsed(rehearse, data_dir, tmp_path, capsys):
    """Cells that run, one whose rows are bad, and some whose rows are absent."""
    (data_dir / "story_cloze" / "train.jsonl").write_text(
        json.dumps({"context": "he paid .", "ending1": "", "ending2": "green .", "label": 0}) + "\n"
    )
    (data_dir / "dpr").mkdir()
    row = {"sentence": "he paid because it left .", "pronoun": "it", "pronoun_offset": 16}
    (data_dir / "dpr" / "train.jsonl").write_text(
        (json.dumps({**row, "candidates": ["he", "five"], "label": 0}) + "\n") * 8
    )
    experiments = ["--experiments", "fine_tuning", "ablations", "zero_shot", "--variants", "without_auxiliary"]
    tasks = ["--tasks", "story_cloze", "rte", "snli", "mnli", "--zero_shot_tasks", "dpr", "cola"]
    batch = ("--per_device_train_batch_size", "2", "--num_train_epochs", "5", "--report_to", "none")
    assert rehearse(*experiments, *tasks, "--seeds", "1", "2", finetune=batch) == 1

    found = found_in(tmp_path / "out")
    assert {cell["name"]: (cell["status"], cell["runs"]) for cell in found["cells"]} == {
        "story_cloze-full-seed1": ("failed", 2),
        "rte-full-seed1": ("ran", 2),
        "snli-full-seed1": ("failed", 2),
        "mnli-full-seed1": ("failed", 2),
        "story_cloze-without_auxiliary-seed1": ("failed", 2),
        "rte-without_auxiliary-seed1": ("ran", 2),
        "snli-without_auxiliary-seed1": ("failed", 2),
        "mnli-without_auxiliary-seed1": ("failed", 2),
        "dpr-zero-shot-gpt1": ("ran", 1),
        "cola-zero-shot-gpt1": ("failed", 1),
    }
    cells = {cell["name"]: cell for cell in found["cells"]}
    rte = cells["rte-full-seed1"]
    # 8 rows in batches of 2, five times over.
    assert (rte["updates"], rte["host_memory_gib"], rte["device_memory_gib"]) == (20, 1.5, None)
    least, most = rte["seconds_per_update"]
    assert 0 < least <= most and all(
        3600 * hours > 20 * seconds for hours, seconds in zip(rte["hours"], (least, most), strict=True)
    )
    absent = f"ValueError: No file of task 'snli' found in {data_dir / 'snli'}"
    assert cells["snli-full-seed1"]["reason"].startswith(absent)
    assert cells["story_cloze-full-seed1"]["reason"].splitlines()[-1] == (
        "    gpt1 finetune: Row 0 of split 'train': choices (column ['ending1', 'ending2']) holds '' of type str; "
        "it needs a text of at least one word. Remove or correct the row."
    )

    lines = capsys.readouterr().out.splitlines()
    assert "snli-full-seed1                        FAILED" in lines
    assert any(line.startswith("The whole would take ") and line.endswith(": 5 runs.") for line in lines)
    assert lines[-1].startswith("7 of 10 cells failed: story_cloze-full-seed1, snli-full-seed1, mnli-full-seed1, ")
    # Nothing is where the report looks.
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rehearsal"]
    assert not list((tmp_path / "out" / "rehearsal" / "work").iterdir())


def test_a_rehearsal_goes_on(rehearse, tmp_path, capsys):
    settings = ["--experiments", "fine_tuning", "--tasks", "rte", "--seeds", "1"]
    assert rehearse(*settings) == rehearse(*settings) == 0
    assert "rte-full-seed1: finished before" in capsys.readouterr().out
    assert found_in(tmp_path / "out")["cells"][0]["status"] == "ran"


def test_a_longer_update_is_scaled_to_the_mean_row():
    """The first update is warm-up; seconds count by the tokens of the others."""
    logs = [
        {"train_runtime": 10.0, "num_input_tokens_seen": 100},
        {"train_runtime": 13.0, "num_input_tokens_seen": 400},
    ]
    assert rehearsal.seconds_per_token(logs) == pytest.approx(0.01)
    assert rehearsal.seconds_per_token(logs[:1]) == pytest.approx(0.1)


def test_hours_are_those_of_all_runs():
    arguments = SimpleNamespace(rehearse=3, rehearse_rows=4, jobs=1)
    result = {"seconds": 9.0, "memory": {"host": 2**30, "device": None}, "whole": {"hours": [1.0, 1.5]}}
    cell = Cell("rte-full-seed1", {}, {"runs": 2}, print)
    found = rehearsal.describe_rehearsal(arguments, ["gpt1"], [cell], [result], {})
    assert found["cells"][0]["hours_of_all_runs"] == [2.0, 3.0]


def test_figures_as_text():
    assert [rehearsal.show(value, ".1f") for value in (None, 2.04, [1.0, 2.0], [3.0, 3.04])] == [
        *("-", "2.0", "1.0 to 2.0", "3.0"),
    ]


def test_the_peak_of_a_process(tmp_path, monkeypatch):
    path = tmp_path / "memory.json"
    monkeypatch.setattr(sys, "argv", ["python"])
    calls = []

    def run_module(name, **fields):
        calls.append((name, sys.argv[1:], fields["run_name"]))
        raise SystemExit(3)

    monkeypatch.setattr(runpy, "run_module", run_module)
    with pytest.raises(SystemExit):
        measuring.main([str(path), "some.module", "finetune", "--task", "rte"])
    assert calls == [("some.module", ["finetune", "--task", "rte"], "__main__")]
    peak = json.loads(path.read_text())
    assert set(peak) == {"host", "device"}
    if Path("/proc/self/status").exists():
        assert 2**26 < peak["host"] < 2**38
