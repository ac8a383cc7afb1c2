"""A metric of a partition of the rows: weights of its columns from the gradients of what was learned there.

The diagonal of the mean outer product of gradients, as of all rows (Radhakrishnan et al. 2024), in the coordinates of
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
HELD = 5  # one row in so many is held out
TOL = 0.3  # of fits that give gradients: on covtype as good as 0.03, in half the time
SAMPLE = 2000  # rows that gradients are taken at,
GRADIENT_BYTES = 32 << 20  # or fewer where they are wide


class Solve(Protocol):
    def __call__(self, number: int, rows: Rows, asked: DualData, alpha: np.ndarray, tol: float) -> np.ndarray:
        """The coefficients of the task over rows in memory, from alpha; number: how many were solved before."""


@dataclass(frozen=True)
class Trial:
    """Weights of columns, what was learned under them, and how well it predicts held-out rows.

    alpha (n, columns): 0 for held-out rows. right: y g(x), cut off at -1 and 1, of each subproblem and held-out row of
    it.
    """

    weights: np.ndarray
    alpha: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class PartitionMetric:
    """Learns a partition's metric by so many refits."""

    kernel: Kernel
    refits: int
    threads: int
    solve: Solve

    def __call__(self, rows: Rows, asked: DualData, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (d,) of columns, above 0, all 1 unless others are surely better; and alpha to continue from."""
        codes = asked.targets.codes
        if len(rows) < LEAST_ROWS or np.all(codes == codes[0]):
            return np.ones(rows.d), alpha
        plain, *others = self._trials(rows, asked, alpha)
        best = max(others, key=lambda trial: float(trial.right.sum()))
        chosen = best if is_surely_better(best.right, plain.right) else plain
        return chosen.weights, chosen.alpha

    def _trials(self, rows: Rows, asked: DualData, alpha: np.ndarray) -> Iterator[Trial]:
        """With all weights 1, then after each refit."""
        rng = np.random.default_rng(0)
        shuffled = rng.permutation(len(rows))
        held, train = (np.sort(ids) for ids in np.split(shuffled, [len(rows) // HELD]))
        spread = moments_of(rows).m2
        weights, own, start = np.ones(rows.d), asked.take(train), alpha[train]
        for number in range(self.refits + 1):
            start = self.solve(number, rows.take(train).times(weights), own, start, TOL)
            learned, weighed = np.zeros(asked.shape), rows.times(weights)
            learned[train] = start
            yield Trial(weights, learned, self._right(weighed, asked, learned, held))
            if number < self.refits:
                at = np.sort(rng.choice(train, min(len(train), _sample(rows.d, asked)), replace=False))
                found = task_gradients(self.kernel, weighed, asked, learned, at, self.threads)
                weights = refitted(weights, found, spread)

    def _right(self, rows: Rows, asked: DualData, alpha: np.ndarray, held: np.ndarray) -> np.ndarray:
        """See `Trial`; each is weighted as its row is."""
        out = []
        for part in asked.task.subproblems(asked.targets):
            coef = part.coefficients(alpha[part.places])
            support, here = np.flatnonzero(coef), np.flatnonzero(np.isin(part.ids, held))
            learned = rows.take(part.ids[support]), coef[support]
            g = self.kernel.apply(rows.take(part.ids[here]), *learned, self.threads)
            weight = asked.upper[part.ids[here]] / asked.upper.max()
            out.append(weight * np.clip(part.y[here] * g, -1.0, 1.0))
        return np.concatenate(out)


def refitted(weights: np.ndarray, gradients: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Weights (d,) by gradients (g, d) that were taken under the weights before.

    Those of columns that count for nothing stay above 0, so that rows can be distinguished from weighted ones. spread
    (d,) of columns, their variances up to a factor: its sum over weighted columns stays, and with it what gamma means.
    """
    found = weights * Metric.of_gradients(gradients).factor
    found = np.maximum(found, NEGLIGIBLE * found.max())
    total = float(spread @ found**2)
    return found * np.sqrt(float(spread.sum()) / total) if total > 0 else weights


def _sample(d: int, asked: DualData) -> int:
    """Rows whose gradients, of all subproblems, take GRADIENT_BYTES at most."""
    return max(64, min(SAMPLE, GRADIENT_BYTES // (8 * d * asked.shape[1])))
