"""The tokenizer's file for JavaScript: its rules, run by a regex engine that has all they need, give equal words."""

import json
import random
import unicodedata

import pytest
import regex
from support.refusals import refusal
from support.texts import HARD_TEXTS
from support.tiny import SENTENCES
from tokenizers import Tokenizer, models
from transformers import TokenizersBackend

from tokenization import GPT1Tokenizer, train_tokenizer
from tokenization.text.javascript import (
    contents_without_found_tokens,
    javascript_steps,
    javascript_tokenizer,
    to_javascript,
)
from tokenization.text.training import TOKENIZER_KINDS
from tokenization.text.word_rules import character_table, preparation

SIGNS = [
    *"'\"#&:<>.,;?!([_-~/|%$^\\aAIsmg019 \n",
    "..",
    "''",
    "'s",
    "US$",
    "Mr",
    "he",
    "n't",
    "km",
    "\r\n",
    "\u0301",
    "☃",
]


@pytest.fixture(scope="module")
def prepare():
    """Prepares a text by the steps, as JavaScript runs them."""
    steps = javascript_steps(json.loads(preparation().__getstate__())["normalizers"])
    patterns = {step["pattern"]["Regex"]: None for step in steps if step["type"] == "Replace"}
    for pattern in patterns:
        patterns[pattern] = regex.compile(pattern)

    def prepared(text: str) -> str:
        for step in steps:
            if step["type"] == "Prepend":
                text = step["prepend"] + text
            elif step["type"] == "Replace":
                content = step["content"]
                pattern = patterns[step["pattern"]["Regex"]]
                text = pattern.sub(lambda found, content=content: content.replace("$&", found[0]), text)
            elif step["type"] == "NFC":
                text = unicodedata.normalize("NFC", text)
            else:
                text = text.lower()
        return text

    return prepared


@pytest.mark.parametrize("text", HARD_TEXTS)
def test_a_text_is_prepared_as_by_the_native_rules(text, prepare):
    assert prepare(text) == preparation().normalize_str(text)


def test_random_signs_are_prepared_as_by_the_native_rules(prepare):
    generator = random.Random(0)
    texts = ["".join(generator.choices(SIGNS, k=generator.randint(1, 24))) for _ in range(300)]
    assert [prepare(text) for text in texts] == [preparation().normalize_str(text) for text in texts]


def test_every_character_of_the_table_becomes_the_same(prepare):
    # Letters around it: no other rule changes a single sign between spaces.
    text = "\n".join(f"x {character} x" for character in character_table())
    assert prepare(text) == preparation().normalize_str(text)


@pytest.mark.parametrize(
    ("oniguruma", "javascript"),
    [
        (r"ab\Kc", "(?<=ab)c"),
        (r"a|b\K", "a|(?<=b)"),
        (r"\n(?:x|y\Kz)", r"\nx|(?<=\ny)z"),
        (r"(?:(?<!\S)|\G)ab\K(?=c)", r"(?<=(?<!\P{White_Space})(?:ab)+)(?=c)"),
        (r"(?!\G)(?=a)", "(?=a)"),
        (r"\.++b", r"\.+(?!\.)b"),
        ("(?>'a|''|b)", "(?:'a|(?!'a)''|b)"),
        ("(?>(?:a|bc){0,24})", "(?:(?:a|bc){0,24})"),
        (r"[\'\-\s]\-\x{1f3fb}\A\z.", "['\\-\\p{White_Space}]-\U0001f3fb(?<![\\s\\S])(?![\\s\\S])[^\\n]"),
    ],
)
def test_a_part_that_javascript_lacks_is_rewritten(oniguruma, javascript):
    assert to_javascript(oniguruma) == javascript


def test_the_file_has_steps_that_javascript_knows(tokenizer):
    steps = javascript_tokenizer(tokenizer)["normalizer"]["normalizers"]
    assert {step["type"] for step in steps} == {"Prepend", "Replace", "NFC", "Lowercase"}


def test_no_pattern_of_the_file_has_what_javascript_lacks(tokenizer):
    steps = javascript_tokenizer(tokenizer)["normalizer"]["normalizers"]
    patterns = [step["pattern"]["Regex"] for step in steps if step["type"] == "Replace"]
    lacking = regex.compile(r"(?<!\\)(?:\\[KGAzhH]|\(\?>|[*+?}]\+|\\x\{)")
    assert [pattern for pattern in patterns if lacking.search(pattern)] == []


def test_words_are_split_at_spaces_by_a_pattern(tokenizer):
    split = javascript_tokenizer(tokenizer)["pre_tokenizer"]
    assert split == {"type": "Split", "pattern": {"Regex": " "}, "behavior": "Removed", "invert": False}


@pytest.mark.parametrize("text", [*HARD_TEXTS, "a\u0085\u0085b \ufeff\ufeffc  \n\n d"])
def test_the_words_of_a_byte_level_tokenizer_are_the_native_ones(text):
    """JavaScript's own take U+FEFF for a space, and U+0085 for none."""
    tokenizer = train_tokenizer(iter(SENTENCES), "bytes", show_progress=False)
    split, to_bytes = contents_without_found_tokens(tokenizer)["pre_tokenizer"]["pretokenizers"]
    native = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert regex.findall(split["pattern"]["Regex"], text) == [text[start:end] for _, (start, end) in native]
    assert (split["behavior"], to_bytes["type"], to_bytes["use_regex"]) == ("Isolated", "ByteLevel", False)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_text_cannot_spell_a_control_token(kind):
    tokenizer = train_tokenizer(iter(SENTENCES), kind, show_progress=False)
    if isinstance(tokenizer, GPT1Tokenizer):
        tokenizer.add_control_tokens()
        content = javascript_tokenizer(tokenizer)
    else:
        tokenizer.add_special_tokens({"mask_token": "[hidden]"})
        content = contents_without_found_tokens(tokenizer)
    assert content["added_tokens"] == []
    vocab = content["model"]["vocab"]
    assert [vocab[token] for token in tokenizer.all_special_tokens] == tokenizer.all_special_ids


def test_a_special_token_that_the_vocabulary_cannot_hold_is_refused():
    """SentencePiece's vocabulary is a list of pieces, whose places are their ids."""
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))
    tokenizer = TokenizersBackend(tokenizer_object=backend, unk_token="<unk>")
    assert contents_without_found_tokens(tokenizer)["added_tokens"] == []
    tokenizer.add_special_tokens({"mask_token": "[hidden]"})
    message = refusal(contents_without_found_tokens, tokenizer)
    assert "is a Unigram, whose special token [hidden] JavaScript would find in texts" in message
    assert "gpt1 pretrain --tokenizer" in message


def test_words_that_were_added_are_found_in_texts(tokenizer):
    tokenizer.add_tokens(["Moby-Dick"])
    (added,) = javascript_tokenizer(tokenizer)["added_tokens"]
    assert (added["content"], added["normalized"]) == ("Moby-Dick", False)
