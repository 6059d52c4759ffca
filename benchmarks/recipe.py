"""Finds a recipe for pre-training a small GPT-1 on books, and one for the LSTM that the paper compares it with.

    python benchmarks/recipe.py --books books --work_dir runs/recipe --list     # what is planned and what is done
    python benchmarks/recipe.py --books books --work_dir runs/recipe            # the sweep: hours
    python benchmarks/recipe.py --books books --work_dir runs/recipe --winners 15e6 60e6  # then the best for longer
    python benchmarks/recipe.py --books books --work_dir runs/recipe --list --save        # the table as a dated file

`books` has novels in train/*.txt and validation/*.txt. The Transformer has 4 layers of 256, the LSTM one layer of 768
units; both a BPE of 8,000 merges and blocks of 512 tokens. Source: sections 4.1 and 5 of the paper,
https://cdn.openai.com/research-covers/language-unsupervised/language_understanding_paper.pdf

A round of the sweep changes one setting of a base recipe at a time. The next round's base takes the best value of each
setting, and values that were clearly worse are not tried again. Every run has one seed, bf16 and a cosine to 0. Its
score is the perplexity of the same 256 held-out blocks, evenly spaced in the validation novels. `--winners` trains the
best finished recipe of each family on more tokens: over more than one pass, without dropout and with it.

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
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
import torch
from datasets import disable_progress_bars
from harness import machine, save_result

from modeling_gpt1.storage.writing import write_atomically
from tokenization import GPT1Tokenizer, load_blocks, training_texts

# Warm-up is in updates, batch in blocks per update. One dropout value applies to all dropouts of the family.
BASES = {
    "transformer": dict(learning_rate=2e-3, batch=8, warmup=200, dropout=0.0, beta2=0.999, initializer_range=0.035),
    "lstm": dict(learning_rate=2e-3, batch=8, warmup=40, dropout=0.1, beta2=0.999, initializer_range=0.02),
}
# The values tried for each setting. Settings and values stand in the order of their expected information.
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
NUM_MERGES, BLOCK_LENGTH, HELD_OUT_BLOCKS, SEED = 8000, 512, 256, 42
SWEEP_TOKENS = 740 * 8 * BLOCK_LENGTH
PART_TOKENS = 750_000  # between evaluations and checkpoints, about 5 minutes on one core
CLEARLY_WORSE = 1.05  # × the best perplexity of the round
PLATEAU = 0.9  # × the unigram perplexity: a model no better than this has learnt only word frequencies


# ---- What all runs share


def digest(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def write_json(path: Path, content: dict) -> None:
    write_atomically(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def prepare(arguments: argparse.Namespace) -> None:
    """Makes the tokenizer, the blocks and the facts about the text once. The blocks are in the cache of `datasets`."""
    if read_json(arguments.text_folder / "facts.json") is not None:
        return
    tokenizer = GPT1Tokenizer.train(training_texts(arguments.train_files), NUM_MERGES)
    tokenizer.save_pretrained(arguments.text_folder)
    blocks = load_blocks(arguments.train_files, tokenizer, BLOCK_LENGTH)
    load_blocks(arguments.validation_files, tokenizer, BLOCK_LENGTH)
    counts = sum(np.bincount(block, minlength=len(tokenizer)) for block in blocks.with_format("numpy")["input_ids"])
    shares = counts[counts > 0] / counts.sum()
    facts = {"tokens": int(counts.sum()), "unigram_entropy": float(-(shares * np.log(shares)).sum())}
    write_json(arguments.text_folder / "facts.json", facts)


# ---- One run


def run_folder(arguments: argparse.Namespace, settings: dict) -> Path:
    return arguments.work_dir / "runs" / f"{settings['family']}-{digest({**settings, 'text': arguments.text})}"


def updates_of(settings: dict) -> tuple[int, int]:
    """The number of updates of a run, and of each of its equal parts."""
    parts = max(1, round(settings["tokens"] / PART_TOKENS))
    part = max(1, round(settings["tokens"] / (parts * settings["batch"] * BLOCK_LENGTH)))
    return parts * part, part


def pretraining_flags(arguments: argparse.Namespace, settings: dict, output_dir: Path) -> list[str]:
    model_type, sizes = MODELS[settings["family"]]
    dropouts = [f"{name}={settings['dropout']}" for name in DROPOUTS[settings["family"]]]
    updates, part = updates_of(settings)
    flags = {
        "train_files": arguments.train_files,
        "validation_files": arguments.validation_files,
        "tokenizer_name": arguments.text_folder,
        "family": model_type,
        "config_overrides": ",".join([sizes, f"initializer_range={settings['initializer_range']}", *dropouts]),
        "max_eval_blocks": HELD_OUT_BLOCKS,
        "max_steps": updates,
        "per_device_train_batch_size": settings["batch"],
        "learning_rate": settings["learning_rate"],
        "warmup_steps": settings["warmup"],
        "adam_beta2": settings["beta2"],
        "seed": settings["seed"],
        "bf16": True,
        "use_cpu": not torch.cuda.is_available(),  # bf16 on a CPU needs this flag
        "logging_steps": max(1, part // 10),
        "eval_strategy": "steps",
        "eval_steps": part,
        "save_steps": part,
        "report_to": "none",
        "disable_tqdm": True,
        "resume_from_checkpoint": "auto",
        "output_dir": output_dir,
    }
    if is_of_sweep(arguments, settings):
        flags["save_total_limit"] = 1
    return [word for name, value in flags.items() for word in (f"--{name}", str(value))]


def is_of_sweep(arguments: argparse.Namespace, settings: dict) -> bool:
    """Whether a run belongs to the sweep. Other runs are winners and keep their checkpoints for learning curves."""
    return settings["tokens"] == arguments.tokens


def read_result(arguments: argparse.Namespace, settings: dict) -> dict | None:
    return read_json(run_folder(arguments, settings) / "result.json")


def finish(arguments: argparse.Namespace, settings: dict) -> dict | None:
    """Runs the command unless it is finished. Returns the result, or None if the command failed."""
    folder, result = run_folder(arguments, settings), read_result(arguments, settings)
    if result is not None:
        return result
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{folder.name}: {json.dumps(settings)}", flush=True)
    write_json(folder / "settings.json", settings)
    flags = pretraining_flags(arguments, settings, folder / "model")
    status = run_command(
        [sys.executable, "-m", "modeling_gpt1.commands", "pretrain", *flags], arguments.threads, folder
    )
    if status != 0:
        print(f"{folder.name}: FAILED with status {status}. {folder / 'output.txt'} ends with the reason.")
        return None
    result = {**settings, "text": arguments.text, **read_output(folder)}
    write_json(folder / "result.json", result)
    if is_of_sweep(arguments, settings):
        for checkpoint in (folder / "model").glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    print(f"{folder.name}: perplexity {score(result):.1f}", flush=True)
    return result


def run_command(command: list[str], threads: int, folder: Path) -> int:
    """Runs the command to its end, counts the CPU time of all attempts and returns the exit status."""
    path = folder / "processor_seconds.json"
    before = read_json(path) or {"attempts": 0, "seconds": 0}
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "RAYON_NUM_THREADS": str(threads)}
    with (folder / "output.txt").open("a", encoding="utf-8") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except BaseException:  # this script is being terminated
        process.terminate()
        _, status, usage = os.wait4(process.pid, 0)
        raise
    finally:
        seconds = round(before["seconds"] + usage.ru_utime + usage.ru_stime, 1)
        write_json(path, {"attempts": before["attempts"] + 1, "seconds": seconds})
    return os.waitstatus_to_exitcode(status)


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


def sweep(arguments: argparse.Namespace, act: Callable[[dict], dict | None]) -> list[dict]:
    """The rows of the table, each with its settings and with the result that `act` gives for them."""
    rows, recipes = [], {family: (BASES[family], VALUES) for family in arguments.families}
    for number in range(1, arguments.rounds + 1):
        plans = {family: single_changes(arguments, number, family, *recipe) for family, recipe in recipes.items()}
        for row in in_turns(plans.values()):
            rows.append({**row, "result": act(row["settings"])})
        if any(row["result"] is None for row in rows):
            return rows  # the next round's base is not known yet
        last = rows[-sum(map(len, plans.values())) :]
        following = {family: next_recipe(last, family) for family in recipes}
        # A family is done when no change was better than its base.
        recipes = {family: recipe for family, recipe in following.items() if recipe[0] != recipes[family][0]}
    return rows


def single_changes(arguments: argparse.Namespace, number: int, family: str, base: dict, values: dict) -> list[dict]:
    """The base recipe, then the base with one setting changed, for each value of each setting."""
    common = {"family": family, "tokens": arguments.tokens, "seed": SEED}
    rows = [{"stage": f"round {number}", "changed": None, "settings": {**common, **base}}]
    for name in VALUES:
        changes = [{**common, **base, name: value} for value in values[name] if value != base[name]]
        rows += [{"stage": f"round {number}", "changed": name, "settings": change} for change in changes]
    return rows


def next_recipe(rows: list[dict], family: str) -> tuple[dict, dict]:
    """The next base from a finished round, with the best value of each setting, and the values worth trying again."""
    own = [row for row in rows if row["settings"]["family"] == family]
    limit = CLEARLY_WORSE * min(score(row["result"]) for row in own)
    base, values = {}, {}
    for name in VALUES:
        ranked = sorted((row for row in own if row["changed"] in (None, name)), key=lambda row: score(row["result"]))
        base[name] = ranked[0]["settings"][name]
        values[name] = [row["settings"][name] for row in ranked if score(row["result"]) <= limit]
    return base, values


def in_turns(lists) -> list:
    """The first item of each list, then the second of each, and so on."""
    return [item for item in chain.from_iterable(zip_longest(*lists)) if item is not None]


def winners(arguments: argparse.Namespace, act: Callable[[dict], dict | None]) -> list[dict]:
    """The rows that train the best recipe of each family on more tokens."""
    paths = sorted((arguments.work_dir / "runs").glob("*/result.json"))
    found = [
        result
        for result in map(read_json, paths)
        if is_of_sweep(arguments, result) and result["batch"] >= arguments.least_batch
    ]
    rows = []
    for tokens in arguments.winners:
        plans = []
        for family in arguments.families:
            own = [result for result in found if (result["family"], result["text"]) == (family, arguments.text)]
            for best in sorted(own, key=score)[:1]:
                settings = {name: best[name] for name in ("family", "seed", *VALUES)} | {"tokens": tokens}
                other = {**settings, "dropout": 0.0 if settings["dropout"] else 0.1}
                plans.append([settings, other] if tokens > arguments.facts["tokens"] else [settings])
        for settings in in_turns(plans):
            rows.append({"stage": "winners", "changed": "dropout", "settings": settings, "result": act(settings)})
    return rows


# ---- The report


def table(arguments: argparse.Namespace, rows: list[dict]) -> str:
    lines, unigram = [f"A base is given as {', '.join(VALUES)}."], math.inf
    if arguments.facts is not None:
        tokens, entropy = arguments.facts["tokens"], arguments.facts["unigram_entropy"]
        unigram = math.exp(entropy)
        lines.append(f"{tokens:,} tokens to train on; unigram entropy {entropy:.3f} nats, perplexity {unigram:.0f}.")
    lines.append(f"{'stage':8} {'family':12} {'change':34} Mtokens updates perplexity  (all) train loss CPU min")
    for row in rows:
        settings, result = row["settings"], row["result"]
        start = f"{row['stage']:8} {settings['family']:12} {change_text(row):34} {settings['tokens'] / 1e6:7.2f}"
        if result is None:
            lines.append(f"{start} {updates_of(settings)[0]:7} to do")
            continue
        figures = [result[name] for name in ("perplexity", "perplexity_of_all_blocks", "training_loss")]
        figures = [math.nan if figure is None else figure for figure in figures]  # None is a run that diverged
        start += " {:7} {:10.1f} {:6.1f} {:10.3f}".format(result["updates"], *figures)
        mark = "  plateau" if score(result) >= PLATEAU * unigram else ""
        lines.append(f"{start} {result['processor_seconds'] / 60:7.1f}{mark}")
    return "\n".join(lines)


def change_text(row: dict) -> str:
    if row["changed"] is not None:
        return f"{row['changed']} {row['settings'][row['changed']]:g}"
    return "base " + " ".join(f"{row['settings'][name]:g}" for name in VALUES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--books", type=Path, required=True, help="folder with train/*.txt and validation/*.txt")
    parser.add_argument("--work_dir", type=Path, required=True, help="runs and results; what is finished is kept")
    parser.add_argument("--only", choices=list(BASES), help="one family; default: both in turns")
    parser.add_argument("--tokens", type=float, default=SWEEP_TOKENS, help="of each run of the sweep; default: 3.03 M")
    parser.add_argument("--rounds", type=int, default=2, help="rounds of single changes; default: 2")
    parser.add_argument("--winners", type=float, nargs="+", default=[], help="tokens of the best recipes' longer runs")
    parser.add_argument("--least_batch", type=int, default=1, help="fewest blocks per update of a winner; default: 1")
    parser.add_argument("--threads", type=int, default=1, help="of each run; default: 1")
    parser.add_argument("--list", action="store_true", help="print what is planned and what is done; run nothing")
    parser.add_argument("--save", action="store_true", help="write the table to benchmarks/results/<date>-recipe.json")
    arguments = parser.parse_args()
    arguments.families = [arguments.only] if arguments.only else list(BASES)
    arguments.books, arguments.work_dir = arguments.books.resolve(), arguments.work_dir.resolve()
    arguments.tokens, arguments.winners = round(arguments.tokens), list(map(round, arguments.winners))
    arguments.train_files, arguments.validation_files = (
        str(arguments.books / split / "*.txt") for split in ("train", "validation")
    )
    sizes = {f"{path.parent.name}/{path.name}": path.stat().st_size for path in arguments.books.glob("*/*.txt")}
    arguments.text = digest(sizes)  # runs on other books are other runs
    arguments.text_folder = arguments.work_dir / f"text-{arguments.text}"
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # ends the running command too
    if not arguments.list:
        prepare(arguments)
    arguments.facts = read_json(arguments.text_folder / "facts.json")
    act = partial(read_result if arguments.list else finish, arguments)
    rows = sweep(arguments, act) + winners(arguments, act)
    print(table(arguments, rows))
    if arguments.save:
        save_result("recipe", machine(arguments.threads), {"text": arguments.facts, "rows": rows})
    return 0 if arguments.list else int(any(row["result"] is None for row in rows))


if __name__ == "__main__":
    disable_progress_bars()
    sys.exit(main())
