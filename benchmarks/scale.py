"""What fits where: memory, traffic and time of a step for GPT-1 and the sizes of GPT-3, on 1 to 1,024 GPUs.

    python benchmarks/scale.py --sizes 117M 1.3B   # the least number of GPUs for each memory: minutes
    python benchmarks/scale.py --save              # all sizes; also benchmarks/results/<date>-scale.json and .png
    python benchmarks/scale.py --validate --save   # plans beside real processes: …/<date>-scale-validation.json

Everything but the real processes of `--validate` is planned by simulation and not measured: simulation.py says how.
Each GPU has one row of the model's length in a micro-batch. `--reserve` keeps a part of its memory for what a plan
does not count.
"""

import argparse
import os
import socket
import struct
import tempfile
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from math import gcd
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist
from harness import PrivatePeak, machine, private_bytes, resident_bytes, save_result
from simulation import (
    SIZES,
    Collectives,
    Device,
    Setting,
    build,
    configuration,
    cut,
    held,
    micro_batch,
    sent,
    simulate,
    step_time,
    traffic,
    working,
)
from torch import nn

from modeling_gpt1 import GPT1Config

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
# Sizes, strategies and ranks that are simulated with all blocks.
CHECKED = (("117M", "ddp", 1), ("117M", "fsdp2", 1024), ("117M", "tensor", 1024), ("1.3B", "fsdp2", 64))
CHECKED += (("1.3B", "tensor", 64), ("175B", "fsdp2", 64), ("175B", "tensor", 64))
RANKS = tuple(2**power for power in range(11))
SAVED_RANKS = (1, 8, 64, 1024)


# ---- Plans


def setting_of(name: str, strategy: str) -> Setting:
    config = configuration(name, strategy)
    tensor = gcd(config.num_attention_heads, MOST_TENSOR_RANKS) if strategy == "tensor" else 1
    return Setting(config, strategy, ranks=tensor, tensor=tensor)


def variants(name: str) -> dict[tuple[str, str], tuple[Setting, int]]:
    """Settings of a size by strategy and column of the table, with what a micro-batch adds to each."""
    found = {}
    for strategy in STRATEGIES:
        plain = setting_of(name, strategy)
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


def needed(setting: Setting, extra: int, ranks: int) -> int:
    return sum(held(replace(setting, ranks=ranks)).values()) + extra


def least_ranks(setting: Setting, extra: int, memory: float) -> int | None:
    """The least number of GPUs with this many bytes each that suffices, as all larger ones do; `None` above 1,024."""
    least = None
    for ranks in reversed([ranks for ranks in RANKS if ranks >= setting.tensor]):
        if needed(setting, extra, ranks) > memory:
            break
        least = ranks
    return least


def plan(setting: Setting, extra: int, ranks: int, device: Device) -> dict:
    setting = replace(setting, ranks=ranks)
    row = {"ranks": ranks, "bytes": {**held(setting), "micro-batch": extra, "all": needed(setting, extra, ranks)}}
    if setting.strategy.startswith("zero"):  # what DeepSpeed sends is its own
        return row
    groups = traffic(setting)
    moved = Counter(sent(groups["data"], setting.data)) + Counter(sent(groups["tensor"], setting.tensor))
    return {**row, "sent": dict(moved), "seconds": step_time(setting, device, extra)}


def plans(name: str, found: dict, memories: list[int], reserve: float, device: Device) -> list[dict]:
    return [
        {
            "size": name,
            "launch": STRATEGIES[strategy],
            "setting": column,
            "least": {str(memory): least_ranks(setting, extra, memory * GIB * (1 - reserve)) for memory in memories},
            "plans": [plan(setting, extra, ranks, device) for ranks in SAVED_RANKS if ranks >= setting.tensor],
        }
        for (strategy, column), (setting, extra) in found.items()
    ]


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


def draw(found: dict[str, dict], device: Device, memories: list[int]):
    """Memory of a GPU and use of its peak by the number of GPUs, with FSDP2, bf16 and checkpointing."""
    from matplotlib.figure import Figure  # here: simulated and real processes need none

    figure = Figure(figsize=(12, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, settings) in enumerate(found.items()):
        plans = [plan(*settings["fsdp2", "bf16, checkpointing"], ranks, device) for ranks in RANKS]
        colour = f"C{number}"
        left.plot(RANKS, [row["bytes"]["all"] / GIB for row in plans], colour, marker=".", label=name)
        right.plot(RANKS, [100 * row["seconds"]["use"] for row in plans], colour, marker=".", label=name)
    for memory in memories:
        left.axhline(memory, color="black", lw=0.8, ls=":")
        left.annotate(f"{memory} GiB", (RANKS[-1], memory), ha="right", va="bottom", fontsize="small")
    left.set_yscale("log")
    left.set_ylabel("GiB of each GPU")
    right.set_ylabel("% of the peak FLOP/s, at most")
    right.set_ylim(0, 105)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(RANKS, [str(ranks) for ranks in RANKS])
        axes.set_xlabel("GPUs")
        axes.grid(alpha=0.3)
    right.legend(fontsize="small", frameon=False, ncols=2)
    figure.suptitle("Planned by simulation, not measured: fsdp2.yaml, checkpointing, one row for each GPU")
    return figure


# ---- Real processes on this CPU


def real_run(setting: Setting, folder: str, rank: int) -> dict:
    """A process of a gloo group trains: the growth of its memory, and its collectives and sends in a micro-batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=setting.ranks)
    warm = replace(setting, config=small(num_hidden_layers=1), strategy="ddp", ranks=1)
    micro_batch(build(warm), warm)  # loads kernels and the buffers of libraries
    resident_bytes()  # gives freed memory back
    start = private_bytes()
    model = cut(build(setting), setting)
    if setting.strategy == "ddp" and setting.ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(2):  # DDP arranges its buckets after the first
        micro_batch(model, setting)
        optimizer.step()
    resident_bytes()
    collectives, sent_before = Collectives(), sent_by_sockets()
    with PrivatePeak() as peak, collectives:
        micro_batch(model, setting)
    dist.barrier()
    growth = peak.bytes - start
    return {"bytes": growth, "traffic": dict(collectives.bytes), "sent": sent_by_sockets() - sent_before}


def sent_by_sockets() -> int:
    """Bytes that the kernel has sent for this process's TCP connections: `tcpi_bytes_sent` of Linux's tcp_info."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and os.readlink(link).startswith("socket:"):
            with socket.socket(fileno=os.dup(int(link.name))) as connection:
                if connection.type == socket.SOCK_STREAM and connection.family in (socket.AF_INET, socket.AF_INET6):
                    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 232)
                    count += struct.unpack_from("Q", info, 200)[0] if len(info) >= 208 else 0
    return count


