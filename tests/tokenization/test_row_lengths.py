"""Lengths of rows that are counted when they are needed: the same as all at once, and kept between runs."""

import random
import unicodedata

import datasets
import numpy as np
import pytest
from helpers_families import make_family_tokenizer
from helpers_training import make_tokenizer

from modeling_gpt1.training.preparation import pad_with_end
from tokenization import TraversalCollator
from tokenization.row_lengths import has_no_format

PAIR = {"text_a": "one", "text_b": "two", "label": "label"}
TEXT = {"text": "one", "label": "label"}
CHOICE = {"context": "one", "choices": ["two", "three"], "label": "label"}
NO_WORD = ["…", "&lt;", "\x1b[0m é", " ", "¿"]  # texts that may have no token
NO_TOKEN = ["&nbsp;", "\x1b[0m", "\ufeff"]


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def encoded(monkeypatch):
    """The texts that collators encode."""
    texts, encode = [], TraversalCollator._encode
    monkeypatch.setattr(TraversalCollator, "_encode", lambda self, new: texts.extend(new) or encode(self, new))
    return texts


def make_rows(number: int = 3000) -> list[dict]:
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(1, 9))) for _ in range(number)]
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 6))) for _ in range(2 * number)]
    rows = [{"one": one, "two": two, "label": 1} for one, two in zip(texts[::2], texts[1::2], strict=True)]
    rows[17]["two"], rows[number // 2]["one"] = "…", "&lt; é"
    rows[number - 5]["one"] = "abcdefgh " * 9
    return rows


def on_disk(rows: list[dict], folder) -> datasets.Dataset:
    datasets.Dataset.from_list(rows).save_to_disk(folder)
    return datasets.load_from_disk(folder)


@pytest.mark.parametrize("traversal", ["similarity", "classification", "multiple_choice"])
@pytest.mark.parametrize("max_length", [20, 512])
def test_lengths_are_those_of_all_rows_at_once(tokenizer, traversal, max_length):
    columns = {"similarity": PAIR, "classification": TEXT, "multiple_choice": {**CHOICE, "choices": ["two", "one"]}}
    collator = TraversalCollator(tokenizer, traversal, columns[traversal], max_length=max_length)
    rows = make_rows()
    expected = np.array(collator.lengths(rows))
    data = datasets.Dataset.from_list(rows).select(range(2999, -1, -1))
    lengths = collator.row_lengths(data)
    assert lengths.longest().tolist() == np.flatnonzero(expected[::-1] == expected.max()).tolist()
    assert lengths[5] == expected[-6] and lengths[[3, 3, 0]].tolist() == expected[[-4, -4, -1]].tolist()
    assert lengths[:].tolist() == expected[::-1].tolist()
    longer = sum(len(collator([row])["attention_mask"][0].flatten()) == max_length for row in rows)
    assert (lengths.num_cut() > 0) == (longer > 0) == (max_length == 20)
    assert collator.check(data) == collator.check(rows)


def test_few_rows_are_tokenised_to_know_the_longest(tokenizer, encoded):
    collator = TraversalCollator(tokenizer, "similarity", PAIR)
    data = datasets.Dataset.from_list(make_rows())
    lengths = collator.row_lengths(data)
    assert len(encoded) == 4 and {"…", "&lt; é"} < set(encoded)
    assert (lengths.num_cut(), len(encoded)) == (0, 4)
    assert lengths.longest().tolist() == [2995]
    assert len(encoded) < 2 * 1024 + 5
    collator.check(data, needs_labels=True)
    before = len(encoded)
    lengths[[1, 2]], lengths[[2, 1]]
    assert len(encoded) <= before + 4 + 4


def test_lengths_are_kept_for_the_same_rows_texts_and_tokenizer(tokenizer, encoded, tmp_path):
    data = on_disk(make_rows(), tmp_path / "rows")
    collator = TraversalCollator(tokenizer, "similarity", PAIR)
    expected = collator.row_lengths(data)[:].tolist()
    for same in (data, datasets.load_from_disk(tmp_path / "rows")):
        encoded.clear()
        assert TraversalCollator(tokenizer, "similarity", PAIR, max_length=9).row_lengths(same)[:].max() == 9
        assert collator.row_lengths(same)[:].tolist() == expected
        assert collator.check(same) == (3000, 0)
        assert encoded == []
    others = [
        (TraversalCollator(tokenizer, "entailment", {"premise": "one", "hypothesis": "two"}), data),
        (TraversalCollator(tokenizer, "similarity", {"text_a": "one", "text_b": "one"}), data),
        (TraversalCollator(make_family_tokenizer("bert"), "similarity", PAIR), data),
        (collator, data.select(range(1, 3000))),
    ]
    for other, rows in others:
        encoded.clear()
        other.row_lengths(rows)[:]
        assert len(encoded) > 2500


def test_what_was_counted_before_a_run_ended_is_kept(tokenizer, encoded, tmp_path):
    collator, data = TraversalCollator(tokenizer, "similarity", PAIR), on_disk(make_rows(), tmp_path / "rows")
    first = collator.row_lengths(data).longest().tolist()
    encoded.clear()
    lengths = collator.row_lengths(data)
    assert lengths.longest().tolist() == first and encoded == []
    assert lengths[:].tolist() == collator.lengths(make_rows())


def test_nothing_is_kept_in_memory_only_or_without_caching(tokenizer, tmp_path):
    collator, data = TraversalCollator(tokenizer, "similarity", PAIR), on_disk(make_rows(99), tmp_path / "rows")
    in_memory = datasets.Dataset.from_list(make_rows(99))
    collator.row_lengths(in_memory)[:]
    datasets.disable_caching()
    try:
        collator.row_lengths(data)[:]
    finally:
        datasets.enable_caching()
    assert list(tmp_path.rglob("lengths*")) == []


def test_a_damaged_or_unwritable_file_is_told_and_counted_again(tokenizer, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr("tokenization.row_lengths.logger.warning", told.append)
    collator, data = TraversalCollator(tokenizer, "similarity", PAIR), on_disk(make_rows(99), tmp_path / "rows")
    expected = collator.row_lengths(data)[:].tolist()
    (kept,) = tmp_path.rglob("lengths*")
    kept.write_bytes(b"")
    assert collator.row_lengths(data)[:].tolist() == expected
    assert told == [f"The kept lengths of the rows are counted again: {kept} cannot be read (No data left in file)."]
    kept.unlink()
    kept.mkdir()
    (kept / "file").touch()
    told.clear()
    assert collator.row_lengths(data)[:].tolist() == expected
    assert [text.partition(": ")[0] for text in told] == [
        "The kept lengths of the rows are counted again",
        "The lengths of the rows are not kept for another run",
    ]
    assert [path.name for path in kept.parent.glob("lengths*")] == [kept.name]


def test_no_text_has_more_tokens_than_its_bound(tokenizer):
    """Characters that become several, alone and beside marks that change them."""
    characters = [chr(code) for code in range(0x3000) if len(unicodedata.normalize("NFKD", chr(code)).lower()) > 1]
    characters += ["\ufb03", "\ufdfa", "\u0130", "\u0344", "\u1e9e", "\U0001d160", "\U0001f468", "\ufffd", "\x85"]
    rows = [{"one": form.format(character)} for character in characters for form in ("a {}", "a{0}b{0}", "a \u0301{}")]
    collator = TraversalCollator(tokenizer, "classification", {"text": "one"})
    data = datasets.Dataset.from_list(rows)
    bounds = -collator.row_lengths(data)._counts
    assert (bounds > 0).all() and (bounds >= collator.lengths(rows)).all()


def test_which_rows_have_no_format():
    data = datasets.Dataset.from_list([dict.fromkeys("abcdefgh", "x")] * 3)
    assert has_no_format(data) and has_no_format(data.select([2, 0])) and has_no_format(data.select(range(2)))
    shown = [data.with_format("torch"), data.with_format(columns=["a"]), data.with_transform(dict)]
    assert not any(map(has_no_format, [*shown, data.to_iterable_dataset(), [{"a": "x"}]]))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_rows_of_another_family_are_counted_at_once(family, encoded):
    tokenizer = make_family_tokenizer(family)
    pad_with_end(tokenizer)
    collator = TraversalCollator(tokenizer, "similarity", PAIR, max_length=30)
    rows = [{"one": "ann sees", "two": "he is old", "label": 0}, {"one": "fish", "two": "cat " * 20, "label": 1}]
    data = datasets.Dataset.from_list(rows)
    lengths = collator.row_lengths(data)
    assert len(encoded) == 4
    assert lengths[:].tolist() == collator.lengths(rows) and lengths.num_cut() == 1


def error_of(collator, rows, needs_labels) -> str | None:
    try:
        collator.check(rows, "split 'train'", needs_labels)
    except ValueError as error:
        return str(error)


TEXT_MISTAKES = [{"one": text} for text in [*NO_TOKEN, "", " ", None]] + [{"one": text} for text in NO_WORD]
LABELS = [-1, None, 2, -2, 0]


class TestCheck:
    """A data set is checked by its columns, and refuses what a list of the same rows does."""

    @pytest.mark.parametrize("needs_labels", [True, False, None])
    @pytest.mark.parametrize("mistake", [*TEXT_MISTAKES, *({"label": label} for label in LABELS)])
    def test_of_classes(self, tokenizer, mistake, needs_labels):
        collator = TraversalCollator(tokenizer, "similarity", PAIR, num_labels=2)
        rows = make_rows(40)
        rows[31].update(mistake)
        expected = error_of(collator, rows, needs_labels)
        assert error_of(collator, datasets.Dataset.from_list(rows), needs_labels) == expected
        is_fine = mistake.get("one", "a") in NO_WORD[:3] + ["¿", "a"] and mistake.get("label", 0) == 0
        is_hidden = "label" in mistake and mistake["label"] in (-1, None) and needs_labels is False
        assert (expected is None) == (is_fine or is_hidden)

    @pytest.mark.parametrize("label", [float("nan"), float("inf"), -1.0, -100.0, None, 0.5])
    @pytest.mark.parametrize("needs_labels", [True, False])
    def test_of_numbers(self, tokenizer, label, needs_labels):
        collator = TraversalCollator(tokenizer, "similarity", PAIR, regression=True)
        rows = [{**row, "label": 0.5} for row in make_rows(40)]
        rows[31]["label"] = label
        expected = error_of(collator, rows, needs_labels)
        assert error_of(collator, datasets.Dataset.from_list(rows), needs_labels) == expected
        assert (expected is None) == (label == 0.5 or (not needs_labels and label in (-1.0, None)))

    @pytest.mark.parametrize("label", [-1, 0, 1, 2])
    def test_of_choices(self, tokenizer, label):
        collator = TraversalCollator(tokenizer, "multiple_choice", CHOICE)
        rows = [{"one": "a", "two": "b", "three": "c d", "label": 1}, {"one": "a", "two": "b", "three": None}]
        rows[1]["label"] = label
        expected = error_of(collator, rows, True)
        assert error_of(collator, datasets.Dataset.from_list(rows), True) == expected
        assert (expected is None) == (label == 0)

    def test_of_labels_that_are_all_hidden_or_missing(self, tokenizer):
        collator = TraversalCollator(tokenizer, "similarity", PAIR)
        hidden = datasets.Dataset.from_list([{**row, "label": -1} for row in make_rows(40)])
        for rows in (hidden, hidden.remove_columns("label")):
            assert [error_of(collator, rows, needs) for needs in (False, None)] == [None, None]
            assert error_of(collator, rows, True) == error_of(collator, rows.to_list(), True) is not None

    def test_of_columns_that_are_missing_or_no_text(self, tokenizer):
        collator = TraversalCollator(tokenizer, "similarity", PAIR)
        rows = make_rows(40)
        for wrong in ([{"one": row["one"], "label": 1} for row in rows], [{**row, "two": 3} for row in rows]):
            expected = error_of(collator, wrong, True)
            assert error_of(collator, datasets.Dataset.from_list(wrong), True) == expected is not None

    def test_of_formatted_rows(self, tokenizer):
        collator = TraversalCollator(tokenizer, "similarity", PAIR)
        data = datasets.Dataset.from_list(make_rows(40)).with_format("torch")
        assert collator.check(data) == (40, 0)
        broken = data.with_transform(lambda batch: {**batch, "two": [""] * len(batch["two"])})
        assert error_of(collator, broken, True).startswith("Row 0 of split 'train': text_b (column 'two') holds the")
