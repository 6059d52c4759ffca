"""The model that comes with the package: found by its name in all commands, as it was measured, a draft for others."""

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from support.refusals import refusal

from modeling_gpt1 import NOVELS, GPT1Config, GPT1ForCausalLM, prepare_finetuning
from modeling_gpt1.commands.arguments import parser_of
from modeling_gpt1.families.opening import name_for_others
from modeling_gpt1.layouts_gpt1 import base_of_adapter
from tokenization import GPT1Tokenizer, open_tokenizer

ROOT = Path(__file__).parents[2]
# Of no book.
TEXT = """The rain had fallen since the morning, and the road to the village was deep in mud. Mrs. Hartley stood at the
window of the parlour and looked for the carriage which was to bring her brother from the station. "He will not come
to-night," said the old man by the fire. "He said that he would come," she answered, "and he never broke his word." At
that moment there was a sound of wheels, and a servant ran to open the door."""


@pytest.fixture(scope="module")
def novels():
    return GPT1ForCausalLM.from_pretrained(NOVELS).eval(), GPT1Tokenizer.from_pretrained(NOVELS)


@pytest.fixture(scope="module")
def measured():
    newest = max((ROOT / "benchmarks" / "results").glob("????-??-??-novels.json"))
    return json.loads(newest.read_text(encoding="utf-8"))["results"]


# Words that a command cannot do without.
NEEDED = {
    "evaluate": "--tasks copa",
    "predict": "--file rows.csv",
    "surprisal": "--texts a",
    "reproduce": "--output_dir out",
    "convert": "--output_dir out",
    "finetune": "--task sst2",
    "pretrain": "--train_files book.txt",
}


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        *((command, "model") for command in ("finetune", "pretrain", "generate", "zero-shot", "evaluate", "predict")),
        ("surprisal", "model"),
        ("serve", "model"),
        *[("finetune", "tokenizer_name"), ("reproduce", "model"), ("playground", "models"), ("convert", "source")],
    ],
)
def test_every_command_knows_the_name(command, flag, tmp_path, monkeypatch):
    def read(name):
        parser = parser_of(command)
        objects = parser.read([f"--{flag}", name, *NEEDED.get(command, "").split()])
        (value,) = [vars(one)[flag] for one in objects if flag in vars(one)]
        assert parser.settings[flag] in (name, [name])  # a run's settings hold on other machines, too
        return value[0] if flag == "models" else value

    monkeypatch.chdir(tmp_path)
    assert read("gpt1-novels") == NOVELS
    for name in ("gpt1-novel", "me/gpt1-novels", "gpt2"):
        assert read(name) == name
    (tmp_path / "gpt1-novels").mkdir()
    assert read("gpt1-novels") == "gpt1-novels"


def test_python_knows_the_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "Pass its folder, `modeling_gpt1.NOVELS`" in refusal(open_tokenizer, "gpt1-novels")
    assert prepare_finetuning("gpt1-novels", "sst2")["model"].config.num_hidden_layers == 4


PLACES_OF_BASES = {
    "gpt1-novels": NOVELS,
    "/elsewhere/gpt1-novels": NOVELS,
    NOVELS: NOVELS,
    "me/gpt1-novels": "me/gpt1-novels",
}


@pytest.mark.parametrize(("base", "found"), PLACES_OF_BASES.items())
def test_an_adapter_finds_it_in_another_installation(base, found, tmp_path):
    Path(tmp_path, "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}), encoding="utf-8")
    assert base_of_adapter(str(tmp_path)) == found
    for own in ({}, {"base_model_name_or_path": str(tmp_path)}):
        Path(tmp_path, "adapter_config.json").write_text(json.dumps(own), encoding="utf-8")
        assert "json names no other `base_model_name_or_path`" in refusal(base_of_adapter, str(tmp_path))


def test_files_for_others_have_its_short_name_unless_a_folder_here_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [NOVELS, "gpt1-novels", "me/gpt1-novels", "", None]
    assert [name_for_others(name) for name in names] == ["gpt1-novels", "gpt1-novels", "me/gpt1-novels", "", None]
    (tmp_path / "gpt1-novels").mkdir()
    assert name_for_others("gpt1-novels") == str(tmp_path / "gpt1-novels")


@pytest.mark.parametrize("base", ["/elsewhere/run", "a/folder/of/others"])
def test_an_adapter_whose_base_is_elsewhere_says_so(base, tmp_path):
    Path(tmp_path, "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}), encoding="utf-8")
    message = refusal(base_of_adapter, str(tmp_path))
    assert f"{tmp_path} is an adapter, but its base, {base}, is not here. Put the model" in message


def test_it_is_small_and_opens_in_float32(novels):
    files = {path.name: path.stat().st_size for path in Path(NOVELS).iterdir()}
    assert sum(files.values()) < 12e6
    assert not [name for name in files if name.endswith(".py")]
    with safe_open(Path(NOVELS, "model.safetensors"), "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"BF16"}
    assert novels[0].dtype == torch.float32
    assert novels[0].num_parameters() == 5_464_832
    assert novels[0].config.auto_map["AutoModelForCausalLM"] == "modeling_gpt1.GPT1ForCausalLM"  # trl looks there


def test_it_writes_and_reads_as_measured(novels, measured):
    model, tokenizer = novels
    ids = tokenizer(measured["prompt"], add_special_tokens=False, return_tensors="pt")["input_ids"]
    written = model.generate(ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
    assert written.tolist() == measured["greedy"]
    assert len(set(measured["greedy"])) > 3
    read = tokenizer(TEXT, add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert 20 < math.exp(model(read, labels=read).loss) < 90


def test_card_and_page_have_the_measured_figures(measured):
    card, page = (path.read_text(encoding="utf-8") for path in (Path(NOVELS, "README.md"), ROOT / "docs/generate.md"))
    assert measured["blimp_rows"] == 67_000
    assert len(measured["lines"]) == 10
    for part in (
        f"| held out | perplexity per token | {measured['perplexity']:.4f} |",
        f"| BLiMP, 67,000 pairs | accuracy | {measured['blimp']:.4f} |",
        f"| tokens seen in training | {measured['tokens']:,} |",
        'pipeline("text-generation", modeling_gpt1.NOVELS)',
        "no facts, follows no instructions",
    ):
        assert part in card, part
    assert "trust_remote_code" not in card
    assert "written without the training run" not in card
    assert "```text\n" + "\n".join(measured["lines"]) + "\n```" in page


def test_it_drafts_for_a_larger_model(novels):
    """Greedy search with the draft gives the text without it; a larger model that agrees is called less often."""
    small, tokenizer = novels
    torch.manual_seed(0)
    sizes = {"hidden_size": 320, "num_hidden_layers": 5, "num_attention_heads": 4}
    larger = GPT1ForCausalLM(GPT1Config(vocab_size=small.config.vocab_size, initializer_range=0.1, **sizes)).eval()
    ids = tokenizer("it was", add_special_tokens=False, return_tensors="pt")["input_ids"]
    for model in (larger, GPT1ForCausalLM.from_pretrained(NOVELS).eval()):
        calls, options = [], {"max_new_tokens": 16, "do_sample": False, "pad_token_id": 0}
        alone = model.generate(ids, **options)
        with model.register_forward_hook(lambda *_, calls=calls: calls.append(1)):
            drafted = model.generate(ids, assistant_model=small, **options)
        assert drafted.tolist() == alone.tolist()
        assert alone.shape == (1, 18)
    assert len(calls) < 12
