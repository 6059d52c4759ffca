"""Folders of three formats, converted and back: weights to the bit, outputs as transformers' OpenAIGPT classes give.

The release of OpenAI is made here by a writer of the test's own, in numpy, from a model of transformers.
"""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
)

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
)
from modeling_gpt1.commands import convert
from modeling_gpt1.conversion import checkpoint, convert_checkpoint
from modeling_gpt1.conversion import release as release_module
from tokenization import GPT1Tokenizer

MANIFEST = "conversion_manifest.json"
SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
DROPOUTS = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
# Shapes of the released weights: positions, tokens, then 12 layers.
RELEASED_LAYER = [[1, 768, 2304], [2304], [1, 768, 768], [768], [768], [768]]
RELEASED_LAYER += [[1, 768, 3072], [3072], [1, 3072, 768], [768], [768], [768]]
RELEASED_SHAPES = [[512, 768], [40478, 768], *12 * RELEASED_LAYER]


# ---- A release, written from the description of its format.


def released_arrays(model, swap_queries_and_keys=False) -> list[np.ndarray]:
    """The weights of an OpenAIGPTLMHeadModel in the order of OpenAI's variables, kernels with a leading dimension."""
    weights = {name: weight.detach().numpy() for name, weight in model.transformer.named_parameters()}
    arrays = [weights["positions_embed.weight"], weights["tokens_embed.weight"]]
    for layer in range(model.config.n_layer):
        for part in ("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"):
            for kind in ("weight", "bias"):
                array = weights[f"h.{layer}.{part}.{kind}"]
                if part == "attn.c_attn" and swap_queries_and_keys:
                    queries, keys, values = np.split(array, 3, axis=-1)
                    array = np.concatenate([keys, queries, values], axis=-1)
                arrays.append(array[None] if array.ndim == 2 else array)
    return arrays


