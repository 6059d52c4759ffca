"""The conversion of a model folder: its format, what may be replaced, the new folder and its manifest."""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from transformers.dynamic_module_utils import get_relative_import_files
from transformers.utils import (
    CONFIG_NAME,
    GENERATION_CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    WEIGHTS_INDEX_NAME,
)

from .. import modeling_gpt1
from ..configuration_gpt1 import OPENAI_GPT_MODEL_TYPE, GPT1Config
from ..storage.writing import whole_or_absent
from .files import MANIFEST_NAME, PARAMS_NAMES, RELEASE_NAMES, SHAPES_NAME, TOKENIZER_NAMES, Format, read_json
from .folders import CLASSES, find_weights, read_folder
from .openai_gpt import to_openai_gpt
from .release import read_release

# What `save_pretrained` of models and tokenizers, the hub and the converter write beside the code of a model.
WRITTEN_NAMES = frozenset(
    {
        *(CONFIG_NAME, GENERATION_CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME, MANIFEST_NAME),
        *(*TOKENIZER_NAMES, "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
        *("README.md", ".gitattributes"),
    }
)
WEIGHTS_FILE = re.compile(r"(model|pytorch_model)(-\d{5}-of-\d{5})?\.(safetensors|bin)")
MOST_NAMES = 5


def convert_checkpoint(
    source: str | os.PathLike,
    output_dir: str | os.PathLike,
    target: Literal["gpt1", "openai-gpt"] | None = None,
    num_attention_heads: int = 12,
    overwrite: bool = False,
) -> Path:
    """Converts a model folder; its files tell the format.

    Args:
        source (path): OpenAI's release, or a folder of transformers' openai-gpt or of gpt1.
        output_dir (path): the new folder. It appears whole, by one rename, or not at all. If it is a link, the link
            stays and its target is replaced.
        target (`str`, *optional*): `"gpt1"` or `"openai-gpt"`. Default: gpt1, and openai-gpt for a folder of gpt1.
        num_attention_heads (`int`, defaults to 12): heads of OpenAI's release, whose files do not tell the number.
        overwrite (`bool`): replace the model in `output_dir`, if the folder has nothing else in it.

    Returns:
        `Path` of the manifest in `output_dir`, which has name, shape, dtype and SHA-256 of every tensor (see
        [`describe_tensors`]) and the SHA-256 of the source's files.

    Raises:
        ValueError: a file of the source is missing, damaged or does not belong to the others; the target's classes
            have no place for a weight; `output_dir` is not empty, or cannot be replaced. The text names the file.
    """
    source, output_dir = Path(source), Path(output_dir)
    given = find_format(source)
    if target is None:
        target = "openai-gpt" if given == "gpt1" else "gpt1"
    if target not in ("gpt1", "openai-gpt") or target == given:
        raise ValueError(
            f"{source} is in the format {given!r} and cannot be converted to {target!r}. Choose "
            f"{' or '.join(repr(name) for name in ('gpt1', 'openai-gpt') if name != given)}."
        )
    check_output(source, output_dir, overwrite)
    if given == "openai":
        model, tokenizer = read_release(source, num_attention_heads)
    else:
        model, tokenizer = read_folder(source, given)
    if target == "openai-gpt":
        model = to_openai_gpt(model, source)
    with whole_or_absent(output_dir.resolve()) as staging:
        model.save_pretrained(staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        manifest = {
            "format": target,
            "architecture": type(model).__name__,
            "source": {"format": given, "files": hash_files(files_of(source, given))},
            "tensors": describe_tensors(staging),
        }
        (staging / MANIFEST_NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return output_dir / MANIFEST_NAME


def find_format(source: Path) -> Format:
    """The format of a model folder.

    Raises:
        ValueError: there is no such folder, or its format is unknown.
    """
    if not source.is_dir():
        raise ValueError(
            f"{source} is not a folder. Give a folder on this machine; `hf download openai-community/openai-gpt "
            "--local-dir …` fetches one from the hub."
        )
    if not (source / CONFIG_NAME).is_file():
        if any((source / name).is_file() for name in (SHAPES_NAME, *PARAMS_NAMES)):
            return "openai"
        raise ValueError(
            f"{source} has neither {CONFIG_NAME} nor {SHAPES_NAME}. Give OpenAI's release (the folder `model` of "
            "finetune-transformer-lm) or a folder that `save_pretrained` wrote."
        )
    model_type = read_json(source / CONFIG_NAME, dict).get("model_type")
    if model_type not in CLASSES:
        raise ValueError(
            f"{source / CONFIG_NAME}: the `model_type` is {model_type!r}, but only {GPT1Config.model_type!r} and "
            f"{OPENAI_GPT_MODEL_TYPE!r} can be converted."
        )
    return model_type


def check_output(source: Path, output_dir: Path, overwrite: bool) -> None:
    """Checks before any work is done that the new folder can be made.

    Raises:
        ValueError: `output_dir` is the source, a file, a folder that cannot be moved, or not empty.
    """
    if output_dir.resolve() == source.resolve():
        raise ValueError(f"{output_dir} is the source itself. Pass another output folder.")
    if output_dir.resolve() == Path.cwd() or os.path.ismount(output_dir.resolve()):
        raise ValueError(
            f"{output_dir} is the current folder or the root of a disk, which cannot be replaced. Pass a folder "
            f"inside it, such as {output_dir / 'model'}."
        )
    if output_dir.exists() and not output_dir.is_dir():
        raise ValueError(f"{output_dir} is a file. Pass another output folder.")
    entries = list(output_dir.iterdir()) if output_dir.is_dir() else []
    if entries and not overwrite:
        raise ValueError(f"{output_dir} is not empty. Pass another output folder, or `overwrite=True` to replace it.")
    if entries and not (output_dir / CONFIG_NAME).is_file():
        raise ValueError(
            f"{output_dir} contains no model ({CONFIG_NAME} is missing), so it was not replaced. Pass another output "
            "folder."
        )
    others = find_others(entries)
    if others:
        named = ", ".join(others[:MOST_NAMES]) + (f" and {len(others) - MOST_NAMES} more" * (len(others) > MOST_NAMES))
        raise ValueError(
            f"{output_dir} contains more than a model ({named}), so it was not replaced. Move the rest away, or pass "
            "another output folder."
        )


def find_others(entries: list[Path]) -> list[str]:
    """Sorted names of the entries that are not part of a saved model."""
    start = Path(modeling_gpt1.__file__)
    code = {start.name, *(Path(path).name for path in get_relative_import_files(start))}
    return sorted(
        entry.name
        for entry in entries
        if entry.is_dir() or not (entry.name in WRITTEN_NAMES | code or WEIGHTS_FILE.fullmatch(entry.name))
    )


def describe_tensors(folder: Path) -> list[dict[str, Any]]:
    """Name, shape, dtype and SHA-256 of every tensor in the safetensors files of `folder`, by name.

    The hash is that of the tensor's bytes in the file: row-major, little-endian.
    """
    described = []
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as tensors:
            described += [describe_tensor(name, tensors.get_tensor(name)) for name in tensors.keys()]
    return sorted(described, key=lambda tensor: tensor["name"])


def describe_tensor(name: str, tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "name": name,
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "sha256": hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy()).hexdigest(),
    }


def hash_files(paths: list[Path]) -> dict[str, str]:
    """SHA-256 of files, by name."""
    hashes = {}
    for path in paths:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
        hashes[path.name] = digest.hexdigest()
    return hashes


def files_of(source: Path, given: Format) -> list[Path]:
    """The files that a conversion reads."""
    names = RELEASE_NAMES if given == "openai" else (CONFIG_NAME, *TOKENIZER_NAMES, SAFE_WEIGHTS_INDEX_NAME)
    paths = [source / name for name in names if (source / name).is_file()]
    return paths if given == "openai" else [*paths, *find_weights(source)]
