"""The pages of docs/results/: their tables and pictures are those of the newest results, and stand there alone."""

import copy
import json
import math
import re
import runpy
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from modeling_gpt1.reproduction.baselines import PENALTIES
from modeling_gpt1.reproduction.models import model_fingerprint
from modeling_gpt1.reproduction.overlap import scores_without
from modeling_gpt1.reproduction.report import build_report
from modeling_gpt1.reproduction.scores import Estimate, difference, estimate
from modeling_gpt1.reproduction.tables import Cells
from modeling_gpt1.reproduction.training_rows import has_failed
from tokenization import get_task, load_task
from tokenization.rows.metrics import compute

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
pages = SimpleNamespace(**runpy.run_path(str(ROOT / "benchmarks" / "pages.py")))
RESULT_PAGES = sorted((DOCS / "results").glob("*.md"))
PAGES_WITH_TABLES = [*RESULT_PAGES, pages.ALL_ROWS, pages.CLIENTS_PAGE]
GUIDES = sorted([*DOCS.glob("*.md"), *(DOCS / "how-it-works").glob("*.md")])
MEASURED_CELL = re.compile(r"^\|.*\| *[^|\n]*\d+(?:\.\d+)? *(?:×|±|tokens/s|s,|MiB|GiB|%)", flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES_WITH_TABLES, ids=lambda page: page.stem)
def test_the_tables_of_a_page_are_the_measured_ones(page):
    text = page.read_text(encoding="utf-8")
    assert pages.fill(text) == text


def test_a_table_with_another_figure_is_found():
    """Negative control: a figure that nobody measured."""
    text = (DOCS / "results" / "perplexity.md").read_text(encoding="utf-8")
    wrong = text.replace("| 78.1 |", "| 77.1 |")
    assert pages.fill(wrong) == text


@pytest.mark.parametrize("page", [page for page in RESULT_PAGES if page.stem != "index"], ids=lambda page: page.stem)
def test_a_page_has_a_picture(page):
    assert "](../pictures/" in page.read_text(encoding="utf-8")


def test_each_table_stands_in_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES_WITH_TABLES)
    assert {hit[1] for hit in pages.MARK.finditer(text)} == pages.TABLES.keys()


@pytest.mark.parametrize("name", pages.DRAWN)
def test_a_picture_is_drawn(name, tmp_path):
    assert "<path" in pages.draw(name, tmp_path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", pages.DRAWN)
def test_a_picture_is_in_the_folder_of_the_pages(name):
    assert (pages.PICTURES / f"{name}.svg").is_file()


def test_each_picture_stands_in_a_page():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES_WITH_TABLES)
    assert [name for name in pages.DRAWN if f"](../pictures/{name}.svg)" not in text] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_has_no_table_of_measurements(page):
    assert MEASURED_CELL.findall(page.read_text(encoding="utf-8")) == []


def effects_of_answers(report: dict, cells: list[dict]) -> list[list]:
    """The differences and both ends of their intervals, computed from the kept answers."""
    return effects_in(build_report(cells, title="", models=report["models"]))


def effects_in(report: dict) -> list[list]:
    """The differences and both ends of their intervals; fewer than three seeds have none."""
    return [[effect["difference"], *(effect["interval"] or [])] for effect in report["effects"]]


TUNED = pages.tuned_reports()
OF_LAYERS = pages.tuned_reports("layers")
NAMES = [f"tuned {report['measured']['tasks'][0]}" for report, _ in TUNED]
NAMES += [f"layers {report['measured']['tasks'][0]}" for report, _ in OF_LAYERS]


@pytest.mark.parametrize(("report", "cells"), TUNED + OF_LAYERS, ids=NAMES)
def test_the_effects_of_tuned_runs_are_those_of_the_kept_answers(report, cells):
    found = effects_of_answers(report, cells)
    assert len(found) == len(report["effects"])
    for of_answers, reported in zip(found, effects_in(report), strict=True):
        assert of_answers == pytest.approx(reported, abs=1e-4)


@pytest.mark.parametrize("cells", [cells for _, cells in TUNED + OF_LAYERS], ids=NAMES)
def test_the_score_of_a_tuned_run_is_that_of_its_answers(cells):
    for cell in cells:
        metric = get_task(cell["task"]).metrics[0]
        split = "test" if f"predict_{metric}" in cell["metrics"] else "validation"
        answers = cell["answers"][split]
        labels, predictions = (np.array(answers[name].split(), float) for name in ("labels", "predictions"))
        reported = cell["metrics"].get(f"predict_{metric}", cell["metrics"].get(f"eval_{metric}"))
        assert compute(metric, predictions, labels)[metric] == pytest.approx(reported, abs=1e-6)


def test_an_answer_that_was_changed_changes_the_effects():
    """Negative control: one row of one seed is answered otherwise."""
    report, cells = TUNED[0]
    first = next(cell for cell in cells if cell["variant"] == "full")
    answers = first["answers"]["validation"]
    flipped = {"0": "1", "1": "0"}[answers["predictions"][0]] + answers["predictions"][1:]
    changed = {**first, "answers": {"validation": {**answers, "predictions": flipped}}}
    found = effects_of_answers(report, [changed if cell is first else cell for cell in cells])
    assert found[0][1:] != pytest.approx(effects_in(report)[0][1:], abs=1e-4)


def test_a_condition_is_listed_with_the_objective_that_it_trained_with(monkeypatch):
    report, cells = TUNED[0]
    first = next(cell for cell in cells if cell["variant"] == "full")
    assert first["ran_with"]["lm_coef"] == 0.5
    # What was tuned there names no λ, because it is part of the condition.
    plain = {**first, "variant": "without_auxiliary", "ran_with": {**first["ran_with"], "lm_coef": 0.0}}
    monkeypatch.setitem(pages.tuned_table.__globals__, "tuned_reports", lambda: [(report, [first, plain])])
    rows = [row.split(" | ") for row in pages.tuned_table().splitlines()]
    shown = {row[0].partition(": ")[2]: row[3] for row in rows if ": " in row[0]}
    assert shown["full method"] == "0.5"
    assert shown["no auxiliary objective"] == "0"


def test_the_picture_of_the_trials_has_each_score_and_rings_the_chosen_one():
    figure = Figure()
    pages.draw_tuning(figure)
    panels = [axes for axes in figure.axes if axes.get_title()]
    conditions = [condition for report, _ in TUNED for condition in report["tuning"]]
    assert len(panels) == len(conditions)
    for axes, condition in zip(panels, conditions, strict=True):
        dots = [
            (line.get_markersize(), *line.get_xydata().tolist()[0])
            for line in axes.lines
            if len(line.get_xdata()) == 1
        ]
        trials = [(trial["learning_rate"], trial["score"]) for trial in condition["trials"]]
        assert sorted((rate, score) for size, rate, score in dots if size == 4) == sorted(trials)
        chosen = condition["chosen"]["learning_rate"], condition["chosen"]["score"]
        assert [(rate, score) for size, rate, score in dots if size == 10] == [chosen]


