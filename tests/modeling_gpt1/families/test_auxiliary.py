"""L3 on transformers' own classifiers of decoders: beside float64 sums of two losses, and what is refused."""

from types import SimpleNamespace

import pytest
import torch
from support.decoders import (
    CHOICE_TASK,
    DECODERS,
    TASK,
    decoder_tokenizer,
    make_decoder,
    naive_gradients,
    prepare_decoder,
    write_decoder,
)
from support.families import write_family
from support.finetuning import Rows
from support.refusals import refusal
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from modeling_gpt1 import prepare_finetuning
from modeling_gpt1.families import auxiliary, family_of_model
from modeling_gpt1.families.language_model_head import LanguageModelHead, scale_of_logits
from modeling_gpt1.loss_gpt1 import task_losses

LM_COEF = 0.5
HAS_BIAS = ("phi",)
TIED = ("llama tied", "qwen2", "qwen3", "opt", "gemma2", "gpt2")


@pytest.fixture
def folder_of(tmp_path):
    return lambda name, **options: write_decoder(name, tmp_path / name, **options)


def loss_of(model, batch, lm_coef: float = LM_COEF) -> torch.Tensor:
    """L3 of a batch, as the trainer computes it."""
    family = family_of_model(model)
    labels = batch.pop("labels")
    outputs = family.scores_of(model)(**batch, example_weights=torch.ones(len(labels), dtype=torch.float64))
    losses = task_losses(outputs.logits, labels, family.loss_settings(model.config))
    return (losses.sum() + lm_coef * outputs.lm_sum) / len(labels)


def plain_rows(batch) -> list[dict]:
    """The sequences of each row of a batch without their padding, and without choices that it does not have."""
    rows = []
    labels = batch["labels"].tolist()
    shape = (len(labels), -1, batch["input_ids"].shape[-1])
    ids, mask = (batch[name].view(shape) for name in ("input_ids", "attention_mask"))  # [B, C, T]
    is_there = batch.get("choice_mask", torch.ones(ids.shape[:2], dtype=torch.bool))
    for row, label in enumerate(labels):
        places = is_there[row].nonzero().flatten()
        sequences = [ids[row, place][mask[row, place].bool()] for place in places]
        rows.append({"sequences": sequences, "label": label})
    return rows


CASES = [(name, "right", TASK) for name in DECODERS]
CASES += [("llama", "left", TASK), ("opt", "left", TASK)]
CASES += [("llama", "left", CHOICE_TASK), ("gemma2", "right", CHOICE_TASK), ("gpt2", "right", CHOICE_TASK)]


@pytest.mark.parametrize(
    ("name", "padding_side", "task"), CASES, ids=[f"{name}-{side}-{task.traversal}" for name, side, task in CASES]
)
def test_loss_and_gradients_are_those_of_two_losses_in_float64(name, padding_side, task, folder_of):
    """The rows of multiple choice have two to four choices."""
    folder = folder_of(name)
    parts = prepare_decoder(folder, padding_side=padding_side, task=task)
    model = parts["model"].double().eval()
    batch = parts["data_collator"](Rows("classification", 5).rows)
    classifier = AutoModelForSequenceClassification.from_pretrained(folder, config=model.config).double()
    classifier.load_state_dict({key: value for key, value in model.state_dict().items() if "auxiliary" not in key})
    causal = AutoModelForCausalLM.from_pretrained(folder).double()
    expected, gradients = naive_gradients(classifier.eval(), causal.eval(), plain_rows(batch), LM_COEF)

    loss = loss_of(model, batch)
    loss.backward()

    found = {key: weight.grad for key, weight in model.named_parameters() if weight.grad is not None}
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert found.keys() == gradients.keys()
    for key, gradient in gradients.items():
        # That of OPT's key biases is 0.
        atol = max(1e-5 * gradient.abs().max().item(), 1e-12)
        torch.testing.assert_close(found[key], gradient, rtol=1e-5, atol=atol, msg=key)


