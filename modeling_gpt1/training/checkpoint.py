"""Atomic checkpoints: a checkpoint folder is complete or absent, and saves what [`transformers.Trainer`] does not.

A checkpoint is written to a temporary folder, flushed to the disk and moved to its place by one rename. Its
`checkpoint.json` lists the files with their sizes and checksums, the run's progress, its settings, and the settings
that decide the order of the data.
"""

import errno
import json
import math
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import datasets
import torch
from datasets.fingerprint import Hasher
from torch.distributed.tensor import DTensor
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.trainer import FSDP_MODEL_NAME, TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import CONFIG_NAME, logging

from ..storage.checksums import CHECKSUM, checksum_of_file, checksum_of_text
from ..storage.writing import REPLACED, explain_failed_write, is_write_failure, publish_files, publish_folder

logger = logging.get_logger(__name__)

CHECKPOINT_NAME = "checkpoint.json"
# Pushes to the hub skip names that begin with "_".
INCOMPLETE_DIR = "_incomplete"
# Names of everything that is ever put into that folder. Nothing else is deleted from it.
_OUR_LEFTOVERS = re.compile(rf"(deleted-|{REPLACED})?{PREFIX_CHECKPOINT_DIR}-\d+|model")
CARD_NAME = "README.md"
_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")


