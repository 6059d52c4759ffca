"""Any damage to any file of a checkpoint: it is never loaded, and the run goes on from the one before it."""

import shutil

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.training.checkpoint import newest_whole_checkpoint

ROWS = [{"input_ids": [1 + (3 * row + 7 * place) % 19 for place in range(8)]} for row in range(6)]


def collate(rows):
    ids = torch.tensor([row["input_ids"] for row in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def make_trainer(folder) -> GPT1PretrainingTrainer:
    torch.manual_seed(0)
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    model = GPT1ForCausalLM(GPT1Config(**sizes, max_position_embeddings=8))
    arguments = {"max_steps": 4, "save_steps": 2, "save_strategy": "steps", "per_device_train_batch_size": 2}
    arguments |= {"use_cpu": True, "disable_tqdm": True, "report_to": "none"}
    return GPT1PretrainingTrainer(
        model, GPT1PretrainingArguments(str(folder), **arguments), train_dataset=ROWS, data_collator=collate
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with two checkpoints, and its last weights."""
    folder = tmp_path_factory.mktemp("run")
    trainer = make_trainer(folder)
    trainer.train()
    return folder, trainer.model.state_dict()


def damage(folder, path, kind: str, place: int, other) -> None:
    content = path.read_bytes()
    if kind == "flip":
        index = place % len(content)
        path.write_bytes(content[:index] + bytes([content[index] ^ (1 << place % 8)]) + content[index + 1 :])
    elif kind == "cut":
        path.write_bytes(content[: place % len(content)])
    elif kind == "grow":
        path.write_bytes(content + b"\0")
    elif kind == "delete":
        path.unlink()
    elif kind == "swap":
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
    else:
        path.write_bytes((folder / "checkpoint-2" / path.name).read_bytes())


@given(
    file=st.integers(0, 99),
    other=st.integers(0, 99),
    kind=st.sampled_from(["flip", "flip", "cut", "grow", "delete", "swap", "older"]),
    place=st.integers(0, 10**6),
)
def test_a_damaged_checkpoint_is_never_the_newest_whole_one(run, tmp_path_factory, file, other, kind, place):
    folder = tmp_path_factory.mktemp("damaged") / "run"
    shutil.copytree(run[0], folder)
    newest = folder / "checkpoint-4"
    files = sorted(path for path in newest.rglob("*") if path.is_file())
    before = {path: path.read_bytes() for path in files}
    path = files[file % len(files)]
    damage(folder, path, kind, place, files[other % len(files)])
    changed = [path for path in files if not path.is_file() or path.read_bytes() != before[path]]
    # Blanks in the list of files mean nothing.
    if changed and not (kind == "flip" and path.name == "checkpoint.json"):
        assert newest_whole_checkpoint(folder) == str(folder / "checkpoint-2"), changed


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(run, tmp_path):
    folder, weights = tmp_path / "run", run[1]
    shutil.copytree(run[0], folder)
    damage(folder, folder / "checkpoint-4" / "model.safetensors", "flip", 5000, None)
    trainer = make_trainer(folder)
    trainer.train(resume_from_checkpoint="auto")
    assert all(torch.equal(weight, weights[name]) for name, weight in trainer.model.state_dict().items())
