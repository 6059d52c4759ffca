"""The cells of the experiments: which there are, what decides each result, and the commands that give it."""

import hashlib
import itertools
import json
import math
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import yaml

from tokenization import Task, get_task, load_task
from tokenization.errors import UserError
from tokenization.rows.labels import are_all_labelled
from tokenization.rows.task_files import folder_with_files, folders_of_task, has_own_files

from ..hub.card import as_list
from ..inference.checkpoints import saved_checkpoints
from ..inference.heuristics import get_heuristic
from ..training.arguments import SEED_OF_SCORED_ROWS
from .arguments import (
    PRETRAIN,
    REHEARSED_BASELINE_ROWS,
    TRANSFER,
    VARIANTS,
    ReproduceArguments,
    as_settings,
    behind,
    layers_of,
)
from .baselines import PENALTIES, baselines_of, score_baseline
from .models import data_fingerprint, load_config, model_fingerprint, model_name, read_json, text_fingerprint
from .training_rows import CUT_RULE, drawn, load_training_rows, loss_of_frequencies, loss_of_last_epoch, write_cut
from .tuning import TUNING_SEED, Condition, Trial, trials_of

COMMAND = (sys.executable, "-m", "modeling_gpt1.commands")
MODEL_TYPES = {"model": "gpt1", "lstm_model": "gpt1-lstm"}  # by the argument that names the model
PARTS = {"race": ("race-middle", "race-high")}  # on which the model of the whole task is scored too
# The settings of a run that a reader of its result asks for, defaults included.
REPORTED_SETTINGS = (
    "num_train_epochs",
    "per_device_train_batch_size",
    "learning_rate",
    "lr_scheduler_type",
    "warmup_steps",
    "weight_decay",
    "max_length",
)
# The settings of fine-tuning that choose rows.
ROW_SETTINGS = ("max_train_samples", "max_eval_samples", "max_predict_samples", "data_seed")
Run = Callable[[list[str]], None]


class RunDiverged(subprocess.CalledProcessError):
    """A command ended because a loss, a gradient norm or a weight was not finite. It would do so again."""


@dataclass(frozen=True)
class Cell:
    """One result that an experiment needs."""

    name: str  # readable, for files and progress, such as `rte-full-seed1`
    facts: dict  # everything that decides the result, and nothing else; the cell's file has these fields too
    about: dict  # further facts for readers of the file
    run: Callable[[Run, Path], dict]  # gets a function that runs a command, and an empty folder; gives the result

    @property
    def key(self) -> str:
        return cell_key(self.name, self.facts)


def cell_key(name: str, facts: dict) -> str:
    """The name of a cell's files: its own, and a digest of the facts."""
    text = json.dumps(facts, sort_keys=True)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


# ---- Which cells there are


def check_families(arguments: ReproduceArguments) -> None:
    """Raises UserError if a model is not of the family whose results the report would show."""
    for argument, wanted in MODEL_TYPES.items():
        model = getattr(arguments, argument)
        if model is not None and (found := load_config(model).model_type) != wanted:
            raise UserError(f"--{argument} {model} has the model type {found}. Pass one of --family {wanted}.")


def check_layers(arguments: ReproduceArguments) -> None:
    """Raises UserError if a number of layers is to be transferred that the model does not have."""
    if "layer_transfer" not in arguments.experiments:
        return
    num_layers = load_config(arguments.model).num_hidden_layers
    for number in arguments.transfer_layers or ():
        if not -1 <= number <= num_layers:
            raise UserError(
                f"--transfer_layers has {number}, but {arguments.model} has {num_layers} layers. Pass -1 for nothing, "
                f"0 for the embeddings, and numbers up to {num_layers}."
            )


def plan(arguments: ReproduceArguments, chosen: Mapping[Condition, Trial] | None = None) -> list[Cell]:
    """The cells of the experiments, each once. All cells of one seed come before those of the next.

    With `chosen`, the settings of tuned conditions, a condition that is not among them has no cells yet.
    """
    cells = []
    for seed in arguments.seeds:
        for experiment in arguments.experiments:
            if experiment == "baselines":
                cells += baseline_cells(arguments, seed)
            elif experiment != "zero_shot":
                for task, variant in runs_of(arguments, experiment):
                    if chosen is None:
                        cells.append(fine_tuning_cell(arguments, task, variant, seed))
                    elif (task, variant) in chosen:
                        cells.append(fine_tuning_cell(arguments, task, variant, seed, chosen[task, variant]))
            elif seed == arguments.seeds[0]:
                cells += zero_shot_cells(arguments)
    return list({cell.key: cell for cell in cells}.values())


