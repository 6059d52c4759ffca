"""GPT1Config: defaults of the paper, names of checkpoints, impossible values, saving and loading."""

import json

import pytest
import torch
from huggingface_hub.errors import (
    StrictDataclassClassValidationError,
    StrictDataclassFieldValidationError,
)
from transformers import AutoConfig, AutoModel

from modeling_gpt1 import GPT1Config, GPT1Model
from modeling_gpt1.configuration_gpt1 import TRAVERSALS


def test_defaults_are_the_papers():
    config = GPT1Config()
    assert {
        name: getattr(config, name)
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "hidden_act",
            "embd_pdrop",
            "resid_pdrop",
            "attn_pdrop",
            "classifier_dropout",
            "layer_norm_epsilon",
            "initializer_range",
            "tie_word_embeddings",
            "lm_coef",
            "traversal",
        )
    } == {
        "vocab_size": 40478,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "hidden_act": "gelu_pytorch_tanh",
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "attn_pdrop": 0.1,
        "classifier_dropout": 0.1,
        "layer_norm_epsilon": 1e-5,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "lm_coef": 0.5,
        "traversal": None,
    }


def test_a_model_of_the_defaults_has_the_published_number_of_weights():
    """12 blocks of 7 087 872, (40 478 + 512) x 768 embeddings."""
    with torch.device("meta"):
        model = GPT1Model(GPT1Config())
    assert sum(weight.numel() for weight in model.parameters()) == 116_534_784


def test_names_of_checkpoints_are_accepted_and_read_back():
    config = GPT1Config(n_embd=48, n_layer=3, n_head=6, n_positions=20, afn="relu")
    assert config.hidden_size == config.n_embd == 48
    assert config.num_hidden_layers == config.n_layer == 3
    assert config.num_attention_heads == config.n_head == 6
    assert config.max_position_embeddings == config.n_positions == config.n_ctx == 20
    assert config.hidden_act == config.afn == "relu"
    assert GPT1Config(n_ctx=30).max_position_embeddings == 30


def test_names_of_checkpoints_are_not_saved():
    saved = GPT1Config(n_embd=48, n_layer=3, n_head=6, n_positions=20, afn="gelu").to_dict()
    assert (saved["hidden_size"], saved["num_hidden_layers"], saved["num_attention_heads"]) == (48, 3, 6)
    assert (saved["max_position_embeddings"], saved["hidden_act"]) == (20, "gelu_pytorch_tanh")
    assert [name for name in saved if name in GPT1Config.attribute_map] == []


@pytest.mark.parametrize(
    ("afn", "hidden_act"),
    [
        ("gelu", "gelu_pytorch_tanh"),
        ("gelu_new", "gelu_pytorch_tanh"),
        ("swish", "silu"),
        ("silu", "silu"),
        ("relu", "relu"),
    ],
)
def test_afn_means_what_openai_gpt_checkpoints_mean(afn, hidden_act, tmp_path):
    assert GPT1Config(afn=afn).hidden_act == hidden_act
    GPT1Config().save_pretrained(tmp_path)
    assert GPT1Config.from_pretrained(tmp_path, afn=afn).hidden_act == hidden_act


def test_hidden_act_keeps_the_meaning_of_transformers():
    assert GPT1Config(hidden_act="gelu").hidden_act == "gelu"


def test_inner_width_follows_the_hidden_width():
    assert GPT1Config(n_embd=48, n_head=6).intermediate_size == 192
    assert GPT1Config(hidden_size=60).intermediate_size == 240
    assert GPT1Config(hidden_size=60, intermediate_size=100).intermediate_size == 100
    assert GPT1Config(n_embd=48, n_head=6, intermediate_size=100).intermediate_size == 100


def test_outputs_that_predictions_leave_out():
    assert GPT1Config.keys_to_ignore_at_inference == [
        "past_key_values",
        "task_loss",
        "lm_loss",
        "lm_logits",
        "example_losses",
    ]


