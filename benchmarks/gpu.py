"""What one GPU is needed for, most valuable first, in 25 minutes: `make gpu`.

    python benchmarks/gpu.py                     # writes dated files into benchmarks/results
    python benchmarks/gpu.py --output results    # elsewhere
    python benchmarks/gpu.py --quick             # tiny models, also on a CPU: a check of the script
    python benchmarks/gpu.py --families "--books books --data_dir data --work_dir runs/families"

Each step is a process of its own with a limit of minutes. A step that came to its end leaves its file and is not
repeated on the same day, so the same command goes on after an end at any moment. The exit code is 1 if a step failed.

1. The tests, all of them, with the GPU as torch's default device.
2. `accelerator.py`: training and generation beside both classes of transformers.
3. `plain_loop.py`: the trainer beside a loop in plain PyTorch.
4. A profile of compiled and uncompiled steps: kernels, and the time of host and device, as a picture and figures.
5. With `--families` and words for it: what `families.py` has left to do, in the minutes that remain.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path

import matplotlib
import torch
from harness import RESULTS, SMALL, machine, save_result
from matplotlib.figure import Figure
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM
from modeling_gpt1.inference.devices import accelerator_name, default_device
from modeling_gpt1.training.compilation import compiled_blocks, compiled_parts

HERE = Path(__file__).parent
TESTS = "--dist worksteal -p no:cacheprovider -q tests"
MINUTES, ROUNDS, STEPS, LONGEST_NAME = 25, 3, 3, 48


def steps_of(quick: bool, families: str = "") -> dict[str, tuple[list[str], float]]:
    """The words of each step's command, and its limit in minutes, by the name of its result."""
    small = ["--quick"] * quick
    workers = str(min(8, os.cpu_count() or 1))
    chosen = ["tests/test_imports.py"] if quick else TESTS.split()
    script = [sys.executable, str(HERE / "gpu.py"), *small, "--alone"]
    last = {"families": ([*script, "families", *shlex.split(families), "--jobs", workers], 25)} if families else {}
    return {
        "gpu-tests": ([*script, "tests", "-n", workers, *chosen], 8),
        "accelerator": ([sys.executable, str(HERE / "accelerator.py"), *small, "--rounds", str(ROUNDS), "--save"], 8),
        "plain-loop": ([sys.executable, str(HERE / "plain_loop.py"), *small, "--rounds", str(ROUNDS), "--save"], 5),
        "gpu-profile": ([*script, "profile"], 4),
        **last,
    }


