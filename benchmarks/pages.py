"""Writes the pictures and tables of docs/results/, and the table of docs/works-with.md, from the newest results.

    python benchmarks/pages.py

The results are the files of benchmarks/results/. A picture is an SVG with a transparent ground, readable on light and
on dark pages. A table stands between two marks of its page, `<!-- table: NAME -->` and `<!-- end -->`; the tests
compare it with what this script makes. Needs the extra `plot`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING

from modeling_gpt1.reproduction.models import read_finished_cells
from modeling_gpt1.reproduction.published import PUBLISHED
from modeling_gpt1.reproduction.scores import Estimate, Scores, difference
from modeling_gpt1.reproduction.tables import COLUMNS, LABELS, Cells

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = ROOT / "docs" / "results"
ALL_ROWS = ROOT / "benchmarks" / "tables.md"  # too long for a page
CLIENTS_PAGE = ROOT / "docs" / "works-with.md"
PICTURES = ROOT / "docs" / "pictures"

INK = "#77808c"  # text and axes: a grey with contrast on white and on dark blue
BLUE, ORANGE, GREEN, RED = "#4c8df6", "#e08a2e", "#3fa66b", "#d9566b"

TASKS = {
    "story_cloze": "Story Cloze",
    "sst2": "SST-2",
    "cola": "CoLA",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "snli": "SNLI",
}


def newest(kind: str) -> dict:
    """The content of the newest result of a kind, such as `bench`."""
    path = max(RESULTS.glob(f"????-??-??-{kind}.json"))
    return json.loads(path.read_text(encoding="utf-8"))


def newest_of_script(script: str) -> list[dict]:
    """The rows of a script in the newest file of `make bench` that has it."""
    for path in sorted(RESULTS.glob("????-??-??-bench.json"), reverse=True):
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
        if script in results:
            return results[script]["rows"]
    raise ValueError(f"No file in {RESULTS} has the rows of {script}.")


def row_of(rows: list[dict], work: str, measure: str, peer: str) -> dict:
    """The one row of a script for this work, measure and peer."""
    (row,) = (row for row in rows if (row["work"], row["measure"], row["peer"]) == (work, measure, peer))
    return row


def markdown_table(header: list[str], rows: Iterable[list[str]], align: str = "---:") -> str:
    """A table whose first column is text and whose others are aligned as given."""
    lines = [header, ["---"] + [align] * (len(header) - 1), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---- Scores by condition


def percent(scores: Iterable[float] | None) -> str:
    """The median of some seeds × 100, or a dash."""
    scores = list(scores or ())
    return f"{100 * median(scores):.1f}" if scores else "–"


def conditions_table() -> str:
    """Medians of the seeds × 100 for each size and condition."""
    (small,) = (table for table in newest("reproduction")["tables"] if table["id"] == "table-5")
    of_key = {row["key"]: row["cells"] for row in small["rows"]}
    size_a, size_b = newest("size-a")["results"], newest("size-b")["results"]
    on_gpu = newest("sizes")["results"]["fine-tuned, by seed"]
    rows = []
    names = {
        "full": "full method",
        "without_auxiliary": "no auxiliary objective",
        "without_pretraining": "no pre-training",
        "lstm": "LSTM",
    }
    for key, name in names.items():
        medians = [f"{of_key[key][task]['measured']['median']:.1f}" for task in TASKS]
        rows.append([f"60 M: {name}", *medians])
    in_a = {
        "full method": "A, Transformer",
        "no auxiliary objective": "A, Transformer, without the auxiliary objective",
        "no pre-training": "A, Transformer, without pre-training",
    }
    for name, key in in_a.items():
        rows.append([f"A: {name}", *(percent(of_task(size_a, task).get(key, {}).values()) for task in TASKS)])
    by_task = {key.partition(",")[0]: seeds for key, seeds in on_gpu.items() if key != "settings"}
    rows.append(["A: LSTM", *(percent(by_task.get(task, {}).get("A, LSTM", {}).values()) for task in TASKS)])
    in_b = {
        "full method": "full",
        "no auxiliary objective": "without the auxiliary objective",
        "no pre-training": "without pre-training",
    }
    for name, key in in_b.items():
        rows.append([f"B: {name}", *(percent(of_task(size_b, task).get(key, {}).values()) for task in TASKS)])
    majority = {column["key"]: column["baselines"]["majority"] for column in small["columns"]}
    rows.append(["one answer for all rows", *(f"{majority[task]:.1f}" for task in TASKS)])
    return markdown_table(["", *TASKS.values()], rows)


# ---- The grid whose conditions were tuned alike

TUNED_CONDITIONS = {
    "full": "full method",
    "without_auxiliary": "no auxiliary objective",
    "without_pretraining": "no pre-training",
    0: "embeddings alone",
    1: "first layer",
    2: "first 2 layers",
    3: "first 3 layers",
    "lstm": "LSTM",
    "ngrams": "n-grams, linear model",
    "ngrams_of_last": "n-grams of the last text alone",
}


def tuned_reports(kind: str = "tuned") -> list[tuple[dict, list[dict]]]:
    """The newest report of each task's tuned runs, and their cells with the answer to each row."""
    newest_of_task = {}
    for path in sorted(RESULTS.glob(f"????-??-??-{kind}-*.json")):
        newest_of_task[path.stem.partition(f"-{kind}-")[2]] = path
    found = []
    for path in newest_of_task.values():
        cells = read_finished_cells(path.with_name(f"{path.stem}-cells.json.gz"))
        found.append((json.loads(path.read_text(encoding="utf-8")), cells))
    return found


def column_of(report: dict) -> str:
    """The column of the tables that a report of one task has."""
    (task,) = report["measured"]["tasks"]
    (key,) = (key for key, column in COLUMNS.items() if column.task == task)
    return key


def tuned_table() -> str:
    """Scores of each condition by its seeds, computed from the kept answers, with the settings that were chosen."""
    rows = []
    for report, cells in tuned_reports():
        found = Cells(cells, (), report["models"][0]["config"]["num_hidden_layers"])
        for key in (key for key in COLUMNS if COLUMNS[key].task in report["measured"]["tasks"]):
            task = COLUMNS[key].label
            for place, name in TUNED_CONDITIONS.items():
                if cells_of_condition := condition_cells(found, key, place):
                    rows.append([f"{task}: {name}", *cells_of_condition])
            majority = found.baselines(key)["majority"]
            rows.append([f"{task}: one answer for all rows", "–", "–", "–", f"{majority:.1f}", "–", "–", "–"])
    return markdown_table(["", *CONDITION_HEADER], rows)


