"""The entry point: its help, refusals, what becomes of errors, and both ways to start it."""

import io
import json
import os
import re
import runpy
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import HTTPError
from safetensors.torch import save_file

from modeling_gpt1 import commands
from modeling_gpt1.commands import entry
from modeling_gpt1.commands.entry import one_sentence
from modeling_gpt1.hub.push import PushError, explained
from tokenization import open_tokenizer
from tokenization.errors import UserError

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


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_imports_the_standard_library_alone(arguments):
    run = subprocess.run([sys.executable, "-I", "-S", "-c", START, *arguments], capture_output=True, text=True)
    *lines, imported = run.stdout.splitlines()
    assert "\n".join(lines) == entry.HELP, run.stderr
    assert json.loads(imported) == ["__main__", "entry"]


def test_the_version_imports_the_standard_library_alone(tmp_path):
    """`-I` hides the checkout; a folder with metadata stands for what is installed."""
    (tmp_path / "gpt1_hf-1.2.3.dist-info").mkdir()
    (tmp_path / "gpt1_hf-1.2.3.dist-info" / "METADATA").write_text("Name: gpt1-hf\nVersion: 1.2.3\n")
    installed = f"import sys; sys.path.append({str(tmp_path)!r})\n{START}"
    command = [sys.executable, "-I", "-S", "-c", installed, "--version"]
    first, imported = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    assert first == "gpt1 1.2.3"
    assert json.loads(imported) == ["__main__", "entry"]


def test_every_text_is_printed_whatever_the_terminal_reads(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    entry.main(["--help"])
    print("“·”", flush=True)
    assert sys.stdout.buffer.getvalue().endswith("\n“·”\n".encode())


def test_every_command_has_a_module_and_the_pages_name_it():
    for name in entry.COMMANDS:
        assert callable(import_module(f"modeling_gpt1.commands.{name.replace('-', '_')}").main)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r"(?:^|`|\()gpt1 ([a-z][a-z-]*)", text, flags=re.MULTILINE)) == set(entry.COMMANDS)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("fine-tune", "the closest is 'finetune'"), ("zero_shot", "the closest is 'zero-shot'")]
    + [("Train", "the closest is 'pretrain'"), ("--model", "write a command first, such as 'generate'")],
)
def test_an_unknown_command_is_refused_in_a_sentence(name, hint, capsys):
    with pytest.raises(SystemExit) as end:
        entry.main([name, "--help"])
    assert end.value.code == 2
    assert capsys.readouterr() == ("", f"gpt1: unknown command {name!r}; {hint}. See gpt1 --help.\n")


@pytest.mark.parametrize(
    ("words", "same"), [(["help"], ["--help"]), (["help", "plot"], ["plot", "--help"])], ids=["help", "help plot"]
)
def test_help_is_a_command_too(words, same, capsys):
    printed = []
    for given in (words, same):
        with suppress(SystemExit):
            entry.main(given)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("usage: gpt1 ")


def test_the_module_starts_like_the_script(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["python -m", "--launch-configs"])
    runpy.run_module("modeling_gpt1.commands", run_name="__main__")
    assert Path(capsys.readouterr().out.strip(), "ddp.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "kept", "is_shown"),
    [
        (["finetune", "--debug", "--seed", "1"], ["--seed", "1"], True),
        (["finetune", "--seed", "1", "--debug"], ["--seed", "1"], True),
        (["plot", "run"], ["run"], False),
        (["plot", "--debug", "run"], ["run"], True),
    ],
)
def test_debug_without_a_value_shows_the_traceback(words, kept, is_shown, capsys, monkeypatch):
    def refuse(arguments):
        assert arguments == kept
        raise UserError("No such thing.")

    monkeypatch.setattr(sys, "argv", ["gpt1"])
    monkeypatch.setattr(f"modeling_gpt1.commands.{words[0]}.main", refuse)
    with pytest.raises(SystemExit) as end:
        entry.main(words)
    told = capsys.readouterr().err
    assert end.value.code == 2
    assert told.endswith(f"gpt1 {words[0]}: No such thing.\n")
    assert told.startswith("Traceback (most recent call last):\n") == is_shown


def end_of(error: BaseException | None, capsys, action=None) -> tuple[int, str]:
    """Exit code and stderr."""
    with pytest.raises(SystemExit) as end, one_sentence("finetune", False):
        if action is not None:
            action()
        raise error
    return end.value.code, capsys.readouterr().err


