"""Differences with intervals, failed runs beside them, and the plot of all; recomputed from the kept answers."""

import random

import pytest

from modeling_gpt1.reproduction import grid
from modeling_gpt1.reproduction.effects import effects_of
from modeling_gpt1.reproduction.figures import draw_forest
from modeling_gpt1.reproduction.report import build_report, page
from modeling_gpt1.reproduction.tables import Cells

LABELS = [1] * 240 + [0] * 160
TRAINED = {"task_loss": 0.3, "loss_of_frequencies": 0.69}
FAILED = {"task_loss": 0.69, "loss_of_frequencies": 0.69}


def cell(variant, seed, share, task="rte", kind="fine_tuning", training=TRAINED, n_transfer=None):
    """A finished cell that kept its answers, of which about that share is right."""
    draw = random.Random(f"{variant} {seed}")
    predictions = [label if draw.random() < share else 1 - label for label in LABELS]
    right = sum(map(int.__eq__, LABELS, predictions)) / len(LABELS)
    rows = {"labels": " ".join(map(str, LABELS)), "predictions": " ".join(map(str, predictions))}
    return {
        "kind": kind,
        "task": task,
        "variant": variant,
        "n_transfer": n_transfer,
        "lm_coef": None,
        "seed": seed,
        "settings": {},
        "metrics": {"eval_accuracy": right},
        "answers": {"validation": rows},
        "training": training,
    }


def seeds_of(variant, share, num_seeds=4, **fields):
    return [cell(variant, seed, share, **fields) for seed in range(num_seeds)]


def test_an_effect_has_its_interval_seeds_and_rows():
    (effect,) = effects_of(Cells([*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.7)]))
    told = effect.describe()
    assert (told["task"], told["first"], told["second"]) == ("RTE", "full method", "no pre-training")
    assert (told["seeds"], told["rows"], told["failed"]) == (4, 400, 0)
    low, high = told["interval"]
    assert low < told["difference"] < high
    assert 0 < low


def test_baselines_are_compared_with():
    cells = [*seeds_of("full", 0.8), *seeds_of("ngrams", 0.8, kind="baseline")]
    (effect,) = effects_of(Cells(cells))
    assert effect.second == "n-grams"
    assert effect.interval[0] < 0 < effect.interval[1]


def test_the_constant_answer_is_known_where_baselines_alone_were_run():
    found = Cells(seeds_of("ngrams", 0.8, kind="baseline")).baselines("rte")
    assert found == {"rows": 400, "majority": 60.0}


def test_embeddings_alone_are_compared_with_both_ends():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.6)]
    cells += seeds_of("transfer", 0.7, n_transfer=0)
    pairs = [(effect.first, effect.second) for effect in effects_of(Cells(cells))]
    assert pairs == [
        ("full method", "no pre-training"),
        ("full method", "embeddings alone"),
        ("embeddings alone", "no pre-training"),
    ]


@pytest.mark.parametrize("num_seeds", [1, 2])
def test_fewer_than_three_seeds_have_no_interval(num_seeds):
    """Theirs is over the rows alone, and the report calls its intervals those of rows and seeds."""
    (effect,) = effects_of(Cells([*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.7, num_seeds)]))
    assert effect.seeds == num_seeds
    assert effect.interval is None


def test_runs_without_a_common_seed_are_not_compared():
    other_seeds = [cell("without_pretraining", seed, 0.7) for seed in (7, 8, 9)]
    assert effects_of(Cells([*seeds_of("full", 0.8), *other_seeds])) == []


def test_a_linear_model_is_compared_with_the_model_without_pretraining():
    cells = [*seeds_of("without_pretraining", 0.8), *seeds_of("ngrams", 0.7, kind="baseline")]
    (effect,) = effects_of(Cells(cells))
    assert (effect.first, effect.second) == ("no pre-training", "n-grams")


