"""Checks once, before anything is opened, that the model named by a flag exists; finds its tokenizer."""

import difflib
import re
from pathlib import Path

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

SECONDS = 5  # time-out for the hub's answer
MODEL = ("config.json",)
TOKENIZER = ("tokenizer_config.json", "tokenizer.json", "vocab.json")
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def check_model(flag: str, name: str | None, files: tuple[str, ...] = MODEL) -> None:
    """
    Args:
        flag: the flag that named the model, such as "--model".
        name: a folder or a hub id. None passes the check.
        files: names of files, of which the model must have one.

    Raises:
        ValueError: there is no such model, or the hub cannot be reached.
    """
    if name is None or any(Path(name, file).is_file() for file in files):
        return
    path = Path(name)
    if path.is_dir():
        inside = sorted(found.parent.name for found in path.glob(f"*/{files[0]}"))
        hint = f" Its subfolders {', '.join(inside[:5])} have one." if inside else ""
        raise ValueError(f"{flag} {name} is a folder without {files[0]}.{hint} Pass a folder with one, or a hub id.")
    if path.exists():
        raise ValueError(f"{flag} {name} is a file. Pass the folder that holds {files[0]}, or a hub id.")
    if HUB_ID.fullmatch(name) is None:
        near = similar(path, " Did you mean {}?")
        raise ValueError(f"{flag} {name} does not exist.{near} Pass a folder, or a hub id such as owner/name.")
    if not any(isinstance(try_to_load_from_cache(name, file), str) for file in files):
        ask_hub(flag, name, files)


def tokenizer_of(model: str, tokenizer: str | None, run: str | None) -> str:
    """The folder or hub id of a model's tokenizer: the given one, else the model's own, else that of its run."""
    places = [tokenizer] if tokenizer else [model, run]
    with_files = (place for place in places if place and any(Path(place, file).is_file() for file in TOKENIZER))
    return next(with_files, places[0])


def ask_hub(flag: str, name: str, files: tuple[str, ...]) -> None:
    what = f"{flag} {name}: there is no such folder{similar(Path(name), ' (did you mean {}?)')},"
    try:
        get_hf_file_metadata(hf_hub_url(name, files[0]), timeout=SECONDS)
    except OfflineModeIsEnabled:
        reason = "and HF_HUB_OFFLINE blocks access to the hub. Pass a folder, or unset it."
    except GatedRepoError:
        reason = "and the model on the hub is gated. Request access on its page, and log in with `hf auth login`."
    except RepositoryNotFoundError:
        reason = "and the hub has no such model that you can access. Correct the id, or log in with `hf auth login`."
    except EntryNotFoundError:
        if files != MODEL:  # the repository may have one of the other files
            return
        reason = f"and the repository on the hub has no {files[0]}. Pass the id of a model."
    except HfHubHTTPError as error:
        status = error.response.status_code
        is_refusal = status in (401, 403)
        remedy = "Log in with `hf auth login` and a token with read access" if is_refusal else "Try again later"
        reason = f"and the hub answered with status {status}. {remedy}, or pass a folder."
    except HTTPError as error:
        reason = f"and the hub ({constants.ENDPOINT}) cannot be reached: {error}. Pass a folder, or connect to it."
    else:
        return
    raise ValueError(f"{what} {reason}")


def similar(path: Path, text: str) -> str:
    """The text filled with the names of folders beside the path that resemble it, or "" if there are none."""
    beside = [other.name for other in path.parent.iterdir() if other.is_dir()] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, beside, n=3)
    return text.format(", ".join(str(path.parent / name) for name in near)) if near else ""
