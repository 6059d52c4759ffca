"""Pieces that are fast: each gives the numbers of the plain one, and serves where it should."""

import copy

import pytest
import torch
from support.packing import pad, planned, ragged_choices, results
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import DynamicCache, GPT2Config, GPT2DoubleHeadsModel, GPT2LMHeadModel

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM, kernels_gpt1, modeling_gpt1
from modeling_gpt1.configuration_gpt1 import IGNORED_LABEL
from modeling_gpt1.kernels_gpt1 import (
    HAS_FAST_PRODUCT,
    MOST_TOKENS,
    GPT1Dropout,
    GPT1GrowingLayer,
    GPT1Linear,
    MovedTokens,
    dropout_noise,
    has_few_tokens,
    has_one_product,
    let_grow,
)
from modeling_gpt1.modeling_gpt1 import GPT1Attention
from tokenization.batches.plan import plan_batch

# Views, and new memory without numbers.
WITHOUT_WORK = {
    "_unsafe_view",
    "alias",
    "as_strided",
    "detach",
    "empty",
    "empty_like",
    "expand",
    "new_empty",
    "new_empty_strided",
    "permute",
    "select",
    "slice",
    "split",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
}


class Operations(TorchDispatchMode):
    """The names of the operations that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.append(operation.overloadpacket.__name__)
        return operation(*args, **(kwargs or {}))


# ---- Products of a few tokens


@pytest.fixture
def any_tokens(monkeypatch):
    """The least tokens and weights that go to oneDNN where the processor is not Intel's."""
    monkeypatch.setattr(kernels_gpt1, "HAS_FAST_PRODUCT", HAS_FAST_PRODUCT)
    monkeypatch.setattr(kernels_gpt1, "LEAST_TOKENS", 1)
    monkeypatch.setattr(kernels_gpt1, "LEAST_WEIGHTS", 0)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 1, 48), (2, 3, 48), (MOST_TOKENS, 48), (MOST_TOKENS + 1, 48), (48,), (0, 48)])
def test_a_linear_layer_is_the_product(shape, bias, any_tokens):
    torch.manual_seed(0)
    linear = GPT1Linear(48, 20, bias=bias)
    hidden_states = torch.randn(shape)
    expected = hidden_states.double() @ linear.weight.double().T
    if bias:
        expected += linear.bias.double()
    with torch.no_grad(), Operations() as operations:
        product = linear(hidden_states)
    assert product.shape == expected.shape
    torch.testing.assert_close(product.double(), expected, atol=1e-5, rtol=1e-5)
    is_fast = HAS_FAST_PRODUCT and 0 < hidden_states.numel() <= 48 * MOST_TOKENS
    assert ("_linear_pointwise" in operations.names) == is_fast


@pytest.fixture
def tokens_and_weight(any_tokens, monkeypatch):
    """Two tokens that oneDNN multiplies by a weight, on every processor."""
    monkeypatch.setattr(kernels_gpt1, "HAS_FAST_PRODUCT", True)
    tokens = torch.ones(2, 4)
    weight = nn.Parameter(torch.ones(4, 4))
    with torch.no_grad():
        assert has_few_tokens(tokens, weight)
        yield tokens, weight


def test_a_product_that_may_need_gradients_is_torchs(tokens_and_weight):
    with torch.enable_grad():
        assert not has_few_tokens(*tokens_and_weight)


def test_a_product_in_half_precision_is_torchs(tokens_and_weight):
    tokens, weight = tokens_and_weight
    assert not has_few_tokens(tokens.bfloat16(), nn.Parameter(weight.bfloat16()))


def test_a_product_under_autocast_is_torchs(tokens_and_weight):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not has_few_tokens(*tokens_and_weight)


def test_a_product_on_another_device_is_torchs(tokens_and_weight):
    tokens, weight = tokens_and_weight
    assert not has_few_tokens(tokens.to("meta"), nn.Parameter(weight.to("meta")))


