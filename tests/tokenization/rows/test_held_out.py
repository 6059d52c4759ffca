"""Rows that are held out of the training rows: how many, of which classes, and which again."""

from collections import Counter

import pytest
from support.own_rows import COLUMNS, moods
from support.refusals import check_refused

from tokenization import load_files
from tokenization.rows.columns import PLACE

MANY = moods(*["a"] * 50, *["b"] * 30, *["c"] * 20)


def split(rows, share=0.2, **options):
    given = {"traversal": "classification", "columns": COLUMNS, **options}
    return load_files({"train": rows}, validation_split=share, **given)[1]


def test_each_class_has_its_share():
    splits = split(MANY)
    assert Counter(splits["validation"]["mood"]) == {0: 10, 1: 6, 2: 4}
    assert Counter(splits["train"]["mood"]) == {0: 40, 1: 24, 2: 16}


def test_each_row_is_in_one_split_in_the_order_of_the_file():
    splits = split(MANY)
    places = [splits[name][PLACE][:] for name in ("train", "validation")]
    assert places == [sorted(places[0]), sorted(places[1])]
    assert sorted(places[0] + places[1]) == list(range(100))
    assert [splits["validation"]["mood"][row] for row in range(20)] == [0] * 10 + [1] * 6 + [2] * 4


def test_the_seed_draws_the_rows():
    first, again, other = (split(MANY, seed=seed)["validation"][PLACE][:] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_the_only_row_of_a_class_is_trained_on():
    for seed in range(9):
        splits = split(moods(*["a"] * 8, "b", "c"), share=0.5, seed=seed)
        assert set(splits["validation"]["mood"]) == {0}
        assert len(splits["validation"]) == 5


def test_many_small_classes_make_a_validation_split_of_the_whole_share():
    splits = split(moods(*[f"class {number // 2}" for number in range(100)]))
    assert len(splits["validation"]) == 20
    assert max(Counter(splits["validation"]["mood"]).values()) == 1


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        (moods(*range(40)), {"regression": True}),
        (moods(*[["a"], ["a", "b"]] * 20), {}),
        (
            [{"q": "a", "ends": ["b", "c"], "label": 0}] * 40,
            {"traversal": "multiple_choice", "columns": {"context": "q", "choices": "ends"}},
        ),
    ],
)
def test_rows_without_a_class_each_are_held_out_whatever_their_labels(rows, options):
    assert len(split(rows, 0.25, **options)["validation"]) == 10


def test_rows_that_are_skipped_do_not_shift_the_places():
    splits = split(moods("a", None, *["a", "b"] * 5), skip_bad_rows=True)
    places = splits["train"][PLACE][:] + splits["validation"][PLACE][:]
    assert sorted(places) == [0, *range(2, 12)]


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.2, float("nan"), "0.2"])
def test_a_share_that_is_none_is_refused(share):
    check_refused(lambda: split(MANY, share), f"`validation_split` is {share!r}", "between 0 and 1", "such as 0.2")


def test_too_few_rows_are_refused():
    check_refused(lambda: split(moods("a", "b")), "has no class with enough rows to hold a part out. Add rows")
    check_refused(lambda: split(moods(0.5), regression=True), "has 1 row to hold a part out. Add rows")


def test_a_share_without_training_rows_or_beside_validation_rows_is_refused():
    names = {"label_names": ("a", "b"), "validation_split": 0.2}
    check_refused(lambda: load_files({"test": MANY}, "classification", COLUMNS, **names), "there is none")
    both = {"train": MANY, "validation": MANY}
    check_refused(lambda: load_files(both, "classification", COLUMNS, **names), "both given. Leave one")
