"""What the models and configurations refuse, each by its whole sentence, and what they go on taking."""

import json
import math

import pytest
import torch
from transformers import AutoModelForCausalLM, modeling_utils

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1LSTMConfig,
    GPT1LSTMForCausalLM,
    GPT1LSTMForSequenceClassification,
    GPT1Model,
)

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
CHOICES = torch.arange(1, 31).view(2, 3, 5)
MODELS = [GPT1Model, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1DoubleHeadsModel, GPT1LSTMForCausalLM]


def message_of(function, *args, **kwargs) -> str:
    with pytest.raises(ValueError) as error:
        function(*args, **kwargs)
    return str(error.value)


@pytest.fixture
def make(tiny_model):
    def make(model_class, **fields):
        if model_class is GPT1DoubleHeadsModel:
            fields = {"traversal": "classification", **fields}
        return tiny_model(model_class, **fields)

    return make


# ---- Labels


@pytest.mark.parametrize(
    "model_class", [GPT1ForSequenceClassification, GPT1DoubleHeadsModel, GPT1LSTMForSequenceClassification]
)
@pytest.mark.parametrize("label", [3, -1])
def test_a_class_out_of_range(make, model_class, label):
    model = make(model_class, num_labels=3)
    assert message_of(model, IDS, labels=torch.tensor([2, label])) == (
        f"The label of example 1 is {label}, but there are 3 classes (`num_labels`): a label must be from 0 to 2, or "
        "-100 for none."
    )


