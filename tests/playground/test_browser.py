"""Pages without a server: what they hold, and that their JavaScript writes the tokens of `generate`."""

import base64
import copy
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import support.refusals
import torch
from safetensors.torch import load_file, save_file
from support.files import save_folder
from support.tiny import byte_level

from modeling_gpt1 import GPT1ForCausalLM, GPT1LSTMForCausalLM
from modeling_gpt1.commands import playground
from modeling_gpt1.playground import browser
from modeling_gpt1.playground.browser import page_data, write_page
from tokenization import join_continuation

PROMPTS = ["the old farmer", "She didn't pay,", '"it\'s slow," he said\r\n', "<unk> [e] 5km ☃", "a"]
NODE_PROGRAM = """
const { Tokenizer, Model, readNumbers, continueText, joinTokens, makeRandom } = require(process.argv[1]);
const { settings, weights, prompts, choice } = JSON.parse(require("node:fs").readFileSync(0, "utf8"));
const tokenizer = new Tokenizer(settings.tokenizer);
const model = new Model(settings.config, settings.names, readNumbers(weights, settings.format));
const answers = [];
for (const prompt of prompts) {
  const ids = tokenizer.encode(prompt);
  const { seed = 7, ...others } = choice;
  const options = { endIds: settings.end_ids, random: makeRandom(seed), ...others };
  const tokens = [...continueText(model, ids, options)].filter((token) => token !== null);
  const written = tokens.map((token) => token.id);
  const texts = joinTokens(tokenizer, tokenizer.words(prompt), written);
  const probabilities = tokens.map((token) => token.probability);
  const likeliest = tokens.map((token) => token.likeliest);
  answers.push({ ids, written, text: texts.join(""), probabilities, likeliest });
}
console.log(JSON.stringify(answers));
"""
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
GREEDY = {"temperature": 0, "topP": 1, "length": 8}


@pytest.fixture
def make_model(tiny_model, plain_tokenizer):
    def make(**fields):
        sizes = {"vocab_size": len(plain_tokenizer), "max_position_embeddings": 64}
        return tiny_model(GPT1ForCausalLM, **{**sizes, **fields})

    return make


@pytest.fixture
def run_page(plain_tokenizer):
    """What the page's JavaScript writes after each prompt."""

    def run(model, **choice) -> list[dict]:
        data = page_data(model, plain_tokenizer)
        program = Path(browser.__file__).with_name("browser") / "model.js"
        content = {"settings": data.settings, "weights": data.weights, "prompts": PROMPTS, "choice": choice}
        done = subprocess.run(
            ["node", "-e", NODE_PROGRAM, str(program)],
            input=json.dumps(content),
            capture_output=True,
            text=True,
            check=True,
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def page(tmp_path_factory, save_model):
    folder = tmp_path_factory.mktemp("page")
    save_model(folder / "my <model>")
    write_page(str(folder / "my <model>"), folder / "page.html")
    return (folder / "page.html").read_text(encoding="utf-8")


@needs_node
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"do_layer_norm_before": True, "sliding_window": 3, "hidden_act": "relu"},
        {"tie_word_embeddings": False, "hidden_act": "silu", "hidden_size": 36, "intermediate_size": 50},
    ],
)
def test_the_page_writes_the_ids_of_generate(fields, make_model, run_page, plain_tokenizer):
    model = make_model(**fields).half().float()  # numbers that a page keeps
    for prompt, answer in zip(PROMPTS, run_page(model, **GREEDY), strict=True):
        inputs = plain_tokenizer(prompt, return_tensors="pt")
        expected = model.generate(**inputs, max_new_tokens=8, do_sample=False)[0].tolist()
        assert [*answer["ids"], *answer["written"]] == expected


@needs_node
def test_the_page_gives_the_probabilities_of_the_model(make_model, run_page):
    model = make_model().half().float()
    answer = run_page(model, **GREEDY)[0]
    ids = torch.tensor([[*answer["ids"], *answer["written"]]])
    shares = model(ids).logits[0, len(answer["ids"]) - 1 : -1].softmax(-1)
    expected = shares.gather(1, torch.tensor(answer["written"])[:, None])[:, 0].tolist()
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)


@needs_node
def test_the_page_names_the_five_likeliest_tokens(make_model, run_page):
    model = make_model().half().float()
    answer = run_page(model, **GREEDY)[0]
    expected = model(torch.tensor([answer["ids"]])).logits[0, -1].softmax(-1).topk(5)
    likeliest = answer["likeliest"][0]
    assert [token["id"] for token in likeliest] == expected.indices.tolist()
    assert [token["probability"] for token in likeliest] == pytest.approx(expected.values.tolist(), abs=1e-5)


@needs_node
def test_the_page_ends_where_generate_ends(make_model, run_page):
    model = make_model().half().float()
    written = run_page(model, **GREEDY)[0]["written"]
    end = written[3]
    for end_ids in (end, [end]):
        model.generation_config.eos_token_id = end_ids
        assert run_page(model, **GREEDY)[0]["written"] == written[: written.index(end)]


