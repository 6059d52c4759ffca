"""The warning about a release of transformers that was not tested."""

import pytest

from modeling_gpt1 import configuration_gpt1


@pytest.mark.parametrize(
    ("release", "is_tested"),
    [
        ("5.16.1", False),
        ("5.17.0", True),
        ("5.23.0.dev0", True),
        ("5.23.4", True),
        ("5.24.0.dev0", False),
        ("5.100.0", False),
        ("4.57.6", False),
        ("6.17.0", False),
    ],
)
def test_a_release_that_was_not_tested_is_told_of(caplog, release, is_tested):
    configuration_gpt1.warn_of_untested_release(release)
    assert len(caplog.records) == (not is_tested)
    for record in caplog.records:
        assert f"transformers {release} is installed" in record.getMessage() and "pip install" in record.getMessage()
