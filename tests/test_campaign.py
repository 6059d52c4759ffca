"""The campaign itself: a few cases of its quick kinds, which are right, and one that a wrong formula makes wrong."""

import pytest
from campaign.common import Wrong
from campaign.formula import Formula
from campaign.work import run_case

pytest.importorskip("ftfy")
pytest.importorskip("spacy")


@pytest.mark.parametrize("kind", ["forward", "generation", "rows", "damage", "texts"])
@pytest.mark.parametrize("seed", [1, 2])
def test_cases(kind, seed, tmp_path):
    run_case(kind, seed, str(tmp_path))


def test_another_formula_is_found(tmp_path, monkeypatch):
    norm = Formula.norm
    monkeypatch.setattr(Formula, "norm", lambda self, name, x: norm(self, name, x) * 1.01)
    with pytest.raises(Wrong, match="differs by"):
        run_case("forward", 0, str(tmp_path))
