"""The wheel: the console script starts from it alone, and finds what lies beside the code."""

import configparser
import os
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest
from support.wheel import build_wheel, pip

from modeling_gpt1 import NOVELS
from modeling_gpt1.commands import entry

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS = ROOT / "modeling_gpt1" / "commands" / "accelerate"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_what_the_commands_need_is_in_the_wheel(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    commands = {path.relative_to(ROOT).as_posix() for path in (ROOT / "modeling_gpt1" / "commands").rglob("*.py")}
    configurations = {path.relative_to(ROOT).as_posix() for path in CONFIGURATIONS.iterdir()}
    assert len(configurations) == 4
    typed = {"modeling_gpt1/py.typed", "tokenization/py.typed"}
    typed |= {"modeling_gpt1/playground/look.css", "modeling_gpt1/playground/look.html"}
    typed |= {path.relative_to(ROOT).as_posix() for path in Path(NOVELS).iterdir()}
    assert commands | configurations | typed | {"gpt1_entry/__init__.py", "modeling_gpt1/hub_card.md"} <= names


def test_the_harness_finds_its_model_by_the_entry_point(wheel):
    pytest.importorskip("lm_eval")
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
    points = configparser.ConfigParser()
    points.read_string(archive.read(name).decode())
    module, model = points["lm_eval.models"]["gpt1"].split(":")
    assert getattr(import_module(module), model) is import_module("lm_eval.api.registry").get_model("gpt1")


def test_the_script_starts_without_any_other_package(wheel, tmp_path):
    pip("install", "--target", tmp_path, wheel)

    def gpt1(*arguments):
        script = next((tmp_path / "bin").glob("gpt1*"))
        command = [sys.executable, "-S", str(script), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)

    assert gpt1("--help").stdout == entry.HELP + "\n"
    assert gpt1("--version").stdout == f"gpt1 {wheel.name.split('-')[1]}\n"
    assert gpt1("finetun").returncode == 2
    assert Path(gpt1("--launch-configs").stdout.strip()) == tmp_path / "modeling_gpt1" / "commands" / "accelerate"
