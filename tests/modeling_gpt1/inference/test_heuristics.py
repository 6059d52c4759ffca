"""Heuristics on made-up rows: what is asked, shown and calibrated, thresholds, and the whole of every refusal."""

import math

import numpy as np
import pytest
from sklearn.metrics import matthews_corrcoef

from modeling_gpt1 import CausalLMScorer, ContinuationScore, GPT1ForCausalLM, Heuristic, evaluate_zero_shot
from modeling_gpt1.inference.heuristics import DPR, HEURISTICS, best_threshold, get_heuristic

SENTENCES = {"a charming journey . ": 1, "slow and bleak ": 0, "the whole room laughed": 1}
SST2 = [{"sentence": sentence, "label": label} for sentence, label in SENTENCES.items()]
COLA = [{"sentence": "he paid for it .", "label": 1}, {"sentence": "paid it he for .", "label": 0}]
STORY = {"context": "He ran. He fell.", "ending1": "He cried.", "ending2": "He was a plough.", "label": 0}
RACE = {"article": "He ran.\nHe fell. ", "question": "What did he do?", "options": ["Run", "Fly", "Sit"], "label": 0}
BEE = {"sentence": "The bee landed on the flower because it had pollen.", "pronoun": "it", "pronoun_offset": 37}
BEE |= {"candidates": ["The bee", "the flower"], "label": 1}


class ScorerByRule:
    """In place of a model: a text's log-probability by a function, a word a token."""

    def __init__(self, rule):
        self.rule = rule
        self.asked = []

    def score(self, requests):
        self.asked += requests
        return [[self.rule(context, rest) for rest in continuations] for context, continuations in requests]


PAIRS = [
    {"sentence_good": good, "sentence_bad": bad, "linguistics_term": term}
    for good, bad, term in (
        ("they eat .", " they eats .", "agreement"),
        ("he saw it", "he seen it", "irregular_forms"),
        ("she sees him", "she sees herself", "binding"),
        ("he saw it", "he sawed it", "irregular_forms"),
    )
]


def by_words(**values):
    """Every word has the log-probability given for it, else −1."""
    return lambda context, rest: ContinuationScore(tuple(values.get(word, -1.0) for word in rest.split()))


def test_what_is_asked_of_each_task():
    asked = {name: get_heuristic(name).requests for name in HEURISTICS}
    assert asked["sst2"](SST2[0]) == (("a charming journey . very", (" negative", " positive")),)
    assert asked["cola"](COLA[0]) == (("", ("he paid for it .",)),)
    assert asked["story_cloze"](STORY) == (("He ran. He fell.", (" He cried.", " He was a plough.")),)
    assert asked["blimp"](PAIRS[0]) == (("", ("they eats .",)), ("", ("they eat .",)))
    for name in ("race", "race-middle", "race-high"):
        assert asked[name](RACE) == (("He ran.\nHe fell. What did he do?", (" Run", " Fly", " Sit")),)
    assert asked["dpr"](BEE) == (
        ("The bee landed on the flower because the bee", (" had pollen.",)),
        ("The bee landed on the flower because the flower", (" had pollen.",)),
    )


def test_a_pronoun_in_its_place():
    row = {**BEE, "sentence": "A bee came. It left.", "pronoun": "It", "pronoun_offset": 12}
    row["candidates"] = ["a bee", "An ant"]
    asked = get_heuristic("dpr").requests
    assert asked(row) == (("A bee came. A bee", (" left.",)), ("A bee came. An ant", (" left.",)))
    with pytest.raises(ValueError, match="`pronoun_offset` 38 of the sentence .* points to 't ', .*: correct the row"):
        asked({**BEE, "pronoun_offset": 38})


def test_case_spaces_and_hyphens_of_a_name_do_not_matter():
    assert get_heuristic("SST-2") is HEURISTICS["sst2"]
    assert get_heuristic("Story Cloze").task.name == "story_cloze"
    assert get_heuristic("RACE-high").best_known == 0.503
    assert get_heuristic("dpr").task is DPR
    with pytest.raises(ValueError, match="'mnli' has no zero-shot heuristic.* race-high, .* pass a `Heuristic` to"):
        get_heuristic("mnli")


