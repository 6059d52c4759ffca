"""The released preparation of text, by the libraries it was written with: ftfy, spaCy, lower case and BPE.

Written from the facts of the released `text_utils.py`
(https://github.com/openai/finetune-transformer-lm/blob/master/text_utils.py); ftfy 6 and spaCy 3 stand for its
versions.
"""

import re

import ftfy
import spacy

SAME_AS = {"\u2014": "-", "\u2013": "-", "\u2015": "-", "\u2026": "...", "\u00b4": "'"}
SPACED_RUNS = re.compile("(" + "|".join(re.escape(mark) + "+" for mark in '-~!";?+,)(/*[]}{|_') + ")")
LINE_BREAK = re.compile(r"\s*\n\s*")
OTHER_SPACE = re.compile(r"[^\S\n]+")


def standardise(text: str) -> str:
    """Plain dashes, dots and apostrophes; a space around punctuation; one space or one " \n " for white space."""
    for character, plain in SAME_AS.items():
        text = text.replace(character, plain)
    text = SPACED_RUNS.sub(r" \1 ", text)
    text = LINE_BREAK.sub(" \n ", text)
    return OTHER_SPACE.sub(" ", text).strip()


class Oracle:
    """Words and ids of a text as the released preparation has them."""

    def __init__(self, vocab: dict[str, int], merges: list[tuple[str, str]]):
        self.vocab = vocab
        self.rank = {pair: rank for rank, pair in enumerate(merges)}
        self.split = spacy.blank("en").tokenizer
        self.known = {}

    def words(self, text: str) -> list[str]:
        """Lower-case words; the white space around a line break is one word, "\n"."""
        words = [token.text.lower() for token in self.split(standardise(ftfy.fix_text(text)))]
        return ["\n" if word == "\n " else word for word in words]

    def ids(self, text: str) -> list[int]:
        """Ids of the words' pieces; 0 for a piece that the vocabulary does not have."""
        return [index for word in self.words(text) for index in self._word_ids(word)]

    def _word_ids(self, word: str) -> list[int]:
        if word not in self.known:
            self.known[word] = [self.vocab.get(piece, 0) for piece in self._pieces(word)]
        return self.known[word]

    def _pieces(self, word: str) -> list[str]:
        pieces = [*word[:-1], word[-1] + "</w>"]
        while len(pieces) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(pieces, pieces[1:], strict=False)]
            if min(ranks) == len(self.rank):
                break
            best = ranks.index(min(ranks))
            pair = (pieces[best], pieces[best + 1])
            pieces = _merge(pieces, pair)
        return pieces


def _merge(pieces: list[str], pair: tuple[str, str]) -> list[str]:
    merged, position = [], 0
    while position < len(pieces):
        found = tuple(pieces[position : position + 2]) == pair
        merged.append("".join(pair) if found else pieces[position])
        position += 2 if found else 1
    return merged
