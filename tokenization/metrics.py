"""The scores that the paper and GLUE report, as `evaluate` metrics that are computed here and need no network.

Source: Radford et al. 2018, tables 2 to 4, and GLUE, section 3 (https://arxiv.org/abs/1804.07461). Accuracy and F1 are
shares between 0 and 1; the Matthews, Pearson and Spearman coefficients lie between -1 and 1.
"""

import datasets
import evaluate
import numpy as np


class _Score(evaluate.Metric):
    """A score of predictions against references of the same number; subclasses give dtype, name and formula."""

    dtype: str
    score_name: str

    def _info(self) -> evaluate.MetricInfo:
        value = datasets.Value(self.dtype)
        return evaluate.MetricInfo(
            description=self.__doc__,
            citation="",
            inputs_description="",
            features=datasets.Features({"predictions": value, "references": value}),
        )

    def _compute(self, predictions: list, references: list) -> dict[str, float]:
        # Not the "numpy" format of `datasets`, which would round the scores to float32.
        return {self.score_name: float(self._score(np.asarray(predictions), np.asarray(references)))}


class Accuracy(_Score):
    """Share of the examples whose predicted class is the true one."""

    dtype, score_name = "int64", "accuracy"

    def _score(self, predictions: np.ndarray, references: np.ndarray) -> float:
        return np.mean(predictions == references)


class F1(_Score):
    """Harmonic mean of precision and recall of class 1; 0 where class 1 is neither predicted nor true."""

    dtype, score_name = "int64", "f1"

    def _score(self, predictions: np.ndarray, references: np.ndarray) -> float:
        found = np.sum((predictions == 1) & (references == 1))
        predicted_or_true = np.sum(predictions == 1) + np.sum(references == 1)
        return 2 * found / predicted_or_true if predicted_or_true else 0.0


class MatthewsCorrelation(_Score):
    """Correlation of predicted and true classes (Gorodkin's R_K for more than two); 0 where either is constant."""

    dtype, score_name = "int64", "matthews_correlation"

    def _score(self, predictions: np.ndarray, references: np.ndarray) -> float:
        classes = np.union1d(predictions, references)
        # float64, because products of the counts of a large data set overflow int64.
        predicted = np.sum(predictions == classes[:, None], axis=1).astype(np.float64)
        true = np.sum(references == classes[:, None], axis=1).astype(np.float64)
        total, correct = float(len(references)), float(np.sum(predictions == references))
        spread = (total**2 - predicted @ predicted) * (total**2 - true @ true)
        return (correct * total - predicted @ true) / np.sqrt(spread) if spread else 0.0


class Pearson(_Score):
    """Linear correlation of the scores; 0 where either side is constant."""

    dtype, score_name = "float64", "pearson"

    def _score(self, predictions: np.ndarray, references: np.ndarray) -> float:
        return _linear_correlation(predictions, references)


class Spearman(_Score):
    """Correlation of the ranks of the scores, ties sharing their mean rank; 0 where either side is constant."""

    dtype, score_name = "float64", "spearmanr"

    def _score(self, predictions: np.ndarray, references: np.ndarray) -> float:
        return _linear_correlation(_mean_ranks(predictions), _mean_ranks(references))


def _linear_correlation(x: np.ndarray, y: np.ndarray) -> float:
    # Undefined (0/0) for a constant: a model that gives every pair one score has found nothing, hence 0. NaN would
    # win or lose every comparison in Trainer's choice of the best checkpoint. A NaN among the scores stays NaN.
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return 0.0
    return np.corrcoef(x, y)[0, 1]


def _mean_ranks(values: np.ndarray) -> np.ndarray:
    _, positions, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    return np.where(np.isnan(values), np.nan, ranks[positions])


METRICS = {metric.score_name: metric for metric in (Accuracy, F1, MatthewsCorrelation, Pearson, Spearman)}

__all__ = ["METRICS", "Accuracy", "F1", "MatthewsCorrelation", "Pearson", "Spearman"]
