"""What would not work on macOS or Windows, and devices of any make.

ruff finds modules and names of one system (`banned-api` in pyproject.toml); words inside of calls are found here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from modeling_gpt1.commands import generate, zero_shot
from modeling_gpt1.inference import devices

ROOT = Path(__file__).parents[1]
PACKAGES = ("modeling_gpt1", "tokenization", "examples")
KEYWORDS = {"pass_fds", "preexec_fn", "start_new_session"}
# Each where there is another way without it.
ALLOWED = {("modeling_gpt1/reproduction/models.py", "/proc/cpuinfo")}


def not_portable(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and str(node.value).startswith(("/dev/", "/proc/", "/tmp")):
            yield node.value
        elif isinstance(node, ast.Call):
            keywords = {keyword.arg for keyword in node.keywords}
            function = ast.unparse(node.func)
            yield from KEYWORDS & keywords
            is_binary = any(isinstance(word, ast.Constant) and "b" in str(word.value) for word in node.args)
            is_text = function == "open" or function.endswith((".open", ".read_text", ".write_text"))
            is_text = is_text and not is_binary and function not in ("gzip.open", "os.open")
            if is_text and "encoding" not in keywords:
                yield f"line {node.lineno} without encoding"


def test_files_work_on_every_system():
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in files}
    assert {(name, what) for name, text in texts.items() for what in not_portable(text)} == ALLOWED


def test_each_kind_is_found():
    code = """
subprocess.run([], start_new_session=True)
open("/proc/self")
path.open("w")
path.open("rb")
path.read_text()
open(path, "w", encoding="utf-8")
gzip.open(path)
"""
    lines = [f"line {number} without encoding" for number in (3, 4, 6)]
    assert sorted(not_portable(code)) == ["/proc/self", *lines, "start_new_session"]


def test_an_accelerator_of_any_make_is_taken_and_commands_compute_on_it(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: torch.device("mps"))
    assert devices.default_device() == torch.device("mps")
    monkeypatch.setattr(torch, "get_device_module", lambda _: ModuleType("mps"))  # which tells no name
    assert devices.accelerator_name() == "mps"
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    assert (devices.default_device(), devices.accelerator_name()) == (torch.device("cpu"), None)
    monkeypatch.setattr("modeling_gpt1.commands.models.default_device", lambda: torch.device("mps"))
    assert chosen_device(generate.GenerationArguments(model="model")) == "mps"
    assert chosen_device(generate.GenerationArguments(model="model", dtype="int8")) is None  # is for the CPU
    assert chosen_device(zero_shot.ZeroShotArguments(model="model")) == "mps"
    assert chosen_device(zero_shot.ZeroShotArguments(model="model", device="cpu")) == "cpu"


def chosen_device(arguments):
    arguments.choose_device()
    return arguments.device


@pytest.mark.parametrize("arguments", [generate.GenerationArguments, zero_shot.ZeroShotArguments])
def test_a_device_that_is_not_there_is_told_when_a_run_starts(arguments):
    with pytest.raises(ValueError) as error:
        arguments(model="model", device="gpu").choose_device()
    assert str(error.value).startswith("`device` gpu cannot be used: Expected one of cpu, ")
    assert str(error.value).endswith(f". Pass {devices.default_device()}, or leave it out.")
