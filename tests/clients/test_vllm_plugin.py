"""vLLM's plugin, with stand-ins for the names of vLLM that it uses; tests/clients/programs/vllm.py runs vLLM."""

import re
import sys
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType, SimpleNamespace

import pytest
import torch
import transformers
from support.finetuning import make_double_heads_model, make_letter_tokenizer, make_small_config

from modeling_gpt1 import GPT1ForSequenceClassification, GPT1LSTMConfig, modeling_gpt1, modeling_gpt1_lstm
from modeling_gpt1.clients import vllm_plugin
from modeling_gpt1.configuration_gpt1 import UserError


@dataclass
class WeightsMapper:
    """vLLM's: regular expressions come first, then parts of names. None leaves a weight out."""

    orig_to_new_regex: dict = field(default_factory=dict)
    orig_to_new_substr: dict = field(default_factory=dict)

    def __or__(self, other):
        return WeightsMapper(
            {**self.orig_to_new_regex, **other.orig_to_new_regex},
            {**self.orig_to_new_substr, **other.orig_to_new_substr},
        )

    def map_name(self, name):
        for pattern, new in self.orig_to_new_regex.items():
            if pattern.search(name):
                if new is None:
                    return None
                name = pattern.sub(new, name)
        return None if any(part in name for part in self.orig_to_new_substr) else name


class Base(torch.nn.Module):
    """Opens the decoder, and maps the names of a folder to it, as vLLM's class does."""

    def __init__(self, *, vllm_config, prefix=""):
        super().__init__()
        self.model = transformers.AutoModel.from_config(vllm_config.model_config.hf_config)
        self.hf_to_vllm_mapper = WeightsMapper({re.compile(r"^transformer\.(.+)"): r"model.\1"}, {"score.bias": None})

    def init_parameters(self, module, dtype):
        module.to_empty(device="cpu").to(dtype)


class Registry:
    def __init__(self):
        self.models = {}

    def register_model(self, architecture, model):
        self.models[architecture] = model


@pytest.fixture
def vllm(monkeypatch):
    """Stand-ins for vLLM's modules; returns its registry."""
    registry = Registry()
    layers = "vllm.model_executor.layers"
    models = "vllm.model_executor.models"
    pooler = SimpleNamespace(for_seq_cls=lambda config, classifier: (config, classifier))
    names = {
        "vllm": {"ModelRegistry": registry},
        "vllm.model_executor": {},
        layers: {},
        f"{layers}.pooler": {"DispatchPooler": pooler},
        models: {},
        f"{models}.interfaces": {"SupportsCrossEncoding": type("SupportsCrossEncoding", (), {})},
        f"{models}.interfaces_base": {"VllmModelForPooling": type("VllmModelForPooling", (), {})},
        f"{models}.transformers": {"TransformersForCausalLM": type("TransformersForCausalLM", (Base,), {})},
        f"{models}.transformers.base": {"Base": Base},
        f"{models}.utils": {"WeightsMapper": WeightsMapper},
    }
    for name, content in names.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "modeling_gpt1.clients.vllm_models", raising=False)
    monkeypatch.setattr(transformers, "GPT1ForCausalLM", None, raising=False)  # taken away again afterwards
    yield registry
    sys.modules.pop("modeling_gpt1.clients.vllm_models", None)


def class_of(registry, architecture):
    """The class that vLLM opens for an architecture."""
    vllm_plugin.register()
    module, name = registry.models[architecture].split(":")
    return getattr(import_module(module), name)


def open_model(registry, architecture, config):
    model_config = SimpleNamespace(hf_config=config, head_dtype=torch.float32, pooler_config=None)
    return class_of(registry, architecture)(vllm_config=SimpleNamespace(model_config=model_config))


def test_the_plugin_is_an_entry_point_of_this_package():
    from importlib.metadata import entry_points

    values = [point.value for point in entry_points(group="vllm.general_plugins") if point.name == "gpt1"]
    assert set(values) == {"modeling_gpt1.clients.vllm_plugin:register"}