def conditions_of(arguments: ReproduceArguments) -> list[Condition]:
    """Task and variant of all fine-tuning runs, each once."""
    conditions = []
    for experiment in arguments.experiments:
        if experiment not in ("baselines", "zero_shot"):
            conditions += runs_of(arguments, experiment)
    return list(dict.fromkeys(conditions))


def runs_of(arguments: ReproduceArguments, experiment: str) -> Iterator[Condition]:
    """Task and variant of each run."""
    if experiment == "layer_transfer":
        num_layers = load_config(arguments.model).num_hidden_layers
        # The two ends of the curve are variants of table 5.
        ends = {-1: "without_pretraining", num_layers: "full"}
        numbers = arguments.transfer_layers or range(num_layers + 1)
        variants = [ends.get(number, f"{TRANSFER}{number}") for number in numbers]
        return itertools.product(arguments.transfer_tasks, variants)
    return itertools.product(arguments.tasks, arguments.variants if experiment == "ablations" else ["full"])


# ---- One cell


@dataclass(frozen=True)
class FineTuning:
    """A run of one of `VARIANTS`, or of `transfer-<k>` for the checkpoint's first k layers, with one seed."""

    arguments: ReproduceArguments
    task: str
    variant: str
    seed: int
    trial: Trial | None = None
    """Tuned settings; None: those of the arguments."""

    @property
    def model(self) -> str:
        return self.arguments.lstm_model if self.variant == "lstm" else self.arguments.model

    @property
    def own_flags(self) -> list[str]:
        """The flags that make the variant."""
        layers = layers_of(self.variant)
        return VARIANTS[self.variant] if layers is None else ["--n_transfer", str(layers)]

    @property
    def given(self) -> list[str]:
        """The flags of all runs, with the LSTM's own and the tuned ones in their place."""
        words = self.arguments.finetune_arguments
        if self.variant == "lstm":
            words = behind(words, self.arguments.lstm_finetune_arguments)
        if self.trial is not None:
            words = behind(words, self.trial.flags)
        settings = as_settings(words)
        if "max_eval_samples" in settings and "max_predict_samples" not in settings:  # a test split is scored alike
            words = [*words, "--max_predict_samples", settings["max_eval_samples"]]
        return words

    def facts(self, kind: str) -> dict:
        """Everything that decides the result."""
        settings = as_settings(self.given)
        if self.variant == "without_auxiliary":
            settings.pop("lm_coef", None)  # this variant sets its own λ
        flags = self.own_flags
        return {
            **about_scored_rows(settings),
            "kind": kind,
            "task": self.task,
            "variant": self.variant if layers_of(self.variant) is None else "transfer",
            "seed": self.seed,
            "settings": settings,
            "n_transfer": int(flags[1]) if "--n_transfer" in flags else None,
            "lm_coef": 0.0 if self.variant == "without_auxiliary" else None,
            "model_fingerprint": model_fingerprint(self.model),
            "data": data_of(self.arguments, get_task(self.task)),
        }

    def run(self, data_dir: str | None, run: Run, work: Path) -> dict:
        model = ["--model", self.model, *self.own_flags]
        return fine_tune(data_dir, self.task, self.seed, self.given, model, run, work)

    def run_on_cut(self, run: Run, work: Path) -> dict:
        """Trains on the training rows without a part, and scores that part. A trial that diverges has no score."""
        write_cut(get_task(self.task), self.arguments.data_dir, work / "data")
        result = self.run(str(work / "data"), run, work)
        return {name: result[name] for name in ("metrics", "ran_with", "training") if name in result}


def about_scored_rows(settings: Mapping) -> dict[str, int]:
    """How the scored rows are drawn, if not all are scored, so that rows drawn otherwise make other cells."""
    is_drawn = "max_eval_samples" in settings or "max_predict_samples" in settings
    return {"seed_of_scored_rows": SEED_OF_SCORED_ROWS} if is_drawn else {}


def fine_tuning_cell(
    arguments: ReproduceArguments, task: str, variant: str, seed: int, trial: Trial | None = None
) -> Cell:
    """A run whose scores the report shows."""
    of = FineTuning(arguments, task, variant, seed, trial)
    about = {"model": model_name(of.model)}
    if trial is not None:
        about["tuned"] = True
    return Cell(f"{task}-{variant}-seed{seed}", of.facts("fine_tuning"), about, partial(of.run, arguments.data_dir))


def tuning_cells(arguments: ReproduceArguments, condition: Condition) -> dict[Trial, Cell]:
    """The trials of a condition, by which its settings are chosen."""
    task, variant = condition
    cells = {}
    for trial in trials_of(arguments, variant):
        of = FineTuning(arguments, task, variant, TUNING_SEED, trial)
        facts = {**of.facts("tuning"), "cut": CUT_RULE}
        cells[trial] = Cell(f"{task}-{variant}-{trial.name}", facts, {"model": model_name(of.model)}, of.run_on_cut)
    return cells


