"""Arguments of the commands: read from flags and a settings file, written to such a file; models named by a flag."""

import json
import math
import os
import re
import sys
import warnings
from argparse import SUPPRESS, Action, ArgumentParser, HelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import transformers
import yaml
from datasets import Dataset, disable_progress_bars
from huggingface_hub import snapshot_download, try_to_load_from_cache
from huggingface_hub.constants import HF_HUB_OFFLINE
from transformers import PreTrainedTokenizerBase
from transformers.hf_argparser import HfArg, HfArgumentParser

from tokenization.errors import UserError
from tokenization.rows.tasks import Task
from tokenization.text.control_tokens import unknown_share
from tokenization.wording import nearest

from .. import GPT1Config
from ..families.opening import packaged
from ..inference.devices import check_device, default_device
from ..storage.writing import write_atomically
from .entry import COMMANDS

NAME_MODELS = "model models lstm_model tokenizer_name folder source".split()
# Less would be taken without a word, or end in a traceback.
AT_LEAST_1 = "batch_size batch_tokens max_eval_blocks max_train_samples max_eval_samples max_predict_samples jobs "
AT_LEAST_1 += "lora_r rehearse num_beams num_return_sequences num_merges max_new_tokens max_length "
AT_LEAST_1 += "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps"
AT_LEAST_0 = "learning_rate weight_decay num_shots num_fewshot seed data_seed"
LEAST = dict.fromkeys(AT_LEAST_0.split(), 0) | dict.fromkeys(AT_LEAST_1.split(), 1)
PRESETS = yaml.safe_load(Path(__file__).with_name("presets.yaml").read_text(encoding="utf-8"))
CONFIG = ArgumentParser(add_help=False, allow_abbrev=False)
CONFIG.add_argument("--config", metavar="FILE", help="Settings in a file (.yaml, .json).")

# Help of flags of Trainer's. Of its others that are long, the first sentence is shown.
HELP = {
    "output_dir": "Folder of the run. Default: trainer_output.",
    "debug": SUPPRESS,  # that of the commands is another
    "max_steps": "Updates. Default: as many as the passes have.",
    "resume_from_checkpoint": "auto: from the newest, or begin; or a folder.",
    "push_to_hub": "Upload the model at the end.",
}
LONGEST_HELP = 75  # characters
UNKNOWN_ROWS = 1000  # whose texts are looked at for unknown tokens
FILES = ["*.json", "*.safetensors", "*.txt", "*.py", "*.model", "*.bpe", "*.jinja"]  # of a model's branch


class ShortHelp(HelpFormatter):
    """One spelling of each flag, without a name for its value; choices and default where the text has none."""

    def _format_action_invocation(self, action: Action) -> str:
        return action.option_strings[-1 if action.dest == "help" else 0] if action.option_strings else action.dest

    def _get_help_string(self, action: Action) -> str:
        default, choices = getattr(action.default, "value", action.default), list(map(str, action.choices or ()))
        words = " ".join(map(str, default)) if isinstance(default, list) else str(default)
        says = default is None or default is False or words in ("", SUPPRESS) or "efault" in action.help
        notes = [f" One of {', '.join(choices)}."] if choices and choices[0] not in action.help else []
        notes += [" (required)"] if action.required else [] if says else [f" ({words.replace('%', '%%')})"]
        return action.help + "".join(notes)


