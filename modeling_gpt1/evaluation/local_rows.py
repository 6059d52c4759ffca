"""Tasks of lm-evaluation-harness on local files: the harness's own definitions, with other rows.

A definition is taken as it is, so that no prompt is written twice. A folder with a folder per task holds the rows.
"""

import logging
import re
from collections import defaultdict
from functools import cache, lru_cache
from pathlib import Path

from datasets import Dataset, DatasetDict, concatenate_datasets
from jinja2 import UndefinedError
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from tokenization.errors import UserError
from tokenization.file_kinds import TASK_FILES
from tokenization.rows.files import read_file
from tokenization.rows.task_files import file_or_shards, task_rows
from tokenization.rows.tasks import TASKS
from tokenization.wording import nearest

# Tasks whose folder is not called as the task; the files of RACE have the beginning `high_`.
FOLDERS = {"storycloze_2016": "story_cloze", "lambada_standard": "lambada", "wikitext": "wikitext2_raw"}
PREFIXES = {"race": "high_"}
BLIMP = "blimp_"
# The columns of Story Cloze as its authors call them, and as the hub does.
STORY_CLOZE = {
    "InputSentence1": "input_sentence_1",
    "InputSentence2": "input_sentence_2",
    "InputSentence3": "input_sentence_3",
    "InputSentence4": "input_sentence_4",
    "RandomFifthSentenceQuiz1": "sentence_quiz1",
    "RandomFifthSentenceQuiz2": "sentence_quiz2",
    "AnswerRightEnding": "answer_right_ending",
}
# What the hub adds to the name of a split's file: `-00000-of-00001`, and sometimes a checksum.
PLACE_OF_SHARD = re.compile(r"-\d{5}-of-\d{5}.*")
SPLITS = ("training_split", "validation_split", "test_split", "fewshot_split")
GROUP_SETTINGS = ("group", "group_alias", "aggregate_metric_list", "metadata")
# What the harness tells of each of its tasks is about their definitions, such as a metric without an aggregation.
logging.getLogger("lm_eval.api.task").setLevel(logging.ERROR)


@cache
def all_tasks() -> TaskManager:
    """The tasks of the harness; reading their definitions takes seconds."""
    return TaskManager()


def specify_tasks(
    tasks: list[str], data_dir: str | Path | None, calibrate: bool = False
) -> tuple[list[str | ConfigurableTask | Group], list[str]]:
    """What `simple_evaluate` takes as tasks, with `all_tasks()` as its manager; and the names of tasks and groups.

    Args:
        tasks: names of tasks, groups or tags, or patterns such as `blimp_*`.
        data_dir: folder with a folder per task; None takes the rows of the hub.
        calibrate: whether tasks of several answers get the metric `acc_mutual_info`, which compares log P(answer |
            question) − log P(answer).
    """
    names = []
    for task in tasks:
        names += _matching(task if data_dir is None else _task_of_folder(task))
    names = _without_repetition(names)
    if data_dir is None and not calibrate:
        return list(names), names
    specified = []
    for name in names:
        leaves = _leaves(name)
        if not leaves:
            raise UserError(
                f"The group {name!r} sets options of its tasks, so it cannot be evaluated with `data_dir` or "
                "`calibrate`. Name its tasks, and pass those options yourself, such as `num_fewshot`."
            )
        made = [_make(leaf, data_dir, calibrate) for leaf in leaves]
        specified += [_group_of(name, made)] if _kind(name) == "GROUP" else made
    return specified, names


def _task_of_folder(name: str) -> str:
    """A folder's name does for that of its task."""
    for task, folder in FOLDERS.items():
        if name == folder:
            return task
    return name


def _kind(name: str) -> str:
    """What the harness says that a name is: TASK, PY_TASK, GROUP or TAG."""
    return all_tasks().task_index[name].kind.name


def _group_of(name: str, tasks: list[ConfigurableTask]) -> Group:
    settings = all_tasks().task_index[name].cfg
    group = Group.from_config({key: settings[key] for key in GROUP_SETTINGS if key in settings})
    for task in tasks:
        group.add(task)
    return group


def _matching(task: str) -> list[str]:
    names = all_tasks().match_tasks([task])
    if not names:
        near = nearest(task, all_tasks().all_tasks)
        raise UserError(f"lm-evaluation-harness has no task {task!r}{near}. `lm_eval ls tasks` lists all.")
    return sorted(names)


def _without_repetition(names: list[str]) -> list[str]:
    """Groups and tasks, each once: tags as their tasks, and no task that a group of the list has."""
    expanded, in_groups = [], set()
    for name in names:
        if _kind(name) == "TAG":
            expanded += _leaves(name) or [name]
        else:
            expanded.append(name)
    for name in expanded:
        if _kind(name) == "GROUP":
            in_groups.update(_leaves(name))
    return [name for name in dict.fromkeys(expanded) if name not in in_groups]


