"""The report of the experiments: tables, figures and claims as literals; the whole page, also with hostile texts."""

import base64
import copy
import json
import random
import re
from types import MappingProxyType

import numpy as np
import pytest
from scipy.stats import norm
from support.markup import Markup

from modeling_gpt1.reproduction import claims, figures
from modeling_gpt1.reproduction import report as look
from modeling_gpt1.reproduction.published import PAPER_URL
from modeling_gpt1.reproduction.report import build_report
from modeling_gpt1.reproduction.scores import Scores
from modeling_gpt1.reproduction.tables import AVERAGES, Cells, standard_error

METRICS = {"cola": "matthews_correlation", "mrpc": "f1", "qqp": "f1", "stsb": "pearson"}


def fine_tuned(task, variant, seed, score, n_transfer=None, **settings):
    """A finished cell, as a `CellStore` keeps it."""
    metric = METRICS.get(task, "accuracy")
    prefix = "predict" if task == "story_cloze" else "eval"
    return {
        **{"kind": "fine_tuning", "task": task, "variant": variant, "n_transfer": n_transfer, "lm_coef": None},
        **{"seed": seed, "model": "GPT-1 (2 layers, 32 wide)", "seconds": 30.0},
        "settings": {"num_train_epochs": "3", **settings},
        "metrics": {"eval_loss": 1.0, f"{prefix}_{metric}": score / 100},
    }


def asked(family, step, **normalised):
    """A checkpoint's zero-shot cell, of 400 rows a task."""
    tasks = {
        name: {
            **{"accuracy": 0.5 + value * 0.432, "normalised": value, "metric": "accuracy", "chance": 0.5},
            **{"best_known": 0.932, "split": "validation", "num_rows": 400},
        }
        for name, value in normalised.items()
    }
    return {
        **{"kind": "zero_shot", "model": family, "family": family, "step": step, "tokens": 512 * step},
        **{"tasks": tasks, "settings": {}},
    }


# Rows of table 5 on two tasks of the paper's and one more: seeds apart, overlapping, single, missing.
SCORES = {("rte", "full"): [54.0, 56.0], ("rte", "without_pretraining"): [52.0, 53.0]}
SCORES |= {("rte", "without_auxiliary"): [55.0, 57.0], ("rte", "lstm"): [57.0, 58.0]}
SCORES |= {("cola", "full"): [20.0, 22.0], ("cola", "without_pretraining"): [-1.0, 3.0]}
SCORES |= {("cola", "without_auxiliary"): [25.0, 26.0], ("cola", "lstm"): [10.0]}
SCORES |= {("story_cloze", "full"): [60.0, 61.0], ("story_cloze", "without_pretraining"): [50.0, 51.0]}
CELLS = [
    fine_tuned(task, variant, seed, score, **({"max_train_samples": "1000"} if task == "cola" else {}))
    for (task, variant), scores in SCORES.items()
    for seed, score in enumerate(scores, start=1)
]
CELLS += [
    fine_tuned("rte", "transfer", seed, score, n_transfer)
    for n_transfer, scores in {0: [53.5, 55.0], 1: [53.0, 54.5]}.items()
    for seed, score in enumerate(scores, start=1)
]
CELLS += [
    asked(family, step, sst2=value)
    for family, values in {"gpt1": (0.0, 0.1, 0.3, 0.5), "gpt1-lstm": (0.0, 0.3, 0.0, 0.1)}.items()
    for step, value in zip((0, 100, 200, 400), values, strict=True)
]
MISSING = ("cola", 2, "failed: out of memory"), ("story_cloze", 1, "not run yet"), ("story_cloze", 2, "not run yet")
ABOUT = {
    "title": "A small reproduction",
    "models": [
        {
            **{"name": "GPT-1 (2 layers, 32 wide)", "parameters": 1234567, "config": {"num_hidden_layers": 2}},
            "pretraining": {"tokens": 51200, "updates": 400, "perplexity": 71.25},
        },
        {"name": "LSTM (1 layer, 64 wide)", "parameters": 1000000, "config": {}, "pretraining": {}},
    ],
    "environment": {"cores": 2, "torch": "2.13.0"},
    "commands": ["gpt1 reproduce --output_dir report"],
    "unfinished": [
        {"kind": "fine_tuning", "task": task, "variant": "lstm", "n_transfer": None, "seed": seed, "reason": reason}
        for task, seed, reason in MISSING
    ],
    "date": "2018-06-11",
}