def test_the_whole_stands_for_its_parts():
    cells = [*seeds_of("full", 0.8, task="race"), *seeds_of("without_pretraining", 0.7, task="race")]
    for run in cells:
        run["parts"] = {part: {"eval_accuracy": 0.5} for part in ("race-middle", "race-high")}
    (effect,) = effects_of(Cells(cells))
    assert effect.label == "RACE"


def test_a_part_is_compared_where_the_whole_was_not_run():
    cells = [*seeds_of("full", 0.8, task="race-middle"), *seeds_of("without_pretraining", 0.7, task="race-middle")]
    (effect,) = effects_of(Cells(cells))
    assert effect.label == "RACE-m"


# ---- Failed runs


@pytest.fixture
def cells_with_failures():
    fresh = seeds_of("without_pretraining", 0.7)
    fresh[1] = cell("without_pretraining", 1, 0.5, training=FAILED)
    return [*seeds_of("full", 0.8), *fresh]


def test_a_failed_run_is_in_no_mean(cells_with_failures):
    found = Cells(cells_with_failures)
    assert list(found.scores("rte", "without_pretraining")) == [0, 2, 3]
    assert found.failed("rte", "without_pretraining") == [1]


def test_a_failed_run_is_counted_beside_the_effect(cells_with_failures):
    (effect,) = effects_of(Cells(cells_with_failures))
    assert (effect.seeds, effect.failed) == (3, 1)


def test_failed_runs_of_both_settings_are_counted(cells_with_failures):
    cells_with_failures[0] = cell("full", 0, 0.5, training=FAILED)
    (effect,) = effects_of(Cells(cells_with_failures))
    assert (effect.seeds, effect.failed) == (2, 2)


def test_a_claim_tells_how_many_of_its_runs_failed(cells_with_failures):
    claim = build_report(cells_with_failures, title="")["claims"][1]
    (comparison,) = claim["comparisons"]
    assert "RTE +" in comparison["text"]
    assert ", 1 run failed to train, p" in comparison["text"]


def test_the_page_counts_failed_runs(cells_with_failures):
    assert "1 of 4 failed to train (seed 1)" in page(build_report(cells_with_failures, title=""))


def test_a_condition_that_never_trains_is_an_outcome():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.5, training=FAILED)]
    report = build_report(cells, title="")
    row = report["tables"][3]["rows"][1]["cells"]["rte"]
    assert (row["measured"], row["failed"], row["missing"]) == (None, [0, 1, 2, 3], "")
    assert "4 of 4 failed to train" in page(report)


# ---- The plot, and the kept answers


def test_the_plot_has_a_line_for_each_interval():
    effects = build_report([*seeds_of("full", 0.8), *seeds_of("lstm", 0.7)], title="")["effects"]
    without = {**effects[0], "interval": None}
    (axes,) = draw_forest([*effects, without]).axes
    low, high = effects[0]["interval"]
    assert list(axes.lines[0].get_xdata()) == [low, high]
    assert list(axes.lines[1].get_xdata()) == [effects[0]["difference"]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["RTE: full method − LSTM (4 seeds, 400 rows)"]


def test_the_page_has_the_plot_first():
    shown = page(build_report([*seeds_of("full", 0.8), *seeds_of("lstm", 0.7)], title=""))
    assert shown.index('id="effects"') < shown.index('id="claims"')
    assert "Differences with their 95 % intervals" in shown


def test_anybody_can_recompute_an_interval_from_the_kept_answers(tmp_path):
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.7)]
    reported = build_report(cells, title="")["effects"]
    grid.write_cells(tmp_path / "cells.json.gz", cells)
    again = build_report(grid.read_cells(tmp_path / "cells.json.gz"), title="")["effects"]
    assert again == reported


def test_an_answer_that_changes_moves_the_effect():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.7)]
    before = build_report(cells, title="")["effects"][0]["interval"]
    rows = cells[0]["answers"]["validation"]
    rows["predictions"] = rows["labels"]
    after = build_report(cells, title="")["effects"][0]["interval"]
    assert after != before
