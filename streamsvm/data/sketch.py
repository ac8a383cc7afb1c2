"""A store for plans: described by the statistics that it keeps, or if it keeps none, by some of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from scipy import sparse

from streamsvm.data.finite import require_finite, require_squares
from streamsvm.data.labels import Classes, counted
from streamsvm.data.moments import Moments, merge, moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import MISSING
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
        """A store of its rows in other columns, sketched, too, with what has been guessed."""
        found = Sketch(store)
        found.guessed = self.guessed
        return found

    @cached_property
    def classes(self) -> Classes:
        """The kept classes, else those of evenly spread blocks of labels, with counts extrapolated to all rows."""
        if self.kept_classes is not None or not self.reads_labels:
            return super().classes
        blocks = list(self.label_blocks())
        some = _spread(blocks, LABEL_BLOCKS)
        try:
            found = counted(self.labels(*block) for block in some)
        except CorruptDataError as error:
            self.guessed.append(f"two classes are assumed: {_brief(error)}")
            return Classes(np.arange(2), np.array([self.n - self.n // 2, self.n // 2]))
        if found is None or len(found.values) == 1 or len(some) == len(blocks):
            return super().classes  # a sample of labels is not enough
        rows = int(found.counts.sum())
        self.guessed.append(f"classes are those of {rows:,} of {self.n:,} rows")
        return Classes(found.values, np.rint(found.counts * (self.n / rows)).astype(np.int64))

    @cached_property
    def moments(self) -> Moments:
        """The kept statistics of all rows, else those of evenly spread blocks."""
        if (kept := self.statistics) is not None:
            gaps = kept.get(MISSING)
            found = Moments(self.n, kept["min"], kept["max"], kept["mean"], kept["std"], gaps)
            return replace(found, m2=found.there * kept["std"] ** 2)
        blocks = self.blocks()
        some = _spread(blocks, max(2, int(SAMPLE_BYTES / (self.nbytes / len(blocks)))))
        try:
            found = reduce(merge, map(self._moments, some))
        except CorruptDataError as error:
            self.guessed.append(f"columns of mean 0 and variance 1 are assumed: {_brief(error)}")
            ones = np.ones(self.d)
            return Moments(self.n, -ones, ones, 0 * ones, self.n * ones)
        if len(some) < len(blocks):
            self.guessed.append(f"columns are measured by {found.n:,} of {self.n:,} rows")
        return found

    @cached_property
    def first(self) -> Rows:
        """The first rows. If they cannot be read, the lowest, highest and mean values of the columns."""
        try:
            rows = self.read(0, min(self.n, FIRST_ROWS))
            require_finite(self, rows, 0, gaps=True)
            return rows
        except CorruptDataError as error:
            self.guessed.append(f"the first rows are not known: {_brief(error)}")
        found = self.moments
        X = np.stack([found.low, found.high, found.mean]).astype(self.dtype)
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
        rows = self.read(*block)
        require_finite(self, rows, block[0], gaps=True)
        with np.errstate(over="ignore"):
            moments = moments_of(rows)
        require_squares(self, moments.low, moments.high)
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
