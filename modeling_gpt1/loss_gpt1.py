# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""The losses of both heads: L3 = L2 + λ·L1, with a language-modelling loss that never stores the whole logits.

Sources: equations 3 to 5 of "Improving Language Understanding by Generative Pre-Training" and the loss of the released
code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py): L1 of a sequence is the mean over its
target tokens. The chunked backward follows from the gradient of softmax cross-entropy, softmax(z) − onehot(target).

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, N target tokens.
"""

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar

import torch
from torch import nn

from .checks_gpt1 import can_read, first_place, is_whole
from .configuration_gpt1 import IGNORED_LABEL, GPT1Config, UserError, scores_choices

# Bytes of logits: 414 targets in float32 at V = 40 478. That is large enough for full matrix-product speed, and small
# beside the activations. In half precision, where each chunk's gradient of the weight is widened, twice as many.
CHUNK_BYTES = 64 * 2**20
# On a CPU a chunk has CHUNK_BYTES more for each time that a vocabulary has so many tokens: with fewer than 200 targets
# in it, products are slower.
VOCABULARY_OF_CHUNK = 80_000
# Rows of logits start at multiples of this many elements: others make products take 1.4 times as long, on GPUs 2 to 3.
ROW_ALIGNMENT = 64
# Logits normalised at once, and rows of the weight gradient per step: both stay in a CPU's cache. Elsewhere, 256 MiB.
SOFTMAX_ELEMENTS = 2**19
GRADIENT_ROWS = 4096


def linear_cross_entropy(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    target_ids: torch.Tensor,
    target_weights: torch.Tensor,
    expected_grad: torch.Tensor | float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of −log softmax(hidden_states · weightᵀ)[target], computed in chunks of tokens.

    Only one chunk of logits exists at a time. The gradients are computed with the loss, in the same pass, for what is
    trained. Softmax and sums are at least float32 for all inputs; under autocast the products run in autocast's dtype.

    Args:
        hidden_states (`torch.Tensor` of shape `[N, D]`): hidden states that predict the targets.
        weight (`torch.Tensor` of shape `[V, D]`): the language-model head.
        target_ids (`torch.LongTensor` of shape `[N]`): ids to predict.
        target_weights (`torch.Tensor` of shape `[N]`, float): factor of each token in the sum; 0 leaves a token out.
        expected_grad (`[]` or `float`): the gradient that the sum will probably get. The weight's gradient is
            multiplied by it in place; another gradient costs a second tensor of that size.

    Returns:
        The weighted sum, `[]`, differentiable once in `hidden_states` and `weight`, and each target's −log P, `[N]`,
        without a gradient; both at least float32.
    """
    device = hidden_states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden_states.dtype
    # Decided outside of the autograd function, so that the compiler sees plain arguments.
    trained = [torch.is_grad_enabled() and side.requires_grad for side in (hidden_states, weight)]
    return _LinearCrossEntropy.apply(hidden_states, weight, target_ids, target_weights, dtype, trained, expected_grad)


