"""Builds the content of the report: a headline, tables and figures beside the paper's, and claims.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from typing import Any

from .claims import RULES, Measured, judge_claims, show_certainty, signed
from .figures import (
    auxiliary_sizes,
    figure_2_left,
    figure_2_right,
    learning_curves,
    loss_by_position,
    transfer_curves,
    zero_shot_curves,
)
from .scores import difference
from .tables import TABLES_OF_RESULTS, Cells, gather_table_5, table_5, table_of_results

# What the full method is compared with in table 5.
GAINS = {
    "without_pretraining": "points by pre-training",
    "without_auxiliary": "points by the auxiliary objective",
    "lstm": "points by the Transformer in an LSTM's place",
}


def build_report(
    cells: Sequence[Mapping],
    *,
    title: str,
    models: Sequence[Mapping] = (),
    environment: Mapping | None = None,
    commands: Sequence[str] = (),
    unfinished: Sequence[Mapping] = (),
    date: str | None = None,
) -> dict:
    """The content of report.json.

    Args:
        cells: the finished cells, dictionaries of `kind` "fine_tuning" (`task`, `variant`, `n_transfer`, `lm_coef`,
            `seed`, `model`, `settings`, `metrics` as in all_results.json of `gpt1 finetune`, `seconds`) or
            "zero_shot" (`model`, `family`, `step`, `tokens`, `tasks`, `settings`).
        title: heading of the report.
        models: `name`, `parameters`, `config` (fields that differ from the paper's model) and `pretraining`
            (`tokens`, `updates`, `perplexity`) of each model, the Transformer first.
        environment: machine and versions.
        commands: the commands as they were typed.
        unfinished: cells that were requested and are missing, as [`Cells`] takes them.
        date: YYYY-MM-DD; default: today.
    """
    found, models = Cells(cells, unfinished), [finite(model) for model in models]
    num_layers = models[0]["config"].get("num_hidden_layers", 12) if models else 12
    transfer, zero_shot = transfer_curves(found, num_layers), zero_shot_curves(found)
    scores = Measured(**gather_table_5(found), transfer=transfer, num_layers=num_layers, zero_shot=zero_shot)
    claims = judge_claims(scores)
    seeds = sorted({cell["seed"] for cell in (*found.fine_tuning, *found.sizes)})
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": models,
        "settings": {"seeds": seeds, "fine_tuning": found.common},
        "commands": list(commands),
        "headline": headline(scores, models, claims),
        "measured": what_was_measured(found),
        "tables": [*(table_of_results(found, table) for table in TABLES_OF_RESULTS), table_5(found, scores)],
        "figures": [
            figure_2_left(found, transfer),
            figure_2_right(found),
            auxiliary_sizes(found),
            learning_curves(models),
            loss_by_position(found),
        ],
        "rules": list(RULES),
        "claims": claims,
    }


def finite(value: Any) -> Any:
    """The value with None for each number that JSON lacks, such as the perplexity of a run that diverged."""
    if isinstance(value, Mapping):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(finite, value))
    return None if isinstance(value, float) and not math.isfinite(value) else value


def headline(scores: Measured, models: Sequence[Mapping], claims: Sequence[Mapping]) -> list[dict]:
    """The report in a few numbers: `value`, `label` and `note` of each."""
    tasks = ", ".join(scores.labels[column] for column in scores.averaged)
    found = []
    for row, label in GAINS.items():
        if scores.averages.get("full") and scores.averages.get(row):
            gain = difference(scores.averages["full"], scores.averages[row])
            found.append((signed(gain.value), label, f"{show_certainty(gain)}; average of {tasks}"))
    for model in models:
        pretraining = model.get("pretraining") or {}
        if pretraining.get("perplexity") is not None:
            tokens = pretraining.get("tokens")
            note = "" if tokens is None else f"after {tokens / 1e6:,.1f} M tokens"
            found.append((f"{pretraining['perplexity']:.1f}", f"held-out perplexity, {model['name']}", note))
    holding = sum(claim["verdict"] == "holds" for claim in claims)
    absent = sum(claim["verdict"] == "not measured" for claim in claims)
    note = f"{absent} not measured" if absent else ""
    found.append((f"{holding} of {len(claims) - absent}", "measured claims of the paper hold at this size", note))
    return [dict(zip(("value", "label", "note"), item, strict=True)) for item in found]


def what_was_measured(cells: Cells) -> dict:
    runs = [*cells.fine_tuning, *cells.sizes]
    timed = [cell for cell in runs if cell["seconds"] is not None]  # the others are parts of a task that another ran
    return {
        "fine_tuning_runs": len(timed),
        "fine_tuning_seconds": round(sum(cell["seconds"] for cell in timed)),
        "fine_tuning_processor_seconds": round(sum(cell.get("processor_seconds", 0) for cell in timed)),
        "tasks": sorted({cell["task"] for cell in runs}),
        "zero_shot_checkpoints": len(cells.zero_shot),
        "zero_shot_tasks": sorted({name for cell in cells.zero_shot for name in cell["tasks"]}),
        "unfinished": len(cells.unfinished),
    }