def write_release(folder: Path, arrays: list[np.ndarray], vocabulary: Path | None = None) -> Path:
    folder.mkdir()
    flat = np.concatenate([array.ravel() for array in arrays])
    for number, piece in enumerate(np.array_split(flat, 10)):
        np.save(folder / f"params_{number}.npy", piece)
    (folder / "params_shapes.json").write_text(json.dumps([list(array.shape) for array in arrays]))
    if vocabulary is not None:
        for name in ("encoder_bpe_40000.json", "vocab_40000.bpe"):
            shutil.copy(vocabulary / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def vocabulary(plain_tokenizer, tmp_path_factory):
    """OpenAI's two files of the tiny BPE."""
    folder, model = tmp_path_factory.mktemp("bpe"), json.loads(plain_tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "encoder_bpe_40000.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (folder / "vocab_40000.bpe").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def make_openai(randomise, plain_tokenizer):
    """Makes a model of transformers with random weights: `make_openai(OpenAIGPTModel, n_layer=1)`."""

    def make(model_class, **fields):
        config = OpenAIGPTConfig(**{"vocab_size": len(plain_tokenizer), **SIZES, **DROPOUTS, **fields})
        return randomise(model_class(config)).eval()

    return make


@pytest.fixture(scope="module")
def release(make_openai, vocabulary, tmp_path_factory):
    """A release, and the model of transformers that it was written from."""
    model = make_openai(OpenAIGPTLMHeadModel)
    folder = tmp_path_factory.mktemp("release") / "model"
    return write_release(folder, released_arrays(model), vocabulary), model


@pytest.fixture
def broken(release, tmp_path):
    """A copy of the release to break."""
    return Path(shutil.copytree(release[0], tmp_path / "broken"))


def text_batch(vocab_size: int, choices: bool = False) -> dict[str, torch.Tensor]:
    shape = (3, 2, 9) if choices else (3, 9)
    return {"input_ids": torch.randint(1, vocab_size, shape, generator=torch.Generator().manual_seed(1))}


def logits_of(model, batch) -> torch.Tensor:
    with torch.no_grad():
        outputs = model(**batch)
    names = ("mc_logits", "task_logits", "logits", "last_hidden_state")
    return next(outputs[name] for name in names if outputs.get(name) is not None)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight for path in folder.glob("*.safetensors") for name, weight in load_file(path).items()}


def assert_same_weights(one: Path, other: Path) -> None:
    ours, theirs = read_weights(one), read_weights(other)
    assert ours.keys() == theirs.keys() != set()
    for name, weight in ours.items():
        assert weight.dtype == theirs[name].dtype
        assert torch.equal(weight.view(torch.uint8), theirs[name].view(torch.uint8)), name


# ---- From the release.


def test_release_becomes_a_folder_with_tokenizer(release, plain_tokenizer, tmp_path):
    folder, theirs = release
    path = convert_checkpoint(folder, tmp_path / "new" / "gpt1", num_attention_heads=4)
    assert path == tmp_path / "new" / "gpt1" / MANIFEST
    ours, report = GPT1ForCausalLM.from_pretrained(tmp_path / "new" / "gpt1", output_loading_info=True)
    assert {name: keys for name, keys in report.items() if keys} == {}
    batch = text_batch(theirs.config.vocab_size)
    torch.testing.assert_close(logits_of(ours.eval(), batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    assert torch.equal(ours.transformer.positions_embed.weight, theirs.transformer.positions_embed.weight)
    fields = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    assert [getattr(ours.config, name) for name in fields] == [len(plain_tokenizer), 32, 2, 4, 24]
    assert (ours.config.pad_token_id, ours.config.attn_pdrop, ours.config.model_type) == (0, 0.1, "gpt1")

    tokenizer = GPT1Tokenizer.from_pretrained(tmp_path / "new" / "gpt1")
    text = "The old farmer forgot his ticket – twice!"
    assert tokenizer(text)["input_ids"] == plain_tokenizer(text)["input_ids"]
    assert tokenizer.model_max_length == 24


def test_release_becomes_openai_gpt_at_once(release, tmp_path):
    folder, theirs = release
    theirs.save_pretrained(tmp_path / "expected")
    convert_checkpoint(folder, tmp_path / "openai", target="openai-gpt", num_attention_heads=4)
    assert_same_weights(tmp_path / "openai", tmp_path / "expected")


@pytest.mark.parametrize("fault", [None, "queries and keys", "positions and tokens", "number of heads"])
def test_the_comparison_sees_a_wrong_release(make_openai, vocabulary, plain_tokenizer, tmp_path, fault):
    """As many positions as tokens, so that no shape betrays that the two are swapped."""
    theirs = make_openai(OpenAIGPTLMHeadModel, n_positions=len(plain_tokenizer))
    arrays = released_arrays(theirs, swap_queries_and_keys=fault == "queries and keys")
    if fault == "positions and tokens":
        arrays[:2] = arrays[1], arrays[0]
    convert_checkpoint(
        write_release(tmp_path / "release", arrays, vocabulary),
        tmp_path / "gpt1",
        num_attention_heads=2 if fault == "number of heads" else 4,
    )
    ours = GPT1ForCausalLM.from_pretrained(tmp_path / "gpt1").eval()
    batch = text_batch(theirs.config.vocab_size)
    close = torch.allclose(logits_of(ours, batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    assert close == (fault is None)


def test_released_shapes_fill_the_published_model(tmp_path):
    (tmp_path / "params_shapes.json").write_text(json.dumps(RELEASED_SHAPES))
    shapes = release_module.read_shapes(tmp_path / "params_shapes.json")
    assert [list(shape) for shape in shapes.values()] == RELEASED_SHAPES
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 116_534_784
    config = release_module.release_config(shapes, 12, tmp_path / "params_shapes.json")
    with torch.device("meta"):
        theirs, ours = OpenAIGPTLMHeadModel(OpenAIGPTConfig()), GPT1ForCausalLM(config)
    squeezed = {name: list(shape[1:] if len(shape) == 3 else shape) for name, shape in shapes.items()}
    assert squeezed == {name: list(weight.shape) for name, weight in theirs.transformer.named_parameters()}
    assert sum(weight.numel() for weight in ours.parameters()) == 116_534_784
    assert GPT1Config().to_dict() == {**config.to_dict(), "dtype": None}


@pytest.mark.real_data
def test_the_published_shapes_and_vocabulary_are_read(real_data_dir):
    folder = real_data_dir / "openai_gpt_bpe"
    shapes = release_module.read_shapes(folder / "params_shapes.json")
    assert [list(shape) for shape in shapes.values()] == RELEASED_SHAPES
    assert len(release_module.read_release_tokenizer(folder)) == 40478


def test_at_most_one_copy_of_a_release_is_read(release):
    """The files stay on the disk: what is read is the tensors themselves."""
    folder, model = release
    parameters = release_module.FlatParameters(
        folder, sum(weight.numel() for weight in model.transformer.parameters())
    )
    assert all(isinstance(array, np.memmap) for array in parameters._arrays)
    assert parameters.take((24, 32)).untyped_storage().nbytes() == 24 * 32 * 4


# ---- From and to openai-gpt.

PAIRS = {
    "base": (OpenAIGPTModel, GPT1Model, {}),
    "lm": (OpenAIGPTLMHeadModel, GPT1ForCausalLM, {}),
    "untied": (OpenAIGPTLMHeadModel, GPT1ForCausalLM, {"tie_word_embeddings": False}),
    "double-heads": (OpenAIGPTDoubleHeadsModel, GPT1DoubleHeadsModel, {}),
    "classification": (OpenAIGPTForSequenceClassification, GPT1ForSequenceClassification, {"num_labels": 3}),
    "bfloat16": (OpenAIGPTForSequenceClassification, GPT1ForSequenceClassification, {"dtype": torch.bfloat16}),
}


@pytest.mark.parametrize("name", PAIRS)
def test_openai_gpt_to_gpt1_and_back_is_the_same_to_the_bit(make_openai, plain_tokenizer, tmp_path, name):
    openai_class, our_class, fields = PAIRS[name]
    dtype = fields.get("dtype", torch.float32)
    fields = {key: value for key, value in fields.items() if key != "dtype"}
    theirs = make_openai(openai_class, pad_token_id=0, **fields).to(dtype)
    theirs.save_pretrained(tmp_path / "openai")
    plain_tokenizer.save_pretrained(tmp_path / "openai")

    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    ours, report = our_class.from_pretrained(tmp_path / "gpt1", output_loading_info=True)
    assert {key: keys for key, keys in report.items() if keys} == {}
    assert len(GPT1Tokenizer.from_pretrained(tmp_path / "gpt1")) == len(plain_tokenizer)
    batch = text_batch(len(plain_tokenizer), choices=openai_class is OpenAIGPTDoubleHeadsModel)
    if dtype == torch.float32:
        torch.testing.assert_close(logits_of(ours.eval(), batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    # What the converter writes is what `from_pretrained` reads directly.
    our_class.from_pretrained(tmp_path / "openai").save_pretrained(tmp_path / "directly")
    assert_same_weights(tmp_path / "gpt1", tmp_path / "directly")

    convert_checkpoint(tmp_path / "gpt1", tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "openai")
    again, report = openai_class.from_pretrained(tmp_path / "back", output_loading_info=True)
    assert {key: keys for key, keys in report.items() if keys} == {}
    # Where the weights lie in memory decides the last bit of a product.
    torch.testing.assert_close(logits_of(again.eval(), batch), logits_of(theirs, batch), atol=1e-6, rtol=1e-6)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["model_type"] == "openai-gpt"
    assert len(GPT1Tokenizer.from_pretrained(tmp_path / "back")) == len(plain_tokenizer)


@pytest.mark.parametrize(
    ("model_class", "traversal", "openai_class"),
    [
        (GPT1Model, None, OpenAIGPTModel),
        (GPT1ForCausalLM, None, OpenAIGPTLMHeadModel),
        (GPT1DoubleHeadsModel, "multiple_choice", OpenAIGPTDoubleHeadsModel),
        (GPT1ForMultipleChoice, "multiple_choice", OpenAIGPTDoubleHeadsModel),
        (GPT1DoubleHeadsModel, "entailment", OpenAIGPTForSequenceClassification),
        (GPT1ForSequenceClassification, "classification", OpenAIGPTForSequenceClassification),
    ],
)
def test_gpt1_to_openai_gpt_and_back(tiny_model, tmp_path, model_class, traversal, openai_class):
    fields = {"num_labels": 3, "pad_token_id": 0, "lm_coef": 0.25, "extract_token_id": 100, "hidden_act": "relu"}
    columns = {"text": "sentence", "choices": ["one", "two"]}  # only kept, not read
    ours = tiny_model(model_class, traversal=traversal, columns=columns, **fields)
    if openai_class is OpenAIGPTForSequenceClassification:
        ours.task_head.score.bias.data.zero_()
    ours.save_pretrained(tmp_path / "gpt1")
    convert_checkpoint(tmp_path / "gpt1", tmp_path / "openai")
    theirs, report = openai_class.from_pretrained(tmp_path / "openai", output_loading_info=True)
    assert {key: keys for key, keys in report.items() if keys} == {}
    batch = text_batch(101, choices=traversal == "multiple_choice")
    torch.testing.assert_close(logits_of(theirs.eval(), batch), logits_of(ours, batch), atol=1e-5, rtol=1e-5)

    convert_checkpoint(tmp_path / "openai", tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "gpt1")
    back = model_class.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(logits_of(back, batch), logits_of(ours, batch), atol=1e-6, rtol=1e-6)
    kept = (back.config.lm_coef, back.config.extract_token_id, back.config.traversal, back.config.hidden_act)
    assert kept == (0.25, 100, ours.config.traversal, "relu")
    assert back.config.columns == columns


def test_sharded_folders_and_their_settings_for_generation(make_openai, tmp_path):
    theirs = make_openai(OpenAIGPTLMHeadModel)
    theirs.generation_config.max_new_tokens = 7
    theirs.save_pretrained(tmp_path / "openai", max_shard_size="20KB")
    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    convert_checkpoint(tmp_path / "gpt1", tmp_path / "back")
    assert_same_weights(tmp_path / "back", tmp_path / "openai")
    for model in (
        GPT1ForCausalLM.from_pretrained(tmp_path / "gpt1"),
        OpenAIGPTLMHeadModel.from_pretrained(tmp_path / "back"),
    ):
        assert model.generation_config.max_new_tokens == 7


def test_folder_of_an_old_release(make_openai, tmp_path):
    """Mask buffers of another type beside the weights, and names without a prefix."""
    theirs = make_openai(OpenAIGPTLMHeadModel)
    theirs.save_pretrained(tmp_path / "openai")
    weights = {name.removeprefix("transformer."): w for name, w in read_weights(tmp_path / "openai").items()}
    weights |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 24, 24, dtype=torch.uint8) for layer in range(2)}
    save_file(weights, tmp_path / "openai" / "model.safetensors", metadata={"format": "pt"})
    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    ours = GPT1ForCausalLM.from_pretrained(tmp_path / "gpt1").eval()
    batch = text_batch(theirs.config.vocab_size)
    torch.testing.assert_close(logits_of(ours, batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("is_archive", [True, False])
def test_weights_of_torch_save_keep_every_bit(make_openai, tmp_path, is_archive):
    """Whatever type the configuration names; mask buffers of another type are no weights."""
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai")
    weights = tmp_path / "openai" / "model.safetensors"
    convert_checkpoint(tmp_path / "openai", tmp_path / "expected")
    content = load_file(weights) | {"transformer.h.0.attn.bias": torch.ones(1, 1, 24, 24, dtype=torch.uint8)}
    weights.unlink()
    path = tmp_path / "openai" / "pytorch_model.bin"
    torch.save(content, path, _use_new_zipfile_serialization=is_archive)
    edit_json(tmp_path / "openai" / "config.json", lambda config: {**config, "dtype": "float16"})
    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    assert_same_weights(tmp_path / "gpt1", tmp_path / "expected")

    half = {name: tensor.half() if name.endswith("ln_1.weight") else tensor for name, tensor in content.items()}
    torch.save(half, path, _use_new_zipfile_serialization=is_archive)
    assert refusal(tmp_path / "openai", tmp_path / "out") == (
        f"{tmp_path / 'openai'}: the weights have 2 dtypes (float16, float32), but all must have the same. Save the "
        "model again with one `dtype`."
    )


def test_sequence_classification_is_opened_directly(make_openai, tmp_path):
    """By `from_pretrained`: nothing is missing, the bias that its score layer lacks is 0."""
    theirs = make_openai(OpenAIGPTForSequenceClassification, num_labels=3, pad_token_id=0)
    theirs.save_pretrained(tmp_path)
    batch = text_batch(theirs.config.vocab_size)
    for our_class in (GPT1ForSequenceClassification, GPT1DoubleHeadsModel):
        ours, report = our_class.from_pretrained(tmp_path, output_loading_info=True)
        assert {key: keys for key, keys in report.items() if keys} == {}
        assert ours.config.traversal == "classification" and not ours.task_head.score.bias.any()
        torch.testing.assert_close(logits_of(ours.eval(), batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)


# ---- The manifest, the example, what is left behind.


def test_manifest_has_the_hash_of_every_tensor(release, tmp_path):
    folder, _ = release
    manifest = json.loads(convert_checkpoint(folder, tmp_path / "gpt1", num_attention_heads=4).read_text())
    assert (manifest["format"], manifest["architecture"]) == ("gpt1", "GPT1ForCausalLM")
    expected = []
    with safe_open(tmp_path / "gpt1" / "model.safetensors", framework="np") as tensors:
        for name in sorted(tensors.keys()):
            array = tensors.get_tensor(name)
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            expected.append({"name": name, "shape": list(array.shape), "dtype": "float32", "sha256": digest})
    assert manifest["tensors"] == expected and len(expected) == 2 + 2 * 16
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert manifest["source"] == {"format": "openai", "files": hashes}


def test_command(release, tmp_path, capsys):
    folder, theirs = release
    convert.main(["--source", str(folder), "--output_dir", str(tmp_path / "gpt1"), "--num_attention_heads", "4"])
    convert.main(["--source", str(tmp_path / "gpt1"), "--output_dir", str(tmp_path / "openai")])
    assert [line for line in capsys.readouterr().out.splitlines() if "written" in line] == [
        f"34 tensors of a GPT1ForCausalLM written to {tmp_path / 'gpt1'}",
        f"26 tensors of a OpenAIGPTLMHeadModel written to {tmp_path / 'openai'}",
    ]
    theirs.save_pretrained(tmp_path / "expected")
    assert_same_weights(tmp_path / "openai", tmp_path / "expected")


def test_nothing_is_left_of_a_conversion_that_fails(release, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "describe_tensors", fail)
    with pytest.raises(OSError, match="No space left on device"):
        convert_checkpoint(release[0], tmp_path / "gpt1", num_attention_heads=4)
    assert list(tmp_path.iterdir()) == []


def test_a_model_is_replaced_only_on_demand_and_as_a_whole(release, make_openai, tmp_path, monkeypatch):
    output, (folder, _) = tmp_path / "gpt1", release
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai", max_shard_size="20KB")
    convert_checkpoint(folder, output, num_attention_heads=4)
    before = sorted(path.name for path in output.iterdir())
    with pytest.raises(ValueError) as refused:
        convert_checkpoint(tmp_path / "openai", output)
    message = f"{output} is not empty. Pass another output folder, or `overwrite=True` to replace it."
    assert str(refused.value) == message

    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "describe_tensors", fail)
        with pytest.raises(OSError):
            convert_checkpoint(tmp_path / "openai", output, overwrite=True)
    assert sorted(path.name for path in output.iterdir()) == before
    convert_checkpoint(tmp_path / "openai", output, overwrite=True)
    after = sorted(path.name for path in output.iterdir())
    assert set(before) - set(after) == {"tokenizer.json", "tokenizer_config.json"}  # the new one has none
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpt1", "openai"]


def test_what_is_no_model_is_not_replaced(make_openai, tiny_model, tiny_tokenizer, tmp_path):
    source, output = tmp_path / "openai", tmp_path / "gpt1"
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(source)
    tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer)).save_pretrained(output, max_shard_size="20KB")
    tiny_tokenizer.save_pretrained(output)
    for name in ("README.md", ".gitattributes", "pytorch_model.bin", "vocab.json", "special_tokens_map.json"):
        (output / name).touch()
    convert_checkpoint(source, output, overwrite=True)

    for name in ("train.csv", "my_notes.md", "model-old.safetensors", "d", "e", "f"):
        (output / name).write_text("mine")
    (output / "checkpoint-5").mkdir()
    before = sorted(path.name for path in output.iterdir())
    assert refusal(source, output, overwrite=True) == (
        f"{output} contains more than a model (checkpoint-5, d, e, f, model-old.safetensors and 2 more), so it was "
        "not replaced. Move the rest away, or pass another output folder."
    )
    for name in ("checkpoint-5", "d", "e", "f", "model-old.safetensors"):
        (output / name).rename(tmp_path / name)
    assert refusal(source, output, overwrite=True) == (
        f"{output} contains more than a model (my_notes.md, train.csv), so it was not replaced. Move the rest away, "
        "or pass another output folder."
    )
    (output / "config.json").unlink()
    assert refusal(source, output, overwrite=True) == (
        f"{output} contains no model (config.json is missing), so it was not replaced. Pass another output folder."
    )
    assert sorted(path.name for path in output.iterdir()) == sorted(
        {*before} - {"checkpoint-5", "d", "e", "f", "model-old.safetensors", "config.json"}
    )


@pytest.mark.parametrize("is_made", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_made(make_openai, tmp_path, is_made):
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai")
    (tmp_path / "disk").mkdir()
    if is_made:
        (tmp_path / "disk" / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    for overwrite in (False, True):
        path = convert_checkpoint(tmp_path / "openai", tmp_path / "link", overwrite=overwrite)
        assert path == tmp_path / "link" / MANIFEST and path.is_file()
        assert (tmp_path / "link").is_symlink() and (tmp_path / "disk" / "real" / "model.safetensors").is_file()
        assert [entry.name for entry in (tmp_path / "disk").iterdir()] == ["real"]
        assert sorted(entry.name for entry in tmp_path.iterdir()) == ["disk", "link", "openai"]


def test_folders_that_cannot_be_moved(make_openai, tmp_path, monkeypatch):
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai")
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(checkpoint, "read_folder", lambda *_: pytest.fail("work was done"))
    for output, inside in ((".", "model"), (tmp_path / "here", None), (tmp_path / "link", None), ("/", "/model")):
        assert refusal(tmp_path / "openai", output) == (
            f"{output} is the current folder or the root of a disk, which cannot be replaced. Pass a folder inside "
            f"it, such as {inside or output / 'model'}."
        )
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path / "here")
    convert_checkpoint("../openai", "new")
    assert (tmp_path / "here" / "new" / MANIFEST).is_file()


def test_an_empty_folder_is_filled(release, tmp_path):
    (tmp_path / "gpt1").mkdir()
    convert_checkpoint(release[0], tmp_path / "gpt1", num_attention_heads=4)
    assert (tmp_path / "gpt1" / "model.safetensors").is_file()


# ---- Errors: the whole text.


def refusal(*args, **kwargs) -> str:
    with pytest.raises(ValueError) as refused:
        convert_checkpoint(*args, **kwargs)
    return str(refused.value)


def edit_json(path: Path, change) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(content)), encoding="utf-8")


def test_missing_files(broken, tmp_path):
    (broken / "params_3.npy").unlink()
    (broken / "vocab_40000.bpe").unlink()
    assert refusal(broken, tmp_path / "out") == (
        f"{broken} lacks params_3.npy, vocab_40000.bpe. OpenAI's release has 13 files."
    )
    assert not (tmp_path / "out").exists()


def test_truncated_arrays(broken, tmp_path):
    path = broken / "params_7.npy"
    whole = path.read_bytes()
    for size in (len(whole) - 8, 40, 0):
        path.write_bytes(whole[:size])
        message = refusal(broken, tmp_path / "out", num_attention_heads=4)
        assert message.startswith(f"{path} is not a complete NumPy array (") and message.endswith("). Fetch it again.")

    path.write_bytes(whole)
    array = np.load(path)
    np.save(path, array[:-5])
    total = sum(len(np.load(broken / f"params_{number}.npy")) for number in range(10))
    sizes = ", ".join(f"params_{number}.npy {len(np.load(broken / f'params_{number}.npy'))}" for number in range(10))
    assert refusal(broken, tmp_path / "out", num_attention_heads=4) == (
        f"The arrays in {broken} hold {total} numbers, but {broken / 'params_shapes.json'} needs {total + 5}: "
        f"{sizes}. Fetch them again."
    )


@pytest.mark.parametrize(
    ("array", "kind"),
    [(np.zeros((2, 3), np.float32), "float32 [2, 3]"), (np.zeros(6), "float64 [6]"), (np.arange(6), "int64 [6]")],
)
def test_arrays_of_another_kind(broken, tmp_path, array, kind):
    np.save(broken / "params_0.npy", array)
    assert refusal(broken, tmp_path / "out", num_attention_heads=4) == (
        f"{broken / 'params_0.npy'} holds {kind}, but a one-dimensional float32 array is needed. Fetch it again."
    )


def test_pickles_are_never_opened(broken, tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harmed",))

    for write in (
        lambda path: np.save(path, np.array([Harmful()], dtype=object), allow_pickle=True),
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
    ):
        write(broken / "params_0.npy")
        message = refusal(broken, tmp_path / "out", num_attention_heads=4)
        assert message.startswith(f"{broken / 'params_0.npy'} is not a complete NumPy array (")
    assert not (tmp_path / "harmed").exists()

    (tmp_path / "openai").mkdir()
    OpenAIGPTConfig(architectures=["OpenAIGPTLMHeadModel"]).save_pretrained(tmp_path / "openai")
    path = tmp_path / "openai" / "pytorch_model.bin"
    torch.save({"tokens_embed.weight": Harmful()}, path)
    contents = {path.read_bytes(): "UnpicklingError", path.read_bytes()[:50]: "RuntimeError", b"": "EOFError"}
    for content, kind in contents.items():
        path.write_bytes(content)
        assert refusal(tmp_path / "openai", tmp_path / "out") == (
            f"{path} is not a complete file of weights, or contains more than weights ({kind}). Fetch it again."
        )
    assert not (tmp_path / "harmed").exists()


def replace(index, value):
    return lambda shapes: [*shapes[:index], value, *shapes[index + 1 :]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            replace(4, [1, 32, 31]),
            "entry 4, h.0.attn.c_proj.weight, has the shape [1, 32, 31], but [1, 32, 32] is needed (width 32 from "
            "entry 0, 128 from the feed-forward layer)",
        ),
        (
            replace(2, [1, 96, 32]),
            "entry 2, h.0.attn.c_attn.weight, has the shape [1, 96, 32], but [1, 32, 96] is needed (width 32 from "
            "entry 0, 128 from the feed-forward layer)",
        ),
        (
            replace(1, [200, 16]),
            "entry 1, tokens_embed.weight, has the shape [200, 16], but [200, 32] is needed (width 32 from entry 0, "
            "128 from the feed-forward layer)",
        ),
        (replace(5, 32), "entry 5 is 32, but a shape (a list of positive sizes) is needed"),
        (replace(5, [-1]), "entry 5 is [-1], but a shape (a list of positive sizes) is needed"),
    ],
)
def test_wrong_shapes(broken, tmp_path, change, message):
    edit_json(broken / "params_shapes.json", change)
    text = refusal(broken, tmp_path / "out", num_attention_heads=4)
    assert text == f"{broken / 'params_shapes.json'}: {message}. Fetch the file again."


def test_wrong_number_of_shapes(broken, tmp_path):
    path = broken / "params_shapes.json"
    edit_json(path, lambda shapes: shapes[:-1])
    assert refusal(broken, tmp_path / "out") == (
        f"{path} has 25 shapes, but 2 for the embeddings and 12 for each layer are needed. Fetch the file again."
    )
    path.write_text("{}")
    assert refusal(broken, tmp_path / "out") == f"{path} must hold a JSON list. Fetch it again."
    path.write_text("[[24, 32], ")
    assert refusal(broken, tmp_path / "out").startswith(f"{path} is not JSON (")


def test_number_of_heads(broken, tmp_path):
    assert refusal(broken, tmp_path / "out") == (
        f"{broken / 'params_shapes.json'}: the width 32 is not divisible by `num_attention_heads` (12). Pass the "
        "number of heads that the model was trained with."
    )


def test_foreign_vocabulary(broken, plain_tokenizer, tmp_path):
    encoder, merges, size = broken / "encoder_bpe_40000.json", broken / "vocab_40000.bpe", len(plain_tokenizer)
    whole = encoder.read_text()
    edit_json(encoder, lambda vocab: {**vocab, "ω": size})
    assert refusal(broken, tmp_path / "out", num_attention_heads=4) == (
        f"{encoder} has {size + 1} tokens, but {broken / 'params_shapes.json'} has embeddings for {size} (its second "
        "shape; the first is that of the positions). Give the files of one release."
    )
    edit_json(encoder, lambda vocab: {**{t: i for t, i in vocab.items() if i < size - 1}, "foreign</w>": size - 1})
    text = refusal(broken, tmp_path / "out", num_attention_heads=4)
    assert text.startswith(f"{merges}, line ") and text.endswith("Give the two files of one release.")

    encoder.write_text(whole)
    lines = merges.read_text().splitlines()
    merges.write_text("\n".join(lines[:-1]) + "\n")
    last = lines[-1].replace(" ", "")
    assert refusal(broken, tmp_path / "out", num_attention_heads=4) == (
        f"{encoder} has 1 tokens that no merge in {merges} produces, the first being {last!r}. Give the files of one "
        "release."
    )


def test_positions_and_tokens_in_the_wrong_order(broken, plain_tokenizer, tmp_path):
    edit_json(broken / "params_shapes.json", lambda shapes: [shapes[1], shapes[0], *shapes[2:]])
    assert refusal(broken, tmp_path / "out", num_attention_heads=4) == (
        f"{broken / 'encoder_bpe_40000.json'} has {len(plain_tokenizer)} tokens, but {broken / 'params_shapes.json'} "
        "has embeddings for 24 (its second shape; the first is that of the positions). Give the files of one release."
    )


def test_sources_that_are_none(release, tmp_path):
    assert refusal(tmp_path / "absent", tmp_path / "out") == (
        f"{tmp_path / 'absent'} is not a folder. Give a folder on this machine; `hf download "
        "openai-community/openai-gpt --local-dir …` fetches one from the hub."
    )
    (tmp_path / "empty").mkdir()
    assert refusal(tmp_path / "empty", tmp_path / "out") == (
        f"{tmp_path / 'empty'} has neither config.json nor params_shapes.json. Give OpenAI's release (the folder "
        "`model` of finetune-transformer-lm) or a folder that `save_pretrained` wrote."
    )
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "gpt2"}')
    assert refusal(tmp_path / "empty", tmp_path / "out") == (
        f"{tmp_path / 'empty' / 'config.json'}: the `model_type` is 'gpt2', but only 'gpt1' and 'openai-gpt' can be "
        "converted."
    )
    assert refusal(release[0], release[0]) == f"{release[0]} is the source itself. Pass another output folder."
    assert refusal(release[0], release[0], target="gpt2") == (
        f"{release[0]} is in the format 'openai' and cannot be converted to 'gpt2'. Choose 'gpt1' or 'openai-gpt'."
    )
    (tmp_path / "file").write_text("")
    assert refusal(release[0], tmp_path / "file") == f"{tmp_path / 'file'} is a file. Pass another output folder."


@pytest.fixture
def openai_folder(make_openai, plain_tokenizer, tmp_path):
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai")
    plain_tokenizer.save_pretrained(tmp_path / "openai")
    return tmp_path / "openai"


def test_weights_that_are_missing_or_cut(openai_folder, tmp_path):
    weights = openai_folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-8])
    text = refusal(openai_folder, tmp_path / "out")
    assert text.startswith(f"{weights} is not a complete safetensors file (") and text.endswith("). Fetch it again.")
    weights.unlink()
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder} has no weights: model.safetensors is needed. Fetch it again."
    )
    index = openai_folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}))
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder} lacks 1.safetensors, 2.safetensors, which model.safetensors.index.json lists. Fetch them "
        "again."
    )


