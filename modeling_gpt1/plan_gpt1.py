# Copyright 2026 The gpt1-hf authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Planning a batch on the host, so that the model never waits for its device to learn a shape.

A shape that depends on values, such as the number of real tokens, makes the host wait until the device has computed
them. The collator's batch is on the host: a worker of the DataLoader plans it there, and the plan travels with it.

Shapes: B examples or rows, C sequences per example, T tokens.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

from .attention_gpt1 import packing_for, reads_no_padding
from .batch_gpt1 import NUM_SEQUENCES, TaskInputs, next_label_targets, read_examples, shares_beginnings
from .checks_gpt1 import can_read
from .configuration_gpt1 import GPT1Config
from .unpadding_gpt1 import BatchPlan, PackedSequences, Targets, count_to, each, pack_arrays

# What the collator gives for most batches, beside labels.
COLLATED = {"input_ids", "attention_mask", "mc_token_ids"}


def planner_of(model: PreTrainedModel) -> Callable[[Any], BatchPlan | None] | None:
    """Returns a function that makes the argument `plan` for a batch of this model, on the host, without its weights.

    ```python
    plan_batch = planner_of(model)
    batch = collator(rows)
    loss = model(**batch, plan=plan_batch(batch)).loss
    ```

    Returns:
        The function, which gives `None` for anything but a batch of ids on the CPU; `None` if the model takes no plan.
    """
    if "plan" not in inspect.signature(model.forward).parameters:
        return None
    if not hasattr(model, "task_head"):
        return plan_blocks
    has_lm_loss = hasattr(model, "lm_head") and model.config.lm_coef > 0
    return partial(plan_examples, model.config, packing_for(model), has_lm_loss)


def plan_blocks(batch: Any) -> BatchPlan | None:
    """The plan of a language model's batch: `input_ids`, `attention_mask`, `labels`, each `[B, T]`."""
    if not _has_ids(batch):
        return None
    input_ids, mask, labels = (batch.get(name) for name in ("input_ids", "attention_mask", "labels"))
    mask = mask if isinstance(mask, torch.Tensor) and mask.shape == input_ids.shape else None
    has_targets = isinstance(labels, torch.Tensor) and labels.dim() == 2 and labels.shape == input_ids.shape
    return BatchPlan(
        shape=input_ids.shape,
        is_right_padded=_is_right_padded(mask),
        num_tokens=input_ids.numel() if mask is None else int(mask.sum()),
        targets=next_label_targets(labels) if has_targets else None,
    )


def plan_examples(config: GPT1Config, way_of_packing: str | None, has_lm_loss: bool, batch: Any) -> BatchPlan | None:
    """The plan of a task model's batch, whose keys are those of [`TaskInputs`] and `labels`.

    Args:
        way_of_packing: how attention keeps packed sequences apart; `None` if the batch must stay padded.
        has_lm_loss: whether the loss includes the auxiliary language-modelling loss.

    Raises:
        ValueError: as in [`read_examples`].
    """
    if not isinstance(batch, Mapping):
        return None
    has_targets = has_lm_loss and batch.get("labels") is not None
    plan = _plan_collated(config, way_of_packing, has_targets, batch) if way_of_packing else None
    if plan is not None or not _has_ids(batch):
        return plan
    inputs = TaskInputs(**{field.name: batch.get(field.name) for field in fields(TaskInputs)})
    examples = read_examples(config, inputs, way_of_packing)
    packing = None if examples.sequences is examples.padded else examples.sequences.with_ids(None)
    return BatchPlan(
        shape=inputs.input_ids.shape,
        is_right_padded=packing is None and _is_right_padded(inputs.attention_mask),
        packing=packing,
        targets=examples.place_targets() if has_targets else None,
    )