CONDITION_HEADER = ["learning rate", "warm-up", "λ", "mean", "least to greatest", "seeds", "failed to train"]


def condition_cells(found: Cells, key: str, place: str | int) -> list[str]:
    """Settings, scores and failures of a condition of a column of the tables; empty if it was not run."""
    runs = found.of(COLUMNS[key].task, place)
    if not runs:
        return []
    scores = [of_seed[0] for of_seed in found.scores(key, place).values()]
    settings = tuned_settings(next((run["ran_with"] for run in runs if "ran_with" in run), None))
    return [*settings, *spread(scores), str(len(found.failed(key, place)))]


TRANSFERRED = {
    "without_pretraining": "nothing",
    0: "embeddings",
    1: "and one layer",
    2: "and two layers",
    3: "and three layers",
    "full": "all four layers",
}


def layers_table() -> str:
    """Scores by the number of transferred layers, each tuned, and what each one adds to the row above."""
    rows = []
    for report, cells in tuned_reports("layers"):
        found = Cells(cells, (), report["models"][0]["config"]["num_hidden_layers"])
        key = column_of(report)
        below = None
        for place, name in TRANSFERRED.items():
            scores = found.scores(key, place)
            added = "–" if below is None else difference_text(difference(scores, below))
            rows.append([f"{COLUMNS[key].label}: {name}", *condition_cells(found, key, place), added])
            below = scores
    return markdown_table(["", *CONDITION_HEADER, "added to the row above"], rows)


# Pairs of settings, the first less the second: those that the paper makes a claim of, then those of this page alone.
AGREEMENT = (
    ("Pre-training helps", "full", "without_pretraining"),
    ("The auxiliary objective costs a little on small tasks and helps on inference", "full", "without_auxiliary"),
    ("The embeddings alone already help", 0, "without_pretraining"),
    ("All layers help more than the embeddings alone", "full", 0),
    ("Not in the paper: full method less n-grams", "full", "ngrams"),
    ("Not in the paper: full method less n-grams of the last text alone", "full", "ngrams_of_last"),
    ("Not in the paper: no auxiliary objective less n-grams", "without_auxiliary", "ngrams"),
    ("Not in the paper: no pre-training less n-grams", "without_pretraining", "ngrams"),
)


def agreement_table() -> str:
    """What the paper says, with its figures where table 5 has them, beside the differences of the tuned conditions."""
    of_tasks = tuned_cells()
    rows = []
    for claim, first, second in AGREEMENT:
        of_paper = [
            f"{COLUMNS[key].label} {published_difference(key, first, second)}"
            for key in of_tasks
            if published_difference(key, first, second)
        ]
        row = [f"{claim}: {', '.join(of_paper)}" if of_paper else claim]
        row += [effect_text(found.scores(key, first), found.scores(key, second)) for key, found in of_tasks.items()]
        rows.append(row)
    return markdown_table(["", *(COLUMNS[key].label for key in of_tasks)], rows)


def tuned_cells() -> dict[str, Cells]:
    """The tuned runs by their column of the tables."""
    found = {}
    for report, cells in tuned_reports():
        found[column_of(report)] = Cells(cells, (), report["models"][0]["config"]["num_hidden_layers"])
    return found


def published_difference(key: str, first: str | int, second: str | int) -> str:
    """A difference of two rows of the paper's table 5; empty if it lacks one."""
    scores = [PUBLISHED["table-5"].get(str(row), {}).get(key) for row in (first, second)]
    if None in scores:
        return ""
    return f"{scores[0] - scores[1]:.1f}".replace("-", "−")


def effect_text(first: Scores, second: Scores) -> str:
    """A difference × 100 with the number of seeds that both sides have, and from three on with its interval."""
    if not first or not second:
        return "–"
    found = difference(first, second)
    shown = f"{found.value:.1f}"
    if found.decides:
        low, high = found.interval
        shown += f" ({low:.1f} to {high:.1f})"
    return f"{shown.replace('-', '−')}, {found.num_seeds} seeds"


def worth_table() -> str:
    """What pre-training is worth in three epochs and in six, and the full method's lead over n-grams."""
    rows = []
    for key, found in tuned_cells().items():
        row = [COLUMNS[key].label, effect_text(found.scores(key, "full"), found.scores(key, "without_pretraining"))]
        in_six = Cells(cells_of_six_epochs(COLUMNS[key].task))
        row.append(effect_text(in_six.scores(key, "full"), in_six.scores(key, "without_pretraining")))
        row.append(effect_text(found.scores(key, "full"), found.scores(key, "ngrams")))
        rows.append(row)
    header = ["pre-training is worth, three epochs", "six epochs, settings of three", "full method less n-grams"]
    return markdown_table(["", *header], rows)


def epochs_table() -> str:
    """Scores without pre-training and of the full method, and their difference, in three epochs and in six."""
    rows = []
    for report, in_three in tuned_reports():
        key = column_of(report)
        if in_six := cells_of_six_epochs(COLUMNS[key].task):
            task = COLUMNS[key].label
            rows.append([f"{task}: three epochs", *scores_with_and_without_pretraining(in_three, key)])
            rows.append([f"{task}: six epochs", *scores_with_and_without_pretraining(in_six, key)])
    header = ["no pre-training", "trained", "full method", "trained", "pre-training is worth"]
    return markdown_table(["", *header], rows)


def cells_of_six_epochs(task: str) -> list[dict]:
    """The runs with six epochs, with the settings that were chosen for three; empty if there are none."""
    paths = sorted(RESULTS.glob(f"????-??-??-epochs-{task}-cells.json.gz"))
    return read_finished_cells(paths[-1]) if paths else []


def scores_with_and_without_pretraining(cells: list[dict], key: str) -> list[str]:
    """Both conditions' scores and numbers of seeds that trained, and what the full method has more."""
    found = Cells(cells)
    shown = []
    for place in ("without_pretraining", "full"):
        scores = [of_seed[0] for of_seed in found.scores(key, place).values()]
        mean, least_to_greatest, trained = spread(scores)
        shown += [f"{mean} ({least_to_greatest})", f"{trained} of {len(found.of(COLUMNS[key].task, place))}"]
    return [*shown, difference_text(difference(found.scores(key, "full"), found.scores(key, "without_pretraining")))]


