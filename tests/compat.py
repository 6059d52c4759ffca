"""Runs the suite with other versions of transformers and torch than those of constraints.txt, and writes one table.

    make compat                         # every set, hours on two cores
    make compat SETS=oldest-core        # one of them

Each set has a virtual environment of its own in .venv/compat. A set with the pinned torch sees all that `make test`
installed, and only what it names, and what that needs, lies in front; the others are installed whole, without
constraints.txt. Interpreters that the machine lacks are named in the table as not run.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
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
    "tests/integration/test_pipelines.py",
    "tests/tokenization/test_tokenization_gpt1.py",
    "tests/tokenization/test_collator.py",
)


@dataclass(frozen=True)
class VersionSet:
    """Releases that are tested together."""

    requirements: tuple[str, ...]
    """What is asked of pip; the rest is what the ranges of setup.py then give."""
    is_over_pins: bool = False
    """Whether all else comes from the environment of `make test`."""
    tests: tuple[str, ...] = ("tests",)
    python: str | None = None
    """Interpreter, such as python3.13. Default: that of `make test`."""


OLDEST = "transformers==5.17.0"
SETS = {
    "oldest-core": VersionSet((OLDEST,), is_over_pins=True, tests=CORE),
    "oldest": VersionSet((OLDEST, "torch==2.11.0")),
    "between": VersionSet(("transformers==5.20.0",), is_over_pins=True),
    "newest": VersionSet(("transformers>=5.23.0", "torch>=2.15.0")),
    "python3.10": VersionSet((), python="python3.10"),
    "python3.13": VersionSet((), python="python3.13"),
}
SHOWN = ("transformers", "torch", "tokenizers", "accelerate", "datasets", "huggingface_hub")


def make_environment(name: str, versions: VersionSet) -> Path:
    """Its interpreter; made once, and again where the requirements changed."""
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    wanted = "\n".join([*versions.requirements, (ROOT / "setup.py").read_text(encoding="utf-8")])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    interpreter = sys.executable if versions.python is None else versions.python
    # The pinned pip and setuptools are seen from a set over the pins.
    without = ["--without-pip"] if versions.is_over_pins else []
    subprocess.run([interpreter, "-m", "venv", "--clear", *without, str(folder)], check=True)
    packages = [*versions.requirements, *([] if versions.is_over_pins else ["-e", ".[test]"])]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], cwd=ROOT, check=True)
    if versions.is_over_pins:
        (own,) = folder.glob("lib/python*/site-packages")
        (pinned,) = (ROOT / ".venv").glob("lib/python*/site-packages")
        (own / "pinned.pth").write_text(f"{pinned}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(name: str, versions: VersionSet, workers: int) -> dict:
    """A line of the table."""
    if versions.python is not None and shutil.which(versions.python) is None:
        return {"set": name, "not run": f"there is no {versions.python} on this machine"}
    python = make_environment(name, versions)
    report = ENVIRONMENTS / f"{name}.xml"
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
    command = [str(python), "-m", "pytest", "-q", "-n", str(workers), "--dist", "worksteal", f"--junitxml={report}"]
    report.unlink(missing_ok=True)
    code = subprocess.run(
        [*command, *versions.tests], cwd=ROOT, env={**environment, "PYTHONPATH": str(ROOT)}
    ).returncode
    if not report.exists():
        return {"set": name, **installed(python), "not run": f"pytest ended with {code} before it had a result"}
    suite = ElementTree.parse(report).getroot().find("testsuite")
    counts = {key: int(suite.get(key)) for key in ("tests", "failures", "errors", "skipped")}
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return {"set": name, **installed(python), **counts, "seconds": round(float(suite.get("time"))), "failed": failed}


def installed(python: Path) -> dict[str, str]:
    """Versions of the interpreter and of what matters."""
    code = (
        "import json, platform, importlib.metadata as m;"
        f"print(json.dumps(dict(python=platform.python_version(), **{{n: m.version(n) for n in {SHOWN!r}}})))"
    )
    return json.loads(subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout)


def table(lines: list[dict]) -> str:
    """The lines as Markdown."""
    columns = ("set", "python", *SHOWN, "passed", "failed", "skipped", "seconds")
    rows = [" | ".join(columns), " | ".join("---" for _ in columns)]
    for line in lines:
        if "not run" in line:
            rows.append(f"{line['set']} | not run: {line['not run']}" + " |" * (len(columns) - 2))
            continue
        bad = line["failures"] + line["errors"]
        figures = {**line, "passed": line["tests"] - bad - line["skipped"], "failed": bad}
        rows.append(" | ".join(str(figures[column]) for column in columns))
    return "\n".join(f"| {row} |" for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all")
    parser.add_argument("--workers", type=int, default=2, help="tests at a time")
    parser.add_argument("--save", action="store_true", help="write the table as a dated result")
    args = parser.parse_args()
    if unknown := [name for name in args.sets if name not in SETS]:
        parser.error(f"there is no set {', '.join(unknown)}; known are {', '.join(SETS)}")
    lines = [run(name, SETS[name], args.workers) for name in args.sets or SETS]
    print(table(lines))
    if args.save:
        path = RESULTS / f"{date.today().isoformat()}-versions.json"
        path.write_text(json.dumps({"sets": lines}, indent=2) + "\n", encoding="utf-8")
    return int(any(line.get("failures", 0) or line.get("errors", 0) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
