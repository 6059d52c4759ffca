"""What fits where: the memory of GPT-1 and the sizes of GPT-3 in training, on 1 to 1,024 GPUs.

    python benchmarks/scale.py --sizes 117M 1.3B   # the least number of GPUs for each memory: minutes
    python benchmarks/scale.py --save              # all sizes; also benchmarks/results/<date>-scale.json

Everything is planned by simulation and not measured. Weights, gradients and optimizer state follow from the shapes of
the parameters, exactly. The rest is counted by torch's MemTracker on fake tensors, which have shapes and no data: one
rank of a fake process group runs the real model, with fully_shard or tensor parallelism, at its true width with 3 and
4 blocks. Each further block adds the same.

A plan is for a GPU: one byte for each element that dropout keeps, flash attention, layer norms of float32 under
autocast. Each GPU has one row of the model's length in a micro-batch, which finds the gradients of an earlier one. The
CUDA context, buffers inside of kernels and fragmentation are not in it: `--reserve` keeps memory for them.
"""

import argparse
import copy
import gc
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil, gcd, prod
from multiprocessing import get_context
from unittest import mock

import torch
import torch.distributed as dist
from harness import machine, save_result
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, loss_gpt1
from modeling_gpt1.kernels_gpt1 import GPT1Dropout
from tokenization.batches.plan import BatchPlan, plan_blocks

GIB = 2**30

STRATEGIES = {  # where a strategy is configured
    "ddp": "ddp.yaml",
    "fsdp2": "fsdp2.yaml",
    "zero2": "deepspeed_zero2.yaml",
    "zero3": "deepspeed_zero3.yaml",
    "tensor": "none: `DistributedConfig(tp_size=8, fsdp_size=…)`",
}
MOST_TENSOR_RANKS = 8  # that share a block: those of a machine; 4 where 8 do not divide the heads
PROBED_RANKS = 8  # data-parallel ranks of a simulated group
RANKS = tuple(2**power for power in range(11))

# Parameters as rounded by the papers; blocks, width, heads. 117M: section 4.1 of Radford et al. 2018; the
# others: table 2.1 of Brown et al. 2020 (https://arxiv.org/abs/2005.14165). Two of its rows do not divide by their
# heads: 1.3B has 24 heads of 128 for a width of 2048, and 13B a width of 5140 for 40 heads of 128. Heads of 128 and
# the rounded number of parameters agree with 16 heads, and with a width of 5120.
SIZES = {
    "117M": (117e6, 12, 768, 12),
    "125M": (125e6, 12, 768, 12),
    "350M": (350e6, 24, 1024, 16),
    "760M": (760e6, 24, 1536, 16),
    "1.3B": (1.3e9, 24, 2048, 16),
    "2.7B": (2.7e9, 32, 2560, 32),
    "6.7B": (6.7e9, 32, 4096, 32),
    "13B": (13e9, 40, 5120, 40),
    "175B": (175e9, 96, 12288, 96),
}
PROBED_BLOCKS = (3, 4)
# DeepSpeed's defaults, in elements: a bucket of gradients, and the weights that ZeRO-3 leaves gathered.
REDUCE_BUCKET = 5 * 10**8
LIVE_PARAMETERS = 10**9
VOCABULARY_MULTIPLE = 128  # tensor parallelism needs a vocabulary that its ranks divide


@dataclass(frozen=True)
class Setting:
    """One way to train: what a plan is made for."""

    config: GPT1Config
    strategy: str = "fsdp2"
    ranks: int = 1
    tensor: int = 1  # ranks that share each block; the others see other rows
    batch: int = 1  # rows of the model's length in a micro-batch of each rank
    bf16: bool = True  # products in bfloat16; weights of float32 stay behind them
    checkpointing: bool = False
    synchronised: bool = True  # False: gradients wait, unreduced, for the last micro-batch of an update

    @property
    def data(self) -> int:
        return self.ranks // self.tensor

    @property
    def is_sharded(self) -> bool:
        return self.strategy in ("fsdp2", "tensor")


