"""Trials of a metric on a sample: fits of kernel, gamma and C, their losses on held-out rows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from streamsvm.config import KernelConfig
from streamsvm.data.metric import Metric
from streamsvm.data.moments import moments_of, variance
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.options import kernel_of
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import Weighed
from streamsvm.solvers import blockws
from streamsvm.solvers.metric import Found, Trial
from streamsvm.tasks.pairs import pair_coefficients, vote
from streamsvm.training.subproblems import Asked, in_memory, task_gradients

TOL = 0.1  # of fits that are compared: at 1e-3 they take four times as long, and choose the same
MOST_ROUNDS = 2000  # of a fit: one that takes more is not what is looked for
GRADIENT_ROWS, GRADIENT_ENTRIES = 2000, 1 << 24
MEDIAN_ROWS = 256
HELD = 5  # one of so many rows is held out
SMOOTHNESS = 0.5  # nu of a Matern kernel that nobody asked for: its gradients reach furthest


@dataclass(frozen=True)
class Sample(Weighed):
    """Scaled rows to learn from, float32, in an order by chance, with what is asked of them; and held-out ones."""

    rows: Rows
    asked: Asked
    held: Rows
    of_held: Asked

    def first(self, count: int) -> Sample:
        """With fewer rows to learn from."""
        own = np.arange(count)
        return (
            self
            if count >= len(self.rows)
            else replace(self, rows=self.rows.take(own), asked=self.asked.take(own))
        )

    @classmethod
    def parted(cls, rows: Rows, asked: Asked, order: np.ndarray, count: int | None = None) -> Sample:
        """Of rows in an order by chance, of which the first ones are held out: one of HELD, or so many."""
        count = len(order) // HELD if count is None else count
        held, own = order[:count], order[count:]
        return cls(rows.take(own), asked.take(own), rows.take(held), asked.take(held))


@dataclass(frozen=True)
class Learner:
    """What a trial means. options: of the kernel that was given. rank: of a full metric; None: diagonal. typical: rows
    of all kinds, whose distances are the unit of gamma."""

    options: KernelConfig
    rank: int | None
    typical: Rows

    def kernel(self, trial: Trial, metric: Metric) -> Kernel:
        """A trial's kernel of rows under a metric."""
        options, rows = self.options, metric.of_rows(self.typical)
        if trial.kernel != options.name:
            options = options.model_copy(update={"name": trial.kernel, "nu": SMOOTHNESS})
        total = float(rows.d * variance(moments_of(rows), np.zeros(rows.d), np.ones(rows.d)))
        if math.isnan(trial.gamma):
            return kernel_of(options, rows.d, total)
        kernel: Any = kernel_of(options.model_copy(update={"gamma": "scale"}), rows.d, total)
        unit = kernel.gamma
        if isinstance(kernel, Stationary):
            half = min(MEDIAN_ROWS, len(rows) // 2)
            unit = kernel.median_gamma(rows.take(slice(half)), rows.take(slice(half, 2 * half)))
        return replace(kernel, gamma=trial.gamma * unit)


@dataclass(frozen=True)
class SampleTrials:
    """The oracle of `solvers.metric`: trials on samples of as many rows, side by side, each on one thread."""

    samples: tuple[Sample, ...]
    learner: Learner
    engine: Engine

    @property
    def n(self) -> int:
        return min(len(sample.rows) for sample in self.samples)

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[Found]:
        count, metric = len(self.samples), Metric(factor)
        kernels = [self.learner.kernel(trial, metric) for trial in trials]
        items = [
            (kernel, trial.C, place)
            for kernel, trial in zip(kernels, trials, strict=True)
            for place in range(count)
        ]
        starts = [None] * count if start is None else np.split(start, count)
        begin = [starts[place] for _, _, place in items]
        work = partial(_tried, rows, metric)
        found = list(self.engine.map(work, items, begin, shared=(self._shared,), window=len(items)))
        return [Found.of_all(found[at : at + count]) for at in range(0, len(found), count)]

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray:
        count, metric = len(self.samples), Metric(factor)
        work = partial(_gradients, rows, metric, self.learner.kernel(trial, metric))
        found = self.engine.map(work, range(count), np.split(alpha, count), shared=(self._shared,))
        return Metric.of_gradients(np.concatenate(list(found)), self.learner.rank).factor

    @cached_property
    def _shared(self) -> Any:
        return self.engine.share(self.samples)


def _tried(
    count: int,
    metric: Metric,
    samples: tuple[Sample, ...],
    item: tuple[Kernel, float, int],
    start: np.ndarray | None,
) -> Found:
    """A kernel and C on the first rows of a sample, and the losses on the held-out ones; 1 each where it has no end."""
    kernel, C, place = item
    sample = samples[place].first(count)
    rows, asked = metric.of_rows(sample.rows), replace(sample.asked, upper=sample.asked.upper * C)
    try:
        found = solution(kernel, rows, asked, None if start is None else start * C)
        own = metric.of_rows(sample.held), sample.of_held
        return Found(losses(kernel, rows, asked, found, *own), found[0])
    except ConfigError:  # values beyond float32, or a tolerance out of reach: not what is looked for
        return Found(np.ones(len(sample.held)), np.zeros(asked.shape))


def _gradients(
    count: int, metric: Metric, kernel: Kernel, samples: tuple[Sample, ...], place: int, alpha: np.ndarray
) -> np.ndarray:
    """(g, d) derivatives by scaled columns of what a solution has learned, at the first rows of a sample."""
    sample, most = samples[place].first(count), -(-GRADIENT_ROWS // len(samples))
    rows = metric.of_rows(sample.rows)
    at = np.arange(min(len(rows), most, max(1, GRADIENT_ENTRIES // sample.rows.d)))
    return metric.pull_back(task_gradients(kernel, rows, sample.asked, alpha, at))


def solution(
    kernel: Kernel, rows: Rows, asked: Asked, start: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of all subproblems, from those of a start, and their biases: pairs of classes have none.

    Raises ConfigError where a fit does not end.
    """
    alpha, make = np.zeros(asked.shape), in_memory(kernel, rows, 1, 0)
    if start is not None:
        alpha[: len(start)] = start[: len(alpha)]
    bias = []
    for part in asked.task.subproblems(asked.targets):
        dual = make(part, asked.upper[part.ids], None)
        own = alpha[part.places] if start is not None else None
        state = blockws.solve(dual, own, tol=TOL, bias=not asked.task.in_pairs, max_rounds=MOST_ROUNDS)
        alpha[part.places] = state.alpha
        bias.append(state.bias)
    return alpha, np.array(bias)


def losses(
    kernel: Kernel,
    rows: Rows,
    asked: Asked,
    found: tuple[np.ndarray, np.ndarray],
    held: Rows,
    of_held: Asked,
) -> np.ndarray:
    """(h,) losses of held-out rows by a solution: 0 or 1 of classes, squared errors over the variance of numbers.

    They are weighted as rows are; 1 less their mean is the accuracy, or R2.
    """
    alpha, bias = found
    weights = of_held.upper / of_held.upper.mean()
    if asked.task.in_pairs:
        k, support = len(asked.targets.classes), np.flatnonzero(alpha.any(axis=1))
        coef = pair_coefficients(alpha[support], asked.targets.codes[support], k)
        values = kernel.apply(held, rows.take(support), coef)
        return weights * (vote(values, k).argmax(axis=1) != of_held.targets.codes)
    [part] = asked.task.subproblems(asked.targets)
    coef = part.coefficients(alpha[part.places])
    support = np.flatnonzero(coef)
    values = kernel.apply(held, rows.take(support), coef[support]) + bias[0]
    t = _numbers(of_held)
    mean = float(np.average(t, weights=weights))
    spread = float(np.average((t - mean) ** 2, weights=weights))
    return weights * (t - values) ** 2 / max(spread, np.finfo(np.float64).tiny)


def _numbers(asked: Asked) -> np.ndarray:
    """(m,) the numbers that rows of task regress are learned by: half of epsilon + t less epsilon - t."""
    linear = asked.targets.linear
    assert linear is not None  # of a task without pairs
    return 0.5 * (linear[:, 1] - linear[:, 0])
