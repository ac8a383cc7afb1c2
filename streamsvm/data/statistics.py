"""Statistics of columns: of a block of rows, merged with those of other blocks, and stored next to the rows of a store.

The first values of a column also show whether float32 is too narrow for it: it has 24 bits, and steps of 128 at 1.7e9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import zarr
from scipy import sparse

from streamsvm.data.columns import labels_of, values_of
from streamsvm.data.labels import Classes
from streamsvm.data.rows import Rows
from streamsvm.errors import CorruptDataError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.chunks import CheckedArray, GrowingArray, create_array, whole_metadata


@dataclass(frozen=True)
class Moments(SizedInBytes):
    """Statistics of n rows, per feature, all (d,) float64: lowest, highest, mean, and m2 = sum (x - mean)^2.

    A row of weight w counts as w rows, so n may be any number. gaps (d,): the number of rows with NaN, which the
    statistics leave out. None: there are no gaps. fill (d,): the values that replace NaN. marks: columns with an
    indicator, appended after all others: 1 in rows with a gap, else 0.
    """

    n: float
    low: np.ndarray
    high: np.ndarray
    mean: np.ndarray
    m2: np.ndarray
    gaps: np.ndarray | None = None
    fill: np.ndarray | None = None
    marks: np.ndarray | None = None

    @property
    def present(self) -> np.ndarray | float:
        """The number of rows with a value, for each feature, or one number for all."""
        return self.n if self.gaps is None else self.n - self.gaps

    def filled(self, fill: np.ndarray) -> Moments:
        """These statistics, with values (d,) for the gaps."""
        if self.gaps is None:
            return replace(self, fill=fill)
        delta, share = fill - self.mean, self.gaps / self.n
        low = np.minimum(self.low, np.where(self.gaps > 0, fill, np.inf))
        high = np.maximum(self.high, np.where(self.gaps > 0, fill, -np.inf))
        m2 = self.m2 + delta**2 * self.present * share
        return Moments(self.n, low, high, self.mean + delta * share, m2, fill=fill)

    def marked(self, gaps: np.ndarray) -> Moments:
        """Statistics of filled rows that had these numbers (d,) of gaps, including the indicator columns."""
        marks = np.flatnonzero(gaps)
        share = gaps[marks] / self.n
        more = np.floor(share), np.ones(len(marks)), share, self.n * share * (1 - share)
        low, high, mean, m2 = map(np.append, (self.low, self.high, self.mean, self.m2), more)
        return Moments(self.n, low, high, mean, m2, fill=self.fill, marks=marks)


def moments_of(rows: Rows, weight: np.ndarray | None = None) -> Moments:
    """The statistics of at least one row; weight (m,): how many rows each stands for, none of them if 0."""
    if weight is not None:
        return _weighted(rows, weight)
    X = rows.X
    if not isinstance(X, np.ndarray):
        return _sparse(X)
    return reduce(merge, (_dense(X[tile].astype(np.float64)) for tile in _tiles(X)))


def _tiles(X: np.ndarray) -> Iterator[slice]:
    """Rows of 256 KiB of float64, which stay in L2."""
    step = max(1, (1 << 15) // X.shape[1])
    return (slice(lo, lo + step) for lo in range(0, len(X), step))


def _dense(X: np.ndarray) -> Moments:
    mean = X.mean(axis=0)
    if np.isnan(mean.sum()):
        return _with_gaps(X, np.isnan(mean))
    low, high = X.min(axis=0), X.max(axis=0)
    X -= mean
    return Moments(len(X), low, high, mean, np.einsum("ij,ij->j", X, X))


def _with_gaps(X: np.ndarray, has_gaps: np.ndarray) -> Moments:
    """Statistics of dense rows with gaps in these columns (d,), which are treated separately because they are few."""
    in_gapped, gaps = _of_there(X[:, has_gaps]), np.zeros(X.shape[1], np.int64)
    X[:, has_gaps] = 0.0
    moments = replace(_dense(X), gaps=gaps)
    for name in ("low", "high", "mean", "m2", "gaps"):
        getattr(moments, name)[has_gaps] = getattr(in_gapped, name)
    return moments


def _weighted(rows: Rows, weight: np.ndarray) -> Moments:
    used = np.flatnonzero(weight)
    if not len(used):
        zeros = np.zeros(rows.d)
        return Moments(0.0, zeros + np.inf, zeros - np.inf, zeros, zeros)
    X, w = rows.X[used], weight[used].astype(np.float64)
    if not isinstance(X, np.ndarray):
        return _weighted_sparse(X, w)
    return reduce(merge, (_weighted_dense(X[tile].astype(np.float64), w[tile]) for tile in _tiles(X)))


def _weighted_dense(X: np.ndarray, w: np.ndarray) -> Moments:
    is_present = ~np.isnan(X)
    mass = w @ is_present
    low, high = (np.where(is_present, X, end) for end in (np.inf, -np.inf))
    mean = w @ np.where(is_present, X, 0.0) / np.where(mass > 0, mass, 1.0)
    m2 = w @ np.where(is_present, X - mean, 0.0) ** 2
    gaps = None if is_present.all() else w @ ~is_present
    return Moments(float(w.sum()), low.min(axis=0), high.max(axis=0), mean, m2, gaps)


def _weighted_sparse(X: sparse.csr_array, w: np.ndarray) -> Moments:
    """Weighted statistics of CSR rows. Entries that are not stored are 0; a stored NaN is a gap."""
    d, by_entry = X.shape[1], np.repeat(w, np.diff(X.indptr))
    is_present = ~np.isnan(X.data)
    data, columns, entry_weights = X.data[is_present].astype(np.float64), X.indices[is_present], by_entry[is_present]
    gaps = None
    if not is_present.all():
        gaps = np.bincount(X.indices[~is_present], by_entry[~is_present], minlength=d)
    n = float(w.sum())
    present = n if gaps is None else n - gaps
    stored = np.bincount(columns, entry_weights, minlength=d)
    mean = np.bincount(columns, entry_weights * data, minlength=d) / np.where(present > 0, present, 1.0)
    m2 = np.bincount(columns, entry_weights * (data - mean[columns]) ** 2, minlength=d)
    ends = _sparse(X)
    return Moments(n, ends.low, ends.high, mean, m2 + np.maximum(present - stored, 0.0) * mean**2, gaps)


def _of_there(X: np.ndarray) -> Moments:
    """Statistics of dense rows with gaps. A feature without values has mean 0 and infinite ends."""
    is_present = ~np.isnan(X)
    n_present = is_present.sum(axis=0)
    low = np.where(is_present, X, np.inf).min(axis=0)
    high = np.where(is_present, X, -np.inf).max(axis=0)
    mean = np.where(is_present, X, 0.0).sum(axis=0) / np.maximum(n_present, 1)
    deviations = np.where(is_present, X - mean, 0.0)
    m2 = np.einsum("ij,ij->j", deviations, deviations)
    return Moments(len(X), low, high, mean, m2, len(X) - n_present)


def _sparse(X: sparse.csr_array) -> Moments:
    """Statistics of CSR rows. Entries that are not stored are 0; a stored NaN is a gap."""
    n, d = X.shape
    is_present = ~np.isnan(X.data)
    gaps = None if is_present.all() else np.bincount(X.indices[~is_present], minlength=d)
    data, indices = X.data[is_present].astype(np.float64), X.indices[is_present]
    stored = np.bincount(indices, minlength=d)
    n_present = n if gaps is None else n - gaps
    mean = np.bincount(indices, weights=data, minlength=d) / np.maximum(n_present, 1)
    deviations = (data - mean[indices]) ** 2
    m2 = np.bincount(indices, weights=deviations, minlength=d) + (n_present - stored) * mean**2
    low, high = (end(axis=0).toarray().astype(np.float64) for end in (X.nanmin, X.nanmax))
    if gaps is not None:
        low[gaps == n], high[gaps == n] = np.inf, -np.inf
    return Moments(n, low, high, mean, m2, gaps)


def variance(moments: Moments, offset: float | np.ndarray = 0.0, scale: float | np.ndarray = 1.0) -> float:
    """var(X) over all entries of X, with features scaled by (x - offset) * scale.

    The mean variance of the features plus the variance of their means, neither of which cancels far from zero.
    """
    means = (moments.mean - offset) * scale
    return float(np.mean(moments.m2 / moments.n * scale**2 + (means - means.mean()) ** 2))


def merge(a: Moments, b: Moments) -> Moments:
    """The joint statistics of the rows of a and b (Chan, Golub and LeVeque 1979)."""
    n, delta = a.n + b.n, b.mean - a.mean
    gaps = None if a.gaps is None and b.gaps is None else np.asarray(n - (a.present + b.present))
    present = a.present + b.present
    present = np.where(present > 0, present, 1)
    return Moments(
        n,
        np.minimum(a.low, b.low),
        np.maximum(a.high, b.high),
        a.mean + delta * (b.present / present),
        a.m2 + b.m2 + delta**2 * (a.present * b.present / present),
        gaps,
    )


SHARE = 1e-3  # of the spread of a column that a step of float32 may be
SAMPLE = 256  # rows of a block that a column is judged by


class RoundedValue(NamedTuple):
    """A column, one of its values, and what float32 makes of it."""

    column: int
    value: float
    rounded: float


class NeedsFloat64(Exception):
    """Rows have to be read again, as float64. The message says why."""

    @classmethod
    def of(cls, column: str, rounded: RoundedValue, hint: str = "") -> NeedsFloat64:
        """The error for a rounded value. column: named as in `column 3`. hint: ends the message."""
        problem = f"float32 rounds numbers of {column}"
        return cls(f"{problem}, such as {rounded.value!r} to {rounded.rounded:.17g}: the rows are float64{hint}")


def first_rounded(columns: np.ndarray, values: np.ndarray) -> RoundedValue | None:
    """The first column that float32 rounds to steps of more than SHARE of the distance between its quartiles, if there
    is one. values (m,): of these columns (m,), some NaN."""
    order = np.lexsort((values, columns))
    order = order[~np.isnan(values[order])]
    columns, values = columns[order], values[order]
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if np.array_equal(values, rounded):
        return None
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    counts = np.diff(np.append(starts, len(columns)))
    low, middle, high = (values[starts + share * (counts - 1) // 4] for share in (1, 2, 3))
    spread = np.where(high > low, high - low, values[starts + counts - 1] - values[starts])
    differs = np.logical_or.reduceat(values != rounded, starts)
    with np.errstate(over="ignore"):
        steps = np.spacing(np.abs(middle).astype(np.float32))
    bad = np.flatnonzero(differs & (spread > 0) & (steps > SHARE * spread))
    if not len(bad):
        return None
    entry = int(starts[bad[0]])
    entry += int(np.argmax((values != rounded)[entry : entry + counts[bad[0]]]))
    return RoundedValue(int(columns[entry]), float(values[entry]), float(rounded[entry]))


def first_rounded_in(X: np.ndarray) -> RoundedValue | None:
    """`first_rounded` of some rows of X (m, d)."""
    sample = X[:: -(-len(X) // SAMPLE)].astype(np.float64)
    return first_rounded(np.tile(np.arange(X.shape[1]), len(sample)), sample.ravel())


FOLDER = "statistics"
COLUMNS, LABELS = ("min", "max", "mean", "std"), ("labels", "counts")
MISSING = "missing"  # count of missing values, if columns have any


def write_statistics(group: zarr.Group, moments: Moments | None, classes: Classes | None) -> None:
    """Writes statistics of the columns and the classes into the group of a store. None: leaves them out."""
    if moments is None and classes is None:
        return
    folder = group.create_group(FOLDER)
    if moments is not None:
        spread = np.sqrt(moments.m2 / np.maximum(moments.present, 1))
        statistics = dict(zip(COLUMNS, (moments.low, moments.high, moments.mean, spread), strict=True))
        for name, values in (statistics if moments.gaps is None else statistics | {MISSING: moments.gaps}).items():
            array = create_array(folder, name, shape=values.shape, chunks=values.shape, dtype=np.float64)
            array[:] = values
    if classes is not None:
        for name, values in zip(LABELS, (classes.values, classes.counts), strict=True):
            growing = GrowingArray(folder, name, values.dtype, len(values))
            growing.append(values)
            growing.close()


class StoredStatistics:
    """Reads the statistics in the group of a store of n rows; None for those it lacks. Raises CorruptDataError."""

    def __init__(self, group: zarr.Group, n: int) -> None:
        self._folder: Any = group.get(FOLDER)
        self._n = n
        self._name = f"'{FOLDER}' of {group.store_path}"

    def columns(self) -> dict[str, np.ndarray] | None:
        """min, max, mean and std of each feature, (d,) float64 each, and if rows have gaps, their counts `missing`."""
        with whole_metadata(self._name):
            if not self._has(COLUMNS):
                return None
            names = (*COLUMNS, MISSING) if self._has((MISSING,)) else COLUMNS
            return {name: self._array(name).all() for name in names}

    def classes(self) -> Classes | None:
        with whole_metadata(self._name):
            if not self._has(LABELS):
                return None
            values, counts = (values_of(self._array(name)) for name in LABELS)
            if len(values) != len(counts) or counts.sum() != self._n:
                problem = f"array '{FOLDER}/counts' counts {counts.sum()} rows of {len(values)} labels, found {self._n}"
                raise CorruptDataError(f"{problem}; ingest them again")
            return Classes(labels_of(values), counts.astype(np.int64))

    def _has(self, names: tuple[str, ...]) -> bool:
        return self._folder is not None and all(name in self._folder for name in names)

    def _array(self, name: str) -> CheckedArray:
        return CheckedArray(self._folder[name], f"{FOLDER}/{name}")
