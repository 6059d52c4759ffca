"""What the commands that train share: the checks of a run's folder, its log, training, and writing its results."""

import logging
import os
import shlex
import sys
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from glob import has_magic
from pathlib import Path
from typing import Any

import transformers
from tqdm.auto import tqdm
from transformers import Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import has_length

from tokenization.errors import UserError
from tokenization.wording import counted, nearest

from ..families import without_adapter
from ..families.probing import num_parameters
from ..inference.devices import accelerator_name
from ..storage.locking import LOCK_NAME
from ..storage.writing import write_atomically
from ..training.callbacks import ProgressBar, ReadableLog
from ..training.checkpoint import (
    CARD_NAME,
    INCOMPLETE_DIR,
    OF_OPTIMIZER,
    check_is_last,
    checkpoint_to_resume,
    newest_whole_checkpoint,
)
from ..training.trainer_internals import ResumableTrainer
from .arguments import CommandParser, read_settings, with_flags

logger = logging.getLogger(__name__)
SETTINGS = "run.yaml"
# Stands in the output folder from the end of training until results, card and push are done. Pushes leave out what
# begins with "_".
UNFINISHED = "_unfinished.txt"
# Results that a run writes beside its model.
RESULTS = (
    "train_results.json",
    "eval_results.json",
    "predict_results.json",
    "all_results.json",
    "predictions.jsonl",
    "predictions_test_matched.jsonl",
    "predictions_test_mismatched.jsonl",
    "eval_predictions.jsonl",
    "eval_predictions_validation_matched.jsonl",
    "eval_predictions_validation_mismatched.jsonl",
    "confusion_matrix.png",
    "confusion_matrix_validation_matched.png",
    "confusion_matrix_validation_mismatched.png",
)
PRECISIONS = {"no": "float32", "bf16": "bfloat16"}
NUM_LOGS = 10  # of a run that is shorter than that many logging_steps


def check_output_folder(args: TrainingArguments, model: str | None, data: dict[str, Any]) -> str | None:
    """Checks that the run may write to the output folder; returns the complete checkpoint that it resumes from.

    A new run must not replace the model that it starts from. These settings of the data must be those of the run
    before. A file may move, but not change its name; of a pattern the folder's name must stay, too.
    """
    folder = Path(args.output_dir)
    if folder.is_file():
        raise UserError(f"--output_dir {folder} is a file. Pass a folder.")
    if args.resume_from_checkpoint is None and folder.is_dir() and any(folder.iterdir()):
        raise UserError(
            f"--output_dir {folder} is not empty. Pass --resume_from_checkpoint auto to resume the run that wrote it, "
            "or pass another folder."
        )
    checkpoint = checkpoint_to_resume(args.resume_from_checkpoint, args.output_dir)
    check_is_last(args.resume_from_checkpoint, args.output_dir)
    if checkpoint is not None:
        check_same_data(checkpoint, data)
    elif args.resume_from_checkpoint is not None:
        check_own_folder(folder)
        if model is not None and Path(model).is_dir() and Path(model).resolve() == folder.resolve():
            raise UserError(
                f"--output_dir {folder} is the folder of --model, which the run would replace: there is no checkpoint "
                "to resume. Pass another folder."
            )
    return checkpoint


def check_no_results(args: TrainingArguments) -> None:
    """Checks that a run that does not train replaces no results of an earlier one."""
    beginnings: list[str] = []
    if args.do_eval:
        beginnings += ("eval_", "confusion_matrix")
    if args.do_predict:
        beginnings += ("predict_", "predictions")
    written = [name for name in RESULTS if name.startswith(tuple(beginnings))]
    found = [name for name in written if Path(args.output_dir, name).is_file()]
    if found:
        raise UserError(
            f"--output_dir {args.output_dir} has {' and '.join(found[:2])} of an earlier run, which would be "
            "replaced. Pass another folder."
        )


