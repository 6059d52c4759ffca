"""What a model shows of itself: how many parameters and embeddings it has, and how long a text it reads."""

import pytest
import torch
from transformers import RobertaConfig, RobertaModel

from modeling_gpt1 import GPT1ForCausalLM
from modeling_gpt1.families.checks import num_embeddings
from modeling_gpt1.families.probing import limit_of_tokens, num_parameters
from modeling_gpt1.training.freezing import describe_freezing
from modeling_gpt1.training.measures import training_flops_per_token


@pytest.fixture
def model(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    model.transformer.positions_embed.requires_grad_(False)
    return model


def cut_over_processes(model) -> None:
    """Leaves the weights as DeepSpeed's ZeRO-3 does in each process: empty, with the whole shape beside them."""
    for weight in model.parameters():
        weight.ds_shape = weight.shape
        weight.data = torch.empty(0)


@pytest.mark.parametrize("options", [{}, {"only_trainable": True}, {"exclude_embeddings": True}])
def test_weights_that_are_cut_over_processes_are_counted_whole(options, model):
    expected = model.num_parameters(**options)
    cut_over_processes(model)
    assert num_parameters(model, **options) == expected
    assert model.num_parameters(**options) == 0  # negative control


@pytest.mark.parametrize("measure", [training_flops_per_token, describe_freezing])
def test_what_is_told_of_weights_that_are_cut_is_the_same(measure, model):
    expected = measure(model)
    cut_over_processes(model)
    assert expected
    assert measure(model) == expected


def test_embeddings_that_are_cut_are_counted_whole(model):
    cut_over_processes(model)
    assert num_embeddings(model) == model.config.vocab_size


def test_positions_that_are_cut_limit_the_text():
    sizes = {"num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
    model = RobertaModel(RobertaConfig(**sizes, vocab_size=9, max_position_embeddings=34))
    cut_over_processes(model)
    assert limit_of_tokens(model) == 32  # the first two positions are padding's
