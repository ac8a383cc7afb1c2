"""The rows of a store regrouped by regions of input space, for parallel learners on a budget.

Regions come from a sample; then one pass sends every row to its region, and writes it to scratch files sorted by region
with its label and weight. From there each learner streams its own rows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from streamsvm.data.gather import gather
from streamsvm.data.regroup import Spool, SpooledGroups
from streamsvm.data.rows import Rows
from streamsvm.data.samples import StoreSamples
from streamsvm.fits.base import Fit
from streamsvm.fits.parts import Carried
from streamsvm.kernels.balanced import balanced
from streamsvm.kernels.kmeans import Partition
from streamsvm.parallel.sizes import Weighed
from streamsvm.storage.paths import remove_tree
from streamsvm.tasks.base import Targets, Task

DIVIDE = 3  # of the seed's streams: rows that regions are made of
SAMPLE_ROWS = 8192  # of them, or so many a region
REGION_ROWS = 256


@dataclass(frozen=True)
class Regions(Weighed):
    """Regions of input space, and their rows in files.

    C: that their bounds are of, times their weights. targets: of none of their rows.
    """

    partition: Partition
    spool: Spool
    C: float
    task: Task
    targets: Targets

    @property
    def sizes(self) -> np.ndarray:
        """(regions,) their rows."""
        return self.spool.sizes

    def turns(self, rows: int) -> list[np.ndarray]:
        """(regions, 2) a turn: the first and last of its own rows that each learner learns, at most so many; all have
        the same number of turns."""
        count = -(-int(self.sizes.max()) // rows)
        cuts = np.arange(count + 1)[:, None] * self.sizes // count
        return [np.stack(pair, axis=1) for pair in zip(cuts[:-1], cuts[1:], strict=True)]

    def read(self, region: int, start: int, stop: int) -> tuple[Rows, np.ndarray, np.ndarray]:
        """Rows start..stop of a region in the order of the store, the target of each, and their weights."""
        beside = self.spool.beside(region, start, stop)
        Y = self.task.learnable(self.targets.of(beside))
        return self.spool.rows(region, start, stop), Y, beside["upper"] / self.C


@dataclass(frozen=True)
class Routed(Weighed):
    """The regions of rows, as `Labels`."""

    partition: Partition

    def of(self, rows: Rows, start: int) -> np.ndarray:
        return self.partition.assign(rows)


def shares_of_time(until: float | None, count: int, slots: int) -> list[float | None]:
    """When each of so many turns has to end, so that those that wait for a slot have their share of the time left."""
    if until is None:
        return [None] * count
    now, waves = time.time(), -(-count // slots)
    return [now + max(until - now, 0.0) * (1 + number // slots) / waves for number in range(count)]


def sample_rows(n: int, n_regions: int, most: int) -> int:
    """How many rows to compute the regions from: at most `most`, unless separating the regions needs more."""
    return min(n, max(min(max(SAMPLE_ROWS, REGION_ROWS * n_regions), most), 2 * n_regions))


def regions(fit: Fit, most: int, n_regions: int, C: float) -> Regions:
    """At most n_regions regions of a fit's rows, made of at most so many of them.

    C: that their bounds are of, times their weights.
    """
    samples, engine, folder = StoreSamples(fit.store, fit.scaling), fit.engine, fit.scratch / "regions"
    rng = np.random.default_rng([fit.config.seed, DIVIDE])
    ids = np.sort(rng.choice(samples.n, sample_rows(samples.n, n_regions, most), replace=False))
    partition = balanced(gather(samples, ids, engine), n_regions, rng)

    engine.require_folder(fit.scratch)
    remove_tree(folder)  # of an earlier fit
    own = (
        Routed(partition),
        len(partition.nodes) + 1,
        folder,
        engine,
        Carried(fit.prepared.answers),
        fit.events,
    )
    return Regions(partition, SpooledGroups(samples, *own).reader, C, fit.task, fit.prepared.no_targets)
