"""The paper's auxiliary objective for the decoders of transformers: L3 = L2 + λ · L1 on their own classifiers.

The base model runs once. Its last hidden states go to the classifier's score head and, through the output embeddings
of the causal checkpoint, to the language-model loss. What is saved is the classifier alone.

Shapes: S sequences, T tokens, D hidden, V vocabulary, K classes.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import ModelOutput

from tokenization.errors import UserError

from ..kernels_gpt1 import is_quantized
from ..layouts_gpt1 import base_of_adapter
from .language_model_head import LanguageModelHead, scale_of_logits, soft_cap_of_logits
from .opening import report, without_load_report
from .probing import rounding_of, unchanged

HEAD = "auxiliary_head"  # the name of the head in its classifier
HEAD_FILE = "auxiliary_head.safetensors"  # in a checkpoint
PROBE_LENGTH = 16  # tokens
TOLERANCE = 1e-4  # of logits, as a part of the largest where that is above 1; quantised layers round more


@dataclass
class AuxiliaryOutput(ModelOutput):
    """Scores of a classifier, and L1.

    Args:
        logits (`[S, K]`): scores.
        lm_sum (`[]`): weighted sum of the sequences' L1.
        lm_losses (`[S]`): L1 of each sequence, without a gradient.
    """

    logits: torch.FloatTensor | None = None
    lm_sum: torch.FloatTensor | None = None
    lm_losses: torch.FloatTensor | None = None


@cache
def with_auxiliary_objective(classifier: type[PreTrainedModel]) -> type[PreTrainedModel]:
    """A classifier's class, whose `forward` also gives L1 if it is called with `sequence_weights`.

    It has the class's own name, because `config.architectures` and the card name it.
    """

    @wraps(classifier.forward)
    def forward(self, *args, sequence_weights=None, expected_grad=1.0, **kwargs):
        if sequence_weights is None:
            return classifier.forward(self, *args, **kwargs)
        with last_hidden_states(self.base_model) as states:
            outputs = classifier.forward(self, *args, **kwargs)
        lm_sum, lm_losses = auxiliary_head(self)(
            states[-1],
            self.get_input_embeddings().weight,
            kwargs["input_ids"],
            kwargs.get("attention_mask"),
            sequence_weights,
            expected_grad,
        )
        return AuxiliaryOutput(logits=outputs.logits, lm_sum=lm_sum, lm_losses=lm_losses)

    def reduce(self):
        return empty_instance, (classifier,), self.__dict__

    attributes = {
        "forward": forward,
        "__reduce__": reduce,  # pickle looks for a class by its name, and would find the classifier's own
        "__module__": classifier.__module__,
        "__qualname__": classifier.__qualname__,
        "__doc__": classifier.__doc__,
    }
    return type(classifier.__name__, (classifier,), attributes)


def empty_instance(classifier: type[PreTrainedModel]) -> PreTrainedModel:
    """An empty instance of a classifier's class with the objective, which unpickling fills."""
    with_objective = with_auxiliary_objective(classifier)
    return with_objective.__new__(with_objective)


@contextmanager
def last_hidden_states(base_model: nn.Module) -> Iterator[list[torch.Tensor]]:
    """A list to which each call of a base model adds its last hidden states, `[S, T, D]`."""
    states: list[torch.Tensor] = []
    hook = base_model.register_forward_hook(lambda module, inputs, output: states.append(output[0]))
    try:
        yield states
    finally:
        hook.remove()


def auxiliary_head(model: PreTrainedModel) -> LanguageModelHead | None:
    """The language-model head beside a classifier; None if it has none."""
    heads = [child for child in model.children() if isinstance(child, LanguageModelHead)]
    return heads[0] if heads else None