def configuration(name: str, strategy: str = "fsdp2") -> GPT1Config:
    _, blocks, width, heads = SIZES[name]
    sizes = {"hidden_size": width, "num_hidden_layers": blocks, "num_attention_heads": heads}
    # Attention's dropout keeps no mask on a GPU, but on a CPU it would leave flash attention.
    if name == "117M":
        config = GPT1Config(**sizes, attn_pdrop=0.0)
    else:  # GPT-3's paper has no dropout, and does not give the width of its bands: dense attention bounds them
        sizes |= {"vocab_size": 50257, "max_position_embeddings": 2048}
        config = GPT1Config(**sizes, do_layer_norm_before=True, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
    if strategy == "tensor":
        config.vocab_size = ceil(config.vocab_size / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    return config


# ---- What is held between micro-batches, by formulas


def units(setting: Setting) -> list[tuple[int, list[tuple[int, ...]]]]:
    """The units that FSDP2 gathers: number and shapes of the blocks, the tied embedding and the rest. With tensor
    parallelism, the shapes of rank 0's part."""
    config = setting.config
    fields = ("vocab_size", "hidden_size", "intermediate_size", "max_position_embeddings", "do_layer_norm_before")
    shapes = {"h": [], "tokens_embed": [], "rest": []}
    for name, shape in shapes_of_one_block(**{field: getattr(config, field) for field in fields}).items():
        unit = name.split(".")[1]
        shapes.get(unit, shapes["rest"]).append(cut_shape(name, shape, setting))
    counts = (config.num_hidden_layers, 1, 1)
    return list(zip(counts, shapes.values(), strict=True))


@cache
def shapes_of_one_block(**fields) -> dict[str, tuple[int, ...]]:
    """Shapes of the parameters of a model with one block."""
    with torch.device("meta"):
        model = GPT1ForCausalLM(GPT1Config(num_hidden_layers=1, num_attention_heads=1, **fields))
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}


def cut_shape(name: str, shape: tuple[int, ...], setting: Setting) -> tuple[int, ...]:
    module, _, kind = re.sub(r"\.\d+\.", ".*.", name.removeprefix("transformer.")).rpartition(".")
    style = setting.config.base_model_tp_plan.get(module)
    if setting.tensor == 1 or style is None or (style == "rowwise" and kind == "bias"):
        return shape
    place = 1 if style == "rowwise" else 0
    return (*shape[:place], ceil(shape[place] / setting.tensor), *shape[place + 1 :])


def elements(setting: Setting, ranks: int = 1) -> int:
    """Elements of rank 0's shards of all parameters; of whole parameters with one rank."""
    sizes = ((count, shape) for count, shapes in units(setting) for shape in shapes)
    return sum(count * ceil(shape[0] / ranks) * prod(shape[1:]) for count, shape in sizes)


def held(setting: Setting) -> dict[str, int]:
    """Bytes that a rank holds between micro-batches. ZeRO's are those of its paper (Rajbhandari et al. 2020)."""
    whole = elements(setting)
    if setting.strategy == "ddp":
        buckets = 4 * whole if setting.ranks > 1 else 0  # DDP copies gradients into buckets
        return {"weights": 4 * whole, "gradients": 4 * whole, "optimizer": 8 * whole, "buffers": buckets}
    if setting.is_sharded:
        part = elements(setting, setting.data)
        if setting.synchronised:
            gradients = 4 * part
        else:
            bytes_of_one = 2 if setting.bf16 else 4
            gradients = max(bytes_of_one * whole, 4 * part)
        return {"weights": 4 * part, "gradients": gradients, "optimizer": 8 * part, "buffers": 0}
    cut = ceil(whole / setting.ranks)
    if setting.strategy == "zero2":
        weights = whole
        buffers = min(REDUCE_BUCKET, whole)
    else:
        weights = cut
        buffers = min(REDUCE_BUCKET, whole) + min(LIVE_PARAMETERS, whole)
    return {"weights": 2 * weights, "gradients": 2 * cut, "optimizer": 12 * cut, "buffers": 2 * buffers}


# ---- What a micro-batch adds, by one rank on fake tensors


class PeakTracker(MemTracker):
    """torch's MemTracker without the peak of each module, whose upkeep grows with modules times operations."""

    def _update_peak_stats(self, peak_state) -> None:
        for device, snapshot in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < snapshot["Total"]:
                self._peak_mem[device] = snapshot["Total"]
                self._peak_mem_snap[device] = dict(snapshot)


@contextmanager
def without_values() -> Iterator[None]:
    """Lets the model run on fake tensors, which have no values, and keeps for backward what a GPU keeps."""

    def drop(dropout: GPT1Dropout, hidden_states: torch.Tensor) -> torch.Tensor:
        if not dropout.p:
            return hidden_states
        return torch.native_dropout(hidden_states, dropout.p, True)[0]

    def normalise(norm: nn.LayerNorm, hidden_states: torch.Tensor) -> torch.Tensor:
        tensors = [hidden_states, norm.weight, norm.bias]
        if torch.is_autocast_enabled("cpu"):
            tensors = [tensor.float() for tensor in tensors]
        return nn.functional.layer_norm(tensors[0], norm.normalized_shape, *tensors[1:], norm.eps)

    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if name.startswith("modeling_gpt1.") and hasattr(module, "can_read"):
                stack.enter_context(mock.patch.object(module, "can_read", lambda tensor: False))
        stack.enter_context(mock.patch.object(GPT1Dropout, "forward", drop))
        stack.enter_context(mock.patch.object(nn.LayerNorm, "forward", normalise))
        stack.enter_context(mock.patch.object(loss_gpt1, "GRADIENT_ROWS", sys.maxsize))
        yield


@contextmanager
def fake_ranks(ranks: int) -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


def build(setting: Setting) -> nn.Module:
    config = copy.deepcopy(setting.config)
    config.use_cache = False
    dtype = torch.bfloat16 if setting.strategy.startswith("zero") else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).train()
    if setting.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def cut(model: nn.Module, setting: Setting) -> nn.Module:
    """Cuts the model over the process group: blocks by the model's own plan, and units as accelerate cuts them."""
    if not setting.is_sharded:
        return model
    shape = (setting.data, setting.tensor)
    mesh = dist.init_device_mesh("cpu", shape, mesh_dim_names=("data", "tensor"))
    if setting.tensor > 1:
        styles = {
            "colwise": ColwiseParallel,
            "rowwise": RowwiseParallel,
            "embedding_rowwise": partial(RowwiseParallel, input_layouts=Replicate()),
            "colwise_gather_output": partial(ColwiseParallel, output_layouts=Replicate()),
        }
        plan = {f"transformer.{name}": style for name, style in setting.config.base_model_tp_plan.items()}
        plan["lm_head"] = "colwise_gather_output"
        parallelize_module(model, mesh["tensor"], {name: styles[style]() for name, style in plan.items()})
        model.lm_head.weight = model.transformer.tokens_embed.weight
        model._tp_size = setting.tensor  # the head then returns the logits of all targets
    policy = MixedPrecisionPolicy()
    if setting.bf16:
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, torch.bfloat16)
    arguments = {"mesh": mesh["data"], "mp_policy": policy}
    for block in model.transformer.h:
        fully_shard(block, reshard_after_forward=True, **arguments)
    fully_shard([model.transformer.tokens_embed, model.lm_head], reshard_after_forward=False, **arguments)
    return fully_shard(model, **arguments)


