"""What `gpt1 env` prints, and what it never does."""

import os
from importlib.metadata import version
from pathlib import Path

from modeling_gpt1.commands import env


def test_facts_of_a_bug_report(capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    env.main([])
    text = capsys.readouterr().out
    lines = dict(line.removeprefix("- ").split(": ", 1) for line in text.splitlines())
    assert all(lines[name] == version(name) for name in ("torch", "transformers", "numpy"))
    assert {"system", "Python", "devices", "threads", "gradio"} <= set(lines)
    assert lines["flash-attn"] == "not installed"
    assert not [private for private in ("hf_secret", str(Path.home()), os.getcwd()) if private in text]


def test_a_package_that_pip_has_not_finished_is_passed_over(capsys, monkeypatch, tmp_path):
    installed = version("datasets")
    for name in ("half-1.0", "datasets-0.1"):
        (tmp_path / f"{name}.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    env.main([])
    assert f"- datasets: {installed}\n" in capsys.readouterr().out
