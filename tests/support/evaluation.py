"""Rows of a few tasks of lm-evaluation-harness, and their definitions alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from support.files import write_rows

TEXTS = ["the old farmer", "she walked home", "a green river", "he paid for it", "no one knew", "five dollars"]
STORY = ["The old man smiled.", "He paid for the train.", "No one was there.", "She walked home."]
CHOICES = {"text": TEXTS[1:5], "label": [*"ABCD"]}
# A row of each task, as the hub has it, and the split that the task reads.
ROWS = {
    "piqa": ("validation", {"goal": TEXTS[0], "sol1": TEXTS[1], "sol2": TEXTS[2], "label": 1}),
    "arc_easy": ("test", {"question": TEXTS[0], "choices": CHOICES, "answerKey": "C"}),
    "openbookqa": ("test", {"question_stem": TEXTS[3], "choices": CHOICES, "answerKey": "B"}),
    "hellaswag": ("validation", {"activity_label": "Walk", "ctx": "She sat. she", "endings": TEXTS[:4], "label": "2"}),
    "winogrande": (
        "validation",
        {"sentence": "The man paid as _ was old.", "option1": "he", "option2": "the man", "answer": "1"},
    ),
    "race": ("high_validation", {"article": STORY[0], "question": "Who?", "options": TEXTS[:4], "label": 3}),
    "storycloze_2016": ("test", {"story": STORY, "ending1": TEXTS[3], "ending2": TEXTS[4], "label": 0}),
    "boolq": ("validation", {"question": "is the farmer old", "passage": STORY[0], "label": 1}),
    "cb": ("validation", {"premise": STORY[0], "hypothesis": TEXTS[4], "label": 2}),
    "copa": (
        "validation",
        {"premise": STORY[1], "choice1": STORY[2], "choice2": STORY[3], "question": "cause", "label": 0},
    ),
    "rte": ("validation", {"sentence1": STORY[0], "sentence2": STORY[2], "label": 0}),
    "lambada_standard": ("validation", {"text": "the old farmer smiled at her and she walked home"}),
    "blimp_adjunct_island": (
        "train",
        {"UID": "adjunct_island", "sentence_good": STORY[2], "sentence_bad": "No was one there."},
    ),
}
FOLDERS = {"storycloze_2016": "story_cloze", "lambada_standard": "lambada", "blimp_adjunct_island": "blimp"}
DEFINITIONS = ("piqa", "arc", "openbookqa", "hellaswag", "winogrande", "race", "storycloze", "lambada", "blimp")
DEFINITIONS += ("super_glue/boolq", "super_glue/cb", "super_glue/copa", "glue/rte", "glue/sst2", "wikitext")


def few_tasks():
    """The harness's folders of these tasks alone: reading all of them takes 7 seconds."""
    pytest.importorskip("lm_eval")
    tasks = import_module("lm_eval.tasks")
    paths = [str(Path(tasks.__file__).parent / name) for name in DEFINITIONS]
    return tasks.TaskManager(include_defaults=False, include_path=paths)


@contextmanager
def only_few_tasks() -> Iterator[None]:
    """The harness knows these tasks alone, and does not ask pip what is installed, which takes seconds."""
    manager = few_tasks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lm_eval.evaluator.add_env_info", lambda results: None)
        patch.setattr("modeling_gpt1.evaluation.local_rows.all_tasks", lambda: manager)
        yield


def write_tasks(folder: Path) -> Path:
    """Two rows of each task, as users have them, and two articles."""
    for task, (split, row) in ROWS.items():
        other = {**row, **{key: f"{value} there" for key, value in row.items() if key in ("goal", "article", "text")}}
        path = folder / FOLDERS.get(task, task) / f"{split}.jsonl"
        write_rows(path, [{**row, "idx": 0}, {**other, "idx": 1}])
    path = folder / "wikitext2_raw" / "wiki.test.raw"
    path.parent.mkdir()
    path.write_text(" \n = Old Farmer = \n \n The old farmer smiled . \n \n = A Home = \n \n She walked home . \n")
    return folder
