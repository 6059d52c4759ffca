"""Code shared by the benchmarks: models in their own processes, time, memory, tables of ratios, dated results.

Each model runs in its own process, and the processes take turns. A disturbance of the machine then affects all models
alike, and ratios can be computed round by round.
"""

import argparse
import ctypes
import gc
import inspect
import json
import multiprocessing
import os
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import date
from importlib.metadata import version
from pathlib import Path

import psutil

MIB = 2**20
RESULTS = Path(os.environ.get("GPT1_RESULTS", Path(__file__).parent / "results"))
TOLERANCE = 1e-4  # of what two models compute in float32
SMALL = {"vocab_size": 1000, "n_embd": 64, "n_layer": 2, "n_head": 2}  # sizes of the models of a quick run


def machine(threads: int | None = None) -> dict:
    """The machine and the versions that the figures depend on."""
    from modeling_gpt1.inference.devices import accelerator_name  # here: a measured process imports only its own
    from modeling_gpt1.reproduction.models import processor_name

    found = accelerator_name()
    return {
        "cores": os.cpu_count(),
        **({} if threads is None else {"threads": threads}),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "processor": processor_name(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "tokenizers", "accelerate")},
        **({} if found is None else {"accelerator": found}),
    }


def command_line() -> str:
    """How the script was called, from the root of the repository."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def save_result(name: str, about: dict, content: dict | list, folder: Path = RESULTS) -> Path:
    """Writes `<date>-<name>.json` into `folder`: the machine, the command and the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date.today().isoformat()}-{name}.json"
    result = {"machine": about, "command": command_line(), "results": content}
    text = json.dumps(result, indent=1, ensure_ascii=False)
    # A list of figures stands in one line.
    text = re.sub(r"\[\n\s*([^\[\]{}]*?)\n\s*\]", lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"written: {path}")
    return path


def read_json(path: Path, default: dict | None = None) -> dict | None:
    """The content of a JSON file, or the default without the file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default


def write_json(path: Path, content: dict) -> None:
    from modeling_gpt1.storage.writing import write_atomically

    write_atomically(path, json.dumps(content, indent=2) + "\n")


# ---- What is read


def default_data() -> Path:
    """The folder of the data sets. It need not exist."""
    return Path(os.environ.get("GPT1_DATA_DIR", "data"))


def released_tokenizer(folder: Path):
    """The GPT1Tokenizer made from the two files that were released with GPT-1."""
    from tokenization import GPT1Tokenizer

    return GPT1Tokenizer.from_openai(folder / "encoder_bpe_40000.json", folder / "vocab_40000.bpe")


def write_peers(folder: str, sizes: dict, prepare: Callable | None = None, **openai_fields) -> dict[str, str]:
    """
    Writes random weights of the two built-in models in one size, of which ours reads those of openai-gpt.

    `prepare` changes the weights of openai-gpt. Returns the folders by the names of the classes.
    """
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel, logging

    torch.manual_seed(0)
    logging.disable_progress_bar()
    folders = {name: f"{folder}/{name}" for name in ("OpenAIGPTLMHeadModel", "GPT2LMHeadModel")}
    config = OpenAIGPTConfig(**sizes, **openai_fields)
    model = OpenAIGPTLMHeadModel(config)
    if prepare is not None:
        prepare(model)
    model.save_pretrained(folders["OpenAIGPTLMHeadModel"])
    names = ("vocab_size", "n_positions", "n_layer", "n_embd", "n_head")
    same_size = {name: getattr(config, name) for name in names}
    config = GPT2Config(**same_size, bos_token_id=None, eos_token_id=None, attn_implementation="sdpa")
    GPT2LMHeadModel(config).save_pretrained(folders["GPT2LMHeadModel"])
    return folders


# ---- Processes

WORKERS: list = []  # the one of this process


def start(worker_class: type, arguments: tuple) -> None:
    WORKERS.append(worker_class(*arguments))


def call(method: str, arguments: tuple):
    return getattr(WORKERS[0], method)(*arguments)


@contextmanager
def running_worker(worker_class: type, *arguments) -> Iterator[Callable]:
    """Starts a worker in its own process. Yields a function that calls a method of the worker."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, start, (worker_class, arguments)) as pool:
        yield lambda method, *method_arguments: pool.submit(call, method, method_arguments).result()


@contextmanager
def running_workers(worker_class: type, arguments: dict[str, tuple]) -> Iterator[dict[str, Callable]]:
    """A worker for each name, made with its arguments."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(running_worker(worker_class, *of)) for name, of in arguments.items()}


def steps_of(
    worker_class: type, arguments: dict[str, tuple], compared: Sequence[str], peer: str, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """The figures of all rounds of the workers' `step`, once those that are `compared` agree with the peer."""
    with running_workers(worker_class, arguments) as ask:
        check_agreement({name: ask[name]("compare") for name in compared}, peer)
        for name in ask:
            ask[name]("warm_up")
        return rounds_of(list(ask), rounds, lambda name: ask[name]("step"))


