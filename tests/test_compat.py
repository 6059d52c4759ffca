"""The sets of versions that `make compat` tests with, and its table; tests/test_publication.py compares setup.py."""

import re
from pathlib import Path

from compat import CORE, SETS, SHOWN, table

from modeling_gpt1 import configuration_gpt1

ROOT = Path(__file__).resolve().parents[1]


def test_the_sets_reach_from_end_to_end_of_the_supported_versions():
    asked = [re.findall(r"[=>]=([\d.]+)\.0", " ".join(SETS[name].requirements)) for name in ("oldest", "newest")]
    transformers, torch = zip(*asked, strict=True)
    assert transformers[0] == "{}.{}".format(*configuration_gpt1.OLDEST)
    pythons = [versions.python.removeprefix("python") for versions in SETS.values() if versions.python]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for name, (oldest, newest) in {"Python": pythons, "transformers": transformers, "PyTorch": torch}.items():
        assert f"| {name} | {oldest} | {newest} |" in page


def test_the_core_is_there():
    assert [path for path in CORE if not (ROOT / path.partition("::")[0]).exists()] == []


def test_the_table():
    versions = dict.fromkeys(SHOWN, "1.0")
    counts = {"passed": 4, "failed": 3, "skipped": 2, "seconds": 60}
    ran = {"set": "oldest", "tests": "core", "python": "3.11.7", **versions, **counts}
    assert table([ran, {"set": "python3.10", "not run": "no such"}]).splitlines()[2:] == [
        "| oldest | core | 3.11.7 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 1.0 | 4 | 3 | 2 | 60 |",
        "| python3.10 | not run: no such | | | | | | | | | | | |",
    ]