def test_a_difference_of_two_seeds_is_a_hollow_dot_without_a_line():
    figure = Figure()
    pages.draw_tuned(figure)
    (axes,) = figure.axes
    hollow = [line for line in axes.lines if line.get_fillstyle() == "none"]
    differences = [effect for report, _ in TUNED for effect in report["effects"]]
    without_interval = [effect["difference"] for effect in differences if effect["interval"] is None]
    assert [line.get_xdata()[0] for line in hollow] == without_interval
    assert len(without_interval) == 1
    (label,) = (text for text in axes.get_yticklabels() if text.get_position()[1] == hollow[0].get_ydata()[0])
    assert label.get_text() == "RACE-m  (2 seeds, no interval)"
    assert sum(len(line.get_xdata()) == 2 for line in axes.lines) == len(differences)  # one of them is that of zero


@pytest.mark.parametrize(("task", "name"), [("sst2", "4,000 rows of SST-2"), ("story_cloze", "Story Cloze")])
def test_the_sentence_on_pretraining_has_the_measured_effect(task, name):
    report = report_of(task)
    effect = effect_of(report, "no pre-training")
    low, high = effect["interval"]
    lead = effect_of(report, "n-grams")["difference"]
    readme = text_of_readme()
    assert re.search(rf"{effect['difference']:.1f} points on {name} \([^()]*{low:.1f} to {high:.1f}", readme)
    assert f"{lead:.1f} points" in readme
    leads = [effect_of(report_of(name_of_task), "n-grams")["difference"] for name_of_task in ("sst2", "story_cloze")]
    sentence = (
        "In three, the pre-trained model's lead over a linear model of n-grams and words in common is {:.1f} points "
        "and {:.1f} points"
    )
    assert f"{sentence.format(*leads)}, which is within the error." in readme
    (row,) = rows_of_table("worth", pages.TASKS[task])
    seeds = effect["seeds"]
    assert {"sst2": "ten seeds", "story_cloze": "the nine seeds"}[task] in readme
    assert seeds == {"sst2": 10, "story_cloze": 9}[task]
    assert row[1] == f"{effect['difference']:.1f} ({low:.1f} to {high:.1f}), {seeds} seeds"
    assert row[3].startswith(f"{lead:.1f} (")


def rows_of_table(name: str, first: str) -> list[list[str]]:
    """The cells of the rows of a table of the page whose first cell is this."""
    (table,) = (hit[2] for hit in pages.MARK.finditer(text_with_lines("paper.md")) if hit[1] == name)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "|" in line]
    return [row for row in rows if row[0] == first]


def text_with_lines(page: str) -> str:
    return (DOCS / "results" / page).read_text(encoding="utf-8")


def text_of_readme() -> str:
    return " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def effect_of(report: dict, second: str) -> dict:
    return next(of for of in report["effects"] if (of["first"], of["second"]) == ("full method", second))


def report_of(task: str) -> dict:
    (report,) = (report for report, _ in TUNED if report["measured"]["tasks"] == [task])
    return report


def newest_rows(kind: str) -> list[dict]:
    return json.loads(max(pages.RESULTS.glob(f"????-??-??-{kind}.json")).read_text(encoding="utf-8"))["results"]


def test_the_sentences_on_compiled_steps_have_the_measured_ratios():
    ratios = {
        (row["work"].split()[0], row["peer"]): row["ratio"]["median"]
        for row in newest_rows("accelerator")
        if row["measure"] == "seconds" and "compiled" in row["work"]
    }
    race, stories = (
        ratios["RACE-shaped", "OpenAIGPTDoubleHeadsModel"],
        ratios["Story-Cloze-shaped", "OpenAIGPTDoubleHeadsModel"],
    )
    speed = text_of("speed.md")
    assert f"runs at {race:.2f} times the speed of the built-in class on RACE, and at {stories:.2f} times on" in speed
    assert f"runs at {ratios['pre-training', 'GPT2LMHeadModel']:.2f} times the speed of GPT-2's" in speed
    launches = sorted(ratio for (_, peer), ratio in ratios.items() if peer == "GPT1DoubleHeadsModel, uncompiled")
    sentence = f"it is {launches[0]:.1f} to {launches[1]:.1f} times as fast as the uncompiled step."
    assert sentence in text_of("benchmarks.md")


def test_the_sentences_on_whole_compiled_runs_have_the_measured_ratios():
    ratios = {row["peer"]: row["ratio"]["median"] for row in newest_rows("plain-loop")}
    assert f"reads 5 % more than the trainer here ({ratios['plain loop']:.2f};" in text_of("speed.md")
    assert f"{ratios['GPT2LMHeadModel in Trainer']:.2f} times as many." in text_of("speed.md")


def test_ngrams_are_ahead_on_three_tasks():
    leads = []
    for task in ("stsb", "race-middle", "snli"):
        effect = effect_of(report_of(task), "n-grams")
        low, high = effect["interval"]
        assert high < 0
        leads.append((f"{-effect['difference']:.1f}", f"{-high:.1f} to {-low:.1f}"))
    (on_stsb, of_stsb), (on_race, of_race), (on_snli, of_snli) = leads
    first = "**On STS-B a linear model of n-grams and of the words that both sentences have is ahead of the "
    first += f"Transformer by {on_stsb} points "
    first += f"(95 % interval {of_stsb}), on RACE-middle by {on_race} points ({of_race}), on SNLI by {on_snli} points "
    first += f"({of_snli}). On the other three tasks"
    assert first in text_of("paper.md")
    sentence = f"On SNLI that linear model is ahead by {on_snli}, on STS-B by {on_stsb}, on RACE-middle by {on_race}:"
    assert sentence in text_of_readme()


def test_the_lead_over_ngrams_of_the_answers_of_race_alone_is_measured():
    found = Cells(cells_of("race-middle"))
    lead = difference(found.scores("race-m", "full"), found.scores("race-m", "ngrams_of_last"))
    assert lead.interval[0] < 0 < lead.interval[1]
    sentence = f"less n-grams of the answers alone is {in_words(lead).replace('-', '−')}, so the Transformer does no"
    assert sentence in text_of("paper.md")
    without = difference(found.scores("race-m", "without_auxiliary"), found.scores("race-m", "ngrams_of_last"))
    assert without.interval[0] < 0 < without.interval[1]
    ahead = f"Without the auxiliary objective it is {in_words(without)}, which is within the error, too."
    assert ahead.replace("-", "−") in text_of("paper.md")


def test_the_end_of_the_penalties_that_seeds_of_race_chose_is_told():
    chosen = [cell["penalty"] for cell in cells_of("race-middle") if cell["variant"] == "ngrams"]
    assert chosen.count(max(PENALTIES)) == 6
    assert "Six of the n-grams' ten seeds chose the largest penalty tried, so a larger one may be better" in text_of(
        "paper.md"
    )


