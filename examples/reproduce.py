r"""The experiments of the paper's sections 4.2 and 5 on a model of yours, and one report beside the paper's figures.

Tables 2 to 5 and figure 2, for a model and an LSTM that examples/pretrain.py wrote:

    python examples/reproduce.py --experiments fine_tuning ablations layer_transfer zero_shot \
        --model runs/books --lstm_model runs/books-lstm --checkpoints runs/books --lstm_checkpoints runs/books-lstm \
        --data_dir data --tasks cola sst2 mrpc stsb rte story_cloze --transfer_tasks rte story_cloze \
        --seeds 1 2 3 --output_dir runs/report \
        --finetune_arguments --num_train_epochs 3 --learning_rate 5e-4 --max_train_samples 4000

The paper's own, with the released weights and the data sets of the hub, on a GPU:

    python examples/reproduce.py --model openai-community/openai-gpt --experiments fine_tuning --output_dir runs/paper

Everything after `--finetune_arguments` goes to examples/finetune.py, whose defaults are the paper's. Experiments:

    fine_tuning     tables 2 to 4: every task
    ablations       table 5: the full method (full), λ = 0 (without_auxiliary), all weights new (without_pretraining),
                    and --lstm_model in the Transformer's place (lstm); --variants chooses
    layer_transfer  figure 2, left: the embeddings and the first k layers of the checkpoint (--transfer_layers)
    zero_shot       figure 2, right: examples/zero_shot.py on every checkpoint of --checkpoints and --lstm_checkpoints,
                    or on the model itself

A run of a task with a seed is one cell, kept in <output_dir>/cells; what is finished is never run again, experiments
share what they have in common, and cells of other settings stay apart. So the same command goes on where a run
stopped; several commands may work on one output folder at once, each taking cells that no other is running. The first
seed comes first in all experiments, then the second. A cell that fails is told with its log, the others go on, and the
exit status is 1.

After each cell report.json and report.html are written. They tell of every finished cell of these settings in the
output folder, whichever command ran it; `--only_report` writes them and runs nothing.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

from datasets import disable_progress_bars
from reproduce_cells import Cell, CellStore, end_commands_on_termination, run_cells, write_atomically
from reproduce_models import (
    data_fingerprint,
    describe_model,
    environment,
    family,
    load_config,
    model_fingerprint,
    model_name,
)
from reproduce_report import build_report, write_report
from transformers import HfArgumentParser
from zero_shot import ZeroShotArguments, models_to_ask

from modeling_gpt1.inference.heuristics import get_heuristic
from modeling_gpt1.training.transfer import check_n_transfer
from tokenization import Task, get_task, load_task

EXAMPLES = Path(__file__).resolve().parent
EXPERIMENTS = ("fine_tuning", "ablations", "layer_transfer", "zero_shot")
# Columns of table 5, and what examples/finetune.py is told for each.
VARIANTS: dict[str, list[str]] = {
    "full": [],
    "without_auxiliary": ["--lm_coef", "0"],
    "without_pretraining": ["--n_transfer", "-1"],
    "lstm": [],
}
PAPER_TASKS = "cola sst2 mrpc stsb qqp mnli qnli rte snli scitail story_cloze race".split()
FINETUNE_FLAG = "--finetune_arguments"
# Of examples/finetune.py; every cell has its own.
OWN_FLAGS = "task model_name_or_path tokenizer_name data_dir output_dir seed n_transfer resume_from_checkpoint".split()
OWN_FLAGS += "push_to_hub do_train do_eval do_predict".split()
# Columns of table 3 beside that of the whole task, and the parts of it that the same model is scored on.
PARTS = {"race": {"race-m": "race-middle", "race-h": "race-high"}}


@dataclass
class ReproduceArguments:
    """Which experiments to run with which models and data."""

    output_dir: str = field(metadata={"help": "Cells, logs and the report; finished cells found here are kept."})
    experiments: list[str] = field(
        default_factory=lambda: list(EXPERIMENTS), metadata={"help": f"Of {', '.join(EXPERIMENTS)}. Default: all."}
    )
    model: str | None = field(default=None, metadata={"help": "The pre-trained Transformer: folder or hub id."})
    lstm_model: str | None = field(default=None, metadata={"help": "The pre-trained LSTM, for the variant lstm."})
    checkpoints: str | None = field(
        default=None, metadata={"help": "Output folder of the Transformer's pre-training, for zero_shot."}
    )
    lstm_checkpoints: str | None = field(
        default=None, metadata={"help": "Output folder of the LSTM's pre-training, for zero_shot."}
    )
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with a folder per task. Default: the data sets of the hub."}
    )
    tasks: list[str] = field(
        default_factory=lambda: list(PAPER_TASKS), metadata={"help": "For fine_tuning and ablations. Default: all."}
    )
    variants: list[str] | None = field(
        default=None,
        metadata={"help": f"For ablations, of {', '.join(VARIANTS)}. Default: all, lstm where there is --lstm_model."},
    )
    transfer_tasks: list[str] = field(default_factory=lambda: ["mnli", "race"], metadata={"help": "As in figure 2."})
    transfer_layers: list[int] | None = field(
        default=None, metadata={"help": "Numbers of layers, -1 for not even the embeddings. Default: 0 to all."}
    )
    seeds: list[int] = field(default_factory=lambda: [1, 2, 3], metadata={"help": "Of the fine-tuning runs."})
    zero_shot_tasks: list[str] = field(
        default_factory=lambda: ["cola", "sst2", "race", "story_cloze", "dpr"], metadata={"help": "For zero_shot."}
    )
    zero_shot_rows: int | None = field(default=None, metadata={"help": "Rows of each task. Default: all."})
    zero_shot_train_rows: int | None = field(
        default=None, metadata={"help": "Training rows that CoLA's threshold is chosen on. Default: all."}
    )
    title: str = field(default="The paper's experiments", metadata={"help": "Heading of the report."})
    only_report: bool = field(default=False, metadata={"help": "Write the report of what is finished; run nothing."})
    finetune_arguments: list[str] = field(
        default_factory=list, metadata={"help": "Must come last: all that follows goes to examples/finetune.py."}
    )

    def __post_init__(self):
        self._check_names("experiments", self.experiments, EXPERIMENTS)
        self._check_names("variants", self.variants or (), VARIANTS)
        self.tasks = [get_task(name).name for name in self.tasks]
        self.transfer_tasks = [get_task(name).name for name in self.transfer_tasks]
        self.zero_shot_tasks = [get_heuristic(name).task.name for name in self.zero_shot_tasks]
        if self.variants is None:
            self.variants = [name for name in VARIANTS if name != "lstm" or self.lstm_model is not None]
        if "lstm" in self.variants and self.lstm_model is None:
            raise ValueError("The variant lstm needs a model. Pass --lstm_model, or leave lstm out of --variants.")
        if self.model is None and self._needs_model:
            raise ValueError("There is no model. Pass --model with a pre-trained Transformer: a folder or a hub id.")

    @property
    def _needs_model(self) -> bool:
        if {"fine_tuning", "layer_transfer"} & set(self.experiments):
            return True
        if "ablations" in self.experiments and set(self.variants) != {"lstm"}:
            return True
        return "zero_shot" in self.experiments and self.checkpoints is None and self.lstm_checkpoints is None

    @staticmethod
    def _check_names(flag: str, given: list[str], known: tuple[str, ...] | dict) -> None:
        for name in given:
            if name not in known:
                raise ValueError(f"--{flag} has {name!r}. Known {flag}: {', '.join(known)}.")


def parse_arguments(command_line: list[str]) -> ReproduceArguments:
    parser = HfArgumentParser(ReproduceArguments, description=__doc__.partition("\n")[0])
    at = command_line.index(FINETUNE_FLAG) if FINETUNE_FLAG in command_line else len(command_line)
    (arguments,) = parser.parse_args_into_dataclasses(command_line[:at])
    arguments.finetune_arguments = command_line[at + 1 :]
    as_settings(arguments.finetune_arguments)  # refuses what the cells decide
    return arguments


def as_settings(command_line: list[str]) -> dict[str, str | bool | list[str]]:
    """`["--learning_rate", "5e-4", "--bf16"]` as `{"learning_rate": "5e-4", "bf16": True}`."""
    values: dict[str, list[str]] = {}
    name = None
    for word in command_line:
        if word.startswith("--"):
            name, has_value, value = word.removeprefix("--").partition("=")
            name = name.replace("-", "_")  # both are taken
            values[name] = [value] if has_value else []
        elif name is None:
            raise ValueError(f"{FINETUNE_FLAG} begins with {word!r}. Begin with an argument such as --learning_rate.")
        else:
            values[name].append(word)
    for name in values:
        own = next((flag for flag in OWN_FLAGS if flag.startswith(name)), None)  # a beginning is taken too
        if own is not None:
            raise ValueError(
                f"{FINETUNE_FLAG} has --{own}, which reproduce.py gives to each cell itself. Leave it out; "
                "reproduce.py --help says how tasks, models, data and seeds are chosen."
            )
    return {name: (value if len(value) > 1 else value[0] if value else True) for name, value in values.items()}


# ---- Cells of fine-tuning


def fine_tuning_cell(arguments: ReproduceArguments, task: str, variant: str, seed: int) -> Cell:
    """A variant is one of `VARIANTS`, or `transfer-<k>` for the first k layers of the checkpoint."""
    model = model_of(arguments, variant)
    n_transfer = -1 if variant == "without_pretraining" else None
    flags = VARIANTS.get(variant)
    if flags is None:
        n_transfer = int(variant.removeprefix("transfer-"))
        flags = ["--n_transfer", str(n_transfer)]
    settings = as_settings(arguments.finetune_arguments)
    if variant == "without_auxiliary":
        settings.pop("lm_coef", None)  # it has its own
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
    run = partial(fine_tune, arguments, task, ["--model_name_or_path", model, *flags], seed)
    return Cell(f"{task}-{variant}-seed{seed}", facts, {"model": model_name(model)}, run)


def model_of(arguments: ReproduceArguments, variant: str) -> str | None:
    return arguments.lstm_model if variant == "lstm" else arguments.model


def data_of(arguments: ReproduceArguments, task: Task) -> dict[str, int] | str:
    return data_fingerprint(arguments.data_dir, tuple(dict.fromkeys((task.name, task.folder or task.name))))


def fine_tune(
    arguments: ReproduceArguments,
    task: str,
    model: list[str],
    seed: int,
    run: Callable[[list[str]], None],
    work: Path,
) -> dict:
    """Trains and evaluates in the folder `work`; gives metrics and the scores by the paper's columns, × 100."""
    check_can_be_scored(task, arguments.data_dir)
    result = {"metrics": finetune_script(arguments, task, [*model, "--do_train"], seed, run, work / "model")}
    scores = scores_of(task, result["metrics"])
    for column, part in PARTS.get(task, {}).items():
        if not has_files(part, arguments.data_dir):
            result.setdefault("parts", {})[part] = {}
            continue
        trained = ["--model_name_or_path", str(work / "model")]
        metrics = finetune_script(arguments, part, trained, seed, run, work / part)
        result.setdefault("parts", {})[part] = metrics
        scores[column] = scores_of(part, metrics)[part]
    return {**result, "scores": scores}


