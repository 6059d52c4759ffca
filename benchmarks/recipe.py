"""Finds a recipe for pre-training a small GPT-1 on books, and one for the LSTM that the paper compares it with.

    python benchmarks/recipe.py --books books --work_dir runs/recipe            # the sweep: hours
    python benchmarks/recipe.py --books books --work_dir runs/recipe --winners 15e6 60e6  # then the best for longer
    python benchmarks/recipe.py --books books --work_dir runs/recipe --save               # the table as a dated file

`books` has novels in train/*.txt and validation/*.txt. The Transformer has 4 layers of 256, the LSTM one layer of 768
units; both a BPE of 8,000 merges and blocks of 512 tokens. Source: sections 4.1 and 5 of the paper,
https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf

The sweep changes one setting of a base recipe at a time. Every run has one seed, bf16 and a cosine to 0. Its score is
the perplexity of the same 256 held-out blocks, evenly spaced in the validation novels. `--winners` trains the best
finished recipe of each family on more tokens, without dropout and with it.

A run is one call of the pre-training command in a folder named by a digest of its settings. A finished run is never
repeated. After a kill the same command goes on from the last checkpoint.
"""

import argparse
import hashlib
import json
import math
import os
import shutil
import signal
import sys
from pathlib import Path

from harness import machine, pretrain_flags, read_json, run_counted, save_result, train_tokenizer, words_of, write_json

# Warm-up is in updates, batch in blocks per update. One dropout value applies to all dropouts of the family.
BASES = {
    "transformer": dict(learning_rate=2e-3, batch=8, warmup=200, dropout=0.0, beta2=0.999, initializer_range=0.035),
    "lstm": dict(learning_rate=2e-3, batch=8, warmup=40, dropout=0.1, beta2=0.999, initializer_range=0.02),
}
# The values tried for each setting.
VALUES = {
    "learning_rate": (4e-3, 1e-3, 3e-3, 1.5e-3, 2e-3, 6e-3),
    "batch": (4, 16, 8),
    "warmup": (100, 400, 40, 200),
    "dropout": (0.1, 0.0),
    "beta2": (0.98, 0.9995, 0.999),
    "initializer_range": (0.02, 0.05, 0.035),
}
MODELS = {
    "transformer": ("gpt1", "hidden_size=256,num_hidden_layers=4,num_attention_heads=4"),
    "lstm": ("gpt1-lstm", "hidden_size=256,num_hidden_layers=1,lstm_hidden_size=768"),
}
DROPOUTS = {"transformer": ("embd_pdrop", "resid_pdrop", "attn_pdrop"), "lstm": ("embd_pdrop", "resid_pdrop")}
NUM_MERGES, BLOCK_LENGTH, SEED = 8000, 512, 42
SWEEP_TOKENS = 740 * 8 * BLOCK_LENGTH
PART_TOKENS = 750_000  # between evaluations and checkpoints, about 5 minutes on one core


# ---- One run


def run_folder(arguments: argparse.Namespace, settings: dict) -> Path:
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]
    return arguments.work_dir / "runs" / f"{settings['family']}-{digest}"


def updates_of(settings: dict) -> tuple[int, int]:
    """The number of updates of a run, and of each of its equal parts."""
    parts = max(1, round(settings["tokens"] / PART_TOKENS))
    part = max(1, round(settings["tokens"] / (parts * settings["batch"] * BLOCK_LENGTH)))
    return parts * part, part