def difference_text(estimate: Estimate) -> str:
    """A difference × 100 with its interval."""
    if estimate.interval is None:
        return f"{estimate.value:+.1f}"
    low, high = estimate.interval
    return f"{estimate.value:+.1f} ({low:+.1f} to {high:+.1f})"


def decoder_objective_table() -> str:
    """What λ adds to the score of a decoder of transformers with λ = 0, by task and number of training rows."""
    by_condition: dict[tuple[str, int], dict[float | None, dict]] = {}
    for effect in newest("decoder-objective")["results"]["effects"]:
        condition = effect["task"], effect["rows"]
        by_condition.setdefault(condition, {})[effect["lm_coef"]] = effect
    rows = []
    for (task, _), of_lm_coef in by_condition.items():
        if 0.0 not in of_lm_coef:
            continue
        plain = of_lm_coef[0.0]
        cells = [f"{TASKS[task]}, {plain['train_rows']:,}", score_of(plain)]
        cells += [gain_of(of_lm_coef.get(lm_coef)) for lm_coef in (0.1, 0.5, 1.0)]
        cells += [score_of(of_lm_coef.get(None)), f"{plain['one_answer']:.1f}"]
        rows.append(cells)
    header = ["task, training rows", "λ = 0", "0.1 − 0", "0.5 − 0", "1 − 0", "n-grams", "one answer"]
    return markdown_table(header, rows)


def draw_decoder_objective(figure: Figure) -> None:
    """What each λ adds to the score with λ = 0, with its 95 % interval over seeds and rows."""
    groups: dict[str, list] = {}
    for effect in newest("decoder-objective")["results"]["effects"]:
        if effect["lm_coef"] and effect.get("interval") is not None:
            title = f"{TASKS[effect['task']]}, {effect['train_rows']:,} rows"
            difference = (f"λ = {effect['lm_coef']:g}", effect["difference"], effect["interval"], BLUE)
            groups.setdefault(title, []).append(difference)
    figure.set_size_inches(8, 1 + 0.24 * (sum(map(len, groups.values())) + 1.5 * len(groups)))
    draw_intervals(figure, groups, "points more than with λ = 0, 95 % interval over seeds and rows")


def score_of(effect: dict | None) -> str:
    """A mean score × 100, with the number of seeds that failed to train."""
    if effect is None:
        return "not run"
    score = "–" if effect["score"] is None else f"{effect['score']:.1f}"
    return f"{score} ({effect['failed']} failed)" if effect["failed"] else score


def gain_of(effect: dict | None) -> str:
    """A difference × 100 with its interval, and the number of seeds that failed to train."""
    if effect is None:
        return "not run"
    gain = "–"
    if effect.get("interval") is not None:
        low, high = effect["interval"]
        gain = f"{effect['difference']:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{gain}, {effect['failed']} failed" if effect["failed"] else gain


def tuned_settings(ran_with: Mapping | None) -> list[str]:
    """Rate, warm-up and λ of a condition's runs; a linear model has none."""
    if ran_with is None:
        return ["–", "–", "–"]
    return [rate_text(ran_with["learning_rate"]), f"{100 * ran_with['warmup_steps']:g} %", f"{ran_with['lm_coef']:g}"]


def rate_text(rate: float) -> str:
    """A learning rate with all its digits, such as 2.5e-4."""
    digits, exponent = f"{rate:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def spread(scores: list[float]) -> list[str]:
    """Mean, least to greatest, and number of some scores."""
    if not scores:
        return ["–", "–", "0"]
    return [f"{fmean(scores):.1f}", f"{min(scores):.1f} to {max(scores):.1f}", str(len(scores))]


def draw_tuned(figure: Figure) -> None:
    """Differences of two conditions, each tuned, with their 95 % intervals over seeds and rows."""
    by_pair: dict[str, list[dict]] = {}
    for report, _ in tuned_reports():
        for effect in (of for of in report["effects"] if of["difference"] is not None):
            by_pair.setdefault(f"{effect['first']} − {effect['second']}", []).append(effect)
    groups = {}
    for pair, effects in by_pair.items():
        groups[pair] = []
        for effect in effects:
            basis = f"{effect['rows']:,} rows" if effect["interval"] else "no interval"
            label = f"{effect['task']}  ({effect['seeds']} seeds, {basis})"
            groups[pair].append((label, effect["difference"], effect["interval"] or [], BLUE))
    num_lines = sum(map(len, groups.values()))
    figure.set_size_inches(8, 1 + 0.24 * (num_lines + 1.5 * len(groups)))
    draw_intervals(figure, groups, "difference in points, 95 % interval over seeds and rows")


def draw_intervals(
    figure: Figure, groups: Mapping[str, Sequence[tuple[str, float, Sequence[float], str]]], x_label: str
) -> None:
    """A line for each difference, below the title of its group: label, value, both ends of the interval, colour.

    A difference without an interval is a hollow dot.
    """
    axes = figure.subplots()
    labels, place = {}, 0.0
    for title, differences in groups.items():
        place -= 1.5
        labels[place] = title
        for label, value, interval, colour in differences:
            place -= 1
            labels[place] = label
            axes.plot(interval, [place] * len(interval), color=colour, linewidth=2)
            axes.plot([value], [place], "o", color=colour, markersize=5, fillstyle="full" if interval else "none")
    axes.axvline(0, color=INK, linewidth=1)
    axes.set_yticks(list(labels), list(labels.values()))
    for label in axes.get_yticklabels():
        if label.get_text() in groups:
            label.set_weight("bold")
    axes.set_ylim(place - 1, -0.5)
    axes.set_xlabel(x_label)
    axes.grid(axis="x", alpha=0.3)


PANELS_IN_A_LINE = 4


