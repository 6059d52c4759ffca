"""benchmarks/gpu.py: what is repeated, what is not, and limits; the steps themselves are tested with their scripts."""

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
WRITE = "import os, pathlib; pathlib.Path(os.environ['GPT1_RESULTS'], {name!r}).write_text('x')"


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
    monkeypatch.setattr(gpu, "steps_of", lambda quick: steps)
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{today}-first.json", f"{today}-last.json", "child"}
    child = int((tmp_path / "child").read_text())
    deadline = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)  # what a step started ends with it
    printed = capsys.readouterr().out
    assert "wrong: FAILED (3)" in printed and "slow: FAILED (over 0.05" in printed
    monkeypatch.setattr(gpu, "MINUTES", 0)  # no time remains
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    assert "first: done today" in capsys.readouterr().out


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
