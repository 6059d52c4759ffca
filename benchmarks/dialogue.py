"""Whether a model of `examples/dialogue.py` reads its persona: hits@1 and perplexity with its own and another one.

    python benchmarks/dialogue.py           # five seeds, about a minute each on one core
    python benchmarks/dialogue.py --save    # as a dated file

Every model is evaluated twice on the same rows: with the persona of each row, and with that of the row before it.
"""

import argparse
import math
import runpy
import tempfile
from pathlib import Path

from harness import machine, save_result

SCRIPT = Path(__file__).parents[1] / "examples" / "dialogue.py"
SEEDS = (42, 1, 2, 3, 4)  # the first is the script's own


def measure(seed: int, extra: tuple[str, ...] = ()) -> dict:
    """Figures of a model that the script trains and evaluates."""
    script = runpy.run_path(str(SCRIPT))
    with tempfile.TemporaryDirectory() as folder:
        words = ["--output_dir", folder, "--seed", str(seed), "--use_cpu", "--disable_tqdm", "true"]
        metrics = script["main"]([*words, "--report_to", "none", *extra])
    return {"seed": seed} | {
        persona: {
            "hits@1": metrics[f"eval_{persona}_hits@1"],
            "perplexity": math.exp(script["NUM_CANDIDATES"] * metrics[f"eval_{persona}_lm_loss"]),
        }
        for persona in ("own", "other")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="Write a dated file.")
    arguments = parser.parse_args()
    runs = []
    for seed in SEEDS:
        runs.append(measure(seed))
        print(runs[-1], flush=True)
    if arguments.save:
        save_result("dialogue", machine(), runs)


if __name__ == "__main__":
    main()
