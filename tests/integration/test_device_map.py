"""Models that accelerate spreads over memory and disk (`device_map`) give what they give in one piece."""

import pytest
import torch
from support.packing import planned

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM

EMBEDDINGS = ("transformer.tokens_embed", "transformer.positions_embed", "transformer.drop")
# None of these maps names a task head; `of_double_heads` adds it.
MAPS = {
    "auto": "auto",
    "the last block on the disk": {
        **dict.fromkeys((*EMBEDDINGS, "transformer.h.0", "lm_head"), "cpu"),
        "transformer.h.1": "disk",
    },
    "the tied weight on the disk": {**dict.fromkeys((*EMBEDDINGS, "lm_head"), "disk"), "transformer.h": "cpu"},
    "all on the disk": {"transformer": "disk", "lm_head": "disk"},
}


def close(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)


def placed(model, rows):
    """The rows where the model lies: `auto` takes a GPU for all of it, and then moves no rows."""
    return {name: tensor if model.device.type == "meta" else tensor.to(model.device) for name, tensor in rows.items()}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_model):
    """Of each class the folder of a model."""
    classes = (GPT1DoubleHeadsModel, GPT1ForCausalLM)
    made = {model_class: tmp_path_factory.mktemp(model_class.__name__) for model_class in classes}
    for model_class, folder in made.items():
        tiny_model(model_class, traversal="multiple_choice").save_pretrained(folder)
    return made


@pytest.fixture(scope="module")
def batch():
    """Three examples with two choices that share a context; padded, so that packing them is worth it."""
    input_ids = torch.randint(1, 98, (3, 2, 9), generator=torch.Generator().manual_seed(0))
    input_ids[:, 1, :4] = input_ids[:, 0, :4]
    attention_mask = torch.ones_like(input_ids)
    attention_mask[0, :, 6:] = 0
    return planned({"input_ids": input_ids, "attention_mask": attention_mask, "labels": torch.tensor([0, 1, 1])})


def assert_same_outputs(model, expected_model, batch):
    with torch.no_grad():
        actual, expected = (each(**placed(each, batch), output_lm_logits=True) for each in (model, expected_model))
    for name in ("loss", "task_loss", "lm_loss", "task_logits", "example_losses"):
        close(actual[name], expected[name])
    real = batch["attention_mask"].bool()
    close(actual.lm_logits.cpu()[real], expected.lm_logits[real])


@pytest.mark.parametrize("name", MAPS)
def test_double_heads_over_several_devices_give_the_whole_models_losses(name, folders, batch, tmp_path):
    """Both losses and the logits; the tied head and packed sequences too."""
    device_map = MAPS[name] if name == "auto" else {**MAPS[name], "task_head": "disk"}
    folder = folders[GPT1DoubleHeadsModel]
    model = GPT1DoubleHeadsModel.from_pretrained(folder, device_map=device_map, offload_folder=tmp_path).eval()
    offloaded = {parameter for parameter, weight in model.named_parameters() if weight.is_meta}
    assert bool(offloaded) == (name != "auto")
    if name != "auto":
        assert model.hf_device_map == device_map
        assert "task_head.score.weight" in offloaded
    assert_same_outputs(model, GPT1DoubleHeadsModel.from_pretrained(folder).eval(), batch)


@pytest.mark.parametrize("name", MAPS)
def test_a_language_model_over_several_devices_gives_the_whole_models_numbers(name, folders, batch, tmp_path):
    folder = folders[GPT1ForCausalLM]
    model = GPT1ForCausalLM.from_pretrained(folder, device_map=MAPS[name], offload_folder=tmp_path).eval()
    whole = GPT1ForCausalLM.from_pretrained(folder).eval()
    rows = {key: batch[key][:, 0] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        actual, expected = (each(**placed(each, {**rows, "labels": rows["input_ids"]})) for each in (model, whole))
    close(actual.loss, expected.loss)
    close(actual.logits, expected.logits)
    options = {"max_new_tokens": 5, "do_sample": False}
    generated, expected = (each.generate(**placed(each, rows), **options) for each in (model, whole))
    assert generated.tolist() == expected.tolist()


def test_a_small_memory_is_filled_block_by_block(tiny_model, batch, tmp_path):
    """`auto` never cuts within a block, where a residual would meet weights that are elsewhere."""
    whole = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", num_hidden_layers=4)
    whole.save_pretrained(tmp_path)
    options = {"device_map": "auto", "max_memory": {"cpu": 180_000}, "offload_folder": tmp_path / "offloaded"}
    model = GPT1DoubleHeadsModel.from_pretrained(tmp_path, **options).eval()
    places = [model.hf_device_map[f"transformer.h.{layer}"] for layer in range(4)]
    assert places == sorted(places)
    assert set(places) == {"cpu", "disk"}
    assert_same_outputs(model, whole, batch)
