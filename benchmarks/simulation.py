"""Plans of training without its GPUs: formulas for bytes, traffic and time, and one rank on fake tensors.

- Weights, gradients, optimizer state and traffic follow from the shapes of the parameters, exactly.
- The rest of the memory is counted by torch's MemTracker on fake tensors, which have shapes and no data. One rank of a
  fake process group runs the real model, with fully_shard or tensor parallelism, at its true width with 3 and 4
  blocks. Each further block adds the same.
- Time is a roofline: operations at the peak rate or bytes at the peak bandwidth, whichever is longer, and transfers
  behind computation where they can be. No machine reaches it.

A plan is for a GPU: one byte for each element that dropout keeps, flash attention, layer norms of float32 under
autocast. It is for a micro-batch that finds the gradients of an earlier one. The CUDA context, buffers inside of
kernels and fragmentation are not in it.
"""

import copy
import gc
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil, prod
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, loss_gpt1
from modeling_gpt1.attention_gpt1 import GPT1Dropout
from modeling_gpt1.unpadding_gpt1 import BatchPlan, Targets

# ---- Sizes. Parameters as rounded by the papers; blocks, width, heads. 117M: section 4.1 of Radford et al. 2018; the
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
REDUCE_BUCKET, LIVE_PARAMETERS = 5 * 10**8, 10**9
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
    on_gpu: bool = True  # False: what the CPU keeps, to compare with a real process

    @property
    def data(self) -> int:
        return self.ranks // self.tensor

    @property
    def is_sharded(self) -> bool:
        return self.strategy in ("fsdp2", "tensor")

    @property
    def width(self) -> int:
        """Bytes of an element in products."""
        return 2 if self.bf16 else 4


@dataclass(frozen=True)
class Device:
    """Peak figures of a GPU and its links, for each direction; the defaults are those of an H100 SXM's data sheet."""

    flops: float = 989e12  # of bfloat16 in dense products, per second
    flops_float32: float = 67e12
    memory_bandwidth: float = 3.35e12  # bytes/s
    link: float = 450e9  # bytes/s between GPUs of a machine
    network: float = 50e9  # bytes/s of each GPU between machines: 400 Gbit/s
    per_machine: int = 8


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


def deepened(config: GPT1Config, blocks: int) -> GPT1Config:
    config = copy.deepcopy(config)
    config.num_hidden_layers = blocks
    return config


# ---- Formulas


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
    return sum(count * shard(shapes, ranks) for count, shapes in units(setting))


def shard(shapes: list[tuple[int, ...]], ranks: int) -> int:
    return sum(ceil(shape[0] / ranks) * prod(shape[1:]) for shape in shapes)


def held(setting: Setting) -> dict[str, int]:
    """Bytes that a rank holds between micro-batches. ZeRO's are those of its paper (Rajbhandari et al. 2020)."""
    whole = elements(setting)
    if setting.strategy == "ddp":
        buckets = 4 * whole if setting.ranks > 1 else 0  # DDP copies gradients into buckets
        return {"weights": 4 * whole, "gradients": 4 * whole, "optimizer": 8 * whole, "buffers": buckets}
    if setting.is_sharded:
        part = elements(setting, setting.data)
        gradients = 4 * part if setting.synchronised else max(setting.width * whole, 4 * part)
        return {"weights": 4 * part, "gradients": gradients, "optimizer": 8 * part, "buffers": 0}
    cut = ceil(whole / setting.ranks)
    if setting.strategy == "zero2":
        weights, buffers = whole, min(REDUCE_BUCKET, whole)
    else:
        weights, buffers = cut, min(REDUCE_BUCKET, whole) + min(LIVE_PARAMETERS, whole)
    return {"weights": 2 * weights, "gradients": 2 * cut, "optimizer": 12 * cut, "buffers": 2 * buffers}


def traffic(setting: Setting) -> dict[str, dict[str, int]]:
    """Bytes of the tensors that a synchronised micro-batch's collectives work on, by group of ranks and by kind."""
    data, tensor = Counter(), Counter()
    if setting.strategy == "ddp" and setting.data > 1:
        data["all_reduce"] = 4 * elements(setting)
    elif setting.is_sharded and setting.data > 1:
        sizes = [(count, setting.data * shard(shapes, setting.data)) for count, shapes in units(setting)]
        once = setting.width * sum(count * size for count, size in sizes)
        blocks = setting.width * sizes[0][0] * sizes[0][1]  # freed after the forward pass and gathered again
        data |= {"all_gather": once + blocks, "reduce_scatter": once}
    if setting.tensor > 1:
        config, rows = setting.config, setting.batch * setting.config.max_position_embeddings
        targets = rows - setting.batch
        # A block reduces the outputs of o_proj and down_proj, and the gradients of what q, k, v and up_proj read.
        # Recomputation stops at the last kept tensor: before down_proj's output, unless a norm or dropout reads it.
        again = 2 if not config.do_layer_norm_before or config.resid_pdrop else 1
        outputs = setting.width * (2 + again * setting.checkpointing)
        normalised = 4 if setting.on_gpu else setting.width
        inputs = normalised + 3 * (normalised if config.do_layer_norm_before else setting.width)
        tensor["all_reduce"] = config.hidden_size * (
            rows * (setting.width + config.num_hidden_layers * (outputs + inputs)) + targets * setting.width
        )
        tensor["all_gather"] = setting.width * config.vocab_size * targets
    return {"data": dict(data), "tensor": dict(tensor)}


def sent(payload: dict[str, int], ranks: int) -> dict[str, float]:
    """Bytes that each rank of a ring sends: twice around for an all-reduce, once for the others."""
    return {kind: (2 if kind == "all_reduce" else 1) * size * (ranks - 1) / ranks for kind, size in payload.items()}