def flags_of(arguments: argparse.Namespace, settings: dict, output_dir: Path) -> dict:
    model_type, sizes = MODELS[settings["family"]]
    dropouts = [f"{name}={settings['dropout']}" for name in DROPOUTS[settings["family"]]]
    updates, part = updates_of(settings)
    flags = {
        **pretrain_flags(arguments.books, arguments.work_dir, part),
        "family": model_type,
        "config_overrides": ",".join([sizes, f"initializer_range={settings['initializer_range']}", *dropouts]),
        "max_steps": updates,
        "per_device_train_batch_size": settings["batch"],
        "learning_rate": settings["learning_rate"],
        "warmup_steps": settings["warmup"],
        "adam_beta2": settings["beta2"],
        "seed": settings["seed"],
        "logging_steps": max(1, part // 10),
        "output_dir": output_dir,
    }
    return {**flags, "save_total_limit": 1} if is_of_sweep(arguments, settings) else flags


def is_of_sweep(arguments: argparse.Namespace, settings: dict) -> bool:
    """Whether a run belongs to the sweep. Other runs are winners and keep their checkpoints for learning curves."""
    return settings["tokens"] == arguments.tokens


def read_result(arguments: argparse.Namespace, settings: dict) -> dict | None:
    return read_json(run_folder(arguments, settings) / "result.json", None)


def finish(arguments: argparse.Namespace, settings: dict) -> dict:
    """Runs the command unless it is finished. Returns the result."""
    folder = run_folder(arguments, settings)
    result = read_result(arguments, settings)
    if result is not None:
        return result
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{folder.name}: {json.dumps(settings)}", flush=True)
    write_json(folder / "settings.json", settings)
    run_counted(words_of("pretrain", flags_of(arguments, settings, folder / "model")), folder)
    result = {**settings, **read_output(folder)}
    write_json(folder / "result.json", result)
    if is_of_sweep(arguments, settings):
        for checkpoint in (folder / "model").glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    print(f"{folder.name}: perplexity {score(result):.1f}", flush=True)
    return result


def read_output(folder: Path) -> dict:
    """Perplexities, losses, tokens and times of a run, read from the command's files."""
    records = read_json(folder / "model" / "trainer_state.json")["log_history"]
    losses = {record["step"]: record["loss"] for record in records if "loss" in record}
    perplexities = {}
    for record in records:
        if "eval_perplexity" in record:  # the last update has a second evaluation, on all held-out blocks
            perplexities.setdefault(record["step"], record["eval_perplexity"])
    at_the_end = read_json(folder / "model" / "all_results.json")
    return {
        "updates": max(losses),
        "tokens_seen": at_the_end["num_input_tokens_seen"],
        "processor_seconds": read_json(folder / "processor_seconds.json")["seconds"],
        "perplexity": perplexities[max(perplexities)],
        "perplexity_of_all_blocks": at_the_end["eval_perplexity"],
        "training_loss": losses[max(losses)],
    }


# ---- The sweep


def score(result: dict) -> float:
    """The perplexity, which is infinite for a run that diverged."""
    return math.inf if result["perplexity"] is None else result["perplexity"]


def sweep(arguments: argparse.Namespace) -> list[dict]:
    """A row for each run: the base recipe, then the base with one setting changed, for each value of each setting."""
    rows = []
    for family in BASES:
        base = {"family": family, "text": arguments.text, "tokens": arguments.tokens, "seed": SEED, **BASES[family]}
        changes = [(name, value) for name in VALUES for value in VALUES[name] if value != base[name]]
        rows.append({"stage": "round 1", "changed": None, "settings": base})
        rows += [{"stage": "round 1", "changed": name, "settings": {**base, name: value}} for name, value in changes]
    return rows


def winners(arguments: argparse.Namespace) -> list[dict]:
    """The rows that train the best finished recipe of each family on more tokens, without dropout and with it."""
    found = filter(None, (read_result(arguments, row["settings"]) for row in sweep(arguments)))
    found = sorted((result for result in found if result["batch"] >= arguments.least_batch), key=score)
    rows = []
    for tokens in arguments.winners:
        for family in BASES:
            for best in [result for result in found if result["family"] == family][:1]:
                settings = {name: best[name] for name in ("family", "text", "seed", *VALUES)} | {"tokens": tokens}
                of_dropout = [{**settings, "dropout": dropout} for dropout in VALUES["dropout"]]
                rows += [{"stage": "winners", "changed": "dropout", "settings": each} for each in of_dropout]
    return rows


# ---- The report


def table(rows: list[dict]) -> str:
    lines = [f"A base is given as {', '.join(VALUES)}."]
    lines.append(f"{'stage':8} {'family':12} {'change':34} Mtokens updates perplexity  (all) train loss CPU min")
    for row in rows:
        settings = row["settings"]
        result = row["result"]
        start = f"{row['stage']:8} {settings['family']:12} {change_text(row):34} {settings['tokens'] / 1e6:7.2f}"
        figures = [result[name] for name in ("perplexity", "perplexity_of_all_blocks", "training_loss")]
        figures = [math.nan if figure is None else figure for figure in figures]  # None is a run that diverged
        start += " {:7} {:10.1f} {:6.1f} {:10.3f}".format(result["updates"], *figures)
        lines.append(f"{start} {result['processor_seconds'] / 60:7.1f}")
    return "\n".join(lines)


def change_text(row: dict) -> str:
    if row["changed"] is not None:
        return f"{row['changed']} {row['settings'][row['changed']]:g}"
    return "base " + " ".join(f"{row['settings'][name]:g}" for name in VALUES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--books", type=Path, required=True, help="folder with train/*.txt and validation/*.txt")
    parser.add_argument("--work_dir", type=Path, required=True, help="runs and results; what is finished is kept")
    parser.add_argument("--tokens", type=float, default=SWEEP_TOKENS, help="of each run of the sweep; default: 3.03 M")
    parser.add_argument("--winners", type=float, nargs="+", default=[], help="tokens of the best recipes' longer runs")
    parser.add_argument("--least_batch", type=int, default=1, help="fewest blocks per update of a winner; default: 1")
    parser.add_argument("--threads", type=int, default=1, help="of each run; default: 1")
    parser.add_argument("--save", action="store_true", help="write the table to benchmarks/results/<date>-recipe.json")
    arguments = parser.parse_args()
    arguments.books = arguments.books.resolve()
    arguments.work_dir = arguments.work_dir.resolve()
    arguments.tokens = round(arguments.tokens)
    arguments.winners = list(map(round, arguments.winners))
    sizes = [path.stat().st_size for path in arguments.books.glob("*/*.txt")]
    arguments.text = f"{len(sizes)} books of {sum(sizes):,} bytes"  # runs on other books are other runs
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the running command too
    train_tokenizer(arguments.books, arguments.work_dir, NUM_MERGES)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "RAYON_NUM_THREADS"), str(arguments.threads))
    rows = []
    for stage in (sweep, winners):  # the winners of what is finished
        rows += [{**row, "result": finish(arguments, row["settings"])} for row in stage(arguments)]
    print(table(rows))
    if arguments.save:
        save_result("recipe", machine(arguments.threads), {"rows": rows})


if __name__ == "__main__":
    main()
