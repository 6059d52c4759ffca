"""The loss by the number of tokens read: against losses of cut blocks, and in the report."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from modeling_gpt1.commands import reproduce as reproduce_command
from modeling_gpt1.reproduction import grid, positions
from modeling_gpt1.reproduction.models import text_fingerprint
from modeling_gpt1.reproduction.report import page

WORDS = "he paid five dollars and left because it was green . ".split()


@pytest.fixture
def books(tmp_path):
    folder = tmp_path / "books"
    folder.mkdir()
    for number in range(3):
        text = " ".join(WORDS[(number * place) % len(WORDS)] for place in range(300))
        (folder / f"{number}.txt").write_text(text)
    return folder


@pytest.mark.parametrize("family", [0, 1])
def test_each_range_has_the_loss_of_its_targets(family, models, books, plain_tokenizer, tmp_path):
    """Independently: the log-probability of each token by a model that is given only the tokens before it."""
    output = tmp_path / "out.json"
    positions.main([str(models[family]), str(output), "64", "4", str(books)])
    found = json.loads(output.read_text())
    ranges = [(part["first"], part["last"]) for part in found["ranges"]]
    assert ranges == [(1, 1), (2, 3), (4, 7), (8, 15), (16, 31), (32, 63)] and found["num_blocks"] == 4

    model = AutoModelForCausalLM.from_pretrained(models[family]).eval()
    blocks = positions.read_blocks([str(books)], plain_tokenizer, 64, 4)
    assert len({tuple(block) for block in blocks}) > 1 and {len(block) for block in blocks} == {64}
    means = []
    for block in blocks:
        losses = []
        for read in (4, 5, 6, 7):
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([block[:read]])).logits[0, -1]
            losses.append(-float(logits.log_softmax(-1)[block[read]]))
        means.append(sum(losses) / 4)
    part = found["ranges"][2]
    assert part["loss"] == pytest.approx(sum(means) / 4, abs=1e-5)
    assert part["error"] == pytest.approx(torch.tensor(means).std().item() / 2, abs=1e-5)


def test_ranges_of_other_lengths():
    assert positions.ranges_of(512)[-1] == (256, 511) and positions.ranges_of(5) == [(1, 1), (2, 3), (4, 4)]


def test_short_texts_are_refused(books, plain_tokenizer):
    with pytest.raises(ValueError) as error:
        positions.read_blocks([str(books)], plain_tokenizer, 100_000, 4)
    assert str(error.value) == f"No document of {books} has 100000 tokens. Pass longer texts."


def test_the_report_draws_both_models(models, books, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(grid.subprocess, "run", lambda line, **_: positions.main(line[3:]))
    words = ["--lstm_model", str(models[1]), "--experiments", "loss_by_position", "--num_blocks", "3"]
    line = command(*words, "--validation_files", str(books))
    arguments = reproduce_command.parse_arguments(line)[0]
    assert grid.run_grid(arguments, ["gpt1", "reproduce"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("[1/2, ") and "positions-gpt1: loss " in told[0]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    transformer, lstm = report["figures"][4]["series"]
    assert (transformer["label"], lstm["label"], lstm["dashed"]) == ("Transformer", "LSTM", True)
    assert [point["x"] for point in lstm["points"]] == [1, 2, 4, 8, 16, 32]
    first = transformer["points"][0]
    cells = [json.loads(path.read_text()) for path in (tmp_path / "out" / "cells").iterdir()]
    (part, *_) = next(cell["ranges"] for cell in cells if cell["family"] == "gpt1")
    expected = [part["loss"] + errors * part["error"] for errors in (0, -2, 2)]
    assert [first[name] for name in ("y", "lowest", "highest")] == pytest.approx(expected, abs=1e-4)
    assert "Loss by the number of tokens read" in page(report)
    # Another text is another cell.
    (books / "0.txt").write_text("other")
    text_fingerprint.cache_clear()
    before = (tmp_path / "out" / "report.html").read_bytes()
    with pytest.raises(ValueError) as error:
        grid.run_grid(reproduce_command.parse_arguments(["--only_report", *line])[0], ["gpt1"])
    assert str(error.value) == (
        f"None of the 2 finished cells in {tmp_path / 'out'} has these settings, so its report is left as it is. "
        f"Repeat the flags of the command that ran them, or pass --config {tmp_path / 'out' / 'reproduce_run.yaml'} "
        "--only_report true for those of the latest."
    )
    assert (tmp_path / "out" / "report.html").read_bytes() == before
