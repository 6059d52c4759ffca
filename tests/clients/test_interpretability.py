"""nnsight and captum on a model of this package: what they change and attribute is what torch computes."""

import pytest
import torch
from support.finetuning import make_double_heads_model, make_letter_tokenizer
from support.tiny import make_tiny_config, randomise_weights

from modeling_gpt1 import GPT1ForCausalLM, GPT1ForSequenceClassification


def test_an_intervention_of_nnsight_is_a_forward_hook(tmp_path, monkeypatch):
    # Else it gives every object of the process a method `save`, which hides that of modules that load lazily: torch's
    # ONNX exporter calls one.
    (tmp_path / "nnsight.yaml").write_text("APP: {PYMOUNT: false}")
    monkeypatch.setenv("NNSIGHT_CONFIG", str(tmp_path / "nnsight.yaml"))
    nnsight = pytest.importorskip("nnsight")
    model = randomise_weights(GPT1ForCausalLM(make_tiny_config()).eval())
    ids = torch.tensor([[5, 9, 2, 7]])
    wrapped = nnsight.NNsight(model)
    with torch.no_grad(), wrapped.trace(input_ids=ids):
        wrapped.transformer.h[0].attn.o_proj.output = 2 * wrapped.transformer.h[0].attn.o_proj.output
        logits = nnsight.save(wrapped.output.logits)
    handle = model.transformer.h[0].attn.o_proj.register_forward_hook(lambda module, inputs, output: 2 * output)
    with torch.no_grad():
        hooked = model(ids).logits
    handle.remove()
    torch.testing.assert_close(logits, hooked)
    assert not hasattr(object(), "save")


def test_attributions_of_captum_add_up_to_the_difference_of_logits(tmp_path):
    attr = pytest.importorskip("captum.attr")
    tokenizer = make_letter_tokenizer()
    make_double_heads_model("classification", tokenizer).save_pretrained(tmp_path)
    model = GPT1ForSequenceClassification.from_pretrained(tmp_path)
    ids = tokenizer("ann eats fish", return_tensors="pt")["input_ids"]

    def score(ids):
        return model(ids).logits[:, 1]

    gradients = attr.LayerIntegratedGradients(score, model.transformer.tokens_embed)
    attributions = gradients.attribute(ids, 0 * ids, n_steps=64)[0]
    with torch.no_grad():
        expected = score(ids) - score(0 * ids)
    torch.testing.assert_close(attributions.sum()[None], expected, atol=1e-3, rtol=0)
