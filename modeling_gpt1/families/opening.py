"""Opening models and tokenizers: what is new is said in one line, and only where it matters."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase, TokenizersBackend
from transformers.utils import logging

from tokenization import GPT1Tokenizer
from tokenization.errors import UserError
from tokenization.text.control_tokens import keep_text_as_text, pad_with_end_of_text

from .. import NOVELS
from .language_model_head import LanguageModelHead

logger = logging.get_logger(__name__)
MOST_NAMES = 4  # of weights, in a line


def packaged(model: str | None) -> str | None:
    """The folder of the model that comes with the package, for its short name; a folder here of that name wins."""
    is_short_name = model == Path(NOVELS).name
    return NOVELS if is_short_name and not Path(model).exists() else model


def name_for_others(model: str | None) -> str | None:
    """What files for others call a model: its name, but the short one for the folder that comes with the package.

    A folder here that has this short name is another model, which is called by its whole path.
    """
    if model == Path(NOVELS).name and Path(model).exists():
        return str(Path(model).absolute())
    is_packaged = bool(model) and Path(model).resolve() == Path(NOVELS).resolve()
    return Path(NOVELS).name if is_packaged else model


@contextmanager
def without_reports() -> Iterator[None]:
    """A context in which nothing is said of new weights, for a run whose checkpoint replaces them."""
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = False


@contextmanager
def without_load_report() -> Iterator[None]:
    """A context in which transformers prints no table of missing and unexpected weights."""
    reporter = logging.get_logger("transformers.modeling_utils")

    def is_other(record) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    reporter.addFilter(is_other)
    try:
        yield
    finally:
        reporter.removeFilter(is_other)


def load_model(model_class: Any, checkpoint: str, *, reports_left_out: bool = True, **opening: Any) -> PreTrainedModel:
    """`from_pretrained`, whose report is one line: a task head is new whenever a language model is fine-tuned."""
    with without_load_report():
        model, found = model_class.from_pretrained(checkpoint, output_loading_info=True, **opening)
    new = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if opening.get("ignore_mismatched_sizes"):  # heads of the same size become new, too
        new |= names_in_heads(model)
    if new and new <= names_in_heads(model):
        logger.warning("New classification head (normal before fine-tuning).")
    else:
        report("New weights, drawn at random", new)
    if reports_left_out:
        report("Weights left out", found["unexpected_keys"])
    return model


def load_whole(model_class: Any, checkpoint: str | os.PathLike, **opening: Any) -> PreTrainedModel:
    """`from_pretrained` for what is written from all weights.

    Raises:
        ValueError: weights are missing.
    """
    model, found = model_class.from_pretrained(checkpoint, output_loading_info=True, **opening)
    if found["missing_keys"]:
        missing = ", ".join(sorted(found["missing_keys"])[:MOST_NAMES])
        raise UserError(f"{checkpoint} lacks weights of its {model_class.__name__}: {missing}. Save it again.")
    return model


def check_has_no_speakers(config: PreTrainedConfig, program: str) -> None:
    """Refuses a dialogue model where its tokens would not get the embeddings of their speakers."""
    if getattr(config, "speaker_token_ids", None) is not None:
        raise UserError(
            "The model is a dialogue model, to whose tokens `generate` adds the embeddings of their speakers, but "
            f"{program} does not. Use `gpt1 generate --chat`, or a model without `speaker_token_ids`."
        )


def report(what: str, names: set[str] | list[str]) -> None:
    """Warns of weights by their names, if there are any."""
    if not names:
        return
    others = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    logger.warning(f"{what}: {', '.join(sorted(names)[:MOST_NAMES])}{others}.")


def heads_of(model: PreTrainedModel) -> dict[str, torch.nn.Module]:
    """The parts of a model with weights beside its base and its language-model heads, by name."""
    others = [model.base_model, model.get_output_embeddings()]
    others += [part for part in model.children() if isinstance(part, LanguageModelHead)]
    parts = {name: part for name, part in model.named_children() if all(part is not other for other in others)}
    return {name: part for name, part in parts.items() if any(True for _ in part.parameters())}


def names_in_heads(model: PreTrainedModel) -> set[str]:
    """The names of the weights of `heads_of`."""
    return {f"{head}.{name}" for head, part in heads_of(model).items() for name in part.state_dict()}


def reset_heads(model: PreTrainedModel) -> None:
    """Draws the heads of a model anew: `from_pretrained` has loaded those that have the size of the checkpoint's."""
    fresh = heads_of(type(model)(model.config))
    for name, head in heads_of(model).items():
        head.load_state_dict(fresh[name].state_dict())


def open_other_tokenizer(name_or_path: str, trust_remote_code: bool) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id. Without a padding token it pads with its end-of-text token.

    GPT-1's, beside an openai-gpt that was converted, is opened as a plain tokenizer: it gives the same ids, its
    sequences have no control tokens, and what is saved opens without this package.
    """
    tokenizer = AutoTokenizer.from_pretrained(name_or_path, trust_remote_code=trust_remote_code)
    if isinstance(tokenizer, GPT1Tokenizer):
        tokenizer = TokenizersBackend.from_pretrained(name_or_path)
    if pad_with_end_of_text(tokenizer):
        logger.warning(
            f"The tokenizer has no padding token: it pads with its end-of-text token, {tokenizer.pad_token}."
        )
    keep_text_as_text(tokenizer)
    return tokenizer