def test_the_loss_of_a_soft_cap_does_not_depend_on_the_side_of_padding(folder_of):
    folder = folder_of("gemma2")
    losses = []
    for padding_side in ("right", "left"):
        parts = prepare_decoder(folder, padding_side=padding_side)
        losses.append(loss_of(parts["model"].eval(), parts["data_collator"](Rows("classification", 5).rows)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.parametrize("name", ["llama", "llama tied", "phi"])
def test_the_head_has_an_output_matrix_where_it_is_not_tied_and_a_bias_where_there_is_one(name, folder_of):
    head = auxiliary.auxiliary_head(prepare_decoder(folder_of(name))["model"])
    assert (head.weight is None) == (name in TIED)
    assert (head.bias is not None) == (name in HAS_BIAS)


@pytest.mark.parametrize(
    ("fields", "factor"),
    [
        ({"model_type": "llama"}, 1.0),
        ({"model_type": "cohere", "logit_scale": 0.25}, 0.25),
        ({"model_type": "granite", "logits_scaling": 8.0}, 0.125),
        ({"model_type": "hyperclovax", "logits_scaling": 8.0}, 8.0),
        ({"model_type": "falcon_h1", "lm_head_multiplier": 0.5}, 0.5),
    ],
)
def test_the_factor_of_logits_is_that_of_the_configuration(fields, factor):
    assert scale_of_logits(SimpleNamespace(**fields)) == factor


@pytest.mark.parametrize("soft_cap", [None, 2.0])
def test_a_factor_of_logits_is_in_loss_and_gradient(soft_cap):
    torch.manual_seed(0)
    hidden, embeddings = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((6, 4), (9, 4)))
    ids, weights = torch.tensor([1, 2, 3, 4, 5, 6]), torch.rand(6, dtype=torch.float64)
    head = LanguageModelHead(scale=3.0, soft_cap=soft_cap)
    loss, token_losses = head.weighted_sum(hidden, embeddings, ids, weights, 1.0)
    found = torch.autograd.grad(loss, (hidden, embeddings))
    logits = 3.0 * hidden @ embeddings.T
    if soft_cap is not None:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    expected_losses = torch.nn.functional.cross_entropy(logits, ids, reduction="none")
    expected = torch.autograd.grad((expected_losses * weights).sum(), (hidden, embeddings))
    torch.testing.assert_close(token_losses, expected_losses.detach())
    torch.testing.assert_close(found, expected)


def test_a_soft_cap_that_is_left_out_is_noticed(folder_of, monkeypatch):
    """The control of the comparison above, and of the probe."""
    monkeypatch.setattr(auxiliary, "soft_cap_of_logits", lambda config: None)
    told = refusal(prepare_decoder, folder_of("gemma2"))
    assert "logits of the causal gemma2 do not follow from the last hidden states of Gemma2ForSequenceCl" in told
    assert "Leave `lm_coef` out" in told


def test_a_model_that_reads_later_tokens_is_refused(folder_of):
    folder = folder_of("llama")
    model = prepare_decoder(folder, lm_coef=None)["model"]
    causal = AutoModelForCausalLM.from_pretrained(folder)
    head = auxiliary.head_of_causal_model(causal, str(folder))

    def read_all(module, inputs, output):
        output.last_hidden_state = output[0] + output[0].mean(1, keepdim=True)
        return output

    for one in (model, causal):
        one.base_model.register_forward_hook(read_all)
    ids = auxiliary.probe_ids(decoder_tokenizer())
    told = refusal(auxiliary.check_logits, model, head, ids, causal(input_ids=ids).logits)
    assert "LlamaForSequenceClassification reads the tokens after the one that it predicts" in told


def test_a_classifier_that_reads_texts_as_an_encoder_decoder_is_refused(tmp_path):
    told = refusal(prepare_decoder, write_family("bart", tmp_path, "ForCausalLM"))
    assert "BartForSequenceClassification cannot read a few tokens as the causal bart does" in told
    assert "Leave `lm_coef` out" in told


@pytest.mark.parametrize("is_nan_expected", [False, True])
def test_logits_that_are_not_numbers_agree_with_none(is_nan_expected):
    given = [torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0])]
    assert auxiliary.difference(*(given[::-1] if is_nan_expected else given)) == torch.inf
    assert auxiliary.difference(torch.tensor([1.0, 2.5]), given[1]) == 0.25


def test_a_classifier_has_no_output_matrix_to_go_on_with(folder_of, tmp_path):
    folder = folder_of("llama")
    prepare_decoder(folder)["model"].save_pretrained(tmp_path / "tuned")
    told = refusal(prepare_decoder, tmp_path / "tuned")
    assert "tuned has no weights for lm_head.weight" in told
    assert "Pass the checkpoint before it was fine-tuned" in told


