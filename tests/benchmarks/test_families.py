"""benchmarks/families.py: its data, its steps and its page."""

import json
from pathlib import Path

import pytest

from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.training.families import FAMILIES


@pytest.fixture
def arguments(families, tmp_path):
    words = ["--books", "books", "--data_dir", "data", "--work_dir", str(tmp_path), "--seeds", "2"]
    return families.parse([*words, "--families", "roberta", "--tokens", "8192", "--sweep_tokens", "4096"])


def test_a_task_without_rows_is_told_before_hours_of_work(families, arguments, tmp_path, monkeypatch):
    arguments.data_dir = tmp_path / "data"
    monkeypatch.setattr(families, "TASKS", {"snli": None})
    (arguments.data_dir / "snli").mkdir(parents=True)
    for split, missing in (("test", "train"), ("train", "validation")):
        row = json.dumps({"premise": "a", "hypothesis": "b", "label": 1})
        (arguments.data_dir / "snli" / f"{split}.jsonl").write_text(f"{row}\n")
        with pytest.raises(SystemExit, match=f"^{arguments.data_dir}: snli has no split {missing}.* Add its file.$"):
            families.check_data(arguments)
    (arguments.data_dir / "snli" / "test.jsonl").rename(arguments.data_dir / "snli" / "validation.jsonl")
    families.check_data(arguments)


def test_the_commands_have_these_flags(families, arguments):
    for step, loss in zip(families.sweep(arguments, "roberta"), (4.0, 3.0, 2.0, 2.5), strict=True):
        (step.folder / "out").mkdir(parents=True)
        (step.folder / "out" / step.result).write_text(json.dumps({"eval_loss": loss}))
        (step.folder / "done.json").write_text("{}")
    parsers = {command: parser_of(command) for command in ("pretrain", "finetune", "zero-shot")}
    for family in FAMILIES:
        stages = families.stages_of(arguments, family)
        assert {*families.TASKS} - {*families.tasks_of(family)} == ({"story_cloze"} if family == "bart" else set())
        assert [len(stage) for stage in stages] == ([4, 1, 1 + 2 * 8] if family == "roberta" else [4])
        for step in sum(stages, []):
            command, *words = step.words
            given, _ = parsers[command].parse_known_args([*words, step.output, "out"])
            assert getattr(given, step.output.removeprefix("--")) == "out"


def test_the_published_page_has_the_measured_figures(families):
    """The newest page is that of the figures beside it, so a change of the page reaches it too."""
    path = max((Path(families.__file__).parent / "results").glob("????-??-??-families.json"))
    measured = json.loads(path.read_text())
    rows = {family: families.Row(**row) for family, row in measured["results"].items()}
    text = families.page(rows, families.TASKS, measured["machine"])
    assert path.with_suffix(".md").read_text() == f"{text}\n\n![Learning curves]({path.stem}.png)\n"