def test_errors_that_were_raised_for_the_user(capsys, tmp_path, monkeypatch):
    from tokenization import get_task

    code, text = end_of(None, capsys, lambda: get_task("nope"))
    assert code == 2
    assert text.startswith("gpt1 finetune: Unknown task 'nope'. Known tasks: sst2, cola")
    assert text.count("\n") == 1
    none = tmp_path / "none"
    assert end_of(None, capsys, lambda: open(none)) == (2, f"gpt1 finetune: {none}: No such file or directory.\n")
    code, text = end_of(ModuleNotFoundError(name="matplotlib"), capsys)
    assert code == 2
    assert "matplotlib is not installed" in text
    assert "extra 'plot'" in text
    code, text = end_of(OSError("`max_steps` is 0; name `model_type` or `delimiter`."), capsys)
    assert code == 2
    assert text.startswith("gpt1 finetune: --max_steps is 0; name `model_type` or --delimiter.")
    assert end_of(KeyboardInterrupt(), capsys) == (130, "gpt1 finetune: interrupted.\n")
    with pytest.raises(PushError) as failure, explained("me/x", "out"):
        raise ValueError("No such thing")
    assert end_of(failure.value, capsys) == (2, f"gpt1 finetune: {failure.value}\n")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert end_of(OSError("The disk is full."), capsys)[1].startswith("gpt1 finetune, process 1 of 2: The disk is")


@pytest.mark.parametrize("error", [OSError("No such\n  thing."), HTTPError("No such\n thing.")])
def test_a_sentence_of_another_library_says_how_to_find_it(error, capsys):
    """The client of the hub lets some through as its HTTP library raises them, and that is no OSError."""
    assert end_of(error, capsys) == (2, "gpt1 finetune: No such thing. Pass --debug to see the traceback.\n")


def test_files_that_were_cut_short(capsys, tmp_path, tiny_tokenizer):
    from safetensors import safe_open

    tiny_tokenizer.save_pretrained(tmp_path)
    for name in ("tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_bytes(b"\x08")
    for action in (lambda: safe_open(tmp_path / "model.safetensors", "pt"), lambda: open_tokenizer(tmp_path)):
        code, text = end_of(None, capsys, action)
        assert code == 2
        assert "It is damaged. Copy or download the folder again." in text
    code, text = end_of(None, capsys, lambda: save_file({"weight": torch.ones(2)}, tmp_path))  # a folder, no file
    assert code == 2
    assert text.endswith(". Make room, or pass another folder.\n")
    assert "damaged" not in text


def test_an_error_of_a_models_own_code_is_known_by_its_name(capsys):
    """Each folder of a model brings its own `UserError`, which is no class of this package."""

    class UserError(ValueError):
        pass

    class Own(UserError):
        pass

    assert end_of(Own("`seed` is wrong."), capsys) == (2, "gpt1 finetune: --seed is wrong.\n")


def test_cleaning_a_text_without_ftfy_names_the_extra(capsys, tmp_path, monkeypatch):
    from tokenization.text import documents

    def no_version(name):
        raise PackageNotFoundError(name)  # as importlib.metadata does

    monkeypatch.setattr(documents, "version", no_version)
    (tmp_path / "book.txt").write_text("he paid\n")
    code, text = end_of(None, capsys, lambda: documents.training_texts(tmp_path / "book.txt", fix_text=True))
    assert code == 2
    assert text.startswith("gpt1 finetune: ftfy is not installed. ")
    assert text.endswith("with the extra 'clean'.\n")


def test_a_library_that_asks_for_a_package_is_shown_and_a_wrong_import_is_not(capsys):
    code, text = end_of(ImportError("This needs\n the library `x`."), capsys)
    assert code == 2
    assert text == "gpt1 finetune: This needs the library `x`. Pass --debug to see the traceback.\n"
    with pytest.raises(ImportError), one_sentence("finetune", False):
        from modeling_gpt1.commands import no_such_name  # noqa: F401


def test_a_value_error_in_library_code_keeps_its_traceback(monkeypatch):
    """It is raised by a statement and has a sentence, but no user can have caused it."""

    def mistaken(*args, **kwargs):
        raise ValueError("too many values.")

    monkeypatch.setattr("modeling_gpt1.commands.predict.load_rows", mistaken)
    with pytest.raises(ValueError, match="too many values"), one_sentence("predict", False):
        import_module("modeling_gpt1.commands.predict").main(["gpt1-novels", "--file", "rows.csv", "--device", "cpu"])


def test_mistakes_in_the_code_keep_their_traceback():
    for action in (
        lambda: None.missing,
        lambda: {}["key"],
        lambda: int("x"),  # a ValueError that no statement raised
        lambda: (_ for _ in ()).throw(RuntimeError("out of memory")),
    ):
        with pytest.raises((AttributeError, KeyError, ValueError, RuntimeError)), one_sentence("plot", False):
            action()


def test_a_name_that_python_cannot_decode_is_refused(tmp_path):
    """Not the locale of the tests: one in which file names are ASCII."""
    environment = {**os.environ, "PYTHONUTF8": "0", "LC_ALL": "C"}
    words = [sys.executable, "-S", "-c", START, "generate", "--model", "sörtie", "--prompts", "a"]
    ended = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert ended.returncode == 2
    told = "gpt1 generate: sörtie cannot be read: Python decodes the command line as ascii here. Set PYTHONUTF8=1, or"
    assert ended.stderr.decode().startswith(told)


def test_help_whose_reader_has_gone_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([sys.executable, "-I", "-S", "-c", START, "--help"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (run.returncode, run.stderr) == (1, b"")
