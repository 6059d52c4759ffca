"""The models that a run saved on its way."""

import json
from pathlib import Path

from transformers.utils import logging

logger = logging.get_logger(__name__)


def saved_checkpoints(run_folder: str | Path) -> list[dict]:
    """A run's checkpoints, sorted by updates: `model` (folder), `step` and `tokens` (seen so far, None if unknown).

    Raises:
        ValueError: the folder has no checkpoint with a model.
    """
    folder = Path(run_folder)
    paths = [path.parent for path in folder.glob("checkpoint-*/config.json")]
    steps = {int(step): path for path in paths if (step := path.name.removeprefix("checkpoint-")).isdigit()}
    if any(folder.glob("chck_*/config.json")):
        logger.warning(f"The checkpoints chck_… of {folder} are left out. Ask them by --model and --revision.")
    if not steps:
        raise ValueError(
            f"{folder} has no checkpoint with a model (checkpoint-<updates>/config.json). Give the `--output_dir` of "
            "a run that saved some, or one model with --model."
        )
    found = []
    for step, path in sorted(steps.items()):
        state = path / "trainer_state.json"
        facts = json.loads(state.read_text(encoding="utf-8")) if state.exists() else {}
        found.append({"model": str(path), "step": step, "tokens": facts.get("num_input_tokens_seen")})
    return found