def draw_tuning(figure: Figure) -> None:
    """Held-out scores of the trials over their learning rates: a panel for each condition, a line for each warm-up."""
    of_tasks = [report["tuning"] for report, _ in tuned_reports()]
    num_lines = sum(math.ceil(len(conditions) / PANELS_IN_A_LINE) for conditions in of_tasks)
    figure.set_size_inches(9, 2.5 * num_lines)
    all_axes = figure.subplots(num_lines, PANELS_IN_A_LINE, squeeze=False)
    for axes in all_axes.flat:
        axes.set_axis_off()  # until a condition takes it
    line = 0
    for conditions in of_tasks:
        trials = [trial for condition in conditions for trial in condition["trials"]]
        scores = [trial["score"] for trial in trials if trial["score"] is not None]
        for number, condition in enumerate(conditions):
            axes = all_axes[line + number // PANELS_IN_A_LINE, number % PANELS_IN_A_LINE]
            draw_trials(axes, condition)
            axes.set_ylim(min(scores) - 2, max(scores) + 2)
        line += math.ceil(len(conditions) / PANELS_IN_A_LINE)
    all_axes[0, 0].legend(frameon=False, labelcolor=INK, fontsize=7)


def draw_trials(axes: Axes, condition: Mapping) -> None:
    """The trials of one condition: a marker is filled where λ is above 0; a ring is around the chosen one."""
    axes.set_axis_on()
    warmups = sorted({trial["warmup_steps"] for trial in condition["trials"]})
    for warmup, colour in zip(warmups, (BLUE, ORANGE, GREEN, RED), strict=False):
        trials = [trial for trial in condition["trials"] if trial["warmup_steps"] == warmup]
        trials = [trial for trial in trials if trial["score"] is not None]  # of a run that diverged there is none
        rates, scores = [[trial[name] for trial in trials] for name in ("learning_rate", "score")]
        axes.plot(rates, scores, color=colour, linewidth=1, label=f"warm-up {100 * warmup:g} %")
        for trial in trials:
            fill = colour if lm_coef_of(condition, trial) else "none"
            axes.plot(trial["learning_rate"], trial["score"], "o", color=colour, markerfacecolor=fill, markersize=4)
    chosen = condition["chosen"]
    if chosen is not None:
        axes.plot(chosen["learning_rate"], chosen["score"], "o", color=INK, markerfacecolor="none", markersize=10)
    rates = sorted({trial["learning_rate"] for trial in condition["trials"]})
    use_log_scale(axes, "x", rates)
    axes.set_xticklabels(list(map(rate_text, rates)), fontsize=7)
    variant = condition["variant"]
    place = int(variant.removeprefix("transfer-")) if variant.startswith("transfer-") else variant
    task = condition["task"]
    axes.set_title(f"{LABELS.get(task, task)}: {TUNED_CONDITIONS[place]}", fontsize=8, color=INK)
    axes.grid(alpha=0.3)


def lm_coef_of(condition: Mapping, trial: Mapping) -> float:
    """λ of a trial, which is the condition's own where it was not tuned."""
    if trial["lm_coef"] is not None:
        return trial["lm_coef"]
    return 0.0 if condition["variant"] == "without_auxiliary" else 0.5


def overlap_table() -> str:
    """How much of each scored split size B's pre-training text has, by the n-grams of GPT-2's and GPT-3's papers."""
    by_split: dict[tuple[str, str], dict[int, dict]] = {}
    for found in newest("overlap")["results"]:
        by_split.setdefault((found["task"], found["split"]), {})[found["ngram"]] = found
    rows = []
    for (task, split), of_length in by_split.items():
        shorter, longer = of_length[8], of_length[13]
        cells = [f"{shorter['rows']:,}"]
        for found in (shorter, longer):
            cells += [f"{100 * found['share']:.2f} %", str(len(found["overlapping"]))]
        in_training = "–" if shorter["in_training"] is None else str(len(shorter["in_training"]))
        rows.append([f"{LABELS.get(task, task)}, {split.replace('_', ' ')}", *cells, in_training])
    header = ["", "rows", "8-grams found", "rows with one", "13-grams found", "rows with one", "rows in training"]
    return markdown_table(header, rows)


# ---- Sizes whose conditions have the same settings


def of_task(results: dict, task: str) -> dict:
    """The scores by condition and seed of a task, whose key begins with its name."""
    for key, conditions in results["fine-tuned, by seed"].items():
        if key.partition(",")[0] == task:
            return conditions
    return {}


COMPARISON = re.compile(r"(.+?):? \+?(-?[\d.]+), 95 % interval ([+-][\d.]+) to ([+-][\d.]+)")


def comparisons(results: dict, beginning: str) -> list[tuple[str, float, float, float]]:
    """Label, difference and both ends of the interval of each comparison of a claim."""
    (claim,) = (claim for claim in results["claims"] if claim["claim"].startswith(beginning))
    found = []
    for text in claim["comparisons"]:
        label, value, low, high = COMPARISON.match(text).groups()
        found.append((label.removesuffix(":"), float(value), float(low), float(high)))
    return found


CLAIMS = {
    "full method − no pre-training": "Without pre-training every",
    "full method − no auxiliary objective": "The smaller data sets do better",
    "embeddings alone − no pre-training": "Transferring the embeddings",
    "all layers − embeddings alone": "All layers together",
}


def draw_forest(figure: Figure) -> None:
    """Differences of two conditions with their 95 % intervals."""
    figure.set_size_inches(8, 9)
    groups: dict[str, list] = {title: [] for title in CLAIMS}
    for title, beginning in CLAIMS.items():
        for kind, colour in (("size-a", BLUE), ("size-b", ORANGE)):
            for label, value, low, high in comparisons(newest(kind)["results"], beginning):
                name = f"{label.partition(',')[0]}  ({kind[-1].upper()})"
                groups[title].append((name, value, [low, high], colour))
    draw_intervals(figure, groups, "difference in points, 95 % interval over seeds and rows (A blue, B orange)")


# ---- The paper's claims


def verdicts_table() -> str:
    """The verdict on each of the paper's claims at four sizes."""
    sizes, size_a = newest("sizes")["results"], newest("size-a")["results"]
    columns = [
        newest("reproduction-15m")["claims"],
        newest("reproduction")["claims"],
        sizes["claims at size A"],
        size_a["claims"],
        newest("size-b")["results"]["claims"],
    ]
    found = [{claim["claim"]: claim["verdict"] for claim in claims} for claims in columns]
    rows = []
    for claim in found[0]:
        verdicts = [of_size.get(claim, "not measured") for of_size in found]
        rows.append([claim.rpartition(" (")[0], *verdicts])
    header = ["claim of the paper", "15 M", "60 M", "A, GPU", "A, CPU", "B"]
    return markdown_table(header, rows, align="---")


def draw_layers(figure: Figure) -> None:
    """Scores over the number of layers that are transferred: the paper's figure 2, left."""
    figure.set_size_inches(8, 3.4)
    size_a, size_b = newest("size-a")["results"], newest("size-b")["results"]
    axes = figure.subplots()
    transferred = [f"A, Transformer, {number} layers" for number in range(4)]
    of_a = ["A, Transformer, without pre-training", *transferred, "A, Transformer"]
    of_b = ["without pre-training", *(f"{n} layers" for n in range(8)), "full"]
    curves = (
        ("SST-2, A", of_task(size_a, "sst2"), of_a, BLUE, "-"),
        ("Story Cloze, A", of_task(size_a, "story_cloze"), of_a, BLUE, "--"),
        ("SST-2, B at 5e-4", of_task(size_b, "sst2"), of_b, ORANGE, "-"),
    )
    for label, scores, names, colour, style in curves:
        medians = [100 * median(scores[name].values()) for name in names]
        axes.plot(range(-1, len(medians) - 1), medians, style, marker="o", color=colour, label=label)
    at_small_rate = size_b["fine-tuned at 1e-4, by seed"]["sst2, eval_accuracy"]
    kept = {-1: "without pre-training", 0: "0 layers", 8: "full"}
    medians = [100 * median(at_small_rate[name].values()) for name in kept.values()]
    axes.plot(list(kept), medians, ":", marker="s", color=RED, label="SST-2, B at 1e-4")
    axes.set_xticks(range(-1, 9), ["none", "emb.", *map(str, range(1, 9))])
    axes.set_xlabel("what is transferred: nothing, the embeddings, the first k layers")
    axes.set_ylabel("accuracy × 100")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK)