def baseline_cells(arguments: ReproduceArguments, seed: int) -> Iterator[Cell]:
    """The linear models of each task, on the rows that the runs with this seed train on."""
    settings = as_settings(arguments.finetune_arguments)
    of_rows = {name: settings[name] for name in ROW_SETTINGS if name in settings}
    if "max_eval_samples" in of_rows:
        of_rows.setdefault("max_predict_samples", of_rows["max_eval_samples"])
    if arguments.rehearse is not None:
        limit = int(of_rows.get("max_train_samples", REHEARSED_BASELINE_ROWS))
        of_rows["max_train_samples"] = str(min(limit, REHEARSED_BASELINE_ROWS))
    for task in tasks_of(arguments):
        for variant in baselines_of(get_task(task)):
            facts = {
                **about_scored_rows(of_rows),
                "kind": "baseline",
                "task": task,
                "variant": variant,
                "seed": seed,
                "settings": of_rows,
                "n_transfer": None,
                "lm_coef": None,
                "data": data_of(arguments, get_task(task)),
                "cut": CUT_RULE,
                "penalties": list(PENALTIES),
            }
            run = partial(fit_baseline, arguments.data_dir, task, variant, seed, of_rows)
            yield Cell(f"{task}-{variant}-seed{seed}", facts, {"model": "n-grams"}, run)


def tasks_of(arguments: ReproduceArguments) -> list[str]:
    """The tasks that the experiments fine-tune on."""
    tasks = []
    if {"fine_tuning", "ablations"} & set(arguments.experiments):
        tasks += arguments.tasks
    if "layer_transfer" in arguments.experiments:
        tasks += arguments.transfer_tasks
    return list(dict.fromkeys(tasks or arguments.tasks))


def data_of(arguments: ReproduceArguments, task: Task) -> dict[str, str] | str:
    """Name and checksum of each file of a task, or "hub"."""
    if arguments.data_dir is None:
        return "hub"
    folder = folder_with_files(task, Path(arguments.data_dir))
    # The files of a zero-shot task have names of their own.
    return data_fingerprint((folder,) if folder else tuple(folders_of_task(task, Path(arguments.data_dir))))


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
            yield Cell(name, facts, about, partial(evaluate_zero_shot_cell, arguments, model))


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
        files = [as_list(settings.get(name)) for name in ("train_files", "validation_files", "tokenizer_name")]
        if "train_weights" in settings:  # of named texts, such as `en=books/en`
            files[0] = [file.partition("=")[2] for file in files[0]]
        if "dataset_name" in settings:
            files.append(as_list(settings["dataset_name"]))
        data: list = [text_fingerprint(tuple(of_flag)) for of_flag in files]
        if "model" in settings:
            data.append(model_fingerprint(settings["model"]))
        facts = {"kind": "pretraining", "settings": settings, "data": data}
        name = f"pretraining-{of_family}"
        found[argument] = Cell(name, facts, {}, partial(pretrain, given, folder / cell_key(name, facts)))
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


def readable_command(command: list[str], work: str) -> str:
    """A cell's command as a person types it; the folder that is gone afterwards is called WORK."""
    words = ["gpt1", *command[len(COMMAND) :]]
    return shlex.join([word.replace(work, "WORK") for word in words])


def pretrain(given: list[str], output_dir: Path, run: Run, work: Path) -> dict:
    """Trains in a folder that stays, from its newest checkpoint."""
    where = ["--output_dir", str(output_dir), "--resume_from_checkpoint", "auto", "--disable_tqdm", "true"]
    run([*COMMAND, "pretrain", *given, *where])
    return {"metrics": read_json(output_dir / "all_results.json")}


