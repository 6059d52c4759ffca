"""The settings in conftest.py that all tests share."""

import gzip

import pytest


@pytest.mark.parametrize("content", [gzip.compress(b"a"), gzip.compress(b"b")])
def test_a_name_of_a_test_has_no_bytes(content, request):
    """Nor the second in which a worker made them, by which two workers would name one test differently."""
    assert request.node.name in [f"test_a_name_of_a_test_has_no_bytes[content{number}]" for number in (0, 1)]
