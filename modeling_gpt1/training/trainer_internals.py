"""All use of [`transformers.Trainer`]'s private names: exact resume, atomic checkpoints, order of the rows.

No other file of the packages overrides, calls or sets a name of Trainer's that begins with "_". The names used here
are listed with their signatures in tests/modeling_gpt1/training/test_trainer_internals.py, which fails first if a
release of transformers changes one.
"""

import dataclasses
import json
import os
import weakref
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import SequentialSampler
from transformers import (
    EarlyStoppingCallback,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
    trainer_utils,
)
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_jit_checkpoint import JITCheckpointCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy, has_length
from transformers.utils import logging

from tokenization.errors import UserError

from ..families import without_adapter
from ..storage.locking import one_writer
from ..storage.writing import check_folder, write_atomically
from . import checkpoint
from .batching import length_sampler
from .checks import check_folder_of_adapter
from .measures import Throughput
from .sharing import EndlessStream, SharedRows, UncountedBatch, share_rows

logger = logging.get_logger(__name__)


def write_metrics(path: str, metrics: dict[str, Any]) -> None:
    """Writes metrics as `Trainer.save_metrics` does."""
    write_atomically(path, json.dumps(metrics, indent=4, sort_keys=True))


def forget_evaluation(trainer: Trainer) -> None:
    """Lets the model of several processes be prepared for training after an evaluation.

    An evaluation before the training prepares the bare model, and accelerate prepares nothing twice: its gradients
    would stay apart in each process, without an error.
    """
    model = trainer.model
    if model is None or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # None: a search makes one later
        return
    if trainer.model_wrapped is model and vars(model).pop("_is_accelerate_prepared", False):
        trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)


def _is_news(record) -> bool:
    """Drops two warnings: that the model gets the tokenizer's ids, as it must, and what `keep_settings` reports."""
    message = record.getMessage()
    return "PAD/BOS/EOS" not in message and "do not match the ones in" not in message


