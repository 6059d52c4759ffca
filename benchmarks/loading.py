"""The cost of starting up: imports, and memory and time to open a checkpoint, beside transformers' own classes.

    python benchmarks/loading.py                    # 117 M parameters; some ten minutes
    python benchmarks/loading.py --quick --rounds 1 # a tiny model: a check of the script
    python benchmarks/loading.py --save             # also benchmarks/results/<date>-loading.json

Every import and every opening has its own process. Ours and the peers' take turns.

Imports: CPU seconds. The cost that `import modeling_gpt1` adds is measured in one process, after the import of the
names of transformers that any file with a model and its registration needs (`BASELINE`: the Auto classes,
PreTrainedModel and GenerationMixin, which import torch). `import tokenization` is measured after
`import modeling_gpt1`. The whole imports stand beside those of the built-in classes.

Openings: `from_pretrained`, then every weight is read once, as the first forward does. Memory is the growth of the
process's memory, divided by the size of the file. "Resident" counts the touched pages of the memory-mapped file, which
the system may reclaim at any time; "private" does not (Linux). If weights change their dtype or layout, both the
source pages and the new tensors are resident. "Read from disk" is what the kernel fetched after the file was dropped
from its cache. A file system in memory gives 0.
"""

import argparse
import gc
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import (
    SMALL,
    PrivatePeak,
    comparison,
    format_summary,
    in_turns,
    kernel_figure,
    machine,
    peak_resident_bytes,
    print_comparisons,
    private_bytes,
    reset_peak,
    resident_bytes,
    running_worker,
    save_result,
    summary,
    write_peers,
)

