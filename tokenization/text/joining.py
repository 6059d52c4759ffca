"""Decoded text that reads as text: words and punctuation joined again, sentences with capitals.

The preparation separates punctuation and the parts of contractions by spaces, and has one sign for all dashes and one
for all double quotation marks. The functions here go from left to right and never look ahead. The beginning of a text
is therefore joined as it is in the whole text, but for numbers such as 1,308, whose comma needs three digits.
"""

import re
from collections.abc import Iterable, Iterator

# Words that join any word before them, and words that join only certain ones.
TAILS = frozenset(["n't", "'s", "'ll", "'d", "'ve", "'re", "'m"])
# fmt: off
BEFORE_NT = frozenset([
    "ai", "are", "ca", "could", "dare", "did", "do", "does", "had", "has", "have", "is", "might", "must", "need",
    "ought", "sha", "should", "was", "were", "wo", "would",
])
# fmt: on
TAILS_AFTER = {
    "nt": BEFORE_NT,
    "not": frozenset(["can"]),
    "na": frozenset(["gon"]),
    "ta": frozenset(["got"]),
    "all": frozenset(["y'"]),
    "on": frozenset(["c'm"]),
    "'y": frozenset(["'d"]),
}
CLOSING = re.compile(r"\.+|[,;:!?%)\]}]")
OPENING = frozenset("([{$£€#¡¿")
THOUSAND = re.compile(r"[0-9]{1,3},[0-9]{3}")
DASHES = re.compile(r"-+|/+")
APOSTROPHE_ENDS = ("s", "in")  # of words that an apostrophe may follow: the boys', runnin'
# A full stop behind a single letter ends an abbreviation.
SENTENCE = re.compile(r"""(?:\A|\n|(?:(?<!\.\.)(?<![ .]\w)\.['")\]]*|[!?][)\]]*)[ ])[ "'(\[_-]*\w|\bi\b(?!\.)""")


def join_words(text: str) -> str:
    """Joins punctuation, quotation marks and contractions to their words, line by line.

    Examples:
        >>> join_words("he did n't go , she said .")
        "he didn't go, she said."
    """
    return "\n".join("".join(_joined(line.split(" "))) for line in text.split("\n"))


def join_continuation(text: str, before: str) -> str:
    """Joins a continuation to the text before it, with a space in front if its first word needs one.

    Args:
        text (`str`): the continuation as the tokenizer decodes it.
        before (`str`): the text before, in the same form.
    """
    start = join_words(before)
    whole = join_words(f"{before} {text}")
    return whole[len(start) :] if whole.startswith(start) else text


def capitalise(text: str) -> str:
    """Capitalises sentences and the word "i"; names stay in lower case, as in the vocabulary.

    Examples:
        >>> capitalise("he said that i may. go.")
        'He said that I may. Go.'
    """
    return SENTENCE.sub(lambda found: found[0].upper(), text)


def _joined(words: Iterable[str]) -> Iterator[str]:
    """The words of a line, each with a space in front unless it joins the word before."""
    earlier, before = "", ""  # the two words before
    sticks = True  # whether the next word joins them
    is_open = {'"': False, "'": False, "_": False}
    for word in words:
        if not word:
            continue
        joins_before = False
        joins_after = False
        if word in ('"', "_"):
            joins_before = is_open[word]
            joins_after = not joins_before
            is_open[word] = joins_after
        elif word == "'":
            joins_before = is_open[word] or (not sticks and before.endswith(APOSTROPHE_ENDS))
            joins_after = not joins_before
            is_open[word] = joins_after
        elif CLOSING.fullmatch(word):
            joins_before = True
            joins_after = sticks and len(word) > 1
        elif DASHES.fullmatch(word):
            joins_before = before != ""
            joins_after = joins_before
        elif word in OPENING:
            joins_after = True
        else:
            is_tail = word in TAILS or before.lower() in TAILS_AFTER.get(word, ())
            is_thousand = before == "," and THOUSAND.fullmatch(f"{earlier},{word}") is not None
            joins_before = is_thousand or is_tail
        yield word if joins_before or sticks else " " + word
        earlier, before, sticks = before, word, joins_after
