"""What the commands that train share: opening a model, resuming a run, writing its results."""

import ast
import dataclasses
import logging
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, Trainer, TrainerCallback, TrainingArguments
from transformers.hf_argparser import HfArg

from .. import GPT1Config
from ..training.checkpoint import DivergenceError, advice, checkpoint_to_resume, newest_whole_checkpoint
from ..training.families import FAMILIES
from .arguments import TOKENIZER, check_model

logger = logging.getLogger(__name__)
WORDS = {"true": True, "false": False, "none": None}
# Fields of the configuration that follow from the tokenizer and the data.
DERIVED_FIELDS = ("vocab_size", "traversal", "columns", "num_labels", "id2label", "label2id", "problem_type")
# The files left by a run that ended before its first update: its settings, and a tokenizer that it trained.
SETTINGS, OF_A_START = "run.yaml", {"run.yaml", "tokenizer.json", "tokenizer_config.json"}


@dataclass
class ModelArguments:
    """Where model and tokenizer come from."""

    model: str | None = HfArg(default=None, help="A checkpoint: folder or hub id. Default: a fresh model.")
    config_overrides: str | None = HfArg(default=None, help="Of a fresh model: hidden_size=256,num_hidden_layers=4.")
    family: str | None = HfArg(default=None, help="Of a fresh model.", metadata={"choices": ["gpt1", "gpt1-lstm"]})
    tokenizer_name: str | None = HfArg(default=None, help="Tokenizer: folder or hub id. Default: the model's.")
    license: str | None = HfArg(default=None, help="Licence in the card, such as mit. Default: the checkpoint's.")

    def __post_init__(self):
        for flag, value in (("--config_overrides", self.config_overrides), ("--family", self.family)):
            if self.model is not None and value is not None:
                raise ValueError(
                    f"{flag} {value} describes a fresh model, but --model {self.model} is a trained one. Leave one of "
                    "them out."
                )
        if self.model is None:
            config = self.fresh_config()  # a wrong configuration is told at once
            try:
                FAMILIES[self.family or "gpt1"].check_sizes(config)
            except ValueError as error:
                raise ValueError(f"--config_overrides {self.config_overrides}: {str(error).rstrip('.')}.") from error

    def check_places(self) -> None:
        """Checks that the named model and tokenizer exist."""
        check_model("--model", self.model)
        check_model("--tokenizer_name", self.tokenizer_name, TOKENIZER)

    def fresh_config(self, tokenizer: PreTrainedTokenizerBase | None = None) -> PreTrainedConfig:
        """The configuration given by --family and --config_overrides."""
        family = FAMILIES[self.family or "gpt1"]
        overrides = parse_overrides(self.config_overrides or "", family.config_class, family.common_names)
        try:
            return family.make_config(tokenizer, **overrides)
        except StrictDataclassError as error:
            reason = str(error.__cause__ or error).rstrip(".")
            raise ValueError(f"--config_overrides {self.config_overrides}: {reason}.") from error


def parse_overrides(
    text: str, config_class: type[PreTrainedConfig] = GPT1Config, more: Collection[str] = ()
) -> dict[str, Any]:
    """`"hidden_size=256,resid_pdrop=0.0"` as keyword arguments of the configuration; `more` are names it has not."""
    fields = (config_field.name for config_field in dataclasses.fields(config_class))
    known = {*fields, *config_class.attribute_map, *more} - {*DERIVED_FIELDS}
    overrides = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if name not in known or not value:
            raise ValueError(
                f"--config_overrides has {pair!r}; field=value is needed, with a field of {config_class.__name__} "
                "such as hidden_size=256 that does not come from the tokenizer or the data."
            )
        try:
            overrides[name] = WORDS[value.lower()] if value.lower() in WORDS else ast.literal_eval(value)
        except (ValueError, SyntaxError):  # a bare word, such as the name of an activation
            overrides[name] = value
    return overrides


def where_to_resume(args: TrainingArguments) -> str | None:
    """The checkpoint's folder, or None for a new run.

    Raises ValueError if --resume_from_checkpoint names no complete checkpoint.
    """
    given = args.resume_from_checkpoint
    words = {"true": True, "auto": "auto"}
    return checkpoint_to_resume(given and words.get(given.lower(), given), args.output_dir)


def check_output_folder(args: TrainingArguments) -> None:
    """Checks that the run may write to the output folder and that the checkpoint it resumes from is complete."""
    folder = Path(args.output_dir)
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    is_of_a_start = SETTINGS in names and names <= OF_A_START
    if args.resume_from_checkpoint is None and names and not is_of_a_start:
        raise ValueError(
            f"--output_dir {folder} is not empty. Pass --resume_from_checkpoint auto to resume the run that wrote it, "
            "or pass another folder."
        )
    where_to_resume(args)


def set_up_logging(args: TrainingArguments, *loggers: logging.Logger) -> None:
    """Makes only the main process print the loggers' information lines."""
    logging.basicConfig(format="%(message)s")
    for logger in loggers:
        logger.setLevel(logging.INFO if args.should_log else logging.WARNING)
    transformers.utils.logging.set_verbosity(args.get_process_log_level())


class ShortRunCallback(TrainerCallback):
    """Logs a run about ten times if it would end before the first log of transformers' default.

    Another value of `logging_steps` would do the same, but evaluations follow it too.
    """

    def on_step_end(self, args, state, control, **kwargs):
        is_default = (args.logging_strategy, args.logging_steps) == ("steps", TrainingArguments.logging_steps)
        if is_default and state.max_steps < args.logging_steps:
            control.should_log |= state.global_step % max(1, state.max_steps // 10) == 0


def train(trainer: Trainer) -> None:
    """Trains or resumes, and writes the model, the log and the metrics to the output folder."""
    trainer.add_callback(ShortRunCallback())
    try:
        result = trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    except KeyboardInterrupt:
        state, checkpoint = trainer.state, newest_whole_checkpoint(trainer.args.output_dir)
        how = "; there is no complete checkpoint to go on from"
        if checkpoint is not None:
            how = f". The last complete checkpoint is {checkpoint}"
            how += ". The same command with --resume_from_checkpoint auto goes on"
        raise KeyboardInterrupt(f" after update {state.global_step} of {state.max_steps}{how}") from None
    trainer.save_model(_internal_call=True)  # the push comes at the end, with all results
    trainer.save_state()
    keep_metrics(trainer, "train", result.metrics)


def keep_metrics(trainer: Trainer, split: str, metrics: dict[str, float]) -> None:
    """Prints the metrics and writes them to the output folder."""
    trainer.log_metrics(split, metrics)
    losses = {name: value for name, value in metrics.items() if name.endswith("_loss")}
    found = [f"`{name}` is {value}" for name, value in losses.items() if not math.isfinite(value)]
    if found and trainer.args.stop_at_divergence:
        raise DivergenceError(f"{' and '.join(found)}. {advice(trainer.args.output_dir)}")
    trainer.save_metrics(split, metrics)


def publish(trainer: Trainer, start: str | None, **facts) -> None:
    """Writes the card, and uploads the output folder if --push_to_hub is given."""
    # A local folder means nothing to readers of the card.
    facts["finetuned_from"] = None if start is None or Path(start).exists() else start
    (trainer.push_to_hub if trainer.args.push_to_hub else trainer.create_model_card)(**facts)