# ---- Pre-training

RUNS = {
    "A, Transformer": ("A, Transformer 4 × 256", BLUE),
    "A, LSTM": ("A, LSTM 768 units", GREEN),
    "B, Transformer": ("B, Transformer 8 × 512", ORANGE),
}
SHOWN = (14062349, 28124697, 56249395, 84374092, 112498790)


def curve_of(run: str) -> dict[int, float]:
    """The perplexity of 256 held-out blocks of a run by the tokens that it has read."""
    curve = newest("sizes")["results"]["runs"][run]["perplexity of 256 held-out blocks by tokens read"]
    return {int(tokens): perplexity for tokens, perplexity in curve.items()}


def sizes_table() -> str:
    """Perplexities of the three long runs by tokens read."""
    runs = newest("sizes")["results"]["runs"]
    rows = []
    for tokens in SHOWN:
        rows.append([f"{tokens / 1e6:.1f} million", *(f"{curve_of(run)[tokens]:.1f}" for run, _ in RUNS.values())])
    final = [f"{runs[run]['perplexity of all 1,096']:.1f}" for run, _ in RUNS.values()]
    rows.append(["121.9 million, all 1,096 blocks", *final])
    return markdown_table(["tokens read", *RUNS], rows)


def draw_sizes(figure: Figure) -> None:
    """Held-out perplexity over the tokens read."""
    figure.set_size_inches(8, 3.6)
    axes = figure.subplots()
    for label, (run, colour) in RUNS.items():
        curve = curve_of(run)
        axes.plot([tokens / 1e6 for tokens in curve], list(curve.values()), color=colour, marker=".", label=label)
    use_log_scale(axes, "y", [35, 40, 50, 60, 80, 100])
    axes.set_ylim(33, 130)
    axes.set_xlabel("million tokens read")
    axes.set_ylabel("held-out perplexity")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK)


def sweep_rows() -> list[dict]:
    return newest("recipe-sweep")["results"]["rows"]


NAMES = {
    "learning_rate": "learning rate",
    "batch": "blocks per update",
    "warmup": "updates of warm-up",
    "dropout": "dropout",
    "beta2": "β₂",
    "initializer_range": "initial range",
}


def sweep_of_first_round() -> dict[str, dict[str, float]]:
    """Perplexities by what was changed and by family."""
    found: dict[str, dict[str, float]] = {}
    first_round = [row for row in sweep_rows() if row["stage"] == "round 1"]
    order = list(NAMES)
    changes = sorted(
        {(row["changed"], row["settings"][row["changed"]]) for row in first_round if row["changed"]},
        key=lambda change: (order.index(change[0]), change[1]),
    )
    unchanged = [row for row in first_round if not row["changed"]]
    found["nothing"] = {row["settings"]["family"]: row["result"]["perplexity"] for row in unchanged}
    for changed, value in changes:
        of_change = [row for row in first_round if row["changed"] == changed and row["settings"][changed] == value]
        label = f"{NAMES[changed]} {value:g}"
        found[label] = {row["settings"]["family"]: row["result"]["perplexity"] for row in of_change}
    return found


def sweep_table() -> str:
    """What each setting changes, for both families."""
    rows = []
    for label, of_family in sweep_of_first_round().items():
        cells = [f"{of_family[name]:.1f}" if name in of_family else "–" for name in ("transformer", "lstm")]
        rows.append([label, *cells])
    return markdown_table(["changed", "Transformer", "LSTM"], rows)


def draw_sweep(figure: Figure) -> None:
    """Each setting of the sweep as a dot."""
    figure.set_size_inches(8, 5.2)
    axes = figure.subplots()
    rows = sweep_of_first_round()
    for family, label, colour in (("transformer", "Transformer", BLUE), ("lstm", "LSTM", GREEN)):
        of_family = [(scores[family], -number) for number, scores in enumerate(rows.values()) if family in scores]
        axes.plot(*zip(*of_family, strict=True), "o", color=colour, label=label)
    axes.set_yticks([-number for number in range(len(rows))], list(rows))
    use_log_scale(axes, "x", [80, 100, 150, 200, 400, 660])
    axes.set_xlabel("held-out perplexity after 3.0 million tokens")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK, loc="center right")


# ---- BabyLM


ZERO_SHOT = {"cola": "CoLA", "dpr": "DPR", "race": "RACE", "story_cloze": "Story Cloze", "sst2": "SST-2"}


def babylm_table() -> str:
    """Scores of the checkpoints of the run over 100 M words."""
    run = newest("babylm")["results"]["100 M words"]
    rows = []
    zero_shot = newest("size-b")["results"]["zero-shot × 100, by words read"]
    epochs = {"10M": "0.1", "50M": "0.5", "100M": "1", "200M": "2", "281M": "2.8"}
    for words, scores in run["by words read"].items():
        label = f"{words.removesuffix('M')} M"
        blimp = scores["blimp, 50 pairs of each paradigm, by a plain loop"]
        after_stop = scores["the same after a full stop"]
        cells = [f"{100 * score:.1f}" for score in (blimp, after_stop)]
        cells += [f"{zero_shot[label][task]:.1f}" for task in ZERO_SHOT]
        rows.append([label, epochs[words], *cells])
    return markdown_table(["words", "epochs", "BLiMP", "BLiMP after a full stop", *ZERO_SHOT.values()], rows)