def test_how_little_the_fresh_models_of_race_learn_is_measured():
    fresh = [cell for cell in cells_of("race-middle") if cell["variant"] == "without_pretraining"]
    full = [cell for cell in cells_of("race-middle") if cell["variant"] == "full"]
    assert not any(map(has_failed, full))
    trained = [cell for cell in fresh if not has_failed(cell)]
    assert (len(fresh), len(trained)) == (10, 7)
    text = text_of("paper.md")
    assert "Three of its ten runs failed to train" in text
    sentence = "training loss of the seven that did not falls {} % below that of the class frequencies, "
    sentence += "that of the full method {} %"
    without = [cell for cell in cells_of("race-middle") if cell["variant"] == "without_auxiliary"]
    assert not any(map(has_failed, without))
    sentence += ", and without the auxiliary objective {} %."
    assert sentence.format(falls_of(trained), falls_of(full), falls_of(without)) in text
    scores = [100 * cell["metrics"]["eval_accuracy"] for cell in fresh]
    majority = Cells(fresh).baselines("race-m")["majority"]
    assert max(scores) < majority
    has = f"It has {min(scores):.1f} to {max(scores):.1f} % of the validation rows, where one letter for all rows has"
    assert f"{has} {majority:.1f} and" in text


def falls_of(cells: list[dict]) -> str:
    """How far training losses fall below those of the class frequencies, the least and the greatest in per cent."""
    falls = [100 - 100 * cell["training"]["task_loss"] / cell["training"]["loss_of_frequencies"] for cell in cells]
    return f"{min(falls):.0f} to {max(falls):.0f}"


def test_the_trials_of_race_are_those_of_the_page():
    trials = {of["variant"]: of["trials"] for of in report_of("race-middle")["tuning"]}
    scores = {name: [trial["score"] for trial in of_condition] for name, of_condition in trials.items()}
    failed = [trial for trial in trials["without_pretraining"] if trial["failed"]]
    assert [(trial["learning_rate"], trial["warmup_steps"]) for trial in failed] == [
        (1e-3, 0.1),
        (3e-3, 0.002),
        (3e-3, 0.1),
    ]
    assert not any(trial["failed"] for trial in trials["full"])
    least, greatest = min(scores["without_pretraining"]), max(scores["without_pretraining"])
    text = text_of("paper.md")
    assert f"its trials say much: {least:.1f} to {greatest:.1f} % of the 1,002 rows" in text
    assert "three of the eight failed, both at 3e-3 and the one at 1e-3 with a warm-up of 10 %" in text
    without = [trial for trial in trials["without_auxiliary"] if trial["failed"]]
    assert [trial["learning_rate"] for trial in without] == [3e-3, 3e-3]
    full, without = (f"{min(scores[name]):.1f} to {max(scores[name]):.1f}" for name in ("full", "without_auxiliary"))
    sentence = f"The full method's trials have {full}, those without the auxiliary objective {without}, of which"
    assert f"{sentence} the two at 3e-3 failed." in text


def test_how_little_the_embeddings_of_race_learn_is_measured():
    cells = [cell for cell in cells_of("race-middle") if cell["variant"] == "transfer"]
    trained = [cell for cell in cells if not has_failed(cell)]
    assert (len(cells), len(trained)) == (10, 3)
    assert falls_of(trained) == "1 to 1"
    text = text_of("paper.md")
    told = "With RACE-middle's embeddings alone seven of ten runs failed to train"
    assert f"{told}, and the training loss of the other three falls 1 % below" in text
    scores = [100 * cell["metrics"]["eval_accuracy"] for cell in cells]
    assert f"The ten have {min(scores):.1f} to {max(scores):.1f} % of the validation rows" in text
    found = Cells(cells_of("race-middle"))
    assert difference(found.scores("race-m", 0), found.scores("race-m", "without_pretraining")).num_seeds == 2
    assert "both trained at two seeds only" in text


def test_the_trials_of_the_embeddings_of_race_are_those_of_the_page():
    (trials,) = (of["trials"] for of in report_of("race-middle")["tuning"] if of["variant"] == "transfer-0")
    failed = [(trial["learning_rate"], trial["warmup_steps"]) for trial in trials if trial["failed"]]
    assert failed == [(1e-3, 0.002), (3e-3, 0.002), (3e-3, 0.1)]
    scores = [trial["score"] for trial in trials]
    sentence = f"Their trials have {min(scores):.1f} to {max(scores):.1f} % of the rows cut from the training rows"
    told = "and three of them failed, both at 3e-3 and the one at 1e-3 with a warm-up of 0.2 %."
    assert f"{sentence}, {told}" in text_of("paper.md")


def test_the_clause_on_trials_that_failed_changed_no_choice_where_it_can_be_checked():
    checked = []
    for report, _ in TUNED:
        for condition in report["tuning"]:
            if "failed" in condition["chosen"]:
                best = max(condition["trials"], key=lambda trial: trial["score"])
                assert (best["score"], best["failed"]) == (condition["chosen"]["score"], False)
                checked.append(report["measured"]["tasks"][0])
    assert set(checked) == {"stsb", "race-middle"}
    sentence = "It governed RACE-middle's trials and STS-B's, except those of the full method there, and changed no"
    assert f"{sentence} choice" in text_of("paper.md")


def test_intervals_of_rows_that_are_drawn_by_their_first_text_are_hardly_wider(real_data_dir):
    """Of all questions of an article, and of all hypotheses of a premise, drawn together or not at all."""
    wider = {}
    for task, split in (("race-middle", "validation"), ("snli", "test")):
        rows = load_task(task, str(real_data_dir))[split]
        texts = rows[get_task(task).text_columns[0]][:]
        _, places = np.unique(texts, return_inverse=True)
        generator = np.random.default_rng(0)
        drawn = {
            "rows": generator.poisson(1.0, (1000, len(texts))).astype(float),
            "texts": generator.poisson(1.0, (1000, places.max() + 1)).astype(float)[:, places],
        }
        column = pages.column_of(report_of(task))
        found = Cells(cells_of(task))
        for second in ("without_pretraining", "without_auxiliary", "ngrams", "ngrams_of_last"):
            widths = {}
            for name, weights in drawn.items():
                of_both = [scores_by_weights(task, split, variant, weights) for variant in ("full", second)]
                seeds = found.scores(column, "full").keys() & found.scores(column, second).keys()
                low, high = estimate({seed: of_both[0][seed] - of_both[1][seed] for seed in seeds}).interval
                widths[name] = high - low
            wider.setdefault(task, []).append(widths["texts"] / widths["rows"])
    assert 1.03 < max(wider["race-middle"]) < 1.1
    assert max(wider["snli"]) < 1.01
    sentence = "Drawn by articles, RACE-middle's intervals are less than a tenth wider, and by premises SNLI's are not"
    assert f"{sentence} wider." in text_of("paper.md")


