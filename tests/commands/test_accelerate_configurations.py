"""The launch configurations: what accelerate makes of them on one machine and on two."""

from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import FullyShardedDataParallelPlugin
from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env
from torch.distributed.fsdp import StateDictType

from modeling_gpt1 import GPT1DoubleHeadsModel, commands
from modeling_gpt1.modeling_gpt1 import GPT1Block

FOLDER = Path(commands.__file__).parent / "accelerate"
TYPES = {"ddp": "MULTI_GPU", "fsdp2": "FSDP", "deepspeed_zero2": "DEEPSPEED", "deepspeed_zero3": "DEEPSPEED"}
# As on the second of two machines with 8 GPUs each.
SECOND_MACHINE = (
    *("--num_machines", "2", "--num_processes", "16", "--machine_rank", "1"),
    *("--main_process_ip", "10.0.0.1", "--main_process_port", "29501"),
)


def prepare_launch(name: str, *arguments: str):
    """The launcher's arguments, command and environment after all that `accelerate launch` does before it starts."""
    command_line = ["--config_file", str(FOLDER / f"{name}.yaml"), *arguments, "train.py"]
    args, defaults, _ = _validate_launch_command(launch_command_parser().parse_args(command_line))
    if not args.use_deepspeed:
        return args, None, prepare_multi_gpu_env(args)
    args.deepspeed_fields_from_accelerate_config = ",".join(defaults.deepspeed_config)
    return args, *prepare_deepspeed_cmd_env(args)


@pytest.mark.parametrize("name", TYPES)
def test_one_machine(name):
    known = vars(launch_command_parser().parse_args(["train.py"]))
    content = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    for group in ("fsdp_config", "deepspeed_config"):
        assert content.get(group, {}).keys() <= known.keys()
    assert load_config_from_file(str(FOLDER / f"{name}.yaml")).distributed_type == TYPES[name]
    args, command, environment = prepare_launch(name, "--main_process_port", "0")
    assert command is None
    assert args.nproc_per_node == "2"
    assert (args.multi_gpu, args.use_fsdp, args.use_deepspeed) == tuple(
        TYPES[name] == kind for kind in ("MULTI_GPU", "FSDP", "DEEPSPEED")
    )
    assert environment["ACCELERATE_MIXED_PRECISION"] == ("no" if name == "ddp" else "bf16")


@pytest.mark.parametrize("name", TYPES)
def test_the_second_of_two_machines(name):
    """None of them needs a program on the other machine, as DeepSpeed's own launcher would: `command` stays empty."""
    args, command, _ = prepare_launch(name, *SECOND_MACHINE)
    assert command is None
    assert (args.nnodes, args.node_rank, args.nproc_per_node) == ("2", 1, "8")
    assert args.rdzv_endpoint == "10.0.0.1:29501"


def test_fsdp_wraps_the_block_that_models_name(monkeypatch):
    for variable, value in prepare_launch("fsdp2", "--main_process_port", "0")[2].items():
        monkeypatch.setenv(variable, value)
    plugin = FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward, plugin.cpu_ram_efficient_loading) == (2, True, False)
    assert plugin.state_dict_type == StateDictType.FULL_STATE_DICT
    assert plugin.transformer_cls_names_to_wrap == GPT1DoubleHeadsModel._no_split_modules == [GPT1Block.__name__]