_SAME_STATE = {"adamw_torch", "adamw_torch_fused"}
# PyTorch's optimizers and schedulers restore these from their saved state.
_KEPT_BY_STATE = ("learning_rate", "weight_decay", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon")
_OTHERS = ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "max_grad_norm")
_ROWS, _TOKENIZER = "the training rows (checksum of a sample)", "the tokenizer (checksum)"
_SAMPLE_SIZE = 100  # rows
# Fields that decide what the weights mean, as configurations of the families name them.
_ARCHITECTURE = (
    *("model_type", "hidden_size", "n_embd", "d_model", "embedding_size", "lstm_hidden_size", "vocab_size"),
    *("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "num_hidden_groups"),
    *("num_attention_heads", "n_head", "num_key_value_heads", "encoder_attention_heads", "decoder_attention_heads"),
    *("intermediate_size", "n_inner", "encoder_ffn_dim", "decoder_ffn_dim", "type_vocab_size"),
    *("max_position_embeddings", "n_positions", "layer_types", "sliding_window", "do_layer_norm_before", "hidden_act"),
)


class CheckpointError(OSError):
    """A checkpoint or the model could not be written. Earlier files are untouched."""


class DivergenceError(FloatingPointError):
    """A loss, a gradient norm or a weight is not finite."""


# ---- Reading


def checkpoint_to_resume(resume: str | bool | None, output_dir: str | os.PathLike) -> str | None:
    """The checkpoint folder that `resume_from_checkpoint` selects, or `None` for a new run.

    Args:
        resume (`str` or `bool`, *optional*): True selects the newest complete checkpoint of `output_dir`; `"auto"`
            does so if there is one; another string is a checkpoint folder. On a command line, True is `"true"`.
        output_dir (`str`): where the run writes its checkpoints.

    Raises:
        ValueError: there is no such checkpoint, or it is not complete.
    """
    if resume is None or resume is False:
        return None
    if str(resume).lower() in ("true", "auto"):
        newest = newest_whole_checkpoint(output_dir)
        if newest is None and str(resume).lower() == "true":
            raise ValueError(
                f"There is no complete checkpoint in {output_dir}. Start without `resume_from_checkpoint`."
            )
        return newest
    fault = find_fault(resume)
    if fault is not None:
        raise ValueError(
            f"`resume_from_checkpoint` is {str(resume)!r}, which is not a complete checkpoint: {fault}. Pass the "
            f"folder of another one, or `auto` for the newest complete one in {output_dir}."
        )
    return str(resume)


def newest_whole_checkpoint(output_dir: str | os.PathLike) -> str | None:
    """The complete `checkpoint-<step>` of the latest step, if there is one."""
    for folder in reversed(_checkpoints_in(output_dir)):
        fault = find_fault(folder)
        if fault is None:
            return str(folder)
        logger.warning(f"{folder} is not a complete checkpoint and is skipped: {fault}.")
    return None


def check_kind(checkpoint: str, is_fsdp: bool) -> None:
    """Refuses a checkpoint that was written with FSDP in a run without it, and the reverse."""
    was_fsdp = any(path.name.startswith(FSDP_MODEL_NAME) for path in Path(checkpoint).iterdir())
    if was_fsdp != is_fsdp:
        before, now = ("with" if kind else "without" for kind in (was_fsdp, is_fsdp))
        raise ValueError(
            f"`resume_from_checkpoint` is {checkpoint!r}, which was written {before} FSDP, but this run is {now} it "
            "and cannot read the optimizer's state. Start it as that run, or open the checkpoint as a model and "
            "start a new run."
        )


def read_content(folder: str | os.PathLike) -> dict[str, Any]:
    return json.loads(Path(folder, CHECKPOINT_NAME).read_text(encoding="utf-8"))


def _checkpoints_in(run_dir: str | os.PathLike) -> list[Path]:
    """All folders named `checkpoint-<step>`, in the order of the steps."""
    start = len(PREFIX_CHECKPOINT_DIR) + 1
    folders = [path for path in Path(run_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*") if path.name[start:].isdigit()]
    return sorted(folders, key=lambda path: int(path.name[start:]))


def is_ours(folder: Path) -> bool:
    """Whether this package's trainer wrote the folder, completely or not."""
    return (folder / CHECKPOINT_NAME).is_file()


def check_run_dir(run_dir: str | os.PathLike, is_new: bool) -> None:
    """Refuses a run that would save checkpoints beside foreign ones, and a new one beside those of an earlier run.

    Of the new run's own, `save_total_limit` would keep fewer, and a later resume would take the earlier run's.
    """
    for folder in reversed(_checkpoints_in(run_dir)):
        if not is_ours(folder):
            raise ValueError(
                f"`output_dir` holds {folder}, which this trainer did not write (it has no {CHECKPOINT_NAME}). Move "
                "it away, or pass another `output_dir`."
            )
        if is_new:
            raise ValueError(
                f'`output_dir` holds {folder} of an earlier run. Pass `resume_from_checkpoint="auto"` to resume the '
                "run that wrote it, or pass another `output_dir`."
            )


def find_fault(folder: str | os.PathLike) -> str | None:
    """What is wrong with a checkpoint, in words; `None` if every file that was written is intact."""
    folder = Path(folder)
    if not folder.is_dir():
        return "it is not a folder"
    try:
        content = read_content(folder)
        files = {name: (entry["bytes"], entry[CHECKSUM]) for name, entry in content["files"].items()}
        is_model_alone, checksum = content["save_only_model"], content.pop(CHECKSUM)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f"it has no readable {CHECKPOINT_NAME}, which this trainer writes last"
    if TRAINER_STATE_NAME not in files:
        return f"its {CHECKPOINT_NAME} lists no {TRAINER_STATE_NAME}"
    damaged = f"is damaged: its content is not what was written ({CHECKSUM})"
    if _checksum_of_content(content) != checksum:
        return f"{CHECKPOINT_NAME} {damaged}"
    for name, (size, checksum) in files.items():
        if not (folder / name).is_file():
            return f"{name} is missing"
        if (folder / name).stat().st_size != size:
            return f"{name} has {(folder / name).stat().st_size} bytes instead of {size}"
        if checksum_of_file(folder / name) != checksum:
            return f"{name} {damaged}"
    return "it holds only the model (`save_only_model`)" if is_model_alone else None


def _checksum_of_content(content: dict[str, Any]) -> str:
    return checksum_of_text(json.dumps(content, sort_keys=True))


# ---- Settings that decide the result of a run


def settings_of(trainer, given: dict[str, str]) -> dict[str, Any]:
    """Settings that decide the result of a run, except the order of its rows; in the form that JSON reads back."""
    tokenizer = trainer.processing_class or getattr(trainer.data_collator, "tokenizer", None)
    config = trainer.accelerator.unwrap_model(trainer.model).config.to_dict()
    settings = {
        **{name: getattr(trainer.args, name) for name in ("optim", *_KEPT_BY_STATE, *_OTHERS)},
        **given,
        "max_steps": trainer.state.max_steps,
        "mixed_precision": trainer.accelerator.mixed_precision,
        **{name: value for name, value in config.items() if name == "lm_coef" or "dropout" in name or "pdrop" in name},
        _ROWS: _checksum_of_rows(trainer.train_dataset),
        _TOKENIZER: _checksum_of_tokenizer(tokenizer),
    }
    return json.loads(json.dumps(settings, default=str))


def optimizer_of(trainer, given: dict[str, str]) -> str:
    return str(given.get("optim") or getattr(trainer.args.optim, "value", trainer.args.optim))


def given_objects(trainer) -> dict[str, str]:
    """Class names of the optimizer and the scheduler that were passed to a trainer, if any."""
    optimizer = trainer.optimizer
    classes = {"optim": None if optimizer is None else type(optimizer)}
    if trainer.optimizer_cls_and_kwargs is not None:
        classes["optim"] = trainer.optimizer_cls_and_kwargs[0]
    if trainer.lr_scheduler is not None:
        classes["lr_scheduler_type"] = type(trainer.lr_scheduler)
    return {name: owner.__name__ for name, owner in classes.items() if owner is not None}


def check_optimizer(checkpoint: str, before: dict[str, Any], now: str) -> None:
    """Refuses an optimizer that cannot load the checkpoint's state."""
    old = before.get("optim", now)
    if old != now and not {old, now} <= _SAME_STATE:
        raise ValueError(
            f"`resume_from_checkpoint` is {checkpoint!r}, which was made with the optimizer {old}, but this run's is "
            f"{now} (`optim`), which cannot read its state. Use the old one, or open the checkpoint as a model and "
            "start a new run."
        )


def check_architecture(checkpoint: str, config: PreTrainedConfig) -> None:
    """Refuses a model of other sizes. ALBERT, whose layers share their weights, would load them."""
    path = Path(checkpoint, CONFIG_NAME)
    if not path.is_file():  # an adapter's checkpoint
        return
    before, now = json.loads(path.read_text(encoding="utf-8")), json.loads(json.dumps(config.to_dict(), default=str))
    for name in _ARCHITECTURE:
        if name in before and name in now and before[name] != now[name]:
            raise ValueError(
                f"`resume_from_checkpoint` is {checkpoint!r}, whose model has the {name} {before[name]!r}, but this "
                f"run's has {now[name]!r}. Give the model the old one, or start a new run in another folder."
            )


def warn_of_other_settings(checkpoint: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Warns once for each difference; settings that are unknown on one side are skipped."""
    for name, value in now.items():
        old = before.get(name, value)
        if old == value or (name in (_ROWS, _TOKENIZER) and None in (old, value)):
            continue
        old_one = {_ROWS: "rows", _TOKENIZER: "tokenizer"}.get(name, "value")
        effect = f"From here on the result differs. Pass the old {old_one} to get the same result."
        if name in _KEPT_BY_STATE:
            effect = (
                "This run keeps the old value, which is saved with the optimizer. To use the new one, open the "
                "checkpoint as a model and start a new run."
            )
        logger.warning(f"This run resumes from {checkpoint}, but {name} was {old} and is {value}. {effect}")


def _checksum_of_rows(dataset) -> str | None:
    """Checksum of stored rows, spread over the data set; `None` for streams and data sets of a user's own class.

    `Dataset._fingerprint` is unsuitable: it changes with the times of cached files, and with any function that cannot
    be pickled. Reading rows of a user's class could open files in this process that its workers must open.
    """
    if not isinstance(dataset, (datasets.Dataset, list, tuple)) or len(dataset) == 0:
        return None
    last = len(dataset) - 1
    places = sorted({last * place // (_SAMPLE_SIZE - 1) for place in range(_SAMPLE_SIZE)})
    if isinstance(dataset, datasets.Dataset):
        rows = dataset.with_format("arrow")[places].to_pylist()
    else:
        rows = [dataset[place] for place in places]
    return Hasher.hash(rows)


def _checksum_of_tokenizer(tokenizer) -> str | None:
    if not hasattr(tokenizer, "get_vocab"):
        return None
    content = tokenizer.get_vocab()
    if hasattr(tokenizer, "backend_tokenizer"):
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        # Padding and truncation keep the state of the last call.
        content = {name: part for name, part in content.items() if name not in ("padding", "truncation")}
    return checksum_of_text(json.dumps(content, sort_keys=True))


def warn_of_other_order(checkpoint: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    changes = [f"{name} was {before.get(name)} and is {now[name]}" for name in now if now[name] != before.get(name)]
    if changes:
        logger.warning(
            f"This run resumes from {checkpoint}, but not as that run would have continued: {', '.join(changes)}. "
            "From here on it sees other rows. Pass the old values to get the same result."
        )


# ---- Writing


def publish_checkpoint(staging: Path, folder: Path, content: dict[str, Any]) -> None:
    """Turns `staging` into the checkpoint `folder` by one rename; `content` is added to its list of files."""
    content["files"] = {
        path.relative_to(staging).as_posix(): {"bytes": path.stat().st_size, CHECKSUM: checksum_of_file(path)}
        for path in sorted(staging.rglob("*"))
        if path.is_file()
    }
    content[CHECKSUM] = _checksum_of_content(content)
    (staging / CHECKPOINT_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    if folder.exists() and not is_ours(folder):
        raise FileExistsError(errno.EEXIST, "Something that this trainer did not write is there", str(folder))
    publish_folder(staging, folder)
    remove_staging(staging)


@contextmanager
def tied_weights_left_out(model) -> Iterator[None]:
    """Within this context, Trainer knows that a tied weight is saved once and does not call its other name missing."""
    if not isinstance(model, PreTrainedModel):  # adapters
        yield
        return
    before, weights = model._keys_to_ignore_on_save, dict(model.named_parameters(remove_duplicate=False))
    pairs = model.all_tied_weights_keys.items()
    tied = {name for name, source in pairs if name in weights and weights[name] is weights.get(source)}
    model._keys_to_ignore_on_save = {*(before or ()), *tied}
    try:
        yield
    finally:
        model._keys_to_ignore_on_save = before


def make_room(trainer, run_dir: str | os.PathLike, name: str) -> None:
    """Deletes what `save_total_limit` will delete anyway, before a save, if the disk has no room for both.

    The newest complete checkpoint and the best one stay. Without a complete one nothing is deleted.
    """
    limit, newest = trainer.args.save_total_limit, _checkpoints_in(run_dir)[-1:]
    if not limit or not newest:
        return
    needed = max(count_bytes(trainer), sum(path.stat().st_size for path in newest[0].rglob("*") if path.is_file()))
    if shutil.disk_usage(run_dir).free >= needed:
        return
    whole = newest_whole_checkpoint(run_dir)
    if whole is not None:
        best = trainer.state.best_model_checkpoint or whole
        delete_old_checkpoints(run_dir, max(limit - 1, 1), {name, Path(whole).name, Path(best).name})


def delete_old_checkpoints(run_dir: str | os.PathLike, limit: int | None, kept: set[str]) -> None:
    """Deletes the checkpoints of the earliest steps beyond `limit`, if there is one, except those named in `kept`.

    The trainer deletes only what it wrote. Folder times are ignored, because a copy or a backup changes them.
    """
    ours = [folder for folder in _checkpoints_in(run_dir) if is_ours(folder)]
    num_surplus = len(ours) - max(limit, len(kept & {folder.name for folder in ours})) if limit else 0
    for folder in [folder for folder in ours if folder.name not in kept][: max(num_surplus, 0)]:
        try:
            delete_checkpoint(folder)
        except OSError as error:
            logger.warning(f"{folder} exceeds `save_total_limit`, but could not be deleted: {error}.")


def delete_checkpoint(folder: Path) -> None:
    """Renames the checkpoint before it deletes it, so that nobody sees a half-deleted one."""
    doomed = folder.parent / INCOMPLETE_DIR / f"deleted-{folder.name}"
    remove_staging(doomed)
    doomed.parent.mkdir(exist_ok=True)
    os.rename(folder, doomed)
    remove_staging(doomed)


def clear_leftovers(output_dir: str | os.PathLike) -> None:
    """Removes what a killed run had begun to write or to delete; what it had begun to replace is put back."""
    incomplete = Path(output_dir, INCOMPLETE_DIR)
    for path in incomplete.iterdir() if incomplete.is_dir() else ():
        if _OUR_LEFTOVERS.fullmatch(path.name):
            place = Path(output_dir, path.name.removeprefix(REPLACED))
            if path.name.startswith(REPLACED) and not place.exists():
                os.rename(path, place)  # the run was killed before the new checkpoint was there
            remove_staging(path)


def remove_staging(staging: Path) -> None:
    shutil.rmtree(staging, ignore_errors=True)
    with suppress(OSError):  # not empty, or gone
        staging.parent.rmdir()


def write_model(trainer, folder: Path, state_dict: dict | None) -> None:
    """Writes the model as Trainer does, but without its pickle of the arguments, which holds paths of this machine."""
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    is_writer = trainer.args.should_save
    if is_writer:
        folder.mkdir(parents=True, exist_ok=True)
    with tied_weights_left_out(model):  # a gathered state holds two copies of them
        model.save_pretrained(str(folder), state_dict=state_dict, is_main_process=is_writer)
    tokenizer = trainer.processing_class or getattr(trainer.data_collator, "tokenizer", None)
    if is_writer and tokenizer is not None:
        tokenizer.save_pretrained(str(folder))


def publish_model(staging: Path, folder: Path) -> None:
    """Moves a saved model to its place. A card that is there stays, and the weights of an older save go."""
    if (folder / CARD_NAME).exists():
        (staging / CARD_NAME).unlink(missing_ok=True)  # an empty form, from PEFT
    weights = {path.name for path in staging.iterdir() if _WEIGHTS.fullmatch(path.name)}
    publish_files(staging, folder)
    older = [path for path in folder.iterdir() if weights and _WEIGHTS.fullmatch(path.name)]
    # The index goes before the files that it lists: at any moment, what is opened is whole.
    for path in sorted(older, key=lambda path: path.suffix != ".json"):
        if path.name not in weights:
            path.unlink()


def count_bytes(trainer) -> int:
    """Size of the weights and the optimizer state in this process, an estimate of a checkpoint's size."""
    states = getattr(trainer.optimizer, "state", {}).values()
    tensors = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.nbytes for tensor in (*trainer.model.parameters(), *tensors))


@contextmanager
def explained(trainer, what: str, folder: str | os.PathLike, staging: Path) -> Iterator[None]:
    """Turns a failed write of `what` into a [`CheckpointError`] that says what to do and from where to resume."""
    try:
        yield
    except Exception as error:
        if trainer.args.should_save:
            remove_staging(staging)
        if not is_write_failure(error):
            raise
        tip = "(`save_total_limit` keeps fewer checkpoints)"
        failure, remedy = explain_failed_write(error, what, folder, count_bytes(trainer), tip)
        checkpoint = newest_whole_checkpoint(folder)
        last = f"The last complete checkpoint is {checkpoint}" if checkpoint else "There is no complete checkpoint yet"
        go_on = "start again" if checkpoint is None else "resume with `resume_from_checkpoint=True`"
        raise CheckpointError(f"{failure} {last}. {remedy}, then {go_on}.") from error


# ---- Divergence: losses and gradient norms are checked when they are logged, weights when they are written


def check_logs(trainer, logs: dict[str, float], last_step: int, run_dir: str) -> None:
    """Raises [`DivergenceError`] if a logged loss or gradient norm is not finite; that of `last_step` was."""
    names = ["loss", "train_loss"]
    if not trainer.accelerator.optimizer_step_was_skipped:  # as when the fp16 scaler searches for its scale
        names.append("grad_norm")
    found = [f"`{name}` is {logs[name]}" for name in names if not math.isfinite(logs.get(name, 0.0))]
    if found:
        where = f"after update {trainer.state.global_step} (the log before, of update {last_step}, was finite)"
        raise DivergenceError(f"{' and '.join(found)} {where}. {advice(run_dir)}")


def advice(run_dir: str) -> str:
    checkpoint = newest_whole_checkpoint(run_dir)
    last = f"The last complete checkpoint is {checkpoint}" if checkpoint else "There is no checkpoint to resume from"
    return (
        f"The run has diverged. {last}. Check the weights and the rows for errors, use a lower `learning_rate`, a "
        "longer warm-up or `bf16` instead of `fp16`, and start again. With `stop_at_divergence=False` a run "
        "continues, but writes no checkpoint whose weights are not finite."
    )


def has_finite_weights(trainer) -> bool:
    """Whether all weights are finite, in all processes. Each process checks the weights that it holds."""
    is_finite = torch.ones((), dtype=torch.bool, device=trainer.args.device)
    for weight in trainer.model.parameters():
        weight = weight.detach()
        weight = weight.to_local() if isinstance(weight, DTensor) else weight
        if weight.is_floating_point() and weight.numel() > 0 and not weight.is_meta:
            extremes = torch.stack(weight.aminmax())  # on a CPU in 1/20 of the time of `weight.isfinite()`
            is_finite &= extremes.isfinite().all().to(is_finite.device)
    return bool(trainer.accelerator.gather(is_finite.int()[None]).all())
