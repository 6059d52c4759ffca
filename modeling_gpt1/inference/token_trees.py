"""A context and its continuations as one sequence, in which each continuation sees the context and itself.

All tokens are read by one call of the model, without padding between continuations and without copies of keys and
values. Positions and a 4D attention mask say which tokens a token follows.

Shapes: B trees, T tokens of the longest one, its context and all continuations.
"""

import inspect
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask, sdpa_mask

# Trees of more tokens than this are read only if most of their tokens belong to the context: attention compares all
# tokens of a tree with each other.
TREE_TOKENS = 256
FULL_ATTENTION = "full_attention"
MASKS_4D = (sdpa_mask, eager_mask)  # what makes the masks of an attention that reads them
# Allowed difference of a tree's logits from those of its sequences, relative to the largest; 4 roundings of the dtype
# if that is more. A model that ignores positions or the mask is 0.1 to 0.6 off.
TOLERANCE = 1e-4


def reads_trees(model: PreTrainedModel) -> bool:
    """Whether a model follows positions and a 4D mask in every layer. A small tree is tried."""
    config = model.config.get_text_config()
    layer_types = getattr(config, "layer_types", None) or [FULL_ATTENTION]
    arguments = inspect.signature(model.forward).parameters
    return (
        {"position_ids", "attention_mask"} <= arguments.keys()
        and ALL_MASK_ATTENTION_FUNCTIONS.get(config._attn_implementation) in MASKS_4D
        and set(layer_types) == {FULL_ATTENTION}
        and not getattr(config, "sliding_window", None)
        and model._supports_attention_backend
        and _answers_equally(model, min(config.vocab_size, 8))
    )


@torch.no_grad()
def _answers_equally(model: PreTrainedModel, num_ids: int) -> bool:
    """Whether the last token of each branch gets the same logits as in a sequence of its own."""
    context, branches = (
        [1 % num_ids, 2 % num_ids, 3 % num_ids],
        [[4 % num_ids, 5 % num_ids], [6 % num_ids, 2 % num_ids]],
    )
    whole = torch.tensor([context + branch for branch in branches], device=model.device)
    expected = model(input_ids=whole).logits[:, -1].float()
    ends = model(**trees([context], [branches], model.device, model.dtype)).logits[0, [4, 6]].float()
    tolerance = max(TOLERANCE, 4 * torch.finfo(model.dtype).eps)
    return bool((ends - expected).abs().max() <= tolerance * expected.abs().max())


def is_worthwhile(num_context: int, num_read: int) -> bool:
    """Whether a tree is cheaper than a cache of its context's keys and values; for numbers of tokens."""
    return num_read <= max(num_context, TREE_TOKENS - num_context)


def trees(
    contexts: Sequence[Sequence[int]],
    branches: Sequence[Sequence[Sequence[int]]],
    device: torch.device,
    dtype: torch.dtype,
) -> dict[str, torch.Tensor]:
    """
    The model's arguments for trees of token ids, padded on the left.

    Returns:
        `input_ids` and `position_ids`, int64 `[B, T]`, and `attention_mask` `[B, 1, T, T]` of `dtype`: 0 where a query
        may read a key, otherwise the smallest number.
    """
    rows = [
        [(token, position, 0) for position, token in enumerate(context)]
        + [
            (token, len(context) + place, number)
            for number, ids in enumerate(of_context, start=1)
            for place, token in enumerate(ids)
        ]
        for context, of_context in zip(contexts, branches, strict=True)
    ]
    longest = max(map(len, rows))
    # Padding is a branch of its own, which reads itself alone: a row of attention that reads nothing would give NaN.
    padded = torch.tensor([[(0, 0, -1)] * (longest - len(row)) + row for row in rows], device=device)  # [B, T, 3]
    input_ids, position_ids, branch = padded.unbind(-1)
    is_before = torch.ones(longest, longest, dtype=torch.bool, device=device).tril()
    is_read = is_before & ((branch[:, None] == 0) | (branch[:, None] == branch[:, :, None]))  # [B, T, T]
    mask = torch.zeros(is_read.shape, dtype=dtype, device=device).masked_fill_(~is_read, torch.finfo(dtype).min)
    return {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": mask[:, None]}
