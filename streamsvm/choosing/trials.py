"""Samples of a store, random rows (`draw_samples`), or the rows nearest to some centres, which are as dense as the
whole store there (`region_samples`), each in one pass; and trials on them: fits of a kernel, gamma and C, their losses
on held-out rows, and their gradients."""

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
from streamsvm.data.folds import shuffle_rows, without_shared_groups
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, SamplesInStore, gather
from streamsvm.data.scaling import Scaling
from streamsvm.data.statistics import moments_of, variance
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.fits.prepare import TrainingData, origin
from streamsvm.judging.expected import weighted_losses
from streamsvm.kernels.base import Kernel, Stationary, inner_products, kernel_of
from streamsvm.options.search import BALANCED
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import default_limit_bytes, process_bytes
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.dual import ridged, squared_terms
from streamsvm.problems.subproblems import DualData, in_memory, sums_of, task_gradients, with_loss
from streamsvm.solvers import blockws
from streamsvm.solvers.descent import block_descent, pairs_descent
from streamsvm.tasks.pairs import MANY, joined, pair_coefficients, pair_decisions
from streamsvm.tasks.weights import balancing

TOL = 0.1  # of fits that are compared: at 1e-3 they take four times as long, and choose the same
NEAR = 1.0  # a larger violation than that disqualifies a fit that has ended before TOL
MOST_ROUNDS = 2000  # of a fit; one that takes more is no candidate
MOST_SUBBLOCKS = 100  # of a pair of classes that is one block
GRADIENT_ROWS, GRADIENT_ENTRIES = 2000, 1 << 22  # rows of a metric; entries of their gradients
LEAST_GRADIENT_ROWS = 1000  # of one of several metrics
FEWEST_GRADIENT_ROWS = 16
WHOLE = 4096  # rows whose kernel values are computed once for all pairs of classes: 64 MiB
MEDIAN_ROWS = 256
HELD = 5  # a fifth of the rows is held out
SMOOTHNESS = 0.5  # nu of a Matern kernel that the options do not name: its gradients reach furthest


@dataclass(frozen=True)
class Sample(SizedInBytes):
    """Scaled rows to learn from, float32, in random order, with their targets and bounds, and held-out rows with
    theirs. by_class: factors on the bounds of rows, see `DualData.times`, for trials with class weights."""

    rows: Rows
    dual_data: DualData
    held_out: Rows
    held_out_data: DualData
    by_class: np.ndarray

    def first(self, count: int) -> Sample:
        """With the first `count` rows to learn from."""
        if count >= len(self.rows):
            return self
        ids = np.arange(count)
        return replace(self, rows=self.rows.take(ids), dual_data=self.dual_data.take(ids))

    @classmethod
    def split(
        cls, rows: Rows, dual_data: DualData, order: np.ndarray, n_held_out: int, weights: ClassWeights
    ) -> Sample:
        """From rows in a random order, of which the first n_held_out are held out."""
        held_out_ids, ids = np.split(order, [n_held_out])
        held_out_data = weights.scored(dual_data.take(held_out_ids))
        return cls(rows.take(ids), dual_data.take(ids), rows.take(held_out_ids), held_out_data, weights.tried)


@dataclass(frozen=True)
class ClassWeights:
    """Weights of classes. tried: factors on C, see `DualData.times`, for trials with class weights. balanced: whether
    the held-out rows of each class count alike in total."""

    tried: np.ndarray
    balanced: bool

    def scored(self, dual_data: DualData) -> DualData:
        """The targets of held-out rows, with the weights of their scores."""
        if not self.balanced:
            return dual_data
        sets, classes = dual_data.targets.sets, dual_data.targets.classes
        counts = np.bincount(dual_data.targets.codes, minlength=len(classes if sets is None else sets))
        return dual_data.times(balancing(counts, classes, sets))