def micro_batch(model: nn.Module, setting: Setting, plan: BatchPlan) -> None:
    input_ids = torch.ones(plan.shape, dtype=torch.long)
    with_autocast = setting.bf16 and not setting.strategy.startswith("zero")
    with torch.autocast("cpu", torch.bfloat16) if with_autocast else nullcontext():
        output = model(input_ids=input_ids, labels=input_ids, plan=plan, num_items_in_batch=len(plan.target_tokens))
    output.loss.backward()


def simulate(setting: Setting) -> dict[str, int]:
    """What the second of two micro-batches of rank 0 finds, with the gradients of the first, and what it adds."""
    tracker = PeakTracker()
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    # Made of values, which fake tensors lack: the number of targets depends on them.
    plan = plan_blocks(torch.ones(setting.batch, setting.config.max_position_embeddings, dtype=torch.long))
    gc.freeze()  # collections then look only at what a simulation makes
    with without_values(), fake_ranks(setting.ranks):
        with fake:
            model = build(setting)
        model = cut(model, setting)
        tracker.track_external(model)
        for is_last in (False, True):
            if setting.is_sharded and not setting.synchronised:
                model.set_requires_gradient_sync(is_last)
            gc.collect()  # cycles of the earlier micro-batch would count as held
            with fake, tracker:
                before = total(tracker, "current")
                micro_batch(model, setting, plan)
            tracker.reset_mod_stats()
        peak = total(tracker, "peak")
    gc.unfreeze()
    return {"held": before, "working": peak - before}


def total(tracker: MemTracker, kind: str) -> int:
    return sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot(kind).values())


