"""Stand-ins on the CPU for the kernels of flash attention, behind transformers' own integrations."""

from itertools import pairwise

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import modeling_flash_attention_utils

GLOBALS = ("_loaded_implementation", "_flash_fn", "_flash_varlen_fn", "_flash_with_kvcache_fn", "_pad_fn", "_unpad_fn")


class FlashKernels:
    """The functions of the package flash-attn, one call of scaled-dot-product attention for each sequence.

    Args:
        calls: what `flash_attn_varlen_func` was told of the lengths, in order; `None` for each call of
            `flash_attn_func`.
    """

    def __init__(self):
        self.calls = []

    def flash_attn_func(self, q, k, v, softmax_scale=None, causal=False, window_size=(-1, -1)):
        self.calls.append(None)
        assert causal
        return torch.stack([self._attend(*row, softmax_scale, window_size[0]) for row in zip(q, k, v, strict=True)])

    def flash_attn_varlen_func(
        self,
        q,
        k,
        v,
        cu_seqlens_q,
        cu_seqlens_k,
        max_seqlen_q,
        max_seqlen_k,
        softmax_scale=None,
        causal=False,
        window_size=(-1, -1),
    ):
        assert causal
        assert cu_seqlens_q.dtype == torch.int32
        assert isinstance(max_seqlen_q, int)
        assert cu_seqlens_k is cu_seqlens_q
        assert max_seqlen_k == max_seqlen_q
        self.calls.append((cu_seqlens_q.tolist(), max_seqlen_q))
        parts = [
            self._attend(q[start:end], k[start:end], v[start:end], softmax_scale, window_size[0])
            for start, end in pairwise(cu_seqlens_q.tolist())
        ]
        return torch.cat(parts)

    def _attend(self, query, key, value, scale, window):
        """`[T, H, D / H]` of one sequence; `window` keys before each token, −1 for all."""
        places = torch.arange(len(query))
        distances = places[:, None] - places
        is_seen = (distances >= 0) & (distances <= (window if window >= 0 else len(query)))
        query, key, value = (states.transpose(0, 1) for states in (query, key, value))
        return scaled_dot_product_attention(query, key, value, attn_mask=is_seen, scale=scale).transpose(0, 1)


def use_flash(monkeypatch) -> FlashKernels:
    """Puts the stand-in where transformers imports the package."""
    kernels = FlashKernels()
    utils = modeling_flash_attention_utils
    functions = kernels.flash_attn_func, kernels.flash_attn_varlen_func, None, utils._pad_input, utils._unpad_input
    for name in GLOBALS:
        monkeypatch.setattr(utils, name, None)
    monkeypatch.setattr(utils, "_lazy_imports", lambda *args, **kwargs: functions)
    return kernels
