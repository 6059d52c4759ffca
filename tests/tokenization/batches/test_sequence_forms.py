"""Batches in the form of another family's tokenizer, beside what it makes of the texts itself."""

import pytest
import torch
from support.families import FAMILIES, make_family_tokenizer
from support.refusals import refusal
from tokenizers import normalizers
from transformers import BertTokenizer, PreTrainedTokenizerBase

from tokenization import TraversalCollator

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PAIR = {"text_a": "one", "text_b": "two"}
ROWS = [{"one": "ann sees ben", "two": "he is old", "label": 1}, {"one": "fish", "two": "just a new cat", "label": 0}]
CHOICE = {"context": "story", "choices": "ends", "label": "label"}


@pytest.fixture(scope="module")
def bert() -> BertTokenizer:
    """Each letter is one token, a to z from 5 on."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    return BertTokenizer(vocab={token: index for index, token in enumerate(tokens)})


def tokenizer_of(family: str) -> PreTrainedTokenizerBase:
    tokenizer = make_family_tokenizer(family)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def lists(batch: dict) -> dict:
    return {name: tensor.tolist() for name, tensor in batch.items()}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_batch_is_what_the_tokenizer_makes_of_the_texts(family, side):
    tokenizer = tokenizer_of(family)
    tokenizer.padding_side = side
    ones, twos = ([row[name] for row in ROWS] for name in ("one", "two"))
    batch = TraversalCollator(tokenizer, "similarity", PAIR)(ROWS)
    assert lists(batch) == lists(tokenizer(ones, twos, padding=True, return_tensors="pt"))
    batch = TraversalCollator(tokenizer, "classification", {"text": "one", "label": "label"})(ROWS)
    assert lists(batch) == lists(tokenizer(ones, padding=True, return_tensors="pt") | {"labels": torch.tensor([1, 0])})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shift", [0, 0xFEE0])  # the latter: full width, which NFKC makes the same characters
def test_no_text_becomes_a_special_token(family, shift):
    tokenizer = tokenizer_of(family)
    special = next(token for token in (tokenizer.sep_token, tokenizer.eos_token) if token is not None)
    special_id = tokenizer.convert_tokens_to_ids(special)
    written = "".join(chr(ord(letter) + shift) for letter in special)
    if shift:
        tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    collator = TraversalCollator(tokenizer, "classification", {"text": "text"})
    ids, plain = (collator([{"text": text}])["input_ids"][0].tolist() for text in (f"a {written} b", "a b"))
    assert ids.count(special_id) == plain.count(special_id)
    assert collator.lengths([{"text": f"a {written} b"}]) == [len(ids)]


def test_a_row_is_several_sequences_if_its_ids_have_three_dimensions(bert):
    cases = {"similarity": PAIR, "multiple_choice": {"context": "one", "choices": ["two", "one"]}}
    row = {"one": "a b", "two": "b"}
    for collator in (
        *(TraversalCollator(bert, traversal, columns) for traversal, columns in cases.items()),
        TraversalCollator(bert, "similarity", PAIR, both_orders=True),
    ):
        assert collator.makes_several_sequences == (collator([row])["input_ids"].dim() == 3)


def test_a_pair_can_be_read_in_both_orders(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, both_orders=True)
    rows = [{"one": "a b", "two": "c"}, {"one": "d", "two": "e"}]
    assert lists(collator(rows)) == {
        "input_ids": [[[2, 5, 6, 3, 7, 3], [2, 7, 3, 5, 6, 3]], [[2, 8, 3, 9, 3, 0], [2, 9, 3, 8, 3, 0]]],
        "token_type_ids": [[[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]], [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0]]],
        "attention_mask": [[[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]]],
    }


def test_the_question_begins_each_choice_and_an_absent_choice_repeats_the_first(bert):
    """The second example has no third choice: its place repeats the first."""
    rows = [
        {"story": "a b", "ask": "q", "ends": ["c", "d", "e f"], "label": 2},
        {"story": "g", "ask": "r", "ends": ["h", "i"], "label": 0},
    ]
    collator = TraversalCollator(bert, "multiple_choice", CHOICE | {"question": "ask"})
    assert lists(collator(rows)) == {
        "input_ids": [
            [[2, 5, 6, 3, 21, 7, 3, 0], [2, 5, 6, 3, 21, 8, 3, 0], [2, 5, 6, 3, 21, 9, 10, 3]],
            [[2, 11, 3, 22, 12, 3, 0, 0], [2, 11, 3, 22, 13, 3, 0, 0], [2, 11, 3, 22, 12, 3, 0, 0]],
        ],
        "token_type_ids": [
            [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 1, 1, 1, 1]],
            [[0, 0, 0, 1, 1, 1, 0, 0]] * 3,
        ],
        "attention_mask": [
            [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1]],
            [[1, 1, 1, 1, 1, 1, 0, 0]] * 3,
        ],
        "choice_mask": [[True, True, True], [True, True, False]],
        "labels": [2, 0],
    }
    assert collator.lengths(rows) == [8, 6]


@pytest.mark.parametrize(
    ("traversal", "columns", "row", "ids", "max_length"),
    [
        ("classification", {"text": "one"}, {"one": "a b c d"}, [2, 5, 6, 7, 3], 5),
        ("similarity", PAIR, {"one": "a b c d", "two": "e"}, [2, 5, 6, 3, 9, 3], 6),
        ("similarity", PAIR, {"one": "a b c d", "two": "e f g"}, [2, 5, 6, 3, 9, 10, 3], 7),
        ("multiple_choice", CHOICE, {"story": "a b c", "ends": ["e"]}, [[2, 5, 6, 3, 9, 3]], 6),
        ("multiple_choice", CHOICE, {"story": "a b c", "ends": ["e f g"]}, [[2, 5, 3, 9, 3]], 5),
    ],
)
def test_long_texts_are_cut_and_counted(traversal, columns, row, ids, max_length, bert):
    collator = TraversalCollator(bert, traversal, columns, max_length=max_length)
    assert collator([row])["input_ids"].tolist() == [ids]
    assert (collator.check([row]), collator.lengths([row])) == ((1, 1), [max_length])


def test_the_length_is_rounded_up_to_a_multiple(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, pad_to_multiple_of=8)
    assert collator([{"one": "a", "two": "b"}])["input_ids"].tolist() == [[2, 5, 3, 6, 3, 0, 0, 0]]


def test_a_tokenizer_of_gpt1_without_control_tokens_is_refused(plain_tokenizer):
    assert "lacks the control tokens start" in refusal(TraversalCollator, plain_tokenizer, "similarity", PAIR)


def test_a_tokenizer_without_a_padding_token_is_refused():
    message = refusal(TraversalCollator, make_family_tokenizer("llama"), "similarity", PAIR)
    assert "LlamaTokenizer has no padding token" in message
    assert "tokenizer.pad_token = tokenizer.eos_token" in message


def test_a_length_without_room_for_both_texts_is_refused(bert):
    message = refusal(TraversalCollator, bert, "similarity", PAIR, max_length=4)
    assert "`max_length` is 4" in message
    assert "at least 5 is needed with BertTokenizer" in message


def test_one_text_has_no_two_orders(bert):
    message = refusal(TraversalCollator, bert, "classification", {"text": "one"}, both_orders=True)
    assert "'classification'. Leave `both_orders` out" in message
