"""benchmarks/gpu.py: what is repeated, what is not, and limits; the steps themselves are tested with their scripts."""

import sys
from datetime import date

import pytest

WRITE = "import os, pathlib; pathlib.Path(os.environ['GPT1_RESULTS'], {name!r}).write_text('x')"


@pytest.fixture(scope="module")
def gpu(imported):
    with imported("gpu") as module:
        yield module


def test_a_finished_step_is_not_repeated_and_a_failed_one_stops_no_other(gpu, monkeypatch, tmp_path, capsys):
    def words(program: str) -> list[str]:
        return [sys.executable, "-c", program]

    today = date.today().isoformat()
    steps = {
        "first": (words(WRITE.format(name=f"{today}-first.json")), 1),
        "wrong": (words("raise SystemExit(3)"), 1),
        "slow": (words("import time; time.sleep(60)"), 0.005),
        "last": (words(WRITE.format(name=f"{today}-last.json")), 1),
    }
    monkeypatch.setattr(gpu, "steps_of", lambda quick: steps)
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    assert {path.name for path in tmp_path.iterdir()} == {f"{today}-first.json", f"{today}-last.json"}
    capsys.readouterr()
    assert gpu.run_steps(tmp_path, quick=True) == ["wrong", "slow"]
    printed = capsys.readouterr().out
    assert "first: done today" in printed and "wrong: FAILED (3)" in printed and "slow: FAILED (over 0.005" in printed
