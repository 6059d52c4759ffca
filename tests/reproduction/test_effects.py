"""Differences with intervals, failed runs beside them, and the plot of all; recomputed from the kept answers."""

import random

import numpy as np
import pytest

from modeling_gpt1.reproduction.effects import effects_of
from modeling_gpt1.reproduction.figures import draw_forest
from modeling_gpt1.reproduction.models import read_finished_cells, write_finished_cells
from modeling_gpt1.reproduction.report import build_report, page
from modeling_gpt1.reproduction.tables import Cells

LABELS = [1] * 240 + [0] * 160
TRAINED = {"task_loss": 0.3, "loss_of_frequencies": 0.69}
FAILED = {"task_loss": 0.69, "loss_of_frequencies": 0.69}
MODEL = {"name": "GPT-1", "family": "gpt1", "parameters": 1, "pretraining": {}}


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


def test_a_part_is_compared_where_the_whole_was_not_run_with_both_settings():
    parts = [*seeds_of("full", 0.8, task="race-middle"), *seeds_of("without_pretraining", 0.7, task="race-middle")]
    (effect,) = effects_of(Cells([*parts, *seeds_of("full", 0.8, task="race")]))
    assert effect.label == "RACE-m"


def test_a_part_is_in_all_of_the_report_where_the_whole_was_not_run():
    """Its runs are not missing, as the page said of the claims."""
    cells = [*seeds_of("full", 0.8, task="race-middle"), *seeds_of("without_pretraining", 0.7, task="race-middle")]
    cells += seeds_of("transfer", 0.75, task="race-middle", n_transfer=0)
    report = build_report(cells, title="")
    claim = report["claims"][1]
    (comparison,) = claim["comparisons"]
    assert comparison["text"].startswith("RACE-m +")
    assert claim["verdict"] == "holds"
    (label,) = report["figures"][0]["panels"]
    assert label == "RACE-m"
    rows = {row["key"]: row["cells"] for row in report["tables"][3]["rows"]}
    assert rows["without_pretraining"]["race-m"]["measured"]["seeds"] == [0, 1, 2, 3]
    assert "mnli-m" not in rows["full"]


def test_a_part_has_fewer_training_rows_than_the_whole():
    found = Cells(seeds_of("full", 0.8, task="race-middle"))
    assert found.training_rows("race-m") + found.training_rows("race-h") == found.training_rows("race") == 87866


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


def test_a_task_on_which_nothing_ever_trains_has_a_column():
    """Story Cloze is not in the paper's table 5, and has a column there once it is measured."""
    report = build_report(seeds_of("full", 0.5, task="story_cloze", training=FAILED), title="")
    assert report["tables"][3]["rows"][0]["cells"]["story_cloze"]["failed"] == [0, 1, 2, 3]


def test_a_condition_that_never_trains_has_a_line_without_a_difference():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.5, training=FAILED)]
    report = build_report(cells, title="")
    (effect,) = report["effects"]
    assert (effect["difference"], effect["interval"], effect["seeds"], effect["failed"]) == (None, None, 0, 4)
    assert "<td>none: no seed trained with both</td>" in page(report)


@pytest.mark.parametrize(("number", "what"), [(0, "Average accuracy of SST-2, RTE:"), (1, "SST-2")])
def test_a_claim_is_undecided_where_a_condition_never_trains(number, what):
    """RTE alone would support it; of SST-2, and so of their average, nothing is known."""
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.6)]
    assert build_report(cells, title="")["claims"][number]["verdict"] == "holds"
    cells += seeds_of("full", 0.8, task="sst2")
    cells += seeds_of("without_pretraining", 0.6, task="sst2", training=FAILED)
    claim = build_report(cells, title="")["claims"][number]
    assert claim["verdict"] == "undecided"
    never = "no difference, no seed trained with both settings, 4 runs failed to train"
    undecided = [of["text"] for of in claim["comparisons"] if of["outcome"] == "level"]
    assert undecided == [f"{what} {never}"]


def test_layers_that_never_train_are_not_passed_over():
    """The second layer is not compared with none in the place of the first."""
    shares = {"full": 0.8, "without_pretraining": 0.6}
    cells = [of for variant, share in shares.items() for of in seeds_of(variant, share)]
    for number, training in ((0, TRAINED), (1, FAILED), (2, TRAINED)):
        cells += seeds_of("transfer", 0.7, n_transfer=number, training=training)
    report = build_report(cells, title="", models=[{"config": {"num_hidden_layers": 3}, **MODEL}])
    texts = [of["text"] for of in report["claims"][8]["comparisons"]]
    never = "no difference, no seed trained with both settings, 4 runs failed to train"
    assert texts[:2] == [f"RTE, 1 layers against 0: {never}", f"RTE, 2 layers against 1: {never}"]
    assert texts[2].startswith("RTE, 3 layers against 2: +")
    panel = report["figures"][0]["panels"]["RTE"]
    assert panel["note"].endswith("; runs that failed to train, by the number of layers: 4 of 4 with 1")
    assert [point["x"] for point in panel["curves"]["Transformer"]] == [-1, 0, 2, 3]


