"""Which number goes with a row: epsilon regression (Smola and Schoelkopf 2004)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import regression
from streamsvm.tasks.base import Subproblem, Targets, Task
from streamsvm.tasks.scores import Judge, ValueScores


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
        y, epsilon = store.y, config.alfpgm.epsilon
        if y.dtype.kind not in "iuf":
            raise DataError(f"{store.url or 'y'} holds text, expected numbers to regress on")
        t = y.astype(np.float64)
        return Targets(np.empty(0), np.zeros(store.n, np.int32), np.stack([epsilon - t, epsilon + t], axis=1))

    def coefficients(self, k: int) -> int:
        return 2

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        n = len(targets.codes)
        assert targets.linear is not None  # that of `targets`
        y, columns = np.repeat([1.0, -1.0], n), np.repeat([0, 1], n)
        yield Subproblem(np.arange(n), y, columns, targets.linear.T.ravel())

    def scores(self, judge: Judge, store: Store) -> ValueScores:
        return ValueScores(store, lambda store, values: regression(store.y, values))