def test_the_language_models_and_the_paper_s_heads_are_registered(vllm):
    vllm_plugin.register()
    heads = ("ForCausalLM", "DoubleHeadsModel", "ForSequenceClassification", "ForMultipleChoice")
    names = [*modeling_gpt1.__all__, *modeling_gpt1_lstm.__all__]
    assert set(vllm.models) == {name for name in names if name.endswith(heads)}


def test_transformers_has_the_language_model_for_model_impl_transformers(vllm):
    vllm_plugin.register()
    assert transformers.GPT1ForCausalLM is modeling_gpt1.GPT1ForCausalLM


@pytest.mark.parametrize("architecture", ["GPT1DoubleHeadsModel", "GPT1ForSequenceClassification"])
def test_every_weight_of_a_folder_has_a_place_and_every_place_a_weight(vllm, architecture):
    model = make_double_heads_model("entailment", make_letter_tokenizer())
    if architecture == "GPT1ForSequenceClassification":
        model = GPT1ForSequenceClassification(model.config)
    served = open_model(vllm, architecture, model.config)
    mapped = {served.hf_to_vllm_mapper.map_name(name) for name in model.state_dict()}
    assert mapped - {None} == set(served.state_dict())


def test_without_the_names_of_heads_the_bias_is_lost(vllm):
    model = make_double_heads_model("entailment", make_letter_tokenizer())
    class_of(vllm, "GPT1DoubleHeadsModel")
    plain = Base(vllm_config=SimpleNamespace(model_config=SimpleNamespace(hf_config=model.config)))
    assert plain.hf_to_vllm_mapper.map_name("task_head.score.bias") is None


def test_the_language_model_of_a_fine_tuned_folder_leaves_the_task_head_out(vllm):
    model = make_double_heads_model("similarity", make_letter_tokenizer())
    served = open_model(vllm, "GPT1ForCausalLM", model.config)
    names = {name: served.hf_to_vllm_mapper.map_name(name) for name in model.state_dict()}
    assert [name for name, mapped in names.items() if mapped is None] == [
        "task_head.score.weight",
        "task_head.score.bias",
    ]


def test_the_last_token_is_scored(vllm):
    assert class_of(vllm, "GPT1DoubleHeadsModel").default_seq_pooling_type == "LAST"


@pytest.mark.parametrize("case", ["similarity", "regression", "multiple_choice"])
def test_a_traversal_of_several_sequences_is_refused(vllm, case):
    config = make_double_heads_model(case, make_letter_tokenizer()).config
    with pytest.raises(UserError, match=f"traversal is '{config.traversal}'.*gpt1 serve"):
        open_model(vllm, "GPT1DoubleHeadsModel", config)


@pytest.mark.parametrize("architecture", ["GPT1LSTMForCausalLM", "GPT1LSTMDoubleHeadsModel"])
def test_the_lstm_is_refused(vllm, architecture):
    config = GPT1LSTMConfig(vocab_size=20, hidden_size=8, lstm_hidden_size=8, traversal="classification")
    with pytest.raises(UserError, match="type 'gpt1-lstm'.*gpt1 serve"):
        open_model(vllm, architecture, config)


@pytest.mark.parametrize("architecture", ["GPT1ForCausalLM", "GPT1DoubleHeadsModel"])
def test_a_dialogue_model_is_refused(vllm, architecture):
    config = make_small_config(vocab_size=20, traversal="multiple_choice", speaker_token_ids=[4, 5])
    with pytest.raises(UserError, match="dialogue model.*gpt1 serve"):
        open_model(vllm, architecture, config)


def test_a_language_model_is_opened(vllm):
    served = open_model(vllm, "GPT1ForCausalLM", make_small_config(vocab_size=20))
    assert type(served).__name__ == "GPT1LanguageModel"