def test_failed_runs_of_a_layer_are_counted_in_the_claim():
    cells = [*seeds_of("full", 0.8), *seeds_of("transfer", 0.6, n_transfer=0)]
    cells[-1] = cell("transfer", 3, 0.5, n_transfer=0, training=FAILED)
    report = build_report(cells, title="", models=[{"config": {"num_hidden_layers": 3}, **MODEL}])
    (comparison,) = report["claims"][9]["comparisons"]
    assert ", 1 run failed to train, p" in comparison["text"]


def test_an_average_without_a_common_seed_names_the_runs_that_failed():
    """Each task has failed runs, each at other seeds."""
    cells = []
    for failed, task in enumerate(("rte", "sst2", "qnli")):
        cells += seeds_of("full", 0.8, 3, task=task)
        of_task = seeds_of("without_pretraining", 0.6, 3, task=task)
        of_task[failed] = cell("without_pretraining", failed, 0.5, task=task, training=FAILED)
        cells += of_task
    report = build_report(cells, title="")
    claim = report["claims"][0]
    assert claim["verdict"] == "undecided"
    (comparison,) = claim["comparisons"]
    never = "no difference, no seed trained with both settings, 3 runs failed to train"
    assert comparison["text"] == f"Average accuracy of SST-2, QNLI, RTE: {never}"
    average = report["tables"][3]["rows"][1]["cells"]["average-accuracy"]
    assert average["failed"] == [0, 1, 2]


def test_a_claim_has_no_difference_of_different_seeds():
    """Half of the seeds failed with one setting, the other half with the other."""
    full, fresh = seeds_of("full", 0.8), seeds_of("without_pretraining", 0.6)
    for seed in (0, 1):
        full[seed] = cell("full", seed, 0.5, training=FAILED)
        fresh[seed + 2] = cell("without_pretraining", seed + 2, 0.5, training=FAILED)
    (comparison,) = build_report([*full, *fresh], title="")["claims"][1]["comparisons"]
    never = "no difference, no seed trained with both settings, 4 runs failed to train"
    assert comparison["text"] == f"RTE {never}"


def test_a_part_that_was_run_itself_keeps_its_rows_beside_the_whole():
    own = seeds_of("full", 0.8, task="race-middle")
    whole = seeds_of("full", 0.8, task="race")
    for run in whole:
        run["parts"] = {"race-middle": {"eval_accuracy": 0.5}}
    for cells in (own, [*own, *whole]):
        assert np.isfinite(Cells(cells).scores("race-m", "full")[0]).all()


def test_a_part_that_was_run_itself_does_not_fail_with_the_whole():
    whole = seeds_of("full", 0.5, task="race", training=FAILED)
    for run in whole:
        run["parts"] = {"race-middle": {"eval_accuracy": 0.25}}
    found = Cells([*seeds_of("full", 0.8, task="race-middle"), *whole])
    assert len(found.scores("race-m", "full")) == 4
    assert found.failed("race-m", "full") == []


def test_the_whole_stands_for_its_parts_even_if_it_never_trained():
    cells = seeds_of("without_pretraining", 0.6, task="race", training=FAILED)
    cells += seeds_of("ngrams", 0.7, task="race", kind="baseline")
    for run in cells:
        run["parts"] = {part: {"eval_accuracy": 0.5} for part in ("race-middle", "race-high")}
    assert [effect.label for effect in effects_of(Cells(cells))] == ["RACE"]


def test_the_baselines_of_a_task_whose_runs_all_diverged_stay():
    """A task without a labelled test split: a diverged run has no scores that could say so."""
    diverged = [{**of, "metrics": {}, "training": FAILED} for of in seeds_of("full", 0.8)]
    found = Cells([*diverged, *seeds_of("ngrams", 0.7, kind="baseline")])
    assert list(found.scores("rte", "ngrams")) == [0, 1, 2, 3]
    assert found.baselines("rte") == {"rows": 400, "majority": 60.0}


def test_runs_that_were_scored_on_other_rows_have_no_interval():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.6)]
    assert effects_of(Cells(cells))[0].interval is not None
    rows = cells[0]["answers"]["validation"]
    for kept in ("labels", "predictions"):
        rows[kept] = rows[kept].removesuffix(rows[kept][-2:])  # the last row
    (effect,) = effects_of(Cells(cells))
    assert (effect.interval, effect.seeds) == (None, 4)
    (comparison,) = build_report(cells, title="")["claims"][1]["comparisons"]
    assert comparison["text"].endswith(", no answers to the same rows kept")


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
    write_finished_cells(tmp_path / "cells.json.gz", cells)
    again = build_report(read_finished_cells(tmp_path / "cells.json.gz"), title="")["effects"]
    assert again == reported


def test_an_answer_that_changes_moves_the_effect():
    cells = [*seeds_of("full", 0.8), *seeds_of("without_pretraining", 0.7)]
    before = build_report(cells, title="")["effects"][0]["interval"]
    rows = cells[0]["answers"]["validation"]
    rows["predictions"] = rows["labels"]
    after = build_report(cells, title="")["effects"][0]["interval"]
    assert after != before
