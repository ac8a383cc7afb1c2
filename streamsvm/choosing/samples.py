"""The sample of a store for choosing options.

Regions of a store: the rows nearest to some centres, as dense as all rows are; found in one pass.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from streamsvm.choosing.trials import HELD, ClassWeights, Sample
from streamsvm.data.finite import require_finite
from streamsvm.data.folds import apart, shuffled, together
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, SamplesInStore, gather
from streamsvm.data.scaling import Scaling
from streamsvm.events import Events
from streamsvm.fits.prepare import TrainingData
from streamsvm.kernels.base import inner_products
from streamsvm.options.search import BALANCED
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.memory import free_bytes, process_bytes
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.weights import balancing

LEAST_ROWS = 30
FOLDED_ROWS, FOLDS = 5000, 5  # of a store up to which each row is held out once
MOST_HELD = 10_000
MOST_SHARE = 0.25  # of what memory is left that the sample and its copies may take


def drawn(prepared: TrainingData, base: Scaling, engine: Engine) -> tuple[tuple[Sample, ...], Rows] | str:
    """Random rows of a store, a fifth of them held out, and more if there are others, and the held-out rows as stored,
    sample by sample; or why there is no sample.

    With few rows, there are as many samples as folds, so that each row is held out once. No sample learns from rows of
    a group that also has held-out rows in it. Raises DataError.
    """
    store, config = prepared.store, prepared.config
    free, most = prepared.n_free, _most_rows(prepared, engine)
    n = min(free, config.search.sample, most)
    if n < LEAST_ROWS:
        return f"{n} rows are too few to choose by, expected at least {LEAST_ROWS}"
    rng = np.random.default_rng([config.seed, 22])
    held = min(free - n + n // HELD, max(n // HELD, MOST_HELD), most)  # more where there are others
    n += held - n // HELD
    ids = prepared.drawn(n, rng)
    raw = gather(store, ids, engine)
    require_finite(store, raw, ids, gaps=base.fill is not None)
    rows = base.apply(raw)
    asked = weighed(prepared, ids)
    groups = together(store)
    groups = None if groups is None else groups[ids]
    order = shuffled(n, groups, rng)
    turns = [order]
    if folds_of(n) > 1 and config.metric.kind != "full":
        held, turns = n // FOLDS, [np.roll(order, -(n * fold // FOLDS)) for fold in range(FOLDS)]
    turns = [apart(turn, held, groups, rng) for turn in turns]
    if groups is not None and min(map(len, turns)) == held:  # of few groups one alone can be held out
        held = min(held, int(np.count_nonzero(groups == groups[order[0]])))
        turns = [apart(order, held, groups, rng)]
    if min(map(len, turns)) == held:
        return "the rows of the sample are of one group"
    by_class = class_weights(prepared)
    samples = tuple(Sample.parted(rows, asked, turn, held, by_class) for turn in turns)
    if not all(any(True for _ in asked.task.subproblems(one.asked.targets)) for one in samples):
        return "the sample has rows of one class alone"
    if not all(one.of_held.upper.any() for one in samples):
        return "held-out rows of the sample have no weight"
    return samples, raw.take(np.concatenate([turn[:held] for turn in turns]))


def weighed(prepared: TrainingData, ids: np.ndarray) -> DualData:
    """The targets of these rows, with weights instead of upper bounds."""
    asked = prepared.target_source.take(ids)
    return replace(asked, upper=asked.upper / prepared.config.C)


def class_weights(prepared: TrainingData) -> ClassWeights:
    """The weights of classes in a search, from all rows of the store."""
    config = prepared.config
    factors = np.ones(len(prepared.class_rows))
    if "class_weight" in config.search.chosen:
        factors = balancing(prepared.class_rows, prepared.classes, prepared.no_targets.sets)
    return ClassWeights(factors, config.search.scoring == BALANCED)


def folds_of(n: int) -> int:
    """Samples of n rows."""
    return FOLDS if n <= FOLDED_ROWS else 1


def _most_rows(prepared: TrainingData, engine: Engine) -> int:
    """Rows that memory allows: the sample, and each thread's copy of it under a metric."""
    samples = prepared.samples
    row_bytes = samples.nbytes / samples.n * (4 if prepared.store.dtype == np.uint8 else 1) + 100
    left = (prepared.config.memory_limit or free_bytes()) - process_bytes()
    return int(MOST_SHARE * left / (row_bytes * (2 + 2 * engine.slots)))


Nearest = tuple[np.ndarray, np.ndarray]  # (centres, m) squared distances, and numbers of rows


def regions(
    prepared: TrainingData, centres: Rows, metric: Metric, rows: int, engine: Engine, events: Events
) -> tuple[Sample, ...]:
    """For each centre, a scaled row, a sample of so many rows that are nearest to it under a metric, if they are not of
    one group."""
    samples = prepared.samples
    work = partial(_nearest, rows, metric)
    shared = engine.share(samples), engine.share(metric.of_rows(centres))
    _, (_, ids) = engine.map_reduce(
        work, partial(_merged, rows), samples.blocks(), shared=shared, phase="regions", events=events
    )
    wanted = np.unique(ids)
    found = gather(samples, wanted, engine).astype(np.float32)
    asked = weighed(prepared, wanted)
    by_class, rng = class_weights(prepared), np.random.default_rng([prepared.config.seed, 23])
    groups = together(prepared.store)

    def sample(own: np.ndarray) -> Sample:
        of_own = None if groups is None else groups[own]
        held = len(own) // HELD
        order = apart(shuffled(len(own), of_own, rng), held, of_own, rng)
        return Sample.parted(found, asked, np.searchsorted(wanted, own)[order], held, by_class)

    found_there = map(sample, np.sort(ids, axis=1))
    return tuple(one for one in found_there if len(one.rows))


def _nearest(
    count: int, metric: Metric, samples: SamplesInStore, centres: Rows, block: Block
) -> tuple[None, Nearest]:
    """Of a block's rows."""
    rows = metric.of_rows(samples.read(*block).astype(np.float32))
    distances = rows.sq_norms.astype(np.float32) - 2.0 * inner_products(centres, rows, np.float32)
    return None, _least(count, distances, np.broadcast_to(np.arange(*block), distances.shape))


def _merged(count: int, a: Nearest, b: Nearest) -> Nearest:
    return _least(count, *(np.concatenate(pair, axis=1) for pair in zip(a, b, strict=True)))


def _least(count: int, distances: np.ndarray, ids: np.ndarray) -> Nearest:
    if distances.shape[1] <= count:
        return distances, ids
    at = np.argpartition(distances, count - 1, axis=1)[:, :count]
    return np.take_along_axis(distances, at, axis=1), np.take_along_axis(ids, at, axis=1)
