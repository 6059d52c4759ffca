"""gpt1 surprisal: a row for each word in the form that the file's name ends in, with the columns that were kept."""

import io
import json
from datetime import datetime
from pathlib import Path

import pandas as pd
import pyarrow.parquet
import pytest
from support.files import write_rows
from support.refusals import refusal
from transformers import AutoTokenizer

from modeling_gpt1 import NOVELS, GPT1ForCausalLM, word_surprisals
from modeling_gpt1.commands import surprisal, zero_shot
from modeling_gpt1.commands.entry import main
from modeling_gpt1.families import FAMILIES
from modeling_gpt1.storage.locking import writer_of_new_file
from tokenization import GPT1Tokenizer
from tokenization.errors import UserError

TEXTS = ["The old farmer went home.", "She asked, “why?”"]


@pytest.fixture(scope="module")
def expected():
    model, tokenizer = GPT1ForCausalLM.from_pretrained(NOVELS), GPT1Tokenizer.from_pretrained(NOVELS)
    return word_surprisals(model, tokenizer, TEXTS)


READERS = {
    "csv": lambda path: pd.read_csv(path, dtype={"item": str}),
    "jsonl": lambda path: pd.read_json(path, lines=True, dtype={"item": str}),
    "parquet": pd.read_parquet,
}


@pytest.mark.parametrize("form", READERS)
def test_each_form_holds_the_words_and_what_is_kept_of_their_rows(form, expected, tmp_path):
    items = ["007", "a,b"]
    write_rows(tmp_path / "rows.csv", [{"item": i, "sentence": text} for i, text in zip(items, TEXTS, strict=True)])
    rows = ["--file", str(tmp_path / "rows.csv"), "--text_column", "sentence", "--keep", "item"]
    main(["surprisal", "gpt1-novels", *rows, "--output_file", str(tmp_path / f"words.{form}"), "--device", "cpu"])
    words = READERS[form](tmp_path / f"words.{form}")
    assert words["item"].tolist() == [items[number] for number in expected["text"]]
    pd.testing.assert_frame_equal(words.drop(columns="item"), expected, rtol=1e-6)


def test_without_a_file_the_words_are_printed_as_csv(expected, capsys):
    main(["surprisal", "gpt1-novels", "--texts", *TEXTS, "--device", "cpu"])
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(capsys.readouterr().out)), expected, rtol=1e-6)


def test_a_text_file_has_a_text_per_line(expected, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    main(["surprisal", "gpt1-novels", "--file", str(tmp_path / "texts.txt"), "--device", "cpu"])
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(capsys.readouterr().out)), expected, rtol=1e-6)


