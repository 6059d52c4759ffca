"""Table files read as they stand, and what is said of one that cannot be read."""

import gzip
import json
import logging
import os
import re
from unittest.mock import Mock

import datasets
import pytest
from support.files import content_of, write_rows
from support.own_rows import COLUMNS, ROWS
from support.refusals import check_refused, refusal

import tokenization
from tokenization import load_files, load_task, training_texts
from tokenization.rows.files import read_file


def test_a_column_of_texts_and_numbers_is_refused_with_a_row_of_each(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a"}, {"text": None}, {"text": 5}])
    told = f"{path}: column 'text' has the text 'a' in row 0, but the number 5 in row 2."
    check_refused(lambda: read_file(path), told, "Write all cells as one kind")
    check_refused(lambda: [*training_texts(path)], f"{path}, row 2: column 'text' holds 5, which is not a text")


def test_a_table_with_two_colons_in_its_path_is_refused_and_lines_of_json_are_read(tmp_path):
    rows = [{"text": "a"}, {"text": "b"}]
    assert read_file(write_rows(tmp_path / "a::b.jsonl", rows)).to_list() == rows
    for ending in (".csv", ".parquet"):
        path = write_rows(tmp_path / f"a::b{ending}", rows)
        check_refused(lambda path=path: read_file(path), f"{path} has '::' in its path", "Rename the file or folder")


# Cells of a column in the first rows of a file, and one in its last.
LATE_CELLS = {
    "a key that begins late": ({}, {"x": 1}),
    "a float among integers": ({"x": 1}, {"x": 1.5}),
    "a word among dates": ({"x": "2020-01-01"}, {"x": "unknown"}),
    "a text among numbers": ({"x": 1}, {"x": "a"}),
    "an object among lists": ({"x": [1]}, {"x": {"a": 1}}),
    "an integer of more than 64 bits": ({"x": 1}, {"x": 1 << 64}),
}


@pytest.mark.parametrize("cells", LATE_CELLS.values(), ids=LATE_CELLS)
def test_columns_that_nobody_asks_for_do_not_matter(tmp_path, cells):
    first, last = cells
    many = [{"body": "a" * 10_000, "mood": place % 2, **first} for place in range(1_100)]  # 11 MB
    path = write_rows(tmp_path / "rows.jsonl", [*many, {"body": "b", "mood": 0, **last}])
    rows = load_files({"train": path}, "classification", COLUMNS)[1]["train"]
    assert rows.num_rows == 1_101
    assert rows[-1]["body"] == "b"


def test_columns_that_a_corpus_does_not_need_do_not_matter(tmp_path):
    many = [{"text": "a" * 10_000, "x": 1}] * 1_100
    path = write_rows(tmp_path / "rows.jsonl", [*many, {"text": "b", "x": "a"}])
    assert [*training_texts(path)][-1] == "b"


def test_columns_that_a_task_does_not_need_do_not_matter(tmp_path):
    rows = [{"sentence": "a", "label": 0, "x": 1}, {"sentence": "b", "label": 1, "x": "a"}]
    write_rows(tmp_path / "train.jsonl", rows)
    assert load_task("sst2", tmp_path)["train"].to_list() == [
        {"sentence": "a", "label": 0},
        {"sentence": "b", "label": 1},
    ]


def test_dates_of_a_json_file_stay_texts(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "2020-01-01T10:20:30Z"}, {"text": "2020-01-02"}])
    assert read_file(path)["text"][:] == ["2020-01-01T10:20:30Z", "2020-01-02"]


