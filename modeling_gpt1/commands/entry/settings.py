"""Reads the settings of a command from a .yaml or .json file as command-line words."""

import json
from pathlib import Path
from typing import Any

from .flags import FINETUNE_FLAGS, rename


def read_settings(command: str, file: str) -> list[str]:
    """The settings of the file as command-line words.

    Raises:
        ValueError: the file does not exist, has no settings, or has a name that is not a flag of the command.
    """
    settings = load(Path(file))
    flags = FINETUNE_FLAGS if command == "reproduce" else ()
    rest = {flag: settings.pop(flag.removeprefix("--"), None) for flag in flags}
    words = [word for name, value in settings.items() for word in as_words(str(name), value)]
    try:
        of_finetune = [word for flag, given in rest.items() if given for word in (flag, *map(str, given))]
        return [*rename(command, words), *of_finetune]
    except ValueError as error:
        raise ValueError(f"--config {file}: {error}") from error


def load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"--config {path} does not exist. Pass a .yaml or .json file, such as the run.yaml of a run.")
    import yaml  # imported only if there is a settings file

    try:
        text = path.read_text(encoding="utf-8")
        settings = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        reason = f"{error.problem} at line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
        raise ValueError(f"--config {path} is not valid YAML: {reason}. Correct the file.") from error
    except (ValueError, yaml.YAMLError) as error:
        kind, reason = ("JSON" if path.suffix == ".json" else "YAML"), " ".join(str(error).split())
        raise ValueError(f"--config {path} is not valid {kind}: {reason}. Correct the file.") from error
    if not isinstance(settings, dict):
        raise ValueError(f"--config {path} has no settings. Write one per line as `name: value`, such as `seed: 1`.")
    return settings


def as_words(name: str, value: Any) -> list[str]:
    """Turns `seed: 1` into `--seed=1`. A value that is None or empty keeps the default."""
    flag = f"--{name}"
    if value is None or value == []:
        return []
    if isinstance(value, list):
        return [flag, *map(str, value)]
    if isinstance(value, bool | dict):
        value = json.dumps(value)
    return [f"{flag}={value}"]