def test_saved_and_loaded_configuration_is_the_same(tmp_path):
    config = GPT1Config(
        n_embd=48,
        n_head=6,
        traversal="similarity",
        lm_coef=0.25,
        num_labels=1,
        problem_type="regression",
        start_token_id=11,
        delimiter_token_id=12,
        extract_token_id=13,
        pad_token_id=0,
        classifier_dropout=0,
        use_cache=False,
    )
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gpt1"
    for loaded in (GPT1Config.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is GPT1Config
        assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()
    assert GPT1Config.from_pretrained(tmp_path, lm_coef=0.75).lm_coef == 0.75


def test_auto_classes_know_the_model_type(tiny_config):
    assert type(AutoConfig.for_model("gpt1", n_embd=48, n_head=6)) is GPT1Config
    assert type(AutoModel.from_config(tiny_config())) is GPT1Model


@pytest.mark.parametrize(
    ("fields", "regression"),
    [
        ({"num_labels": 1}, True),
        ({"num_labels": 2}, False),
        ({"num_labels": 1, "traversal": "multiple_choice"}, False),
        ({"num_labels": 1, "traversal": "similarity"}, True),
        ({"num_labels": 3, "problem_type": "single_label_classification"}, False),
        ({"num_labels": 1, "problem_type": "regression"}, True),
    ],
)
def test_regression_is_said_by_the_problem_type_or_the_single_label(fields, regression):
    assert GPT1Config(**fields).is_regression is regression


def message_of(error) -> str:
    """The text behind the line with which strict dataclasses wrap it."""
    return str(error.value.__cause__)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"hidden_size": 50, "num_attention_heads": 4},
            "`hidden_size` (50) is not divisible by `num_attention_heads` (4). Choose a number of heads that divides "
            "the hidden size.",
        ),
        ({"n_embd": 64, "n_head": 0}, "`num_attention_heads` is 0, but it must be at least 1."),
        ({"vocab_size": 0}, "`vocab_size` is 0, but it must be at least 1."),
        ({"hidden_size": -4}, "`hidden_size` is -4, but it must be at least 1."),
        ({"num_hidden_layers": 0}, "`num_hidden_layers` is 0, but it must be at least 1."),
        ({"n_positions": 0}, "`max_position_embeddings` is 0, but it must be at least 1."),
        ({"intermediate_size": 0}, "`intermediate_size` is 0, but it must be at least 1."),
        (
            {"traversal": "multiple-choice"},
            "Unknown traversal 'multiple-choice'. Choose one of classification, entailment, similarity, "
            "multiple_choice.",
        ),
        *(
            (
                {"lm_coef": value},
                f"`lm_coef` is {value}, but the weight of the auxiliary loss must be a finite number of at least 0. "
                "The paper's value is 0.5; 0 switches the auxiliary loss off.",
            )
            for value in (-0.1, float("inf"), float("nan"))
        ),
    ],
)
def test_impossible_values(fields, message):
    with pytest.raises(StrictDataclassClassValidationError) as error:
        GPT1Config(**fields)
    assert message_of(error) == message
    assert message in str(error.value)


@pytest.mark.parametrize(
    "name", ["embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout", "initializer_range"]
)
@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_fields_between_0_and_1(name, value):
    with pytest.raises(StrictDataclassFieldValidationError) as error:
        GPT1Config(**{name: value})
    assert str(error.value) == (
        f"Validation error for field '{name}':\n"
        f"    ValueError: Value must be greater or equal to 0.0 and smaller or equal to 1.0, got {value}."
    )


def test_values_of_a_wrong_type():
    with pytest.raises(StrictDataclassFieldValidationError) as error:
        GPT1Config(hidden_size="768")
    assert message_of(error) == "Field 'hidden_size' expected int, got str (value: '768')"


def test_possible_values_at_the_edge():
    config = GPT1Config(lm_coef=0, classifier_dropout=1, hidden_size=1, num_attention_heads=1, vocab_size=1)
    assert (config.lm_coef, config.hidden_size) == (0, 1)
    assert [GPT1Config(traversal=name).traversal for name in TRAVERSALS] == list(TRAVERSALS)
    assert TRAVERSALS == ("classification", "entailment", "similarity", "multiple_choice")


def test_a_later_change_is_checked_by_validate():
    config = GPT1Config()
    config.lm_coef = -1
    with pytest.raises(StrictDataclassClassValidationError):
        config.validate()


def test_names_of_checkpoints_can_be_assigned():
    config = GPT1Config()
    config.afn = "gelu"
    assert config.hidden_act == "gelu_pytorch_tanh"
    config.n_layer = 3
    assert config.num_hidden_layers == 3
