"""Tokenizers of five kinds that are learnt from the same text."""

import json
import os
import random
import subprocess
import sys

import pytest
from support.refusals import refusal
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertTokenizer

from tokenization import TOKENIZER_KINDS, family_tokenizer, open_tokenizer, train_tokenizer
from tokenization.text.bpe_training import learn_merges
from tokenization.text.training import describe_tokenizer

TEXTS = [
    "The old farmer Émile didn't walk to the market; NASA did.",
    "De oude boer liep niet naar de markt, één keer wel.",
    "老农夫走到市场去了。",
    "def plough(field_a):\n\treturn field_a + 1\n",
]
TRICK = "a [s] b [$] c [e] <|endoftext|> <unk> [CLS] [MASK]"


def learn(kind: str, texts=TEXTS, num_merges: int = 100):
    merges = None if kind == "characters" else num_merges
    return train_tokenizer(iter(texts * 3), kind, merges, show_progress=False)


@pytest.fixture(scope="module")
def learnt():
    return {kind: learn(kind) for kind in TOKENIZER_KINDS}


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def random_text(generator: random.Random) -> str:
    """Up to 20 characters of any kind that UTF-8 can write."""
    codes = []
    for _ in range(generator.randrange(1, 20)):
        top = generator.choice([0x80, 0x800, 0x10000, 0x110000])
        code = generator.randrange(top)
        if not 0xD800 <= code < 0xE000:
            codes.append(code)
    return "".join(map(chr, codes))


def test_bytes_give_any_text_back(learnt):
    generator = random.Random(0)
    texts = [random_text(generator) for _ in range(2_000)]
    batch = learnt["bytes"](texts)["input_ids"]
    assert learnt["bytes"].batch_decode(batch) == texts


def test_the_papers_tokenizer_does_not_give_any_text_back(learnt):
    """So that the test before has something to find."""
    assert learnt["gpt1"].decode(ids_of(learnt["gpt1"], TEXTS[3])) != TEXTS[3]


def test_characters_give_their_text_back(learnt):
    tokenizer = learnt["characters"]
    assert [tokenizer.decode(ids_of(tokenizer, text)) for text in TEXTS] == TEXTS


def test_a_character_is_a_token(learnt):
    assert learnt["characters"].tokenize("to do\n") == ["t", "o", " ", "d", "o", "\n"]


def test_characters_that_the_text_does_not_have_are_unknown(learnt):
    assert learnt["characters"].tokenize("to ß") == ["t", "o", " ", "<unk>"]


def test_cased_words_are_those_of_the_paper_with_capitals(learnt):
    cased = learnt["cased"]
    text = " ".join(TEXTS)
    words = cased.decode(ids_of(cased, text))
    assert "Émile did n't walk" in words
    assert words.lower() == learnt["gpt1"].decode(ids_of(learnt["gpt1"], text))


@pytest.mark.parametrize("text", ["The farmer Didn't.", "É The farmer didn't"], ids=["plain", "not-plain"])
def test_cased_text_keeps_its_capitals_in_a_batch_and_alone(learnt, text):
    """A batch of plain text takes a shorter pipeline."""
    tokenizer = learnt["cased"]
    alone = tokenizer.backend_tokenizer.encode(text).ids
    assert tokenizer([text, "farmer"])["input_ids"][0] == alone
    assert alone != tokenizer(text.lower())["input_ids"]


def test_decoded_contractions_with_a_capital_are_joined(learnt):
    tokenizer = learn("cased", ["Cannot he? Can not he."])
    ids = ids_of(tokenizer, "Cannot")
    assert tokenizer.tokenize("Cannot")[-1] == "not</w>"
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=True) == "Cannot"


def test_a_word_piece_that_goes_on_has_a_mark(learnt):
    first, *more, last = learnt["wordpiece"].tokenize("farmed Émile")
    assert all(piece.startswith("##") for piece in more)
    assert first + "".join(piece.removeprefix("##") for piece in more) == "farmed"
    assert last == "Émile"


def test_word_pieces_are_those_of_berts_tokenizer(learnt):
    """The same vocabulary in transformers' class."""
    vocab = json.loads(learnt["wordpiece"].backend_tokenizer.to_str())["model"]["vocab"]
    theirs = BertTokenizer(vocab=vocab, do_lower_case=False)
    assert [ids_of(theirs, text) for text in TEXTS] == [ids_of(learnt["wordpiece"], text) for text in TEXTS]


@pytest.mark.parametrize(("length", "is_known"), [(999, True), (1001, False)])
def test_a_sentence_without_blanks_is_known_to_word_pieces(length, is_known, learnt):
    """Thai writes so. BERT's own tokenizer knows no word of more than 100 characters."""
    tokens = learnt["wordpiece"].tokenize("a" * length)
    assert (tokens != ["[UNK]"]) == is_known


def test_bytes_are_numbered_as_by_gpt2(learnt):
    tokenizer = learnt["bytes"]
    assert tokenizer.convert_ids_to_tokens([0, 1]) == ["!", '"']
    assert tokenizer.convert_tokens_to_ids("<|endoftext|>") == len(tokenizer) - 1
    assert len(tokenizer) == 256 + 100 + 1