def pretrain_flags(books: Path, work_dir: Path, part: int) -> dict:
    """The flags of a run on books that goes on after a kill, and is saved after each part of its updates."""
    import torch

    return {
        "train_files": f"{books}/train",
        "validation_files": f"{books}/validation",
        "tokenizer_name": work_dir / "tokenizer",
        "max_eval_blocks": 256,
        "eval_strategy": "steps",
        "eval_steps": part,
        "save_steps": part,
        "resume_from_checkpoint": "auto",
        "bf16": True,
        "use_cpu": not torch.cuda.is_available(),  # bf16 on a CPU needs this flag
        "report_to": "none",
        "disable_tqdm": True,
    }


def words_of(command: str, flags: dict) -> tuple[str, ...]:
    return command, *(word for name, value in flags.items() for word in (f"--{name}", str(value)))


def train_tokenizer(books: Path, work_dir: Path, num_merges: int) -> None:
    """Trains the tokenizer of the runs, unless there is one."""
    from tokenization import GPT1Tokenizer, training_texts

    if not (work_dir / "tokenizer").is_dir():
        tokenizer = GPT1Tokenizer.train(training_texts(f"{books}/train"), num_merges)
        tokenizer.save_pretrained(work_dir / "tokenizer")


def run_counted(words: Sequence[str], folder: Path) -> dict:
    """
    Runs a command of `gpt1` to its end, with its output at the end of `folder/output.txt`.

    Returns the processor time of all attempts, and the largest resident memory of any, which are also in
    `folder/processor_seconds.json`.
    """
    path = folder / "processor_seconds.json"
    before = read_json(path, {"attempts": 0, "seconds": 0, "peak_bytes": 0})
    command = [sys.executable, "-m", "modeling_gpt1.commands", *words]
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:  # this script is being ended
        process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        raise
    finally:
        process.returncode = os.waitstatus_to_exitcode(status)
        counted = {
            "attempts": before["attempts"] + 1,
            "seconds": round(before["seconds"] + usage.ru_utime + usage.ru_stime, 1),
            "peak_bytes": max(before["peak_bytes"], usage.ru_maxrss * 1024),
        }
        write_json(path, counted)
    if process.returncode:
        raise SystemExit(f"{folder}: status {process.returncode}. Its output.txt ends with the reason.")
    return counted


def in_turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yields every name once in each round, in an order that changes from round to round."""
    for round_number in range(rounds):
        yield from names[:: 1 if round_number % 2 == 0 else -1]


def rounds_of(names: Sequence[str], rounds: int, measure: Callable[[str], dict]) -> dict[str, dict[str, list[float]]]:
    """The figures of all rounds by name and measure."""
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for name in in_turns(list(names), rounds):
        for measured, value in measure(name).items():
            figures[name].setdefault(measured, []).append(value)
    return figures


def timed(work: Callable, *arguments) -> dict[str, float]:
    """
    Wall-clock seconds, CPU seconds of all threads, which exclude the time of other programs on a busy machine, and the
    peak of this process's resident memory.
    """
    reset_peak()
    start = time.perf_counter()
    cpu_start = time.process_time()
    work(*arguments)
    seconds = time.perf_counter() - start
    cpu_seconds = time.process_time() - cpu_start
    return {"peak MiB": peak_resident_bytes() / MIB, "seconds": seconds, "CPU seconds": cpu_seconds}


def without_dropout(model, losses: Callable[[], dict]) -> dict[str, float]:
    """The `losses` of a model in float32 without dropout, and the gradient norm of the first."""
    import torch

    model.eval()
    found = losses()
    next(iter(found.values())).backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients).item()
    model.zero_grad()
    model.train()
    return {**{name: loss.item() for name, loss in found.items()}, "gradient norm": norm}


def check_agreement(values: dict[str, dict[str, float]], peer: str) -> None:
    """Raises RuntimeError unless all models have the peer's values, such as loss and gradient norm."""
    for name, of_name in values.items():
        for measure, theirs in values[peer].items():
            if abs(of_name[measure] - theirs) > TOLERANCE * max(1.0, abs(theirs)):
                raise RuntimeError(
                    f"The models disagree: {measure} of {name} is {of_name[measure]}, of {peer} {theirs}. Nothing was "
                    "measured; find out why before you trust either."
                )


# ---- Memory


def resident_bytes() -> int:
    """Resident memory of this process, after unused memory has been returned to the system."""
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    return psutil.Process().memory_info().rss


