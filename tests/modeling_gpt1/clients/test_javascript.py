"""Folders for JavaScript: their ONNX file gives the model's logits, and transformers.js, where it is, its ids."""

import json
import os
import re
import shutil
import subprocess
from functools import partial
from pathlib import Path

import onnxruntime
import pytest
import support.refusals
import torch
from support.files import save_folder
from support.tensors import close
from support.tiny import SENTENCES

from modeling_gpt1 import GPT1ForCausalLM, GPT1ForSequenceClassification
from modeling_gpt1.clients import javascript
from modeling_gpt1.clients.javascript import (
    ONNX_FILE,
    check_is_language_model,
    convert_to_javascript,
    write_in_8_bits,
    write_settings,
    write_tokenizer,
)
from modeling_gpt1.commands import convert
from tokenization import GPT1Tokenizer, train_tokenizer

refusal = partial(support.refusals.refusal, convert_to_javascript)
PROMPTS = ["the old farmer", "She didn't pay,", '"it\'s slow," he said\r\n', "<unk> [e] 5km ☃"]
NODE_MODULES = os.environ.get("GPT1_NODE_MODULES", "")
NODE_PROGRAM = """
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
const { pipeline, env } = createRequire(process.env.GPT1_NODE_MODULES + "/")("@huggingface/transformers");
env.allowRemoteModels = false;
env.localModelPath = "/";
const generator = await pipeline("text-generation", process.argv[2]);
const answers = [];
for (const prompt of JSON.parse(readFileSync(0, "utf8"))) {
  const inputs = generator.tokenizer(prompt);
  const output = await generator.model.generate({ ...inputs, max_new_tokens: 8, do_sample: false });
  const ids = output.tolist()[0].map(Number);
  answers.push([ids, generator.tokenizer.decode(ids)]);
}
console.log(JSON.stringify(answers));
"""


@pytest.fixture(scope="module")
def converted(tmp_path_factory, tiny_model, plain_tokenizer):
    """A model with a dense and a banded layer, and its folder for JavaScript."""
    folder = tmp_path_factory.mktemp("converted")
    fields = {"vocab_size": len(plain_tokenizer), "max_position_embeddings": 64, "sliding_window": 3}
    model = tiny_model(GPT1ForCausalLM, **fields)
    save_folder(folder / "saved", model, plain_tokenizer)
    convert_to_javascript(folder / "saved", folder / "js")
    return model, folder / "js"


@pytest.fixture
def step(converted):
    """Computes logits by ONNX Runtime: `step(ids, mask, past)`, which also returns the keys and values."""
    model, folder = converted
    session = onnxruntime.InferenceSession(folder / ONNX_FILE)
    names = [put.name for put in session.get_inputs()]
    head_dim = model.config.hidden_size // model.config.num_attention_heads

    def run(ids, mask, past=None):
        if past is None:
            empty = torch.zeros(len(ids), model.config.num_attention_heads, 0, head_dim).numpy()
            past = [empty] * (len(names) - 2)
        logits, *present = session.run(None, dict(zip(names, [ids.numpy(), mask.numpy(), *past], strict=True)))
        return torch.from_numpy(logits), present

    return run


