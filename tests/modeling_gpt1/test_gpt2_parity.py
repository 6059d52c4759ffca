"""Folders of transformers' GPT-2, opened by our classes: weights, outputs, generation, and what is refused."""

import json
import re

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.refusals import refusal

from modeling_gpt1 import (
    GPT1Config,
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForMultipleChoice,
    GPT1ForQuestionAnswering,
    GPT1ForSequenceClassification,
    GPT1ForTokenClassification,
    GPT1Model,
)

CASES = [
    pytest.param(transformers.GPT2Model, GPT1Model, True, id="base"),
    pytest.param(transformers.GPT2LMHeadModel, GPT1ForCausalLM, True, id="lm"),
    pytest.param(transformers.GPT2LMHeadModel, GPT1ForCausalLM, False, id="lm, untied"),
    pytest.param(transformers.GPT2DoubleHeadsModel, GPT1DoubleHeadsModel, True, id="double heads"),
    pytest.param(transformers.GPT2DoubleHeadsModel, GPT1DoubleHeadsModel, False, id="double heads, untied"),
    pytest.param(transformers.GPT2DoubleHeadsModel, GPT1ForMultipleChoice, True, id="multiple choice"),
    pytest.param(transformers.GPT2ForSequenceClassification, GPT1ForSequenceClassification, True, id="classification"),
    pytest.param(transformers.GPT2ForTokenClassification, GPT1ForTokenClassification, True, id="tokens"),
    pytest.param(transformers.GPT2ForQuestionAnswering, GPT1ForQuestionAnswering, True, id="answers"),
]


@pytest.fixture
def gpt2_folder(randomise, tmp_path):
    """Makes a GPT-2 with random weights, biases and norms too, and its folder."""

    def make(model_class, **fields):
        sizes = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 24, "n_inner": 48}
        dropouts = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
        tokens = {"bos_token_id": 100, "eos_token_id": 100, "pad_token_id": 0}
        labels = {"num_labels": 1 if model_class is transformers.GPT2DoubleHeadsModel else 3}
        config = transformers.GPT2Config(**{**sizes, **dropouts, **tokens, **labels, **fields})
        model = randomise(model_class(config)).eval()
        model.save_pretrained(tmp_path / "gpt2")
        return model, tmp_path / "gpt2"

    return make


def open_folder(model_class, folder, **overrides):
    """Without a missing, unexpected or mismatched weight."""
    model, report = model_class.from_pretrained(folder, output_loading_info=True, **overrides)
    assert {name: keys for name, keys in report.items() if keys} == {}
    return model.eval()


def batch_for(model) -> dict:
    generator = torch.Generator().manual_seed(1)
    if isinstance(model, transformers.GPT2DoubleHeadsModel):
        ids = torch.randint(1, 100, (3, 2, 9), generator=generator)
        return {"input_ids": ids, "mc_token_ids": torch.tensor([[8, 3], [0, 8], [5, 6]])}
    return {"input_ids": torch.randint(1, 100, (3, 9), generator=generator)}


def outputs_of(model, batch) -> list[torch.Tensor]:
    """The outputs that both sides have."""
    if isinstance(model, GPT1DoubleHeadsModel):
        outputs = model(**batch, output_lm_logits=True)
        return [outputs.lm_logits, outputs.task_logits]
    outputs = model(**batch)
    if isinstance(model, transformers.GPT2DoubleHeadsModel):
        return [outputs.logits, outputs.mc_logits]
    if isinstance(model, transformers.GPT2ForQuestionAnswering | GPT1ForQuestionAnswering):
        return [outputs.start_logits, outputs.end_logits]
    return [outputs[0]]


def assert_same(ours, theirs, batch):
    expected, actual = outputs_of(theirs, batch), outputs_of(ours, batch)
    for tensor, given in zip(actual, expected[-len(actual) :], strict=True):
        assert given.std() > 0.1
        torch.testing.assert_close(tensor, given, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("gpt2_class", "our_class", "tied"), CASES)
def test_outputs_are_those_of_gpt2_and_stay_so_when_saved(gpt2_folder, tmp_path, gpt2_class, our_class, tied):
    theirs, folder = gpt2_folder(gpt2_class, tie_word_embeddings=tied)
    ours = open_folder(our_class, folder)
    batch = batch_for(theirs)
    assert_same(ours, theirs, batch)
    ours.save_pretrained(tmp_path / "gpt1")
    assert json.loads((tmp_path / "gpt1" / "config.json").read_text())["model_type"] == "gpt1"
    again = open_folder(our_class, tmp_path / "gpt1")
    assert_same(again, theirs, batch)
    assert all(torch.equal(*pair) for pair in zip(ours.parameters(), again.parameters(), strict=True))


