# Copyright 2026 The gpt1-hf authors.
# SPDX-License-Identifier: Apache-2.0
"""Generation: transformers' own, with checks of its arguments."""

import torch
from transformers import GenerationMixin, PreTrainedConfig
from transformers.utils import logging

from .packing_gpt1 import can_read

logger = logging.get_logger(__name__)


class GPT1GenerationMixin(GenerationMixin):
    """transformers' generation, with checks of its own."""

    def generate(self, inputs: torch.LongTensor | None = None, *args, **kwargs):
        """As in transformers; warns once if a prompt ends in the extract token, after which nothing was trained."""
        warn_of_ended_prompts(self.config, kwargs.get("input_ids") if inputs is None else inputs)
        return super().generate(inputs, *args, **kwargs)

    def _validate_generated_length(self, generation_config, input_ids_length, has_default_max_length):
        super()._validate_generated_length(generation_config, input_ids_length, has_default_max_length)
        check_generated_length(self.config, generation_config.max_length, input_ids_length)


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
