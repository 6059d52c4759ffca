"""The campaign itself: its quick kinds run a few cases, which are right, and tell a wrong one by kind and seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ftfy")
pytest.importorskip("spacy")
ROOT = Path(__file__).resolve().parents[1]


def run(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT)])}
    command = [sys.executable, "-m", "campaign", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)


def test_a_campaign_of_seconds(tmp_path):
    kinds = ["forward", "generation", "texts"]
    done = run(tmp_path, "--minutes", "0.02", "--workers", "1", "--results", str(tmp_path), "--kinds", *kinds)
    assert done.returncode == 0, done.stdout
    (path,) = tmp_path.glob("*-campaign.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    assert results["failures"] == [] and [*results["kinds"]] == kinds
    assert all(row["cases"] > 0 for row in results["kinds"].values())
