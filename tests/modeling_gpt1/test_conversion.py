"""Folders of three formats, converted and back: weights to the bit, outputs as transformers' OpenAIGPT classes give.

The release of OpenAI is made here by a writer of the test's own, in numpy, from a model of transformers.
"""

import json
import pickle
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import support.refusals
import torch
from safetensors.torch import load_file, save_file
from support.files import save_folder
from support.tiny import write_bpe
from transformers import (
    OpenAIGPTConfig,
    OpenAIGPTDoubleHeadsModel,
    OpenAIGPTForSequenceClassification,
    OpenAIGPTLMHeadModel,
    OpenAIGPTModel,
    TokenizersBackend,
)

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1Model,
    conversion,
    prepare_finetuning,
)
from modeling_gpt1.commands import convert
from modeling_gpt1.conversion import convert_checkpoint
from tokenization import GPT1Tokenizer

SIZES = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
DROPOUTS = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}


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
    folder = tmp_path_factory.mktemp("bpe")
    write_bpe(plain_tokenizer, folder, "encoder_bpe_40000.json", "vocab_40000.bpe")
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


def test_release_becomes_a_folder_with_tokenizer(release, plain_tokenizer, tmp_path):
    folder, theirs = release
    written = convert_checkpoint(folder, tmp_path / "new" / "gpt1", num_attention_heads=4)
    ours, report = GPT1ForCausalLM.from_pretrained(tmp_path / "new" / "gpt1", output_loading_info=True)
    assert {name: keys for name, keys in report.items() if keys} == {}
    batch = text_batch(theirs.config.vocab_size)
    torch.testing.assert_close(logits_of(ours.eval(), batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    assert torch.equal(logits_of(written.eval(), batch), logits_of(ours, batch))
    assert torch.equal(ours.transformer.positions_embed.weight, theirs.transformer.positions_embed.weight)
    fields = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    assert [getattr(ours.config, name) for name in fields] == [len(plain_tokenizer), 32, 2, 4, 24]
    assert (ours.config.pad_token_id, ours.config.attn_pdrop, ours.config.model_type) == (0, 0.1, "gpt1")

    tokenizer = GPT1Tokenizer.from_pretrained(tmp_path / "new" / "gpt1")
    text = "The old farmer forgot his ticket – twice!"
    assert tokenizer(text)["input_ids"] == plain_tokenizer(text)["input_ids"]
    assert tokenizer.model_max_length == 24


@pytest.mark.parametrize("fault", [None, "queries and keys", "positions and tokens", "number of heads"])
def test_the_comparison_sees_a_wrong_release(make_openai, vocabulary, plain_tokenizer, tmp_path, fault):
    """As many positions as tokens, so that no shape betrays that the two are swapped."""
    theirs = make_openai(OpenAIGPTLMHeadModel, n_positions=len(plain_tokenizer))
    arrays = released_arrays(theirs, swap_queries_and_keys=fault == "queries and keys")
    if fault == "positions and tokens":
        arrays[:2] = arrays[1], arrays[0]
    release = write_release(tmp_path / "release", arrays, vocabulary)
    convert_checkpoint(release, tmp_path / "gpt1", num_attention_heads=2 if fault == "number of heads" else 4)
    ours = GPT1ForCausalLM.from_pretrained(tmp_path / "gpt1").eval()
    batch = text_batch(theirs.config.vocab_size)
    assert torch.allclose(logits_of(ours, batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5) == (fault is None)


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
    save_folder(tmp_path / "openai", theirs, plain_tokenizer)

    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    ours, report = our_class.from_pretrained(tmp_path / "gpt1", output_loading_info=True)
    assert {key: keys for key, keys in report.items() if keys} == {}
    assert len(GPT1Tokenizer.from_pretrained(tmp_path / "gpt1")) == len(plain_tokenizer)
    batch = text_batch(len(plain_tokenizer), choices=openai_class is OpenAIGPTDoubleHeadsModel)
    if name == "classification":
        with_both_heads = GPT1DoubleHeadsModel.from_pretrained(tmp_path / "openai").eval()
        assert with_both_heads.config.traversal == "classification"
        torch.testing.assert_close(logits_of(with_both_heads, batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    if dtype == torch.float32:
        torch.testing.assert_close(logits_of(ours.eval(), batch), logits_of(theirs, batch), atol=1e-5, rtol=1e-5)
    # What the converter writes is what `from_pretrained` reads directly; a bias that the score layer lacks is 0.
    directly, report = our_class.from_pretrained(tmp_path / "openai", output_loading_info=True)
    assert {key: keys for key, keys in report.items() if keys} == {}
    directly.save_pretrained(tmp_path / "directly")
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
    fields["trained_positions"] = 16
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
    assert back.config.trained_positions == 16
    assert back.config.columns == columns


def test_a_converted_folder_is_fine_tuned_by_the_classes_of_transformers(openai_folder, plain_tokenizer, tmp_path):
    """Its tokenizer gives GPT-1's ids, without control tokens, and needs no class of this package."""
    convert_checkpoint(openai_folder, tmp_path / "gpt1")
    convert_checkpoint(tmp_path / "gpt1", tmp_path / "back")
    parts = prepare_finetuning(tmp_path / "back", "sst2", auto_model=True, lm_coef=0.5)
    ids = parts["data_collator"]([{"sentence": "Don't go.", "label": 0}])["input_ids"][0].tolist()
    assert ids == plain_tokenizer("Don't go.")["input_ids"]
    assert type(parts["processing_class"]) is TokenizersBackend


def test_sharded_folders_keep_their_settings_for_generation(make_openai, tmp_path):
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


def test_weights_of_torch_save_keep_every_bit(make_openai, tmp_path):
    """Of old releases too; whatever type the configuration names; mask buffers of another type are no weights."""
    make_openai(OpenAIGPTLMHeadModel).save_pretrained(tmp_path / "openai")
    weights = tmp_path / "openai" / "model.safetensors"
    convert_checkpoint(tmp_path / "openai", tmp_path / "expected")
    content = {name.removeprefix("transformer."): weight for name, weight in load_file(weights).items()}
    content |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 24, 24, dtype=torch.uint8) for layer in range(2)}
    weights.unlink()
    path = tmp_path / "openai" / "pytorch_model.bin"
    torch.save(content, path, _use_new_zipfile_serialization=False)
    edit_json(tmp_path / "openai" / "config.json", lambda config: {**config, "dtype": "float16"})
    convert_checkpoint(tmp_path / "openai", tmp_path / "gpt1")
    assert_same_weights(tmp_path / "gpt1", tmp_path / "expected")


def test_the_command_converts_a_folder(release, tmp_path, capsys):
    folder, theirs = release
    ours, openai = str(tmp_path / "gpt1"), str(tmp_path / "openai")
    convert.main(["--source", str(folder), "--output_dir", ours, "--num_attention_heads", "4"])
    convert.main([ours, "--output_dir", openai])
    written = [line for line in capsys.readouterr().out.splitlines() if "written" in line]
    parameters = f"{theirs.num_parameters():,} parameters"
    assert written == [
        f"{name}, {parameters}, written to {to}"
        for name, to in (("GPT1ForCausalLM", ours), ("OpenAIGPTLMHeadModel", openai))
    ]
    theirs.save_pretrained(tmp_path / "expected")
    assert_same_weights(tmp_path / "openai", tmp_path / "expected")


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


refusal = partial(support.refusals.refusal, convert_checkpoint)


@pytest.fixture
def openai_folder(make_openai, plain_tokenizer, tmp_path):
    save_folder(tmp_path / "openai", make_openai(OpenAIGPTLMHeadModel), plain_tokenizer)
    return tmp_path / "openai"


def test_a_folder_appears_whole_or_not_at_all(openai_folder, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(GPT1Tokenizer, "save_pretrained", fail)  # after the weights
        with pytest.raises(OSError, match="No space left on device"):
            convert_checkpoint(openai_folder, tmp_path / "new")
    assert names_in(tmp_path) == {"openai"}
    convert_checkpoint(openai_folder, tmp_path / "new")
    before = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setattr(conversion, "load", lambda *_, **__: pytest.fail("work was done"))
        for output in (tmp_path / "new", tmp_path / "file", openai_folder):
            assert refusal(openai_folder, output) == f"{output} is not an empty folder. Pass another output folder."
    assert {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()} == before


def test_a_link_stays_and_what_it_leads_to_is_made(openai_folder, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    convert_checkpoint(openai_folder, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real" / "model.safetensors").is_file()
    assert names_in(tmp_path / "disk") == {"real"}
    assert names_in(tmp_path) == {"disk", "link", "openai"}


def edit_json(path: Path, change) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")


def edit_shapes(change):
    return lambda folder: edit_json(folder / "params_shapes.json", change)


def cut(name: str, size: int):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def replaced(index, value):
    return edit_shapes(lambda shapes: [*shapes[:index], value, *shapes[index + 1 :]])


DAMAGE = {
    "missing": (lambda folder: (folder / "params_3.npy").unlink(), "is no complete copy of OpenAI's release: "),
    "cut header": (cut("params_7.npy", 40), "is no complete copy of OpenAI's release: "),
    "cut numbers": (cut("params_7.npy", -8), "is no complete copy of OpenAI's release: "),
    "fewer numbers": (lambda folder: np.save(folder / "params_0.npy", np.zeros(9, np.float32)), "is no complete copy"),
    "no merges": (lambda folder: (folder / "vocab_40000.bpe").unlink(), "is no complete copy of OpenAI's release: "),
    "cut vocabulary": (cut("encoder_bpe_40000.json", 20), "is no complete copy of OpenAI's release: "),
    "no JSON": (cut("params_shapes.json", 20), "is no complete copy of OpenAI's release: "),
    "transposed": (replaced(2, [1, 96, 32]), "torch.Size([32, 32])"),
    "number of shapes": (edit_shapes(lambda shapes: [*shapes[:-2], [64]]), "zip()"),
    "swapped": (
        edit_shapes(lambda shapes: [shapes[1], shapes[0], *shapes[2:]]),
        "has 80 tokens, but params_shapes.json has embeddings for 24 (its second shape",
    ),
    "larger vocabulary": (
        lambda folder: edit_json(folder / "encoder_bpe_40000.json", lambda vocab: {**vocab, "ω": len(vocab)}),
        "has 81 tokens, but params_shapes.json has embeddings for 80",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_release_is_refused(release, tmp_path, name):
    damage, message = DAMAGE[name]
    folder = Path(shutil.copytree(release[0], tmp_path / "broken"))
    damage(folder)
    assert message in refusal(folder, tmp_path / "out", num_attention_heads=4)
    assert not (tmp_path / "out").exists()


def test_a_number_of_heads_that_does_not_fit_is_refused(release, tmp_path):
    with pytest.raises(Exception, match="num_attention_heads"):
        convert_checkpoint(release[0], tmp_path / "out")


def test_pickles_are_never_opened(release, tmp_path):
    class Harmful:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "harmed",))

    folder = Path(shutil.copytree(release[0], tmp_path / "broken"))
    for write in (
        lambda path: np.save(path, np.array([Harmful()], dtype=object), allow_pickle=True),
        lambda path: path.write_bytes(pickle.dumps(Harmful())),
    ):
        write(folder / "params_0.npy")
        assert "is no complete copy of OpenAI's release: " in refusal(folder, tmp_path / "out", num_attention_heads=4)
    (tmp_path / "openai").mkdir()
    OpenAIGPTConfig(architectures=["OpenAIGPTLMHeadModel"]).save_pretrained(tmp_path / "openai")
    path = tmp_path / "openai" / "pytorch_model.bin"
    torch.save({"tokens_embed.weight": Harmful()}, path)
    with pytest.raises(pickle.UnpicklingError):
        convert_checkpoint(tmp_path / "openai", tmp_path / "out")
    assert not (tmp_path / "harmed").exists()


def test_sources_that_are_no_model_are_refused(tmp_path):
    text = refusal(tmp_path / "absent", tmp_path / "out")
    assert "has neither config.json nor params_shapes.json" in text
    assert "`hf download openai-community/" in text


def test_weights_of_another_model_are_refused(openai_folder, tmp_path):
    path = openai_folder / "model.safetensors"
    whole, name = load_file(path), "transformer.h.0.ln_1.weight"
    for weights, message in (
        ({key: weight for key, weight in whole.items() if key != name}, f"{{'missing': ['{name}']}}"),
        ({**whole, "more": torch.ones(3)}, "{'unexpected': ['more']}"),
        ({**whole, name: torch.ones(31)}, f"[('{name}', torch.Size([31]), torch.Size([32]))]"),
    ):
        save_file(weights, path, metadata={"format": "pt"})
        assert message in refusal(openai_folder, tmp_path / "out")
    for name in ("OpenAIGPTForTags", "GPT1LSTMForCausalLM"):  # 12 heads do not divide an LSTM's 16
        edit_json(openai_folder / "config.json", lambda _, name=name: {"architectures": [name], "hidden_size": 16})
        text = refusal(openai_folder, tmp_path / "out")
        assert f"`architectures` names {name}, but one of GPT1Model, GPT1ForCausalLM" in text
    assert names_in(tmp_path) == {"openai"}


@pytest.mark.parametrize(("name", "value"), [("summary_type", "mean"), ("summary_activation", "tanh")])
def test_a_head_that_gpt1_does_not_have_is_refused(make_openai, tmp_path, name, value):
    make_openai(OpenAIGPTDoubleHeadsModel, **{name: value}).save_pretrained(tmp_path / "openai")
    needed = {"summary_type": "'cls_index'", "summary_activation": "None"}[name]
    expected = f"`{name}` is {value!r} in the configuration of this openai-gpt, but GPT-1 supports only {needed}"
    assert refusal(tmp_path / "openai", tmp_path / "out").startswith(expected)
    with pytest.raises(ValueError, match=f"`{name}` is {value!r}"):
        GPT1DoubleHeadsModel.from_pretrained(tmp_path / "openai")


@pytest.mark.parametrize(
    ("model_class", "fields", "message"),
    [
        (GPT1ForCausalLM, {"hidden_act": "gelu"}, "`hidden_act` is 'gelu', but openai-gpt has only 'gelu_py"),
        (GPT1ForCausalLM, {"intermediate_size": 64}, "{'mismatched': [('transformer.h.0.mlp.c_fc.bias'"),
        (GPT1ForCausalLM, {"do_layer_norm_before": True}, "`do_layer_norm_before` is True, but openai-gpt has only"),
        (GPT1ForCausalLM, {"sliding_window": 3}, "`sliding_window` is 3, but openai-gpt has only None."),
        (GPT1ForSequenceClassification, {"traversal": "similarity"}, "`traversal` is 'similarity', but "),
        (GPT1ForSequenceClassification, {}, "head has a bias, but OpenAIGPTForSequenceClassification has no place f"),
        (GPT1DoubleHeadsModel, {}, "open the model with GPT1ForCausalLM and save that first"),
        (GPT1ForMultipleChoice, {"tie_word_embeddings": False}, "{'missing': ['lm_head.weight']}"),
    ],
)
def test_what_openai_gpt_has_no_place_for_is_refused(tiny_model, tmp_path, model_class, fields, message):
    tiny_model(model_class, **fields).save_pretrained(tmp_path / "gpt1")
    assert message in refusal(tmp_path / "gpt1", tmp_path / "out")
    assert names_in(tmp_path) == {"gpt1"}
