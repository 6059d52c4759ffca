"""TraversalCollator against whole literal batches, and the whole message for every mistake in a row or a setting."""

import string

import numpy as np
import pytest
import torch
from datasets import Dataset
from support.families import make_family_tokenizer
from support.refusals import refusal

from modeling_gpt1 import prepare_finetuning
from tokenization import (
    GPT1Tokenizer,
    TraversalCollator,
    add_control_tokens,
    add_speaker_tokens,
    load_files,
    load_task,
)
from tokenization.batches import traversal_collator
from tokenization.rows.traversals import TRAVERSALS, Traversal, Traversed
from tokenization.text.control_tokens import encode_texts

# The words a to z are 1 to 26; pieces for other spellings follow. [s], [$] and [e] become 64, 65 and 66.
WORDS = [f"{letter}</w>" for letter in string.ascii_lowercase]
PIECES = [*string.ascii_lowercase, *"[]$<>", "[</w>", "]</w>", "$</w>", "<</w>", "></w>", "\n</w>"]

TEXT = {"text": "sentence", "label": "label"}
PAIR = {"premise": "one", "hypothesis": "two", "label": "label"}
SIMILAR = {"text_a": "one", "text_b": "two", "label": "label"}
CHOICE = {"context": "story", "choices": "endings", "label": "label"}


def make_letters(words):
    tokenizer = GPT1Tokenizer(vocab={piece: at for at, piece in enumerate(["<unk>", *words, *PIECES])}, merges=[])
    tokenizer.add_control_tokens()
    return tokenizer


@pytest.fixture(scope="module")
def letters():
    """A tokenizer whose ids can be read: a is 1, b is 2, [s] is 64, [$] is 65, [e] is 66."""
    return make_letters(WORDS)


def rotations(first, middle, last, control, max_length):
    orders = [(first, middle, last), (middle, last, first), (last, first, middle)]
    sequences = []
    for one, two, three in orders:
        ids = [control.start, *one, control.delimiter, *two, control.delimiter, *three, control.extract]
        sequences.append(ids[:max_length])
    return Traversed(sequences, num_shared=1)


def assert_batch(batch, **expected):
    """Compares whole tensors: names, values, shapes and types."""
    assert sorted(batch.keys() - {"plan"}) == sorted(expected)
    for name, values in expected.items():
        dtype = torch.bool if name == "choice_mask" else torch.int64
        dtype = torch.float32 if name == "labels" and any(isinstance(value, float) for value in values) else dtype
        assert batch[name].dtype == dtype, name
        assert batch[name].tolist() == values, name


def test_a_pair_is_read_in_both_orders(letters):
    collator = TraversalCollator(letters, "similarity", SIMILAR, num_labels=2)
    batch = collator([{"one": "a", "two": "b c", "label": 1}, {"one": "d", "two": "e", "label": 0}])
    assert_batch(
        batch,
        input_ids=[[[64, 1, 65, 2, 3, 66], [64, 2, 3, 65, 1, 66]], [[64, 4, 65, 5, 66, 0], [64, 5, 65, 4, 66, 0]]],
        attention_mask=[[[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]], [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0]]],
        mc_token_ids=[[5, 5], [4, 4]],
        labels=[1, 0],
    )


ROTATION = Traversal(
    write=rotations,
    roles=("first", "middle", "last"),
    sequences=(("first", "middle", "last"), ("middle", "last", "first"), ("last", "first", "middle")),
)


@pytest.fixture
def rotation(monkeypatch):
    """A traversal that is not the paper's: three texts in three orders."""
    monkeypatch.setitem(TRAVERSALS, "rotation", ROTATION)
    return {"first": "one", "middle": "two", "last": "three", "label": "label"}