@needs_node
def test_the_page_joins_words_as_the_package_does(make_model, run_page, plain_tokenizer):
    # Random sampling from weights near 0 writes words and signs of all kinds.
    model = make_model()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    for prompt, answer in zip(PROMPTS, run_page(model, temperature=1, topP=1, length=50), strict=True):
        backend = plain_tokenizer.backend_tokenizer
        words = backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(prompt))
        before = " ".join(word for word, _ in words)
        text = plain_tokenizer.decode(answer["written"], clean_up_tokenization_spaces=False)
        assert answer["text"] == join_continuation(text, before)


@needs_node
def test_a_seed_decides_what_is_drawn(make_model, run_page):
    model = make_model()
    first, second = (run_page(model, temperature=1, topP=0.9, length=8) for _ in range(2))
    assert first == second
    assert first != run_page(model, **GREEDY)


@needs_node
def test_another_seed_draws_other_tokens(make_model, run_page):
    model = make_model()
    first, second = (run_page(model, temperature=1, topP=1, length=8, seed=seed) for seed in (1, 2))
    assert first[0]["written"] != second[0]["written"]


@needs_node
def test_a_low_temperature_draws_the_likeliest_tokens(make_model, run_page):
    model = make_model()
    assert run_page(model, temperature=1e-4, topP=1, length=8) == run_page(model, **GREEDY)


@needs_node
def test_top_p_keeps_the_likeliest_tokens(make_model, run_page):
    model = make_model()
    drawn = run_page(model, temperature=1, topP=1e-9, length=8)
    assert drawn == run_page(model, **GREEDY)


class TestWeights:
    def test_those_that_bfloat16_keeps_are_exact(self, make_model, plain_tokenizer):
        model = make_model().bfloat16().float()
        data = page_data(model, plain_tokenizer)
        halves = torch.frombuffer(bytearray(base64.b64decode(data.weights)), dtype=torch.bfloat16)
        assert data.settings["format"] == "bfloat16"
        first, size = data.settings["names"][0]
        assert torch.equal(halves[:size].float(), model.transformer.get_parameter(first).flatten())

    def test_others_are_in_half_precision(self, make_model, plain_tokenizer):
        model = make_model()
        data = page_data(model, plain_tokenizer)
        halves = torch.frombuffer(bytearray(base64.b64decode(data.weights)), dtype=torch.float16)
        assert data.settings["format"] == "float16"
        assert len(halves) == sum(size for _, size in data.settings["names"]) == model.num_parameters()


class TestPage:
    def test_no_host_is_asked_for_anything(self, page):
        assert re.findall(r"(?:src|href)\s*=|url\(|fetch\(|import\(|XMLHttpRequest|WebSocket|https?://", page) == []

    def test_the_policy_forbids_requests(self, page):
        assert "content=\"default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'\"" in page

    def test_the_models_name_is_text(self, page):
        assert "<h1>my &lt;model&gt;</h1>" in page

    def test_nothing_in_the_vocabulary_is_markup(self, page, plain_tokenizer):
        (settings,) = re.findall(r'<script type="application/json" id="settings">(.*?)</script>', page)
        assert "<" not in settings
        assert json.loads(settings)["tokenizer"]["model"]["vocab"]["<unk>"] == plain_tokenizer.unk_token_id

    def test_every_box_has_a_label(self, page):
        boxes = re.findall(r'<(?:input|textarea) id="([\w-]+)"', page)
        unlabelled = [box for box in boxes if not re.search(rf'for="{box}"|<label>[^<]*<\w+ id="{box}"', page)]
        assert (len(boxes), unlabelled) == (5, [])


def test_saved_settings_that_change_nothing_are_taken(make_model, plain_tokenizer):
    model = make_model()
    model.generation_config.update(repetition_penalty=1.0, num_beams=1, temperature=0.7, top_k=9, suppress_tokens=[])
    assert page_data(model, plain_tokenizer).settings["names"]


def test_the_page_of_the_folder_at_hand_has_its_name(tmp_path, save_model, monkeypatch):
    folder = tmp_path / "books"
    save_model(folder)
    monkeypatch.chdir(folder)
    write_page(".", tmp_path / "page.html")
    assert "<h1>books</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


