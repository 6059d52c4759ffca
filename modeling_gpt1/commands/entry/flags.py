"""The flags of each command, read in milliseconds from the source code of its argument dataclasses.

An unknown flag is refused before torch and transformers are imported, which takes seconds.
"""

import ast
import difflib
import sys
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

_TRAINING = ("modeling_gpt1.training.arguments:_SharedArguments", "transformers.training_args:TrainingArguments")
# Module and class name of each command's argument dataclasses, including base classes.
SOURCES = {
    "pretrain": (
        "modeling_gpt1.commands.runs:ModelArguments",
        "modeling_gpt1.commands.pretrain:StartArguments",
        "modeling_gpt1.commands.pretrain:CorpusArguments",
        "modeling_gpt1.training.arguments:GPT1PretrainingArguments",
        *_TRAINING,
    ),
    "finetune": (
        "modeling_gpt1.commands.runs:ModelArguments",
        "modeling_gpt1.commands.finetune:StartArguments",
        "modeling_gpt1.commands.finetune:DataArguments",
        "modeling_gpt1.training.arguments:GPT1TrainingArguments",
        *_TRAINING,
    ),
    "predict": ("modeling_gpt1.commands.predict:PredictionArguments",),
    "generate": ("modeling_gpt1.commands.generate:GenerationArguments",),
    "evaluate": ("modeling_gpt1.commands.evaluate:EvaluationArguments",),
    "zero-shot": ("modeling_gpt1.commands.zero_shot:ZeroShotArguments",),
    "convert": ("modeling_gpt1.commands.convert:ConversionArguments",),
    "plot": ("modeling_gpt1.commands.plot:PlotArguments",),
    "reproduce": ("modeling_gpt1.reproduction.arguments:ReproduceArguments",),
    "playground": ("modeling_gpt1.commands.playground:PlaygroundArguments",),
    "env": (),
}
# Of `gpt1 reproduce`, in this order; all words after one of them belong to `gpt1 finetune`.
FINETUNE_FLAGS = ("--finetune_arguments", "--lstm_finetune_arguments")
# Spellings of version 0.1, each with its current spelling.
OLD_NAMES = {
    "pretrain": {"model_name_or_path": "model", "model_type": "family"},
    "finetune": {"model_name_or_path": "model", "model_type": "family"},
    "zero-shot": {
        "model_name_or_path": "model",
        "max_rows": "max_eval_samples",
        "max_train_rows": "max_train_samples",
        "output": "output_file",
    },
    "plot": {"output": "output_file"},
    "reproduce": {
        "zero_shot_rows": "zero_shot_max_eval_samples",
        "zero_shot_train_rows": "zero_shot_max_train_samples",
    },
}


def prepare(command: str, words: list[str]) -> list[str]:
    """The words after `gpt1 COMMAND`, preceded by the settings of --config, with every flag in its current spelling.

    Raises:
        ValueError: the command does not have a flag, or the settings file cannot be read.
    """
    words, rest = split(command, words)
    words = rename(command, words)
    if file := take_value(words, "config"):
        from .settings import read_settings

        from_file, rest_of_file = split(command, read_settings(command, file))
        rest = {**rest_of_file, **rest}
        # A list from the file would swallow a positional word after it, such as the folder of `gpt1 predict FOLDER`.
        at = next((at for at, word in enumerate(words) if word.startswith("--")), len(words))
        words = [*words[:at], *from_file, *words[at:]]
    from .values import check_values

    words = check_values(command, words)
    for flag in filter(rest.__contains__, FINETUNE_FLAGS):
        words += [flag, *prepare("finetune", rest[flag])]
    return words


def split(command: str, words: list[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Splits the words into the command's own and those of `gpt1 finetune`, by the flag before them."""
    rest: dict[str, list[str]] = {}
    for flag in reversed(FINETUNE_FLAGS) if command == "reproduce" else ():
        if flag in words:
            at = words.index(flag)
            words, rest[flag] = words[:at], words[at + 1 :]
    return words, rest


def rename(command: str, words: list[str]) -> list[str]:
    """Replaces each flag by its full current name. Values stay as they are."""
    named = []
    for place, word in enumerate(words):
        if word == "--":
            return named + words[place:]
        if word.startswith("--") and " " not in word:
            flag, is_joined, value = word.partition("=")
            word = find_flag(command, flag) + is_joined + value
        named.append(word)
    return named


def find_flag(command: str, flag: str) -> str:
    """The command's full name for the flag. An unambiguous prefix is accepted."""
    name = flag.removeprefix("--").replace("-", "_")
    known, old = flags_of(command), OLD_NAMES.get(command, {})
    names = [*known, *(f"no_{name}" for name in known), *old]
    found = [name] if name in names else [other for other in (*known, *old) if other.startswith(name)]
    if len(found) > 1:
        raise ValueError(f"{flag} is ambiguous: it may be --{' or --'.join(sorted(found))}. Write the full name.")
    if not found:
        near = difflib.get_close_matches(name, [*known, *old], n=1)
        guess = f"; did you mean --{old.get(near[0], near[0])}?" if near else "."
        raise ValueError(f"unknown flag {flag}{guess} See gpt1 {command} --help.")
    if found[0] in old:
        print(
            f"gpt1 {command}: --{found[0]} is now called --{old[found[0]]}; the old name will be removed.",
            file=sys.stderr,
        )
        return f"--{old[found[0]]}"
    return f"--{found[0]}"


@cache
def flags_of(command: str) -> tuple[str, ...]:
    """Names of the flags without dashes, in the order of the help."""
    own = [name for source in SOURCES[command] for name, _ in fields_of(*source.split(":"))]
    return tuple(dict.fromkeys([*own, "config", "debug", "help"]))


def fields_of(module: str, class_name: str) -> Iterable[tuple[str, ast.expr]]:
    """Names and types of the dataclass's own fields, without importing its module."""
    for node in classes_in(module):
        if node.name == class_name:
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and not line.target.id.startswith("_"):
                    yield line.target.id, line.annotation


@cache
def classes_in(module: str) -> list[ast.ClassDef]:
    package, *parts = module.split(".")
    path = Path(find_spec(package).origin).parent.joinpath(*parts).with_suffix(".py")
    return [node for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.ClassDef)]


def take_value(words: list[str], name: str) -> str | None:
    """Removes the flag and its value from the words and returns the value. Of repeated flags the last counts."""
    found = None
    while at := next((at for at, word in enumerate(words, 1) if word.partition("=")[0] == f"--{name}"), None):
        word = words.pop(at - 1)
        if "=" in word:
            found = word.partition("=")[2]
        elif at <= len(words) and not words[at - 1].startswith("--"):
            found = words.pop(at - 1)
        else:
            raise ValueError(f"--{name} needs a value.")
    return found


def take_debug(command: str, words: list[str]) -> tuple[list[str], bool]:
    """The words without --debug, and whether it was there. Trainer's own --debug, which takes a value, stays."""
    of_trainer = command in ("pretrain", "finetune")
    kept, nexts = [], [*words[1:], "--"]
    for word, follows in zip(words, nexts[: len(words)], strict=True):
        if word != "--debug" or (of_trainer and not follows.startswith("--")):
            kept.append(word)
    return kept, len(kept) < len(words)
