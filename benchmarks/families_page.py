"""The page of `families.py`: what each family cost and scored, what that supports, and the learning curves."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from modeling_gpt1.training.families import FAMILIES

STANDARD_ERRORS = 2  # between two scores that are told apart without seeds
NEXT_TOKEN, RESTORED, MASKED = "next token", "restored text", "masked tokens, alone or with a second objective"


@dataclass
class Row:
    """What the page says of a family."""

    parameters: int
    without_embeddings: int
    cost: dict
    learning_rate: float
    loss: dict[str, float]
    fine_tuning_rate: float | None = None
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """Tokens, hours and held-out loss."""
    zero_shot: dict[str, dict] = field(default_factory=dict)
    method: str = ""
    scores: dict[str, list[float]] = field(default_factory=dict)
    """By task, a score of at most 1 for each seed of fine-tuning."""


def page(rows: dict[str, Row], tasks: Sequence[str], about: dict) -> str:
    """Markdown: what the figures support, costs, fine-tuned scores, answers without fine-tuning, the command.

    `about` has the machine, and how `families.py` was called: `jobs`, `fine_tuning`, `rows` by task, `command`.
    """
    asked = {family: row for family, row in rows.items() if row.zero_shot}
    questions = list(dict.fromkeys(task for row in asked.values() for task in row.zero_shot))
    prefix = "accuracy_"
    phenomena = sorted(
        {name for row in asked.values() for name in row.zero_shot.get("blimp", {}) if name.startswith(prefix)}
    )
    answers = [
        [family, row.method, *(with_error(row.zero_shot.get(task)) for task in questions)]
        for family, row in asked.items()
    ]
    by_phenomenon = [
        [name.removeprefix(prefix), *(percent(row.zero_shot["blimp"][name]) for row in asked.values())]
        for name in phenomena
    ]
    scores = [
        [family, rate_of(row), *(spread(row.scores.get(task, [])) for task in tasks)] for family, row in rows.items()
    ]
    parts = [
        "# Families on the same tokens",
        verdict(rows, tasks),
        f"## Cost\n\n{conditions(about)}",
        table(["family", *COSTS], [[family, *costs(row)] for family, row in rows.items()]),
        "## Fine-tuned",
        f"The metric of the task × 100: the mean of the seeds, and their range. {seeds(rows, tasks)}",
        recipe(tasks, about),
        table(["family", "learning rate", *tasks], scores),
        "## Without fine-tuning\n\nAccuracy × 100, and its standard error.",
        table(["family", "method", *questions], answers),
        "## BLiMP by phenomenon",
        table(["phenomenon", *asked], by_phenomenon),
        "## Command",
        f"```sh\npython benchmarks/families.py {about['command']}\n```",
    ]
    return "\n\n".join(parts)


COSTS = (
    *("M parameters", "M without embeddings", "learning rate", "M tokens read", "processor hours"),
    *("tokens per second", "peak GiB", "held-out losses"),
)


def costs(row: Row) -> list[str]:
    return [
        f"{row.parameters / 1e6:.2f}",
        f"{row.without_embeddings / 1e6:.2f}",
        f"{row.learning_rate:g}",
        f"{row.cost['tokens'] / 1e6:.1f}",
        f"{row.cost['processor_seconds'] / 3600:.2f}",
        f"{row.cost['tokens_per_second']:.0f}",
        f"{row.cost['peak_bytes'] / 2**30:.2f}",
        ", ".join(f"{name} {value:.3f}" for name, value in row.loss.items()),
    ]


def conditions(about: dict) -> str:
    """On what the costs were measured, and what they leave out."""
    jobs, where = about["jobs"], f"{about['cores']} cores ({about['processor']})"
    if "accelerator" in about:
        where = f"{about['accelerator']} with {where}"
    text = f"Measured on {where}, {'one run at a time' if jobs == 1 else f'up to {jobs} runs at once'}, "
    text += f"by torch {about['torch']} and transformers {about['transformers']}. "
    if jobs > 1:
        text += "So hours and speeds are those of a shared machine, and no family's own. "
    text += "Processor hours are of the run of all tokens, without the search for its learning rate. "
    return text + "The peak is of resident memory" + (", not the accelerator's." if "accelerator" in about else ".")


def seeds(rows: dict[str, Row], tasks: Sequence[str]) -> str:
    """How many seeds the cells have, and which have another number."""
    counts = {(task, family): len(row.scores.get(task, [])) for task in tasks for family, row in rows.items()}
    counts = {cell: count for cell, count in counts.items() if count}
    if not counts:
        return ""
    usual = statistics.mode(counts.values())
    others = []
    for task in tasks:
        for other in sorted({count for (name, _), count in counts.items() if name == task} - {usual}):
            families = [family for (name, family), count in counts.items() if (name, count) == (task, other)]
            others.append(f"{other} for {task} ({enumerated(families)})")
    return f"Seeds: {usual}" + (f", but {', '.join(others)}." if others else ".")


def recipe(tasks: Sequence[str], about: dict) -> str:
    limits = ", ".join(f"{task} {about['rows'][task]:,}" for task in tasks if task in about["rows"])
    return f"`gpt1 finetune {about['fine_tuning']}`" + (f", on at most so many rows: {limits}." if limits else ".")


def rate_of(row: Row) -> str:
    return "–" if row.fine_tuning_rate is None else f"{row.fine_tuning_rate:g}"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(scores: list[float]) -> str:
    """Mean and range over the seeds, in percent."""
    if not scores:
        return "–"
    ends = f" [{percent(min(scores))}–{percent(max(scores))}]" if len(scores) > 1 else ""
    return percent(statistics.fmean(scores)) + ends


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def with_error(found: dict | None) -> str:
    return "–" if found is None else f"{percent(found['accuracy'])} ± {percent(standard_error(found))}"


def standard_error(found: dict) -> float:
    return math.sqrt(found["accuracy"] * (1 - found["accuracy"]) / found["num_rows"])


# ---- What the figures support


def verdict(rows: dict[str, Row], tasks: Sequence[str]) -> str:
    """One paragraph: which lead the figures show, which they do not, and what they cannot show."""
    sentences = [lead_of(rows, tasks), *leads_without_fine_tuning(rows), *losses(rows)]
    sentences.append(
        "Each family was pre-trained once, so no figure tells how much another pre-training would differ: the seeds "
        "are those of fine-tuning. Sizes and tokens are small, and say nothing of the order of large models."
    )
    return " ".join(filter(None, sentences))


def lead_of(rows: dict[str, Row], tasks: Sequence[str]) -> str:
    """Who is ahead after fine-tuning: by ranges of seeds that do not meet."""
    common = [task for task in tasks if rows and all(row.scores.get(task) for row in rows.values())]
    if len(rows) < 2 or not common:
        return ""
    means = {}
    for family, row in rows.items():
        seeds = range(min(len(row.scores[task]) for task in common))
        means[family] = [statistics.fmean(row.scores[task][seed] for task in common) for seed in seeds]
    first, *others = sorted(means, key=lambda family: -statistics.fmean(means[family]))
    behind = [family for family in others if max(means[family]) < min(means[first])]
    level = [family for family in others if family not in behind]
    leads = []
    for task in common:
        best, *rest = sorted(rows, key=lambda family: -statistics.fmean(rows[family].scores[task]))
        if all(max(rows[family].scores[task]) < min(rows[best].scores[task]) for family in rest):
            leads.append(f"{best} on {task}")
    single = min(map(len, means.values())) == 1
    return (
        f"After fine-tuning, {first} has the highest mean over {enumerated(common)}, {spread(means[first])}"
        + (f", ahead of {enumerated(behind)}" if behind else "")
        + (f", and is not told apart from {enumerated(level)}" if level else "")
        + ". "
        + ("With one seed any difference counts as a lead. " if single else "A lead is one of every seed. ")
        + (f"On single tasks the leads are: {enumerated(leads)}." if leads else "On no single task has one a lead.")
    )


def leads_without_fine_tuning(rows: dict[str, Row]) -> list[str]:
    """For each task who is ahead, with those that lie within two standard errors of the difference."""
    sentences = []
    for task in dict.fromkeys(task for row in rows.values() for task in row.zero_shot):
        found = {family: row.zero_shot[task] for family, row in rows.items() if task in row.zero_shot}
        if len(found) < 2:
            continue
        first, *others = sorted(found, key=lambda family: -found[family]["accuracy"])
        level = [
            family
            for family in others
            if found[first]["accuracy"] - found[family]["accuracy"]
            <= STANDARD_ERRORS * math.hypot(standard_error(found[first]), standard_error(found[family]))
        ]
        sentences.append(
            f"On {task} without fine-tuning {first} is highest"
            + (f" and not told apart from {enumerated(level)}." if level else ", beyond two standard errors of all.")
        )
    return sentences


def losses(rows: dict[str, Row]) -> list[str]:
    """The order by held-out loss of the families that predict the next token."""
    causal = {family: row.loss["loss"] for family, row in rows.items() if objective_of(family) == NEXT_TOKEN}
    if len(causal) < 2:
        return []
    ordered = sorted(causal, key=lambda family: causal[family])
    told = enumerated([f"{family} ({math.exp(causal[family]):.1f})" for family in ordered])
    return [f"By held-out perplexity the order of next-token models is {told}; the others' losses do not compare."]


def objective_of(family: str) -> str:
    """How a family learns: held-out losses of one objective compare, those of two do not."""
    if FAMILIES[family].is_causal:
        return NEXT_TOKEN
    return RESTORED if FAMILIES[family].config_class().is_encoder_decoder else MASKED


def enumerated(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]])) if names else ""


# ---- Curves


def draw(rows: dict[str, Row]):
    """Held-out losses over tokens and over hours of training, a row of panels for each objective."""
    from matplotlib.figure import Figure  # here because a run of the script's steps needs no matplotlib

    groups: dict[str, list[str]] = {}
    for family, row in rows.items():
        if row.curve:
            groups.setdefault(objective_of(family), []).append(family)
    figure = Figure(figsize=(10, 0.6 + 3 * len(groups)), dpi=100, layout="constrained")
    panels = figure.subplots(max(1, len(groups)), 2, squeeze=False)
    for line, (objective, families) in zip(panels, groups.items(), strict=False):
        for place, (axes, label) in enumerate(zip(line, ("million tokens", "hours of updates"), strict=True)):
            for family in families:
                points = [(point[place] / (1e6, 1)[place], point[2]) for point in rows[family].curve]
                axes.plot(*zip(*points, strict=True), marker=".", label=family)
            axes.set(xlabel=label, ylabel="held-out loss", title=objective)
            axes.grid(alpha=0.3)
            axes.legend()
    return figure
