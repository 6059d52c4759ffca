"""The launch configurations: accelerate reads them, every key is explained, and the classes they name exist."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file

from modeling_gpt1 import GPT1DoubleHeadsModel
from modeling_gpt1.modeling_gpt1 import GPT1Block

FOLDER = Path(__file__).parents[2] / "examples" / "accelerate"
TYPES = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "deepspeed_zero2": "DEEPSPEED", "deepspeed_zero3": "DEEPSPEED"}


@pytest.mark.parametrize("name", TYPES)
def test_accelerate_reads_it(name):
    config = load_config_from_file(str(FOLDER / f"{name}.yaml"))
    assert config.distributed_type == TYPES[name]
    assert config.num_processes == 2 and config.num_machines == 1


def test_there_are_no_others():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == TYPES.keys()


@pytest.mark.parametrize("name", TYPES)
def test_every_key_is_explained(name):
    for line in (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        assert "  # " in line or line.startswith("#"), line


def test_fsdp_wraps_the_block_that_models_name():
    fsdp = yaml.safe_load((FOLDER / "fsdp2.yaml").read_text(encoding="utf-8"))["fsdp_config"]
    assert [fsdp["fsdp_transformer_layer_cls_to_wrap"]] == GPT1DoubleHeadsModel._no_split_modules
    assert fsdp["fsdp_transformer_layer_cls_to_wrap"] == GPT1Block.__name__


@pytest.mark.parametrize("stage", [2, 3])
def test_the_zero_stage_is_that_of_the_name(stage):
    config = yaml.safe_load((FOLDER / f"deepspeed_zero{stage}.yaml").read_text(encoding="utf-8"))
    assert config["deepspeed_config"]["zero_stage"] == stage
