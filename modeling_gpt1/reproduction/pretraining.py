"""The pre-training of the models of the experiments, as cells that go on where they stopped."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from . import cells
from .arguments import PRETRAIN, ReproduceArguments, deciding_settings
from .cells import Cell, Run
from .models import text_fingerprint

FAMILIES = {"model": "gpt1", "lstm_model": "gpt1-lstm"}


def pretraining_cells(arguments: ReproduceArguments, folder: Path) -> dict[str, Cell]:
    """The cell of each model that is pre-trained here, by the argument that asks for it.

    The LSTM gets the Transformer's flags, and its own behind them. A BPE that both learn from one text is the same.

    Args:
        folder: where the models are kept, in a folder of the cell's name.
    """
    found = {}
    for argument, family in FAMILIES.items():
        if getattr(arguments, argument) != PRETRAIN:
            continue
        given = [*arguments.pretrain_arguments]
        if argument == "lstm_model":
            given += [*arguments.lstm_pretrain_arguments, "--family", family]
        settings = deciding_settings(given)
        files = settings.get("train_files", [])
        data = text_fingerprint(tuple([files] if isinstance(files, str) else files))
        facts = {"kind": "pretraining", "settings": settings, "data": data}
        cell = Cell(f"pretraining-{family}", facts, {}, lambda run, work: {})
        found[argument] = replace(cell, run=partial(pretrain, given, folder / cell.key))
    return found


def pretrain(given: list[str], output_dir: Path, run: Run, work: Path) -> dict:
    """Trains in a folder that stays, from its newest checkpoint."""
    where = ["--output_dir", str(output_dir), "--resume_from_checkpoint", "auto", "--disable_tqdm", "true"]
    run([*cells.COMMAND, "pretrain", *given, *where])
    results = json.loads((output_dir / "all_results.json").read_text(encoding="utf-8"))
    return {"metrics": results}


def with_models(arguments: ReproduceArguments, trained: dict[str, Cell], folder: Path) -> ReproduceArguments:
    """The arguments with the folders of the models that were pre-trained here, also as those of their checkpoints."""
    found = {}
    for argument, cell in trained.items():
        checkpoints = "checkpoints" if argument == "model" else "lstm_checkpoints"
        found[argument] = str(folder / cell.key)
        if any(Path(found[argument]).glob("checkpoint-*/config.json")):
            found[checkpoints] = getattr(arguments, checkpoints) or found[argument]
    return replace(arguments, **found)