def draw_babylm(figure: Figure) -> None:
    """Zero-shot scores over the words read."""
    figure.set_size_inches(8, 3.4)
    axes = figure.subplots()
    scores = newest("babylm")["results"]["100 M words"]["by words read"]
    words = [int(name.removesuffix("M")) for name in scores]
    blimp = [100 * of["blimp, 50 pairs of each paradigm, by a plain loop"] for of in scores.values()]
    axes.plot(words, blimp, "-o", color=BLUE, label="BLiMP, accuracy")
    for task, label, colour in (("dpr", "DPR, accuracy", ORANGE), ("cola", "CoLA, correlation × 100", GREEN)):
        values = [100 * of["zero-shot"][task] for of in scores.values()]
        axes.plot(words, values, "-o", color=colour, label=label)
    axes.axhline(50, color=INK, linewidth=1, linestyle=":")
    axes.text(283, 47.2, "chance", color=INK, fontsize=8, ha="right")
    axes.set_xlabel("million words read")
    axes.set_ylabel("score")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK, loc="center right", bbox_to_anchor=(1, 0.35))


# ---- Speed

ON_CPU = (  # script, work, measure, peer, words of the table
    ("generation", "generation 64 + 192, batch 1, float32", "tokens/s", "OpenAIGPTLMHeadModel", "generate, one text"),
    ("generation", "generation 64 + 192, batch 8, float32", "tokens/s", "GPT2LMHeadModel", "generate, eight texts"),
    (
        "finetuning",
        "RACE-shaped step 1 × 4 × 380, 360 shared, float32",
        "seconds",
        "OpenAIGPTDoubleHeadsModel",
        "fine-tune, one RACE question",
    ),
    (
        "finetuning",
        "Story-Cloze-shaped step 8 × 2 × 64, 50 shared, float32",
        "seconds",
        "OpenAIGPTDoubleHeadsModel",
        "fine-tune, eight stories",
    ),
    ("pretraining", "pre-training step 4 × 512, float32", "tokens/s", "OpenAIGPTLMHeadModel", "pre-train"),
    ("pretraining", "pre-training step 4 × 512, bfloat16", "tokens/s", "OpenAIGPTLMHeadModel", "pre-train, bfloat16"),
)
ON_GPU = (
    ("pre-training step 32 × 512, bfloat16", "GPT2LMHeadModel", "pre-train"),
    ("pre-training step 32 × 512, bfloat16 compiled", "GPT2LMHeadModel", "pre-train, compiled"),
    ("RACE-shaped step 8 × 4 × 380, 360 shared, bfloat16", "OpenAIGPTDoubleHeadsModel", "fine-tune, RACE"),
    (
        "RACE-shaped step 8 × 4 × 380, 360 shared, bfloat16 compiled",
        "OpenAIGPTDoubleHeadsModel",
        "fine-tune, RACE, compiled",
    ),
    (
        "Story-Cloze-shaped step 32 × 2 × 64, 50 shared, bfloat16 compiled",
        "OpenAIGPTDoubleHeadsModel",
        "fine-tune, stories, compiled",
    ),
)


def speed_rows() -> list[tuple[str, str, dict]]:
    """Device, words and the measured row of each line of the speed table."""
    rows = []
    for script, work, measure, peer, words in ON_CPU:
        rows.append(("one CPU core", words, row_of(newest_of_script(script), work, measure, peer)))
    on_gpu = newest("accelerator")["results"]
    for work, peer, words in ON_GPU:
        rows.append(("one H200", words, row_of(on_gpu, work, "seconds", peer)))
    return rows


def speed_table() -> str:
    """How many times as fast the package is as a class of transformers."""
    rows = []
    for device, words, row in speed_rows():
        ratio = row["ratio"]
        times = f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})"
        rows.append([f"{words}, {device}", row["peer"], times])
    return markdown_table(["work", "beside transformers'", "times as fast"], rows)


def draw_speed(figure: Figure) -> None:
    """Ratios of speed as bars on a logarithmic axis."""
    figure.set_size_inches(8, 4.2)
    axes = figure.subplots()
    rows = speed_rows()
    places = range(len(rows), 0, -1)
    ratios = [row["ratio"]["median"] for _, _, row in rows]
    colours = [BLUE if "CPU" in device else ORANGE for device, _, _ in rows]
    # On a logarithmic axis a bar begins at 1, to the left where the peer is faster.
    axes.barh(places, [ratio - 1 for ratio in ratios], left=1, color=colours)
    use_log_scale(axes, "x", [0.5, 1, 2, 4, 8])
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks(places, [f"{words}, {device}" for device, words, _ in rows])
    for place, ratio in zip(places, ratios, strict=True):
        side = "left" if ratio >= 1 else "right"
        text = f" {ratio:.2g} × " if ratio < 10 else f" {ratio:.0f} × "
        axes.text(ratio, place, text, color=INK, va="center", ha=side, fontsize=8)
    axes.set_xlim(0.45, 16)
    axes.set_xlabel("times as fast as transformers' class")
    axes.grid(axis="x", alpha=0.3)


def shown(value: float) -> str:
    """Three significant digits, or a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table_of_ratios(rows: list[dict]) -> str:
    """Ours, the peer's and the ratio of each row."""
    lines = []
    for row in rows:
        ratio = row["ratio"]
        times = f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})"
        ours, theirs = shown(row["ours"]["median"]), shown(row["theirs"]["median"])
        lines.append([f"{row['work']}: {row['measure']}", row["peer"], ours, theirs, times])
    return markdown_table(["work", "peer", "gpt1-hf", "the peer", "times better"], lines)


def gpu_table() -> str:
    """Training on a GPU beside the classes of transformers and a plain loop."""
    training = [row for row in newest("accelerator")["results"] if not row["work"].startswith("generation")]
    return table_of_ratios(training + newest("plain-loop")["results"])


