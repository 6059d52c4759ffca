"""Offsets that cover every character of the original text that a token was made of.

The native pipeline keeps one original character for each prepared one. Some tokens come from several: a newline from
all white space around a line break, a sign from its whole HTML entity, a composed letter from the letter and its
marks. This module extends their offsets when they are asked for. `tokenizer.json` opened without this package points
at one of these characters: the first line break, the semicolon of the entity, the letter.
"""

import json
import re
from functools import cached_property
from unicodedata import normalize

from tokenizers import Encoding
from transformers import BatchEncoding

READ_OFFSETS = ("char_to_token", "char_to_word", "token_to_chars", "word_to_chars")
ENTITY_WITHOUT_END = re.compile(r"&[#;0-9A-Za-z]+\Z")
ENTITY_SIGNS = tuple("&\"'<>")


class CoveringEncoding:
    """
    An `Encoding` with extended offsets.

    Args:
        encoding (`Encoding`): of a text or a pair, truncated or padded in any way.
        texts (`tuple[str, str | None]`): the text, and the second text of a pair.
        newline (`str`): the newline token.
    """

    def __init__(self, encoding: Encoding, texts: tuple[str, str | None], newline: str):
        self._encoding, self._texts, self._newline = encoding, texts, newline

    def __getattr__(self, name):
        return getattr(self._grown if name in READ_OFFSETS else self._encoding, name)

    def __len__(self) -> int:
        return len(self._encoding)

    def __reduce__(self):
        return type(self), (self._encoding, self._texts, self._newline)

    @cached_property
    def offsets(self) -> list[tuple[int, int]]:
        """Where each token begins and ends in its text; (0, 0) for padding and control tokens."""
        tokens, sequences, offsets = self._encoding.tokens, self._encoding.sequence_ids, self._encoding.offsets
        ends = [0, 0]  # of the token before, in each text
        for place, (sequence, (start, end)) in enumerate(zip(sequences, offsets, strict=True)):
            if sequence is None:
                continue
            text, least, token = self._texts[sequence], ends[sequence], tokens[place]
            has_next = place + 1 < len(offsets) and sequences[place + 1] == sequence
            most = offsets[place + 1][0] if has_next else len(text)
            if token == self._newline:
                while start > least and text[start - 1].isspace():
                    start -= 1
                while end < most and text[end].isspace():
                    end += 1
            elif start > least and text[start] == ";" and token.startswith(ENTITY_SIGNS):
                start = ENTITY_WITHOUT_END.search(text, least, start).start()
            elif end < most and text[end] > "\x7f":
                letter = end - 1
                while end < most and len(normalize("NFC", text[letter : end + 1])) == 1:
                    end += 1
            offsets[place] = (start, end)
            ends[sequence] = end
        return offsets

    @cached_property
    def _grown(self) -> Encoding:
        grown = Encoding()
        grown.__setstate__(json.dumps({**json.loads(self._encoding.__getstate__()), "offsets": self.offsets}).encode())
        return grown


def cover_sources(batch: BatchEncoding, text, text_pair, newline: str, return_tensors: str | None) -> BatchEncoding:
    """
    The batch with extended offsets, in its encodings and its `offset_mapping`.

    Args:
        batch (`BatchEncoding`): what `_encode_plus` of transformers returns for the texts.
        text (`str` or list of `str`): as given to it.
        text_pair (`str` or list of `str`, *optional*): as given to it.
        newline (`str`): the newline token.
        return_tensors (`str`, *optional*): as given to it.
    """
    is_single = isinstance(text, str)
    texts, pairs = ([text], [text_pair]) if is_single else (text, text_pair or [None] * len(text))
    rows = map(int, batch.get("overflow_to_sample_mapping", range(len(texts))))
    encodings = [
        CoveringEncoding(encoding, (texts[row], pairs[row]), newline)
        for row, encoding in zip(rows, batch.encodings, strict=True)
    ]
    data = dict(batch.data)
    if "offset_mapping" in data:
        offsets = [encoding.offsets for encoding in encodings]
        if is_single and return_tensors is None and "overflow_to_sample_mapping" not in data:
            (offsets,) = offsets
        data |= BatchEncoding({"offset_mapping": offsets}, tensor_type=return_tensors)
    return BatchEncoding(data, encodings)
