"""Scores of predictions, from counts and sums that are gathered block by block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

BINS = 15  # of a reliability diagram
MOST_SCORES = 1 << 19  # different scores that are distinguished
HISTOGRAM_BINS = 40  # of decision values by class
MOST_SHOWN = 1000  # rows whose labels and answers go into reports
LEVELS = tuple(percent / 100 for percent in range(5, 100, 5))  # of intervals, whose coverage a report shows


def confusion(truth: np.ndarray, predicted: np.ndarray, k: int) -> np.ndarray:
    """(k, k) counts, row = true class, column = predicted class, of codes (m,) in 0..k-1."""
    return np.bincount(truth * k + predicted, minlength=k * k).reshape(k, k)


def balanced_accuracy(counts: np.ndarray) -> float:
    """The mean recall of the classes that have rows; counts (k, k): true by predicted."""
    rows = counts.sum(axis=1)
    has_rows = rows > 0
    return float(np.mean(np.diag(counts)[has_rows] / rows[has_rows]))


def per_class(counts: np.ndarray, labels: list[Any]) -> list[dict[str, Any]]:
    """`by_label` of classes, from (k, k) counts."""
    return by_label(np.diag(counts), counts.sum(axis=1), counts.sum(axis=0), labels)


def by_label(hits: np.ndarray, n_true: np.ndarray, n_predicted: np.ndarray, labels: list[Any]) -> list[dict[str, Any]]:
    """Precision, recall, f1 and support of each label, from counts (k,) of rows: predicted correctly to have it, having
    it, and predicted to have it. 0 / 0 counts as 0."""
    columns = {
        "label": labels,
        "precision": ratio(hits, n_predicted).tolist(),
        "recall": ratio(hits, n_true).tolist(),
        "f1": ratio(2 * hits, n_true + n_predicted).tolist(),
        "support": n_true.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def of_sets(hits: np.ndarray, n_true: np.ndarray, n_predicted: np.ndarray, n: int) -> dict[str, float]:
    """Scores of several labels a row, from the counts (k,) of `by_label` and n, of rows and labels that were judged."""
    return {
        "hamming_loss": float((n_true + n_predicted - 2 * hits).sum() / n),
        "f1_micro": float(2 * hits.sum() / max(1, n_true.sum() + n_predicted.sum())),
        "f1_macro": float(ratio(2 * hits, n_true + n_predicted).mean()),
    }


def balanced_of_sets(hits: np.ndarray, n_true: np.ndarray, n_predicted: np.ndarray, n: int) -> float:
    """The mean over labels of their `balanced_accuracy`, of n rows with it and without; counts as of `by_label`."""
    rows = np.stack([n_true, n - n_true])
    recall = ratio(np.stack([hits, n - n_true - n_predicted + hits]), rows)
    return float((recall.sum(axis=0) / (rows > 0).sum(axis=0)).mean())


class ScoreCounts:
    """Counts of positive and negative rows by score, for rows that come block by block.

    Memory does not grow with them: if more than `most` scores differ, they lose their last bits, as few as necessary,
    which leaves about five digits. Rows that differ only in the lost bits then count as ties.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most or MOST_SCORES
        self._scores, self._counts = np.empty(0), np.empty((2, 0))  # rising; negative and positive rows
        self._pending: list[tuple[np.ndarray, np.ndarray]] = []  # counts and scores of rows not merged yet
        self._n_pending, self._lost_bits = 0, 0

    def add(self, positive: np.ndarray, scores: np.ndarray, weight: np.ndarray | float = 1.0) -> None:
        """Rows, bool (m,), with scores (m,), each of which counts as many as its weight."""
        self._pending.append((np.stack([~positive, positive]) * weight, scores))
        self._n_pending += len(scores)
        if self._n_pending > self._most:
            self._merge()

    def _merge(self) -> None:
        counts = [self._counts, *(counts for counts, _ in self._pending)]
        scores = np.concatenate([self._scores, *(scores for _, scores in self._pending)]).astype(np.float64)
        self._pending, self._n_pending = [], 0
        self._count(scores, np.concatenate(counts, axis=1))
        while len(self._scores) > self._most:
            self._lost_bits = max(self._lost_bits + 2, 24)
            self._count(self._scores, self._counts)

    def _count(self, scores: np.ndarray, counts: np.ndarray) -> None:
        self._scores, place = np.unique(self._short(scores), return_inverse=True)
        self._counts = np.stack([np.bincount(place, row, len(self._scores)) for row in counts])

    def _short(self, scores: np.ndarray) -> np.ndarray:
        """Scores without the lost bits."""
        lost = self._lost_bits
        return (scores.view(np.int64) & (-1 << lost)).view(np.float64) if lost else scores

    def places(self, scores: np.ndarray) -> np.ndarray:
        """(m,) places of scores among the different ones, which rise."""
        return np.searchsorted(self._scores, self._short(scores.astype(np.float64)))

    @property
    def counts(self) -> np.ndarray:
        """(2, s) negative and positive rows of each score, rising."""
        self._from_top()
        return self._counts

    def histogram(self, bins: int = HISTOGRAM_BINS) -> dict[str, Any]:
        """edges (bins + 1) of scores, and negative and positive rows between them: `counts` (2, bins). Nothing without
        rows, or where scores are all the same."""
        counts = self.counts
        if not len(self._scores) or not self._scores[-1] > self._scores[0]:
            return {}
        edges = np.linspace(self._scores[0], self._scores[-1], bins + 1)
        by_class = [np.histogram(self._scores, edges, weights=row)[0] for row in counts]
        return {"edges": edges.tolist(), "counts": np.array(by_class).tolist()}

    def influences(self) -> np.ndarray:
        """(2, s) how far one of these rows moves `roc_auc`, if both classes are present."""
        area, (falls, hits) = self.roc_auc(), self.counts
        below, above = np.cumsum(falls) - falls / 2, hits.sum() - np.cumsum(hits) + hits / 2
        q, p = falls.sum(), hits.sum()
        return np.stack([(above / p - area) / q, (below / q - area) / p])

    def _from_top(self) -> tuple[np.ndarray, np.ndarray]:
        """Positive and negative rows at each score or above, scores falling."""
        if self._n_pending:
            self._merge()
        falls, hits = np.cumsum(self._counts[:, ::-1], axis=1)
        return hits, falls

    def above_cuts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(s,) falling values, one below each score, halfway to the next; positive and negative rows above each."""
        hits, falls = self._from_top()
        lost = (1 << self._lost_bits) - 1
        ends = np.stack([self._scores, (self._scores.view(np.int64) | lost).view(np.float64)])
        lowest, highest = ends.min(axis=0), ends.max(axis=0)  # of the rows counted at each score
        return cuts_below(lowest, highest)[::-1], hits, falls

    def roc_auc(self) -> float | None:
        """Chance that a positive row scores above a negative one, ties half; None if one class is absent."""
        hits, falls = self._from_top()
        if not len(hits) or hits[-1] == 0 or falls[-1] == 0:
            return None
        negatives = np.diff(falls, prepend=0.0)
        return float((negatives * (hits - np.diff(hits, prepend=0.0) / 2)).sum() / (hits[-1] * falls[-1]))

    def average_precision(self) -> float | None:
        """Mean precision over the positive rows, at each one's score; None without positive rows."""
        hits, falls = self._from_top()
        if not len(hits) or hits[-1] == 0:
            return None
        return float((np.diff(hits, prepend=0.0) * hits / (hits + falls)).sum() / hits[-1])

    def break_even(self) -> float | None:
        """Precision among as many top rows as are positive, where it equals the recall; None without positive rows.

        Rows that share the score at the border count by their share.
        """
        hits, falls = (np.append(0.0, counts) for counts in self._from_top())
        if hits[-1] == 0:
            return None
        border = int(np.searchsorted(hits + falls, hits[-1]))
        level_hits, level_falls = hits[border] - hits[border - 1], falls[border] - falls[border - 1]
        above = hits[border - 1] + falls[border - 1]
        chance = level_hits / (level_hits + level_falls)
        return float((hits[border - 1] + chance * (hits[-1] - above)) / hits[-1])

    def curves(self, most: int = 500) -> dict[str, list[list[float]]]:
        """roc: [false, true positive rate] and precision_recall: [recall, precision] at the scores as thresholds.

        More than `most` thresholds are thinned at even steps along the ROC curve; its corner points (0, 0) and (1, 1)
        stay. Empty if one class is absent.
        """
        hits, falls = self._from_top()
        if not len(hits) or hits[-1] == 0 or falls[-1] == 0:
            return {}
        recall, fall_out = hits / hits[-1], falls / falls[-1]
        if len(hits) > most - 1:
            length = recall + fall_out
            ids = np.unique(np.searchsorted(length, np.linspace(length[0], length[-1], most - 1)))
            recall, fall_out, hits, falls = recall[ids], fall_out[ids], hits[ids], falls[ids]
        roc = np.vstack([[0.0, 0.0], np.stack([fall_out, recall], axis=1)])
        return {
            "roc": roc.tolist(),
            "precision_recall": np.stack([recall, hits / (hits + falls)], axis=1).tolist(),
        }


