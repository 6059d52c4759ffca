"""Builds the content of the report: a headline, tables and figures beside the paper's, and claims.

Source: "Improving Language Understanding by Generative Pre-Training" (Radford et al. 2018), tables 2 to 5, figure 2.
"""

from collections.abc import Mapping, Sequence
from datetime import date as calendar_date

from .charts import ZERO_SHOT_NAMES, figure_2_left, figure_2_right, transfer_curves, zero_shot_curves
from .claims import RULES, ablation_claims, transfer_claims, zero_shot_claims
from .results import Cells
from .tables import TABLES_OF_RESULTS, gather_table_5, table_5, table_of_results


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

    Raises ValueError if two cells have the same task, variant and seed.
    """
    found = Cells(cells, unfinished)
    num_layers = models[0]["config"].get("num_hidden_layers", 12) if models else 12
    ablations = gather_table_5(found)
    transfer, zero_shot = transfer_curves(found, num_layers), zero_shot_curves(found)
    return {
        "title": title,
        "date": date or calendar_date.today().isoformat(),
        "environment": dict(environment or {}),
        "models": [dict(model) for model in models],
        "settings": {
            "seeds": sorted({cell["seed"] for cell in found.fine_tuning}),
            "fine_tuning": found.common,
        },
        "commands": list(commands),
        "measured": what_was_measured(found),
        "tables": [*(table_of_results(found, table) for table in TABLES_OF_RESULTS), table_5(found, ablations)],
        "figures": [figure_2_left(found, transfer), figure_2_right(found, zero_shot)],
        "rules": list(RULES),
        "claims": [
            *ablation_claims(ablations),
            *transfer_claims(transfer, num_layers),
            *zero_shot_claims(
                {ZERO_SHOT_NAMES.get(name, name): curve for name, curve in zero_shot.get("gpt1", {}).items()},
                {ZERO_SHOT_NAMES.get(name, name): curve for name, curve in zero_shot.get("gpt1-lstm", {}).items()},
            ),
        ],
    }


def what_was_measured(cells: Cells) -> dict:
    return {
        # A part of a task that was scored by the run of the whole task took no time of its own.
        "fine_tuning_runs": sum(cell["seconds"] > 0 for cell in cells.fine_tuning),
        "fine_tuning_seconds": round(sum(cell["seconds"] for cell in cells.fine_tuning)),
        "tasks": sorted({cell["task"] for cell in cells.fine_tuning}),
        "zero_shot_checkpoints": len(cells.zero_shot),
        "zero_shot_tasks": sorted({name for cell in cells.zero_shot for name in cell["tasks"]}),
        "unfinished": len(cells.unfinished) + len(cells.unfinished_zero_shot),
    }
