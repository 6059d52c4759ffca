"""Decoded text that reads as text: joined words and punctuation, capitals, and how often the original comes back."""

import re
from itertools import product

import pytest

from tokenization import GPT1Tokenizer, capitalise, join_continuation, join_words

TEXTS = {
    "i do n't , he ca n't and they wo n't .": "i don't, he can't and they won't.",
    "she 's gone ; we 'll see , i 'm sure you 've met": "she's gone; we'll see, i'm sure you've met",
    "i can not , it 's gon na rain , you got ta go , do nt !": "i cannot, it's gonna rain, you gotta go, dont!",
    '" why ? " she said . " do n\'t go ! "': '"why?" she said. "don\'t go!"',
    'he said , " go ( now ) ... or never . "': 'he said, "go (now)... or never."',
    '" one \n" two "': '"one\n"two"',
    "the boys ' room , ' tis old": "the boys' room, 'tis old",
    'well - known and / or - " no - " 3 - 4': 'well-known and/or-"no-" 3-4',
    "- a list - item ( ) a": "- a list-item () a",
    "... and then ... nothing": "...and then... nothing",
    "it costs $ 5 or 200 , or 3 % [ of it ] : fine": "it costs $5 or 200, or 3% [of it]: fine",
    "a _ word _ , b & c = d | e": "a _word_, b & c = d | e",
    "mr. smith and dr. who , at 5 p.m. ,": "mr. smith and dr. who, at 5 p.m.,",
    "": "",
    "\n": "\n",
}


@pytest.mark.parametrize("text", TEXTS)
def test_words_are_joined(text):
    assert join_words(text) == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_the_beginning_of_a_text_is_joined_as_in_the_whole(text):
    words = text.split(" ")
    for number in range(len(words)):
        before, after = " ".join(words[:number]), " ".join(words[number:])
        assert join_words(text).startswith(join_words(before))
        assert join_words(before) + join_continuation(after, before) == join_words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the end. it was late! i'm sure", "The end. It was late! I'm sure"),
        ("mr. smith met dr. who. they left", "Mr. Smith met dr. Who. They left"),
        ('"why?" she said. "because..." and\n"no', '"Why?" she said. "Because..." and\n"No'),
        ("at 5 p.m. he and i. e. went, i.e. home", "At 5 p.m. he and i. e. went, i.e. home"),
        ("(one.) two, oh no. no, straße. été", "(One.) Two, oh no. No, straße. Été"),
        ("", ""),
    ],
)
def test_capitals(text, expected):
    assert capitalise(text) == expected


LETTERS = [*"abcdefghijklmnopqrstuvwxyz.,:;!?'\"-()", "\n"]
PIECES = ["<unk>", *LETTERS, *(letter + "</w>" for letter in LETTERS)]


@pytest.fixture
def tokenizer():
    return GPT1Tokenizer(vocab={piece: index for index, piece in enumerate(PIECES)}, merges=[])


def test_decoding_joins_where_it_is_asked_for(tokenizer):
    text = '"Don\'t," she said.\n"I\'ll go!"'
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids) == '" do n\'t , " she said .\n" i \'ll go ! "'
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=True) == text.lower()
    assert tokenizer.batch_decode([ids, ids[:4]], clean_up_tokenization_spaces=True) == [text.lower(), '"do n']
    tokenizer.clean_up_tokenization_spaces = True
    assert tokenizer.decode(ids) == text.lower()
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False).startswith('" do n')


def test_prompts_and_what_goes_on_with_them(tokenizer):
    tokenizer.add_control_tokens()
    tokenizer.goes_on = True
    ids = tokenizer("so.")["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["s", "o</w>", ".</w>"]
    assert (tokenizer.decode(ids), tokenizer.decode(ids[-1:]), tokenizer.decode([])) == (" so.", ".", "")
    tokenizer.goes_on = False
    for adds_start, end in ((False, [tokenizer.extract_token_id]), (True, []), (False, [tokenizer.extract_token_id])):
        tokenizer.add_bos_token = adds_start
        assert tokenizer("so.")["input_ids"] == [tokenizer.start_token_id, *ids, *end]
    assert tokenizer.decode(ids) == "so ."


PLAIN = str.maketrans("‘’“”—–―", "''\"\"---")
NAMES = ["Ann", "Mr. Bell", "Dr. Cole", "the boys' aunt"]
VERBS = ["don't know", "can't stay", "haven't slept", "will go", "won't answer", "couldn't care less"]
ENDS = [".", "!", "?", "...", "; that's all.", ", I'm sure.", " (so far).", ", or we'll be late."]
FRAMES = [
    "{name} said: \u201cI {verb}{end}\u201d",
    "\u201cWe {verb}{end}\u201d {name} answered. \u201cThey {verb}{end}\u201d",
    "They {verb} \u2013 \u201cno?\u201d",
    "It\u2019s a well-known thing: you {verb}{end}",
    "There were 5,000 of them, at $5 each, 10% down; {name} paid{end}",
]


def plain(text):
    return re.sub(r"\s+", " ", text.translate(PLAIN).replace("\u2026", "...")).strip().lower()


def comes_back(tokenizer, line):
    ids = tokenizer(line, add_special_tokens=False, verbose=False)["input_ids"]
    return tokenizer.decode(ids, clean_up_tokenization_spaces=True) == plain(line)


def test_made_lines_come_back(tokenizer):
    """All but those with a dash between spaces, which the vocabulary does not tell from a hyphen."""
    letters = dict.fromkeys("".join(FRAMES + NAMES + VERBS + ENDS).lower() + "0123456789$%,'\"-")
    vocab = {piece: index for index, piece in enumerate(["<unk>", *letters, *(letter + "</w>" for letter in letters)])}
    tokenizer = GPT1Tokenizer(vocab=vocab, merges=[])
    lines = {frame.format(name=n, verb=v, end=e) for frame, n, v, e in product(FRAMES, NAMES, VERBS, ENDS)}
    assert [line for line in lines if comes_back(tokenizer, line) == (" \u2013 " in line)] == []
