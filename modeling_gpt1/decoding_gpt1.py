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
"""What makes generation fast on CPUs: products with a few rows by oneDNN, and a cache that grows in place.

Shapes: B examples, T tokens, D hidden, H heads.
"""

import platform

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.cache_utils import DynamicCache, DynamicLayer

from .attention_gpt1 import check_generated_length
from .checks_gpt1 import warn_of_ended_prompts

# torch's own product with a few rows reads the weights at half the memory's bandwidth, above all on AMD's processors.
HAS_FAST_PRODUCT = torch.backends.mkldnn.is_available() and platform.machine().lower() in ("x86_64", "amd64")
FEW_ROWS = 64  # beyond, oneDNN gains little, and prepares itself for every new number of rows
ROOM = 128  # tokens


class GPT1Linear(nn.Linear):
    """A linear layer that multiplies a few float32 rows by oneDNN, on x86 CPUs and without gradients.

    Tools that look for `nn.Linear` alone, such as `torch.ao.quantization.quantize_dynamic`, do not find it.
    """

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if not has_few_rows(hidden_states, self.weight):
            return super().forward(hidden_states)
        product = torch.ops.mkldnn._linear_pointwise(hidden_states, self.weight, None, "none", [], "")
        return product if self.bias is None else product.add_(self.bias)


def has_few_rows(hidden_states: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether [`GPT1Linear`] takes oneDNN. The rest needs torch's product."""
    return (
        HAS_FAST_PRODUCT
        and not torch.is_grad_enabled()
        and type(hidden_states) is torch.Tensor
        and type(weight) is nn.Parameter
        and hidden_states.dtype == weight.dtype == torch.float32
        and hidden_states.is_cpu
        and weight.is_cpu
        and weight.is_contiguous()
        and 0 < hidden_states.numel() <= FEW_ROWS * weight.shape[1]
        and not torch.is_autocast_enabled("cpu")
        and not torch.jit.is_tracing()
        and not torch.compiler.is_compiling()
    )


class GPT1GrowingLayer(DynamicLayer):
    """Keys and values `[B, H, T, D/H]` with room for more tokens: a new token does not copy those before it."""

    rooms: tuple[torch.Tensor, torch.Tensor] | None = None  # for keys and values, each `[B, H, T + room, D/H]`

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if torch.is_grad_enabled() or torch.compiler.is_compiling():  # neither allows changes in place
            return super().update(key_states, value_states, *args, **kwargs)
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        num_past, num_new = self.get_seq_length(), key_states.shape[-2]
        if not self.has_room(num_past + num_new):
            self.rooms = tuple(
                new.new_empty(*new.shape[:-2], num_past + num_new + ROOM, new.shape[-1])
                for new in (key_states, value_states)
            )
            if num_past:
                self.rooms[0].narrow(-2, 0, num_past).copy_(self.keys)
                self.rooms[1].narrow(-2, 0, num_past).copy_(self.values)
        self.rooms[0].narrow(-2, num_past, num_new).copy_(key_states)
        self.rooms[1].narrow(-2, num_past, num_new).copy_(value_states)
        self.keys, self.values = (room.narrow(-2, 0, num_past + num_new) for room in self.rooms)
        return self.keys, self.values

    def __copy__(self) -> "GPT1GrowingLayer":
        """A branch. Neither layer writes into the rooms any more, as both have keys and values there."""
        self.rooms = None
        branch = type(self).__new__(type(self))
        branch.__dict__.update(self.__dict__)
        return branch

    def has_room(self, num_tokens: int) -> bool:
        """Whether keys and values lie in rooms for so many tokens: not after their rows were reordered or repeated."""
        return (
            self.rooms is not None
            and self.rooms[0].shape[-2] >= num_tokens
            and self.rooms[0].shape[0] == self.keys.shape[0]
            and all(
                room.data_ptr() == of.data_ptr() for room, of in zip(self.rooms, (self.keys, self.values), strict=True)
            )
            and self.rooms[0].is_inference() == torch.is_inference_mode_enabled()
        )


class GPT1GenerationMixin(GenerationMixin):
    """transformers' generation, with checks of its own and a faster cache on CPUs."""

    def generate(self, inputs: torch.LongTensor | None = None, *args, **kwargs):
        """As in transformers; warns once if a prompt ends in the extract token, after which nothing was trained."""
        warn_of_ended_prompts(self.config, kwargs.get("input_ids") if inputs is None else inputs)
        return super().generate(inputs, *args, **kwargs)

    def _validate_generated_length(self, generation_config, input_ids_length, has_default_max_length):
        super()._validate_generated_length(generation_config, input_ids_length, has_default_max_length)
        check_generated_length(self.config, generation_config.max_length, input_ids_length)

    def _prepare_cache_for_generation(self, generation_config, model_kwargs, *args, **kwargs):
        prepared = super()._prepare_cache_for_generation(generation_config, model_kwargs, *args, **kwargs)
        cache = model_kwargs.get("past_key_values")
        if self.device.type == "cpu" and type(cache) is DynamicCache and not cache.offloading:
            cache.layers = [
                GPT1GrowingLayer() if type(layer) is DynamicLayer and not layer.is_initialized else layer
                for layer in cache.layers
            ]
        return prepared
