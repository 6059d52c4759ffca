"""Tasks of lm-evaluation-harness on local files: the harness's own definitions, with other rows.

A generated YAML file includes the harness's file and changes nothing but where the rows are, so that no prompt is
written twice. A folder with a folder per task, as everywhere in this package, holds the rows under the hub's names.
"""

import difflib
import glob
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path

import yaml
from lm_eval.api.group import Group
from lm_eval.tasks import TaskManager

from tokenization.files import FILE_BUILDERS, read_file

OWN_TASKS = Path(__file__).parent / "tasks"


@dataclass(frozen=True)
class LocalRows:
    """Where the rows of a task of the harness lie, and how they become the columns that it reads."""

    folder: str
    prefix: str = ""
    """Beginning of the files' names, before the split: `high_` of `high_validation.jsonl`."""
    convert: str | None = None
    """`wikitext` or a name of `CONVERTERS`; None if the columns are the hub's."""


# Tasks whose folder is not called as the task, or whose columns differ. All others: a folder of the task's name.
LOCAL_ROWS = {
    "race": LocalRows("race", prefix="high_", convert="race"),
    "hellaswag": LocalRows("hellaswag", convert="hellaswag"),
    "storycloze_2016": LocalRows("story_cloze", convert="story_cloze"),
    "lambada_standard": LocalRows("lambada"),
    "wikitext": LocalRows("wikitext2_raw", convert="wikitext"),
}
BLIMP = "blimp_"
GROUP_SETTINGS = ("group", "group_alias", "aggregate_metric_list", "metadata")


def _race(rows: list[dict]) -> Iterator[dict]:
    for article, questions in groupby(rows, key=lambda row: row["article"]):
        problems = [
            {"question": row["question"], "options": list(row["options"]), "answer": "ABCD"[row["label"]]}
            for row in questions
        ]
        yield {"article": article, "problems": repr(problems)}


def _hellaswag(rows: list[dict]) -> Iterator[dict]:
    for row in rows:
        yield {**row, "ctx_a": row["ctx"], "ctx_b": ""} if "ctx_a" not in row else row


def _story_cloze(rows: list[dict]) -> Iterator[dict]:
    for row in rows:
        sentences = {f"input_sentence_{number}": text for number, text in enumerate(row["story"], start=1)}
        endings = {"sentence_quiz1": row["ending1"], "sentence_quiz2": row["ending2"]}
        yield {**sentences, **endings, "answer_right_ending": row["label"] + 1}


CONVERTERS = {"race": _race, "hellaswag": _hellaswag, "story_cloze": _story_cloze}


@cache
def all_tasks() -> TaskManager:
    """The tasks of the harness and of this package; reading their definitions takes seconds."""
    return TaskManager(include_path=str(OWN_TASKS))


def specify_tasks(
    tasks: list[str], data_dir: str | Path | None, folder: Path, calibrate: bool = False
) -> tuple[list[str | Group], list[str]]:
    """
    What `simple_evaluate` takes as tasks, with `all_tasks()` as its manager; and the names of tasks and groups.

    Args:
        tasks: names of tasks, groups or tags, or patterns such as `blimp_*`.
        data_dir: folder with a folder per task; None takes the rows of the hub.
        folder: gets generated files, which are read by the evaluation.
        calibrate: whether tasks of several answers get the metric `acc_mutual_info`, which compares log P(answer |
            question) − log P(answer).

    Raises:
        ValueError: a name is unknown; the rows of a task are not in `data_dir`.
    """
    names = _without_repetition([name for task in tasks for name in _matching(task)])
    if data_dir is None and not calibrate:
        return list(names), names
    folder.mkdir(parents=True, exist_ok=True)
    specified = []
    for name in names:
        changes = {leaf: _changes(leaf, data_dir, folder, calibrate) for leaf in _leaves(name)}
        files = [_write_task(leaf, of_leaf, folder) for leaf, of_leaf in changes.items()]
        is_group = all_tasks().task_index[name].kind.name == "GROUP"
        specified += [_make_group(name, files)] if is_group else files
    return specified, names


def _changes(name: str, data_dir: str | Path | None, folder: Path, calibrate: bool) -> dict:
    """What this package says otherwise than the harness's definition of a task."""
    entry = all_tasks().task_index[name]
    changes = {} if data_dir is None else _rows_of(entry, Path(data_dir), folder)
    if calibrate and entry.cfg.get("output_type") == "multiple_choice":
        changes["metric_list"] = _calibrated(entry.cfg["metric_list"])
    return changes


def _write_task(name: str, changes: dict, folder: Path) -> str:
    """The path of a file that includes the harness's definition."""
    definition = all_tasks().task_index[name].yaml_path.resolve()
    config = {"include": str(definition), "task": name, **changes}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return str(path)


