"""Tasks of lm-evaluation-harness on local files: the harness's own definitions, with other rows.

A definition is taken as it is, so that no prompt is written twice. A folder with a folder per task holds the rows.
"""

import logging
import re
from collections import defaultdict
from functools import cache, lru_cache
from pathlib import Path

from datasets import Dataset, DatasetDict
from jinja2 import UndefinedError
from lm_eval.api.group import Group
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager
from lm_eval.tasks._yaml_loader import load_yaml

from tokenization.errors import UserError
from tokenization.file_kinds import TASK_FILES
from tokenization.rows.files import read_file
from tokenization.rows.task_files import task_rows
from tokenization.rows.tasks import TASKS
from tokenization.wording import nearest

# Tasks whose folder is not called as the task; the files of RACE have the beginning `high_`.
FOLDERS = {"storycloze_2016": "story_cloze", "lambada_standard": "lambada", "wikitext": "wikitext2_raw"}
PREFIXES = {"race": "high_"}
BLIMP = "blimp_"
STORY_CLOZE = {f"InputSentence{number}": f"input_sentence_{number}" for number in range(1, 5)}
STORY_CLOZE |= {f"RandomFifthSentenceQuiz{number}": f"sentence_quiz{number}" for number in (1, 2)}
STORY_CLOZE["AnswerRightEnding"] = "answer_right_ending"
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
        if not (leaves := _leaves(name)):
            raise UserError(f"The group {name!r} has settings of its own. Name its tasks, with --num_fewshot.")
        made = [_make(leaf, data_dir, calibrate) for leaf in leaves]
        if calibrate:  # without a question, or with one answer to several, nothing can be compared
            unfit = {task.config.task for task in made if task.multiple_input or not task.config.doc_to_text}
            made = [_make(one.config.task, data_dir, False) if one.config.task in unfit else one for one in made]
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
        raise UserError(f"lm-evaluation-harness has no task {task!r}{near}. `lm_eval ls tasks` lists all.")
    return sorted(names)


def _without_repetition(names: list[str]) -> list[str]:
    """Groups and tasks, each once: tags as their tasks, and no task that a group of the list has."""
    index = all_tasks().task_index
    expanded = [leaf for name in names for leaf in ((index[name].kind.name == "TAG" and _leaves(name)) or [name])]
    in_groups = {leaf for name in expanded if index[name].kind.name == "GROUP" for leaf in _leaves(name)}
    return [name for name in dict.fromkeys(expanded) if name not in in_groups]


def _leaves(name: str) -> list[str]:
    """The tasks of a group or tag; a task itself; none of a group that gives its tasks settings of its own."""
    entry = all_tasks().task_index[name]
    if entry.kind.name in ("TASK", "PY_TASK"):
        return [name]
    children = sorted(entry.tags) if entry.kind.name == "TAG" else entry.cfg["task"]
    if any(not isinstance(child, str) and len(child) > 1 for child in children):
        return []
    names = [child if isinstance(child, str) else child.get("task", child.get("group")) for child in children]
    found = [_leaves(child) for child in names]
    return [leaf for of_child in found for leaf in of_child] if all(found) else []


def _make(name: str, data_dir: str | Path | None, calibrate: bool) -> ConfigurableTask:
    """The harness's task, with the rows of the folder."""
    config = {**load_yaml(all_tasks().task_index[name].yaml_path), "task": name}
    config = {key: value for key, value in config.items() if key not in ("tag", "group", "task_list")}
    if calibrate and config.get("output_type") == "multiple_choice":
        means = {"aggregation": "mean", "higher_is_better": True}
        others = config.get("metric_list") or [{"metric": one, **means} for one in ("acc", "acc_norm")]
        config["metric_list"] = [*others, {"metric": "acc_mutual_info", **means}]
    if data_dir is None:
        return ConfigurableTask(config=config)
    folder = Path(data_dir, "blimp" if name.startswith(BLIMP) else FOLDERS.get(name, name))
    prefix = PREFIXES.get(name, "")
    files = _find_files(folder, prefix)
    splits = {key: config.get(key) for key in SPLITS}
    needed = [split for split in (splits["test_split"], splits["validation_split"]) if split]
    if not set(needed) & files.keys():  # another split than the task's: the report names it
        other = next((split for split in ("validation", "test") if split in files), None)
        if other is None:
            found, endings = ", ".join(sorted(files)) or "none", ".jsonl, .jsonl.gz, .csv or .parquet"
            what = f"a file {prefix}{' or '.join(needed)} ({endings}) in {folder}, which has {found}"
            raise UserError(f"Task {name!r} needs {what}. Add it, or leave out --data_dir to take the hub's rows.")
        splits |= {"validation_split": other, "test_split": None}
    splits = {key: split if split in files else None for key, split in splits.items()}
    of_asked = splits["test_split"] or splits["validation_split"]
    if {*splits.values()} <= {None, of_asked}:  # the harness leaves the row that is asked out of its shots
        splits |= {"test_split": of_asked, "fewshot_split": of_asked}
    asked, as_hub = files[splits["test_split"] or splits["validation_split"]], f"as {config['dataset_path']} has them"
    try:
        rows = DatasetDict({split: _read(name, files[split]) for split in splits.values() if split})
        task = ConfigurableTask(config={**config, **splits, "custom_dataset": lambda **_: rows})
        has_targets = task.OUTPUT_TYPE == "multiple_choice" and not isinstance(task.config.doc_to_target, int)
        for number, row in enumerate(task.task_docs if has_targets and not task.multiple_input else ()):
            target = row["label"] if name == "copa" else task.doc_to_target(row)  # which takes all but 0 for 1 there
            choices = task.doc_to_choice(row)
            is_place = type(target) is not float and target in range(len(choices))  # 1.0 is no place in a list
            if not (isinstance(target, list) or target in choices or is_place):
                what = f"row {number} of {asked} (the first is 0) has the label {target!r}, none of the {len(choices)}"
                raise UserError(f"Task {name!r}: {what} answers. Write labels {as_hub}.")
    except (AttributeError, LookupError, TypeError, UndefinedError) as error:
        what = f"{asked}, whose columns are {', '.join(read_file(asked).column_names)}: {type(error).__name__} {error}"
        raise UserError(f"Task {name!r} cannot read {what}. Write columns and labels {as_hub}.") from error
    return task


