"""Which weights are converted when a folder is opened, which never are."""

import logging

import pytest
import torch
from safetensors.torch import load_file
from transformers import OpenAIGPTConfig, OpenAIGPTDoubleHeadsModel
from transformers.core_model_loading import ConversionOps

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1Model,
)

CLASSES = [
    GPT1Model,
    GPT1ForCausalLM,
    GPT1DoubleHeadsModel,
    GPT1ForSequenceClassification,
    GPT1ForMultipleChoice,
    GPT1ForTokenClassification,
    GPT1ForQuestionAnswering,
]


@pytest.fixture
def conversions(monkeypatch):
    """Names of the operations that change a weight while it is read or written."""
    seen = []
    for operation in ConversionOps.__subclasses__():

        def convert(self, *args, exact=operation.convert, **kwargs):
            seen.append(type(self).__name__)
            return exact(self, *args, **kwargs)

        monkeypatch.setattr(operation, "convert", convert)
    return seen


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize("tied", [True, False])
def test_folders_of_our_own_are_read_and_written_as_they_are(tiny_model, conversions, tmp_path, model_class, tied):
    model = tiny_model(model_class, tie_word_embeddings=tied)
    model.save_pretrained(tmp_path, max_shard_size="20KB", save_original_format=True)
    weights = {name: w for path in tmp_path.glob("*.safetensors") for name, w in load_file(path).items()}
    assert weights.keys() == {name for name in model.state_dict() if name != "lm_head.weight" or not tied}
    assert all(torch.equal(weight, model.state_dict()[name]) for name, weight in weights.items())
    model_class.from_pretrained(tmp_path)
    assert conversions == []


@pytest.fixture
def double_heads_folder(randomise, tmp_path):
    def make(tied):
        sizes = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "num_labels": 1}
        model = randomise(OpenAIGPTDoubleHeadsModel(OpenAIGPTConfig(**sizes, tie_word_embeddings=tied)))
        model.save_pretrained(tmp_path)
        assert ("transformer.tokens_embed.weight" in load_file(tmp_path / "model.safetensors")) == (not tied)
        return model, tmp_path

    return make


@pytest.mark.parametrize("model_class", [GPT1Model, GPT1ForMultipleChoice, GPT1ForCausalLM, GPT1DoubleHeadsModel])
@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_of_an_openai_gpt_with_double_heads_are_found(double_heads_folder, caplog, model_class, tied):
    """Tied ones lie under the head's name alone; of untied ones a model without the head reads the embeddings."""
    theirs, folder = double_heads_folder(tied)
    with caplog.at_level(logging.WARNING):
        logging.getLogger("transformers").addHandler(caplog.handler)
        ours, report = model_class.from_pretrained(folder, output_loading_info=True)
        logging.getLogger("transformers").removeHandler(caplog.handler)
    assert not report["missing_keys"]
    assert torch.equal(ours.get_input_embeddings().weight, theirs.transformer.tokens_embed.weight)
    if hasattr(ours, "lm_head"):
        assert torch.equal(ours.lm_head.weight, theirs.lm_head.weight)
    left_out = "lm_head.weight was not loaded: the requested model has no language-model head."
    assert (left_out in caplog.messages) == (not tied and not hasattr(ours, "lm_head"))


def test_the_head_of_our_own_untied_model_is_left_out_where_there_is_none(tiny_model, tmp_path):
    model = tiny_model(GPT1DoubleHeadsModel, traversal="multiple_choice", tie_word_embeddings=False)
    model.save_pretrained(tmp_path)
    opened = GPT1ForMultipleChoice.from_pretrained(tmp_path)
    assert torch.equal(opened.get_input_embeddings().weight, model.get_input_embeddings().weight)
    assert not torch.equal(opened.get_input_embeddings().weight, model.lm_head.weight)
