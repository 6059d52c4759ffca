"""Opens a model with the heads that it was saved with, and its tokenizer. Never runs code that comes with it."""

import logging
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path

import torch
from huggingface_hub import hf_hub_download, is_offline_mode, model_info, snapshot_download
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, StrictDataclassError
from huggingface_hub.utils import filter_repo_objects, validate_repo_id
from safetensors import safe_open
from transformers import PreTrainedTokenizerBase
from transformers.utils import CONFIG_NAME

from tokenization import open_tokenizer
from tokenization.control_tokens import CONTROL_TOKENS

from .. import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM
from ..checks_gpt1 import check_place
from ..conversion import CLASSES
from ..inference.devices import default_device

logger = logging.getLogger(__name__)

# A model without a head opens as a language model, whose head is tied to the embeddings.
WITHOUT_HEAD = {"GPT1Model": GPT1ForCausalLM, "OpenAIGPTModel": GPT1ForCausalLM}
MODEL_CLASSES = {**CLASSES["gpt1"], **CLASSES["openai-gpt"], **WITHOUT_HEAD}
TENSORS_OF_A_LAYER = 12  # in openai-gpt; gpt1 has more
NEEDED_FILES = ("*.json", "*.safetensors", "merges.txt")
# Limits on what one visitor may ask of the machine.
MOST_WEIGHTS = 2_000_000_000  # of a model that the host has not listed; the largest GPT-2 has 1.6 billion
BYTES_OF_A_WEIGHT = 4  # float32
MOST_TOKENS = 2_048
MOST_NAME = 96  # characters; the hub has no longer ids


class PlaygroundError(ValueError):
    """A problem that the person at the page can fix. The text says what it is and how to fix it."""


@dataclass(frozen=True)
class Opened:
    """A model, its tokenizer and its traversal, which is None for a language model without a task."""

    name: str
    model: torch.nn.Module
    tokenizer: PreTrainedTokenizerBase
    traversal: str | None

    @property
    def max_length(self) -> int:
        return min(self.model.config.max_position_embeddings, MOST_TOKENS)

    @property
    def control_ids(self) -> list[int | None]:
        """The ids of `[s]`, `[$]` and `[e]`."""
        return [getattr(self.tokenizer, f"{name}_id", None) for name in CONTROL_TOKENS]

    @property
    def has_lm_head(self) -> bool:
        return hasattr(self.model, "lm_head")


class Models:
    """The models that visitors may open: those that the host lists, and public models of the hub.

    Args:
        listed: folders or hub ids.
        only_listed: allow only the listed models.

    Raises:
        OSError: a listed name is not a folder and cannot be a hub id.
    """

    def __init__(self, listed: list[str], only_listed: bool = False):
        self.listed, self.only_listed = short_names(listed), only_listed

    def open(self, name: str) -> Opened:
        """Opens a model by its name on the page or its hub id. The most recent ones stay in memory.

        Raises:
            PlaygroundError: see `open_folder`. Also if visitors may not open the model, whether it exists or not.
        """
        name = (name or "").strip()
        if name in self.listed:
            source = self.listed[name]
            return _open_listed(name, source, last_change(source))
        if self.only_listed:
            raise PlaygroundError(f"“{shorten(name)}” is not one of this page's models. Choose one from the list.")
        if not name:
            raise PlaygroundError(
                "No model was given. Choose one from the list, or enter the id of a model on the hub."
            )
        try:
            validate_repo_id(name)
        except HFValidationError as error:
            raise PlaygroundError(
                f"“{shorten(name)}” is neither in the list nor the id of a model on the hub (owner/name). The host of "
                "this page can add a folder to the list."
            ) from error
        return _open_public(name)


@lru_cache(maxsize=2)
def _open_listed(name: str, source: str, changed: int | None) -> Opened:
    return open_folder(source if Path(source).is_dir() else fetch(source), name)


@lru_cache(maxsize=1)
def _open_public(name: str) -> Opened:
    return open_folder(fetch(name, MOST_WEIGHTS, token=False), name)