def scores_by_weights(task: str, split: str, variant: str, weights: np.ndarray) -> dict[int, np.ndarray]:
    """Accuracies × 100 by seed, and behind each those of rows with these weights, as [`estimate`] takes them."""
    found = {}
    for cell in (cell for cell in cells_of(task) if cell["variant"] == variant):
        labels, predictions = (np.array(cell["answers"][split][name].split()) for name in ("labels", "predictions"))
        right = (labels == predictions).astype(float)
        found[cell["seed"]] = 100 * np.append(right.mean(), weights @ right / weights.sum(axis=1))
    return found


def test_all_models_of_the_page_are_of_one_folder_that_was_changed_since():
    fingerprints = {cell["model_fingerprint"] for _, cells in TUNED for cell in cells if "model_fingerprint" in cell}
    assert len(fingerprints) == 1
    assert model_fingerprint(str(ROOT / "modeling_gpt1" / "gpt1-novels")) not in fingerprints
    assert "All are runs of `gpt1-novels` as its folder was then." in text_of("paper.md")


def test_what_the_auxiliary_objective_does_is_decided_on_snli_alone():
    intervals = {}
    for report, _ in TUNED:
        (task,) = report["measured"]["tasks"]
        intervals[task] = effect_of(report, "no auxiliary objective")["interval"]
    assert len(intervals) == 6
    decided = [task for task, (low, high) in intervals.items() if low > 0 or high < 0]
    assert decided == ["snli"]
    text = text_of("paper.md")
    assert "The auxiliary objective helps on SNLI" in text
    assert "On the other five tasks what it does is not decided." in text


def test_the_sentence_on_all_tasks_has_the_least_and_greatest_worth_of_pretraining():
    worth = [effect_of(report, "no pre-training")["difference"] for report, _ in TUNED]
    sentence = f"Pre-training is worth between {min(worth):.0f} and {max(worth):.0f} points in three epochs"
    assert sentence in text_of("paper.md")


def test_where_the_embeddings_alone_help_is_measured():
    helped = {}
    for report, _ in TUNED:
        for effect in report["effects"]:
            if (effect["first"], effect["second"]) == ("embeddings alone", "no pre-training"):
                low, _ = effect["interval"] or [-math.inf, math.inf]
                helped[effect["task"]] = low > 0, effect["failed"] > 0
    assert helped == {
        "CoLA": (False, True),
        "SNLI": (True, False),
        "SST-2": (True, False),
        "Story Cloze": (True, True),
        "STS-B": (True, True),
        "RACE-m": (False, True),
    }
    sentence = "ahead of the model without pre-training on SST-2, SNLI and STS-B, and on Story Cloze if the runs that"
    assert f"{sentence} failed" in text_of("paper.md")


def test_no_other_lead_over_ngrams_is_outside_the_error():
    tasks = sorted(report["measured"]["tasks"][0] for report, _ in TUNED)
    assert tasks == ["cola", "race-middle", "snli", "sst2", "story_cloze", "stsb"]
    for task in ("cola", "sst2", "story_cloze"):
        low, high = effect_of(report_of(task), "n-grams")["interval"]
        assert low < 0 < high
    assert "On the other three tasks the full method's lead over it is within the error." in text_of("paper.md")


def text_of(page: str) -> str:
    return " ".join((DOCS / "results" / page).read_text(encoding="utf-8").split())


def cells_of(task: str) -> list[dict]:
    (cells,) = (cells for report, cells in TUNED if report["measured"]["tasks"] == [task])
    return cells


def in_words(found: Estimate) -> str:
    low, high = found.interval
    return f"{found.value:.1f} ({low:.1f} to {high:.1f})"


@pytest.mark.parametrize(("report", "cells"), TUNED)
def test_the_page_has_each_effect(report, cells):
    text = text_of("paper.md")
    for of, figures in zip(report["effects"], effects_in(report), strict=True):
        value, *ends = (f"{number:.1f}".replace("-", "−") for number in figures)
        interval = " ({} to {})".format(*ends) if ends else ""
        assert f" {value}{interval}, {of['seeds']} seeds" in text, of


def layers_of(task: str) -> Cells:
    ((report, cells),) = (pair for pair in OF_LAYERS if pair[0]["measured"]["tasks"] == [task])
    return Cells(cells, (), report["models"][0]["config"]["num_hidden_layers"])


def added(task: str, higher: str | int, lower: str | int) -> str:
    """What the layers up to the higher one add to those up to the lower one."""
    found = layers_of(task)
    return in_words(difference(found.scores(task, higher), found.scores(task, lower)))


def test_what_the_layers_add_on_sst2_is_measured():
    assert f"together add {added('sst2', 'full', 0)} to the embeddings" in text_of("paper.md")
    means = [fmean(of[0] for of in layers_of("sst2").scores("sst2", place).values()) for place in pages.TRANSFERRED]
    assert means == sorted(means)


def test_what_the_layers_add_on_story_cloze_is_measured():
    text = text_of("paper.md").replace("−", "-")
    assert f"the second layer, which adds {added('story_cloze', 2, 1)} to the first" in text
    assert f"all four less two are at {added('story_cloze', 'full', 2)}" in text
    assert f"All less the embeddings are at {added('story_cloze', 'full', 0)} from four seeds" in text


def effect_of_pretraining_alone(task: str) -> str:
    """Without the auxiliary objective on either side."""
    found, column = Cells(cells_of(task)), pages.column_of(report_of(task))
    return in_words(difference(found.scores(column, "without_auxiliary"), found.scores(column, "without_pretraining")))


def test_the_effect_of_pretraining_without_the_auxiliary_objective_is_measured():
    on_sst2 = effect_of_pretraining_alone("sst2").replace(" (", " points (")
    tasks = ("cola", "story_cloze", "race-middle")
    on_cola, on_stories, on_race = (effect_of_pretraining_alone(task) for task in tasks)
    sentence = f"{on_sst2} on SST-2, {on_cola} on CoLA, {on_stories} on Story Cloze and {on_race} on RACE-middle"
    assert sentence in text_of("paper.md")


def test_the_fresh_models_of_snli_and_stsb_alone_were_tuned_with_the_auxiliary_objective():
    lm_coefs = {}
    for report, cells in TUNED:
        (task,) = report["measured"]["tasks"]
        runs = [cell for cell in cells if cell["variant"] == "without_pretraining"]
        (lm_coefs[task],) = {cell["ran_with"]["lm_coef"] for cell in runs}
    without = dict.fromkeys(("cola", "race-middle", "sst2", "story_cloze"), 0.0)
    assert lm_coefs == {**without, "snli": 0.5, "stsb": 0.5}
    text = text_of("paper.md")
    assert "On SST-2, CoLA, Story Cloze and RACE-middle the model without pre-training was tuned to λ = 0" in text
    assert "On SNLI and STS-B it was tuned to λ = 0.5" in text


