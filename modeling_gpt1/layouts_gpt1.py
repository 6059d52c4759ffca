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
"""Layouts of weights: how `from_pretrained` reads transformers' openai-gpt and GPT-2, and what safetensors can write.

Sources: `OpenAIGPTDoubleHeadsModel`, `GPT2DoubleHeadsModel` and their kin in transformers
(https://github.com/huggingface/transformers/blob/main/src/transformers/models/openai/modeling_openai.py and
https://github.com/huggingface/transformers/blob/main/src/transformers/models/gpt2/modeling_gpt2.py).
"""

import torch
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Chunk, ConversionOps, Transpose, WeightConverter, WeightRenaming

from .configuration_gpt1 import FROM_GPT2, FROM_OPENAI_GPT, FROM_UNTIED_OPENAI_GPT


class AddZeroBias(ConversionOps):
    """A weight and the bias that a layer without one stands for."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        (weight,) = input_dict.values()
        weight = weight[0] if isinstance(weight, list) else weight
        return dict(zip(target_patterns, [weight, weight.new_zeros(weight.shape[0])], strict=True))


# openai-gpt stores Conv1D weights [in, out] with q, k and v fused, and names the task heads differently.
OPENAI_GPT_CONVERSION = [
    WeightConverter(
        "attn.c_attn.weight",
        ["attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"],
        operations=[Transpose(0, 1), Chunk(dim=0)],
    ),
    WeightConverter(
        "attn.c_attn.bias",
        ["attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"],
        operations=[Chunk(dim=0)],
    ),
    WeightConverter("attn.c_proj.weight", "attn.c_proj.weight", operations=[Transpose(0, 1)]),
    WeightConverter("mlp.c_fc.weight", "mlp.c_fc.weight", operations=[Transpose(0, 1)]),
    WeightConverter("mlp.c_proj.weight", "mlp.c_proj.weight", operations=[Transpose(0, 1)]),
    WeightRenaming("multiple_choice_head.summary", "task_head.score"),
    WeightConverter("^score.weight", ["task_head.score.weight", "task_head.score.bias"], operations=[AddZeroBias()]),
]

GPT2_CONVERSION = [
    *OPENAI_GPT_CONVERSION,
    WeightRenaming("wte.weight", "tokens_embed.weight"),
    WeightRenaming("wpe.weight", "positions_embed.weight"),
]


def register_foreign_layouts() -> None:
    """Makes the layouts known to transformers' loading, under the marks that `GPT1Config` gives such folders."""
    register_checkpoint_conversion_mapping(FROM_GPT2, GPT2_CONVERSION, overwrite=True)
    register_checkpoint_conversion_mapping(FROM_UNTIED_OPENAI_GPT, OPENAI_GPT_CONVERSION, overwrite=True)
    # Double-heads files keep the tied embeddings under the head's name only.
    tied = WeightRenaming("^lm_head.weight$", "transformer.tokens_embed.weight")
    register_checkpoint_conversion_mapping(FROM_OPENAI_GPT, [*OPENAI_GPT_CONVERSION, tied], overwrite=True)


def contiguous_state_dict(state_dict: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same tensors row by row in memory, without which safetensors does not write them; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}
    for tensor in state_dict.values():
        if not tensor.is_contiguous() and tensor.data_ptr() not in made:
            made[tensor.data_ptr()] = tensor.contiguous()
    return {name: made.get(tensor.data_ptr(), tensor) for name, tensor in state_dict.items()}
