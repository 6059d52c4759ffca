"""Pre-trains every family on the same novels, asks and fine-tunes each alike, and writes one page of tables.

    python benchmarks/families.py --books books --data_dir data --work_dir runs/families         # hours
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --page  # the page so far
    python benchmarks/families.py --books books --data_dir data --work_dir runs/families --save  # as dated files

`books` has novels in train/*.txt and validation/*.txt, `data` a folder per task. Every family has the same tokenizer,
blocks of 512 tokens, 4 layers of 256 and number of tokens. Its learning rate is the best of four short runs by its own
held-out loss: those of two families do not compare. Fine-tuning has one recipe for all, and several seeds.

A step is one command of `gpt1` in a folder of its own; `--jobs` of them run at once, of all families alike. A finished
step is never repeated, and a killed one goes on from its last checkpoint. The processor time of all attempts counts,
and the largest resident memory of any.
"""

import argparse
import math
import os
import shlex
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import torch
from harness import machine, pretrain_flags, read_json, run_counted, save_result, train_tokenizer, words_of, write_json
from torch import nn

from modeling_gpt1.families import FAMILIES
from tokenization import get_task, load_task

SIZES = "hidden_size=256,num_hidden_layers=4,num_attention_heads=4,intermediate_size=1024"
LSTM_SIZES = "hidden_size=256,lstm_hidden_size=768"
NUM_MERGES, BLOCK_LENGTH, BATCH = 8000, 512, 8
WARMUP = 200  # updates; with fewer, models with norms after the sums stay at the loss of mere word frequencies
LEARNING_RATES = (2.5e-4, 5e-4, 1e-3, 2e-3)
# Rows to train on; `None` takes all.
TASKS = {
    **dict.fromkeys(["sst2", "cola", "stsb", "rte", "story_cloze"]),
    "snli": 20_000,
    "mnli": 10_000,
    "qqp": 10_000,
}
FINE_TUNING = "--num_train_epochs 3 --per_device_train_batch_size 32 --warmup_steps 0.1 --bf16"
FINE_TUNING += " --save_strategy epoch --save_total_limit 1 --report_to none --disable_tqdm true"
ZERO_SHOT_TASKS = ("blimp", "story_cloze")


@dataclass(frozen=True)
class Step:
    """One command of `gpt1`, without the name of its output."""

    folder: Path
    words: tuple[str, ...]
    output: str
    """The flag that names the output."""
    result: str
    """The file that the finished command leaves."""

    @property
    def is_done(self) -> bool:
        return (self.folder / "done.json").is_file()


# ---- Steps


