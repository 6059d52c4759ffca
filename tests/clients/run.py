"""Runs programs that nobody here wrote on models of this package: each file of tests/clients/programs/ is one.

    make clients                                  # every client
    make clients CLIENTS="minicons onnxruntime"   # two of them
    make clients CLIENTS=--rest                   # those without a result of today that passed

A file has a docstring, REQUIREMENTS (what pip installs, with exact versions) and `main()`, which runs the client and
returns figures with their bounds. IS_FREE and REMOVED are for a client whose requirements do not fit ours, or each
other. Each runs in a virtual environment of its own, which is removed when the client has passed; this package with
its pins lies in one that all see.

Results go to benchmarks/results/<date>-clients.json, where those of clients not run now stay with their date.
`python benchmarks/pages.py` then makes the table of docs/works-with.md.
"""

import argparse
import ast
import json
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
RESULTS = ROOT / "benchmarks" / "results"
ENVIRONMENTS = ROOT / ".venv" / "clients"
LIMIT = 1800  # seconds of one program
COMMON = ("torch", "transformers")
NAMES = ("REQUIREMENTS", "IS_FREE", "REMOVED")  # that a program may define
# Not by the file's name: its folder would come first in sys.path, and minicons.py would be minicons.
START = "import runpy; runpy.run_path({path!r}, run_name='__main__')"


@dataclass(frozen=True)
class Client:
    """A program of tests/clients/programs/."""

    path: Path
    title: str
    """The first line of its docstring up to the colon: the client's name, and its heading in docs/works-with.md."""
    requirements: tuple[str, ...]
    is_free: bool
    """Whether constraints.txt does not count, because the client needs other versions."""
    removed: tuple[str, ...]
    """Packages that pip installs with it, and that do not work there."""

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def packages(self) -> tuple[str, ...]:
        """Names of the packages whose versions the table shows."""
        named = (requirement.partition("==")[0].partition("[")[0] for requirement in self.requirements)
        return tuple(dict.fromkeys([*named, *COMMON]))


def read_client(path: Path) -> Client:
    """Reads a program without running it: what it imports is not installed here."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    constants = {"IS_FREE": False, "REMOVED": ()}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) in NAMES:
            constants[statement.targets[0].id] = ast.literal_eval(statement.value)
    title = ast.get_docstring(tree).partition(":")[0]
    return Client(path, title, constants["REQUIREMENTS"], constants["IS_FREE"], constants["REMOVED"])


def all_clients() -> dict[str, Client]:
    clients = [read_client(path) for path in sorted(PROGRAMS.glob("*.py"))]
    return {client.name: client for client in clients}


def make_base(environments: Path) -> Path:
    """The environment of this package with its pins, which the clients' own see. Other pins are installed into it."""
    folder = environments / "base"
    stamp = folder / "requirements.txt"
    wanted = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("setup.py", "constraints.txt"))
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        options = [] if stamp.exists() else ["--clear"]  # an interrupted one starts again
        subprocess.run([sys.executable, "-m", "venv", *options, str(folder)], check=True)
        install(folder, folder, ["-c", "constraints.txt", "-e", "."])
        stamp.write_text(wanted, encoding="utf-8")
    return folder


def make_environment(client: Client, environments: Path) -> Path:
    """A new virtual environment with the client; returns its interpreter.

    It sees this package and its pins in the base, and only what else the client needs is installed into it. A client
    that needs other versions gets an environment with all of its own.
    """
    folder = environments / client.name
    base = make_base(environments)
    subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
    if client.is_free:
        install(base, folder, ["-e", ".", *client.requirements])
        remove(base, folder, client.removed)
    else:
        (own,) = folder.glob("lib/python*/site-packages")
        (pinned,) = base.glob("lib/python*/site-packages")
        (own / "base.pth").write_text(f"import site; site.addsitedir({str(pinned)!r})\n", encoding="utf-8")
        install(base, folder, ["-c", "constraints.txt", *client.requirements])
    return folder / "bin" / "python"


def install(base: Path, folder: Path, requirements: list[str]) -> None:
    """Installs into an environment with the pip of the base."""
    options = ["--quiet", "--disable-pip-version-check", "--no-compile"]
    subprocess.run([*pip_for(base, folder), "install", *options, *requirements], cwd=ROOT, check=True)


def remove(base: Path, folder: Path, packages: tuple[str, ...]) -> None:
    """Removes packages from an environment."""
    if packages:
        subprocess.run([*pip_for(base, folder), "uninstall", "--quiet", "--yes", *packages], cwd=ROOT, check=True)