class TestRefusals:
    def test_a_file_that_is_there(self, tmp_path):
        (tmp_path / "page.html").write_text("mine")
        message = support.refusals.refusal(write_page, "gpt1-novels", tmp_path / "page.html")
        assert f"{tmp_path / 'page.html'} is there already. Pass another name" in message

    def test_a_model_that_is_too_large(self, make_model, plain_tokenizer, monkeypatch):
        monkeypatch.setattr(browser, "MOST_PARAMETERS", 1000)
        model = make_model()
        message = support.refusals.refusal(page_data, model, plain_tokenizer)
        assert f"has {model.num_parameters():,} parameters, but a page holds at most 1,000" in message
        assert "`gpt1 convert --to js`" in message

    def test_a_tokenizer_of_another_kind(self, make_model):
        tokenizer = byte_level(["the old farmer"])
        message = support.refusals.refusal(page_data, make_model(), tokenizer)
        assert "The tokenizer is a TokenizersBackend, but a page has only GPT-1's" in message

    def test_an_activation_that_the_page_lacks(self, make_model, plain_tokenizer):
        message = support.refusals.refusal(page_data, make_model(hidden_act="gelu"), plain_tokenizer)
        assert "`hidden_act` is 'gelu', but a page has only gelu_pytorch_tanh" in message

    def test_a_tokenizer_with_an_added_word(self, make_model, plain_tokenizer):
        tokenizer = copy.deepcopy(plain_tokenizer)
        tokenizer.add_tokens(["Moby-Dick"])
        message = support.refusals.refusal(page_data, make_model(), tokenizer)
        assert "has added words, such as 'Moby-Dick'" in message
        assert "`gpt1 convert --to js`" in message

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("repetition_penalty", 1.3),
            ("guidance_scale", 1.5),
            ("num_beams", 4),
            ("no_repeat_ngram_size", 3),
            ("min_length", 20),
            ("min_new_tokens", 5),
            ("bad_words_ids", [[5]]),
            ("sequence_bias", [[[5], 1.0]]),
            ("suppress_tokens", [5]),
            ("begin_suppress_tokens", [5]),
            ("forced_bos_token_id", 0),
            ("forced_eos_token_id", 0),
            ("exponential_decay_length_penalty", [5, 1.1]),
            ("stop_strings", ["farmer"]),
            ("watermarking_config", {"bias": 2.5}),
        ],
    )
    def test_a_saved_setting_that_changes_the_text(self, name, value, make_model, plain_tokenizer):
        model = make_model()
        setattr(model.generation_config, name, value)
        message = support.refusals.refusal(page_data, model, plain_tokenizer)
        assert f"generation_config.json sets `{name}` to {value!r}" in message
        assert "Remove it there" in message

    @pytest.mark.parametrize("value", [math.nan, 7e4])
    def test_a_weight_that_16_bits_do_not_hold(self, value, make_model, plain_tokenizer):
        model = make_model()
        with torch.no_grad():
            model.transformer.h[1].ln_1.bias[3] = value
        message = support.refusals.refusal(page_data, model, plain_tokenizer)
        assert "The weight h.1.ln_1.bias has numbers that are NaN, infinite, or too large" in message
        assert "use another checkpoint" in message

    def test_a_dialogue_model(self, make_model, plain_tokenizer):
        message = support.refusals.refusal(page_data, make_model(speaker_token_ids=[1, 2]), plain_tokenizer)
        assert "is a dialogue model" in message
        assert "a page does not. Use `gpt1 generate --chat`" in message

    def test_a_folder_that_lacks_weights(self, tmp_path, save_model):
        folder = Path(save_model(tmp_path / "model"))
        weights = load_file(folder / "model.safetensors")
        del weights["transformer.h.0.mlp.up_proj.weight"]
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        message = support.refusals.refusal(write_page, str(folder), tmp_path / "page.html")
        assert "lacks weights of its GPT1ForCausalLM: transformer.h.0.mlp.up_proj.weight" in message
        assert not (tmp_path / "page.html").exists()

    def test_weights_that_are_pickled(self, tmp_path, save_model):
        folder = Path(save_model(tmp_path / "model"))
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
        with pytest.raises(OSError, match="no file named model.safetensors"):
            write_page(str(folder), tmp_path / "page.html")
        assert not (tmp_path / "page.html").exists()

    def test_a_page_and_a_space(self):
        message = support.refusals.refusal(playground.main, ["--write_page", "a.html", "--write_space", "b"])
        assert "--write_space and --write_page were both given" in message

    def test_an_lstm(self, tmp_path, tiny_model, plain_tokenizer):
        save_folder(tmp_path / "lstm", tiny_model(GPT1LSTMForCausalLM), plain_tokenizer)
        message = support.refusals.refusal(write_page, str(tmp_path / "lstm"), tmp_path / "page.html")
        assert "gpt1-lstm" in message

    def test_a_page_of_two_models(self, tmp_path, save_model):
        models = [save_model(tmp_path / "a"), save_model(tmp_path / "b")]
        arguments = ["--write_page", str(tmp_path / "page.html"), "--models", *models]
        message = support.refusals.refusal(playground.main, arguments)
        assert "--write_page writes a page of one model, but --models names 2" in message


def test_the_command_writes_a_page(tmp_path, save_model, capsys):
    playground.main(["--write_page", str(tmp_path / "page.html"), "--models", save_model(tmp_path / "model")])
    assert capsys.readouterr().out == f"written to {tmp_path / 'page.html'}\n"
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
