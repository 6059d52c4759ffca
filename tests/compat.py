"""Runs the suite with other versions of transformers and torch than those of constraints.txt: a line for each.

    make compat                         # every set, hours on two cores
    make compat SETS=oldest-core        # one of them
    make compat SETS=--save             # also benchmarks/results/<date>-versions.json

Each set has a virtual environment of its own in .venv/compat. A set over the pins sees all that `make test` installed,
and only what it names, and what that needs, lies in front; the others are installed whole: another Python with the
pins of constraints.txt, the oldest and the newest releases without. A line says which set was not run, and why.
"""

import argparse
import json
import os
import shlex
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
OF_MODELS = "common modeling_gpt1 generation openai_parity conversion".split()
CORE = [f"tests/modeling_gpt1/test_{name}.py" for name in OF_MODELS]
CORE += [f"tests/modeling_gpt1/training/test_{name}.py" for name in ("trainer", "trainer_internals", "divergence")]
CORE += [
    f"tests/modeling_gpt1/training/test_checkpoint.py::{name}" for name in ("TestExactResume", "test_two_processes")
]
CORE += ["tests/modeling_gpt1/hub", "tests/hub/test_hub_code.py", "tests/integration/test_pipelines.py"]
CORE += [f"tests/{name}.py" for name in ("integration/test_peft", "tokenization/text/test_tokenization_gpt1")]
CORE += ["tests/tokenization/batches/test_block_collator.py", "tests/tokenization/batches/test_traversal_collator.py"]


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
    "between": VersionSet(("transformers==5.23.0",), is_over_pins=True),
    "newest": VersionSet(("transformers>=5.24.0", "torch>=2.15.0"), is_free=True),
    "python3.10": VersionSet((), python="python3.10"),
    "python3.13": VersionSet((), python="python3.13"),
    "python3.14": VersionSet((), python="python3.14"),
}
SHOWN = ("transformers", "torch", "tokenizers", "accelerate", "datasets", "huggingface_hub")


def make_environment(name: str, versions: VersionSet) -> Path:
    """Its interpreter; made once, and again where the requirements changed."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    pins = ROOT / "constraints.txt"
    files = [ROOT / "setup.py", *([] if versions.is_free else [pins])]
    wanted = "\n".join([*versions.requirements, *(file.read_text(encoding="utf-8") for file in files)])
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    interpreter = versions.python or sys.executable
    # The pinned pip and setuptools are seen from a set over the pins.
    without = ["--without-pip"] if versions.is_over_pins else []
    subprocess.run([interpreter, "-m", "venv", "--clear", *without, str(folder)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    packages = [*versions.requirements, *([] if versions.is_over_pins else ["-e", ".[test]"])]
    constraints = [] if versions.is_free or versions.is_over_pins else ["-c", str(pins)]
    subprocess.run([*pip, *constraints, *packages], cwd=ROOT, check=True)
    if versions.is_over_pins:
        (own,) = folder.glob("lib/python*/site-packages")
        (pinned,) = (ROOT / ".venv").glob("lib/python*/site-packages")
        (own / "pinned.pth").write_text(f"{ROOT}\n{pinned}\n", encoding="utf-8")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(name: str, versions: VersionSet, workers: int) -> dict:
    """A line of the table."""
    line = {"set": name, "tests": "core" if versions.tests == CORE else "all"}
    report = ENVIRONMENTS / f"{name}.xml"
    try:
        python = make_environment(name, versions)
        line |= installed(python)
    except (OSError, subprocess.CalledProcessError) as reason:
        return {**line, "not run": str(reason)}
    report.unlink(missing_ok=True)
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    options = ["-q", "-n", str(workers), "--dist", "worksteal", f"--junitxml={report}", *versions.tests]
    environment = {**os.environ, **settings, "PYTHONPATH": str(ROOT)}
    code = subprocess.run([str(python), "-m", "pytest", *options], cwd=ROOT, env=environment).returncode
    if not report.exists():
        return {**line, "not run": f"pytest ended with {code} before it had a result"}
    return line | read_report(report)


def read_report(path: Path) -> dict[str, int]:
    """What a line of the table says about the tests."""
    (suite,) = ElementTree.parse(path).getroot().iter("testsuite")
    failed = int(suite.get("failures")) + int(suite.get("errors"))
    skipped = int(suite.get("skipped"))
    passed = int(suite.get("tests")) - failed - skipped
    return {"passed": passed, "failed": failed, "skipped": skipped, "seconds": round(float(suite.get("time")))}


def installed(python: Path) -> dict[str, str]:
    """Versions of the interpreter and of what matters."""
    code = (
        "import json, platform, importlib.metadata as m;"
        f"print(json.dumps(dict(python=platform.python_version(), **{{n: m.version(n) for n in {SHOWN!r}}})))"
    )
    return json.loads(subprocess.run([str(python), "-c", code], check=True, stdout=subprocess.PIPE).stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(SETS), help=f"{', '.join(SETS)}; default: all")
    parser.add_argument("--workers", type=int, default=2, help="tests at a time")
    parser.add_argument("--save", action="store_true", help="write the table as a dated file")
    args = parser.parse_args()
    if unknown := [name for name in args.sets if name not in SETS]:
        parser.error(f"there is no set {', '.join(unknown)}; known are {', '.join(SETS)}")
    lines = [run(name, SETS[name], args.workers) for name in args.sets]
    print("\n".join(map(json.dumps, lines)))
    if args.save:
        path = RESULTS / f"{date.today().isoformat()}-versions.json"
        command = shlex.join(["python", "tests/compat.py", *sys.argv[1:]])
        result = {"machine": {"cores": os.cpu_count()}, "command": command, "sets": lines}
        path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return int(any(line.get("failed", 0) for line in lines))


if __name__ == "__main__":
    sys.exit(main())
