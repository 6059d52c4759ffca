"""What the models and configurations refuse, by the value that was given, and what they go on taking."""

import json
import math

import pytest
import torch
from support.refusals import refusal
from transformers import AutoModelForCausalLM, modeling_utils
from transformers.utils.logging import warning_once

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForSequenceClassification,
    GPT1LSTMForCausalLM,
    GPT1Model,
)

IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 12, 13, 14]])
CHOICES = torch.arange(1, 31).view(2, 3, 5)
MODELS = [GPT1Model, GPT1ForCausalLM, GPT1ForSequenceClassification, GPT1DoubleHeadsModel, GPT1LSTMForCausalLM]


@pytest.fixture
def make(tiny_model):
    def make(model_class, **fields):
        if model_class is GPT1DoubleHeadsModel:
            fields = {"traversal": "classification", **fields}
        return tiny_model(model_class, **fields)

    return make


def test_a_position_below_0_is_refused(make):
    position_ids = torch.tensor([[0, 1, 2, 3, 4], [-1, 0, 1, 2, 3]])
    message = refusal(make(GPT1ForCausalLM), IDS, position_ids=position_ids)
    assert "`position_ids` has -1 at [1, 0], but positions begin at 0" in message
    assert "`.clamp(min=0)`" in message


@pytest.mark.parametrize("label", [3, -1])
def test_a_class_out_of_range_is_refused(make, label):
    message = refusal(make(GPT1ForSequenceClassification, num_labels=3), IDS, labels=torch.tensor([2, label]))
    assert f"The label of example 1 is {label}, but the model has classes 0 to 2" in message
    assert "Open the model with `num_labels` of your data" in message


@pytest.mark.parametrize("labels", [torch.tensor([0.0, 1.0]), torch.tensor([True, False])])
def test_classes_of_another_type_are_refused(make, labels):
    message = refusal(make(GPT1ForSequenceClassification, num_labels=3), IDS, labels=labels)
    assert f"but got {labels.dtype}. Pass `labels.long()`" in message
    assert "`num_labels=1`" in message


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_whole_numbers_of_every_size_are_classes(make, dtype):
    model = make(GPT1ForSequenceClassification, num_labels=3)
    labels = torch.tensor([2, 1])
    assert torch.equal(model(IDS, labels=labels.to(dtype)).loss, model(IDS, labels=labels).loss)


def test_an_example_without_a_choice_is_refused(tiny_model):
    choice_mask = torch.tensor([[False, False, False], [True, True, False]])
    message = refusal(tiny_model(GPT1ForMultipleChoice), CHOICES, choice_mask=choice_mask)
    assert "`choice_mask` marks every choice of example 0" in message


@pytest.mark.parametrize("model_class", [GPT1ForMultipleChoice, GPT1DoubleHeadsModel])
def test_a_label_that_names_an_absent_choice_is_refused(tiny_model, model_class):
    """Its probability is 0, so the loss would be infinite."""
    model = tiny_model(model_class, traversal="multiple_choice")
    choice_mask = torch.tensor([[True, True, True], [True, True, False]])
    message = refusal(model, CHOICES, choice_mask=choice_mask, labels=torch.tensor([2, 2]))
    assert "The label of example 1 is 2, but `choice_mask` marks this choice as absent" in message
    assert model(CHOICES, choice_mask=choice_mask, labels=torch.tensor([2, 1])).loss.isfinite()


def test_a_label_behind_the_last_choice_is_refused(tiny_model):
    message = refusal(tiny_model(GPT1ForMultipleChoice), CHOICES, labels=torch.tensor([0, 3]))
    assert "The label of example 1 is 3, but the examples have choices 0 to 2" in message


def test_several_labels_must_be_from_0_to_1(make):
    model = make(GPT1ForSequenceClassification, num_labels=3, problem_type="multi_label_classification")
    assert model(IDS, labels=torch.tensor([[0, 1, 0], [0.5, 1, 1]])).loss.isfinite()
    for number in (2, math.nan):
        labels = torch.tensor([[0, 1, 0], [0.5, 1, number]])
        assert f"Label 2 of example 1 is {labels[1, 2].item()}, but" in refusal(model, IDS, labels=labels)


LANGUAGE_MODELS = [GPT1ForCausalLM, GPT1LSTMForCausalLM]


@pytest.mark.parametrize("target", [101, -5])
@pytest.mark.parametrize("model_class", LANGUAGE_MODELS)
def test_a_target_outside_of_the_vocabulary_is_refused(tiny_model, model_class, target):
    labels = IDS.clone()
    labels[1, 3] = target
    message = refusal(tiny_model(model_class), IDS, labels=labels)
    assert f"`labels` has {target} at [1, 3], but the vocabulary has ids 0 to 100, and -100" in message
    assert "`model.resize_token_embeddings(len(tokenizer))`" in message


@pytest.mark.parametrize("model_class", LANGUAGE_MODELS)
def test_targets_that_are_no_whole_numbers_are_refused(tiny_model, model_class):
    message = refusal(tiny_model(model_class), IDS, labels=IDS.float())
    assert "`labels` must contain token ids (torch.int64), but got torch.float32" in message


@pytest.mark.parametrize("labels", [IDS[:, 1:], IDS[0]], ids=["shifted", "of one sequence"])
@pytest.mark.parametrize("model_class", LANGUAGE_MODELS)
def test_targets_of_another_shape_are_refused(tiny_model, model_class, labels):
    message = refusal(tiny_model(model_class), IDS, labels=labels)
    assert f"shape [2, 5], one for each token, but got {list(labels.shape)}" in message