def check_own_folder(folder: Path) -> None:
    """Checks that a new run with `--resume_from_checkpoint auto` replaces no file of others."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    replaced = names & {*RESULTS, CARD_NAME, "config.json", "model.safetensors"}
    if replaced and not names & {SETTINGS, LOCK_NAME, INCOMPLETE_DIR, UNFINISHED}:
        raise UserError(
            f"--output_dir {folder} holds no training to resume ({SETTINGS} is missing), and its "
            f"{' and '.join(sorted(replaced))} would be replaced. Pass another folder, or move away what is there."
        )


def check_same_data(checkpoint: str, data: dict[str, Any]) -> None:
    """Checks that a checkpoint was trained with the same settings of the data, as far as its run wrote them."""
    settings = Path(checkpoint).parent / SETTINGS
    before = read_settings(settings) if settings.is_file() else {}
    for name, value in data.items():
        if name not in before:
            continue
        was, now = as_texts(before[name]), as_texts(value)
        has_names = name == "train_files" and bool(data.get("train_weights"))  # of the texts of a mixture
        if [names_in(text, has_names) for text in was] != [names_in(text, has_names) for text in now]:
            raise UserError(
                f"{checkpoint} was trained with --{name} {' '.join(was)}, and a run cannot go on with "
                f"{' '.join(now)}. Pass what that run had, or another --output_dir."
            )


def as_texts(value: Any) -> list[str]:
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def names_in(text: str, has_name: bool) -> tuple[str, ...]:
    """The last name of a path; of a pattern, such as `books/*.txt`, also its folder's; the name before it, as in
    `en=books/en`, where it has one.
    """
    name, path = "", Path(text)
    if has_name:
        name, _, after = text.partition("=")
        path = Path(after)
    if has_magic(path.name):
        return (name, *path.parts[-2:])
    return (name, *path.parts[-1:])


def check_reporters(args: TrainingArguments) -> None:
    """Checks early that the programs of --report_to are known and installed, and names the run where one needs it."""
    for name in args.report_to:
        try:
            for make_callback in get_reporting_integration_callbacks([name]):
                make_callback()
        except (ValueError, RuntimeError, ImportError) as error:
            raise UserError(f"--report_to {name} cannot be used: {error} Or pass --report_to none.") from error
    if "trackio" in args.report_to and args.run_name is None:
        # It ends its record with the training, and goes on with it for the evaluation only if it has a name.
        args.run_name = args.output_dir
    if "wandb" in args.report_to and os.environ.get("WANDB_MODE", "online") == "online":
        import wandb  # imported only where it is used

        if not wandb.login(prompt=False):
            raise UserError(
                "--report_to wandb cannot be used: there is no API key. Run `wandb login`, set WANDB_MODE=offline, or "
                "pass --report_to none."
            )


def check_metric(args: TrainingArguments, scores: Collection[str]) -> None:
    """Checks early that the score which chooses the best checkpoint is one of the run's."""
    name = args.metric_for_best_model
    if name is not None and name.removeprefix("eval_") not in scores:
        raise UserError(
            f"--metric_for_best_model is {name}, which is not a score of this run{nearest(name, scores)}. Pass "
            f"{' or '.join(scores)}."
        )


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
    """Logs at its start what a run will do and keeps its settings, and logs a short run about ten times."""

    def __init__(
        self, trainer: ResumableTrainer, lines: list[str], checkpoint: str | None, parser: CommandParser
    ) -> None:
        self.trainer = weakref.proxy(trainer)
        self.lines = lines
        self.checkpoint = checkpoint
        self.parser = parser
        self.is_finished = False  # whether the checkpoint has all updates

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.is_finished = state.global_step >= state.max_steps
        if self.is_finished and self.checkpoint is None:
            raise UserError("The run would make no update. Pass --num_train_epochs or --max_steps above 0.")
        self.log_short_runs_often(args, state)
        plan = self.describe_end(state) if self.is_finished else self.describe_plan(args, state, train_dataloader)
        for line in (*self.lines, plan):
            logger.info(line)
        if self.is_finished:
            return
        self.parser.settings |= {name: getattr(args, name) for name in OF_OPTIMIZER}  # a checkpoint has its own
        self.parser.write_settings(Path(args.output_dir, SETTINGS))
        if args.should_log:
            warn_of_warm_up(args, state)

    def log_short_runs_often(self, args: TrainingArguments, state: TrainerState) -> None:
        is_default = (args.logging_strategy, args.logging_steps) == ("steps", TrainingArguments.logging_steps)
        self.is_short = is_default and state.max_steps < NUM_LOGS * args.logging_steps
        if self.is_short:  # evaluations that follow it by default have their own by now
            args.logging_steps = max(1, state.max_steps // NUM_LOGS)
        state.compute_steps(args, state.max_steps)  # a resumed run logs and saves as often as it is told now

    def describe_end(self, state: TrainerState) -> str:
        done = f"{self.checkpoint} has {counted(state.global_step, 'update')} of {state.max_steps:,}"
        return f"finished: {done}; nothing is left to train"

    def describe_plan(self, args: TrainingArguments, state: TrainerState, train_dataloader: Any) -> str:
        num_rows = self.trainer.get_total_train_batch_size(args)
        plan = f"training: {counted(state.max_steps, 'update')} of {counted(num_rows, 'row')}"
        if has_length(train_dataloader):
            epochs = state.max_steps * args.gradient_accumulation_steps / max(len(train_dataloader), 1)
            plan += f", {epochs:.3g} {'epoch' if round(epochs, 2) == 1 else 'epochs'}"
        plan += f", into {args.output_dir}"
        return plan if self.checkpoint is None else f"{plan}; resumed from {self.checkpoint}"

    def on_step_end(self, args, state, control, **kwargs):
        control.should_log |= self.is_short and state.global_step == state.max_steps

    def on_train_end(self, args, state, control, **kwargs):
        if args.early_stopping_patience is None or self.is_finished or self.trainer.is_terminated:
            return
        if control.should_training_stop and state.global_step < state.max_steps:
            evaluations = counted(args.early_stopping_patience, "evaluation")
            logger.info(
                f"stopped early: no better {args.metric_for_best_model} for {evaluations}; the weights are those of "
                f"{state.best_model_checkpoint}"
            )


def warn_of_warm_up(args: TrainingArguments, state: TrainerState) -> None:
    """Warns of a learning rate that rises until the run ends."""
    warm_up = args.get_warmup_steps(state.max_steps)
    if warm_up >= state.max_steps:
        logger.warning(
            f"The warm-up of {counted(warm_up, 'update')} does not end within the {state.max_steps:,} of the run: "
            "its learning rate stays small. Pass --warmup_steps, such as 0.05 for a twentieth."
        )


def use_readable_log(trainer: Trainer, evaluated: str) -> None:
    for callback in (transformers.ProgressCallback, transformers.PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(ReadableLog(evaluated))
    if sys.stderr.isatty() and not trainer.args.disable_tqdm:
        trainer.add_callback(ProgressBar())


def describe_start(trainer: Trainer, start: str | None) -> str:
    """The model, where it comes from, and what computes it."""
    model, args = trainer.model, trainer.args
    num_all, num_trained = num_parameters(model), num_parameters(model, only_trainable=True)
    parameters = f"{num_all:,} parameters"
    if num_trained < num_all:
        parameters += f" ({num_trained:,} of them trained)"
    origin = "new" if start is None else f"from {start}"
    device = "CPU" if args.device.type == "cpu" else accelerator_name()
    if args.world_size > 1:
        device += f" in {args.world_size} processes"
    precision = PRECISIONS.get(trainer.accelerator.mixed_precision, "mixed precision")
    return f"model: {type(without_adapter(model)).__name__}, {parameters}, {origin}; on {device}, {precision}"


def train(trainer: Trainer, start: str | None, data: list[str], checkpoint: str | None, parser: CommandParser) -> bool:
    """Trains or resumes, and writes the model, the log and the metrics to the output folder.

    Returns whether the results of the run are still to be written: a run that was finished before keeps its files.
    """
    output = Path(trainer.args.output_dir)
    # Looked up before processes can differ in what they see.
    was_stopped = (output / UNFINISHED).is_file()
    num_written = updates_of_results(output)
    callback = RunCallback(trainer, [describe_start(trainer, checkpoint or start), *data], checkpoint, parser)
    trainer.add_callback(callback)
    try:
        result = trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    except BaseException as error:
        is_log_elsewhere = num_written is not None or newest_whole_checkpoint(output) is not None
        if trainer.state.log_history and not is_log_elsewhere:
            trainer.save_state()  # for `gpt1 plot`
        if isinstance(error, KeyboardInterrupt):
            raise explain_interruption(trainer) from None
        raise
    if trainer.is_terminated and trainer.state.global_step < trainer.state.max_steps:
        raise explain_interruption(trainer)
    if callback.is_finished and num_written == trainer.state.global_step:
        trainer.state = TrainerState.load_from_json(str(output / TRAINER_STATE_NAME))
        if was_stopped:
            trainer.state.log_history = up_to_the_end_of_training(trainer.state.log_history)
            logger.info("The run was stopped before its results and its card were complete. They are written now.")
        return was_stopped
    if trainer.args.should_save:
        write_atomically(output / UNFINISHED, "Results, card or upload of this run are not complete.\n")
        for name in RESULTS:  # of earlier weights, and none of a user's
            (output / name).unlink(missing_ok=True)
    trainer.save_model(_internal_call=True)  # the push comes at the end, with all results
    trainer.save_state()
    trainer.save_metrics("train", result.metrics)
    return True


def updates_of_results(output: Path) -> int | None:
    """The number of updates of the model whose results lie in the folder; None if they are not there."""
    state = output / TRAINER_STATE_NAME
    if not state.is_file() or not (output / "train_results.json").is_file():
        return None
    try:
        return TrainerState.load_from_json(str(state)).global_step
    except (ValueError, TypeError):  # damaged: the results are written again
        return None


def up_to_the_end_of_training(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A log without the evaluations after the last update, which are repeated."""
    ends = [index for index, record in enumerate(records) if "train_runtime" in record]
    return records[: ends[-1] + 1] if ends else records


@contextmanager
def owed_results(trainer: Trainer) -> Iterator[None]:
    """Context in which a run writes its results, its card and its upload; a resume makes up for what is stopped."""
    try:
        yield
    except KeyboardInterrupt:
        raise explain_interruption(trainer) from None
    if trainer.args.should_save:
        Path(trainer.args.output_dir, UNFINISHED).unlink(missing_ok=True)


def explain_interruption(trainer: Trainer) -> KeyboardInterrupt:
    """The interruption with a text that says how to resume."""
    for bar in tuple(tqdm._instances):
        bar.close()  # or the sentence would stand on its line
    newest = newest_whole_checkpoint(trainer.args.output_dir)
    if newest is None:
        how = "There is no complete checkpoint to resume from"
    else:
        how = f"The same command with --resume_from_checkpoint auto resumes from {newest}"
    return KeyboardInterrupt(f" after update {trainer.state.global_step} of {trainer.state.max_steps}. {how}")


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
