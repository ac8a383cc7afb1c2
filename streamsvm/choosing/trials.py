"""Samples of a store, random rows (`draw_samples`), or the rows nearest to some centres, which are as dense as the
whole store there (`region_samples`), each in one pass; and trials on them: fits of a kernel, gamma and C, their losses
on held-out rows, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any

import numpy as np

from streamsvm.choosing.metric_search import Trial, TrialResult
from streamsvm.choosing.sample_fits import BEYOND, SharedOperands, TrialFit, losses, solve
from streamsvm.config import KernelConfig
from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.folds import shuffle_rows, without_shared_groups
from streamsvm.data.metric import Metric, root_sums
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, SamplesInStore, gather
from streamsvm.data.scaling import Scaling
from streamsvm.data.statistics import moments_of, variance
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.fits.prepare import TrainingData, origin
from streamsvm.kernels.base import Kernel, Stationary, inner_products, kernel_of
from streamsvm.options.search import BALANCED
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import allowed_bytes, process_bytes
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.subproblems import DualData, task_gradients
from streamsvm.tasks.weights import balancing

GRADIENT_ROWS, GRADIENT_ENTRIES = 2000, 1 << 22  # rows of a metric; entries of their gradients
LEAST_GRADIENT_ROWS = 1000  # of one of several metrics
FEWEST_GRADIENT_ROWS = 16
MEDIAN_ROWS = 256
MATRIX_SHARE = 0.25  # of the memory left, for kernel values that trials share
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

    def under(self, trial: Trial) -> Sample:
        """With the task of a trial, which may separate several classes in another way."""
        dual_data = self.dual_data
        task = dual_data.task.by(trial.multiclass) if trial.multiclass else dual_data.task
        return replace(self, dual_data=replace(dual_data, task=task))

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
    from all rows, and the metric under which it holds. by_log_loss: whether log losses are compared."""

    options: KernelConfig
    rank: int | None
    typical: Rows
    squared: bool = False
    given: tuple[Metric, Kernel] | None = None
    by_log_loss: bool = False

    def kernels(self, trials: Sequence[Trial], metric: Metric, units: dict[str, Any] | None = None) -> list[Kernel]:
        """The kernels of trials, for rows under a metric. units: those known under it, by name; others are added."""
        units = {} if units is None else units
        with _unwarned():
            rows = metric.of_rows(self.typical)
            total = float(rows.d * variance(moments_of(rows), np.zeros(rows.d), np.ones(rows.d)))
            units |= {name: self._unit(name, rows, total) for name in {trial.kernel for trial in trials} - units.keys()}
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
    memory_limit: int | None = None

    @property
    def n(self) -> int:
        return min(len(sample.rows) for sample in self.samples)

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        count, (metrics, kernels) = len(self.samples), self._kernels(factor, trials)
        if not trials:
            return []
        # those of a kernel together, in as many groups as there are threads for
        order = sorted(range(len(trials)), key=lambda number: _similar(trials[number]))
        groups = [group.tolist() for group in np.array_split(order, min(len(order), -(-self.engine.slots // count)))]
        shared = [SharedOperands(self.engine.threads) if len(groups) > 1 else None for _ in range(count)]
        items = [
            (metrics[place % len(metrics)], kernels[place % len(metrics)], group, place, shared[place])
            for place in range(count)
            for group in groups
        ]
        starts = [None] * count if start is None else np.split(start, count)
        work = partial(_tried, rows, self.learner.squared, self.learner.by_log_loss, self._matrix_bytes)
        trials_of = [[trials[number] for number in group] for _ in range(count) for group in groups]
        start_of = [starts[place] for *_, place, _ in items]
        results = self.engine.map(work, items, trials_of, start_of, shared=(self._shared,), window=len(items))
        by_trial: list[list[TrialResult]] = [[] for _ in trials]
        for number, result in zip(order * count, chain.from_iterable(results), strict=True):
            by_trial[number].append(result)
        return [TrialResult.of_all(of_samples) for of_samples in by_trial]

    @property
    def _matrix_bytes(self) -> int:
        """Bytes that the kernel values of a task may take."""
        limit, threads = self.engine.worker_memory()
        left = allowed_bytes(limit or self.memory_limit) - process_bytes()
        return int(MATRIX_SHARE * left / threads)

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray | None:
        count, (metrics, kernels) = len(self.samples), self._kernels(factor, [trial])
        most = max(LEAST_GRADIENT_ROWS * (len(metrics) > 1), -(-GRADIENT_ROWS // count))
        items = [(kernels[place % len(metrics)][0], metrics[place % len(metrics)], place) for place in range(count)]
        work = partial(_gradients, rows, most, trial, self.learner.rank is None)
        try:
            gradients = list(self.engine.map(work, items, np.split(alpha, count), shared=(self._shared,)))
        except ConfigError:  # values beyond float32
            return None
        groups = gradients if len(metrics) > 1 else [np.concatenate(gradients)]
        return np.stack([Metric.of_gradients(of_metric, self.learner.rank).factor for of_metric in groups])

    def _kernels(self, factor: np.ndarray, trials: Sequence[Trial]) -> tuple[list[Metric], list[list[Kernel]]]:
        """The metrics of a factor, and the kernels of trials under each."""
        metrics = [Metric(of_metric) for of_metric in factor]
        units = self._units.of(factor, lambda _: [{} for _ in metrics])
        return metrics, [self.learner.kernels(trials, *under) for under in zip(metrics, units, strict=True)]

    @cached_property
    def _units(self) -> SingleEntryCache[list[dict[str, Any]]]:
        """Of kernels under the latest factor: the gradients of a trial are of the kernel that it had."""
        return SingleEntryCache()

    @cached_property
    def _shared(self) -> Any:
        return self.engine.share(self.samples)


def _tried(
    count: int,
    squared: bool,
    by_log_loss: bool,
    most_bytes: int,
    samples: tuple[Sample, ...],
    item: tuple[Metric, list[Kernel], list[int], int, SharedOperands | None],
    trials: Sequence[Trial],
    start: np.ndarray | None,
) -> list[TrialResult]:
    """The results of trials on the first rows of a sample, with the bytes that their kernel values may take. Losses are
    infinite beyond float32, or if tol is out of reach. item: has the kernels of all trials, also of other tasks, and
    the numbers of these ones."""
    metric, kernels, numbers, place, shared = item
    sample = samples[place].first(count)
    fits = [
        _fit(sample, trial, kernels[number], start, squared=squared)
        for trial, number in zip(trials, numbers, strict=True)
    ]
    lost: list[np.ndarray] = []
    with _unwarned():
        rows, held_out = metric.of_rows(sample.rows), metric.of_rows(sample.held_out)
        for (operand, _), group in groupby(fits, lambda fit: (fit.kernel.operand, fit.dual_data.task)):
            sharing = list(group)
            alike = [kernel for kernel in kernels if kernel.operand == operand]
            moved, held_out_moved = _near_origin(alike, rows, held_out)
            for fit in sharing:
                if not max(map(fit.kernel.largest, (moved, held_out_moved))) < fit.kernel.most:
                    fit.error = BEYOND
            solve(sharing, moved, most_bytes, shared)
            lost += losses(sharing, moved, held_out_moved, sample.held_out_data, by_log_loss=by_log_loss)
    return [
        TrialResult(of_fit, fit.alpha, fit.seconds)
        if fit.error is None
        else TrialResult(of_fit, np.zeros(fit.dual_data.shape))
        for fit, of_fit in zip(fits, lost, strict=True)
    ]


def _similar(trial: Trial) -> tuple[str, str, float]:
    """A key by which trials that share more are nearer to each other."""
    return trial.multiclass, trial.kernel, trial.gamma


def _fit(sample: Sample, trial: Trial, kernel: Kernel, start: np.ndarray | None, *, squared: bool) -> TrialFit:
    sample = sample.under(trial)
    dual_data = replace(sample.dual_data, upper=sample.dual_data.upper * trial.C)
    if trial.class_weight:
        dual_data = dual_data.times(sample.by_class)
    return TrialFit(kernel, dual_data, None if start is None else start * trial.C, squared)


def _near_origin(kernels: Sequence[Kernel], rows: Rows, held_out: Rows) -> tuple[Rows, Rows]:
    """The rows, moved to the origin if they are too far from it for any of the kernels."""
    if rows.is_sparse:
        return rows, held_out
    few = rows.take(slice(MEDIAN_ROWS))
    centres = (origin(kernel, few) for kernel in dict.fromkeys(kernels) if isinstance(kernel, Stationary))
    centre = next((centre for centre in centres if centre is not None), None)
    if centre is None:
        return rows, held_out
    return Rows((rows.X - centre).astype(np.float32)), Rows((held_out.X - centre).astype(np.float32))


def _unwarned() -> np.errstate:
    """For code that checks by itself whether its results are finite."""
    return np.errstate(over="ignore", invalid="ignore")


def _gradients(
    count: int,
    most: int,
    trial: Trial,
    for_diagonal: bool,
    samples: tuple[Sample, ...],
    item: tuple[Kernel, Metric, int],
    alpha: np.ndarray,
) -> np.ndarray:
    """(g, d) derivatives of a solution's decision values by scaled columns, at the first rows of a sample; (1, d) their
    `root_sums` for a diagonal metric."""
    kernel, metric, place = item
    sample = samples[place].first(count).under(trial)
    rows, columns = metric.of_rows(sample.rows), sample.dual_data.shape[1]  # as many gradients of each row
    limit = max(FEWEST_GRADIENT_ROWS, GRADIENT_ENTRIES // (sample.rows.d * columns))
    ids = np.arange(min(len(rows), most, limit))
    with _unwarned():
        gradients = task_gradients(kernel, rows, sample.dual_data, alpha, ids)
        return metric.pull_back(root_sums(gradients)[None] if for_diagonal else gradients)


LEAST_ROWS = 30
FOLDED_ROWS, FOLDS = 5000, 5  # up to so many rows, each row is held out once, in folds
MOST_HELD = 10_000
MOST_SHARE = 0.25  # of the memory left, for the sample and its copies


def draw_samples(
    prepared: TrainingData, base: Scaling, engine: Engine, *, folds: bool = True
) -> tuple[tuple[Sample, ...], Rows] | str:
    """Samples of random rows of a store, and their held-out rows as stored, sample by sample; or the reason why there
    is none.

    A fifth of the rows is held out, and more if the store has more. With few rows, there are as many samples as folds,
    so that each row is held out once, unless there is to be one sample. No sample learns from rows of a group that also
    has held-out rows in it. Raises DataError.
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
    if folds and folds_of(n) > 1 and config.metric.kind != "full":
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
    left = allowed_bytes(prepared.config.memory_limit) - process_bytes()
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
