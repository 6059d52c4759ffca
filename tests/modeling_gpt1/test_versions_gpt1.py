"""What is said of a release of transformers that is too old, and an environment without torch."""

import subprocess
import sys

import pytest

from modeling_gpt1 import configuration_gpt1


@pytest.mark.parametrize("release", ["4.57.6", "5.16.1"])
def test_a_release_that_is_too_old_is_told_of_before_a_name_is_missing_there(release, tmp_path):
    """As in a folder that is opened where this package is not installed."""
    (tmp_path / "transformers.py").write_text(f"__version__ = {release!r}\n", encoding="utf-8")
    command = [sys.executable, configuration_gpt1.__file__]
    found = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert found.stderr.splitlines()[-1] == (
        f'ImportError: transformers {release} is too old for this model. Run `pip install "transformers>=5.17"`.'
    )


def test_the_file_of_the_configuration_opens_without_torch():
    """A program that only reads tokens may have no torch, and its tokenizer asks for the configuration."""
    program = (
        "import runpy, sys; sys.modules['torch'] = None; print(runpy.run_path(sys.argv[1])['GPT1Config']().hidden_act)"
    )
    command = [sys.executable, "-c", program, configuration_gpt1.__file__]
    found = subprocess.run(command, capture_output=True, text=True)
    assert (found.stdout, found.returncode) == ("gelu_pytorch_tanh\n", 0), found.stderr