class _LinearCrossEntropy(torch.autograd.Function):
    """[`linear_cross_entropy`], whose forward pass computes the gradients, too; its backward pass scales them."""

    @staticmethod
    def forward(ctx, hidden_states, weight, target_ids, target_weights, dtype, trained, expected_grad):
        trains_hidden, trains_weight = trained
        needs_grad = trains_hidden or trains_weight
        sum_dtype = torch.promote_types(dtype, torch.float32)
        target_weights = target_weights.to(sum_dtype)
        # Small weights underflow in half precision: products use weights scaled to at most 1, sums the true ones.
        largest = 1.0
        if target_weights.shape[0] > 0:  # `len` would fix the number in an exported program
            largest = target_weights.abs().amax().clamp(min=torch.finfo(sum_dtype).tiny)
        token_losses = torch.zeros(hidden_states.shape[:1], dtype=sum_dtype, device=hidden_states.device)
        grad_hidden = None
        if trains_hidden:
            grad_hidden = torch.empty_like(hidden_states, dtype=_dtype_of_gradient(hidden_states, sum_dtype))
        grad_weight = torch.empty_like(weight, dtype=sum_dtype) if trains_weight else None
        compute_weight = weight.to(dtype)  # [V, D]
        if not weight.is_cpu and dtype != sum_dtype:
            compute_weight = nn.functional.pad(compute_weight, (0, 0, 0, -len(weight) % ROW_ALIGNMENT))
        chunks = _chunks(hidden_states.shape[0], _chunk_size(weight, dtype, sum_dtype))
        # Chunks share one buffer: on a CPU, newly allocated memory costs as much time as the softmax.
        buffer = _logits_buffer(hidden_states[chunks[0]], compute_weight, dtype)
        step, parts, scratch = _softmax_settings(weight, buffer, needs_grad, sum_dtype)
        with torch.autocast(hidden_states.device.type, enabled=False):
            for number, chunk in enumerate(chunks):
                hidden_chunk = hidden_states[chunk].to(dtype)
                products = buffer[: hidden_chunk.shape[0]].addmm_(hidden_chunk, compute_weight.T, beta=0)  # [n, V]
                targets = target_ids[chunk, None]
                losses = token_losses[chunk]
                factors = target_weights[chunk, None] / largest if needs_grad else None
                for part in parts:
                    part_factors = factors[part] if needs_grad else None
                    losses[part] = step(products[part, : len(weight)], targets[part], part_factors, scratch)
                # If anything is trained, the products have become the gradients of the logits.
                if trains_hidden:
                    grad_hidden[chunk] = ((products @ compute_weight).to(sum_dtype) * largest).to(grad_hidden.dtype)
                if trains_weight:
                    _accumulate(grad_weight, products, hidden_chunk, is_first=number == 0)
            loss = (token_losses * target_weights).sum()
        if needs_grad:
            expected_grad = torch.as_tensor(expected_grad, dtype=sum_dtype, device=loss.device)
            if trains_weight:
                grad_weight = grad_weight.mul_(largest).mul_(expected_grad)
                grad_weight = grad_weight.to(_dtype_of_gradient(weight, sum_dtype))
            ctx.save_for_backward(grad_hidden, grad_weight, expected_grad)
        ctx.mark_non_differentiable(token_losses)
        return loss, token_losses

    @staticmethod
    def backward(ctx, grad_loss, _):
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("This loss has no second derivative. Take `logits` for one (`skip_logits=False`).")
        grad_hidden, grad_weight, expected_grad = ctx.saved_tensors
        if grad_hidden is not None:
            grad_hidden = grad_hidden * grad_loss.to(grad_hidden.dtype)
        if grad_weight is not None:
            # A product with 1 would double the memory of the largest gradient.
            is_as_expected = can_read(grad_loss) and grad_loss == expected_grad
            if not is_as_expected:
                grad_weight = grad_weight * (grad_loss / expected_grad).to(grad_weight.dtype)
        return grad_hidden, grad_weight, None, None, None, None, None


def softmax_step(
    products: torch.Tensor, target_ids: torch.Tensor, factors: torch.Tensor | None, scratch: torch.Tensor | None
) -> torch.Tensor:
    """Each target's −log P `[n]` from the logits `[n, V]`; with `factors [n, 1]` these become their gradients.

    Half-precision logits are widened into `scratch`, of at least n rows, or, in a graph, into new memory.
    """
    if scratch is not None:
        logits = scratch[: len(products)].copy_(products)
    else:
        logits = products.to(torch.promote_types(products.dtype, torch.float32))
    logits -= logits.amax(-1, keepdim=True)
    target_logits = logits.gather(1, target_ids)
    exponentials = logits.exp_()
    totals = exponentials.sum(-1, keepdim=True)
    if factors is not None:
        gradients = exponentials.mul_(factors / totals)
        if torch.compiler.is_compiling():  # without a pass of its own
            is_target = torch.arange(products.shape[1], device=products.device) == target_ids
            gradients = gradients - torch.where(is_target, factors, 0.0)
        else:
            gradients.scatter_add_(1, target_ids, -factors)
        if gradients is not products:
            products.copy_(gradients)
    return (totals.log() - target_logits)[:, 0]


