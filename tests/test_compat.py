"""The sets of versions that `make compat` tests with; tests/test_publication.py compares setup.py."""

import re
from pathlib import Path

from compat import CORE, SETS

from modeling_gpt1 import configuration_gpt1

ROOT = Path(__file__).resolve().parents[1]


def test_the_sets_reach_from_end_to_end_of_the_supported_versions():
    asked = [re.findall(r"[=>]=([\d.]+)\.0", " ".join(SETS[name].requirements)) for name in ("oldest", "newest")]
    transformers, torch = zip(*asked, strict=True)
    assert transformers[0] == "{}.{}".format(*configuration_gpt1.OLDEST)
    pythons = [versions.python.removeprefix("python") for versions in SETS.values() if versions.python]
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for name, releases in {"Python": pythons, "transformers": transformers, "PyTorch": torch}.items():
        assert f"| {name} | {releases[0]} | {releases[-1]} |" in page


def test_the_core_is_there():
    assert [path for path in CORE if not (ROOT / path.partition("::")[0]).exists()] == []