def out_of_the_file(model) -> None:
    """Copies a model's weights out of the memory-mapped file, whose pages would count as the process's memory."""
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()


def kernel_figure(key: str) -> int:
    """A figure of this process from the kernel, in KiB. It is 0 on systems without its file."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def reset_peak() -> None:
    """Resets the peak of resident memory. If the system cannot, the peak is that of the process's whole life."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("The peak of resident memory could not be reset: it is that of the whole process.", file=sys.stderr)


def peak_resident_bytes() -> int:
    if kilobytes := kernel_figure("VmHWM"):
        return kilobytes * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# ---- Figures


def summary(column: Sequence[float]) -> dict[str, float | list[float]]:
    column = list(column)
    return {"median": statistics.median(column), "least": min(column), "most": max(column), "rounds": column}


def comparison(
    work: str, measure: str, peer: str, ours: Sequence[float], theirs: Sequence[float], target: float | None = None
) -> dict:
    """One row of the table of `make bench`: the same work done by both, round by round.

    Args:
        work: description of the work, with sizes and dtype.
        measure: the measured quantity with its unit, such as "CPU seconds", "peak MiB" or "tokens/s".
        peer: name of the model or class that is compared.
        ours, theirs: the figures of each round.
        target: what the ratio should reach.

    Returns:
        The row. Its ratio says how many times better ours is: theirs / ours, or ours / theirs for a rate ("…/s…").
    """
    is_rate = "/s" in measure or "/CPU s" in measure
    pairs = list(zip(ours, theirs, strict=True))
    return {
        "work": work,
        "measure": measure,
        "peer": peer,
        "ours": summary(ours),
        "theirs": summary(theirs),
        "ratio": summary([a / b if is_rate else b / a for a, b in pairs]),
        "target": target,
    }


def comparisons(
    work: str, figures: dict[str, dict[str, list[float]]], ours: str, targets: dict[tuple[str, str], float | None]
) -> list[dict]:
    """A row for each other name and each measure. `targets` has those of pairs of a name and a measure."""
    return [
        comparison(work, measure, peer, column, figures[peer][measure], targets.get((peer, measure)))
        for peer in figures
        if peer != ours
        for measure, column in figures[ours].items()
    ]


def is_met(row: dict) -> bool | None:
    """Whether the median of the ratios reaches the target. `None` without a target."""
    return None if row["target"] is None else row["ratio"]["median"] >= row["target"]


def comparison_table(rows: Sequence[dict]) -> str:
    """The table of ratios. Ours is better where the ratio is above 1."""
    header = ("work", "measure", "ours", "theirs", "peer", "ratio (least … most)", "target", "met")
    lines = [header, *map(table_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in (2, 3, 6) else cell.ljust(width) for column, (cell, width) in cells
        ).rstrip()
        for cells in (enumerate(zip(line, widths, strict=True)) for line in lines)
    )


def table_cells(row: dict) -> tuple[str, ...]:
    ratio = "× {median:.2f} ({least:.2f} … {most:.2f})".format(**row["ratio"])
    medians = (format_figure(row[side]["median"]) for side in ("ours", "theirs"))
    target = "" if row["target"] is None else f"{row['target']:.2f}"
    met = {None: "", True: "yes", False: "no"}[is_met(row)]
    return row["work"], row["measure"], *medians, row["peer"], ratio, target, met


def format_figure(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    if abs(value) >= 1:
        return f"{value:.2f}"
    return f"{value:.3f}"


# ---- The command of a script

FLAGS = {
    "rounds": {"type": int, "default": 5, "help": "rounds of each measurement (default: 5)"},
    "threads": {"type": int, "default": 1, "help": "threads of each process (default: 1)"},
    "quick": {"action": "store_true", "help": "tiny models and inputs: a check of the script"},
    "save": {"action": "store_true", "help": "write the rows to benchmarks/results/<date>-<script>.json"},
}


def main(compare: Callable[..., list[dict]], **flags: dict) -> None:
    """Calls `compare` with those of the flags that it takes, prints its rows, and writes them on request."""
    script = sys.modules["__main__"]
    taken = inspect.signature(compare).parameters
    parser = argparse.ArgumentParser(description=script.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, settings in {**FLAGS, **flags}.items():
        if name in taken or name == "save":
            parser.add_argument(f"--{name}", **settings)
    arguments = vars(parser.parse_args())
    is_saved = arguments.pop("save")
    about = machine(arguments.get("threads"))
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    rows = compare(**arguments)
    if arguments.get("quick"):  # its ratios mean nothing
        rows = [{**row, "target": None} for row in rows]
    print(comparison_table(rows), flush=True)
    if is_saved:
        save_result(Path(script.__file__).stem.replace("_", "-"), about, rows)
