"""gpt1 surprisal: a row for each word in the form that the file's name ends in, with the columns that were kept."""

import io

import pandas as pd
import pytest
from support.files import write_rows
from support.refusals import refusal

from modeling_gpt1 import NOVELS, GPT1ForCausalLM, word_surprisals
from modeling_gpt1.commands import surprisal
from modeling_gpt1.commands.entry import main
from modeling_gpt1.storage.locking import writer_of_new_file
from tokenization import GPT1Tokenizer

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
    ],
)
def test_wrong_uses_are_refused(words, parts):
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", *words])
    for part in parts:
        assert part in told


def test_a_row_without_a_text_is_named(tmp_path):
    write_rows(tmp_path / "rows.jsonl", [{"text": "She asked."}, {"text": None}])
    told = refusal(surprisal.main, ["gpt1-novels", "--device", "cpu", "--file", str(tmp_path / "rows.jsonl")])
    assert "Row 1 of" in told
    assert "Name the column of texts with --text_column" in told