def test_the_mean_decides_between_answers_and_the_whole_between_labels():
    scorer = ScorerByRule(by_words(He=-0.1, plough=-0.1, negative=-2.0, positive=-1.5))
    result = evaluate_zero_shot(scorer, "story_cloze", [STORY, {**STORY, "label": 1}])
    assert result.scores[0] == pytest.approx([-0.55, -0.775])
    assert result.predictions == [0, 0]
    assert result.metrics == pytest.approx({"accuracy": 0.5, "normalised": 0.0})
    assert len(scorer.asked) == 1  # both rows ask the same
    result = evaluate_zero_shot(scorer, "sst2", SST2)
    assert result.scores == [[-2.0, -1.5]] * 3
    assert result.predictions == [1, 1, 1]
    assert result.metrics == pytest.approx({"accuracy": 2 / 3, "normalised": (2 / 3 - 0.5) / (0.932 - 0.5)})
    assert result.threshold is None


def test_minimal_pairs_by_phenomenon():
    result = evaluate_zero_shot(ScorerByRule(by_words(eats=-3.0, seen=-3.0, him=-3.0)), "blimp", PAIRS)
    assert result.scores == [[-5.0, -3.0], [-5.0, -3.0], [-3.0, -5.0], [-3.0, -3.0]]
    assert result.predictions == [1, 1, 0, 0]  # equal scores are no right answer
    of_groups = {"accuracy_agreement": 1.0, "accuracy_binding": 0.0, "accuracy_irregular_forms": 0.5}
    assert result.metrics == pytest.approx({"accuracy": 0.5, "normalised": 0.0, **of_groups})


def test_an_empty_answer_is_never_chosen():
    row = {**STORY, "ending1": " ", "label": 1}
    for calibrate in (False, True):
        result = evaluate_zero_shot(ScorerByRule(by_words()), "story_cloze", [row], calibrate=calibrate)
        assert result.predictions == [1]
        assert result.scores[0][0] == -math.inf


def test_acceptability_by_a_threshold_of_the_training_rows():
    cut = {"he": ContinuationScore((-1.0,)), "paid": ContinuationScore((-3.0,))}
    scorer = ScorerByRule(lambda context, rest: cut[rest.split()[0]])
    result = evaluate_zero_shot(scorer, "cola", [*COLA, {**COLA[0], "label": 0}], train_rows=COLA)
    assert result.threshold == -2.0
    assert result.predictions == [1, 0, 1]
    others = [{**row, "sentence": f"so {row['sentence']}"} for row in COLA]
    same = evaluate_zero_shot(ScorerByRule(lambda *_: cut["he"]), "cola", others, train_rows=COLA)
    assert same.threshold == -1.0  # only what exceeds it is of class 1
    assert same.predictions == [0, 0]
    expected = matthews_corrcoef([1, 0, 0], [1, 0, 1])
    assert result.metrics == pytest.approx({"matthews_correlation": expected, "normalised": expected / 0.35})


def test_the_best_threshold_of_all():
    """Beside scikit-learn's coefficient at every threshold."""
    generator = np.random.default_rng(0)
    for scores in (generator.normal(size=60), generator.integers(0, 5, size=60).astype(float)):
        labels = (scores + generator.normal(size=60) > 0.5).astype(int)
        values = np.unique(scores)
        coefficients = [matthews_corrcoef(labels, scores > value) for value in (values[1:] + values[:-1]) / 2]
        threshold = best_threshold(scores, labels)
        assert matthews_corrcoef(labels, scores > threshold) == pytest.approx(max(coefficients))
        assert threshold == pytest.approx(((values[1:] + values[:-1]) / 2)[np.argmax(coefficients)])
    assert best_threshold(np.array([1.0, 1.0]), np.array([0, 1])) == 1.0
    assert -1e308 < best_threshold(np.array([-np.inf, 2.0, -np.inf]), np.array([0, 1, 0])) < 2.0


def test_answered_rows_stand_before_each_row_but_never_before_themselves():
    scorer = ScorerByRule(by_words())
    words = ("negative", "positive")
    shown = [f"{row['sentence'].strip()} very {words[row['label']]}\n" for row in SST2]
    evaluate_zero_shot(scorer, "sst2", SST2, train_rows=SST2, num_shots=2, seed=3)
    contexts = [context for context, _ in scorer.asked]
    for index, context in enumerate(contexts):
        others = [shown[other] for other in range(3) if other != index]
        asked = f"{SST2[index]['sentence'].strip()} very"
        assert context in (others[0] + others[1] + asked, others[1] + others[0] + asked)
    rows = [{"sentence": f"number {number}", "label": 0} for number in range(50)]
    by_seed = [ScorerByRule(by_words()) for _ in range(4)]
    for seed, scorer in enumerate(by_seed):
        evaluate_zero_shot(scorer, "sst2", SST2[:1], train_rows=rows, num_shots=1, seed=seed % 3)
    assert by_seed[0].asked == by_seed[3].asked
    assert len({scorer.asked[0].context for scorer in by_seed}) == 3


