"""Outlier detection: the support of a distribution (Schoelkopf et al. 2001)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamsvm.data.labels import Classes
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import ScoreCounts, Spread
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import LabelCoder, Subproblem, Targets, Task, TaskOptions
from streamsvm.tasks.scores import DecisionRule

OUTLIER, INLIER = -1, 1
NU = 0.5  # LIBSVM's
BINS, MOST_BINNED = 40, 20_000  # of a histogram of decision values; rows in it
LEAST = float(np.finfo(np.float64).tiny)


class OneClass(Task):
    """f(x) = sum_i a_i K(x_i, x) - rho is at least 0 for inliers, and below 0 for at most a share nu of the training
    rows. One dual without a linear term: min 1/2 a'Ka, 0 <= a_i <= w_i, sum a = nu sum w, in LIBSVM's scale. Labels are
    not read."""

    name = "oneclass"
    scoring = "roc_auc"
    has_bias = from_origin = True
    has_classes = reads_labels = False
    own_classes = (OUTLIER, INLIER)
    loss = "support"
    libsvm_type = libsvm_nu_type = "one_class"

    def nu(self, config: TaskOptions) -> float:
        return NU if config.nu is None else config.nu

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        return self.coder(store, config).targets(np.zeros(store.n))

    def coder(self, store: Store, config: TaskOptions) -> LabelCoder:
        """A coder for which all rows have one label, 0."""
        weights = (store.weights(*block) for block in store.blocks())
        if not any(weight is None or weight.any() for weight in weights):
            raise DataError(f"{store.url or 'sample_weight'}: all weights are 0, expected some above 0")
        all_alike = Classes(np.zeros(1), np.array([store.n]))
        classes = np.array(self.own_classes)
        return LabelCoder(classes, all_alike, np.array([1], np.int32), nu=self.nu(config))

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        n = len(targets.codes)
        yield Subproblem(np.arange(n), np.ones(n), np.zeros(n, np.intp), 0.0, nu=targets.nu)

    def learnable(self, targets: Targets) -> np.ndarray:
        return np.ones((len(targets.codes), 1))

    def codes(self, decision: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        return (decision >= 0).astype(np.intp)

    def cuts(self, thresholds: np.ndarray) -> np.ndarray:
        return np.array([-LEAST])  # 0 is an inlier's

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> _OutlierScores:
        return _OutlierScores(store, with_curves)


class _OutlierScores:
    """The share of rows that are predicted outliers; and, if a store has two labels, scores of finding the outliers.
    Outliers have label -1 if the other one is +1, else the rarer label, of equally frequent ones the smaller. With
    curves: also a histogram of decision values of evenly spread rows; one of the ends of its bins is 0."""

    def __init__(self, store: Store, with_curves: bool) -> None:
        self._store, self._n_outliers, self._scores = store, 0, ScoreCounts()
        self._spread = Spread(store.n, MOST_BINNED) if with_curves else None
        self._outlier = _label_of_outliers(store) if store.has_y else None

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        self._n_outliers += int(np.count_nonzero(values < 0))
        by_label = np.zeros(len(values))
        if self._outlier is not None:
            by_label = self._store.labels(start, stop) == self._outlier
            self._scores.add(by_label, -values)
        if self._spread is not None:
            self._spread.add(start, values, by_label)

    def result(self) -> JsonObject:
        scores: JsonObject = {"accuracy": None, "n": self._store.n, "outliers": self._n_outliers / self._store.n}
        if self._spread is not None:
            scores["decisions"] = _histogram(*self._spread.rows().T)
        if self._outlier is None:
            return scores
        counts = self._store.classes
        share = float(counts.counts[counts.values == self._outlier].sum() / self._store.n)
        scores |= {
            "outlier_label": self._outlier.item(),
            "outliers_by_label": share,
            "roc_auc": self._scores.roc_auc(),
            "average_precision": self._scores.average_precision(),
        }
        return scores | ({} if self._spread is None else self._scores.curves())


def _histogram(values: np.ndarray, is_outlier: np.ndarray) -> dict[str, list[float]]:
    """edges (b + 1,) of the bins of values (m,), and counts (b,) of outliers by label and of others."""
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    width = (high - low) / BINS or 1.0
    first, last = np.floor(low / width), np.ceil(high / width)
    edges = width * np.arange(first, max(last, first + 1) + 1)
    kinds = {"others": is_outlier == 0, "outliers": is_outlier != 0}
    counts = {name: np.histogram(values[is_kind], edges)[0].tolist() for name, is_kind in kinds.items()}
    return {"edges": edges.tolist()} | counts


def _label_of_outliers(store: Store) -> np.generic | None:
    """The label of outliers; None unless there are two labels."""
    labels = store.classes
    if len(labels.values) != 2:
        return None
    if labels.values.dtype.kind in "if" and np.array_equal(labels.values, [OUTLIER, INLIER]):
        return labels.values[0]
    return labels.values[np.argmin(labels.counts)]
