"""8-bit weights against a float64 formula, with FBGEMM and without."""

import pytest
import torch
from torch import nn

from modeling_gpt1 import (
    GPT1DoubleHeadsModel,
    GPT1ForCausalLM,
    GPT1ForQuestionAnswering,
    GPT1ForTokenClassification,
    GPT1Int8Config,
)
from modeling_gpt1.inference import quantization
from modeling_gpt1.inference.quantization import GPT1Int8Linear


@pytest.fixture(autouse=True, params=[True, False], ids=["fbgemm", "int_mm"])
def product(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(quantization, "has_fbgemm", lambda: False)
    elif not quantization.has_fbgemm():
        pytest.skip("torch has no FBGEMM here, or the processor no VNNI")


def random_linear(bias=True):
    torch.manual_seed(0)
    linear = nn.Linear(48, 20, bias=bias)
    linear.weight.data *= torch.logspace(-2, 2, 20)[:, None]  # so that a wrong scale is far off
    return linear


def random_rows(num_rows=5):
    rows = torch.randn(num_rows, 48, generator=torch.Generator().manual_seed(1))
    return rows * torch.logspace(-3, 3, num_rows)[:, None]


def rounded(matrix):
    """Each row in float64, at steps of 1/127 of its largest value; and the steps."""
    step = matrix.double().abs().amax(1, keepdim=True) / 127
    return (matrix.double() / step).round() * step, step


@pytest.mark.parametrize(("bias", "dtype"), [(True, torch.float32), (False, torch.float32), (False, torch.bfloat16)])
def test_int8_linear_is_the_product_of_rounded_rows(bias, dtype):
    linear = random_linear(bias).to(dtype)
    rows = random_rows()
    expected = rounded(rows)[0] @ rounded(linear.weight.detach())[0].T + (linear.bias.detach().double() if bias else 0)
    torch.testing.assert_close(GPT1Int8Linear(linear)(rows).double(), expected, atol=1e-7, rtol=1e-5)


def test_int8_linear_keeps_dtype_and_shape_and_rows_apart_and_of_zeros_is_the_bias():
    layer = GPT1Int8Linear(random_linear())
    rows = random_rows(6)
    torch.testing.assert_close(layer(rows)[2:3], layer(rows[2:3]), atol=0, rtol=0)
    assert layer(rows.view(2, 3, 48).bfloat16()).shape == (2, 3, 20)
    assert layer(rows.bfloat16()).dtype == torch.bfloat16
    linear = random_linear()
    linear.weight.data[3] = 0
    torch.testing.assert_close(GPT1Int8Linear(linear)(torch.zeros(1, 48))[0], linear.bias.detach(), atol=0, rtol=0)
    assert GPT1Int8Linear(linear)(random_rows())[:, 3].tolist() == [linear.bias[3].item()] * 5


@pytest.fixture
def folder(tiny_model, tmp_path):
    tiny_model(GPT1ForCausalLM, seed=3).save_pretrained(tmp_path)
    return tmp_path


def open_int8(folder, model_class=GPT1ForCausalLM, **kwargs):
    return model_class.from_pretrained(folder, quantization_config=GPT1Int8Config(), **kwargs)


def test_which_layers_are_in_8_bits(tiny_model, tmp_path):
    tiny_model(GPT1DoubleHeadsModel, traversal="classification").save_pretrained(tmp_path)
    model = open_int8(tmp_path, GPT1DoubleHeadsModel)
    kinds = {name: type(module) for name, module in model.named_modules() if hasattr(module, "in_features")}
    assert [name for name, kind in kinds.items() if kind is not GPT1Int8Linear] == ["task_head.score"]
    assert len(kinds) == 2 * 6 + 2
    assert model.transformer.tokens_embed.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("model_class", "head"), [(GPT1ForTokenClassification, "classifier"), (GPT1ForQuestionAnswering, "qa_outputs")]
)
def test_the_heads_of_tokens_and_answers_stay_as_they_are(tiny_model, tmp_path, model_class, head):
    saved = tiny_model(model_class)
    saved.save_pretrained(tmp_path)
    weight = open_int8(tmp_path, model_class).get_submodule(head).weight
    assert torch.equal(weight, saved.get_submodule(head).weight)


def test_int8_logits_are_near(tiny_model, folder):
    """Closer than those of the same model with a block left out, which is the control."""
    ids = torch.randint(101, (3, 12), generator=torch.Generator().manual_seed(0))
    model = tiny_model(GPT1ForCausalLM, seed=3)
    with torch.no_grad():
        expected = model(ids).logits
        error = (open_int8(folder)(ids).logits - expected).std() / expected.std()
        model.transformer.h = model.transformer.h[:1]
        control = (model(ids, use_cache=False).logits - expected).std() / expected.std()
    assert error < 0.05
    assert control > 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_generation_with_a_cache_is_that_without(folder, dtype):
    model = open_int8(folder, dtype=dtype)
    prompt = torch.randint(1, 101, (2, 5), generator=torch.Generator().manual_seed(0))
    options = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    assert model.generate(prompt, **options).tolist() == model.generate(prompt, use_cache=False, **options).tolist()


def test_int8_neither_trains_nor_is_saved(folder, tmp_path):
    model = open_int8(folder, device_map={"": "cpu"})
    ids = torch.arange(1, 6)[None]
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model(ids, labels=ids).loss.grad_fn is None
    with pytest.raises(ValueError, match="quantized with gpt1_int8 and is not serializable"):
        model.save_pretrained(tmp_path / "int8")
