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
"""Layouts of weights: reading transformers' openai-gpt and GPT-2 checkpoints, and writing safetensors files.

openai-gpt and GPT-2 store their linear layers transposed. These layers have other names here, so the names in a file
decide what is converted: a checkpoint of this package has no name that is converted.

Sources: `OpenAIGPTDoubleHeadsModel`, `GPT2DoubleHeadsModel` and their kin in transformers
(https://github.com/huggingface/transformers/blob/main/src/transformers/models/openai/modeling_openai.py and
https://github.com/huggingface/transformers/blob/main/src/transformers/models/gpt2/modeling_gpt2.py).
"""

from collections.abc import Callable

import torch
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Chunk, ConversionOps, Transpose, WeightConverter, WeightRenaming
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import logging

from .configuration_gpt1 import check_place

logger = logging.get_logger(__name__)

# Classes without a language-model head. They may find the tied embeddings only under the head's name.
HEADLESS_CLASSES = ("GPT1Model", "GPT1ForSequenceClassification", "GPT1ForMultipleChoice")


class AddZeroBias(ConversionOps):
    """Adds a zero bias to the weight of a layer that has no bias."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        (weight,) = input_dict.values()
        weight = weight[0] if isinstance(weight, list) else weight
        return dict(zip(target_patterns, [weight, weight.new_zeros(weight.shape[0])], strict=True))


class ReadTiedEmbeddings(ConversionOps):
    """Reads the embeddings under their own name, or else under the name of the head that is tied to them."""

    def convert(self, input_dict: dict, source_patterns: list[str], target_patterns: list[str], **kwargs) -> dict:
        tensors = {name: given[0] if isinstance(given, list) else given for name, given in input_dict.items()}
        (head,) = (tensors.pop(pattern) for pattern in source_patterns)
        (embeddings,) = tensors.values() or (head,)
        if not torch.equal(embeddings, head):
            logger.warning("lm_head.weight was not loaded: the requested model has no language-model head.")
        return {target_patterns[0]: embeddings}


class TiedHead(WeightConverter):
    """Converts the head of a file for a model without a head; a decoder inside of another model ignores the head."""

    __slots__ = ()

    def rename_source_key(self, source_key: str) -> tuple[str, str | None]:
        return super().rename_source_key(source_key) if self.scope_prefix is None else (source_key, None)


DECODER_CONVERSION = [
    WeightConverter(
        "attn.c_attn.weight",
        ["attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight"],
        operations=[Transpose(0, 1), Chunk(dim=0)],
    ),
    WeightConverter(
        "attn.c_attn.bias", ["attn.q_proj.bias", "attn.k_proj.bias", "attn.v_proj.bias"], operations=[Chunk(dim=0)]
    ),
    WeightConverter("attn.c_proj.weight", "attn.o_proj.weight", operations=[Transpose(0, 1)]),
    WeightRenaming("attn.c_proj.bias", "attn.o_proj.bias"),
    WeightConverter("mlp.c_fc.weight", "mlp.up_proj.weight", operations=[Transpose(0, 1)]),
    WeightRenaming("mlp.c_fc.bias", "mlp.up_proj.bias"),
    WeightConverter("mlp.c_proj.weight", "mlp.down_proj.weight", operations=[Transpose(0, 1)]),
    WeightRenaming("mlp.c_proj.bias", "mlp.down_proj.bias"),
]
EMBEDDINGS_CONVERSION = [  # of GPT-2
    WeightRenaming("wte.weight", "tokens_embed.weight"),
    WeightRenaming("wpe.weight", "positions_embed.weight"),
]
HEADS_CONVERSION = [
    WeightRenaming("multiple_choice_head.summary", "task_head.score"),
    WeightConverter("^score.weight", ["task_head.score.weight", "task_head.score.bias"], operations=[AddZeroBias()]),
]


def register_foreign_layouts() -> None:
    """Registers the layouts of openai-gpt and GPT-2 for transformers' `from_pretrained`."""
    conversion = [*DECODER_CONVERSION, *EMBEDDINGS_CONVERSION, *HEADS_CONVERSION]
    register_checkpoint_conversion_mapping("gpt1", conversion, overwrite=True)
    # Double-heads files have the tied embeddings under the head's name only.
    tied = TiedHead("^lm_head.weight$", "tokens_embed.weight", operations=[ReadTiedEmbeddings()])
    for class_name in HEADLESS_CLASSES:
        register_checkpoint_conversion_mapping(class_name, [*conversion, tied], overwrite=True)


class FolderMixin:
    """Additions to transformers' methods for opening, saving and pushing models."""

    push_model: Callable | None = None  # called with the model and the arguments of `push_to_hub`

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path, *args, **kwargs):
        """As in transformers.

        Raises:
            OSError: the folder does not exist, and the name cannot be one of the hub.
        """
        if pretrained_model_name_or_path is not None:
            check_place(pretrained_model_name_or_path)
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    def _check_and_adjust_attn_implementation(
        self, attn_implementation: str | None, is_init_check: bool = False, allow_all_kernels: bool = False
    ) -> str:
        """As in transformers, but code from the hub (`owner/kernel`) is fetched and run only if the user agrees.

        Raises:
            ValueError: the configuration names such code, to which the user has not agreed.
        """
        name = (attn_implementation or "").removeprefix("paged|")
        if is_init_check and "/" in name and not allow_all_kernels and name not in ALL_ATTENTION_FUNCTIONS:
            raise ValueError(
                f"The attention implementation of the configuration is {attn_implementation!r}, which would download "
                "code from the hub and run it. Pass `allow_all_kernels=True` to `from_pretrained` if you trust that "
                "code, or `attn_implementation='sdpa'` if not."
            )
        return super()._check_and_adjust_attn_implementation(attn_implementation, is_init_check, allow_all_kernels)

    def save_pretrained(self, *args, **kwargs):
        """As in transformers. The layout on disk is always this package's own, whatever layout was read."""
        kwargs["save_original_format"] = False
        return super().save_pretrained(*args, **kwargs)

    def push_to_hub(self, repo_id: str, **kwargs):
        """As in transformers; if the package is installed, its own push is used."""
        if self.push_model is None:  # this file is a copy saved with a model
            return super().push_to_hub(repo_id, **kwargs)
        return self.push_model(repo_id, **kwargs)
