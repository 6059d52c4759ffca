"""Settings of each condition, chosen alike before its seeds run.

A condition is a task and a variant: the full method, without the auxiliary objective, without pre-training, the first
k layers, the LSTM. The rule was written down before any run:

1. A trial is a learning rate and a warm-up. Every condition has the same trials, each run once with `TUNING_SEED`, and
   no condition has more of them than another.
2. Where layers start fresh, λ is tuned as well: nobody knows which λ fits a model that was not pre-trained. Such a
   condition gets no further trials for that. The values of λ alternate over rates and warm-ups like the colours of a
   chessboard. With two values, and two or more rates and warm-ups, each rate and each warm-up meets both.
3. A trial trains on the training rows without a part, and is scored on that part (`training_rows.py`). Validation and
   test rows take no part in it.
4. The trial with the highest score of the task's first metric is chosen; of equal ones that with the lowest task loss,
   then the first. A trial that diverges has no score. One that failed to train comes after all others; this was added
   after the trials of SST-2, CoLA, Story Cloze and SNLI, whose chosen ones have scores that no constant answer has.
5. The seeds of the condition run with the chosen settings, on all training rows.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenization import get_task

from .arguments import ReproduceArguments, layers_of
from .training_rows import has_failed

TUNING_SEED = 0

Condition = tuple[str, str]  # task and variant


@dataclass(frozen=True)
class Trial:
    """Settings of a condition that are tried."""

    learning_rate: float
    warmup_steps: float
    """Updates, or below 1 a share of all."""
    lm_coef: float | None = None
    """λ; None: the condition's own."""

    @property
    def flags(self) -> list[str]:
        """The flags of `gpt1 finetune` for it."""
        words = ["--learning_rate", exactly(self.learning_rate), "--warmup_steps", exactly(self.warmup_steps)]
        if self.lm_coef is not None:
            words += ["--lm_coef", exactly(self.lm_coef)]
        return words

    @property
    def name(self) -> str:
        """Its settings in the names of files, such as `learningrate0.001-warmupsteps0.1`."""
        return "".join(word.replace("--", "-").replace("_", "") for word in self.flags)[1:]


def exactly(number: float) -> str:
    """A setting as a short text that is read as the same number: `0.002`, `1e-05`, `0.00123456789`."""
    short = f"{number:g}"
    return short if float(short) == number else repr(number)


def starts_fresh(variant: str) -> bool:
    """Whether some layers are not pre-trained. All layers transferred are the variant full."""
    return variant == "without_pretraining" or layers_of(variant) is not None


def trials_of(arguments: ReproduceArguments, variant: str) -> list[Trial]:
    """The trials of a condition."""
    trials = []
    for rate_index, rate in enumerate(arguments.tune_learning_rates):
        for warmup_index, warmup in enumerate(arguments.tune_warmups):
            lm_coef = None
            if starts_fresh(variant):
                lm_coef = arguments.tune_lm_coefs[(rate_index + warmup_index) % len(arguments.tune_lm_coefs)]
            trials.append(Trial(rate, warmup, lm_coef))
    return trials


def held_out_score(metrics: Mapping, task_name: str, metric: str) -> float:
    """The mean of a metric over the splits that were scored; NaN if one is missing."""
    splits = get_task(task_name).validation_splits
    names = [f"eval_{metric}"] if len(splits) == 1 else [f"eval_{split}_{metric}" for split in splits]
    return sum(metrics.get(name, math.nan) for name in names) / len(names)


def describe_trials(task_name: str, results: Mapping[Trial, Mapping]) -> list[dict]:
    """Settings, held-out score × 100 and held-out task loss of each trial, and whether it failed to train.

    A score or a loss that is not finite is None.
    """
    metric = get_task(task_name).metrics[0]
    described = []
    for trial, result in results.items():
        score = 100 * held_out_score(result["metrics"], task_name, metric)
        loss = held_out_score(result["metrics"], task_name, "task_loss")
        described.append(
            {
                "learning_rate": trial.learning_rate,
                "warmup_steps": trial.warmup_steps,
                "lm_coef": trial.lm_coef,
                "score": score if math.isfinite(score) else None,
                "task_loss": loss if math.isfinite(loss) else None,
                "failed": has_failed(result),
            }
        )
    return described


def best_trial(described: list[dict]) -> dict | None:
    """The chosen one of the described trials; None if none has a score.

    A trial that failed to train comes after all others: by F1, one answer for all rows can have the best score.
    """
    scored = [trial for trial in described if trial["score"] is not None]

    def rank(trial: dict) -> tuple[bool, float, float]:
        loss = math.inf if trial["task_loss"] is None else trial["task_loss"]
        return not trial["failed"], trial["score"], -loss

    return max(scored, key=rank, default=None)  # the first of equal ones


@dataclass(frozen=True)
class Tuning:
    """The trials of one condition, as far as they are finished."""

    condition: Condition
    trials: list[dict]
    """Finished trials, as [`describe_trials`] gives them."""
    is_finished: bool

    @property
    def best(self) -> Trial | None:
        """The chosen trial; None until all are finished."""
        found = best_trial(self.trials) if self.is_finished else None
        if found is None:
            return None
        return Trial(found["learning_rate"], found["warmup_steps"], found["lm_coef"])

    def describe(self) -> dict:
        """What report.json says of it."""
        task, variant = self.condition
        best = best_trial(self.trials) if self.is_finished else None
        return {"task": task, "variant": variant, "trials": self.trials, "chosen": best}


def read_tuning(condition: Condition, cells: Mapping[Trial, Any], read: Callable[[Any], dict]) -> Tuning:
    """What is known of a condition whose trials have these cells."""
    task, _ = condition
    results = {trial: read(cell) for trial, cell in cells.items()}
    finished = {trial: result for trial, result in results.items() if result}
    return Tuning(condition, describe_trials(task, finished), is_finished=len(finished) == len(cells))
