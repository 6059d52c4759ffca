"""GPT1Config: defaults of the paper, names of checkpoints, impossible values, saving and loading."""

import dataclasses
import json
import math
from functools import partial

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from support.refusals import refusal
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedConfig

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1LSTMConfig, GPT1Model, configuration_gpt1
from modeling_gpt1.commands import models
from modeling_gpt1.commands.models import check_model
from modeling_gpt1.configuration_gpt1 import check_place, is_regression
from modeling_gpt1.families import family_of_checkpoint


def test_defaults_are_the_papers():
    config = GPT1Config()
    papers = {"vocab_size": 40478, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    papers |= {"intermediate_size": 3072, "max_position_embeddings": 512, "hidden_act": "gelu_pytorch_tanh"}
    papers |= dict.fromkeys(["embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout"], 0.1)
    papers |= {"layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "tie_word_embeddings": True}
    papers |= {"lm_coef": 0.5, "traversal": None}
    assert {name: getattr(config, name) for name in papers} == papers


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
    assert config.intermediate_size == 4 * 48
    assert config.max_position_embeddings == config.n_positions == config.n_ctx == 20
    assert config.hidden_act == config.afn == "relu"
    config_of_two = GPT1Config(n_ctx=30, intermediate_size=9)
    assert (config_of_two.max_position_embeddings, config_of_two.intermediate_size) == (30, 9)
    assert config.to_dict().keys().isdisjoint(GPT1Config.attribute_map)
    config.afn, config.n_layer = "gelu", 4
    assert (config.hidden_act, config.num_hidden_layers) == ("gelu_pytorch_tanh", 4)


@pytest.mark.parametrize(
    ("afn", "hidden_act"),
    [(name, "gelu_pytorch_tanh") for name in ("gelu", "gelu_new")]
    + [(name, "silu") for name in ("swish", "silu")]
    + [("relu", "relu")],
)
def test_afn_means_what_openai_gpt_checkpoints_mean(afn, hidden_act, tmp_path):
    assert GPT1Config(afn=afn).hidden_act == hidden_act
    assert GPT1Config(hidden_act="gelu").hidden_act == "gelu"  # as everywhere in transformers
    GPT1Config().save_pretrained(tmp_path)
    assert GPT1Config.from_pretrained(tmp_path, afn=afn).hidden_act == hidden_act


def test_saved_and_loaded_configuration_is_the_same(tmp_path):
    ids = {"start_token_id": 11, "delimiter_token_id": 12, "extract_token_id": 13, "pad_token_id": 0}
    task = dict(traversal="similarity", lm_coef=0.25, num_labels=1, problem_type="regression", classifier_dropout=0)
    config = GPT1Config(n_embd=48, n_head=6, **ids, **task, use_cache=False)
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gpt1"
    assert type(AutoConfig.for_model("gpt1")) is GPT1Config
    for loaded in (GPT1Config.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)):
        assert type(loaded) is GPT1Config
        assert {**loaded.to_dict(), "_name_or_path": ""} == config.to_dict()
    assert GPT1Config.from_pretrained(tmp_path, lm_coef=0.75).lm_coef == 0.75


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
    assert is_regression(GPT1Config(**fields)) is regression


@pytest.mark.parametrize(
    ("fields", "given", "needed"),
    [
        ({"hidden_size": 50, "num_attention_heads": 4}, "`hidden_size` (50)", "`num_attention_heads` (4)"),
        ({"n_embd": 64, "n_head": 0}, "`num_attention_heads` is 0,", "at least 1"),
        ({"hidden_size": -4}, "`hidden_size` is -4,", "at least 1"),
        ({"n_positions": 0}, "`max_position_embeddings` is 0,", "at least 1"),
        ({"traversal": "multiple-choice"}, "'multiple-choice'", "classification, entailment, similarity, multiple_"),
        *(({"lm_coef": value}, f"`lm_coef` is {value},", "0.5") for value in (-0.1, math.inf, math.nan)),
        ({"initializer_range": 1.1}, "field 'initializer_range'", "between 0.0 and 1.0, got 1.1"),
        ({"n_embd": "768"}, "field 'hidden_size'", "expected int, got str (value: '768')"),
        ({"summary_first_dropout": 7}, "field 'classifier_dropout'", "between 0.0 and 1.0, got 7"),
        ({"do_layer_norm_before": "true"}, "field 'do_layer_norm_before'", "expected bool, got str (value: 'true')"),
    ],
)
def test_impossible_values_are_refused(fields, given, needed):
    message = refusal(GPT1Config, **fields)
    assert given in message
    assert needed in message


def test_a_wrong_value_that_is_assigned_is_refused():
    config = GPT1Config()
    with pytest.raises(StrictDataclassError, match="field 'embd_pdrop'.*\n.*between 0.0 and 1.0, got nan"):
        config.embd_pdrop = math.nan
    config.lm_coef = -1
    assert "`lm_coef` is -1, but" in refusal(config.validate)


SIZES = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"}
SIZES |= {"max_position_embeddings", "lstm_hidden_size", "sliding_window", "trained_positions"}
FRACTIONS = {"embd_pdrop", "resid_pdrop", "attn_pdrop", "classifier_dropout"}
REAL = {"lm_coef", "layer_norm_epsilon", "initializer_range", *FRACTIONS}
SWITCHES = {"do_layer_norm_before", "rescale_prenorm_residual", "use_cache", "tie_word_embeddings"}
OPTIONAL = {"intermediate_size", "sliding_window", "trained_positions", "traversal", "columns", "speaker_token_ids"}
IDS = {f"{name}_token_id" for name in ("start", "delimiter", "extract", "pad", "bos", "eos")}


@pytest.mark.parametrize("config_class", [GPT1Config, GPT1LSTMConfig])
@pytest.mark.parametrize(
    ("value", "takes_it"),
    [
        *((-1, IDS), (0, IDS | FRACTIONS | {"lm_coef"}), (1, IDS | SIZES | FRACTIONS | {"lm_coef"})),
        *((2, IDS | SIZES | {"lm_coef"}), (0.5, REAL), (1e-300, REAL), (-0.5, set())),
        *((math.nan, set()), (math.inf, set()), ("x", {"hidden_act"}), (True, SWITCHES), ([], {"eos_token_id"})),
        *(({}, {"columns"}), (None, IDS | OPTIONAL)),
    ],
)
def test_every_field_takes_the_values_that_it_can(config_class, value, takes_it):
    names = {field.name for field in dataclasses.fields(config_class)} - vars(PreTrainedConfig).keys()
    taken = set()
    for name in names:
        try:
            config_class(**{"num_attention_heads": 1, name: value})
            taken.add(name)
        except StrictDataclassError as error:
            assert name in str(error)
    assert taken == takes_it & names


@pytest.mark.parametrize("config_class", [GPT1Config, GPT1LSTMConfig])
def test_an_unknown_problem_type_is_refused(config_class):
    def open_with_head():
        config = config_class(hidden_size=12, num_hidden_layers=1)
        config.problem_type = "several"  # refused here by older releases of transformers, in words of their own
        AutoModelForSequenceClassification.from_config(config)

    for message in (refusal(config_class, problem_type="several"), refusal(open_with_head)):
        assert "problem_type" in message
        assert "'several'" in message
        assert "one of" in message
        assert "regression" in message


@pytest.fixture
def warnings_of_names(monkeypatch):
    heard = []
    monkeypatch.setattr(configuration_gpt1.logger, "warning_once", heard.append)
    return heard


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("hidden_sizes", "hidden_size"),
        ("num_layers", "num_hidden_layers"),
        ("num_heads", "num_attention_heads"),
        ("n_layers", "n_layer"),
        ("resid_dropp", "resid_pdrop"),
    ],
)
def test_an_argument_near_a_field_is_warned_of(given, meant, warnings_of_names):
    assert getattr(GPT1Config(**{given: 2}), given) == 2  # kept, as by transformers
    assert warnings_of_names == [f"`{given}` is no field of GPT1Config and changes nothing. Did you mean `{meant}`?"]


