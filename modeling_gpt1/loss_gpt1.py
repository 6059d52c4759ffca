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
"""The heads and their losses: L3 = L2 + λ·L1, with a language-modelling loss that never stores the whole logits.

Sources: equations 3 to 5 of "Improving Language Understanding by Generative Pre-Training" and the loss of the released
code (https://github.com/openai/finetune-transformer-lm/blob/master/train.py): L1 of a sequence is the mean over its
target tokens. The chunked backward follows from the gradient of softmax cross-entropy, softmax(z) − onehot(target).

Shapes: B examples, C sequences per example, T tokens, D hidden, V vocabulary, K classes, N target tokens.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers.utils import logging

from .batch_gpt1 import Examples, TaskInputs, every_label, next_label_targets
from .checks_gpt1 import can_read, check_numbers, check_several_labels, checked_classes
from .configuration_gpt1 import GPT1Config
from .decoding_gpt1 import GPT1Linear
from .unpadding_gpt1 import BatchPlan

logger = logging.get_logger(__name__)

# Bytes of logits: 414 targets in float32 and 828 in half precision at V = 40 478. That is large enough for full
# matrix-product speed, and small beside the activations.
CHUNK_BYTES = 64 * 2**20
# Rows of logits start at multiples of this many elements: with unaligned rows a product takes 1.4 times as long.
ROW_ALIGNMENT = 64
# Logits that the CPU normalises at once, and rows of the weight gradient per step: both stay in its cache.
SOFTMAX_ELEMENTS = 2**19
GRADIENT_ROWS = 4096


class GPT1TaskHead(nn.Module):
    """Scores of an example from the hidden states of its C sequences at the extract token.

    Source: equation 3 and figure 1 of the paper. As in the released code, all sequences of an example share one
    dropout mask, and the layer has a bias that starts at 0.
    """

    def __init__(self, config: GPT1Config):
        super().__init__()
        self.traversal = config.traversal
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.score = nn.Linear(config.hidden_size, 1 if self.traversal == "multiple_choice" else config.num_labels)

    def forward(self, extracted: torch.Tensor, is_present: torch.BoolTensor | None = None) -> torch.Tensor:
        """Task logits `[B, K]` from `extracted [B, C, D]`; `[B, C]` for multiple choice, −∞ at absent choices."""
        extracted = extracted * self.dropout(torch.ones_like(extracted[:, :1]))
        if self.traversal == "multiple_choice":
            task_logits = self.score(extracted).squeeze(-1)
            return task_logits if is_present is None else task_logits.masked_fill(~is_present, float("-inf"))
        return self.score(extracted.sum(1))


class GPT1LMHead(GPT1Linear):
    """Language-model head. With targets it returns the summed loss without storing the logits of all tokens.

    The loss is computed in `forward`, because FSDP, DeepSpeed ZeRO-3 and accelerate's offloading gather or move
    this module's weight around that call.
    """

    def forward(
        self,
        hidden_states: torch.Tensor,
        target_ids: torch.LongTensor | None = None,
        target_weights: torch.Tensor | None = None,
        expected_grad: torch.Tensor | float = 1.0,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Logits `[..., V]` of `hidden_states [..., D]`; with targets, see [`linear_cross_entropy`]."""
        if target_ids is None:
            return super().forward(hidden_states)
        return linear_cross_entropy(hidden_states, self.weight, target_ids, target_weights, expected_grad)

    @classmethod
    def with_weight_of(cls, linear: nn.Linear) -> "GPT1LMHead":
        """A head with the weight of a plain linear layer, which transformers makes when it resizes a head."""
        head = cls(linear.in_features, linear.out_features, bias=False, device="meta")
        head.weight = linear.weight
        head._is_hf_initialized = True  # tells transformers not to initialize the head again
        return head


@dataclass
class FineTuningLosses:
    """L3 of a batch and its parts, see [`GPT1DoubleHeadsModelOutput`]."""

    loss: torch.Tensor | None = None
    task_loss: torch.Tensor | None = None
    lm_loss: torch.Tensor | None = None
    example_losses: torch.Tensor | None = None


