"""benchmarks/gpu.py: what is repeated, what is not, and limits; the steps themselves are tested with their scripts."""

import os
import sys
import time
from datetime import date
from pathlib import Path

SLOW = """
import subprocess, sys, pathlib, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
pathlib.Path({path!r}).write_text(str(child.pid))
time.sleep(60)
"""
WRITE = "import os, pathlib; pathlib.Path(os.environ['GPT1_RESULTS'], {name!r}).write_text(os.environ['PYTHONPATH'])"


def test_a_finished_step_is_not_repeated_and_a_failed_one_stops_no_other(gpu, monkeypatch, tmp_path, capsys):
    def words(program: str) -> list[str]:
        return [sys.executable, "-c", program]

    today = date.today().isoformat()
    steps = {
        "first": (words(WRITE.format(name=f"{today}-first.json")), 1),
        "wrong": (words("raise SystemExit(3)"), 1),
        "slow": (words(SLOW.format(path=str(tmp_path / "child"))), 0.05),
        "last": (words(WRITE.format(name=f"{today}-last.json")), 1),
    }
    monkeypatch.setattr(gpu, "steps_of", lambda quick, families: steps)
    monkeypatch.setenv("PYTHONPATH", "where packages lie")
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{today}-first.json", f"{today}-last.json", "child"}
    assert (tmp_path / f"{today}-first.json").read_text().endswith(f"{os.pathsep}where packages lie")
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)  # what a step started ends with it
    capsys.readouterr()
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    printed = capsys.readouterr().out
    assert "first: done today" in printed
    assert "wrong: FAILED (3)" in printed
    assert "slow: FAILED (over 0.05" in printed


def test_a_step_that_fails_with_a_result_has_failed_at_the_next_call_too(gpu, monkeypatch, tmp_path, capsys):
    today = date.today().isoformat()
    program = WRITE.format(name=f"{today}-tests.json") + "; raise SystemExit(1)"
    monkeypatch.setattr(gpu, "steps_of", lambda quick, families: {"tests": ([sys.executable, "-c", program], 1)})
    for told in (
        "tests: FAILED (1)",
        f"tests: FAILED today. Delete {tmp_path / f'{today}-tests-failed.json'} to repeat it",
    ):
        assert gpu.run_steps(tmp_path, quick=True) == ["tests"]
        assert told in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == [f"{today}-tests-failed.json"]


def test_the_tests_read_the_results_of_the_documentation_wherever_those_of_today_go(gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("GPT1_RESULTS", str(tmp_path))
    monkeypatch.setattr(gpu, "save_result", lambda *of_tests: None)
    (tmp_path / "test_it.py").write_text("import os\ndef test_it():\n    assert 'GPT1_RESULTS' not in os.environ\n")
    assert gpu.run_tests([str(tmp_path / "test_it.py")], {}) == 0


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_families_go_on_in_the_minutes_that_remain_and_are_saved_when_nothing_is_left(gpu, monkeypatch, tmp_path):
    words, _ = gpu.steps_of(False, "--books books --work_dir 'my runs'")["families"]
    assert words[2:-1] == ["--alone", "families", "--books", "books", "--work_dir", "my runs", "--jobs"]
    assert "families" not in gpu.steps_of(False)
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    said = tmp_path / "said"
    monkeypatch.chdir(tmp_path)
    for code, expected in ((3, "--jobs 2\n"), (0, "--jobs 2\n--jobs 2 --save\n")):
        program = f"CODE = {code}\nimport sys; print(*sys.argv[1:], file=open('said', 'a')); sys.exit(CODE)"
        (tmp_path / "families.py").write_text(program)
        said.unlink(missing_ok=True)
        assert gpu.run_families(["--jobs", "2"]) == code
        assert said.read_text() == expected
    monkeypatch.setattr(gpu, "MINUTES", 0)
    monkeypatch.setattr(gpu, "steps_of", lambda quick, families: {"late": ([sys.executable, "-c", "1/0"], 25)})
    assert gpu.run_steps(tmp_path, quick=True) == ["late"]
