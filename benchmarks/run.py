"""Every benchmark against its peers in one run: one table of ratios, one dated file of figures.

    python benchmarks/run.py                             # all of them, 117 M parameters: hours on 2 cores
    python benchmarks/run.py --only loading pretraining  # some
    python benchmarks/run.py --quick --rounds 1          # tiny models and inputs: a check of the scripts, in minutes

Every script of `SCRIPTS` has a function `compare(rounds, threads, quick)` that returns rows made by
`harness.comparison`. Some of these functions have no `threads`. A script that fails does not stop the others: its
error is printed and saved with the others' rows, and the exit code is 1.

`<date>-bench.json` is written to `--output`, by default `benchmarks/results/`, after each script. Scripts that ran
earlier the same day stay there until they run again. At the end of a run without `--output`, tables.md gets
the rows with a target of every script's newest run. A quick run says nothing about speed: it has no targets, and
writes only where `--output` says so.

The other scripts of the folder are run on their own: they compare behaviour, need books or trained models, or take
hours. docs/results/benchmarks.md lists them.
"""

import argparse
import importlib
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from harness import RESULTS, command_line, comparison_table, is_met, machine, read_json, save_result, table_cells

# Each script, and the kind of work that it measures.
SCRIPTS = {
    "pretraining": "Pre-training",
    "finetuning": "Fine-tuning",
    "generation": "Generation",
    "scoring": "Scoring",
    "tokenizer_parity": "Tokenizer",
    "loading": "Imports and opening",
    "starts": "The way to the first update",
}
PAGE = Path(__file__).parent / "tables.md"
MARKS = ("<!-- Written by `make bench` from here -->", "<!-- to here -->")


def run_script(name: str, rounds: int, threads: int, quick: bool) -> dict:
    """Runs one script. Returns `{"rows": […], "seconds": …, "error": None or text}`."""
    start = time.perf_counter()
    rows = []
    error = None
    try:
        compare: Callable = importlib.import_module(name).compare
        settings = {"rounds": rounds, "threads": threads, "quick": quick}
        taken = inspect.signature(compare).parameters
        rows = compare(**{setting: value for setting, value in settings.items() if setting in taken})
    except Exception:  # an error in one script must not lose the figures of the others
        error = traceback.format_exc()
    if quick:
        rows = [{**row, "target": None} for row in rows]
    return {"rows": rows, "seconds": time.perf_counter() - start, "error": error}


def run_all(names: Sequence[str], options: argparse.Namespace, about: dict, folder: Path | None) -> dict[str, dict]:
    outcomes = {}
    for name in names:
        print(f"{name} …", flush=True)
        outcomes[name] = outcome = run_script(name, options.rounds, options.threads, options.quick)
        ending = "failed" if outcome["error"] else f"{len(outcome['rows'])} rows"
        print(f"{name}: {ending}, {outcome['seconds']:.0f} s", flush=True)
        if folder is not None:
            save({name: outcome}, options, about, folder)
    return outcomes


def report(outcomes: dict[str, dict]) -> str:
    """The table of all rows, the number of targets met, and the scripts that failed."""
    rows = [row for outcome in outcomes.values() for row in outcome["rows"]]
    lines = [comparison_table(rows) if rows else "No script has given a row."]
    judged = [is_met(row) for row in rows if row["target"] is not None]
    if judged:
        lines.append(f"\n{sum(judged)} of {len(judged)} targets met")
    for name, outcome in outcomes.items():
        if outcome["error"]:
            lines.append(f"\n{name} FAILED:\n{outcome['error'].rstrip()}")
    return "\n".join(lines)


# ---- Newest figures


def newest(folder: Path) -> dict[str, tuple[str, list[dict]]]:
    """By the name of a script, the day and the judged rows of its newest run that did not fail."""
    found = {}
    for path in sorted(folder.glob("*-bench.json")):
        for name, script in read_json(path)["results"].items():
            if script["error"] is None and not script["quick"]:
                found[name] = path.name.removesuffix("-bench.json"), script["rows"]
    judged = {}
    for name in SCRIPTS:
        day, rows = found.get(name, ("", []))
        with_target = [row for row in rows if row["target"] is not None]
        if with_target:
            judged[name] = day, with_target
    return judged


def write_tables(folder: Path, page: Path) -> None:
    """Writes the tables of the newest figures between the marks of a page of the documentation."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    _, end, after = rest.partition(MARKS[1])
    if not end:
        raise ValueError(f"{page} lacks the lines {MARKS[0]!r} and {MARKS[1]!r}, between which the tables stand.")
    tables = "\n\n".join(markdown(name, *found) for name, found in newest(folder).items())
    page.write_text(f"{before}{MARKS[0]}\n\n{tables}\n\n{MARKS[1]}{after}", encoding="utf-8")
    print(f"written: {page}")


def markdown(name: str, day: str, rows: Sequence[dict]) -> str:
    lines = [f"### {SCRIPTS[name]}", "", f"`{name}.py`, {day}", ""]
    lines += ["| work | measure | gpt1-hf | peer | | times better | target |", "|---|---|--:|--:|---|--:|--:|"]
    for row in rows:
        work, measure, ours, theirs, peer, ratio, target, met = table_cells(row)
        ratio = ratio.removeprefix("× ")
        met = {"yes": "", "no": ", missed"}[met]
        lines.append(f"| {work} | {measure} | {ours} | {theirs} | {peer} | {ratio} | {target}{met} |")
    return "\n".join(lines)


# ---- Command


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, metavar="NAME", help=f"of {', '.join(SCRIPTS)}")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each measurement (default: 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: 1)")
    parser.add_argument("--quick", action="store_true", help="tiny models and inputs: a check of the scripts")
    parser.add_argument("--output", type=Path, help="folder of the results (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    names = options.only or list(SCRIPTS)
    about = machine(options.threads)
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    folder = options.output or (None if options.quick else RESULTS)
    outcomes = run_all(names, options, about, folder)
    print(f"\n{report(outcomes)}", flush=True)
    if folder == RESULTS:
        write_tables(folder, PAGE)
    return 1 if any(outcome["error"] for outcome in outcomes.values()) else 0


def save(outcomes: dict[str, dict], options: argparse.Namespace, about: dict, folder: Path) -> None:
    settings = {
        "command": command_line(),  # the file's own is that of its last script
        "rounds": options.rounds,
        "threads": options.threads,
        "quick": options.quick,
    }
    path = folder / f"{date.today().isoformat()}-bench.json"
    results = read_json(path, {"results": {}})["results"]
    results |= {name: {**settings, **outcome} for name, outcome in outcomes.items()}
    save_result("bench", about, results, folder)


if __name__ == "__main__":
    sys.exit(main())
