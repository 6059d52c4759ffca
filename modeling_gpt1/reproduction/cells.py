"""The cells of the experiments: which there are, what decides each result, and the commands that give it."""

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from tokenization import Task, get_task, load_task
from tokenization.errors import UserError
from tokenization.rows.own_files import are_all_labelled

from ..inference.checkpoints import saved_checkpoints
from ..inference.heuristics import get_heuristic
from .arguments import PRETRAIN, VARIANTS, ReproduceArguments, as_settings, behind
from .models import data_fingerprint, load_config, model_fingerprint, model_name, read_json, text_fingerprint

COMMAND = (sys.executable, "-m", "modeling_gpt1.commands")
MODEL_TYPES = {"model": "gpt1", "lstm_model": "gpt1-lstm"}  # by the argument that names the model
PARTS = {"race": ("race-middle", "race-high")}  # on which the model of the whole task is scored too
Run = Callable[[list[str]], None]


@dataclass(frozen=True)
class Cell:
    """One result that an experiment needs."""

    name: str  # readable, for files and progress, such as `rte-full-seed1`
    facts: dict  # everything that decides the result, and nothing else; the cell's file has these fields too
    about: dict  # further facts for readers of the file
    run: Callable[[Run, Path], dict]  # gets a function that runs a command, and an empty folder; gives the result

    @property
    def key(self) -> str:
        text = json.dumps(self.facts, sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# ---- Which cells there are


def check_families(arguments: ReproduceArguments) -> None:
    """Raises ValueError if a model is not of the family whose results the report would show."""
    for argument, wanted in MODEL_TYPES.items():
        model = getattr(arguments, argument)
        if model is not None and (found := load_config(model).model_type) != wanted:
            raise UserError(f"--{argument} {model} has the model type {found}. Pass one of --family {wanted}.")


def plan(arguments: ReproduceArguments) -> list[Cell]:
    """The cells of the experiments, each once. All cells of one seed come before those of the next."""
    cells = []
    for seed in arguments.seeds:
        for experiment in arguments.experiments:
            if experiment != "zero_shot":
                cells += [fine_tuning_cell(arguments, *of, seed) for of in runs_of(arguments, experiment)]
            elif seed == arguments.seeds[0]:
                cells += zero_shot_cells(arguments)
    return list({cell.key: cell for cell in cells}.values())


def runs_of(arguments: ReproduceArguments, experiment: str) -> Iterator[tuple[str, str]]:
    """Task and variant of each run."""
    if experiment == "layer_transfer":
        num_layers = load_config(arguments.model).num_hidden_layers
        # The two ends of the curve are variants of table 5.
        ends = {-1: "without_pretraining", num_layers: "full"}
        numbers = arguments.transfer_layers or range(num_layers + 1)
        variants = [ends.get(number, f"transfer-{number}") for number in numbers]
        return itertools.product(arguments.transfer_tasks, variants)
    return itertools.product(arguments.tasks, arguments.variants if experiment == "ablations" else ["full"])


# ---- One cell


def fine_tuning_cell(arguments: ReproduceArguments, task: str, variant: str, seed: int) -> Cell:
    """A run of one of `VARIANTS`, or of `transfer-<k>` for the checkpoint's first k layers."""
    model = arguments.lstm_model if variant == "lstm" else arguments.model
    kind, _, layers = variant.partition("-")
    flags = ["--n_transfer", layers] if layers else VARIANTS[variant]
    given = behind(arguments.finetune_arguments, arguments.lstm_finetune_arguments if variant == "lstm" else [])
    settings = as_settings(given)
    if "max_eval_samples" in settings and "max_predict_samples" not in settings:  # a test split is scored alike
        settings["max_predict_samples"] = settings["max_eval_samples"]
        given += ["--max_predict_samples", settings["max_predict_samples"]]
    if variant == "without_auxiliary":
        settings.pop("lm_coef", None)  # this variant sets its own λ
    facts = {"kind": "fine_tuning", "task": task, "variant": kind, "seed": seed, "settings": settings}
    facts["n_transfer"] = int(flags[1]) if "--n_transfer" in flags else None
    facts["lm_coef"] = 0.0 if variant == "without_auxiliary" else None
    facts |= {"model_fingerprint": model_fingerprint(model), "data": data_of(arguments, get_task(task))}
    run = partial(fine_tune, arguments.data_dir, task, seed, given, ["--model", model, *flags])
    return Cell(f"{task}-{variant}-seed{seed}", facts, {"model": model_name(model)}, run)


def data_of(arguments: ReproduceArguments, task: Task) -> dict[str, str] | str:
    return data_fingerprint(arguments.data_dir, tuple(dict.fromkeys((task.name, task.folder or task.name))))


def zero_shot_cells(arguments: ReproduceArguments) -> Iterator[Cell]:
    """One cell per checkpoint of the two runs, in the order of updates."""
    for folder in filter(None, (arguments.checkpoints, arguments.lstm_checkpoints)):
        for point in saved_checkpoints(folder):
            model = point["model"]
            facts = {
                "kind": "zero_shot",
                "step": point["step"],
                "tokens": point["tokens"],
                "settings": {
                    "tasks": arguments.zero_shot_tasks,
                    "max_rows": arguments.zero_shot_max_eval_samples,
                    "max_train_rows": arguments.zero_shot_max_train_samples,
                },
                "model_fingerprint": model_fingerprint(model),
                "data": {name: data_of(arguments, get_heuristic(name).task) for name in arguments.zero_shot_tasks},
            }
            about = {"model": model_name(model), "family": load_config(model).model_type}
            name = f"zero-shot-{about['family']}-checkpoint-{point['step']}"
            yield Cell(name, facts, about, partial(ask_zero_shot, arguments, model))


def pretraining_cells(arguments: ReproduceArguments, folder: Path) -> dict[str, Cell]:
    """The cell of each model that is pre-trained here, into a folder of its name, by the argument that asks for it.

    The LSTM gets the Transformer's flags, and its own behind them. A BPE that both learn from one text is the same.
    """
    found = {}
    for argument, of_family in MODEL_TYPES.items():
        if getattr(arguments, argument) != PRETRAIN:
            continue
        given = [*arguments.pretrain_arguments]
        if argument == "lstm_model":
            given = [*behind(given, arguments.lstm_pretrain_arguments), "--family", of_family]
        settings = as_settings(given)
        files = [settings.get(name, []) for name in ("train_files", "validation_files", "tokenizer_name")]
        data = [text_fingerprint(tuple([file] if isinstance(file, str) else file)) for file in files]
        facts = {"kind": "pretraining", "settings": settings, "data": data}
        cell = Cell(f"pretraining-{of_family}", facts, {}, print)
        found[argument] = replace(cell, run=partial(pretrain, given, folder / cell.key))
    return found


def with_models(arguments: ReproduceArguments, trained: dict[str, Cell], folder: Path) -> ReproduceArguments:
    """The arguments with the folders of the models that were pre-trained here, also as those of their checkpoints."""
    found = {}
    for argument, cell in trained.items():
        checkpoints = argument.replace("model", "checkpoints")
        found[argument] = str(folder / cell.key)
        if any(Path(found[argument]).glob("checkpoint-*/config.json")):
            found[checkpoints] = getattr(arguments, checkpoints) or found[argument]
    return replace(arguments, **found)


# ---- The commands of a cell, and what is read of their files


def pretrain(given: list[str], output_dir: Path, run: Run, work: Path) -> dict:
    """Trains in a folder that stays, from its newest checkpoint."""
    where = ["--output_dir", str(output_dir), "--resume_from_checkpoint", "auto", "--disable_tqdm", "true"]
    run([*COMMAND, "pretrain", *given, *where])
    return {"metrics": read_json(output_dir / "all_results.json")}


def fine_tune(
    data_dir: str | None, task: str, seed: int, given: list[str], model: list[str], run: Run, work: Path
) -> dict:
    """Trains and evaluates by the given flags, then the model's. Returns the metrics and the answer to each row."""

    def metrics_of(name: str, *flags: str) -> dict:
        words = [*COMMAND, "finetune", "--task", name, *data_flags(data_dir), "--seed", str(seed)]
        words += ["--output_dir", str(work / name), "--save_strategy", "no", "--disable_tqdm", "true"]
        run([*words, *given, *flags, *uses_of(name, data_dir)])
        return read_json(work / name / "all_results.json")

    if not uses_of(task, data_dir):  # told before the training, not hours later
        raise UserError(
            f"A run of {task} could not be scored: there are no labelled rows in "
            f"{' and '.join(get_task(task).validation_splits)}. Add them to the task's folder."
        )
    result = {"metrics": metrics_of(task, *model, "--do_train")}
    if answers := read_answers(task, data_dir, work / task):
        # A sample of a data set may have fewer rows than the data set.
        num_rows = len(load_task(task, data_dir)[get_task(task).train_split])
        train_rows = min(num_rows, int(as_settings(given).get("max_train_samples", num_rows)))
        result |= {"answers": answers, "train_rows": train_rows}
    for part in PARTS.get(task, ()):
        # RACE as files of the whole task has no parts.
        if data_dir is None or any(Path(data_dir).rglob(f"{part.removeprefix('race-')}_*")):
            result.setdefault("parts", {})[part] = metrics_of(part, "--model", str(work / task))
    return result


def data_flags(data_dir: str | None) -> list[str]:
    return [] if data_dir is None else ["--data_dir", data_dir]


@cache
def uses_of(name: str, data_dir: str | None) -> list[str]:
    """The flags that score the task's labelled splits. GLUE hides its test labels."""
    task, uses = get_task(name), {"--do_eval": get_task(name).validation_splits}
    if task.hub_path != "nyu-mll/glue":
        uses["--do_predict"] = task.test_splits
    splits, label = load_task(task, data_dir), task.columns["label"]

    def is_labelled(split: str) -> bool:
        return split in splits and are_all_labelled(splits[split], label)

    return [flag for flag, names in uses.items() if all(map(is_labelled, names))]


def read_answers(name: str, data_dir: str | None, output_dir: Path) -> dict[str, dict[str, str]]:
    """Labels and predictions of the scored rows by split, as numbers with spaces between them."""
    task, found = get_task(name), {}

    def number_of(row: dict) -> str:
        if task.regression:
            return str(row["score"])  # whole: digits decide a correlation of answers that differ little
        return str(task.label_names.index(row["label"]) if task.label_names else row["label"])

    for prefix, splits in (("eval_", task.validation_splits), ("", task.test_splits)):
        for split in splits:
            path = output_dir / f"{prefix}predictions{'' if len(splits) == 1 else f'_{split}'}.jsonl"
            if path.is_file():
                rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                labels = load_task(task, data_dir)[split][task.columns["label"]][:]
                found[split] = {
                    "labels": " ".join(str(labels[row["index"]]) for row in rows),
                    "predictions": " ".join(map(number_of, rows)),
                }
    return found


def ask_zero_shot(arguments: ReproduceArguments, model: str, run: Run, work: Path) -> dict:
    output = work / "zero_shot.json"
    words = [*COMMAND, "zero-shot", "--model", model, "--tasks", *arguments.zero_shot_tasks]
    words += [*data_flags(arguments.data_dir), "--output_file", str(output)]
    for name in ("max_eval_samples", "max_train_samples"):
        if (rows := getattr(arguments, f"zero_shot_{name}")) is not None:
            words += [f"--{name}", str(rows)]
    run(words)
    return {"tasks": json.loads(output.read_text(encoding="utf-8"))["results"][0]["tasks"]}