def add_auxiliary_head(
    model: PreTrainedModel,
    checkpoint: str,
    tokenizer: PreTrainedTokenizerBase,
    *,
    is_frozen: bool,
    trust_remote_code: bool,
    quantization_config: Any | None,
) -> None:
    """Gives a classifier the output embeddings of its causal checkpoint, in place.

    Args:
        model: the classifier of `checkpoint`, with its base as it was opened.
        checkpoint: folder or hub id of the causal model.
        tokenizer: the model's.
        is_frozen: leave an output matrix that is not the input embeddings as it is.
        trust_remote_code: run the code that the model brings.
        quantization_config: that of the classifier.

    Raises:
        ValueError: the checkpoint has no causal model; its logits are not those of the classifier's hidden states
            and the output embeddings; a token's logits depend on later tokens; or there is no matrix to freeze.
    """
    causal = open_causal_model(
        checkpoint,
        model,
        dtype=torch.float32,
        trust_remote_code=trust_remote_code,
        quantization_config=quantization_config,
    )
    head = head_of_causal_model(causal, checkpoint)
    if is_frozen and head.weight is None:
        raise UserError(
            f"`freeze_lm_head` is True, but the output matrix of {checkpoint} is its input embeddings, which are "
            "trained with the model. Leave `freeze_lm_head` out."
        )
    ids = probe_ids(tokenizer).to(model.device)
    with unchanged(causal):
        expected = causal(input_ids=ids).logits
    check_logits(model, head, ids, expected)
    head.requires_grad_(not is_frozen)
    attach_head(model, head)


def attach_head(model: PreTrainedModel, head: LanguageModelHead) -> None:
    """Puts a head beside a classifier, in place. `save_pretrained` leaves it out."""
    model.add_module(HEAD, head)
    unsaved = {f"{HEAD}.{name}" for name in head.state_dict()}
    model._keys_to_ignore_on_save = {*(model._keys_to_ignore_on_save or ()), *unsaved}
    model.__class__ = with_auxiliary_objective(type(model))


def open_causal_model(checkpoint: str, model: PreTrainedModel, **options: Any) -> PreTrainedModel:
    """The causal model of a classifier's checkpoint.

    Raises:
        ValueError: it has none, or no output matrix.
    """
    if base_of_adapter(checkpoint) is not None:
        raise UserError(
            f"{checkpoint} is an adapter, but `lm_coef` needs a causal language model. Pass the folder of its base, "
            "or leave `lm_coef` out."
        )
    knows_code = options["trust_remote_code"]
    if type(model.config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not knows_code:
        raise UserError(
            f"{checkpoint} is a model of type {model.config.model_type!r}, of which transformers has no causal one, "
            "but `lm_coef` needs a causal language model. Leave `lm_coef` out."
        )
    with without_load_report():
        causal, found = AutoModelForCausalLM.from_pretrained(checkpoint, output_loading_info=True, **options)
    missing = {*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])}
    if missing:
        raise UserError(
            f"{checkpoint} has no weights for {', '.join(sorted(missing)[:3])}, but `lm_coef` needs a causal language "
            "model. Pass the checkpoint before it was fine-tuned, or leave `lm_coef` out."
        )
    report("Weights left out", found["unexpected_keys"])
    return causal


def head_of_causal_model(causal: PreTrainedModel, checkpoint: str) -> LanguageModelHead:
    """The way from hidden states to logits, of a causal model's output embeddings and its configuration."""
    output = causal.get_output_embeddings()
    if output is None or not hasattr(output, "weight"):
        raise UserError(
            f"{type(causal).__name__} names no output embeddings, which the language-model loss of `lm_coef` needs. "
            "Leave `lm_coef` out."
        )
    is_tied = output.weight is causal.get_input_embeddings().weight
    config = causal.config.get_text_config()
    return LanguageModelHead(
        weight=None if is_tied else output.weight,
        bias=getattr(output, "bias", None),  # a class of layers may have none
        scale=scale_of_logits(config),
        soft_cap=soft_cap_of_logits(config),
    )


