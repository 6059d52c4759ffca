"""Opens a model with the heads that it was saved with, and its tokenizer; runs no code that comes with it."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import PreTrainedTokenizerBase

from tokenization import open_tokenizer
from tokenization.control_tokens import CONTROL_TOKENS

from .. import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from ..conversion.folders import CLASSES
from ..inference.devices import default_device

# A model without a head reads as a language model, whose head is tied to its embeddings.
WITHOUT_HEAD = {"GPT1Model": GPT1ForCausalLM, "OpenAIGPTModel": GPT1ForCausalLM}
MODEL_CLASSES = {**CLASSES["gpt1"], **CLASSES["openai-gpt"], **WITHOUT_HEAD}


class PlaygroundError(ValueError):
    """Something that the person at the page can mend; the text says what and how."""


@dataclass(frozen=True)
class Opened:
    """A model, its tokenizer and how it reads: a traversal, or None for a language model without a task."""

    name: str
    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    traversal: str | None

    @property
    def max_length(self) -> int:
        return self.model.config.max_position_embeddings

    @property
    def control_ids(self) -> list[int | None]:
        """Of `[s]`, `[$]` and `[e]`."""
        return [getattr(self.tokenizer, f"{name}_id", None) for name in CONTROL_TOKENS]

    @property
    def has_lm_head(self) -> bool:
        return hasattr(self.model, "lm_head")


def open_model(name: str) -> Opened:
    """Opens a folder or a model of the hub with the class of its heads; runs no code that comes with it.

    Raises:
        PlaygroundError: nothing is there, or it is no GPT-1, or its weights or tokenizer are missing or do not fit.
    """
    name = name.strip()
    config = read_config(name)
    try:
        model, loaded = model_class(config).from_pretrained(name, use_safetensors=True, output_loading_info=True)
        tokenizer = open_tokenizer(name)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise PlaygroundError(f"“{name}” is a GPT-1, but could not be opened: {first_line(error)}") from error
    traversal = model.config.traversal if hasattr(model, "task_head") else None
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"]))
        raise PlaygroundError(
            f"“{name}” lacks weights of its {type(model).__name__}: {missing}. Save the model again."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise PlaygroundError(
            f"The tokenizer of “{name}” has {len(tokenizer)} tokens and the model {model.config.vocab_size} "
            "embeddings. They must belong together: save both into the same folder after a training."
        )
    opened = Opened(name, model.eval().to(default_device()), tokenizer, traversal)
    if traversal is not None and None in opened.control_ids:
        raise PlaygroundError(
            f"“{name}” has a task head, but its tokenizer has no control tokens [s], [$] and [e]. Fine-tune it with "
            "tokenizer.add_control_tokens(model) and save the tokenizer with the model."
        )
    return opened


def read_config(name: str) -> dict:
    """The fields of `config.json`, checked to be GPT-1's."""
    if not name:
        raise PlaygroundError("No model is named. Give a folder, or the id of a model of the hub such as owner/name.")
    is_folder = Path(name).is_dir()
    if not is_folder and (name[0] in "./~\\" or name.count("/") > 1):
        raise PlaygroundError(f"There is no folder “{name}”. Give a folder that holds a saved model, or a hub id.")
    try:
        config, _ = GPT1Config.get_config_dict(name)
    except (OSError, ValueError) as error:
        where = "as a folder" if is_folder else "from the hub, and there is no such folder"
        raise PlaygroundError(f"“{name}” could not be opened {where}: {first_line(error)}") from error
    if config.get("model_type") != GPT1Config.model_type:
        found = f"is a model of the type “{config['model_type']}”" if "model_type" in config else "names no model type"
        raise PlaygroundError(f"“{name}” {found}. This page reads gpt1, openai-gpt and gpt2 models.")
    return config


def model_class(config: dict) -> type:
    """The class that has all heads of the saved model, and no others."""
    for architecture in config.get("architectures") or []:
        if architecture in MODEL_CLASSES:
            return MODEL_CLASSES[architecture]
    return GPT1ForCausalLM if config.get("traversal") is None else GPT1DoubleHeadsModel


def first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__


@lru_cache(maxsize=2)
def _open_version(name: str, changed: int | None) -> Opened:
    return open_model(name)


def open_cached(name: str) -> Opened:
    """As `open_model`; the last two models stay in memory, a folder as long as nobody saves into it."""
    files = [file for file in Path(name.strip() or "none").glob("*.safetensors*") if file.is_file()]
    return _open_version(name, max((file.stat().st_mtime_ns for file in files), default=None))