@pytest.mark.parametrize("shape", [[0, 5], [2, 0]])
@pytest.mark.parametrize("model_class", MODELS)
def test_no_tokens_are_refused(make, model_class, shape):
    message = refusal(make(model_class), torch.ones(shape, dtype=torch.int64))
    assert f"at least one row and one token, but got {shape}." in message


@pytest.mark.parametrize("number", [101, -1])
@pytest.mark.parametrize("model_class", MODELS)
def test_a_token_outside_of_the_vocabulary_is_refused(make, model_class, number):
    model = make(model_class)
    ids = IDS.clone()
    ids[1, 2] = number
    assert f"`input_ids` has {number} at [1, 2], but the vocabulary has ids 0 to 100." in refusal(model, ids)
    assert f"`token_type_ids` has {number} at [1, 2]" in refusal(model, IDS, token_type_ids=ids)


@pytest.mark.parametrize("model_class", MODELS)
def test_tokens_that_are_no_whole_numbers_are_refused(make, model_class):
    message = refusal(make(model_class), IDS.float())
    assert "`input_ids` must contain token ids (torch.int64), but got torch.float32" in message


@pytest.mark.parametrize("shape", [[2, 4], [2, 6], [3, 5], [5], [2, 5, 5], [2, 1, 5, 5]])
def test_masks_of_another_shape_are_refused(make, shape):
    """A 4-dimensional mask of integers would be added to the scores."""
    mask = torch.ones(shape, dtype=torch.int64)
    message = refusal(make(GPT1ForCausalLM), IDS, attention_mask=mask)
    assert "`attention_mask` needs the shape [2, 5], one column for each token" in message
    assert f"got {shape} of torch.int64" in message
    message = refusal(make(GPT1DoubleHeadsModel), IDS, attention_mask=mask)
    assert f"`attention_mask` needs shape [2, 5] here, but got {shape}. Pass 1 for real tokens and 0 for" in message
    with pytest.raises((RuntimeError, ValueError)):
        make(GPT1ForSequenceClassification, traversal="similarity", delimiter_token_id=7)(IDS, attention_mask=mask)


@pytest.mark.parametrize("model_class", [GPT1Model, GPT1ForSequenceClassification, GPT1DoubleHeadsModel])
def test_one_token_type_serves_all_tokens_of_a_sequence(make, model_class):
    model, types = make(model_class), torch.tensor([[3], [4]])
    one, each = (model(IDS, token_type_ids=ids)[0] for ids in (types, types.expand(IDS.shape)))
    assert torch.equal(one, each)
    assert not torch.equal(one, model(IDS)[0])


@pytest.mark.parametrize("model_class", [GPT1ForSequenceClassification, GPT1DoubleHeadsModel])
def test_padding_without_a_mask_is_warned_of(make, model_class, caplog):
    model, padded = make(model_class, pad_token_id=0), IDS.clone()
    padded[1, -2:] = 0
    warning_once.cache_clear()
    model(IDS)
    model(padded, attention_mask=(padded != 0).long())
    assert "your input_ids may be padded" not in caplog.text
    model(padded)
    assert "We strongly recommend passing in an `attention_mask` since your input_ids may be padded" in caplog.text


@pytest.mark.parametrize("num_lacking", [0, 1])
def test_a_choice_of_padding_alone_lacks_no_extract_token(tiny_model, caplog, num_lacking):
    model = tiny_model(GPT1ForMultipleChoice, extract_token_id=99)
    ids = torch.tensor([[[5, 6, 99], [7, 99, 0]], [[8, 9, 99], [0, 0, 0]]])
    mask = (ids != 0).long()
    if num_lacking:
        ids[0, 1, 1] = 8
    model(ids, attention_mask=mask, choice_mask=mask.any(-1))
    assert caplog.text.count("1 of 4 sequences of the first batch lack the extract token [e]") == num_lacking


def test_a_mask_that_leaves_out_the_cache_is_refused(tiny_model):
    model = tiny_model(GPT1ForCausalLM)
    cache = model(IDS[:, :3], use_cache=True).past_key_values
    message = refusal(model, IDS[:, 3:], attention_mask=torch.ones(2, 2).long(), past_key_values=cache)
    assert "needs the shape [2, 5]" in message
    assert "got [2, 2] " in message


@pytest.fixture
def fetched(monkeypatch):
    """What transformers would fetch and run as an attention, instead of doing so."""
    names = []
    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", lambda name, **kwargs: names.append(name))
    return names


@pytest.mark.parametrize("name", ["stranger/kernel", "kernels-community/flash-attn2@main:attention", "paged|a/b"])
@pytest.mark.parametrize(
    ("model_class", "opener"),
    [(GPT1ForCausalLM, GPT1ForCausalLM), (GPT1ForCausalLM, AutoModelForCausalLM), (GPT1LSTMForCausalLM,) * 2],
)
@pytest.mark.filterwarnings("ignore:The `paged|` prefix is no longer needed")
def test_a_configuration_fetches_no_code(tiny_model, tmp_path, fetched, model_class, opener, name):
    tiny_model(model_class).save_pretrained(tmp_path)
    fields = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**fields, "attn_implementation": name}))
    messages = refusal(opener.from_pretrained, tmp_path), refusal(model_class, GPT1Config(attn_implementation=name))
    for message in messages:
        assert f"is {name!r}, which would download code" in message
        assert "`allow_all_kernels=True`" in message
    assert fetched == []
    if model_class is GPT1ForCausalLM:
        assert opener.from_pretrained(tmp_path, attn_implementation="sdpa").config._attn_implementation == "sdpa"
        assert fetched == []
    if "|" not in name and (model_class is GPT1ForCausalLM or "flash" not in name):  # else 5.17 or 5.24 differs
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