class ResumableTrainer(Trainer):
    """[`transformers.Trainer`] with exact resume and atomic checkpoints; the base of both trainers.

    A run that was killed at any moment and resumed repeats, bit for bit: weights, optimizer, scheduler, and every
    record of `state.log_history` except times and throughput.

    Raises:
        ValueError: `output_dir` cannot be written, another run writes there, or a new run would save checkpoints
            beside those of an earlier one; `resume_from_checkpoint` names an incomplete checkpoint, or one before
            others of the same folder.
        CheckpointError: the disk is full, or the folder cannot be written any more.
        DivergenceError: the loss, the gradient norm or the weights to be written are not finite.
    """

    def __init__(self, model=None, args: TrainingArguments | None = None, *others, **kwargs):
        if args is not None and args.should_save:
            check_folder(args.output_dir)
        self.throughput = Throughput()
        # Of the loss's parts, over the micro-batches of this process since the update `_parts_since`.
        self.sums_of_parts: torch.Tensor | None = None
        self._parts_since = 0
        self._run_dir: str | None = None  # where the run writes its checkpoints
        self._checkpoint: str | None = None  # where it resumes from
        self._is_staging = False  # a checkpoint is being written
        self._may_save = False  # whether an update is complete
        self._last_step = 0  # the last update that Trainer finished
        self._due_now = (False, False)  # whether an update that ends the run is logged and evaluated by itself
        self.is_terminated = False  # whether SIGTERM has ended the run (`enable_jit_checkpoint`)
        # The number of weights that training changes, before FSDP may join them. None where a search makes the models.
        self._num_trained: int | None = None
        # What a resume compares beside the arguments and rows, such as the files behind a stream.
        self.more_settings: dict[str, Any] = {}
        super().__init__(model, args, *others, **kwargs)
        self.add_callback(_BeginRun(self))
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, JITCheckpointCallback) and callback.jit_manager is not None:
                self._end_after_an_update(callback)

    def _end_after_an_update(self, callback: JITCheckpointCallback) -> None:
        """Lets SIGTERM end the run between two updates (`enable_jit_checkpoint`), and not within one."""
        manager = callback.jit_manager

        def save_soon():  # the callback has told Trainer to stop
            manager.is_checkpoint_requested = False
            self.is_terminated = True
            self.control.should_save = True

        def do_nothing(*args, **kwargs):
            pass

        manager.execute_jit_checkpoint = save_soon
        callback.on_step_begin = callback.on_pre_optimizer_step = do_nothing

    @property
    def saved_tokenizer(self) -> PreTrainedTokenizerBase | None:
        """The tokenizer that is saved with the model: that of the trainer, or else of its collator."""
        return self.processing_class or getattr(self.data_collator, "tokenizer", None)  # any collator may be given

    # ---- The run

    def train(self, resume_from_checkpoint: str | bool | None = None, trial=None, *args, **kwargs):
        """As in transformers, with exact resume: see the class.

        Args:
            resume_from_checkpoint (`str` or `bool`, *optional*):
                `True` selects the newest complete checkpoint of `output_dir`; `"auto"` does so if there is one, else
                starts a new run; another string is a checkpoint folder.
        """
        self._run_dir = self._get_output_dir(trial)
        if self.model is not None:  # a search makes its models later
            self._num_trained = sum(weight.requires_grad for weight in self.model.parameters())
        limit = self.args.save_total_limit
        max_steps = self.args.max_steps
        with one_writer(self._run_dir) if self.args.should_save else nullcontext():
            if self.args.should_save:
                checkpoint.clear_leftovers(self._run_dir)
            self._checkpoint = checkpoint.checkpoint_to_resume(resume_from_checkpoint, self._run_dir)
            if self.args.save_strategy != SaveStrategy.NO:
                checkpoint.check_run_dir(self._run_dir, is_new=not resume_from_checkpoint)
                checkpoint.check_is_last(resume_from_checkpoint, self._run_dir)
            if self._checkpoint is not None:
                own_model = without_adapter(self.accelerator.unwrap_model(self.model))
                checkpoint.check_architecture(self._checkpoint, own_model.config)
                checkpoint.check_tokenizer(self._checkpoint, self.saved_tokenizer)
                checkpoint.check_optimizer(self._checkpoint, self.args)
                checkpoint.read_unsaved_weights(self, self._checkpoint)  # refuses those of another optimizer
                checkpoint.check_trained_weights(self._checkpoint, self._num_trained)
                self.args.eval_on_start = False  # that evaluation is in the log
                self.args.restore_callback_states_from_checkpoint = True  # such as the patience of early stopping
                self._end_where_it_stopped_early()
            forget_evaluation(self)
            trainer_utils.logger.addFilter(_is_news)
            try:
                with checkpoint.tied_weights_left_out(self.model):
                    output = super().train(self._checkpoint, trial, *args, **kwargs)
            finally:
                self.args.save_total_limit = limit
                self.args.max_steps = max_steps
                trainer_utils.logger.removeFilter(_is_news)
            if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
                checkpoint.read_unsaved_weights(self, self.state.best_model_checkpoint)
            checkpoint.check_weights(self, self._run_dir)  # the last updates may have no log and no checkpoint
        return output._replace(training_loss=output.metrics["train_loss"])

    @property
    def _patience(self) -> int | None:
        """Evaluations without a better score after which the run stops; None: it does not stop early."""
        return getattr(self.args, "early_stopping_patience", None)  # transformers' arguments have no such one

    def _end_where_it_stopped_early(self) -> None:
        """Lets a run that was stopped early end with its checkpoint: Trainer would go on to the next evaluation."""
        before = checkpoint.read_content(self._checkpoint).get("settings", {})
        if self._patience is None or not checkpoint.is_best_comparable(before, self._settings()):
            return
        state = TrainerState.load_from_json(os.path.join(self._checkpoint, "trainer_state.json"))
        stored = state.stateful_callbacks.get(EarlyStoppingCallback.__name__, {})
        if stored.get("attributes", {}).get("early_stopping_patience_counter", 0) >= self._patience:
            self.args.max_steps = state.global_step

    def begin_run(self) -> None:
        """Resets this class's counters, and restores from the checkpoint what Trainer has just set to zero."""
        self.throughput.window = None
        self.sums_of_parts = None
        self._parts_since = self.state.global_step
        self._last_step = self.state.global_step
        self._may_save = False
        self.is_terminated = False
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback) and self._patience is not None:
                callback.early_stopping_patience = self._patience  # a checkpoint has that of the run before
        settings = self._settings()  # of a new run, too: what no checkpoint could keep fails now
        if self._checkpoint is None:
            return
        checkpoint.read_unsaved_weights(self, self._checkpoint)  # again: `model_init` may have made a new model
        content = checkpoint.read_content(self._checkpoint)
        before = content.get("settings", {})
        checkpoint.keep_settings(self._checkpoint, before, settings, self.args)
        goes_on = self.state.global_step < self.state.max_steps
        if goes_on and not checkpoint.is_best_comparable(before, settings):
            self._forget_best()
        warns = self.args.should_log and goes_on
        checkpoint.reschedule(self._checkpoint, self.lr_scheduler, self.state.max_steps, warns)
        self._restore_progress(content["progress"])

    def _settings(self) -> dict[str, Any]:
        """What a resume compares with the run before."""
        return {**checkpoint.settings_of(self.args, self.train_dataset, self.eval_dataset), **self.more_settings}

    def _forget_best(self) -> None:
        """Begins the search for the best checkpoint anew: its score was another one, or of other rows."""
        self.state.best_metric = self.state.best_global_step = self.state.best_model_checkpoint = None
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback):
                callback.early_stopping_patience_counter = 0

    def _restore_progress(self, progress: dict) -> None:
        """The sums of losses since the last log, of each process; of another number of processes only their total."""
        self._total_loss_scalar = progress["total_loss"]
        losses = progress["running_losses"]
        if len(losses["loss"]) != self.args.world_size:
            return
        own = {}
        for name, of_processes in losses.items():
            own[name] = torch.tensor(of_processes[self.args.process_index]).to(self.args.device)
        self._tr_loss = own["loss"]
        self.sums_of_parts = own.get("parts")
        self._globalstep_last_logged = self._parts_since = progress["last_logged_step"]

    def add_parts(self, *losses: torch.Tensor) -> None:
        """Adds the parts of a micro-batch's loss."""
        parts = torch.stack([loss.detach().float() for loss in losses])
        self.sums_of_parts = parts if self.sums_of_parts is None else self.sums_of_parts + parts

    def means_of_parts(self) -> list[float]:
        """The loss's parts per update since the last log, of all processes."""
        num_updates = max(self.state.global_step - self._parts_since, 1)
        means = self.accelerator.reduce(self.sums_of_parts, "sum") / num_updates
        self.sums_of_parts = None
        self._parts_since = self.state.global_step
        return means.tolist()

    def _get_dataloader(self, dataset, description, batch_size, sampler_fn=None, is_training=False, **options):
        make_loader = self._training_loader if is_training else self._evaluation_loader
        return make_loader(dataset, description, batch_size, sampler_fn, **options)

    def _training_loader(self, dataset, description, batch_size, make_sampler, **options):
        """Every row counts once an epoch, however many processes share them; a stream has no end."""
        if self.args.train_sampling_strategy == "group_by_length":
            make_sampler = partial(length_sampler, self)
        is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
        if is_stream and not has_length(dataset):
            dataset = EndlessStream(dataset)
        if self.args.world_size > 1 and not is_stream:

            def sampler_of_shared(shared: SharedRows):
                return make_sampler(shared.dataset)

            loader = super()._get_dataloader(
                SharedRows(dataset), description, batch_size, sampler_of_shared, is_training=True, **options
            )
            share_rows(loader)
        else:
            loader = super()._get_dataloader(
                dataset, description, batch_size, make_sampler, is_training=True, **options
            )
        if self.args.dataloader_drop_last and has_length(loader) and len(loader) == 0:
            raise UserError(
                "`dataloader_drop_last` drops all rows, because they are fewer than a batch. Leave it out."
            )
        return loader

    def _evaluation_loader(self, dataset, description, batch_size, make_sampler, **options):
        """Every row is read, in the order of the data set, and with the same noise each time."""
        if self.args.train_sampling_strategy == "group_by_length":
            make_sampler = SequentialSampler  # Trainer would group these rows too, and give results in that order
        collator = self.data_collator
        has_noise = hasattr(collator, "for_evaluation")
        is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
        if is_stream and (self.args.world_size > 1 or has_noise):
            # Rows that fill the last batch can be left out if the length is known; noise may draw from all rows.
            dataset = list(dataset)
        drops = self.args.dataloader_drop_last
        self.args.dataloader_drop_last = False
        if has_noise:
            self.data_collator = collator.for_evaluation(dataset)
        try:
            return super()._get_dataloader(
                dataset, description, batch_size, make_sampler, is_training=False, **options
            )
        finally:
            self.args.dataloader_drop_last = drops
            self.data_collator = collator

    def _track_num_input_tokens(self, inputs):
        if isinstance(inputs, UncountedBatch) and "attention_mask" in inputs:
            inputs = {**inputs, "attention_mask": torch.zeros_like(inputs["attention_mask"])}
        # Trainer waits for the device after every batch. Several processes gather their numbers from it.
        num_tokens = getattr(inputs.get("plan"), "num_tokens", None) if self.args.world_size == 1 else None
        if num_tokens is not None and self.args.include_num_input_tokens_seen == "non_padding":
            self.state.num_input_tokens_seen += num_tokens
        else:
            super()._track_num_input_tokens(inputs)

    def _run_epoch(self, *, epoch, train_dataloader, **others):
        if self.state.global_step >= self.state.max_steps:  # resumed, but nothing is left to train
            self.control.should_training_stop = True
            return
        if hasattr(train_dataloader, "set_epoch"):
            # With several processes, the loader that skips batches knows only accelerate's own sampler.
            train_dataloader.set_epoch(epoch)
        if hasattr(self.data_collator, "set_epoch"):  # its noise depends on the pass
            self.data_collator.set_epoch(epoch)
        super()._run_epoch(epoch=epoch, train_dataloader=train_dataloader, **others)

    def _maybe_log_save_evaluate(self, tr_loss, grad_norm, model, trial, epoch, *others, **kwargs):
        """Trainer calls this after every update, and again at the end of an epoch.

        After the last update of an epoch everything waits for the second call. A checkpoint of the first would lack
        the epoch's own log and evaluation, and a resumed run would not repeat them.
        """
        is_epoch_over = self._last_step == self.state.global_step
        self._last_step = self.state.global_step
        stops = self.control.should_training_stop or self.control.should_epoch_stop
        if not is_epoch_over and (stops or self.state.epoch == epoch + 1):
            self._due_now = (self.control.should_log, self.control.should_evaluate)
            return
        is_cut = self.is_terminated and self.state.global_step < self.state.max_steps
        if is_epoch_over and is_cut and self.state.epoch < epoch + 1:  # the epoch is not over, though Trainer says so
            self.control.should_log, self.control.should_evaluate = self._due_now
        self._may_save = True
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, epoch, *others, **kwargs)
        self._may_save = False

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "train_runtime" in logs:  # the run is over
            # The mean over the whole run, not only since the last resume.
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step, 1)
            best = self.state.best_model_checkpoint
            if self.args.should_save and self.args.save_total_limit == 1 and best is not None:
                checkpoint.delete_old_checkpoints(self._run_dir, 1, {os.path.basename(best)})
            self.args.save_total_limit = None  # else Trainer deletes all but the best one now, whoever wrote them
        super().log(logs, start_time)
        checkpoint.check_logs(self, logs, self._run_dir)

    # ---- Writing

    def _save_checkpoint(self, model, trial):
        if self.is_in_train and not self._may_save:
            self.control.should_save = True  # a callback asks during an update: save at its end
            return
        run_dir = self._get_output_dir(trial)
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        checkpoint.check_weights(self, run_dir)
        staging = Path(run_dir, checkpoint.INCOMPLETE_DIR, name)
        with self.throughput.paused(), checkpoint.failed_write_explained(self, run_dir, staging):
            output_dir = self.args.output_dir
            self.args.output_dir = str(staging.parent)
            self._is_staging = True
            try:
                super()._save_checkpoint(model, trial=None)  # a trial would have a folder of its own in the staging
            finally:
                self.args.output_dir = output_dir
                self._is_staging = False
            progress = self._gather_progress()
            best = os.path.join(run_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}")
            if os.path.basename(best) == name or os.path.isdir(best):
                self.state.best_model_checkpoint = best
            self.accelerator.wait_for_everyone()  # all processes have written their random states
            if self.args.should_save:
                self.state.save_to_json(str(staging / "trainer_state.json"))
                content = {
                    "progress": progress,
                    "save_only_model": self.args.save_only_model,
                    "settings": self._settings(),
                    "trained_weights": self._num_trained,
                }
                checkpoint.publish_checkpoint(staging, Path(run_dir, name), content)
        if self.args.should_save:
            kept = {name, os.path.basename(self.state.best_model_checkpoint or name)}
            checkpoint.delete_old_checkpoints(run_dir, self.args.save_total_limit, kept)
        self.accelerator.wait_for_everyone()

    def save_state(self):
        """As in transformers, but whole or not at all, and without a path of this machine: it is pushed."""
        if not self.is_world_process_zero():
            return
        content = dataclasses.asdict(self.state)
        if self.state.best_model_checkpoint is not None:
            content["best_model_checkpoint"] = os.path.basename(self.state.best_model_checkpoint)
        text = json.dumps(content, indent=2, sort_keys=True) + "\n"
        write_atomically(os.path.join(self.args.output_dir, TRAINER_STATE_NAME), text)

    def save_metrics(self, split, metrics, combined=True):
        """As in transformers, but each file whole or not at all."""
        if not self.is_world_process_zero():
            return
        write_metrics(os.path.join(self.args.output_dir, f"{split}_results.json"), metrics)
        if not combined:
            return
        path = os.path.join(self.args.output_dir, "all_results.json")
        before = {}
        with suppress(OSError, ValueError):  # there is none, or transformers was killed while it wrote
            with open(path, encoding="utf-8") as file:
                before = json.load(file)
        write_metrics(path, {**before, **metrics})

    def _gather_progress(self) -> dict:
        """What Trainer keeps only in memory, of all processes; see `_restore_progress`."""
        losses = {"loss": self._tr_loss, "parts": self.sums_of_parts}
        running = {}
        for name, loss in losses.items():
            if loss is not None:
                running[name] = self.accelerator.gather(loss[None]).tolist()
        return {
            "running_losses": running,
            "total_loss": self._total_loss_scalar,
            "last_logged_step": self._globalstep_last_logged,
        }

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        output_dir = self.args.output_dir if output_dir is None else output_dir
        if not self.args.should_save:
            return
        if self._is_staging:
            checkpoint.write_model(self, Path(output_dir), state_dict)
            checkpoint.write_unsaved_weights(self, Path(output_dir))
            return
        check_folder_of_adapter(self.accelerator.unwrap_model(self.model), output_dir)
        staging = Path(output_dir, checkpoint.INCOMPLETE_DIR, "model")
        checkpoint.remove_staging(staging)  # left by a process that was killed here
        with checkpoint.failed_write_explained(self, output_dir, staging):
            checkpoint.write_model(self, staging, state_dict)
            checkpoint.publish_model(staging, Path(output_dir))


class _BeginRun(TrainerCallback):
    """Calls `begin_run` after Trainer resets its counters and before its first step, where no method is called."""

    def __init__(self, trainer: ResumableTrainer):
        self._trainer = weakref.proxy(trainer)  # no reference cycle: a deleted trainer frees its memory at once

    def on_train_begin(self, args, state, control, **kwargs):
        self._trainer.begin_run()
