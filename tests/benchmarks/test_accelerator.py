"""benchmarks/accelerator.py on the CPU, with tiny models: what it measures, and what it refuses."""

import pytest
import torch

FINE_TUNING = "RACE-shaped step 1 × 4 × 32, 20 shared"
OF_CLASSES = ["OpenAIGPTLMHeadModel", "GPT2LMHeadModel"]
GENERATORS = [*OF_CLASSES, "GPT1ForCausalLM, static cache"]


def test_all_work_is_measured_beside_both_classes(accelerator, monkeypatch):
    monkeypatch.setattr(accelerator, "default_device", lambda: torch.device("cpu"))
    rows = accelerator.compare(rounds=1, quick=True)
    assert [(row["work"], row["peer"]) for row in rows] == [
        *((f"pre-training step 2 × 16, {way}", peer) for way in accelerator.WAYS for peer in OF_CLASSES),
        (f"pre-training step 2 × 16, {list(accelerator.WAYS)[-1]}", accelerator.WHOLE),
        *((f"{FINE_TUNING}, {way}", "OpenAIGPTDoubleHeadsModel") for way in accelerator.WAYS),
        *((f"generation 8 + 4, batch 2, {dtype}", peer) for dtype in accelerator.DTYPES for peer in GENERATORS),
    ]
    assert {row["measure"] for row in rows} == {"seconds"}  # memory is that of an accelerator
    assert all(len(row["ratio"]["rounds"]) == 1 and row["ours"]["least"] > 0 for row in rows)


def test_models_that_disagree_are_not_measured(accelerator):
    weights = [torch.nn.Linear(1, 1, bias=False) for _ in range(2)]
    for model, weight in zip(weights, (1.0, 1.001), strict=True):
        torch.nn.init.constant_(model.weight, weight)
    models = dict(zip(("ours", "theirs"), weights, strict=True))

    def loss(name, model):
        return model(torch.ones(1, 1)).sum()

    with pytest.raises(RuntimeError, match=r"^The models disagree: loss of ours .* Nothing was measured;"):
        accelerator.check_models(loss, models, "theirs")
    accelerator.check_models(loss, {"ours": weights[0], "theirs": weights[0]}, "theirs")


def test_says_what_is_missing(accelerator, monkeypatch):
    monkeypatch.setattr(accelerator, "default_device", lambda: torch.device("cpu"))
    with pytest.raises(RuntimeError, match=r"^torch finds no accelerator\. --quick checks the script on a CPU\."):
        accelerator.compare(rounds=2, quick=False)
