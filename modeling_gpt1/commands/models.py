"""The models that commands work with: where their arguments say that they are, and how they are opened."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from datasets.exceptions import DatasetsError
from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_OFFLINE
from huggingface_hub.errors import StrictDataclassError
from transformers.hf_argparser import HfArg

from tokenization.errors import UserError
from tokenization.wording import nearest

from ..configuration_gpt1 import PACKAGED_MODEL, check_place, may_be_hub_id
from ..inference.devices import check_device, default_device
from ..storage.locking import writer_of_new_file
from ..storage.writing import atomic_file
from .arguments import parser_of
from .entry import HOW_TO_DEBUG, is_for_users

FILES = ["*.json", "*.safetensors", "*.txt", "*.py", "*.model", "*.bpe", "*.jinja"]  # of a model's branch


@dataclass(kw_only=True)
class OpenedModel:
    """A model that is not trained, and the device that computes it."""

    model: str | None = HfArg(default=None, help="Model: a folder, a hub id or gpt1-novels.")
    revision: str | None = HfArg(default=None, help="Branch of the model on the hub, or a checkpoint in its folder.")
    device: str | None = HfArg(default=None, help="Device, such as cpu or cuda. Default: an accelerator, or the CPU.")
    given_model: str | None = field(default=None, init=False)
    """The model as it was named; `model` may be the folder of its revision."""

    def choose_device(self) -> None:
        """Checks that the given device is there. Without one, takes the accelerator, or the CPU."""
        if self.device is None:
            self.device = str(default_device())
        else:
            check_device(self.device)


def read_with_model(command: str, words: list[str], writes_file: bool = True) -> Any:
    """The arguments of a command whose first word may be its model, with the folder of the model's revision.

    Args:
        writes_file: whether the command has --output_file.
    """
    parser = parser_of(command)
    parser.add_argument("folder", nargs="?", help="Model, in place of --model.")
    args, positional = parser.read(words)
    if writes_file:
        check_is_new("--output_file", args.output_file)
    args.choose_device()
    check_named_once(words, "--model", args.model, positional.folder)
    args.model = positional.folder or args.model
    if args.model is None:
        raise UserError(f"No model was given. Write a folder, a hub id or gpt1-novels after `gpt1 {command}`.")
    args.given_model = args.model
    args.model = at_revision(args.model, args.revision)
    check_model("--model" if positional.folder is None else "model", args.model)
    return args


def check_named_once(words: list[str], flag: str, value: str | None, positional: str | None) -> None:
    """Refuses a command whose first word and flag name two things; a file of settings may name another one."""
    is_given = any(word == flag or word.startswith(f"{flag}=") for word in words)
    if positional is not None and is_given and value != positional:
        raise UserError(f"{positional} and {flag} {value} were both given. Leave one of them out.")


def at_revision(model: str | None, revision: str | None) -> str | None:
    """The folder of a model's revision: a branch, tag or commit of the hub, or a checkpoint in the folder of a run."""
    if model is None or revision in (None, "main"):  # the branch that the hub takes, and the run itself
        return model
    if not Path(model).is_dir():
        check_model("--model", model, revision)
        return snapshot_download(model, revision=revision, allow_patterns=FILES)
    if not Path(model, revision, "config.json").is_file():
        found = sorted(path.parent.name for path in Path(model).glob("*/config.json"))
        if not found:
            raise UserError(f"{model} has no checkpoint {revision}, nor any other. Leave --revision out.")
        raise UserError(f"{model} has no checkpoint {revision}. Pass as --revision one of {', '.join(found)}.")
    return str(Path(model, revision))


def check_model(flag: str, name: str | None, revision: str | None = None) -> None:
    """Checks early that the model named by a flag is a folder with its configuration, or may be a hub id."""
    if name is None or Path(name, "config.json").is_file():
        return
    near = model_near(name)
    if Path(name).exists() or near or not may_be_of_the_hub(name):
        raise UserError(
            f"{flag} {name} is no folder with a config.json{near}. Pass a model's folder, or a hub id such as "
            "owner/name."
        )
    if HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        raise UserError(
            f"{flag} {name} is neither a folder here nor in the hub's cache, and HF_HUB_OFFLINE forbids a download. "
            "Pass a folder, or unset HF_HUB_OFFLINE."
        )
    check_place(name)


def model_near(name: str) -> str:
    """What a wrong name of a model may have meant: the newest checkpoint of a run, or the packaged model."""
    checkpoints = Path(name).glob("checkpoint-*/config.json")
    newest = max(checkpoints, key=os.path.getmtime, default=None)
    if newest is not None:  # of a run that did not end
        return f", but {newest.parent} is"
    return "" if "/" in name else nearest(name, [PACKAGED_MODEL])  # owner/gpt1-novels may be another


def may_be_of_the_hub(name: str) -> bool:
    """Whether a name has the form of a hub id, and does not stand where folders of models lie."""
    is_beside_models = "/" in name and any(Path(name).parent.glob("*/config.json"))
    return may_be_hub_id(name) and not is_beside_models


def check_is_new(flag: str, file: str | None) -> None:
    """Refuses a file that exists, before any work is done: what a user saved is never written over."""
    if file is not None and Path(file).exists():
        raise UserError(f"{flag} {file} is there already. Pass another name, or move the file away.")


@contextmanager
def open_output(file: str | None) -> Iterator[TextIO]:
    """The new file of --output_file to write to, by this command alone; without one, the terminal."""
    if file is None:
        yield sys.stdout
        return
    with writer_of_new_file(file), atomic_file(file) as text:
        yield text


class LinesOfCSV:
    """Takes the lines of a CSV writer that ends them by "\\r\\n", and ends them by "\\n".

    Only such a writer quotes a cell with "\\r", which readers would take for the end of a line.
    """

    def __init__(self, file: TextIO) -> None:
        self.file = file

    def write(self, line: str) -> None:
        self.file.write(line.removesuffix("\r\n") + "\n")


@contextmanager
def opening(what: str) -> Iterator[None]:
    """Context in which transformers and datasets open what a user named: what they cannot open is the user's error.

    They raise a ValueError for a type of model that they do not know, or whose code they were not told to run.
    """
    try:
        yield
    except (ValueError, StrictDataclassError, DatasetsError) as error:
        is_told = is_for_users(error) or is_for_users(error.__cause__) or isinstance(error, OSError)
        if is_told or type(error).__name__ == "JSONDecodeError":  # the entry says which file is damaged
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"{what} cannot be opened: {reason}. {HOW_TO_DEBUG}") from error