def finetune_script(
    arguments: ReproduceArguments, task: str, flags: list[str], seed: int, run: Callable, output_dir: Path
) -> dict:
    uses = uses_of(task, arguments.data_dir)
    data = [] if arguments.data_dir is None else ["--data_dir", arguments.data_dir]
    run(
        [
            *(sys.executable, str(EXAMPLES / "finetune.py"), "--task", task, *data, "--seed", str(seed)),
            *("--output_dir", str(output_dir), "--save_strategy", "no", "--disable_tqdm", "true"),
            *(*arguments.finetune_arguments, *flags, *uses),
        ]
    )
    return json.loads((output_dir / "all_results.json").read_text(encoding="utf-8"))


def uses_of(task: str, data_dir: str | None) -> list[str]:
    flags = {"--do_eval": "validation", "--do_predict": "test"}
    return [flag for flag, kind in flags.items() if has_split(task, data_dir, kind)]


def check_can_be_scored(name: str, data_dir: str | None) -> None:
    """Before hours of training, not after them."""
    wanted = get_task(name).validation_splits
    # finetune.py names the metrics of one split otherwise than those of several.
    in_part = data_dir is not None and len(wanted) > 1 and not set(wanted) <= set(load_task(name, data_dir))
    if in_part or not uses_of(name, data_dir):
        raise ValueError(
            f"A run of {name} could not be scored: there is no labelled data of {' and '.join(wanted)}. Put it into "
            "the task's folder."
        )


