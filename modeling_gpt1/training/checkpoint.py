"""Atomic checkpoints: a checkpoint folder is complete or absent, and saves what [`transformers.Trainer`] does not.

A checkpoint is written to a temporary folder, flushed to the disk and moved to its place by one rename. Its
`checkpoint.json` lists the files with their sizes and checksums, the run's progress and a few of its settings.
"""

import errno
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel, TokenizersBackend, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import CONFIG_NAME, logging

from tokenization.errors import UserError
from tokenization.file_kinds import checksum_of_file
from tokenization.rows.columns import PLACE
from tokenization.wording import counted, listed

from ..families import family_of_model, without_adapter
from ..families.opening import name_for_others
from ..hub.card import model_card
from ..storage.writing import REPLACED, is_write_failure, publish_files, publish_folder
from .arguments import plain_numbers, sets_by_name

logger = logging.get_logger(__name__)

CHECKPOINT_NAME = "checkpoint.json"
# Pushes to the hub skip names that begin with "_".
INCOMPLETE_DIR = "_incomplete"
CARD_NAME = "README.md"
TOKENIZER_NAME = "tokenizer.json"
# Settings of a run; the state of the optimizer restores the first, and no other optimizer reads it.
OF_OPTIMIZER = ("learning_rate", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon")
SETTINGS = (
    *OF_OPTIMIZER,
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "world_size",
    "seed",
    "optim",
    "lr_scheduler_type",
    "warmup_steps",
    "max_grad_norm",
    "class_weights",
    "train_sampling_strategy",
    "data_seed",
)
ALIKE = {"adamw_torch", "adamw_torch_fused"}  # optimizers with the same state
# Fields of a configuration that decide a model's numbers beside its sizes and weights.
BEHAVIOUR = (
    "hidden_act",
    "activation_function",
    "layer_norm_epsilon",
    "layer_norm_eps",
    "do_layer_norm_before",
    "sliding_window",
    "layer_types",
    "tie_word_embeddings",
    "traversal",
    "id2label",
)
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")


DIVERGED = "The run has diverged."  # in each message of a `DivergenceError`


class CheckpointError(UserError, OSError):
    """A checkpoint or the model could not be written. Earlier files are untouched."""


class DivergenceError(UserError, FloatingPointError):
    """A loss, a gradient norm or a weight is not finite."""


# ---- Reading


def checkpoint_to_resume(resume: str | bool | None, output_dir: str | os.PathLike) -> str | None:
    """The checkpoint folder that `resume_from_checkpoint` selects, or `None` for a new run.

    Args:
        resume (`str` or `bool`, *optional*): True selects the newest complete checkpoint of `output_dir`; `"auto"`
            does so if there is one; another string is a checkpoint folder. On a command line, True is `"true"`.
        output_dir (`str`): where the run writes its checkpoints.

    Raises:
        ValueError: there is no such checkpoint, or it is not complete; `"auto"` would replace checkpoints of the
            model alone.
    """
    if resume is None or resume is False:
        return None
    if str(resume).lower() in ("true", "auto"):
        newest = newest_whole_checkpoint(output_dir, reads_files=True)
        if newest is None and str(resume).lower() == "true":
            raise UserError(f"No complete checkpoint in {output_dir}. Start without `resume_from_checkpoint`.")
        if newest is None:
            check_no_model_alone(output_dir)
        return newest
    fault = why_not_resumed(resume) or find_altered_file(resume)
    if fault is not None:
        raise UserError(
            f"`resume_from_checkpoint` is {str(resume)!r}, which is not a complete checkpoint: {fault}. Pass the "
            f"folder of another one, or `auto` for the newest complete one in {output_dir}."
        )
    return str(resume)


def check_no_model_alone(run_dir: str | os.PathLike) -> None:
    """Refuses to begin anew beside checkpoints that hold only the model, which the new run would replace."""
    for folder in reversed(_checkpoints_in(run_dir)):
        if is_ours(folder) and find_damage(folder) is None and read_content(folder)["save_only_model"]:
            raise UserError(
                f"`resume_from_checkpoint` is 'auto', but {folder} holds only the model (`save_only_model`), so that "
                "no run can go on from it. Pass it as `model` and another `output_dir`, or move it away."
            )


def check_is_last(resume: str | bool | None, run_dir: str | os.PathLike) -> None:
    """Refuses to go back to an earlier checkpoint, given by its path, beside later ones.

    The run would replace them, `save_total_limit` would keep them in place of its own, and a later resume would take
    them.
    """
    if not resume or str(resume).lower() in ("true", "auto"):
        return
    num_updates = json.loads(Path(resume, TRAINER_STATE_NAME).read_text(encoding="utf-8"))["global_step"]
    later = []
    for folder in _checkpoints_in(run_dir):
        if step_of(folder) > num_updates and is_ours(folder) and find_damage(folder) is None:
            later.append(folder.name)
    if later:
        raise UserError(
            f"`resume_from_checkpoint` is {str(resume)!r}, after {counted(num_updates, 'update')}, but {run_dir} "
            f"has later checkpoints: {listed(later)}. Move those away, or pass another `output_dir`."
        )


def newest_whole_checkpoint(output_dir: str | os.PathLike, reads_files: bool = False) -> str | None:
    """The complete `checkpoint-<step>` of the latest step, if there is one.

    `reads_files` compares their checksums too, which takes about a second for each gigabyte.
    """
    for folder in reversed(_checkpoints_in(output_dir)):
        fault = why_not_resumed(folder)
        if fault is None and reads_files:
            fault = find_altered_file(folder)
        if fault is None:
            return str(folder)
        logger.warning(f"{folder} is not a complete checkpoint and is skipped: {fault}.")
    return None


def read_content(folder: str | os.PathLike) -> dict[str, Any]:
    return json.loads(Path(folder, CHECKPOINT_NAME).read_text(encoding="utf-8"))


def _checkpoints_in(run_dir: str | os.PathLike) -> list[Path]:
    """All folders named `checkpoint-<step>`, in the order of the steps."""
    start = len(PREFIX_CHECKPOINT_DIR) + 1
    folders = [path for path in Path(run_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*") if path.name[start:].isdigit()]
    return sorted(folders, key=step_of)


def step_of(checkpoint: Path) -> int:
    """The number of updates in the name of a folder `checkpoint-<step>`."""
    return int(checkpoint.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-"))


def is_ours(folder: Path) -> bool:
    """Whether this package's trainer wrote the folder, completely or not."""
    return (folder / CHECKPOINT_NAME).is_file()


def check_run_dir(run_dir: str | os.PathLike, is_new: bool) -> None:
    """Refuses a run that would save checkpoints beside foreign ones, and a new one beside those of an earlier run.

    Of the new run's own, `save_total_limit` would keep fewer, and a later resume would take the earlier run's.
    """
    for folder in reversed(_checkpoints_in(run_dir)):
        if not is_ours(folder):
            raise UserError(
                f"`output_dir` holds {folder}, which this trainer did not write (it has no {CHECKPOINT_NAME}). Move "
                "it away, or pass another `output_dir`."
            )
        if is_new:
            raise UserError(
                f'`output_dir` holds {folder} of an earlier run. Pass `resume_from_checkpoint="auto"` to resume the '
                "run that wrote it, or pass another `output_dir`."
            )


def why_not_resumed(folder: str | os.PathLike) -> str | None:
    """Why no run can go on from a checkpoint, in words; `None` if it is complete."""
    damage = find_damage(folder)
    if damage is None and read_content(folder)["save_only_model"]:
        return "it holds only the model (`save_only_model`)"
    return damage


def find_damage(folder: str | os.PathLike) -> str | None:
    """What is damaged in a checkpoint, in words; `None` if every file that was written is there in its size."""
    folder = Path(folder)
    if not folder.is_dir():
        return "it is not a folder"
    try:
        content = read_content(folder)
        sizes = {folder / name: entry["bytes"] for name, entry in content["files"].items()}
        content["save_only_model"]  # which every checkpoint of this trainer has
    except (TypeError, AttributeError) as error:  # not skipped: a run that began anew would replace it
        raise UserError(
            f"{folder} has a {CHECKPOINT_NAME} of another version and cannot go on. Pass it as `model`, and "
            "another `output_dir`."
        ) from error
    except (OSError, ValueError, LookupError):
        return f"it has no readable {CHECKPOINT_NAME}, which this trainer writes last"
    for path, size in sizes.items():
        if not path.is_file():
            return f"{path.name} is missing"
        if path.stat().st_size != size:
            return f"{path.name} has {path.stat().st_size} bytes instead of {size}"
    return None


def find_altered_file(folder: str | os.PathLike) -> str | None:
    """The first file of a complete checkpoint whose content is not what was written, in words; `None` if none is.

    Checkpoints of versions without checksums have nothing to compare.
    """
    for name, entry in read_content(folder)["files"].items():
        if "sha256" in entry and checksum_of_file(Path(folder, name)) != entry["sha256"]:
            return f"{name} is not what was written: its SHA-256 differs"
    return None


def has_checksums(folder: str | os.PathLike) -> bool:
    """Whether a checkpoint has a checksum of each file; those of earlier versions have none."""
    return all("sha256" in entry for entry in read_content(folder)["files"].values())


def faults_of_checkpoints(folder: str | os.PathLike) -> dict[Path, str | None]:
    """What is damaged in each checkpoint of a run, or in the checkpoint that the folder is; `None` if nothing is.

    Reads every file, which takes about a second for each gigabyte.

    Raises:
        ValueError: the folder is no checkpoint and has none.
    """
    folders = [Path(folder)] if is_ours(Path(folder)) else _checkpoints_in(folder)
    if not folders:
        raise UserError(f"{folder} has no checkpoint. Pass the `output_dir` of a run that has some, or one of them.")
    faults = {}
    for checkpoint in folders:
        faults[checkpoint] = find_damage(checkpoint) or find_altered_file(checkpoint)
    return faults


def check_architecture(checkpoint: str, config: PreTrainedConfig) -> None:
    """Refuses another model whose weights have the same shapes.

    The number of heads changes no shape, for example, and ALBERT's layers share their weights.
    """
    if not Path(checkpoint, CONFIG_NAME).is_file():  # of a sharded model
        return
    before = type(config).from_pretrained(checkpoint).to_dict()  # the file has no defaults
    for name, now in config.to_dict().items():
        was = before.get(name, now)
        is_size = type(now) is type(was) is int and not name.endswith("_token_id")
        if (is_size or name in BEHAVIOUR) and was != now:
            raise UserError(
                f"`resume_from_checkpoint` is {checkpoint!r}, whose model has the {name} {was}, but this "
                f"run's has {now}. Give the model the old one, or start a new run in another folder."
            )


def check_tokenizer(checkpoint: str, tokenizer: Any) -> None:
    """Refuses another tokenizer, even of as many tokens: the weights of the embeddings belong to the old ones.

    Tokenizers that are not fast, and checkpoints without one, have nothing to compare.
    """
    file = Path(checkpoint, TOKENIZER_NAME)
    if not isinstance(tokenizer, TokenizersBackend) or not file.is_file():
        return
    if _tokens_and_merges(Tokenizer.from_file(str(file))) != _tokens_and_merges(tokenizer.backend_tokenizer):
        raise UserError(
            f"`resume_from_checkpoint` is {checkpoint!r}, whose tokenizer has other tokens, ids or merges than this "
            f"run's. Pass {checkpoint} as the tokenizer, or start a new run in another folder."
        )


def _tokens_and_merges(backend: Tokenizer) -> tuple[dict[str, int], list | None]:
    return backend.get_vocab(with_added_tokens=True), json.loads(backend.to_str())["model"].get("merges")


def settings_of(args: TrainingArguments, rows: Any = None, evaluated_rows: Any = None) -> dict[str, Any]:
    """The settings that a resume compares, with fingerprints of the rows if they are a `Dataset`."""
    given = {name: getattr(args, name, None) for name in SETTINGS}
    settings = json.loads(json.dumps(given, default=plain_numbers))  # enumerations become texts
    data_sets = {"train_dataset": rows, "eval_dataset": evaluated_rows}
    for name, data_set in sets_by_name(evaluated_rows).items():
        data_sets[f"eval_dataset {name}"] = data_set
    for name, data_set in data_sets.items():
        if isinstance(data_set, Dataset) and len(data_set) > 0:
            settings[name] = fingerprint_of(data_set)
    if args.metric_for_best_model is not None:
        score = args.metric_for_best_model.removeprefix("eval_")
        settings["best_by"] = f"{'highest' if args.greater_is_better else 'lowest'} {score}"
    return settings


def is_best_comparable(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the best score of a run before can be compared with those of this one: by score and evaluated rows."""
    names = [name for name in now if name == "best_by" or name.startswith("eval_dataset")]
    return all(before.get(name, now[name]) == now[name] for name in names)


def fingerprint_of(rows: Dataset) -> str:
    """The number of rows, and a checksum of the first, the middle and the last."""
    few = []
    for index in (0, len(rows) // 2, -1):
        row = dict(rows[index])
        row.pop(PLACE, None)  # says where the row came from, not what it holds
        few.append(row)
    return f"{len(rows):,} rows ({zlib.crc32(repr(few).encode()):08x})"


def check_optimizer(checkpoint: str, args: TrainingArguments) -> None:
    """Refuses an optimizer that cannot read the state of the checkpoint's."""
    now = settings_of(args)["optim"]
    was = read_content(checkpoint).get("settings", {}).get("optim", now)
    if was != now and not {was, now} <= ALIKE:
        raise UserError(f"`optim` is {now!r}, but {checkpoint} was trained with {was!r}. Pass that, or begin anew.")


def check_trained_weights(checkpoint: str, num_trained: int | None) -> None:
    """Refuses to train another number of weights (tensors) than the checkpoint's optimizer has a state for.

    None is a number that is not known, here or in the checkpoint.
    """
    was = read_content(checkpoint).get("trained_weights")
    if None not in (was, num_trained) and was != num_trained:
        raise UserError(
            f"This run trains {counted(num_trained, 'weight')}, but {checkpoint} trained {was}. Freeze what that run "
            "froze (`freeze`, `freeze_lm_head`), with its adapter if it had one, or begin anew."
        )


def keep_settings(checkpoint: str, before: dict[str, Any], now: dict[str, Any], args: TrainingArguments) -> None:
    """Says which settings of a resumed run are new, and takes those back that the optimizer has from before."""
    changes = []
    for name, value in now.items():
        if name in before and value != before[name]:
            changes.append(f"{name} was {before[name]} and is {value}")
    if changes:
        logger.warning(
            f"This run resumes from {checkpoint}, but with other settings: {', '.join(changes)}. Pass the old ones to "
            "get the result of an uninterrupted run. Learning rate, weight decay and Adam's numbers stay the old ones "
            "in any case."
        )
    for name in set(OF_OPTIMIZER) & before.keys():
        setattr(args, name, before[name])


def reschedule(checkpoint: str, lr_scheduler: Any, num_updates: int, warns: bool) -> None:
    """Gives the next update the learning rate of a run of another length than before; `warns` if it jumps."""
    planned = json.loads(Path(checkpoint, TRAINER_STATE_NAME).read_text(encoding="utf-8"))["max_steps"]
    if planned == num_updates or not hasattr(lr_scheduler, "lr_lambdas"):
        return
    was = lr_scheduler.get_last_lr()[0]
    lr_scheduler.last_epoch -= 1
    lr_scheduler.step()
    now = lr_scheduler.get_last_lr()[0]
    if warns and not math.isclose(was, now, rel_tol=1e-3, abs_tol=1e-12):
        moves = "rises" if now > was else "falls"
        logger.warning(
            f"The learning rate is planned over {counted(num_updates, 'update')} now, {planned:,} before: it {moves} "
            f"from {was:.1e} to {now:.1e}. Pass the old length to go on as before."
        )


# ---- Writing


def publish_checkpoint(staging: Path, folder: Path, content: dict[str, Any]) -> None:
    """Turns `staging` into the checkpoint `folder` by one rename; `content` is added to its list of files."""
    content["files"] = {
        path.relative_to(staging).as_posix(): {"bytes": path.stat().st_size, "sha256": checksum_of_file(path)}
        for path in sorted(staging.rglob("*"))
        if path.is_file()
    }
    (staging / CHECKPOINT_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if folder.exists() and not is_ours(folder):
        raise FileExistsError(errno.EEXIST, "Something that this trainer did not write is there", str(folder))
    publish_folder(staging, folder)
    remove_staging(staging)


@contextmanager
def tied_weights_left_out(model: torch.nn.Module) -> Iterator[None]:
    """Within this context a tied weight is saved once, even where a gathered state has two copies of it.

    Trainer does not report its other name as missing then.
    """
    if not isinstance(model, PreTrainedModel):
        yield
        return
    before = model._keys_to_ignore_on_save
    if getattr(model.config, "tie_word_embeddings", True):  # it may have been untied since it was opened
        model._keys_to_ignore_on_save = {*(before or ()), *model.all_tied_weights_keys}
    try:
        yield
    finally:
        model._keys_to_ignore_on_save = before


def delete_old_checkpoints(run_dir: str | os.PathLike, limit: int | None, kept: set[str]) -> None:
    """Deletes the checkpoints of the earliest steps beyond `limit`, except those named in `kept`.

    As in transformers, None and numbers below 1 are no limit. The trainer deletes only what it wrote. Folder times
    are ignored, because a copy or a backup changes them.
    """
    if limit is None or limit < 1:
        return
    ours = [folder for folder in _checkpoints_in(run_dir) if is_ours(folder)]
    num_surplus = max(0, len(ours) - max(limit, len(kept)))
    deletable = [folder for folder in ours if folder.name not in kept]
    for folder in deletable[:num_surplus]:
        doomed = folder.parent / INCOMPLETE_DIR / f"deleted-{folder.name}"
        try:
            doomed.parent.mkdir(exist_ok=True)
            os.rename(folder, doomed)  # nobody sees a half-deleted one
            remove_staging(doomed)
        except OSError as error:
            logger.warning(f"{folder} exceeds `save_total_limit`, but could not be deleted: {error}.")


def clear_leftovers(output_dir: str | os.PathLike) -> None:
    """Removes what a killed run had begun to write or to delete; what it had begun to replace is put back."""
    incomplete = Path(output_dir, INCOMPLETE_DIR)
    for path in incomplete.glob(f"{REPLACED}*"):
        place = Path(output_dir, path.name.removeprefix(REPLACED))
        if not place.exists():
            os.rename(path, place)  # the run was killed before the new checkpoint was there
    shutil.rmtree(incomplete, ignore_errors=True)


def remove_staging(staging: Path) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):  # not empty, or gone
        staging.parent.rmdir()


def write_model(trainer, folder: Path, state_dict: dict | None) -> None:
    """Writes the model as Trainer does, but without its pickle of the arguments, which holds paths of this machine."""
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    folder.mkdir(parents=True, exist_ok=True)
    own_model = without_adapter(model)
    is_adapter = own_model is not model
    options = {}
    if is_adapter and any(getattr(one, "trainable_token_indices", None) for one in model.peft_config.values()):
        options["save_embedding_layers"] = False  # PEFT would write all of them, as the model has new tokens
    with tied_weights_left_out(model):
        model.save_pretrained(str(folder), state_dict=state_dict, **options)
    if is_adapter:  # what the adapter's base does not know: tokens, task, classes
        own_model.config.architectures = [type(own_model).__name__]
        own_model.config.save_pretrained(str(folder))
        name_base_for_others(folder)
        name = trainer.hub_model_id or Path(trainer.args.output_dir).resolve().name
        card = model_card(family_of_model(own_model).card_facts(own_model, name, is_adapter=True))
        (folder / CARD_NAME).write_text(str(card), encoding="utf-8")
    if trainer.saved_tokenizer is not None:
        trainer.saved_tokenizer.save_pretrained(str(folder))


def name_base_for_others(folder: Path) -> None:
    """Lets adapters name the model that comes with the package by its short name: its place is of this machine."""
    for path in folder.rglob(_ADAPTER[0]):
        content = json.loads(path.read_text(encoding="utf-8"))
        content["base_model_name_or_path"] = name_for_others(content["base_model_name_or_path"])
        path.write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")


def write_unsaved_weights(trainer, folder: Path) -> None:
    """Writes trained weights that are no part of the saved model, such as a decoder's output matrix."""
    model = without_adapter(trainer.accelerator.unwrap_model(trainer.model))
    family_of_model(model).write_unsaved_weights(model, folder)


def read_unsaved_weights(trainer, folder: str | os.PathLike) -> None:
    """Reads what [`write_unsaved_weights`] wrote."""
    model = without_adapter(trainer.accelerator.unwrap_model(trainer.model))
    family_of_model(model).read_unsaved_weights(model, Path(folder))


def publish_model(staging: Path, folder: Path) -> None:
    """Moves a saved model to its place. A card that is there stays, and the weights of an older save go."""
    if (folder / CARD_NAME).exists():
        (staging / CARD_NAME).unlink(missing_ok=True)
    new = {path.name for path in staging.iterdir() if _is_weight(path)}
    publish_files(staging, folder)
    if not new:
        return
    older = [path for path in folder.iterdir() if _is_weight(path) and path.name not in new]
    # The index goes before the files that it lists: at any moment, what is opened is whole.
    for path in sorted(older, key=lambda path: path.suffix != ".json"):
        path.unlink()


def _is_weight(path: Path) -> bool:
    """Whether a file holds weights of a whole model, or belongs to an adapter, which would be put on a whole model."""
    if path.name in _ADAPTER:
        return all(path.with_name(name).is_file() for name in _ADAPTER)
    return _WEIGHTS.fullmatch(path.name) is not None


@contextmanager
def failed_write_explained(trainer, folder: str | os.PathLike, staging: Path) -> Iterator[None]:
    """Clears `staging` after an error, and turns a failed write into a [`CheckpointError`] that says what to do."""
    try:
        yield
    except Exception as error:
        if trainer.args.should_save:
            remove_staging(staging)
        if not is_write_failure(error):
            raise
        raise CheckpointError(
            f"{staging.name} could not be written to {folder}: {str(error).strip()}. {last_checkpoint(folder)}. Make "
            "sure that it can be written and that there is room (`save_total_limit` keeps fewer checkpoints), then "
            "start or resume the run."
        ) from error


# ---- Divergence: losses and gradient norms are checked when they are logged, weights when they are written


def check_logs(trainer, logs: dict[str, float], run_dir: str) -> None:
    """Raises [`DivergenceError`] if a logged loss or gradient norm is not finite."""
    names = ["loss", "train_loss"]
    if not trainer.accelerator.optimizer_step_was_skipped:  # as when the fp16 scaler searches for its scale
        names.append("grad_norm")
    found = [f"`{name}` is {logs[name]}" for name in names if not math.isfinite(logs.get(name, 0.0))]
    if found:
        raise DivergenceError(f"{' and '.join(found)} after update {trainer.state.global_step}. {advice(run_dir)}")


def check_weights(trainer, run_dir: str) -> None:
    """Raises [`DivergenceError`] if a weight is not finite in any process, each of which checks those it holds."""
    is_finite = torch.ones((), dtype=torch.bool, device=trainer.args.device)
    for weight in trainer.model.parameters():
        weight = weight.detach()
        weight = weight.to_local() if isinstance(weight, DTensor) else weight
        if weight.is_floating_point() and weight.numel() > 0 and not weight.is_meta:
            extremes = torch.stack(weight.aminmax())  # on a CPU in 1/20 of the time of `weight.isfinite()`
            is_finite &= extremes.isfinite().all().to(is_finite.device)
    if not trainer.accelerator.gather(is_finite.int()[None]).all():
        raise DivergenceError(f"Weights are not finite after update {trainer.state.global_step}. {advice(run_dir)}")


def advice(run_dir: str) -> str:
    return (
        f"{DIVERGED} {last_checkpoint(run_dir)}. Check the weights and the rows for errors, use a lower "
        "`learning_rate`, a longer warm-up or `bf16` instead of `fp16`, and start again."
    )


def last_checkpoint(run_dir: str | os.PathLike) -> str:
    checkpoint = newest_whole_checkpoint(run_dir)
    return "There is no checkpoint to resume from" if checkpoint is None else f"The last checkpoint is {checkpoint}"
