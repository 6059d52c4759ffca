"""The cost of starting up: imports, and memory and time to open a checkpoint, beside transformers' own classes.

    python benchmarks/loading.py                    # 117 M parameters; some ten minutes
    python benchmarks/loading.py --quick --rounds 1 # a tiny model: a check of the script
    python benchmarks/loading.py --save             # also benchmarks/results/<date>-loading.json

Every import and every opening has its own process. Ours and the peers' take turns.

Imports: CPU seconds. The cost that `import modeling_gpt1` adds is measured in one process, after the import of the
names of transformers that any file with a model and its registration needs (`BASELINE`: the Auto classes,
PreTrainedModel and GenerationMixin, which import torch). The whole imports stand beside those of the built-in classes.

Openings: `from_pretrained`, then every weight is read once, as the first forward does. Memory is the growth of the
process's resident memory, divided by the size of the file. It counts the touched pages of the memory-mapped file,
which the system may reclaim at any time. If weights change their dtype or layout, both the source pages and the new
tensors are resident. The file is dropped from the kernel's cache before.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import MIB, SMALL, comparison, main, resident_bytes, rounds_of, running_worker, timed, write_peers

BASELINE = (
    "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMultipleChoice, "
    "AutoModelForSequenceClassification, GenerationMixin, PreTrainedModel"
)
COMMANDS = str(Path(__file__).parents[1] / "modeling_gpt1" / "commands")
# The import that comes first, and the import that is measured after it.
IMPORTS = {
    "what modeling_gpt1 adds": (BASELINE, "import modeling_gpt1"),
    "modeling_gpt1": ("", "import modeling_gpt1"),
    "OpenAIGPTLMHeadModel": ("", "from transformers import OpenAIGPTLMHeadModel"),
    "GPT2LMHeadModel": ("", "from transformers import GPT2LMHeadModel"),
    "tokenization": ("", "import tokenization"),
    "OpenAIGPTTokenizer": ("", "from transformers import OpenAIGPTTokenizer"),
    # Installed without modeling_gpt1 above it.
    "gpt1 --help": (f"import sys; sys.path.insert(0, {COMMANDS!r})", "from entry import main; main(['--help'])"),
}
IMPORT_LIMIT, HELP_LIMIT, MEMORY_LIMIT = 0.3, 0.1, 1.15  # in CPU seconds; as a multiple of the file's size
OPENINGS = {  # class, folder, dtype
    "GPT1ForCausalLM float32": ("GPT1ForCausalLM", "gpt1", "float32"),
    "GPT1DoubleHeadsModel float32": ("GPT1DoubleHeadsModel", "double-heads", "float32"),
    "AutoModelForCausalLM float32": ("AutoModelForCausalLM", "gpt1", "float32"),
    "GPT1ForCausalLM bfloat16": ("GPT1ForCausalLM", "gpt1", "bfloat16"),
    "GPT1ForCausalLM float32 from openai-gpt": ("GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "float32"),
    "GPT1ForCausalLM bfloat16 from openai-gpt": ("GPT1ForCausalLM", "OpenAIGPTLMHeadModel", "bfloat16"),
    "OpenAIGPTLMHeadModel float32": ("OpenAIGPTLMHeadModel", "OpenAIGPTLMHeadModel", "float32"),
    "OpenAIGPTLMHeadModel bfloat16": ("OpenAIGPTLMHeadModel", "OpenAIGPTLMHeadModel", "bfloat16"),
}
PEERS = ("OpenAIGPTLMHeadModel", "GPT2LMHeadModel")


# ---- Imports


def measure_import(name: str) -> dict[str, float]:
    """CPU seconds of an import, in its own process."""
    first, then = IMPORTS[name]
    code = f"import time\n{first}\nstart = time.process_time()\n{then}\nprint(time.process_time() - start)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"CPU seconds": float(run.stdout.split()[-1])}


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
        self.folder = folder
        self.dtype = getattr(torch, dtype)

    def open(self) -> dict[str, float]:
        file = Path(self.folder, "model.safetensors")
        forget_file(file)
        before = resident_bytes() / MIB
        measured = timed(self.open_and_read)
        size = file.stat().st_size / MIB
        return {"memory, × file": (measured["peak MiB"] - before) / size, "CPU seconds": measured["CPU seconds"]}

    def open_and_read(self) -> None:
        model = self.model_class.from_pretrained(self.folder, dtype=self.dtype)
        for parameter in model.parameters():
            parameter.detach().sum()


def write_checkpoints(folder: str, sizes: dict[str, int]) -> dict[str, str]:
    """Writes random weights of one size as each class saves them. Ours also reads openai-gpt's."""
    from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM

    folders = write_peers(folder, sizes) | {name: f"{folder}/{name}" for name in ("gpt1", "double-heads")}
    GPT1ForCausalLM(GPT1Config(**sizes)).save_pretrained(folders["gpt1"])
    config = GPT1Config(**sizes, traversal="classification", num_labels=2)
    GPT1DoubleHeadsModel(config).save_pretrained(folders["double-heads"])
    return folders


# ---- Result


def compare(rounds: int, quick: bool) -> list[dict]:
    """The rows for `run.py`. `quick` opens tiny models."""
    with tempfile.TemporaryDirectory() as folder:
        folders = write_checkpoints(folder, SMALL if quick else {})
        imports = rounds_of(list(IMPORTS), rounds, measure_import)

        def measure_opening(name: str) -> dict[str, float]:
            class_name, of_class, dtype = OPENINGS[name]
            with running_worker(Opener, class_name, folders[of_class], dtype) as ask:
                return ask("open")

        openings = rounds_of(list(OPENINGS), rounds, measure_opening)
    unit, memory = "CPU seconds", "memory, × file"
    seconds = {name: of_name[unit] for name, of_name in imports.items()}
    added = seconds["what modeling_gpt1 adds"]
    of_help = seconds["gpt1 --help"]
    rows = [
        comparison("import modeling_gpt1: added", unit, f"limit {IMPORT_LIMIT} s", added, [IMPORT_LIMIT] * rounds, 1),
        comparison("gpt1 --help", unit, f"limit {HELP_LIMIT} s", of_help, [HELP_LIMIT] * rounds, 1.0),
    ]
    pairs = [*(("modeling_gpt1", peer) for peer in PEERS), ("tokenization", "OpenAIGPTTokenizer")]
    rows += [comparison(f"import {ours}", unit, peer, seconds[ours], seconds[peer]) for ours, peer in pairs]
    for name, ours in openings.items():
        if not name.startswith(PEERS):
            limits = [MEMORY_LIMIT] * rounds
            theirs = openings[f"{PEERS[0]} {name.split()[1]}"]
            rows.append(comparison(f"open {name}", memory, f"limit {MEMORY_LIMIT}", ours[memory], limits, 1.0))
            rows.append(comparison(f"open {name}", unit, PEERS[0], ours[unit], theirs[unit]))
    return rows


if __name__ == "__main__":
    main(compare)
