"""Folders that `save_pretrained` of gpt1 or of transformers' openai-gpt wrote."""

import re
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel
from transformers.utils import (
    CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)

from tokenization import GPT1Tokenizer, control_tokens

from ..configuration_gpt1 import DOUBLE_HEADS_NEEDED, GPT1Config
from ..modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
    GPT1PreTrainedModel,
)
from .files import TOKENIZER_NAMES, Format, read_json

MASK_BUFFER = re.compile(r"attn\.bias$")  # in openai-gpt files of old releases

CLASSES: dict[str, dict[str, type[PreTrainedModel]]] = {
    "gpt1": {
        model_class.__name__: model_class
        for model_class in (
            GPT1Model,
            GPT1ForCausalLM,
            GPT1DoubleHeadsModel,
            GPT1ForSequenceClassification,
            GPT1ForMultipleChoice,
        )
    },
    # Each is opened as our class with the same weights.
    "openai-gpt": {
        "OpenAIGPTModel": GPT1Model,
        "OpenAIGPTLMHeadModel": GPT1ForCausalLM,
        "OpenAIGPTDoubleHeadsModel": GPT1DoubleHeadsModel,
        "OpenAIGPTForSequenceClassification": GPT1ForSequenceClassification,
    },
}


def read_folder(folder: Path, given: Format) -> tuple[GPT1PreTrainedModel, GPT1Tokenizer | None]:
    """Reads the model of a folder that `save_pretrained` wrote, and its tokenizer if it has one.

    Raises:
        ValueError: see [`convert_checkpoint`].
    """
    config_path = folder / CONFIG_NAME
    config = read_json(config_path, dict)
    architecture = (config.get("architectures") or [None])[0]
    model_class = CLASSES[given].get(architecture)
    if model_class is None:
        raise ValueError(
            f"{config_path}: `architectures` names {architecture}, but one of {', '.join(CLASSES[given])} is needed."
        )
    if architecture == "OpenAIGPTDoubleHeadsModel":
        check_head(config, config_path)
    dtype = read_dtype(find_weights(folder))
    model, report = model_class.from_pretrained(
        folder, dtype=dtype, output_loading_info=True, ignore_mismatched_sizes=True
    )
    if report["mismatched_keys"]:
        name, in_file, in_model = sorted(report["mismatched_keys"])[0]
        raise ValueError(
            f"{folder}: {name} has the shape {list(in_file)} in the weights, but {list(in_model)} according to "
            f"{CONFIG_NAME}. Give files of the same model."
        )
    wrong = [f"{kind.replace('_keys', '')}: {', '.join(sorted(keys))}" for kind, keys in report.items() if keys]
    if wrong:
        raise ValueError(
            f"{folder}: the weights do not match {architecture}, the class that {CONFIG_NAME} names "
            f"({'; '.join(wrong)}). Give files of the same model."
        )
    return model, read_tokenizer(folder, model.config)


def check_head(config: dict[str, Any], path: Path) -> None:
    for name, needed in DOUBLE_HEADS_NEEDED.items():
        if config.get(name, needed) != needed:
            raise ValueError(
                f"{path}: `{name}` is {config[name]!r}, but the task head of gpt1 supports only {needed!r}. Save the "
                "model as OpenAIGPTLMHeadModel to convert it without its task head."
            )


def find_weights(folder: Path) -> list[Path]:
    """The files that hold the weights, as `from_pretrained` chooses them."""
    for name, index in ((SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME), (WEIGHTS_NAME, WEIGHTS_INDEX_NAME)):
        if (folder / name).is_file():
            return [folder / name]
        if (folder / index).is_file():
            shards = sorted(set(read_json(folder / index, dict).get("weight_map", {}).values()))
            missing = [shard for shard in shards if not (folder / shard).is_file()]
            if missing:
                raise ValueError(f"{folder} lacks {', '.join(missing)}, which {index} lists. Fetch them again.")
            return [folder / shard for shard in shards]
    raise ValueError(f"{folder} has no weights: {SAFE_WEIGHTS_NAME} is needed. Fetch it again.")


def read_dtype(paths: list[Path]) -> torch.dtype:
    """The dtype of all weights. Loading in it changes no number, whatever the configuration says."""
    dtypes = {}
    for path in paths:
        dtypes |= safetensors_dtypes(path) if path.suffix == ".safetensors" else pickle_dtypes(path)
    if len(dtypes) != 1:
        raise ValueError(
            f"{paths[0].parent}: the weights have {len(dtypes)} dtypes ({', '.join(sorted(dtypes))}), but all must "
            "have the same. Save the model again with one `dtype`."
        )
    return next(iter(dtypes.values()))


def safetensors_dtypes(path: Path) -> dict[str, torch.dtype]:
    """The dtypes of the weights in a safetensors file, by the names that safetensors has for them."""
    dtypes = {}
    try:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():
                dtype = tensors.get_slice(name).get_dtype()
                if dtype not in dtypes and not MASK_BUFFER.search(name):
                    dtypes[dtype] = tensors.get_tensor(name).dtype
    except SafetensorError as error:
        raise ValueError(f"{path} is not a complete safetensors file ({error}). Fetch it again.") from error
    return dtypes


def pickle_dtypes(path: Path) -> dict[str, torch.dtype]:
    """The dtypes of the weights in a file of `torch.save`, by name; opened with `weights_only=True`."""
    try:
        # Files of torch before 1.6 are no archives and cannot be memory-mapped.
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zipfile(path))
        weights = {name: weight for name, weight in tensors.items() if isinstance(weight, torch.Tensor)}
    except Exception as error:  # a damaged pickle can raise any error
        raise ValueError(
            f"{path} is not a complete file of weights, or contains more than weights ({type(error).__name__}). Fetch "
            "it again."
        ) from error
    types = {weight.dtype for name, weight in weights.items() if not MASK_BUFFER.search(name)}
    return {str(dtype).removeprefix("torch."): dtype for dtype in types}


def read_tokenizer(folder: Path, config: GPT1Config) -> GPT1Tokenizer | None:
    whole, _, vocab, merges = (folder / name for name in TOKENIZER_NAMES)
    if not whole.is_file() and not vocab.is_file() and not merges.is_file():
        return None
    if not whole.is_file() and vocab.is_file() != merges.is_file():
        present, absent = (vocab, merges) if vocab.is_file() else (merges, vocab)
        raise ValueError(f"{folder} has {present.name}, but lacks {absent.name}. Fetch it, or tokenizer.json.")
    tokenizer = GPT1Tokenizer.from_pretrained(folder)
    try:
        control_tokens.check_vocabulary(config, tokenizer)
    except ValueError as error:
        raise ValueError(f"{whole if whole.is_file() else vocab}: {error}") from error
    return tokenizer