def test_the_rates_of_snli_with_and_without_the_auxiliary_objective_are_those_of_the_page():
    conditions = {of["variant"]: of for of in report_of("snli")["tuning"]}
    rates = [conditions[name]["chosen"]["learning_rate"] for name in ("full", "without_auxiliary")]
    assert rates == [1e-3, 1e-4]
    trials = conditions["without_auxiliary"]["trials"]
    assert min(trial["learning_rate"] for trial in trials) == 1e-4
    scores = [trial["score"] for trial in trials if trial["learning_rate"] <= 1e-3]
    text = text_of("paper.md")
    assert "has its best rate at 1e-4, the lowest tried" in text
    assert f"Its trials from 1e-4 to 1e-3 differ by {max(scores) - min(scores):.1f} points at most" in text
    assert "The two sides have other rates there, 1e-3 and 1e-4." in text


def test_what_the_hypotheses_of_snli_alone_give_away_is_measured():
    found = Cells(cells_of("snli"))
    places = ("ngrams_of_last", "without_auxiliary", "without_pretraining", 0)
    of_hypotheses, without_auxiliary, fresh, embeddings = (found.scores("snli", place) for place in places)
    for lower in (fresh, embeddings):
        assert difference(of_hypotheses, lower).interval[0] > 0
    ahead = difference(without_auxiliary, of_hypotheses)
    assert ahead.interval[0] < 0 < ahead.interval[1]
    text = text_of("paper.md")
    alone = f"{mean_of(found, 'snli', 'ngrams_of_last'):.1f}"
    assert f"n-grams of the hypothesis alone have {alone}. That is more than" in text
    assert f"and {alone} on SNLI from the hypothesis alone" in text
    low, high = ahead.interval
    assert f"without the auxiliary objective is {ahead.value:.1f} ahead (−{-low:.1f} to {high:.1f})" in text


def test_no_run_of_sst2_or_snli_failed_to_train():
    assert not any(has_failed(cell) for task in ("sst2", "snli") for cell in cells_of(task))
    assert "No run of SST-2 or SNLI failed." in text_of("paper.md")


def test_the_effects_with_the_runs_that_failed_to_train_are_measured():
    of_full, of_embeddings = [], []
    for task in ("cola", "story_cloze", "stsb", "race-middle"):
        column = pages.column_of(report_of(task))
        found = Cells([{**cell, "training": None} for cell in cells_of(task)])
        full, fresh, embeddings = (found.scores(column, place) for place in ("full", "without_pretraining", 0))
        assert len(fresh) == len(embeddings) == 10
        of_full.append(difference(full, fresh))
        of_embeddings.append(difference(embeddings, fresh))
    of_layers = difference(full, embeddings)  # of RACE-middle
    helps = [effect.interval[0] > 0 for effect in of_embeddings]
    assert helps == [False, False, True, False]  # of STS-B, not only of the runs that trained
    text = text_of("paper.md").replace("−", "-")
    told = "With them pre-training adds {} on CoLA, {} on Story Cloze, {} on STS-B and {} on RACE-middle, and the "
    assert (
        told.format(*map(in_words, of_full))
        + "embeddings alone add {}, {}, {} and {}, so".format(*map(in_words, of_embeddings))
        in text
    )
    assert f"On RACE-middle all layers add {in_words(of_layers)} to the embeddings then." in text


def test_how_far_the_training_loss_of_story_cloze_falls_is_measured():
    shares: dict[str, list[float]] = {}
    for cell in cells_of("story_cloze"):
        if training := cell.get("training"):
            share = 100 - 100 * training["task_loss"] / training["loss_of_frequencies"]
            shares.setdefault(cell["variant"], []).append(share)
    falls = {variant: f"{min(of):.0f} to {max(of):.0f} %" for variant, of in shares.items()}
    text = text_of("paper.md")
    assert f"the training loss of the full method falls {falls['full']} below" in text
    assert f"without pre-training {falls['without_pretraining']}, and with" in text
    assert f"the embeddings alone {falls['transfer']}." in text
    failed = [sum(share < 1 for share in shares[variant]) for variant in ("without_pretraining", "transfer")]
    assert failed == [1, 2]


def test_three_epochs_of_story_cloze_are_as_many_updates_as_the_page_says():
    runs = [cell for cell in cells_of("story_cloze") if "ran_with" in cell]
    sizes = {(cell["train_rows"], cell["ran_with"]["per_device_train_batch_size"]) for cell in runs}
    ((rows, batch),) = sizes
    assert f"three epochs are {3 * math.ceil(rows / batch)} updates" in text_of("paper.md")


WITH_SIX_EPOCHS = ("sst2", "cola", "story_cloze", "snli", "stsb")


def in_three_and_six_epochs(task: str) -> tuple[Cells, Cells]:
    in_six = pages.cells_of_six_epochs(task)
    assert len(in_six) == 10
    return Cells(cells_of(task)), Cells(in_six)


def mean_of(found: Cells, task: str, place: str) -> float:
    return fmean(of_seed[0] for of_seed in found.scores(task, place).values())


@pytest.mark.parametrize("task", WITH_SIX_EPOCHS)
def test_what_pretraining_is_worth_in_six_epochs_is_measured(task):
    of_three, of_six = (
        in_words(difference(found.scores(task, "full"), found.scores(task, "without_pretraining"))).replace("-", "−")
        for found in in_three_and_six_epochs(task)
    )
    (row,) = rows_of_table("worth", pages.TASKS[task])
    assert row[1].startswith(f"{of_three}, ")
    assert row[2] == f"{of_six}, 5 seeds"


def test_the_sentence_on_six_epochs_has_the_measured_effects():
    gains = []
    for task in ("sst2", "story_cloze"):
        _, found = in_three_and_six_epochs(task)
        gains.append(difference(found.scores(task, "full"), found.scores(task, "without_pretraining")).value)
    sentence = "in six epochs with the settings of three {:.1f} and {:.1f} (five seeds)."
    assert sentence.format(*gains) in text_of_readme()


def changes_of_three_more_epochs(task: str) -> list[str]:
    """Without pre-training and of the full method, at the seeds that trained in three epochs and in six."""
    of_three, of_six = in_three_and_six_epochs(task)
    changes = []
    for place in ("without_pretraining", "full"):
        change = difference(of_six.scores(task, place), of_three.scores(task, place))
        assert change.num_seeds == 5
        low, high = change.interval
        assert low < 0 < high
        changes.append(in_words(change).replace("-", "−"))
    return changes


def test_what_three_more_epochs_of_story_cloze_change_is_measured():
    fresh, full = changes_of_three_more_epochs("story_cloze")
    sentence = "By the common seeds its score is {} points higher ({}), and the full method's {}."
    assert sentence.format(*fresh.removesuffix(")").split(" (", 1), full) in text_of("paper.md")