@pytest.fixture
def batch():
    """Ids `[3, 11]` and a mask with padding on the left of one row."""
    ids = torch.randint(1, 80, (3, 11), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    return ids, mask


def test_names_are_those_that_transformers_js_looks_for(converted):
    session = onnxruntime.InferenceSession(converted[1] / ONNX_FILE)
    cached = ["0.key", "0.value", "1.key", "1.value"]
    inputs = ["input_ids", "attention_mask", *(f"past_key_values.{name}" for name in cached)]
    assert [put.name for put in session.get_inputs()] == inputs
    assert [put.name for put in session.get_outputs()] == ["logits", *(f"present.{name}" for name in cached)]


def test_the_dimension_of_the_batch_has_the_name_that_transformers_js_fills(converted):
    session = onnxruntime.InferenceSession(converted[1] / ONNX_FILE)
    assert {put.shape[0] for put in session.get_inputs()} == {"batch_size"}


def test_texts_without_a_cache_have_the_models_logits(converted, step, batch):
    ids, mask = batch
    expected = converted[0](ids, mask).logits
    close(step(ids, mask)[0][mask.bool()], expected[mask.bool()], 1e-4)


@pytest.mark.parametrize("cuts", [(7,), (5, 6, 7, 8, 9, 10)])
def test_tokens_after_a_cache_have_the_models_logits(cuts, converted, step, batch):
    ids, mask = batch
    expected = converted[0](ids, mask).logits
    past = None
    for start, end in zip((0, *cuts), (*cuts, 11), strict=True):
        logits, past = step(ids[:, start:end], mask[:, :end], past)
    close(logits[:, -1], expected[:, -1], 1e-4)


def test_rows_without_padding_continue_after_a_cache(converted, step, batch):
    ids, _ = batch
    mask = torch.ones_like(ids)
    _, past = step(ids[:, :5], mask[:, :5])
    close(step(ids[:, 5:], mask, past)[0], converted[0](ids).logits[:, 5:], 1e-4)


def test_weights_in_8_bits_give_nearly_the_same_probabilities(converted, batch, tmp_path):
    ids, _ = batch
    write_in_8_bits(converted[1] / ONNX_FILE, tmp_path / "model_quantized.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model_quantized.onnx")
    empty = torch.zeros(3, 4, 0, 8).numpy()
    inputs = [ids.numpy(), torch.ones_like(ids).numpy(), *[empty] * 4]
    names = [put.name for put in session.get_inputs()]
    logits = torch.from_numpy(session.run(["logits"], dict(zip(names, inputs, strict=True)))[0])
    expected = converted[0](ids).logits
    assert (logits - expected).std() < 0.1 * expected.std()


def test_the_configuration_is_of_a_kind_that_transformers_js_knows(converted):
    settings = json.loads((converted[1] / "config.json").read_text())
    assert settings["model_type"] == "gpt2"
    assert (settings["n_embd"], settings["n_layer"], settings["n_head"]) == (32, 2, 4)


def test_browsers_load_the_only_weights_that_are_there(converted, tmp_path):
    model, folder = converted
    assert json.loads((folder / "config.json").read_text())["transformers.js_config"] == {"dtype": "fp32"}
    write_settings(model, tmp_path, has_8_bits=True)
    assert "transformers.js_config" not in json.loads((tmp_path / "config.json").read_text())


def test_special_tokens_are_left_out_of_decoded_text_only(converted):
    settings = json.loads((converted[1] / "tokenizer_config.json").read_text())
    assert settings["additional_special_tokens"] == ["<unk>"]
    assert json.loads((converted[1] / "tokenizer.json").read_text())["added_tokens"] == []


def test_another_tokenizer_is_decoded_and_bounded_as_gpt_1s(tiny_config, tmp_path):
    tokenizer = train_tokenizer(iter(SENTENCES), "bytes", show_progress=False)
    write_tokenizer(tokenizer, tiny_config(max_position_embeddings=64), tmp_path)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert settings["additional_special_tokens"] == ["<|endoftext|>"]
    assert settings["model_max_length"] == 64
    assert settings["clean_up_tokenization_spaces"] is False  # else JavaScript joins "a ." of a text
    assert json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"] == []


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.skipif(not NODE_MODULES, reason="GPT1_NODE_MODULES names no folder with @huggingface/transformers")
def test_transformers_js_gives_the_ids_of_generate(converted, tmp_path):
    model, folder = converted
    tokenizer = GPT1Tokenizer.from_pretrained(folder.parent / "saved")
    program = tmp_path / "program.mjs"
    program.write_text(NODE_PROGRAM)
    done = subprocess.run(
        ["node", program, str(folder)], input=json.dumps(PROMPTS), capture_output=True, text=True, check=True
    )
    expected = []
    for prompt in PROMPTS:
        ids = model.generate(**tokenizer(prompt, return_tensors="pt"), max_new_tokens=8, do_sample=False)[0].tolist()
        expected.append([ids, tokenizer.decode(ids)])
    assert json.loads(done.stdout.splitlines()[-1]) == expected


class TestRefusals:
    def test_a_classifier_continues_no_text(self, tmp_path, tiny_model, plain_tokenizer):
        model = tiny_model(GPT1ForSequenceClassification, vocab_size=len(plain_tokenizer))
        save_folder(tmp_path / "saved", model, plain_tokenizer)
        message = refusal(tmp_path / "saved", tmp_path / "js")
        assert "is a GPT1ForSequenceClassification, which continues no text. Pass a folder with" in message
        assert not (tmp_path / "js").exists()

    def test_a_dialogue_model(self, tmp_path, tiny_model, plain_tokenizer):
        fields = {"vocab_size": len(plain_tokenizer), "speaker_token_ids": [1, 2]}
        save_folder(tmp_path / "saved", tiny_model(GPT1ForCausalLM, **fields), plain_tokenizer)
        message = refusal(tmp_path / "saved", tmp_path / "js")
        assert "is a dialogue model" in message
        assert "transformers.js does not" in message
        assert not (tmp_path / "js").exists()

    def test_a_folder_that_names_its_classifier_first_has_a_language_model(self, tmp_path):
        names = ["GPT1ForSequenceClassification", "GPT1DoubleHeadsModel"]
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt1", "architectures": names}))
        check_is_language_model(tmp_path)

    def test_a_folder_with_files_is_left_alone(self, tmp_path, save_model):
        save_model(tmp_path / "saved")
        message = refusal(tmp_path / "saved", tmp_path)
        assert f"{tmp_path} is not an empty folder" in message

    @pytest.mark.parametrize(
        ("quantize", "told"),
        [(False, "not installed: onnxscript."), (True, "not installed: onnxscript, onnxruntime.")],
    )
    def test_missing_packages_are_named_before_anything_is_written(
        self, quantize, told, tmp_path, save_model, monkeypatch
    ):
        save_model(tmp_path / "saved")
        monkeypatch.setattr(javascript, "find_spec", lambda package: None)
        with pytest.raises(ImportError, match=re.escape(told)):
            convert_to_javascript(tmp_path / "saved", tmp_path / "js", quantize)
        assert not (tmp_path / "js").exists()

    def test_8_bits_are_for_javascript(self, tmp_path):
        message = support.refusals.refusal(convert.main, ["x", "--quantize", "--output_dir", str(tmp_path / "new")])
        assert "--quantize is for folders for JavaScript. Add --to js" in message


def test_the_command_names_the_new_folder(tmp_path, save_model, monkeypatch, capsys):
    def write(source, output_dir, quantize):
        Path(output_dir).mkdir()
        return GPT1ForCausalLM.from_pretrained(source)

    monkeypatch.setattr(convert, "convert_to_javascript", write)
    save_model(tmp_path / "saved")
    convert.main([str(tmp_path / "saved"), "--to", "js", "--output_dir", str(tmp_path / "js")])
    assert f"written to {tmp_path / 'js'}" in capsys.readouterr().out
