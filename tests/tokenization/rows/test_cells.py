"""Cells that are copied from one file into another: none of their characters changes, but formulas are not run."""

import datetime
import json

import pyarrow.parquet
import pytest
from support.files import write_rows
from support.refusals import check_refused

from tokenization.rows.cells import Number, as_json, as_text, read_cells, without_formula

# The value of a cell in a JSON file, and the cell of a .csv file that it becomes.
JSON_CELLS = {
    "13835058055282163713": "13835058055282163713",
    "9007199254740993": "9007199254740993",
    "1.50": "1.50",
    "-1E5": "-1E5",
    "0.1000000000000000055": "0.1000000000000000055",
    "-0": "-0",
    '"2020-01-01T10:20:30Z"': "2020-01-01T10:20:30Z",
    '"2020-01-01 00:00:00"': "2020-01-01 00:00:00",
    '"2020-01-01"': "2020-01-01",
    '"007"': "007",
    '" a\\nb "': " a\nb ",
    "true": "true",
    "null": "",
    '[1.0, "é", {"a": 2.50}]': '[1.0, "é", {"a": 2.50}]',
    '"\\ud83d"': "\\ud83d",
}


@pytest.mark.parametrize("ending", [".jsonl", ".json", ".jsonl.gz"])
def test_numbers_of_a_json_file_keep_their_characters(tmp_path, ending):
    write_rows(tmp_path / f"a{ending}", [{"id": 1.5, "text": "a"}, {"text": "b"}])
    cells = read_cells(tmp_path / f"a{ending}", ["id"])
    assert cells == [{"id": "1.5"}, {"id": None}]
    assert isinstance(cells[0]["id"], Number)


@pytest.mark.parametrize("source", JSON_CELLS)
def test_a_cell_of_a_json_file_keeps_its_characters(tmp_path, source):
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"text": "a", "x": {source}}}\n{{"text": "b", "x": 1.5}}\n', encoding="utf-8")
    cell = read_cells(path, ["x"])[0]["x"]
    assert as_json({"x": cell}) == f'{{"x": {source}}}'
    assert as_text(cell) == JSON_CELLS[source]


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_a_cell_of_a_csv_file_keeps_its_characters(tmp_path, ending):
    texts = ["13835058055282163713", "1.50", " 007", "NA", "2020-01-01T00:00:00Z", "True", "  ", ""]
    mark = "\t" if ending == ".tsv" else ","
    lines = [f"text{mark}x", *[f"a{mark}{text}" for text in texts]]
    (tmp_path / f"rows{ending}").write_text("\n".join(lines))
    assert [as_text(row["x"]) for row in read_cells(tmp_path / f"rows{ending}", ["x"])] == texts


def test_cells_of_a_parquet_file_keep_their_values(tmp_path):
    times = [datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, 10, 20, 30)]
    columns = {
        "id": pyarrow.array([13835058055282163713, 13835058055282163714], pyarrow.uint64()),
        "day": pyarrow.array([datetime.date(2020, 1, 1), None]),
        "time": pyarrow.array(times, pyarrow.timestamp("s")),
        "part": pyarrow.array([float("nan"), 0.5]),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "rows.parquet")
    rows = read_cells(tmp_path / "rows.parquet", list(columns))
    assert [list(map(as_text, row.values())) for row in rows] == [
        ["13835058055282163713", "2020-01-01", "2020-01-01 00:00:00", ""],
        ["13835058055282163714", "", "2020-01-01 10:20:30", "0.5"],
    ]
    assert json.loads(as_json(rows[0])) == {
        "id": 13835058055282163713,
        "day": "2020-01-01",
        "time": "2020-01-01 00:00:00",
        "part": None,
    }


@pytest.mark.parametrize("ending", [".jsonl", ".csv"])
def test_a_column_that_the_file_lacks_is_refused(tmp_path, ending):
    path = write_rows(tmp_path / f"rows{ending}", [{"text": "a", "id": 1}])
    check_refused(lambda: read_cells(path, ["idd"]), f"{path} has no column 'idd' to keep (did you mean 'id'?)")


NUMBERS = ["-1", "+2.5", "-1e-05", "-2.5E+3", "-1,5", "-1.234,5", "-inf", "-nan"]
FORMULAS = ["=1+1", "=1", "+ve", "-x", "-1-1", "-1e", "-e5", "@a", "--cmd", "-inf()", "-info", "=="]


@pytest.mark.parametrize("cell", [*NUMBERS, "-", "--", "="])
def test_a_number_or_a_sign_is_no_formula(cell):
    assert without_formula(cell) == cell


@pytest.mark.parametrize("cell", FORMULAS)
def test_a_text_that_a_spreadsheet_would_run_stands_behind_an_apostrophe(cell):
    assert without_formula(cell) == f"'{cell}"


@pytest.mark.parametrize("cell", [-1.5, None, "", "a=b", "1-1", Number("-1e5")])
def test_other_cells_are_no_formulas(cell):
    assert without_formula(cell) is cell
