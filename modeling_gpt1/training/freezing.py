"""Freezing: fine-tuning that changes a part of a model's weights alone.

Frozen weights get no gradient and no state of the optimizer. The strategies are those of "To Tune or Not to Tune?
Adapting Pretrained Representations to Diverse Tasks" (Peters et al., 2019), which compares a frozen model with one
that is trained as a whole, and of "What Would Elsa Do? Freezing Layers During Transformer Fine-Tuning" (Lee et al.,
2019), which freezes the embeddings and the first layers.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from tokenization.errors import UserError
from tokenization.wording import counted

from ..families.adapters import without_adapter
from ..families.opening import heads_of
from ..families.probing import whole_shape

EMBEDDINGS = "embeddings"
BASE = "base"
# A layer between base and head that many checkpoints lack. transformers has it inside of the base of BERT and others.
POOLER = "pooler"
# Layers whose names mislead: OPT's lies between the embeddings and the first block, ESM's behind the last.
BEFORE_THE_BLOCKS = ("project_in",)
BEHIND_THE_BLOCKS = ("emb_layer_norm_after",)


def read_freezing(freeze: str | int) -> str | int:
    """The strategy of `freeze`, with a number of layers as an `int`.

    Raises:
        ValueError: it is no strategy.
    """
    if freeze in (EMBEDDINGS, BASE):
        return freeze
    try:
        num_layers = int(freeze)
    except (TypeError, ValueError):
        num_layers = -1
    if isinstance(freeze, bool | float) or num_layers < 0:
        raise UserError(
            f"`freeze` is {freeze!r}, but one of three is needed: {EMBEDDINGS!r}, a number of first layers such as 4, "
            f"which are frozen with the embeddings, or {BASE!r}, everything but the head."
        )
    return num_layers or EMBEDDINGS


def check_freezing(
    freeze: str | int, n_transfer: int | None, config: PreTrainedConfig, is_new: bool, peft_config: Any | None
) -> None:
    """Refuses to freeze weights that were drawn at random, and beside an adapter.

    Args:
        freeze: as for [`freeze_weights`].
        n_transfer: the layers that are kept of a checkpoint; None keeps all.
        config: of the model.
        is_new: whether there is no checkpoint.
        peft_config: that of the adapter, if there is one.
    """
    freeze = read_freezing(freeze)
    if peft_config is not None:
        raise UserError(
            f"`freeze` is {freeze!r}, but an adapter freezes everything but itself and the head. Leave one of them "
            "out."
        )
    if is_new:
        raise UserError(f"`freeze` is {freeze!r}, but a new model has no trained weights to keep. Leave it out.")
    if n_transfer is None or n_transfer == config.num_hidden_layers:
        return
    if freeze == EMBEDDINGS:
        num_frozen = 0
    elif freeze == BASE:
        num_frozen = config.num_hidden_layers
    else:
        num_frozen = freeze
    if num_frozen > n_transfer:
        raise UserError(
            f"`freeze` is {freeze!r}, but `n_transfer` is {n_transfer}: layers would be frozen that were drawn anew. "
            "Freeze no more layers than are kept of the checkpoint."
        )


def freeze_weights(model: PreTrainedModel, freeze: str | int) -> PreTrainedModel:
    """Lets training leave a part of a model with a task head as it is, in place.

    Args:
        model: a GPT-1 or a classifier of transformers.
        freeze: `"embeddings"`: those of tokens, positions and segments, with the layers between them and the first
            block. A number k: these and the first k layers; of an encoder-decoder, first those of the encoder.
            `"base"`: everything but the task head and a pooler before it.

    Returns:
        `model`.

    Raises:
        ValueError: `freeze` is no strategy, or the model has fewer layers or none that can be counted.
    """
    freeze = read_freezing(freeze)
    if freeze == BASE:
        trained = set(weights_of_head(model))
        frozen = [weight for weight in model.parameters() if weight not in trained]
    else:
        frozen = list(weights_of_embeddings(model.base_model))
        if freeze != EMBEDDINGS:
            for layer in first_layers(model, freeze):
                frozen += layer.parameters()
    for weight in frozen:
        weight.requires_grad_(False)
    return model


def weights_of_head(model: PreTrainedModel) -> Iterator[nn.Parameter]:
    """The weights of the task head, and of a pooler."""
    for head in heads_of(model).values():
        yield from head.parameters()
    pooler = getattr(model.base_model, POOLER, None)
    if pooler is not None:
        yield from pooler.parameters()


def weights_of_embeddings(base: PreTrainedModel) -> Iterator[nn.Parameter]:
    """The weights of a base model's embeddings: by type or name, and outside of its layers."""
    inside_of_layers = {weight for stack in stacks_of(base) for weight in stack.parameters()}
    for name, module in base.named_modules():
        own_name = name.rpartition(".")[2]
        is_of_embeddings = "emb" in name and own_name not in BEHIND_THE_BLOCKS
        if isinstance(module, nn.Embedding) or is_of_embeddings or own_name in BEFORE_THE_BLOCKS:
            for weight in module.parameters(recurse=False):
                if weight not in inside_of_layers:
                    yield weight


