"""Trials of a metric on a sample: fits of kernel, gamma and C, their losses on held-out rows, and their gradients."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from streamsvm.choosing.metric_search import Trial, TrialResult
from streamsvm.config import KernelConfig
from streamsvm.data.metric import Metric
from streamsvm.data.moments import moments_of, variance
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.fits.prepare import origin
from streamsvm.judging.search_expectation import losses_of
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.kernels.options import kernel_of
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.squared import ridged, squared_terms
from streamsvm.problems.subproblems import DualData, in_memory, sums_of, task_gradients, with_loss
from streamsvm.solvers import blockws
from streamsvm.solvers.descent import block_descent, pairs_descent
from streamsvm.tasks.pairs import MANY, joined, pair_coefficients, pair_decisions
from streamsvm.tasks.weights import balancing

TOL = 0.1  # of fits that are compared: at 1e-3 they take four times as long, and choose the same
NEAR = 1.0  # a larger violation than that disqualifies a fit that has ended before TOL
MOST_ROUNDS = 2000  # of a fit: one that takes more is not what is looked for
MOST_SUBBLOCKS = 100  # of a pair of classes that is one block
GRADIENT_ROWS, GRADIENT_ENTRIES = 2000, 1 << 22
LEAST_GRADIENT_ROWS = 1000  # of one of several metrics
FEWEST_GRADIENT_ROWS = 16
WHOLE = 4096  # rows whose kernel values are made once for all pairs of classes: 64 MiB
MEDIAN_ROWS = 256
HELD = 5  # one of so many rows is held out
SMOOTHNESS = 0.5  # nu of a Matern kernel that nobody asked for: its gradients reach furthest


@dataclass(frozen=True)
class Sample(SizedInBytes):
    """Scaled rows to learn from, float32, in random order, with their targets and bounds, and held-out ones.

    by_class: factors on the bounds of rows, see `DualData.times`, of trials with class weights.
    """

    rows: Rows
    asked: DualData
    held: Rows
    of_held: DualData
    by_class: np.ndarray

    def first(self, count: int) -> Sample:
        """With fewer rows to learn from."""
        own = np.arange(count)
        return (
            self
            if count >= len(self.rows)
            else replace(self, rows=self.rows.take(own), asked=self.asked.take(own))
        )

    @classmethod
    def parted(
        cls, rows: Rows, asked: DualData, order: np.ndarray, held: int, weights: ClassWeights
    ) -> Sample:
        """From rows in random order, of which the first `held` ones are held out."""
        first, own = np.split(order, [held])
        of_held = weights.scored(asked.take(first))
        return cls(rows.take(own), asked.take(own), rows.take(first), of_held, weights.tried)


@dataclass(frozen=True)
class ClassWeights:
    """Weights of classes. tried: factors on C, see `DualData.times`, of trials with class weights. balanced: whether
    held-out rows of each class count alike, all together."""

    tried: np.ndarray
    balanced: bool

    def scored(self, asked: DualData) -> DualData:
        """The targets of held-out rows, with the weights of their scores."""
        if not self.balanced:
            return asked
        sets, classes = asked.targets.sets, asked.targets.classes
        counts = np.bincount(asked.targets.codes, minlength=len(classes if sets is None else sets))
        return asked.times(balancing(counts, classes, sets))


@dataclass(frozen=True)
class TrialSettings:
    """What a trial means. options: of the kernel that was given. rank: of a full metric; None: diagonal. typical: rows
    of all kinds, whose distances are the unit of gamma. squared: losses are. given: the kernel whose gamma all rows
    have made, as the options say, and the metric under which it is of these rows."""

    options: KernelConfig
    rank: int | None
    typical: Rows
    squared: bool = False
    given: tuple[Metric, Kernel] | None = None

    def kernels(self, trials: Sequence[Trial], metric: Metric) -> list[Kernel]:
        """The kernels of trials, of rows under a metric."""
        with _unwarned():
            rows = metric.of_rows(self.typical)
            total = float(rows.d * variance(moments_of(rows), np.zeros(rows.d), np.ones(rows.d)))
            units = {name: self._unit(name, rows, total) for name in {trial.kernel for trial in trials}}
        return [
            self._as_given(trial, metric) or kernel_of(self._options(trial.kernel), rows.d, total)
            if math.isnan(trial.gamma)
            else replace(units[trial.kernel], gamma=trial.gamma * units[trial.kernel].gamma)
            for trial in trials
        ]

    def kernel(self, trial: Trial, metric: Metric) -> Kernel:
        """A trial's kernel of rows under a metric."""
        return self.kernels([trial], metric)[0]

    def _as_given(self, trial: Trial, metric: Metric) -> Kernel | None:
        """The given kernel, where a trial is of it; None where its gamma is yet to be computed."""
        if self.given is None or trial.kernel != self.options.name:
            return None
        under, kernel = self.given
        return kernel if np.array_equal(metric.factor, under.factor) else None

    def _options(self, name: str) -> KernelConfig:
        same = name == self.options.name
        return self.options if same else self.options.model_copy(update={"name": name, "nu": SMOOTHNESS})

    def _unit(self, name: str, rows: Rows, total: float) -> Any:
        """The kernel of this name whose gamma is the unit of trials."""
        kernel: Any = kernel_of(self._options(name).model_copy(update={"gamma": "scale"}), rows.d, total)
        if not isinstance(kernel, Stationary):
            return kernel
        half = min(MEDIAN_ROWS, len(rows) // 2)
        both = rows.take(slice(half)), rows.take(slice(half, 2 * half))
        return replace(kernel, gamma=kernel.median_gamma(*both))


@dataclass(frozen=True)
class SampleTrials:
    """The oracle of `solvers.metric`: trials on samples of equal size, in parallel, each on one thread.

    A factor has a metric for each sample, or one for all.
    """

    samples: tuple[Sample, ...]
    learner: TrialSettings
    engine: Engine

    @property
    def n(self) -> int:
        return min(len(sample.rows) for sample in self.samples)

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        count, metrics = len(self.samples), [Metric(own) for own in factor]
        kernels = [self.learner.kernels(trials, metric) for metric in metrics]
        items = [
            (kernels[place % len(metrics)][number], metrics[place % len(metrics)], trial, place)
            for number, trial in enumerate(trials)
            for place in range(count)
        ]
        starts = [None] * count if start is None else np.split(start, count)
        begin = [starts[item[-1]] for item in items]
        work = partial(_tried, rows, self.learner.squared)
        found = list(self.engine.map(work, items, begin, shared=(self._shared,), window=len(items)))
        return [TrialResult.of_all(found[at : at + count]) for at in range(0, len(found), count)]

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray | None:
        count, metrics = len(self.samples), [Metric(own) for own in factor]
        most = max(LEAST_GRADIENT_ROWS * (len(metrics) > 1), -(-GRADIENT_ROWS // count))
        kernels = [self.learner.kernel(trial, metric) for metric in metrics]
        items = [
            (kernels[place % len(metrics)], metrics[place % len(metrics)], place) for place in range(count)
        ]
        work = partial(_gradients, rows, most)
        try:
            found = list(self.engine.map(work, items, np.split(alpha, count), shared=(self._shared,)))
        except ConfigError:  # values beyond float32
            return None
        groups = found if len(metrics) > 1 else [np.concatenate(found)]
        return np.stack([Metric.of_gradients(own, self.learner.rank).factor for own in groups])

    @cached_property
    def _shared(self) -> Any:
        return self.engine.share(self.samples)


def _tried(
    count: int,
    squared: bool,
    samples: tuple[Sample, ...],
    item: tuple[Kernel, Metric, Trial, int],
    start: np.ndarray | None,
) -> TrialResult:
    """A kernel and C on the first rows of a sample, and the losses on the held-out ones; infinite ones if values are
    beyond float32, or a tolerance is out of reach."""
    kernel, metric, trial, place = item
    sample = samples[place].first(count)
    asked = replace(sample.asked, upper=sample.asked.upper * trial.C)
    if trial.class_weight:
        asked = asked.times(sample.by_class)
    began = time.perf_counter()
    try:
        with _unwarned():
            rows, held = metric.of_rows(sample.rows), metric.of_rows(sample.held)
            is_free = isinstance(kernel, Stationary) and not rows.is_sparse
            if is_free and (centre := origin(kernel, rows.take(slice(MEDIAN_ROWS)))) is not None:
                rows, held = (Rows((own.X - centre).astype(np.float32)) for own in (rows, held))
            if not max(map(kernel.largest, (rows, held))) < kernel.most:
                raise ConfigError("kernel values are beyond float32")
            begin = None if start is None else start * trial.C
            found = solution(kernel, rows, asked, begin, squared=squared)
            lost = losses(kernel, rows, asked, found, held, sample.of_held)
            _require_finite(lost)
        return TrialResult(lost, found[0], time.perf_counter() - began)
    except ConfigError:
        return TrialResult(np.full(len(sample.held), np.inf), np.zeros(asked.shape))


def _unwarned() -> np.errstate:
    """For code that looks itself whether its results are finite."""
    return np.errstate(over="ignore", invalid="ignore")


def _gradients(
    count: int, most: int, samples: tuple[Sample, ...], item: tuple[Kernel, Metric, int], alpha: np.ndarray
) -> np.ndarray:
    """(g, d) derivatives by scaled columns of what a solution has learned, at the first rows of a sample."""
    kernel, metric, place = item
    sample = samples[place].first(count)
    rows, columns = metric.of_rows(sample.rows), sample.asked.shape[1]  # as many gradients of each row
    fit = max(FEWEST_GRADIENT_ROWS, GRADIENT_ENTRIES // (sample.rows.d * columns))
    at = np.arange(min(len(rows), most, fit))
    with _unwarned():
        return metric.pull_back(task_gradients(kernel, rows, sample.asked, alpha, at))


def solution(
    kernel: Kernel, rows: Rows, asked: DualData, start: np.ndarray | None, *, squared: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of all subproblems, from those of a start, and their biases; without rows of one side, this side's.

    Raises ConfigError if a fit does not end.
    """
    alpha = np.zeros(asked.shape)
    if start is not None:
        alpha[: len(start)] = start[: len(alpha)]
    in_pairs = asked.task.in_pairs
    bias = asked.task.one_sided(asked.present[None])[0]
    small, make = (
        _ClassPairs(kernel, rows, asked, squared),
        with_loss(in_memory(kernel, rows, 1, 0), squared=squared),
    )
    if in_pairs and small.are_many:
        return small.all_solved(alpha), bias
    for part in asked.task.subproblems(asked.targets):
        places = part.places
        if in_pairs and len(part.ids) <= blockws.BLOCK:
            order = small.order(part.ids)
            places = places[0][order], part.columns[order]
            alpha[places] = small.solved(part.ids[order], alpha[places])
            continue
        own = alpha[places] if start is not None else None
        dual = make(part, part.bounds(asked.upper), None)
        state = blockws.solve(dual, own, tol=TOL, bias=asked.task.has_bias, max_rounds=MOST_ROUNDS)
        if not state.violation <= NEAR:
            raise ConfigError(f"a trial ended at a violation of {state.violation:.2g}")
        alpha[places] = state.alpha
        bias[part.number] = state.bias
    return alpha, bias


class _ClassPairs:
    """Pairs of classes, each of which is one block. With few rows, all share the kernel values of all rows."""

    def __init__(self, kernel: Kernel, rows: Rows, asked: DualData, squared: bool) -> None:
        self._kernel, self._rows, self._codes, self._upper = kernel, rows, asked.targets.codes, asked.upper
        self._squared = squared
        self._by_class = np.argsort(self._codes, kind="stable")
        self._place = np.empty(len(rows), np.intp)
        self._place[self._by_class] = np.arange(len(rows))

    @cached_property
    def _K(self) -> np.ndarray | None:
        if len(self._rows) > WHOLE:
            return None
        rows = self._rows.take(self._by_class)
        return self._kernel.block(rows, rows)

    @property
    def are_many(self) -> bool:
        """Whether the pairs are many, and each is one block."""
        counts = np.bincount(self._codes)
        return (
            len(counts) >= MANY and len(self._rows) <= WHOLE and np.sort(counts)[-2:].sum() <= blockws.BLOCK
        )

    def all_solved(self, alpha: np.ndarray) -> np.ndarray:
        """As `solved`, for all pairs at once, from alpha (n, k - 1)."""
        assert self._K is not None
        begins = np.searchsorted(self._codes[self._by_class], np.arange(alpha.shape[1] + 2))
        firsts = begins[:-1][np.diff(begins) > 0]
        _require_finite(self._K[firsts])
        bound = self._upper[self._by_class]
        bound, ridge = squared_terms(bound) if self._squared else (bound, np.zeros(len(bound)))
        a = alpha[self._by_class]
        limits = bound.astype(np.float32), ridge.astype(np.float32), np.float32(TOL)
        pairs_descent(self._K, begins, a, *limits, (blockws.SUBBLOCK, MOST_SUBBLOCKS))
        found = np.empty_like(alpha)
        found[self._by_class] = np.clip(a, 0.0, bound[:, None])
        return found

    def order(self, ids: np.ndarray) -> np.ndarray:
        """What makes numbers of rows those of one class, then of the other."""
        return np.argsort(self._place[ids])

    def solved(self, ids: np.ndarray, a: np.ndarray) -> np.ndarray:
        """min over a of 1/2 a'Qa - e'a, 0 <= a <= upper, from a, over rows in `order`. Raises ConfigError."""
        Q = self._signed(ids, int(np.count_nonzero(self._codes[ids] == self._codes[ids[0]])))
        _require_finite(Q[0])
        bound = self._upper[ids]
        if self._squared:
            bound, ridge = squared_terms(bound)
            Q = ridged(Q, ridge)
        upper = bound.astype(np.float32)
        a = np.minimum(a.astype(np.float32), upper)
        g = (Q @ a - np.float32(1)) if a.any() else np.full(len(Q), -1.0, np.float32)
        size = min(blockws.SUBBLOCK, len(Q)), MOST_SUBBLOCKS
        block_descent(Q, g, a, upper, None, (np.float32(TOL), 0.5 * float(a @ (g - 1))), size)
        return np.clip(a, 0.0, bound)

    def _signed(self, ids: np.ndarray, first: int) -> np.ndarray:
        """K of these rows, negative between the first ones and the others."""
        if self._K is None:
            rows = self._rows.take(ids)
            Q = self._kernel.block(rows, rows)
        else:
            at = self._place[ids]
            Q = np.empty((len(ids), len(ids)), np.float32)
            cuts = (slice(0, first), slice(first, None))
            for one in cuts:
                for other in cuts:
                    Q[one, other] = self._K[_range(at[one]), _range(at[other])]
        Q[:first, first:] *= -1
        Q[first:, :first] *= -1
        return Q


def _require_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise ConfigError("kernel values are beyond float32")


def _range(places: np.ndarray) -> slice:
    return slice(int(places[0]), int(places[-1]) + 1) if len(places) else slice(0, 0)


def losses(
    kernel: Kernel,
    rows: Rows,
    asked: DualData,
    solved: tuple[np.ndarray, np.ndarray],
    held: Rows,
    of_held: DualData,
) -> np.ndarray:
    """(h,) losses of held-out rows by a solution, see `losses_of`."""
    alpha, bias = solved
    task, k = asked.task, len(asked.targets.classes)
    if task.in_pairs:
        support = np.flatnonzero(alpha.any(axis=1))
        found = _decisions(kernel, held, rows.take(support), alpha[support], asked.targets.codes[support], k)
    else:
        sums = sums_of(task, asked.targets, alpha)
        support = np.flatnonzero(sums.any(axis=1))
        found = kernel.apply(held, rows.take(support), sums[support])
    values = joined(found + bias, k, pairwise=task.in_pairs)
    return losses_of(task.codes(values, np.empty(0)) if task.has_classes else values, of_held)


def _decisions(
    kernel: Kernel, held: Rows, support: Rows, alpha: np.ndarray, codes: np.ndarray, k: int
) -> np.ndarray:
    """(h, n_pairs) what the pairs of classes decide, without biases."""
    if k < MANY:
        return kernel.apply(held, support, pair_coefficients(alpha, codes, k))
    if len(held) * len(support) > WHOLE**2:
        return pair_decisions(
            lambda ids, coef: kernel.apply(held, support.take(ids), coef.astype(np.float32)),
            len(held),
            alpha,
            codes,
            k,
        )
    K = kernel.block(held, support)
    return pair_decisions(lambda ids, coef: K[:, ids] @ coef.astype(np.float32), len(held), alpha, codes, k)
