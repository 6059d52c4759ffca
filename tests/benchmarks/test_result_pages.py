"""The pages of docs/results/: their tables and pictures are those of the newest results, and stand there alone."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
pages = SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "pages.py")))
RESULT_PAGES = sorted((DOCS / "results").glob("*.md"))
PAGES_WITH_TABLES = [*RESULT_PAGES, pages.ALL_ROWS]
GUIDES = sorted([*DOCS.glob("*.md"), *(DOCS / "how-it-works").glob("*.md")])
MEASURED_CELL = re.compile(r"^\|.*\| *[^|\n]*\d+(?:\.\d+)? *(?:×|±|tokens/s|s,|MiB|GiB|%)", flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES_WITH_TABLES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_the_measured_ones(page):
    text = page.read_text(encoding="utf-8")
    assert pages.fill(text) == text


def test_a_table_with_another_figure_is_found():
    """Negative control: a figure that nobody measured."""
    text = (DOCS / "results" / "perplexity.md").read_text(encoding="utf-8")
    wrong = text.replace("| 78.1 |", "| 77.1 |")
    assert pages.fill(wrong) == text


@pytest.mark.parametrize("page", [page for page in RESULT_PAGES if page.stem != "index"], ids=lambda page: page.stem)
def test_a_page_has_a_picture(page):
    assert "](../pictures/" in page.read_text(encoding="utf-8")


def test_each_table_stands_in_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES_WITH_TABLES)
    assert {hit[1] for hit in pages.MARK.finditer(text)} == pages.TABLES.keys()


@pytest.mark.parametrize("name", pages.DRAWN)
def test_a_picture_is_drawn(name, tmp_path):
    assert "<path" in pages.draw(name, tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", pages.DRAWN)
def test_a_picture_is_in_the_folder_of_the_pages(name):
    assert (pages.PICTURES / f"{name}.svg").is_file()


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_has_no_table_of_measurements(page):
    assert MEASURED_CELL.findall(page.read_text(encoding="utf-8")) == []
