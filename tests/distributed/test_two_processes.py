"""Two processes over gloo reach the losses, gradient norms and weights of one process, for every kind of task."""

import json
import os
import subprocess
import sys
from pathlib import Path

import helpers_training
import pytest
from helpers_training import CASES, LM_COEFS, make_trainer, training_log

ROOT = Path(helpers_training.__file__).parent.parent
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc_per_node", "2")
ACCELERATE = ("accelerate.commands.launch", "--config_file", str(ROOT / "examples" / "accelerate" / "ddp.yaml"))


def launch(launcher: tuple[str, ...], case: str, output_json: Path) -> dict:
    command = [sys.executable, "-m", *launcher, helpers_training.__file__, case, str(output_json)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(output_json.read_text())


@pytest.mark.parametrize("case", CASES)
def test_two_processes_train_as_one(case, tmp_path):
    launcher = ACCELERATE if case == "entailment" else TORCHRUN
    records = launch(launcher, case, tmp_path / "log.json")
    for lm_coef in LM_COEFS:
        together = records[str(lm_coef)]
        single = make_trainer(case, tmp_path, batch_size=8, accumulation=1, lm_coef=lm_coef)
        expected = training_log(single)
        assert len(together["log"]) == len(expected) == 3
        for record, expected_record in zip(together["log"], expected, strict=True):
            assert record == pytest.approx(expected_record, rel=1e-5)
        losses = {key: value for key, value in single.evaluate().items() if key.endswith("loss")}
        assert losses.keys() == {"eval_loss", "eval_task_loss"} | ({"eval_lm_loss"} if lm_coef else set())
        for key, value in losses.items():
            assert together["evaluation"][key] == pytest.approx(value, rel=1e-5)
        for name, tensor in single.model.state_dict().items():
            assert together["weights"][name] == pytest.approx(tensor.double().sum().item(), abs=1e-5, rel=1e-5), name
