"""Converts models of gpt1 to models of transformers' openai-gpt.

The mapping of the weights is defined once, in `DECODER_CONVERSION` of `layouts_gpt1.py`. `from_pretrained` applies it,
and this module reverses it.
"""

import os
from types import SimpleNamespace

import torch
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    PreTrainedModel,
)
from transformers.core_model_loading import revert_weight_conversion

from ..configuration_gpt1 import GPT1Config
from ..layouts_gpt1 import DECODER_CONVERSION
from ..modeling_gpt1 import GPT1PreTrainedModel
from .files import load_tensors

OPENAI_GPT_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu", "relu": "relu", "silu": "silu"}
# Fields of the same name and meaning.
SHARED_FIELDS = (
    "vocab_size",
    "embd_pdrop",
    "resid_pdrop",
    "attn_pdrop",
    "layer_norm_epsilon",
    "initializer_range",
    "tie_word_embeddings",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "problem_type",
    "id2label",
    "label2id",
)
# Our own fields, which a folder of openai-gpt keeps for the conversion back.
KEPT_FIELDS = ("traversal", "columns", "lm_coef", "start_token_id", "delimiter_token_id", "extract_token_id")
WITHOUT_HEAD = (
    "To leave out what openai-gpt does not have, open it with GPT1Model or GPT1ForCausalLM, save that and convert the "
    "result."
)


def to_openai_gpt(model: GPT1PreTrainedModel, source: str | os.PathLike = "The model") -> PreTrainedModel:
    """The model of transformers' openai-gpt with the same weights.

    Args:
        model ([`GPT1PreTrainedModel`]): any model of this package; embeddings, norms and biases are shared, not
            copied.
        source (path, *optional*): name of the model in error messages.

    Raises:
        ValueError: openai-gpt lacks the model's class, block, activation, width or one of its weights.
    """
    openai_class = find_openai_gpt_class(model, source)
    config = openai_gpt_config(model.config, source)
    converted = load_tensors(openai_class, config, openai_gpt_tensors(model, openai_class, source))
    if converted.can_generate() and model.can_generate():
        converted.generation_config = model.generation_config
    return converted


def find_openai_gpt_class(model: GPT1PreTrainedModel, source: str | os.PathLike) -> type[PreTrainedModel]:
    has_lm_head, traversal = hasattr(model, "lm_head"), model.config.traversal
    if not hasattr(model, "task_head"):
        return OpenAIGPTLMHeadModel if has_lm_head else OpenAIGPTModel
    if traversal == "similarity":
        raise ValueError(
            f"{source}: no class of openai-gpt scores both orders of a pair, as 'similarity' does. {WITHOUT_HEAD}"
        )
    is_choice = traversal == "multiple_choice"
    openai_class = OpenAIGPTDoubleHeadsModel if is_choice else OpenAIGPTForSequenceClassification
    if is_choice != has_lm_head and not model.config.tie_word_embeddings:
        fault = (
            "needs a language-model head, but the model has neither one nor tied embeddings"
            if is_choice
            else "has no place for a language-model head that is not tied to the embeddings"
        )
        raise ValueError(f"{source}: {openai_class.__name__} {fault}. {WITHOUT_HEAD}")
    return openai_class


def openai_gpt_config(config: GPT1Config, source: str | os.PathLike) -> OpenAIGPTConfig:
    if config.hidden_act not in OPENAI_GPT_ACTIVATIONS:
        raise ValueError(
            f"{source}: `hidden_act` is {config.hidden_act!r}, but openai-gpt has only "
            f"{', '.join(map(repr, OPENAI_GPT_ACTIVATIONS))}."
        )
    if config.intermediate_size != 4 * config.hidden_size:
        raise ValueError(
            f"{source}: `intermediate_size` is {config.intermediate_size}, but openai-gpt needs 4 × `hidden_size`, "
            f"which is {4 * config.hidden_size} here."
        )
    for name in ("do_layer_norm_before", "sliding_window"):
        if getattr(config, name):
            raise ValueError(
                f"{source}: `{name}` is {getattr(config, name)}, but openai-gpt has only the blocks of GPT-1, without "
                "the changes of GPT-2 and GPT-3."
            )
    kept = {name: getattr(config, name) for name in KEPT_FIELDS if getattr(config, name) is not None}
    return OpenAIGPTConfig(
        n_positions=config.max_position_embeddings,
        n_embd=config.hidden_size,
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        afn=OPENAI_GPT_ACTIVATIONS[config.hidden_act],
        summary_first_dropout=config.classifier_dropout,
        **{name: getattr(config, name) for name in SHARED_FIELDS},
        **kept,
    )


def openai_gpt_tensors(
    model: GPT1PreTrainedModel, openai_class: type[PreTrainedModel], source: str | os.PathLike
) -> dict[str, torch.Tensor]:
    """The weights under openai-gpt's names and in its shapes."""
    weights = model.state_dict()
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    head = {name: weights.pop(name) for name in list(weights) if name.startswith("task_head.")}
    layout = SimpleNamespace(config=model.config, _weight_conversions=DECODER_CONVERSION)
    tensors = revert_weight_conversion(layout, weights)
    for name, weight in head.items():
        tensors |= openai_gpt_head(name, weight, openai_class, source)
    return tensors


def openai_gpt_head(
    name: str, weight: torch.Tensor, openai_class: type[PreTrainedModel], source: str | os.PathLike
) -> dict[str, torch.Tensor]:
    if openai_class is OpenAIGPTDoubleHeadsModel:
        return {name.replace("task_head.score", "multiple_choice_head.summary"): weight}
    if name.endswith("weight"):
        return {"score.weight": weight}
    if weight.any():
        raise ValueError(
            f"{source}: {name} is not 0, but the score layer of {openai_class.__name__} has no bias. " + WITHOUT_HEAD
        )
    return {}
