"""The parser of the commands: it reads words and settings files, and looks at no other file, model or device."""

import csv
import io
import json
import os
import re
import sys
import warnings
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter, Namespace
from collections.abc import Iterable
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import transformers
import yaml
from datasets import disable_progress_bars
from transformers import TrainingArguments
from transformers.hf_argparser import HfArgumentParser

from tokenization.errors import UserError
from tokenization.wording import nearest

from .. import GPT1Config
from ..families.opening import packaged
from ..storage.writing import write_atomically
from .entry import COMMANDS
from .trainer_flags import TRAINER_HELP

# Flags that name models. The short name of the packaged model stands for its folder there.
MODEL_FLAGS = ("model", "models", "lstm_model", "tokenizer_name", "folder", "source")
# The least value of a flag, where a library would silently take less, or fail with a traceback.
AT_LEAST_0 = (
    "learning_rate",
    "weight_decay",
    "num_shots",
    "num_fewshot",
    "seed",
    "data_seed",
    "temperature",
    "top_k",
)
AT_LEAST_1 = (
    "batch_size",
    "batch_tokens",
    "max_eval_blocks",
    "max_train_samples",
    "max_eval_samples",
    "max_predict_samples",
    "jobs",
    "lora_r",
    "rehearse",
    "num_beams",
    "num_return_sequences",
    "num_merges",
    "max_new_tokens",
    "max_length",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "preprocessing_num_workers",
)
LEAST = dict.fromkeys(AT_LEAST_0, 0) | dict.fromkeys(AT_LEAST_1, 1) | {"block_length": 3}

# Flags of transformers' scripts that no command has, with what to do.
OF_OTHER_SCRIPTS = {
    "--overwrite_output_dir": "a run never overwrites another; pass another --output_dir, or delete the folder first"
}

CONFIG = ArgumentParser(add_help=False, allow_abbrev=False)
CONFIG.add_argument("--config", metavar="FILE", help="Settings file (.yaml, .json); flags override it.")
HELP_FLAGS = ("-h", "--help")
HELP_COLUMN = 29  # where the texts of flags begin


class ShortHelp(HelpFormatter):
    """One spelling of each flag, without a name for its value; choices and default where the text has none."""

    def _format_action_invocation(self, action: Action) -> str:
        if not action.option_strings:
            return action.dest
        return action.option_strings[-1] if action.dest == "help" else action.option_strings[0]

    def _get_help_string(self, action: Action) -> str:
        return action.help + self._choices_of(action) + self._default_of(action)

    def _choices_of(self, action: Action) -> str:
        choices = [str(choice) for choice in action.choices or ()]
        if not choices or choices[0] in action.help:
            return ""
        return f" One of {', '.join(choices)}."

    def _default_of(self, action: Action) -> str:
        if action.required:
            return " (required)"
        default = getattr(action.default, "value", action.default)  # of an enumeration
        words = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        if default is None or default is False or words in ("", SUPPRESS) or "efault" in action.help:
            return ""
        return f" ({words.replace('%', '%%')})"