def test_a_product_with_a_transposed_weight_is_torchs(tokens_and_weight):
    tokens, weight = tokens_and_weight
    assert not has_few_tokens(tokens, nn.Parameter(weight.t()))


def test_a_product_with_a_weight_that_is_no_parameter_is_torchs(tokens_and_weight):
    """Of FSDP, or parametrised."""
    tokens, weight = tokens_and_weight
    assert not has_few_tokens(tokens, weight.detach())


def test_a_product_in_a_graph_is_torchs(tokens_and_weight, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not has_few_tokens(*tokens_and_weight)


def test_one_token_is_torchs_where_two_are_the_least(tokens_and_weight, monkeypatch):
    tokens, weight = tokens_and_weight
    monkeypatch.setattr(kernels_gpt1, "LEAST_TOKENS", 2)
    assert has_few_tokens(tokens, weight)
    assert not has_few_tokens(tokens[:1], weight)


@pytest.mark.parametrize("least, num_threads, is_fast", [(17, 1, True), (17, 2, False), (16, 2, True)])
def test_a_small_weight_is_torchs_in_several_threads(tokens_and_weight, monkeypatch, least, num_threads, is_fast):
    monkeypatch.setattr(kernels_gpt1, "LEAST_WEIGHTS", least)
    monkeypatch.setattr(torch, "get_num_threads", lambda: num_threads)
    assert has_few_tokens(*tokens_and_weight) == is_fast


# ---- One product for queries, keys and values


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setattr(modeling_gpt1, "has_one_product", lambda *inputs: True)


@pytest.mark.parametrize("is_planned", [False, True])
def test_one_product_gives_the_numbers_of_three(tiny_model, request, is_planned):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice")
    batch = pad(ragged_choices())
    if is_planned:
        batch = planned(batch)
    expected, _ = results(model, batch)
    request.getfixturevalue("forced")
    found, _ = results(model, batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.fixture
def attention():
    return GPT1Attention(GPT1Config(hidden_size=8, num_attention_heads=2), 0)


def has_one(attention, device="meta") -> bool:
    tokens = torch.ones(1, 2, 8, device=device)
    return has_one_product(tokens, attention.q_proj, attention.k_proj, attention.v_proj)


def test_one_product_serves_in_training_on_an_accelerator(attention):
    assert has_one(attention)
    assert not has_one(attention, "cpu")
    with torch.no_grad():
        assert not has_one(attention)


def test_one_product_leaves_an_adapted_layer_alone(attention):
    attention.q_proj = nn.Sequential(attention.q_proj)  # as an adapter replaces it
    assert not has_one(attention)


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_one_product_leaves_a_layer_with_hooks_alone(attention, kind):
    hook = getattr(attention.k_proj, f"register_{kind}_hook")(lambda *call: None)
    assert not has_one(attention)
    hook.remove()
    assert has_one(attention)


def test_one_product_leaves_an_offloaded_layer_alone(attention):
    attention.v_proj.forward = attention.v_proj.forward  # as accelerate replaces it
    assert not has_one(attention)


def operations_of_a_step(model, **batch) -> list[str]:
    """The names of those that compute, in forward and backward under autocast."""
    with Operations() as operations:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**batch)
            loss = outputs.loss if outputs.get("mc_loss") is None else outputs.loss + outputs.mc_loss / 2
        loss.backward()
    return [name for name in operations.names if name not in WITHOUT_WORK]


@pytest.mark.parametrize("num_sequences", [None, 1, 2, 4])  # pre-training, and the shapes of fine-tuning
def test_a_step_has_fewer_operations_than_one_of_gpt2(forced, monkeypatch, num_sequences):
    monkeypatch.setattr(kernels_gpt1, "draws_noise", lambda *inputs: False)  # faster on CPUs alone
    sizes = {"vocab_size": 90, "n_embd": 16, "n_layer": 12, "n_head": 2, "n_positions": 16}
    config_of_gpt2 = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    generator = torch.Generator().manual_seed(0)
    if num_sequences is None:
        ours = GPT1ForCausalLM(GPT1Config(**sizes))
        theirs = GPT2LMHeadModel(config_of_gpt2)
        ids = torch.randint(1, 90, (2, 16), generator=generator)
        batch = of_theirs = {"input_ids": ids, "labels": ids}
    else:
        traversal = {1: "classification", 2: "similarity", 4: "multiple_choice"}[num_sequences]
        ours = GPT1DoubleHeadsModel(GPT1Config(**sizes, traversal=traversal))
        theirs = GPT2DoubleHeadsModel(config_of_gpt2)
        ids = torch.randint(1, 90, (3, num_sequences, 16), generator=generator)
        ids[:, :, :9] = ids[:, :1, :9]
        mask = torch.ones_like(ids)
        mask[0, -1, 12:] = 0
        labels = torch.zeros(3, dtype=torch.int64)
        both = {"input_ids": ids, "attention_mask": mask, "mc_token_ids": mask.sum(-1) - 1}
        batch = {**both, "labels": labels, "plan": plan_batch(mask, [9] * 3)}
        of_theirs = {**both, "labels": ids.masked_fill(mask == 0, IGNORED_LABEL), "mc_labels": labels}
    operations = operations_of_a_step(ours.train(), **batch)
    assert len(operations) < len(operations_of_a_step(theirs.train(), **of_theirs, use_cache=False))
    # Sums by places are of the hidden states that predict and of the examples' losses, none of a layer.
    assert sum(name.startswith("index_add") for name in operations) <= 2
    monkeypatch.setattr(modeling_gpt1, "has_one_product", lambda *inputs: False)
    assert len(operations_of_a_step(ours, **batch)) > 1.1 * len(operations)


# ---- Dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_noise_drops_independently_with_its_probability(probability):
    torch.manual_seed(0)
    noise = dropout_noise(torch.Size((500, 2001)), probability, torch.float64)
    dropped, kept = noise.unique().tolist()
    rounded = round(probability * 2**16) / 2**16
    assert dropped == 0
    assert kept == pytest.approx(1 / (1 - rounded), abs=1e-12)
    tolerance = 4 * (probability * (1 - probability) / noise.numel()) ** 0.5  # 4 standard deviations
    is_dropped = (noise == 0).double()
    assert abs(is_dropped.mean().item() - probability) < tolerance
    for distance in range(1, 6):  # numbers of one random word are independent too
        both = (is_dropped.flatten()[distance:] * is_dropped.flatten()[:-distance]).mean().item()
        assert abs(both - probability**2) < tolerance


@pytest.mark.parametrize("probability, kept", [(1e-9, 2**16 / (2**16 - 1)), (1 - 1e-9, 2**16)])
def test_extreme_probabilities_keep_and_drop_something(probability, kept):
    torch.manual_seed(0)
    noise = dropout_noise(torch.Size((2**19,)), probability, torch.float64)
    assert noise.unique().tolist() == [0, kept]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_what_it_keeps_and_passes_its_gradient(dtype):
    torch.manual_seed(0)
    ones = torch.ones(1000, 7, dtype=dtype, requires_grad=True)
    dropout = GPT1Dropout(0.25).train()
    output = dropout(ones)
    output.sum().backward()
    assert output.dtype == dtype
    assert torch.equal(output, ones.grad)
    assert output.unique().tolist() == [0, torch.tensor(4 / 3, dtype=dtype).item()]
    assert 0.22 < (output == 0).float().mean() < 0.28
    assert not torch.equal(dropout(ones), output)


def test_dropout_changes_nothing_in_evaluation():
    ones = torch.ones(10)
    assert torch.equal(GPT1Dropout(0.25).eval()(ones), ones)


def test_dropout_of_everything_and_of_nothing():
    ones = torch.ones(10)
    assert torch.equal(GPT1Dropout(1.0).train()(ones), torch.zeros(10))
    assert torch.equal(GPT1Dropout(0.0).train()(ones), ones)


# ---- Moved tokens


def test_moved_tokens_have_the_gradient_of_indexing():
    """Three tokens to places of two rows, whose padding holds the first token and gets no gradient."""
    index = torch.tensor([[2, 0], [1, 0]])
    inverse = torch.tensor([1, 2, 0])
    is_padding = torch.tensor([[False, False], [False, True]])
    tokens = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    places = torch.randn(4, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    grad = torch.randn(4, 5, generator=torch.Generator().manual_seed(2))
    grad[3] = 0  # no gradient comes from padding

    moved = MovedTokens.apply(tokens, index, inverse, None)
    assert torch.equal(moved, tokens[index.flatten()])
    (found,) = torch.autograd.grad(moved, tokens, grad)
    (expected,) = torch.autograd.grad(tokens[index.flatten()], tokens, grad)
    torch.testing.assert_close(found, expected)

    moved_back = MovedTokens.apply(places, inverse, index, is_padding)
    assert torch.equal(moved_back, places[inverse])
    (found,) = torch.autograd.grad(moved_back, places, grad[:3])
    (expected,) = torch.autograd.grad(places[inverse], places, grad[:3])
    torch.testing.assert_close(found, expected)


# ---- Caches


def states(length, seed):
    """Keys and values of two sequences and three heads."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, length, 4, generator=generator), torch.randn(2, 3, length, 4, generator=generator)


@pytest.fixture
def caches():
    """One that grows, and transformers' own, both with a first token."""
    growing, plain = DynamicCache(), DynamicCache()
    for cache in (growing, plain):
        cache.update(*states(1, 0), 0)
    let_grow(growing)
    assert type(growing.layers[0]) is GPT1GrowingLayer
    return growing, plain


def test_a_growing_cache_gives_what_transformers_own_gives(caches):
    growing, plain = caches
    with torch.no_grad():
        for number in range(20):
            given = states(1 + number % 3, number)
            assert torch.equal(torch.stack(growing.update(*given, 0)), torch.stack(plain.update(*given, 0)))


def test_a_growing_cache_writes_new_tokens_in_place(caches):
    growing, _ = caches
    with torch.no_grad():
        place = growing.update(*states(1, 1), 0)[0].data_ptr()
        assert growing.update(*states(1, 2), 0)[0].data_ptr() == place


def test_copies_of_a_growing_cache_stay_apart(caches):
    growing, plain = caches
    with torch.no_grad():
        growing.update(*states(1, 1), 0)
        branch = copy.copy(growing)
        branch.layers = [copy.copy(layer) for layer in growing.layers]
        growing.update(*states(1, 2), 0)
        for number in (1, 3):
            expected = plain.update(*states(1, number), 0)
        assert torch.equal(torch.stack(branch.update(*states(1, 3), 0)), torch.stack(expected))


def test_a_deep_copy_of_a_growing_cache_is_a_plain_one(caches):
    """Exporters copy a cache deeply, and take each tensor of its layers for an input."""
    growing, plain = caches
    with torch.no_grad():
        for cache in (growing, plain):
            cache.update(*states(4, 1), 0)
    (copied,), (expected,) = copy.deepcopy(growing).layers, plain.layers
    assert type(copied) is type(expected)
    assert vars(copied).keys() == vars(expected).keys()
    assert torch.equal(copied.keys, expected.keys)
    assert torch.equal(copied.values, expected.values)
    assert copied.values.untyped_storage().nbytes() == expected.values.untyped_storage().nbytes()


def test_a_growing_cache_changes_nothing_in_place_with_gradients(caches):
    growing, _ = caches
    before = growing.layers[0].keys
    after, _ = growing.update(*states(1, 1), 0)
    assert type(growing.layers[0]) is GPT1GrowingLayer
    assert growing.layers[0].room is None
    assert after.data_ptr() != before.data_ptr()
