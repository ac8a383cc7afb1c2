"""The samples of a store on which options are chosen: random rows (`draw_samples`), or the rows nearest to some
centres, which are as dense as the whole store there (`region_samples`). Either takes one pass over the store."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm.choosing.trials import HELD, ClassWeights, Sample
from streamsvm.data.folds import shuffle_rows, without_shared_groups
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, SamplesInStore, gather
from streamsvm.data.scaling import Scaling
from streamsvm.events import Events
from streamsvm.fits.prepare import TrainingData
from streamsvm.kernels.base import inner_products
from streamsvm.options.search import BALANCED
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import free_bytes, process_bytes
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.weights import balancing

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
    left = (prepared.config.memory_limit or free_bytes()) - process_bytes()
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