def test_arguments_that_are_read_or_that_mean_something_else_are_not_warned_of(warnings_of_names, tmp_path):
    config = GPT1Config(
        n_layer=2, num_labels=3, sliding_window=4, layer_types=["full_attention"] * 2, my_note="of mine"
    )
    config.save_pretrained(tmp_path)
    GPT1Config.from_pretrained(tmp_path)
    assert warnings_of_names == []


class SilentSession:
    """A client of the hub without a network; counts what it was asked."""

    def __init__(self):
        self.num_requests = 0

    def head(self, *args, **kwargs):
        self.num_requests += 1
        raise OSError("Name or service not known")


@pytest.fixture
def silent_hub(monkeypatch, tmp_path):
    """A network that is allowed, but does not answer, and a folder without a model."""
    session = SilentSession()
    monkeypatch.setattr(configuration_gpt1, "get_session", lambda: session)
    monkeypatch.setattr(configuration_gpt1.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(models, "HF_HUB_OFFLINE", False)
    monkeypatch.chdir(tmp_path)
    return session


@pytest.mark.parametrize(
    "opens",
    [
        GPT1Config.from_pretrained,
        GPT1ForCausalLM.from_pretrained,
        family_of_checkpoint,
        partial(check_model, "--model"),
    ],
)
def test_without_a_network_one_sentence_names_the_folder_and_the_packaged_model(opens, silent_hub, tmp_path):
    with pytest.raises(OSError) as told:
        opens("runs/mine")
    assert str(told.value) == (
        f"'runs/mine' is no folder here ({tmp_path / 'runs' / 'mine'}), and the hub cannot be asked for it (Name or "
        "service not known). Pass the folder of a model. Without a network there is gpt1-novels, which comes with the "
        "package: `modeling_gpt1.NOVELS` in Python."
    )
    assert silent_hub.num_requests == 1


def test_the_short_name_of_the_packaged_model_is_explained_where_a_folder_is_needed(silent_hub):
    message = refusal(GPT1ForCausalLM.from_pretrained, "gpt1-novels")
    assert "In Python, pass its folder, `modeling_gpt1.NOVELS`." in message
    assert silent_hub.num_requests == 0


def test_a_model_in_the_hubs_cache_needs_no_answer(silent_hub, tmp_path):
    (tmp_path / "models--owner--name").mkdir()
    check_place("owner/name", cache_dir=tmp_path)
    assert silent_hub.num_requests == 0