def test_pronouns_and_readings_are_shown_with_their_answers():
    scorer = ScorerByRule(by_words())
    other = {**BEE, "sentence": "The ant fed the bee because it was kind.", "pronoun_offset": 28, "label": 0}
    other["candidates"] = ["The ant", "the bee"]
    evaluate_zero_shot(scorer, "dpr", [BEE], train_rows=[BEE, other], num_shots=1)
    assert scorer.asked[0].context == (
        "The ant fed the bee because the ant was kind.\nThe bee landed on the flower because the bee"
    )
    evaluate_zero_shot(scorer, "race", [RACE], train_rows=[RACE, dict(RACE, question="Who?", label=2)], num_shots=1)
    assert scorer.asked[2].context == "He ran.\nHe fell. Who? Sit\nHe ran.\nHe fell. What did he do?"


def test_calibration_divides_by_the_probabilities_of_the_text_without_content():
    """P(positive) is 0.6 for the row and 0.8 for N/A; negative has 0.3 and 0.1: 0.75 beside 3."""
    probabilities = {"bleak": {" negative": 0.3, " positive": 0.6}, "N/A very": {" negative": 0.1, " positive": 0.8}}

    def rule(context, rest):
        (values,) = [values for text, values in probabilities.items() if text in context]
        return ContinuationScore((math.log(values[rest]),))

    plain, calibrated = (
        evaluate_zero_shot(ScorerByRule(rule), "sst2", SST2[1:2], calibrate=calibrate) for calibrate in (False, True)
    )
    assert plain.predictions == [1]
    assert calibrated.predictions == [0]
    assert np.exp(calibrated.scores[0]) == pytest.approx([3, 0.75])


def test_what_stands_before_a_row_stands_before_the_text_without_content():
    scorer = ScorerByRule(by_words())
    evaluate_zero_shot(scorer, "sst2", SST2[:1], train_rows=SST2[:2], num_shots=1, calibrate=True)
    before = "slow and bleak very negative\n"
    assert [context for context, _ in scorer.asked] == [f"{before}a charming journey . very", f"{before}N/A very"]
    scorer = ScorerByRule(by_words())
    evaluate_zero_shot(scorer, "race", [RACE], calibrate=True)
    assert scorer.asked[1] == ("N/A N/A", (" Run", " Fly", " Sit"))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("cola", {"train_rows": COLA, "num_shots": 1}, "'cola' is answered by a threshold.* or this task out"),
        ("cola", {"train_rows": COLA, "calibrate": True}, "'cola' cannot be calibrated.* or this task out"),
        ("dpr", {"calibrate": True}, "'dpr' cannot be calibrated.* or this task out"),
        ("sst2", {"train_rows": SST2, "num_shots": 3}, "at least 4 training rows to show 3 .* are 3. Pass more as"),
        ("sst2", {"rows": []}, "'sst2' was given no rows. Pass `rows` as"),
        ("sst2", {"rows": [SST2[0], {"text": "a", "label": 1}]}, "given a row without sentence. Pass `rows` as"),
        ("sst2", {"train_rows": [{"sentence": "a"}] * 2, "num_shots": 1}, "given a row without label. Pass `rows` as"),
        ("cola", {"rows": COLA, "train_rows": COLA}, "all `rows` are among `train_rows`. Pass other rows"),
        ("cola", {}, "'cola' needs training rows to choose its threshold on. Pass `train_rows`"),
    ],
)
def test_a_heuristic_refuses_what_it_has_no_place_for(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate_zero_shot(ScorerByRule(by_words()), name, **{"rows": SST2, **arguments})


def test_a_heuristic_of_ones_own_by_a_real_model(tiny_tokenizer, tiny_model):
    """The answers are those of the model's own log-probabilities."""
    model = tiny_model(GPT1ForCausalLM, vocab_size=len(tiny_tokenizer), max_position_embeddings=64)
    scorer = CausalLMScorer(model, tiny_tokenizer)
    heuristic = Heuristic(get_heuristic("sst2").task, lambda row: ((row["sentence"], (" he", " she", " nobody")),))
    rows = [{"sentence": "the film made", "label": 0}, {"sentence": "in the night", "label": 2}]
    result = evaluate_zero_shot(scorer, heuristic, rows)
    for row, scores in zip(rows, result.scores, strict=True):
        (expected,) = scorer.score([(row["sentence"], [" he", " she", " nobody"])])
        assert scores == pytest.approx([score.mean for score in expected], abs=1e-5)
    assert result.predictions == [int(np.argmax(scores)) for scores in result.scores]
