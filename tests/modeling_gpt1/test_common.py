"""What transformers expects of every model: loading, outputs, dtypes, masks, caches."""

import pytest
import torch
from safetensors.torch import save_file
from support.tensors import close, random_ids
from torch import nn
from transformers import DynamicCache, StaticCache
from transformers.utils import logging

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1Model,
)

logging.disable_progress_bar()

CLASSES = [
    GPT1Model,
    GPT1ForCausalLM,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1ForMultipleChoice,
    GPT1ForTokenClassification,
    GPT1ForQuestionAnswering,
]


def ids_for(model_class, device="cpu"):
    return random_ids(*((3, 2, 7) if model_class is GPT1ForMultipleChoice else (3, 7))).to(device)


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_model_without_memory_has_shapes_and_takes_weights(tiny_model, tiny_config, model_class):
    model = tiny_model(model_class)
    with torch.device("meta"):
        empty = model_class(tiny_config()).eval()
    assert {tensor.device.type for tensor in (*empty.parameters(), *empty.buffers())} == {"meta"}
    expected = model(ids_for(model_class))[0]
    output = empty(ids_for(model_class, "meta"))[0]
    assert (output.shape, output.dtype, output.device.type) == (expected.shape, expected.dtype, "meta")
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(ids_for(model_class))[0], expected)  # nothing lay outside of the weights


@pytest.mark.parametrize("model_class", CLASSES)
def test_every_missing_weight_is_initialised(tiny_model, model_class, tmp_path):
    """As the paper does; memory that nothing was written to would hold anything."""
    logging.set_verbosity_error()  # without transformers' table of the weights that are missing
    model = tiny_model(model_class)
    model.save_pretrained(tmp_path)
    prefix = "" if model_class is GPT1Model else "transformer."
    name = f"{prefix}positions_embed.weight"
    given = model.state_dict()[name]
    save_file({name: given.clone()}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    torch.manual_seed(0)  # of 32 draws, the deviation below is above 0.03 once in a great while
    loaded, report = model_class.from_pretrained(tmp_path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(model.state_dict()) - {name}
    for weight_name, weight in loaded.state_dict().items():
        if weight_name == name:
            assert torch.equal(weight, given)
        elif weight_name.endswith("bias"):
            assert torch.count_nonzero(weight) == 0, weight_name
        elif ".ln_" in weight_name:
            assert torch.equal(weight, torch.ones_like(weight)), weight_name
        else:
            assert 0.01 < weight.std() < 0.03, weight_name
            assert weight.abs().max() < 0.12, weight_name


@pytest.mark.parametrize("model_class", CLASSES)
def test_tuples_hold_the_outputs_in_their_order(tiny_model, model_class):
    model = tiny_model(model_class)
    model.set_attn_implementation("eager")
    asked_for = {"output_hidden_states": True, "output_attentions": True, "use_cache": False}
    outputs = model(ids_for(model_class), **asked_for)
    as_tuple = model(ids_for(model_class), return_dict=False, **asked_for)
    num_scores = 2 if model_class is GPT1ForQuestionAnswering else 1
    assert len(as_tuple) == len(outputs) == num_scores + 2
    for ours, expected in zip(as_tuple, outputs.to_tuple(), strict=True):
        ours, expected = (part if isinstance(part, tuple) else (part,) for part in (ours, expected))
        assert [part.shape for part in ours] == [part.shape for part in expected]
        assert all(torch.equal(*pair) for pair in zip(ours, expected, strict=True))
    num_rows = 6 if model_class is GPT1ForMultipleChoice else 3
    assert [tuple(states.shape) for states in outputs.hidden_states] == [(num_rows, 7, 32)] * 3
    assert [tuple(weights.shape) for weights in outputs.attentions] == [(num_rows, 4, 7, 7)] * 2


@pytest.mark.parametrize("model_class", CLASSES)
def test_hidden_states_and_attentions_have_gradients(tiny_model, model_class):
    """They are on the way from the input to the output, not copies of it."""
    model = tiny_model(model_class)
    model.set_attn_implementation("eager")
    outputs = model(ids_for(model_class), output_hidden_states=True, output_attentions=True)
    inner = [outputs.hidden_states[0], outputs.hidden_states[1], *outputs.attentions]
    for tensor in inner:
        tensor.retain_grad()
    outputs[0].flatten()[-1].backward()
    assert all(tensor.grad.abs().max() > 1e-6 for tensor in inner)


# Three tokens that two continuations share: 3 and 4 go on after token 2, and do not see each other.
SHARED = torch.tensor([[*map(int, row)] for row in "10000 11000 11100 11110 11101".split()]).bool()[None, None]


def additive(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


@pytest.mark.parametrize("cache", ["none", "dynamic", "static"])
@pytest.mark.parametrize("kind", [additive, torch.Tensor.bool])
@pytest.mark.parametrize("way", ["eager", "sdpa"])
def test_a_mask_of_four_dimensions_decides_what_is_seen(tiny_model, way, kind, cache):
    model = tiny_model(GPT1ForCausalLM)
    model.set_attn_implementation(way)
    ids, mask = random_ids(1, 5), SHARED
    options = {"use_cache": False}
    if cache != "none":
        options = {"past_key_values": DynamicCache(config=model.config)}
    if cache == "static":
        options = {"past_key_values": StaticCache(config=model.config, max_cache_len=8)}
        mask = nn.functional.pad(mask, (0, 3))
    position_ids = torch.tensor([[0, 1, 2, 3, 3]])
    with torch.no_grad():
        logits = model(ids, attention_mask=kind(mask), position_ids=position_ids, **options).logits[0]
        first = model(ids[:, :4], use_cache=False).logits[0]
        second = model(ids[:, [0, 1, 2, 4]], use_cache=False).logits[0]
        unmasked = model(ids, position_ids=position_ids, use_cache=False, attention_mask=torch.ones_like(ids))
    close(logits[:4], first)
    close(logits[4], second[3])
    assert (unmasked.logits[0, 4] - second[3]).abs().max() > 0.1
