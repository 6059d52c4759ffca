"""Encodes ids at once, and the rest of an encoding (tokens, offsets, words) when it is first asked for.

Most callers want ids alone. On one thread, ids take 0.64 to 0.92 of the time of transformers' own encoding: 0.64 for
one document of 1 MB, 0.77 for a thousand short truncated rows, 0.92 for short texts one by one. 100,000 short rows
take two thirds of the memory. `benchmarks/tokenizer_parity.py` measures these figures.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tokenizers import Encoding, Tokenizer
from transformers import BatchEncoding, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy

from .word_rules import is_plain, plain_preparation

# Arguments that need the full encoding of the backend.
FULL_ENCODING = (
    "is_split_into_words",
    "return_token_type_ids",
    "return_overflowing_tokens",
    "return_special_tokens_mask",
    "return_offsets_mapping",
    "return_length",
    "sanitize_control_tokens",
)


class EncodingsOnDemand(Sequence):
    """
    The `encodings` of a batch, made when one is first read, by the tokenizer as it is at that moment: read them before
    you add tokens to it.

    Args:
        make (`Callable[[], list[Encoding]]`): encodes the batch again, in full.
        length (`int`): number of encodings.
    """

    def __init__(self, make: Callable[[], list[Encoding]], length: int):
        self._make, self._length, self._made = make, length, None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index):
        if self._made is None:
            self._made, self._make = self._make(), None
        return self._made[index]

    def __reduce__(self):
        return list, (self[:],)


def encode_ids_first(
    tokenizer: PreTrainedTokenizerBase, encode: Callable[..., BatchEncoding], text, text_pair, **kwargs
) -> BatchEncoding:
    """
    The result of `encode`, the `_encode_plus` of transformers, for these arguments; if they ask for no more than ids
    and attention mask, with encodings on demand.
    """
    # Copies: the caller may change its lists before it reads the encodings.
    text, text_pair = (list(rows) if isinstance(rows, (list, tuple)) else rows for rows in (text, text_pair))
    encode_in_full = partial(encode, text, text_pair, **kwargs)
    if kwargs.get("return_token_type_ids") is None:
        kwargs["return_token_type_ids"] = "token_type_ids" in tokenizer.model_input_names
    if any(kwargs.get(name) for name in FULL_ENCODING) or not are_strings(text, text_pair):
        return encode_in_full()
    return _encode_ids(tokenizer, text, text_pair, encode_in_full, **kwargs)


def _encode_ids(
    tokenizer: PreTrainedTokenizerBase,
    text: str | list[str],
    text_pair: str | list[str] | None,
    encode_in_full: Callable[[], BatchEncoding],
    add_special_tokens: bool = True,
    padding_strategy: PaddingStrategy = PaddingStrategy.DO_NOT_PAD,
    truncation_strategy: TruncationStrategy = TruncationStrategy.DO_NOT_TRUNCATE,
    max_length: int | None = None,
    stride: int = 0,
    pad_to_multiple_of: int | None = None,
    padding_side: str | None = None,
    return_tensors: str | None = None,
    return_attention_mask: bool | None = None,
    verbose: bool = True,
    **kwargs,
) -> BatchEncoding:
    tokenizer.set_truncation_and_padding(
        padding_strategy, truncation_strategy, max_length, stride, pad_to_multiple_of, padding_side
    )
    tokenizer.backend_tokenizer.encode_special_tokens = True
    is_single = isinstance(text, str)
    texts, pairs = ([text], text_pair and [text_pair]) if is_single else (text, text_pair)
    batch = list(zip(texts, pairs, strict=True)) if pairs else texts
    encodings = _encode_batch(tokenizer.backend_tokenizer, batch, add_special_tokens)
    data = {"input_ids": [encoding.ids for encoding in encodings]}
    if return_attention_mask is None:
        return_attention_mask = "attention_mask" in tokenizer.model_input_names
    if return_attention_mask:
        padded = padding_strategy != PaddingStrategy.DO_NOT_PAD
        masks = (encoding.attention_mask if padded else [1] * len(encoding) for encoding in encodings)
        data["attention_mask"] = list(masks)
    if max(map(len, encodings)) > tokenizer.model_max_length:
        for ids in data["input_ids"]:
            tokenizer._eventual_warn_about_too_long_sequence(ids, max_length, verbose)
    if is_single and return_tensors is None:
        data = {name: rows[0] for name, rows in data.items()}
    on_demand = EncodingsOnDemand(lambda: encode_in_full().encodings, len(batch))
    return BatchEncoding(data, on_demand, return_tensors, n_sequences=2 if pairs else 1)


def _encode_batch(backend: Tokenizer, batch: list, add_special_tokens: bool) -> list[Encoding]:
    """The encodings without offsets. Plain rows take the shorter pipeline, which gives the same ids."""
    plain = [is_plain(row) if isinstance(row, str) else all(map(is_plain, row)) for row in batch]
    are_special = all(token.special for token in backend.get_added_tokens_decoder().values())
    # Rows padded to the longest have to be encoded together.
    if not are_special or not any(plain) or (backend.padding and not all(plain)):
        return backend.encode_batch_fast(batch, add_special_tokens=add_special_tokens)
    found = {}
    for kind, pipeline in ((True, _plain_pipeline(backend)), (False, backend)):
        rows = [row for row, is_of_kind in zip(batch, plain, strict=True) if is_of_kind is kind]
        found[kind] = iter(pipeline.encode_batch_fast(rows, add_special_tokens=add_special_tokens))
    return [next(found[kind]) for kind in plain]


def _plain_pipeline(backend: Tokenizer) -> Tokenizer:
    """A tokenizer with the backend's model and settings that prepares plain text. It is made in a microsecond."""
    pipeline = Tokenizer(backend.model)
    pipeline.normalizer = plain_preparation()
    pipeline.pre_tokenizer = backend.pre_tokenizer
    pipeline.post_processor = backend.post_processor
    if backend.truncation:
        pipeline.enable_truncation(**backend.truncation)
    if backend.padding:
        pipeline.enable_padding(**backend.padding)
    return pipeline


def are_strings(text, text_pair) -> bool:
    """Whether these are a text, a pair, or a batch of either; transformers itself checks all other input."""
    if isinstance(text, str):
        return text_pair is None or isinstance(text_pair, str)
    columns = [text] if text_pair is None else [text, text_pair]
    are_columns = all(isinstance(column, list) and len(column) == len(columns[0]) > 0 for column in columns)
    return are_columns and all(isinstance(row, str) for column in columns for row in column)


__all__ = ["EncodingsOnDemand", "are_strings", "encode_ids_first"]
