"""Writes the folder of a Space that serves the page."""

import json
import shutil
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import modeling_gpt1
import tokenization
from tokenization.errors import UserError

from ..storage.writing import whole_or_absent
from .page import NEEDS_GRADIO

APP = """\
from modeling_gpt1.commands.playground import main

main({arguments})
"""
# https://huggingface.co/docs/hub/spaces-config-reference
README = """\
---
title: GPT-1 playground
sdk: gradio
sdk_version: {gradio_version}
app_file: app.py
license: apache-2.0
models:
{models}
---

Tokens, probabilities, auxiliary losses and continuations of GPT-1 models.
"""


def write_space(folder: str, models: list[str]) -> None:
    """Writes what a Gradio Space needs: app.py, both packages, requirements.txt and README.md.

    Raises:
        ValueError: the folder exists, or a model is a local folder, which a Space cannot read.
        ImportError: Gradio, whose version the Space names, is not installed.
    """
    target = Path(folder)
    if target.exists():
        raise UserError(f"{folder} already exists. Give a new folder.")
    local = [model for model in models if Path(model).is_dir()]
    if local:
        raise UserError(
            f"{', '.join(local)} is a local folder, which a Space cannot open. Push it to the hub first and give its "
            "id."
        )
    requirements = [requirement for requirement in requires("gpt1-hf") or [] if "extra ==" not in requirement]
    arguments = ["--server_name", "0.0.0.0", "--models", *models]
    texts = {
        "requirements.txt": "\n".join(requirements) + "\n",
        "app.py": APP.format(arguments=json.dumps(arguments)),
        "README.md": README.format(
            gradio_version=version_of_gradio(), models="\n".join(f"- {model}" for model in models)
        ),
    }
    with whole_or_absent(target) as staging:
        for package in (modeling_gpt1, tokenization):
            copied = staging / package.__name__
            shutil.copytree(Path(package.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
        for name, text in texts.items():
            (staging / name).write_text(text, encoding="utf-8")


def version_of_gradio() -> str:
    try:
        return version("gradio")
    except PackageNotFoundError as error:
        raise ImportError(NEEDS_GRADIO) from error
