"""Regions of input space of about equal numbers of rows: repeated 2-means, whose borders are moved to halve the
rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels.inner import Linear
from streamsvm.kernels.kmeans import Centres, Partition, fit_centres

SAMPLE = 1000  # rows that place the two centres


def balanced(sample: Rows, n_parts: int, rng: np.random.Generator) -> Partition:
    """At most n_parts partitions, by a sample of the rows; fewer if its rows are too similar to be separated."""
    halves = _Halves()
    halves.divide(sample, n_parts, rng)
    return Partition(tuple(halves.nodes), tuple(halves.children))


class _Halves:
    """A partition under construction: a node comes before those below it."""

    def __init__(self) -> None:
        self.nodes: list[Centres] = []
        self.children: list[tuple[int, ...]] = []
        self._n_parts = 0

    def divide(self, rows: Rows, n_parts: int, rng: np.random.Generator) -> int:
        """The child that these rows become, see `Partition.children`: a partition, or ~ a node with two sides."""
        halves = _halved(rows, n_parts, rng) if n_parts > 1 else None
        if halves is None:
            self._n_parts += 1
            return self._n_parts - 1
        centres, is_first = halves
        number, share = len(self.nodes), round(n_parts * float(is_first.mean()))
        share = min(max(share, 1), n_parts - 1)
        self.nodes.append(centres)
        self.children.append(())
        sides = ((is_first, share), (~is_first, n_parts - share))
        self.children[number] = tuple(self.divide(rows.take(np.flatnonzero(side)), parts, rng) for side, parts in sides)
        return ~number


def _halved(rows: Rows, n_parts: int, rng: np.random.Generator) -> tuple[Centres, np.ndarray] | None:
    """Two centres with a border between them, and the rows (m,) of the first; None if nothing separates the rows."""
    few = np.sort(rng.choice(len(rows), min(SAMPLE, len(rows)), replace=False))
    centres = fit_centres(rows.take(few), 2, Linear(), rng)
    if centres.k < 2:
        return None
    lead = np.subtract(*centres.distances(rows).T[::-1])  # of the first centre
    ordered = np.sort(lead)
    places = np.flatnonzero(ordered[:-1] < ordered[1:]) + 1  # between rows that differ
    if not len(places):
        return None
    wanted = len(rows) * (n_parts // 2) / n_parts  # of the second side
    place = places[np.argmin(np.abs(places - wanted))]
    border = (ordered[place - 1] + ordered[place]) / 2
    return replace(centres, offsets=centres.offsets - [0.0, border]), lead >= border
