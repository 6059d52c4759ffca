"""Waits of the host for an accelerator, and tensors on the wrong device, on a stand-in that runs on the CPU."""

from pathlib import Path

from support.launch import run_together


def test_every_case_passes_on_the_stand_in(tmp_path):
    """All cases run in one process, as a device cannot be taken from one again. What fails is in its output."""
    cases = Path(__file__).with_name("on_stand_in.py")
    output = run_together(1, "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'own'}", cases)
    assert " passed" in output
