"""benchmarks/run.py on made-up scripts: the whole report, failures, and what is saved."""

import json
import sys
import types

import pytest


@pytest.fixture
def scripts(run, monkeypatch):
    """Three scripts of the list: rows with targets met and missed, a failure, and one that takes no threads."""
    calls = []

    def good(rounds, threads, quick):
        calls.append((rounds, threads, quick))
        return [
            run_harness().comparison("step", "CPU seconds", "built-in", [1.0, 2.0, 1.0], [3.0, 2.0, 2.5], 2.0),
            run_harness().comparison("long step", "tokens/s", "GPT2", [300.0, 150.0], [400.0, 200.0], 1.0),
        ]

    def bad(rounds, quick):
        raise RuntimeError("The models disagree.")

    def without_threads(rounds, quick):
        calls.append((rounds, quick))
        return [run_harness().comparison("import", "CPU seconds", "built-in", [0.04], [0.05])]

    for name, compare in (("pretraining", good), ("generation", bad), ("loading", without_threads)):
        module = types.ModuleType(name)
        module.compare = compare
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def run_harness():
    return sys.modules["harness"]


ONLY = ["--only", "pretraining", "generation", "loading"]
TABLE = """\
work       measure       ours  theirs  peer      ratio (least … most)  target  met
step       CPU seconds   1.00    2.50  built-in  × 2.50 (1.00 … 3.00)    2.00  yes
long step  tokens/s       225     300  GPT2      × 0.75 (0.75 … 0.75)    1.00  no
import     CPU seconds  0.040   0.050  built-in  × 1.25 (1.25 … 1.25)
"""


def test_report_and_file_of_a_run_with_a_failed_script(run, scripts, tmp_path, capsys):
    assert run.main([*ONLY, "--rounds", "3", "--threads", "2", "--output", str(tmp_path)]) == 1
    assert scripts == [(3, 2, False), (3, False)]
    printed = capsys.readouterr().out
    assert "generation: failed, 0 s\n" in printed
    assert "pretraining: 2 rows, 0 s\n" in printed
    text = printed[printed.index("work  ") :]
    table, _, rest = text.partition("\n1 of 2 targets met\n\ngeneration FAILED:\nTraceback (most recent call last):\n")
    assert table == TABLE
    assert rest.endswith("RuntimeError: The models disagree.\n")
    (path,) = tmp_path.glob("*-bench.json")
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert {"cores", "processor", "python", "torch", "transformers"} <= saved["machine"].keys()
    results = saved["results"]
    assert list(results) == ["pretraining", "generation", "loading"]
    for name, script in results.items():
        assert (script["rounds"], script["threads"], script["quick"]) == (3, 2, False)
        assert (script["error"] is None) == (name != "generation")
    rows = [row for script in results.values() for row in script["rows"]]
    assert [(row["work"], row["peer"], row["target"], row["ratio"]["rounds"]) for row in rows] == [
        ("step", "built-in", 2.0, [3.0, 1.0, 2.5]),
        ("long step", "GPT2", 1.0, [0.75, 0.75]),
        ("import", "built-in", None, [1.25]),
    ]


def test_scripts_of_the_same_day_stay_each_with_its_command(run, scripts, tmp_path, monkeypatch):
    for words in (["--only", "pretraining", "loading", "--rounds", "3"], ["--only", "loading", "--rounds", "4"]):
        monkeypatch.setattr(sys, "argv", ["benchmarks/run.py", *words])
        run.main([*words, "--output", str(tmp_path)])
    (path,) = tmp_path.glob("*-bench.json")
    results = json.loads(path.read_text(encoding="utf-8"))["results"]
    assert {name: script["rounds"] for name, script in results.items()} == {"pretraining": 3, "loading": 4}
    assert results["pretraining"]["command"] == "python benchmarks/run.py --only pretraining loading --rounds 3"
    assert results["loading"]["command"] == "python benchmarks/run.py --only loading --rounds 4"


def test_a_quick_run_judges_and_writes_nothing(run, scripts, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(run, "RESULTS", tmp_path)
    assert run.main(["--only", "pretraining", "loading", "--quick"]) == 0
    assert scripts == [(5, 1, True), (5, True)]
    printed = capsys.readouterr().out
    assert "targets met" not in printed
    assert "written" not in printed
    assert list(tmp_path.iterdir()) == []


def test_the_tables_of_the_page_are_the_newest_figures(run, scripts, tmp_path):
    def save(day, **rows):
        results = {name: {"quick": False, "error": None, "rows": made} for name, made in rows.items()}
        results["generation"] = {"quick": False, "error": "Traceback …", "rows": rows}
        (tmp_path / f"{day}-bench.json").write_text(json.dumps({"results": results}))

    made = sys.modules["pretraining"].compare(3, threads=1, quick=False)
    rows = [run_harness().comparison("rows", "seconds", "the other", [1.0], [2.0], 3.0)]
    save("2026-11-21", scoring=rows, pretraining=rows)
    save("2026-11-22", pretraining=made, loading=sys.modules["loading"].compare(3, quick=False))
    tables = [run.markdown("pretraining", "2026-11-22", made), run.markdown("scoring", "2026-11-21", rows)]
    assert tables[1].endswith("| rows | seconds | 1.00 | 2.00 | the other | 2.00 (2.00 … 2.00) | 3.00, missed |")
    page = tmp_path / "page.md"
    first, last = run.MARKS
    page.write_text(f"# Page\n\n{first}\nold\n{last}\n\nThe end.\n")
    for _ in range(2):
        run.write_tables(tmp_path, page)
        assert page.read_text(encoding="utf-8") == "\n\n".join(["# Page", first, *tables, last, "The end.\n"])


def test_the_documentation_has_the_newest_figures(run):
    found = run.newest(run.RESULTS)
    assert found
    page = run.PAGE.read_text(encoding="utf-8")
    for name, (day, rows) in found.items():
        assert run.markdown(name, day, rows) in page


def test_a_result_has_its_command(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/benchmarks/freezing.py", "--rows", "8", "--about", "two words"])
    path = run_harness().save_result("freezing", {}, [], tmp_path)
    command = json.loads(path.read_text(encoding="utf-8"))["command"]
    assert command == "python benchmarks/freezing.py --rows 8 --about 'two words'"
