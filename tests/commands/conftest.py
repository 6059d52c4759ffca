"""Fixtures that the tests of several commands share."""

from collections import defaultdict

import pytest

from modeling_gpt1.commands import zero_shot
from modeling_gpt1.inference.heuristics import evaluate_zero_shot


@pytest.fixture
def asked(monkeypatch):
    """For each task of `gpt1 zero-shot`, the rows and the result of every evaluation so far."""
    found = defaultdict(list)

    def note(scorer, heuristic, rows, *args, **options):
        result = evaluate_zero_shot(scorer, heuristic, rows, *args, **options)
        found[heuristic.task.name].append((rows, result))
        return result

    monkeypatch.setattr(zero_shot, "evaluate_zero_shot", note)
    return found
