"""What is published says the same everywhere: versions, names, citation, and how the package is installed."""

import ast
import contextlib
import importlib.metadata
import re
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[1]


def metadata() -> dict:
    """The arguments of `setup` in setup.py that are written out there."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (call,) = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "setup")
    values = {}
    for keyword in call.keywords:
        try:
            values[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:  # is computed
            continue
    return values


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.partition(";")[0].split("==") for line in lines if not line.startswith("#"))


def test_citation_and_changelog_have_the_packages_version():
    known = metadata()
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == known["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", changelog, flags=re.MULTILINE)[1] == known["version"]


def below(release: str) -> str:
    """The range that ends with this release: 5.23 gives <5.24."""
    major, minor = release.split(".")
    return f"<{major}.{int(minor) + 1}"


def test_the_supported_versions_are_those_of_the_metadata():
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (Python|transformers|PyTorch) \| (\S+ \| \S+) \|$", page, flags=re.MULTILINE))
    supported = {name: tuple(versions.split(" | ")) for name, versions in rows.items()}
    known = metadata()
    pythons = [line.rpartition(" ")[2] for line in known["classifiers"] if re.search(r":: 3\.\d+$", line)]
    assert known["python_requires"] == f">={pythons[0]},{below(pythons[-1])}"
    assert supported["Python"] == (pythons[0], pythons[-1])
    required = {Requirement(line).name: Requirement(line).specifier for line in known["install_requires"]}
    for name, package in (("transformers", "transformers"), ("PyTorch", "torch")):
        oldest, newest = supported[name]
        assert required[package] == SpecifierSet(f">={oldest},{below(newest)}")
        assert pins()[package] in required[package]


def test_pins_that_need_a_newer_python_say_so():
    """Else the oldest Python could install nothing."""
    oldest = metadata()["python_requires"].removeprefix(">=").partition(",")[0]
    wrong = []
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        pin, _, marker = line.partition(";")
        name, _, version = pin.partition("==")
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed = importlib.metadata.metadata(name)
            needed = SpecifierSet(installed["Requires-Python"] or "")
            if installed["Version"] == version and (oldest in needed) == bool(marker):
                wrong.append(f"{line}: {needed}")
    assert wrong == []


def test_nobody_is_sent_to_an_unclaimed_name():
    """Anybody could upload a package called gpt1-hf to PyPI until its first version is there."""
    texts = [ROOT / "README.md", ROOT / "hub_card.md", *(ROOT / "docs").rglob("*.md")]
    texts += [*(ROOT / "modeling_gpt1").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
    sent = re.compile(r"pip install (-U |--upgrade )?[\"']?gpt1-hf|pypi\.org/project/gpt1-hf")
    assert [str(path) for path in texts if sent.search(path.read_text(encoding="utf-8"))] == []


def test_hooks_before_a_commit_have_the_tested_ruff():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    assert {need for hook in hooks for need in hook["additional_dependencies"]} == {f"ruff=={pins()['ruff']}"}