def test_a_blank_line_shifts_no_text(expected, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n\n".join(TEXTS) + "\n", encoding="utf-8")
    main(["surprisal", "gpt1-novels", "--file", str(tmp_path / "texts.txt"), "--device", "cpu"])
    words = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert words["word"].tolist() == expected["word"].tolist()
    assert words["text"].tolist() == (2 * expected["text"]).tolist()


def test_a_file_that_another_command_writes_is_refused_before_a_text_is_scored(tmp_path, monkeypatch):
    monkeypatch.setattr(surprisal, "word_surprisals", lambda *args, **kwargs: pytest.fail("a text was scored"))
    with writer_of_new_file(tmp_path / "words.csv"):
        words = ["gpt1-novels", "--texts", "a", "--output_file", str(tmp_path / "words.csv"), "--device", "cpu"]
        assert "which another command is writing" in refusal(surprisal.main, words)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ("Exactly one of --texts and --file is needed, but neither was given",)),
        (["--texts", "a", "--file", "rows.csv"], ("but both were given",)),
        (["--texts", "a", "--output_file", "words.xlsx"], ("--output_file words.xlsx", ".csv, .jsonl or .parquet")),
        (["--file", "rows.csv", "--keep", "bits"], ("--keep bits", "Rename it, or join by `text`")),
        (["--file", "texts.txt", "--keep", "item"], ("--keep item needs a --file with columns",)),
        (["--file", "texts.txt", "--text_column", "x"], ("--text_column and --delimiter need a --file with columns",)),
        (["--texts", "a", "--model", "me/other"], ("gpt1-novels and --model me/other were both given",)),
    ],
)
def test_wrong_uses_are_refused(words, parts):
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", *words])
    for part in parts:
        assert part in told


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_missing_column_of_texts_is_not_called_one_to_keep(form, tmp_path, capsys):
    path = write_rows(tmp_path / f"rows.{form}", [{"item": 1, "sentence": "She asked."}])
    with pytest.raises(SystemExit):
        main(["surprisal", "gpt1-novels", "--device", "cpu", "--file", path, "--keep", "item"])
    told = capsys.readouterr().err
    assert f"{path} has no column 'text' with the texts; its columns are: 'item', 'sentence'." in told
    assert "Name theirs as --text_column." in told


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_row_without_a_text_is_named(form, tmp_path):
    path = write_rows(tmp_path / f"rows.{form}", [{"n": 1, "text": "She asked."}, {"n": 2, "text": None}])
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", "--file", path])
    assert f"Row 1 of {path}" in told
    assert "Name the column of texts with --text_column, or leave out rows without one." in told


def test_a_number_of_a_json_file_is_no_text(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": 5}])
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", "--file", path])
    assert f"Row 0 of {path} has 5 as 'text', where a text is needed." in told


def test_half_a_character_is_named_with_its_row(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "She asked."}, {"text": "a \ud800 b"}])
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", "--file", path])
    assert rf"Row 1 of {path} has half a character, '\ud800', at place 2." in told


KINDS = {"item": [1, 2], "rating": [1.5, None], "day": [datetime(2020, 1, 1), datetime(2021, 1, 1)]}


@pytest.fixture
def words_with_kinds(tmp_path):
    """Writes the words of a Parquet file with columns of several kinds, in one form, and gives its path."""
    rows = [{"text": text, **{name: cells[at] for name, cells in KINDS.items()}} for at, text in enumerate(TEXTS)]
    path = write_rows(tmp_path / "rows.parquet", rows)

    def written(form: str) -> Path:
        words = tmp_path / f"words.{form}"
        kept = ["--file", path, "--keep", *KINDS, "--output_file", str(words)]
        main(["surprisal", "gpt1-novels", *kept, "--device", "cpu"])
        return words

    return written


def test_kept_columns_have_their_kinds_in_parquet(words_with_kinds, expected):
    table = pyarrow.parquet.read_table(words_with_kinds("parquet"))
    assert [str(table.schema.field(name).type) for name in KINDS] == ["int64", "double", "timestamp[us]"]
    for name, cells in KINDS.items():
        assert table[name].to_pylist() == [cells[number] for number in expected["text"]]


def test_kept_columns_have_their_kinds_in_json_lines(words_with_kinds, expected):
    rows = [json.loads(line) for line in words_with_kinds("jsonl").read_text().splitlines()]
    assert [row["item"] for row in rows] == [KINDS["item"][number] for number in expected["text"]]
    assert [row["rating"] for row in rows] == [KINDS["rating"][number] for number in expected["text"]]


