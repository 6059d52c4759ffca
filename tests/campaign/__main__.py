"""A campaign: random cases of every kind for a time, each made from a seed of its own that repeats it alone.

    PYTHONPATH=tests python -m campaign --minutes 60 --seed 0 --workers 2   # make campaign MINUTES=60 SEED=0
    PYTHONPATH=tests python -m campaign --kind forward --seed 17            # one case, with its traceback

`tests` has the known cases; a campaign looks for unknown ones, in the tree of the folder that it is started in. Every
kind is a module with `CASES`, functions and how often they are drawn; the kind that has had least time comes next. A
case is wrong if it raises, if its process dies, or if it takes longer than `SECONDS`. What is wrong is printed with
kind and seed, the campaign goes on, and at its end the exit code is 1. The outcome lies in `<date>-campaign.json`.
Whatever a campaign finds becomes a plain test.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from datetime import date
from multiprocessing.connection import wait
from pathlib import Path

from campaign.work import run_case, set_up, work

KINDS = ("forward", "generation", "rows", "damage", "texts", "files", "answers")
SECONDS = {"rows": 240}  # of a case; 60 of others
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


class Worker:
    """A process for cases, replaced by another where one has ended it."""

    def __init__(self, folder: str):
        self.folder, self.kind = folder, None
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, self.folder))
        self.process.start()
        other.close()
        self.connection.recv()  # the imports are no part of a case

    def give(self, kind: str, seed: int) -> None:
        self.kind, self.seed, self.since = kind, seed, time.monotonic()
        self.connection.send((kind, seed))

    def outcome(self) -> dict | None:
        """Of the case under way, if it is over."""
        seconds, limit = time.monotonic() - self.since, SECONDS.get(self.kind, 60)
        if self.connection.poll():
            with contextlib.suppress(EOFError, ConnectionResetError):
                return self.connection.recv()
            self.process.join()
            message = f"The process died with exit code {self.process.exitcode}"
        elif seconds > limit:
            message = f"The case did not end within {limit} s"
        else:
            return None
        self.stop()
        self.start()
        return {"seconds": seconds, "case": "", "message": message, "where": []}

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def run(minutes: float, seed: int, workers: int, kinds: list[str]) -> dict:
    """Cases by kind and name, seconds by kind, and what was wrong."""
    counts, spent, failures = {kind: Counter() for kind in kinds}, dict.fromkeys(kinds, 0.0), []
    next_seed = dict.fromkeys(kinds, seed * 10**6)
    folder = tempfile.mkdtemp(prefix="campaign-")
    team = [Worker(folder) for _ in range(workers)]
    end = time.monotonic() + 60 * minutes
    try:
        while True:
            for worker in team:
                if worker.kind is None and time.monotonic() < end:
                    kind = min(kinds, key=lambda one: spent[one] + sum(other.kind == one for other in team))
                    worker.give(kind, next_seed[kind])
                    next_seed[kind] += 1
            busy = [worker for worker in team if worker.kind is not None]
            if not busy:
                break
            wait([worker.connection for worker in busy], timeout=1)
            for worker in busy:
                if (outcome := worker.outcome()) is None:
                    continue
                kind, worker.kind = worker.kind, None
                spent[kind] += outcome["seconds"]
                counts[kind][outcome["case"] or "?"] += 1
                if "message" in outcome:
                    failures.append({"kind": kind, "seed": worker.seed, **outcome})
                    print(f"WRONG --kind {kind} --seed {worker.seed} ({outcome['case']}): {outcome['message']}")
                    sys.stdout.flush()
    finally:
        for worker in team:
            worker.stop()
        shutil.rmtree(folder, ignore_errors=True)
    table = {
        kind: {"cases": counts[kind].total(), "seconds": round(spent[kind]), "by_name": dict(counts[kind])}
        for kind in kinds
    }
    return {"minutes": minutes, "seed": seed, "workers": workers, "kinds": table, "failures": failures}


def save(outcome: dict, name: str, folder: Path) -> None:
    from importlib.metadata import version

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{date.today().isoformat()}-{name}.json"
    about = {"cores": os.cpu_count(), "python": sys.version.split()[0]}
    about |= {package: version(package) for package in ("torch", "transformers", "tokenizers", "accelerate")}
    path.write_text(json.dumps({"machine": about, "results": outcome}, indent=2) + "\n", encoding="utf-8")
    print(f"written: {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=0, help="the seeds of the cases begin at a million times this")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--kind", choices=KINDS, help="run the one case of `--seed` of this kind")
    parser.add_argument("--name", default="campaign", help="of the result")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result")
    arguments = parser.parse_args()
    if arguments.kind is not None:
        with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
            set_up(folder)
            print(run_case(arguments.kind, arguments.seed, folder))
        return
    outcome = run(arguments.minutes, arguments.seed, arguments.workers, arguments.kinds)
    for kind, row in outcome["kinds"].items():
        print(f"{kind:12}{row['cases']:7} cases {row['seconds']:6} s  {row['by_name']}")
    save(outcome, arguments.name, arguments.results)
    print(f"{len(outcome['failures'])} of {sum(row['cases'] for row in outcome['kinds'].values())} cases were wrong")
    sys.exit(1 if outcome["failures"] else 0)


if __name__ == "__main__":
    main()
