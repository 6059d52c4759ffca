"""The scores that the paper and GLUE report.

Source: Radford et al. 2018, tables 2 to 4, and GLUE, section 3 (https://arxiv.org/abs/1804.07461). Accuracy and F1 are
shares between 0 and 1; the Matthews, Pearson and Spearman coefficients lie between -1 and 1, and are 0 where either
side is constant. NaN there would win or lose every comparison in Trainer's choice of the best checkpoint.
"""

from collections.abc import Callable

import numpy as np

from ..errors import UserError


def accuracy(predictions: np.ndarray, references: np.ndarray) -> float:
    """Share of the examples whose predicted class is the true one; where they have several, all must be right."""
    is_right = predictions == references
    return np.mean(is_right if is_right.ndim == 1 else is_right.all(-1))


def f1(predictions: np.ndarray, references: np.ndarray) -> float:
    """Harmonic mean of precision and recall of class 1; 0 where class 1 is neither predicted nor true."""
    found = np.sum((predictions == 1) & (references == 1))
    predicted_or_true = np.sum(predictions == 1) + np.sum(references == 1)
    return 2 * found / predicted_or_true if predicted_or_true else 0.0


def matthews_correlation(predictions: np.ndarray, references: np.ndarray) -> float:
    """Correlation of predicted and true classes (Gorodkin's R_K for more than two)."""
    classes = np.union1d(predictions, references)[:, None]
    predicted, true = (np.sum(side == classes, axis=1) for side in (predictions, references))
    # Floats, because products of the counts of a large data set overflow int64.
    total, correct = float(len(references)), float(np.sum(predictions == references))
    spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
    return (correct * total - predicted @ true) / np.sqrt(spread) if spread else 0.0


def pearson(predictions: np.ndarray, references: np.ndarray) -> float:
    """Linear correlation of the scores; a NaN among them stays NaN."""
    is_constant = np.ptp(predictions) == 0 or np.ptp(references) == 0
    return 0.0 if is_constant else np.corrcoef(predictions, references)[0, 1]


def spearmanr(predictions: np.ndarray, references: np.ndarray) -> float:
    """Correlation of the ranks of the scores, ties sharing their mean rank."""
    import pandas  # takes half a second

    return pearson(*(pandas.Series(side).rank().to_numpy() for side in (predictions, references)))


SCORES = {score.__name__: score for score in (accuracy, f1, matthews_correlation, pearson, spearmanr)}
SCORES["f1_micro"] = f1  # over all pairs of example and class, where an example may have several


def find_metric(name: str, labels: np.ndarray) -> Callable[[np.ndarray, np.ndarray], dict[str, float]]:
    """What computes a score of predictions and references, `[N]` or `[N, K]`, under its name.

    Args:
        name: one of the above, of scikit-learn's without probabilities, or of `evaluate`'s, whose code is then run.
        labels: some of each kind, such as `[0, 1, 2]` of three classes.

    Raises:
        ValueError: none of them has it, or the score is not one of such labels.
    """
    is_flat, is_whole = labels.ndim == 1, not (labels % 1).any()
    fits = {"f1": labels.max() <= 1, "f1_micro": not is_flat, "pearson": is_flat, "spearmanr": is_flat}
    if name in SCORES and fits.get(name, is_whole and (is_flat or name == "accuracy")):
        return lambda predictions, references: {name: float(SCORES[name](predictions, references))}
    try:
        from sklearn.metrics import get_scorer

        scorer = get_scorer(name)
    except (ImportError, ValueError):
        scorer = None
    try:
        if scorer is None:
            from evaluate import load  # takes a second

            other = load(name)

            def of_evaluate(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
                found = other.compute(predictions=predictions, references=references)
                return {name.rpartition("/")[2].removesuffix(".py"): next(iter(found.values())), **found}

            return of_evaluate
        from sklearn.base import BaseEstimator

        class Answers(BaseEstimator):
            def predict(self, rows):
                return rows

        answers = Answers()
        scorer(answers, labels, labels)  # refuses what needs probabilities
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"The metric {name!r} is unknown to scikit-learn and `evaluate`, or cannot be computed of answers like "
            f"{labels[:3].tolist()}. Of classes, pass accuracy, f1_macro, recall_macro; of numbers, pearson or r2."
        ) from error
    return lambda predictions, references: {name: float(scorer(answers, predictions, references))}


def compute(name: str, predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """A score under its name: see `find_metric`."""
    return find_metric(name, np.asarray(references))(np.asarray(predictions), np.asarray(references))