@pytest.fixture(scope="module")
def report():
    return build_report(CELLS, **ABOUT)


def by_key(items, key="id"):
    return {item[key]: item for item in items}


# ---- Rows and their answers


def answered(task, variant, seed, share):
    """A cell that kept its answers to 400 rows, of which a share is right."""
    draw = random.Random(f"{variant}{seed}None")
    labels = [1] * 240 + [0] * 160
    predictions = [label if draw.random() < share else 1 - label for label in labels]
    right = sum(map(int.__eq__, labels, predictions)) / 4
    cell = fine_tuned(task, variant, seed, right)
    rows = {"labels": " ".join(map(str, labels)), "predictions": " ".join(map(str, predictions))}
    return {**cell, "answers": {"validation": rows}}


@pytest.fixture(scope="module")
def answered_report():
    variants = {"full": 0.75, "without_pretraining": 0.6, "without_auxiliary": 0.75, "lstm": 0.9}
    cells = [answered("rte", variant, seed, share) for variant, share in variants.items() for seed in (1, 2, 3)]
    model = {**ABOUT["models"][0], "pretraining": {"tokens": 4000, "updates": 9, "perplexity": 50.0}}
    return build_report(cells, title="Answers", models=[model], date="2018-06-11")


def test_intervals_and_baselines(answered_report):
    table = by_key(answered_report["tables"])["table-5"]
    columns, rows = by_key(table["columns"], "key"), by_key(table["rows"], "key")
    assert columns["rte"]["baselines"] == {"rows": 400, "majority": 60.0}
    assert columns["average-accuracy"]["baselines"] == {"majority": 60.0}
    assert columns["cola"]["baselines"] is None
    measured = rows["full"]["cells"]["rte"]["measured"]
    assert measured["interval"][0] < measured["median"] < measured["interval"][1]
    claims_of = {claim["claim"]: claim for claim in answered_report["claims"]}
    gain = claims_of["Without pre-training every task scores lower (section 5, table 5)."]
    assert gain["verdict"] == "holds"
    assert "95 % interval +" in gain["comparisons"][0]["text"]
    small = claims_of["The smaller data sets do better without the auxiliary objective (section 5, table 5)."]
    assert small["verdict"] == "undecided"
    lstm = claims_of["The Transformer has a higher average score than an LSTM (section 5, table 5)."]
    (comparison,) = lstm["comparisons"]
    assert (lstm["verdict"], comparison["outcome"]) == ("does not hold", "worse")
    assert comparison["p"] < 0.05
    assert "95 % interval -" in comparison["text"]
    assert comparison["text"].endswith(f", p {comparison['p']:.2g}")
    rte = [row for row in Markup(look.page(answered_report)).rows if row and row[0] == "RTE Accuracy"][-1]
    low, high = measured["interval"]
    assert rte[1:3] == ["400", "60.0"]
    assert rte[4].endswith(f"3 seeds 95 %: {low:.1f} to {high:.1f} validation")


def test_all_runs_of_a_task_are_scored_alike():
    """On one split, and with an interval only if every run kept its answers."""
    cells = [answered("rte", "full", seed, 0.7) for seed in (1, 2, 3)]
    cells[2]["answers"] = {}
    cells.append(fine_tuned("cola", "full", 1, 9.0))  # has none, so the average has no baseline
    of_seeds = ({"predict_accuracy": 0.9, "eval_accuracy": 0.5}, {"eval_accuracy": 0.6})
    cells += [{**fine_tuned("snli", "full", seed, 0), "metrics": of} for seed, of in enumerate(of_seeds)]
    found = by_key(build_report(cells, title="")["tables"])["table-2"]["rows"][0]["cells"]
    assert found["rte"]["measured"]["seeds"] == [1, 2, 3]
    assert "interval" not in found["rte"]["measured"]
    assert (found["snli"]["measured"]["median"], found["snli"]["settings"]) == (55.0, "validation")


def test_a_sample_of_a_large_data_set_is_a_small_one():
    cells = [
        {**answered("qqp", variant, seed, 0.7), "train_rows": 10_000}
        for variant in ("full", "without_auxiliary")
        for seed in (1, 2)
    ]
    large, small = build_report(cells, title="")["claims"][2:4]
    assert large["verdict"] == "not measured"
    assert small["comparisons"][0]["text"].startswith("QQP ")


