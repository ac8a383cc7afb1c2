"""The rows of a store regrouped by regions of input space, for learners on a budget that stand side by side.

Regions come from a sample; then one pass sends every row to its region, and writes it to scratch files sorted by region
with its label and weight. From there each learner streams its own rows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from streamsvm.data.gather import gather
from streamsvm.data.regroup import by_part
from streamsvm.data.rows import Rows, concat
from streamsvm.data.samples import StoreSamples
from streamsvm.data.scratch import ArrayPlace, RowsPlace, put_array, put_rows
from streamsvm.kernels.balanced import balanced
from streamsvm.kernels.kmeans import Partition
from streamsvm.parallel.sizes import Weighed
from streamsvm.storage.atomic import storage_errors
from streamsvm.training.answers import Answers
from streamsvm.training.base import Fit

DIVIDE = 3  # of the seed's streams: rows that regions are made of
SAMPLE_ROWS = 8192  # of them, or so many a region
REGION_ROWS = 256

Window = tuple[int, int]


@dataclass(frozen=True)
class Regions(Weighed):
    """Regions of input space, and their rows in files, each a window of the store sorted by region."""

    partition: Partition
    files: tuple[_File, ...]

    @cached_property
    def ends(self) -> np.ndarray:
        """(files + 1, regions): rows of a region before a file."""
        counts = [np.diff(file.bounds) for file in self.files]
        return np.cumsum([np.zeros_like(counts[0]), *counts], axis=0)

    @property
    def sizes(self) -> np.ndarray:
        """(regions,) their rows."""
        return self.ends[-1]

    def turns(self, rows: int) -> list[np.ndarray]:
        """(regions, 2) a turn: from which row of its own to which each learner learns, at most so many; all have turns
        alike."""
        count = -(-int(self.sizes.max()) // rows)
        cuts = np.arange(count + 1)[:, None] * self.sizes // count
        return [np.stack(pair, axis=1) for pair in zip(cuts[:-1], cuts[1:], strict=True)]

    def read(self, region: int, start: int, stop: int) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Rows start..stop of a region in the order of the store, their codes and weights."""
        ends = self.ends[:, region]
        found = [
            file.read(region, max(start - before, 0), min(stop, after) - before)
            for file, before, after in zip(self.files, ends[:-1].tolist(), ends[1:].tolist(), strict=True)
            if before < stop and after > start
        ]
        rows, codes, weight = zip(*found or [self.files[0].read(region, 0, 0)], strict=True)
        return concat(list(rows)), np.concatenate(codes), np.concatenate(weight)


@dataclass(frozen=True)
class _File(Weighed):
    """Rows of a window of the store, their codes and weights: region p is bounds[p]..bounds[p + 1]."""

    path: Path
    rows: RowsPlace
    codes: ArrayPlace
    weight: ArrayPlace
    bounds: np.ndarray

    def read(self, region: int, start: int, stop: int) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Rows start..stop of a region."""
        here = int(self.bounds[region]) + start, int(self.bounds[region]) + stop
        with self.path.open("rb") as file:
            return self.rows.read(file, *here), self.codes.read(file, *here), self.weight.read(file, *here)


def shares_of_time(until: float | None, count: int, slots: int) -> list[float | None]:
    """When each of so many turns has to end, so that those that wait for a slot have their share of the time left."""
    if until is None:
        return [None] * count
    now, waves = time.time(), -(-count // slots)
    return [now + max(until - now, 0.0) * (1 + number // slots) / waves for number in range(count)]


def sample_rows(n: int, n_regions: int, most: int) -> int:
    """Rows that regions are made of, at most so many where that is enough to tell them apart."""
    return min(n, max(min(max(SAMPLE_ROWS, REGION_ROWS * n_regions), most), 2 * n_regions))


def regions(fit: Fit, windows: Sequence[Window], n_regions: int) -> Regions:
    """At most n_regions regions of a fit's rows. windows: of the store, whose rows a task holds."""
    samples, engine, scratch = StoreSamples(fit.store, fit.scaling), fit.engine, fit.scratch / "regions"
    rng = np.random.default_rng([fit.config.seed, DIVIDE])
    most = sample_rows(samples.n, n_regions, windows[0][1] - windows[0][0])
    ids = np.sort(rng.choice(samples.n, most, replace=False))
    partition = balanced(gather(samples, ids, engine), n_regions, rng)

    engine.require_folder(fit.scratch)
    shutil.rmtree(scratch, ignore_errors=True)  # of an earlier fit
    with storage_errors(str(scratch)):
        scratch.mkdir(parents=True)
    source = samples, fit.prepared.answers, fit.config.C
    shared = (engine.share(source), engine.share(partition))
    write = partial(_write, scratch, len(partition.nodes) + 1)
    files = engine.map(write, windows, shared=shared, phase="regroup", events=fit.events)
    return Regions(partition, tuple(files))


def _write(
    folder: Path,
    n_regions: int,
    source: tuple[StoreSamples, Answers, float],
    partition: Partition,
    window: Window,
) -> _File:
    samples, answers, C = source
    rows, asked = samples.read(*window), answers.read(*window)
    codes, weight = asked.targets.codes, asked.upper / C
    order, bounds = by_part(partition.assign(rows), n_regions)
    path = folder / f"{window[0]:012d}"
    with storage_errors(str(folder)), path.open("wb") as file:
        places = (
            put_rows(file, rows.take(order)),
            put_array(file, codes[order]),
            put_array(file, weight[order]),
        )
    return _File(path, *places, bounds)