def test_a_number_of_more_than_64_bits_is_refused_by_its_value(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"label": 1}, {"label": 13835058055282163713}])
    check_refused(lambda: read_file(path), "'label' has 13835058055282163713", "Write its numbers as texts")


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
        (
            "d.jsonl",
            b'{"body": "a", "label": "x"}\n{"body": "b", "label": \n',
            ["begins in line 2: Expecting value", "Correct the file"],
        ),
        ("e.jsonl", b'{"body": "a", "label": "x"}\n[1]\n', ["row 1 is [1], which is no object"]),
        ("f.csv", b"body,label\ncaf\xe9,x\n", ["byte 0xe9", "`iconv -f ENCODING -t UTF-8 {path} > NEW`", "1251"]),
        (
            "g.csv",
            gzip.compress(b"body,label\na,x\n", mtime=0),
            ["It is compressed: `gunzip -c < {path} > NEW` unpacks it."],
        ),
        ("h.csv", "body,label\na,x\n".encode("utf-16"), ["byte 0xff", "`iconv -f UTF-16 -t UTF-8 {path} > NEW`"]),
        ("i.jsonl", b'{"body": "a", "label": "x"}\n{"body": "caf\xe9", "label": "y"}\n', ["0xe9", "UTF-8"]),
        ("j.csv", b'body,label\na,x\n"b,y\n', ["as csv", "string starting at row 2", "Correct the file"]),
        ("k.csv", b"body,label\nhello, world,x\na, b,y\n", ["first row has more cells than the 2", "Quote cells"]),
        ("l.csv", b"body,label\na,x\nb,c,d,e,y\n", ["saw 5", "`delimiter`"]),
        ("l.jsonl", b'{"body": "a", "label": "x", "body": "b"}\n', ["an object has 'body' twice"]),
        ("m.jsonl.gz", gzip.compress(b'{"body": "a"}\n' * 9, mtime=0)[:-9], ["file ended before"]),
        ("n.parquet", b"xx", ["as parquet", "2 bytes"]),
        ("o.xlsx", b"", ["does not end in one of .jsonl, .jsonl.gz, .csv, .parquet", "CSV (UTF-8)"]),
        ("p.json", b'[{"body": "a"},\n{"body": }]', ["as json", "Correct the file"]),
        ("p.csv", b"body,label,body\na,x,b\n", ["names two columns 'body'"]),
        (
            "s.csv",
            b"sep=;\nbody;label\na;x\n",
            ["first line is 'sep=;', which only Excel reads. Remove the line."],
        ),
        ("t.csv", "body,label\na,x\n".encode("utf-16-le"), ["zero bytes, as text in UTF-16 has", "save it in UTF-8"]),
        (
            "u.jsonl",
            b'{"body": "a", "x": ' + b"[" * 9999 + b"]" * 9999 + b"}",
            ["line 1 has lists or objects in more than 50 others"],
        ),
        (
            "v.jsonl",
            b'{"body": "a", "x": ' + b"[" * 50 + b"]" * 50 + b"}",
            ["line 1 has lists or objects in more than 50 others"],
        ),
        (
            "w.json",
            b'[\n{"body": "a", "x": ' + b"[" * 50 + b"]" * 50 + b"}\n]",
            ["the value that begins in line 1 has lists or objects in more than 50"],
        ),
        (
            "q.json",
            b'{"body": {"0": "a", "1": "b"}, "label": {"0": "x", "1": "y"}}',
            ["is one object, of 'body', 'label'", "'records'"],
        ),
        (
            "s.json",
            b'{"body": ["a", "b"], "label": ["x", "y"]}',
            ["is one object, of 'body', 'label'", "a list of rows is needed"],
        ),
        (
            "x.json",
            b'{"data": [{"body": "a", "label": "x"}, {"body": "b", "label": "y"}]}',
            ["is one object, of 'data', but a list of rows is needed"],
        ),
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


def test_lists_in_dozens_of_others_are_read(tmp_path):
    path = tmp_path / "x.jsonl"
    rows = [{"body": label, "label": label, "x": json.loads("[" * 49 + "]" * 49)} for label in ("y", "z")]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    _, splits = load_files({"train": path}, "classification", {"text": "body"})
    assert splits["train"]["body"][:] == ["y", "z"]


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_file(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "a.csv", [{"body": "a"}])
    for error in (OSError(30, "Read-only file system", "/cache"), OSError("Not enough disk space. Needed: 9 bytes")):
        monkeypatch.setattr(tokenization.rows.files, "load_dataset", Mock(side_effect=error))
        with pytest.raises(OSError, match=f"^{re.escape(str(error))}$"):
            read_file(path)