def short_names(models: list[str]) -> dict[str, str]:
    """Models by the name that visitors see: a hub id, or the shortest end of a folder's path that is unique."""
    for model in models:
        check_place(model)
    paths = {Path(model).resolve().parts if Path(model).is_dir() else (model,): model for model in models}
    names = {}
    for path, model in paths.items():
        for count in range(1, len(path) + 1):
            name = "/".join(path[-count:])
            if all(name != "/".join(other[-count:]) for other in paths if other != path):
                break
        names[name] = model
    return names


def last_change(folder: str) -> int | None:
    """The time at which a folder's weights were saved, in nanoseconds. None for a hub id."""
    files = [file for file in Path(folder).glob("*.safetensors*") if file.is_file()]
    return max((file.stat().st_mtime_ns for file in files), default=None)


def shorten(name: str) -> str:
    return name if len(name) <= MOST_NAME else f"{name[:MOST_NAME]}…"


def fetch(repo_id: str, most_weights: float = float("inf"), token: bool | None = None) -> str:
    """Downloads a model of the hub and returns its folder. A local path of the same name is ignored.

    Args:
        repo_id: a valid id.
        most_weights: a model with more weights, by its configuration or by the size of its files in float32, is
            refused before it is downloaded.
        token: False allows only public models, None every model that the host may read.

    Raises:
        PlaygroundError: the model does not exist or is too large, or the hub cannot be reached.
    """
    try:
        is_limited = most_weights < float("inf") and not is_offline_mode()  # then nothing is downloaded
        revision = check_files(repo_id, most_weights, token) if is_limited else None
        config = hf_hub_download(repo_id, CONFIG_NAME, token=token, revision=revision)
        weights, _ = asked_sizes(repo_id, read_config(str(Path(config).parent), repo_id))
        if weights > most_weights:
            raise PlaygroundError(
                f"“{repo_id}” has at least {weights:,} weights; this page accepts at most {most_weights:,}. The host "
                "of this page can add the model to the list."
            )
        return snapshot_download(repo_id, allow_patterns=list(NEEDED_FILES), token=token, revision=revision)
    except PlaygroundError:
        raise
    except RepositoryNotFoundError as error:
        raise PlaygroundError(f"The hub has no model “{repo_id}” that this page can access. Check the id.") from error
    except Exception as error:
        logger.warning("%s could not be fetched", repo_id, exc_info=True)
        raise PlaygroundError(
            f"“{repo_id}” could not be fetched from the hub ({type(error).__name__}). Check the id, or try again "
            "later."
        ) from error


def check_files(repo_id: str, most_weights: float, token: bool | None) -> str:
    """The commit of a repository whose needed files are no larger than so many weights of float32."""
    info = model_info(repo_id, files_metadata=True, token=token)
    files = filter_repo_objects(info.siblings, allow_patterns=list(NEEDED_FILES), key=lambda file: file.rfilename)
    size, most = sum(file.size for file in files), most_weights * BYTES_OF_A_WEIGHT
    if size > most:
        raise PlaygroundError(
            f"The files of “{repo_id}” are {size:,} bytes large; this page accepts at most {most:,}. The host of this "
            "page can add the model to the list."
        )
    return info.sha


def open_folder(folder: str, name: str) -> Opened:
    """Opens a folder with the class that matches its heads. Never runs code that comes with it.

    Raises:
        PlaygroundError: the model is not a GPT-1, or its weights or tokenizer are missing or do not fit. The text
            reveals nothing about the machine.
    """
    try:
        config = read_config(folder, name)
        check_sizes(folder, name, config)
        check_fields(name, config)
        return open_heads(folder, name, config)
    except PlaygroundError:
        raise
    except Exception as error:  # a folder that somebody else made may fail in any way
        logger.warning("%s could not be opened", folder, exc_info=True)
        raise PlaygroundError(
            f"“{name}” could not be opened ({type(error).__name__}). The server's log has the details."
        ) from error


