"""Offsets of GPT1Tokenizer: each token's span has all of the original text that the token was made of."""

import importlib.util
import pickle
import random
from pathlib import Path

import pytest
import torch

from tokenization import GPT1Tokenizer

LETTERS = [*"abcdefghijklmnopqrstuvwxyz.,:;!?&'\"<>|-()#0123456789", "é", "ế", "\u0302", "\u0301", "\ufe0f", "*", "\n"]
PIECES = ["<unk>", *LETTERS, *(letter + "</w>" for letter in LETTERS)]

SPANS = {
    "a\n\nb": ["a", "\n\n", "b"],
    "a \r\n\t\u2028 b": ["a", " \r\n\t\u2028 ", "b"],
    'a.\n\n\n"b"\n': ["a", ".", "\n\n\n", '"', "b", '"'],
    "x &amp; y": ["x", "&amp;", "y"],
    "&quot;x&#8217;s&QUOT;": ["&quot;", "x", "&#8217;", "s", "&QUOT;"],
    "a&amp;amp;lt;b": ["a", "&amp;amp;lt;", "b"],
    "<b> &amp; &lt;": ["<", "b", ">", "&", "a", "m", "p", ";", "&", "l", "t", ";"],
    "&am;p; &;": ["&", "a", "m", ";", "p", ";", "&", ";"],
    "e\u0301te\u0302\u0301": ["e\u0301", "t", "e\u0302\u0301"],
    "a\u0302\u0301 b": ["a\u0302\u0301", "b"],
    "\ufeffab \x01c": ["a", "b", "c"],
    "\x01\x02a\x00b\x1b[31m c": ["a", "b", "c"],
    "\u201c\u0301a\u2026 b\u2014c": ["\u201c", "\u0301", "a", "\u2026", "\u2026", "\u2026", "b", "\u2014", "c"],
    "a*\ufe0f b": ["a", "*", "\ufe0f", "b"],
    "a||b |": ["a", "|", "|", "b", "|"],
    "10km don\u2019t": ["1", "0", "k", "m", "d", "o", "n", "\u2019", "t"],
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tokenizer():
    return GPT1Tokenizer(vocab={piece: index for index, piece in enumerate(PIECES)}, merges=[])


def spans_of(tokenizer, text, **options):
    offsets = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, **options)["offset_mapping"]
    return [text[start:end] for start, end in offsets]


@pytest.mark.parametrize("text", SPANS)
def test_every_span_has_what_the_token_was_made_of(tokenizer, text):
    assert spans_of(tokenizer, text) == SPANS[text]


def test_encodings_and_mapping_agree(tokenizer):
    text = "a\n\nb &amp; e\u0301"
    batch = tokenizer(text)
    assert [batch.token_to_chars(place) for place in range(5)] == [(0, 1), (1, 3), (3, 4), (5, 10), (11, 13)]
    assert [batch.char_to_token(place) for place in range(len(text))] == [0, 1, 1, 2, None, 3, 3, 3, 3, 3, None, 4, 4]
    assert (batch.word_to_chars(3), batch.char_to_word(12)) == ((5, 10), 4)
    assert batch.encodings[0].offsets == tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    again = pickle.loads(pickle.dumps(batch))
    assert again.encodings[0].offsets == batch.encodings[0].offsets and again.tokens() == batch.tokens()


def test_pairs_and_padding(tokenizer):
    tokenizer = GPT1Tokenizer(vocab=tokenizer.get_vocab(), merges=[])
    tokenizer.add_control_tokens()
    rows, others = ["a\n\nb", "&lt;"], ["\u201ca\u201d\n c", "e\u0301\n"]
    batch = tokenizer(rows, others, return_offsets_mapping=True, padding=True, return_tensors="pt")
    first = [(0, 0), (0, 1), (1, 3), (3, 4), (0, 0), (0, 1), (1, 2), (2, 3), (3, 5), (5, 6), (0, 0)]
    second = [(0, 0), (0, 4), (0, 0), (0, 2), *[(0, 0)] * 7]
    assert torch.equal(batch["offset_mapping"], torch.tensor([first, second]))


@pytest.mark.parametrize(
    ("side", "spans"),
    [
        ("right", [[(0, 1), (1, 3)], [(1, 3), (3, 4)], [(3, 4), (4, 9)], [(0, 4)]]),
        ("left", [[(3, 4), (4, 9)], [(1, 3), (3, 4)], [(0, 1), (1, 3)], [(0, 4)]]),
    ],
)
def test_cut_texts(tokenizer, side, spans):
    tokenizer = GPT1Tokenizer(vocab=tokenizer.get_vocab(), merges=[], truncation_side=side)
    cut = {"truncation": True, "max_length": 2, "stride": 1, "return_overflowing_tokens": True}
    assert tokenizer(["a\n\nb&amp;", "&lt;\n"], return_offsets_mapping=True, **cut)["offset_mapping"] == spans
    assert tokenizer("a&amp;", return_offsets_mapping=True, **cut)["offset_mapping"] == [[(0, 1), (1, 6)]]


def check_words(tokenizer, oracle, text):
    """The words that the spans of a text spell by themselves, prepared by the libraries, against the text's words."""
    backend = tokenizer.backend_tokenizer
    words = [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]
    batch = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False, verbose=False)
    spans = {}
    for word, (start, end) in zip(batch.word_ids(), batch["offset_mapping"], strict=True):
        spans[word] = (spans.get(word, (start, end))[0], end)
    assert len(spans) == len(words)
    for word, (start, end) in zip(words, spans.values(), strict=True):
        span = text[start:end]
        if word == "\n":
            assert span.isspace() and set(span) & set("\n\r\u2028\u2029"), (text, span)
        else:
            plain = oracle.standardise(oracle.ftfy.fix_text(span)).lower().replace(" ", "").replace("ς", "σ")
            assert plain == word.replace("ς", "σ"), (text, span, word)
    return words, list(spans.values())


def test_random_texts_are_covered(tokenizer):
    pytest.importorskip("ftfy"), pytest.importorskip("spacy")
    parity, oracle = load("test_preparation_parity"), load("oracle")
    generator = random.Random(11)
    for _ in range(2000):
        check_words(tokenizer, oracle, parity.make_text(generator, glued=0.1))


@pytest.mark.real_data
def test_novels_are_covered(real_data_dir):
    """Between two words there is white space alone, and every newline token has a line break."""
    pytest.importorskip("ftfy"), pytest.importorskip("spacy")
    oracle, bpe = load("oracle"), real_data_dir / "openai_gpt_bpe"
    released = GPT1Tokenizer.from_openai(bpe / "encoder_bpe_40000.json", bpe / "vocab_40000.bpe")
    newlines = 0
    for novel in sorted((real_data_dir / "books" / "validation").glob("*.txt")):
        text = novel.read_text(encoding="utf-8")
        words, spans = check_words(released, oracle, text)
        newlines += words.count("\n")
        ends = [0, *(end for _, end in spans)]
        starts = [*(start for start, _ in spans), len(text)]
        assert {text[end:start].strip() for end, start in zip(ends, starts, strict=True)} == {""}
    assert newlines > 5000