def test_what_three_more_epochs_of_sst2_change_is_measured():
    fresh, _ = changes_of_three_more_epochs("sst2")
    of_three, of_six = in_three_and_six_epochs("sst2")
    lost = in_words(difference(of_three.scores("sst2", "full"), of_six.scores("sst2", "full"))).replace("-", "−")
    sentence = "the model without pre-training has {} more in six epochs ({}) and the full method {} less ({})."
    numbers = [number for words in (fresh, lost) for number in words.removesuffix(")").split(" (", 1)]
    assert sentence.format(*numbers) in text_of("paper.md")


def test_how_the_worth_of_pretraining_changes_with_three_more_epochs_is_measured():
    changes = {}
    for task in WITH_SIX_EPOCHS:
        worth = []
        for found in in_three_and_six_epochs(task):
            full, fresh = found.scores(task, "full"), found.scores(task, "without_pretraining")
            worth.append({seed: full[seed] - fresh[seed] for seed in full.keys() & fresh.keys() if seed <= 5})
        change = difference(worth[1], worth[0])
        assert change.num_seeds == {"cola": 4, "stsb": 4}.get(task, 5)
        changes[task] = in_words(change).replace("-", "−")
    sentence = "by {sst2} on SST-2, {story_cloze} on Story Cloze, {snli} on SNLI, {cola} on CoLA and {stsb} on STS-B."
    assert sentence.format(**changes) in text_of("paper.md")
    assert "On CoLA and STS-B four seeds trained each time." in text_of("paper.md")


def test_what_three_more_epochs_cost_on_snli_is_measured():
    of_three, of_six = in_three_and_six_epochs("snli")
    fresh, full = (
        difference(of_three.scores("snli", place), of_six.scores("snli", place))
        for place in ("without_pretraining", "full")
    )
    assert fresh.num_seeds == full.num_seeds == 5
    assert min(fresh.interval[0], full.interval[0]) > 0
    of_fresh = in_words(fresh).replace(" (", " points (")
    assert f"{of_fresh} without pre-training and {in_words(full)} with the full method" in text_of("paper.md")


def test_what_three_more_epochs_change_on_stsb_is_measured():
    of_three, of_six = in_three_and_six_epochs("stsb")
    fresh, full = (
        difference(of_six.scores("stsb", place), of_three.scores("stsb", place))
        for place in ("without_pretraining", "full")
    )
    assert (fresh.num_seeds, full.num_seeds) == (4, 5)
    for change in (fresh, full):
        assert change.interval[0] < 0 < change.interval[1]
    falls = {}
    for cell in pages.cells_of_six_epochs("stsb"):
        falls.setdefault(cell["variant"], []).append(cell)
    of_fresh, of_full = (falls_of(falls[name]) for name in ("without_pretraining", "full"))
    text = text_of("paper.md").replace("−", "-")
    told = (
        f"On STS-B the full method changes by {in_words(full)} and the model without pre-training by {in_words(fresh)}"
    )
    assert f"{told}, by four seeds" in text
    assert f"of the full method falls {of_full} % below the variance of the numbers, and without" in text
    assert f"and without pre-training {of_fresh} %." in text
    behind = difference(of_three.scores("stsb", "ngrams"), of_six.scores("stsb", "full"))
    low, high = behind.interval
    assert f"still ahead of the full method, by {behind.value:.1f} points ({low:.1f} to {high:.1f})." in text


def test_what_pretraining_is_worth_with_the_better_number_of_epochs_is_measured():
    of_three, of_six = in_three_and_six_epochs("sst2")
    full, fresh = of_three.scores("sst2", "full"), of_six.scores("sst2", "without_pretraining")
    assert mean_of(of_three, "sst2", "full") > mean_of(of_six, "sst2", "full")
    assert mean_of(of_six, "sst2", "without_pretraining") > mean_of(of_three, "sst2", "without_pretraining")
    assert f"pre-training would be worth {in_words(difference(full, fresh))}" in text_of("paper.md")


@pytest.mark.parametrize("task", WITH_SIX_EPOCHS)
def test_six_epochs_have_the_settings_that_were_chosen_for_three(task):
    of_three = {cell["variant"]: cell["ran_with"] for cell in cells_of(task) if "ran_with" in cell}
    for cell in pages.cells_of_six_epochs(task):
        assert cell["ran_with"] == {**of_three[cell["variant"]], "num_train_epochs": 6.0}


def fall_of_fresh_models(cells: list[dict]) -> str:
    """How far the training loss of models without pre-training falls below that of the class frequencies."""
    fresh = [cell["training"] for cell in cells if cell["variant"] == "without_pretraining"]
    shares = [100 - 100 * training["task_loss"] / training["loss_of_frequencies"] for training in fresh]
    return f"{min(shares):.0f} to {max(shares):.0f} %"


def test_how_far_fresh_models_fall_in_six_epochs_is_measured():
    text = text_of("paper.md")
    of_stories, of_cola = (fall_of_fresh_models(pages.cells_of_six_epochs(task)) for task in ("story_cloze", "cola"))
    assert f"In six its training loss falls {of_stories} below" in text
    assert f"The training loss of CoLA's model without pre-training falls {of_cola} below" in text
    assert f"in six epochs, {fall_of_fresh_models(cells_of('cola'))} in three" in text


@pytest.mark.parametrize("task", WITH_SIX_EPOCHS)
def test_no_run_with_six_epochs_failed_to_train(task):
    assert not any(has_failed(cell) for cell in pages.cells_of_six_epochs(task))


def test_fresh_models_of_story_cloze_have_more_than_the_embeddings_of_earlier_runs():
    means = [mean_of(found, "story_cloze", "without_pretraining") for found in in_three_and_six_epochs("story_cloze")]
    assert "{:.1f} in three epochs and {:.1f} in six (above)".format(*means) in text_of("paper.md")


def test_ngrams_of_the_endings_alone_are_measured():
    scores = Cells(cells_of("story_cloze")).scores("story_cloze", "ngrams_of_last")
    mean = fmean(of_seed[0] for of_seed in scores.values())
    assert f"n-grams of the endings alone have {mean:.1f}" in text_of("paper.md")


def test_the_difference_to_ngrams_without_the_auxiliary_objective_is_measured():
    found = Cells(cells_of("cola"))
    effect = in_words(difference(found.scores("cola", "without_auxiliary"), found.scores("cola", "ngrams")))
    text = text_of("paper.md")
    assert f"only without the auxiliary objective, where it is {effect}." in text
    of_both = difference(found.scores("cola", "full"), found.scores("cola", "without_auxiliary"))
    low, high = of_both.interval
    assert low < 0 < high
    assert f"better than the full method is not decided (−{-of_both.value:.1f}, −{-low:.1f} to {high:.1f})" in text


def test_the_trials_of_cola_have_more_without_the_auxiliary_objective():
    chosen = {of["variant"]: of["chosen"]["score"] for of in report_of("cola")["tuning"]}
    sentence = f"{chosen['without_auxiliary']:.1f} against {chosen['full']:.1f}."
    assert f"The trials, too, have more for λ = 0 there: {sentence}" in text_of("paper.md")


