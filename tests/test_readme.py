"""The README's Python runs as it stands; only what it would download is replaced by small local copies."""

import json
import re
from pathlib import Path

import pytest
import torch
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from modeling_gpt1 import GPT1ForCausalLM, GPT1ForSequenceClassification
from tokenization import GPT1Tokenizer

README = Path(__file__).parent.parent / "README.md"
HUB_NAME = "openai-community/openai-gpt"


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture
def openai_gpt_folder(plain_tokenizer, tmp_path):
    """A folder as published: openai-gpt weights, `vocab.json` and `merges.txt`; tiny and random."""
    folder = tmp_path / "openai-gpt"
    torch.manual_seed(0)
    config = OpenAIGPTConfig(vocab_size=len(plain_tokenizer), n_embd=32, n_layer=2, n_head=2)
    OpenAIGPTLMHeadModel(config).save_pretrained(folder)
    model = json.loads(plain_tokenizer.backend_tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return folder


def test_fine_tune_save_and_reopen(openai_gpt_folder, tmp_path, monkeypatch, capsys):
    data = tmp_path / "data"
    data.mkdir()
    rows = [{"sentence": f"the {word} film", "label": index % 2} for index, word in enumerate(["old", "new"] * 8)]
    for split in ("train", "validation"):
        (data / f"{split}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    monkeypatch.chdir(tmp_path)
    block = python_blocks()[0]
    assert HUB_NAME in block and 'load_task("sst2")' in block
    block = block.replace(HUB_NAME, str(openai_gpt_folder)).replace('"sst2")', f'"sst2", data_dir={str(data)!r})', 1)
    block = block.replace('GPT1TrainingArguments("sst2-gpt1")', 'GPT1TrainingArguments("sst2-gpt1", use_cpu=True)')
    exec(compile(block, str(README), "exec"), {})
    assert re.search(r"\[\{'label': '(positive|negative)', 'score': 0\.\d+\}\]", capsys.readouterr().out)
    reopened = GPT1ForSequenceClassification.from_pretrained("sst2-gpt1")
    assert reopened.config.vocab_size == len(GPT1Tokenizer.from_pretrained("sst2-gpt1"))


def test_pre_train(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("books").mkdir()
    for name in ("book1.txt", "book2.txt"):
        Path("books", name).write_text("the quick brown fox jumps over the lazy dog .\n" * 60)
    block = python_blocks()[1]
    assert "GPT1Config(vocab_size=len(tokenizer))" in block
    block = block.replace("GPT1Config(", "GPT1Config(n_embd=32, n_layer=2, n_head=2, ")
    block = block.replace('"gpt1-books")', '"gpt1-books", max_steps=2, use_cpu=True)')
    names = {}
    exec(compile(block, str(README), "exec"), names)
    assert isinstance(names["model"], GPT1ForCausalLM)
    assert names["trainer"].state.global_step == 2