@pytest.mark.parametrize(
    ("signs", "verdict", "verdict_of_harm"),
    [("", "not measured", "not measured"), ("++", "holds", "does not hold"), ("-", "does not hold", "holds")]
    + [("-0", "does not hold", "undecided"), ("00", "undecided", "undecided")]
    + [(signs, "mixed", "mixed") for signs in ("+-", "+-0")]
    + [(signs, "undecided", "does not hold") for signs in ("+0", "+?")],
)
def test_verdicts(signs, verdict, verdict_of_harm):
    """Of a claim that something helps, and of one that it harms."""
    found = {"+": (1.0, 1e-4), "-": (-1.0, 1e-4), "0": (1.0, 0.3), "?": (9.0, None)}
    comparisons = [claims.Comparison("", *found[sign]) for sign in signs]
    assert (claims.judge(comparisons)[0], claims.judge(comparisons, -1)[0]) == (verdict, verdict_of_harm)


def test_many_comparisons_need_more_each():
    one = claims.Comparison("RTE +1.0", 1.0, 0.02)
    assert claims.judge([one])[1] == [{"outcome": "better", "text": "RTE +1.0, p 0.02", "p": 0.02}]
    _, told = claims.judge([one, one, claims.Comparison("", 1.0, None)])
    assert [(of["outcome"], of["p"]) for of in told] == [("better", 0.04), ("better", 0.04), ("level", None)]
    assert [of["outcome"] for of in claims.judge([one] * 3)[1]] == ["level"] * 3


def test_the_score_of_a_few_rows_is_not_certain():
    assert standard_error(1.0, 100, "accuracy") == pytest.approx(0.01)


def test_zero_shot_scores_are_compared_two_sided_by_the_errors_of_both():
    found = claims.by_rows("SST-2", "after", (0.5, 0.03), (0.4, 0.04))
    assert (found.difference, found.p) == pytest.approx((0.1, 2 * norm.sf(2)))


def test_a_cell_has_the_mean_and_the_median_of_its_seeds():
    cells = [fine_tuned("rte", "full", seed, score) for seed, score in enumerate((50.0, 51.0, 58.0), start=1)]
    cell = build_report(cells, title="")["tables"][0]["rows"][0]["cells"]["rte"]
    expected = {"mean": 53.0, "median": 51.0, "lowest": 50.0, "highest": 58.0, "seeds": [1, 2, 3]}
    assert cell["measured"] == expected


def test_the_constant_answer_of_a_task_in_parts_is_the_mean_of_the_parts():
    """Three of four rows of one class, and two of four."""
    metrics = {f"eval_validation_{part}_accuracy": 0.5 for part in ("matched", "mismatched")}
    labels = {"validation_matched": "0 0 0 1", "validation_mismatched": "0 1 2 2"}
    answers = {split: {"labels": of_split, "predictions": "0 0 0 0"} for split, of_split in labels.items()}
    found = Cells([{**fine_tuned("mnli", "full", 1, 0.0), "metrics": metrics, "answers": answers}])
    assert found.baselines("mnli") == {"rows": 8, "majority": 62.5}


def test_a_task_has_as_many_training_rows_as_its_largest_run():
    cells = [{**fine_tuned("qqp", "full", seed, 50.0), "train_rows": rows} for seed, rows in ((1, 10), (2, 20))]
    assert Cells(cells).training_rows("qqp") == 20


# ---- The report as a dictionary