def test_how_little_the_embeddings_of_cola_train_is_measured():
    trained = [cell for cell in cells_of("cola") if cell["variant"] == "transfer" and not has_failed(cell)]
    falls = [100 - 100 * cell["training"]["task_loss"] / cell["training"]["loss_of_frequencies"] for cell in trained]
    shares = []
    for cell in trained:
        answers = cell["answers"]["validation"]["predictions"].split()
        shares.append(100 * answers.count("1") / len(answers))
    text = text_of("paper.md")
    assert len(trained) == 6
    assert "The six that trained are hardly better" in text
    assert f"their training loss falls {min(falls):.1f} to {max(falls):.1f} %, and they call" in text
    assert f"call {min(shares):.0f} to {max(shares):.0f} % of the sentences acceptable" in text


def test_the_losses_of_stsb_are_measured():
    falls: dict[str, list[float]] = {}
    above = []
    for cell in cells_of("stsb"):
        if training := cell.get("training"):
            fall = 100 - 100 * training["task_loss"] / training["loss_of_frequencies"]
            (above if has_failed(cell) else falls.setdefault(cell["variant"], [])).append(fall)
    best, *worse = sorted(above, reverse=True)
    text = text_of("paper.md")
    first, second = (f"{-fall:.1f}" for fall in worse)
    assert f"one is {best:.1f} % below the variance of the numbers, two are {first} and {second} % above." in text
    names = ("without_pretraining", "transfer", "full")
    fresh, embeddings, full = (f"{min(falls[name]):.0f} to {max(falls[name]):.0f} %" for name in names)
    assert len(falls["without_pretraining"]) == 7
    told = f"falls {fresh}, with the embeddings alone {embeddings}, that of the full method {full}."
    assert f"The loss of the seven that trained {told}" in text


def test_the_trials_of_stsb_are_those_of_the_page():
    conditions = {of["variant"]: of for of in report_of("stsb")["tuning"]}
    variants = ("full", "without_auxiliary", "transfer-0", "without_pretraining")
    full, without, embeddings, fresh = (f"{conditions[name]['chosen']['score']:.1f}" for name in variants)
    text = text_of("paper.md")
    chosen = f"{full} (full method), {without} (no auxiliary objective), {embeddings} (embeddings alone) and {fresh}"
    assert f"the chosen trials have {chosen} (no pre-training)" in text
    found = Cells(cells_of("stsb"))
    means = [mean_of(found, "stsb", place) for place in ("full", "without_auxiliary", 0, "without_pretraining")]
    assert "the seeds have {:.1f}, {:.1f}, {:.1f} and {:.1f}. N-grams have 70 to 71 on both.".format(*means) in text
    of_ngrams = [100 * max(cell["penalties"].values()) for cell in found.baseline]
    assert {round(score) for score in [*of_ngrams, mean_of(found, "stsb", "ngrams")]} == {70, 71}
    rates = [trial["learning_rate"] for trial in conditions["without_pretraining"]["trials"]]
    assert conditions["without_pretraining"]["chosen"]["learning_rate"] == min(rates) == 1e-4
    assert "STS-B's best rate without pre-training is 1e-4, the lowest tried" in text
    failed = {
        name: [trial["learning_rate"] for trial in conditions[name]["trials"] if trial["failed"]] for name in variants
    }
    assert failed["without_pretraining"] == failed["transfer-0"] == [1e-3, 3e-3, 3e-3]
    assert (failed["full"], failed["without_auxiliary"]) == ([], [3e-3, 3e-3])
    told = "So did three of its trials, two at 3e-3 and one at 1e-3, the same trials with the embeddings alone"
    assert f"{told}, and without the auxiliary objective the two at 3e-3." in text


def test_the_range_of_the_fresh_trials_of_story_cloze_is_measured():
    (trials,) = (of["trials"] for of in report_of("story_cloze")["tuning"] if of["variant"] == "without_pretraining")
    scores = [trial["score"] for trial in trials]
    assert f"they lie between {min(scores):.1f} and {max(scores):.1f} on 299 rows" in text_of("paper.md")


def test_what_untuned_runs_showed_is_in_the_table_of_the_earlier_ones():
    (full,), (fresh,) = (rows_of_table("conditions", f"A: {name}") for name in ("full method", "no pre-training"))
    on_stories, on_sst2 = (float(full[column]) - float(fresh[column]) for column in (1, 2))
    assert (
        f"Untuned runs of the same model showed {on_sst2:.0f} on SST-2 and {on_stories:.0f} on Story Cloze."
        in text_of("paper.md")
    )


def test_six_epochs_bring_the_fresh_model_of_story_cloze_to_the_embeddings_in_three():
    of_three, of_six = in_three_and_six_epochs("story_cloze")
    fresh, embeddings = mean_of(of_six, "story_cloze", "without_pretraining"), mean_of(of_three, "story_cloze", 0)
    assert fresh > embeddings
    sentence = f"without pre-training has {fresh:.1f} in six, where the embeddings have {embeddings:.1f} in three"
    assert sentence in text_of("paper.md")


def test_how_close_failed_runs_came_is_measured():
    below = {"without_pretraining": [], "transfer": []}
    for cell in filter(has_failed, cells_of("cola")):
        training = cell["training"]
        below[cell["variant"]].append(100 - 100 * training["task_loss"] / training["loss_of_frequencies"])
    assert [f"{share:.1f}" for share in below["without_pretraining"]] == ["0.2", "0.2"]
    assert [f"{share:.1f}" for share in sorted(below["transfer"])] == ["-0.6", "0.7", "0.7", "1.0"]


def test_how_many_seeds_chose_the_smallest_penalty_is_measured():
    chosen = [cell["penalty"] for cell in cells_of("sst2") if cell["kind"] == "baseline"]
    assert len(chosen) == 10
    assert chosen.count(min(PENALTIES)) == 5
    assert "five of ten seeds chose the smallest penalty" in text_of("paper.md")


def test_the_method_of_the_earlier_runs_is_that_of_their_files():
    text = text_of("paper.md")
    flags = pages.newest("reproduction")["settings"]["fine_tuning"]
    rows, warmup = int(flags["max_train_samples"]), 100 * float(flags["warmup_steps"])
    settings = f"at most {rows:,} rows and {flags['max_length']} tokens, learning rate {flags['learning_rate']}"
    assert f"60 M: {settings}, warm-up {warmup:g} %." in text
    for name, tokens in (("size-a", 512), ("size-b", 128)):
        assert f"warm-up 0.2 %, λ 0.5, at most {tokens} tokens" in pages.newest(name)["results"]["settings"]
        assert f"{name[-1].upper()}: at most 4,000 rows" in text
        assert f"and {tokens} tokens" in text


