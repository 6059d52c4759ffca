"""Fixtures for the tests of tokenization."""

import logging

import pytest

from tokenization.text import documents


@pytest.fixture
def logged(caplog, monkeypatch):
    """What is logged during a test: by itself, transformers' logger hands nothing on."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    return caplog


@pytest.fixture
def one_file_shards(monkeypatch):
    """Each file of a corpus is a shard."""
    monkeypatch.setattr(documents, "SHARD_BYTES", 1)
