"""The models that a run saved on its way."""

import json
import re
from pathlib import Path

from transformers.utils import logging
from transformers.utils.hub import hf_api

from tokenization.errors import UserError

logger = logging.get_logger(__name__)

UNITS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}


def saved_checkpoints(run_folder: str | Path) -> list[dict]:
    """A run's checkpoints, sorted by updates: `model` (folder), `step` and `tokens` (seen so far, None if unknown).

    Raises:
        ValueError: the folder has no checkpoint with a model.
    """
    folder = Path(run_folder)
    steps = {}
    for config in folder.glob("checkpoint-*/config.json"):
        step = config.parent.name.removeprefix("checkpoint-")
        if step.isdigit():
            steps[int(step)] = config.parent
    if any(folder.glob("chck_*/config.json")):
        logger.warning(f"The checkpoints chck_… of {folder} are left out. Evaluate one with --model and --revision.")
    if not steps:
        raise UserError(
            f"{folder} has no checkpoint with a model (checkpoint-<updates>/config.json). Pass the `output_dir` of a "
            "run that saved some, or one model as `model`."
        )
    found = []
    for step, path in sorted(steps.items()):
        state = path / "trainer_state.json"
        facts = json.loads(state.read_text(encoding="utf-8")) if state.exists() else {}
        found.append({"model": str(path), "step": step, "tokens": facts.get("num_input_tokens_seen")})
    return found


def saved_revisions(model: str) -> dict[str, int]:
    """The checkpoints chck_… of a run's folder or of a repository's branches, with the words that each has read."""
    if Path(model).is_dir():
        names = [path.parent.name for path in Path(model).glob("*/config.json")]
    else:
        names = [branch.name for branch in hf_api().list_repo_refs(model).branches]
    words = {}
    for name in names:
        if re.fullmatch(r"chck_\d+(\.\d+)?[KMB]?", name):
            words[name] = number_of_words(name.removeprefix("chck_"))
    return {name: words[name] for name in sorted(words, key=words.get)}


def number_of_words(text: str) -> int:
    """`"2.5M"` as 2,500,000. Raises ValueError: it is no number, or below 1."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text)
    number = 0.0
    if found:
        digits, unit = found.groups()
        number = float(digits) * UNITS[unit]
    if number < 1:
        raise UserError(
            f"{text!r} is no number of words. Write it as 500000, 500K, 10M or 1B; for --save_at_words, several such "
            "as 1M 2M."
        )
    return round(number)