def _leaves(name: str) -> list[str]:
    """The tasks of a group or tag; a task itself; none of a group that gives its tasks settings of its own."""
    if _kind(name) in ("TASK", "PY_TASK"):
        return [name]
    entry = all_tasks().task_index[name]
    leaves = []
    for child in sorted(entry.tags) if _kind(name) == "TAG" else entry.cfg["task"]:
        if not isinstance(child, str):
            if len(child) > 1:
                return []
            child = child.get("task", child.get("group"))
        of_child = _leaves(child)
        if not of_child:
            return []
        leaves += of_child
    return leaves


def _make(name: str, data_dir: str | Path | None, calibrate: bool) -> ConfigurableTask:
    """The harness's task, with the rows of the folder."""
    definition = _definition(name)
    if calibrate and definition.get("output_type") == "multiple_choice":
        task = _with_rows({**definition, "metric_list": _calibrated_metrics(definition)}, data_dir)
        # Without a question, or with one answer to several, nothing can be compared.
        if task.config.doc_to_text and not task.multiple_input:
            return task
    return _with_rows(definition, data_dir)


def _definition(name: str) -> dict:
    config = {**load_yaml(all_tasks().task_index[name].yaml_path), "task": name}
    return {key: value for key, value in config.items() if key not in ("tag", "group", "task_list")}


def _calibrated_metrics(definition: dict) -> list[dict]:
    """The task's metrics, and the accuracy by what the question adds to each answer."""
    settings = {"aggregation": "mean", "higher_is_better": True}
    usual = [{"metric": "acc", **settings}, {"metric": "acc_norm", **settings}]
    return [*(definition.get("metric_list") or usual), {"metric": "acc_mutual_info", **settings}]


def _with_rows(definition: dict, data_dir: str | Path | None) -> ConfigurableTask:
    if data_dir is None:
        return ConfigurableTask(config=definition)
    return _LocalRows(definition, Path(data_dir)).make_task()


class _LocalRows:
    """The files of a task, and the splits that they are."""

    def __init__(self, definition: dict, data_dir: Path):
        self.definition = definition
        self.name = definition["task"]
        self.folder = data_dir / ("blimp" if self.name.startswith(BLIMP) else FOLDERS.get(self.name, self.name))
        self.prefix = PREFIXES.get(self.name, "")
        self.files = _find_files(self.folder, self.prefix)
        self.splits = self._choose_splits()

    @property
    def scored_split(self) -> str:
        """The split whose rows are scored."""
        return self.splits["test_split"] or self.splits["validation_split"]

    @property
    def scored_files(self) -> str:
        """The files of these rows, for messages."""
        return " + ".join(map(str, self.files[self.scored_split]))

    def _choose_splits(self) -> dict[str, str | None]:
        """The splits of the task that have a file; if it has none to score, another one: the report names it."""
        splits = {key: self.definition.get(key) for key in SPLITS}
        needed = [split for split in (splits["test_split"], splits["validation_split"]) if split]
        if not any(split in self.files for split in needed):
            splits["validation_split"] = self._other_split(needed)
            splits["test_split"] = None
        for key, split in splits.items():
            if split not in self.files:
                splits[key] = None
        # The harness leaves the row that is scored out of its shots only if it knows that both are of one split.
        scored = splits["test_split"] or splits["validation_split"]
        if all(split in (None, scored) for split in splits.values()):
            splits["test_split"] = scored
            splits["fewshot_split"] = scored
        return splits

    def _other_split(self, needed: list[str]) -> str:
        for split in ("validation", "test"):
            if split in self.files:
                return split
        found = ", ".join(sorted(self.files)) or "none"
        raise UserError(
            f"Task {self.name!r} needs a file {self.prefix}{' or '.join(needed)} (.jsonl, .jsonl.gz, .csv or "
            f".parquet) in {self.folder}, which has {found}. Add it, or leave out `data_dir` to take the hub's rows."
        )

    def make_task(self) -> ConfigurableTask:
        """The harness's task with these rows.

        Raises:
            ValueError: the rows lack a column of the task, or a label is none of its answers.
        """
        try:
            rows = DatasetDict({split: _read(self.name, self.files[split]) for split in self.splits.values() if split})
            config = {**self.definition, **self.splits, "custom_dataset": lambda **_: rows}
            task = ConfigurableTask(config=config)
            self._check_labels(task)
        except (AttributeError, LookupError, TypeError, UndefinedError) as error:
            columns = ", ".join(read_file(self.files[self.scored_split][0]).column_names)
            raise UserError(
                f"Task {self.name!r} cannot read {self.scored_files}, whose columns are {columns}: "
                f"{type(error).__name__} {error}. Write columns and labels as {self.definition['dataset_path']} has "
                "them."
            ) from error
        return task

    def _check_labels(self, task: ConfigurableTask) -> None:
        if task.OUTPUT_TYPE != "multiple_choice" or task.multiple_input:
            return
        if isinstance(task.config.doc_to_target, int):  # the same answer is right in every row
            return
        for number, row in enumerate(task.task_docs):
            # The harness's function for COPA takes every label but 0 for 1.
            target = row["label"] if self.name == "copa" else task.doc_to_target(row)
            choices = task.doc_to_choice(row)
            if not _is_answer(target, choices):
                raise UserError(
                    f"Task {self.name!r}: row {number} of {self.scored_files} (the first is 0) has the label "
                    f"{target!r}, none of the {len(choices)} answers. Write labels as "
                    f"{self.definition['dataset_path']} has them."
                )


