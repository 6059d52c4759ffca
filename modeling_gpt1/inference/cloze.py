"""The Children's Book Test: which of ten words is missing in the sentence after twenty others?

Source: "The Goldilocks Principle: Reading Children's Books with Explicit Memory Representations" (Hill et al. 2016,
https://arxiv.org/abs/1511.02301). A language model chooses as in section 3.2 of "Language Models are Unsupervised
Multitask Learners" (Radford et al. 2019): by the probability of the word and of the rest of the sentence after it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from datasets import Dataset, DatasetDict

from tokenization import Task, load_task
from tokenization.errors import UserError

from .scoring import ScoringRequest

FOLDER = "cbt"
BLANK = "XXXXX"
NUM_SENTENCES = 20
# Kinds of the missing word, as the names of the released files have them.
KINDS = {"cbt-ne": "NE", "cbt-cn": "CN", "cbt-v": "V", "cbt-p": "P"}
SPLITS = {"train": "train", "validation": "valid", "test": "test"}  # by their names in the files
BRACKETS = {"-LRB-": "(", "-RRB-": ")"}


def cloze_task(name: str) -> Task:
    """The task of a kind of missing words; `label` is an index into `options`."""
    columns = {"context": "sentences", "question": "question", "choices": "options", "label": "label"}
    return Task(name=name, traversal="multiple_choice", columns=columns)


def cloze_request(row: Mapping) -> tuple[ScoringRequest, ...]:
    """Each candidate with the rest of its sentence, after the twenty sentences and the beginning of this one."""
    sentence = _readable(row["question"])
    if sentence.count(BLANK) != 1:
        raise UserError(
            f"The question {row['question']!r} has not one {BLANK}, where its word is missing. Correct it."
        )
    before, after = sentence.split(BLANK)
    context = " ".join(map(_readable, [*row["sentences"], before])).rstrip()
    return (ScoringRequest(context, tuple(f" {candidate}{after}".rstrip() for candidate in row["options"])),)


def load_cloze(task: Task, data_dir: str | None) -> DatasetDict:
    """The splits of a task: from the released files in `data_dir/cbt`, such as cbtest_NE_test_2500ex.txt, or else
    from files of rows, as `load_task` reads them.

    Raises:
        ValueError: there are no files, or one is not in the released format.
    """
    splits = {}
    for split, name in SPLITS.items():
        if data_dir is not None:
            for path in sorted(Path(data_dir, FOLDER).glob(f"cbtest_{KINDS[task.name]}_{name}*.txt"))[:1]:
                splits[split] = Dataset.from_list(list(_read_questions(path)))
    return DatasetDict(splits) if splits else load_task(task, data_dir)


def _read_questions(path: Path) -> Iterator[dict]:
    """The rows of a released file: 20 numbered sentences, and one with tabs before its answer and its candidates."""
    blocks = re.split(r"\n\s*\n", path.read_text(encoding="utf-8").strip())
    for number, block in enumerate(blocks, start=1):
        lines = [line.partition(" ")[2] for line in block.split("\n")]
        *sentences, last = lines
        question, *answer_and_candidates = last.split("\t")
        options = answer_and_candidates[-1].split("|") if answer_and_candidates else []
        answer = answer_and_candidates[0] if answer_and_candidates else ""
        if len(sentences) != NUM_SENTENCES or answer not in options:
            raise UserError(
                f"Question {number} of {path} has {len(sentences)} sentences and the answer {answer!r} among "
                f"{len(options)} candidates, but needs {NUM_SENTENCES} numbered lines, and one with the question, a "
                "tab, the answer, two tabs, and the candidates with | between them. Pass a file as it was released."
            )
        yield {"sentences": sentences, "question": question, "options": options, "label": options.index(answer)}


def _readable(text: str) -> str:
    """A sentence with its brackets, which the released files spell."""
    for spelled, bracket in BRACKETS.items():
        text = text.replace(spelled, bracket)
    return text.strip()