def small(**changes) -> GPT1Config:
    sizes = {"vocab_size": 8192, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
    return GPT1Config(**{**sizes, "max_position_embeddings": 256, "attn_pdrop": 0.0, **changes})


def validate() -> list[dict]:
    """Plans beside real processes: memory alone and in two processes, and what the two send."""
    alone = Setting(small(), "ddp", batch=4, bf16=False, on_gpu=False)
    two = replace(alone, ranks=2, batch=2)
    cases = {
        "GPT-1": alone,
        "GPT-2's options, 8 blocks, checkpointing": replace(
            alone, config=small(do_layer_norm_before=True, num_hidden_layers=8), batch=8, checkpointing=True
        ),
        "wide and shallow": replace(alone, config=small(hidden_size=1024, num_hidden_layers=3), batch=2),
        "DDP, 2 processes": two,
        "FSDP2, 2 processes": replace(two, strategy="fsdp2"),
    }
    # glibc keeps freed blocks below a threshold that it raises itself: this one gives each back to the system.
    os.environ["MALLOC_MMAP_THRESHOLD_"] = os.environ["MALLOC_TRIM_THRESHOLD_"] = "65536"
    rows = []
    for name, setting in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            with ProcessPoolExecutor(setting.ranks, mp_context=get_context("spawn")) as pool:
                real = list(pool.map(partial(real_run, setting, folder), range(setting.ranks)))
        alike = replace(setting, ranks=1) if setting.strategy == "ddp" else setting
        payload = traffic(setting)["data"]
        by_gloo = sent({"all_reduce" if kind == "reduce_scatter" else kind: size for kind, size in payload.items()}, 2)
        rows.append(
            {
                "case": name,
                "planned bytes": needed(setting, working(alike), setting.ranks),
                "real bytes": [process["bytes"] for process in real],
                "planned traffic": payload,
                "real traffic": real[0]["traffic"],
                "planned sent": sum(sent(payload, setting.ranks).values()),
                "planned sent, gloo reducing and scattering by an all-reduce": sum(by_gloo.values()),
                "sent by sockets": [process["sent"] for process in real],
            }
        )
        print(rows[-1], flush=True)
    return rows


def check(name: str, strategy: str, ranks: int) -> dict:
    """A plan with checkpointing beside a simulation of all blocks in a group of all ranks."""
    setting = setting_of(name, strategy)
    setting = replace(setting, ranks=ranks, checkpointing=True)
    probed = replace(setting, ranks=PROBED_RANKS * setting.tensor if setting.is_sharded else 1)
    whole, parts, groups = simulate(setting), held(setting), traffic(setting)
    row = {
        "size": name,
        "strategy": strategy,
        "ranks": ranks,
        "planned bytes": parts["weights"] + parts["gradients"] + working(probed),
        "simulated bytes": whole["held"] + whole["working"],
        "planned traffic": dict(Counter(groups["data"]) + Counter(groups["tensor"])),
        "simulated traffic": whole["traffic"],
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--memories", nargs="+", type=int, default=[24, 40, 80], help="GiB of a GPU")
    parser.add_argument("--reserve", type=float, default=0.1, help="part of the memory that a plan must leave free")
    parser.add_argument("--processes", type=int, default=1, help="sizes that are simulated at once")
    for field, value in asdict(Device()).items():
        parser.add_argument(f"--{field}", type=type(value), default=value)
    parser.add_argument("--validate", action="store_true", help="compare with real processes and whole simulations")
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    device = Device(**{field: getattr(arguments, field) for field in asdict(Device())})

    if arguments.validate:
        results = {"real processes": validate(), "whole simulations": [check(*case) for case in CHECKED]}
        if arguments.save:
            save_result("scale-validation", machine(1), results)
        return
    with ProcessPoolExecutor(arguments.processes, mp_context=get_context("spawn")) as pool:
        found = dict(zip(arguments.sizes, pool.map(variants, arguments.sizes), strict=True))
    rows = [
        row
        for name, settings in found.items()
        for row in plans(name, settings, arguments.memories, arguments.reserve, device)
    ]
    print(table(rows), flush=True)
    if arguments.save:
        about = {"about": "planned by simulation, not measured", "reserve": arguments.reserve}
        result = {**about, "device": asdict(device), "sizes": rows}
        picture = save_result("scale", machine(1), result).with_suffix(".png")
        draw(found, device, arguments.memories).savefig(picture, dpi=120)
        print(f"written: {picture}")


if __name__ == "__main__":
    main()
