"""The sets of versions that `make compat` tests with, and its table."""

import re
from pathlib import Path

from compat import CORE, OLDEST, SETS, SHOWN, VersionSet, run, table

ROOT = Path(__file__).resolve().parents[1]


def test_the_oldest_set_is_what_setup_allows():
    ranges = dict(re.findall(r'"(transformers|torch)>=([\d.]+)', (ROOT / "setup.py").read_text(encoding="utf-8")))
    oldest = dict(name.split("==") for name in SETS["oldest"].requirements)
    assert {name: f"{version}.0" for name, version in ranges.items()} == oldest
    assert OLDEST in SETS["oldest-core"].requirements


def test_the_core_is_there():
    assert [path for path in CORE if not (ROOT / path.partition("::")[0]).exists()] == []


def test_an_interpreter_that_is_not_there_is_said():
    assert run("python2.1", VersionSet((), python="python2.1"), workers=1) == {
        "set": "python2.1",
        "not run": "there is no python2.1 on this machine",
    }


def test_the_table():
    versions = dict.fromkeys(SHOWN, "1.0")
    counts = {"tests": 10, "failures": 1, "errors": 2, "skipped": 3, "seconds": 60, "failed": ["a::b"]}
    ran = {"set": "oldest", "python": "3.11.7", **versions, **counts}
    assert table([ran, {"set": "python3.10", "not run": "no such"}]).splitlines()[2:] == [
        "| oldest | 3.11.7 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 4 | 3 | 3 | 60 |",
        "| python3.10 | not run: no such | | | | | | | | | | |",
    ]
