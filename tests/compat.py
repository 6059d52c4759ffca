"""Runs the suite with other versions of transformers and torch than those of constraints.txt, and writes one table.

    make compat                         # every set, hours on two cores
    make compat SETS=oldest-core        # one of them
    make compat SETS=--core             # a quarter of the tests for every set: where another release breaks first
    make compat SETS="newest --python newest=/path/to/bin/python"  # in an environment that is there already
    make compat SETS="newest --again"   # after a mend: what failed last time

Each set has a virtual environment of its own in .venv/compat. A set over the pins sees all that `make test` installed,
and only what it names, and what that needs, lies in front; the others are installed whole: another Python with the
pins of constraints.txt, the oldest and the newest releases without. The table says which set was not run, and why.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = ROOT / ".venv" / "compat"
RESULTS = ROOT / "benchmarks" / "results"
# What breaks first where another release differs: models, trainers, checkpoints, the hub's code, the tokenizer.
CORE = (
    "tests/modeling_gpt1/test_common.py",
    "tests/modeling_gpt1/test_modeling_gpt1.py",
    "tests/modeling_gpt1/test_generation.py",
    "tests/modeling_gpt1/test_openai_parity.py",
    "tests/modeling_gpt1/test_conversion.py",
    "tests/modeling_gpt1/training/test_trainer.py",
    "tests/modeling_gpt1/training/test_trainer_internals.py",
    "tests/modeling_gpt1/training/test_divergence.py",
    "tests/modeling_gpt1/training/test_checkpoint.py::TestExactResume",
    "tests/modeling_gpt1/training/test_checkpoint.py::test_two_processes",
    "tests/modeling_gpt1/hub",
    "tests/hub/test_hub_code.py",
    "tests/integration/test_pipelines.py",
    "tests/tokenization/test_tokenization_gpt1.py",
    "tests/tokenization/test_collator.py",
)


@dataclass(frozen=True)
class VersionSet:
    """Releases that are tested together."""

    requirements: tuple[str, ...]
    """What is asked of pip."""
    is_over_pins: bool = False
    """Whether all else comes from the environment of `make test`."""
    is_free: bool = False
    """Whether constraints.txt does not count."""
    tests: tuple[str, ...] = ("tests",)
    python: str | None = None
    """Interpreter, such as python3.13. Default: that of `make test`."""


OLDEST = "transformers==5.17.0"
SETS = {
    "oldest-core": VersionSet((OLDEST,), is_over_pins=True, tests=CORE),
    "oldest": VersionSet((OLDEST, "torch==2.11.0"), is_free=True),
    "between": VersionSet(("transformers==5.20.0",), is_over_pins=True),
    "newest": VersionSet(("transformers>=5.23.0", "torch>=2.15.0"), is_free=True),
    "python3.10": VersionSet((), python="python3.10"),
    "python3.13": VersionSet((), python="python3.13"),
}
SHOWN = ("transformers", "torch", "tokenizers", "accelerate", "datasets", "huggingface_hub")


class NotRunError(Exception):
    """Why a set cannot be run, as its line of the table says it."""


def find_interpreter(name: str) -> str:
    """One that starts: on a machine with pyenv, `name` itself can be a shim for a Python that is not chosen.

    Raises:
        NotRunError: there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in (name, *sorted(map(str, pyenv.glob(f"versions/*/bin/{name}")))):
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
                return candidate
    raise NotRunError(f"there is no {name} on this machine")


