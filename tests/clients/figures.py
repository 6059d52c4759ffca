"""What a program of tests/clients/programs/ has at hand: prompts, the lines that a page shows, figures."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
HEADING = re.compile(r"^##+ (.+)\n", flags=re.MULTILINE)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)

BEGINNINGS = (
    "it was",
    "the old man",
    "she said that",
    "they went to",
    "in the morning",
    "he had never",
    "and so",
    "my",
)
GOINGS_ON = ("", " a", " the house of", " very much", " when the", " and the little child", " not", " her father was")
PROMPTS = [beginning + going_on for beginning in BEGINNINGS for going_on in GOINGS_ON]
"""64 prompts of one to seven words."""


@dataclass(frozen=True)
class Figure:
    """A number that a client gave beside ours, and what it must be."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    equals: float | None = None

    @property
    def is_held(self) -> bool:
        """Whether the number is within its bound. A figure without a bound is only recorded."""
        return (
            (self.at_most is None or self.value <= self.at_most)
            and (self.at_least is None or self.value >= self.at_least)
            and (self.equals is None or self.value == self.equals)
        )


class CannotRun(Exception):
    """A client that this machine cannot run; the message says what it needs."""


def lines_of(heading: str, page: str = "works-with.md") -> str:
    """The Python lines below a heading of a page of docs/, which a reader copies."""
    pieces = HEADING.split((DOCS / page).read_text(encoding="utf-8"))
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    return "\n".join(PYTHON_BLOCK.findall(sections[heading]))


def run_lines(heading: str, page: str = "works-with.md", **names) -> dict:
    """Runs the lines below a heading, with names that the page has from before; returns them with those defined.

    They lie in a file of the working folder, since programs such as nnsight read the source of what they run.
    """
    path = Path("lines.py").resolve()
    path.write_text(lines_of(heading, page), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), names)
    return names


def quantisation_figures(model, is_quantised: Callable[[Any], bool], is_saved: bool) -> list[Figure]:
    """What few bits make of the model in the box: its layers, its logits and, if it can be saved, a folder of it.

    Args:
        model: the model in the box, quantised.
        is_quantised: whether a linear layer is.
        is_saved: whether it is saved and opened again.
    """
    import torch

    from modeling_gpt1 import NOVELS, GPT1ForCausalLM

    ids = torch.arange(5, 30)[None]
    with torch.no_grad():
        expected = GPT1ForCausalLM.from_pretrained(NOVELS)(ids).logits
        logits = model(ids).logits.float()
    layers = [module for name, module in model.named_modules() if name.endswith("_proj")]
    error = ((logits - expected).std() / expected.std()).item()
    figures = [
        Figure("layers of 24 that are quantised", sum(map(is_quantised, layers)), equals=24),
        Figure("error of the logits, in their standard deviations", error, at_most=0.05),
    ]
    if is_saved:
        model.save_pretrained("saved")
        with torch.no_grad():
            again = GPT1ForCausalLM.from_pretrained("saved")(ids).logits
        difference = (again - logits).abs().max().item()
        figures.append(Figure("greatest difference after saving and opening", difference, equals=0))
    return figures


def finetune(report_to: str, **settings: str) -> None:
    """Trains, evaluates and predicts by `gpt1 finetune` with a tracker, whose settings are environment variables."""
    rows = [{"sentence": f"a {word} film", "label": label} for word in ("slow", "fine") for label in (0, 1)]
    folder = Path("data/sst2")
    folder.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    command = [sys.executable, "-m", "modeling_gpt1.commands", "finetune", "--task", "sst2", "--data_dir", "data"]
    command += ["--model", "gpt1-novels", "--output_dir", "run", "--do_train", "--do_eval", "--do_predict"]
    command += ["--max_steps", "2", "--logging_steps", "1", "--report_to", report_to]
    subprocess.run(command, check=True, env={**os.environ, **settings})


def report(main: Callable[[], list[Figure]]) -> None:
    """Calls a program's `main`, prints its figures, and writes them to the file that CLIENT_RESULT names."""
    try:
        result = {"figures": [{**asdict(figure), "is_held": figure.is_held} for figure in main()]}
    except CannotRun as reason:
        result = {"not run": str(reason)}
    print(json.dumps(result, indent=2))
    if path := os.environ.get("CLIENT_RESULT"):
        Path(path).write_text(json.dumps(result), encoding="utf-8")
    sys.exit(not all(figure["is_held"] for figure in result.get("figures", ())))
