"""benchmarks/dialogue.py: what it keeps of a run, and what the page says of its figures."""

import json
import math
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--num_train_rows", "64", "--num_test_rows", "16", "--max_steps", "2", "--logging_strategy", "no")


def test_what_is_kept_of_a_run_is_what_the_script_prints(dialogue, capsys):
    run = dialogue.measure(7, QUICK)
    printed = capsys.readouterr().out
    for persona in ("own", "other"):
        line = f"{persona} persona: hits@1 {run[persona]['hits@1']:.3f} (chance 0.25), "
        assert f"{line}perplexity {run[persona]['perplexity']:.2f}" in printed


def test_another_seed_trains_another_model(dialogue):
    first, again, other = (dialogue.measure(seed, QUICK)["own"]["perplexity"] for seed in (7, 7, 8))
    assert math.isclose(first, again, rel_tol=1e-6)
    assert first != pytest.approx(other, rel=1e-3)


def test_the_page_has_the_measured_figures():
    path = max((ROOT / "benchmarks" / "results").glob("????-??-??-dialogue.json"))
    runs = json.loads(path.read_text(encoding="utf-8"))["results"]
    page = (ROOT / "docs" / "dialogue.md").read_text(encoding="utf-8")
    for persona in ("own", "other"):
        first = runs[0][persona]
        line = f"{persona} persona: hits@1 {first['hits@1']:.3f} (chance 0.25), perplexity {first['perplexity']:.2f}"
        assert f"\n{line}\n" in page
    own_hits, other_hits = (range_of([run[persona]["hits@1"] for run in runs], 3) for persona in ("own", "other"))
    own, other = (range_of([run[persona]["perplexity"] for run in runs], 2) for persona in ("own", "other"))
    assert len(runs) == 5
    sentence = f"Of five seeds hits@1 is {own_hits} with the own persona and {other_hits} with another, the perplexity"
    sentence += f" {own} and {other} (`benchmarks/dialogue.py`"
    assert sentence in " ".join(page.split())
    assert path.name in page


def range_of(values: list[float], decimals: int) -> str:
    return f"{min(values):.{decimals}f} to {max(values):.{decimals}f}"
