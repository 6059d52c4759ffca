"""benchmarks/scale.py: the formulas beside the papers, and beside one rank of a simulated group."""

from dataclasses import replace

import pytest

from modeling_gpt1 import GPT1Config

GROUPS = {"ddp": (1, 1), "fsdp2": (8, 1), "tensor": (8, 2)}  # ranks, and those of them that share a block


def tiny(blocks: int = 5) -> GPT1Config:
    sizes = {"vocab_size": 512, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 32}
    return GPT1Config(**sizes, num_hidden_layers=blocks, attn_pdrop=0.0)


def gradients_and_weights(scale, setting) -> int:
    return sum(scale.held(setting)[part] for part in ("weights", "gradients"))


@pytest.mark.parametrize("name", ("117M", "125M", "350M", "760M", "1.3B", "2.7B", "6.7B", "13B", "175B"))
def test_numbers_of_parameters_round_to_those_of_the_papers(name, scale):
    told, blocks, width, _ = scale.SIZES[name]
    setting = scale.Setting(scale.configuration(name))
    assert scale.elements(setting) == pytest.approx(told, rel=0.02)
    norms = 2 * width if setting.config.do_layer_norm_before else 0
    embeddings = (setting.config.vocab_size + setting.config.max_position_embeddings) * width
    assert scale.elements(setting) == blocks * (12 * width**2 + 13 * width) + embeddings + norms


@pytest.mark.parametrize("strategy", GROUPS)
def test_a_plan_is_what_a_whole_simulated_rank_takes(strategy, scale):
    """Also the gradients that wait whole for the last micro-batch. The plan of another depth differs."""
    ranks, tensor = GROUPS[strategy]
    setting = scale.Setting(tiny(), strategy, ranks, tensor, batch=2, checkpointing=strategy == "fsdp2")
    whole = scale.simulate(setting)
    assert scale.working(setting) == whole["working"] > 0
    assert whole["held"] == gradients_and_weights(scale, setting)
    assert whole["held"] != gradients_and_weights(scale, replace(setting, config=tiny(4)))
    if strategy == "fsdp2":
        waiting = replace(setting, config=tiny(2), synchronised=False)
        assert scale.simulate(waiting)["held"] == gradients_and_weights(scale, waiting)
        elements = scale.elements(waiting)
        part = scale.elements(waiting, 8)
        held = {"weights": 4 * part, "gradients": 2 * elements, "optimizer": 8 * part, "buffers": 0}
        assert scale.held(waiting) == held


def test_table_of_the_least_numbers_of_gpus(scale):
    config = scale.configuration("1.3B")
    found = {
        ("ddp", "bf16"): (scale.Setting(config, "ddp"), 8 * scale.GIB),
        ("fsdp2", "bf16"): (scale.Setting(config, "fsdp2"), 8 * scale.GIB),
        ("fsdp2", "float32"): (scale.Setting(config, "fsdp2", bf16=False), 200 * scale.GIB),
    }
    assert scale.table(scale.plans("1.3B", found, [24, 40, 80], 0.1)) == (
        "| size | launch file | bf16 | float32 |\n|---|---|---|---|\n"
        "| 1.3B | ddp.yaml | – / 1 / 1 |  |\n"
        "| 1.3B | fsdp2.yaml | 2 / 1 / 1 | – / – / – |"
    )