def pip_for(base: Path, folder: Path) -> list[str]:
    """The pip of the base, for an environment."""
    return [str(base / "bin" / "python"), "-m", "pip", "--python", str(folder / "bin" / "python")]


def versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    code = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {packages!r}}}))"
    return json.loads(subprocess.run([str(python), "-c", code], check=True, stdout=subprocess.PIPE).stdout)


def run(client: Client, environments: Path, is_kept: bool) -> dict:
    """Installs and starts a client; returns its line of the results."""
    line = {"title": client.title, "date": date.today().isoformat(), "python": platform.python_version()}
    line["command"] = f"python tests/clients/run.py {client.name}"
    folder = environments / client.name
    result_path = environments / f"{client.name}.json"
    work = environments / f"{client.name}.work"
    environments.mkdir(parents=True, exist_ok=True)
    result_path.unlink(missing_ok=True)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        python = make_environment(client, environments)
        line["versions"] = versions(python, client.packages)
        settings = {
            "CLIENT_RESULT": str(result_path),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "clients"))),
            "PATH": os.pathsep.join(map(str, (python.parent, environments / "base" / "bin", os.environ["PATH"]))),
        }
        with (environments / f"{client.name}.log").open("w", encoding="utf-8") as log:
            subprocess.run(
                [str(python), "-c", START.format(path=str(client.path))],
                cwd=work,
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
                timeout=LIMIT,
            )
        if result_path.exists():
            line |= json.loads(result_path.read_text(encoding="utf-8"))
        else:
            line["failed"] = f"it ended without figures: see {log.name}"
    except (OSError, subprocess.SubprocessError) as reason:
        line["failed"] = str(reason)
    line["passed"] = has_passed(line)
    if line["passed"] and not is_kept:
        shutil.rmtree(folder)
        shutil.rmtree(work)
    return line


def has_passed(line: dict) -> bool:
    """Whether there are figures and each is within its bound."""
    figures = line.get("figures", [])
    return bool(figures) and all(figure["is_held"] for figure in figures)


def newest_results() -> Path | None:
    return max(RESULTS.glob("????-??-??-clients.json"), default=None)


def read_results() -> dict[str, dict]:
    """Lines of the newest file by client."""
    path = newest_results()
    return json.loads(path.read_text(encoding="utf-8"))["clients"] if path else {}


def save(name: str, line: dict) -> None:
    """Puts a client's line into the results of today, which begin as the newest ones."""
    before = newest_results()
    lines = {**read_results(), name: line}
    path = RESULTS / f"{date.today().isoformat()}-clients.json"
    machine = {"cores": os.cpu_count(), "system": platform.system(), "processor": platform.machine()}
    result = {"machine": machine, "clients": dict(sorted(lines.items()))}
    whole = path.with_suffix(".tmp")
    whole.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    whole.replace(path)  # at once: a file that was half written could not be read by the next run
    if before not in (None, path):
        before.unlink()


def summary(name: str, line: dict) -> str:
    """A line for the screen."""
    if line["passed"]:
        figures = "; ".join(f"{figure['what']}: {figure['value']:.3g}" for figure in line["figures"])
        return f"passed   {name}: {figures}"
    if "not run" in line:
        return f"not run  {name}: {line['not run']}"
    broken = [figure["what"] for figure in line.get("figures", []) if not figure["is_held"]]
    return f"FAILED   {name}: {line.get('failed') or '; '.join(broken)}"


def main() -> int:
    clients = all_clients()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CLIENT", help=f"{', '.join(clients)}; default: all")
    parser.add_argument("--rest", action="store_true", help="leave out clients that passed today")
    parser.add_argument("--keep", action="store_true", help="keep the environments of clients that passed")
    parser.add_argument("--folder", type=Path, default=ENVIRONMENTS, help="where environments are made")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in clients]:
        parser.error(f"there is no client {', '.join(unknown)}; known are {', '.join(clients)}")
    lines = {}
    before = read_results()
    for name in args.names or clients:
        done = before.get(name, {})
        if args.rest and done.get("passed") and done["date"] == date.today().isoformat():
            continue
        lines[name] = run(clients[name], args.folder.resolve(), args.keep)
        save(name, lines[name])
        print(summary(name, lines[name]), flush=True)
    return int(any(not line["passed"] and "not run" not in line for line in lines.values()))


if __name__ == "__main__":
    sys.exit(main())