def has_files(part: str, data_dir: str | None) -> bool:
    """Whether there is data of a part alone; RACE as files of the whole has none."""
    if data_dir is None:
        return True
    try:
        load_task(get_task(part), data_dir)
    except ValueError as error:
        if str(error).startswith("No file of task"):
            return False
        raise
    return True


@cache
def has_split(name: str, data_dir: str | None, kind: str) -> bool:
    """Whether the data has the splits of that kind, `validation` or `test`, with labels; GLUE hides its tests'."""
    task = get_task(name)
    if task.hub_path == "nyu-mll/glue":
        return kind == "validation"
    splits, label = load_task(task, data_dir), task.columns["label"]
    names = getattr(task, f"{kind}_splits")
    return all(
        split in splits and label in splits[split].column_names and min(splits[split][label]) >= 0 for split in names
    )


def scores_of(name: str, metrics: dict) -> dict[str, float]:
    """The paper's metric × 100 by the paper's column: of the test split where that has labels, else of validation."""
    metric = get_task(name).metrics[0]
    keys = {name: (f"predict_{metric}", f"eval_{metric}")}
    if name == "mnli":
        keys = {
            "mnli-m": (f"eval_validation_matched_{metric}",),
            "mnli-mm": (f"eval_validation_mismatched_{metric}",),
        }
    found = {column: [metrics[key] for key in of if key in metrics] for column, of in keys.items()}
    for column, values in found.items():
        if not values:
            raise ValueError(f"The run of {name} ended without {' or '.join(keys[column])}: no split has labels.")
    return {column: 100 * values[0] for column, values in found.items()}


