"""Models with an adapter of PEFT around them: what is inside, opening one, and adding one.

A GPT-1 opens its own adapters, see `layouts_gpt1.py`, which travels with the model.
"""

import copy
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from tokenization.errors import UserError

from ..layouts_gpt1 import base_of_adapter, open_adapter
from .auxiliary import HEAD
from .opening import heads_of

if TYPE_CHECKING:
    from .base import Family

# Types of adapters for models without a task head.
LANGUAGE_MODELS = ("CAUSAL_LM", "SEQ_2_SEQ_LM")


def without_adapter(model: torch.nn.Module) -> torch.nn.Module:
    """The model inside a PEFT adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def open_task_adapter(auto_class: Any, checkpoint: str, gets_adapter: bool, **options: Any) -> PreTrainedModel | None:
    """A folder's adapter merged into its base, opened by an Auto class; None where the folder holds a whole model.

    Raises:
        ValueError: the model is to get another adapter.
    """
    base = base_of_adapter(checkpoint)
    if base is None:
        return None
    if gets_adapter:
        raise UserError(
            f"{checkpoint} is an adapter of a {options['config'].model_type}, to which no second adapter can be "
            "added. Leave `peft_config` out to train all weights; or open the model without it, save it, and pass "
            "that folder."
        )
    return open_adapter(auto_class.from_pretrained, checkpoint, base, **options)


def keep_unpacked(model: PreTrainedModel) -> None:
    """Keeps the 4-bit weights of bitsandbytes in the form that has gradients, in place.

    On CPUs with AVX512 for bfloat16 it packs them for a faster product at the first call in evaluation mode. That
    product has no gradient, so an adapter would learn nothing after an evaluation, and no error would tell.
    """
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def add_adapter(
    family: "Family", model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, peft_config: Any
) -> torch.nn.Module:
    """The model with an adapter of PEFT, which is trained with the head and GPT-1's control tokens.

    Raises:
        ValueError: the configuration is none of PEFT's for a task, or names the output matrix of the auxiliary
            objective; or the model is not saved anywhere, so that nobody could open the adapter.
    """
    from peft import PeftConfig, get_peft_model  # of an extra

    if not isinstance(peft_config, PeftConfig):
        raise UserError(f"`peft_config` is a {type(peft_config).__name__}. Pass one like `LoraConfig(r=16)`.")
    if peft_config.task_type in LANGUAGE_MODELS:
        raise UserError(
            f"`task_type` of `peft_config` is {peft_config.task_type}, which is for models without a task head. Leave "
            "`task_type` out."
        )
    given = list(peft_config.modules_to_save or ())
    if any(name.rpartition(".")[2] == HEAD for name in given):
        raise UserError(
            f"`modules_to_save` of `peft_config` has {HEAD}, the output matrix of the auxiliary objective. Beside an "
            "adapter it is neither trained nor saved. Leave it out."
        )
    if not model.name_or_path:
        raise UserError(
            "The model is new, but an adapter is saved without its base. Save the model and open its folder, or leave "
            "`peft_config` out."
        )
    peft_config = copy.deepcopy(peft_config)
    # A head is new: an adapter without it would be read by another one.
    peft_config.modules_to_save = list(dict.fromkeys([*given, *heads_of(model)]))
    if peft_config.target_modules is None:
        peft_config.target_modules = "all-linear"
    family.complete_adapter(peft_config, tokenizer)
    return get_peft_model(model, peft_config)