def test_lines_that_a_quotation_mark_joins_are_told(tmp_path, logged):
    path = tmp_path / "quote.csv"
    path.write_text('body,label\n"a,x\n\nb,y\nc",x\nd,y\n')
    assert len(read_file(path)) == 2
    told = "some quoted cells span lines; 2 rows read. If none should, a quotation mark is missing."
    assert logged.messages == [f"{path}: {told}"]


def test_a_quotation_mark_that_joins_lines_of_a_file_of_tabs_is_refused(tmp_path):
    """The first of the joined rows would have the label of the last."""
    path = tmp_path / "rows.tsv"
    path.write_text('body\tlabel\n"hi there\t1\nyo\t0\nso "x" y\t1\nfine\t0\n', encoding="utf-8")
    message = refusal(read_file, path)
    assert "column 'body' of row 0 holds the lines that follow it" in message
    assert "Write the file as .jsonl" in message
    path.write_text('one\ttwo\tlabel\n"foo is\tbar\t1\nbaz\tqux "quux" is\t0\nx\ty\t1\n', encoding="utf-8")
    assert "column 'one' of row 0 holds the lines" in refusal(read_file, path)  # it is closed in another column
    path.write_text('label\tbody\n1\t"def f():\n\treturn 1"\n0\tyo\n', encoding="utf-8")  # negative control
    assert read_file(path)["body"][:] == ["def f():\n\treturn 1", "yo"]
    path.write_text('body\tlabel\n"def f():\n\treturn 1\n"\t1\nyo\t0\n', encoding="utf-8")  # negative control
    assert read_file(path)["body"][:] == ["def f():\n\treturn 1\n", "yo"]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "body,label\na,x\n\nb,y\n", "1 blank line is skipped; it is not counted as a row."),
        ("a.tsv", "body\tlabel\na\tx\n  \nb\ty\n\n", "2 blank lines are skipped; they are not counted as rows."),
        ("b.csv", "\nbody,label\na,x\nb,y\n", "1 blank line is skipped; it is not counted as a row."),
        ("c.csv", 'body,label\n"a\n\n",x\n\n"b\n",y\n', "1 blank line is skipped; it is not counted as a row."),
        ("a.jsonl", '{"body": "a"}\n\n{"body": "b"}\n', "1 blank line is skipped; it is not counted as a row."),
    ],
)
def test_blank_lines_are_told(tmp_path, logged, name, content, told):
    path = tmp_path / name
    path.write_text(content)
    assert [text.strip() for text in read_file(path)["body"]] == ["a", "b"]
    assert logged.messages[0] == f"{path}: {told}"


def test_several_columns_may_have_no_name(tmp_path):
    path = tmp_path / "index.csv"
    path.write_text(",body,label,\n0,a,x,\n1,b,y,\n")
    assert read_file(path)["body"][:] == ["a", "b"]


def test_columns_of_one_name_are_refused_whatever_pandas_takes_it_for(tmp_path):
    path = tmp_path / "na.csv"
    path.write_text("body,NA,NA\na,x,y\n")
    check_refused(lambda: read_file(path), "its first line names two columns 'NA'")