def test_the_runs_of_b_that_learned_nothing_are_counted():
    scores = pages.of_task(pages.newest("size-b")["results"], "sst2")
    fresh = [
        score
        for name in ("without pre-training", *(f"{k} layers" for k in range(4)))
        for score in scores[name].values()
    ]
    constant = sum(score == pytest.approx(444 / 872, abs=1e-4) for score in fresh)
    assert f"in {constant} of {len(fresh)} runs" in text_of("claims.md")
    assert [round(score, 2) for score in scores["3 layers"].values()] == [0.51, 0.73, 0.51]
    assert "with three layers in two of three seeds" in text_of("paper.md")


def without_rows(task: str, overlap: dict, left_out: list[int]) -> dict[str, tuple[str, str]]:
    """Each condition's score without some rows of a test set, and its score on all of them."""
    found = scores_without(cells_of(task), get_task(task), overlap["split"], overlap["rows"], left_out)
    return {of["variant"]: (f"{of['without']:.1f}", f"{of['with']:.1f}") for of in found}


def test_the_scores_without_overlapping_rows_are_those_of_the_kept_answers():
    (overlap,) = (of for of in pages.newest("overlap")["results"] if of["task"] == "cola" and of["ngram"] == 8)
    assert set(overlap["overlapping"]) < set(overlap["in_training"])
    of_variant = without_rows("cola", overlap, overlap["in_training"])
    text = text_of("paper.md")
    assert f"CoLA without these {len(overlap['in_training'])} rows" in text
    assert "full method {} (all rows: {})".format(*of_variant["full"]) in text
    assert "no pre-training {} ({})".format(*of_variant["without_pretraining"]) in text
    assert "n-grams {} ({})".format(*of_variant["ngrams"]) in text


def test_the_scores_of_stsb_without_overlapping_rows_are_those_of_the_kept_answers():
    (overlap,) = (of for of in pages.newest("overlap")["results"] if of["task"] == "stsb" and of["ngram"] == 8)
    assert not set(overlap["overlapping"]) & set(overlap["in_training"])
    of_variant = without_rows("stsb", overlap, sorted(overlap["overlapping"] + overlap["in_training"]))
    shown = [of_variant[name] for name in ("full", "without_pretraining", "ngrams")]
    in_training, with_ngram = len(overlap["in_training"]), len(overlap["overlapping"])
    rows = f"STS-B without these {in_training} rows and the {with_ngram} that have an 8-gram: "
    scores = "full method {} (all rows: {}), no pre-training {} ({}), n-grams {} ({}).".format(*sum(shown, ()))
    assert rows + scores in text_of("paper.md")


@pytest.mark.parametrize("task", ["story_cloze", "snli"])
def test_the_scores_of_a_test_set_without_overlapping_rows_are_those_of_the_kept_answers(task):
    of_task = [of for of in pages.newest("overlap")["results"] if of["task"] == task and of["ngram"] == 8]
    (overlap,) = (of for of in of_task if of["split"] == "test")
    of_variant = without_rows(task, overlap, overlap["overlapping"])
    rows = f"{pages.TASKS[task]}'s test without its {len(overlap['overlapping'])} rows that have an 8-gram: "
    shown = [of_variant[name] for name in ("full", "without_pretraining", "ngrams")]
    scores = "full method {} (all rows: {}), no pre-training {} ({}), n-grams {} ({}).".format(*sum(shown, ()))
    assert rows + scores in text_of("paper.md")


def test_the_sentences_on_generation_on_a_gpu_are_measured():
    rows = {}
    for path in sorted(pages.RESULTS.glob("2026-11-2[67]-accelerator.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["results"]:
            if row["peer"] == "GPT1ForCausalLM, static cache":
                rows.setdefault(row["measure"], []).append(row["ratio"]["median"])
    times = [1 / ratio for ratio in rows["seconds"]]  # the default cache is ours, the static one the peer
    assert f"a static cache is {min(times):.1f} to {max(times):.1f} times as fast" in text_of("benchmarks.md")
    assert {f"{100 * ratio - 100:.0f} %" for ratio in rows["peak MiB"]} == {"17 %"}
    assert "takes 17 % more memory above the weights" in text_of("benchmarks.md")


# ---- The auxiliary objective on a decoder of transformers


@pytest.fixture(scope="module")
def objective(decoder_objective):
    """The script, its newest results, and their cells with the answer to each row."""
    path = max(pages.RESULTS.glob("????-??-??-decoder-objective.json"))
    cells = pages.read_finished_cells(path.with_name(f"{path.stem}-cells.json.gz"))
    return decoder_objective, pages.newest("decoder-objective")["results"], cells


def test_the_effects_of_the_objective_on_a_decoder_are_those_of_the_kept_answers(objective):
    script, results, cells = objective
    assert script.effects_of(cells) == results["effects"]


def test_other_answers_have_other_effects(objective):
    script, results, cells = objective
    changed = copy.deepcopy(cells)
    run = next(cell for cell in changed if "answers" in cell and cell["lm_coef"] == 0.5)
    run["answers"]["predictions"] = run["answers"]["labels"]
    assert script.effects_of(changed) != results["effects"]


def test_a_first_run_with_the_objective_that_diverged_is_counted(objective):
    script, results, cells = objective
    changed = copy.deepcopy(cells)
    run = next(cell for cell in changed if "answers" in cell and not cell["is_trial"])
    del run["answers"]
    run["training"] = {"task_loss": float("nan"), "loss_of_frequencies": 0.7}
    place = {name: run[name] for name in ("task", "rows", "lm_coef")}
    before, after = (
        next(effect for effect in effects if place.items() <= effect.items())
        for effects in (results["effects"], script.effects_of(changed))
    )
    assert after["failed"] == before["failed"] + 1
    assert after["one_answer"] == before["one_answer"]


def test_runs_at_a_rate_that_was_not_chosen_do_not_count(objective):
    script, results, cells = objective
    tuned = [cell for cell in cells if cell["learning_rate"] is not None and not cell["is_trial"]]
    others = [{**cell, "learning_rate": 7e-4} for cell in tuned]
    assert len(others) > 50
    assert script.effects_of([*cells, *others]) == results["effects"]


def test_the_score_of_a_run_with_the_objective_is_that_of_its_answers(objective):
    _, _, cells = objective
    runs = [cell for cell in cells if "answers" in cell]
    assert len(runs) >= 5 * 9  # five seeds of each finished condition
    for cell in runs:
        metric = get_task(cell["task"]).metrics[0]
        labels, predictions = (np.array(cell["answers"][name].split(), float) for name in ("labels", "predictions"))
        score = compute(metric, predictions, labels)[metric]
        assert score == pytest.approx(cell["metrics"][metric], abs=1e-6)


def test_each_rate_of_the_objective_is_that_of_the_best_of_as_many_trials(objective):
    script, results, cells = objective
    for effect in results["effects"]:
        if effect["lm_coef"] is None:
            continue
        keys = ("task", "rows", "lm_coef")
        trials = [cell for cell in cells if cell["is_trial"] and all(cell[key] == effect[key] for key in keys)]
        assert len(trials) == len(results["learning_rates"])
        assert effect["learning_rate"] == script.chosen_rate(trials)
