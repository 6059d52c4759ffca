"""benchmarks/scale.py: the formulas beside the papers, torch's own counters and one rank of a simulated group."""

import sys
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.tensor.debug import CommDebugMode
from torch.utils.flop_counter import FlopCounterMode

from modeling_gpt1 import GPT1Config

GROUPS = {"ddp": (1, 1), "fsdp2": (8, 1), "tensor": (8, 2)}  # ranks, and those of them that share a block
SIZES = ("117M", "125M", "350M", "760M", "1.3B", "2.7B", "6.7B", "13B", "175B")


@pytest.fixture(scope="module")
def simulation(scale):
    return sys.modules["simulation"]


def tiny(blocks: int = 5, **changes) -> GPT1Config:
    sizes = {"vocab_size": 512, "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 32}
    return GPT1Config(**{**sizes, "num_hidden_layers": blocks, "attn_pdrop": 0.0, **changes})


def setting_of(simulation, strategy: str, **changes):
    ranks, tensor = GROUPS[strategy]
    return simulation.Setting(tiny(), strategy, ranks, tensor, batch=2, **changes)


@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_parameters_round_to_those_of_the_papers(name, simulation):
    told, blocks, width, _ = simulation.SIZES[name]
    setting = simulation.Setting(simulation.configuration(name))
    assert simulation.elements(setting) == pytest.approx(told, rel=0.02)
    norms = 2 * width if setting.config.do_layer_norm_before else 0
    embeddings = (setting.config.vocab_size + setting.config.max_position_embeddings) * width
    assert simulation.elements(setting) == blocks * (12 * width**2 + 13 * width) + embeddings + norms
    fewer = replace(setting, config=simulation.deepened(setting.config, blocks - 1))
    assert simulation.elements(fewer) != pytest.approx(told, rel=0.004)


def assert_planned(simulation, setting, run: dict) -> None:
    """What a rank holds and what its collectives work on are those of the formulas."""
    assert run["held"] == sum(simulation.held(setting)[part] for part in ("weights", "gradients"))
    groups = simulation.traffic(setting)
    assert run["traffic"] == Counter(groups["data"]) + Counter(groups["tensor"])


@pytest.mark.parametrize("strategy", ["ddp", "fsdp2"])
def test_a_plan_is_what_a_whole_simulated_rank_takes(strategy, simulation, monkeypatch):
    setting, simulated = setting_of(simulation, strategy, checkpointing=strategy == "fsdp2"), {}

    def simulate(probed, run=simulation.simulate):
        simulated[probed.config.num_hidden_layers] = run(probed)
        return simulated[probed.config.num_hidden_layers]

    monkeypatch.setattr(simulation, "simulate", simulate)
    working, whole = simulation.working(setting), simulate(setting)
    assert list(simulated) == [3, 4, 5]
    assert working == whole["working"] > simulated[4]["working"]
    assert_planned(simulation, setting, whole)
    # Controls: the plans of another depth, group and dtype.
    with pytest.raises(AssertionError):
        assert_planned(simulation, replace(setting, config=tiny(4)), whole)
    if strategy == "fsdp2":
        for change in ({"ranks": 4}, {"bf16": False}):
            with pytest.raises(AssertionError):
                assert_planned(simulation, replace(setting, **change), whole)


def test_gradients_that_wait_are_whole(simulation):
    setting = replace(setting_of(simulation, "fsdp2", synchronised=False), config=tiny(2))
    assert_planned(simulation, setting, simulation.simulate(setting))
    elements, part = simulation.elements(setting), simulation.elements(setting, 8)
    assert simulation.held(setting) == {
        "weights": 4 * part,
        "gradients": 2 * elements,
        "optimizer": 8 * part,
        "buffers": 0,
    }


def test_counters_agree_with_those_of_torch_where_ranks_share_blocks(simulation, monkeypatch):
    setting = replace(setting_of(simulation, "tensor"), config=tiny(2))
    ours = simulation.simulate(setting)
    assert_planned(simulation, setting, ours)
    counts = Counter()

    def micro_batch(*arguments, run=simulation.micro_batch):
        counts.clear()
        with CommDebugMode() as collectives:
            run(*arguments)
        for packet, count in collectives.get_comm_counts().items():
            counts[next(kind for kind in ("reduce_scatter", "gather", "reduce") if kind in str(packet))] += count

    monkeypatch.setattr(simulation, "micro_batch", micro_batch)
    monkeypatch.setattr(simulation, "PeakTracker", MemTracker)
    assert simulation.simulate(setting) == ours
    # The embedding, six in each block and the head's gradient; the logits, three units and the blocks once more.
    assert ours["calls"] == {"all_reduce": 14, "all_gather": 6 + 1, "reduce_scatter": 4}
    assert counts == {"reduce": 14, "gather": 7, "reduce_scatter": 4}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
def test_operations_are_those_that_torch_counts(checkpointing, simulation):
    def of_product(_, left, right, **kwargs):
        return 2 * left[0] * left[1] * right[1]

    config = tiny(2, attn_implementation="eager")  # whose products are counted on any device
    setting = simulation.Setting(config, "ddp", batch=2, bf16=False, checkpointing=checkpointing)
    with simulation.without_values(True), FakeTensorMode(allow_non_fake_inputs=True):
        model = simulation.build(setting)
        # Without a formula of its own, torch's counter leaves out products that are added in place.
        with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: of_product}) as counter:
            simulation.micro_batch(model, setting)
    assert counter.get_total_flops() == sum(simulation.operations(setting))
    assert sum(simulation.operations(replace(setting, checkpointing=not checkpointing))) != counter.get_total_flops()


