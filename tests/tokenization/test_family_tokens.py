"""GPT-1's BPE with the special tokens of BERT, RoBERTa, ALBERT and BART."""

import copy

import pytest
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, TokenizersBackend

from tokenization import open_tokenizer
from tokenization.family_tokens import FAMILY_TOKENS, family_tokenizer

FAMILIES = ("bert", "albert", "roberta", "bart")


@pytest.fixture(scope="module", params=FAMILIES)
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
    assert (
        tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True).split()
        == text.lower().replace(",", " ,").replace(".", " .").split()
    )


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
    _, tokenizer = made
    tokenizer.save_pretrained(tmp_path)
    special = {getattr(tokenizer, f"{name}_id") for name in FAMILY_TOKENS}
    for opened in (tokenizer, AutoTokenizer.from_pretrained(tmp_path), open_tokenizer(tmp_path)):
        for text in (*FAMILY_TOKENS.values(), "[mask]", "the [MASK] river[SEP]"):
            assert special.isdisjoint(opened(text, add_special_tokens=False)["input_ids"])
            assert opened(text, text)["input_ids"] == tokenizer(text, text)["input_ids"]
        assert {name: getattr(opened, name) for name in FAMILY_TOKENS} == FAMILY_TOKENS


def test_a_tokenizer_with_all_special_tokens_is_taken_as_it_is(made):
    family, tokenizer = made
    assert family_tokenizer(tokenizer, family) is tokenizer and tokenizer.split_special_tokens


def test_a_tokenizer_with_tokens_of_its_user_keeps_them(made):
    """It is no longer the one that was made here, so its form stays, too."""
    family, tokenizer = made
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<person>"])
    other = "bert" if family in ("roberta", "bart") else "roberta"
    before = tokenizer("a")["input_ids"]
    assert family_tokenizer(tokenizer, other) is tokenizer
    assert tokenizer("a")["input_ids"] == before and "<person>" in tokenizer.get_vocab()


def test_refusals(tiny_tokenizer):
    other = TokenizersBackend(tokenizer_object=Tokenizer(models.BPE({"a": 0}, [])), pad_token="a", mask_token="a")
    with pytest.raises(ValueError) as refused:
        family_tokenizer(other, "roberta")
    assert str(refused.value) == (
        "TokenizersBackend has no cls_token, sep_token, which roberta needs. Give GPT-1's BPE, or a tokenizer with "
        "all special tokens."
    )
    with pytest.raises(ValueError) as refused:
        family_tokenizer(tiny_tokenizer, "bert")
    assert str(refused.value) == (
        "The tokenizer has the control tokens of a fine-tuned GPT-1. Give the one saved with the pre-trained model."
    )
