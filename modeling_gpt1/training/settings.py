"""Settings of a run that decide its result, and warnings when a resumed run has other settings."""

import json
from pathlib import Path
from typing import Any

import datasets
from transformers import PreTrainedConfig
from transformers.utils import CONFIG_NAME, logging

from ..storage.checksums import checksum_of_text

logger = logging.get_logger(__name__)

_OPTIMIZER = "optim"
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


def settings_of(trainer, given: dict[str, str]) -> dict[str, Any]:
    """Settings that decide the result of a run, except the order of its rows; in the form that JSON reads back.

    Args:
        trainer ([`transformers.Trainer`]): a trainer whose training has begun.
        given (`dict[str, str]`): `optim` and `lr_scheduler_type`, if objects were passed to the trainer instead.
    """
    tokenizer = trainer.processing_class or getattr(trainer.data_collator, "tokenizer", None)
    config = trainer.accelerator.unwrap_model(trainer.model).config.to_dict()
    settings = {
        **{name: getattr(trainer.args, name) for name in (_OPTIMIZER, *_KEPT_BY_STATE, *_OTHERS)},
        **given,
        "max_steps": trainer.state.max_steps,
        "mixed_precision": trainer.accelerator.mixed_precision,
        **{name: value for name, value in config.items() if name == "lm_coef" or "dropout" in name or "pdrop" in name},
        _ROWS: _checksum_of_rows(trainer.train_dataset),
        _TOKENIZER: _checksum_of_tokenizer(tokenizer),
    }
    return json.loads(json.dumps(settings, default=str))


def optimizer_of(trainer, given: dict[str, str]) -> str:
    return str(given.get(_OPTIMIZER) or getattr(trainer.args.optim, "value", trainer.args.optim))


def given_objects(trainer) -> dict[str, str]:
    """Class names of the optimizer and the scheduler that were passed to a trainer, if any."""
    optimizer = trainer.optimizer
    classes = {_OPTIMIZER: None if optimizer is None else type(optimizer)}
    if trainer.optimizer_cls_and_kwargs is not None:
        classes[_OPTIMIZER] = trainer.optimizer_cls_and_kwargs[0]
    if trainer.lr_scheduler is not None:
        classes["lr_scheduler_type"] = type(trainer.lr_scheduler)
    return {name: owner.__name__ for name, owner in classes.items() if owner is not None}


def check_optimizer(checkpoint: str, before: dict[str, Any], now: str) -> None:
    """
    Raises:
        ValueError: the optimizer is another one and cannot load the checkpoint's state.
    """
    old = before.get(_OPTIMIZER, now)
    if old != now and not {old, now} <= _SAME_STATE:
        raise ValueError(
            f"`resume_from_checkpoint` is {checkpoint!r}, which was made with the optimizer {old}, but this run's is "
            f"{now} (`optim`), which cannot read its state. Use the old one, or open the checkpoint as a model and "
            "start a new run."
        )


def check_architecture(checkpoint: str, config: PreTrainedConfig) -> None:
    """
    Raises:
        ValueError: the checkpoint's model has other sizes. ALBERT, whose layers share their weights, would load them.
    """
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
    try:
        return checksum_of_text(json.dumps(rows, default=_as_json))
    except (TypeError, ValueError):  # objects without comparable content
        return None


def _as_json(value):
    if isinstance(value, bytes):
        return value.hex()
    if type(value).__module__ in ("datetime", "decimal"):
        return str(value)
    if hasattr(value, "tolist"):  # tensors and arrays
        return value.tolist()
    raise TypeError


def _checksum_of_tokenizer(tokenizer) -> str | None:
    if not hasattr(tokenizer, "get_vocab"):
        return None
    content = tokenizer.get_vocab()
    if hasattr(tokenizer, "backend_tokenizer"):
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        # Padding and truncation keep the state of the last call.
        content = {name: part for name, part in content.items() if name not in ("padding", "truncation")}
    return checksum_of_text(json.dumps(content, sort_keys=True))
