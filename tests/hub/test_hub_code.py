"""Saved folders carry the code that opens them, in an environment of torch, transformers and what these two need."""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch
import transformers
from hub.open_folders import outputs_of, read_texts
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from safetensors.torch import load_file, save_file
from support.hub_code import HUB_CODE, HUB_CODE_OF_LSTM, SOURCE
from transformers import AutoConfig, AutoModel, AutoTokenizer, TrainingArguments

import modeling_gpt1
from modeling_gpt1.families import family_of_model
from modeling_gpt1.hub.card import model_card
from tokenization import GPT1Tokenizer

# What is saved, and the class that opens it.
CASES = {
    "lm": (modeling_gpt1.GPT1ForCausalLM, None, "AutoModelForCausalLM"),
    "classification": (
        modeling_gpt1.GPT1ForSequenceClassification,
        "classification",
        "AutoModelForSequenceClassification",
    ),
    "heads": (modeling_gpt1.GPT1DoubleHeadsModel, "multiple_choice", "GPT1DoubleHeadsModel"),
    "heads-similarity": (modeling_gpt1.GPT1DoubleHeadsModel, "similarity", "AutoModelForSequenceClassification"),
    "heads-choice": (modeling_gpt1.GPT1DoubleHeadsModel, "multiple_choice", "AutoModelForMultipleChoice"),
    "from-the-hub": (modeling_gpt1.GPT1DoubleHeadsModel, "entailment", "AutoModel"),
    "tokens": (modeling_gpt1.GPT1ForTokenClassification, None, "AutoModelForTokenClassification"),
    "answers": (modeling_gpt1.GPT1ForQuestionAnswering, None, "AutoModelForQuestionAnswering"),
    "lstm-tokens": (modeling_gpt1.GPT1LSTMForTokenClassification, None, "AutoModelForTokenClassification"),
    "lstm-choice": (modeling_gpt1.GPT1LSTMDoubleHeadsModel, "multiple_choice", "AutoModelForMultipleChoice"),
}
# Opened by what their cards say.
OF_CARDS = {
    "classifier": modeling_gpt1.GPT1ForSequenceClassification,
    "language-model": modeling_gpt1.GPT1ForCausalLM,
    "chooser": modeling_gpt1.GPT1ForMultipleChoice,
    "tagger": modeling_gpt1.GPT1ForTokenClassification,
    "answerer": modeling_gpt1.GPT1ForQuestionAnswering,
}
TEXTS = [
    "the old farmer walked to the market .",
    ["the film was slow ,", "but the last scene made the room laugh"],
    "[s] the girl [$] smiled [e] <unk> $5",
    "Nobody's letter – \u201cwhy?\u201d\n\nThe river\tturned\u00a0GREEN…",
    "",
    "東京 🙂 \ud800".encode("utf-8", "replace").decode(),
]


def batch_for(traversal: str | None) -> dict[str, torch.Tensor]:
    shape = {"similarity": (3, 2, 9), "multiple_choice": (3, 4, 9)}.get(traversal, (3, 9))
    return {"input_ids": torch.randint(1, 101, shape, generator=torch.Generator().manual_seed(1))}


def opener(name: str) -> type:
    return getattr(transformers, CASES[name][2], modeling_gpt1.GPT1DoubleHeadsModel)


def class_opened(name: str) -> str:
    model_class, _, opened_with = CASES[name]
    return model_class.config_class.auto_classes.get(opened_with, opened_with).split(".")[-1]


def code_of(model, folder: Path, trust: bool) -> str:
    """What the model's card gives to open it, with the package or with trust in the code of the folder."""
    card = model_card(family_of_model(model).card_facts(model, str(folder)))
    _, with_package, with_trust = card.text.split("```python\n")
    return (with_trust if trust else with_package).split("```")[0]


def assert_same(given: torch.Tensor, expected: torch.Tensor) -> None:
    # Where the weights lie in memory decides the last bit of a product.
    torch.testing.assert_close(given, expected, atol=1e-5, rtol=1e-5)


def distributions_of(*names: str) -> list[importlib.metadata.Distribution]:
    """The installed distributions of these names and all that they need."""
    found = {}
    to_visit = list(names)
    while to_visit:
        name = canonicalize_name(to_visit.pop())
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        needed = [Requirement(line) for line in found[name].requires or []]
        to_visit += [need.name for need in needed if need.marker is None or need.marker.evaluate({"extra": ""})]
    return list(found.values())


