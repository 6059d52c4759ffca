"""Products with a few rows, and what a step of generation computes."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from modeling_gpt1 import GPT1ForCausalLM, kernels_gpt1
from modeling_gpt1.kernels_gpt1 import HAS_FAST_PRODUCT, MOST_TOKENS, GPT1Linear, has_few_tokens


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.name())
        return operation(*args, **(kwargs or {}))


@pytest.fixture
def any_rows(monkeypatch):
    """The least rows and weights that go to oneDNN where the processor is not Intel's."""
    monkeypatch.setattr(kernels_gpt1, "LEAST_TOKENS", 1)
    monkeypatch.setattr(kernels_gpt1, "LEAST_WEIGHTS", 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 48), (2, 3, 48), (MOST_TOKENS, 48), (MOST_TOKENS + 1, 48), (48,), (0, 48)])
def test_linear_is_the_product(shape, bias, any_rows):
    torch.manual_seed(0)
    linear, hidden_states = GPT1Linear(48, 20, bias=bias), torch.randn(shape)
    expected = hidden_states.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    with torch.no_grad(), Operations() as operations:
        product = linear(hidden_states)
    assert product.shape == expected.shape
    torch.testing.assert_close(product.double(), expected, atol=1e-5, rtol=1e-5)
    is_fast = HAS_FAST_PRODUCT and 0 < hidden_states.numel() <= 48 * MOST_TOKENS
    assert ("mkldnn::_linear_pointwise" in operations.names) == is_fast


def test_which_products_are_oneDNNs(monkeypatch, any_rows):
    monkeypatch.setattr(kernels_gpt1, "HAS_FAST_PRODUCT", True)
    rows, weight = torch.ones(2, 4), nn.Parameter(torch.ones(4, 4))
    assert not has_few_tokens(rows, weight)  # as it may need gradients
    with torch.no_grad():
        assert has_few_tokens(rows, weight)
        assert not has_few_tokens(rows.bfloat16(), nn.Parameter(weight.bfloat16()))
        assert not has_few_tokens(rows.to("meta"), nn.Parameter(weight.to("meta")))
        assert not has_few_tokens(rows, nn.Parameter(weight.t()))
        assert not has_few_tokens(rows, weight.detach())  # of FSDP, or parametrised
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not has_few_tokens(rows, weight)
        monkeypatch.setattr(kernels_gpt1, "LEAST_TOKENS", 2)
        assert has_few_tokens(rows, weight)
        assert not has_few_tokens(rows[:1], weight)
        for least, threads, is_fast in ((17, 1, True), (17, 2, False), (16, 2, True)):
            monkeypatch.setattr(kernels_gpt1, "LEAST_WEIGHTS", least)
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            assert has_few_tokens(rows, weight) == is_fast
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not has_few_tokens(rows, weight)


@pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static", "disable_compile": True}])
def test_a_step_reads_one_token_and_the_head_one_position(tiny_model, cache):
    model = tiny_model(GPT1ForCausalLM)
    read, scored = [], []
    model.transformer.h[0].register_forward_pre_hook(lambda module, inputs: read.append(inputs[0].shape[1]))
    model.lm_head.register_forward_pre_hook(lambda module, inputs: scored.append(inputs[0].shape[1]))
    prompt = torch.randint(1, 101, (2, 7), generator=torch.Generator().manual_seed(0))
    model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=5, do_sample=False, **cache)
    assert read == [7, 1, 1, 1, 1]
    assert scored == [1] * 5
