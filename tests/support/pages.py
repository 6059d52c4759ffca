"""Blocks of README and docs: which there are, and how a program in one is run."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from transformers import HfArgumentParser

from modeling_gpt1.commands import entry
from support.wheel import copy_package

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("python", "sh")
SHOWN = ("bibtex", "html", "js", "r", "text", "yaml")
FENCE = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
MODULE = "modeling_gpt1.commands"
# What a test cannot afford, and what it runs instead.
SMALLER = {
    "hidden_size=256,num_hidden_layers=4": "hidden_size=16,num_hidden_layers=2",
    "intermediate_size=1024": "intermediate_size=32",
    "lstm_hidden_size=768": "lstm_hidden_size=24",
    **{
        "--max_steps 3660": "--max_steps 4",
        "--eval_steps 183": "--eval_steps 2",
        "--save_steps 183": "--save_steps 2",
    },
    **{"--warmup_steps 200": "--warmup_steps 2", "--num_merges 8000": "--num_merges 60", "n_trials=8": "n_trials=2"},
    "num_merges=40_000": "num_merges=60",
    "--freeze 6": "--freeze 1",
    "num_merges=8000": "num_merges=60",
    "GPT1Config(vocab_size=len(tokenizer))": "GPT1Config(vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2)",
    'GPT1PretrainingArguments("gpt1-books")': 'GPT1PretrainingArguments("gpt1-books", max_steps=2)',
    # A tiny model learns at a greater rate.
    'GPT1TrainingArguments("sst2-gpt1")': 'GPT1TrainingArguments("sst2-gpt1", learning_rate=2e-2)',
}


@dataclass
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None
    """Why it is not run."""

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}, line {self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text.count("\n", 0, hit.start(3)), hit[2], hit[3], hit[1]) for hit in FENCE.finditer(text)]


def commands_in(block: Block) -> Iterator[list[str]]:
    """The words of each command of a block, without comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return filter(None, (shlex.split(line, comments=True) for line in lines))


def arguments_of_gpt1(words: list[str]) -> list[str] | None:
    """What `gpt1` gets, also where accelerate or torchrun starts it; None for another program."""
    if words[0] == "gpt1":
        return words[1:]
    return words[words.index(MODULE) + 1 :] if MODULE in words else None


def smaller(text: str) -> str:
    for what, instead in SMALLER.items():
        text = text.replace(what, instead)
    return text


def run(block: Block, names: dict) -> None:
    """Runs a block in the current folder, its Python with the names of the page's earlier blocks."""
    if block.language == "python":
        printed = io.StringIO()
        # A traceback then has the line numbers of the page.
        code = compile("\n" * block.line + smaller(block.text), str(block.page), "exec")
        with contextlib.redirect_stdout(printed):
            exec(code, names)
        check_printed(block, printed.getvalue())
        return
    for words in commands_in(block):
        if words[0] == "make":
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, check=True, capture_output=True)
        elif words[:2] == ["pip", "install"]:
            install(*words[2:])
        elif words[0] == "gpt1":
            entry.main(shlex.split(smaller(shlex.join(words[1:]))))
        else:
            raise AssertionError(f"{block}: nothing here runs {words[0]!r}. Say why above: <!-- not run: … -->")


@cache
def install(what: str) -> None:
    """Lets pip go through an installation of the checkout, `.` with its extras, and install nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy_package(Path(folder))
        options = ["--dry-run", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, what], cwd=folder, check=True)


def check_printed(block: Block, printed: str) -> None:
    """Each comment that begins a line is a line that the program printed, in order; … stands for anything."""
    expected = [line.removeprefix("# ") for line in block.text.splitlines() if line.startswith("# ")]
    patterns = [".*".join(map(re.escape, line.split("…"))) for line in expected]
    lines = iter(printed.splitlines())  # Trainer prints between them
    found = [any(re.fullmatch(pattern, line) for line in lines) for pattern in patterns]
    assert all(found), f"{block} has {expected}, but printed:\n{printed}"


class Parsed(Exception):
    """A command has read its arguments."""


def parse(arguments: list[str], monkeypatch) -> None:
    """Lets a command of `gpt1` read its arguments, and stops it there."""
    read = HfArgumentParser.parse_args_into_dataclasses

    def read_and_stop(parser, *args, **kwargs):
        read(parser, *args, **kwargs)
        raise Parsed

    with monkeypatch.context() as patch, contextlib.suppress(Parsed):
        patch.setattr(HfArgumentParser, "parse_args_into_dataclasses", read_and_stop)
        entry.main(arguments)
