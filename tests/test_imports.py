"""What each part may import: the contracts of pyproject.toml, each with an import that breaks it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.launch import python_path
from transformers.dynamic_module_utils import get_imports

ROOT = Path(__file__).parents[1]
PACKAGES = ("modeling_gpt1", "tokenization")
TRAVELLERS = sorted((ROOT / "modeling_gpt1").glob("*_gpt1*.py"))
# File, line that is added to it, and what the report of import-linter then has.
PLANTED = [
    ("modeling_gpt1/loss_gpt1.py", "from .hub import card", "modeling_gpt1.loss_gpt1 -> modeling_gpt1.hub.card"),
    ("modeling_gpt1/hub/card.py", "from ..families import base", "hub.card -> modeling_gpt1.families.base"),
    ("modeling_gpt1/families/base.py", "from ..inference import scoring", "base -> modeling_gpt1.inference.scoring"),
    ("modeling_gpt1/families/gpt1.py", "from ..training import launch", "gpt1 -> modeling_gpt1.training.launch"),
    ("modeling_gpt1/inference/scoring/base.py", "from ...training import launch", "-> modeling_gpt1.training.launch"),
    ("modeling_gpt1/training/launch.py", "from .. import commands", "launch -> modeling_gpt1.commands"),
    ("modeling_gpt1/nowhere.py", "", "modeling_gpt1.nowhere"),
    ("modeling_gpt1/packing_gpt1.py", "import numpy", "modeling_gpt1.packing_gpt1 -> numpy"),
    ("modeling_gpt1/packing_gpt1.py", "from . import loss_gpt1", "packing_gpt1 -> modeling_gpt1.loss_gpt1"),
    ("modeling_gpt1/modeling_gpt1.py", "import tokenization", "modeling_gpt1.modeling_gpt1 -> tokenization"),
    ("tokenization/corpus/blocks.py", "from ..batches import plan", "corpus.blocks -> tokenization.batches.plan"),
    ("tokenization/rows/columns.py", "from ..corpus import blocks", "rows.columns -> tokenization.corpus.blocks"),
    ("tokenization/text/joining.py", "from ..rows import traversals", "joining -> tokenization.rows.traversals"),
    (
        "tokenization/file_kinds.py",
        "from .text import joining",
        "tokenization.file_kinds -> tokenization.text.joining",
    ),
    ("tokenization/wording.py", "from . import file_kinds", "tokenization.wording -> tokenization.file_kinds"),
    ("tokenization/errors.py", "from . import wording", "tokenization.errors -> tokenization.wording"),
    ("tokenization/corpus/blocks.py", "import modeling_gpt1", "tokenization.corpus.blocks -> modeling_gpt1"),
    (
        "tokenization/corpus/preparation.py",
        "import examples.small_world",
        "tokenization.corpus.preparation -> examples",
    ),
]
CONTRACTS = [
    "Layers of modeling_gpt1: each imports those below it",
    "Files that travel with a model need torch, transformers and huggingface_hub alone",
    "Rooms of tokenization: each imports those below it",
    "tokenization stands alone",
    "The packages import no example",
]


def lint_imports(folder: Path) -> tuple[int, str]:
    """Exit code and report of import-linter, all in one line."""
    # An environment that sees the packages of another one has no script beside its interpreter.
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": python_path(folder)})
    return run.returncode, " ".join((run.stdout + run.stderr).split())


def test_each_contract_of_imports_holds_and_can_fail(tmp_path):
    pytest.importorskip("importlinter")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    code, report = lint_imports(tmp_path)
    assert [f"{contract} KEPT" in report for contract in CONTRACTS] == [True] * len(CONTRACTS), report
    assert code == 0
    for file, line, _ in PLANTED:
        with (tmp_path / file).open("a", encoding="utf-8") as lines:
            lines.write(line + "\n")
    code, report = lint_imports(tmp_path)
    assert [f"{contract} BROKEN" in report for contract in CONTRACTS] == [True] * len(CONTRACTS), report
    assert [arrow for _, _, arrow in PLANTED if arrow not in report] == []
    assert code == 1


def test_travellers_ask_for_no_package_that_adapters_alone_need():
    """What transformers asks for before it opens a folder."""
    assert not any("peft" in get_imports(path) for path in TRAVELLERS)


HEAVY = {"datasets", "evaluate", "pyarrow", "pandas", "transformers.trainer", "transformers.training_args"}
IMPORTS = """
before = set(sys.modules)
import modeling_gpt1, tokenization
after = set(sys.modules)
modeling_gpt1.GPT1Trainer, tokenization.load_task, modeling_gpt1.prepare_finetuning
print(json.dumps([sorted(after - before), sorted(set(sys.modules) - after)]))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The lines of two processes, and the file that stands in the way of the first.

    They are forked from one that has imported the names of transformers that any file with a model and its
    registration takes.
    """
    folder = tmp_path_factory.mktemp("imports")
    file = folder / "own" / "tokenization.py"
    file.parent.mkdir()
    file.touch()
    code = ["import json, os, sys", "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM"]
    code += ["from transformers import AutoModelForMultipleChoice, AutoModelForSequenceClassification, AutoTokenizer"]
    code += ["from transformers import GenerationMixin, PreTrainedModel, TokenizersBackend"]
    code += ["if os.fork() and os.wait():", f"    exec({IMPORTS!r})", "    sys.exit()"]
    code += ["os.chdir('own')", "import modeling_gpt1", "modeling_gpt1.GPT1ForCausalLM"]
    code += ["try:", "    modeling_gpt1.TraversalCollator", "except ImportError as error:", "    print(error)"]
    command = [sys.executable, "-c", "\n".join(code)]
    environment = {**os.environ, "PYTHONPATH": python_path(ROOT)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines(), file


def test_a_module_called_tokenization_in_the_way_is_named(printed):
    (said, _), file = printed
    assert f"Python finds a module of that name here first: {file}. Rename that file, or start Python in" in said


def test_imports_bring_neither_trainer_nor_datasets(printed):
    at_once, on_demand = map(set, json.loads(printed[0][-1]))
    assert HEAVY & at_once == set()
    assert {"modeling_gpt1.modeling_gpt1", "tokenization.text.tokenization_gpt1"} <= at_once
    assert (
        not {"modeling_gpt1.training.trainer", "tokenization.corpus.preparation", "tokenization.rows.tasks"} & at_once
    )
    others = {name.partition(".")[0] for name in at_once} - {"modeling_gpt1", "tokenization", "transformers"}
    assert others - set(sys.stdlib_module_names) <= {"torchaudio"}  # where it is installed, transformers reads it
    assert {"datasets", "transformers.trainer"} <= on_demand  # the names above are those that would show