def test_time_of_a_step(simulation):
    setting = setting_of(simulation, "ddp")
    setting = replace(setting, ranks=16)
    forward, backward = simulation.operations(setting)
    elements = simulation.elements(setting)
    fast = simulation.Device(flops=1e9, memory_bandwidth=1e30, link=1e30, network=1e30)
    assert simulation.step_time(setting, fast, 0) == pytest.approx(
        {"computing": (forward + backward) / 1e9, "transfers": 0, "step": (forward + backward) / 1e9, "use": 1}
    )
    between = simulation.Device(flops=1e30, memory_bandwidth=1e30, network=1e6)
    seconds = 2 * 4 * elements * 15 / 16 / 1e6
    assert simulation.step_time(setting, between, 0)["step"] == pytest.approx(seconds)
    within = replace(between, per_machine=16)
    assert simulation.step_time(setting, within, 0)["step"] == pytest.approx(seconds * 1e6 / 450e9)
    slow = simulation.Device(flops=1e30, memory_bandwidth=1e9, link=1e30, network=1e30)
    # Weights once forward and twice backward, what backward keeps twice, and an update of 28 bytes for each parameter.
    assert simulation.step_time(setting, slow, 1000)["step"] == pytest.approx((34 * elements + 2000) / 1e9)


def test_table_of_the_least_numbers_of_gpus(scale, simulation):
    config = simulation.configuration("1.3B")
    found = {
        ("ddp", "bf16"): (simulation.Setting(config, "ddp"), 8 * scale.GIB),
        ("fsdp2", "bf16"): (simulation.Setting(config, "fsdp2"), 8 * scale.GIB),
        ("fsdp2", "float32"): (simulation.Setting(config, "fsdp2", bf16=False), 200 * scale.GIB),
    }
    rows = scale.plans("1.3B", found, [24, 40, 80], 0.1, simulation.Device())
    assert scale.table(rows) == (
        "| size | launch file | bf16 | float32 |\n|---|---|---|---|\n"
        "| 1.3B | ddp.yaml | – / 1 / 1 |  |\n"
        "| 1.3B | fsdp2.yaml | 2 / 1 / 1 | – / – / – |"
    )
    sharded = rows[1]["plans"][1]
    assert sharded["ranks"] == 8 and sharded["bytes"]["all"] == sum(
        sharded["bytes"][part] for part in ("weights", "gradients", "optimizer", "buffers", "micro-batch")
    )