# ---- Cells of zero-shot


def zero_shot_cells(arguments: ReproduceArguments) -> list[Cell]:
    """A cell per checkpoint of the two runs, by updates; of a model without a run one for itself."""
    cells = []
    for folder, model in (arguments.checkpoints, arguments.model), (arguments.lstm_checkpoints, arguments.lstm_model):
        if folder is not None:
            asked = models_to_ask(ZeroShotArguments(checkpoints=folder))
            cells += [zero_shot_cell(arguments, folder, **checkpoint) for checkpoint in asked]
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
            "max_rows": arguments.zero_shot_rows,
            "max_train_rows": arguments.zero_shot_train_rows,
        },
        "model_fingerprint": model_fingerprint(model),
        "data": {name: data_of(arguments, get_heuristic(name).task) for name in arguments.zero_shot_tasks},
    }
    # A checkpoint may lack a tokenizer, which then is in the folder of its run.
    has_tokenizer = (Path(model) / "tokenizer_config.json").exists()
    run = partial(ask_zero_shot, arguments, model, model if has_tokenizer else run_folder)
    place = "final" if step is None else f"checkpoint-{step}"
    about = {"model": model_name(model), "family": family(model)}
    return Cell(f"zero-shot-{family(model)}-{place}", facts, about, run)


def ask_zero_shot(
    arguments: ReproduceArguments, model: str, tokenizer: str, run: Callable[[list[str]], None], work: Path
) -> dict:
    limits = {"--max_rows": arguments.zero_shot_rows, "--max_train_rows": arguments.zero_shot_train_rows}
    limit = [word for flag, rows in limits.items() if rows is not None for word in (flag, str(rows))]
    data = [] if arguments.data_dir is None else ["--data_dir", arguments.data_dir]
    output = work / "zero_shot.json"
    run(
        [
            *(sys.executable, str(EXAMPLES / "zero_shot.py"), "--model_name_or_path", model),
            *("--tokenizer_name", tokenizer, "--tasks", *arguments.zero_shot_tasks, *data, *limit),
            *("--output", str(output)),
        ]
    )
    return {"tasks": json.loads(output.read_text(encoding="utf-8"))["results"][0]["tasks"]}


# ---- The plan


def check_families(arguments: ReproduceArguments) -> None:
    """Raises ValueError where the report would call an LSTM a Transformer, or the reverse."""
    lstm = "gpt1-lstm"
    if arguments.model is not None and family(arguments.model) == lstm:
        raise ValueError(f"--model {arguments.model} is an LSTM. Pass it by --lstm_model, and a Transformer here.")
    if arguments.lstm_model is not None and family(arguments.lstm_model) != lstm:
        raise ValueError(
            f"--lstm_model {arguments.lstm_model} is no LSTM: its model type is "
            f"{load_config(arguments.lstm_model).model_type}. Pass one that was trained with --model_type {lstm}."
        )


def plan(arguments: ReproduceArguments) -> list[Cell]:
    """The cells of the experiments, each once, whole seeds first."""
    cells = []
    for seed in arguments.seeds:
        for experiment in arguments.experiments:
            if experiment == "zero_shot":
                cells += zero_shot_cells(arguments) if seed == arguments.seeds[0] else []
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


