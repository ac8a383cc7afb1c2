"""A metric of a partition of the rows: weights of its columns from the gradients of its fit.

The diagonal of the mean outer product of gradients, as for all rows (Radhakrishnan et al. 2024), in the coordinates of
scaled rows; xRFM (2025) does so in the leaves of a tree. Held-out rows decide whether a partition keeps it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from streamsvm.data.metric import NEGLIGIBLE, Metric
from streamsvm.data.moments import moments_of
from streamsvm.data.rows import Rows
from streamsvm.judging.expected import is_surely_better
from streamsvm.kernels.base import Kernel
from streamsvm.problems.subproblems import DualData, task_gradients

LEAST_ROWS = 1000  # of a partition that learns a metric
HELD = 5  # a fifth of the rows is held out
TOL = 0.3  # of fits for gradients: on covtype as good as 0.03, in half the time
SAMPLE, GRADIENT_BYTES = 2000, 32 << 20  # rows that gradients are taken at; bytes of these gradients, at most


class Solve(Protocol):
    def __call__(self, number: int, rows: Rows, dual_data: DualData, alpha: np.ndarray, tol: float, /) -> np.ndarray:
        """The coefficients of the task over rows in memory, from alpha; number: of fits solved before."""


@dataclass(frozen=True)
class Trial:
    """Weights of columns, the coefficients of the fit under them, and how well it predicts held-out rows.

    alpha (n, columns): 0 for held-out rows. right: y g(x), clipped at -1 and 1, of each subproblem and its held-out
    rows.
    """

    weights: np.ndarray
    alpha: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class PartitionMetric:
    """Learns a partition's metric by this number of refits."""

    kernel: Kernel
    refits: int
    threads: int
    solve: Solve

    def __call__(self, rows: Rows, dual_data: DualData, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (d,) of columns, above 0, all 1 unless others are surely better; and alpha to continue from."""
        codes = dual_data.targets.codes
        if len(rows) < LEAST_ROWS or np.all(codes == codes[0]):
            return np.ones(rows.d), alpha
        plain, *others = self._trials(rows, dual_data, alpha)
        best = max(others, key=lambda trial: float(trial.right.sum()))
        chosen = best if is_surely_better(best.right, plain.right) else plain
        return chosen.weights, chosen.alpha

    def _trials(self, rows: Rows, dual_data: DualData, alpha: np.ndarray) -> Iterator[Trial]:
        """The trial with all weights 1, then one after each refit."""
        rng = np.random.default_rng(0)
        shuffled = rng.permutation(len(rows))
        held_out, train = (np.sort(ids) for ids in np.split(shuffled, [len(rows) // HELD]))
        spread = moments_of(rows).m2
        weights, train_data, start = np.ones(rows.d), dual_data.take(train), alpha[train]
        for number in range(self.refits + 1):
            start = self.solve(number, rows.take(train).times(weights), train_data, start, TOL)
            learned, weighed = np.zeros(dual_data.shape), rows.times(weights)
            learned[train] = start
            yield Trial(weights, learned, self._right(weighed, dual_data, learned, held_out))
            if number < self.refits:
                gradient_ids = np.sort(rng.choice(train, min(len(train), _sample(rows.d, dual_data)), replace=False))
                gradients = task_gradients(self.kernel, weighed, dual_data, learned, gradient_ids, self.threads)
                weights = refitted(weights, gradients, spread)

    def _right(self, rows: Rows, dual_data: DualData, alpha: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """See `Trial.right`; each value is weighted as its row is."""
        values = []
        for part in dual_data.task.subproblems(dual_data.targets):
            coef = part.coefficients(alpha[part.places])
            support, held_out_rows = np.flatnonzero(coef), np.flatnonzero(np.isin(part.ids, held_out))
            learned = rows.take(part.ids[support]), coef[support]
            g = self.kernel.apply(rows.take(part.ids[held_out_rows]), *learned, self.threads)
            weight = dual_data.upper[part.ids[held_out_rows]] / dual_data.upper.max()
            values.append(weight * np.clip(part.y[held_out_rows] * g, -1.0, 1.0))
        return np.concatenate(values)


def refitted(weights: np.ndarray, gradients: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Weights (d,) from gradients (g, d) of a fit under the weights before.

    Weights of columns without influence stay above 0, so that rows can be distinguished from weighted ones. spread
    (d,): variances of columns up to a factor; its sum over weighted columns stays, and with it the meaning of gamma.
    """
    new_weights = weights * Metric.of_gradients(gradients).factor
    new_weights = np.maximum(new_weights, NEGLIGIBLE * new_weights.max())
    total = float(spread @ new_weights**2)
    return new_weights * np.sqrt(float(spread.sum()) / total) if total > 0 else weights


def _sample(d: int, dual_data: DualData) -> int:
    """The number of rows whose gradients, of all subproblems, take GRADIENT_BYTES at most."""
    return max(64, min(SAMPLE, GRADIENT_BYTES // (8 * d * dual_data.shape[1])))
