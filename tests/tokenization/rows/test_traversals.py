"""The four input transformations against whole literal sequences, and what truncation may and may not do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from tokenization.rows.traversals import ControlIds, classification, entailment, multiple_choice, similarity

CONTROL = ControlIds(start=100, delimiter=101, extract=102)


@pytest.mark.parametrize(
    ("function", "segments", "max_length", "expected"),
    [
        (classification, ([1, 2, 3],), 5, [[100, 1, 2, 3, 102]]),
        (classification, ([1, 2, 3],), 4, [[100, 1, 2, 102]]),
        (entailment, ([1, 2, 3], [4, 5]), 8, [[100, 1, 2, 3, 101, 4, 5, 102]]),
        # The longer segment gives up its end.
        (entailment, ([1, 2, 3, 4], [7, 8]), 6, [[100, 1, 2, 101, 7, 102]]),
        (similarity, ([1, 2], [4]), 8, [[100, 1, 2, 101, 4, 102], [100, 4, 101, 1, 2, 102]]),
        (similarity, ([1, 2], [4, 5]), 6, [[100, 1, 101, 4, 5, 102], [100, 4, 5, 101, 1, 102]]),
        (multiple_choice, ([1, 2], [[4, 5], [6]]), 7, [[100, 1, 2, 101, 4, 5, 102], [100, 1, 2, 101, 6, 102]]),
        # The longest choice sets the one context of all choices.
        (multiple_choice, ([1, 2, 3], [[5], [6, 7]]), 7, [[100, 1, 2, 101, 5, 102], [100, 1, 2, 101, 6, 7, 102]]),
    ],
)
def test_each_traversal_writes_its_sequences(function, segments, max_length, expected):
    assert function(*segments, CONTROL, max_length).sequences == expected


@pytest.mark.parametrize(
    ("function", "segments", "question", "needed"),
    [(classification, ([1],), {}, 3), (entailment, ([1], [2]), {}, 5), (similarity, ([1], [2]), {}, 5)]
    + [(multiple_choice, ([1], [[2]]), {}, 5), (multiple_choice, ([1], [[2]]), {"question": [3]}, 6)],
)
def test_a_max_length_without_room_for_every_segment_is_refused(function, segments, question, needed):
    assert len(function(*segments, CONTROL, needed, **question).sequences[0]) == needed
    with pytest.raises(ValueError, match=f"`max_length` is {needed - 1}, .* at least {needed}: .* Raise"):
        function(*segments, CONTROL, needed - 1, **question)


@pytest.mark.parametrize(
    ("function", "segments", "expected"),
    [
        *((classification, ([],), "an empty text"), (entailment, ([1], []), "an empty hypothesis")),
        *((similarity, ([], [1]), "an empty text_a"), (multiple_choice, ([], [[1]]), "an empty context")),
        *((multiple_choice, ([1], [[1], []]), "an empty choice 1"), (multiple_choice, ([1], []), "no choices")),
    ],
)
def test_an_empty_segment_is_refused(function, segments, expected):
    with pytest.raises(ValueError, match=f"was given {expected}"):
        function(*segments, CONTROL, 16)


def cut_by_the_library(first, second, budget):
    """As the backend of a pipeline's tokenizer cuts a pair of as many words."""
    backend = Tokenizer(WordLevel({"a": 0}, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.enable_truncation(budget)
    of = backend.encode("a " * len(first), "a " * len(second)).sequence_ids
    return first[: of.count(0)], second[: of.count(1)]


SEGMENT, LENGTHS = st.lists(st.integers(0, 99), min_size=1, max_size=12), st.integers(6, 30)


def split(sequence):
    """The two segments of a sequence, after a look at its control tokens."""
    assert sequence[0] == CONTROL.start
    assert sequence[-1] == CONTROL.extract
    assert [sequence.count(token) for token in (100, 101, 102)] == [1, 1, 1]
    middle = sequence.index(CONTROL.delimiter)
    return sequence[1:middle], sequence[middle + 1 : -1]


def is_prefix(short, whole):
    return len(short) > 0 and list(whole[: len(short)]) == list(short)


@given(SEGMENT, SEGMENT, LENGTHS)
def test_truncated_pairs_keep_control_tokens_and_prefixes_of_both_segments(first, second, max_length):
    traversed = similarity(first, second, CONTROL, max_length)
    a, b = split(traversed.sequences[0])
    assert split(traversed.sequences[1]) == (b, a)
    assert is_prefix(a, first)
    assert is_prefix(b, second)
    assert len(a) + len(b) + 3 == min(len(first) + len(second) + 3, max_length)
    assert (a, b) == cut_by_the_library(first, second, max_length - 3)
    assert entailment(first, second, CONTROL, max_length).sequences == traversed.sequences[:1]


@given(SEGMENT, st.just([]) | SEGMENT, st.lists(SEGMENT, min_size=1, max_size=5), LENGTHS)
def test_truncated_choices_share_one_context_and_keep_every_choice(context, question, choices, max_length):
    longest = max(map(len, choices))
    traversed = multiple_choice(context, choices, CONTROL, max_length, question)
    heads, kept_choices = zip(*map(split, traversed.sequences), strict=True)
    assert all(head == heads[0] for head in heads)
    assert all(map(is_prefix, kept_choices, choices))
    kept_question = min(len(question), max(1, max_length - 4 - longest))
    kept_context = len(heads[0]) - kept_question
    assert is_prefix(heads[0][:kept_context], context)
    assert heads[0][kept_context:] == question[:kept_question]
    assert max(map(len, traversed.sequences)) == min(len(context) + len(question) + longest + 3, max_length)
    assert kept_context == 1 or [list(choice) for choice in kept_choices] == choices
