"""What becomes of errors: sentences for users, tracebacks for mistakes in the code, exit codes."""

import os
import sys
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import HTTPError
from transformers import Trainer
from transformers.integrations import integration_utils

from modeling_gpt1.commands.entry.errors import one_sentence
from modeling_gpt1.hub.push import PushError, explain_failure, explained


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


def test_errors_of_the_network(capsys):
    """The client of the hub lets some through as its HTTP library raises them, and that is no OSError."""
    assert not issubclass(HTTPError, OSError)
    assert end_of(HTTPError("[Errno 111]\n Connection refused"), capsys) == (
        2,
        "gpt1 finetune: [Errno 111] Connection refused. Pass --debug to see the traceback.\n",
    )


def test_a_failed_push(capsys):
    with pytest.raises(PushError) as failure, explained("me/x", "out"):
        raise ValueError("No such thing")
    message = explain_failure(ValueError("No such thing"), "me/x", "out")
    assert end_of(failure.value, capsys) == (2, f"gpt1 finetune: {message}\n")
    code, text = end_of(failure.value, capsys, debug=True)
    assert code == 2 and text.startswith("Traceback (most recent call last):\n") and "ValueError" in text


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


def test_a_package_of_a_log_that_is_missing(capsys, monkeypatch):
    """transformers raises a RuntimeError."""
    monkeypatch.setattr(integration_utils, "is_wandb_available", lambda: False)
    assert end_of(None, capsys, action=integration_utils.WandbCallback) == (
        2,
        "gpt1 finetune: WandbCallback requires wandb to be installed. Run `pip install wandb`. Pass --debug to see "
        "the traceback.\n",
    )


def test_an_unknown_metric_is_a_mistake_of_the_user(capsys):
    """transformers raises a KeyError, whose text Python puts into quotation marks."""
    trainer = Trainer.__new__(Trainer)
    trainer.args = SimpleNamespace(metric_for_best_model="f2")
    code, text = end_of(None, capsys, action=lambda: trainer._determine_best_metric({"eval_loss": 1.0}, None))
    assert code == 2 and text.startswith(
        "gpt1 finetune: The `metric_for_best_model` training argument is set to 'eval_f2', which is not found in the "
        "evaluation metrics. The available evaluation metrics are: ['eval_loss']. "
    )
    with pytest.raises(AttributeError), one_sentence("finetune", False):  # a mistake in the same file
        trainer._determine_best_metric({"eval_f2": 1.0}, None)


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