@pytest.mark.parametrize(
    ("labels", "example"),
    [
        (torch.tensor([0.0, 1.0]), ", 0.0 for example 0"),
        (torch.tensor([0.0, 1.5]), ", 1.5 for example 1"),
        (torch.tensor([0.0, math.nan]), ", nan for example 1"),
        (torch.tensor([True, False]), ""),
    ],
)
def test_classes_of_another_type(make, labels, example):
    model = make(GPT1ForSequenceClassification, num_labels=3)
    assert message_of(model, IDS, labels=labels) == (
        f"`labels` must be indices of classes (torch.int64), but got {labels.dtype}{example}. Pass `labels.long()` if "
        "they are whole numbers, or open the model with `num_labels=1` for regression."
    )
    assert message_of(model, IDS, labels=[0, 1]) == (
        "`labels` is a list, but a tensor is needed: `torch.tensor(labels)`."
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_whole_numbers_of_every_size_are_classes(make, dtype):
    model = make(GPT1ForSequenceClassification, num_labels=3)
    assert torch.equal(
        model(IDS, labels=torch.tensor([2, 1], dtype=dtype)).loss, model(IDS, labels=torch.tensor([2, 1])).loss
    )


def test_a_label_at_an_absent_choice(tiny_model):
    model = tiny_model(GPT1ForMultipleChoice)
    choice_mask = torch.tensor([[True, True, True], [True, True, False]])
    assert model(CHOICES, choice_mask=choice_mask, labels=torch.tensor([2, 1])).loss.isfinite()
    assert message_of(model, CHOICES, choice_mask=choice_mask, labels=torch.tensor([2, 2])) == (
        "The label of example 1 is 2, but `choice_mask` marks that choice as absent. Correct the label or the mask."
    )
    assert message_of(model, CHOICES, labels=torch.tensor([2, 3])) == (
        "The label of example 1 is 3, but there are 3 choices: a label must be from 0 to 2, or -100 for none."
    )
    choice_mask[0] = False
    assert message_of(model, CHOICES, choice_mask=choice_mask) == (
        "`choice_mask` marks every choice of example 0 as absent. Remove the example or correct the mask."
    )


def test_several_labels_are_0_or_1(make):
    model = make(GPT1ForSequenceClassification, num_labels=3, problem_type="multi_label_classification")
    for number in (2, math.nan):
        labels = torch.tensor([[0, 1, 0], [0.5, 1, number]])
        assert message_of(model, IDS, labels=labels) == (
            f"Label 2 of example 1 is {labels[1, 2].item()}, but it must be from 0 (the class does not apply) to 1 "
            "(it applies), or -100 for none."
        )
    assert model(IDS, labels=labels.nan_to_num(1.0)).loss.isfinite()


VOCABULARY = (
    "but the vocabulary has ids 0 to 100{}. Use the model's own tokenizer; if tokens were added to it, call "
    "`model.resize_token_embeddings(len(tokenizer))`."
)


@pytest.mark.parametrize("model_class", [GPT1ForCausalLM, GPT1LSTMForCausalLM])
def test_targets_of_the_language_model(tiny_model, model_class):
    model = tiny_model(model_class)
    others = VOCABULARY.format(", and -100 marks tokens without a target")
    for target in (101, -5):
        labels = IDS.clone()
        labels[1, 3] = target
        assert message_of(model, IDS, labels=labels) == f"`labels` has {target} at [1, 3], {others}"
    assert message_of(model, IDS, labels=IDS.float()) == (
        "`labels` must contain token ids (torch.int64), but got torch.float32."
    )
    for labels in (IDS[:, 1:], IDS[0]):
        assert message_of(model, IDS, labels=labels) == (
            f"`labels` needs the shape [2, 5], one for each token, but got {list(labels.shape)}. Pass a copy of "
            "`input_ids`, with -100 at tokens without a target."
        )


# ---- Tokens, masks and positions


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("shape", [[0, 5], [2, 0]])
def test_a_batch_without_rows_or_tokens(make, model_class, shape):
    assert message_of(make(model_class), torch.ones(shape, dtype=torch.int64)) == (
        f"`input_ids` has the shape {shape}, but a batch needs at least one row and one token. Skip empty batches, "
        "and give every text at least one token."
    )


@pytest.mark.parametrize("model_class", MODELS)
def test_ids_that_have_no_embedding(make, model_class):
    model = make(model_class)
    for number in (101, -1):
        ids = IDS.clone()
        ids[1, 2] = number
        assert message_of(model, ids) == f"`input_ids` has {number} at [1, 2], {VOCABULARY.format('')}"
    assert message_of(model, IDS.float()) == "`input_ids` must contain token ids (torch.int64), but got torch.float32."


@pytest.mark.parametrize("model_class", [GPT1Model, GPT1ForCausalLM])
@pytest.mark.parametrize("shape", [[2, 4], [2, 6], [3, 5], [5], [2, 1, 5, 5]])
def test_masks_of_another_shape(tiny_model, model_class, shape):
    assert message_of(tiny_model(model_class), IDS, attention_mask=torch.ones(shape, dtype=torch.int64)) == (
        "`attention_mask` needs the shape [2, 5], one column for each token, including those in the cache, but got "
        f"{shape} of torch.int64. A 4-dimensional mask must be boolean, or hold numbers to add to the scores."
    )


@pytest.mark.parametrize("shape", [[2, 4], [5], [2, 1, 5, 5]])
def test_masks_of_another_shape_than_the_examples(make, shape):
    for model_class in (GPT1ForSequenceClassification, GPT1DoubleHeadsModel):
        mask = torch.ones(shape, dtype=torch.int64)
        assert message_of(make(model_class), IDS, attention_mask=mask) == (
            f"`attention_mask` needs shape [2, 1, 5] here, but got {shape}."
        )
    pairs = make(GPT1ForSequenceClassification, traversal="similarity", delimiter_token_id=7)
    assert message_of(pairs, IDS, attention_mask=mask) == (
        f"`attention_mask` needs shape [2, 5] here, but got {shape}."
    )


def test_a_mask_that_leaves_out_the_cache(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    cache = model(IDS[:, :3], use_cache=True).past_key_values
    assert message_of(model, IDS[:, 3:], attention_mask=torch.ones(2, 2).long(), past_key_values=cache).startswith(
        "`attention_mask` needs the shape [2, 5], one column for each token, including those in the cache, but got "
        "[2, 2] "
    )


# ---- Configurations


@pytest.mark.parametrize("config_class", [GPT1Config, GPT1LSTMConfig])
@pytest.mark.parametrize("num_labels", [0, -1, 2.5, "3"])
def test_a_number_of_labels_that_is_none(config_class, num_labels):
    assert message_of(config_class, num_labels=num_labels) == (
        f"`num_labels` is {num_labels!r}, but it must be a whole number of at least 1: the number of classes, or 1 "
        "for regression."
    )


def test_no_labels_given_to_from_pretrained(tiny_model, tmp_path):
    tiny_model(GPT1Model).save_pretrained(tmp_path)
    assert message_of(GPT1ForSequenceClassification.from_pretrained, tmp_path, num_labels=0) == (
        "`num_labels` is 0, but it must be a whole number of at least 1: the number of classes, or 1 for regression."
    )


@pytest.mark.parametrize("config_class", [GPT1Config, GPT1LSTMConfig])
@pytest.mark.parametrize("epsilon", [-1e-5, math.nan, math.inf])
def test_a_negative_epsilon(config_class, epsilon):
    with pytest.raises(ValueError) as error:
        config_class(layer_norm_epsilon=epsilon)
    assert str(error.value) == (
        f"`layer_norm_epsilon` is {epsilon}, but it must be a finite number of at least 0. The paper's models use "
        "1e-05."
    )


@pytest.mark.parametrize("opener", [GPT1Config, GPT1ForCausalLM, GPT1LSTMForCausalLM])
@pytest.mark.parametrize("path", ["/no/such/folder", "./nothing", "~/nothing", "runs/race/final", "a::b", ""])
def test_a_wrong_path(opener, path):
    with pytest.raises(OSError) as error:
        opener.from_pretrained(path)
    assert str(error.value) == (
        f"{path!r} is neither an existing folder nor a model name on the hub (`owner/name`). Give a folder that "
        "`save_pretrained` wrote, with `config.json` in it."
    )


# ---- Code from the hub


@pytest.fixture
def fetched(monkeypatch):
    """What transformers would fetch and run as an attention, instead of doing so."""
    names = []
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", lambda name, **kwargs: names.append(name))
    return names


@pytest.mark.parametrize("name", ["stranger/kernel", "kernels-community/flash-attn2@main:attention", "paged|a/b"])
@pytest.mark.parametrize(
    ("model_class", "opener"),
    [
        (GPT1ForCausalLM, GPT1ForCausalLM),
        (GPT1ForCausalLM, AutoModelForCausalLM),
        (GPT1LSTMForCausalLM, GPT1LSTMForCausalLM),
    ],
)
@pytest.mark.filterwarnings("ignore:The `paged|` prefix is no longer needed")
def test_a_configuration_fetches_no_code(tiny_model, tmp_path, fetched, model_class, opener, name):
    tiny_model(model_class).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "attn_implementation": name}))
    assert message_of(opener.from_pretrained, tmp_path) == (
        f"The attention implementation of the configuration is {name!r}, which would download code from the hub and "
        "run it. Pass `allow_all_kernels=True` to `from_pretrained` if you trust that code, or "
        "`attn_implementation='sdpa'` if not."
    )
    assert message_of(model_class, GPT1Config(attn_implementation=name)).startswith("The attention implementation of")
    assert fetched == []
    if model_class is GPT1ForCausalLM:
        assert opener.from_pretrained(tmp_path, attn_implementation="sdpa").config._attn_implementation == "sdpa"
        assert fetched == []
    if "|" not in name:  # transformers 5.17 fetches that another way
        opener.from_pretrained(tmp_path, allow_all_kernels=True)
        assert set(fetched) == {name}


@pytest.mark.parametrize("key", ["_attn_implementation", "_attn_implementation_internal"])
def test_private_names_in_a_file_say_nothing(tiny_model, tmp_path, fetched, key):
    tiny_model(GPT1ForCausalLM).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, key: "stranger/kernel"}))
    for opener in (GPT1ForCausalLM, AutoModelForCausalLM):
        assert opener.from_pretrained(tmp_path).config._attn_implementation == "sdpa"
        assert opener.from_pretrained(tmp_path, attn_implementation="eager").config._attn_implementation == "eager"
    assert fetched == []


def test_a_user_who_names_the_code_is_asked_no_further(tiny_model, fetched):
    model = tiny_model(GPT1ForCausalLM)
    model.set_attn_implementation("stranger/kernel", allow_all_kernels=True)
    assert fetched == ["stranger/kernel"]