def _make_group(name: str, files: list[str]) -> Group:
    """The harness's group with these tasks."""
    settings = all_tasks().task_index[name].cfg
    group = Group.from_config({key: settings[key] for key in GROUP_SETTINGS if key in settings})
    for task in all_tasks().load(files)["tasks"].values():
        group.add(task)
    return group


def _matching(task: str) -> list[str]:
    names = all_tasks().match_tasks([task])
    if not names:
        nearest = difflib.get_close_matches(task.lower(), all_tasks().all_tasks, n=3, cutoff=0.5)
        hint = f" Similar ones: {', '.join(nearest)}." if nearest else ""
        raise ValueError(f"lm-evaluation-harness has no task {task!r}.{hint} `lm_eval ls tasks` lists all.")
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


def _calibrated(metrics: list[dict]) -> list[dict]:
    names = [metric["metric"] for metric in metrics if metric["metric"] in ("acc", "acc_norm")]
    means = {"aggregation": "mean", "higher_is_better": True}
    return [{"metric": name, **means} for name in dict.fromkeys([*names, "acc_mutual_info"])]


def _rows_of(entry, data_dir: Path, folder: Path) -> dict:
    """What a definition says otherwise, so that the harness reads local rows."""
    name = entry.name
    local = LOCAL_ROWS.get(name, LocalRows("blimp" if name.startswith(BLIMP) else name))
    wanted = {key: entry.cfg.get(key) for key in ("training_split", "validation_split", "test_split", "fewshot_split")}
    files = _find_files(data_dir / local.folder, local.prefix)
    rows = {split: _convert(name, local, files[split], folder) for split in files if split in wanted.values()}
    if wanted["test_split"] not in rows and wanted["validation_split"] not in rows:
        # Another split than the task's: the report names it.
        for split in ("validation", "test"):
            if split in files:
                rows = {**rows, split: _convert(name, local, files[split], folder)}
                wanted = {**wanted, "validation_split": split, "test_split": None}
                break
        else:
            needed = [split for split in (wanted["test_split"], wanted["validation_split"]) if split]
            raise ValueError(
                f"Task {name!r} needs a file {local.prefix}{' or '.join(needed)} (.jsonl, .jsonl.gz, .csv or "
                f".parquet) in {data_dir / local.folder}, which has {', '.join(sorted(files)) or 'none'}. Add it, or "
                "leave out --data_dir to take the hub's rows."
            )
    return {
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": {split: glob.escape(str(path)) for split, path in rows.items()}},
        **{key: split if split in rows else None for key, split in wanted.items()},
    }


def _find_files(folder: Path, prefix: str) -> dict[str, Path]:
    """Files by split; a raw text is `wiki.test.raw`."""
    found = {}
    for path in sorted(folder.glob(f"{prefix}*")):
        ending = next((ending for ending in FILE_BUILDERS if path.name.endswith(ending)), None)
        if ending is not None:
            found[path.name.removeprefix(prefix).removesuffix(ending)] = path
        elif path.suffix == ".raw":
            found[{"valid": "validation"}.get(part := path.name.split(".")[-2], part)] = path
    return found


def _convert(name: str, local: LocalRows, path: Path, folder: Path) -> Path:
    """The file itself, or one of converted rows."""
    if name.startswith(BLIMP):
        uid = name.removeprefix(BLIMP)
        rows = _rows_by_uid(path).get(uid)
        if rows is None:
            raise ValueError(f"{path} has no row whose UID is {uid!r}, for task {name!r}. Add rows, or leave it out.")
    elif local.convert == "wikitext":
        rows = _pages(path)
    elif local.convert is not None:
        rows = CONVERTERS[local.convert](read_file(path, infer_types=True).to_list())
    elif path.name.endswith((".jsonl", ".jsonl.gz")):
        return path.resolve()
    else:  # the harness is told to read JSON
        rows = read_file(path, infer_types=True).to_list()
    target = folder / "rows" / name / f"{path.name.split('.')[0] if path.suffix != '.raw' else path.stem}.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return target.resolve()


@lru_cache(maxsize=1)
def _rows_by_uid(path: Path) -> dict[str, list[dict]]:
    """The rows of BLiMP's 67 paradigms, which one file holds."""
    found = defaultdict(list)
    for row in read_file(path).to_list():
        found[row["UID"]].append(row)
    return dict(found)


def _pages(path: Path) -> Iterator[dict]:
    """The articles of WikiText; each begins with its title, ` = Robert Boulter = `."""
    text = path.read_text(encoding="utf-8")
    starts = [match.start() for match in re.finditer(r"^ = [^=\n]+ = $", text, flags=re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield {"page": text[start:end]}
