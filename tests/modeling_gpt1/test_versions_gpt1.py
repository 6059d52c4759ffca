"""What is said of a release of transformers that is too old, or newer than those that were tested."""

import subprocess
import sys

import pytest

from modeling_gpt1 import configuration_gpt1


@pytest.mark.parametrize(
    ("release", "is_tested"),
    [
        ("5.17.0", True),
        ("5.23.0.dev0", True),
        ("5.23.4", True),
        ("5.24.0.dev0", False),
        ("5.100.0", False),
        ("6.17.0", False),
    ],
)
def test_a_release_that_was_not_tested_is_told_of(caplog, release, is_tested):
    configuration_gpt1.warn_of_untested_release(release)
    assert len(caplog.records) == (not is_tested)
    for record in caplog.records:
        assert f"transformers {release} is installed" in record.getMessage() and "pip install" in record.getMessage()


@pytest.mark.parametrize("release", ["4.57.6", "5.16.1"])
def test_a_release_that_is_too_old_is_told_of_before_a_name_is_missing_there(release, tmp_path):
    """As in a folder that is opened where this package is not installed."""
    (tmp_path / "transformers.py").write_text(f"__version__ = {release!r}\n", encoding="utf-8")
    command = [sys.executable, configuration_gpt1.__file__]
    found = subprocess.run(command, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True)
    assert found.stderr.splitlines()[-1] == (
        f"ImportError: transformers {release} is too old for this model, which needs 5.17 or newer. Run `pip install "
        '"transformers>=5.17"`.'
    )
