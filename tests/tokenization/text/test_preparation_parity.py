"""GPT1Tokenizer's native pipeline against ftfy, the released punctuation rules, spaCy and lower case."""

import copy
import importlib.util
import itertools
import random
import re
import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import normalizers

from tokenization.text import word_rules
from tokenization.text.tokenization_gpt1 import GPT1Tokenizer
from tokenization.text.word_rules import is_plain, plain_preparation

ftfy = pytest.importorskip("ftfy")
spacy = pytest.importorskip("spacy")

spec = importlib.util.spec_from_file_location("oracle", Path(__file__).with_name("oracle.py"))
oracle_module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(oracle_module)

POOLS = {
    "words": ("the cat Said a Shell of ill its were whore no NO YES world. was I it. so, rock'n'roll"),
    "contractions": (
        "don't I'll we've they're he'd that's isn't can't won't shan't y'all ma'am o'clock 'em 'tis 'Twas "
        "wouldn't've she'd've I'm I'ma gonna gotta cannot dont wont Im Ive theyre thats whos wed id Tom's James' "
        "boys' ain't DON'T I'LL It'll What're who'd goin' nothin' 'bout 'cause ol' c'mon let's how'd'y 's 'S wed. "
        "im."
    ),
    "abbreviations": (
        "Mr. Mrs. Dr. St. U.S. U.S.A. e.g. i.e. Ph.D. a.m. p.m. Jan. Sept. No. vs. etc. Inc. J. K. R.R. Mass. a. "
        "b. x. A. I. MR. mr. Co. co. Ltd. Esq. Capt. N.Y. D.C. v.s. MM. USA. 10a.m. 5p.m. i.a. z.B. day.Mr.Smith "
        "end.The"
    ),
    "punctuation": (
        "\" ' '' ` , ; : ! ? . .. ... .... … - -- --- – — ― ( ) [ ] { } * ** / // | || _ __ ~ ~~ + ++ = == < > & "
        "# @ $ % ^ \\ “ ” ‘ ’ „ ‚ « » ¿ ¡ § ´ © ™ € £ • · † ½ ² \\+"
    ),
    "numbers": (
        "10 3.14 1,000 $5 $5.99 £20 5% 10km 5ft 6in 7g 10K 3M 10pm 9am 12:30 1990s 1st 2nd 3rd 58m 58m. 20kg 5'11 "
        "No.5 2^3 5+3 5-3 1/2 $58m. US$5 30°C 30°F. +5 #1 10mm 100mph 0.5 .5 '90s 5's"
    ),
    "addresses": (
        "www.example.com http://www.a-b.com/x?y=1#z john@mail.org user.Name@site.co.uk foo.Bar x:y a=b a<b C++ C# "
        ".NET file.txt AT&T www.FooBar.com:80 me@x.com, ftp://a.b"
    ),
    "emoticons": (
        ":) :-) :( ;) :D :P :p :o XD xD <3 </3 ^_^ o_O o.O :/ =) =D =3 >:( :'( 8) (: -_- >.< ._. ♥ ☺ 😀 👍🏽 ✓"
    ),
    "scripts": (
        "café naïve Москва Привет. Αθήνα ΟΔΟΣ 日本語 中文。 한국어. עברית العربية. हिन्दी ไทย. é. É. ß ﬁne "
        "ｗｉｄｅ！ Ａ１ İstanbul e\u0301 Å ﬃ Ĳ soft\u00adhyphen zero\u200bwidth x\u0308. bad\u0007bell"
    ),
    "marks": (
        "-\u0301 a!\u0301b “\u0301b …\u0301 ☺\u0301 ©\ufe0f ☺\ufe0f *\ufe0f\u20e3 -🏽 \u0301abc Ａ\u0301b Ĳ\u0301 "
        "ế e\u0302\u0301 ’\u05b0x \u200c-\u200d \u037e a\u1ffdb"
    ),
    "bars": "|| ||| a||b a|b |x| (a||b) |,| {|} ||-|| c:||d",
    "entities": ("&amp; &lt;b&gt; &quot;hi&quot; it&#39;s AT&amp;T"),
}
POOLS = {name: text.split(" ") for name, text in POOLS.items()}
SPACES = ["\n", "\n\n", " \n ", "\r\n", "\t", "  ", "\u00a0", "\u2003", "\u2028", "\u3000"]
MARKS = ["'", '"', ".", "...", ",", ":", "!", "-", ")", "(", "'s", "''", "?"]


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer that has every letter of the first alphabets as a piece, inside and at the end of words."""
    letters = [chr(code) for code in [10, *range(0x21, 0x600)] if chr(code).isprintable() or code == 10]
    pieces = ["<unk>", *letters, *(letter + "</w>" for letter in letters)]
    merges = [(first, second + "</w>") for first in string.ascii_lowercase for second in string.ascii_lowercase]
    pieces += ["".join(pair) for pair in merges]
    return GPT1Tokenizer(vocab={piece: index for index, piece in enumerate(pieces)}, merges=merges)


@pytest.fixture(scope="module")
def oracle(tokenizer):
    vocab = tokenizer.get_vocab()
    letters = string.ascii_lowercase
    return oracle_module.Oracle(vocab, [(first, second + "</w>") for first in letters for second in letters])


def words_of(tokenizer, text):
    """The words that the pipeline hands to BPE."""
    backend = tokenizer.backend_tokenizer
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text))]


def plain_words_of(tokenizer, text):
    """The words of the shorter pipeline."""
    words = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(plain_preparation().normalize_str(text))
    return [word for word, _ in words]


def make_text(generator, glued):
    """A few pieces of the pools; some are glued to a mark or to one another."""
    parts = []
    for _ in range(generator.randint(1, 8)):
        piece = generator.choice(generator.choice(list(POOLS.values())))
        if generator.random() < glued:
            mark = generator.choice(MARKS)
            piece = generator.choice([mark + piece, piece + mark])
        parts += [piece, generator.choice([" ", " ", " ", " ", " ", " ", " ", *SPACES[:3], generator.choice(SPACES)])]
    return "".join(parts)


@pytest.mark.parametrize("pool", POOLS)
def test_every_piece_alone_and_in_a_sentence(tokenizer, oracle, pool):
    for piece in POOLS[pool]:
        for text in (piece, f"I saw {piece} there", f'"{piece}"', f"{piece}, he said", f"({piece})", f"'{piece}"):
            assert words_of(tokenizer, text) == oracle.words(text), text


def test_the_table_has_every_character_and_no_other():
    table = word_rules.character_table()
    codes = [code for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    expected = "x".join(table.get(chr(code), chr(code)) for code in codes)
    normalizer = normalizers.Precompiled(word_rules._double_array(table))
    assert normalizer.normalize_str("x".join(map(chr, codes))) == expected


@pytest.mark.parametrize(("glued", "least"), [(0.0, 0.995), (0.3, 0.98)])
def test_random_texts(tokenizer, oracle, glued, least):
    """Text made to be hard: what is left are piled-up marks; the share is a bound on what is known to differ."""
    generator = random.Random(7)
    texts = [make_text(generator, glued) for _ in range(3000)]
    equal = [words_of(tokenizer, text) == oracle.words(text) for text in texts]
    assert sum(equal) / len(equal) >= least


def test_every_short_plain_text_has_the_same_words_in_both_pipelines(tokenizer):
    characters = [chr(code) for code in (10, *range(0x20, 0x7F)) if is_plain(chr(code))]
    signs = [character for character in characters if not character.isalnum()] + ["a", "B", "1", "s", "..", "'s"]
    pairs = ["".join(pair) for pair in itertools.product(characters, repeat=2)]
    triples = ["w" + "".join(triple) + "d" for triple in itertools.product(signs, repeat=3)]
    for text in ["", *characters, *pairs, *triples[::3]]:
        assert plain_words_of(tokenizer, text) == words_of(tokenizer, text), text


@pytest.mark.parametrize("text", ["&gt;", "e\u0301", "\u2018a\u2019", "a\tb", "a\rb", "a\x00b", "\x1b[0m", "a\u2003b"])
def test_what_is_not_plain_needs_the_whole_preparation(tokenizer, text):
    assert not is_plain(text)
    assert plain_words_of(tokenizer, text) != words_of(tokenizer, text)


def test_a_letter_composes_with_a_mark_behind_a_removed_character(tokenizer, oracle):
    assert words_of(tokenizer, "e\u0007\u0301t") == oracle.words("e\u0007\u0301t") == ["ét"]


@pytest.mark.parametrize("unit", ["'", "':.#&", "a:", "a.B", "a<b", "x's", "-", "@a.b", "5m."])
def test_long_text_without_a_space_is_quick(tokenizer, unit):
    start = time.process_time()
    tokenizer.backend_tokenizer.normalizer.normalize_str("x" + unit * (20000 // len(unit)))
    assert time.process_time() - start < 3


def test_known_differences(tokenizer, oracle):
    """What the native pipeline does not do, so that the documentation stays true."""
    assert oracle.words("Iraqâ€™s oil") == ["iraq", "'s", "oil"]
    assert words_of(tokenizer, "Iraqâ€™s oil") != oracle.words("Iraqâ€™s oil")
    assert (oracle.words("Ima go"), words_of(tokenizer, "Ima go")) == (["i", "m", "a", "go"], ["i", "ma", "go"])
    assert (oracle.words("&eacute;"), words_of(tokenizer, "&eacute;")) == (["é"], ["&", "eacute", ";"])


WORDS = st.sampled_from([piece for name in ("words", "numbers", "abbreviations") for piece in POOLS[name]])
SENTENCE_PARTS = st.one_of(
    WORDS,
    WORDS,
    st.tuples(st.sampled_from(['"{}"', "({})", "{},", "{};", "{}?", "{}!"]), WORDS).map(
        lambda two: two[0].format(two[1])
    ),
    st.sampled_from([piece for name in ("contractions", "scripts", "entities") for piece in POOLS[name]]),
    st.text(string.ascii_letters, min_size=1, max_size=12),
)
SENTENCES = st.lists(st.tuples(SENTENCE_PARTS, st.sampled_from([" "] * 8 + SPACES)), min_size=1, max_size=30)
WILD_PARTS = st.one_of(
    st.sampled_from([piece for pool in POOLS.values() for piece in pool] + SPACES),
    st.sampled_from(["[s]", "[$]", "[e]", "<unk>", "</w>", "[ s ]", "<|endoftext|>", "&nbsp;", "&amp;amp;", "<br/>"]),
    st.text(max_size=5),
    st.sampled_from(["\x00", "\x1b[31m", "\x7f", "\ufeff", "\u00ad", "e\u0301", "|\u20e3", "\u01c4\u0323"]),
)
WILD = st.lists(st.tuples(WILD_PARTS, st.sampled_from([" ", " ", ""])), max_size=25)


def joined(parts):
    return "".join(itertools.chain.from_iterable(parts))


@given(SENTENCES.map(joined))
def test_written_english_equals_the_oracle(tokenizer, oracle, text):
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == oracle.ids(text)


@given(WILD.map(joined), st.sampled_from([{}, {"split_special_tokens": False}]))
def test_what_holds_for_every_text(tokenizer, oracle, text, options):
    """No control token, offsets in the text, the same ids with offsets and from the decoded text, all letters kept."""
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_control_tokens()
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, **options)
    ids, tokens = encoded["input_ids"], encoded.tokens()
    assert ids == tokenizer(text, add_special_tokens=False, **options)["input_ids"]
    assert not {tokenizer.start_token_id, tokenizer.delimiter_token_id, tokenizer.extract_token_id} & set(ids)
    for token, (start, end) in zip(tokens, encoded["offset_mapping"], strict=True):
        assert 0 <= start <= end <= len(text)
        if text.isascii() and token.isalnum() and "&" not in text:
            assert token in re.sub(r"\s|\x1b\[[0-9;]*[A-Za-z]|[\x00-\x1f\x7f]", "", text[start:end]).lower()
    decoded = tokenizer.decode(ids)
    if tokenizer.unk_token_id not in ids:
        again = tokenizer.decode(tokenizer(decoded, add_special_tokens=False)["input_ids"])
        assert re.sub(r"\s", "", again) == re.sub(r"\s", "", decoded)
    if text.isascii() and not re.search("[&<\x00\x1b]", text):
        letters = [re.sub("[^a-z]", "", side) for side in ("".join(oracle.words(text)), decoded.replace("<unk>", ""))]
        assert letters[0] == letters[1]


@given(WILD.map(joined), WILD.map(joined), st.sampled_from(["\ud800", "\udfff", "\udc80"]))
def test_half_a_character_anywhere_is_refused(tokenizer, before, after, half):
    for texts in (before + half + after, ["plain", before + half + after]):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            tokenizer(texts)


@pytest.mark.real_data
def test_a_novel_with_the_released_vocabulary(real_data_dir):
    novels = sorted((real_data_dir / "books" / "validation").glob("*.txt"))
    bpe = real_data_dir / "openai_gpt_bpe"
    released = GPT1Tokenizer.from_openai(bpe / "encoder_bpe_40000.json", bpe / "vocab_40000.bpe")
    assert (len(released), released.unk_token_id, released.convert_tokens_to_ids("\n</w>")) == (40478, 0, 40477)
    lines = (bpe / "vocab_40000.bpe").read_text(encoding="utf-8").rstrip("\n").split("\n")[1:]
    oracle = oracle_module.Oracle(released.get_vocab(), [tuple(line.split(" ")) for line in lines])
    paragraphs = [line for line in novels[0].read_text(encoding="utf-8").split("\n") if line.strip()]
    expected = [oracle.ids(paragraph) for paragraph in paragraphs]
    found = released(paragraphs, add_special_tokens=False)["input_ids"]
    exact = sum(a == b for a, b in zip(expected, found, strict=True))
    tokens = sum(map(len, expected))
    wrong = sum(max(len(a), len(b)) for a, b in zip(expected, found, strict=True) if a != b)
    assert exact / len(paragraphs) >= 0.995
    assert wrong / tokens <= 0.0005
