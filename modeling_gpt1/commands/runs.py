"""What the commands that train share: opening a model, resuming a run, writing its results."""

import ast
import dataclasses
import logging
import shlex
import sys
from collections.abc import Collection
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from tqdm.auto import tqdm
from transformers import PreTrainedConfig, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.hf_argparser import HfArg
from transformers.trainer_utils import has_length

from tokenization.errors import UserError
from tokenization.wording import counted, nearest

from .. import GPT1Config
from ..families import FAMILIES, without_adapter
from ..inference.devices import accelerator_name
from ..training.callbacks import ProgressBar, ReadableLog
from ..training.checkpoint import OF_OPTIMIZER, checkpoint_to_resume, newest_whole_checkpoint
from .arguments import CommandParser, read_settings, with_flags

logger = logging.getLogger(__name__)
# Fields of the configuration that follow from the tokenizer and the data.
DERIVED_FIELDS = ("vocab_size", "traversal", "columns", "num_labels", "id2label", "label2id", "problem_type")
SETTINGS = "run.yaml"
# Results that a run writes beside its model.
WRITTEN = "train_results.json eval_results.json predict_results.json all_results.json predictions.jsonl "
WRITTEN += "predictions_test_matched.jsonl predictions_test_mismatched.jsonl eval_predictions.jsonl "
WRITTEN += "eval_predictions_validation_matched.jsonl eval_predictions_validation_mismatched.jsonl"


