"""A model that is saved while a command reads it: its names would be of one save and its weights of another."""

import json

import pytest
from helpers_evaluation import only_few_tasks, write_rows
from helpers_training import save_meanwhile

from modeling_gpt1 import GPT1DoubleHeadsModel
from modeling_gpt1.commands import evaluate, generate, predict, zero_shot
from modeling_gpt1.evaluation import harness
from modeling_gpt1.storage.reading import SavedMeanwhileError


@pytest.mark.parametrize(
    ("command", "place", "name", "words"),
    [
        (predict, predict, "prepare_finetuning", ["--file", "{0}/rows.jsonl"]),
        (generate, generate, "open_tokenizer", ["--prompts", "a"]),
        (zero_shot, zero_shot, "open_tokenizer", ["--data_dir", "{0}/data", "--tasks", "sst2"]),
        (evaluate, harness.HFLM, "_create_tokenizer", ["--data_dir", "{0}/data", "--tasks", "copa"]),
    ],
)
def test_a_model_that_is_saved_while_it_is_read_is_refused(
    command, place, name, words, save_model, plain_tokenizer, tiny_model, tmp_path, monkeypatch, capsys
):
    model = save_model(tmp_path / "model")
    if command is predict:
        fields = {"vocab_size": len(plain_tokenizer), "traversal": "classification", "columns": {"text": "review"}}
        tiny_model(GPT1DoubleHeadsModel, **fields).save_pretrained(model)
        (tmp_path / "rows.jsonl").write_text(json.dumps({"review": "it was ."}) + "\n")
    folder = write_rows(tmp_path / "data") / "sst2"
    folder.mkdir(exist_ok=True)
    (folder / "validation.jsonl").write_text(json.dumps({"sentence": "it was .", "label": 1}) + "\n")
    monkeypatch.chdir(tmp_path)
    save_meanwhile(monkeypatch, place, name, tmp_path / "model")
    with only_few_tasks(), pytest.raises(SavedMeanwhileError, match="Run the command again"):
        command.main(["--model", model, "--device", "cpu", *(word.format(tmp_path) for word in words)])
    assert "{" not in capsys.readouterr().out
