"""Pushes to the hub: with the card, without pickles, checkpoints and secrets. A failed push loses nothing.

The whole result lies in a folder before the first request is made. If the upload fails, the error names the folder and
the command that uploads it later.
"""

import re
import shlex
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo
from huggingface_hub.errors import HfHubHTTPError
from transformers import PreTrainedModel
from transformers.utils import logging
from transformers.utils.hub import hf_api

from .card import card_for_push

logger = logging.get_logger(__name__)

# Pickles run code when they are opened. A run's pickles, such as the optimizer's state in checkpoints, also hold paths
# of this machine. NumPy's files can hold pickles too. Names that begin with "_" are of unfinished files, with ".env"
# of files with tokens. TensorBoard's event files have this machine's name in theirs, and a run's settings its folders.
NEVER_PUSHED = (
    *("_*", "*/_*"),
    *("checkpoint-*", "*/checkpoint-*", "chck_*/*"),  # the latter have branches of their own
    *(".env*", "*/.env*"),
    *("*.bin", "*.pt", "*.pth", "*.pkl", "*.pickle", "*.ckpt", "*.joblib", "*.npy", "*.npz"),
    "*events.out.tfevents.*",
    "*run.yaml",
)
# A token, with or without its HTTP header. The header matches to its end: a token may have blanks in it.
SECRET = re.compile(r"Bearer\s.*|hf_[\w.-]+")
REDACTED = "***"
REMEDY = "Mend the cause (`hf auth login` or HF_TOKEN gives a token that may write)"


class PushError(OSError):
    """An upload failed; all that it should have uploaded is still on this machine."""


def push_run(
    trainer,
    commit_message: str | None,
    blocking: bool,
    token: str | None,
    revision: str | None,
    private: bool | None,
    **card_data: Any,
) -> CommitInfo | Future | None:
    """Pushes a run, as `push_to_hub` of a trainer. All processes call it, and the first one uploads.

    Args:
        trainer ([`GPT1Trainer`] or [`GPT1PretrainingTrainer`]): what is pushed; the others as in its `push_to_hub`.
    """
    args = trainer.args
    trainer.callback_handler.on_push_begin(args, trainer.state, trainer.control)
    trainer.save_model(_internal_call=True)
    if not trainer.is_world_process_zero():
        return None
    if trainer.hub_model_id is None:
        trainer.create_model_card(**card_data)  # so that there is a card even without a repository
        trainer.init_hf_repo(token, private, is_trained=True)
    trainer.create_model_card(**card_data)
    upload = partial(
        upload_result,
        args.output_dir,
        trainer.hub_model_id,
        commit_message=commit_message,
        token=token or args.hub_token,
        revision=revision or args.hub_revision,
    )
    if blocking:
        return upload()
    future = hf_api().run_as_future(upload)
    future.add_done_callback(_log_failure)
    return future


def push_model(
    model: PreTrainedModel,
    repo_id: str,
    *,
    private: bool | None = None,
    token: bool | str | None = None,
    revision: str | None = None,
    max_shard_size: int | str | None = "50GB",
    tags: list[str] | None = None,
    **commit: Any,
) -> CommitInfo:
    """Pushes a model, as `model.push_to_hub`; arguments as in [`transformers.utils.PushToHubMixin.push_to_hub`].

    A card that somebody wrote for the repository, or for the branch `revision`, stays; where there is none, or the
    empty one that transformers writes with a tokenizer, the card is made from `hub_card.md` and what the model knows
    of itself.

    Raises:
        PushError: the upload failed; the model was saved to a folder, which stays and which the message names.
    """
    folder = tempfile.mkdtemp(prefix="gpt1-push-")
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    with explained(repo_id, folder, revision):
        repo_id = hf_api().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        # Only after asking the hub: else the command of a failed push would replace a card that somebody wrote.
        card_for_push(model, repo_id, tags, token, revision).save(Path(folder, "README.md"))
        if revision is not None and not revision.startswith("refs/pr"):
            hf_api().create_branch(repo_id=repo_id, branch=revision, token=token, exist_ok=True)
    result = upload_result(folder, repo_id, revision, token=token, **{"commit_message": "Upload model", **commit})
    shutil.rmtree(folder, ignore_errors=True)
    return result


def upload_result(folder: str, repo_id: str, revision: str | None = None, **commit: Any) -> CommitInfo:
    """Uploads a folder without what is never pushed. Repository and branch must exist.

    Args:
        commit: further arguments of [`huggingface_hub.HfApi.upload_folder`].

    Raises:
        PushError: the upload failed.
    """
    with explained(repo_id, folder, revision):
        return hf_api().upload_folder(
            repo_id=repo_id, folder_path=folder, revision=revision, ignore_patterns=list(NEVER_PUSHED), **commit
        )


def check_right_to_write(repo_id: str, token: str | None) -> None:
    """Asks the hub before the work is done: it lets everybody "make" a repository that exists.

    Raises:
        HfHubHTTPError: the token may not write to it.
    """
    try:
        hf_api().auth_check(repo_id, token=token, write=True)
    except HfHubHTTPError as error:
        if error.response.status_code in (401, 403):  # another hub may lack this question
            raise


@contextmanager
def explained(repo_id: str, folder: str, revision: str | None = None, is_trained: bool = True) -> Iterator[None]:
    """Turns whatever stops an upload into a [`PushError`] that says where the result lies and how to go on.

    Args:
        is_trained (`bool`): whether there is a result. The folder's content cannot tell: it may be an older result,
            which the training is to replace.
    """
    try:
        yield
    except Exception as error:  # from the hub, the network or the card's metadata: none may hide the result
        cause = SECRET.sub(REDACTED, " ".join(str(error).split())).rstrip(".") or type(error).__name__
        command = ["gpt1", "push", str(folder), "--repo_id", repo_id]
        command += [] if revision is None else ["--revision", revision]
        # A traceback shows the causes, too.
        has_secret = SECRET.search("".join(traceback.format_exception(error)))
        raise PushError(
            f"The push to {repo_id} failed: {cause}. Nothing is lost: the complete result is in {folder}. {REMEDY} "
            f"and run:\n{shlex.join(command)}"
            if is_trained
            else f"{repo_id} cannot be pushed to: {cause}. Nothing is lost, because training has not started. "
            f"{REMEDY} and start again, or leave `push_to_hub` out and upload the result later."
        ) from None if has_secret else error


def _log_failure(future: Future) -> None:
    if future.exception() is not None:
        logger.error(str(future.exception()))