class CommandParser(HfArgumentParser):
    """Parses a command's arguments into dataclasses. A wrong argument raises a `UserError` of one sentence.

    `basics` names the flags that `--help` shows, by the title of their group; by default all.
    """

    def __init__(self, command: str, *classes: type, basics: dict[str, tuple[str, ...]] | None = None):
        self.settings: dict[str, Any] = {}
        self.basics = basics
        what = COMMANDS[command]
        all_flags = "--help all lists all flags. " if basics else ""
        super().__init__(
            classes,
            prog=f"gpt1 {command}",
            description=f"{what[0].upper()}{what[1:]}.",
            epilog=f"{all_flags}--debug shows the traceback of an error.",
            formatter_class=partial(ShortHelp, max_help_position=HELP_COLUMN),
            parents=[CONFIG],
            allow_abbrev=False,
        )
        if basics:  # the command has the flags of Trainer
            self.explain_trainer_flags()

    def explain_trainer_flags(self) -> None:
        """Gives the flags of transformers texts that stand alone. Of a new one, the first sentence stays."""
        own = {field.name: field.metadata["help"] for field in fields(TrainingArguments)}
        for action in self._actions:
            if action.option_strings[0].startswith("--no_"):
                action.help = f"Turn --{action.dest} off."
            elif action.dest in TRAINER_HELP:
                action.help = TRAINER_HELP[action.dest]
            elif action.help == own.get(action.dest):
                first_sentence = action.help.partition(". ")[0].rstrip(".")
                action.help = f"{first_sentence}."

    def error(self, message: str) -> None:
        raise UserError(f"{message}. See {self.prog} --help.")

    # ---- Reading words

    def read(self, arguments: list[str]) -> tuple:
        """Returns one object per dataclass, and a namespace if there are other arguments."""
        quiet_libraries()
        try:
            *objects, rest = self.parse_args_into_dataclasses(arguments, True, look_for_args_file=False)
        except UserError:
            raise
        except (ValueError, ImportError) as error:  # transformers checks the values of its own flags
            self.error(" ".join(str(error).split()).rstrip("."))
        for read in objects:
            put_packaged_models(read)
        return tuple(objects)

    def parse_known_args(self, args=None, namespace=None) -> tuple[Namespace, list[str]]:
        """Reads the flags, and the settings of --config for those that are not given."""
        command_line = list(args)
        if any(word in HELP_FLAGS for word in command_line):
            self.print_help_and_exit(command_line)
        words = self.with_settings(command_line)
        self.check_flags(words)
        self.check_lists(command_line)
        namespace, rest = self.parse_words(words, command_line)
        if rest:
            self.refuse_rest(rest)
        del namespace.config
        self.settings = dict(vars(namespace))
        self.check_values()
        return namespace, rest

    def refuse_rest(self, words: list[str]) -> None:
        """Refuses words that no flag takes."""
        how = "Write a value after its flag; quote one with spaces"
        if words[0].endswith((".yaml", ".yml", ".json")):
            how = f"A file of settings is given as --config {words[0]}"
        self.error(f"no flag takes {' '.join(words)!r}. {how}")

    def parse_words(self, words: list[str], command_line: list[str]) -> tuple[Namespace, list[str]]:
        """Reads words, of which some are on the command line and some may come from --config."""
        return super().parse_known_args(words)

    def print_help_and_exit(self, command_line: list[str]) -> None:
        """Prints the flags of `basics`, or all of them for `--help all`."""
        at = min(command_line.index(flag) for flag in HELP_FLAGS if flag in command_line)
        is_of_all = command_line[at + 1 : at + 2] == ["all"]
        if self.basics and not is_of_all:
            actions = {action.dest: action for action in self._actions}
            self._action_groups = []
            for title, names in self.basics.items():
                self.add_argument_group(title)._group_actions = [actions[name] for name in names]
        self.usage = " ".join([self.prog, *self.positional_words(), "[FLAGS]"])
        self.print_help()
        self.exit()

    def positional_words(self) -> list[str]:
        """The words before the flags as the usage line has them: `[folder]` is optional, `runs ...` are several."""
        forms = {None: "{}", "?": "[{}]", "+": "{} ...", "*": "[{} ...]"}
        return [forms[action.nargs].format(action.dest) for action in self._actions if not action.option_strings]

    def with_settings(self, command_line: list[str]) -> list[str]:
        """The words of the command line, with those of the file of --config before its first flag."""
        given, words = CONFIG.parse_known_args(command_line)
        if given.config is None:
            return words
        # A list of the file would swallow a word without a flag, such as the folder of `gpt1 predict FOLDER`.
        num_positional = len([*takewhile(lambda word: not word.startswith("--"), words)])
        return [*words[:num_positional], *self.words_of(given.config), *words[num_positional:]]

    def words_of(self, file: str) -> list[str]:
        """The settings of a file as words of the command line: `seed: 1` becomes `--seed=1`."""
        settings = read_settings(Path(file))
        self.check_flags([f"--{name}" for name in settings], f"--config {file}: ")
        words = []
        for name, value in settings.items():
            takes_several = self._option_string_actions[f"--{name}"].nargs in ("+", "*")
            if isinstance(value, dict) and takes_several:
                words += self.words_of_list(name, pairs_of(value))
            elif isinstance(value, list):
                words += self.words_of_list(name, [str(item) for item in value])
            elif value is not None:  # otherwise the default stays
                words.append(f"--{name}={self.word_of(name, value)}")
        return words

    def words_of_list(self, name: str, items: list[str]) -> list[str]:
        if any(item.startswith("--") for item in items):  # flags of another command, which this one must not read
            self.set_defaults(**{name: items})
            return []
        return [f"--{name}", *items] if items else []

    def word_of(self, name: str, value: Any) -> str:
        if value is False and "no" in (self._option_string_actions[f"--{name}"].choices or ()):
            return "no"  # what YAML reads as false
        return json.dumps(value) if isinstance(value, bool | dict) else str(value)

    # ---- Checks of words

    def check_flags(self, words: list[str], source: str = "") -> None:
        """Checks that the command has each flag among the words, and otherwise names the nearest that it has."""
        known = self._option_string_actions
        for word in takewhile(lambda word: word != "--", words):
            flag = word.partition("=")[0]
            is_text = " " in flag  # which may begin with dashes
            if flag.startswith("--") and not is_text and flag not in known:
                raise UserError(f"{source}unknown flag {flag}{self.hint_for(flag)}. See {self.prog} --help.")

    def hint_for(self, flag: str) -> str:
        """What a flag that the command lacks may have meant: one of its flags, or a field of the configuration."""
        if flag in OF_OTHER_SCRIPTS:
            return f": {OF_OTHER_SCRIPTS[flag]}"
        known = self._option_string_actions
        name = flag.removeprefix("--")
        near = nearest(flag, known)
        longer = [one for one in known if name in one]  # --epochs: --num_train_epochs
        if not near and longer and len(name) > 3:
            near = f" (did you mean {longer[0]!r}?)"
        shorter = [one for one in known if flag.startswith(f"{one}_")]  # --model_name_or_path: --model
        if not near and shorter:
            near = f" (did you mean {max(shorter, key=len)!r}?)"
        near_fields = get_close_matches(name, GPT1Config.__dataclass_fields__, n=1)
        is_field = near_fields and (not near or near_fields[0] == name)
        if is_field and "--config_overrides" in known:
            return f"; for a new model, write --config_overrides {near_fields[0]}=VALUE"
        return near

    def check_lists(self, command_line: list[str]) -> None:
        """Refuses a list that is given twice, of which only the last would be taken."""
        given = flags_of(command_line)
        for action in self._actions:
            is_list = action.nargs in ("+", "*") or action.dest == "config_overrides"
            if is_list and sum(flag in action.option_strings for flag in given) > 1:
                raise UserError(f"--{action.dest} is given twice. Write all its values after one.")

    def check_values(self) -> None:
        """Refuses numbers below the least that their flags can have."""
        for name, value in self.settings.items():
            least = LEAST.get(name.removeprefix("zero_shot_"))
            if least is not None and value is not None and value < least:
                raise UserError(f"--{name} is {value}, but must be at least {least}.")

    # ---- Settings of a run

    def write_settings(self, path: Path) -> None:
        """Writes all settings, including defaults, as a file for --config. Only the first launched process writes."""
        if os.environ.get("RANK", "0") != "0":
            return
        settings = json.loads(json.dumps(self.settings))  # enumerations become texts
        settings.pop("hub_token", None)
        place = "output_dir" if "output_dir" in settings else "output_file"
        head = f"# All settings of a run. Repeat it with: {self.prog} --config {path.name} --{place} ANOTHER\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def parser_of(command: str) -> CommandParser:
    """The parser of a command, from the dataclasses in its module's ARGUMENTS.

    A module may also have BASICS, the flags that `--help` shows, and PARSER, a class with more steps.
    """
    module = import_module(f"{__package__}.{command.replace('-', '_')}")
    make_parser = getattr(module, "PARSER", CommandParser)
    return make_parser(command, *module.ARGUMENTS, basics=getattr(module, "BASICS", None))


