"""Pre-training by two processes over gloo: the numbers of one process, the rows of each, and each other's checkpoints.

Losses and gradient norms agree to a relative 1e-5, weights to 1e-5.
"""

import json

import pytest
import support.pretraining
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_simple_launcher_cmd_env
from support.launch import ACCELERATE, IS_AFTER_5_17, restart_together, run_together
from support.pretraining import (
    NUM_ROWS,
    NUM_UPDATES,
    ROWS_PER_UPDATE,
    SAVED_UPDATE,
    make_language_model,
    make_pretraining_trainer,
    train_and_record,
)

from modeling_gpt1 import GPT1ForCausalLM

SCRIPT = support.pretraining.__file__


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The runs of two processes, and `one`, that of a single process."""
    folder = tmp_path_factory.mktemp("pretraining")
    trainer = make_pretraining_trainer(folder / "one", 1, save_strategy="steps", save_steps=SAVED_UPDATE)
    record = train_and_record(trainer)
    trainer.save_model()
    (folder / "one-0.json").write_text(json.dumps(record), encoding="utf-8")
    run_together(2, SCRIPT, folder, *(["resumed"] if IS_AFTER_5_17 else []), "map")
    return folder


def records(folder, case, num_processes=2):
    return [json.loads((folder / f"{case}-{rank}.json").read_text(encoding="utf-8")) for rank in range(num_processes)]


def assert_same_run(record, expected, num_updates=NUM_UPDATES):
    assert len(expected["log"]) == NUM_UPDATES
    own_log = [step for step in record["log"] if step["step"] > NUM_UPDATES - num_updates]
    assert len(own_log) == num_updates
    for step, expected_step in zip(own_log, expected["log"][-num_updates:], strict=True):
        assert step == pytest.approx(expected_step, rel=1e-5)
    assert record["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)


def assert_same_weights(weights, expected):
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=1e-5, msg=name)


def weights_in(folder):
    return GPT1ForCausalLM.from_pretrained(folder).state_dict()


def test_updates_on_rows_on_disk_hold_the_rows_of_one_process(folder):
    """Shuffled by Trainer: the updates hold the same rows as in one process, half of them in each."""
    expected = records(folder, "one", 1)[0]
    together = records(folder, "map")
    for record in together:
        assert_same_run(record, expected)
        assert len(set(record["seen"][: NUM_ROWS // 2])) == NUM_ROWS // 2
    assert_same_weights(weights_in(folder / "map"), weights_in(folder / "one"))
    # Negative control: six updates move the weights by far more than the tolerance.
    trained = weights_in(folder / "map")["transformer.h.0.mlp.up_proj.weight"]
    assert (trained - make_language_model().transformer.h[0].mlp.up_proj.weight).abs().max() > 1e-3


@pytest.mark.skipif(not IS_AFTER_5_17, reason="several processes of this transformers cannot resume on the CPU")
def test_a_checkpoint_of_one_process_goes_on_in_two(folder):
    expected = records(folder, "one", 1)[0]
    together = records(folder, "resumed")
    for record in together:
        assert_same_run(record, expected, NUM_UPDATES - SAVED_UPDATE)
        assert len(record["seen"]) == (NUM_UPDATES - SAVED_UPDATE) * ROWS_PER_UPDATE // 2
    assert_same_weights(weights_in(folder / "resumed"), weights_in(folder / "one"))


def test_a_checkpoint_of_two_processes_goes_on_in_one(folder, tmp_path):
    trainer = make_pretraining_trainer(tmp_path, 1)
    record = train_and_record(trainer, str(folder / "map" / f"checkpoint-{SAVED_UPDATE}"))
    assert_same_run(record, records(folder, "one", 1)[0], NUM_UPDATES - SAVED_UPDATE)
    assert len(record["seen"]) == (NUM_UPDATES - SAVED_UPDATE) * ROWS_PER_UPDATE
    assert_same_weights(trainer.model.state_dict(), weights_in(folder / "one"))


def test_accelerate_launch_refuses_lone_processes_and_trains_as_torchrun(folder, tmp_path):
    run_together(1, *ACCELERATE, SCRIPT, tmp_path, "alone", "map")
    accelerators = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    for said in records(tmp_path, "alone"):
        assert "2 processes were launched, but each would train alone" in (said or "") or accelerators and said is None
    assert not (tmp_path / "alone").exists()
    for record, expected in zip(records(tmp_path, "map"), records(folder, "map"), strict=True):
        assert_same_run(record, expected)
        assert record["seen"] == expected["seen"]


def test_torchrun_restarts_processes_of_which_one_is_killed(folder, tmp_path):
    """The second start goes on from the checkpoint, to the bit."""
    restart_together(2, SCRIPT, tmp_path, "restarted", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    for record, expected in zip(records(tmp_path, "restarted"), records(folder, "map"), strict=True):
        assert record["log"] == expected["log"]
        assert record["eval_loss"] == expected["eval_loss"]
        assert record["seen"] == expected["seen"][-((NUM_UPDATES - SAVED_UPDATE) * ROWS_PER_UPDATE // 2) :]
    expected = weights_in(folder / "map")
    for name, weight in weights_in(tmp_path / "restarted").items():
        torch.testing.assert_close(weight, expected[name], rtol=0, atol=0, msg=name)


@pytest.mark.parametrize("num_processes", [1, 2])
def test_a_launch_that_starts_one_process_of_two_is_refused(num_processes, tmp_path, monkeypatch):
    """In the environment that `accelerate launch` gives to the one process that it starts."""
    arguments = ["--cpu", "--num_processes", str(num_processes), "--num_machines", "1", "train.py"]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(arguments))
    for name, value in prepare_simple_launcher_cmd_env(arguments)[1].items():
        monkeypatch.setenv(name, value)
    if num_processes == 1:
        monkeypatch.setenv("MASTER_ADDR", "node1")  # as a cluster may have set it
        make_pretraining_trainer(tmp_path / "output", 1)
        return
    with pytest.raises(ValueError, match="was given several processes, but started only one.* Use `torchrun --nproc_"):
        make_pretraining_trainer(tmp_path / "output", 1)
    assert not (tmp_path / "output").exists()
