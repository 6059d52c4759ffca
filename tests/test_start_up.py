"""What starting up and opening a folder do: which modules are imported, which weights drawn and copied."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM

# Names of transformers that any file with a model and its registration takes.
NEEDED = (
    "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMultipleChoice, "
    "AutoModelForSequenceClassification, AutoTokenizer, GenerationMixin, PreTrainedModel, TokenizersBackend"
)
HEAVY = {"datasets", "evaluate", "pyarrow", "pandas", "transformers.trainer", "transformers.training_args"}
IMPORTS = f"""
import json, sys
{NEEDED}
before = set(sys.modules)
import modeling_gpt1, tokenization
after = set(sys.modules)
modeling_gpt1.GPT1Trainer, tokenization.load_task, modeling_gpt1.prepare_finetuning
to_train = set(sys.modules)
print(json.dumps([sorted(after - before), sorted(to_train - after)]))
"""


@pytest.fixture(scope="module")
def imports():
    """A process that imports the packages."""
    root = Path(__file__).parents[1]
    return subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True, cwd=root)


def test_imports_bring_neither_trainer_nor_datasets(imports):
    at_once, on_demand = map(set, json.loads(imports.stdout.splitlines()[-1]))
    assert HEAVY & at_once == set()
    assert {"modeling_gpt1.modeling_gpt1", "tokenization.tokenization_gpt1"} <= at_once
    assert not {"modeling_gpt1.training.trainer", "tokenization.corpus", "tokenization.tasks"} & at_once
    others = {name.partition(".")[0] for name in at_once} - {"modeling_gpt1", "tokenization", "transformers"}
    assert others - set(sys.stdlib_module_names) == set()
    assert {"datasets", "transformers.trainer"} <= on_demand  # the names above are those that would show


class Watch(TorchDispatchMode):
    """What happens on the CPU, other than on the meta device: shapes drawn at random, and bytes of copies."""

    def __init__(self):
        super().__init__()
        self.draws, self.copied = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and result.device.type == "cpu":
            name = function.overloadpacket.__name__
            if name in ("normal_", "uniform_"):
                self.draws.append(tuple(result.shape))
            if name in ("clone", "copy_", "_to_copy"):
                self.copied += result.numel() * result.element_size()
        return result


@pytest.fixture
def watch(monkeypatch):
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")  # else other threads read the tensors, unseen
    return Watch()


def test_opening_draws_and_copies_no_weight(watch, tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path)
    with watch:
        GPT1ForCausalLM.from_pretrained(tmp_path)
    assert watch.draws == []
    assert watch.copied == 0


def test_opening_draws_only_the_head_that_a_folder_lacks(watch, tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path)
    with watch:
        GPT1DoubleHeadsModel.from_pretrained(tmp_path, traversal="classification", num_labels=3)
    assert watch.draws == [(3, 32)]


def test_opening_an_openai_gpt_folder_copies_what_it_transposes_once(watch, tmp_path):
    size = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24}
    OpenAIGPTLMHeadModel(OpenAIGPTConfig(**size)).save_pretrained(tmp_path)
    with watch:
        GPT1ForCausalLM.from_pretrained(tmp_path)
    assert watch.draws == []
    assert watch.copied == size["n_layer"] * 12 * size["n_embd"] ** 2 * 4
