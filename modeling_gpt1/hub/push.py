"""Pushes to the hub: with the card, without pickles, checkpoints and secrets. A failed push loses nothing.

The whole result lies in a folder before the first request is made. If the upload fails, the error names the folder and
the command that uploads it later.
"""

import json
import re
import shlex
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import filter_repo_objects
from transformers.utils import logging
from transformers.utils.hub import hf_api

from tokenization.errors import UserError

from ..configuration_gpt1 import PACKAGED_MODEL, may_be_hub_id

logger = logging.get_logger(__name__)

NEVER_PUSHED = (
    # Unfinished files.
    "_*",
    "*/_*",
    # Checkpoints, whose pickles hold paths of this machine. Those of numbers of words have branches of their own.
    "checkpoint-*",
    "*/checkpoint-*",
    "chck_*/*",
    # Files with tokens or passwords.
    ".env*",
    "*/.env*",
    "*.env",
    ".netrc",
    "*/.netrc",
    # Pickles, which run code when they are opened, and files that can hold them.
    "*.bin",
    "*.pt",
    "*.pth",
    "*.pth.*",
    "*.pkl",
    "*.pkl.*",
    "*.pickle",
    "*.p",
    "*.ckpt",
    "*.joblib",
    "*.dill",
    "*.h5",
    "*.npy",
    "*.npz",
    "*.metadata",  # of a checkpoint in shards
    # TensorBoard's files, whose names have this machine's in them.
    "*events.out.tfevents.*",
    # A run's settings, with folders of this machine.
    "checkpoint.json",
    "*run.yaml",
    "*_run-*.yaml",
    # The predictions of an evaluation hold its texts, which the user may not want to publish.
    "*eval_predictions*.jsonl",
)
MODEL = ("model.safetensors", "model-?????-of-?????.safetensors", "model.safetensors.index.json")
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# A token, with or without its HTTP header. The header matches to its end: a token may have blanks in it.
SECRET = re.compile(r"Bearer\s.*|hf_(?!api\b|file_system\b|hub_\w+\b)[\w.-]+")
REMEDY = "Mend the cause (`hf auth login` or HF_TOKEN gives a token that may write)"


class PushError(UserError, OSError):
    """An upload failed; all that it should have uploaded is still on this machine."""


def check_base(base: str | None) -> None:
    """Refuses to push an adapter whose base has a name that means nothing to others, such as a path of this machine.

    Args:
        base: name of the adapter's base, a hub id or a folder; None or empty if it is not known.
    """
    if not base:
        return
    is_folder = Path(base).exists()
    if base == PACKAGED_MODEL and not is_folder:
        return
    if not may_be_hub_id(base):
        raise UserError(
            f"The adapter's base, {base}, is on this machine only: nobody else could open the adapter. Push the base "
            "first and train on its hub name, or push the merged model: `from_pretrained` opens the adapter's folder "
            "as it. If the hub has the base, write its name there as `base_model_name_or_path` into the adapter's "
            "adapter_config.json."
        )
    if is_folder:
        logger.warning(
            f"The adapter's base, {base}, is a folder here. Others will open the hub's model of this name with it."
        )


def check_bases_of_adapters(folder: str | Path) -> None:
    """`check_base` of each adapter that a push of a folder would upload."""
    paths = [path.relative_to(folder).as_posix() for path in Path(folder).rglob(ADAPTER[0])]
    for path in filter_repo_objects(paths, ignore_patterns=NEVER_PUSHED):
        content = json.loads(Path(folder, path).read_text(encoding="utf-8"))
        check_base(content.get("base_model_name_or_path"))


def upload_result(folder: str, repo_id: str, revision: str | None = None, **commit: Any) -> CommitInfo:
    """As `upload`, with an error that says how to go on."""
    check_bases_of_adapters(folder)
    with explained(repo_id, folder, revision):
        return upload(folder, repo_id, revision, **commit)


def upload(folder: str, repo_id: str, revision: str | None = None, **commit: Any) -> CommitInfo:
    """Uploads a folder without what is never pushed to a repository and branch that exist.

    A whole model replaces all weights that are there: transformers would open an adapter that lies beside it, and not
    the model.
    """
    has_model = any(next(Path(folder).glob(pattern), None) for pattern in MODEL)
    ignored = list(NEVER_PUSHED)
    if Path(folder, "checkpoint.json").is_file():
        ignored.append("trainer_state.json")  # that of a checkpoint names folders of this machine
    return hf_api().upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        revision=revision,
        ignore_patterns=ignored,
        delete_patterns=[*MODEL, *ADAPTER] if has_model else None,
        **commit,
    )


PUBLIC = "{} was there before, and everybody sees it. Make it private first, or leave `{}` out."


def is_public_repository(repo_id: str, token: str | None) -> bool:
    """Whether everybody sees a repository. The hub changes nothing of one that is there."""
    return hf_api().repo_info(repo_id, token=token).private is False


def check_right_to_write(repo_id: str, token: str | None) -> None:
    """Asks the hub before the work is done: it lets everybody "make" a repository that exists."""
    try:
        hf_api().auth_check(repo_id, token=token, write=True)
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):  # another hub may lack this question
            raise


@contextmanager
def explained(
    repo_id: str, folder: str, revision: str | None = None, is_trained: bool = True, more: Sequence[str] = ()
) -> Iterator[None]:
    """Turns whatever stops an upload into a [`PushError`] that says where the result lies and how to go on.

    The content of the folder cannot tell whether there is a result: it may be an older one, to be replaced. `more` are
    other flags of the command that goes on.
    """
    try:
        yield
    except Exception as error:  # from the hub, the network or the card's metadata: none may hide the result
        cause = SECRET.sub("***", " ".join(str(error).split())).rstrip(".") or type(error).__name__
        command = ["gpt1", "push", str(folder), "--repo_id", repo_id]
        if revision is not None:
            command += ["--revision", revision]
        command += more
        # A traceback shows the causes, too.
        has_secret = SECRET.search("".join(traceback.format_exception(error)))
        if is_trained:
            message = (
                f"The push to {repo_id} failed: {cause}. Nothing is lost: the complete result is in {folder}. "
                f"{REMEDY} and run:\n{shlex.join(command)}"
            )
        else:
            message = (
                f"{repo_id} cannot be pushed to: {cause}. Nothing is lost, because training has not started. "
                f"{REMEDY} and start again, or leave `push_to_hub` out and upload the result later."
            )
        raise PushError(message) from None if has_secret else error


def log_failure(future: Future) -> None:
    """Logs the error of an upload that nobody waits for."""
    if future.exception() is not None:
        logger.error(str(future.exception()))