def test_a_new_traversal_of_three_sequences_needs_its_descriptor_alone(letters, rotation):
    collator = TraversalCollator(letters, "rotation", rotation, num_labels=3)
    rows = [
        {"one": "a", "two": "b c", "three": "d", "label": 2},
        {"one": "e", "two": "f", "three": "g", "label": 0},
    ]
    batch = collator(rows)
    assert_batch(
        batch,
        input_ids=[
            [[64, 1, 65, 2, 3, 65, 4, 66], [64, 2, 3, 65, 4, 65, 1, 66], [64, 4, 65, 1, 65, 2, 3, 66]],
            [[64, 5, 65, 6, 65, 7, 66, 0], [64, 6, 65, 7, 65, 5, 66, 0], [64, 7, 65, 5, 65, 6, 66, 0]],
        ],
        attention_mask=[[[1] * 8] * 3, [[1, 1, 1, 1, 1, 1, 1, 0]] * 3],
        mc_token_ids=[[7, 7, 7], [6, 6, 6]],
        labels=[2, 0],
    )
    assert batch["plan"].shape == (2, 3, 8)
    assert batch["plan"].num_tokens == 45
    assert collator.lengths(rows) == [8, 7]


def test_the_limits_and_the_form_of_a_new_traversal_follow_from_its_descriptor(letters, rotation):
    told = "`max_length` is 6, but rotation needs at least 7: its control tokens and one token of each segment."
    assert told in error_of(letters, "rotation", rotation, max_length=6)
    assert ROTATION.num_sequences == 3
    assert ROTATION.form == (
        "`[s] first [$] middle [$] last [e]` and `[s] middle [$] last [$] first [e]` and "
        "`[s] last [$] first [$] middle [e]`"
    )


def pair_by_pair(first, middle, last, control, max_length):
    pairs = [(first, middle), (middle, last), (last, first)]
    return Traversed([[control.start, *one, control.delimiter, *two, control.extract] for one, two in pairs])


def test_a_sequence_may_have_some_of_the_texts_alone(letters, monkeypatch):
    """Its length is that of these texts; a cut takes one of the eight tokens of the first."""
    pairs = (("first", "middle"), ("middle", "last"), ("last", "first"))
    monkeypatch.setitem(TRAVERSALS, "circle", Traversal(pair_by_pair, ("first", "middle", "last"), pairs))
    collator = TraversalCollator(letters, "circle", {"first": "one", "middle": "two", "last": "three"}, max_length=7)
    row = {"one": "a", "two": "b c d e", "three": "f"}
    assert collator([{**row, "two": "b"}])["input_ids"].shape == (1, 3, 5)
    assert collator.lengths([{**row, "two": "b"}]) == [5]
    assert collator.check([row]) == (1, 1)
    assert "circle needs at least 5" in error_of(
        letters, "circle", {"first": "a", "middle": "b", "last": "c"}, max_length=4
    )


def test_another_familys_tokenizer_reads_two_texts_at_most(rotation):
    told = error_of(make_family_tokenizer("bert"), "rotation", rotation)
    assert (
        "BertTokenizer reads one text or a pair, but the traversal 'rotation' has the 3 texts first, middle, last."
        in told
    )
    assert "Pass a tokenizer with control tokens" in told


RAGGED = [
    {"article": "a b", "question": "c", "endings": ["d"], "label": 0},
    {"article": "e", "question": "f", "endings": ["g", "h i"], "label": 1},
]


def test_a_different_number_of_choices_has_a_choice_mask(letters):
    columns = {"context": "article", "question": "question", "choices": "endings", "label": "label"}
    batch = TraversalCollator(letters, "multiple_choice", columns)(RAGGED)
    assert_batch(
        batch,
        input_ids=[[[64, 1, 2, 3, 65, 4, 66], [0] * 7], [[64, 5, 6, 65, 7, 66, 0], [64, 5, 6, 65, 8, 9, 66]]],
        attention_mask=[[[1] * 7, [0] * 7], [[1, 1, 1, 1, 1, 1, 0], [1] * 7]],
        mc_token_ids=[[6, 0], [5, 6]],
        choice_mask=[[True, False], [True, True]],
        labels=[0, 1],
    )


def test_the_length_is_rounded_up_to_a_multiple(letters):
    collator = TraversalCollator(letters, "classification", {"text": "sentence"}, pad_to_multiple_of=4)
    assert_batch(
        collator([{"sentence": "a b c"}, {"sentence": "d"}]),
        input_ids=[[64, 1, 2, 3, 66, 0, 0, 0], [64, 4, 66, 0, 0, 0, 0, 0]],
        attention_mask=[[1, 1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0, 0, 0]],
        mc_token_ids=[4, 2],
    )
    assert collator([{"sentence": "a b"}])["input_ids"].tolist() == [[64, 1, 2, 66]]