def test_a_line_of_separators_is_a_row(tmp_path, logged):
    path = tmp_path / "blank.csv"
    path.write_text("body,label\na,x\n,\nb,y\n")
    assert read_file(path)["body"][:] == ["a", "", "b"]
    assert logged.messages == []


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_blank_cells_of_a_single_column_are_rows(tmp_path, logged, ending):
    path = tmp_path / f"text{ending}"
    path.write_text('\nbody\na\n\n   \n""\n"b\n\nc"\nd\n\n')
    assert read_file(path)["body"][:] == ["a", "", "   ", "", "b\n\nc", "d"]
    assert logged.messages == [
        f"{path}: 2 blank lines are skipped; they are not counted as rows.",  # the first, and the last
        f"{path}: some quoted cells span lines; 6 rows read. If none should, a quotation mark is missing.",
    ]


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("a.csv", 'body,mood\n"a; b, c",1\n007,0\n', None),
        ("a.tsv", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("b.csv", "body;mood\na; b, c;1\n007;0\n".replace("a; b, c", '"a; b, c"'), None),
        ("C.CSV", "body\tmood\na; b, c\t1\n007\t0\n", None),
        ("d.csv", "body|mood\na; b, c|1\n007|0\n", None),
        ("e.csv", "body\tmood\na; b, c\t1\n007\t0\n", "\\t"),
        ("f.csv", "body\tmood\na; b, c\t1\n007\t0\n", "tab"),
        ("g.csv", "body^mood\na; b, c^1\n007^0\n", "^"),
        ("f.json", json.dumps([{"body": "a; b, c", "mood": 1}, {"body": "007", "mood": 0}], indent=1), None),
        ("g.json", '{"body": "a; b, c", "mood": 1}\n{"body": "007", "mood": 0}\n', None),
        ("h.jsonl", '\ufeff{"body": "a; b, c", "mood": 1} {"body": "007",\n "mood": 0}', None),
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


@pytest.mark.parametrize("mark", [";", "|", "\t"])
@pytest.mark.parametrize("name", ["text", '"a text{mark}"'])
def test_a_quoted_cell_that_ends_in_another_delimiter_is_read(tmp_path, mark, name):
    path = tmp_path / "rows.csv"
    path.write_text(f'label,{name.format(mark=mark)}\n1,"Well, he said{mark}"\n0,no\n')
    name = name.format(mark=mark).strip('"')
    assert read_file(path).to_list() == [
        {"label": "1", name: f"Well, he said{mark}"},
        {"label": "0", name: "no"},
    ]


def test_a_quoted_name_that_ends_in_another_delimiter_begins_no_cell_of_several_lines(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text('label,"a text;"\n1,"Well, he said;"\n0,"no"\n1,"x"\n')
    rows = [("1", "Well, he said;"), ("0", "no"), ("1", "x")]
    assert read_file(path).to_list() == [{"label": label, "a text;": text} for label, text in rows]


def test_a_file_whose_name_looks_like_a_pattern_is_read(tmp_path):
    path = write_rows(tmp_path / "rows[1]*.jsonl", ROWS)
    assert len(load_files({"train": path}, "classification", COLUMNS)[1]["train"]) == 2


@pytest.mark.parametrize(
    ("ending", "kind"), [(".csv", ".csv"), (".tsv", ".csv"), (".parquet", ".parquet"), (".jsonl", ".jsonl")]
)
def test_a_file_with_the_time_of_the_one_before_has_its_own_rows(tmp_path, ending, kind):
    """As those that an archive or `cp -p` writes."""
    path = tmp_path / f"train{ending}"
    found = []
    for fold in ("a", "b"):
        path.write_bytes(content_of([{"body": fold}, {"body": fold}], kind))
        os.utime(path, (1e9, 1e9))
        found.append(read_file(path)["body"][:])
    assert found == [["a", "a"], ["b", "b"]]


def test_a_file_that_is_read_again_is_cached_once(tmp_path, monkeypatch):
    path = write_rows(tmp_path / "train.csv", ROWS)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    first, second = read_file(path), read_file(path)
    assert first._fingerprint == second._fingerprint
    assert len([*(tmp_path / "cache").rglob("*.arrow")]) == 1


@pytest.mark.parametrize(("name", "told"), [("no.jsonl", "does not exist"), ("", "is a folder. Pass a file of it")])
def test_a_missing_file_and_a_folder_are_refused(tmp_path, name, told):
    path = tmp_path / name
    check_refused(lambda: load_files({"train": path}, "classification", COLUMNS), f"{path} {told}")


def test_a_delimiter_of_several_characters_is_refused(tmp_path):
    path = write_rows(tmp_path / "a.csv", ROWS)
    check_refused(lambda: read_file(path, delimiter="::"), "`delimiter` is '::'", "one character, or the word tab")