def gpu_generation_table() -> str:
    """Generation on a GPU beside the classes of transformers, in the newest file that has them."""
    for path in sorted(RESULTS.glob("????-??-??-accelerator.json"), reverse=True):
        rows = json.loads(path.read_text(encoding="utf-8"))["results"]
        found = [row for row in rows if row["work"].startswith("generation") and row["measure"] == "seconds"]
        if any(row["peer"] == "GPT2LMHeadModel" for row in found):
            return table_of_ratios(found)
    raise ValueError(f"No file in {RESULTS} has generation on a GPU.")


# ---- Benchmarks

RACE, STORIES = (
    "RACE-shaped step 1 × 4 × 380, 360 shared, float32",
    "Story-Cloze-shaped step 8 × 2 × 64, 50 shared, float32",
)
GPT, HEADS, TOKENIZER = "OpenAIGPTLMHeadModel", "OpenAIGPTDoubleHeadsModel", "OpenAIGPTTokenizer"
ROWS_ON_CPU = (  # words of the table, script, work, peer, measures: of speed, then of memory if it was measured
    ("pre-train", "pretraining", "pre-training step 4 × 512, float32", GPT, ("tokens/s", "peak − before MiB")),
    (
        "pre-train, bfloat16",
        "pretraining",
        "pre-training step 4 × 512, bfloat16",
        GPT,
        ("tokens/s", "peak − before MiB"),
    ),
    ("fine-tune, RACE", "finetuning", RACE, HEADS, ("seconds", "step MiB")),
    ("fine-tune, stories", "finetuning", STORIES, HEADS, ("seconds", "step MiB")),
    ("score, 4 answers", "scoring", "scoring 8 questions of 312 tokens, 4 answers each, float32", GPT, ("seconds",)),
    ("generate, one text", "generation", "generation 64 + 192, batch 1, float32", GPT, ("tokens/s",)),
    (
        "tokenise rows",
        "tokenizer_parity",
        "tokenise 200,000 short rows a round, 100,000 a call, 1 thread",
        TOKENIZER,
        ("MB/s", "peak MiB"),
    ),
)
ROWS_ON_GPU = (  # words of the table, work, peer
    ("pre-train", "pre-training step 32 × 512, bfloat16", GPT),
    ("fine-tune, RACE", "RACE-shaped step 8 × 4 × 380, 360 shared, bfloat16", HEADS),
    ("fine-tune, stories", "Story-Cloze-shaped step 32 × 2 × 64, 50 shared, bfloat16", HEADS),
)


def benchmark_rows() -> list[tuple[str, list[dict]]]:
    """Words of each line of the table, with the measured rows of its speed and, if there is one, of its memory."""
    lines = []
    for words, script, work, peer, measures in ROWS_ON_CPU:
        rows = newest_of_script(script)
        lines.append((f"{words}, one CPU core", [row_of(rows, work, measure, peer) for measure in measures]))
    on_gpu = newest("accelerator")["results"]
    for words, work, peer in ROWS_ON_GPU:
        of_work = [row_of(on_gpu, work, measure, peer) for measure in ("seconds", "peak MiB")]
        lines.append((f"{words}, one H200", of_work))
    return lines


def benchmarks_table() -> str:
    """Ours, the peer's and the ratio of each row of the picture."""
    lines = []
    for words, rows in benchmark_rows():
        for row in rows:
            ratio = row["ratio"]
            times = f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})"
            ours, theirs = shown(row["ours"]["median"]), shown(row["theirs"]["median"])
            lines.append([f"{words}: {row['measure']}", row["peer"], ours, theirs, times])
    return markdown_table(["work", "peer", "gpt1-hf", "the peer", "times better"], lines)


def draw_benchmarks(figure: Figure) -> None:
    """Ratios of speed and of memory as two bars of each work."""
    figure.set_size_inches(8, 5.2)
    axes = figure.subplots()
    lines = benchmark_rows()
    height = 0.38
    for number, (_, rows) in enumerate(lines):
        for kind, row in enumerate(rows):  # speed above, memory below
            place = -number + height * (0.5 - kind)
            ratio = row["ratio"]["median"]
            axes.barh(place, ratio - 1, height, left=1, color=(BLUE, ORANGE)[kind])
            text = f" {ratio:.2g} × " if ratio < 10 else f" {ratio:.0f} × "
            axes.text(ratio, place, text, color=INK, va="center", ha="left" if ratio >= 1 else "right", fontsize=8)
    for colour, label in ((BLUE, "speed"), (ORANGE, "memory of a step")):
        axes.barh(0, 0, color=colour, label=label)
    use_log_scale(axes, "x", [1, 2, 4, 8])
    axes.axvline(1, color=INK, linewidth=1)
    axes.set_yticks([-number for number in range(len(lines))], [words for words, _ in lines])
    axes.set_xlim(0.9, 16)
    axes.set_xlabel("times better than transformers' class")
    axes.grid(axis="x", alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK, loc="lower right")


# ---- lm-evaluation-harness

EVALUATED = {"blimp": "BLiMP", "hellaswag": "HellaSwag", "storycloze_2016": "Story Cloze", "arc_easy": "ARC, easy"}
EVALUATED |= {"copa": "COPA", "rte": "RTE"}


def evaluated(task: str) -> list[tuple[str, float, float, float]]:
    """Model, accuracy, standard error and chance × 100 of a task without examples, for each model."""
    found = []
    for model in newest("evaluation-grid")["results"]["models"]:
        for run in model["runs"]:
            if run["num_fewshot"] == 0 and task in run["results"]:
                result = run["results"][task]
                chance = result["rows"]["chance"] if "rows" in result else 0.5
                found.append((model["model"], 100 * result["acc"], 100 * result["acc_stderr"], 100 * chance))
    return found


def evaluation_table() -> str:
    """Accuracies of both small models beside chance."""
    rows = []
    for task, name in EVALUATED.items():
        of_models = evaluated(task)
        cells = [f"{accuracy:.1f} ± {error:.1f}" for _, accuracy, error, _ in of_models]
        rows.append([name, *cells, f"{of_models[0][3]:.0f}"])
    return markdown_table(["task", "Transformer", "LSTM", "chance"], rows)


