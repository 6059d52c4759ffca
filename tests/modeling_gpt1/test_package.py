"""The package as a whole: files that travel, names that are said twice, a stranger's module called tokenization."""

import re
from pathlib import Path

from support.hub_code import HUB_CODE, HUB_CODE_OF_LSTM

import modeling_gpt1
import tokenization
from modeling_gpt1 import configuration_gpt1
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


def test_these_files_travel_with_a_model_and_nothing_else_lies_beside_them():
    assert HUB_CODE == TRAVELLERS
    assert HUB_CODE_OF_LSTM == TRAVELLERS_OF_LSTM
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


def test_what_tokenization_has_is_known_and_handed_on():
    shapes = {name: shape.num_sequences for name, shape in configuration_gpt1.TRAVERSALS.items()}
    assert shapes == {name: each.num_sequences for name, each in traversal.TRAVERSALS.items()}
    for name in ("GPT1Tokenizer", "TraversalCollator", "add_control_tokens"):
        assert getattr(modeling_gpt1, name) is getattr(tokenization, name)


def test_a_new_traversal_is_a_function_and_two_lines(monkeypatch, tiny_model, tiny_tokenizer):
    """Three texts in one sequence: the collator, the plan, the model, its loss and the card follow."""

    def story(first, middle, last, control, max_length):
        ids = [control.start, *first, control.delimiter, *middle, control.delimiter, *last, control.extract]
        return traversal.Traversed([ids])

    roles = ("first", "middle", "last")
    kind = traversal.Traversal(story, roles, sequences=(roles,))
    monkeypatch.setitem(traversal.TRAVERSALS, "story", kind)
    monkeypatch.setitem(configuration_gpt1.TRAVERSALS, "story", configuration_gpt1.TraversalShape(1, num_texts=3))
    model_class = modeling_gpt1.GPT1DoubleHeadsModel
    monkeypatch.setattr(model_class, "supported_traversals", tuple(configuration_gpt1.TRAVERSALS))
    texts = {"first": "he paid", "middle": "the girl read", "last": "a letter"}
    collator = tokenization.TraversalCollator(tiny_tokenizer, "story", {name: name for name in [*texts, "label"]})
    batch = collator([{**texts, "label": 2}, {**texts, "middle": "she", "label": 0}])
    assert batch["input_ids"].dim() == 2
    assert (batch["input_ids"] == tiny_tokenizer.delimiter_token_id).sum() == 4
    assert collator.lengths([texts]) == [batch["input_ids"].shape[1]]
    fields = {"vocab_size": len(tiny_tokenizer), "extract_token_id": tiny_tokenizer.extract_token_id}
    model = tiny_model(model_class, traversal="story", num_labels=3, **fields)
    outputs = model(**batch)
    plain = model(**{name: part for name, part in batch.items() if name != "plan"})
    assert outputs.task_logits.shape == (2, 3)
    assert abs(outputs.loss - plain.loss) < 1e-6
    assert kind.form == "`[s] first [$] middle [$] last [e]`"
