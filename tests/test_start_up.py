"""What opening a folder does: which weights are drawn and copied."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM


class Watch(TorchDispatchMode):
    """What happens on the CPU, other than on the meta device: shapes drawn at random, and bytes of copies."""

    def __init__(self):
        super().__init__()
        self.draws, self.copied = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            name = function.overloadpacket.__name__
            if name in ("normal_", "uniform_"):
                self.draws.append(tuple(result.shape))
            if name in ("clone", "copy_", "_to_copy"):
                self.copied += result.numel() * result.element_size()
        return result


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")  # else other threads read the tensors, unseen
    return Watch()


def test_opening_copies_no_weight_and_draws_only_the_head_that_a_folder_lacks(watch, tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path)
    with watch:
        GPT1ForCausalLM.from_pretrained(tmp_path)
    assert (watch.draws, watch.copied) == ([], 0)
    with watch:
        GPT1DoubleHeadsModel.from_pretrained(tmp_path, traversal="classification", num_labels=3)
    assert watch.draws == [(3, 32)]


def test_opening_an_openai_gpt_folder_copies_what_it_transposes_once(watch, tmp_path):
    size = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
    OpenAIGPTLMHeadModel(OpenAIGPTConfig(**size)).save_pretrained(tmp_path)
    with watch:
        GPT1ForCausalLM.from_pretrained(tmp_path)
    assert watch.draws == []
    assert watch.copied == size["n_layer"] * 12 * size["n_embd"] ** 2 * 4
