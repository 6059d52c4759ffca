"""Tasks of lm-evaluation-harness on local files: the harness's own definitions, with other rows.

A definition is taken as it is, and nothing is changed but where the rows are, so that no prompt is written twice. A
folder with a folder per task, as everywhere in this package, holds the rows under the hub's names.
"""

import logging
import re
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from tokenization.rows import FILE_BUILDERS, read_file
from tokenization.tasks import nearest

# Tasks whose folder is not called as the task; the files of RACE have the beginning `high_`.
FOLDERS = {"storycloze_2016": "story_cloze", "lambada_standard": "lambada", "wikitext": "wikitext2_raw"}
PREFIXES = {"race": "high_"}
BLIMP = "blimp_"
ACCURACIES = ("acc", "acc_norm", "acc_mutual_info")
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
    # A folder's name does for that of its task.
    of_folders = {} if data_dir is None else {folder: task for task, folder in FOLDERS.items()}
    names = _without_repetition([name for task in tasks for name in _matching(of_folders.get(task, task))])
    index = all_tasks().task_index
    if data_dir is None and not calibrate:
        return list(names), names
    specified = []
    for name in names:
        made = [ConfigurableTask(config=_define(leaf, data_dir, calibrate)) for leaf in _leaves(name)]
        if index[name].kind.name == "GROUP":
            group = Group.from_config({key: index[name].cfg[key] for key in GROUP_SETTINGS if key in index[name].cfg})
            for task in made:
                group.add(task)
            made = [group]
        specified += made
    return specified, names


def _matching(task: str) -> list[str]:
    names = all_tasks().match_tasks([task])
    if not names:
        near = nearest(task, all_tasks().all_tasks)
        raise ValueError(f"lm-evaluation-harness has no task {task!r}{near}. `lm_eval ls tasks` lists all.")
    return sorted(names)


def _without_repetition(names: list[str]) -> list[str]:
    """Groups and tasks, each once: tags as their tasks, and no task that a group of the list has."""
    index = all_tasks().task_index
    expanded = [leaf for name in names for leaf in (_leaves(name) if index[name].kind.name == "TAG" else [name])]
    in_groups = {leaf for name in expanded if index[name].kind.name == "GROUP" for leaf in _leaves(name)}
    return [name for name in dict.fromkeys(expanded) if name not in in_groups]


def _leaves(name: str) -> list[str]:
    """The tasks of a group or tag; a task itself."""
    entry = all_tasks().task_index[name]
    if entry.kind.name in ("TASK", "PY_TASK"):
        return [name]
    children = sorted(entry.tags) if entry.kind.name == "TAG" else entry.cfg["task"]
    names = [child if isinstance(child, str) else child.get("task", child.get("group")) for child in children]
    return [leaf for child in names for leaf in _leaves(child)]


def _define(name: str, data_dir: str | Path | None, calibrate: bool) -> dict[str, Any]:
    """The harness's definition of a task, with the rows of the folder."""
    config = {**load_yaml(all_tasks().task_index[name].yaml_path), "task": name}
    config = {key: value for key, value in config.items() if key not in ("tag", "group", "task_list")}
    if calibrate and config.get("output_type") == "multiple_choice":
        means = {"aggregation": "mean", "higher_is_better": True}
        metrics = [one["metric"] for one in config.get("metric_list") or ()] + ["acc_mutual_info"]
        config["metric_list"] = [{"metric": one, **means} for one in dict.fromkeys(metrics) if one in ACCURACIES]
    if data_dir is None:
        return config
    folder = Path(data_dir, "blimp" if name.startswith(BLIMP) else FOLDERS.get(name, name))
    prefix = PREFIXES.get(name, "")
    files = _find_files(folder, prefix)
    splits = {key: config.get(key) for key in SPLITS}
    needed = [split for split in (splits["test_split"], splits["validation_split"]) if split]
    if not set(needed) & files.keys():  # another split than the task's: the report names it
        other = next((split for split in ("validation", "test") if split in files), None)
        if other is None:
            raise ValueError(
                f"Task {name!r} needs a file {prefix}{' or '.join(needed)} (.jsonl, .jsonl.gz, .csv or .parquet) in "
                f"{folder}, which has {', '.join(sorted(files)) or 'none'}. Add it, or leave out --data_dir to take "
                "the hub's rows."
            )
        splits |= {"validation_split": other, "test_split": None}
    splits = {key: split if split in files else None for key, split in splits.items()}
    rows = DatasetDict({split: _read(name, files[split]) for split in splits.values() if split})
    return {**config, **splits, "custom_dataset": lambda **_: rows}


def _find_files(folder: Path, prefix: str) -> dict[str, Path]:
    """Files by split; a raw text is `wiki.test.raw`."""
    found = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        ending = next((ending for ending in FILE_BUILDERS if path.name.endswith(ending)), None)
        if path.name.startswith(prefix) and ending is not None:
            found[path.name.removeprefix(prefix).removesuffix(ending)] = path
        elif path.suffix == ".raw":
            found[{"valid": "validation"}.get(part := path.name.split(".")[-2], part)] = path
    return found


# ---- Rows as the hub has them


def _read(name: str, path: Path) -> Dataset:
    """The rows of a file in the columns that the task reads."""
    if path.suffix == ".raw":
        return _pages(path)
    if name.startswith(BLIMP):
        rows = _paradigms(path).get(uid := name.removeprefix(BLIMP))
        if rows is None:
            raise ValueError(f"{path} has no row whose UID is {uid!r}, for task {name!r}. Add rows, or leave it out.")
        return rows
    rows = read_file(path, infer_types=True)
    return CONVERTERS[name](rows) if name in CONVERTERS else rows


@lru_cache(maxsize=1)
def _paradigms(path: Path) -> dict[str, Dataset]:
    """The rows of each of BLiMP's 67 paradigms."""
    by_uid = read_file(path).to_pandas().groupby("UID")
    return {uid: Dataset.from_pandas(rows, preserve_index=False) for uid, rows in by_uid}


def _race(rows: Dataset) -> Dataset:
    """A row per article, with all its questions."""
    found = []
    for article, questions in groupby(rows, key=lambda row: row["article"]):
        problems = [
            {"question": row["question"], "options": list(row["options"]), "answer": "ABCD"[row["label"]]}
            for row in questions
        ]
        found.append({"article": article, "problems": repr(problems)})
    return Dataset.from_list(found)


def _hellaswag(rows: Dataset) -> Dataset:
    return rows if "ctx_a" in rows.column_names else rows.map(lambda row: {"ctx_a": row["ctx"], "ctx_b": ""})


def _story_cloze(rows: Dataset) -> Dataset:
    def convert(row: dict) -> dict:
        sentences = {f"input_sentence_{number}": text for number, text in enumerate(row["story"], start=1)}
        endings = {"sentence_quiz1": row["ending1"], "sentence_quiz2": row["ending2"]}
        return {**sentences, **endings, "answer_right_ending": row["label"] + 1}

    return rows.map(convert, remove_columns=rows.column_names)


CONVERTERS = {"race": _race, "hellaswag": _hellaswag, "storycloze_2016": _story_cloze}


def _pages(path: Path) -> Dataset:
    """The articles of WikiText; each begins with its title, ` = Robert Boulter = `."""
    pages = re.split(r"^(?= = [^=\n]+ = $)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return Dataset.from_list([{"page": page} for page in pages[1:]])
