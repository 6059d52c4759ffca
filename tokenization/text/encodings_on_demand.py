"""Encodes ids at once, and the rest of an encoding (tokens, offsets, words) when it is first asked for.

Most callers want the ids alone. Those of many texts, or of a long one, take a half to seven tenths of the processor
time of transformers' own way. `benchmarks/tokenizer_parity.py` measures both.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tokenizers import Encoding, Tokenizer
from transformers import BatchEncoding, TokenizersBackend

from .word_rules import is_plain, plain_preparation

# Arguments for which transformers needs more of the backend than `IdsFirst` gives.
FULL_ENCODING = ("is_split_into_words", "return_offsets_mapping", "sanitize_control_tokens")


class EncodingsOnDemand(Sequence):
    """
    The `encodings` of a batch, made when one is first read, by the tokenizer as it is at that moment: read them before
    you add tokens to it. `make` encodes the batch again, in full.
    """

    def __init__(self, make: Callable[[], BatchEncoding], length: int):
        self._make, self._length, self._made = make, length, None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):
        if self._made is None:
            self._made, self._make = self._make().encodings, None
        return self._made[index]

    def __reduce__(self):
        return list, (self[:],)


class IdsFirst:
    """A tokenizer's backend whose batches have no offsets. Plain rows take a shorter pipeline to the same ids."""

    def __init__(self, backend: Tokenizer):
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch(self, batch: list, add_special_tokens: bool, is_pretokenized: bool) -> list[Encoding]:
        plain = [is_plain(row) if isinstance(row, str) else all(map(is_plain, row)) for row in batch]
        # Padding is that of the whole batch, and the shorter pipeline knows no added words.
        if self.padding or not all(token.special for token in self.get_added_tokens_decoder().values()):
            plain = [False] * len(batch)
        found = {}
        for kind in set(plain):
            pipeline = self._plain_pipeline() if kind else self._backend
            rows = [row for row, is_of_kind in zip(batch, plain, strict=True) if is_of_kind is kind]
            found[kind] = iter(pipeline.encode_batch_fast(rows, add_special_tokens=add_special_tokens))
        return [next(found[kind]) for kind in plain]

    def _plain_pipeline(self) -> Tokenizer:
        """A tokenizer with the backend's model and settings that prepares plain text. It is made in microseconds."""
        pipeline = Tokenizer(self.model)
        pipeline.normalizer = plain_preparation()
        pipeline.pre_tokenizer = self.pre_tokenizer
        pipeline.post_processor = self.post_processor
        if self.truncation:
            pipeline.enable_truncation(**self.truncation)
        return pipeline


def encode_ids_first(tokenizer: TokenizersBackend, text, text_pair, **kwargs) -> BatchEncoding:
    """The result of transformers' `_encode_plus` for these arguments, with encodings on demand."""
    # Copies: the caller may change its lists before it reads the encodings.
    text, text_pair = (list(rows) if isinstance(rows, list) else rows for rows in (text, text_pair))
    encode = partial(TokenizersBackend._encode_plus, text=text, text_pair=text_pair, **kwargs)
    if any(kwargs.get(name) for name in FULL_ENCODING):
        return encode(tokenizer)
    tokenizer.backend_tokenizer.encode_special_tokens = True
    ids_first = copy.copy(tokenizer)
    ids_first._tokenizer = IdsFirst(tokenizer.backend_tokenizer)
    batch = encode(ids_first)
    batch._encodings = EncodingsOnDemand(partial(encode, tokenizer), len(batch.encodings))
    return batch