class CommandParser(HfArgumentParser):
    """Parses a command's arguments into dataclasses. A wrong argument raises a ValueError of one sentence.

    `basics` names the flags that `--help` shows, by the title of their group; by default all.
    """

    def __init__(self, command: str, *classes: type, basics: dict[str, str] | None = None):
        self.settings: dict[str, Any] = {}
        about = {"usage": f"gpt1 {command} [FLAGS]", "description": f"{COMMANDS[command]}."}
        about["epilog"] = f"{'--help all lists all flags. ' if basics else ''}--debug shows the traceback of an error."
        look = partial(ShortHelp, max_help_position=33)
        options = {"formatter_class": look, "parents": [CONFIG], "allow_abbrev": False}
        super().__init__(classes, prog=f"gpt1 {command}", **about, **options)
        self.basics = basics
        for action in self._actions if basics else ():
            first = f"{action.help.partition('. ')[0].rstrip('.')}."
            action.help = HELP.get(action.dest, action.help if len(action.help) < LONGEST_HELP else first)

    def error(self, message: str) -> None:
        raise UserError(f"{message}. See {self.prog} --help.")

    def parse_known_args(self, args=None, namespace=None):
        for at, word in enumerate(args):
            if word in ("-h", "--help"):
                if self.basics and args[at + 1 : at + 2] != ["all"]:
                    actions, self._action_groups = {action.dest: action for action in self._actions}, []
                    for title, names in self.basics.items():
                        self.add_argument_group(title)._group_actions = [actions[name] for name in names.split()]
                self.print_help()
                self.exit()
        given, words = CONFIG.parse_known_args(args)
        if given.config is not None:
            # A list of the file would swallow a word without a flag, such as the folder of `gpt1 predict FOLDER`.
            at = len(list(takewhile(lambda word: not word.startswith("--"), words)))
            words[at:at] = self.words_of(given.config)
        self.check_flags(words)
        for action in self._actions:  # of a list the last alone would count
            if action.nargs in ("+", "*") or action.dest == "config_overrides":
                if sum(word.partition("=")[0] in action.option_strings for word in args) > 1:
                    raise UserError(f"--{action.dest} is given twice. Write all its values after one.")
        namespace, rest = super().parse_known_args(words)
        epochs, given_words = "--num_train_epochs", {word.partition("=")[0] for word in words}
        if any(word.partition("=")[0] == epochs for word in args) and getattr(namespace, "max_words", None):
            raise UserError("--max_words says how long the run is, and so does --num_train_epochs. Leave one out.")
        if getattr(namespace, "preset", None):
            preset = dict(PRESETS[namespace.preset])
            if namespace.tokenizer_name:
                del preset["num_merges"]  # of a tokenizer that is learnt
            if namespace.max_steps > 0 or epochs in given_words or namespace.streaming:
                del preset["max_words"]  # the other way to say how long the run is
            if namespace.streaming:  # which counts no words
                del preset["save_at_words"]
            if namespace.config_overrides and namespace.family in (None, "gpt1", "gpt2", "gpt3"):
                pairs = f"{preset['config_overrides']},{namespace.config_overrides}".split(",")
                words += ["--config_overrides", ",".join({pair.partition("=")[0]: pair for pair in pairs}.values())]
            self.set_defaults(**preset)
            namespace, rest = super().parse_known_args(words)
        del namespace.config
        self.settings = dict(vars(namespace))
        for name, value in self.settings.items():
            least = LEAST.get(name.removeprefix("zero_shot_"))
            if least is not None and value is not None and value < least:
                raise UserError(f"--{name} is {value}, but must be at least {least}.")
            if name in NAME_MODELS:
                is_list = isinstance(value, list)
                setattr(namespace, name, list(map(packaged, value)) if is_list else packaged(value))
        return namespace, rest

    def check_flags(self, words: list[str], source: str = "") -> None:
        """Checks that the command has each flag among the words, and otherwise names the nearest that it has."""
        known = self._option_string_actions
        for word in takewhile(lambda word: word != "--", words):
            flag = word.partition("=")[0]
            if flag.startswith("--") and " " not in flag and flag not in known:  # a text may begin with dashes
                near, of_model = nearest(flag, known), get_close_matches(flag[2:], GPT1Config.__dataclass_fields__, 1)
                parts = [one for one in known if len(flag) > 5 and flag[2:] in one]  # --epochs: --num_train_epochs
                near = f" (did you mean {parts[0]!r}?)" if parts and not near else near
                if of_model and "--config_overrides" in known and (not near or of_model[0] == flag[2:]):
                    near = f"; of a fresh model, write --config_overrides {of_model[0]}=VALUE"
                raise UserError(f"{source}unknown flag {flag}{near}. See {self.prog} --help.")

    def words_of(self, file: str) -> list[str]:
        """The settings of a file as words of the command line: `seed: 1` becomes `--seed=1`."""
        settings = read_settings(Path(file))
        self.check_flags([f"--{name}" for name in settings], f"--config {file}: ")
        words = []
        for name, value in settings.items():
            if isinstance(value, list) and any(str(item).startswith("--") for item in value):
                self.set_defaults(**{name: list(map(str, value))})  # flags of another command
            elif isinstance(value, list):
                words += [f"--{name}", *map(str, value)] if value else []
            elif value is not None:  # otherwise the default stays
                if value is False and "no" in (self._option_string_actions[f"--{name}"].choices or ()):
                    value = "no"  # what YAML reads as false
                words.append(f"--{name}={json.dumps(value) if isinstance(value, bool | dict) else value}")
        return words

    def read(self, arguments: list[str]) -> tuple:
        """Returns one object per dataclass, and a namespace if there are other arguments."""
        warnings.filterwarnings("ignore", category=FutureWarning)  # of libraries, about each other
        if not sys.stderr.isatty():  # where a bar would be a line for each of its steps
            disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()  # of loading weights, which stays on the screen
        *objects, rest = self.parse_args_into_dataclasses(arguments, True, look_for_args_file=False)
        if rest:
            self.error(f"no flag takes {' '.join(rest)!r}. Write a value after its flag; quote one with spaces")
        return tuple(objects)

    def write_settings(self, path: Path) -> None:
        """Writes all settings, including defaults, as a file for --config. Of launched processes the first writes."""
        if os.environ.get("RANK", "0") != "0":
            return
        settings = json.loads(json.dumps(self.settings))  # enumerations become texts
        settings.pop("hub_token", None)
        place = "output_dir" if "output_dir" in settings else "output_file"
        path.parent.mkdir(parents=True, exist_ok=True)
        head = f"# All settings of a run. Repeat it with: {self.prog} --config {path.name} --{place} ANOTHER\n"
        write_atomically(path, head + yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def parser_of(command: str) -> CommandParser:
    """The parser of a command, with the dataclasses that its module names, or the last that it defines."""
    module = import_module(f"{__package__}.{command.replace('-', '_')}")
    own = [one for one in vars(module).values() if is_dataclass(one) and one.__module__ == module.__name__]
    return CommandParser(command, *getattr(module, "ARGUMENTS", own[-1:]), basics=getattr(module, "BASICS", None))


def with_flags(parser: CommandParser, text: str) -> str:
    """A text of the library, which names its own arguments, with the flags of the same names."""
    flags = parser._option_string_actions
    return re.sub(r"`(\w+)`", lambda of: flag if (flag := f"--{of[1]}") in flags else of[0], text)


def read_settings(path: Path) -> dict[str, Any]:
    """Raises ValueError: the file is no YAML, or has no settings."""
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))  # which reads JSON, too
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"--config {path} cannot be read: {' '.join(str(error).split())}. Correct it.") from error
    if not isinstance(settings, dict):
        raise UserError(f"--config {path} has no settings. Write one per line as `name: value`, such as `seed: 1`.")
    return settings


