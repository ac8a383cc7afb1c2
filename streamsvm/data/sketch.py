"""A store for plans: described by the statistics that it keeps, or if it keeps none, by some of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from scipy import sparse

from streamsvm.data.labels import Classes, count_labels
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import MISSING, Moments, merge, moments_of
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError

T = TypeVar("T")
FIRST_ROWS = 1000  # for the ranges of the features
SAMPLE_BYTES = 64 << 20  # of blocks for statistics of the columns, at least two
LABEL_BLOCKS = 16  # of about 65,536 labels


class Sketch(Store):
    """A store that is never read in full. Even a large one answers in seconds, with little memory.

    guessed: a line for each fact that is estimated from some rows, or assumed if these cannot be read.
    """

    def __init__(self, store: Store) -> None:
        vars(self).update(vars(store))
        self.guessed: list[str] = []

    def of(self, store: Store) -> Sketch:
        """The sketch of a store that has its rows in other columns, with the same list of guesses."""
        sketch = Sketch(store)
        sketch.guessed = self.guessed
        return sketch

    @cached_property
    def classes(self) -> Classes:
        """The kept classes, else those of evenly spread blocks of labels, with counts extrapolated to all rows."""
        if self.stored_classes is not None or not self.reads_labels:
            return super().classes
        blocks = list(self.label_blocks())
        sample = _spread(blocks, LABEL_BLOCKS)
        try:
            classes = count_labels(self.labels(*block) for block in sample)
        except CorruptDataError as error:
            self.guessed.append(f"two classes are assumed: {_brief(error)}")
            return Classes(np.arange(2), np.array([self.n - self.n // 2, self.n // 2]))
        if classes is None or len(classes.values) == 1 or len(sample) == len(blocks):
            return super().classes  # a sample of labels is not enough
        rows = int(classes.counts.sum())
        self.guessed.append(f"classes are those of {rows:,} of {self.n:,} rows")
        return Classes(classes.values, np.rint(classes.counts * (self.n / rows)).astype(np.int64))

    @cached_property
    def moments(self) -> Moments:
        """The kept statistics of all rows, else those of evenly spread blocks."""
        if (stored := self.statistics) is not None:
            gaps = stored.get(MISSING)
            moments = Moments(self.n, stored["min"], stored["max"], stored["mean"], stored["std"], gaps)
            return replace(moments, m2=moments.present * stored["std"] ** 2)
        blocks = self.blocks()
        sample = _spread(blocks, max(2, int(SAMPLE_BYTES / (self.nbytes / len(blocks)))))
        try:
            moments = reduce(merge, map(self._moments, sample))
        except CorruptDataError as error:
            self.guessed.append(f"columns of mean 0 and variance 1 are assumed: {_brief(error)}")
            ones = np.ones(self.d)
            return Moments(self.n, -ones, ones, 0 * ones, self.n * ones)
        if len(sample) < len(blocks):
            self.guessed.append(f"columns are measured by {moments.n:,} of {self.n:,} rows")
        return moments

    @cached_property
    def first(self) -> Rows:
        """The first rows. If they cannot be read, the lowest, highest and mean values of the columns."""
        try:
            rows = self.read(0, min(self.n, FIRST_ROWS))
            self.require_finite(rows, 0, gaps=True)
            return rows
        except CorruptDataError as error:
            self.guessed.append(f"the first rows are not known: {_brief(error)}")
        moments = self.moments
        X = np.stack([moments.low, moments.high, moments.mean]).astype(self.dtype)
        return Rows(sparse.csr_array(X)) if self.is_sparse else Rows(X)

    @cached_property
    def typical(self) -> Rows:
        """Rows for quartiles."""
        if FIRST_ROWS <= len(self.first) < self.n:
            self.guessed.append(f"quartiles are those of the first {len(self.first):,} rows")
        return self.first

    def require_weights(self) -> None:
        """Does nothing: weights are not read."""

    def _moments(self, block: tuple[int, int]) -> Moments:
        rows = self.read_finite(*block, gaps=True)
        with np.errstate(over="ignore"):
            moments = moments_of(rows)
        self.require_squares(moments.low, moments.high)
        return moments


def sketched(store: Store) -> Sketch:
    """The store for a plan. A sketched store is returned unchanged."""
    return store if isinstance(store, Sketch) else Sketch(store)


def _brief(error: CorruptDataError) -> str:
    """The problem without advice, because a plan may be made before the rows exist."""
    return str(error).partition(";")[0]


def _spread(items: Sequence[T], count: int) -> Sequence[T]:
    """`count` of them, evenly spread, including the first and the last. All if there are no more."""
    if len(items) <= count:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, count).astype(int).tolist()]
