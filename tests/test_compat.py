"""The sets of versions that `make compat` tests with, and its table; tests/test_publication.py compares setup.py."""

import json
import os
import re
import sys
from pathlib import Path

import compat
import pytest
from compat import CORE, SETS, SHOWN, NotRunError, VersionSet, find_interpreter, run, table

from modeling_gpt1 import configuration_gpt1

ROOT = Path(__file__).resolve().parents[1]
SMALL = """
import pathlib, pytest

class TestSmall:
    @pytest.mark.parametrize("text", ["1::2 a.b"])
    def test_mended_later(self, text):
        assert pathlib.Path("mended").exists()

def test_skipped():
    pytest.skip("no reason")

@pytest.fixture
def broken():
    yield
    assert pathlib.Path("mended").exists()

def test_end(broken):
    pass
"""
UNREADABLE = """
import pathlib
assert pathlib.Path("mended").exists()

def test_one():
    pass

def test_two():
    assert False
"""


def test_the_sets_reach_from_end_to_end_of_the_supported_versions():
    asked = [re.findall(r"[=>]=([\d.]+)\.0", " ".join(SETS[name].requirements)) for name in ("oldest", "newest")]
    transformers, torch = zip(*asked, strict=True)
    assert transformers == tuple(
        "{}.{}".format(*end) for end in (configuration_gpt1.OLDEST, configuration_gpt1.NEWEST)
    )
    pythons = [versions.python.removeprefix("python") for versions in SETS.values() if versions.python]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for name, (oldest, newest) in {"Python": pythons, "transformers": transformers, "PyTorch": torch}.items():
        assert f"| {name} | {oldest} | {newest} |" in page


def test_the_core_is_there():
    assert [path for path in CORE if not (ROOT / path.partition("::")[0]).exists()] == []


def test_an_interpreter_that_is_not_there_is_said():
    assert run("python2.1", VersionSet((), python="python2.1"), workers=1) == {
        "set": "python2.1",
        "tests": "all",
        "not run": "there is no python2.1 on this machine",
    }


def test_a_shim_that_does_not_start_is_passed_over(tmp_path, monkeypatch):
    shim, python = tmp_path / "shims" / "python2.1", tmp_path / "versions" / "2.1.3" / "bin" / "python2.1"
    for file in (shim, python):
        file.parent.mkdir(parents=True)
    shim.write_text("#!/bin/sh\nexit 127\n", encoding="utf-8")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    with pytest.raises(NotRunError) as error:
        find_interpreter("python2.1")
    assert str(error.value) == "there is no python2.1 on this machine"
    python.symlink_to(sys.executable)
    assert find_interpreter("python2.1") == str(python)


def test_nothing_is_installed_offline(tmp_path, monkeypatch):
    monkeypatch.setattr(compat, "ENVIRONMENTS", tmp_path)
    assert run("new", VersionSet(()), workers=1, is_offline=True) == {
        "set": "new",
        "tests": "all",
        "not run": "its environment is not made yet, and --offline installs nothing",
    }
    assert list(tmp_path.iterdir()) == []


def test_a_run_and_what_failed_again(tmp_path, monkeypatch):
    monkeypatch.setattr(compat, "ROOT", tmp_path)
    monkeypatch.setattr(compat, "ENVIRONMENTS", tmp_path / "reports")
    folder = tmp_path / "tests" / "small"
    folder.mkdir(parents=True)
    (folder / "test_small.py").write_text(SMALL, encoding="utf-8")
    (folder / "test_unreadable.py").write_text(UNREADABLE, encoding="utf-8")

    def results(**kwargs) -> dict:
        line = run("small", VersionSet(()), workers=1, python=Path(sys.executable), **kwargs)
        return {name: value for name, value in line.items() if name not in ("python", *SHOWN, "seconds", "date")}

    line = {"set": "small", "tests": "all"}
    assert results(is_again=True) == {**line, "not run": "there is no result whose failures could be run again"}
    failures = [
        "tests/small/test_unreadable.py",
        "tests/small/test_small.py::TestSmall::test_mended_later[1::2 a.b]",
        "tests/small/test_small.py::test_end",
    ]
    line["skipped"] = 1
    assert results() == {**line, "passed": 0, "failed": 3, "failures": failures, "again": []}
    (tmp_path / "mended").touch()
    still = "tests/small/test_unreadable.py::test_two"
    assert results(is_again=True) == {**line, "passed": 3, "failed": 1, "failures": [still], "again": failures}
    (folder / "test_unreadable.py").write_text(UNREADABLE.replace("assert False", "pass"), encoding="utf-8")
    good = {**line, "passed": 4, "failed": 0, "failures": [], "again": [*failures, still]}
    assert results(is_again=True) == good
    monkeypatch.setattr(compat, "run_tests", None)
    assert results(is_again=True) == good

    monkeypatch.setattr(compat, "RESULTS", tmp_path)
    monkeypatch.setattr(compat, "SETS", {"small": VersionSet(()), "other": VersionSet(())})
    monkeypatch.setattr(sys, "argv", ["compat.py", "small", "--again", "--save"])
    assert compat.main() == 0
    (path,) = tmp_path.glob("*-versions.json")
    small, other = json.loads(path.read_text(encoding="utf-8"))["sets"]
    assert small.items() >= good.items()
    assert other == {"set": "other", "not run": "there is no result of it"}


def test_the_table():
    versions = dict.fromkeys(SHOWN, "1.0")
    counts = {"passed": 4, "failed": 3, "skipped": 2, "seconds": 60, "failures": ["a::b"], "again": ["a::b", "c::d"]}
    ran = {"set": "oldest", "tests": "core", "python": "3.11.7", **versions, **counts}
    assert table([ran, {"set": "python3.10", "not run": "no such"}]).splitlines()[2:] == [
        "| oldest | core | 3.11.7 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 4 | 3 | 2 | 60 |",
        "| python3.10 | not run: no such | | | | | | | | | | | |",
        "oldest: 2 tests were run again.",
    ]