def cuts_below(lowest: np.ndarray, highest: np.ndarray) -> np.ndarray:
    """(s,) a value below each of rising ranges (s,), halfway to the next."""
    below = np.append(np.nextafter(lowest[:1], -np.inf), highest[:-1])
    halfway = below + (lowest - below) / 2
    return np.where(halfway < lowest, halfway, below)


def scored(positive: np.ndarray, scores: np.ndarray) -> ScoreCounts:
    """The counts of rows, bool (n,), with scores (n,)."""
    counts = ScoreCounts()
    counts.add(positive, scores)
    return counts


class ProbabilityScores:
    """The quality of probabilities, from sums over rows that come block by block.

    brier: mean of sum_c (p_c - [y = c])^2 over all k classes, for two classes twice the squared error of one.
    log_loss: mean of -log p_y. reliability: rows by confidence in 15 bins of equal width, mean confidence against the
    frequency with which it is right: of two classes the probability of the second and how often that is true, of more
    the largest probability and how often its class is true. ece, the expected calibration error, is the mean distance
    of the two over the rows (Guo, Pleiss, Sun and Weinberger 2017).
    """

    def __init__(self, k: int) -> None:
        self.n, self._k, self._brier, self._log = 0, k, 0.0, 0.0
        self._bins = np.zeros((3, BINS))  # rows, sum of confidence, rows in which it was right

    def add(self, truth: np.ndarray, proba: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of codes (m,) in 0..k-1 and probabilities (m, k). Returns brier and log_loss of each, (m,)."""
        is_true = truth[:, None] == np.arange(self._k)
        log = -np.log(np.maximum(proba[is_true], np.finfo(np.float64).tiny))
        brier = np.square(proba - is_true).sum(axis=1)
        self.n += len(truth)
        self._brier += float(brier.sum())
        self._log += float(log.sum())
        confidence, right = proba[:, -1], truth == 1
        if self._k > 2:
            confidence, right = proba.max(axis=1), truth == np.argmax(proba, axis=1)
        bins = np.minimum((confidence * BINS).astype(np.intp), BINS - 1)
        for sums, weights in zip(self._bins, (np.ones(len(bins)), confidence, right), strict=True):
            sums += np.bincount(bins, weights, BINS)
        return brier, log

    def result(self) -> dict[str, Any]:
        count, confidence, right = self._bins
        edges = np.arange(BINS + 1) / BINS
        columns = {
            "from": edges[:-1].tolist(),
            "to": edges[1:].tolist(),
            "confidence": ratio(confidence, count).tolist(),
            "frequency": ratio(right, count).tolist(),
            "count": count.astype(np.int64).tolist(),
        }
        bins = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
        return {
            "brier": self._brier / self.n,
            "log_loss": self._log / self.n,
            "ece": float(np.abs(confidence - right).sum() / self.n),
            "reliability": [row for row in bins if row["count"]],
        }


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)


def quotient(part: np.ndarray, whole: np.ndarray) -> float | None:
    """Of the sums of both; None where nothing is divided."""
    total = whole.sum()
    return float(part.sum() / total) if total > 0 else None


def mean_absolute_error(counts: np.ndarray) -> float:
    """Mean number of ranks between truth and prediction, from (k, k) counts."""
    rank = np.arange(len(counts))
    return float(np.sum(np.abs(rank[:, None] - rank) * counts) / counts.sum())


class RegressionScores:
    """r2, mean_squared_error, its root and mean_absolute_error of predicted values, from sums over rows that come block
    by block; r2 None where y is constant."""

    def __init__(self) -> None:
        self.n, self._mean, self._spread = 0, 0.0, 0.0  # of y: sum of squares about its mean
        self._squares, self._absolute = 0.0, 0.0

    def add(self, y: np.ndarray, values: np.ndarray) -> None:
        """Rows of numbers y (m,), at least one, and predicted values (m,)."""
        m, mean, error = len(y), float(y.mean()), values - y
        self._squares += float(np.square(error).sum())
        self._absolute += float(np.abs(error).sum())
        shift, share = mean - self._mean, m / (self.n + m)  # two means to one: Chan, Golub and LeVeque 1979
        self._spread += float(np.square(y - mean).sum()) + shift * shift * self.n * share
        self._mean += shift * share
        self.n += m

    def result(self) -> dict[str, float | None]:
        return {
            "r2": 1.0 - self._squares / self._spread if self._spread > 0 else None,
            "mean_squared_error": self._squares / self.n,
            "root_mean_squared_error": (self._squares / self.n) ** 0.5,
            "mean_absolute_error": self._absolute / self.n,
        }


D2 = "d2_pinball"


def pinball_losses(y: np.ndarray, values: np.ndarray | float, quantile: float) -> np.ndarray:
    """(m,) q max(0, y - v) + (1 - q) max(0, v - y): least in the mean for v the quantile q of y."""
    error = y - values
    return np.maximum(quantile * error, (quantile - 1) * error)


def constant_pinball_loss(y: np.ndarray, quantile: float, weights: np.ndarray | None = None) -> float:
    """The mean pinball loss of the quantile of y itself, the best constant."""
    if weights is None:
        constant = np.quantile(y, quantile)
    else:
        constant = np.quantile(y, quantile, weights=weights, method="inverted_cdf")  # NumPy's only one with weights
    return float(np.average(pinball_losses(y, float(constant), quantile), weights=weights))


def quantile_score(y: np.ndarray, losses: np.ndarray, quantile: float) -> float | None:
    """D2: 1 less the pinball losses (m,) of predictions over those of the best constant; None if that has none."""
    of_constant = constant_pinball_loss(y, quantile)
    return 1.0 - float(losses.mean()) / of_constant if of_constant > 0 else None


class Widths(Protocol):
    """Intervals around predictions. half_width: of a level, by default of `level`."""

    @property
    def level(self) -> float: ...

    def levels(self, among: Iterable[float]) -> list[float]:
        """The levels of `among` that there are enough rows for."""

    def half_width(self, level: float | None = None) -> float: ...


class CoverageScores:
    """How often labels are inside intervals: coverage and mean_width, in units of labels, of the intervals' level.

    curve: coverages, a row [level, coverage, width] for each of LEVELS that there are enough rows for.
    """

    def __init__(self, widths: Widths) -> None:
        self.n, self._level = 0, widths.level
        levels = widths.levels(LEVELS)
        self._levels = [*levels, widths.level]
        self._half = np.array([widths.half_width(level) for level in self._levels])
        self._inside = np.zeros(len(self._half), np.int64)

    def add(self, y: np.ndarray, values: np.ndarray) -> None:
        """Rows of numbers y (m,), and predicted values (m,)."""
        errors = np.sort(np.abs(values - y))
        self._inside += np.searchsorted(errors, self._half, side="right")
        self.n += len(y)

    def result(self) -> dict[str, float]:
        return {
            "interval": self._level,
            "coverage": float(self._inside[-1] / self.n),
            "mean_width": 2 * float(self._half[-1]),
        }

    def curve(self) -> dict[str, list[list[float]]]:
        shares = (self._inside / self.n).tolist()
        rows = zip(self._levels[:-1], shares[:-1], (2 * self._half[:-1]).tolist(), strict=True)
        return {"coverages": [list(row) for row in rows]}


class Spread:
    """Rows for reports, gathered block by block: of n rows at most `most`, evenly spread."""

    def __init__(self, n: int, most: int = MOST_SHOWN) -> None:
        self._every, self._blocks = -(-n // most), list[np.ndarray]()

    def add(self, start: int, *columns: np.ndarray) -> None:
        """Columns (m,) of the rows from `start` on."""
        self._blocks.append(np.stack(columns, axis=1)[-start % self._every :: self._every])

    def rows(self) -> np.ndarray:
        """(rows, columns)."""
        return np.concatenate(self._blocks).astype(np.float64)


def shown(*columns: np.ndarray) -> list[list[float]]:
    """Rows of columns (m,), of more than MOST_SHOWN evenly spread ones."""
    spread = Spread(len(columns[0]))
    spread.add(0, *columns)
    rows: list[list[float]] = spread.rows().tolist()
    return rows