def _find_files(folder: Path, prefix: str) -> dict[str, Path]:
    """Files by split; a raw text is `wiki.test.raw`."""
    names = {path.name.split(".")[-2]: path for path in folder.glob("*.raw")}
    found = {{"valid": "validation"}.get(name, name): path for name, path in names.items()}
    for ending in reversed(TASK_FILES):  # of two the first counts, as for `load_task`
        found |= {path.name[len(prefix) : -len(ending)]: path for path in folder.glob(f"{prefix}*{ending}")}
    return found


# ---- Rows as the hub has them


def _read(name: str, path: Path) -> Dataset:
    """The rows of a file in the columns that the task reads."""
    if path.suffix == ".raw":
        return _pages(path.read_text(encoding="utf-8"))
    if name.startswith(BLIMP):
        rows = _paradigms(path).get(uid := name.removeprefix(BLIMP))
        if rows is None:
            raise UserError(f"{path} has no row whose UID is {uid!r}, for task {name!r}. Add rows, or leave it out.")
        return rows
    task, (column, convert) = TASKS.get(name), CONVERTERS.get(name, ("", None))
    rows = task_rows(read_file(path), task, "train", str(path)) if task else read_file(path, infer_types=True)
    return convert(rows) if convert and column not in rows.column_names else rows


@lru_cache(maxsize=1)
def _paradigms(path: Path) -> dict[str, Dataset]:
    """The rows of each of BLiMP's 67 paradigms."""
    by_uid = read_file(path).to_pandas().groupby("UID")
    return {uid: Dataset.from_pandas(rows, preserve_index=False) for uid, rows in by_uid}


def _race(rows: Dataset) -> Dataset:
    """A row per article, with all its questions."""
    found = defaultdict(list)
    for row in rows:
        problem = {"question": row["question"], "options": list(row["options"]), "answer": "ABCD"[row["label"]]}
        found[row["article"]].append(problem)
    return Dataset.from_list([{"article": article, "problems": repr(of)} for article, of in found.items()])


def _story_cloze(rows: Dataset) -> Dataset:
    if STORY_CLOZE.keys() <= set(rows.column_names):  # as its authors call them
        return rows.rename_columns(STORY_CLOZE)
    rows = rows.map(lambda row: {f"input_sentence_{number}": text for number, text in enumerate(row["story"], 1)})
    rows = rows.map(lambda row: {"answer_right_ending": row["label"] + 1}, remove_columns=["story", "label"])
    return rows.rename_columns({"ending1": "sentence_quiz1", "ending2": "sentence_quiz2"})


def _pages(text: str) -> Dataset:
    """The articles of WikiText; each begins with its title, ` = Robert Boulter = `."""
    pages = re.split(r"^(?= = [^=\n]+ = $)", text, flags=re.MULTILINE)
    return Dataset.from_list([{"page": page} for page in pages if page.strip()])


# How rows without a column of the hub's get it.
CONVERTERS = {
    "race": ("problems", _race),
    "hellaswag": ("ctx_a", lambda rows: rows.map(lambda row: {"ctx_a": row["ctx"], "ctx_b": ""})),
    "storycloze_2016": ("input_sentence_1", _story_cloze),
    "wikitext": ("page", lambda rows: _pages("\n".join(row["text"].strip("\n") for row in rows))),
}