def draw_evaluation(figure: Figure) -> None:
    """Accuracies with two standard errors, and chance."""
    figure.set_size_inches(8, 3.4)
    axes = figure.subplots()
    for number, task in enumerate(EVALUATED):
        places = ((BLUE, -0.12), (GREEN, 0.12))
        for (_, accuracy, error, chance), (colour, shift) in zip(evaluated(task), places, strict=True):
            axes.errorbar([number + shift], [accuracy], [2 * error], fmt="o", color=colour)
            axes.plot([number - 0.35, number + 0.35], [chance, chance], color=INK, linewidth=1)
    axes.set_xticks(range(len(EVALUATED)), list(EVALUATED.values()))
    axes.set_ylabel("accuracy, ± 2 standard errors")
    axes.set_xlabel("Transformer blue, LSTM green; the lines are chance")
    axes.grid(axis="y", alpha=0.3)


# ---- Memory, planned

LAUNCH_FILES = ("ddp.yaml", "fsdp2.yaml", "deepspeed_zero2.yaml", "deepspeed_zero3.yaml")
SETTINGS = ("bf16", "bf16, checkpointing", "float32, checkpointing", "bf16, checkpointing, unsynchronised")


def memory_table() -> str:
    """The least number of GPUs of 24, 40 and 80 GiB for each size and launch file."""
    all_rows = newest("scale")["results"]["sizes"]
    planned = {(row["size"], row["launch"], row["setting"]): row["least"] for row in all_rows}
    sizes = list(dict.fromkeys(size for size, _, _ in planned))
    rows = []
    for size in sizes[sizes.index("1.3B") :]:
        for launch in LAUNCH_FILES:
            cells = []
            for setting in SETTINGS:
                least = planned.get((size, launch, setting))
                cells.append(" / ".join(str(number or "–") for number in least.values()) if least else "")
            rows.append([size, launch, *cells])
    return markdown_table(["size", "launch file", *SETTINGS], rows, align="---")


def draw_memory(figure: Figure) -> None:
    """The least number of GPUs by the size of the model."""
    figure.set_size_inches(8, 3.4)
    axes = figure.subplots()
    planned = newest("scale")["results"]["sizes"]
    sizes = list(dict.fromkeys(row["size"] for row in planned))
    rows = [row for row in planned if row["launch"] == "fsdp2.yaml" and row["setting"] == "bf16, checkpointing"]
    for memory, colour in (("24", RED), ("40", ORANGE), ("80", BLUE)):
        least = {row["size"]: row["least"][memory] for row in rows if row["least"][memory]}
        axes.plot(list(map(sizes.index, least)), list(least.values()), "-o", color=colour, label=f"{memory} GiB each")
    axes.set_xticks(range(len(sizes)), sizes)
    use_log_scale(axes, "y", [1, 2, 4, 8, 16, 32, 64, 128, 256])
    axes.set_ylabel("least number of GPUs")
    axes.set_xlabel("size (fsdp2.yaml, bf16, checkpointing; planned, not measured)")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, labelcolor=INK)


# ---- Writing

DRAWN: dict[str, Callable[[Figure], None]] = {
    "tuned": draw_tuned,
    "tuning": draw_tuning,
    "forest": draw_forest,
    "layers": draw_layers,
    "objective": draw_decoder_objective,
    "perplexity": draw_sizes,
    "sweep": draw_sweep,
    "babylm": draw_babylm,
    "speed": draw_speed,
    "benchmarks": draw_benchmarks,
    "evaluation": draw_evaluation,
    "memory": draw_memory,
}
# ---- Programs that nobody here wrote


def clients_table() -> str:
    """A row for each client of tests/clients/: versions, date, and each figure with its bound."""
    rows = []
    for line in newest("clients")["clients"].values():
        versions = ", ".join(f"{package} {version}" for package, version in line.get("versions", {}).items())
        if line["passed"]:
            outcome = "; ".join(map(figure_text, line["figures"]))
        else:
            outcome = f"not run: {line['not run']}" if "not run" in line else "failed"
        rows.append([f"[{line['title']}](#{anchor_of(line['title'])})", versions, line["date"], outcome])
    return markdown_table(["program", "versions", "run on", "compared"], rows, align="---")


def anchor_of(title: str) -> str:
    """The anchor of a heading of a page, as MkDocs makes it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


BOUNDS = {"at_most": "at most", "at_least": "at least", "equals": "must be"}


def figure_text(figure: dict) -> str:
    """A figure of a client with its bound, if it has one."""
    text = f"{figure['what']}: {figure['value']:.3g}"
    for key, words in BOUNDS.items():
        if figure[key] is not None:
            text += f" ({words} {figure[key]:g})"
    return text


TABLES: dict[str, Callable[[], str]] = {
    "worth": worth_table,
    "tuned": tuned_table,
    "agreement": agreement_table,
    "layers": layers_table,
    "epochs": epochs_table,
    "decoder_objective": decoder_objective_table,
    "overlap": overlap_table,
    "conditions": conditions_table,
    "verdicts": verdicts_table,
    "perplexity": sizes_table,
    "sweep": sweep_table,
    "babylm": babylm_table,
    "speed": speed_table,
    "benchmarks": benchmarks_table,
    "gpu": gpu_table,
    "gpu_generation": gpu_generation_table,
    "evaluation": evaluation_table,
    "memory": memory_table,
    "clients": clients_table,
}
MARK = re.compile(r"<!-- table: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def use_log_scale(axes: Axes, side: str, ticks: list[float]) -> None:
    """A logarithmic axis with these numbers written out."""
    axes.set(**{f"{side}scale": "log"})
    axis = axes.xaxis if side == "x" else axes.yaxis
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def draw(name: str, folder: Path) -> Path:
    """Draws a picture into a folder."""
    import matplotlib
    from matplotlib.figure import Figure

    style = {
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "font.size": 9,
        "grid.color": INK,
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # equal figures give equal files
        "xtick.color": INK,
        "ytick.color": INK,
    }
    path = folder / f"{name}.svg"
    with matplotlib.rc_context(style):
        figure = Figure(layout="constrained")
        DRAWN[name](figure)
        figure.savefig(path, transparent=True, metadata={"Date": None})
    return path


def fill(page: str) -> str:
    """The text of a page with its tables made anew."""
    return MARK.sub(lambda hit: f"<!-- table: {hit[1]} -->\n\n{TABLES[hit[1]]()}\n\n<!-- end -->", page)


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name in DRAWN:
        print(draw(name, PICTURES).relative_to(ROOT))
    for path in (*sorted(PAGES.glob("*.md")), ALL_ROWS, CLIENTS_PAGE):
        path.write_text(fill(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