def make_environment(name: str, versions: VersionSet, is_offline: bool) -> Path:
    """Its interpreter; made once, and again where the requirements changed.

    Raises:
        NotRunError: it cannot be made.
    """
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    pins = ROOT / "constraints.txt"
    files = [ROOT / "setup.py", *([] if versions.is_free else [pins])]
    wanted = "\n".join([*versions.requirements, *(file.read_text(encoding="utf-8") for file in files)])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    if is_offline:
        raise NotRunError("its environment is not made yet, and --offline installs nothing")
    interpreter = sys.executable if versions.python is None else find_interpreter(versions.python)
    # The pinned pip and setuptools are seen from a set over the pins.
    without = ["--without-pip"] if versions.is_over_pins else []
    subprocess.run([interpreter, "-m", "venv", "--clear", *without, str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    packages = [*versions.requirements, *([] if versions.is_over_pins else ["-e", ".[test]"])]
    constraints = [] if versions.is_free or versions.is_over_pins else ["-c", str(pins)]
    if code := subprocess.run([*pip, *constraints, *packages], cwd=ROOT).returncode:
        raise NotRunError(f"pip ended with {code} before all was installed")
    if versions.is_over_pins:
        (own,) = folder.glob("lib/python*/site-packages")
        (pinned,) = (ROOT / ".venv").glob("lib/python*/site-packages")
        (own / "pinned.pth").write_text(f"{ROOT}\n{pinned}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(
    name: str,
    versions: VersionSet,
    workers: int,
    python: Path | None = None,
    is_offline: bool = False,
    is_again: bool = False,
) -> dict:
    """A line of the table; `is_again` runs what failed last time, and keeps the other results."""
    line = {"set": name, "tests": "core" if versions.tests == CORE else "all"}
    report, kept = (ENVIRONMENTS / f"{name}.{line['tests']}.{ending}" for ending in ("xml", "json"))
    if is_again and not kept.exists():
        return {**line, "not run": "there is no result whose failures could be run again"}
    last = json.loads(kept.read_text(encoding="utf-8")) if is_again else {"results": {}, "again": []}
    failed = [test for test, (outcome, _) in last["results"].items() if outcome == "failed"]
    if is_again and not failed:
        return kept_line(name, line["tests"])
    try:
        python = python or make_environment(name, versions, is_offline)
        line |= installed(python)
    except NotRunError as reason:
        return {**line, "not run": str(reason)}
    report.unlink(missing_ok=True)
    code = run_tests(python, failed if is_again else versions.tests, report, workers)
    if not report.exists():
        return {**line, "not run": f"pytest ended with {code} before it had a result"}
    new = read_report(report)
    # A file that failed as a whole has tests of its own once it is mended.
    done = [test for test in failed if any(ran == test or ran.startswith(f"{test}::") for ran in new)]
    results = {test: result for test, result in last["results"].items() if test not in done} | new
    again = [*last["again"], *failed]
    line["date"] = date.today().isoformat()
    kept.write_text(json.dumps({"line": line, "results": results, "again": again}), encoding="utf-8")
    return kept_line(name, line["tests"])


def kept_line(name: str, tests: str) -> dict | None:
    """The line of the last run of these tests, if there was one."""
    path = ENVIRONMENTS / f"{name}.{tests}.json"
    if not path.exists():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {**kept["line"], **summary(kept["results"]), "again": kept["again"]}


def run_tests(python: Path, tests: Iterable[str], report: Path, workers: int) -> int:
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
    report.parent.mkdir(parents=True, exist_ok=True)
    # With the family xunit1 the report names each test's file.
    options = ["-n", str(workers), "--dist", "worksteal", f"--junitxml={report}", "-o", "junit_family=xunit1"]
    return subprocess.run([str(python), "-m", "pytest", "-q", *options, *tests], cwd=ROOT, env=environment).returncode


def read_report(path: Path) -> dict[str, tuple[str, float]]:
    """Outcome and seconds of each test, by the name that pytest takes."""
    results = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        file = case.get("file")
        # A file that cannot be collected has no class name.
        where = case.get("classname").split(".")[len(Path(file).parts) :]
        test = "::".join([file, *where, case.get("name")]) if case.get("classname") else file
        children = {child.tag for child in case}
        outcome = "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"
        results[test] = (outcome, float(case.get("time")))
    return results


def summary(results: dict[str, tuple[str, float]]) -> dict:
    """What a line of the table says about the tests."""
    outcomes = Counter(outcome for outcome, _ in results.values())
    return {
        **{outcome: outcomes[outcome] for outcome in ("passed", "failed", "skipped")},
        "seconds": round(sum(seconds for _, seconds in results.values())),
        "failures": [test for test, (outcome, _) in results.items() if outcome == "failed"],
    }


def installed(python: Path) -> dict[str, str]:
    """Versions of the interpreter and of what matters.

    Raises:
        NotRunError: something is missing there.
    """
    code = (
        "import json, platform, importlib.metadata as m;"
        f"print(json.dumps(dict(python=platform.python_version(), **{{n: m.version(n) for n in {SHOWN!r}}})))"
    )
    asked = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    if asked.returncode:
        raise NotRunError(f"{python}: {asked.stderr.strip().splitlines()[-1]}")
    return json.loads(asked.stdout)


def table(lines: list[dict]) -> str:
    """The lines as Markdown."""
    columns = ("set", "tests", "python", *SHOWN, "passed", "failed", "skipped", "seconds")
    rows = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for line in lines:
        if "not run" in line:
            rows.append(f"{line['set']} | not run: {line['not run']}" + " |" * (len(columns) - 2))
            continue
        rows.append(" | ".join(str(line[column]) for column in columns))
    again = [f"{line['set']}: {len(line['again'])} tests were run again." for line in lines if line.get("again")]
    return "\n".join([*(f"| {row} |" for row in rows), *again])


def given_python(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if name not in SETS or not Path(path).is_file():
        raise argparse.ArgumentTypeError(f"{text} is not SET=PATH of a set and of an interpreter that is there")
    return name, Path(path).absolute()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all")
    parser.add_argument("--workers", type=int, default=2, help="tests at a time")
    parser.add_argument(
        "--python",
        type=given_python,
        action="append",
        default=[],
        metavar="SET=PATH",
        help="the interpreter of an environment that has all packages: the set runs there, and pip installs nothing",
    )
    parser.add_argument("--core", action="store_true", help="run the core of the tests")
    parser.add_argument("--offline", action="store_true", help="install nothing; run where an environment is made")
    parser.add_argument("--again", action="store_true", help="run what failed last time, keep the other results")
    parser.add_argument("--save", action="store_true", help="write the last result of every set as a dated file")
    args = parser.parse_args()
    if unknown := [name for name in args.sets if name not in SETS]:
        parser.error(f"there is no set {', '.join(unknown)}; known are {', '.join(SETS)}")
    sets = {name: replace(versions, tests=CORE) if args.core else versions for name, versions in SETS.items()}
    pythons = dict(args.python)
    lines = [
        run(name, sets[name], args.workers, pythons.get(name), args.offline, args.again) for name in args.sets or SETS
    ]
    print(table(lines))
    if args.save:
        path = RESULTS / f"{date.today().isoformat()}-versions.json"
        ran = {line["set"]: line for line in lines}
        none = {"not run": "there is no result of it"}
        last = [
            kept_line(name, "all") or kept_line(name, "core") or ran.get(name, {"set": name, **none}) for name in SETS
        ]
        result = {"machine": {"cores": os.cpu_count()}, "sets": last}
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(any(line.get("failed", 0) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
