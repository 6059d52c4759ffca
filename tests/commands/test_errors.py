"""What becomes of errors: sentences for users, tracebacks for mistakes in the code, exit codes."""

import os
import sys

import pytest

from modeling_gpt1.commands.entry.errors import one_sentence


def end_of(error: BaseException | None, capsys, debug: bool = False, action=None) -> tuple[int, str]:
    """Exit code and stderr."""
    with pytest.raises(SystemExit) as end, one_sentence("finetune", debug):
        if action is not None:
            action()
        raise error
    return end.value.code, capsys.readouterr().err


def test_errors_that_were_raised_for_the_user(capsys, tmp_path):
    from tokenization import get_task

    code, text = end_of(None, capsys, action=lambda: get_task("nope"))
    assert code == 2 and text.startswith("gpt1 finetune: Unknown task 'nope'") and text.count("\n") == 1
    assert end_of(None, capsys, action=lambda: open(tmp_path / "none")) == (
        2,
        f"gpt1 finetune: {tmp_path / 'none'}: No such file or directory.\n",
    )
    assert end_of(ModuleNotFoundError(name="matplotlib"), capsys) == (
        2,
        "gpt1 finetune: matplotlib is not installed. Install it, or install this package with the extra 'plot'.\n",
    )


def test_a_sentence_of_another_library_says_how_to_find_it(capsys):
    assert end_of(ValueError("No such\n  thing."), capsys) == (
        2,
        "gpt1 finetune: No such thing. Pass --debug to see the traceback.\n",
    )


def test_weights_that_were_cut_short(capsys, tmp_path):
    from safetensors import safe_open

    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x08")
    code, text = end_of(None, capsys, action=lambda: safe_open(path, "pt"))
    assert code == 2 and text == (
        "gpt1 finetune: The weights cannot be read: Error while deserializing header: header too small. A file is "
        "truncated or damaged. Copy or download the folder again.\n"
    )


def test_debug_shows_the_traceback(capsys):
    code, text = end_of(ValueError("No such thing."), capsys, debug=True)
    assert code == 2 and text.startswith("Traceback (most recent call last):\n")


def test_mistakes_in_the_code_keep_their_traceback():
    kinds = (AttributeError, TypeError, KeyError, ValueError, RuntimeError)
    for action in (
        lambda: None.missing,
        lambda: len(5),
        lambda: {}["key"],
        lambda: int("x"),  # a ValueError that no statement raised
        lambda: (_ for _ in ()).throw(RuntimeError("out of memory")),
    ):
        with pytest.raises(kinds), one_sentence("plot", False):
            action()


def test_an_interruption_is_one_line(capsys):
    assert end_of(KeyboardInterrupt(), capsys) == (130, "gpt1 finetune: interrupted.\n")


def test_a_process_of_a_launch_says_which_it_is(capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert end_of(OSError("The disk is full."), capsys)[1].startswith(
        "gpt1 finetune, process 1 of 2: The disk is full."
    )


def test_a_reader_that_has_gone_is_no_error(capsys, monkeypatch):
    replaced = []
    monkeypatch.setattr(os, "dup2", lambda *descriptors: replaced.append(descriptors))
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    with pytest.raises(SystemExit) as end, one_sentence("generate", False):
        raise BrokenPipeError
    assert end.value.code == 1 and len(replaced) == 1
    assert capsys.readouterr().err == ""