def test_weights_of_another_model(openai_folder, tmp_path):
    path = openai_folder / "model.safetensors"
    whole = load_file(path)
    name = "transformer.h.0.ln_1.weight"
    save_file({key: weight for key, weight in whole.items() if key != name}, path, metadata={"format": "pt"})
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder}: the weights do not match OpenAIGPTLMHeadModel, the class that config.json names (missing: "
        f"{name}). Give files of the same model."
    )
    save_file({**whole, name: torch.ones(31)}, path, metadata={"format": "pt"})
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder}: {name} has the shape [31] in the weights, but [32] according to config.json. Give files of "
        "the same model."
    )
    save_file({**whole, name: whole[name].half()}, path, metadata={"format": "pt"})
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder}: the weights have 2 dtypes (F16, F32), but all must have the same. Save the model again "
        "with one `dtype`."
    )
    edit_json(openai_folder / "config.json", lambda config: {**config, "architectures": ["OpenAIGPTForTags"]})
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder / 'config.json'}: `architectures` names OpenAIGPTForTags, but one of OpenAIGPTModel, "
        "OpenAIGPTLMHeadModel, OpenAIGPTDoubleHeadsModel, OpenAIGPTForSequenceClassification is needed."
    )


def test_tokenizer_of_another_model(openai_folder, plain_tokenizer, tiny_tokenizer, tmp_path):
    tiny_tokenizer.save_pretrained(openai_folder)
    size = len(plain_tokenizer)
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder / 'tokenizer.json'}: The tokenizer has {size + 3} tokens, but the model's vocabulary has "
        f"{size}. Call `tokenization.add_control_tokens(tokenizer, model)` to grow both together, or open the "
        "tokenizer saved with the model."
    )
    (openai_folder / "tokenizer.json").unlink()
    (openai_folder / "vocab.json").write_text("{}")
    assert refusal(openai_folder, tmp_path / "out") == (
        f"{openai_folder} has vocab.json, but lacks merges.txt. Fetch it, or tokenizer.json."
    )


