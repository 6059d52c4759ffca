"""What people try first: it works, or one sentence says how."""

import pytest
import torch
from support.families import write_family
from support.finetuning import make_finetuning_trainer, make_small_config
from support.refusals import check_refused, refusal

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1LSTMConfig,
    GPT1PretrainingArguments,
    GPT1PretrainingTrainer,
    GPT1Trainer,
    prepare_finetuning,
)
from tokenization import Task

OWN = Task("own", "classification", {"text": "a", "label": "label"}, ("no", "yes"))


@pytest.fixture
def start(save_model, tmp_path):
    return save_model(tmp_path / "start")


@pytest.fixture
def parts(tmp_path):
    trainer = make_finetuning_trainer("classification", tmp_path, 4, 1)
    return {"model": trainer.model, "args": trainer.args, "data_collator": trainer.data_collator}


def test_own_metrics_are_given_to_the_preparation(start):
    def mine(evaluation):
        return {}

    assert prepare_finetuning(start, OWN, compute_metrics=mine)["compute_metrics"] is mine


def test_lm_coef_may_be_given_to_the_preparation(start):
    assert prepare_finetuning(start, OWN, lm_coef=0.25)["model"].config.lm_coef == 0.25


def test_a_wrong_lm_coef_is_refused_by_the_preparation(start):
    assert "`lm_coef` is -1" in refusal(prepare_finetuning, start, OWN, lm_coef=-1)


def test_an_encoder_has_no_lm_coef(tmp_path):
    write_family("bert", tmp_path / "bert")
    told = refusal(prepare_finetuning, tmp_path / "bert", OWN, lm_coef=0.5)
    assert "BertForSequenceClassification does not predict next tokens" in told


@pytest.mark.parametrize("name", ["lm_coef", "learning_rate", "class_weights"])
def test_an_argument_of_the_run_is_sent_to_the_arguments(name, parts):
    check_refused(
        lambda: GPT1Trainer(**parts, **{name: 0.5}), f"takes no `{name}`", f"args=GPT1TrainingArguments(…, {name}=…)"
    )


def test_the_arguments_of_a_pre_training_are_named_by_their_class(tmp_path):
    args = GPT1PretrainingArguments(str(tmp_path))
    told = refusal(GPT1PretrainingTrainer, GPT1ForCausalLM(make_small_config(20)), args, learning_rate=0.5)
    assert "`args=GPT1PretrainingArguments(…, learning_rate=…)`" in told


def test_a_tokenizer_is_sent_to_processing_class(parts):
    assert "Pass it as `processing_class`" in refusal(GPT1Trainer, **parts, tokenizer=None)


def test_a_name_that_nobody_knows_keeps_the_error_of_python(parts):
    with pytest.raises(TypeError, match="'colour'"):
        GPT1Trainer(**parts, colour="red")


def test_the_double_heads_name_their_scores_where_logits_are_asked_for():
    model = GPT1DoubleHeadsModel(make_small_config(20, num_labels=2, extract_token_id=19))
    output = model(torch.tensor([[1, 2, 19]]))
    with pytest.raises(AttributeError, match="read `task_logits`, the task's scores, or `lm_logits`"):
        _ = output.logits
    assert not hasattr(output, "logits")


def test_several_sequences_per_example_need_a_traversal():
    told = refusal(GPT1DoubleHeadsModel(make_small_config(20)), torch.ones(2, 3, 5, dtype=torch.int64))
    assert 'give the configuration `traversal="multiple_choice"`' in told


@pytest.mark.parametrize("opened", [GPT1Config, GPT1ForCausalLM, GPT1DoubleHeadsModel])
def test_a_folder_of_another_family_is_refused_with_its_type(opened, tmp_path):
    write_family("bert", tmp_path / "bert")
    told = refusal(opened.from_pretrained, tmp_path / "bert")
    assert f"{tmp_path / 'bert'} is a model of type 'bert', and GPT1Config is of type 'gpt1'" in told
    assert "AutoModel" in told


def test_a_transformer_does_not_open_as_an_lstm(tmp_path):
    GPT1Config(hidden_size=8, num_attention_heads=2).save_pretrained(tmp_path)
    assert "of type 'gpt1', and GPT1LSTMConfig" in refusal(GPT1LSTMConfig.from_pretrained, tmp_path)


def test_a_new_head_is_said_to_be_normal(start, caplog):
    prepare_finetuning(start, OWN)
    assert caplog.messages == ["New classification head (normal before fine-tuning)."]