def working(setting: Setting) -> int:
    """Bytes that a micro-batch adds at its peak: activations, gathered units and buffers, for any number of blocks."""

    def of_depth(blocks: int) -> int:
        config = copy.deepcopy(setting.config)
        config.num_hidden_layers = blocks
        return simulate(replace(setting, config=config))["working"]

    fewer, more = map(of_depth, PROBED_BLOCKS)
    per_block = (more - fewer) // (PROBED_BLOCKS[1] - PROBED_BLOCKS[0])
    return fewer + (setting.config.num_hidden_layers - PROBED_BLOCKS[0]) * per_block


# ---- Plans


def variants(name: str) -> dict[tuple[str, str], tuple[Setting, int]]:
    """Settings of a size by strategy and column of the table, with what a micro-batch adds to each."""
    found = {}
    for strategy in STRATEGIES:
        config = configuration(name, strategy)
        tensor = gcd(config.num_attention_heads, MOST_TENSOR_RANKS) if strategy == "tensor" else 1
        plain = Setting(config, strategy, ranks=tensor, tensor=tensor)
        checkpointed = replace(plain, checkpointing=True)
        settings = {"bf16": plain, "bf16, checkpointing": checkpointed}
        if strategy in ("ddp", "fsdp2"):
            settings["float32, checkpointing"] = replace(checkpointed, bf16=False)
        for column, setting in settings.items():
            if strategy == "zero3":  # as ZeRO-2, which differs in what is held between micro-batches
                found[strategy, column] = setting, found["zero2", column][1]
            else:
                probed = replace(setting, ranks=PROBED_RANKS * setting.tensor if setting.is_sharded else 1)
                found[strategy, column] = setting, working(probed)
        if plain.is_sharded:  # gradients that wait count as held
            setting = replace(checkpointed, synchronised=False)
            found[strategy, "bf16, checkpointing, unsynchronised"] = setting, found[strategy, "bf16, checkpointing"][1]
    return found


def least_ranks(setting: Setting, extra: int, memory: float) -> int | None:
    """The least number of GPUs with this many bytes each that suffices, as all larger ones do; `None` above 1,024."""
    least = None
    for ranks in reversed([ranks for ranks in RANKS if ranks >= setting.tensor]):
        if sum(held(replace(setting, ranks=ranks)).values()) + extra > memory:
            break
        least = ranks
    return least


def plans(name: str, found: dict, memories: list[int], reserve: float) -> list[dict]:
    rows = []
    for (strategy, column), (setting, extra) in found.items():
        least = {}
        for memory in memories:
            least[str(memory)] = least_ranks(setting, extra, memory * GIB * (1 - reserve))
        rows.append(
            {
                "size": name,
                "launch": STRATEGIES[strategy],
                "setting": column,
                "bytes of a micro-batch": extra,
                "least": least,
            }
        )
    return rows


def table(rows: list[dict]) -> str:
    """The rows of `plans` as Markdown: a cell has the least number of GPUs for each memory."""
    columns = list(dict.fromkeys(row["setting"] for row in rows))
    cells = {(row["size"], row["launch"], row["setting"]): row["least"].values() for row in rows}
    lines = [f"| size | launch file | {' | '.join(columns)} |", "|---|---|" + "---|" * len(columns)]
    for size, launch in dict.fromkeys((row["size"], row["launch"]) for row in rows):
        found = [cells.get((size, launch, column), ()) for column in columns]
        texts = [" / ".join("–" if ranks is None else f"{ranks:,}" for ranks in cell) for cell in found]
        lines.append(f"| {size} | {launch} | {' | '.join(texts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--memories", nargs="+", type=int, default=[24, 40, 80], help="GiB of a GPU")
    parser.add_argument("--reserve", type=float, default=0.1, help="part of the memory that a plan must leave free")
    parser.add_argument("--processes", type=int, default=1, help="sizes that are simulated at once")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        found = zip(arguments.sizes, pool.map(variants, arguments.sizes), strict=True)
        rows = [row for of_size in found for row in plans(*of_size, arguments.memories, arguments.reserve)]
    print(table(rows), flush=True)
    if arguments.save:
        about = {"about": "planned by simulation, not measured", "reserve": arguments.reserve}
        save_result("scale", machine(1), {**about, "sizes": rows})


if __name__ == "__main__":
    main()
