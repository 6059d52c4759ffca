"""Several few-shot prompts: what they show, and how a planted bias is measured and taken away."""

import math

import numpy as np
import pytest
from support.refusals import refusal

from modeling_gpt1 import ContinuationScore, evaluate_zero_shot
from modeling_gpt1.inference import few_shot as few_shot_module
from modeling_gpt1.inference.few_shot import evaluate_few_shot
from modeling_gpt1.inference.heuristics import check_options, get_heuristic

# Each row says its label; the words are no tokens of anything.
WORDS = {0: "bad", 1: "good"}
ROWS = [{"sentence": f"row {number} is {WORDS[number % 2]}", "label": number % 2} for number in range(40)]
TRAIN = [{"sentence": f"shown {number} was {WORDS[number % 2]}", "label": number % 2} for number in range(30)]
ANSWERS = {0: " negative", 1: " positive"}


class PlantedScorer:
    """In place of a model: log P of an answer is what the row says, and a bias to what the prompt shows.

    Args:
        signal: log-odds of the row's own label.
        recency: log-odds for the label of the last shown row.
        majority: log-odds for each shown row of a label.
    """

    def __init__(self, signal: float, recency: float = 0.0, majority: float = 0.0):
        self.signal = signal
        self.recency = recency
        self.majority = majority

    def score(self, requests):
        return [self.score_one(context, answers) for context, answers in requests]

    def score_one(self, context, answers):
        *shown, row = context.split("\n")
        shown_labels = [int(line.endswith(ANSWERS[1])) for line in shown]
        logits = []
        for label in (0, 1):
            logit = self.signal * (f"is {WORDS[label]}" in row) + self.majority * shown_labels.count(label)
            if shown_labels and shown_labels[-1] == label:
                logit += self.recency
            logits.append(logit)
        total = math.log(sum(map(math.exp, logits)))
        assert answers == (ANSWERS[0], ANSWERS[1])
        return [ContinuationScore((logit - total,)) for logit in logits]


def few_shot(scorer, **options):
    options = {"num_shots": 3, "num_orders": 6, "calibrate": True, **options}
    return evaluate_few_shot(scorer, "sst2", ROWS, TRAIN, **options)


def test_an_unbiased_model_has_no_bias_and_no_spread():
    result = few_shot(PlantedScorer(signal=1.0))
    assert result.plain.metrics["accuracy"] == 1.0
    assert result.plain.std == 0.0
    assert result.plain.bias.recency_bias == 0.0
    assert result.plain.bias.majority_bias == 0.0
    assert result.plain.bias.most_predicted_share == 0.5


def test_calibration_changes_nothing_of_an_unbiased_model():
    result = few_shot(PlantedScorer(signal=1.0))
    assert result.calibrated == result.plain


def test_without_a_most_frequent_label_there_is_no_majority_bias():
    """A zero would say that it was measured."""
    bias = few_shot_module._label_bias(np.array([0, 1]), [[0, 1], [1, 1]], shots=[[0, 1], [1, 0]])
    assert bias.majority_bias is None


def test_a_recency_bias_is_measured():
    result = few_shot(PlantedScorer(signal=1.0, recency=3.0), num_orders=12)
    assert result.plain.metrics["accuracy"] == 0.5  # always the last label
    assert result.plain.bias.recency_bias == 0.5
    assert result.plain.bias.most_predicted_share == 1.0
    assert result.plain.bias.majority_bias < 0.5  # the last label is not always the most frequent one


def test_a_majority_bias_is_measured():
    result = few_shot(PlantedScorer(signal=1.0, majority=3.0), num_orders=12)
    assert result.plain.bias.majority_bias == 0.5
    assert result.plain.bias.most_predicted_in_shots > 0.6
    assert result.plain.bias.recency_bias < 0.5


@pytest.mark.parametrize("content_free", [("N/A",), ("N/A", "[MASK]", "")])
@pytest.mark.parametrize("bias", ["recency", "majority"])
def test_calibration_recovers_the_accuracy_of_a_biased_model(bias, content_free):
    result = few_shot(PlantedScorer(signal=1.0, **{bias: 3.0}), content_free=content_free)
    assert result.plain.metrics["accuracy"] < 0.6
    assert result.calibrated.metrics["accuracy"] == 1.0
    assert result.calibrated.bias.recency_bias == 0.0
    assert result.calibrated.bias.majority_bias == 0.0


