"""A store as plans see it: by what it keeps of its rows, and where it keeps nothing, by some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, reduce
from typing import TypeVar

import numpy as np
from scipy import sparse

from streamsvm.data.finite import require_finite
from streamsvm.data.kept import MISSING
from streamsvm.data.labels import Classes, counted
from streamsvm.data.moments import Moments, merge, moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError

T = TypeVar("T")
FIRST_ROWS = 1000  # that tell of the features' ranges
SAMPLE_BYTES = 64 << 20  # of blocks that tell of the columns, at least two
LABEL_BLOCKS = 16  # of some 65,536 labels


class Sketch(Store):
    """A store of which no pass is made, however large: seconds, and little memory, are enough for what it tells.

    guessed: what some of the rows alone have told, or, where these cannot be read, nothing; a line each.
    """

    def __init__(self, store: Store) -> None:
        vars(self).update(vars(store))
        self.guessed: list[str] = []

    @cached_property
    def classes(self) -> Classes:
        """As kept, else by evenly spread blocks of labels, whose counts are carried on to all rows."""
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
            return super().classes  # few labels tell nothing of all
        rows = int(found.counts.sum())
        self.guessed.append(f"classes are those of {rows:,} of {self.n:,} rows")
        return Classes(found.values, np.rint(found.counts * (self.n / rows)).astype(np.int64))

    @cached_property
    def moments(self) -> Moments:
        """Of all rows as kept, else of evenly spread blocks."""
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
        """The first rows; where they cannot be read, the lowest, highest and mean values of the columns."""
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
        """Rows that tell of quartiles."""
        if FIRST_ROWS <= len(self.first) < self.n:
            self.guessed.append(f"quartiles are those of the first {len(self.first):,} rows")
        return self.first

    def require_weights(self) -> None:
        """Reads none."""

    def _moments(self, block: tuple[int, int]) -> Moments:
        rows = self.read(*block)
        require_finite(self, rows, block[0], gaps=True)
        return moments_of(rows)


def sketched(store: Store) -> Sketch:
    """A store for a plan; one that is so already, itself."""
    return store if isinstance(store, Sketch) else Sketch(store)


def _brief(error: CorruptDataError) -> str:
    """What is wrong, without what to do about it: a plan may well come before the rows."""
    return str(error).partition(";")[0]


def _spread(items: Sequence[T], count: int) -> Sequence[T]:
    """So many of them, evenly spread, the first and the last among them; all where there are no more."""
    if len(items) <= count:
        return items
    return [items[i] for i in np.linspace(0, len(items) - 1, count).astype(int).tolist()]