COMPILED_STEP = ContextVar("compiled_step", default=softmax_step)


def _dtype_of_gradient(tensor: torch.Tensor, sum_dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a gradient is kept: the tensor's own, but that of sums for float16.

    In float16 gradients would leave the range before a scaled loss brings them back; autograd narrows them.
    """
    return sum_dtype if tensor.dtype == torch.float16 else tensor.dtype


def _chunk_size(weight: torch.Tensor, dtype: torch.dtype, sum_dtype: torch.dtype) -> int:
    """The number of targets whose logits exist at once."""
    if weight.is_cpu:
        chunk_bytes = CHUNK_BYTES * (1 + len(weight) // VOCABULARY_OF_CHUNK)
    else:
        chunk_bytes = 4 * CHUNK_BYTES  # fewer kernels to start
    return chunk_bytes * sum_dtype.itemsize // (dtype.itemsize**2 * len(weight)) or 1


def _part_size(weight: torch.Tensor) -> int:
    """The number of targets whose logits are normalised at once."""
    num_elements = SOFTMAX_ELEMENTS if weight.is_cpu else 128 * SOFTMAX_ELEMENTS
    return num_elements // len(weight) or 1


def _softmax_settings(
    weight: torch.Tensor, buffer: torch.Tensor, needs_grad: bool, sum_dtype: torch.dtype
) -> tuple[Callable, list[slice], torch.Tensor | None]:
    """How a chunk's logits in `buffer` are normalised: the step, the parts that it takes, and its scratch memory."""
    whole = [slice(None)]
    if torch.compiler.is_compiling():
        return softmax_step, whole, None
    if needs_grad and COMPILED_STEP.get() is not softmax_step:
        return COMPILED_STEP.get(), whole, None
    parts = _chunks(len(buffer), _part_size(weight))
    scratch = None
    if buffer.dtype != sum_dtype:
        scratch = torch.empty_like(buffer[parts[0], : len(weight)], dtype=sum_dtype)
    return softmax_step, parts, scratch


def _chunks(num_targets: int, chunk_size: int) -> list[slice]:
    """Splits `num_targets` into chunks of about `chunk_size` and of like length, none longer than the first."""
    if not torch.compiler.is_compiling():
        num_chunks = max(math.ceil(num_targets / chunk_size), 1)
        chunk_size = max(math.ceil(num_targets / num_chunks), 1)
        return [slice(start, start + chunk_size) for start in range(0, max(num_targets, 1), chunk_size)]
    # A graph has a fixed number of chunks. Powers of two keep the number of graphs below the compiler's limit. A chunk
    # takes every n-th target, because the compiler would guard on the length of a shorter last chunk.
    num_chunks = 1
    while 3 * chunk_size * num_chunks < 2 * num_targets:
        num_chunks *= 2
    return [slice(first, None, num_chunks) for first in range(num_chunks)]


def _logits_buffer(hidden_chunk: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised logits `[n, V]` for the largest chunk of hidden states, `[n, D]`.

    The rest of each row is 0: with AMX, oneDNN's product in bfloat16 reads it as numbers times 0, and 0 · NaN is NaN.
    """
    vocab_size = weight.shape[0]
    stride = math.ceil(vocab_size / ROW_ALIGNMENT) * ROW_ALIGNMENT
    logits = hidden_chunk.new_empty(hidden_chunk.shape[0], stride, dtype=dtype)
    logits[:, vocab_size:] = 0
    return logits[:, :vocab_size]


def _accumulate(grad_weight: torch.Tensor, grad_logits: torch.Tensor, hidden: torch.Tensor, is_first: bool) -> None:
    """Adds `grad_logits [n, V]`ᵀ · `hidden [n, D]` to `grad_weight [V, D]`, which may be wider, or begins it."""
    if grad_weight.dtype == hidden.dtype:
        grad_weight.addmm_(grad_logits.T, hidden, beta=0 if is_first else 1)
        return
    part_size = GRADIENT_ROWS if grad_weight.is_cpu else grad_logits.shape[1]
    for start in range(0, len(grad_weight), part_size):
        part = slice(start, start + part_size)
        product = (grad_logits[:, part].T @ hidden)[: len(grad_weight)]
        if is_first:
            grad_weight[part].copy_(product)
        else:
            grad_weight[part].add_(product)


# ---- The task's loss


def task_losses(
    task_logits: torch.Tensor,
    labels: torch.Tensor,
    config: GPT1Config,
    class_weights: Sequence[float] | None = None,
) -> torch.Tensor:
    """L2 of each example `[B]` in float32, from the scores `[B, K]` of classes or choices.

    Args:
        task_logits (`torch.Tensor` of shape `[B, K]`): scores.
        labels (`[B]` or `[B, 1]`; `[B, K]` for multi-label classification): the class, the number or, for every class,
            whether it holds. The label −100 is ignored.
        config ([`GPT1Config`]): regression uses the squared error of one score, multi-label classification the mean
            of binary cross-entropies over the example's labels, other tasks the cross-entropy.
        class_weights (K numbers, *optional*): factor of the cross-entropy of each class. Default: 1.

    Raises:
        ValueError: labels have the wrong shape or type, one of several is not from 0 to 1, or there is no such class
            or choice.
    """
    is_multi_label = config.problem_type == "multi_label_classification"
    if labels.shape[1:] == (1,) and not is_multi_label:
        labels = labels.squeeze(1)
    check_labels(labels, task_logits, is_multi_label)
    if is_multi_label:
        losses = nn.functional.binary_cross_entropy_with_logits(task_logits.float(), labels.float(), reduction="none")
        return losses.masked_fill(labels == IGNORED_LABEL, 0.0).sum(-1) / count_labels(labels).clamp(min=1)
    if config.problem_type == "regression":  # a model with a task head sets it, see `config_for_task`
        losses = nn.functional.mse_loss(task_logits.squeeze(-1).float(), labels.float(), reduction="none")
        return losses.masked_fill(labels == IGNORED_LABEL, 0.0)
    if not is_whole(labels):
        raise UserError(
            f"`labels` must be indices of classes or choices (torch.int64), but got {labels.dtype}. Pass "
            "`labels.long()` if they are whole numbers, or open the model with `num_labels=1` for regression."
        )
    check_classes(labels, task_logits, scores_choices(config))
    scores = task_logits.float()
    weight = None if class_weights is None else scores.new_tensor(class_weights)
    return nn.functional.cross_entropy(
        scores, labels.long(), weight=weight, ignore_index=IGNORED_LABEL, reduction="none"
    )


def check_labels(labels: torch.Tensor, task_logits: torch.Tensor, is_multi_label: bool) -> None:
    """Checks the shape of the task's labels, and the values of several labels, which torch would not refuse."""
    if is_multi_label:
        needed = task_logits.shape
        unit = "row per example"
    else:
        needed = task_logits.shape[:1]
        unit = "per example"
    if labels.shape != needed:
        raise UserError(
            f"`labels` are the task's labels, one {unit}: shape {list(needed)} is needed, but got "
            f"{list(labels.shape)}. Language-modelling targets are taken from `input_ids`."
        )
    if not is_multi_label or not can_read(labels):
        return
    is_valid = ((labels >= 0) & (labels <= 1)) | (labels == IGNORED_LABEL)
    if not is_valid.all():
        example, label = first_place(~is_valid)
        raise UserError(
            f"Label {label} of example {example} is {labels[example, label].item()}, but it must be from 0 (the class "
            f"does not apply) to 1 (it applies), or {IGNORED_LABEL} for none."
        )


def check_classes(labels: torch.Tensor, task_logits: torch.Tensor, are_choices: bool) -> None:
    """Checks that each label `[B]` names a class or a choice of its example, or is −100."""
    if not (can_read(labels) and can_read(task_logits)):
        return
    last = task_logits.shape[1] - 1
    is_wrong = ((labels < 0) | (labels > last)) & (labels != IGNORED_LABEL)
    if is_wrong.any():
        (example,) = first_place(is_wrong)
        owner, remedy = "the model has classes", "Open the model with `num_labels` of your data."
        if are_choices:
            owner, remedy = "the examples have choices", "Correct the label."
        raise UserError(
            f"The label of example {example} is {labels[example].item()}, but {owner} 0 to {last}, and "
            f"{IGNORED_LABEL} marks an example without a label. {remedy}"
        )
    if not are_choices:
        return
    label_scores = task_logits.gather(1, labels.long().clamp(min=0)[:, None])[:, 0]
    is_absent = (label_scores == float("-inf")) & (labels != IGNORED_LABEL)
    if is_absent.any():
        (example,) = first_place(is_absent)
        raise UserError(
            f"The label of example {example} is {labels[example].item()}, but `choice_mask` marks this choice as "
            "absent. Correct the label or the mask."
        )


def task_loss(
    task_logits: torch.Tensor,
    labels: torch.Tensor,
    config: GPT1Config,
    num_items: torch.Tensor | int | None,
    class_weights: Sequence[float] | None = None,
) -> torch.Tensor:
    """L2 / N of a batch; N is `num_items`, by default the number of its labels."""
    losses = task_losses(task_logits, labels, config, class_weights)
    counts = count_labels(labels)
    return (losses * counts).sum() / count_items(counts, num_items)


def token_loss(logits: torch.Tensor, labels: torch.LongTensor, num_items: torch.Tensor | int | None) -> torch.Tensor:
    """Cross-entropy of the tokens' classes: the sum over `labels [B, T]` other than −100, divided by N.

    N is `num_items`, by default the number of these labels; `logits` are `[B, T, K]`.
    """
    loss_sum = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten().long(), ignore_index=IGNORED_LABEL, reduction="sum"
    )
    return loss_sum / count_items(labels != IGNORED_LABEL, num_items)


def span_loss(logits: torch.Tensor, positions: torch.LongTensor, num_items: torch.Tensor | int | None) -> torch.Tensor:
    """Cross-entropy of the place where answers begin or end: `logits [B, T]` and `positions [B]` or `[B, 1]`.

    As in transformers, positions of T or more are ignored. The sum is divided by `num_items`, by default the number of
    the others.
    """
    if positions.shape[1:] == (1,):
        positions = positions.squeeze(1)
    if positions.shape != logits.shape[:1] or not is_whole(positions):
        raise UserError(
            f"`start_positions` and `end_positions` need the shape {list(logits.shape[:1])} of torch.int64, one place "
            f"per example, but got {list(positions.shape)} of {positions.dtype}."
        )
    ignored = logits.shape[1]
    places = positions.long().clamp(0, ignored)
    loss_sum = nn.functional.cross_entropy(logits.float(), places, ignore_index=ignored, reduction="sum")
    return loss_sum / count_items(places != ignored, num_items)


def count_labels(labels: torch.Tensor) -> torch.LongTensor:
    """The number of each example's labels other than −100, `[B]`: its weight in L2, L1 and N.

    N is then what Trainer counts, also for multi-label classification: there all labels of a step weigh the same.
    """
    is_label = labels != IGNORED_LABEL
    return is_label.long() if labels.dim() == 1 else is_label.sum(1)


def count_items(counts: torch.Tensor, num_items: torch.Tensor | int | None) -> torch.Tensor | int:
    """N, at least 1, so that the loss is 0 if nothing counts."""
    if num_items is None:
        num_items = counts.sum()
    if isinstance(num_items, torch.Tensor):
        return num_items.clamp(min=1)
    return max(num_items, 1)