def test_loss_and_gradients_are_those_of_gpt2(gpt2_folder):
    theirs, folder = gpt2_folder(transformers.GPT2LMHeadModel)
    ours = open_folder(GPT1ForCausalLM, folder)
    ids = batch_for(theirs)["input_ids"]
    losses = [model(input_ids=ids, labels=ids).loss for model in (ours.train(), theirs)]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-6)
    assert_same_gradients(losses, ours, theirs, atol=1e-5, rtol=1e-4)


def assert_same_gradients(losses, ours, theirs, atol, rtol):
    """Of both decoders, after a backward pass of each loss."""
    for loss in losses:
        loss.backward()
    expected = {name: weight.grad for name, weight in theirs.transformer.named_parameters()}
    for name, weight in ours.transformer.named_parameters():
        name = name.replace("tokens_embed", "wte").replace("positions_embed", "wpe").replace("up_proj", "c_fc")
        name = re.sub("(o|down)_proj", "c_proj", name)
        projection = re.search("[qkv]_proj", name)
        given = expected[re.sub("[qkv]_proj", "c_attn", name)]
        if projection is not None:
            given = given.chunk(3, dim=-1)["qkv".index(projection[0][0])]
        is_turned = given.dim() == 2 and name.startswith("h.")
        torch.testing.assert_close(weight.grad, given.T if is_turned else given, atol=atol, rtol=rtol)


TOKEN_LABELS = {"labels": torch.tensor([[0, 1, 2, -100, 1, 2, 0, 0, -100], [2] * 9, [-100] * 9])}
# 9 and 12 were cut off; −1 is taken for the first token.
SPANS = {"start_positions": torch.tensor([2, -1, 9]), "end_positions": torch.tensor([[4], [0], [12]])}
OF_TOKENS = (transformers.GPT2ForTokenClassification, GPT1ForTokenClassification, "classifier", TOKEN_LABELS)
OF_ANSWERS = (transformers.GPT2ForQuestionAnswering, GPT1ForQuestionAnswering, "qa_outputs", SPANS)


@pytest.mark.parametrize(
    ("gpt2_class", "our_class", "head", "targets"), [OF_TOKENS, OF_ANSWERS], ids=["tokens", "answers"]
)
def test_loss_and_gradients_of_tokens_and_answers_are_those_of_gpt2(gpt2_folder, gpt2_class, our_class, head, targets):
    theirs, folder = gpt2_folder(gpt2_class)
    ours = open_folder(our_class, folder)
    ids = batch_for(theirs)["input_ids"]
    losses = [model(input_ids=ids, **targets).loss for model in (ours, theirs)]
    torch.testing.assert_close(*losses, atol=1e-6, rtol=1e-6)
    assert_same_gradients(losses, ours, theirs, atol=1e-6, rtol=1e-5)
    for name, weight in ours.get_submodule(head).named_parameters():
        expected = theirs.get_submodule(head).get_parameter(name).grad
        assert name == "bias" or expected.abs().max() > 0.01
        torch.testing.assert_close(weight.grad, expected, atol=1e-6, rtol=1e-5)


def test_dropout_before_the_head_of_tokens_is_that_of_gpt2(gpt2_folder):
    _, folder = gpt2_folder(transformers.GPT2ForTokenClassification, summary_first_dropout=0.4)
    assert GPT1ForTokenClassification.from_pretrained(folder).dropout.p == 0.1  # GPT-2 has it in the code
    _, folder = gpt2_folder(transformers.GPT2ForTokenClassification, classifier_dropout=0.3)
    assert GPT1ForTokenClassification.from_pretrained(folder).dropout.p == 0.3


@pytest.mark.parametrize("fault", ["gelu", "norms", "heads"])
def test_the_comparison_sees_a_wrong_model(gpt2_folder, fault):
    theirs, folder = gpt2_folder(transformers.GPT2LMHeadModel)
    overrides = {"gelu": {"hidden_act": "gelu"}, "heads": {"num_attention_heads": 8}}.get(fault, {})
    ours = open_folder(GPT1ForCausalLM, folder, **overrides)
    if fault == "norms":
        for block in ours.transformer.h:
            block.do_layer_norm_before = False
    with pytest.raises(AssertionError):
        assert_same(ours, theirs, batch_for(theirs))


