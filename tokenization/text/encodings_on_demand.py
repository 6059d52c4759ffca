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

# Arguments for which transformers needs more of the backend than `IdsFirst` gives. Of windows, `encode_batch_fast`
# gives later ones of a second text the types of the first.
FULL_ENCODING = (
    "is_split_into_words",
    "return_offsets_mapping",
    "return_overflowing_tokens",
    "sanitize_control_tokens",
)


class EncodingsOnDemand(Sequence):
    """
    The `encodings` of a batch, made when one is first read, by the tokenizer as it is at that moment: read them before
    you add tokens to it. `make` encodes the batch again, in full.
    """

    def __init__(self, make: Callable[[], BatchEncoding], length: int):
        self._make = make
        self._length = length
        self._made: list[Encoding] | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):
        if self._made is None:
            self._made = self._make().encodings
            self._make = None  # it holds the texts
        return self._made[index]

    def __reduce__(self):
        return list, (self[:],)


class IdsFirst:
    """A tokenizer's backend whose batches have no offsets. Plain rows take a shorter pipeline to the same ids.

    transformers' `_encode_plus` encodes by `encode_batch` alone, and sets truncation and padding on the backend
    itself. So the shorter pipeline is made for each batch, from the backend as it is then.
    """

    def __init__(self, backend: Tokenizer, do_lower_case: bool):
        self._backend = backend
        self._do_lower_case = do_lower_case

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def encode_batch(self, batch: list, add_special_tokens: bool, is_pretokenized: bool) -> list[Encoding]:
        # Padding is that of the whole batch, and the shorter pipeline knows no added words.
        if self.padding or self._has_added_words():
            return self._backend.encode_batch_fast(batch, add_special_tokens=add_special_tokens)
        are_plain = [_is_plain_row(row) for row in batch]
        plain_rows = [row for row, is_plain_row in zip(batch, are_plain, strict=True) if is_plain_row]
        other_rows = [row for row, is_plain_row in zip(batch, are_plain, strict=True) if not is_plain_row]
        of_plain = self._plain_pipeline().encode_batch_fast(plain_rows, add_special_tokens=add_special_tokens)
        of_others = self._backend.encode_batch_fast(other_rows, add_special_tokens=add_special_tokens)
        next_plain, next_other = iter(of_plain), iter(of_others)
        return [next(next_plain) if is_plain_row else next(next_other) for is_plain_row in are_plain]

    def _has_added_words(self) -> bool:
        return not all(token.special for token in self.get_added_tokens_decoder().values())

    def _plain_pipeline(self) -> Tokenizer:
        """A tokenizer with the backend's model and settings that prepares plain text. It is made in microseconds."""
        pipeline = Tokenizer(self.model)
        pipeline.normalizer = plain_preparation(self._do_lower_case)
        pipeline.pre_tokenizer = self.pre_tokenizer
        pipeline.post_processor = self.post_processor
        if self.truncation:
            pipeline.enable_truncation(**self.truncation)
        return pipeline


def _is_plain_row(row: str | tuple[str, str]) -> bool:
    if isinstance(row, str):
        return is_plain(row)
    return all(is_plain(text) for text in row)


def encode_ids_first(tokenizer: TokenizersBackend, text, text_pair, **kwargs) -> BatchEncoding:
    """The result of transformers' `_encode_plus` for these arguments, with encodings on demand."""
    # Copies: the caller may change its lists before it reads the encodings.
    if isinstance(text, list):
        text = list(text)
    if isinstance(text_pair, list):
        text_pair = list(text_pair)
    encode = partial(TokenizersBackend._encode_plus, text=text, text_pair=text_pair, **kwargs)
    if any(kwargs.get(name) for name in FULL_ENCODING):
        return encode(tokenizer)
    tokenizer.backend_tokenizer.encode_special_tokens = True
    ids_first = copy.copy(tokenizer)
    ids_first._tokenizer = IdsFirst(tokenizer.backend_tokenizer, tokenizer.do_lower_case)
    batch = encode(ids_first)
    batch._encodings = EncodingsOnDemand(partial(encode, tokenizer), len(batch.encodings))
    return batch