@pytest.mark.parametrize(("name", "value"), [("summary_type", "mean"), ("summary_activation", "tanh")])
def test_a_head_that_gpt1_does_not_have(make_openai, tmp_path, name, value):
    make_openai(OpenAIGPTDoubleHeadsModel, **{name: value}).save_pretrained(tmp_path / "openai")
    needed = {"summary_type": "'cls_index'", "summary_activation": "None"}[name]
    assert refusal(tmp_path / "openai", tmp_path / "out") == (
        f"{tmp_path / 'openai' / 'config.json'}: `{name}` is {value!r}, but the task head of gpt1 supports only "
        f"{needed}. Save the model as OpenAIGPTLMHeadModel to convert it without its task head."
    )


@pytest.mark.parametrize(("name", "value", "needed"), [("summary_type", "mean", "cls_index")])
def test_a_head_that_gpt1_does_not_have_is_not_opened(make_openai, tmp_path, name, value, needed):
    make_openai(OpenAIGPTDoubleHeadsModel, **{name: value}).save_pretrained(tmp_path)
    with pytest.raises(ValueError) as error:
        GPT1DoubleHeadsModel.from_pretrained(tmp_path)
    assert str(error.value) == (
        f"`{name}` is {value!r} in the configuration of this openai-gpt, but GPT-1 supports only {needed!r}. Open the "
        "model with transformers' OpenAIGPT classes."
    )