def probe_ids(tokenizer: PreTrainedTokenizerBase) -> torch.LongTensor:
    """Ordinary tokens from the whole vocabulary, `[1, T]`."""
    special = {*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder}
    ordinary = [token_id for token_id in range(len(tokenizer)) if token_id not in special]
    step = max(len(ordinary) // PROBE_LENGTH, 1)
    return torch.tensor([ordinary[::step][:PROBE_LENGTH]])


@torch.no_grad()
def check_logits(
    model: PreTrainedModel, head: LanguageModelHead, ids: torch.LongTensor, expected: torch.Tensor
) -> None:
    """Compares logits of a classifier's base with those of the causal model, and looks whether they are causal.

    Args:
        ids (`[1, T]`): tokens.
        expected (`[1, T, V]`): the causal model's logits.

    Raises:
        ValueError: they differ, or a token's logits depend on later tokens.
    """
    name = type(model).__name__
    tolerance = rounding_of(model) if is_quantized(model.config) else TOLERANCE
    try:
        with unchanged(model):
            logits = logits_of_base(model, head, ids)
            of_beginning = logits_of_base(model, head, ids[:, :-1])
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        # The classifiers of encoder-decoders, for example, read a text in another way than their decoders do.
        raise UserError(
            f"{name} cannot read a few tokens as the causal {model.config.model_type} does ({error}), so `lm_coef` "
            "has no language-model loss here. Leave `lm_coef` out, or use another model."
        ) from error
    if logits.shape != expected.shape or difference(logits, expected) > tolerance:
        detail = "have another shape"
        if logits.shape == expected.shape:
            detail = f"differ by {difference(logits, expected):.2g} of the largest"
        raise UserError(
            f"The logits of the causal {model.config.model_type} do not follow from the last hidden states of {name} "
            f"and the output embeddings: they {detail}. So `lm_coef` has no language-model loss here. "
            "Leave `lm_coef` out, or use another model."
        )
    if difference(of_beginning, logits[:, :-1]) > tolerance:
        raise UserError(
            f"{name} reads the tokens after the one that it predicts, so its language-model loss would mean nothing. "
            "Leave `lm_coef` out, or use another model."
        )


def logits_of_base(model: PreTrainedModel, head: LanguageModelHead, ids: torch.LongTensor) -> torch.Tensor:
    with last_hidden_states(model.base_model) as states:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    return head.logits(states[-1], model.get_input_embeddings().weight)


def difference(values: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a part of the largest value where that is above 1; NaN counts as infinite."""
    largest = max(1.0, expected.abs().max().item())
    part = (values - expected).abs().max().item() / largest
    return math.inf if math.isnan(part) else part


def check_output_matrix(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Refuses a tokenizer with more tokens than the head beside a classifier has rows for."""
    head = auxiliary_head(model)
    if head is not None and head.weight is not None and len(head.weight) < len(tokenizer):
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, but the output matrix of the auxiliary objective has "
            f"{len(head.weight)} rows. Resize the embeddings of the causal model, save it, and pass its folder to "
            "`prepare_finetuning`."
        )


# ---- Checkpoints


def write_trained_head(model: PreTrainedModel, folder: Path) -> None:
    """Writes the head's trained weights beside a checkpoint, whose model has none of them."""
    head = auxiliary_head(model)
    if head is not None and head.is_trained:
        save_file({name: weight.contiguous() for name, weight in head.state_dict().items()}, folder / HEAD_FILE)


def read_trained_head(model: PreTrainedModel, folder: Path) -> None:
    """Reads what [`write_trained_head`] wrote.

    Raises:
        ValueError: the run before trained the head and this one does not, or the other way round.
    """
    head = auxiliary_head(model)
    path = folder / HEAD_FILE
    if head is None or not head.is_trained:
        if path.is_file():
            raise UserError(
                f"{folder} has a trained output matrix, {HEAD_FILE}, but this run trains none. Pass the `lm_coef` of "
                "that run, and leave out the `freeze_lm_head` or `freeze` that it did not have, or begin anew."
            )
        return
    if not path.is_file():
        raise UserError(
            f"{folder} has no {HEAD_FILE}: that run did not train its output matrix. Pass the `freeze_lm_head` or "
            "`freeze` that it had, or begin anew."
        )
    head.load_state_dict(load_file(path))
