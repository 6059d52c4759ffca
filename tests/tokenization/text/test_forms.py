"""Other families: whole batches beside what their tokenizers make of the texts, and GPT-1's BPE in their form."""

import copy

import pytest
import torch
from support.families import FAMILIES, make_family_tokenizer
from support.refusals import refusal
from tokenizers import Tokenizer, models, normalizers
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerBase, TokenizersBackend

from tokenization import TraversalCollator, open_tokenizer
from tokenization.text.forms import FAMILY_TOKENS, family_tokenizer

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


def test_literal_batch_of_both_orders(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, both_orders=True)
    rows = [{"one": "a b", "two": "c"}, {"one": "d", "two": "e"}]
    assert lists(collator(rows)) == {
        "input_ids": [[[2, 5, 6, 3, 7, 3], [2, 7, 3, 5, 6, 3]], [[2, 8, 3, 9, 3, 0], [2, 9, 3, 8, 3, 0]]],
        "token_type_ids": [[[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]], [[0, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 0]]],
        "attention_mask": [[[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]]],
    }


def test_literal_batch_of_choices(bert):
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


def test_pad_to_a_multiple(bert):
    collator = TraversalCollator(bert, "similarity", PAIR, pad_to_multiple_of=8)
    assert collator([{"one": "a", "two": "b"}])["input_ids"].tolist() == [[2, 5, 3, 6, 3, 0, 0, 0]]


def test_refusals(bert, plain_tokenizer, tiny_tokenizer):
    assert "no start" in refusal(TraversalCollator, plain_tokenizer, "similarity", PAIR)
    message = refusal(TraversalCollator, make_family_tokenizer("llama"), "similarity", PAIR)
    assert "LlamaTokenizer has no padding token" in message and "tokenizer.pad_token = tokenizer.eos_token" in message
    message = refusal(TraversalCollator, bert, "similarity", PAIR, max_length=4)
    assert "max_length is 4" in message and "at least 5 is needed with BertTokenizer" in message
    message = refusal(TraversalCollator, bert, "classification", {"text": "one"}, both_orders=True)
    assert "not for classification. Leave it out" in message
    other = TokenizersBackend(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), pad_token="a", mask_token="a")
    message = refusal(family_tokenizer, other, "roberta")
    assert "lacks some of pad_token, cls_token, sep_token, mask_token, which roberta needs" in message
    assert "saved with the pre-trained model" in refusal(family_tokenizer, tiny_tokenizer, "bert")


@pytest.fixture(scope="module", params=("bert", "albert", "roberta", "bart"))
def made(request, plain_tokenizer):
    return request.param, family_tokenizer(plain_tokenizer, request.param)


def test_all_ids_but_that_of_unknown_tokens_stay(made, plain_tokenizer):
    _, tokenizer = made
    size = len(plain_tokenizer)
    text = "The farmer walked to the market, because he needed a plough."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == plain_tokenizer(text)["input_ids"] and 0 not in ids
    assert tokenizer("ж", add_special_tokens=False)["input_ids"] == [size] == [tokenizer.unk_token_id]
    ids = {name: getattr(tokenizer, f"{name}_id") for name in FAMILY_TOKENS}
    assert ids == {"pad_token": 0, "cls_token": size + 1, "sep_token": size + 2, "mask_token": size + 3}
    assert len(tokenizer) == size + 4


def test_the_form_of_a_text_and_of_a_pair(made):
    family, tokenizer = made
    one, pair = tokenizer("the ."), tokenizer("the .", "the")
    assert tokenizer.convert_ids_to_tokens(one["input_ids"]) == ["[CLS]", "the</w>", ".</w>", "[SEP]"]
    if family in ("bert", "albert"):
        expected = ["[CLS]", "the</w>", ".</w>", "[SEP]", "the</w>", "[SEP]"]
        assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1] and one["token_type_ids"] == [0, 0, 0, 0]
    else:
        expected = ["[CLS]", "the</w>", ".</w>", "[SEP]", "[SEP]", "the</w>", "[SEP]"]
        assert "token_type_ids" not in pair
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == expected


def test_text_never_becomes_a_special_token(made, tmp_path):
    """In training; whoever opens the saved tokenizer by transformers may write a mask into a text."""
    family, tokenizer = made
    tokenizer.save_pretrained(tmp_path)
    special = {getattr(tokenizer, f"{name}_id") for name in FAMILY_TOKENS}
    family_tokenizer(AutoTokenizer.from_pretrained(tmp_path), family).save_pretrained(tmp_path / "again")
    for each in tokenizer, family_tokenizer(AutoTokenizer.from_pretrained(tmp_path), family), open_tokenizer(tmp_path):
        for text in (*FAMILY_TOKENS.values(), "[mask]", "the [MASK] river[SEP]"):
            assert special.isdisjoint(each(text, add_special_tokens=False)["input_ids"])
            assert each(text, text)["input_ids"] == tokenizer(text, text)["input_ids"]
        assert {name: getattr(each, name) for name in FAMILY_TOKENS} == FAMILY_TOKENS
    for saved in map(AutoTokenizer.from_pretrained, (tmp_path, tmp_path / "again")):
        ids = saved("the [MASK] .", add_special_tokens=False)["input_ids"]
        assert saved.convert_ids_to_tokens(ids) == ["the</w>", "[MASK]", ".</w>"]


def test_a_tokenizer_of_another_family_keeps_its_form(made):
    """Without segments for a family that has none."""
    family, tokenizer = made
    assert family_tokenizer(tokenizer, family) is tokenizer and tokenizer.split_special_tokens
    assert ("token_type_ids" in tokenizer("a")) == (family in ("bert", "albert"))
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<person>"])
    before = tokenizer("a", "b")["input_ids"]
    assert family_tokenizer(tokenizer, "roberta") is tokenizer
    assert dict(tokenizer("a", "b")).keys() == {"input_ids", "attention_mask"}
    assert tokenizer("a", "b")["input_ids"] == before and "<person>" in tokenizer.get_vocab()