def first_row(tokenizer, traversal, columns, row):
    """The sequences of one row without their padding."""
    batch = TraversalCollator(tokenizer, traversal, columns)([row])
    ids, mask = (batch[name].reshape(-1, batch["input_ids"].shape[-1]) for name in ("input_ids", "attention_mask"))
    return [sequence[attended.bool()].tolist() for sequence, attended in zip(ids, mask, strict=True)]


@pytest.mark.parametrize("context", ["story", ["s1", "s2"], "sentences"])
@pytest.mark.parametrize("choices", ["endings", ["e1", "e2"], ["e1", "e2", "e3"]])
@pytest.mark.parametrize("absent", [None, " "])  # a blank cell of a .csv file is an empty text
def test_texts_and_choices_come_from_one_column_or_several(letters, context, choices, absent):
    row = {"story": "a b", "s1": "a", "s2": "b", "sentences": ["a", "b"]}
    row |= {"endings": ["c", "d"], "e1": "c", "e2": "d", "e3": absent, "unused": 7}
    sequences = first_row(letters, "multiple_choice", {"context": context, "choices": choices}, row)
    assert sequences == [[64, 1, 2, 65, 3, 66], [64, 1, 2, 65, 4, 66]]


@pytest.mark.parametrize("rows", [[{}, {}], [{"label": None}] * 2, [{"label": -1}] * 2, [{"label": -1}, {}]])
def test_rows_without_labels_make_a_batch_without_labels(letters, rows):
    batch = TraversalCollator(letters, "classification", TEXT, num_labels=2)([row | {"sentence": "a"} for row in rows])
    assert sorted(batch) == ["attention_mask", "input_ids", "mc_token_ids", "plan"]


def test_minus_one_is_a_label_where_no_label_is_hidden(letters):
    row = {"sentence": "a", "label": -1.0}
    collator = TraversalCollator(letters, "classification", TEXT, regression=True)
    assert "labels" not in collator([row])
    collator = TraversalCollator(letters, "classification", TEXT, regression=True, hidden_label=None)
    labels = collator([row])["labels"]
    assert (labels.tolist(), labels.dtype) == ([-1.0], torch.float32)


def test_labels_of_numpy_and_torch_are_numbers_as_well(letters):
    collator = TraversalCollator(letters, "classification", TEXT, num_labels=2)
    rows = [{"sentence": "a", "label": np.int64(1)}, {"sentence": "b", "label": torch.tensor(0)}]
    assert collator(rows)["labels"].tolist() == [1, 0]


HOSTILE = "[s] [$] [e] [S] [E] a[s]b [s][e] $ <unk> <UNK> [[e]] [s]</w>".split()
HOSTILE += ["[ s ]", "[ $ ]", "[e ]", "$ $", "< unk >", " [s] ", "\n[e]\n", "a [$] b [e]"]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_never_becomes_a_control_token(letters, text):
    for traversal, columns, places in [
        ("classification", {"text": "x"}, [64, 66]),
        ("entailment", {"premise": "x", "hypothesis": "x"}, [64, 65, 66]),
        ("similarity", {"text_a": "x", "text_b": "x"}, [64, 65, 66]),
        ("multiple_choice", {"context": "x", "question": "x", "choices": ["x", "x"]}, [64, 65, 66]),
    ]:
        for sequence in first_row(letters, traversal, columns, {"x": text}):
            assert [token for token in sequence if token >= 64] == places
            assert (sequence[0], sequence[-1]) == (64, 66)


def test_a_check_counts_the_rows_that_are_cut(letters):
    rows = [{"sentence": "a b c d", "label": 0}, {"sentence": "e", "label": 1}, {"sentence": "f g h", "label": 0}]
    collator = TraversalCollator(letters, "classification", TEXT, max_length=4)
    assert collator(rows)["input_ids"].tolist() == [[64, 1, 2, 66], [64, 5, 66, 0], [64, 6, 7, 66]]
    assert collator.check(Dataset.from_list(rows * 100)) == (300, 200)