def test_a_classifier_with_tied_embeddings_goes_on(folder_of, tmp_path):
    prepare_decoder(folder_of("llama tied"))["model"].save_pretrained(tmp_path / "tuned")
    assert auxiliary.auxiliary_head(prepare_decoder(tmp_path / "tuned")["model"]).weight is None


def test_an_encoder_is_refused(tmp_path):
    told = refusal(prepare_finetuning, write_family("bert", tmp_path), TASK, lm_coef=0.5)
    assert "BertForSequenceClassification does not predict next tokens" in told


def test_a_row_without_a_label_has_no_weight(folder_of):
    parts = prepare_decoder(folder_of("llama"))
    model = parts["model"].eval()
    scores = family_of_model(model).scores_of(model)
    batch = parts["data_collator"](Rows("classification", 3).rows)
    del batch["labels"]
    sums = []
    for weights in ([1, 1, 0], [1, 0, 0], [0, 1, 0]):
        sums.append(scores(**batch, example_weights=torch.tensor(weights)).lm_sum.item())
    assert sums[0] == pytest.approx(sums[1] + sums[2], rel=1e-6)


@pytest.mark.parametrize("lm_coef", [-0.5, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(lm_coef, folder_of):
    assert f"`lm_coef` is {lm_coef}" in refusal(prepare_decoder, folder_of("gpt2"), lm_coef=lm_coef)


def test_a_frozen_matrix_without_the_objective_is_refused(folder_of):
    told = refusal(prepare_decoder, folder_of("llama"), lm_coef=None, freeze_lm_head=True)
    assert "`freeze_lm_head` is for the auxiliary objective" in told


def test_an_output_matrix_that_is_the_input_embeddings_cannot_be_frozen(folder_of):
    told = refusal(prepare_decoder, folder_of("llama tied"), freeze_lm_head=True)
    assert "`freeze_lm_head` is True, but the output matrix of" in told
    assert "llama tied is its input embeddings" in told
    assert "Leave `freeze_lm_head` out" in told


@pytest.mark.parametrize(("lm_coef", "is_left_out"), [(0.5, False), (0.0, True), (None, True)])
def test_an_output_matrix_is_told_as_left_out_where_no_loss_reads_it(lm_coef, is_left_out, folder_of, caplog):
    prepare_decoder(folder_of("llama"), lm_coef=lm_coef)
    assert ("Weights left out: lm_head.weight." in caplog.text) == is_left_out


def test_the_classifier_keeps_its_class_and_its_weights(folder_of, tmp_path):
    folder = folder_of("llama")
    plain, model = (prepare_decoder(folder, lm_coef=lm_coef)["model"] for lm_coef in (None, 0.5))
    model.save_pretrained(tmp_path / "saved")
    opened = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved")
    assert type(opened) is type(plain)
    assert opened.config.architectures == ["LlamaForSequenceClassification"]
    torch.testing.assert_close(opened.state_dict(), plain.state_dict(), rtol=0, atol=0)


def test_the_logits_of_text_are_in_memory_in_parts(folder_of, monkeypatch):
    """Of a family with a soft cap, too: parts of one token give the same loss."""
    parts = prepare_decoder(folder_of("gemma2"))
    batch = parts["data_collator"](Rows("classification", 5).rows)
    whole = loss_of(parts["model"], dict(batch))
    monkeypatch.setattr("modeling_gpt1.families.language_model_head.CHUNK_BYTES", 4)
    assert loss_of(parts["model"], dict(batch)).item() == pytest.approx(whole.item(), rel=1e-6)


def test_a_projection_before_the_output_matrix_is_refused(folder_of):
    model = make_decoder("llama", decoder_tokenizer())
    head = auxiliary.head_of_causal_model(model, "folder")
    model.lm_head.register_forward_pre_hook(lambda module, inputs: torch.tanh(inputs[0]))
    classifier = prepare_decoder(folder_of("llama"), lm_coef=None)["model"]
    ids = auxiliary.probe_ids(decoder_tokenizer())
    assert "they differ by" in refusal(auxiliary.check_logits, classifier, head, ids, model(input_ids=ids).logits)
