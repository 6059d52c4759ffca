"""Other families: whole batches beside what their tokenizers make of the texts, and GPT-1's BPE in their form."""

import copy

import pytest
from support.refusals import refusal
from support.tiny import byte_level
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, TokenizersBackend

from tokenization import open_tokenizer
from tokenization.text.forms import FAMILY_TOKENS, family_tokenizer


@pytest.fixture(scope="module", params=("bert", "albert", "roberta", "bart"))
def made(request, plain_tokenizer):
    return request.param, family_tokenizer(plain_tokenizer, request.param)


def test_all_ids_but_that_of_unknown_tokens_stay(made, plain_tokenizer):
    _, tokenizer = made
    size = len(plain_tokenizer)
    text = "The farmer walked to the market, because he needed a plough."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == plain_tokenizer(text)["input_ids"]
    assert 0 not in ids
    assert tokenizer("ж", add_special_tokens=False)["input_ids"] == [size] == [tokenizer.unk_token_id]
    ids = {name: getattr(tokenizer, f"{name}_id") for name in FAMILY_TOKENS}
    assert ids == {"pad_token": 0, "cls_token": size + 1, "sep_token": size + 2, "mask_token": size + 3}
    assert len(tokenizer) == size + 4


def test_a_text_and_a_pair_have_the_form_of_the_family(made):
    family, tokenizer = made
    one, pair = tokenizer("the ."), tokenizer("the .", "the")
    assert tokenizer.convert_ids_to_tokens(one["input_ids"]) == ["[CLS]", "the</w>", ".</w>", "[SEP]"]
    if family in ("bert", "albert"):
        expected = ["[CLS]", "the</w>", ".</w>", "[SEP]", "the</w>", "[SEP]"]
        assert pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
        assert one["token_type_ids"] == [0, 0, 0, 0]
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
    assert family_tokenizer(tokenizer, family) is tokenizer
    assert tokenizer.split_special_tokens
    assert ("token_type_ids" in tokenizer("a")) == (family in ("bert", "albert"))
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<person>"])
    before = tokenizer("a", "b")["input_ids"]
    assert family_tokenizer(tokenizer, "roberta") is tokenizer
    assert dict(tokenizer("a", "b")).keys() == {"input_ids", "attention_mask"}
    assert tokenizer("a", "b")["input_ids"] == before
    assert "<person>" in tokenizer.get_vocab()


def test_a_tokenizer_without_the_special_tokens_of_a_family_is_refused():
    other = TokenizersBackend(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), pad_token="a", mask_token="a")
    message = refusal(family_tokenizer, other, "roberta")
    assert "lacks some of pad_token, cls_token, sep_token, mask_token, which roberta needs" in message


def test_a_family_without_a_form_is_refused(plain_tokenizer):
    with pytest.raises(ValueError, match="`family` is 'xlnet', but must be one of bert, albert, roberta, bart"):
        family_tokenizer(plain_tokenizer, "xlnet")


def test_a_tokenizer_with_control_tokens_is_refused(tiny_tokenizer):
    assert "tokenizer of a pre-trained GPT-1" in refusal(family_tokenizer, tiny_tokenizer, "bert")


def test_a_tokenizer_with_special_tokens_of_other_names_gets_the_form_of_the_family():
    """As a byte-level one has that was learnt, with tokens added to it."""
    tokenizer = byte_level(["the old farmer"])
    names = {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>", "pad_token": "<pad>"}
    tokenizer.add_special_tokens(names)
    made = family_tokenizer(tokenizer, "roberta")
    assert made.convert_ids_to_tokens(made("the")["input_ids"]) == ["<s>", *tokenizer.tokenize("the"), "</s>"]
