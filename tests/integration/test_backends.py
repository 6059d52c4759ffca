"""Inference engines run the base model with an attention of their own: the transformers backends of vLLM and TGI.

Sources: https://docs.vllm.ai/en/stable/models/supported_models/ ("Writing custom models") and transformers' guide
https://huggingface.co/docs/transformers/community_integrations/transformers_as_backend. The requests of a batch lie
one after the other in one row without a mask; the engine's attention knows which tokens belong together.
"""

import json
from itertools import pairwise

import pytest
import torch
from support.refusals import refusal
from support.tensors import close
from torch import nn
from transformers import AttentionInterface, AutoModel, AutoModelForCausalLM

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1Model

LENGTHS = [5, 1, 9, 12]  # of the requests: 27 tokens in all, more than the 24 positions of the model
# Styles for which vLLM has linear layers; it replaces the embedding itself.
LINEAR_STYLES = {"colwise", "rowwise"}


class EngineAttention:
    """Stands in for an engine's layer: flat keys and values `[N, H · D/H]`, and the bounds of the requests."""

    def __init__(self, num_heads: int, lengths: list[int]):
        self.num_heads = num_heads
        self.calls = 0
        self.bounds = torch.tensor([0, *lengths]).cumsum(0).tolist()

    def __call__(self, query, key, value, scale: float) -> torch.Tensor:
        self.calls += 1
        outputs = []
        for start, end in pairwise(self.bounds):
            heads = [x[start:end].unflatten(-1, (self.num_heads, -1)).transpose(0, 1) for x in (query, key, value)]
            output = nn.functional.scaled_dot_product_attention(*heads, is_causal=True, scale=scale)
            outputs.append(output.transpose(0, 1).flatten(1))
        return torch.cat(outputs)


class EngineEmbedding(nn.Embedding):
    def forward(self, input_ids):
        return self.weight[input_ids]


def engine_attention_forward(
    module, query, key, value, attention_mask, scaling=None, attention_instances=None, **kwargs
) -> tuple[torch.Tensor, None]:
    """As engines write it: flat, by the number of the layer, and without the batch dimension in what it returns."""
    assert attention_mask is None
    flat = (x.transpose(1, 2).reshape(query.shape[-2], -1) for x in (query, key, value))
    return attention_instances[module.layer_idx](*flat, scale=scaling), None


AttentionInterface.register("test_engine", engine_attention_forward)


@pytest.fixture
def requests():
    """Ids of each request, all of them in one row `[1, N]`, and their positions."""
    generator = torch.Generator().manual_seed(0)
    ids = [torch.randint(1, 98, (1, length), generator=generator) for length in LENGTHS]
    return ids, torch.cat(ids, dim=1), torch.cat([torch.arange(length) for length in LENGTHS])[None]


def test_what_engines_ask_of_the_class_and_of_the_folder(tiny_model, tmp_path):
    assert GPT1Model.is_backend_compatible()
    assert GPT1ForCausalLM.is_backend_compatible()
    model = tiny_model(GPT1ForCausalLM)
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["auto_map"]["AutoModel"] == "modeling_gpt1.GPT1Model"
    assert config["auto_map"]["AutoModelForCausalLM"] == "modeling_gpt1.GPT1ForCausalLM"
    assert model.base_model_prefix == "transformer"
    assert all(block.attn.is_causal for block in model.transformer.h)
    assert [block.attn.layer_idx for block in model.transformer.h] == [0, 1]
    assert model.transformer.supports_tp_plan
    linear = {name for name, module in model.transformer.named_modules() if isinstance(module, nn.Linear)}
    plan = {pattern.replace("*", "1"): style for pattern, style in GPT1Config.base_model_tp_plan.items()}
    assert {style for name, style in plan.items() if name in linear} == LINEAR_STYLES


def test_the_base_model_runs_with_an_engines_attention(tiny_model, requests, tmp_path):
    """More tokens in the row than the model has positions: each request has its own."""
    tiny_model(GPT1Model).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, attn_implementation="test_engine").eval()
    layers = {layer: EngineAttention(num_heads=4, lengths=LENGTHS) for layer in range(2)}
    ids, row, positions = requests
    options = {"position_ids": positions, "use_cache": False}
    output = model(row, inputs_embeds=None, attention_instances=layers, return_dict=False, **options)
    assert type(output) is tuple
    assert [layer.calls for layer in layers.values()] == [1, 1]
    alone = GPT1Model.from_pretrained(tmp_path).eval()
    expected = torch.cat([alone(request).last_hidden_state[0] for request in ids])
    close(output[0][0], expected)
    # Engines put their own, sharded embedding in place of the model's; or give the embeddings themselves.
    model.set_input_embeddings(EngineEmbedding.from_pretrained(model.get_input_embeddings().weight))
    for given in ({"input_ids": row}, {"inputs_embeds": model.get_input_embeddings()(row)}):
        close(model(**given, attention_instances=layers, **options).last_hidden_state[0], expected)
    # An attention that does not keep the requests apart gives something else.
    layers = {layer: EngineAttention(num_heads=4, lengths=[sum(LENGTHS)]) for layer in range(2)}
    mixed = model(row, attention_instances=layers, **options)
    assert not torch.allclose(mixed.last_hidden_state[0], expected, atol=1e-2)


def test_the_language_model_gives_the_logits_that_an_engine_keeps(tiny_model, requests, tmp_path):
    """The way of TGI: the causal model, and logits of each request's last token alone."""
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="test_engine").eval()
    ids, row, positions = requests
    last = torch.tensor(LENGTHS).cumsum(0) - 1
    layers = {layer: EngineAttention(num_heads=4, lengths=LENGTHS) for layer in range(2)}
    options = {"past_key_values": None, "use_cache": False, "attention_instances": layers}
    logits = model(input_ids=row, position_ids=positions, logits_to_keep=last, **options).logits
    whole = GPT1ForCausalLM.from_pretrained(tmp_path).eval()
    assert logits.shape == (1, len(LENGTHS), 101)
    close(logits[0], torch.cat([whole(request).logits[0, -1:] for request in ids]))


def test_a_sequence_of_a_long_row_that_is_too_long(tiny_model):
    positions = torch.cat([torch.arange(3), torch.arange(26)])[None]
    message = refusal(tiny_model(GPT1Model), input_ids=torch.ones_like(positions), position_ids=positions)
    assert "has 26 tokens, but the model has only 24 positions" in message
