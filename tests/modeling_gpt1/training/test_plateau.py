"""The warning of a pre-training that has learnt only how frequent each token is, and that others get none."""

import logging
import math

import pytest
import torch
from helpers_training import make_tokenizer
from transformers import TrainerState

from modeling_gpt1 import GPT1Config, GPT1ForCausalLM, GPT1PretrainingArguments, GPT1PretrainingTrainer
from modeling_gpt1.training import callbacks
from modeling_gpt1.training.callbacks import PlateauCallback, entropy_of
from tokenization import BlockCollator

# Labels of which each of 8 tokens is an eighth: an entropy of log 8 = 2.08, and −100 to be ignored.
LABELS = torch.arange(8).repeat(1000).view(8, -1).clone()
LABELS[:, -1] = -100
WARNING = (
    "The training loss is 2.09 at update 240 and has stopped falling. It is no better than 2.08, the entropy of "
    "single tokens, so the model has learnt only how frequent each token is. It may stay there for long. Start again "
    "with a longer warm-up or a smaller learning rate: this run has `warmup_steps` 40 and `learning_rate` 0.001; try "
    "200 or 0.00025."
)


def told(losses: list[tuple[int, float]], tmp_path, caplog, **arguments) -> list[str]:
    """What is said while a run logs these losses."""
    args = GPT1PretrainingArguments(
        str(tmp_path), **{"warmup_steps": 40, "learning_rate": 1e-3, "max_steps": 4000, "use_cpu": True, **arguments}
    )
    state, callback = TrainerState(max_steps=args.max_steps, is_world_process_zero=True), PlateauCallback()
    with caplog.at_level(logging.WARNING, logger=callbacks.logger.name):
        for step, loss in losses:
            callback.see({"labels": LABELS})
            state.global_step = step
            state.log_history.append({"step": step, "loss": loss})
            callback.on_log(args, state, None, logs={"loss": loss})
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def heard(monkeypatch):
    monkeypatch.setattr(callbacks.logger, "propagate", True)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)


def test_a_run_at_the_plateau_is_warned_once(tmp_path, caplog):
    losses = [(20, 5.0), (40, 2.6), (60, 2.1), *((step, 2.09) for step in range(80, 460, 20))]
    assert told(losses, tmp_path, caplog) == [WARNING]


@pytest.mark.parametrize(
    ("losses", "arguments"),
    [
        # Still in warm-up, and not long after it.
        ([(step, 2.09) for step in range(20, 700, 20)], {"warmup_steps": 500}),
        ([(step, 2.09) for step in range(20, 700, 20)], {"warmup_steps": 0.125}),
        # Above the entropy, but falling.
        ([(step, 9.0 * 0.999**step) for step in range(20, 700, 20)], {}),
        # It stays for a while and gets past.
        ([(step, 2.09 if step < 160 else 2.09 - step / 1000) for step in range(20, 700, 20)], {}),
        # It has learnt more and converged.
        ([(step, 1.9) for step in range(20, 700, 20)], {}),
        # A single log says nothing of whether the loss falls.
        ([(500, 2.09)], {}),
        ([(step, math.nan) for step in range(20, 700, 20)], {}),
    ],
)
def test_others_are_not_warned(losses, arguments, tmp_path, caplog):
    assert told(losses, tmp_path, caplog, **arguments) == []


def test_logs_far_apart(tmp_path, caplog):
    """Logs of 500 updates are compared with each other; the first has the losses of warm-up in it."""
    (message,) = told([(500, 2.4), (1000, 2.09), (1500, 2.09), (2000, 2.09)], tmp_path, caplog)
    assert "at update 1500 " in message


def test_the_entropy_of_labels():
    assert entropy_of(LABELS) == pytest.approx(math.log(8), abs=1e-3)
    assert entropy_of(torch.full((4,), -100)) == math.inf
    # Few labels seem to be more regular than they are: most of the bias is taken away.
    generator = torch.Generator().manual_seed(0)
    few = torch.randint(0, 1000, (4000,), generator=generator)
    shares = few.bincount().double() / 4000
    plain = float(-(shares * shares.log()).nansum())
    assert abs(entropy_of(few) - math.log(1000)) < abs(plain - math.log(1000)) / 5


def test_old_labels_are_forgotten(monkeypatch):
    monkeypatch.setattr(PlateauCallback, "NUM_LABELS", 40)
    callback = PlateauCallback()
    for first in range(10):
        callback.see({"labels": torch.full((2, 8), first)})
    assert [int(labels[0, 0]) for labels in callback._labels] == [7, 8, 9]
    callback.see({"input_ids": torch.ones(2, 8)})
    assert len(callback._labels) == 3


@pytest.mark.parametrize(("learning_rate", "is_warned"), [(0.0, True), (0.02, False)])
def test_a_trainer_warns(learning_rate, is_warned, tmp_path, caplog):
    """A model that learns nothing is warned, the same model that learns is not."""
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}
    dropout = {"embd_pdrop": 0.0, "resid_pdrop": 0.0, "attn_pdrop": 0.0}
    trainer = GPT1PretrainingTrainer(
        GPT1ForCausalLM(GPT1Config(vocab_size=len(tokenizer), **size, **dropout)),
        GPT1PretrainingArguments(
            str(tmp_path),
            **{"learning_rate": learning_rate, "max_steps": 60, "warmup_steps": 5, "logging_steps": 5},
            **{"use_cpu": True, "per_device_train_batch_size": 4, "save_strategy": "no", "report_to": "none"},
        ),
        BlockCollator(tokenizer),
        train_dataset=[{"input_ids": [(first + place) % 12 for place in range(16)]} for first in range(12)],
        processing_class=tokenizer,
    )
    trainer._plateau.num_updates = 10
    with caplog.at_level(logging.WARNING, logger=callbacks.logger.name):
        trainer.train()
    found = [record.getMessage() for record in caplog.records if "stopped falling" in record.getMessage()]
    assert len(found) == is_warned
    last = next(record["loss"] for record in reversed(trainer.state.log_history) if "loss" in record)
    assert (last > math.log(12)) == is_warned