def _plan_collated(config: GPT1Config, way_of_packing: str, has_targets: bool, batch: Mapping) -> BatchPlan | None:
    """The plan of a batch as the collator makes most, in a fraction of the time; `None` if it is another batch.

    It has no other keys, is valid and padded on the right, lacks no choice, reads the last token of each sequence, and
    packing saves work.
    """
    if batch.keys() - {"labels"} != COLLATED:
        return None
    if not all(isinstance(batch[name], torch.Tensor) and batch[name].device.type == "cpu" for name in COLLATED):
        return None
    shape, needed = batch["input_ids"].shape, NUM_SEQUENCES[config.traversal]
    ids, mask, places = (batch[name].numpy() for name in ("input_ids", "attention_mask", "mc_token_ids"))
    num_choices, length = shape[1] if len(shape) == 3 else 1, shape[-1]
    fits = needed in (num_choices, None) if len(shape) == 3 else len(shape) == 2 and needed == 1
    if not (fits and ids.size and mask.shape == shape and places.shape == shape[:-1] and places.dtype.kind == "i"):
        return None
    ids, mask, lengths = ids.reshape(-1, length), mask.reshape(-1, length), places.reshape(-1) + 1
    real = count_to(length) < lengths[:, None]
    if length > config.max_position_embeddings or lengths.min() < 1 or lengths.max() > length or (mask != real).any():
        return None
    can_share = num_choices > 1 and shares_beginnings(config, way_of_packing)
    ids = ids if can_share else None
    packed, sequences = pack_arrays(ids, real, lengths, True, num_choices, config.hidden_size)
    if packed is None:
        return None
    targets = _place_targets(packed, sequences, lengths, num_choices) if has_targets else None
    packed, targets = (part and each(part, torch.from_numpy) for part in (packed, targets))
    return BatchPlan(shape, is_right_padded=False, packing=packed, targets=targets)


def _place_targets(packed: PackedSequences, sequences: Any, lengths: Any, num_choices: int) -> Targets:
    """As [`Examples.place_targets`], for such a batch; all are arrays of numpy.

    Args:
        sequences, lengths (`[N]`, `[S]`): the sequence of each token, and the number of tokens of each sequence.
    """
    positions, examples = packed.position_ids[0], packed.example_index
    of_sequences = (1 / num_choices) / (lengths - (lengths > 1)).astype("f4")
    weights = of_sequences.take(sequences)
    tokens = positions.nonzero()[0]
    sources = tokens - 1
    if packed.row_is_shared is not None:
        is_shared = packed.row_is_shared.reshape(-1).take(packed.row_place)
        of_examples = of_sequences.reshape(-1, num_choices).cumsum(1)[:, -1]
        weights[is_shared] = of_examples.take(examples[is_shared])
        # The last token of the shared beginning, which begins a row, predicts the first of each sequence's own.
        first = (positions.take(sources) >= positions.take(tokens)).nonzero()[0]
        of_first = tokens.take(first)
        sources[first] += positions.take(of_first) - packed.row_place.take(of_first) % packed.row_index.shape[1]
    return Targets(sources, tokens, weights.take(tokens), examples.take(tokens))


def plan_to_follow(
    plan: BatchPlan | None,
    config: PreTrainedConfig,
    input_ids: torch.Tensor | None,
    way_of_packing: str | None = None,
    **kwargs,
) -> BatchPlan | None:
    """The plan on the batch's device, or `None` if it belongs to another batch or does not cover this call.

    Args:
        input_ids: the ids that the model was given.
        way_of_packing: how attention keeps packed sequences apart in this call; `None` if it needs padding.
        kwargs: the other arguments of the call.
    """
    if not reads_no_padding(config, **kwargs) or plan is None or input_ids is None:
        return None
    if plan.shape != input_ids.shape or (plan.packing is not None and not plan.packing.suits(way_of_packing)):
        return None
    return plan.to(input_ids.device, non_blocking=True)


def _has_ids(batch: Any) -> bool:
    input_ids = batch.get("input_ids") if isinstance(batch, Mapping) else None
    return isinstance(input_ids, torch.Tensor) and can_read(input_ids) and batch.get("inputs_embeds") is None


def _is_right_padded(attention_mask: torch.Tensor | None) -> bool:
    return attention_mask is not None and not bool((attention_mask[..., 1:] > attention_mask[..., :-1]).any())