def test_table_5(report):
    table = by_key(report["tables"])["table-5"]
    columns = [(column["label"], column["metric"]) for column in table["columns"]]
    assert columns[:3] == [
        ("Average accuracy", "of RTE"),
        ("Average correlation", "of CoLA"),
        ("CoLA", "Matthews correlation"),
    ]
    rows = by_key(table["rows"], "key")
    assert list(rows) == ["full", "without_pretraining", "without_auxiliary", "lstm"]
    seed_by_seed, cola = "mean over the tasks, seed by seed", "validation; max_train_samples 1000"
    for row, key, paper, median, seeds, settings, missing in (
        ("full", "average-accuracy", 56.0, 55.0, [1, 2], seed_by_seed, ""),
        ("full", "cola", 45.4, 21.0, [1, 2], cola, ""),
        ("full", "mnli", 81.8, None, None, "", "not measured"),
        ("full", "story_cloze", None, 60.5, [1, 2], "test", ""),
        ("lstm", "average-correlation", 30.3, 10.0, [1], seed_by_seed, ""),
        ("lstm", "cola", 30.3, 10.0, [1], cola, "seed 2: failed: out of memory"),
        ("lstm", "story_cloze", None, None, None, "", "seed 1: not run yet; seed 2: not run yet"),
    ):
        cell = rows[row]["cells"][key]
        found = cell["measured"] or {"median": None, "seeds": None}
        assert (cell["paper"], found["median"], found["seeds"]) == (paper, median, seeds), (row, key)
        assert (cell["settings"], cell["missing"]) == (settings, missing), (row, key)


def test_parts_and_all_tasks():
    """MNLI's two columns and their mean, RACE's three from one run, and an average of each kind of score."""
    tasks = {"cola": 40.0, "sst2": 90.0, "mrpc": 80.0, "stsb": 80.0, "qqp": 70.0, "qnli": 80.0, "rte": 60.0}
    cells = [fine_tuned(task, "full", 1, score) for task, score in tasks.items()]
    mnli = {"eval_validation_matched_accuracy": 0.81, "eval_validation_mismatched_accuracy": 0.79}
    cells.append({**fine_tuned("mnli", "full", 1, 0.0), "metrics": mnli})
    # The paper trains one model on RACE and scores it on the parts too.
    cells.append(fine_tuned("race", "full", 1, 50.0))
    parts = {"race-middle": 56.0, "race-high": 44.0}
    cells += [{**fine_tuned(part, "full", 1, score), "seconds": None} for part, score in parts.items()]
    cells.append({**fine_tuned("snli", "full", 1, float("nan")), "metrics": {}})
    report = build_report(cells, title="")
    assert report["measured"]["fine_tuning_runs"] == 12
    tables = by_key(report["tables"])
    row = tables["table-5"]["rows"][0]["cells"]
    assert [column["key"] for column in tables["table-5"]["columns"]][-2:] == ["rte", "race"]
    averages = {key: (row[key]["paper"], row[key]["measured"]["median"]) for key in AVERAGES}
    assert averages == {
        "average-accuracy": (79.3, 77.5),  # SST-2 90, MNLI 80, QNLI 80, RTE 60
        "average-correlation": (63.7, 60.0),  # CoLA 40, STS-B 80
        "average-f1": (76.3, 75.0),  # MRPC 80, QQP 70
    }
    assert tables["table-5"]["rows"][3]["cells"]["average-f1"]["missing"] == "not measured"
    parts = {**tables["table-2"]["rows"][0]["cells"], **tables["table-3"]["rows"][0]["cells"], "mnli": row["mnli"]}
    found = {key: cell["measured"]["median"] for key, cell in parts.items() if cell["measured"]}
    assert found == {
        **{"mnli-m": 81.0, "mnli-mm": 79.0, "mnli": 80.0, "qnli": 80.0, "rte": 60.0},
        **{"race": 50.0, "race-m": 56.0, "race-h": 44.0},
    }
    assert parts["snli"]["missing"] == "not measured"


def test_figures(report):
    left, right = report["figures"]
    assert list(left["panels"]) == ["RTE"]
    assert list(right["panels"]) == ["SST-2"]
    rte, sst2 = left["panels"]["RTE"], right["panels"]["SST-2"]
    assert rte["note"] == "validation split; bars from the lowest to the highest seed"
    assert [tuple(point.values()) for point in rte["curves"]["Transformer"]] == [
        *((-1, 52.5, 52.0, 53.0), (0, 54.25, 53.5, 55.0), (1, 53.75, 53.0, 54.5), (2, 55.0, 54.0, 56.0)),
    ]
    assert list(sst2["curves"]) == ["Transformer", "LSTM"]
    theirs = sst2["curves"]["LSTM"]
    assert [(point["x"], point["y"]) for point in theirs] == [(0, 0.0), (100, 0.3), (200, 0.0), (400, 0.1)]
    # √(0.5 · 0.5 / 400) / 0.432, twice
    assert (theirs[0]["lowest"], theirs[0]["highest"]) == (-0.1157, 0.1157)
    assert sst2["note"] == "0 is Accuracy 50.0, 1 is 93.2; 400 rows of validation; bars are two standard errors"