WITHOUT_HEAD = (
    "To leave out what openai-gpt does not have, open it with GPT1Model or GPT1ForCausalLM, save that and convert the "
    "result."
)


@pytest.mark.parametrize(
    ("model_class", "fields", "message"),
    [
        (
            GPT1ForCausalLM,
            {"hidden_act": "gelu"},
            "`hidden_act` is 'gelu', but openai-gpt has only 'gelu_pytorch_tanh', 'gelu_new', 'relu', 'silu'.",
        ),
        (
            GPT1ForCausalLM,
            {"intermediate_size": 64},
            "`intermediate_size` is 64, but openai-gpt needs 4 × `hidden_size`, which is 128 here.",
        ),
        (
            GPT1ForSequenceClassification,
            {"traversal": "similarity"},
            f"no class of openai-gpt scores both orders of a pair, as 'similarity' does. {WITHOUT_HEAD}",
        ),
        (
            GPT1ForSequenceClassification,
            {},
            "task_head.score.bias is not 0, but the score layer of OpenAIGPTForSequenceClassification has no bias. "
            + WITHOUT_HEAD,
        ),
        (
            GPT1DoubleHeadsModel,
            {"tie_word_embeddings": False},
            "OpenAIGPTForSequenceClassification has no place for a language-model head that is not tied to the "
            f"embeddings. {WITHOUT_HEAD}",
        ),
        (
            GPT1ForMultipleChoice,
            {"tie_word_embeddings": False},
            "OpenAIGPTDoubleHeadsModel needs a language-model head, but the model has neither one nor tied "
            f"embeddings. {WITHOUT_HEAD}",
        ),
    ],
)
def test_what_openai_gpt_has_no_place_for(tiny_model, tmp_path, model_class, fields, message):
    tiny_model(model_class, **fields).save_pretrained(tmp_path / "gpt1")
    assert refusal(tmp_path / "gpt1", tmp_path / "out") == f"{tmp_path / 'gpt1'}: {message}"
    assert [path.name for path in tmp_path.iterdir()] == ["gpt1"]