def run_steps(output: Path, quick: bool, families: str = "") -> list[str]:
    """Runs what has no file of today. Returns the names of the steps that failed."""
    failed = []
    end = time.perf_counter() + 60 * MINUTES
    path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "GPT1_RESULTS": str(output), "HF_HUB_OFFLINE": "1"}
    for name, (words, minutes) in steps_of(quick, families).items():
        result = output / f"{date.today().isoformat()}-{name}.json"
        result_of_failure = result.with_stem(f"{result.stem}-failed")
        if result.is_file():
            print(f"{name}: done today", flush=True)
            continue
        if result_of_failure.is_file():
            print(f"{name}: FAILED today. Delete {result_of_failure} to repeat it", flush=True)
            failed.append(name)
            continue
        start = time.perf_counter()
        limit = min(60 * minutes, max(end - start, 0))
        process = subprocess.Popen(words, env=environment, cwd=HERE.parent, start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = f"over {limit / 60:.3g} minutes"
        finally:  # what it started ends with it, also at Ctrl-C
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        print(f"{name}: {f'FAILED ({code})' if code else 'done'}, {time.perf_counter() - start:.0f} s", flush=True)
        if code:
            failed.append(name)
            if result.is_file():
                result.rename(result_of_failure)
    return failed


def run_tests(words: list[str], about: dict) -> int:
    """Runs pytest, and keeps its last line and the failed tests."""
    os.environ.pop("GPT1_RESULTS", None)  # some tests read the results that the documentation quotes
    os.environ["COLUMNS"] = "400"  # room for each reason
    found = subprocess.run([sys.executable, "-m", "pytest", *words], capture_output=True, text=True)
    lines = found.stdout.splitlines()
    print("\n".join(lines[-30:]), flush=True)
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    save_result("gpu-tests", about, {"summary": lines[-1] if lines else found.stderr[-500:], "failed": failed})
    return found.returncode


def run_families(words: list[str]) -> int:
    """Goes on with `families.py`, which leaves its dated files once nothing is left to do."""
    command = [sys.executable, str(HERE / "families.py"), *words]
    return subprocess.run(command).returncode or subprocess.run([*command, "--save"]).returncode


def profile_steps(quick: bool, about: dict) -> int:
    """Kernels and seconds of a pre-training step in bfloat16, uncompiled and with compiled blocks."""
    device = default_device()
    config, shape = (GPT1Config(**SMALL), (2, 16)) if quick else (GPT1Config(), (32, 512))
    model = GPT1ForCausalLM(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(config.vocab_size, shape, device=device)
    compiled = compiled_parts(**({"backend": "eager"} if device.type == "cpu" else {}))
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]

    def step(parts: tuple[Callable, ...] | None) -> None:
        with torch.autocast(device.type, torch.bfloat16), compiled_blocks(model, parts):
            model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    results = {}
    figure = Figure(figsize=(11, 9), layout="constrained")
    for axes, (way, parts) in zip(figure.subplots(2), {"eager": None, "compiled": compiled}.items(), strict=True):
        for _ in range(STEPS):
            step(parts)
        with profile(activities=activities) as profiled:
            for _ in range(STEPS):
                step(parts)
        averages = [event for event in profiled.key_averages() if not event.key.startswith("Optimizer.")]  # no kernel
        kernels = [event for event in averages if event.device_type != DeviceType.CPU]
        cost = "self_device_time_total" if kernels else "self_cpu_time_total"
        costs = {event.key: getattr(event, cost) / STEPS / 1e3 for event in kernels or averages}
        most = dict(sorted(costs.items(), key=lambda item: -item[1])[:15])
        results[way] = {
            "operations of the host": sum(event.count for event in averages if event.key.startswith("aten::")) / STEPS,
            "kernels": sum(event.count for event in kernels) / STEPS,
            "host ms": sum(event.self_cpu_time_total for event in averages) / STEPS / 1e3,
            "device ms": sum(event.self_device_time_total for event in kernels) / STEPS / 1e3,
            "most ms": {name[:LONGEST_NAME]: round(cost, 3) for name, cost in most.items()},
        }
        axes.barh([name[:LONGEST_NAME] for name in most], list(most.values()))
        axes.invert_yaxis()
        axes.set(title=f"{way}: {results[way]['kernels']:.0f} kernels a step", xlabel="milliseconds a step")
    figure.savefig(save_result("gpu-profile", about, results).with_suffix(".png"), dpi=110)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the dated files")
    parser.add_argument("--quick", action="store_true", help="tiny models, also on a CPU: a check of the script")
    parser.add_argument("--families", default="", help="words for families.py, its folders")
    parser.add_argument("--alone", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # one step, in its process
    arguments = parser.parse_args()
    matplotlib.use("agg")
    about = {**machine(), "accelerator": accelerator_name() or "none"}
    if arguments.alone:
        step, *words = arguments.alone
        if step == "profile":
            return profile_steps(arguments.quick, about)
        return run_tests(words, about) if step == "tests" else run_families(words)
    if about["accelerator"] == "none" and not arguments.quick:
        parser.error("torch finds no accelerator. --quick checks the script on a CPU.")
    return int(bool(run_steps(arguments.output.resolve(), arguments.quick, arguments.families)))


if __name__ == "__main__":
    sys.exit(main())