class Found(Cells):
    """Cells that have these mean scores, by row and column and by column and number of layers, of three seeds."""

    def __init__(self, by_row=MappingProxyType({}), layers=MappingProxyType({})):
        super().__init__([])
        self.by_row, self.layers = by_row, layers
        self.averaged = {key: ["mrpc"] if key == "average-f1" else [] for key in AVERAGES}

    def scores(self, key, place):
        if key in AVERAGES:
            return super().scores(key, place)
        means = getattr(self, "by_row", {}).get(place, {})
        return sure(means[key]) if key in means else {}

    def transfer(self):
        return {key: {at: sure(mean) for at, mean in curve.items()} for key, curve in self.layers.items()}


def sure(mean: float) -> Scores:
    """Three seeds about a mean, on rows that all settings answer alike."""
    base = np.append(0.0, np.random.default_rng(0).normal(size=1000))
    return {seed: base + seed / 9 + mean * (np.arange(1001) == 0) for seed in (1, 2, 3)}


def verdicts_of(*found) -> list[str]:
    return [claim["verdict"] for claim in claims.judge_claims(Found(*found))]


def test_what_each_claim_says():
    """The paper's own order of settings makes its claims about table 5 hold, the reverse refutes them."""
    paper = {"full": (50, 50), "without_pretraining": (40, 40), "without_auxiliary": (60, 40), "lstm": (60, 40)}

    def scores(sign):
        return {row: {"mrpc": sign * small, "mnli": sign * large} for row, (small, large) in paper.items()}

    for sign, yes, no in ((1, "holds", "does not hold"), (-1, "does not hold", "holds")):
        assert verdicts_of(scores(sign))[:7] == [yes, yes, yes, yes, no, yes, yes]  # the average here is MRPC's


def test_the_ends_say_nothing_of_the_layers_between():
    curves = ({0: 50, 12: 60}, {0: 50, 6: 55, 12: 60}, {0: 50, 6: 45, 12: 60})
    found = [verdicts_of({}, {"rte": curve})[7:10] for curve in curves]
    assert found == [["not measured", *of, "holds"] for of in (["not measured"], ["holds"], ["mixed"])]


def test_what_lacks_a_row_or_an_end():
    """An average is over the tasks that every row has; a curve without its ends has the points between them."""
    runs = {("rte", "full"): 60.0, ("rte", "lstm"): 60.0, ("cola", "full"): 9.0}
    cells = [fine_tuned(*run, 1, score) for run, score in runs.items()]
    cells += [fine_tuned("rte", "transfer", 1, 50.0 + layers, layers) for layers in (0, 1)]
    report = build_report([cell for cell in cells if cell["variant"] != "full" or cell["task"] == "cola"], title="")
    points = report["figures"][0]["panels"]["RTE"]["curves"]["Transformer"]
    assert [(point["x"], point["y"]) for point in points] == [(0, 50.0), (1, 51.0)]
    assert build_report(cells, title="")["tables"][3]["columns"][0]["metric"] == "of RTE"


def test_an_average_is_over_the_seeds_that_all_its_tasks_have():
    runs = {("rte", 1): 60.0, ("rte", 2): 70.0, ("sst2", 1): 80.0, ("sst2", 3): 90.0}
    cells = [fine_tuned(task, "full", seed, score) for (task, seed), score in runs.items()]
    row = by_key(build_report(cells, title="")["tables"])["table-5"]["rows"][0]["cells"]
    assert row["average-accuracy"]["measured"]["seeds"] == [1]
    assert row["average-accuracy"]["measured"]["median"] == 70.0


def test_seeds_without_a_score_do_not_count():
    cells = [fine_tuned("stsb", "full", seed, score) for seed, score in enumerate((20.0, 22.0, float("nan")), start=1)]
    cell = build_report(cells, title="")["tables"][2]["rows"][0]["cells"]["stsb"]
    assert cell["measured"] == {"mean": 21.0, "median": 21.0, "lowest": 20.0, "highest": 22.0, "seeds": [1, 2]}


