"""Which number goes with a row: epsilon regression (Smola and Schoelkopf 2004)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import RegressionScores
from streamsvm.tasks.base import Subproblem, Targets, Task
from streamsvm.tasks.scores import Judge


class Regress(Task):
    """f(x) within epsilon of the target t of a row, else a loss.

    One dual with two variables a row, a and a* of f(x) = sum_i (a_i - a*_i) K(x_i, x) + b: labels +1 and -1, linear
    terms epsilon - t and epsilon + t.
    """

    name = "regress"
    scoring = "r2"
    has_metric = True
    has_classes = False
    answer = "value"
    libsvm_type = "epsilon_svr"

    def targets(self, store: Store, config: Any) -> Targets:
        t, epsilon = _numbers(store, store.y), config.alfpgm.epsilon
        return Targets(np.empty(0), np.zeros(store.n, np.int32), np.stack([epsilon - t, epsilon + t], axis=1))

    def coefficients(self, k: int) -> int:
        return 2

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        n = len(targets.codes)
        assert targets.linear is not None  # that of `targets`
        y, columns = np.repeat([1.0, -1.0], n), np.repeat([0, 1], n)
        yield Subproblem(np.arange(n), y, columns, targets.linear.T.ravel())

    def scores(self, judge: Judge, store: Store) -> _ErrorScores:
        return _ErrorScores(store)


class _ErrorScores:
    """How far answers are from the labels of a store."""

    def __init__(self, store: Store) -> None:
        self._store, self._scores = store, RegressionScores()

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        self._scores.add(_numbers(self._store, self._store.labels(start, stop)), values)

    def result(self, *, with_curves: bool = False) -> dict[str, Any]:
        return {"accuracy": None, "n": self._store.n, **self._scores.result()}


def _numbers(store: Store, labels: np.ndarray) -> np.ndarray:
    """Labels as float64. Raises DataError where they are text."""
    if labels.dtype.kind not in "iuf":
        raise DataError(f"{store.url or 'y'} holds text, expected numbers to regress on")
    return labels.astype(np.float64)