class LMHeadMixin:
    """Shared part of the models with a language-model head: the head's tied weight, its resizing and its losses."""

    _tied_weights_keys = {"lm_head.weight": "transformer.tokens_embed.weight"}
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def _get_resized_lm_head(self, *args, **kwargs) -> GPT1LMHead:
        head = super()._get_resized_lm_head(*args, **kwargs)
        return head if isinstance(head, GPT1LMHead) else GPT1LMHead.with_weight_of(head)

    @property
    def _has_fused_lm_loss(self) -> bool:
        return isinstance(self.lm_head, GPT1LMHead) and getattr(self, "_tp_size", None) in (None, 1)

    def next_token_loss(
        self,
        hidden_states: torch.Tensor,
        labels: torch.LongTensor | None,
        shift_labels: torch.LongTensor | None,
        num_targets: torch.Tensor | int | None,
        plan: BatchPlan | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Mean of −log P over the targets, ignoring −100; in evaluation also each row's sum and count, `[B, 2]`."""
        ids, shift = (labels, 1) if shift_labels is None else (shift_labels, 0)
        is_target = ids[:, shift:] != -100
        num_targets = count_items(is_target, num_targets)
        if torch.compiler.is_compiling():
            targets = every_label(hidden_states[:, : ids.shape[1] - shift], ids[:, shift:])
        elif plan is not None and plan.targets is not None and shift_labels is None:
            targets = plan.targets.read(hidden_states, ids)
        else:
            targets = next_label_targets(ids, shift).read(hidden_states, ids)
        expected_grad = _gradient_of_sum(hidden_states, num_targets)
        loss, row_losses = weighted_lm_loss(self.lm_head, *targets, len(ids), self._has_fused_lm_loss, expected_grad)
        example_losses = None if self.training else torch.stack([row_losses, is_target.sum(1)], dim=1)
        return loss / num_targets, example_losses

    def fine_tuning_losses(
        self,
        task_logits: torch.Tensor,
        labels: torch.Tensor,
        examples: Examples,
        hidden_states: torch.Tensor,
        num_items: torch.Tensor | int | None,
    ) -> FineTuningLosses:
        """L3 and its parts for `examples` and the decoder's `hidden_states`; arguments as in `forward`."""
        losses_of_task = task_losses(task_logits, labels, self.config)  # [B]
        losses_of_lm = torch.zeros_like(losses_of_task)
        counts = count_labels(labels)
        num_items = count_items(counts, num_items)
        losses = FineTuningLosses(task_loss=(losses_of_task * counts).sum() / num_items)
        losses.loss = losses.task_loss.clone()  # Trainer scales the loss in place
        if self.config.lm_coef > 0:
            targets = examples.targets(hidden_states, counts)
            expected_grad = _gradient_of_sum(hidden_states, num_items, float(self.config.lm_coef))
            loss_sum, losses_of_lm = weighted_lm_loss(
                self.lm_head, *targets, len(task_logits), self._has_fused_lm_loss, expected_grad
            )
            losses.lm_loss = loss_sum / num_items
            losses.loss = losses.task_loss + float(self.config.lm_coef) * losses.lm_loss
        if not self.training:
            losses_of_lm = losses_of_lm / counts.clamp(min=1)
            losses.example_losses = torch.stack([losses_of_task.detach(), losses_of_lm, counts], dim=1)
        return losses


def _gradient_of_sum(
    hidden_states: torch.Tensor, num_items: torch.Tensor | int, coefficient: float = 1.0
) -> torch.Tensor:
    """The gradient of `coefficient · sum / num_items` with respect to the sum, as autograd rounds it."""
    dtype = torch.promote_types(hidden_states.dtype, torch.float32)
    return hidden_states.new_ones((), dtype=dtype) * coefficient / num_items


def weighted_lm_loss(
    lm_head: nn.Module,
    hidden_states: torch.Tensor,
    target_ids: torch.Tensor,
    target_weights: torch.Tensor,
    rows: torch.Tensor,
    num_rows: int,
    fused: bool,
    expected_grad: torch.Tensor | float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of −log P(target) over a batch.

    Args:
        lm_head (`nn.Module`): returns logits, or the loss if it gets targets, see [`GPT1LMHead`].
        hidden_states, target_ids, target_weights, rows (`[N, D]`, `[N]`, `[N]`, `[N]`): the targets, and the row
            of each.
        num_rows (`int`): number of rows.
        fused (`bool`): whether the head takes targets. A head that an adapter, a quantiser or tensor parallelism has
            replaced returns only logits; then the logits of all targets are in memory.
        expected_grad (`[]` or `float`): see [`linear_cross_entropy`].

    Returns:
        The weighted sum, `[]`, and the weighted −log P of each row, `[num_rows]`, without a gradient.
    """
    if fused:
        loss, token_losses = lm_head(hidden_states, target_ids, target_weights, expected_grad)
    else:
        logits = lm_head(hidden_states).float()
        token_losses = nn.functional.cross_entropy(logits, target_ids, reduction="none")
        loss = (token_losses * target_weights).sum()
    row_losses = token_losses.new_zeros(num_rows).index_add(0, rows, token_losses.detach() * target_weights)
    return loss, row_losses


def linear_cross_entropy(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    target_ids: torch.Tensor,
    target_weights: torch.Tensor,
    expected_grad: torch.Tensor | float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weighted sum of −log softmax(hidden_states · weightᵀ)[target], computed in chunks of tokens.

    Only one chunk of logits exists at a time. The gradients are computed with the loss, in the same pass, for what is
    trained. Softmax and sums are at least float32 for all inputs; under autocast the matrix products run in autocast's
    dtype.

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
    if torch.is_autocast_enabled(hidden_states.device.type):
        dtype = torch.get_autocast_dtype(hidden_states.device.type)
    else:
        dtype = hidden_states.dtype
    # Decided outside of the autograd function, so that the compiler sees plain arguments.
    needs_grads = [torch.is_grad_enabled() and side.requires_grad for side in (hidden_states, weight)]
    return _LinearCrossEntropy.apply(
        hidden_states, weight, target_ids, target_weights, dtype, *needs_grads, expected_grad
    )


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx, hidden_states, weight, target_ids, target_weights, dtype, trains_hidden, trains_weight, expected_grad
    ):
        needs_grad = trains_hidden or trains_weight
        sum_dtype = torch.promote_types(dtype, torch.float32)
        target_weights = target_weights.to(sum_dtype)
        # Small weights underflow in half precision: products use weights scaled to at most 1, sums the true ones.
        largest = target_weights.abs().amax().clamp(min=torch.finfo(sum_dtype).tiny) if len(target_weights) else 1.0
        token_losses = torch.zeros(hidden_states.shape[:1], dtype=sum_dtype, device=hidden_states.device)
        grad_hidden = torch.empty_like(hidden_states) if trains_hidden else None
        grad_weight = torch.empty_like(weight, dtype=sum_dtype) if trains_weight else None
        compute_weight = weight.to(dtype)  # [V, D]
        chunks = _chunks(hidden_states.shape[0], max(1, CHUNK_BYTES // (dtype.itemsize * weight.shape[0])))
        # Chunks share one buffer: on a CPU, newly allocated memory costs as much time as the softmax.
        buffer = _logits_buffer(hidden_states[chunks[0]], weight, dtype)
        parts = _softmax_parts(buffer)
        scratch = None if dtype == sum_dtype else torch.empty_like(buffer[parts[0]], dtype=sum_dtype)
        with torch.autocast(hidden_states.device.type, enabled=False):
            for number, chunk in enumerate(chunks):
                hidden_chunk = hidden_states[chunk].to(dtype)
                products = buffer[: len(hidden_chunk)].addmm_(hidden_chunk, compute_weight.T, beta=0)  # [n, V]
                targets, weights, losses = target_ids[chunk, None], target_weights[chunk, None], token_losses[chunk]
                for part in parts:
                    logits = products[part]
                    if scratch is not None:
                        logits = scratch[: len(logits)].copy_(logits)
                    logits -= logits.amax(-1, keepdim=True)
                    target_logits = logits.gather(1, targets[part])
                    exponentials = logits.exp_()
                    totals = exponentials.sum(-1, keepdim=True)
                    losses[part] = (totals.log() - target_logits)[:, 0]
                    if needs_grad:
                        factors = weights[part] / largest
                        exponentials.mul_(factors / totals).scatter_add_(1, targets[part], -factors)
                        if scratch is not None:
                            products[part].copy_(exponentials)
                # If anything is trained, the products have become the gradients of the logits.
                if trains_hidden:
                    grad_hidden[chunk] = ((products @ compute_weight).to(sum_dtype) * largest).to(grad_hidden.dtype)
                if trains_weight:
                    _add_weight_gradient(grad_weight, products, hidden_chunk, is_first=number == 0)
            loss = (token_losses * target_weights).sum()
        if needs_grad:
            expected_grad = torch.as_tensor(expected_grad, dtype=sum_dtype, device=loss.device)
            if trains_weight:
                grad_weight = grad_weight.mul_(largest).mul_(expected_grad).to(weight.dtype)
            ctx.save_for_backward(grad_hidden, grad_weight, expected_grad)
        ctx.mark_non_differentiable(token_losses)
        return loss, token_losses

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_loss, _):
        grad_hidden, grad_weight, expected_grad = ctx.saved_tensors
        if grad_hidden is not None:
            grad_hidden = grad_hidden * grad_loss.to(grad_hidden.dtype)
        # A product with 1 would double the memory of the largest gradient.
        if grad_weight is not None and not (can_read(grad_loss) and grad_loss == expected_grad):
            grad_weight = grad_weight * (grad_loss / expected_grad).to(grad_weight.dtype)
        return grad_hidden, grad_weight, None, None, None, None, None, None


def _chunks(num_rows: int, chunk_size: int) -> list[slice]:
    """Splits `num_rows` into chunks of about `chunk_size` and of like length, none longer than the first."""
    if not torch.compiler.is_compiling():
        chunk_size = math.ceil(num_rows / max(math.ceil(num_rows / chunk_size), 1))
        return [slice(start, start + chunk_size) for start in range(0, max(num_rows, 1), max(chunk_size, 1))]
    # A graph has a fixed number of chunks. Powers of two keep the number of graphs below the compiler's limit. A chunk
    # takes every n-th row, because the compiler would guard on the length of a shorter last chunk.
    num_chunks = 1
    while 3 * chunk_size * num_chunks < 2 * num_rows:
        num_chunks *= 2
    return [slice(first, None, num_chunks) for first in range(num_chunks)]


def _softmax_parts(logits: torch.Tensor) -> list[slice]:
    """Splits the rows of `logits [n, V]` so that the CPU's cache holds a part until its gradient is complete."""
    if not can_read(logits):
        return [slice(None)]
    num_rows = max(1, SOFTMAX_ELEMENTS // logits.shape[1])
    return [slice(start, start + num_rows) for start in range(0, max(len(logits), 1), num_rows)]


def _logits_buffer(hidden_chunk: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Uninitialised logits `[n, V]` for the largest chunk of hidden states, `[n, D]`."""
    stride = math.ceil(weight.shape[0] / ROW_ALIGNMENT) * ROW_ALIGNMENT
    return hidden_chunk.new_empty(len(hidden_chunk), stride, dtype=dtype)[:, : weight.shape[0]]


def _add_weight_gradient(
    grad_weight: torch.Tensor, grad_logits: torch.Tensor, hidden_states: torch.Tensor, is_first: bool
) -> None:
    """Adds `grad_logits [n, V]`ᵀ · `hidden_states [n, D]` to `grad_weight [V, D]`, whose dtype may be wider.

    The first product replaces what the memory held before.
    """
    if grad_weight.dtype == hidden_states.dtype:
        grad_weight.addmm_(grad_logits.T, hidden_states, beta=0 if is_first else 1)
        return
    num_rows = GRADIENT_ROWS if grad_weight.device.type == "cpu" else len(grad_weight)
    for start in range(0, len(grad_weight), num_rows):
        rows = slice(start, start + num_rows)
        product = grad_logits[:, rows].T @ hidden_states
        if is_first:
            grad_weight[rows].copy_(product)
        else:
            grad_weight[rows].add_(product)


def task_losses(task_logits: torch.Tensor, labels: torch.Tensor, config: GPT1Config) -> torch.Tensor:
    """L2 of each example `[B]` in float32, from the scores `[B, K]` of classes or choices.

    Args:
        task_logits (`torch.Tensor` of shape `[B, K]`): scores.
        labels (`[B]`; `[B, K]` for multi-label classification): the class, the number or, for every class,
            whether it holds.
            The label −100 is ignored.
        config ([`GPT1Config`]): regression uses the squared error of one score, multi-label classification the mean
            of binary cross-entropies over the example's labels, other tasks the cross-entropy.

    Raises:
        ValueError: labels have the wrong shape or type, or do not exist in the task.
    """
    is_multi_label = config.problem_type == "multi_label_classification"
    needed = task_logits.shape[: 2 if is_multi_label else 1]
    if not isinstance(labels, torch.Tensor):
        raise ValueError(f"`labels` is a {type(labels).__name__}, but a tensor is needed: `torch.tensor(labels)`.")
    if labels.shape != needed:
        raise ValueError(
            f"`labels` are the task's labels, one {'row ' if is_multi_label else ''}per example: shape "
            f"{list(needed)} is needed, but got {list(labels.shape)}. Language-modelling targets are taken from "
            "`input_ids`."
        )
    if is_multi_label:
        check_several_labels(labels)
        targets, is_ignored = labels.float(), labels == -100
        losses = nn.functional.binary_cross_entropy_with_logits(task_logits.float(), targets, reduction="none")
        return losses.masked_fill(is_ignored, 0.0).sum(-1) / count_labels(labels).clamp(min=1)
    if config.is_regression:
        check_numbers(labels)
        losses = nn.functional.mse_loss(task_logits.squeeze(-1).float(), labels.float(), reduction="none")
    else:
        labels = checked_classes(labels, task_logits, config.traversal == "multiple_choice")
        return nn.functional.cross_entropy(task_logits.float(), labels, reduction="none")  # 0 for the label -100
    return losses.masked_fill(labels == -100, 0.0)


def task_loss(
    task_logits: torch.Tensor, labels: torch.Tensor, config: GPT1Config, num_items: torch.Tensor | int | None
) -> torch.Tensor:
    """L2 / N of a batch; N is `num_items`, by default the number of its labels."""
    losses, counts = task_losses(task_logits, labels, config), count_labels(labels)
    return (losses * counts).sum() / count_items(counts, num_items)


def count_labels(labels: torch.Tensor) -> torch.LongTensor:
    """The number of each example's labels other than −100, `[B]`: its weight in L2, L1 and N.

    N is then what Trainer counts, also for multi-label classification: there all labels of a step weigh the same.
    """
    is_label = labels != -100
    return is_label.long() if labels.dim() == 1 else is_label.sum(1)


def count_items(counts: torch.Tensor, num_items: torch.Tensor | int | None) -> torch.Tensor | int:
    """N, at least 1, so that the loss is 0 if nothing counts."""
    num_items = counts.sum() if num_items is None else num_items
    return num_items.clamp(min=1) if isinstance(num_items, torch.Tensor) else max(num_items, 1)


class ExtractTokenCheck:
    """Warns once if texts lack the control tokens that the task head reads.

    Compilation checks only the configuration. Without compilation the first batch is checked, which waits for the
    device; later batches are not checked.
    """

    def __init__(self):
        self.done = set()  # shared by the replicas that data parallelism makes in each step

    def __call__(self, config: GPT1Config, inputs: TaskInputs) -> None:
        # A caller that passes `mc_token_ids` has chosen the extract positions.
        if inputs.input_ids is None or inputs.mc_token_ids is not None:
            return
        if torch.compiler.is_compiling():
            if config.extract_token_id is None:
                warn_of_missing_control_tokens("`config.extract_token_id` is None")
        elif not self.done and not inputs.input_ids.is_meta and not torch.jit.is_tracing():
            self.done.add(True)
            if config.extract_token_id is None:
                warn_of_missing_control_tokens("`config.extract_token_id` is None")
            elif (count := count_without(config.extract_token_id, inputs.input_ids, inputs.attention_mask)) > 0:
                warn_of_missing_control_tokens(
                    f"{count} sequences of the first batch lack token {config.extract_token_id} "
                    "(`config.extract_token_id`)"
                )


def count_without(token_id: int, input_ids: torch.LongTensor, attention_mask: torch.Tensor | None) -> int:
    """Number of sequences that have real tokens but lack this one."""
    lacking = (input_ids != token_id).all(-1)
    if attention_mask is not None:
        lacking = lacking & attention_mask.bool().any(-1).view_as(lacking)
    return int(lacking.sum())


@torch.compiler.assume_constant_result
def warn_of_missing_control_tokens(reason: str) -> None:
    """Warns with the reason, and names the call that adds the control tokens."""
    logger.warning(
        f"The task head reads each sequence at its extract token [e], but {reason}. The texts were encoded without "
        "[s], [$] and [e], so nothing separates the texts of a pair and the head reads the last token. Call "
        "`add_control_tokens(tokenizer, model)` (`from modeling_gpt1 import add_control_tokens`) after loading both "
        "and before encoding texts; for a pipeline, call `add_control_tokens(pipe.tokenizer, pipe.model)`."
    )