# ---- Models and devices


@dataclass(kw_only=True)
class OpenedModel:
    """A model that is not trained, and the device that it is put on."""

    model: str | None = HfArg(default=None, help="Folder, hub id, or gpt1-novels.")
    revision: str | None = HfArg(default=None, help="Branch of the hub, or checkpoint in the folder of a run.")
    device: str | None = HfArg(default=None, help="Default: an accelerator, if there is one, else cpu.")

    def __post_init__(self):
        if self.device is not None:
            check_device(self.device)
        self.device = self.device or str(default_device())


def at_revision(model: str | None, revision: str | None) -> str | None:
    """The folder of a model's revision: a branch, tag or commit of the hub, or a checkpoint in the folder of a run."""
    if model is None or revision in (None, "main"):  # the branch that the hub takes, and the run itself
        return model
    if not Path(model).is_dir():
        check_model("--model", model, revision)
        return snapshot_download(model, revision=revision, allow_patterns=FILES)
    if not Path(model, revision, "config.json").is_file():
        found = sorted(path.parent.name for path in Path(model).glob("*/config.json"))
        raise UserError(f"{model} has no checkpoint {revision}. --revision may be: {', '.join(found) or 'none'}.")
    return str(Path(model, revision))


def check_model(flag: str, name: str | None, revision: str | None = None) -> None:
    """Checks early that the model named by a flag is a folder with its configuration, or may be a hub id."""
    if name is None or Path(name, "config.json").is_file():
        return
    is_beside_models = "/" in name and any(Path(name).parent.glob("*/config.json"))
    near = "" if "/" in name else nearest(name, ["gpt1-novels"])  # owner/gpt1-novels may be another
    if newest := max(Path(name).glob("checkpoint-*/config.json"), key=os.path.getmtime, default=None):
        near = f", but {newest.parent} is"  # of a run that did not end
    if Path(name).exists() or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name, re.ASCII) or is_beside_models or near:
        which = f"{flag} {name} is no folder with a config.json{near}"
        raise UserError(f"{which}. Pass one, or a hub id such as owner/name.")
    if HF_HUB_OFFLINE and not isinstance(try_to_load_from_cache(name, "config.json", revision=revision), str):
        raise UserError(f"{flag} {name} is no folder here, nor kept from the hub (HF_HUB_OFFLINE is set). Pass one.")


