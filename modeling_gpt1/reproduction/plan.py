"""Plans the cells of the experiments: which runs there are, their order, and what decides the result of each."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tokenization import Task, get_task, load_task

from ..inference.checkpoints import saved_checkpoints
from ..inference.heuristics import get_heuristic
from ..training.transfer import check_n_transfer
from .arguments import VARIANTS, ReproduceArguments, as_settings, deciding_settings
from .cells import Cell
from .claims import TRAINING_ROWS
from .models import data_fingerprint, family, load_config, model_fingerprint, model_name, text_fingerprint
from .runs import ask_zero_shot, fine_tune, measure_positions
from .tables import COLUMNS


def check_families(arguments: ReproduceArguments) -> None:
    """Raises ValueError if the report would call an LSTM a Transformer, or the reverse."""
    lstm = "gpt1-lstm"
    if arguments.model is not None and family(arguments.model) == lstm:
        raise ValueError(
            f"--model {arguments.model} is an LSTM. Pass it as --lstm_model, and a Transformer as --model."
        )
    if arguments.lstm_model is not None and family(arguments.lstm_model) != lstm:
        raise ValueError(
            f"--lstm_model {arguments.lstm_model} is not an LSTM: its model type is "
            f"{load_config(arguments.lstm_model).model_type}. Pass one that was trained with --family {lstm}."
        )


def plan(arguments: ReproduceArguments) -> list[Cell]:
    """The cells of the experiments, each once. All cells of one seed come before those of the next."""
    cells = []
    for seed in arguments.seeds:
        for experiment in arguments.experiments:
            if experiment in WITHOUT_SEEDS:
                cells += WITHOUT_SEEDS[experiment](arguments) if seed == arguments.seeds[0] else []
            elif experiment == "auxiliary_sizes":
                cells += [fine_tuning_cell(arguments, *of, seed, size) for *of, size in auxiliary_runs(arguments)]
            else:
                cells += [fine_tuning_cell(arguments, *of, seed) for of in runs_of(arguments, experiment)]
    return list({cell.key: cell for cell in cells}.values())


def runs_of(arguments: ReproduceArguments, experiment: str) -> Iterator[tuple[str, str]]:
    """Task and variant of each run of an experiment."""
    tasks, variants = arguments.tasks, ["full"]
    if experiment == "ablations":
        variants = arguments.variants
    if experiment == "layer_transfer":
        tasks = arguments.transfer_tasks
        variants = [transfer_variant(arguments, number) for number in transfer_layers(arguments)]
    for task in tasks:
        for variant in variants:
            yield task, variant


def auxiliary_runs(arguments: ReproduceArguments) -> Iterator[tuple[str, str, int]]:
    """Task, variant and number of training rows. Sizes that a data set at hand does not have are left out."""
    for task in arguments.auxiliary_tasks:
        most = num_training_rows(task, arguments.data_dir)
        for size in arguments.auxiliary_sizes:
            if size <= most:
                yield from ((task, variant, size) for variant in ("full", "without_auxiliary"))


def describe_left_out_sizes(arguments: ReproduceArguments) -> list[str]:
    """One line for each task that has fewer training rows than some of the requested sizes."""
    tasks = arguments.auxiliary_tasks if "auxiliary_sizes" in arguments.experiments else []
    rows = {task: num_training_rows(task, arguments.data_dir) for task in tasks}
    return [
        f"{task} has {most:,} training rows: auxiliary_sizes leaves out {', '.join(f'{size:,}' for size in larger)}."
        for task, most in rows.items()
        if (larger := [size for size in arguments.auxiliary_sizes if size > most])
    ]


def num_training_rows(task: str, data_dir: str | None) -> int:
    """The rows of the files; of the hub's data sets about as many."""
    if data_dir is None:
        return next(
            TRAINING_ROWS[key] for key, column in COLUMNS.items() if column.task == task and key in TRAINING_ROWS
        )
    try:
        splits = load_task(task, data_dir)
    except ValueError:
        return sys.maxsize  # its cells tell what is wrong
    return len(splits[get_task(task).train_split]) if get_task(task).train_split in splits else 0


def transfer_layers(arguments: ReproduceArguments) -> list[int]:
    config = load_config(arguments.model)
    for number in arguments.transfer_layers or ():
        check_n_transfer(config, number)
    return arguments.transfer_layers or list(range(config.num_hidden_layers + 1))


def transfer_variant(arguments: ReproduceArguments, number: int) -> str:
    """The variant that transfers `number` layers. The two ends of the curve are variants of table 5."""
    ends = {-1: "without_pretraining", load_config(arguments.model).num_hidden_layers: "full"}
    return ends.get(number, f"transfer-{number}")


# ---- Cells


