"""Checkpoints that are whole or absent, and runs that go on from them to the same weights and logs, to the bit.

A checkpoint is written beside its place, flushed to the disk and moved there by one rename. Its `checkpoint.json`
lists the files with their sizes, what [`transformers.Trainer`] forgets of a run, and what decides the order of the
data.
"""

import errno
import json
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, has_length, sort_checkpoints
from transformers.utils import logging

from .batching import LengthGroupingTrainer

logger = logging.get_logger(__name__)

CHECKPOINT_NAME = "checkpoint.json"
# Pushes to the hub leave out what begins with "_".
INCOMPLETE_DIR = "_incomplete"
# All that is ever put into that folder, and so all that is ever cleared from it.
_OUR_LEFTOVERS = re.compile(rf"(deleted-)?{PREFIX_CHECKPOINT_DIR}-\d+|model")


class CheckpointError(OSError):
    """A checkpoint or the model could not be written; what was there before is untouched."""


class ResumableTrainer(LengthGroupingTrainer):
    """[`transformers.Trainer`] with exact resume and atomic checkpoints; the base of both trainers.

    What a run that was killed at any moment and resumed repeats to the bit: weights, optimizer, scheduler, and every
    record of `state.log_history` but times and throughput.

    Raises:
        ValueError: `output_dir` cannot be written; `resume_from_checkpoint` names a checkpoint that is not whole.
        CheckpointError: the disk is full, or the folder can no longer be written.
    """

    def __init__(self, model=None, args: TrainingArguments | None = None, *others, **kwargs):
        if args is not None and args.should_save:
            check_output_dir(args.output_dir)
        self._staging_dir: str | None = None  # where the checkpoint under way is written
        self._restored: dict[str, Any] | None = None  # `checkpoint.json` of the checkpoint that is resumed
        self._update_is_complete = False  # whether a checkpoint may be written now
        super().__init__(model, args, *others, **kwargs)
        self.add_callback(_RestoreProgress(self))

    def train(self, resume_from_checkpoint: str | bool | None = None, trial=None, *args, **kwargs):
        """As in transformers, and exact: see the class.

        Args:
            resume_from_checkpoint (`str` or `bool`, *optional*):
                `True` takes the newest checkpoint of `output_dir` that was written whole, `"auto"` takes it if there
                is one and else starts anew, another string is a checkpoint's folder.
        """
        run_dir = self._get_output_dir(trial)
        if self.args.should_save:
            clear_leftovers(run_dir)
        checkpoint, self._restored = checkpoint_to_resume(resume_from_checkpoint, run_dir), None
        output = super().train(checkpoint, trial, *args, **kwargs)
        return output._replace(training_loss=output.metrics["train_loss"])

    # ---- What a checkpoint adds to Trainer's

    def _running_losses(self) -> dict[str, torch.Tensor]:
        """Sums of this process since the last log, by name."""
        return {"loss": self._tr_loss}

    def _set_running_losses(self, losses: dict[str, torch.Tensor]) -> None:
        self._tr_loss = losses["loss"]

    def _progress(self) -> dict[str, Any]:
        """What Trainer keeps of a run in this process only; a call of all processes."""
        losses = self._running_losses().items()
        return {
            "running_losses": {name: self.accelerator.gather(loss[None]).tolist() for name, loss in losses},
            "total_loss": self._total_loss_scalar,
            "last_logged_step": self._globalstep_last_logged,
            "last_update": [value if value is None else float(value) for value in self._last_update],
            "stream_position": self._stream_position,
        }

    def _restore_progress(self) -> None:
        self._last_step, self._last_update, self._update_is_complete = self.state.global_step, (None, None), False
        if self._restored is None:
            return
        progress = self._restored["progress"]
        self._total_loss_scalar, self._last_update = progress["total_loss"], tuple(progress["last_update"])
        losses = progress["running_losses"]
        if len(losses["loss"]) == self.args.world_size:
            own = {name: torch.tensor(every[self.args.process_index]) for name, every in losses.items()}
            self._globalstep_last_logged = progress["last_logged_step"]
            self._set_running_losses({name: loss.to(self.args.device) for name, loss in own.items()})

    def _data_order(self) -> dict[str, Any]:
        """What decides which rows a step sees."""
        args, is_sized = self.args, has_length(self.train_dataset)
        return {
            "processes": args.world_size,
            "per_device_train_batch_size": self._train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "seed": args.seed,
            "data_seed": args.data_seed,
            "train_sampling_strategy": args.train_sampling_strategy,
            "dataloader_drop_last": args.dataloader_drop_last,
            # A stream is dealt out to the workers; rows that have an index come in the same order from any number.
            "dataloader_num_workers": None if is_sized else args.dataloader_num_workers,
            "training examples": len(self.train_dataset) if is_sized else None,
        }

    # ---- The run

    def _init_training_state(self, max_steps, num_update_steps_per_epoch, num_train_epochs, checkpoint, trial):
        position = super()._init_training_state(
            max_steps, num_update_steps_per_epoch, num_train_epochs, checkpoint, trial
        )
        if checkpoint is None:
            return position
        self._restored = json.loads((Path(checkpoint) / CHECKPOINT_NAME).read_text(encoding="utf-8"))
        warn_of_other_order(checkpoint, self._restored["data_order"], self._data_order())
        if has_length(self.train_dataset) or self.args.ignore_data_skip:
            return position
        # Trainer takes a stream for one endless epoch and would look for the place in its first pass.
        return tuple(self._restored["progress"]["stream_position"])

    def _run_epoch(self, *, epoch, train_dataloader, **kwargs):
        if self.state.global_step >= self.state.max_steps:  # resumed where nothing is left to train
            self.control.should_training_stop = True
            return
        if hasattr(train_dataloader, "set_epoch"):
            # The loader that skips batches for one of several processes knows no sampler but accelerate's own.
            train_dataloader.set_epoch(epoch)
        super()._run_epoch(epoch=epoch, train_dataloader=train_dataloader, **kwargs)

    def _maybe_log_save_evaluate(
        self, tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time, learning_rate=None
    ):
        """Trainer comes here after every update, and again when the epoch is over.

        After the last update of an epoch all waits for the second time: a checkpoint of the first would lack what the
        epoch itself logs and evaluates, and a resumed run would not make up for it.
        """
        is_epoch_over, self._last_step = self._last_step == self.state.global_step, self.state.global_step
        stops = self.control.should_training_stop or self.control.should_epoch_stop
        if not is_epoch_over and (stops or self.state.epoch == epoch + 1):
            return
        if is_epoch_over and not self.accelerator.sync_gradients:
            # The last batches of a stream fill no update. Trainer would add them to the first of the next pass.
            model.zero_grad()
        if learning_rate is None:  # resumed at the very end of a stream
            grad_norm, learning_rate = self._last_update
        self._last_update = grad_norm, learning_rate
        num_batches = (self.state.epoch - epoch) * self.state.max_steps * self.args.gradient_accumulation_steps
        self._stream_position = (
            (epoch + 1, 0) if is_epoch_over and not self.control.should_training_stop else (epoch, round(num_batches))
        )
        self._update_is_complete = True
        super()._maybe_log_save_evaluate(
            tr_loss, grad_norm, model, trial, epoch, ignore_keys_for_eval, start_time, learning_rate=learning_rate
        )
        self._update_is_complete = False

    def _evaluate(self, trial, ignore_keys_for_eval, skip_scheduler=False):
        if skip_scheduler and self._restored is not None:  # `eval_on_start`: the run did not start here
            return {}
        return super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "train_loss" in logs:  # of the whole run, not of what came after the last resume
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step, 1)
        super().log(logs, start_time)

    # ---- Writing

    def _get_output_dir(self, trial):
        return self._staging_dir or super()._get_output_dir(trial)

    def _save_checkpoint(self, model, trial):
        if self.is_in_train and not self._update_is_complete:
            self.control.should_save = True  # a callback asks in the middle of an update, whose end comes next
            return
        run_dir, name = self._get_output_dir(trial), f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        staging = Path(run_dir, INCOMPLETE_DIR, name)
        with self._cleared_on_failure(staging, name, run_dir):
            self._staging_dir = str(staging.parent)
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._staging_dir = None
            content = {
                "save_only_model": self.args.save_only_model,
                "progress": self._progress(),
                "data_order": self._data_order(),
            }
            best = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}")
            if os.path.basename(best) == name or os.path.isdir(best):
                self.state.best_model_checkpoint = best
            self.accelerator.wait_for_everyone()  # every process has written its random state
            if self.args.should_save:
                self.state.save_to_json(str(staging / "trainer_state.json"))
                publish_checkpoint(staging, Path(run_dir, name), content)
        if self.args.should_save:
            self._delete_old_checkpoints(run_dir, name)
        self.accelerator.wait_for_everyone()

    def _delete_old_checkpoints(self, run_dir: str, newest: str) -> None:
        limit = self.args.save_total_limit
        kept = {newest, os.path.basename(self.state.best_model_checkpoint or newest)}
        folders = [Path(folder) for folder in sort_checkpoints(run_dir, use_mtime=True)]
        ours = [folder for folder in folders if (folder / CHECKPOINT_NAME).exists()]
        num_surplus = len(ours) - max(limit, len(kept)) if limit else 0
        for folder in [folder for folder in ours if folder.name not in kept][: max(num_surplus, 0)]:
            try:
                delete_checkpoint(folder)
            except OSError as error:
                logger.warning(f"{folder} is over `save_total_limit`, but could not be deleted: {error}.")

    def _finalize_training(self, trial, *args, **kwargs):
        best = self.state.best_model_checkpoint
        if self.args.should_save and self.args.save_total_limit == 1 and best is not None:
            # Trainer keeps the best one alone, and would delete the other in its place.
            self._delete_old_checkpoints(self._get_output_dir(trial), os.path.basename(best))
        return super()._finalize_training(trial, *args, **kwargs)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        output_dir = self.args.output_dir if output_dir is None else output_dir
        if not self.args.should_save and not getattr(self, "is_distributed_loading_by_transformers", False):
            return
        if self._staging_dir is not None:
            self._write_model(output_dir, state_dict)
            return
        staging = Path(output_dir, INCOMPLETE_DIR, "model")
        if self.args.should_save:
            remove_staging(staging)  # of a process that was killed here
        with self._cleared_on_failure(staging, "The model", output_dir):
            self._write_model(staging, state_dict)
            if self.args.should_save:
                publish_files(staging, Path(output_dir))

    def _write_model(self, folder: str | Path, state_dict: dict | None) -> None:
        """As Trainer, but without its pickle of the arguments, which holds paths of this machine."""
        model = self.accelerator.unwrap_model(self.model, keep_torch_compile=False)
        if self.args.should_save:
            os.makedirs(folder, exist_ok=True)
        model.save_pretrained(str(folder), state_dict=state_dict, is_main_process=self.args.should_save)
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        if self.args.should_save and tokenizer is not None:
            tokenizer.save_pretrained(str(folder))

    @contextmanager
    def _cleared_on_failure(self, staging: Path, what: str, folder: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if self.args.should_save:
                remove_staging(staging)
            if not is_write_failure(error):
                raise
            raise CheckpointError(explain_failure(error, what, folder, self._num_bytes())) from error

    def _num_bytes(self) -> int:
        """Size of weights and optimizer state in this process, which is what a checkpoint holds."""
        states = getattr(self.optimizer, "state", {}).values()
        tensors = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
        return sum(tensor.nbytes for tensor in (*self.model.parameters(), *tensors))


class _RestoreProgress(TrainerCallback):
    """Gives back what Trainer has just set to zero; no method of Trainer's lies between the two."""

    def __init__(self, trainer: ResumableTrainer):
        self._trainer = weakref.proxy(trainer)  # no cycle: a deleted trainer gives its memory back at once

    def on_train_begin(self, args, state, control, **kwargs):
        self._trainer._restore_progress()


# ---- Reading


def checkpoint_to_resume(resume: str | bool | None, output_dir: str | os.PathLike) -> str | None:
    """The checkpoint's folder that `resume_from_checkpoint` means, or `None` for a new run.

    Args:
        resume (`str` or `bool`, *optional*): as in [`ResumableTrainer.train`].
        output_dir (`str`): where the run writes its checkpoints.

    Raises:
        ValueError: there is no such checkpoint, or it was not written whole.
    """
    if resume is None or resume is False:
        return None
    if resume is True:
        return last_whole_checkpoint(output_dir)
    if resume == "auto":
        return newest_whole_checkpoint(output_dir)
    fault = find_fault(resume)
    if fault is not None:
        raise ValueError(
            f"`resume_from_checkpoint` is {str(resume)!r}, which is no whole checkpoint: {fault}. Pass the folder of "
            f"another one, or True for the newest whole one in {output_dir}."
        )
    return str(resume)


def last_whole_checkpoint(output_dir: str | os.PathLike) -> str:
    """The newest `checkpoint-<step>` that was written whole.

    Raises:
        ValueError: there is none.
    """
    checkpoint = newest_whole_checkpoint(output_dir)
    if checkpoint is None:
        raise ValueError(f"There is no whole checkpoint in {output_dir}. Start without `resume_from_checkpoint`.")
    return checkpoint


def newest_whole_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """As [`last_whole_checkpoint`], but `None` where there is none."""
    folders = [path for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*") if path.name[11:].isdigit()]
    for folder in sorted(folders, key=lambda path: int(path.name[11:]), reverse=True):
        fault = find_fault(folder)
        if fault is None:
            return str(folder)
        logger.warning(f"{folder} is no whole checkpoint and is passed over: {fault}.")
    return None


def find_fault(folder: str | os.PathLike) -> str | None:
    """What is wrong with a checkpoint, in words; `None` if all that was written is there."""
    folder = Path(folder)
    if not folder.is_dir():
        return "it is no folder"
    try:
        content = json.loads((folder / CHECKPOINT_NAME).read_text(encoding="utf-8"))
        sizes, is_model_alone = dict(content["files"]), content["save_only_model"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"it has no readable {CHECKPOINT_NAME}, which this trainer writes last"
    for name, size in sizes.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (folder / name).stat().st_size != size:
            return f"{name} has {(folder / name).stat().st_size} bytes instead of {size}"
    return "it holds the model alone (`save_only_model`)" if is_model_alone else None


def warn_of_other_order(checkpoint: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    changes = [f"{name} was {before.get(name)} and is {now[name]}" for name in now if now[name] != before.get(name)]
    if changes:
        logger.warning(
            f"This run goes on from {checkpoint}, but not as that run would have: {', '.join(changes)}. From here on "
            "it sees other rows. Give the old values to get the same result."
        )


# ---- Writing


def check_output_dir(output_dir: str | os.PathLike) -> None:
    """Make the folder and write into it, before any work is done.

    Raises:
        ValueError: it cannot be made or written.
    """
    try:
        os.makedirs(output_dir, exist_ok=True)
        with tempfile.TemporaryFile(dir=output_dir):
            pass
    except OSError as error:
        raise ValueError(
            f"`output_dir` is {os.fspath(output_dir)!r}, where nothing can be written ({error.strerror}). Pass "
            "a folder that can be written."
        ) from error


def publish_checkpoint(staging: Path, folder: Path, content: dict[str, Any]) -> None:
    """Make what was written to `staging` the checkpoint `folder`, at once."""
    files = [path for path in staging.rglob("*") if path.is_file()]
    content["files"] = {path.relative_to(staging).as_posix(): path.stat().st_size for path in files}
    (staging / CHECKPOINT_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    flush(staging)
    if folder.exists():
        delete_checkpoint(folder)
    os.rename(staging, folder)
    flush_folder(folder.parent)
    remove_staging(staging)


def publish_files(staging: Path, folder: Path) -> None:
    """Move each file to its place in `folder`, where it replaces an older one at once."""
    flush(staging)
    for path in [path for path in staging.rglob("*") if path.is_file()]:
        target = folder / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, target)
    flush_folder(folder)
    remove_staging(staging)


def delete_checkpoint(folder: Path) -> None:
    """Away by a rename first, so that it is never seen half deleted."""
    doomed = folder.parent / INCOMPLETE_DIR / f"deleted-{folder.name}"
    remove_staging(doomed)
    doomed.parent.mkdir(exist_ok=True)
    os.rename(folder, doomed)
    remove_staging(doomed)


def clear_leftovers(output_dir: str | os.PathLike) -> None:
    """Remove what a killed run had begun to write or to delete."""
    incomplete = Path(output_dir, INCOMPLETE_DIR)
    for path in incomplete.iterdir() if incomplete.is_dir() else ():
        if _OUR_LEFTOVERS.fullmatch(path.name):
            remove_staging(path)


def remove_staging(staging: Path) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):  # not empty, or gone
        staging.parent.rmdir()


def flush(folder: Path) -> None:
    """Wait until every file below `folder` is on the disk, and its name too."""
    for path in folder.rglob("*"):
        if path.is_dir():
            flush_folder(path)
        else:
            # Windows flushes only what is open for writing; elsewhere a file may be read-only, as copied code can be.
            flush_path(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    flush_folder(folder)


def flush_folder(folder: Path) -> None:
    if os.name == "nt":  # keeps names safe by itself and opens no folders
        return
    try:
        flush_path(folder, os.O_RDONLY)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems flush no folders
            raise


def flush_path(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_write_failure(error: Exception) -> bool:
    """Whether the system refused a write; tokenizers and torch say so by errors of their own, without a number."""
    return isinstance(error, (OSError, SafetensorError)) or any(
        words in str(error) for words in ("(os error ", "inline_container.cc", "iostream error")
    )


def explain_failure(error: Exception, what: str, folder: str, num_bytes: int) -> str:
    free = shutil.disk_usage(folder).free if os.path.isdir(folder) else num_bytes
    space = ""
    if free < num_bytes:
        space = f" It needs about {num_bytes / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free."
    checkpoint = newest_whole_checkpoint(folder)
    last = "There is no whole checkpoint yet" if checkpoint is None else f"The last whole checkpoint is {checkpoint}"
    remedy = "Make room (`save_total_limit` keeps fewer checkpoints)" if space else "Make sure that it can be written"
    go_on = "start again" if checkpoint is None else "go on with `resume_from_checkpoint=True`"
    cause = str(error).strip().partition("\n")[0]
    return f"{what} could not be written to {folder}: {cause}.{space} {last}. {remedy}, then {go_on}."
