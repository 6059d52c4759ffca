"""Dropout on the CPU: the statistics of its noise, its gradient, its limits."""

import pytest
import torch

from modeling_gpt1.kernels_gpt1 import GPT1Dropout, dropout_noise


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_statistics_of_the_noise(probability):
    noise = dropout_noise(torch.Size((500, 2001)), probability, torch.float64, torch.Generator().manual_seed(0))
    dropped, kept = noise.unique().tolist()
    rounded = round(probability * 2**16) / 2**16
    assert dropped == 0
    assert kept == pytest.approx(1 / (1 - rounded), abs=1e-12)
    tolerance = 4 * (probability * (1 - probability) / noise.numel()) ** 0.5  # 4 standard deviations
    is_dropped = (noise == 0).double()
    assert abs(is_dropped.mean().item() - probability) < tolerance
    for distance in range(1, 6):  # numbers of one random word are independent too
        both = (is_dropped.flatten()[distance:] * is_dropped.flatten()[:-distance]).mean().item()
        assert abs(both - probability**2) < tolerance


def test_extreme_probabilities_keep_and_drop_something():
    generator = torch.Generator().manual_seed(0)
    for probability, kept in [(1e-9, 2**16 / (2**16 - 1)), (1 - 1e-9, 2**16)]:
        noise = dropout_noise(torch.Size((2**19,)), probability, torch.float64, generator)
        assert noise.unique().tolist() == [0, kept]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_scales_what_it_keeps_and_passes_its_gradient(dtype):
    torch.manual_seed(0)
    ones = torch.ones(1000, 7, dtype=dtype, requires_grad=True)
    dropout = GPT1Dropout(0.25).train()
    output = dropout(ones)
    output.sum().backward()
    assert output.dtype == dtype
    assert torch.equal(output, ones.grad)
    assert output.unique().tolist() == [0, torch.tensor(4 / 3, dtype=dtype).item()]
    assert 0.22 < (output == 0).float().mean() < 0.28
    assert not torch.equal(dropout(ones), output)
    assert torch.equal(dropout.eval()(ones), ones)


def test_dropout_of_everything_and_of_nothing():
    ones = torch.ones(10)
    assert torch.equal(GPT1Dropout(1.0).train()(ones), torch.zeros(10))
    assert torch.equal(GPT1Dropout(0.0).train()(ones), ones)
