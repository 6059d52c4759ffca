"""`gpt1 finetune` in two processes, which write the model, metrics and predictions of one."""

import json

import pytest
import torch
from support.launch import run_together

from modeling_gpt1 import GPT1DoubleHeadsModel
from modeling_gpt1.commands import finetune

COMMAND = ("modeling_gpt1.commands", "finetune")
SIZE = "hidden_size=32,num_hidden_layers=2,num_attention_heads=2,max_position_embeddings=64,initializer_range=0.1"
NO_DROPOUT = "embd_pdrop=0,resid_pdrop=0,attn_pdrop=0,classifier_dropout=0"
ROWS = [
    {"story": "the film was slow .", "ends": ["nobody smiled .", "the room laughed ."], "label": 0},
    {"story": "he paid five dollars .", "ends": ["she read .", "he forgot it .", "it was green ."], "label": 1},
    {"story": "the old farmer walked .", "ends": ["he needed a plough .", "the letter came ."], "label": 0},
    {"story": "a girl read the letter .", "ends": ["it was green .", "on the train .", "she smiled ."], "label": 2},
]


@pytest.fixture
def data(plain_tokenizer, tmp_path):
    """Arguments that are the same for one process and two; three test rows cannot be shared out evenly."""
    files = {"train": ROWS * 4, "validation": ROWS[:3], "test": ROWS[1:]}
    for split, rows in files.items():
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain_tokenizer.save_pretrained(tmp_path / "tokenizer")
    return [
        *(word for split in files for word in (f"--{split}_file", str(tmp_path / f"{split}.jsonl"))),
        *("--traversal", "multiple_choice", "--columns", "context=story", "choices=ends"),
        *("--tokenizer_name", str(tmp_path / "tokenizer"), "--config_overrides", f"{SIZE},{NO_DROPOUT}"),
        *("--do_train", "--do_eval", "--do_predict", "--max_steps", "3", "--optim", "sgd", "--learning_rate", "0.1"),
        *("--save_strategy", "no", "--logging_steps", "1", "--disable_tqdm", "true"),
    ]


def test_two_processes_write_what_one_writes(data, tmp_path):
    batch = ["--per_device_eval_batch_size", "2", "--use_cpu", "--output_dir"]
    finetune.main([*data, "--per_device_train_batch_size", "8", *batch, str(tmp_path / "one")])
    data += ["--per_device_train_batch_size", "4"]
    assert run_together(2, *COMMAND, *data, *batch, tmp_path / "two").count("train: 16 rows of ") == 1
    one = tmp_path / "one"
    two = tmp_path / "two"
    assert {path.name for path in one.iterdir()} == {path.name for path in two.iterdir()}
    assert "| processes | 2 |" in (two / "README.md").read_text()

    weights = GPT1DoubleHeadsModel.from_pretrained(one).state_dict()
    for name, weight in GPT1DoubleHeadsModel.from_pretrained(two).state_dict().items():
        torch.testing.assert_close(weight, weights[name], rtol=0, atol=1e-5)

    metrics, expected = (json.loads((folder / "eval_results.json").read_text()) for folder in (two, one))
    for name in ("eval_accuracy", "eval_task_loss", "eval_lm_loss"):
        assert metrics[name] == pytest.approx(expected[name], rel=1e-5)

    predictions = [(folder / "predictions.jsonl").read_text().splitlines() for folder in (two, one)]
    assert len(predictions[0]) == len(predictions[1]) == 3
    for line, expected_line in zip(*predictions, strict=True):
        prediction = json.loads(line)
        expected = json.loads(expected_line)
        assert prediction == {**expected, "scores": pytest.approx(expected["scores"], abs=1e-5)}
    assert [len(json.loads(line)["scores"]) for line in predictions[0]] == [3, 2, 3]
