"""Models, data and command lines for `gpt1 reproduce`."""

import pytest
import torch
from support.files import write_rows

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1LSTMConfig, GPT1LSTMForCausalLM


@pytest.fixture(scope="module")
def models(plain_tokenizer, tmp_path_factory):
    """A Transformer of two layers and an LSTM of one, as pre-trained models are saved."""
    torch.manual_seed(0)
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": len(plain_tokenizer)}
    lstm_size = {"hidden_size": 16, "lstm_hidden_size": 24, "vocab_size": len(plain_tokenizer)}
    made = [GPT1ForCausalLM(GPT1Config(**size)), GPT1LSTMForCausalLM(GPT1LSTMConfig(**lstm_size))]
    folders = [tmp_path_factory.mktemp("model") for _ in made]
    for folder, model in zip(folders, made, strict=True):
        model.save_pretrained(folder)
        plain_tokenizer.save_pretrained(folder)
    return folders


@pytest.fixture
def data_dir(tmp_path):
    """Story Cloze with labels in its test split, RTE without, RACE with validation splits alone."""
    data = tmp_path / "data"
    story = {"context": "he paid .", "ending1": "he left .", "ending2": "green .", "label": 0}
    for split in ("train", "validation", "test"):
        write_rows(data / f"story_cloze/{split}.jsonl", [story, {**story, "label": 1}])
        pair = {"sentence1": "he paid five dollars .", "sentence2": "he paid .", "label": -1 if split == "test" else 0}
        write_rows(data / f"rte/{split}.jsonl", [pair] * 4 + [{**pair, "label": -1 if split == "test" else 1}] * 4)
    for name in ("mrpc", "stsb"):
        row = {"sentence1": "he paid .", "sentence2": "he left .", "label": 1}
        write_rows(data / f"{name}/validation.jsonl", [row])
    question = {"article": "he paid .", "question": "who ?", "options": ["he", "she", "it", "we"], "label": 0}
    for part in ("matched", "mismatched"):
        row = {"premise": "he paid .", "hypothesis": "he left .", "label": 1}
        write_rows(data / f"mnli/validation_{part}.jsonl", [row])
    for part in ("middle", "high"):
        write_rows(data / f"race/{part}_train.jsonl", [question])
        write_rows(data / f"race/{part}_validation.jsonl", [question])
    return data


@pytest.fixture
def command(models, data_dir, tmp_path):
    """Makes a command line; what `finetune` has goes to the command of that name."""

    def make(*words: str, finetune: tuple[str, ...] = ("--learning_rate", "5e-4", "--use_cpu")) -> list[str]:
        places = ["--model", str(models[0]), "--data_dir", str(data_dir), "--output_dir", str(tmp_path / "out")]
        return [*places, *words, "--finetune_arguments", *finetune]

    return make
