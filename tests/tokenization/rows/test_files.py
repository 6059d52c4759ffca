"""Table files read as they stand, and what is said of one that cannot be read."""

import gzip
import json
import logging
import re
from unittest.mock import Mock

import pytest
from support.files import write_rows
from support.own_rows import COLUMNS, ROWS
from support.refusals import check_refused

import tokenization
from tokenization import load_files
from tokenization.rows.files import read_file
from tokenization.text import documents


def test_texts_before_a_number_stay_texts(tmp_path):
    """A column of both would be read as JSON's source behind the first 10 MB."""
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a" * 10_000}] * 1_100 + [{"text": 5}])
    for action in (lambda: read_file(path), lambda: [*documents._read_rows(str(path), "json")]):
        check_refused(action, path, "Column(/text) changed from string to number in row")


@pytest.mark.parametrize("texts", [["007", "42"], ["1.50", "2e5"], ["True", "False"], ["NA", "null", "None", "nan"]])
def test_texts_of_a_csv_file_stay_as_they_are(tmp_path, texts):
    path = write_rows(tmp_path / "rows.csv", [{"body": text, "label": place % 2} for place, text in enumerate(texts)])
    rows = load_files({"train": path}, "classification", {"text": "body"})[1]["train"]
    assert rows["body"][:] == texts
    assert rows["label"][:] == [0, 1, 0, 1][: len(texts)]


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("a.jsonl", b"", ["no rows", "at least one"]),
        ("b.csv", b"", ["no rows"]),
        ("c.csv", b"body,label\n", ["no rows"]),
        ("d.jsonl", b'{"body": "a", "label": "x"}\n{"body": "b", "label": \n', ["row 1", "Correct the file"]),
        ("e.jsonl", b'{"body": "a", "label": "x"}\n[1]\n', ["changed from object"]),
        ("f.csv", b"body,label\ncaf\xe9,x\n", ["byte 0xe9", "`iconv -f ENCODING -t UTF-8 {path} > NEW`", "1251"]),
        ("h.csv", "body,label\na,x\n".encode("utf-16"), ["byte 0xff", "`iconv -f UTF-16 -t UTF-8 {path} > NEW`"]),
        ("i.jsonl", b'{"body": "a", "label": "x"}\n{"body": "caf\xe9", "label": "y"}\n', ["0xe9", "UTF-8"]),
        ("j.csv", b'body,label\na,x\n"b,y\n', ["as csv", "string starting at row 2", "Correct the file"]),
        ("k.csv", b"body,label\nhello, world,x\na, b,y\n", ["first row has more cells than the 2", "Quote cells"]),
        ("l.csv", b"body,label\na,x\nb,c,d,e,y\n", ["saw 5", "`delimiter`"]),
        ("m.jsonl.gz", gzip.compress(b'{"body": "a"}\n' * 9, mtime=0)[:-9], ["file ended before"]),
        ("n.parquet", b"xx", ["as parquet", "2 bytes"]),
        ("o.xlsx", b"", ["unknown file type", ".jsonl, .jsonl.gz, .csv, .parquet", "CSV (UTF-8)"]),
        ("p.json", b'[{"body": "a"},\n{"body": }]', ["as json", "Correct the file"]),
        ("p.csv", b"body,label,body\na,x,b\n", ["names two columns 'body'"]),
        ("q.json", b'{"body": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}', ["holds columns", "'records'"]),
        ("s.json", b'{"body": ["a", "b"], "label": ["x", "y"]}', ["holds columns", "Write a list of rows"]),
        ("r.csv", b"a film,x\nb film,y\n", ["its columns are: 'a film', 'x'", "If its first line is a row, add"]),
        ("q.csv", b"body^label\na^x\nb^y\n", ["no column 'label'", "body^label", "`delimiter`"]),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, content, parts, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("datasets"), "propagate", True)
    path = tmp_path / name
    path.write_bytes(content)
    parts = [part.format(path=path) for part in parts]
    check_refused(lambda: load_files({"train": path}, "classification", {"text": "body"}), path, *parts)
    assert not caplog.messages


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_file(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "a.csv", [{"body": "a"}])
    for error in (OSError(30, "Read-only file system", "/cache"), OSError("Not enough disk space. Needed: 9 bytes")):
        monkeypatch.setattr(tokenization.rows.files, "load_dataset", Mock(side_effect=error))
        with pytest.raises(OSError, match=f"^{re.escape(str(error))}$"):
            read_file(path)


def test_lines_that_a_quotation_mark_joins_are_told(tmp_path, logged):
    path = tmp_path / "quote.csv"
    path.write_text('body,label\n"a,x\nb,y\nc",x\n\nd,y\n')
    assert len(read_file(path)) == 2
    told = "4 lines make 2 rows, as some cells hold line ends. If none should, a quotation mark is missing."
    assert logged.messages == [f"{path}: {told}"]


def test_blank_lines_are_not_told(tmp_path, logged):
    path = tmp_path / "blank.csv"
    path.write_text("body,label\na,x\n\nb,y\n")
    assert len(read_file(path)) == 2
    assert logged.messages == []


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("a.csv", 'body,mood\n"a; b, c",1\n007,0\n', None),
        ("a.tsv", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("b.csv", "body;mood\na; b, c;1\n007;0\n".replace("a; b, c", '"a; b, c"'), None),
        ("C.CSV", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("d.csv", "body|mood\na; b, c|1\n007|0\n", None),
        ("e.csv", "body\tmood\na; b, c\t1\n007\t0\n", "\\t"),
        ("f.json", json.dumps([{"body": "a; b, c", "mood": 1}, {"body": "007", "mood": 0}], indent=1), None),
        ("g.json", '{"body": "a; b, c", "mood": 1}\n{"body": "007", "mood": 0}\n', None),
    ],
)
def test_kinds_of_files_that_people_have(tmp_path, name, content, delimiter, logged):
    path = tmp_path / name
    path.write_text(content)
    rows = load_files({"train": path}, "classification", COLUMNS, delimiter=delimiter)[1]["train"]
    assert rows.to_list() == [{"body": "a; b, c", "mood": 1}, {"body": "007", "mood": 0}]
    read_file(path, delimiter=delimiter)  # as `gpt1 predict --keep` does; the mark is told once
    found = {"b.csv": "';'", "C.CSV": "'\\t'", "d.csv": "'|'"}.get(name)
    assert logged.messages == ([f"{path}: cells are separated by {found}."] if found else [])


def test_a_file_whose_name_looks_like_a_pattern_is_read(tmp_path):
    path = write_rows(tmp_path / "rows[1]*.jsonl", ROWS)
    assert len(load_files({"train": path}, "classification", COLUMNS)[1]["train"]) == 2


@pytest.mark.parametrize("name", ["no.jsonl", ""])
def test_a_missing_file_and_a_folder_are_refused(tmp_path, name):
    path = tmp_path / name
    check_refused(lambda: load_files({"train": path}, "classification", COLUMNS), f"{path} does not exist")
