"""The scores that the paper and GLUE report.

Source: Radford et al. 2018, tables 2 to 4, and GLUE, section 3 (https://arxiv.org/abs/1804.07461). Accuracy and F1 are
shares between 0 and 1; the Matthews, Pearson and Spearman coefficients lie between -1 and 1, and are 0 where either
side is constant. NaN there would win or lose every comparison in Trainer's choice of the best checkpoint.
"""

from collections.abc import Callable

import numpy as np

from ..errors import UserError


def check_numbers(predictions: np.ndarray) -> None:
    """Refuses predicted classes that are no numbers: they equal nothing, and would count as wrong answers."""
    is_bad = predictions != predictions  # true of NaN alone, whatever the type
    if is_bad.any():
        raise UserError(
            f"{is_bad.sum()} of {predictions.size} predictions are not numbers (NaN), the first of them prediction "
            f"{is_bad.argmax()}, so they have no accuracy. Check the model that made them."
        )


def accuracy(predictions: np.ndarray, references: np.ndarray) -> float:
    """Share of the examples whose predicted class is the true one; where they have several, all must be right."""
    check_numbers(predictions)
    is_right = predictions == references
    return np.mean(is_right if is_right.ndim == 1 else is_right.all(-1))


def f1(predictions: np.ndarray, references: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1; 0 where class 1 is neither predicted nor true."""
    check_numbers(predictions)
    found = np.sum((predictions == 1) & (references == 1))
    predicted_or_true = np.sum(predictions == 1) + np.sum(references == 1)
    return 2 * found / predicted_or_true if predicted_or_true else 0.0


def matthews_correlation(predictions: np.ndarray, references: np.ndarray) -> float:
    """Correlation of predicted and true classes (Gorodkin's R_K for more than two)."""
    classes = np.union1d(predictions, references)[:, None]
    predicted = np.sum(predictions == classes, axis=1)  # how often each class is predicted
    true = np.sum(references == classes, axis=1)
    # Floats, because products of the counts of a large data set overflow int64.
    total = float(len(references))
    correct = float(np.sum(predictions == references))
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return (correct * total - predicted @ true) / np.sqrt(spread) if spread else 0.0


def pearson(predictions: np.ndarray, references: np.ndarray) -> float:
    """Linear correlation of the scores; a NaN among them stays NaN."""
    is_constant = np.ptp(predictions) == 0 or np.ptp(references) == 0
    return 0.0 if is_constant else np.corrcoef(predictions, references)[0, 1]


def spearmanr(predictions: np.ndarray, references: np.ndarray) -> float:
    """Correlation of the ranks of the scores, ties sharing their mean rank."""
    import pandas  # takes half a second

    predicted_ranks = pandas.Series(predictions).rank().to_numpy()
    true_ranks = pandas.Series(references).rank().to_numpy()
    return pearson(predicted_ranks, true_ranks)


def confusion_matrix(predictions: np.ndarray, references: np.ndarray, num_classes: int) -> np.ndarray:
    """How many examples of each true class (rows) are predicted as each class (columns), `[K, K]`.

    Args:
        predictions, references: ids of classes, `[N]`. An example whose reference is negative has no label.
        num_classes: K.
    """
    counts = np.zeros((num_classes, num_classes), dtype=np.int64)
    is_labelled = references >= 0
    np.add.at(counts, (references[is_labelled], predictions[is_labelled]), 1)
    return counts


def counts_of_recall(
    predictions: np.ndarray, references: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Of each class, how many examples were found and how many there are, both `[K]`.

    Args:
        predictions, references: ids of classes, `[N]`, or 0 and 1 for each class, `[N, K]`.
        num_classes: K.
    """
    if references.ndim == 1:
        counts = confusion_matrix(predictions, references, num_classes)
        return counts.diagonal(), counts.sum(1)
    is_true = references == 1
    return (is_true & (predictions == 1)).sum(0), is_true.sum(0)


SCORES = {
    "accuracy": accuracy,
    "f1": f1,
    "f1_micro": f1,  # over all pairs of example and class, where an example may have several
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearmanr,
}
Metric = Callable[[np.ndarray, np.ndarray], dict[str, float]]


def find_metric(name: str, labels: np.ndarray) -> Metric:
    """What computes a score of predictions and references, `[N]` or `[N, K]`, under its name.

    Args:
        name: one of the above, of scikit-learn's without probabilities, or of `evaluate`'s, whose code is then run.
        labels: some of each kind, such as `[0, 1, 2]` of three classes.

    Raises:
        ValueError: none of them has it, or the score is not one of such labels.
    """
    if name in SCORES and _is_score_of(name, labels):
        score = SCORES[name]
        return lambda predictions, references: {name: float(score(predictions, references))}
    try:
        scorer = _scorer_of_scikit_learn(name)
        if scorer is None:
            return _metric_of_evaluate(name)
        return _metric_of_scikit_learn(name, scorer, labels)
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"The metric {name!r} is unknown to scikit-learn and `evaluate`, or cannot be computed for labels like "
            f"{labels[:3].tolist()}. For classes, pass accuracy, f1_macro or recall_macro; for numbers, "
            "pearson or r2."
        ) from error


def gives_one_score(name: str) -> bool:
    """Whether a metric is one score under its own name; those of `evaluate` may be several."""
    return name in SCORES or _scorer_of_scikit_learn(name) is not None


def _is_score_of(name: str, labels: np.ndarray) -> bool:
    """Whether one of our scores is defined for such labels."""
    is_flat = labels.ndim == 1
    if name in ("pearson", "spearmanr"):
        return is_flat
    if name == "f1":
        return labels.max() <= 1
    if name == "f1_micro":
        return not is_flat
    is_whole = not (labels % 1).any()
    return is_whole and (is_flat or name == "accuracy")


def _scorer_of_scikit_learn(name: str) -> Callable | None:
    """The scorer of that name, if scikit-learn is installed and has one."""
    try:
        from sklearn.metrics import get_scorer

        return get_scorer(name)
    except (ImportError, ValueError):
        return None


def _metric_of_scikit_learn(name: str, scorer: Callable, labels: np.ndarray) -> Metric:
    from sklearn.base import BaseEstimator

    class Answers(BaseEstimator):
        """An estimator whose rows are its predictions: a scorer calls `predict`."""

        def predict(self, rows):
            return rows

    answers = Answers()
    scorer(answers, labels, labels)  # refuses what needs probabilities
    return lambda predictions, references: {name: float(scorer(answers, predictions, references))}


def _metric_of_evaluate(name: str) -> Metric:
    from evaluate import load  # takes a second

    metric = load(name)
    plain_name = name.rpartition("/")[2].removesuffix(".py")

    def compute_by_evaluate(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
        scores = metric.compute(predictions=predictions, references=references)
        first_score = next(iter(scores.values()))
        return {plain_name: first_score, **scores}

    return compute_by_evaluate


def compute(name: str, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """A score under its name: see `find_metric`. Its classes are all that are predicted or true."""
    predictions, references = np.asarray(predictions), np.asarray(references)
    metric = find_metric(name, _different_labels(predictions, references))
    return metric(predictions, references)


def _different_labels(predictions: np.ndarray, references: np.ndarray) -> np.ndarray:
    """The different labels, or rows of 0 and 1 for each class, without NaN, which scores refuse themselves."""
    is_number = predictions == predictions
    if predictions.ndim > 1:
        is_number = is_number.all(-1)
    return np.unique(np.concatenate([references, predictions[is_number]]), axis=0)