def with_flags(parser: CommandParser, text: str) -> str:
    """A text of the library, which names its own arguments, with the flags of the same names.

    `use_cpu=True` becomes --use_cpu, and `num_labels=1` becomes --num_labels 1.
    """

    def flag_of(match: re.Match) -> str:
        name, value = match.groups()
        flag = f"--{name}"
        if flag not in parser._option_string_actions:
            return match[0]
        return flag if value in (None, "True") else f"{flag} {value}"

    return re.sub(r"`(\w+)(?:=([\w.]+))?`", flag_of, text)


def flags_of(words: Iterable[str]) -> list[str]:
    """What stands before the first `=` of each word: of `--seed=1`, the flag. `--max-steps` becomes `--max_steps`."""
    flags = []
    for word in words:
        flag = word.partition("=")[0]
        if flag.startswith("--"):
            flag = "--" + flag.removeprefix("--").replace("-", "_")
        flags.append(flag)
    return flags


def merge_overrides(*overrides: str) -> str:
    """Joins texts such as `hidden_size=256,num_hidden_layers=4`. A later value of a field replaces an earlier one."""
    pair_of_field = {}
    for pair in ",".join(overrides).split(","):
        field = pair.partition("=")[0]
        pair_of_field[field] = pair
    return ",".join(pair_of_field.values())


def pairs_of(mapping: dict[str, Any]) -> list[str]:
    """A mapping of a settings file as on the command line: `choices: [a, "b,c"]` becomes `choices=a,"b,c"`."""
    pairs = []
    for key, value in mapping.items():
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(value if isinstance(value, list) else [value])
        pairs.append(f"{key}={line.getvalue()}")
    return pairs


def put_packaged_models(arguments: Any) -> None:
    """Replaces the short name of the packaged model by its folder, in all arguments that name models."""
    for name, value in vars(arguments).items():
        if name in MODEL_FLAGS:
            setattr(arguments, name, [packaged(one) for one in value] if isinstance(value, list) else packaged(value))


def quiet_libraries() -> None:
    """Silences warnings that libraries give about each other, and bars that a screen of a run has no use for."""
    warnings.filterwarnings("ignore", category=FutureWarning)
    if not sys.stderr.isatty():  # a bar would be a line for each of its steps
        disable_progress_bars()
    transformers.utils.logging.disable_progress_bar()  # of loading weights, which stays on the screen


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a file of YAML or JSON.

    Raises:
        UserError: the file is no YAML, or has no settings.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        try:
            settings = json.loads(text)  # whose tabs and escaped characters YAML reads in another way
        except ValueError:
            settings = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--config {path} cannot be read: {reason}. Correct it.") from error
    if not isinstance(settings, dict):
        raise UserError(f"--config {path} has no settings. Write one per line as `name: value`, such as `seed: 1`.")
    return settings