def _is_answer(target, choices: list[str]) -> bool:
    """Whether a label is an answer or the place of one. Several labels are left to the harness."""
    if isinstance(target, list) or target in choices:
        return True
    return not isinstance(target, float) and target in range(len(choices))  # 1.0 is no place in a list


def _find_files(folder: Path, prefix: str) -> dict[str, list[Path]]:
    """Files by split, named as for `load_task`; a raw text is `wiki.test.raw`."""
    found = {}
    for path in folder.glob("*.raw"):
        split = path.name.split(".")[-2]
        found["validation" if split == "valid" else split] = [path]
    for ending in TASK_FILES:
        for path in folder.glob(f"{prefix}*{ending}"):
            stem = PLACE_OF_SHARD.sub("", path.name.removesuffix(ending))
            files = file_or_shards(folder, stem)
            if files:
                found[stem.removeprefix(prefix)] = files
    return found


# ---- Rows as the hub has them


def _read(name: str, paths: list[Path]) -> Dataset:
    """The rows of a split's files in the columns that the task reads."""
    if paths[0].suffix == ".raw":
        return _pages(paths[0].read_text(encoding="utf-8"))
    if name.startswith(BLIMP):
        uid = name.removeprefix(BLIMP)
        paradigms = _paradigms(tuple(paths))
        if uid not in paradigms:
            files = " + ".join(map(str, paths))
            raise UserError(f"{files} has no row whose UID is {uid!r}, for task {name!r}. Add rows, or leave it out.")
        return paradigms[uid]
    rows = concatenate_datasets([_rows_of_file(name, path) for path in paths])
    if name in CONVERTERS:
        column, convert = CONVERTERS[name]
        if column not in rows.column_names:
            return convert(rows)
    return rows


def _rows_of_file(name: str, path: Path) -> Dataset:
    if name in TASKS:
        return task_rows(read_file(path), TASKS[name], "train", str(path))
    return read_file(path, infer_types=True)


@lru_cache(maxsize=1)
def _paradigms(paths: tuple[Path, ...]) -> dict[str, Dataset]:
    """The rows of each of BLiMP's 67 paradigms."""
    by_uid = concatenate_datasets([read_file(path) for path in paths]).to_pandas().groupby("UID")
    return {uid: Dataset.from_pandas(rows, preserve_index=False) for uid, rows in by_uid}


def _race(rows: Dataset) -> Dataset:
    """A row per article, with all its questions."""
    problems_of = defaultdict(list)
    for row in rows:
        problem = {"question": row["question"], "options": list(row["options"]), "answer": "ABCD"[row["label"]]}
        problems_of[row["article"]].append(problem)
    articles = [{"article": article, "problems": repr(problems)} for article, problems in problems_of.items()]
    return Dataset.from_list(articles)


def _story_cloze(rows: Dataset) -> Dataset:
    if STORY_CLOZE.keys() <= set(rows.column_names):  # as its authors call them
        return rows.rename_columns(STORY_CLOZE)
    return rows.map(_story_cloze_row, remove_columns=rows.column_names)


def _story_cloze_row(row: dict) -> dict:
    """A row of this package's task as the hub has it."""
    converted = {key: value for key, value in row.items() if key not in ("story", "ending1", "ending2", "label")}
    for number, sentence in enumerate(row["story"], start=1):
        converted[f"input_sentence_{number}"] = sentence
    converted["sentence_quiz1"] = row["ending1"]
    converted["sentence_quiz2"] = row["ending2"]
    converted["answer_right_ending"] = row["label"] + 1
    return converted


def _pages(text: str) -> Dataset:
    """The articles of WikiText; each begins with its title, ` = Robert Boulter = `."""
    pages = re.split(r"^(?= = [^=\n]+ = $)", text, flags=re.MULTILINE)
    return Dataset.from_list([{"page": page} for page in pages if page.strip()])


def _hellaswag(rows: Dataset) -> Dataset:
    return rows.map(lambda row: {"ctx_a": row["ctx"], "ctx_b": ""})


def _wikitext(rows: Dataset) -> Dataset:
    return _pages("\n".join(row["text"].strip("\n") for row in rows))


# How rows without a column of the hub's get it.
CONVERTERS = {
    "race": ("problems", _race),
    "hellaswag": ("ctx_a", _hellaswag),
    "storycloze_2016": ("input_sentence_1", _story_cloze),
    "wikitext": ("page", _wikitext),
}
