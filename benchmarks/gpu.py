"""What one GPU is needed for, most valuable first, in 25 minutes: `make gpu`.

    python benchmarks/gpu.py                     # writes dated files into benchmarks/results
    python benchmarks/gpu.py --output results    # elsewhere
    python benchmarks/gpu.py --quick             # tiny models, also on a CPU: a check of the script

Each step is a process of its own with a limit of minutes. A step that came to its end leaves its file and is not
repeated on the same day, so the same command goes on after an end at any moment. The exit code is 1 if a step failed.

1. The tests, all of them, with the GPU as torch's default device.
2. `accelerator.py`: training and generation beside both classes of transformers.
3. `plain_loop.py`: the trainer beside a loop in plain PyTorch.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import date
from pathlib import Path

from harness import RESULTS, machine, save_result

HERE = Path(__file__).parent
TESTS = "--dist worksteal -p no:cacheprovider -q tests"
MINUTES, ROUNDS = 25, 3


def steps_of(quick: bool) -> dict[str, tuple[list[str], float]]:
    """The words of each step's command, and its limit in minutes, by the name of its result."""
    small, workers = ["--quick"] * quick, str(min(8, os.cpu_count() or 1))
    chosen = ["tests/test_imports.py"] if quick else TESTS.split()
    return {
        "gpu-tests": ([sys.executable, str(HERE / "gpu.py"), "--alone", "-n", workers, *chosen], 8),
        "accelerator": ([sys.executable, str(HERE / "accelerator.py"), *small, "--rounds", str(ROUNDS), "--save"], 8),
        "plain-loop": ([sys.executable, str(HERE / "plain_loop.py"), *small, "--rounds", str(ROUNDS), "--save"], 5),
    }


def run_steps(output: Path, quick: bool) -> list[str]:
    """Runs what has no file of today. Returns the names of the steps that failed."""
    failed, end = [], time.perf_counter() + 60 * MINUTES
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent), "GPT1_RESULTS": str(output), "HF_HUB_OFFLINE": "1"}
    for name, (words, minutes) in steps_of(quick).items():
        if (output / f"{date.today().isoformat()}-{name}.json").is_file():
            print(f"{name}: done today", flush=True)
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
        print(
            f"{name}: {'done' if code == 0 else f'FAILED ({code})'}, {time.perf_counter() - start:.0f} s", flush=True
        )
        failed += [name] * (code != 0)
    return failed


def run_tests(words: list[str], about: dict) -> int:
    """Runs pytest, and keeps its last line and the failed tests."""
    found = subprocess.run([sys.executable, "-m", "pytest", *words], capture_output=True, text=True)
    lines = found.stdout.splitlines()
    print("\n".join(lines[-30:]), flush=True)
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    save_result("gpu-tests", about, {"summary": lines[-1] if lines else found.stderr[-500:], "failed": failed})
    return found.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the dated files")
    parser.add_argument("--quick", action="store_true", help="tiny models, also on a CPU: a check of the script")
    parser.add_argument("--alone", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)  # the tests, in their process
    arguments = parser.parse_args()
    about = machine()
    if arguments.alone:
        return run_tests(arguments.alone, about)
    if "accelerator" not in about and not arguments.quick:
        parser.error("torch finds no accelerator. --quick checks the script on a CPU.")
    return int(bool(run_steps(arguments.output.resolve(), arguments.quick)))


if __name__ == "__main__":
    sys.exit(main())