def test_numbers_of_a_json_file_are_numbers_in_parquet(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a b", "item": 1}, {"text": "c", "item": 2}])
    words = tmp_path / "words.parquet"
    kept = ["--file", path, "--keep", "item", "--output_file", str(words)]
    main(["surprisal", "gpt1-novels", *kept, "--device", "cpu"])
    assert pyarrow.parquet.read_table(words)["item"].to_pylist() == [1, 1, 2]


def test_kept_cells_of_several_kinds_are_texts_in_parquet(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a b", "item": 1}, {"text": "c", "item": "x"}])
    words = tmp_path / "words.parquet"
    kept = ["--file", path, "--keep", "item", "--output_file", str(words)]
    main(["surprisal", "gpt1-novels", *kept, "--device", "cpu"])
    assert pyarrow.parquet.read_table(words)["item"].to_pylist() == ["1", "1", "x"]


def test_a_column_that_is_kept_twice_stands_once(tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", [{"text": "a", "item": 1}])
    words = str(tmp_path / "words.csv")
    start = ["surprisal", "gpt1-novels", "--device", "cpu", "--file", path]
    main([*start, "--keep", "item", "item", "--output_file", words])
    assert Path(words).read_text(encoding="utf-8").splitlines()[0].split(",").count("item") == 1


def test_a_kept_cell_with_a_carriage_return_stays_one_cell(tmp_path, capsys):
    write_rows(tmp_path / "rows.jsonl", [{"text": "a b", "item": "one\rtwo"}])
    words = ["gpt1-novels", "--file", str(tmp_path / "rows.jsonl"), "--keep", "item", "--device", "cpu"]
    surprisal.main([*words, "--output_file", str(tmp_path / "words.csv")])
    assert pd.read_csv(tmp_path / "words.csv")["item"].tolist() == ["one\rtwo"] * 2
    assert b"\r\n" not in (tmp_path / "words.csv").read_bytes()


@pytest.fixture
def with_formulas(tmp_path):
    """The first words of a command whose texts and kept cells hold what a spreadsheet would run."""
    file = write_rows(tmp_path / "rows.jsonl", [{"text": "she =1+1 -1,5 --", "item": "+x"}])
    return ["gpt1-novels", "--file", file, "--keep", "item", "--device", "cpu"]


def test_no_text_of_a_csv_file_is_run_as_a_formula(with_formulas, tmp_path, capsys):
    surprisal.main([*with_formulas, "--output_file", str(tmp_path / "words.csv")])
    words = pd.read_csv(tmp_path / "words.csv")
    assert words["word"].tolist() == ["she", "'=1+1", "-1,5", "--"]
    assert words["tokens"][1].startswith("'=")
    assert words["item"].tolist() == ["'+x"] * 4
    assert "In front of a text that a spreadsheet would run as a formula" in capsys.readouterr().err


def test_no_text_on_the_terminal_is_run_as_a_formula(with_formulas, capsys):
    surprisal.main(with_formulas)
    printed = capsys.readouterr()
    assert pd.read_csv(io.StringIO(printed.out))["word"].tolist() == ["she", "'=1+1", "-1,5", "--"]
    assert "In front of a text that a spreadsheet would run as a formula" in printed.err


def test_json_lines_hold_formulas_as_they_are(with_formulas, tmp_path, capsys):
    surprisal.main([*with_formulas, "--output_file", str(tmp_path / "words.jsonl")])
    words = [json.loads(line)["word"] for line in (tmp_path / "words.jsonl").read_text().splitlines()]
    assert words == ["she", "=1+1", "-1,5", "--"]
    assert "apostrophe" not in capsys.readouterr().err


def test_the_tokenizers_own_code_runs_with_the_users_consent(monkeypatch, tmp_path):
    asked = []

    def from_pretrained(name, **options):
        asked.append(options)
        raise UserError("stop")

    monkeypatch.setattr(AutoTokenizer, "from_pretrained", from_pretrained)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}', encoding="utf-8")
    for consent in ([], ["--trust_remote_code"]):
        words = [str(tmp_path), "--texts", "a", "--device", "cpu", *consent]
        assert "stop" in refusal(surprisal.main, words)
        scoring = zero_shot.ZeroShotArguments(model=str(tmp_path), device="cpu", trust_remote_code=bool(consent))
        assert "stop" in refusal(scoring.load_scorer, str(tmp_path))
        assert "stop" in refusal(FAMILIES["gpt1"].open_tokenizer, str(tmp_path), bool(consent))
    assert [options["trust_remote_code"] for options in asked] == [False] * 3 + [True] * 3
