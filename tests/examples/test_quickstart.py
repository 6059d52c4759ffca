"""The demonstration: what its small world promises, and one run of it at the smallest sizes."""

import importlib
import json
import multiprocessing
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TRAVERSALS = ("classification", "entailment", "similarity", "multiple_choice")


@pytest.fixture(scope="module")
def quickstart():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("quickstart")
    for name in ("quickstart", "small_world"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def world(quickstart):
    return sys.modules["small_world"]


def words_of(text):
    return text.replace(".", " ").replace(",", " ").replace(":", " ").split()


def texts_of(row):
    return " ".join(text if isinstance(text, str) else " ".join(text) for key, text in row.items() if key != "label")


def meetings(world, text):
    """Where the people and things of a text meet, by the names alone."""
    words = set(words_of(text))
    people = [person for person in world.PEOPLE if person in words]
    things = [thing for _, thing in world.THINGS if thing in words]
    return {world.meets_in(person, thing) for person in people for thing in things}


def kind_of(world, text):
    return next(kind for kind, thing in world.THINGS if thing in words_of(text))


def test_same_seed_same_text_and_another_seed_another(world):
    assert world.stories(20, seed=3) == world.stories(20, seed=3)
    assert world.stories(20, seed=3) != world.stories(20, seed=4)
    for traversal in TRAVERSALS:
        assert world.labelled(traversal, "test", 5, seed=3) == world.labelled(traversal, "test", 5, seed=3)
        assert world.labelled(traversal, "test", 5, seed=3) != world.labelled(traversal, "test", 5, seed=4)


@pytest.mark.parametrize("traversal", TRAVERSALS)
def test_labelled_rows_are_new_and_say_what_stories_know(world, traversal):
    """No row comes twice, no person meets a thing in two places, and training rows show a quarter of the things."""
    stories = world.stories(3000)
    things = {thing for _, thing in world.THINGS}
    rows = {split: world.labelled(traversal, split, 600) for split in ("train", "test")}
    words = {split: {word for row in of for word in words_of(texts_of(row))} for split, of in rows.items()}
    assert len({str(row) for of_split in rows.values() for row in of_split}) == 1200
    assert {place for story in stories for place in meetings(world, story)} == {"stories"}
    assert all(split in meetings(world, texts_of(row)) for split, of_split in rows.items() for row in of_split)
    assert words["train"] & things == {thing for kind in world.KINDS for thing in kind.things[:2]}
    assert words["test"] >= things
    known = {word.lower() for story in stories for word in words_of(story)}
    assert {word.lower() for word in words["train"] | words["test"]} <= known


def test_inferences_are_labelled_by_the_kind_and_the_denial(world):
    for row in world.labelled("entailment", "test", 300):
        same = kind_of(world, row["premise"]).noun == words_of(row["hypothesis"])[-1]
        denied = " no " in row["hypothesis"]
        assert row["label"] == (1 if not same else 2 if denied else 0)


def test_graded_pairs_lose_what_their_differences_cost(world):
    for row in world.labelled("similarity", "test", 300):
        a = words_of(row["text_a"])
        b = words_of(row["text_b"])
        thing_a, thing_b = (next(thing for _, thing in world.THINGS if thing in words) for words in (a, b))
        another_kind = kind_of(world, row["text_a"]) != kind_of(world, row["text_b"])
        cost = 3.0 if another_kind else 1.5 if thing_a != thing_b else 0.0
        place_a, place_b = (row[text].partition(" in the ")[2] for text in ("text_a", "text_b"))
        assert row["label"] == 5.0 - cost - (a[0] != b[0]) - (place_a != place_b)


def test_endings_have_one_that_fits_the_thing(world):
    rows = world.labelled("multiple_choice", "test", 300)
    for row in rows:
        kind = kind_of(world, row["context"][3])
        fits = [any(f" {act} it and" in ending for act in kind.acts) for ending in row["choices"]]
        assert fits == [place == row["label"] for place in range(len(row["choices"]))]
    assert {len(row["choices"]) for row in rows} == {2, 3, 4}


def test_variants_start_from_what_they_say(quickstart, tmp_path):
    args = quickstart.DemoArguments(hidden_size=32, num_hidden_layers=1)
    tokenizer = quickstart.GPT1Tokenizer.train(iter(quickstart.stories(50)), num_merges=50, show_progress=False)
    tokenizer.save_pretrained(tmp_path)
    pretrained = quickstart.GPT1ForCausalLM(quickstart.make_config(args, len(tokenizer)))
    pretrained.save_pretrained(tmp_path)
    weight = pretrained.transformer.h[0].mlp.up_proj.weight
    for variant, same in zip(quickstart.VARIANTS, (False, True, True), strict=True):
        parts = quickstart.finetuning_parts(quickstart.TASKS[1], variant, args, tmp_path)
        model = parts["model"]
        grown = parts["processing_class"]
        assert torch.equal(model.transformer.h[0].mlp.up_proj.weight, weight) is same
        assert model.config.vocab_size == len(grown) == len(tokenizer) + 3
        assert (model.config.traversal, model.config.num_labels) == ("entailment", 3)


def test_run_at_the_smallest_sizes(quickstart, tmp_path, capsys, monkeypatch):
    if not torch.cuda.is_available():  # a fork has no CUDA, and new interpreters import longer than all of this takes
        context = multiprocessing.get_context("fork")
        monkeypatch.setattr(quickstart.multiprocessing, "get_context", lambda _: context)
    sizes = {"num_stories": 60, "num_merges": 60, "hidden_size": 32, "num_hidden_layers": 1, "pretraining_updates": 1}
    sizes |= {"train_rows": 8, "test_rows": 8, "finetuning_epochs": 1}
    flags = [text for name, value in sizes.items() for text in (f"--{name}", str(value))]
    quickstart.main(["--output_dir", str(tmp_path), *flags])

    screen = capsys.readouterr().out
    assert [line[:2] for line in screen.split("\n") if line[:1].isdigit()] == ["1.", "2.", "3.", "4.", "5."]
    assert "'Vera got a kite. It looked shabby, but Vera found it superb.' is " in screen
    assert "Ben felt hungry. He looked for a fruit in the kitchen. → " in screen

    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["arguments"] == {"output_dir": str(tmp_path), "seed": 0, **sizes}
    names = list(quickstart.VARIANTS)
    assert [result["task"] for result in metrics["results"]] == list(TRAVERSALS)
    for result in metrics["results"]:
        assert list(result["scores"]) == list(result["curves"]) == names
        assert all(result["curves"][name][-1] == [1, result["scores"][name]] for name in names)
    assert quickstart.format_table(metrics["results"]) in screen

    assert "small world reviews" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "learning_curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert not list(tmp_path.rglob("*.bin"))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert model.config.id2label == {0: "negative", 1: "positive"}
    assert model.config.vocab_size == len(AutoTokenizer.from_pretrained(tmp_path))
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "pretrained").config.hidden_size == 32