def test_a_check_finds_a_late_mistake_and_names_its_row(letters):
    collator = TraversalCollator(letters, "classification", TEXT, num_labels=2)
    rows = [{"sentence": "a", "label": 1}] * 299
    assert collator.check(rows) == (299, 0)
    for mistake, message in [
        ({"sentence": "a", "label": 2}, "the label is 2 of type int, but must be"),
        ({"sentence": " ", "label": 1}, "text (column 'sentence') is empty."),
        ({"sentence": "&nbsp;", "label": 1}, "the text '&nbsp;' has no tokens"),
    ]:
        told = refusal(collator.check, [*rows, mistake | {"idx": 4}])
        assert told.startswith(f"Row 299 of the data: {message}")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\ufeff", "the text '\\ufeff' has no tokens"),
        ("&nbsp;", "the text '&nbsp;' has no tokens"),
        ("a\ud800", "text (column 'sentence') holds 'a\\ud800', which is not UTF-8 text"),
    ],
)
def test_a_batch_names_the_row_of_a_text_that_cannot_be_read(letters, text, told):
    collator = TraversalCollator(letters, "classification", TEXT)
    rows = [{"sentence": "a", "label": 1}, {"sentence": text, "label": 0}]
    assert refusal(collator, rows).startswith(f"Row 1 of the batch: {told}")
    assert refusal(collator.check, rows).startswith(f"Row 1 of the data: {told}")


def error_of(tokenizer, traversal, columns, rows=None, **settings):
    """The whole message of the ValueError that the settings, or these rows, raise."""
    if rows is None:
        return refusal(TraversalCollator, tokenizer, traversal, columns, **settings)
    return refusal(TraversalCollator(tokenizer, traversal, columns, **settings), rows)


@pytest.mark.parametrize(
    ("traversal", "columns", "settings", "parts"),
    [
        ("ranking", TEXT, {}, ["'ranking'", "Choose one of classification"]),
        (
            "entailment",
            PAIR | {"text": "one"},
            {},
            ["the role 'text'", "are premise, hypothesis, label"],
        ),
        (
            "multiple_choice",
            CHOICE | {"answers": "a"},
            {},
            ["the role 'answers'", "context, choices, question, label"],
        ),
        ("entailment", {"premise": "one"}, {}, ["the roles premise, but", "needs hypothesis"]),
        ("classification", {"text": "x", "label": ["y", "z"]}, {}, ["name of one column", "['y', 'z']"]),
        ("multiple_choice", CHOICE, {"regression": True}, ["regression", "index of the right choice"]),
        (
            "multiple_choice",
            CHOICE | {"question": "q"},
            {"max_length": 5},
            ["is 5", "at least 6", "Raise"],
        ),
    ],
)
def test_settings_that_are_refused(letters, traversal, columns, settings, parts):
    message = error_of(letters, traversal, columns, **settings)
    assert all(part in message for part in parts)


THREE = {"context": "story", "choices": ["e1", "e2", "e3"]}
EMPTY = "is empty. Remove or correct the row."
A_CLASS = ["an integer from 0 to 1", "Dataset.class_encode_column"]


