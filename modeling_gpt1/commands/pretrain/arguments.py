"""The arguments of `gpt1 pretrain`: what training starts from, its text, and presets of settings."""

import math
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from transformers.hf_argparser import HfArg

from tokenization import TOKENIZER_KINDS
from tokenization.corpus.noise import DEFAULT_NOISES, NOISES
from tokenization.errors import UserError

from ... import GPT1PretrainingArguments
from ...families import FAMILIES
from ...inference.checkpoints import number_of_words
from ..arguments import CommandParser, flags_of, merge_overrides
from ..starts import ModelArguments

PRESETS = yaml.safe_load(Path(__file__).parents[1].joinpath("presets.yaml").read_text(encoding="utf-8"))
PRESET_FAMILIES = (None, "gpt1", "gpt2", "gpt3")  # that have the fields which presets set
EPOCHS = "--num_train_epochs"
BABYLM = "babylm"  # the save points of the BabyLM challenge


@dataclass(frozen=True)
class Mixture:
    """Named texts of which each is drawn with its own weight, as in table 2.2 of "Language Models are Few-Shot
    Learners" (Brown et al. 2020), not in proportion to its size.
    """

    files: dict[str, list[str]]
    """The files of each text."""
    shares: dict[str, float]
    """The share of each text in the blocks that are drawn. Together they are 1."""

    @classmethod
    def of(cls, train_files: list[str], train_weights: list[str]) -> "Mixture | None":
        """Reads `en=books/en nl=books/nl` and `en=0.7 nl=0.3`. None without weights.

        Raises:
            ValueError: a file without a name; a name without a weight, or with two; a weight without files, or one
                that is not above 0.
        """
        if not train_weights:
            return None
        files: dict[str, list[str]] = {}
        for given in train_files:
            name, _, path = given.partition("=")
            if not name or not path:
                raise UserError(
                    f"--train_weights draws from named texts, but --train_files {given} has no name. Pass "
                    f"name={given}."
                )
            files.setdefault(name, []).append(path)
        weights: dict[str, float] = {}
        for given in train_weights:
            name, _, weight = given.partition("=")
            if name in weights:
                raise UserError(f"--train_weights has two weights of {name!r}. Leave one of them out.")
            weights[name] = _weight(weight, given)
        for flag, missing in (("--train_files", weights.keys() - files), ("--train_weights", files.keys() - weights)):
            if missing:
                raise UserError(
                    f"{flag} does not name {min(missing)!r}. --train_files and --train_weights need the same names, "
                    "such as --train_files en=books/en nl=books/nl --train_weights en=0.7 nl=0.3."
                )
        total = sum(weights.values())
        return cls(files, {name: weights[name] / total for name in files})

    @property
    def all_files(self) -> list[str]:
        """The files of all texts."""
        return [path for paths in self.files.values() for path in paths]


def _weight(text: str, given: str) -> float:
    with suppress(ValueError):
        weight = float(text)
        if 0 < weight < math.inf:
            return weight
    raise UserError(f"--train_weights has {given!r}. Pass a name and a number above 0, such as en=0.7.")


