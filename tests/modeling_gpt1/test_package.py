"""The package as a whole: files that travel, names that are said twice, a stranger's module called tokenization."""

import re
from pathlib import Path

import pytest
import torch
from support.hub_code import HUB_CODE, HUB_CODE_OF_LSTM
from support.packing import results, without_plan
from support.refusals import refusal

import modeling_gpt1
import tokenization
from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForSequenceClassification, configuration_gpt1
from tokenization.rows import traversals as traversal

ROOT = Path(modeling_gpt1.__file__).parents[1]
TRAVELLERS = {
    "checks_gpt1.py",
    "configuration_gpt1.py",
    "kernels_gpt1.py",
    "layouts_gpt1.py",
    "loss_gpt1.py",
    "modeling_gpt1.py",
    "packing_gpt1.py",
}
TRAVELLERS_OF_LSTM = {*TRAVELLERS, "configuration_gpt1_lstm.py", "modeling_gpt1_lstm.py"}


def test_these_files_travel_with_a_model():
    assert HUB_CODE == TRAVELLERS
    assert HUB_CODE_OF_LSTM == TRAVELLERS_OF_LSTM


def test_nothing_else_lies_beside_the_files_that_travel():
    flat = {path.name for path in (ROOT / "modeling_gpt1").glob("*.py")}
    assert flat == {"__init__.py", "conversion.py", *TRAVELLERS_OF_LSTM}


def test_travelling_files_name_no_folder_of_the_package():
    """transformers reads them by a regular expression, docstrings too."""
    folders = {path.parent.name for path in (ROOT / "modeling_gpt1").glob("*/__init__.py")}
    assert {"training", "inference", "hub", "storage"} <= folders
    for name in TRAVELLERS_OF_LSTM:
        text = (ROOT / "modeling_gpt1" / name).read_text(encoding="utf-8")
        named = re.findall(rf"(?:from |import_module\(|[\"'`]|modeling_gpt1)\.({'|'.join(folders)})\b", text)
        assert named == [], name


def test_models_and_tokenization_know_the_same_traversals():
    assert configuration_gpt1.TRAVERSALS == {
        name: configuration_gpt1.TraversalShape(each.num_sequences, each.num_segments, each.is_symmetric)
        for name, each in traversal.TRAVERSALS.items()
    }


@pytest.mark.parametrize("name", ["GPT1Tokenizer", "TraversalCollator", "add_control_tokens"])
def test_what_scripts_need_of_tokenization_is_handed_on(name):
    assert getattr(modeling_gpt1, name) is getattr(tokenization, name)


@pytest.fixture
def register(monkeypatch):
    """Registers a traversal where a new one would be written: its function, and a line for the models."""

    def register(name, write, sequences):
        roles = tuple(dict.fromkeys(role for roles in sequences for role in roles))
        kind = traversal.Traversal(write, roles, sequences=sequences)
        shape = configuration_gpt1.TraversalShape(kind.num_sequences, kind.num_segments, kind.is_symmetric)
        monkeypatch.setitem(traversal.TRAVERSALS, name, kind)
        monkeypatch.setitem(configuration_gpt1.TRAVERSALS, name, shape)
        for model_class in (GPT1DoubleHeadsModel, GPT1ForSequenceClassification):
            monkeypatch.setattr(model_class, "supported_traversals", (*model_class.supported_traversals, name))
        return kind

    return register


def story_in_one_sequence(first, middle, last, control, max_length):
    ids = [control.start, *first, control.delimiter, *middle, control.delimiter, *last, control.extract]
    return traversal.Traversed([ids])


def story_in_three_sequences(first, middle, last, control, max_length):
    """Each text after the one before it, in a circle."""
    pairs = ((first, middle), (middle, last), (last, first))
    return traversal.Traversed([[control.start, *a, control.delimiter, *b, control.extract] for a, b in pairs])


STORIES = {
    1: (story_in_one_sequence, (("first", "middle", "last"),)),
    3: (story_in_three_sequences, (("first", "middle"), ("middle", "last"), ("last", "first"))),
}
ROWS = [
    {"first": "he paid", "middle": "the girl read", "last": "a letter", "label": 2},
    {"first": "he paid", "middle": "she", "last": "a letter", "label": 0},
]


@pytest.fixture(params=STORIES)
def story(request, register, tiny_model, tiny_tokenizer):
    """The number of sequences, a model of a new traversal, its collator and a batch."""
    register("story", *STORIES[request.param])
    collator = tokenization.TraversalCollator(tiny_tokenizer, "story", {name: name for name in ROWS[0]})
    fields = {"vocab_size": len(tiny_tokenizer), "extract_token_id": tiny_tokenizer.extract_token_id}
    model = tiny_model(GPT1DoubleHeadsModel, traversal="story", num_labels=3, **fields)
    return request.param, model, collator, collator(ROWS)


def test_the_collator_writes_the_sequences_of_a_new_traversal(story, tiny_tokenizer):
    num_sequences, _, collator, batch = story
    length = batch["input_ids"].shape[-1]
    assert batch["input_ids"].shape == ((2, length) if num_sequences == 1 else (2, num_sequences, length))
    assert (batch["input_ids"] == tiny_tokenizer.delimiter_token_id).sum() == {1: 4, 3: 6}[num_sequences]


def test_a_model_trains_alike_on_planned_and_padded_batches_of_a_new_traversal(story):
    _, model, _, batch = story
    found, num_packed = results(model, batch)
    expected, num_padded = results(model, without_plan(batch))
    assert num_packed < num_padded
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)


def test_a_new_traversal_has_scores_for_each_class(story):
    _, model, _, batch = story
    assert model(**batch).task_logits.shape == (2, 3)


def test_the_sequences_of_a_new_traversal_are_summed(story):
    """The score of an example depends on each of its sequences."""
    num_sequences, model, _, batch = story
    batch = without_plan(batch)
    expected = model(**batch).task_logits[0]
    for number in range(num_sequences):
        changed = batch["input_ids"].clone()
        changed.view(2, num_sequences, -1)[0, number, 1] += 1
        assert not torch.allclose(model(**{**batch, "input_ids": changed}).task_logits[0], expected, atol=1e-4)


def test_another_number_of_sequences_is_refused_with_the_shape_of_a_new_traversal(story):
    num_sequences, model, _, batch = story
    needed = "[B, T]" if num_sequences == 1 else "[B, 3, T]"
    message = refusal(model, batch["input_ids"].view(2, num_sequences, -1)[:, :1].expand(-1, 2, -1))
    assert f"The traversal 'story' needs tokens of shape {needed}, but got [2, 2, " in message


def test_a_new_traversal_opens_with_the_task_head_alone(story, tmp_path):
    _, model, _, batch = story
    model.save_pretrained(tmp_path)
    logits = GPT1ForSequenceClassification.from_pretrained(tmp_path)(**batch).logits
    torch.testing.assert_close(logits, model(**batch).task_logits)


def test_the_collator_knows_the_length_of_a_new_traversals_sequence(register, tiny_tokenizer):
    register("story", *STORIES[1])
    collator = tokenization.TraversalCollator(tiny_tokenizer, "story", {name: name for name in ROWS[0]})
    assert collator.lengths(ROWS[:1]) == [collator(ROWS[:1])["input_ids"].shape[1]]


def test_the_form_of_a_new_traversal_is_written_for_the_card(register):
    kind = register("story", *STORIES[1])
    assert kind.form == "`[s] first [$] middle [$] last [e]`"
