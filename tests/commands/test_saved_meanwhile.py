"""A model that is saved while a command reads it is refused: its files may be of two models."""

import os
import shutil
from contextlib import nullcontext

import pytest
from support.evaluation import only_few_tasks, write_tasks
from support.files import write_rows
from transformers import PreTrainedModel

from modeling_gpt1 import GPT1DoubleHeadsModel
from modeling_gpt1.commands import evaluate, generate, predict, serve, zero_shot
from modeling_gpt1.playground import page
from modeling_gpt1.storage.reading import one_save

COMMANDS = {
    "generate": lambda model, data: generate.main(["--model", model, "--prompts", "a"]),
    "predict": lambda model, data: predict.main([model, "--file", f"{data}/sst2/validation.jsonl"]),
    "zero-shot": lambda model, data: zero_shot.main(["--model", model, "--data_dir", data, "--tasks", "sst2"]),
    "evaluate": lambda model, data: evaluate.main(
        ["--model", model, "--data_dir", data, "--tasks", "copa", "--output_dir", f"{data}/out"]
    ),
    "serve": lambda model, data: serve.main([model]),
    "playground": lambda model, data: page.find_model({"model": model}, "model"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_model_that_is_saved_while_it_is_read_is_refused(name, tiny_model, tiny_tokenizer, tmp_path, monkeypatch):
    own = {"extract_token_id": tiny_tokenizer.extract_token_id, "columns": {"text": "sentence"}}
    model = tiny_model(GPT1DoubleHeadsModel, vocab_size=len(tiny_tokenizer), **own)
    model.save_pretrained(folder := tmp_path / "model")
    tiny_tokenizer.save_pretrained(folder)
    write_tasks(tmp_path)
    write_rows(tmp_path / "sst2" / "validation.jsonl", [{"sentence": "the old farmer", "label": 1}])
    read = PreTrainedModel.from_pretrained.__func__

    def save_and_read(*args, **kwargs):
        shutil.copy(folder / "model.safetensors", tmp_path / "new")
        (tmp_path / "new").replace(folder / "model.safetensors")
        return read(*args, **kwargs)

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", classmethod(save_and_read))
    definitions = only_few_tasks() if name == "evaluate" else nullcontext()
    with definitions, pytest.raises(ValueError, match=f"saved into {folder} while .* Run the command again"):
        COMMANDS[name](str(folder), str(tmp_path))


def test_a_file_that_is_gone_meanwhile_is_such_a_save_and_other_errors_stay(tmp_path):
    (tmp_path / "tokenizer.json").touch()
    with pytest.raises(ValueError, match="Run the command again"), one_save(tmp_path):
        (tmp_path / "tokenizer.json").unlink()
        (tmp_path / "tokenizer.json").read_text()
    with pytest.raises(KeyError), one_save("someone/a-model"):
        raise KeyError


@pytest.mark.parametrize(
    "name", ["config.json", "adapter_config.json", "tokenizer_config.json", "model.safetensors.index.json"]
)
def test_every_file_of_a_model_is_looked_at(name, tmp_path):
    (tmp_path / name).write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="Run the command again"), one_save(tmp_path):
        (tmp_path / "new").write_text("{}", encoding="utf-8")
        (tmp_path / "new").replace(tmp_path / name)


@pytest.mark.parametrize("way", ["in place", "by a copy that keeps the time"])
def test_every_way_to_write_a_file_is_noticed(way, tmp_path):
    file, new = tmp_path / "config.json", tmp_path / "new"
    file.write_text("{}", encoding="utf-8")
    new.write_text("{}", encoding="utf-8")
    written = file.stat().st_mtime_ns
    with pytest.raises(ValueError, match="Run the command again"), one_save(tmp_path):
        if way == "in place":
            os.utime(file, ns=(written, written + 1))
        else:
            os.utime(new, ns=(written, written))
            new.replace(file)
