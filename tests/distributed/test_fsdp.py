"""accelerate's FSDP2, as `fsdp2.yaml` sets it, over two processes on the CPU: one process's numbers, exact resume.

Sums of float32 are taken in another order than in one process: numbers agree to a relative 1e-5, weights to 1e-5. A
resumed run takes them in the same order and agrees to the bit.
"""

import json

import pytest
import support.fsdp
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from safetensors.torch import load_file
from support.fsdp import MAKERS, NUM_UPDATES, record_of
from support.launch import ROOT, run_together
from transformers import BertForSequenceClassification

from modeling_gpt1 import GPT1DoubleHeadsModel, GPT1ForCausalLM

CONFIGURATION = str(ROOT / "modeling_gpt1" / "commands" / "accelerate" / "fsdp2.yaml")
PREFIXES = ("ACCELERATE_", "FSDP_")  # of what `accelerate launch` puts into the environment for it
CLASSES = {
    "pretraining": GPT1ForCausalLM,
    "fine-tuning": GPT1DoubleHeadsModel,
    "other family": BertForSequenceClassification,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the processes wrote; in float32, for which the file's `mixed_precision` is overridden."""
    folder = tmp_path_factory.mktemp("fsdp")
    words = ["--config_file", CONFIGURATION, "--mixed_precision", "no", support.fsdp.__file__]
    arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
    settings = {name: value for name, value in prepare_multi_gpu_env(arguments).items() if name.startswith(PREFIXES)}
    run_together(2, support.fsdp.__file__, folder, **settings)
    return folder


def records(folder, case):
    return [json.loads((folder / f"{case}-{process}.json").read_text(encoding="utf-8")) for process in range(2)]


@pytest.mark.parametrize("name", MAKERS)
def test_two_processes_train_as_one(name, folder, tmp_path):
    single = MAKERS[name](tmp_path, 1)
    expected = record_of(single)
    assert len(expected["logs"]) == NUM_UPDATES
    together = records(folder, name)
    parts = [record["own part"] for record in together]
    assert sum(parts) == pytest.approx(1)  # one vocabulary is odd
    assert max(parts) < 0.51
    for record in together:
        assert record["losses"] == pytest.approx(expected["losses"], rel=1e-5)
        for log, expected_log in zip(record["logs"], expected["logs"], strict=True):
            assert log == pytest.approx(expected_log, rel=1e-5)
    weights = single.model.state_dict()
    trained = CLASSES[name].from_pretrained(folder / name).state_dict()
    assert weights.keys() == trained.keys()
    for key, weight in weights.items():
        torch.testing.assert_close(trained[key], weight, rtol=0, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", MAKERS)
def test_a_resumed_run_is_the_same_to_the_bit(name, folder):
    assert records(folder, f"{name}-resumed") == records(folder, name)
    files = [load_file(folder / case / "model.safetensors") for case in (name, f"{name}-resumed")]
    assert files[0].keys() == files[1].keys()  # it is tied, and stored once
    assert "lm_head.weight" not in files[0]
    assert all(torch.equal(weight, files[1][key]) for key, weight in files[0].items())
