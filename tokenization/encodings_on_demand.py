"""Encodes ids at once, and the rest of an encoding (tokens, offsets, words) when it is first asked for.

Most callers want the ids of unpadded texts. They take 0.45 to 0.85 of the processor time of transformers' own way:
0.45 for short sentences, 0.62 for a novel, 0.85 for long passages. `benchmarks/tokenizer_parity.py` measures both.
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
        make (`Callable[[], BatchEncoding]`): encodes the batch again, in full.
        length (`int`): number of encodings.
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


def encode_ids_first(
    tokenizer: PreTrainedTokenizerBase, encode: Callable[..., BatchEncoding], text, text_pair, **kwargs
) -> BatchEncoding:
    """
    The result of `encode`, the `_encode_plus` of transformers, for these arguments; if they ask for no more than ids
    and attention mask without padding, with encodings on demand.
    """
    # Copies: the caller may change its lists before it reads the encodings.
    text, text_pair = (list(rows) if isinstance(rows, list) else rows for rows in (text, text_pair))
    is_single = isinstance(text, str)
    columns = [[rows] if is_single else rows for rows in ((text, text_pair) if text_pair else (text,))]
    are_texts = all(isinstance(column, list) and len(column) == len(columns[0]) > 0 for column in columns)
    asks_for_more = any(kwargs.get(name) for name in FULL_ENCODING) or "token_type_ids" in tokenizer.model_input_names
    is_padded = kwargs.get("padding_strategy", PaddingStrategy.DO_NOT_PAD) != PaddingStrategy.DO_NOT_PAD
    if (
        asks_for_more
        or is_padded
        or not are_texts
        or not all(isinstance(row, str) for rows in columns for row in rows)
    ):
        return encode(text, text_pair, **kwargs)

    cut = kwargs.get("truncation_strategy", TruncationStrategy.DO_NOT_TRUNCATE)
    max_length, stride = kwargs.get("max_length"), kwargs.get("stride", 0)
    tokenizer.set_truncation_and_padding(PaddingStrategy.DO_NOT_PAD, cut, max_length, stride, None, None)
    tokenizer.backend_tokenizer.encode_special_tokens = True
    batch = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    encodings = _encode_batch(tokenizer.backend_tokenizer, batch, kwargs.get("add_special_tokens", True))
    data = {"input_ids": [encoding.ids for encoding in encodings]}
    wants_mask = kwargs.get("return_attention_mask")
    if wants_mask or (wants_mask is None and "attention_mask" in tokenizer.model_input_names):
        data["attention_mask"] = [[1] * len(ids) for ids in data["input_ids"]]
    for ids in data["input_ids"]:
        if len(ids) > tokenizer.model_max_length:
            tokenizer._eventual_warn_about_too_long_sequence(ids, max_length, kwargs.get("verbose", True))
    return_tensors = kwargs.get("return_tensors")
    if is_single and return_tensors is None:
        data = {name: rows[0] for name, rows in data.items()}
    on_demand = EncodingsOnDemand(partial(encode, text, text_pair, **kwargs), len(batch))
    return BatchEncoding(data, on_demand, return_tensors, n_sequences=len(columns))


def _encode_batch(backend: Tokenizer, batch: list, add_special_tokens: bool) -> list[Encoding]:
    """The encodings without offsets. Plain rows take the shorter pipeline, which gives the same ids."""
    plain = [is_plain(row) if isinstance(row, str) else all(map(is_plain, row)) for row in batch]
    if not any(plain) or not all(token.special for token in backend.get_added_tokens_decoder().values()):
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
    return pipeline


__all__ = ["EncodingsOnDemand", "encode_ids_first"]