@dataclass
class ModelArguments:
    """Where model and tokenizer come from."""

    model: str | None = HfArg(default=None, help="Folder, hub id, or gpt1-novels; none: a fresh model.")
    config_overrides: str | None = HfArg(default=None, help="Of a fresh model: hidden_size=256,num_hidden_layers=4.")
    family: str | None = HfArg(default=None, help="Of a fresh model.", metadata={"choices": ["gpt1", "gpt1-lstm"]})
    tokenizer_name: str | None = HfArg(default=None, help="Folder or hub id. Default: the model's.")
    allow_unknown_text: bool = HfArg(default=False, help="Train even if the tokenizer knows less than half of a text.")
    license: str | None = HfArg(default=None, help="Licence in the card, such as mit.")
    language: str | None = HfArg(default=None, help="Language in the card, such as en.")

    def __post_init__(self):
        for flag, value in (("--config_overrides", self.config_overrides), ("--family", self.family)):
            if self.model is not None and value is not None:
                raise UserError(f"{flag} {value} describes a fresh model, not --model {self.model}. Leave one out.")
        if self.model is None:
            self.fresh_config()  # a wrong configuration is told at once

    def fresh_config(self, tokenizer: transformers.PreTrainedTokenizerBase | None = None) -> PreTrainedConfig:
        """The configuration given by --family and --config_overrides."""
        family = FAMILIES[self.family or "gpt1"]
        overrides = parse_overrides(self.config_overrides or "", family.config_class, family.common_sizes)
        try:
            config = family.make_config(tokenizer, **overrides)
            family.check_sizes(config)
        except (StrictDataclassError, TypeError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else error.__cause__ or error
            raise UserError(f"--config_overrides {self.config_overrides}: {str(reason).rstrip('.')}.") from error
        return config


def parse_overrides(
    text: str, config_class: type[PreTrainedConfig] = GPT1Config, more: Collection[str] = ()
) -> dict[str, Any]:
    """`"hidden_size=256,resid_pdrop=0.0"` as keyword arguments of the configuration; `more` are names it has not."""
    fields = (config_field.name for config_field in dataclasses.fields(config_class))
    whole = {*fields, *more} - {*DERIVED_FIELDS}
    known = {*whole, *config_class.attribute_map} - {*DERIVED_FIELDS}
    overrides = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, _, value = map(str.strip, pair.partition("="))
        if name not in known or not value:
            near = nearest(name, whole - {name}) or nearest(name, known - {name})
            raise UserError(
                f"--config_overrides has {pair!r}{near}; field=value is needed, of a field of {config_class.__name__}"
                " such as hidden_size=256 that does not come from the tokenizer or the data."
            )
        try:
            is_word = value.lower() in ("true", "false", "none")
            overrides[name] = ast.literal_eval(value.capitalize() if is_word else value)
        except (ValueError, SyntaxError):  # a bare word, such as the name of an activation
            overrides[name] = value
    return overrides


def check_output_folder(args: TrainingArguments, data: dict[str, Any]) -> str | None:
    """Checks that the run may write to the output folder; returns the complete checkpoint that it resumes from.

    These settings of the data must be those of the run. A file may move, but not change its name; behind a folder's
    pattern the folder's name counts, too.
    """
    folder = Path(args.output_dir)
    if folder.is_file():
        raise UserError(f"--output_dir {folder} is a file. Pass a folder.")
    if args.resume_from_checkpoint is None and folder.is_dir() and any(folder.iterdir()):
        how = "--resume_from_checkpoint auto to resume the run that wrote it"
        raise UserError(f"--output_dir {folder} is not empty. Pass {how}, or pass another folder.")
    checkpoint = checkpoint_to_resume(args.resume_from_checkpoint, args.output_dir)
    settings = checkpoint and Path(checkpoint).parent / SETTINGS
    before = read_settings(settings) if settings and settings.is_file() else {}
    for name in [name for name in data if name in before]:
        was, now = (list(map(str, x if isinstance(x, list) else [x])) for x in (before[name], data[name]))
        if list(map(names_in, was)) != list(map(names_in, now)):
            told = f"{checkpoint} was trained with --{name} {' '.join(was)}, and a run cannot go on with"
            raise UserError(f"{told} {' '.join(now)}. Pass what that run had, or another --output_dir.")
    return checkpoint


def names_in(path: str) -> tuple[str, ...]:
    """The last name of a path; of a pattern, such as `books/*.txt`, also its folder's."""
    return Path(path).parts[-2 if has_magic(Path(path).name) else -1 :]


def check_metric(args: TrainingArguments, scores: Collection[str]) -> None:
    """Checks early that the score which chooses the best checkpoint is one of the run's."""
    name = args.metric_for_best_model
    if name is not None and name.removeprefix("eval_") not in scores:
        near, needed = nearest(name, scores), " or ".join(scores)
        raise UserError(f"--metric_for_best_model {name}{near} is no score of this run. Pass {needed}.")


class AboveTheBar(logging.Handler):
    """Writes lines above a progress bar: warnings to stderr, with the flags of the command; others to stdout."""

    def __init__(self, parser: CommandParser) -> None:
        super().__init__()
        self.parser = parser

    def emit(self, record: logging.LogRecord) -> None:
        is_warning = record.levelno >= logging.WARNING
        line = with_flags(self.parser, self.format(record)) if is_warning else self.format(record)
        tqdm.write(line, file=sys.stderr if is_warning else sys.stdout)


def set_up_logging(args: TrainingArguments, parser: CommandParser) -> None:
    """Makes only the main process print the information lines of a run."""
    logging.basicConfig(format="%(message)s", handlers=[AboveTheBar(parser)])
    logging.getLogger("modeling_gpt1").setLevel(logging.INFO if args.should_log else logging.WARNING)
    transformers.utils.logging.set_verbosity(args.get_process_log_level())


class RunCallback(TrainerCallback):
    """Says at its start what a run will do and keeps its settings, and logs a short run about ten times."""

    def __init__(self, lines: list[str], checkpoint: str | None, parser: CommandParser) -> None:
        self.lines, self.checkpoint, self.parser, self.is_finished = lines, checkpoint, parser, False

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.is_finished = state.global_step >= state.max_steps
        is_default = (args.logging_strategy, args.logging_steps) == ("steps", TrainingArguments.logging_steps)
        self.is_short = is_default and state.max_steps < 10 * args.logging_steps
        if self.is_short:  # evaluations that follow it by default have their own by now
            args.logging_steps = max(1, state.max_steps // 10)
        state.compute_steps(args, state.max_steps)  # a resumed run logs and saves as often as it is told now
        rows = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        plan = f"training: {counted(state.max_steps, 'update')} of {counted(rows, 'row')}"
        if has_length(train_dataloader):
            passes = state.max_steps * args.gradient_accumulation_steps / max(len(train_dataloader), 1)
            plan += f", {passes:.3g} epoch{'s' if round(passes, 2) != 1 else ''}"
        how = "" if self.checkpoint is None else f"; goes on from {self.checkpoint}"
        last = f"finished: {self.checkpoint} has {counted(state.global_step, 'update')} of {state.max_steps:,} asked"
        plan = f"{last}; nothing is left to train" if self.is_finished else f"{plan}, into {args.output_dir}{how}"
        for line in (*self.lines, plan):
            logger.info(line)
        if self.is_finished:
            return
        self.parser.settings |= {name: getattr(args, name) for name in OF_OPTIMIZER}  # a checkpoint has its own
        self.parser.write_settings(Path(args.output_dir, SETTINGS))
        if args.should_log and (warm_up := args.get_warmup_steps(state.max_steps)) >= state.max_steps:
            logger.warning(
                f"The warm-up of {counted(warm_up, 'update')} does not end within the {state.max_steps:,} of the run: "
                "its learning rate stays small. Pass --warmup_steps, such as 0.05 for a twentieth."
            )

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log |= self.is_short and state.global_step == state.max_steps


def use_readable_log(trainer: Trainer, evaluated: str = "") -> None:
    for callback in (transformers.ProgressCallback, transformers.PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ReadableLog(evaluated))
    if sys.stderr.isatty() and not trainer.args.disable_tqdm:
        trainer.add_callback(ProgressBar())


def describe_start(trainer: Trainer, start: str | None) -> str:
    """The model, where it comes from, and what computes it."""
    args = trainer.args
    precision = {"no": "float32", "bf16": "bfloat16"}.get(trainer.accelerator.mixed_precision, "mixed precision")
    device = "CPU" if args.device.type == "cpu" else accelerator_name()
    processes = f" in {args.world_size} processes" if args.world_size > 1 else ""
    every, trained = (trainer.model.num_parameters(only_trainable=which) for which in (False, True))
    share = f" ({trained:,} of them trained)" if trained < every else ""
    return (
        f"model: {type(without_adapter(trainer.model)).__name__}, {every:,} parameters{share}, "
        f"{'fresh' if start is None else f'from {start}'}; on {device}{processes}, {precision}"
    )


def train(trainer: Trainer, start: str | None, data: list[str], checkpoint: str | None, parser: CommandParser) -> bool:
    """Trains or resumes, and writes the model, the log and the metrics to the output folder.

    Returns whether there was anything to train: a run that was finished before keeps its files.
    """
    args, output = trainer.args, Path(trainer.args.output_dir)
    # Asked before processes can differ in what they see.
    has_results = all((output / name).is_file() for name in ("train_results.json", "trainer_state.json"))
    callback = RunCallback([describe_start(trainer, checkpoint or start), *data], checkpoint, parser)
    trainer.add_callback(callback)
    try:
        result = trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)
    except KeyboardInterrupt:
        for bar in tuple(tqdm._instances):
            bar.close()  # or the sentence would stand on its line
        state, newest = trainer.state, newest_whole_checkpoint(args.output_dir)
        how = f"The same command with --resume_from_checkpoint auto goes on from {newest}"
        how = "There is no complete checkpoint to go on from" if newest is None else how
        raise KeyboardInterrupt(f" after update {state.global_step} of {state.max_steps}. {how}") from None
    if callback.is_finished and has_results:
        trainer.state = TrainerState.load_from_json(str(output / "trainer_state.json"))
        return False
    if args.should_save:
        for name in WRITTEN.split():  # of earlier weights, and none of a user's
            (output / name).unlink(missing_ok=True)
    trainer.save_model(_internal_call=True)  # the push comes at the end, with all results
    trainer.save_state()
    trainer.save_metrics("train", result.metrics)
    return True


def publish(trainer: Trainer, start: str | None, following: str, **facts) -> None:
    """Writes the card, uploads the folder if --push_to_hub is given, and names the next command."""
    # A local folder means nothing to readers of the card.
    facts["finetuned_from"] = None if start is None or Path(start).exists() else start
    if trainer.args.push_to_hub:
        trainer.push_to_hub(**facts)
    else:
        trainer.create_model_card(**facts)
    following = following.format(shlex.quote(trainer.args.output_dir))
    logger.info(f"written to {trainer.args.output_dir}: model, tokenizer, card and results. Next: {following}")