@pytest.mark.parametrize("kind", ["gpt1", "cased", "bytes", "wordpiece"])
def test_exactly_as_many_merges_are_learnt_as_asked(kind):
    few, more = learn(kind, num_merges=5), learn(kind, num_merges=25)
    assert len(more) - len(few) == 20


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_tokenizer_json_alone_gives_the_ids(learnt, tmp_path, kind):
    learnt[kind].save_pretrained(tmp_path)
    alone = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    ids = [alone.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert ids == [ids_of(learnt[kind], text) for text in TEXTS]


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_saved_tokenizer_opens_with_the_same_ids(learnt, tmp_path, kind):
    learnt[kind].save_pretrained(tmp_path)
    expected = [ids_of(learnt[kind], text) for text in TEXTS]
    for opened in (open_tokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)):
        assert [ids_of(opened, text) for text in TEXTS] == expected


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_text_never_becomes_a_special_token(tmp_path, kind):
    """Learnt from text with all characters of the special tokens, so that none is unknown."""
    learn(kind, [*TEXTS, TRICK]).save_pretrained(tmp_path)
    opened = open_tokenizer(tmp_path)
    assert set(opened.all_special_ids).isdisjoint(ids_of(opened, TRICK))
    unprotected = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))  # the setting is not in the file
    assert not set(opened.all_special_ids).isdisjoint(unprotected.encode(TRICK, add_special_tokens=False).ids)


def test_the_same_text_gives_the_same_tokenizers_in_another_process():
    """In one with other hashes of strings and with two threads."""
    texts = ["ab cd ef gh ij kl mn op qr st uv wx yz 中文 日本 한국 \U00020000\U00020001 \ue000\ue001"] * 3
    here = [learn(kind, texts, 30).backend_tokenizer.to_str() for kind in TOKENIZER_KINDS]
    program = (
        "from tokenization import TOKENIZER_KINDS, train_tokenizer\n"
        "for kind in TOKENIZER_KINDS:\n"
        "    merges = None if kind == 'characters' else 30\n"
        f"    tokenizer = train_tokenizer(iter({texts * 3!r}), kind, merges, show_progress=False)\n"
        "    print(tokenizer.backend_tokenizer.to_str().replace('\\n', ''))"
    )
    settings = {**os.environ, "PYTHONHASHSEED": "7", "TOKENIZERS_PARALLELISM": "true", "RAYON_NUM_THREADS": "2"}
    there = subprocess.run(
        [sys.executable, "-c", program], env=settings, capture_output=True, text=True, check=True, encoding="utf-8"
    )
    assert [json.loads(line) for line in there.stdout.splitlines()] == [json.loads(text) for text in here]


def test_bert_reads_word_pieces_in_its_own_form(learnt):
    tokenizer = family_tokenizer(learn("wordpiece"), "bert")
    assert tokenizer.tokenize("farmer", "market", add_special_tokens=True) == [
        *["[CLS]", "farmer", "[SEP]", "market", "[SEP]"]
    ]
    assert tokenizer("farmer", "market")["token_type_ids"] == [0, 0, 0, 1, 1]


def test_word_pieces_alone_have_no_form(learnt):
    assert learnt["wordpiece"].num_special_tokens_to_add() == 0


def test_kinds_and_merges_that_cannot_be_are_refused():
    assert "`kind` is 'byte'" in refusal(train_tokenizer, iter(TEXTS), "byte")
    assert "`num_merges` is -1" in refusal(train_tokenizer, iter(TEXTS), "bytes", -1)
    assert "`num_merges` is 5, but a tokenizer of characters" in refusal(train_tokenizer, iter(TEXTS), "characters", 5)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_text_without_words_is_refused(kind):
    assert "The training text has no words." in refusal(train_tokenizer, iter([" \n", ""]), kind, show_progress=False)


def test_a_tokenizer_is_described(learnt):
    described = {kind: describe_tokenizer(tokenizer) for kind, tokenizer in learnt.items()}
    assert described == {
        "gpt1": "words in lower case, split by rules for English, in the pieces of a BPE",
        "cased": "words with capitals, split by rules for English, in the pieces of a BPE",
        "bytes": "byte-level BPE, for any text",
        "wordpiece": "WordPiece",
        "characters": "one token a character",
    }


@pytest.mark.parametrize(
    ("counts", "expected"), [((2048, 3), ("a", "b")), ((3, 2048), ("c", "d")), ((1025, 1027), ("c", "d"))]
)
def test_the_pair_that_occurs_most_often_is_merged_first(counts, expected):
    """Also where words are so frequent that they are repeated in several strings."""
    words = dict(zip(("ab", "cd"), counts, strict=True))
    assert learn_merges(words, list("abcd"), num_merges=1, show_progress=False) == [expected]


@pytest.mark.parametrize(("least", "expected"), [(1, [("a", "b"), ("c", "d")]), (2, [("a", "b")]), (3, [])])
def test_a_pair_that_occurs_too_rarely_is_not_merged(least, expected):
    words = {"ab": 2, "cd": 1}
    assert learn_merges(words, list("abcd"), num_merges=9, min_frequency=least, show_progress=False) == expected
