"""One product for queries, keys and values: the numbers of three, where it serves, and the operations of a step."""

import pytest
import torch
from support.packing import pad, planned, ragged_choices, results
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GPT2Config, GPT2DoubleHeadsModel, GPT2LMHeadModel

from modeling_gpt1 import GPT1Config, GPT1DoubleHeadsModel, GPT1ForCausalLM, kernels_gpt1, modeling_gpt1
from modeling_gpt1.kernels_gpt1 import has_one_product
from modeling_gpt1.modeling_gpt1 import GPT1Attention
from tokenization.batches.plan import plan_batch

# Views, and new memory without numbers.
WITHOUT_WORK = "view _unsafe_view transpose t permute expand unsqueeze squeeze slice select detach split".split()
WITHOUT_WORK += "as_strided alias unbind empty empty_like new_empty new_empty_strided".split()


@pytest.fixture
def forced(monkeypatch):
    monkeypatch.setattr(modeling_gpt1, "has_one_product", lambda *inputs: True)


def test_it_gives_the_numbers_of_three(tiny_model, request):
    model, batch = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice"), pad(ragged_choices())
    for given in (batch, planned(batch)):
        expected, _ = results(model, given)
        request.getfixturevalue("forced")
        found, _ = results(model, given)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_it_serves_plain_layers_in_training_on_an_accelerator():
    attention = GPT1Attention(GPT1Config(hidden_size=8, num_attention_heads=2), 0)
    layers = attention.q_proj, attention.k_proj, attention.v_proj
    tokens = torch.ones(1, 2, 8, device="meta")
    assert has_one_product(tokens, *layers)
    assert not has_one_product(torch.ones(1, 2, 8), *layers)
    with torch.no_grad():
        assert not has_one_product(tokens, *layers)
    assert not has_one_product(tokens, nn.Sequential(layers[0]), *layers[1:])  # as an adapter replaces a layer
    for kind in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
        hook = getattr(attention.k_proj, f"register_{kind}_hook")(lambda *call: None)
        assert not has_one_product(tokens, *layers)
        hook.remove()
    attention.v_proj.forward = attention.v_proj.forward  # as accelerate does for offloading
    assert not has_one_product(tokens, *layers)


class Operations(TorchDispatchMode):
    number = sums = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.number += function.overloadpacket.__name__ not in WITHOUT_WORK
        self.sums += function.overloadpacket.__name__.startswith("index_add")
        return function(*args, **(kwargs or {}))


def count_operations(model, **batch) -> tuple[int, int]:
    """Of forward and backward under autocast: all, and sums of tokens by their places."""
    with Operations() as operations:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(**batch)
            loss = outputs.loss if outputs.get("mc_loss") is None else outputs.loss + outputs.mc_loss / 2
        loss.backward()
    return operations.number, operations.sums


@pytest.mark.parametrize("num_sequences", [None, 1, 2, 4])  # pre-training, and the shapes of fine-tuning
def test_a_step_has_fewer_operations_than_one_of_gpt2(forced, monkeypatch, num_sequences):
    monkeypatch.setattr(kernels_gpt1, "draws_noise", lambda *inputs: False)  # faster on CPUs alone
    sizes = {"vocab_size": 90, "n_embd": 16, "n_layer": 12, "n_head": 2, "n_positions": 16}
    of_gpt2 = GPT2Config(**sizes, bos_token_id=None, eos_token_id=None)
    if num_sequences is None:
        ours, theirs = GPT1ForCausalLM(GPT1Config(**sizes)), GPT2LMHeadModel(of_gpt2)
        ids = torch.randint(1, 90, (2, 16), generator=torch.Generator().manual_seed(0))
        batch = of_theirs = {"input_ids": ids, "labels": ids}
    else:
        traversal = {1: "classification", 2: "similarity", 4: "multiple_choice"}[num_sequences]
        ours, theirs = GPT1DoubleHeadsModel(GPT1Config(**sizes, traversal=traversal)), GPT2DoubleHeadsModel(of_gpt2)
        ids = torch.randint(1, 90, (3, num_sequences, 16), generator=torch.Generator().manual_seed(0))
        ids[:, :, :9], mask, labels = ids[:, :1, :9], torch.ones_like(ids), torch.zeros(3, dtype=torch.int64)
        mask[0, -1, 12:] = 0
        both = {"input_ids": ids, "attention_mask": mask, "mc_token_ids": mask.sum(-1) - 1}
        batch = {**both, "labels": labels, "plan": plan_batch(mask, [9] * 3)}
        of_theirs = {**both, "labels": ids.masked_fill(mask == 0, -100), "mc_labels": labels}
    number, sums = count_operations(ours.train(), **batch)
    assert number < count_operations(theirs.train(), **of_theirs, use_cache=False)[0]
    assert sums <= 2  # of the hidden states that predict, and of the rows' losses; none of a layer
    monkeypatch.setattr(modeling_gpt1, "has_one_product", lambda *inputs: False)
    assert count_operations(ours, **batch)[0] > 1.1 * number