def fine_tuning_cell(
    arguments: ReproduceArguments, task: str, variant: str, seed: int, size: int | None = None
) -> Cell:
    """A fine-tuning run.

    Args:
        variant: one of `VARIANTS`, or `transfer-<k>` for the checkpoint's first k layers.
        size: number of training rows of a cell of auxiliary_sizes. If all cells have as many, it is the tables' cell.
    """
    model = model_of(arguments, variant)
    n_transfer = -1 if variant == "without_pretraining" else None
    flags = VARIANTS.get(variant)
    if flags is None:
        n_transfer = int(variant.removeprefix("transfer-"))
        flags = ["--n_transfer", str(n_transfer)]
    given = [*arguments.finetune_arguments, *(arguments.lstm_finetune_arguments if variant == "lstm" else [])]
    if size is not None and as_settings(given).get("max_train_samples") == str(size):
        size = None
    if size is not None:
        given += ["--max_train_samples", str(size)]
    settings = deciding_settings(given)
    if variant == "without_auxiliary":
        settings.pop("lm_coef", None)  # this variant sets its own λ
    facts = {
        "kind": "fine_tuning",
        "task": task,
        "variant": "transfer" if variant.startswith("transfer-") else variant,
        "n_transfer": n_transfer,
        "lm_coef": 0.0 if variant == "without_auxiliary" else None,
        "seed": seed,
        "settings": settings,
        "model_fingerprint": model_fingerprint(model),
        "data": data_of(arguments, get_task(task)),
    }
    name = f"{task}-{variant}-seed{seed}"
    if size is not None:  # absent from other cells, whose names must stay
        name, facts["size"] = f"{task}-{variant}-{size}-rows-seed{seed}", size
    run = partial(fine_tune, arguments, task, given, ["--model", model, *flags], seed)
    return Cell(name, facts, {"model": model_name(model)}, run)


def model_of(arguments: ReproduceArguments, variant: str) -> str | None:
    return arguments.lstm_model if variant == "lstm" else arguments.model


def data_of(arguments: ReproduceArguments, task: Task) -> dict[str, int] | str:
    return data_fingerprint(arguments.data_dir, tuple(dict.fromkeys((task.name, task.folder or task.name))))


def zero_shot_cells(arguments: ReproduceArguments) -> list[Cell]:
    """One cell per checkpoint of the two runs, in the order of updates. A model without a run gets one cell."""
    cells = []
    for folder, model in (arguments.checkpoints, arguments.model), (arguments.lstm_checkpoints, arguments.lstm_model):
        if folder is not None:
            cells += [zero_shot_cell(arguments, folder, **checkpoint) for checkpoint in saved_checkpoints(folder)]
        elif model is not None:
            cells.append(zero_shot_cell(arguments, model, model))
    return cells


def zero_shot_cell(
    arguments: ReproduceArguments, run_folder: str, model: str, step: int | None = None, tokens: int | None = None
) -> Cell:
    facts = {
        "kind": "zero_shot",
        "step": step,
        "tokens": tokens,
        "settings": {
            "tasks": arguments.zero_shot_tasks,
            "max_rows": arguments.zero_shot_max_eval_samples,
            "max_train_rows": arguments.zero_shot_max_train_samples,
        },
        "model_fingerprint": model_fingerprint(model),
        "data": {name: data_of(arguments, get_heuristic(name).task) for name in arguments.zero_shot_tasks},
    }
    # If a checkpoint has no tokenizer, the folder of its run has it.
    has_tokenizer = (Path(model) / "tokenizer_config.json").exists()
    run = partial(ask_zero_shot, arguments, model, model if has_tokenizer else run_folder)
    place = "final" if step is None else f"checkpoint-{step}"
    about = {"model": model_name(model), "family": family(model)}
    return Cell(f"zero-shot-{family(model)}-{place}", facts, about, run)


def position_cells(arguments: ReproduceArguments) -> list[Cell]:
    """One cell for each model, on blocks of one length, if there is held-out text."""
    models = [model for model in (arguments.model, arguments.lstm_model) if model is not None]
    if not arguments.validation_files:
        return []
    length = min(load_config(model).max_position_embeddings for model in models)
    cells = []
    for model in models:
        facts = {
            "kind": "positions",
            "settings": {"num_blocks": arguments.num_blocks, "block_length": length},
            "model_fingerprint": model_fingerprint(model),
            "data": text_fingerprint(tuple(arguments.validation_files)),
        }
        about = {"model": model_name(model), "family": family(model)}
        run = partial(measure_positions, arguments, model, length)
        cells.append(Cell(f"positions-{family(model)}", facts, about, run))
    return cells


# Experiments on the models as they are.
WITHOUT_SEEDS = {"zero_shot": zero_shot_cells, "loss_by_position": position_cells}
