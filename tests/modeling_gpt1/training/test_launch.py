"""What the trainers change in accelerate's FSDP2, and what they refuse of it."""

from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.distributed.fsdp import MixedPrecisionPolicy
from transformers import BertConfig

from modeling_gpt1 import GPT1Config
from modeling_gpt1.training.launch import set_up_fsdp


def set_up(plugin, **dropout):
    accelerator = SimpleNamespace(is_fsdp2=True, state=SimpleNamespace(fsdp_plugin=plugin))
    set_up_fsdp(accelerator, SimpleNamespace(config=GPT1Config(**dropout)))


def test_losses_and_sums_of_gradients_stay_in_float32():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    set_up(plugin)
    assert plugin.mixed_precision_policy is None
    plugin.set_mixed_precision("bf16")
    assert plugin.mixed_precision_policy == MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    set_up(plugin)
    assert plugin.mixed_precision_policy == MixedPrecisionPolicy(torch.bfloat16, torch.float32)


@pytest.mark.parametrize("without", ["resid_pdrop", "attn_pdrop"])
def test_activations_that_are_computed_again_with_other_dropout_are_refused(without):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)
    set_up(plugin, resid_pdrop=0.0, attn_pdrop=0.0)
    with pytest.raises(ValueError, match="`fsdp_activation_checkpointing`.*Set it to false and pass `grad"):
        set_up(plugin, **{without: 0.0})


def test_a_family_with_other_names_for_its_dropouts_is_refused_too():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)
    accelerator = SimpleNamespace(is_fsdp2=True, state=SimpleNamespace(fsdp_plugin=plugin))
    with pytest.raises(ValueError, match="`fsdp_activation_checkpointing`"):
        set_up_fsdp(accelerator, SimpleNamespace(config=BertConfig()))