@dataclass(frozen=True)
class TrialSettings:
    """How trials become kernels. options: of the given kernel. rank: of a full metric; None: diagonal. typical: rows at
    random, whose distances are the unit of gamma. squared: whether losses are. given: the given kernel, with a gamma
    from all rows, and the metric under which it holds."""

    options: KernelConfig
    rank: int | None
    typical: Rows
    squared: bool = False
    given: tuple[Metric, Kernel] | None = None

    def kernels(self, trials: Sequence[Trial], metric: Metric) -> list[Kernel]:
        """The kernels of trials, for rows under a metric."""
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
        """The kernel of a trial, for rows under a metric."""
        return self.kernels([trial], metric)[0]

    def _as_given(self, trial: Trial, metric: Metric) -> Kernel | None:
        """The given kernel, if the trial is of it under the given metric; else None, and its gamma is computed."""
        if self.given is None or trial.kernel != self.options.name:
            return None
        given_metric, kernel = self.given
        return kernel if np.array_equal(metric.factor, given_metric.factor) else None

    def _options(self, name: str) -> KernelConfig:
        same = name == self.options.name
        return self.options if same else self.options.model_copy(update={"name": name, "nu": SMOOTHNESS})

    def _unit(self, name: str, rows: Rows, total: float) -> Any:
        """The kernel whose gamma is the unit of trials: by the median distance of rows, else by "scale"."""
        kernel: Any = kernel_of(self._options(name).model_copy(update={"gamma": "scale"}), rows.d, total)
        if not isinstance(kernel, Stationary):
            return kernel
        half = min(MEDIAN_ROWS, len(rows) // 2)
        halves = rows.take(slice(half)), rows.take(slice(half, 2 * half))
        return replace(kernel, gamma=kernel.median_gamma(*halves))


@dataclass(frozen=True)
class SampleTrials:
    """The oracle of `MetricSearch`: trials on samples of equal size, in parallel, each on one thread. A factor has a
    metric for each sample, or one for all."""

    samples: tuple[Sample, ...]
    learner: TrialSettings
    engine: Engine

    @property
    def n(self) -> int:
        return min(len(sample.rows) for sample in self.samples)

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        count, metrics = len(self.samples), [Metric(of_metric) for of_metric in factor]
        kernels = [self.learner.kernels(trials, metric) for metric in metrics]
        items = [
            (kernels[place % len(metrics)][number], metrics[place % len(metrics)], trial, place)
            for number, trial in enumerate(trials)
            for place in range(count)
        ]
        starts = [None] * count if start is None else np.split(start, count)
        start_of = [starts[item[-1]] for item in items]
        work = partial(_tried, rows, self.learner.squared)
        results = list(self.engine.map(work, items, start_of, shared=(self._shared,), window=len(items)))
        return [TrialResult.of_all(results[first : first + count]) for first in range(0, len(results), count)]

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray | None:
        count, metrics = len(self.samples), [Metric(of_metric) for of_metric in factor]
        most = max(LEAST_GRADIENT_ROWS * (len(metrics) > 1), -(-GRADIENT_ROWS // count))
        kernels = [self.learner.kernel(trial, metric) for metric in metrics]
        items = [(kernels[place % len(metrics)], metrics[place % len(metrics)], place) for place in range(count)]
        work = partial(_gradients, rows, most)
        try:
            gradients = list(self.engine.map(work, items, np.split(alpha, count), shared=(self._shared,)))
        except ConfigError:  # values beyond float32
            return None
        groups = gradients if len(metrics) > 1 else [np.concatenate(gradients)]
        return np.stack([Metric.of_gradients(of_metric, self.learner.rank).factor for of_metric in groups])

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
    """The result on the first rows of a sample. Losses are infinite beyond float32, or if tol is out of reach."""
    kernel, metric, trial, place = item
    sample = samples[place].first(count)
    dual_data = replace(sample.dual_data, upper=sample.dual_data.upper * trial.C)
    if trial.class_weight:
        dual_data = dual_data.times(sample.by_class)
    began = time.perf_counter()
    try:
        with _unwarned():
            rows, held_out = metric.of_rows(sample.rows), metric.of_rows(sample.held_out)
            is_free = isinstance(kernel, Stationary) and not rows.is_sparse
            if is_free and (centre := origin(kernel, rows.take(slice(MEDIAN_ROWS)))) is not None:
                rows, held_out = (Rows((r.X - centre).astype(np.float32)) for r in (rows, held_out))
            if not max(map(kernel.largest, (rows, held_out))) < kernel.most:
                raise ConfigError("kernel values are beyond float32")
            first_alpha = None if start is None else start * trial.C
            fit = solution(kernel, rows, dual_data, first_alpha, squared=squared)
            held_out_losses = losses(kernel, rows, dual_data, fit, held_out, sample.held_out_data)
            _require_finite(held_out_losses)
        return TrialResult(held_out_losses, fit[0], time.perf_counter() - began)
    except ConfigError:
        return TrialResult(np.full(len(sample.held_out), np.inf), np.zeros(dual_data.shape))


def _unwarned() -> np.errstate:
    """For code that checks by itself whether its results are finite."""
    return np.errstate(over="ignore", invalid="ignore")


def _gradients(
    count: int, most: int, samples: tuple[Sample, ...], item: tuple[Kernel, Metric, int], alpha: np.ndarray
) -> np.ndarray:
    """(g, d) derivatives of a solution's decision values by scaled columns, at the first rows of a sample."""
    kernel, metric, place = item
    sample = samples[place].first(count)
    rows, columns = metric.of_rows(sample.rows), sample.dual_data.shape[1]  # as many gradients of each row
    limit = max(FEWEST_GRADIENT_ROWS, GRADIENT_ENTRIES // (sample.rows.d * columns))
    ids = np.arange(min(len(rows), most, limit))
    with _unwarned():
        return metric.pull_back(task_gradients(kernel, rows, sample.dual_data, alpha, ids))


def solution(
    kernel: Kernel, rows: Rows, dual_data: DualData, start: np.ndarray | None, *, squared: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (m, columns) of all subproblems and their biases, from coefficients to start from. If all rows are
    of one side, the bias decides for it. Raises ConfigError if a fit does not converge."""
    alpha = np.zeros(dual_data.shape)
    if start is not None:
        alpha[: len(start)] = start[: len(alpha)]
    in_pairs = dual_data.task.in_pairs
    bias = dual_data.task.one_sided(dual_data.present[None])[0]
    class_pairs = _ClassPairs(kernel, rows, dual_data, squared)
    problem_of = with_loss(in_memory(kernel, rows, 1, 0), squared=squared)
    if in_pairs and class_pairs.are_many:
        return class_pairs.all_solved(alpha), bias
    for part in dual_data.task.subproblems(dual_data.targets):
        places = part.places
        if in_pairs and len(part.ids) <= blockws.BLOCK:
            order = class_pairs.order(part.ids)
            places = places[0][order], part.columns[order]
            alpha[places] = class_pairs.solved(part.ids[order], alpha[places])
            continue
        first_alpha = alpha[places] if start is not None else None
        dual = problem_of(part, part.bounds(dual_data.upper))
        state = blockws.solve(dual, first_alpha, tol=TOL, bias=dual_data.task.has_bias, max_rounds=MOST_ROUNDS)
        if not state.violation <= NEAR:
            raise ConfigError(f"a trial ended at a violation of {state.violation:.2g}")
        alpha[places] = state.alpha
        bias[part.number] = state.bias
    return alpha, bias


class _ClassPairs:
    """Pairs of classes, each of which is one block. With few rows, all pairs share the kernel values of all rows."""

    def __init__(self, kernel: Kernel, rows: Rows, dual_data: DualData, squared: bool) -> None:
        self._kernel, self._rows, self._codes, self._upper = kernel, rows, dual_data.targets.codes, dual_data.upper
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
        counts = np.bincount(self._codes)
        return len(counts) >= MANY and len(self._rows) <= WHOLE and np.sort(counts)[-2:].sum() <= blockws.BLOCK

    def all_solved(self, alpha: np.ndarray) -> np.ndarray:
        """As `solved`, for all pairs at once, from alpha (n, k - 1)."""
        assert self._K is not None
        class_starts = np.searchsorted(self._codes[self._by_class], np.arange(alpha.shape[1] + 2))
        first_rows = class_starts[:-1][np.diff(class_starts) > 0]
        _require_finite(self._K[first_rows])
        bound = self._upper[self._by_class]
        bound, ridge = squared_terms(bound) if self._squared else (bound, np.zeros(len(bound)))
        a = alpha[self._by_class]
        pairs_descent(
            self._K,
            class_starts,
            a,
            bound.astype(np.float32),
            ridge.astype(np.float32),
            np.float32(TOL),
            (blockws.SUBBLOCK, MOST_SUBBLOCKS),
        )
        solved = np.empty_like(alpha)
        solved[self._by_class] = np.clip(a, 0.0, bound[:, None])
        return solved

    def order(self, ids: np.ndarray) -> np.ndarray:
        """The order of these rows by class: first those of one class, then those of the other."""
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
        limits = np.float32(TOL), min(blockws.SUBBLOCK, len(Q)), MOST_SUBBLOCKS, 0.5 * float(a @ (g - 1))
        block_descent(Q, g, a, upper, None, None, limits)
        return np.clip(a, 0.0, bound)

    def _signed(self, ids: np.ndarray, first: int) -> np.ndarray:
        """The kernel values of these rows, negative between the first ones and the others."""
        if self._K is None:
            rows = self._rows.take(ids)
            Q = self._kernel.block(rows, rows)
        else:
            places = self._place[ids]
            Q = np.empty((len(ids), len(ids)), np.float32)
            sides = (slice(0, first), slice(first, None))
            for rows_of in sides:
                for columns_of in sides:
                    Q[rows_of, columns_of] = self._K[_range(places[rows_of]), _range(places[columns_of])]
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
    dual_data: DualData,
    fit: tuple[np.ndarray, np.ndarray],
    held_out: Rows,
    held_out_data: DualData,
) -> np.ndarray:
    """(h,) losses of held-out rows by a fit's coefficients and biases, see `weighted_losses`."""
    alpha, bias = fit
    task, k = dual_data.task, len(dual_data.targets.classes)
    if task.in_pairs:
        support = np.flatnonzero(alpha.any(axis=1))
        decisions = _decisions(
            kernel, held_out, rows.take(support), alpha[support], dual_data.targets.codes[support], k
        )
    else:
        sums = sums_of(task, dual_data.targets, alpha)
        support = np.flatnonzero(sums.any(axis=1))
        decisions = kernel.apply(held_out, rows.take(support), sums[support])
    values = joined(decisions + bias, k, pairwise=task.in_pairs)
    return weighted_losses(task.codes(values, np.empty(0)) if task.has_classes else values, held_out_data)


def _decisions(
    kernel: Kernel, held_out: Rows, support: Rows, alpha: np.ndarray, codes: np.ndarray, k: int
) -> np.ndarray:
    """(h, n_pairs) decision values of the pairs of classes, without biases."""
    if k < MANY:
        return kernel.apply(held_out, support, pair_coefficients(alpha, codes, k))
    if len(held_out) * len(support) > WHOLE**2:
        return pair_decisions(
            lambda ids, coef: kernel.apply(held_out, support.take(ids), coef.astype(np.float32)),
            len(held_out),
            alpha,
            codes,
            k,
        )
    K = kernel.block(held_out, support)
    return pair_decisions(lambda ids, coef: K[:, ids] @ coef.astype(np.float32), len(held_out), alpha, codes, k)


LEAST_ROWS = 30
FOLDED_ROWS, FOLDS = 5000, 5  # up to so many rows, each row is held out once, in folds
MOST_HELD = 10_000
MOST_SHARE = 0.25  # of the memory left, for the sample and its copies


def draw_samples(prepared: TrainingData, base: Scaling, engine: Engine) -> tuple[tuple[Sample, ...], Rows] | str:
    """Samples of random rows of a store, and their held-out rows as stored, sample by sample; or the reason why there
    is none.

    A fifth of the rows is held out, and more if the store has more. With few rows, there are as many samples as folds,
    so that each row is held out once. No sample learns from rows of a group that also has held-out rows in it. Raises
    DataError.
    """
    store, config = prepared.store, prepared.config
    n_free, most_rows = prepared.n_free, _most_rows(prepared, engine)
    n = min(n_free, config.search.sample, most_rows)
    if n < LEAST_ROWS:
        return f"{n} rows are too few to choose by, expected at least {LEAST_ROWS}"
    rng = np.random.default_rng([config.seed, 22])
    n_held_out = min(n_free - n + n // HELD, max(n // HELD, MOST_HELD), most_rows)  # more where there are others
    n += n_held_out - n // HELD
    ids = prepared.drawn(n, rng)
    stored = gather(store, ids, engine)
    store.require_finite(stored, ids, gaps=base.fill is not None)
    rows = base.apply(stored)
    dual_data = weighed(prepared, ids)
    groups = store.connected_groups
    groups = None if groups is None else groups[ids]
    order = shuffle_rows(n, groups, rng)
    orders = [order]
    if folds_of(n) > 1 and config.metric.kind != "full":
        n_held_out, orders = n // FOLDS, [np.roll(order, -(n * fold // FOLDS)) for fold in range(FOLDS)]
    orders = [without_shared_groups(order, n_held_out, groups, rng) for order in orders]
    if groups is not None and min(map(len, orders)) == n_held_out:  # of few groups one alone can be held out
        n_held_out = min(n_held_out, int(np.count_nonzero(groups == groups[order[0]])))
        orders = [without_shared_groups(order, n_held_out, groups, rng)]
    if min(map(len, orders)) == n_held_out:
        return "the rows of the sample are of one group"
    by_class = class_weights(prepared)
    samples = tuple(Sample.split(rows, dual_data, order, n_held_out, by_class) for order in orders)
    if not all(any(True for _ in dual_data.task.subproblems(one.dual_data.targets)) for one in samples):
        return "the sample has rows of one class alone"
    if not all(one.held_out_data.upper.any() for one in samples):
        return "held-out rows of the sample have no weight"
    return samples, stored.take(np.concatenate([order[:n_held_out] for order in orders]))


def weighed(prepared: TrainingData, ids: np.ndarray) -> DualData:
    """The targets of these rows, with weights instead of upper bounds."""
    dual_data = prepared.target_source.take(ids)
    return replace(dual_data, upper=dual_data.upper / prepared.config.C)


def class_weights(prepared: TrainingData) -> ClassWeights:
    """The weights of classes in a search, from all rows of the store."""
    config = prepared.config
    factors = np.ones(len(prepared.class_rows))
    if "class_weight" in config.search.chosen:
        factors = balancing(prepared.class_rows, prepared.classes, prepared.no_targets.sets)
    return ClassWeights(factors, config.search.scoring == BALANCED)


def folds_of(n: int) -> int:
    """The number of samples of n rows."""
    return FOLDS if n <= FOLDED_ROWS else 1


def _most_rows(prepared: TrainingData, engine: Engine) -> int:
    """The number of rows that memory allows, with each thread's copy under a metric."""
    samples = prepared.samples
    row_bytes = samples.nbytes / samples.n * (4 if prepared.store.dtype == np.uint8 else 1) + 100
    left = (prepared.config.memory_limit or default_limit_bytes()) - process_bytes()
    return int(MOST_SHARE * left / (row_bytes * (2 + 2 * engine.slots)))


Nearest = tuple[np.ndarray, np.ndarray]  # (centres, m) squared distances, and ids of rows


def region_samples(
    prepared: TrainingData, centres: Rows, metric: Metric, rows: int, engine: Engine, events: Events
) -> tuple[Sample, ...]:
    """For each centre, a scaled row, a sample of the rows that are nearest to it under a metric, unless they are of one
    group."""
    samples = prepared.samples
    work = partial(_nearest, rows, metric)
    shared = engine.share(samples), engine.share(metric.of_rows(centres))
    _, (_, ids) = engine.map_reduce(
        work, partial(_merged, rows), samples.blocks(), shared=shared, phase="regions", events=events
    )
    all_ids = np.unique(ids)
    scaled_rows = gather(samples, all_ids, engine).astype(np.float32)
    dual_data = weighed(prepared, all_ids)
    by_class, rng = class_weights(prepared), np.random.default_rng([prepared.config.seed, 23])
    groups = prepared.store.connected_groups

    def sample(region_ids: np.ndarray) -> Sample:
        region_groups = None if groups is None else groups[region_ids]
        n_held_out = len(region_ids) // HELD
        order = without_shared_groups(shuffle_rows(len(region_ids), region_groups, rng), n_held_out, region_groups, rng)
        return Sample.split(scaled_rows, dual_data, np.searchsorted(all_ids, region_ids)[order], n_held_out, by_class)

    by_region = map(sample, np.sort(ids, axis=1))
    return tuple(one for one in by_region if len(one.rows))


def _nearest(count: int, metric: Metric, samples: SamplesInStore, centres: Rows, block: Block) -> tuple[None, Nearest]:
    """The rows of a block that are nearest to each centre."""
    rows = metric.of_rows(samples.read(*block).astype(np.float32))
    distances = rows.sq_norms.astype(np.float32) - 2.0 * inner_products(centres, rows, np.float32)
    return None, _least(count, distances, np.broadcast_to(np.arange(*block), distances.shape))


def _merged(count: int, a: Nearest, b: Nearest) -> Nearest:
    return _least(count, *(np.concatenate(pair, axis=1) for pair in zip(a, b, strict=True)))


def _least(count: int, distances: np.ndarray, ids: np.ndarray) -> Nearest:
    if distances.shape[1] <= count:
        return distances, ids
    nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
    return np.take_along_axis(distances, nearest, axis=1), np.take_along_axis(ids, nearest, axis=1)