def test_claims(report):
    """Two seeds decide nothing; zero-shot curves have none."""
    few = "fewer than 3 seeds decide nothing"
    found = [(claim["verdict"], [of["text"] for of in claim["comparisons"]]) for claim in report["claims"]]
    assert {place: found[place] for place in (0, 1, 2, 4, 8, 10, 11, 12)} == {
        0: ("undecided", [f"Average accuracy of RTE: +2.5, {few}", f"Average correlation of CoLA: +20.0, {few}"]),
        # By size: CoLA's runs were cut to 1000 rows, Story Cloze has 1497, RTE 2490.
        1: ("undecided", [f"CoLA +20.0, {few}", f"Story Cloze +10.0, {few}", f"RTE +2.5, {few}"]),
        2: ("not measured", []),
        4: ("undecided", [f"Average accuracy of RTE: -2.5, {few}", f"Average correlation of CoLA: +10.0, {few}"]),
        8: ("undecided", [f"RTE, 1 layers against 0: -0.5, {few}", f"RTE, 2 layers against 1: +1.2, {few}"]),
        # √(0.716 · 0.284 / 400) / 0.432 = 0.052, and 0.058 of the LSTM
        10: ("holds", ["SST-2: 0.50 after 0.00, +0.50, standard error 0.07, p < 0.001"]),
        11: ("holds", ["SST-2: 0.50 against 0.10, +0.40, standard error 0.08, p < 0.001"]),
        # √((0.3² + 0.3² + 0.1²) / 6) and √((0.1² + 0.2² + 0.2²) / 6)
        12: (
            "undecided",
            ["SST-2: standard deviation 0.178 (LSTM) against 0.122 (Transformer), rows alone 0.058, p 0.71"],
        ),
    }
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert report["settings"] == {"seeds": [1, 2], "num_train_epochs": "3"}
    assert list(report["measured"].values()) == [23, ["cola", "rte", "story_cloze"], 8, 3]


def test_parts_of_race_wait_for_the_whole():
    waiting = {**ABOUT["unfinished"][1], "task": "race", "variant": "full"}
    cells = by_key(build_report([], title="", unfinished=[waiting])["tables"])["table-3"]["rows"][0]["cells"]
    assert {cells[key]["missing"] for key in ("race-m", "race-h", "race")} == {"seed 1: not run yet"}
    assert cells["story_cloze"]["missing"] == "not measured"


def test_nothing_finished():
    empty = build_report([], title="Nothing yet")
    assert {claim["verdict"] for claim in empty["claims"]} == {"not measured"}
    rows = [row for table in empty["tables"] for row in table["rows"]]
    assert {cell["measured"] for row in rows for cell in row["cells"].values()} == {None}
    assert look.page(empty).count("<p>Not measured.</p>") == len(empty["figures"])


# ---- The page


@pytest.fixture(scope="module")
def page(report):
    return Markup(look.page(report))


def test_every_cell_is_on_the_page(page):
    first, mrpc, story = (
        next(row for row in page.rows if row[0] == name and len(row) > 7)
        for name in ("Average correlation of CoLA", "MRPC F1", "Story Cloze Accuracy")
    )
    assert first[:5] == [first[0], "", "", "45.4", "21.0 20.0 to 22.0, 2 seeds mean over the tasks, seed by seed"]
    assert mrpc[3:] == ["82.3", "not measured", "79.4", "not measured", "84.9", "not measured", "83.2", "not measured"]
    assert story[3:6] == ["", "60.5 60.0 to 61.0, 2 seeds test", ""]
    assert story[-1].startswith("seed 1: not run yet; ")
    model = "GPT-1 (2 layers, 32 wide) parameters 1,234,567 num_hidden_layers 2 "
    assert f"{model}tokens 51,200 updates 400 perplexity 71.25 LSTM" in page.text