def check_is_new(flag: str, file: str | None) -> None:
    """Refuses a file that exists, before any work is done: what a user saved is never written over."""
    if file is not None and Path(file).exists():
        raise UserError(f"{flag} {file} is there already. Pass another name, or move the file away.")


def read_with_model(command: str, words: list[str]) -> Any:
    """The arguments of a command whose first word may be its model, with the folder of the model's revision."""
    parser = parser_of(command)
    parser.add_argument("folder", nargs="?", help="the model, as --model")
    args, positional = parser.read(words)
    check_is_new("--output_file", args.output_file)
    args.model = positional.folder or args.model
    if args.model is None:
        raise UserError(f"No model was given. Write a folder, a hub id or gpt1-novels after `gpt1 {command}`.")
    args.model = at_revision(args.model, args.revision)
    check_model("--model" if positional.folder is None else "model", args.model)
    return args


def check_unknown(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], source: str, is_allowed=True) -> float:
    """The share of unknown tokens in some texts. Above 5 % it is said; above one half it may be refused."""
    share, examples = unknown_share(tokenizer, texts)
    shown = ", ".join(repr(text[:60]) for text in examples)
    if share > 0.5 and not is_allowed:
        told = f"The tokenizer does not know {share:.0%} of the tokens of {source}, as in {shown}"
        raise UserError(f"{told}. Choose a model that was trained on such texts, or pass --allow_unknown_text.")
    if share > 0.05:
        print(f"{share:.0%} of the tokens of {source} are unknown to the tokenizer, as in {shown}.", file=sys.stderr)
    return share


def some_texts(rows: Dataset | list[dict], task: Task) -> list[str]:
    """The texts of evenly drawn rows."""
    drawn = [rows[place] for place in range(0, len(rows), math.ceil(len(rows) / UNKNOWN_ROWS) or 1)]
    return [row[column] for column in task.text_columns for row in drawn if isinstance(row.get(column), str)]