def test_every_class_opens_the_language_model(gpt2_folder):
    """What the folder has is there; the task heads are fresh."""
    theirs, folder = gpt2_folder(transformers.GPT2LMHeadModel)
    expected = theirs.transformer.h[1].mlp.c_fc.weight.T
    for model_class in (GPT1Model, GPT1DoubleHeadsModel, GPT1ForSequenceClassification, GPT1ForMultipleChoice):
        model, report = model_class.from_pretrained(folder, output_loading_info=True)
        missing = {name for name in model.state_dict() if name.startswith("task_head.")}
        assert report["missing_keys"] == missing
        assert not report["unexpected_keys"]
        assert torch.equal(model.base_model.h[1].mlp.up_proj.weight, expected)
        assert model.config.model_type == "gpt1"
        assert "model_type" not in vars(model.config)


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"cache_implementation": "static"}], ids=str)
def test_generation_is_that_of_gpt2(gpt2_folder, options):
    theirs, folder = gpt2_folder(transformers.GPT2LMHeadModel, tie_word_embeddings=False)
    theirs.generation_config = transformers.GenerationConfig(pad_token_id=0, eos_token_id=100)
    theirs.generation_config.save_pretrained(folder)
    ours = open_folder(GPT1ForCausalLM, folder)
    assert ours.generation_config.eos_token_id == 100
    ids = batch_for(theirs)["input_ids"]
    ids[1, :4] = 0
    batch = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    settings = {"max_new_tokens": 10, "do_sample": False, "disable_compile": True, **options}
    expected = theirs.generate(**batch, **settings)
    assert len(set(expected[0, 9:].tolist())) > 3
    assert ours.generate(**batch, **settings).tolist() == expected.tolist()


def test_files_of_the_hub_are_read(gpt2_folder):
    """Names without a prefix, buffers of masks, and no field but those of 2019, as the published folder has."""
    theirs, folder = gpt2_folder(transformers.GPT2LMHeadModel, n_inner=None, n_embd=64)
    weights = {name.removeprefix("transformer."): w for name, w in load_file(folder / "model.safetensors").items()}
    for layer in range(2):
        weights[f"h.{layer}.attn.bias"] = torch.ones(1, 1, 24, 24).tril()
        weights[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    fields = {"n_ctx": 24, "n_positions": 24, "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 101}
    old = {"summary_type": "cls_index", "n_special": 0, "predict_special_tokens": True, "layer_norm_epsilon": 1e-5}
    config = {**fields, **old, "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}
    (folder / "config.json").write_text(json.dumps(config))
    assert_same(open_folder(GPT1ForCausalLM, folder), theirs, batch_for(theirs))
    # A file that names the tied embeddings twice.
    save_file({**weights, "lm_head.weight": weights["wte.weight"].clone()}, folder / "model.safetensors")
    assert_same(open_folder(GPT1ForCausalLM, folder), theirs, batch_for(theirs))


def test_fields_of_gpt2_are_translated(gpt2_folder):
    _, folder = gpt2_folder(transformers.GPT2LMHeadModel, activation_function="gelu", layer_norm_epsilon=1e-6)
    config = GPT1Config.from_pretrained(folder)
    assert (config.hidden_act, config.intermediate_size, config.layer_norm_epsilon) == ("gelu", 48, 1e-6)
    assert (config.do_layer_norm_before, config.rescale_prenorm_residual, config.traversal) == (True, True, None)
    assert (config.eos_token_id, config.max_position_embeddings, config.sliding_window) == (100, 24, None)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    config, published = GPT1Config.from_pretrained(folder), transformers.GPT2Config()
    names = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
    names += ("bos_token_id", "eos_token_id", "pad_token_id", "layer_norm_epsilon", "initializer_range")
    assert all(getattr(config, name) == getattr(published, name) for name in names)
    assert (config.intermediate_size, config.hidden_act) == (3072, "gelu_pytorch_tanh")


@pytest.mark.parametrize(
    ("gpt2_class", "name", "value", "needed"),
    [
        (transformers.GPT2LMHeadModel, "scale_attn_weights", False, True),
        (transformers.GPT2LMHeadModel, "scale_attn_by_inverse_layer_idx", True, False),
        (transformers.GPT2LMHeadModel, "reorder_and_upcast_attn", True, False),
        (transformers.GPT2LMHeadModel, "add_cross_attention", True, False),
        (transformers.GPT2DoubleHeadsModel, "summary_type", "mean", "cls_index"),
        (transformers.GPT2DoubleHeadsModel, "summary_activation", "tanh", None),
        (transformers.GPT2DoubleHeadsModel, "summary_use_proj", False, True),
        (transformers.GPT2DoubleHeadsModel, "summary_proj_to_labels", False, True),
    ],
)
def test_a_gpt2_that_computes_something_else_is_refused(gpt2_folder, gpt2_class, name, value, needed):
    _, folder = gpt2_folder(gpt2_class, **{name: value})
    message = refusal(GPT1Model.from_pretrained, folder)
    assert f"`{name}` is {value!r}" in message
    assert f"only {needed!r}. Open the model with" in message


def test_fields_that_nobody_translated_are_refused(gpt2_folder):
    _, folder = gpt2_folder(transformers.GPT2LMHeadModel, summary_activation="tanh")  # of a head that is not there
    fields = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert "Open its folder with `GPT1Config.from_pretrained`" in refusal(GPT1Config.from_dict, fields)
    assert GPT1Config.from_pretrained(folder).do_layer_norm_before
