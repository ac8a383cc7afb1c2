"""Outlier detection: the support of a distribution (Schoelkopf et al. 2001)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.labels import Classes
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import ScoreCounts, Spread
from streamsvm.tasks.base import LabelCoder, Subproblem, Targets, Task
from streamsvm.tasks.scores import DecisionRule

OUTLIER, INLIER = -1, 1
NU = 0.5  # LIBSVM's
BINS, MOST_BINNED = 40, 20_000  # of decision values, and rows whose values are in them
LEAST = float(np.finfo(np.float64).tiny)


class OneClass(Task):
    """f(x) = sum_i a_i K(x_i, x) - rho at least 0 of inliers, below 0 of at most a share nu of the rows learned from.

    One dual without a linear term, min 1/2 a'Ka, 0 <= a_i <= w_i, sum a = nu sum w: LIBSVM's scale. Labels are not
    read.
    """

    name = "oneclass"
    scoring = "roc_auc"
    has_bias = from_origin = True
    has_classes = reads_labels = False
    own_classes = (OUTLIER, INLIER)
    loss = "support"
    libsvm_type = libsvm_nu_type = "one_class"

    def nu(self, config: Any) -> float:
        return NU if config.nu is None else config.nu

    def targets(self, store: Store, config: Any) -> Targets:
        return self.coder(store, config).targets(np.zeros(store.n))

    def coder(self, store: Store, config: Any) -> LabelCoder:
        """As if all rows had one label, 0."""
        weights = (store.weights(*block) for block in store.blocks())
        if not any(weight is None or weight.any() for weight in weights):
            raise DataError(f"{store.url or 'sample_weight'}: all weights are 0, expected some above 0")
        all_alike = Classes(np.zeros(1), np.array([store.n]))
        own = np.array(self.own_classes)
        return LabelCoder(own, all_alike, np.array([1], np.int32), nu=self.nu(config))

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
    """The share of rows that are predicted outliers; and, if a store has two labels, how well they are found.

    Outliers are those of label -1 if the other one is +1, else of the rarer label, of equally many the smaller one.
    With curves: a histogram of decision values of evenly spread rows; one of the ends of its bins is 0.
    """

    def __init__(self, store: Store, with_curves: bool) -> None:
        self._store, self._n_told, self._scores = store, 0, ScoreCounts()
        self._spread = Spread(store.n, MOST_BINNED) if with_curves else None
        self._outlier = _label_of_outliers(store) if store.has_y else None

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        self._n_told += int(np.count_nonzero(values < 0))
        by_label = np.zeros(len(values))
        if self._outlier is not None:
            by_label = self._store.labels(start, stop) == self._outlier
            self._scores.add(by_label, -values)
        if self._spread is not None:
            self._spread.add(start, values, by_label)

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "accuracy": None,
            "n": self._store.n,
            "outliers": self._n_told / self._store.n,
        }
        if self._spread is not None:
            found["decisions"] = _histogram(*self._spread.rows().T)
        if self._outlier is None:
            return found
        counts = self._store.classes
        share = float(counts.counts[counts.values == self._outlier].sum() / self._store.n)
        found |= {
            "outlier_label": self._outlier.item(),
            "outliers_by_label": share,
            "roc_auc": self._scores.roc_auc(),
            "average_precision": self._scores.average_precision(),
        }
        return found | ({} if self._spread is None else self._scores.curves())


def _histogram(values: np.ndarray, is_outlier: np.ndarray) -> dict[str, list[float]]:
    """edges (b + 1,) of bins that values (m,) are in, and counts (b,) of others and of outliers by label."""
    low, high = min(values.min(), 0.0), max(values.max(), 0.0)
    width = (high - low) / BINS or 1.0
    first, last = np.floor(low / width), np.ceil(high / width)
    edges = width * np.arange(first, max(last, first + 1) + 1)
    kinds = {"others": is_outlier == 0, "outliers": is_outlier != 0}
    counts = {name: np.histogram(values[own], edges)[0].tolist() for name, own in kinds.items()}
    return {"edges": edges.tolist()} | counts


def _label_of_outliers(store: Store) -> np.generic | None:
    """None unless there are two labels."""
    found = store.classes
    if len(found.values) != 2:
        return None
    if found.values.dtype.kind in "if" and np.array_equal(found.values, [OUTLIER, INLIER]):
        return found.values[0]
    return found.values[np.argmin(found.counts)]