def test_calibration_by_a_text_with_content_recovers_nothing():
    """The text says the label 1, so that its own label is taken from every row."""
    result = few_shot(PlantedScorer(signal=1.0), content_free=("this is good",))
    assert result.calibrated.metrics["accuracy"] < 1.0


def test_of_several_texts_the_normalised_probabilities_are_averaged():
    """Of p = (0.9, 0.1) and (0.5, 0.5) the mean is (0.7, 0.3), whatever the sums of the unnormalised ones are."""
    of_texts = {"sure": (0.9, 0.1), "open": (0.05, 0.05)}

    class Scorer:
        def score(self, requests):
            return [self.score_one(context) for context, _ in requests]

        def score_one(self, context):
            values = next((of_texts[text] for text in of_texts if text in context), (0.4, 0.4))
            return [ContinuationScore((math.log(value),)) for value in values]

    result = evaluate_zero_shot(Scorer(), "sst2", ROWS[:1], calibrate=True, content_free=("sure", "open"))
    scores = result.scores[0]
    assert scores[0] - scores[1] == pytest.approx(math.log(0.3 / 0.7))


def test_each_prompt_draws_its_rows_and_their_order():
    result = few_shot(PlantedScorer(signal=1.0), num_orders=40)
    assert len(result.shots) == 40
    assert {len(labels) for labels in result.shots} == {3}
    assert len(set(map(tuple, result.shots))) == 8  # all orders of labels come up


def test_the_first_prompt_is_that_of_a_single_evaluation():
    scorer = PlantedScorer(signal=1.0, recency=0.9, majority=0.4)
    single = evaluate_zero_shot(scorer, "sst2", ROWS, TRAIN, num_shots=3, seed=5)
    assert few_shot(scorer, seed=5).plain.of_prompts[0] == single.metrics["accuracy"]


def test_mean_deviation_and_range_are_those_of_the_prompts():
    spread = few_shot(PlantedScorer(signal=1.0, recency=0.5, majority=0.3), num_orders=10).plain
    mean = sum(spread.of_prompts) / 10
    assert spread.metrics["accuracy"] == pytest.approx(mean)
    assert spread.std == pytest.approx((sum((value - mean) ** 2 for value in spread.of_prompts) / 9) ** 0.5)
    assert (spread.least, spread.most) == (min(spread.of_prompts), max(spread.of_prompts))


def test_multiple_choice_has_no_bias_of_labels():
    rows = [
        {"context": f"he ran {number}.", "ending1": "he fell.", "ending2": "she fell.", "label": 0}
        for number in range(6)
    ]

    class Scorer:
        def score(self, requests):
            return [[ContinuationScore((-1.0,)), ContinuationScore((-2.0,))] for _ in requests]

    result = evaluate_few_shot(Scorer(), "story_cloze", rows, rows, num_shots=1, num_orders=2)
    assert result.plain.bias is None
    assert result.plain.metrics["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"num_orders": 1}, ["`num_orders` is 1", "at least 2 prompts"]),
        ({"num_shots": 0}, ["`num_shots` 0", "1 shown row each"]),
        ({"content_free": ()}, ["`content_free` is empty", "'[MASK]'"]),
        ({"num_shots": 30}, ["at least 31 training rows"]),
    ],
)
def test_a_wrong_use_is_refused(options, parts):
    message = refusal(few_shot, PlantedScorer(signal=1.0), **options)
    assert [part for part in parts if part not in message] == []


def test_a_text_without_content_that_leaves_no_context_is_refused():
    """The first token of an answer would have no probability, and a short answer no bias."""
    rows = [{"context": "Rick paid.", "ending1": "Yes.", "ending2": "He went home.", "label": 0}]
    texts = ("N/A", "")
    message = refusal(evaluate_zero_shot, PlantedScorer(1.0), "story_cloze", rows, calibrate=True, content_free=texts)
    assert "The content-free text '' leaves nothing before the candidates of task 'story_cloze'" in message
    assert "Pass a `content_free` without it" in message
    check_options(get_heuristic("story_cloze"), rows, rows * 2, 1, True, texts)  # behind an example it is not alone
    del rows[0]["ending1"]
    assert "a row without ending1" in refusal(check_options, get_heuristic("story_cloze"), rows, (), 0, True, texts)


def test_a_task_with_a_threshold_has_no_examples():
    cola = [{"sentence": "he paid", "label": 1}, {"sentence": "paid he", "label": 0}]
    message = refusal(evaluate_few_shot, PlantedScorer(1.0), get_heuristic("cola"), cola, cola, 1, 2)
    assert "is answered by a threshold, without examples" in message
