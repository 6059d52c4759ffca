"""The language-model head beside a classifier of transformers: from its last hidden states to L1.

Source: equation 5 of "Improving Language Understanding by Generative Pre-Training" (Radford et al., 2018); the
normalisation of L1 is that of the released code, as for GPT-1.

Shapes: S sequences, T tokens, D hidden, V vocabulary, N target tokens.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedConfig

from ..loss_gpt1 import CHUNK_BYTES, linear_cross_entropy
from ..packing_gpt1 import next_tokens, predicted_places

# Fields of configurations by which logits are multiplied, or divided.
FACTORS = ("logit_scale", "lm_head_multiplier")
DIVISORS = ("logits_scaling",)
# A field of one name that divides in some families multiplies in these.
MULTIPLIED_BY_ALL = ("hyperclovax",)
SOFT_CAPS = ("final_logit_softcapping", "output_logit_soft_cap", "logits_soft_cap")


def scale_of_logits(config: PreTrainedConfig) -> float:
    """The factor of a family's logits, as its configuration says."""
    scale = 1.0
    for name in FACTORS:
        scale *= _number(config, name, 1.0)
    for name in DIVISORS:
        number = _number(config, name, 1.0)
        scale = scale * number if config.model_type in MULTIPLIED_BY_ALL else scale / number
    return scale


def soft_cap_of_logits(config: PreTrainedConfig) -> float | None:
    """The bound c of logits c · tanh(z / c), as the configuration says; None without one."""
    caps = [_number(config, name, None) for name in SOFT_CAPS]
    return next((cap for cap in caps if cap is not None), None)


def _number(config: PreTrainedConfig, name: str, default: float | None) -> float | None:
    value = getattr(config, name, None)  # most families have no such field
    return default if value is None else float(value)


class LanguageModelHead(nn.Module):
    """The way of a decoder from its last hidden states to logits, and L1.

    Logits are c · tanh(s · (W h + b) / c): W is the input embeddings or a matrix here, and most families have neither
    bias b, nor factor s, nor soft cap c. They are never held for more than a part of the tokens.

    Args:
        weight (`[V, D]`, *optional*): the output matrix. Default: the input embeddings, which each call gives.
        bias (`[V]`, *optional*): the bias of the output matrix.
        scale: the factor of the logits.
        soft_cap: the bound of the logits; None without one.
    """

    def __init__(
        self,
        weight: nn.Parameter | None = None,
        bias: nn.Parameter | None = None,
        scale: float = 1.0,
        soft_cap: float | None = None,
    ):
        super().__init__()
        self.register_parameter("weight", weight)
        self.register_parameter("bias", bias)
        self.scale = scale
        self.soft_cap = soft_cap

    @property
    def is_trained(self) -> bool:
        """Whether it has weights that training changes."""
        return any(weight.requires_grad for weight in self.parameters())

    def logits(self, hidden_states: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Logits `[..., V]` of hidden states `[..., D]`; `embeddings` `[V, D]` are those of the input."""
        weight = embeddings if self.weight is None else self.weight
        logits = nn.functional.linear(hidden_states, weight, self.bias) * self.scale
        if self.soft_cap is not None:
            logits = self.soft_cap * torch.tanh(logits / self.soft_cap)
        return logits

    def forward(
        self,
        hidden_states: torch.Tensor,
        embeddings: torch.Tensor,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None,
        sequence_weights: torch.Tensor,
        expected_grad: torch.Tensor | float = 1.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """L1 of a batch.

        Args:
            hidden_states (`[S, T, D]`): the decoder's last.
            embeddings (`[V, D]`): those of the input.
            input_ids, attention_mask (`[S, T]`): the sequences. Every real token after the first is a target.
            sequence_weights (`[S]`): the factor of each sequence in the sum.
            expected_grad: the gradient that the sum will probably get, see [`linear_cross_entropy`].

        Returns:
            the weighted sum of the sequences' means of −log P, `[]`, and the means, `[S]`, without a gradient.
        """
        is_real = None if attention_mask is None else attention_mask.bool()
        is_target = next_tokens(input_ids, attention_mask)  # [S, T]
        shares = is_target / is_target.sum(1, keepdim=True).clamp(min=1)
        places, sources = predicted_places(is_real, is_target)
        sequences = places // input_ids.shape[1]
        shares = shares.flatten()[places]
        loss_sum, token_losses = self.weighted_sum(
            hidden_states.flatten(0, 1).index_select(0, sources),
            embeddings,
            input_ids.flatten()[places],
            shares * sequence_weights[sequences],
            expected_grad,
        )
        means = token_losses.new_zeros(len(input_ids)).index_add(0, sequences, token_losses * shares)
        return loss_sum, means

    def weighted_sum(
        self,
        hidden_states: torch.Tensor,
        embeddings: torch.Tensor,
        target_ids: torch.LongTensor,
        target_weights: torch.Tensor,
        expected_grad: torch.Tensor | float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """As [`linear_cross_entropy`], with bias, factor and soft cap."""
        if self.bias is None and self.soft_cap is None:
            weight = embeddings if self.weight is None else self.weight
            scaled = hidden_states if self.scale == 1 else hidden_states * self.scale
            return linear_cross_entropy(scaled, weight, target_ids, target_weights, expected_grad)
        # A backward pass computes the logits of each part again.
        size = max(CHUNK_BYTES // (4 * len(embeddings)), 1)
        parts = [
            checkpoint(self.losses_of_tokens, hidden, embeddings, ids, use_reentrant=False)
            for hidden, ids in zip(hidden_states.split(size), target_ids.split(size), strict=True)
        ]
        token_losses = torch.cat(parts)
        return (token_losses * target_weights).sum(), token_losses.detach()

    def losses_of_tokens(
        self, hidden_states: torch.Tensor, embeddings: torch.Tensor, target_ids: torch.LongTensor
    ) -> torch.Tensor:
        """−log P of each target `[N]`, at least in float32."""
        logits = self.logits(hidden_states, embeddings)
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return nn.functional.cross_entropy(logits, target_ids, reduction="none")
