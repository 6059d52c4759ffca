"""The runner of clients: what it reads from a program, how figures are judged, and which results it keeps."""

import json
from pathlib import Path

import pytest
from clients import figures, run
from support.pages import ROOT

CLIENTS = list(run.all_clients().values())


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_every_requirement_has_one_exact_version(client):
    assert [requirement for requirement in client.requirements if requirement.count("==") != 1] == []


def test_a_program_is_read_without_running_it(tmp_path):
    path = tmp_path / "tool.py"
    path.write_text('"""A tool: what it does."""\nimport nowhere\nREQUIREMENTS = ("tool[x]==1.2", "other==3")\n')
    client = run.read_client(path)
    assert (client.name, client.title, client.is_free) == ("tool", "A tool", False)
    assert client.packages == ("tool", "other", "torch", "transformers")


@pytest.mark.parametrize(
    ("bound", "is_held"),
    [({}, True), ({"at_most": 2}, True), ({"at_most": 1}, False), ({"at_least": 3}, False), ({"equals": 2}, True)],
)
def test_a_figure_is_held_within_its_bound(bound, is_held):
    assert figures.Figure("number of heads", 2, **bound).is_held is is_held


def test_a_figure_that_is_not_a_number_is_not_held():
    assert not figures.Figure("difference", float("nan"), at_most=1).is_held


@pytest.mark.parametrize(
    ("line", "has_passed"),
    [
        ({"figures": [{"is_held": True}]}, True),
        ({"figures": [{"is_held": True}, {"is_held": False}]}, False),
        ({"figures": []}, False),
        ({"not run": "it needs a GPU"}, False),
    ],
)
def test_a_client_passes_with_figures_that_are_all_held(line, has_passed):
    assert run.has_passed(line) is has_passed


def test_a_program_may_name_packages_that_are_removed_again(tmp_path):
    path = tmp_path / "tool.py"
    path.write_text('"""A tool."""\nREQUIREMENTS = ("tool==1",)\nIS_FREE = True\nREMOVED = ("torchvision",)\n')
    client = run.read_client(path)
    assert (client.is_free, client.removed) == (True, ("torchvision",))


def test_results_of_other_clients_stay_with_their_date(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    old = tmp_path / "2020-01-01-clients.json"
    old.write_text(json.dumps({"clients": {"kept": {"date": "2020-01-01"}, "tool": {"date": "2020-01-01"}}}))
    run.save("tool", {"date": "today"})
    assert not old.exists()
    assert run.read_results() == {"kept": {"date": "2020-01-01"}, "tool": {"date": "today"}}


def test_results_stay_whole_where_a_write_ends_half_way(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    run.save("tool", {"date": "today"})

    def write_half(path, text, **_):
        with path.open("w", encoding="utf-8") as file:
            file.write(text[: len(text) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="no space left"):
        run.save("other", {"date": "today"})
    assert run.read_results() == {"tool": {"date": "today"}}


def test_the_lines_below_a_heading_are_run(tmp_path, monkeypatch):
    (tmp_path / "page.md").write_text(
        "# Page\n\n## One\n\n```python\na = b + 1\n```\n\n```sh\nls\n```\n\n### Two\n\n```python\na = 0\n```\n"
    )
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    assert figures.run_lines("One", "page.md", b=1)["a"] == 2


@pytest.mark.parametrize(
    ("result", "code"),
    [([figures.Figure("x", 1, equals=1)], 0), ([figures.Figure("x", 1, equals=2)], 1)],
)
def test_a_program_ends_with_1_where_a_figure_is_not_held(result, code, monkeypatch, capsys):
    monkeypatch.delenv("CLIENT_RESULT", raising=False)
    with pytest.raises(SystemExit) as ended:
        figures.report(lambda: result)
    assert ended.value.code == code


def test_a_client_that_cannot_run_says_what_it_needs(tmp_path, monkeypatch, capsys):
    def main():
        raise figures.CannotRun("It needs a C++ compiler.")

    monkeypatch.setenv("CLIENT_RESULT", str(tmp_path / "result.json"))
    with pytest.raises(SystemExit):
        figures.report(main)
    assert json.loads((tmp_path / "result.json").read_text()) == {"not run": "It needs a C++ compiler."}


def test_each_client_has_a_heading_in_the_page():
    page = (ROOT / "docs" / "works-with.md").read_text(encoding="utf-8")
    assert [client.title for client in CLIENTS if f"## {client.title}\n" not in page] == []
