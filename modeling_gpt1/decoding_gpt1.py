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
"""Generation: checks of its arguments, and on CPUs a cache that grows in place.

Shapes: B examples, T tokens, D hidden, H heads.
"""

from weakref import WeakKeyDictionary

import torch
from transformers import GenerationMixin, PreTrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer
from transformers.utils import logging

from .packing_gpt1 import can_read

logger = logging.get_logger(__name__)

ROOM = 128  # tokens
# Of each growing layer: exporters take every tensor among a layer's attributes for a part of the cache.
_ROOMS = WeakKeyDictionary()


class GPT1GrowingLayer(DynamicLayer):
    """Keys and values `[B, H, T, D/H]` with room for more tokens: a new token does not copy those before it."""

    @property
    def rooms(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """For keys and values, each `[B, H, T + room, D/H]`; uninitialised behind the keys and values."""
        return _ROOMS.get(self)

    @rooms.setter
    def rooms(self, rooms: tuple[torch.Tensor, torch.Tensor] | None) -> None:
        _ROOMS[self] = rooms

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


def warn_of_ended_prompts(config: PreTrainedConfig, input_ids: torch.Tensor | None) -> None:
    """Warns once if one of the `[B, T]` prompts ends in the extract token: no model was trained on tokens after it."""
    if config.extract_token_id is None or not isinstance(input_ids, torch.Tensor) or not input_ids.numel():
        return
    if can_read(input_ids) and (input_ids[..., -1] == config.extract_token_id).any():
        logger.warning_once(
            "A prompt ends with the extract token [e], and the model was not trained on any token after it. Encode "
            "prompts without it: pass `add_special_tokens=False`, or open the tokenizer with `add_bos_token=True`."
        )


def check_generated_length(config: PreTrainedConfig, max_length: int, prompt_length: int) -> None:
    """Checks that the model has enough positions for a call of `generate`.

    Raises:
        ValueError: `max_length` is above `max_position_embeddings`.
    """
    limit = config.max_position_embeddings
    if max_length > limit:
        raise ValueError(
            f"Generation of up to {max_length} tokens (`max_length`, or the prompt and `max_new_tokens`) was "
            f"requested, but the model has only {limit} positions (`max_position_embeddings`). The prompt has "
            f"{prompt_length} tokens: pass `max_new_tokens` of at most {max(limit - prompt_length, 0)} or shorten the "
            "prompt."
        )