@pytest.mark.parametrize(
    ("traversal", "columns", "row", "parts"),
    [
        ("classification", TEXT, {"text": "b", "note": "c"}, ["no column 'sentence'", "text, note, idx", "Correct"]),
        ("entailment", PAIR, {"one": "a", "two": ""}, [f"hypothesis (column 'two') {EMPTY}"]),
        ("entailment", PAIR, {"one": " \n\t ", "two": "b"}, [f"premise (column 'one') {EMPTY}"]),
        ("classification", {"text": ["s1", "s2"]}, {"s1": "", "s2": " "}, [f"(column ['s1', 's2']) {EMPTY}"]),
        ("classification", {"text": ["s1", "s2"]}, {"s1": "a", "s2": 3}, ["holds 3 of type int, which is no text"]),
        ("classification", TEXT, {"sentence": None}, [f"text (column 'sentence') {EMPTY}"]),
        ("multiple_choice", CHOICE, {"story": "a", "endings": ["b", ""]}, [f"(column 'endings') {EMPTY}"]),
        ("multiple_choice", THREE, {"story": "a", "e1": "b", "e2": None, "e3": "c"}, ["e3'])", EMPTY]),
        ("multiple_choice", THREE, {"story": "a", "e1": "b", "e2": "", "e3": "c"}, [EMPTY]),
        ("multiple_choice", THREE, {"story": "a", "e1": "", "e2": "", "e3": ""}, [EMPTY]),
        ("multiple_choice", CHOICE, {"story": "a", "endings": []}, [EMPTY]),
        ("multiple_choice", CHOICE, {"story": "a", "endings": None}, [EMPTY]),
        ("multiple_choice", CHOICE, {"story": "a", "endings": "b"}, ["one text, 'b'", "list of texts"]),
        ("classification", TEXT, {"sentence": "b", "label": 2}, ["label is 2", *A_CLASS]),
        ("classification", TEXT, {"sentence": "b", "label": -2}, ["label is -2", *A_CLASS]),
        (
            "multiple_choice",
            CHOICE,
            {"story": "a", "endings": ["b", "c"], "label": 2},
            ["is 2", "from 0 to 1. "],
        ),
        ("classification", TEXT, {"sentence": "a", "label": "1"}, ["'1' of type str", *A_CLASS]),
        ("classification", TEXT, {"sentence": "a", "label": 1.0}, ["1.0 of type float", *A_CLASS]),
        ("classification", TEXT, {"sentence": "a", "label": torch.tensor([1, 2])}, ["[1, 2] of type list", *A_CLASS]),
        ("similarity", SIMILAR, {"one": "a", "two": "b", "label": "3.5"}, ["'3.5' of type str", "a finite number"]),
        ("similarity", SIMILAR, {"one": "a", "two": "b", "label": float("nan")}, ["nan of type float", "a finite"]),
        ("similarity", SIMILAR, {"one": "a", "two": "b", "label": -100.0}, ["-100.0", "takes for no label"]),
    ],
)
def test_rows_that_are_refused(letters, traversal, columns, row, parts):
    settings = {"similarity": {"regression": True}, "classification": {"num_labels": 2}}.get(traversal, {})
    message = error_of(letters, traversal, columns, [row | {"idx": 5}], **settings)
    assert message.startswith("Row 0 of the batch")
    assert all(part in message for part in parts)


def test_a_text_without_a_token_is_refused(letters, monkeypatch):
    def encode(self, texts, **options):
        return {"input_ids": [[1] if text == "a" else [] for text in texts]}

    monkeypatch.setattr(GPT1Tokenizer, "__call__", encode)
    message = error_of(letters, "classification", TEXT, [{"sentence": "a"}, {"sentence": "b"}])
    assert "Row 1 of the batch: the text 'b' has no tokens" in message


@pytest.mark.parametrize("row", [{}, {"label": None}, {"label": -1}])
def test_a_batch_has_a_label_in_every_row_or_in_none(letters, row):
    rows = [{"sentence": "a", "label": 1}, {"sentence": "b", "idx": 9} | row]
    message = error_of(letters, "classification", TEXT, rows)
    assert f"Row 1 of the batch has no label (column 'label' holds {row.get('label')})" in message
    assert "Row 0 of the batch has one" in message
    assert "Label or remove such rows" in message
    assert ("`hidden_label=None`" in message) == (row == {"label": -1})


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda _: TraversalCollator("folder", "classification", TEXT), "`tokenizer` is a str. Pass what `open_token"),
        (lambda _: add_control_tokens(torch.nn.Linear(1, 1)), "`tokenizer` is a Linear. Pass what `open_tokenizer`"),
        (lambda letters: TraversalCollator(letters, "classification", ["text"]), r"is \['text'\]. Name the column of"),
        (
            lambda of: TraversalCollator(of, "classification", TEXT)({"sentence": "a"}),
            "but one dict was given. Pass `.row.`",
        ),
        (
            lambda of: TraversalCollator(of, "classification", TEXT)(["a text"]),
            "dict of columns, but 'a text' was given",
        ),
        (lambda of: TraversalCollator(of, "classification", TEXT).check([], "'train'"), "no rows in 'train'"),
        (lambda _: load_files({}, "classification", ["text"]), r"`columns` is \['text'\]. Name .* {'text': 'review'}"),
        (
            lambda _: load_task({"text": "review"}),
            "`name` is a dict. Pass a task's name",
        ),
        (lambda of: TraversalCollator(of, "classification", TEXT, max_length="48"), "`max_length` is '48', but"),
        (lambda _: prepare_finetuning(torch.nn.Linear(1, 1), "sst2"), "`model` is a Linear. Pass a folder, a hub id"),
    ],
)
def test_an_argument_of_another_type_is_refused(letters, use, message):
    with pytest.raises(ValueError, match=message):
        use(letters)