def fine_tune(
    data_dir: str | None, task: str, seed: int, given: list[str], model: list[str], run: Run, work: Path
) -> dict:
    """Trains and evaluates by the given flags, then the model's. Returns the metrics and the answer to each row.

    A run that diverges has neither.
    """

    def metrics_of(name: str, *flags: str) -> dict:
        words = [*COMMAND, "finetune", "--task", name, *data_flags(data_dir), "--seed", str(seed)]
        words += ["--output_dir", str(work / name), "--save_strategy", "no", "--disable_tqdm", "true"]
        words += ["--logging_strategy", "epoch"]  # the last one's loss tells whether the run trained
        words += [*given, *flags]
        words += [f"--do_{use}" for use in scored_splits(name, data_dir)]
        run(words)
        return read_json(work / name / "all_results.json")

    def about_training(task_loss: float | None) -> dict:
        rows = drawn(load_training_rows(get_task(task), data_dir), as_settings(given), "train", seed)
        training = {"task_loss": task_loss, "loss_of_frequencies": loss_of_frequencies(rows, get_task(task))}
        # A sample of a data set may have fewer rows than the data set.
        return {"train_rows": len(rows), "training": training}

    if not scored_splits(task, data_dir):  # said before the training, not hours later
        raise UserError(
            f"Task {task} has no labelled rows in {' and '.join(get_task(task).validation_splits)} to score a run on. "
            "Add them to the task's folder."
        )
    try:
        metrics = metrics_of(task, *model, "--do_train")
    except RunDiverged:  # an outcome of the settings and the seed, as any other run that fails to train
        return {"metrics": {}, **about_training(task_loss=math.nan)}
    result = {"metrics": metrics, "ran_with": reported_settings(work / task)}
    if answers := read_answers(task, data_dir, work / task):
        history = read_json(work / task / "trainer_state.json").get("log_history", [])
        result["answers"] = answers
        result |= about_training(loss_of_last_epoch(history))
    for part in PARTS.get(task, ()):
        # RACE as files of the whole task has no parts.
        if data_dir is None or has_own_files(get_task(part), Path(data_dir)):
            result.setdefault("parts", {})[part] = metrics_of(part, "--model", str(work / task))
    return result


def reported_settings(output_dir: Path) -> dict:
    """What a finished run trained with: the settings of its run.yaml, and λ and the longest sequence of its model."""
    settings = yaml.safe_load((output_dir / "run.yaml").read_text(encoding="utf-8"))
    config = read_json(output_dir / "config.json")
    reported = {name: settings[name] for name in REPORTED_SETTINGS}
    if reported["max_length"] is None:
        reported["max_length"] = config.get("max_position_embeddings")  # none in an LSTM, which has no limit
    reported["lm_coef"] = config["lm_coef"]
    return reported


def fit_baseline(
    data_dir: str | None, task: str, variant: str, seed: int, settings: dict, run: Run, work: Path
) -> dict:
    """Scores a linear model on the splits that the fine-tuned models are scored on; no command is run."""
    of_task = get_task(task)
    rows_of = load_task(task, data_dir)
    scored = {}
    for splits in scored_splits(task, data_dir).values():
        for split in splits:
            scored[split] = rows_of[split]
    return score_baseline(of_task, variant, load_training_rows(of_task, data_dir), scored, settings, seed)


def data_flags(data_dir: str | None) -> list[str]:
    return [] if data_dir is None else ["--data_dir", data_dir]


@cache
def scored_splits(name: str, data_dir: str | None) -> dict[str, tuple[str, ...]]:
    """The task's labelled splits by the use of `gpt1 finetune` that scores them. GLUE hides its test labels."""
    task = get_task(name)
    splits_of = {"eval": task.validation_splits}
    if task.hub_path != "nyu-mll/glue":
        splits_of["predict"] = task.test_splits
    rows_of = load_task(task, data_dir)

    def is_labelled(split: str) -> bool:
        return split in rows_of and are_all_labelled(rows_of[split], task.columns["label"])

    return {use: splits for use, splits in splits_of.items() if all(map(is_labelled, splits))}


def read_answers(name: str, data_dir: str | None, output_dir: Path) -> dict[str, dict[str, str]]:
    """Labels and predictions of the scored rows by split, as numbers with spaces between them."""
    task = get_task(name)
    found = {}

    def number_of(row: dict) -> str:
        if task.regression:
            return str(row["score"])  # whole: digits decide a correlation of answers that differ little
        if task.label_names:
            return str(task.label_names.index(row["label"]))
        return str(row["label"])

    for prefix, splits in (("eval_", task.validation_splits), ("", task.test_splits)):
        for split in splits:
            suffix = "" if len(splits) == 1 else f"_{split}"
            path = output_dir / f"{prefix}predictions{suffix}.jsonl"
            if path.is_file():
                with path.open(encoding="utf-8") as lines:  # not `splitlines`: texts hold other ends of lines
                    rows = [json.loads(line) for line in lines]
                labels = load_task(task, data_dir)[split][task.columns["label"]][:]
                found[split] = {
                    "labels": " ".join(str(labels[row["index"]]) for row in rows),
                    "predictions": " ".join(map(number_of, rows)),
                }
    return found


def evaluate_zero_shot_cell(arguments: ReproduceArguments, model: str, run: Run, work: Path) -> dict:
    output = work / "zero_shot.json"
    words = [*COMMAND, "zero-shot", "--model", model, "--tasks", *arguments.zero_shot_tasks]
    words += [*data_flags(arguments.data_dir), "--output_file", str(output)]
    for name in ("max_eval_samples", "max_train_samples"):
        if (rows := getattr(arguments, f"zero_shot_{name}")) is not None:
            words += [f"--{name}", str(rows)]
    run(words)
    return {"tasks": json.loads(output.read_text(encoding="utf-8"))["results"][0]["tasks"]}
