"""Batches whose ids come first: equal to those of transformers, in every field and whenever it is read."""

import pickle

from hypothesis import example, given
from hypothesis import strategies as st
from support.small_bpe import MERGES, VOCAB, full_batch
from transformers import TokenizersBackend

from tokenization import GPT1Tokenizer

ROWS = ["Hello, don't say [s] or $!", "", " \n ", "“Hello”—do 😀 &lt;d&gt;…"]


def fields(encodings):
    return [
        (e.ids, e.type_ids, e.tokens, e.offsets, e.word_ids, e.sequence_ids, e.special_tokens_mask, e.attention_mask)
        for e in encodings
    ]


TEXTS = st.one_of(st.sampled_from(ROWS), st.text(alphabet="helo do,'!$[]s\né", max_size=12))
CUTS = [
    {},
    {"truncation": True, "max_length": 7},
    {"truncation": "only_first", "max_length": 5},
    {"truncation": True, "max_length": 7, "return_overflowing_tokens": True, "return_token_type_ids": True},
]
SHAPES = [{}, {"padding": True, "padding_side": "left"}, {"padding": "max_length", "max_length": 7}]


@given(
    rows=st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=5),
    has_pairs=st.booleans(),
    options=st.tuples(
        st.sampled_from([{}, {"add_special_tokens": False}, {"return_attention_mask": False}]),
        st.sampled_from(CUTS),
        st.sampled_from(SHAPES),
    ),
)
@example(rows=[("do", "“do”")], has_pairs=True, options=({}, {}, {}))
@example(rows=[("do", "hello do hello do")], has_pairs=True, options=({}, CUTS[-1], {}))
def test_a_batch_is_that_of_transformers(rows, has_pairs, options):
    tokenizer = GPT1Tokenizer(vocab=VOCAB, merges=MERGES)
    tokenizer.add_control_tokens()
    options = options[0] | options[1] | options[2]
    if options.get("truncation") == "only_first":
        options["max_length"] += 20 * has_pairs  # a second text that fits
    columns = list(map(list, zip(*rows, strict=True)))[: 1 + has_pairs]
    for texts in (columns, [column[0] for column in columns]):
        found, expected = tokenizer(*texts, **options), full_batch(tokenizer, *texts, **options)
        assert found.data == expected.data
        assert (found.n_sequences, found.is_fast) == (expected.n_sequences, True)
        assert fields(found.encodings) == fields(expected.encodings)


def test_encodings_are_made_once_and_only_when_asked_for(with_control, monkeypatch):
    rows, calls = list(ROWS), []
    encode = TokenizersBackend._encode_plus
    monkeypatch.setattr(
        TokenizersBackend, "_encode_plus", lambda *given, **options: calls.append(given) or encode(*given, **options)
    )
    batch = with_control(rows)
    assert len(batch.encodings) == 4
    assert len(calls) == 1  # for the ids
    rows.clear()  # the batch keeps what it was made of
    assert batch.tokens(0)[:2] == ["[s]", "hello</w>"]
    assert batch.token_to_chars(0, 1) == (0, 5)
    assert batch.char_to_token(0, 7) == 3
    assert batch[1].ids == batch["input_ids"][1]
    assert len(calls) == 2


def test_a_batch_travels_between_processes(with_control):
    batch = pickle.loads(pickle.dumps(with_control(ROWS)))
    assert batch.data == with_control(ROWS).data
    assert fields(batch.encodings) == fields(full_batch(with_control, ROWS).encodings)


def test_what_only_the_full_encoding_has_is_made_at_once(with_control):
    batch = with_control(ROWS, return_offsets_mapping=True, return_special_tokens_mask=True)
    expected = full_batch(with_control, ROWS, return_offsets_mapping=True, return_special_tokens_mask=True)
    assert batch.data == expected.data
    cut = with_control(ROWS[0], truncation=True, max_length=5, return_overflowing_tokens=True)
    assert len(cut["input_ids"]) > 1
    assert {len(ids) for ids in cut["input_ids"][:-1]} == {5}
    words = with_control([["hello", "do"]], is_split_into_words=True)
    assert words.word_ids(0) == [None, 0, 1, None]
    assert words["input_ids"] == with_control(["hello do"])["input_ids"]