def pairs(number=40):
    return [{"one": f"{'a ' * (place % 7 + 1)}b", "two": "c d", "label": place % 2} for place in range(number)]


def test_a_check_encodes_each_text_once(letters, monkeypatch):
    texts = []

    def encode_and_record(tokenizer, new):
        texts.extend(new)
        return encode_texts(tokenizer, new)

    monkeypatch.setattr(traversal_collator, "encode_texts", encode_and_record)
    collator = TraversalCollator(letters, "similarity", SIMILAR, max_length=9)
    rows = Dataset.from_list(pairs()).with_format("torch")
    assert collator.check(rows) == (40, 22)
    assert len(texts) == 8
    assert len(set(texts)) == 8
    assert collator.lengths(rows) == [min(9, 7 + place % 7) for place in range(40)]
    assert len(texts) == 8  # those of the check


class Rows:
    """Rows that are no iterable, as a DataLoader's samplers may give them."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        return self.rows[place]


def test_rows_with_a_length_and_places_alone_have_lengths(letters):
    """They are no `Iterable`: Python goes through them by their places."""
    collator = TraversalCollator(letters, "similarity", SIMILAR)
    assert collator.lengths(Rows(pairs(3))) == [7, 8, 9]
    assert collator.check(Rows(pairs(3))) == (3, 0)


@pytest.mark.parametrize("form", ["numpy", "torch"])
def test_lists_of_numpy_and_torch_are_read_as_lists(letters, form):
    rows = Dataset.from_list([{"story": "a", "endings": ["b", "c"], "several": [0, 1]}] * 2).with_format(form)
    of_labels = {"num_labels": 2, "multi_label": True}
    collator = TraversalCollator(letters, "classification", {"text": "story", "label": "several"}, **of_labels)
    assert collator(list(rows))["labels"].tolist() == [[0.0, 1.0]] * 2
    assert TraversalCollator(letters, "multiple_choice", CHOICE)(list(rows))["input_ids"].shape[:2] == (2, 2)


def check_of(collator, rows, needs_labels):
    """What a check of the rows returns, or its message."""
    try:
        return collator.check(rows, "split 'train'", needs_labels)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("needs_labels", [True, False, None])
@pytest.mark.parametrize("label", [-1, None, 2])
def test_a_check_refuses_a_missing_label_where_one_is_needed(letters, label, needs_labels):
    collator = TraversalCollator(letters, "similarity", SIMILAR, num_labels=2)
    rows = pairs()
    rows[31]["label"] = label
    found = check_of(collator, Dataset.from_list(rows), needs_labels)
    assert found == (40, 0) if needs_labels is False and label != 2 else found.startswith("Row 31 of split 'train'")
    hidden = [{**row, "label": -1} for row in pairs()]
    assert (check_of(collator, hidden, needs_labels) == (40, 0)) == (not needs_labels)


@pytest.mark.parametrize("labels", [[2, 0], [0.5, 1], [-1, 1]])
def test_of_several_classes_each_is_0_or_1(letters, labels):
    columns = {"text": "story", "label": "several"}
    collator = TraversalCollator(letters, "classification", columns, num_labels=2, multi_label=True)
    message = check_of(collator, [{"story": "a", "several": labels}], needs_labels=True)
    assert f"Row 0 of split 'train': the label is {labels}" in message
    assert "a list of 0 or 1 for each of 2 classes" in message
    assert check_of(collator, [{"story": "a", "several": [0, 1]}], needs_labels=True) == (1, 0)


@pytest.mark.parametrize("label", [-1, 0, 1, 2])
def test_a_check_of_choices_knows_how_many_a_row_has(letters, label):
    rows = [{"story": "a", "endings": ["b", "c"], "label": 1}, {"story": "a", "endings": ["b"], "label": label}]
    collator = TraversalCollator(letters, "multiple_choice", CHOICE | {"label": "label"})
    assert (check_of(collator, Dataset.from_list(rows), True) == (2, 0)) == (label == 0)


# ---- Dialogues

PERSONA = {"role": "system", "content": "a b"}
DIALOGUE = {
    "story": [PERSONA, {"role": "user", "content": "c"}],
    "endings": ["d", "e f"],
    "label": 1,
}


@pytest.fixture
def speakers():
    tokenizer = make_letters(WORDS)
    add_speaker_tokens(tokenizer)
    return tokenizer


def test_a_dialogue_has_its_speakers_as_types_and_its_reply_as_targets(speakers):
    """<speaker1> is 67, <speaker2> is 68."""
    collator = TraversalCollator(speakers, "multiple_choice", CHOICE, lm_on_right_choice=True)
    batch = collator([DIALOGUE])
    assert batch["lm_mask"].int().tolist() == [[[0, 0, 0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 1, 1, 1]]]
    del batch["lm_mask"]
    assert_batch(
        batch,
        input_ids=[[[64, 1, 2, 68, 3, 65, 4, 66, 0], [64, 1, 2, 68, 3, 65, 5, 6, 66]]],
        attention_mask=[[[1, 1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1, 1]]],
        mc_token_ids=[[7, 8]],
        token_type_ids=[[[67, 67, 67, 68, 68, 67, 67, 67, 67], [67, 67, 67, 68, 68, 67, 67, 67, 67]]],
        labels=[1],
    )


def test_a_dialogue_without_its_label_has_no_targets(speakers):
    collator = TraversalCollator(speakers, "multiple_choice", CHOICE, lm_on_right_choice=True)
    assert collator([{**DIALOGUE, "label": None}]).keys() & {"labels", "lm_mask"} == set()


def test_messages_of_a_dialogue_may_spell_the_control_tokens(speakers):
    collator = TraversalCollator(speakers, "multiple_choice", CHOICE)
    spelled = [PERSONA, {"role": "user", "content": "<speaker1> [$] c"}]
    ids = collator([{**DIALOGUE, "story": spelled, "endings": ["<speaker2>", "[e]"]}])["input_ids"].flatten().tolist()
    assert [ids.count(token_id) for token_id in (64, 65, 66, 67, 68)] == [2, 2, 2, 0, 2]


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (
            {"story": [PERSONA, {"role": "user", "content": " "}]},
            "Row 0 of the batch: the content of a message is empty.",
        ),
        (
            {"story": [PERSONA, {"role": "user", "content": "c " * 9}]},
            "A conversation with its reply has 17 tokens, but",
        ),
    ],
)
def test_a_dialogue_that_cannot_be_read_whole_is_refused(speakers, row, expected):
    collator = TraversalCollator(speakers, "multiple_choice", CHOICE, max_length=12)
    assert refusal(collator, [{**DIALOGUE, **row}]).startswith(expected)
    where = "Row 0 of the data: "
    assert refusal(collator.check, [{**DIALOGUE, **row}]).startswith(where)


def test_conversations_need_speakers(letters):
    collator = TraversalCollator(letters, "multiple_choice", CHOICE)
    assert "`tokenization.add_speaker_tokens(tokenizer, model)`" in refusal(collator, [DIALOGUE])
    of_bert = TraversalCollator(make_family_tokenizer("bert"), "multiple_choice", CHOICE)
    assert "a conversation needs a tokenizer with speakers" in refusal(of_bert, [DIALOGUE])


def test_the_loss_of_the_right_choice_needs_choices_and_a_gpt1(letters):
    options = {"lm_on_right_choice": True}
    message = refusal(TraversalCollator, letters, "classification", TEXT, **options)
    assert message.startswith("`lm_on_right_choice` is True, but the traversal 'classification' has no choices.")
    message = refusal(TraversalCollator, make_family_tokenizer("bert"), "multiple_choice", CHOICE, **options)
    assert message.startswith("`lm_on_right_choice` is True, but only GPT-1's models have the auxiliary loss")