@dataclass
class CorpusArguments:
    """The text to train on, and to measure perplexity on."""

    train_files: list[str] = HfArg(
        default_factory=list, help="Text to train on: files, folders, or patterns such as books/*.txt."
    )
    train_weights: list[str] = HfArg(
        default_factory=list,
        help="Shares of texts that --train_files names as name=files, such as en=0.7 nl=0.3. Default: all text, once.",
    )
    validation_files: list[str] = HfArg(
        default_factory=list, help="Text to measure perplexity on: files, folders or patterns."
    )
    dataset_name: str | None = HfArg(default=None, help="Data set of the hub to train on, in place of files.")
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of --dataset_name.")
    train_split: str = HfArg(default="train", help="Split of --dataset_name to train on.")
    validation_split: str | None = HfArg(default=None, help="Split of --dataset_name to measure perplexity on.")
    text_column: str = HfArg(default="text", help="Column with the text, in files and data sets of rows.")
    document_per: Literal["file", "line", "blank_line"] = HfArg(
        default="file", help="Document boundary: file, line or blank_line."
    )
    fix_text: bool = HfArg(default=False, help="Clean the text with ftfy, as the paper does.")
    mix_documents: bool = HfArg(default=False, help="Let a block continue into the next document.")
    block_length: int | None = HfArg(default=None, help="Tokens per block. Default: the model's number of positions.")
    streaming: bool = HfArg(default=False, help="Tokenise while training. Needs --max_steps.")
    preprocessing_num_workers: int | None = HfArg(default=None, help="Processes that tokenise. Default: one.")
    max_eval_blocks: int | None = HfArg(
        default=None, help="Blocks per evaluation; where there are several, the last reads all. Default: all."
    )
    max_words: str | None = HfArg(
        default=None, help="Length of the run in words, over all epochs, such as 100M. Default: --num_train_epochs."
    )
    save_at_words: list[str] = HfArg(
        default_factory=list, help="Words after which the model is saved: numbers such as 1M 2M, or babylm."
    )
    noise: list[str] = HfArg(
        default_factory=list,
        help=f"Noise of bart, one or several of {', '.join(NOISES)}. Default: {' '.join(DEFAULT_NOISES)}.",
    )
    mask_ngrams: int | None = HfArg(
        default=None,
        help="Most words of a mask of bert, roberta and albert, such as 3. Default: masks of single tokens.",
    )

    def __post_init__(self):
        if bool(self.train_files) == (self.dataset_name is not None):
            if self.train_files:
                raise UserError("--train_files and --dataset_name were both given. Leave one of them out.")
            raise UserError("No text to train on was given. Pass it as --train_files or --dataset_name.")
        if self.dataset_name is None:
            for name, default, remedy in (
                ("dataset_config_name", None, "Leave it out"),
                ("train_split", "train", "Leave it out"),
                ("validation_split", None, "Pass the text to evaluate on as --validation_files"),
            ):
                if getattr(self, name) not in (default, ""):  # an empty text leaves a flag of a file out
                    raise UserError(f"--{name} is for --dataset_name, and --train_files was given. {remedy}.")
        if self.validation_files and self.validation_split:
            raise UserError(
                f"--validation_split {self.validation_split} and --validation_files were both given. Leave one of "
                "them out."
            )
        self.given_train_files = self.train_files  # with the names of a mixture
        self.mixture = Mixture.of(self.train_files, self.train_weights)
        if self.mixture is not None:
            self.train_files = self.mixture.all_files
        if self.streaming and (self.max_words or self.save_at_words):
            raise UserError(
                "--streaming reads text whose words are not counted. Leave it out, or leave --max_words and "
                "--save_at_words out."
            )
        if self.streaming and self.preprocessing_num_workers is not None:
            raise UserError(
                f"--preprocessing_num_workers {self.preprocessing_num_workers} tokenises the text beforehand, but "
                "--streaming does so while it is read. Pass --dataloader_num_workers, or leave --streaming out."
            )
        if self.max_words:
            number_of_words(self.max_words)
        self.save_points()

    @property
    def noise_options(self) -> dict[str, Any]:
        """What was chosen of the noise."""
        chosen = {"noise": tuple(self.noise), "mask_ngrams": self.mask_ngrams}
        return {name: value for name, value in chosen.items() if value not in (None, ())}

    @property
    def counts_words(self) -> bool:
        """Whether the run counts the words that it reads."""
        return bool(self.max_words or self.save_at_words)

    def save_points(self) -> dict[str, int]:
        """The words after which the model is saved, by the folder's name."""
        if self.save_at_words != [BABYLM]:
            return {f"chck_{text}": number_of_words(text) for text in self.save_at_words}
        millions = [*range(1, 10), *range(10, 101, 10)]
        if self.max_words:  # the track of 100 M words goes on to 1 B
            millions += range(200, number_of_words(self.max_words) // 10**6 + 1, 100)
        return {f"chck_{number}M": number * 10**6 for number in millions}

    def source(self, use: Literal["train", "validation"]) -> dict[str, Any] | None:
        """Arguments of `load_blocks` and `training_texts` for a text; None without held-out text."""
        is_training = use == "train"
        files = self.train_files if is_training else self.validation_files
        split = self.train_split if is_training else self.validation_split
        if files:
            return self.source_of(files)
        if split is None:
            return None
        return {**self.source_of(self.dataset_name), "name": self.dataset_config_name, "split": split}

    def source_of(self, files: list[str] | str) -> dict[str, Any]:
        """Arguments of `load_blocks` and `training_texts` for some files, or a data set of the hub."""
        return {
            "source": files,
            "text_column": self.text_column,
            "fix_text": self.fix_text,
            "document_per": self.document_per,
        }


@dataclass
class StartArguments(ModelArguments):
    """What training starts from, and what the card says of it."""

    preset: str | None = HfArg(
        default=None, help="Sizes and rates to begin with; flags override them.", metadata={"choices": [*PRESETS]}
    )
    family: str | None = HfArg(default=None, help="Architecture of a new model.", metadata={"choices": [*FAMILIES]})
    tokenizer: str | None = HfArg(
        default=None,
        help="Tokenizer to learn: gpt1 (the default), cased, bytes, wordpiece or characters.",
        metadata={"choices": [*TOKENIZER_KINDS]},
    )
    num_merges: int | None = HfArg(default=None, help="Merges of the learnt tokenizer. Default: 40000.")
    prompts: list[str] = HfArg(
        default_factory=list, help="Texts that each evaluation continues. Default: it was, or the text's beginning."
    )

    def __post_init__(self):
        if self.preset and self.model:
            raise UserError(f"--preset {self.preset} is for a new model, not --model {self.model}. Leave one out.")
        super().__post_init__()
        given = self.tokenizer_name or self.model
        for flag, value in (("--num_merges", self.num_merges), ("--tokenizer", self.tokenizer)):
            if value is not None and given:
                raise UserError(
                    f"{flag} {value} learns a new tokenizer, but the tokenizer of {given} was given. Leave one of "
                    "them out."
                )
        if self.tokenizer == "characters" and self.num_merges is not None:
            raise UserError(
                f"--num_merges {self.num_merges} is not for --tokenizer characters, which merges none. Leave it out, "
                "or pass --tokenizer bytes."
            )


class PretrainingParser(CommandParser):
    """Also reads --preset, whose settings flags and the file of --config override."""

    def parse_words(self, words: list[str], command_line: list[str]) -> tuple[Namespace, list[str]]:
        namespace, rest = super().parse_words(words, command_line)
        if namespace.max_words and EPOCHS in flags_of(command_line):
            raise UserError(f"--max_words and {EPOCHS} both set the length of the run. Leave one of them out.")
        if namespace.preset:
            preset = preset_beside(namespace, words)
            has_these_sizes = namespace.family in PRESET_FAMILIES
            if not has_these_sizes and not namespace.config_overrides:
                raise UserError(
                    f"--preset {namespace.preset} has the sizes of a GPT-1, but --family {namespace.family} has other "
                    "fields. Pass its own as --config_overrides."
                )
            if has_these_sizes and namespace.config_overrides:
                overrides = merge_overrides(preset["config_overrides"], namespace.config_overrides)
                words += ["--config_overrides", overrides]
            self.set_defaults(**preset)
            namespace, rest = super().parse_words(words, command_line)
        check_stages(namespace, command_line)
        return namespace, rest


def preset_beside(given: Namespace, words: list[str]) -> dict[str, Any]:
    """The settings of --preset, without those whose place other flags take."""
    preset = dict(PRESETS[given.preset])
    if given.tokenizer_name or given.tokenizer == "characters":  # no merges are learnt
        del preset["num_merges"]
    if given.max_steps > 0 or EPOCHS in flags_of(words) or given.streaming:  # the length is given in another way
        del preset["max_words"]
    if given.streaming:  # counts no words
        del preset["save_at_words"]
    return preset


def check_stages(given: Namespace, command_line: list[str]) -> None:
    """Refuses flags of Trainer's that would make this command do something else than train."""
    wrong = [flag for flag, is_given in (("--do_eval", given.do_eval), ("--do_predict", given.do_predict)) if is_given]
    if "--do_train" in flags_of(command_line) and not given.do_train:
        wrong.append("--do_train")
    if wrong:
        raise UserError(
            f"`gpt1 pretrain` always trains, and evaluates on --validation_files. Leave {wrong[0]} out; `gpt1 "
            "evaluate --tasks wikitext` evaluates a saved model."
        )


ARGUMENTS = (StartArguments, CorpusArguments, GPT1PretrainingArguments)
BASICS = {
    "text": (
        "train_files",
        "validation_files",
        "dataset_name",
        "dataset_config_name",
        "validation_split",
        "text_column",
        "streaming",
    ),
    "model": ("model", "preset", "family", "config_overrides", "tokenizer", "num_merges", "tokenizer_name"),
    "training": (
        "output_dir",
        "config",
        "num_train_epochs",
        "max_steps",
        "learning_rate",
        "warmup_steps",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "seed",
        "bf16",
        "use_cpu",
    ),
    "log, evaluation, checkpoints": (
        "logging_steps",
        "eval_strategy",
        "eval_steps",
        "max_eval_blocks",
        "prompts",
        "save_strategy",
        "save_steps",
        "resume_from_checkpoint",
        "report_to",
        "push_to_hub",
    ),
}
