"""Layer transfer: what is kept is literally the checkpoint's, all else is as in a new model of the same seed."""

import pytest
import torch
from torch import nn

import modeling_gpt1

MODELS = {
    modeling_gpt1.GPT1Model: {},
    modeling_gpt1.GPT1ForCausalLM: {},
    modeling_gpt1.GPT1DoubleHeadsModel: {"traversal": "similarity", "num_labels": 3},
    modeling_gpt1.GPT1ForSequenceClassification: {"traversal": "entailment", "num_labels": 3},
    modeling_gpt1.GPT1ForMultipleChoice: {"traversal": "multiple_choice"},
    modeling_gpt1.GPT1LSTMForCausalLM: {},
    modeling_gpt1.GPT1LSTMDoubleHeadsModel: {"traversal": "multiple_choice"},
}
# Names of the decoder's weights that are kept of three layers.
KEPT = {
    -1: (),
    0: ("tokens_embed.", "positions_embed."),
    1: ("tokens_embed.", "positions_embed.", "h.0."),
    2: ("tokens_embed.", "positions_embed.", "h.0.", "h.1."),
}
# The one random weight of the classes that is not of the decoder.
HEAD = "task_head.score.weight"


def weights_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: weight.clone() for name, weight in model.state_dict().items()}


def kept_names(before: dict, after: dict) -> set[str]:
    return {name for name in before if torch.equal(before[name], after[name])}


@pytest.mark.parametrize("n_transfer", KEPT)
@pytest.mark.parametrize("model_class", MODELS)
def test_keeps_the_first_layers_and_nothing_else(model_class, n_transfer, tiny_model):
    model = tiny_model(model_class, seed=4, num_hidden_layers=3, **MODELS[model_class])
    before = weights_of(model)
    torch.manual_seed(9)
    assert modeling_gpt1.keep_first_layers(model, n_transfer) is model
    after = weights_of(model)

    prefixes = tuple(part + name for name in KEPT[n_transfer] for part in ("", "transformer."))
    expected = {name for name in before if prefixes and name.startswith(prefixes)}
    expected |= {"lm_head.weight"} & set(before) if n_transfer >= 0 else set()
    assert kept_names(before, after) == expected

    torch.manual_seed(9)
    assert kept_names(weights_of(model_class(model.config)), after) == set(before) - expected


@pytest.mark.parametrize("n_transfer", [-1, 0, 1])
def test_tied_embeddings_stay_tied(n_transfer, tiny_model, tmp_path):
    model = modeling_gpt1.keep_first_layers(tiny_model(modeling_gpt1.GPT1ForCausalLM), n_transfer)
    assert model.lm_head.weight is model.transformer.tokens_embed.weight
    model.save_pretrained(tmp_path)
    opened = modeling_gpt1.GPT1ForCausalLM.from_pretrained(tmp_path)
    assert kept_names(weights_of(model), weights_of(opened)) == set(model.state_dict())


def test_an_untied_head_goes_with_the_embeddings(tiny_model):
    model = tiny_model(modeling_gpt1.GPT1ForCausalLM, tie_word_embeddings=False)
    before = weights_of(model)
    modeling_gpt1.keep_first_layers(model, 0)
    assert torch.equal(model.lm_head.weight, before["lm_head.weight"])
    modeling_gpt1.keep_first_layers(model, -1)
    assert model.lm_head.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert not torch.equal(model.lm_head.weight, model.transformer.tokens_embed.weight)


def test_all_layers_leave_the_model_as_it_is(tiny_model):
    model = tiny_model(modeling_gpt1.GPT1DoubleHeadsModel)
    before, state = weights_of(model), torch.get_rng_state()
    modeling_gpt1.keep_first_layers(model, 2)
    assert kept_names(before, weights_of(model)) == set(before)
    assert HEAD in before
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("n_transfer", [-2, 3])
def test_refuses_numbers_that_the_model_does_not_have(n_transfer, tiny_model):
    model = tiny_model(modeling_gpt1.GPT1Model)
    before = weights_of(model)
    with pytest.raises(ValueError, match=f"`n_transfer` is {n_transfer}, but the model has 2 layers. Pass -1 to keep"):
        modeling_gpt1.keep_first_layers(model, n_transfer)
    assert kept_names(before, weights_of(model)) == set(before)