def make_environment(folder: Path) -> Path:
    """A virtual environment with links to torch, transformers and what they need; returns its interpreter."""
    venv.create(folder, symlinks=True)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for distribution in distributions_of("torch", "transformers"):
        tops = {file.parts[0] for file in distribution.files if file.parts[0] not in ("..", "__pycache__")}
        for top in tops:
            source = Path(distribution.locate_file(top))
            link = site_packages / top
            if source.exists() and not link.exists():
                link.symlink_to(source, target_is_directory=source.is_dir())
    return folder / "bin" / "python"


def put_into_cache(folder: Path, home: Path) -> str:
    """Lay a folder into the cache of huggingface_hub, as after a download; returns the name on the hub."""
    commit = "0" * 39 + "1"
    cached = home / "hub" / "models--someone--tiny"
    shutil.copytree(folder, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    return "someone/tiny"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_model, tiny_tokenizer):
    """Saved models with what each gives, and a classifier with its tokenizer."""
    root = tmp_path_factory.mktemp("hub")
    models = []
    for name, (model_class, traversal, opened_with) in CASES.items():
        tiny_model(model_class, traversal=traversal).save_pretrained(root / name)
        reads_examples = not class_opened(name).endswith(("GPT1Model", "CausalLM"))
        batch = batch_for(traversal if reads_examples else None)
        save_file(batch, root / f"{name}.batch.safetensors")
        source = put_into_cache(root / name, root / "hf") if name == "from-the-hub" else str(root / name)
        models.append({"name": name, "source": source, "opened_with": opened_with})
    usages = {}
    for folder, model_class in OF_CARDS.items():
        model = tiny_model(model_class, vocab_size=len(tiny_tokenizer), max_position_embeddings=64)
        for part in (model, tiny_tokenizer):
            part.save_pretrained(root / folder)
        usages[folder] = code_of(model, root / folder, trust=True)
    cases = {"models": models, "texts": TEXTS, "usages": usages}
    (root / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def report(folders, tmp_path_factory):
    """What `open_folders.py` saw without this package."""
    python = make_environment(tmp_path_factory.mktemp("environment") / "venv")
    settings = {"HF_HOME": str(folders / "hf"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    # -I: neither PYTHONPATH nor the working folder may bring the package back.
    command = [str(python), "-I", str(Path(__file__).with_name("open_folders.py")), str(folders)]
    settings["PATH"] = os.environ["PATH"]
    run = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    seen = json.loads((folders / "report.json").read_text(encoding="utf-8"))
    assert seen["importable"] == []  # no part of this project
    return seen


@pytest.mark.parametrize("name", CASES)
def test_folder_opens_without_the_package(report, folders, name):
    opened = report["opened"][name]
    classes = [CASES[name][0].config_class.__name__, class_opened(name)]
    assert [opened["config"], opened["model"], opened["is_remote"]] == [*classes, True]
    with_the_package = opener(name).from_pretrained(folders / name).eval()
    expected = outputs_of(with_the_package, load_file(folders / f"{name}.batch.safetensors"))
    assert expected != {}
    for which in ("opened", "reopened"):
        given = load_file(folders / f"{name}.{which}.safetensors")
        assert given.keys() == expected.keys()
        for output in expected:
            assert_same(given[output], expected[output])
    # Saved again there, it is whole, and the package opens it.
    code = HUB_CODE | HUB_CODE_OF_LSTM if "lstm" in name else HUB_CODE
    assert {file for file in opened["files"] if file.endswith(".py")} == code
    for file in code:
        assert (folders / "again" / name / file).read_bytes() == (SOURCE / file).read_bytes()
    reopened = opener(name).from_pretrained(folders / "again" / name).eval()
    for output, tensor in outputs_of(reopened, load_file(folders / f"{name}.batch.safetensors")).items():
        assert_same(tensor, expected[output])


def test_code_runs_only_if_the_user_trusts_it_and_a_tokenizer_needs_none(report, folders, tiny_tokenizer):
    assert "Please pass the argument `trust_remote_code=True` to allow custom code to be run." in report["refusal"]
    seen = report["tokenizer"]
    assert seen == {**read_texts(tiny_tokenizer, TEXTS), "class": "TokenizersBackend"}
    control = set(seen["control_ids"])
    assert len(control) == 3
    assert not any(control & set(ids) for ids in seen["plain_ids"])
    assert [path.name for path in (folders / "classifier").glob("token*")] != []
    assert not list((folders / "classifier").glob("tokenization*.py"))


@pytest.mark.parametrize("folder", OF_CARDS)
def test_the_cards_code_runs_without_the_package(report, folders, folder, capsys):
    """It prints what the code for users of the package prints; a language model draws, so its prompt is compared."""
    printed = report["printed"][folder]
    model_class = OF_CARDS[folder]
    if model_class is modeling_gpt1.GPT1ForCausalLM:
        assert printed.startswith("[{'generated_text': 'it was ")
        return
    exec(code_of(model_class.from_pretrained(folders / folder), folders / folder, trust=False), {})
    expected = capsys.readouterr().out
    numbers = [[float(number) for number in re.findall(r"\d\.\d+", text)] for text in (printed, expected)]
    tolerance = 5e-5 if torch.accelerator.is_available() else 1e-5
    assert numbers[0] == pytest.approx(numbers[1], abs=tolerance)
    assert len(numbers[0]) > 0
    assert re.sub(r"\d\.\d+", "", printed) == re.sub(r"\d\.\d+", "", expected)


def test_what_the_code_is_saved_with(tiny_config, tiny_model, tmp_path):
    tiny_config().save_pretrained(tmp_path / "config")
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == sorted([*HUB_CODE, "config.json"])
    args = TrainingArguments(str(tmp_path / "trainer"), report_to="none", use_cpu=True)
    modeling_gpt1.GPT1PretrainingTrainer(tiny_model(modeling_gpt1.GPT1ForCausalLM), args).save_model()
    assert sorted(path.name for path in (tmp_path / "trainer").glob("*.py")) == sorted(HUB_CODE)


def test_a_model_with_a_configuration_of_the_users_own(tmp_path, monkeypatch):
    """Saved with the user's module, and trained: it is a GPT-1 whatever its type is called."""
    code = "from modeling_gpt1 import GPT1Config\n\n\nclass MyConfig(GPT1Config):\n    model_type, extra = 'mine', 1\n"
    (tmp_path / "own_config.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    config_class = importlib.import_module("own_config").MyConfig
    sizes = {"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model_class = type("MyModel", (modeling_gpt1.GPT1ForCausalLM,), {"config_class": config_class})
    model = model_class(config_class(**sizes, extra=7))
    args = TrainingArguments(str(tmp_path / "run"), report_to="none", use_cpu=True)
    modeling_gpt1.GPT1PretrainingTrainer(model, args).save_model()
    opened = model_class.from_pretrained(tmp_path / "run")
    ids = torch.ones(1, 3, dtype=torch.long)
    assert opened.config.extra == 7
    assert opened(ids).logits.tolist() == model.eval()(ids).logits.tolist()
    assert {path.name for path in (tmp_path / "run").glob("*.py")} == {*HUB_CODE, "own_config.py"}


def test_map_of_an_older_save_is_replaced_and_classes_of_the_user_stay(tiny_model, tmp_path):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel, traversal="multiple_choice")
    model.config.auto_map = {
        "AutoModelForSequenceClassification": "someone/else--modeling_gpt1.GPT1ForSequenceClassification",
        "AutoModelForCausalLM": "chatty.ChattyGPT1",
        "AutoModelForMultipleChoice": "someone/choices--choices.GPT1ForChoices",  # of the model that was opened
        "AutoModelForObjectDetection": "someone/tags--tags.GPT1ForTags",
    }
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["auto_map"] == {
        "AutoConfig": "configuration_gpt1.GPT1Config",
        "AutoModel": "modeling_gpt1.GPT1Model",
        "AutoModelForCausalLM": "chatty.ChattyGPT1",
        "AutoModelForMultipleChoice": "modeling_gpt1.GPT1ForMultipleChoice",
        "AutoModelForTokenClassification": "modeling_gpt1.GPT1ForTokenClassification",
        "AutoModelForQuestionAnswering": "modeling_gpt1.GPT1ForQuestionAnswering",
        "AutoModelForObjectDetection": "someone/tags--tags.GPT1ForTags",
    }


def fetched_modules() -> set[str]:
    return {name for name in sys.modules if name.startswith("transformers_modules.")}


@pytest.mark.parametrize("trust", [{}, {"trust_remote_code": True}, {"trust_remote_code": False}])
def test_the_package_opens_folders_with_its_own_classes(folders, monkeypatch, trust):
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("a question was asked"))
    before = fetched_modules()
    for name in ("lm", "classification", "heads-choice"):
        assert type(opener(name).from_pretrained(folders / name, **trust)).__name__ == class_opened(name)
        assert type(AutoConfig.from_pretrained(folders / name, **trust)) is modeling_gpt1.GPT1Config
    assert type(AutoModel.from_pretrained(folders / "lm", **trust)) is modeling_gpt1.GPT1Model
    assert type(AutoTokenizer.from_pretrained(folders / "classifier", **trust)) is GPT1Tokenizer
    heads = modeling_gpt1.GPT1DoubleHeadsModel.from_pretrained(folders / "heads-choice", **trust)
    assert type(heads) is modeling_gpt1.GPT1DoubleHeadsModel
    assert fetched_modules() == before