BASELINE = (
    "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMultipleChoice, "
    "AutoModelForSequenceClassification, GenerationMixin, PreTrainedModel"
)
# The import that comes first, and the import that is measured after it.
IMPORTS = {
    "what modeling_gpt1 adds": (BASELINE, "import modeling_gpt1"),
    "what tokenization adds": ("import modeling_gpt1", "import tokenization"),
    "modeling_gpt1": ("", "import modeling_gpt1"),
    "OpenAIGPTLMHeadModel": ("", "from transformers import OpenAIGPTLMHeadModel"),
    "GPT2LMHeadModel": ("", "from transformers import GPT2LMHeadModel"),
    "tokenization": ("", "import tokenization"),
    "OpenAIGPTTokenizer": ("", "from transformers import OpenAIGPTTokenizer"),
}
IMPORT_LIMIT, MEMORY_LIMIT = 0.3, 1.15  # in CPU seconds; as a multiple of the file's size
OPENINGS = {  # class, folder, dtype
    "GPT1ForCausalLM float32": ("GPT1ForCausalLM", "gpt1", "float32"),
    "GPT1DoubleHeadsModel float32": ("GPT1DoubleHeadsModel", "double-heads", "float32"),
    "AutoModelForCausalLM float32": ("AutoModelForCausalLM", "gpt1", "float32"),
    "GPT1ForCausalLM bfloat16": ("GPT1ForCausalLM", "gpt1", "bfloat16"),
    "GPT1ForCausalLM float32 from openai-gpt": ("GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "float32"),
    "GPT1ForCausalLM bfloat16 from openai-gpt": ("GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "bfloat16"),
    "OpenAIGPTLMHeadModel float32": ("OpenAIGPTLMHeadModel", "OpenAIGPTLMHeadModel", "float32"),
    "OpenAIGPTLMHeadModel bfloat16": ("OpenAIGPTLMHeadModel", "OpenAIGPTLMHeadModel", "bfloat16"),
    "GPT2LMHeadModel float32": ("GPT2LMHeadModel", "GPT2LMHeadModel", "float32"),
    "GPT2LMHeadModel bfloat16": ("GPT2LMHeadModel", "GPT2LMHeadModel", "bfloat16"),
}
PEERS = ("OpenAIGPTLMHeadModel", "GPT2LMHeadModel")
MEASURES = {
    "cpu_seconds": "CPU seconds",
    "seconds": "seconds",
    "resident": "resident / file",
    "private": "private / file",
    "read": "read from disk / file",
}


# ---- Imports


def measure_import(name: str) -> dict[str, float]:
    """CPU seconds and number of modules of an import, in its own process."""
    first, then = IMPORTS[name]
    code = f"""
import sys, time
{first}
modules, start = len(sys.modules), time.process_time()
{then}
print(time.process_time() - start, len(sys.modules) - modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    cpu_seconds, modules = run.stdout.split()[-2:]
    return {"cpu_seconds": float(cpu_seconds), "modules": int(modules)}


def measure_imports(rounds: int) -> dict[str, dict[str, list[float]]]:
    columns: dict[str, dict[str, list[float]]] = {name: {"cpu_seconds": [], "modules": []} for name in IMPORTS}
    for name in in_turns(list(IMPORTS), rounds):
        for measure, value in measure_import(name).items():
            columns[name][measure].append(value)
    return columns


# ---- Openings


def forget_file(path: Path) -> None:
    """Drops a file from the kernel's cache, so that reads from the disk are counted."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Opener:
    """Opens one checkpoint in its own process."""

    def __init__(self, class_name: str, folder: str, dtype: str):
        import torch
        import transformers

        import modeling_gpt1

        torch.set_num_threads(1)
        transformers.utils.logging.disable_progress_bar()
        self.model_class = getattr(modeling_gpt1, class_name, None) or getattr(transformers, class_name)
        self.folder, self.dtype = folder, getattr(torch, dtype)

    def open(self) -> dict[str, float]:
        file = Path(self.folder, "model.safetensors")
        size = file.stat().st_size
        forget_file(file)
        gc.collect()
        resident_before, read_before = resident_bytes(), kernel_figure("/proc/self/io", "read_bytes")
        reset_peak()
        private_before = private_bytes()
        with PrivatePeak() as private:
            start, cpu_start = time.perf_counter(), time.process_time()
            model = self.model_class.from_pretrained(self.folder, dtype=self.dtype)
            for parameter in model.parameters():
                parameter.detach().sum()
            seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
        return {
            "cpu_seconds": cpu_seconds,
            "seconds": seconds,
            "resident": (peak_resident_bytes() - resident_before) / size,
            "private": (private.bytes - private_before) / size,
            "read": (kernel_figure("/proc/self/io", "read_bytes") - read_before) / size,
        }


def measure_openings(folders: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    columns: dict[str, dict[str, list[float]]] = {name: {measure: [] for measure in MEASURES} for name in OPENINGS}
    for name in in_turns(list(OPENINGS), rounds):
        class_name, folder, dtype = OPENINGS[name]
        with running_worker(Opener, class_name, folders[folder], dtype) as ask:
            for measure, value in ask("open").items():
                columns[name][measure].append(value)
    return columns


def write_checkpoints(folder: str, sizes: dict[str, int]) -> dict[str, str]:
    """Writes random weights of one size as each class saves them. Ours also reads openai-gpt's."""
    from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM

    folders = write_peers(folder, sizes) | {name: f"{folder}/{name}" for name in ("gpt1", "double-heads")}
    GPT1ForCausalLM(GPT1Config(**sizes)).save_pretrained(folders["gpt1"])
    config = GPT1Config(**sizes, traversal="classification", num_labels=2)
    GPT1DoubleHeadsModel(config).save_pretrained(folders["double-heads"])
    return folders


# ---- Result


def measure(rounds: int, quick: bool) -> dict[str, dict]:
    """The figures of every round, `{"imports" or "openings": {name: {measure: [figure, …]}}}`."""
    with tempfile.TemporaryDirectory() as folder:
        folders = write_checkpoints(folder, SMALL if quick else {})
        return {"imports": measure_imports(rounds), "openings": measure_openings(folders, rounds)}


def comparisons(imports: dict, openings: dict) -> list[dict]:
    seconds = {name: columns["cpu_seconds"] for name, columns in imports.items()}
    added = seconds["what modeling_gpt1 adds"]
    limits = [IMPORT_LIMIT] * len(added)
    rows = [comparison("import modeling_gpt1: added", "CPU seconds", f"limit {IMPORT_LIMIT} s", added, limits, 1.0)]
    for peer in PEERS:
        rows.append(comparison("import modeling_gpt1", "CPU seconds", peer, seconds["modeling_gpt1"], seconds[peer]))
    peer = "OpenAIGPTTokenizer"
    rows.append(comparison("import tokenization", "CPU seconds", peer, seconds["tokenization"], seconds[peer]))
    for name, ours in openings.items():
        if name.startswith(PEERS):
            continue
        limits, resident = [MEMORY_LIMIT] * len(ours["resident"]), ours["resident"]
        rows.append(comparison(f"open {name}", "memory, × file", f"limit {MEMORY_LIMIT}", resident, limits, 1.0))
        theirs = openings[f"{PEERS[0]} {name.split()[1]}"]
        rows.append(comparison(f"open {name}", "CPU seconds", PEERS[0], ours["cpu_seconds"], theirs["cpu_seconds"]))
    return rows


def compare(rounds: int, quick: bool) -> list[dict]:
    """The rows for `run.py`. `quick` opens tiny models."""
    return comparisons(**measure(rounds, quick))


def print_figures(columns: dict[str, dict[str, list[float]]], headers: dict[str, str]) -> None:
    print(f"\n{'median (least … most)':42}" + "".join(f"{header:>25}" for header in headers.values()))
    for name, measures in columns.items():
        cells = [format_summary(summary(measures[measure])) for measure in headers]
        print(f"{name:42}" + "".join(f"{cell:>25}" for cell in cells), flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of one process of each (default: 5)")
    parser.add_argument("--quick", action="store_true", help="tiny models: a check of the script")
    parser.add_argument("--save", action="store_true", help="write the figures to benchmarks/results/<date>-….json")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    about = machine(1)
    print(", ".join(f"{name} {value}" for name, value in about.items()), flush=True)
    figures = measure(arguments.rounds, arguments.quick)
    print_figures(figures["imports"], {"cpu_seconds": "CPU seconds", "modules": "modules"})
    print_figures(figures["openings"], MEASURES)
    print()
    rows = comparisons(**figures)
    print_comparisons(rows)
    if arguments.save:
        save_result("loading", about, {**figures, "rows": rows})


if __name__ == "__main__":
    main()