def open_heads(folder: str, name: str, config: dict) -> Opened:
    model, loaded = model_class(config).from_pretrained(folder, use_safetensors=True, output_loading_info=True)
    tokenizer = open_tokenizer(folder)
    traversal = model.config.traversal if hasattr(model, "task_head") else None
    if loaded["missing_keys"]:
        missing = ", ".join(sorted(loaded["missing_keys"]))
        raise PlaygroundError(
            f"“{name}” lacks weights of its {type(model).__name__}: {missing}. Save the model again."
        )
    if len(tokenizer) > model.config.vocab_size:
        raise PlaygroundError(
            f"The tokenizer of “{name}” has {len(tokenizer)} tokens, but the model has {model.config.vocab_size} "
            "embeddings. They do not belong together: save both to the same folder after training."
        )
    opened = Opened(name, model.eval().to(default_device()), tokenizer, traversal)
    if traversal is not None and None in opened.control_ids:
        raise PlaygroundError(
            f"“{name}” has a task head, but its tokenizer has no control tokens [s], [$] and [e]. Call "
            "tokenizer.add_control_tokens(model) before fine-tuning, and save the tokenizer with the model."
        )
    return opened


def read_config(folder: str, name: str) -> dict:
    """The fields of `config.json`, after a check that they belong to a GPT-1."""
    if not Path(folder, CONFIG_NAME).is_file():
        raise PlaygroundError(f"“{name}” has no {CONFIG_NAME}. Save a model there.")
    config, _ = GPT1Config.get_config_dict(folder)
    if config.get("model_type") != GPT1Config.model_type:
        given = shorten(str(config.get("model_type")))
        found = f"is a model of type “{given}”" if "model_type" in config else "does not name a model type"
        raise PlaygroundError(f"“{name}” {found}. This page opens gpt1, openai-gpt and gpt2 models.")
    return config


def check_fields(name: str, config: dict) -> None:
    """Checks that the fields are those of a GPT-1 and fit each other."""
    try:
        GPT1Config.from_dict(config)
    except (StrictDataclassError, ValueError) as error:
        raise PlaygroundError(
            f"The configuration of “{name}” is not that of a GPT-1: {error.__cause__ or error}"
        ) from error


def asked_sizes(name: str, config: dict) -> tuple[int, int]:
    """The least numbers of weights and of tensors that a configuration needs, computed without building a model."""
    names = GPT1Config.attribute_map
    fields = {names.get(field, field): value for field, value in config.items()}
    sizes = {field: fields.get(field, getattr(GPT1Config, field)) for field in GPT1Config.sizes}
    sizes["intermediate_size"] = sizes["intermediate_size"] or 1
    sizes["num_labels"] = fields.get("num_labels") or 1
    for field, value in sizes.items():
        if type(value) is not int or value < 1:
            raise PlaygroundError(
                f"The configuration of “{name}” has {shorten(ascii(value))} as `{field}`, but a whole number of at "
                "least 1 is needed."
            )
    width, layers = sizes["hidden_size"], sizes["num_hidden_layers"]
    embeddings = width * (sizes["vocab_size"] + sizes["max_position_embeddings"])
    blocks = layers * width * (4 * width + 2 * sizes["intermediate_size"])
    return max(embeddings + blocks, sizes["num_labels"]), layers * TENSORS_OF_A_LAYER


def check_sizes(folder: str, name: str, config: dict) -> None:
    """Checks that a folder's weights can be those of its configuration. Only their sizes are read."""
    asked_weights, asked_tensors = asked_sizes(name, config)
    shapes = []
    for file in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            shapes += [tensors.get_slice(tensor).get_shape() for tensor in tensors.keys()]  # reads shapes only
    if not shapes:
        raise PlaygroundError(
            f"“{name}” has no safetensors weights. Save the model again: `save_pretrained` writes that format."
        )
    for asked, given, what in (
        (asked_tensors, len(shapes), "tensors"),
        (asked_weights, sum(map(prod, shapes)), "weights"),
    ):
        if asked > given:
            raise PlaygroundError(
                f"The configuration of “{name}” needs at least {asked:,} {what}, but its files hold {given:,}. They "
                "do not belong together: save the model again."
            )


def model_class(config: dict) -> type:
    """The class that has exactly the heads of the saved model."""
    for architecture in config.get("architectures") or []:
        if architecture in MODEL_CLASSES:
            return MODEL_CLASSES[architecture]
    return GPT1ForCausalLM if config.get("traversal") is None else GPT1DoubleHeadsModel