def stacks_of(base: nn.Module) -> list[nn.ModuleList]:
    """The lists of layers of a module, without those inside of a layer."""
    stacks = []
    for child in base.children():
        if isinstance(child, nn.ModuleList):
            stacks.append(child)
        else:
            stacks += stacks_of(child)
    return stacks


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model in the order in which a text passes them.

    Raises:
        ValueError: they cannot be counted, because they share weights or lie in several lists.
    """
    config = model.config
    base = model.base_model
    if config.is_encoder_decoder:
        parts = [base.get_encoder(), base.get_decoder()]
    else:
        parts = [base]
    layers = []
    can_be_counted = True
    for part in parts:
        stacks = stacks_of(part)
        can_be_counted = can_be_counted and len(stacks) == 1
        layers += [layer for stack in stacks for layer in stack]
    if not config.is_encoder_decoder:
        can_be_counted = can_be_counted and len(layers) == config.num_hidden_layers
    if not can_be_counted:
        raise UserError(
            f"The layers of {type(model).__name__} cannot be frozen one by one: they share weights, or are not in one "
            f"list. Pass {EMBEDDINGS!r} or {BASE!r} as `freeze`."
        )
    return layers


def first_layers(model: PreTrainedModel, num_layers: int) -> list[nn.Module]:
    """The first `num_layers` layers of a model."""
    layers = layers_of(model)
    if num_layers > len(layers):
        raise UserError(
            f"`freeze` is {num_layers}, but the model has {counted(len(layers), 'layer')}. Pass a number up to that, "
            f"or {BASE!r} to train the head alone."
        )
    return layers[:num_layers]


def describe_freezing(model: torch.nn.Module) -> str | None:
    """What of a model is frozen, for its card; None if nothing is, or an adapter is trained in its place."""
    own_model = without_adapter(model)
    if own_model is not model:
        return None
    weights = list(own_model.parameters())
    num_frozen = sum(whole_shape(weight).numel() for weight in weights if not weight.requires_grad)
    if not num_frozen:
        return None
    share = f"{num_frozen:,} of {sum(whole_shape(weight).numel() for weight in weights):,} parameters"
    if trains_head_alone(own_model):
        return f"everything but the head ({share})"
    parts = []
    if not any(weight.requires_grad for weight in weights_of_embeddings(own_model.base_model)):
        parts.append("embeddings")
    num_layers = num_frozen_layers(own_model)
    if num_layers:
        parts.append(f"first {counted(num_layers, 'layer')}")
    return f"{' and '.join(parts)} ({share})" if parts else share


def trains_head_alone(model: PreTrainedModel) -> bool:
    """Whether all weights but those of the task head and its pooler are frozen."""
    head = set(weights_of_head(model))
    return not any(weight.requires_grad for weight in model.parameters() if weight not in head)


def num_frozen_layers(model: PreTrainedModel) -> int:
    """How many of a model's first layers are frozen; 0 also where they cannot be counted."""
    try:
        layers = layers_of(model)
    except UserError:
        return 0
    num_layers = 0
    for layer in layers:
        if any(weight.requires_grad for weight in layer.parameters()):
            break
        num_layers += 1
    return num_layers
