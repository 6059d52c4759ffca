"""The models, data and machine of the experiments: their fingerprints, their description in the report, and files."""

import glob
import gzip
import hashlib
import json
import math
import os
import platform
import zlib
from functools import cache
from importlib.metadata import version
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig
from transformers.utils import CONFIG_NAME, cached_file
from transformers.utils.hub import extract_commit_hash

from tokenization.errors import UserError
from tokenization.file_kinds import checksum_of_file
from tokenization.wording import counted

from ..families import family_of_checkpoint
from ..inference.devices import accelerator_name
from ..storage.writing import atomic_file

# The files of a model's folder that decide how it behaves.
MODEL_FILES = ("config.json", "tokenizer*.json", "vocab.json", "merges.txt", "*.safetensors", "pytorch_model*.bin")
# Fields of a configuration that the report shows.
SIZES = (
    "num_hidden_layers",
    "hidden_size",
    "lstm_hidden_size",
    "num_attention_heads",
    "max_position_embeddings",
    "vocab_size",
)


@cache
def load_config(model: str) -> PreTrainedConfig:
    """The configuration as `gpt1 finetune` opens it, so that the fields have the names that the report knows."""
    return family_of_checkpoint(model).open_config(model)


def model_name(model: str) -> str:
    config = load_config(model)
    layers = counted(config.num_hidden_layers, "layer")
    width = getattr(config, "lstm_hidden_size", config.hidden_size)
    return f"{'LSTM' if config.model_type == 'gpt1-lstm' else 'GPT-1'} ({layers}, {width} wide)"


# ---- Fingerprints of models and data


@cache
def model_fingerprint(model: str) -> str:
    """SHA-256 of the files of a model's folder, or name and commit of a model of the hub."""
    folder = Path(model)
    if not folder.is_dir():
        return f"{model}@{extract_commit_hash(cached_file(model, CONFIG_NAME), None)}"
    digest = hashlib.sha256()
    for path in sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern)}):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def data_fingerprint(folders: tuple[Path, ...]) -> dict[str, str]:
    """Name and checksum of each file of the first folder that has files.

    Hidden files are left out: those that a system adds, such as .DS_Store, decide no result.
    """
    for folder in folders:
        files = sorted(path for path in folder.glob("*") if path.is_file() and not path.name.startswith("."))
        if files:
            return {path.name: checksum_of_file(path) for path in files}
    return {}


@cache
def text_fingerprint(sources: tuple[str, ...]) -> list[str]:
    """Checksum of each file of a text."""
    found: set[Path] = set()
    for source in sources:
        path = Path(source)
        if path.is_dir():
            found.update(path.rglob("*"))
        else:
            found.update(map(Path, glob.glob(source, recursive=True)))
    return sorted(checksum_of_file(path) for path in found if path.is_file())


def describe_model(model: str, run_folder: str | None) -> dict:
    """Name, number of parameters, sizes, and what the files of `gpt1 pretrain` tell of its run; None is unknown."""
    config = load_config(model)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    # A checkpoint does not record the rest of its run.
    folder = Path(model if Path(model, "trainer_state.json").is_file() else run_folder or model)
    results, state = read_json(folder / "all_results.json"), read_json(folder / "trainer_state.json")
    perplexity = results.get("eval_perplexity", math.nan)
    return {
        "name": model_name(model),
        "family": config.model_type,
        "parameters": empty.num_parameters(),
        "config": {name: getattr(config, name) for name in SIZES if hasattr(config, name)},
        "pretraining": {
            "tokens": results.get("num_input_tokens_seen", state.get("num_input_tokens_seen")),
            "updates": state.get("global_step"),
            "perplexity": perplexity if math.isfinite(perplexity) else None,  # of a run that diverged; JSON has no NaN
        },
    }


def read_json(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_finished_cells(path: Path, cells: list[dict]) -> None:
    """Writes the cells of a report, compressed; the same cells give the same bytes."""
    text = json.dumps(cells, ensure_ascii=False)
    with atomic_file(path) as file:
        file.buffer.write(gzip.compress(text.encode("utf-8"), mtime=0))


def read_finished_cells(path: str | Path) -> list[dict]:
    """The cells of a report's cells.json.gz, as [`build_report`] takes them.

    Raises:
        UserError: the file is another one, or damaged.
    """
    try:
        return json.loads(gzip.decompress(Path(path).read_bytes()))
    except (gzip.BadGzipFile, EOFError, zlib.error, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as cells ({error}). Pass the cells.json.gz that `gpt1 reproduce` writes beside "
            "its report, or write it again with --only_report true."
        ) from error


def environment() -> dict:
    """The machine and the versions that figures and times depend on."""
    return {
        "processor": processor_name(),
        "cores": os.cpu_count(),
        "accelerator": accelerator_name() or "none",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "tokenizers", "datasets", "accelerate")},
    }


def processor_name() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