def operations(setting: Setting) -> tuple[int, int]:
    """Floating-point operations of a rank's forward and backward pass, as torch's FlopCounterMode counts them: causal
    attention is counted whole. Checkpointing's second forward pass is part of the backward pass."""
    config, tokens = setting.config, setting.batch * setting.config.max_position_embeddings
    matrices = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    attention = 2 * config.hidden_size * config.max_position_embeddings
    blocks = 2 * tokens * config.num_hidden_layers * (matrices + attention)
    head = 2 * (tokens - setting.batch) * config.hidden_size * config.vocab_size
    backward = (3 if setting.checkpointing else 2) * blocks + 2 * head
    return (blocks + head) // setting.tensor, backward // setting.tensor


def step_time(setting: Setting, device: Device, working: int) -> dict[str, float]:
    """Seconds of an update with one micro-batch: a lower bound. Its transfers run behind computation, but for those of
    tensor parallelism, whose results are needed at once."""
    rate = device.flops if setting.bf16 else device.flops_float32
    weights = setting.width * elements(setting)
    forward, backward = (
        max(operations_of_pass / rate, (weights * passes + working) / device.memory_bandwidth)
        for operations_of_pass, passes in zip(operations(setting), (1, 2), strict=True)
    )
    moved = traffic(setting)
    link = device.network if setting.ranks > device.per_machine else device.link
    data = {kind: size / link for kind, size in sent(moved["data"], setting.data).items()}
    tensor_link = device.network if setting.tensor > device.per_machine else device.link
    tensor = sum(sent(moved["tensor"], setting.tensor).values()) / tensor_link
    in_forward = data.get("reduce_scatter", 0.0)  # all units are gathered once, and the blocks again for the backward
    in_backward = sum(data.values()) - in_forward
    update = 28 * elements(setting, setting.data if setting.is_sharded else 1) / device.memory_bandwidth
    computing = forward + backward + update
    step = max(forward, in_forward) + max(backward, in_backward) + tensor + update
    useful = sum(operations(replace(setting, checkpointing=False))) / rate
    return {"computing": computing, "transfers": in_forward + in_backward + tensor, "step": step, "use": useful / step}


# ---- One rank on fake tensors


class Collectives(TorchDispatchMode):
    """Counts the collectives of this process and the bytes of the tensors that they work on, by kind."""

    kinds = ("all_reduce", "allreduce_", "all_gather_into_tensor", "_allgather_base_", "_reduce_scatter_base_")

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # its local operations come here
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.rpartition("::")[2]
        if "c10d" in func.namespace and name in self.kinds:
            kind = "reduce_scatter" if "reduce_scatter" in name else "all_gather" if "gather" in name else "all_reduce"
            tensors = [leaf for leaf in tree_leaves((args, result)) if isinstance(leaf, torch.Tensor)]
            self.calls[kind] += 1
            self.bytes[kind] += max(tensor.numel() * tensor.element_size() for tensor in tensors)
        return result


class PeakTracker(MemTracker):
    """torch's MemTracker without the peak of each module, whose upkeep grows with modules times operations."""

    def _update_peak_stats(self, peak_state) -> None:
        for device, snapshot in self._curr_mem_snap.items():
            if self._peak_mem.get(device, 0) < snapshot["Total"]:
                self._peak_mem[device], self._peak_mem_snap[device] = snapshot["Total"], dict(snapshot)


@contextmanager
def without_values(on_gpu: bool) -> Iterator[None]:
    """Lets the model run on fake tensors, which have no values; on request it keeps for backward what a GPU keeps."""

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
        if on_gpu:
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


def micro_batch(model: nn.Module, setting: Setting) -> None:
    rows, length = setting.batch, setting.config.max_position_embeddings
    input_ids = torch.ones(rows, length, dtype=torch.long)
    sources = torch.arange(rows * length).view(rows, length)[:, :-1].flatten()
    targets = Targets(sources, sources + 1, torch.ones(len(sources)), sources // length)
    plan = BatchPlan(input_ids.shape, True, targets=targets)  # the targets' number would depend on values
    with_autocast = setting.bf16 and not setting.strategy.startswith("zero")
    with torch.autocast("cpu", torch.bfloat16) if with_autocast else nullcontext():
        output = model(input_ids=input_ids, labels=input_ids, plan=plan, num_items_in_batch=len(sources))
    output.loss.backward()


def simulate(setting: Setting) -> dict:
    """Runs two micro-batches of rank 0 on fake tensors; the second finds gradients, and its figures are returned."""
    tracker, collectives = PeakTracker(), Collectives()
    gc.freeze()  # collections then look only at what a simulation makes
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with without_values(setting.on_gpu), fake_ranks(setting.ranks):
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
                with collectives if is_last else nullcontext():
                    micro_batch(model, setting)
            tracker.reset_mod_stats()
        peak = total(tracker, "peak")
    gc.unfreeze()
    return {
        "held": before,
        "working": peak - before,
        "calls": dict(collectives.calls),
        "traffic": dict(collectives.bytes),
    }


def total(tracker: MemTracker, kind: str) -> int:
    return sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot(kind).values())


def working(setting: Setting) -> int:
    """Bytes that a micro-batch adds at its peak: activations, gathered units and buffers, for any number of blocks."""
    fewer, more = (
        simulate(replace(setting, config=deepened(setting.config, blocks)))["working"] for blocks in PROBED_BLOCKS
    )
    per_block = (more - fewer) // (PROBED_BLOCKS[1] - PROBED_BLOCKS[0])
    return fewer + (setting.config.num_hidden_layers - PROBED_BLOCKS[0]) * per_block