def test_the_page_needs_nothing_else(page):
    tags = {tag for tag, _ in page.tags}
    assert not tags & set("script link iframe object embed base form image foreignobject video audio".split())
    assert not {name for name in page.attributes if name.startswith("on") or name == "srcset"}
    assert all(attrs["src"].startswith("data:image/svg+xml;base64,") for attrs in page.all("img"))
    assert {attrs["href"] for attrs in page.all("a") if not attrs["href"].startswith("#")} == {PAPER_URL}
    (style,) = (text for text in page.texts if "box-sizing" in text)
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in style
    policy = next(attrs for attrs in page.all("meta") if "http-equiv" in attrs)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_the_page_is_for_everyone(page):
    assert page.all("html") == [{"lang": "en"}]
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {attrs["href"][1:] for attrs in page.all("a") if attrs["href"].startswith("#")} <= set(ids)
    assert all(attrs.get("scope") in ("col", "row") for attrs in page.all("th"))
    boxes = [attrs for attrs in page.all("div") if attrs.get("class") == "scroll"]
    assert len(boxes) == len(page.all("table"))
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    over = ["score × 100 over layers transferred", "0: guessing, 1: best known over updates of pre-training"]
    assert [attrs["alt"].partition(";")[0] for attrs in page.all("img")] == over
    assert len([attrs for attrs in page.all("span") if attrs.get("class", "").startswith("verdict ")]) == 13
    assert "2 of 11 measured claims hold, 2 were not measured." in page.text
    assert "holds: 2, does not hold: 0, mixed: 0, undecided: 9, not measured: 2" in page.text
    assert "How a verdict is reached Two settings are compared by the difference of their mean scores" in page.text


HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"


def test_hostile_texts_stay_texts(monkeypatch):
    """Every text from outside is hostile."""
    cells = copy.deepcopy(CELLS)
    for cell in cells:
        cell["settings"] |= {HOSTILE: HOSTILE, f"{HOSTILE} everywhere": HOSTILE}
        if cell["kind"] == "zero_shot":
            cell["tasks"] = {HOSTILE: {**cell["tasks"]["sst2"], "split": HOSTILE}}
    del cells[0]["settings"][HOSTILE]
    config = {"num_hidden_layers": 2, HOSTILE: HOSTILE}
    about = {"title": HOSTILE, "date": HOSTILE, "environment": {HOSTILE: HOSTILE}, "commands": [HOSTILE]}
    about["models"] = [{"name": HOSTILE, "parameters": None, "config": config, "pretraining": {}}]
    report = build_report(cells, [{**missing, "reason": HOSTILE} for missing in ABOUT["unfinished"]], **about)
    page = Markup(look.page(report))
    assert not page.all("script")
    assert not [attrs for attrs in page.all("img") if attrs["src"] == "x"]
    assert not {name for name in page.attributes if name.startswith("on")}
    # Title, date, model, configuration, settings, machine, command, missing, panel, its note, numbers, …
    assert "".join(page.texts).count(HOSTILE) > 15
    svg = base64.b64decode(page.all("img")[1]["src"].partition(",")[2]).decode()
    assert "&lt;script&gt;" in svg
    assert "<script" not in svg
    # Without escaping the same report has both, so that the test above can fail.
    monkeypatch.setattr(look, "TEMPLATES", look.TEMPLATES.overlay(autoescape=False))
    naive = re.findall(r"<(script|img src=x)", look.page(report))
    assert naive.count("script") > 15
    assert naive.count("img src=x") > 15


def test_places_of_points(report):
    """Scores stand at their heights; the checkpoint before the first update left of all, doublings at equal steps."""
    (axes,) = figures.draw(report["figures"][0]).axes
    points = report["figures"][0]["panels"]["RTE"]["curves"]["Transformer"]
    assert axes.lines[0].get_xydata().tolist() == [[point["x"], point["y"]] for point in points]
    (bars,) = axes.collections
    ends = [[point["lowest"], point["highest"]] for point in points]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [pytest.approx(of) for of in ends]
    (axes,) = figures.draw(report["figures"][1]).axes
    ours, theirs = (axes.lines[place] for place in (0, 1))
    assert axes.get_legend_handles_labels()[1] == ["Transformer", "LSTM"]
    assert (ours.get_linestyle(), theirs.get_linestyle()) == ("-", "--")
    places = axes.transScale.transform(ours.get_xydata())[:, 0]
    assert places[0] < places[1]
    assert places[2] - places[1] == pytest.approx(places[3] - places[2], abs=0.02)


def test_panels_without_a_picture_are_empty(report):
    four = {**report["figures"][0], "panels": dict.fromkeys("abcd", report["figures"][0]["panels"]["RTE"])}
    axes = figures.draw(four).axes
    assert [of.get_title() for of in axes if of.axison] == list("abcd")
    assert len(axes) == 6
