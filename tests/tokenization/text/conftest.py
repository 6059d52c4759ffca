"""Fixtures for the tests of text: the small BPE, with and without control tokens."""

import pytest
from support.small_bpe import MERGES, VOCAB

from tokenization import GPT1Tokenizer


@pytest.fixture
def tokenizer():
    return GPT1Tokenizer(vocab=VOCAB, merges=MERGES)


@pytest.fixture
def with_control(tokenizer):
    tokenizer.add_control_tokens()
    return tokenizer
