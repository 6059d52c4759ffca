"""What the commands that train do before a run."""

import pytest

from modeling_gpt1 import GPT1TrainingArguments
from modeling_gpt1.commands import runs


@pytest.mark.parametrize(
    ("report_to", "run_name", "expected"),
    [("trackio", None, "out/here"), ("trackio", "mine", "mine"), ("tensorboard", None, None)],
    ids=["trackio", "named", "tensorboard"],
)
def test_a_run_that_trackio_records_has_a_name(report_to, run_name, expected, monkeypatch):
    """Without one, Trackio puts the evaluation after the training into a record of its own."""
    monkeypatch.setattr(runs, "get_reporting_integration_callbacks", lambda names: [])
    args = GPT1TrainingArguments("out/here", report_to=report_to, run_name=run_name, use_cpu=True)
    runs.check_reporters(args)
    assert args.run_name == expected
