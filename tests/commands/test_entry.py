"""The entry point: what its help imports, which commands there are, refusals, and both ways to start it."""

import io
import json
import re
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from modeling_gpt1 import commands
from modeling_gpt1.commands import entry

FOLDER = Path(commands.__file__).parent
ROOT = FOLDER.parents[1]
# As the console script imports it: from a folder of its own, not as a part of modeling_gpt1.
START = f"""
import json, sys
sys.path.insert(0, {str(FOLDER)!r})
import entry
entry.main(sys.argv[1:])
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}} - sys.stdlib_module_names)))
"""


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_imports_the_standard_library_alone(arguments):
    run = subprocess.run([sys.executable, "-I", "-S", "-c", START, *arguments], capture_output=True, text=True)
    *lines, imported = run.stdout.splitlines()
    assert "\n".join(lines) == entry.HELP, run.stderr
    assert json.loads(imported) == ["__main__", "entry"]
    described = [line.split(maxsplit=1) for line in lines if line.startswith("  ")]
    assert dict(described) == entry.COMMANDS


def test_the_version_imports_the_standard_library_alone(tmp_path):
    """`-I` hides the checkout; a folder with metadata stands for what is installed."""
    (tmp_path / "gpt1_hf-1.2.3.dist-info").mkdir()
    (tmp_path / "gpt1_hf-1.2.3.dist-info" / "METADATA").write_text("Name: gpt1-hf\nVersion: 1.2.3\n")
    for start, version in ((START, "(not installed: run from a checkout)"), (installed(tmp_path), "1.2.3")):
        command = [sys.executable, "-I", "-S", "-c", start, "--version"]
        first, imported = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
        assert first == f"gpt1 {version}"
        assert json.loads(imported) == ["__main__", "entry"]


def installed(folder: Path) -> str:
    return f"import sys; sys.path.append({str(folder)!r})\n{START}"


def test_every_command_has_a_module_with_a_main():
    shared = {"__init__", "__main__", "arguments", "models", "runs"}
    modules = {name.replace("-", "_") for name in entry.COMMANDS} - {"completion"}  # a part of the entry
    assert {path.stem for path in FOLDER.glob("*.py")} - shared == modules
    for module in modules - {"playground"}:  # which needs gradio
        assert callable(import_module(f"modeling_gpt1.commands.{module}").main)


def test_the_pages_name_every_command_and_no_other():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    named = re.findall(r"(?:^|`|\()gpt1 ([a-z][a-z-]*)", text, flags=re.MULTILINE)
    assert set(named) == set(entry.COMMANDS)


def test_a_command_gets_its_arguments(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gpt1"])
    with pytest.raises(SystemExit) as end:
        entry.main(["plot", str(tmp_path / "none")])
    message = f"gpt1 plot: {tmp_path / 'none'} is not a folder. Pass the output folders of runs.\n"
    assert (end.value.code, capsys.readouterr().err) == (2, message)
    with pytest.raises(SystemExit) as end:
        entry.main(["zero-shot", "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("usage: gpt1 zero-shot [-h]")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("fine-tune", "finetune"), ("zero_shot", "zero-shot"), ("Train", "pretrain")],
)
def test_an_unknown_command_is_refused_in_a_sentence(name, nearest, capsys):
    with pytest.raises(SystemExit) as end:
        entry.main([name, "--help"])
    assert end.value.code == 2
    message = f"gpt1: unknown command {name!r}; the closest is {nearest!r}. See gpt1 --help.\n"
    assert capsys.readouterr() == ("", message)


def test_the_module_starts_like_the_script(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["python -m", "--launch-configs"])
    runpy.run_module("modeling_gpt1.commands", run_name="__main__")
    folder = Path(capsys.readouterr().out.strip())
    assert sorted(path.name for path in folder.iterdir()) == [
        "ddp.yaml",
        "deepspeed_zero2.yaml",
        "deepspeed_zero3.yaml",
        "fsdp2.yaml",
    ]


def test_pipes_are_utf8_on_windows(monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, pipe)
    monkeypatch.delenv("PYTHONIOENCODING", raising=False)
    entry.write_utf8()
    assert pipe.encoding == "cp1252"
    monkeypatch.setattr(sys, "platform", "win32")
    entry.write_utf8()
    assert pipe.encoding == "utf-8"