def pretraining(arguments: argparse.Namespace, family: str, tokens: float, learning_rate: float) -> Step:
    updates = max(1, round(tokens / (BATCH * BLOCK_LENGTH)))
    part = max(1, updates // 20)
    flags = {
        **pretrain_flags(arguments.books, arguments.work_dir, part),
        "family": family,
        "block_length": BLOCK_LENGTH,
        "config_overrides": LSTM_SIZES if family == "gpt1-lstm" else SIZES,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "max_steps": updates,
        "learning_rate": learning_rate,
        "warmup_steps": WARMUP,
        "logging_steps": part,
        "save_total_limit": 1,
    }
    folder = arguments.work_dir / family / f"pretrain-{tokens:g}-{learning_rate:g}"
    return Step(folder, words_of("pretrain", flags), "--output_dir", "all_results.json")


def train_rows(arguments: argparse.Namespace, task: str) -> int | None:
    """The most rows to train on; `None` for all."""
    return min((limit for limit in (TASKS[task], arguments.train_rows) if limit is not None), default=None)


def fine_tuning(arguments: argparse.Namespace, model: Step, task: str, seed: int) -> Step:
    rate = arguments.fine_tuning_rate
    flags = {"model": model.folder / "out", "learning_rate": rate, "task": task, "data_dir": arguments.data_dir}
    limit = train_rows(arguments, task)
    if limit is not None:
        flags["max_train_samples"] = limit
    if not torch.cuda.is_available():
        flags["use_cpu"] = True
    words = (*words_of("finetune", {**flags, "seed": seed}), "--do_train", "--do_eval", *FINE_TUNING.split())
    words += ("--resume_from_checkpoint", "auto")
    return Step(model.folder.parent / f"{task}-{rate:g}-{seed}", words, "--output_dir", "eval_results.json")


def check_data(arguments: argparse.Namespace) -> None:
    """Stops before hours of pre-training if a task could not be fine-tuned after them."""
    for task in map(get_task, TASKS):
        found = load_task(task, arguments.data_dir)
        missing = [name for name in (task.train_split, *task.validation_splits) if name not in found]
        if missing:
            names = " and no ".join(missing)
            raise SystemExit(f"{arguments.data_dir}: {task.name} has no split {names}. Add its file.")


def asking(arguments: argparse.Namespace, model: Step) -> Step:
    flags = {"model": model.folder / "out", "data_dir": arguments.data_dir}
    words = (*words_of("zero-shot", flags), "--tasks", *ZERO_SHOT_TASKS)
    return Step(model.folder.parent / "zero-shot", words, "--output_file", "")


def sweep(arguments: argparse.Namespace, family: str) -> list[Step]:
    return [pretraining(arguments, family, arguments.sweep_tokens, rate) for rate in LEARNING_RATES]


def best_rate(arguments: argparse.Namespace, family: str) -> float | None:
    """The learning rate whose run ended with the lowest held-out loss; `None` while one is missing."""
    steps = sweep(arguments, family)
    if not all(step.is_done for step in steps):
        return None
    losses = [read_json(step.folder / "out" / step.result)["eval_loss"] for step in steps]
    return LEARNING_RATES[losses.index(min(losses))]


def tasks_of(family: str) -> list[str]:
    """The tasks for which the family has a head: transformers' BART has none for multiple choice."""
    known = FAMILIES[family]
    config = known.make_config()
    return [task for task in TASKS if known.has_head_for(get_task(task).traversal, config)]


def long_run(arguments: argparse.Namespace, family: str) -> Step | None:
    """The run whose model is measured; `None` while its learning rate is not known."""
    rate = best_rate(arguments, family)
    return None if rate is None else pretraining(arguments, family, arguments.tokens, rate)


def stages_of(arguments: argparse.Namespace, family: str) -> list[list[Step]]:
    """The steps of a family that are known yet. A stage needs all steps of the stages before it."""
    model = long_run(arguments, family)
    if model is None:
        return [sweep(arguments, family)]
    tuned = [fine_tuning(arguments, model, task, seed) for seed in range(arguments.seeds) for task in tasks_of(family)]
    return [sweep(arguments, family), [model], [asking(arguments, model), *tuned]]


def run_all(arguments: argparse.Namespace) -> None:
    """Runs stage after stage of all families, `jobs` steps at once, of the families in turns.

    After a failure the running steps end, and no further one begins.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // arguments.jobs)))
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for number in range(3):
            in_turns = zip_longest(*(stages_of(arguments, family)[number] for family in arguments.families))
            steps = [step for of_families in in_turns for step in of_families if step and not step.is_done]
            ended, left = wait([pool.submit(run, step) for step in steps], return_when=FIRST_EXCEPTION)
            for future in left:
                future.cancel()
            for future in ended:
                future.result()


def run(step: Step) -> None:
    """Runs a step to its end, and counts the processor time of all its attempts."""
    print(step.folder, flush=True)
    step.folder.mkdir(parents=True, exist_ok=True)
    counted = run_counted([*step.words, step.output, str(step.folder / "out")], step.folder)
    done = {"processor_seconds": counted["seconds"], "peak_bytes": counted["peak_bytes"]}
    write_json(step.folder / "done.json", done)


# ---- What was measured


@dataclass
class Row:
    """What the page says of a family."""

    parameters: int
    without_embeddings: int
    cost: dict
    learning_rate: float
    loss: dict[str, float]
    fine_tuning_rate: float | None = None
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """Tokens, hours and held-out loss."""
    zero_shot: dict[str, dict] = field(default_factory=dict)
    method: str = ""
    scores: dict[str, list[float]] = field(default_factory=dict)
    """By task, a score of at most 1 for each seed of fine-tuning."""


def read_row(arguments: argparse.Namespace, family: str) -> Row | None:
    """What is known of a family; `None` before its long run is done."""
    model = long_run(arguments, family)
    if model is None or not model.is_done:
        return None
    opened = FAMILIES[family].model_class.from_pretrained(model.folder / "out")
    results, records = (read_json(model.folder / "out" / name) for name in (model.result, "trainer_state.json"))
    speeds = [record["tokens_per_second"] for record in records["log_history"] if "tokens_per_second" in record]
    cost = {**read_json(model.folder / "done.json"), "tokens": results["num_input_tokens_seen"]}
    cost["tokens_per_second"] = statistics.median(speeds)
    losses = {name.removeprefix("eval_"): value for name, value in results.items() if name.endswith("_loss")}
    losses = {name: value for name, value in losses.items() if name != "train_loss"}
    sizes = (opened.num_parameters(), count_without_embeddings(opened))
    rates = best_rate(arguments, family)
    row = Row(*sizes, cost, rates, losses, arguments.fine_tuning_rate)
    row.curve = curve_of(records["log_history"])
    asked = asking(arguments, model)
    if asked.is_done:
        (answers,) = read_json(asked.folder / "out")["results"]
        row.zero_shot = answers["tasks"]
        row.method = answers["method"]
    for task in tasks_of(family):
        steps = [fine_tuning(arguments, model, task, seed) for seed in range(arguments.seeds)]
        row.scores[task] = [score_of(task, read_json(s.folder / "out" / s.result)) for s in steps if s.is_done]
    return row


def curve_of(records: list[dict]) -> list[tuple[int, float, float]]:
    """Tokens read, hours of training and held-out loss at each evaluation.

    The hours are those of the updates by their logged speeds: evaluations, saving and other processes do not count.
    """
    points, hours, before = [], 0.0, 0
    for record in records:
        tokens = record.get("num_input_tokens_seen", before)
        if "tokens_per_second" in record:
            hours += (tokens - before) / record["tokens_per_second"] / 3600
            before = tokens
        elif "eval_loss" in record:
            points.append((tokens, round(hours, 4), round(record["eval_loss"], 4)))
    return points


def score_of(task: str, results: dict) -> float:
    """The paper's metric; of MNLI the mean of both validation sets."""
    metric = get_task(task).metrics[0]
    return statistics.fmean(value for name, value in results.items() if name.endswith(f"_{metric}"))


def count_without_embeddings(model: nn.Module) -> int:
    """Parameters but those of embeddings, and of a head that shares them."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    embedded = {id(weight): weight.numel() for weight in tables}
    return sum(weight.numel() for weight in model.parameters() if id(weight) not in embedded)


# ---- The page


def page(rows: dict[str, Row], tasks: Sequence[str], about: dict) -> str:
    """Markdown: costs, fine-tuned scores, answers without fine-tuning, the command.

    `about` has the machine, and how this script was called: `jobs`, `fine_tuning`, `rows` by task, `command`.
    """
    asked = {family: row for family, row in rows.items() if row.zero_shot}
    questions = list(dict.fromkeys(task for row in asked.values() for task in row.zero_shot))
    of_blimp = {name for row in asked.values() for name in row.zero_shot.get("blimp", {})}
    phenomena = sorted(name for name in of_blimp if name.startswith("accuracy_"))
    answers = [
        [family, row.method, *(with_error(row.zero_shot.get(task)) for task in questions)]
        for family, row in asked.items()
    ]
    by_phenomenon = [
        [name.removeprefix("accuracy_"), *(percent(row.zero_shot["blimp"][name]) for row in asked.values())]
        for name in phenomena
    ]
    scores = [
        [family, f"{row.fine_tuning_rate:g}", *(spread(row.scores.get(task, [])) for task in tasks)]
        for family, row in rows.items()
    ]
    limits = ", ".join(f"{task} {about['rows'][task]:,}" for task in tasks if task in about["rows"])
    parts = [
        "# Families on the same tokens",
        "Each family was pre-trained once, so no figure tells how much another pre-training would differ: the seeds "
        "are those of fine-tuning. Sizes and tokens are small, and say nothing of the order of large models.",
        f"## Cost\n\n{conditions(about)}",
        table(["family", *COSTS], [[family, *(of(row) for of in COSTS.values())] for family, row in rows.items()]),
        "## Fine-tuned",
        "The metric of the task × 100: the mean of the seeds, their range and their number.",
        f"`gpt1 finetune {about['fine_tuning']}`" + (f", on at most so many rows: {limits}." if limits else "."),
        table(["family", "learning rate", *tasks], scores),
        "## Without fine-tuning\n\nAccuracy × 100, and its standard error.",
        table(["family", "method", *questions], answers),
        "## BLiMP by phenomenon",
        table(["phenomenon", *asked], by_phenomenon),
        "## Command",
        f"```sh\npython benchmarks/families.py {about['command']}\n```",
    ]
    return "\n\n".join(parts)


COSTS: dict[str, Callable[[Row], str]] = {
    "M parameters": lambda row: f"{row.parameters / 1e6:.2f}",
    "M without embeddings": lambda row: f"{row.without_embeddings / 1e6:.2f}",
    "learning rate": lambda row: f"{row.learning_rate:g}",
    "M tokens read": lambda row: f"{row.cost['tokens'] / 1e6:.1f}",
    "processor hours": lambda row: f"{row.cost['processor_seconds'] / 3600:.2f}",
    "tokens per second": lambda row: f"{row.cost['tokens_per_second']:.0f}",
    "peak GiB": lambda row: f"{row.cost['peak_bytes'] / 2**30:.2f}",
    "held-out losses": lambda row: ", ".join(f"{name} {value:.3f}" for name, value in row.loss.items()),
}


def conditions(about: dict) -> str:
    """On what the costs were measured, and what they leave out."""
    jobs = about["jobs"]
    where = f"{about['cores']} cores ({about['processor']})"
    if "accelerator" in about:
        where = f"{about['accelerator']} with {where}"
    text = f"Measured on {where}, {'one run at a time' if jobs == 1 else f'up to {jobs} runs at once'}, "
    text += f"by torch {about['torch']} and transformers {about['transformers']}. "
    if jobs > 1:
        text += "So hours and speeds are those of a shared machine, and no family's own. "
    text += "Processor hours are of the run of all tokens, without the search for its learning rate. "
    return text + "The peak is of resident memory" + (", not the accelerator's." if "accelerator" in about else ".")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(scores: list[float]) -> str:
    """Mean and range over the seeds, in percent, and their number."""
    if not scores:
        return "–"
    ends = f" [{percent(min(scores))}–{percent(max(scores))}], {len(scores)}" if len(scores) > 1 else ""
    return percent(statistics.fmean(scores)) + ends


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def with_error(found: dict | None) -> str:
    if found is None:
        return "–"
    error = math.sqrt(found["accuracy"] * (1 - found["accuracy"]) / found["num_rows"])
    return f"{percent(found['accuracy'])} ± {percent(error)}"


def objective_of(family: str) -> str:
    """How a family learns: held-out losses of one objective compare, those of two do not."""
    if FAMILIES[family].is_causal:
        return "next token"
    if FAMILIES[family].config_class().is_encoder_decoder:
        return "restored text"
    return "masked tokens, alone or with a second objective"


def draw(rows: dict[str, Row]):
    """Held-out losses over tokens and over hours of training, a row of panels for each objective."""
    from matplotlib.figure import Figure  # here because a run of the script's steps needs no matplotlib

    groups: dict[str, list[str]] = {}
    for family, row in rows.items():
        if row.curve:
            groups.setdefault(objective_of(family), []).append(family)
    figure = Figure(figsize=(10, 0.6 + 3 * len(groups)), dpi=100, layout="constrained")
    panels = figure.subplots(max(1, len(groups)), 2, squeeze=False)
    for line, (objective, families) in zip(panels, groups.items(), strict=False):
        for place, (axes, label) in enumerate(zip(line, ("million tokens", "hours of updates"), strict=True)):
            for family in families:
                points = [(point[place] / (1e6, 1)[place], point[2]) for point in rows[family].curve]
                axes.plot(*zip(*points, strict=True), marker=".", label=family)
            axes.set(xlabel=label, ylabel="held-out loss", title=objective)
            axes.grid(alpha=0.3)
            axes.legend()
    return figure


# ---- The script


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--books", type=Path, required=True, help="folder with train/*.txt and validation/*.txt")
    parser.add_argument("--data_dir", type=Path, required=True, help="folder with a folder per task")
    parser.add_argument("--work_dir", type=Path, required=True)
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--tokens", type=float, default=15e6, help="tokens of text of the long run")
    parser.add_argument("--sweep_tokens", type=float, default=3e6, help="tokens of text of each run of the sweep")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of fine-tuning")
    parser.add_argument("--fine_tuning_rate", type=float, default=5e-4)
    parser.add_argument("--jobs", type=int, default=1, help="steps that run at once, on an equal share of the cores")
    parser.add_argument("--train_rows", type=int, help="most rows of a task to fine-tune on; default: see TASKS")
    parser.add_argument("--page", action="store_true", help="print the page so far, and run nothing")
    parser.add_argument("--save", action="store_true", help="write the page, its curves and its figures, all dated")
    arguments = parser.parse_args(words)
    if arguments.jobs < 1:
        parser.error(f"--jobs is {arguments.jobs}, but at least 1 step must run.")
    return arguments


def main(words: list[str] | None = None) -> None:
    arguments = parse(words)
    if not (arguments.page or arguments.save):
        check_data(arguments)
        train_tokenizer(arguments.books, arguments.work_dir, NUM_MERGES)
        run_all(arguments)
    found = {family: read_row(arguments, family) for family in arguments.families}
    rows = {family: row for family, row in found.items() if row is not None}
    words = [word for word in (sys.argv[1:] if words is None else words) if word not in ("--page", "--save")]
    about = {**machine(), "jobs": arguments.jobs, "fine_tuning": FINE_TUNING, "command": shlex.join(words)}
    limits = {task: train_rows(arguments, task) for task in TASKS}
    about["rows"] = {task: limit for task, limit in limits.items() if limit is not None}
    text = page(rows, TASKS, about)
    print(text)
    if arguments.save:
        path = save_result("families", about, {family: vars(row) for family, row in rows.items()})
        draw(rows).savefig(path.with_suffix(".png"))
        path.with_suffix(".md").write_text(f"{text}\n\n![Learning curves]({path.stem}.png)\n", encoding="utf-8")


if __name__ == "__main__":
    main()
