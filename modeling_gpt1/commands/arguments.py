"""Parses the arguments of a command, and saves them to a file that can repeat the run."""

import enum
import platform
from importlib.metadata import version
from pathlib import Path

import yaml
from transformers.hf_argparser import HfArgumentParser

from ..storage.writing import write_atomically
from .entry import COMMANDS

NEVER_KEPT = ("hub_token",)
EVERYWHERE = (
    "--config FILE takes settings from a .yaml or .json file, which flags override; --debug shows the traceback of an "
    "error."
)


class CommandParser(HfArgumentParser):
    """Parses a command's arguments into dataclasses. A wrong argument raises a ValueError of one sentence."""

    def __init__(self, command: str, *classes: type):
        self.settings = {}
        super().__init__(classes, prog=f"gpt1 {command}", description=COMMANDS[command], epilog=EVERYWHERE)

    def error(self, message: str) -> None:
        raise ValueError(f"{message}. See {self.prog} --help.")

    def parse_known_args(self, args=None, namespace=None):
        namespace, rest = super().parse_known_args(args, namespace)
        self.settings = dict(vars(namespace))
        return namespace, rest

    def read(self, arguments: list[str] | None) -> tuple:
        """Returns one object per dataclass, and a namespace if there are other arguments."""
        *parsed, rest = self.parse_args_into_dataclasses(
            arguments, return_remaining_strings=True, look_for_args_file=False
        )
        if rest:
            raise ValueError(f"Unexpected arguments: {' '.join(map(repr, rest))}. See {self.prog} --help.")
        return tuple(parsed)

    def write_settings(self, path: Path) -> None:
        """Writes all settings, including defaults, as a file for --config."""
        settings = {name: plain(value) for name, value in self.settings.items() if name not in NEVER_KEPT}
        made_with = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "tokenizers"))
        place = "output_dir" if "output_dir" in settings else "output_file"
        path.parent.mkdir(parents=True, exist_ok=True)
        head = (
            f"# All settings of a run. Repeat it with: {self.prog} --config {path.name} --{place} ANOTHER\n"
            f"# Made with Python {platform.python_version()}, {made_with}.\n"
        )
        write_atomically(path, head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def plain(value):
    """Converts an argparse value to a plain YAML value."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.value if isinstance(value, enum.Enum) else value
