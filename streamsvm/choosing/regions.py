"""Regions of a store: the rows nearest to some centres, as dense as all rows are; found in one pass."""

from __future__ import annotations

from functools import partial

import numpy as np

from streamsvm.choosing.drawn import class_weights, weighed
from streamsvm.choosing.trials import HELD, Sample
from streamsvm.data.folds import apart, shuffled, together
from streamsvm.data.gather import gather
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block, StoreSamples
from streamsvm.events import Events
from streamsvm.fits.prepare import Prepared
from streamsvm.kernels.base import inner_products
from streamsvm.parallel.engine import Engine

Nearest = tuple[np.ndarray, np.ndarray]  # (centres, m) squared distances, and numbers of rows


def regions(
    prepared: Prepared, centres: Rows, metric: Metric, rows: int, engine: Engine, events: Events
) -> tuple[Sample, ...]:
    """For each centre, a scaled row, a sample of so many rows that are nearest to it under a metric, if they are not of
    one group."""
    samples = StoreSamples(prepared.store, prepared.scaling)
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
    count: int, metric: Metric, samples: StoreSamples, centres: Rows, block: Block
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
