"""Products with a few rows, the cache that grows in place, and what a step of generation computes."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1 import modeling_gpt1 as flat
from modeling_gpt1.decoding_gpt1 import ROOM, GPT1GrowingLayer
from modeling_gpt1.modeling_gpt1 import FEW_ROWS, HAS_FAST_PRODUCT, GPT1Linear, has_few_rows


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
    monkeypatch.setattr(flat, "LEAST_ROWS", 1)
    monkeypatch.setattr(flat, "LEAST_WEIGHTS", 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 48), (2, 3, 48), (FEW_ROWS, 48), (FEW_ROWS + 1, 48), (48,), (0, 48)])
def test_linear_is_the_product(shape, bias, any_rows):
    torch.manual_seed(0)
    linear, hidden_states = GPT1Linear(48, 20, bias=bias), torch.randn(shape)
    expected = hidden_states.double() @ linear.weight.double().T + (linear.bias.double() if bias else 0)
    with torch.no_grad(), Operations() as operations:
        product = linear(hidden_states)
    assert product.shape == expected.shape
    torch.testing.assert_close(product.double(), expected, atol=1e-5, rtol=1e-5)
    is_fast = HAS_FAST_PRODUCT and 0 < hidden_states.numel() <= 48 * FEW_ROWS
    assert ("mkldnn::_linear_pointwise" in operations.names) == is_fast


def test_which_products_are_oneDNNs(monkeypatch, any_rows):
    monkeypatch.setattr(flat, "HAS_FAST_PRODUCT", True)
    rows, weight = torch.ones(2, 4), nn.Parameter(torch.ones(4, 4))
    assert not has_few_rows(rows, weight)  # as it may need gradients
    with torch.no_grad():
        assert has_few_rows(rows, weight)
        assert not has_few_rows(rows.bfloat16(), nn.Parameter(weight.bfloat16()))
        assert not has_few_rows(rows.to("meta"), nn.Parameter(weight.to("meta")))
        assert not has_few_rows(rows, nn.Parameter(weight.t()))
        assert not has_few_rows(rows, weight.detach())  # of FSDP, or parametrised
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not has_few_rows(rows, weight)
        monkeypatch.setattr(flat, "LEAST_ROWS", 2)
        assert has_few_rows(rows, weight) and not has_few_rows(rows[:1], weight)
        monkeypatch.setattr(flat, "LEAST_WEIGHTS", 17)
        assert not has_few_rows(rows, weight)
        monkeypatch.setattr(flat, "LEAST_WEIGHTS", 16)
        assert has_few_rows(rows, weight)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert not has_few_rows(rows, weight)


def random_states(num_tokens, num_rows=3):
    return torch.randn(2, num_rows, 2, num_tokens, 4).unbind()


def reset(layer):
    num_rows = len(layer.keys) if layer.is_initialized else 3
    with torch.inference_mode():  # transformers 5.17 sets the states to zero
        layer.reset()
    layer.update(*random_states(2, num_rows))


STEPS = {
    "one token": lambda layer: layer.update(*random_states(1, len(layer.keys))),
    "several tokens": lambda layer: layer.update(*random_states(5, len(layer.keys))),
    "more than the room": lambda layer: layer.update(*random_states(ROOM + 3, len(layer.keys))),
    "crop": lambda layer: layer.crop(-2),
    "beams": lambda layer: layer.reorder_cache(torch.randint(len(layer.keys), (len(layer.keys),))),
    "repeat": lambda layer: layer.batch_repeat_interleave(2),
    "select": lambda layer: layer.batch_select_indices(torch.tensor([1, 0])),
    "select a slice": lambda layer: layer.batch_select_indices(slice(0, 2)),
    "reset": reset,
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("seed", range(5))
def test_a_growing_layer_is_a_dynamic_layer(seed, mode):
    layers = DynamicLayer(), GPT1GrowingLayer()
    drawn = torch.randint(len(STEPS), (40,), generator=torch.Generator().manual_seed(seed))
    names = ["reset", *[list(STEPS)[place] for place in drawn.tolist()]]
    for number, name in enumerate(names):
        for layer in layers:
            torch.manual_seed(100 * seed + number)
            with torch.no_grad() if number % 3 else mode():  # a cache may go from one mode to the other
                STEPS[name](layer)
        assert layers[1].get_seq_length() == layers[0].get_seq_length()
        assert torch.equal(layers[1].keys, layers[0].keys)
        assert torch.equal(layers[1].values, layers[0].values)


@torch.no_grad()
def test_a_growing_layer_copies_no_past():
    layer = GPT1GrowingLayer()
    layer.update(*random_states(7))
    places = layer.keys.data_ptr(), layer.values.data_ptr()
    for _ in range(ROOM):
        layer.update(*random_states(1))
        assert (layer.keys.data_ptr(), layer.values.data_ptr()) == places
    layer.crop(-1)
    layer.update(*random_states(1))
    assert (layer.keys.data_ptr(), layer.values.data_ptr()) == places
    layer.update(*random_states(1))
    assert (layer.keys.data_ptr(), layer.values.data_ptr()) != places


@torch.no_grad()
def test_a_growing_layer_shows_what_is_filled():
    """Exporters take each tensor among its attributes for a part of the cache."""
    layer = GPT1GrowingLayer()
    layer.update(*random_states(7))
    layer.update(*random_states(1))
    shapes = [tuple(leaf.shape) for leaf in tree_leaves(vars(layer)) if isinstance(leaf, torch.Tensor)]
    assert shapes == [(3, 2, 8, 4), (3, 2, 8, 4)]


@torch.no_grad()
@pytest.mark.parametrize("first", ["branch", "stem"])
def test_a_copied_layer_is_a_branch_of_its_own(first):
    """Whichever is written first, also at places that the other still has."""
    layers = {"stem": GPT1GrowingLayer()}
    layers["stem"].update(*random_states(7))
    layers["branch"] = copy.copy(layers["stem"])
    second = "stem" if first == "branch" else "branch"
    expected = layers[second].keys.clone()
    layers[first].update(*random_states(1))
    after = layers[first].keys.clone(), layers[first].values.clone()
    layers[second].update(*random_states(1))
    assert torch.equal(layers[first].keys, after[0]) and torch.equal(layers[first].values, after[1])
    assert torch.equal(layers[second].keys[:, :, :7], expected)
    third = copy.copy(layers[second])
    expected = third.keys.clone()
    layers[second].crop(-3)
    layers[second].update(*random_states(2))
    assert torch.equal(third.keys, expected)


def test_growing_layers_leave_gradients_alone():
    layer, states = GPT1GrowingLayer(), [torch.randn(1, 2, 3, 4, requires_grad=True) for _ in range(3)]
    for state in states:
        keys, _ = layer.update(state, state)
        (keys**2).sum().backward(retain_graph=True)
    assert all(torch.equal(state.grad, 2 * times * state) for state, times in zip(states, (3, 2, 1), strict=True))


def generate(model, **options):
    prompt = torch.randint(1, 101, (2, 7), generator=torch.Generator().manual_seed(0))
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 9, "do_sample": False} | options
    return model.generate(prompt, return_dict_in_generate=True, **options)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}])
def test_generation_with_growing_layers_is_that_with_dynamic_ones(tiny_model, options):
    model = tiny_model(GPT1ForCausalLM)
    outputs = []
    for cache in ({}, {"past_key_values": DynamicCache()}):
        torch.manual_seed(0)
        outputs.append(generate(model, **options, **cache))
    kinds = [type(layer) for layer in outputs[0].past_key_values.layers]
    assert kinds == [GPT1GrowingLayer] * 2
    assert outputs[0].sequences.tolist() == outputs[1].sequences.tolist()
    for ours, plain in zip(*(output.past_key_values.layers for output in outputs), strict=True):
        assert torch.equal(ours.keys, plain.keys)


def test_layers_with_a_window_stay(tiny_model):
    model = tiny_model(GPT1ForCausalLM, sliding_window=4)
    kinds = [type(layer) for layer in generate(model).past_key_values.layers]
    assert kinds == [GPT1GrowingLayer, DynamicSlidingWindowLayer]


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