def transfer_layers(arguments: ReproduceArguments) -> list[int]:
    config = load_config(arguments.model)
    for number in arguments.transfer_layers or ():
        check_n_transfer(config, number)
    return arguments.transfer_layers or list(range(config.num_hidden_layers + 1))


def transfer_variant(arguments: ReproduceArguments, number: int) -> str:
    """The ends of the curve are columns of table 5."""
    ends = {-1: "without_pretraining", load_config(arguments.model).num_hidden_layers: "full"}
    return ends.get(number, f"transfer-{number}")


# ---- The command


def main(command_line: list[str] | None = None) -> int:
    """Gives the exit status: 1 where a cell failed."""
    command_line = sys.argv[1:] if command_line is None else command_line
    arguments = parse_arguments(command_line)
    check_families(arguments)
    store = CellStore(Path(arguments.output_dir))
    cells = plan(arguments)
    failures: dict[str, str] = {}
    write = partial(write_reports, arguments, command_line, cells, store, failures)
    if not arguments.only_report:
        run_cells(cells, store, failures, partial(write_if_possible, write))
    print(write())
    if failures:
        names = ", ".join(cell.name for cell in cells if cell.key in failures)
        print(f"{len(failures)} of {len(cells)} cells failed: {names}")
    return 1 if failures else 0


def write_if_possible(write: Callable[[], str]) -> None:
    """Between cells: hours of runs must not end with a report that could not be written."""
    try:
        write()
    except Exception as error:  # whatever it is, it comes again at the end
        print(f"The report could not be written: {type(error).__name__}: {error}", flush=True)


def write_reports(
    arguments: ReproduceArguments, command_line: list[str], cells: list[Cell], store: CellStore, failures: dict
) -> str:
    """Writes report.json and report.html of all that is finished, in the output folder; gives a line that says so."""
    finished, num_others = finished_cells(arguments, cells, store)
    unfinished = [
        {**cell.facts, **cell.about, "reason": failures.get(cell.key, "not run yet").splitlines()[0]}
        for cell in cells
        if store.read(cell) is None
    ]
    runs = {arguments.model: arguments.checkpoints, arguments.lstm_model: arguments.lstm_checkpoints}
    report = build_report(
        with_parts(finished),
        title=arguments.title,
        models=[describe_model(model, run) for model, run in runs.items() if model is not None],
        environment=environment(),
        commands=[shlex.join(["python", "examples/reproduce.py", *command_line])],
        unfinished=unfinished,
    )
    page = store.folder / f"report.{os.getpid()}.partial"
    write_report(report, page)
    os.replace(page, store.folder / "report.html")
    write_atomically(store.folder / "report.json", report)
    number = f"{len(finished)} finished cell{'' if len(finished) == 1 else 's'}"
    others = f"; {num_others} of other settings are left out" if num_others else ""
    return f"{store.folder / 'report.html'} and report.json tell of {number}{others}."


def finished_cells(arguments: ReproduceArguments, cells: list[Cell], store: CellStore) -> tuple[list[dict], int]:
    """What is finished with the settings of these arguments, whoever ran it, and how many cells there are besides."""
    found = store.read_all()
    wanted = {store.result_path(cell) for cell in (*cells, *zero_shot_cells(arguments))}
    for content in found.values():
        if content["kind"] == "fine_tuning" and model_of(arguments, content["variant"]) is not None:
            variant = f"transfer-{content['n_transfer']}" if content["variant"] == "transfer" else content["variant"]
            wanted.add(store.result_path(fine_tuning_cell(arguments, content["task"], variant, content["seed"])))
    return [content for path, content in found.items() if path in wanted], len(set(found) - wanted)


def with_parts(finished: list[dict]) -> list[dict]:
    """And a cell, which took no time, for each part of a task that a model of the whole task was scored on."""

    def place(cell: dict) -> tuple:
        return cell["task"], cell["variant"], cell["n_transfer"], cell["seed"]

    own = {place(cell) for cell in finished if cell["kind"] == "fine_tuning"}
    parts = [
        {**cell, "task": task, "metrics": metrics, "seconds": 0}
        for cell in finished
        for task, metrics in cell.get("parts", {}).items()
    ]
    return [*finished, *(part for part in parts if place(part) not in own)]


if __name__ == "__main__":
    end_commands_on_termination()
    disable_progress_bars()
    sys.exit(main())
