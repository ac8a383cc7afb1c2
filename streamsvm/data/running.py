"""Running standardisation of rows that come one by one: mean and spread of each column adapt slowly."""

from __future__ import annotations

import numpy as np
from numba.extending import register_jitable

from streamsvm.data.scaling import Scaling
from streamsvm.private.numba import borrowed, njit, njit_inner
from streamsvm.storage.arrays import InArrays

WINDOW = 10_000  # about the number of rows that count
OFTEN = 0.5  # share of the rows: columns present less often are 0 if absent, instead of their mean
LARGEST = 8.0  # largest scaled entry


class RunningScaling(InArrays):
    """z = (x - mean) / spread for columns present in at least half of the rows since their first one, and
    z = x / (root of the mean square) for others, and for constant ones, as texts are: 1 or absent. 0 if absent (NaN).

    counts (d,): rows with the column. born (d,): rows before its first one. means, variances (d,). n: rows in all.
    """

    ARRAYS = ("counts", "born", "means", "variances", "n")

    def __init__(self, d: int) -> None:
        self.counts, self.born = np.zeros(d, np.int64), np.zeros(d, np.int64)
        self.means, self.variances = np.zeros(d), np.zeros(d)
        self.n = np.zeros(1, np.int64)

    def scale(self, rows: np.ndarray) -> np.ndarray:
        """(m, d) float32 scaled rows from raw rows (m, d), in which NaN is absent."""
        Z = np.empty(rows.shape, np.float32)
        scale(rows, self.counts, self.born, self.means, self.variances, self.n, Z)
        return Z

    def learn(self, rows: np.ndarray) -> np.ndarray:
        """Scales each row by the statistics of the rows before it."""
        Z = np.empty(rows.shape, np.float32)
        learn(rows, self.counts, self.born, self.means, self.variances, self.n, Z)
        return Z

    def widen(self, d: int) -> None:
        """Makes room for d columns."""
        more = d - len(self.counts)
        for name in ("counts", "born", "means", "variances"):
            setattr(self, name, np.pad(getattr(self, name), (0, more)))

    @property
    def spread(self) -> float:
        """About the sum of the variances of scaled columns."""
        shares = self.counts / np.maximum(self.n - self.born, 1)  # of the rows since a column's first one that have it
        return float(np.sum(np.where(self._often, 1.0, np.where(self.variances > 0, shares, shares * (1 - shares)))))

    @property
    def _often(self) -> np.ndarray:
        return are_often(self.counts, self.n - self.born, self.variances)

    def scaling(self) -> Scaling:
        """The same scaling for a model, so that it predicts raw rows."""
        offset = np.where(self._often, self.means, 0.0)
        square = self.variances + np.where(self._often, 0.0, self.means**2)
        factor = np.divide(1.0, np.sqrt(square), out=np.zeros_like(square), where=square > 0)
        return Scaling("standard", offset, factor, fill=offset)


@register_jitable
def are_often(counts, rows, variances):
    """Whether columns, each in so many of the rows since its first one, are centred: not rare ones and constants."""
    return (variances > 0) & (counts >= OFTEN * rows)


@njit_inner()
def see_row(x, counts, born, means, variances, n):
    """Updates the statistics by a raw row x (d,), in which NaN is absent."""
    for j in range(len(x)):
        if np.isnan(x[j]):
            continue
        if counts[j] == 0:
            born[j] = n[0]
        counts[j] += 1
        share, deviation = 1 / min(counts[j], WINDOW), x[j] - means[j]
        means[j] += share * deviation
        variances[j] = (1 - share) * (variances[j] + share * deviation * deviation)
    n[0] += 1


@njit_inner()
def scale_row(x, counts, born, means, variances, n, z):
    """Fills z (d,) with the scaled row of x (d,), after n rows."""
    for j in range(len(x)):
        z[j] = 0
        if counts[j] == 0 or np.isnan(x[j]):
            continue
        is_often = are_often(counts[j], n - born[j], variances[j])
        square = variances[j] if is_often else variances[j] + means[j] * means[j]
        if square > 0:
            deviation = x[j] - means[j] if is_often else x[j]
            z[j] = min(max(deviation / np.sqrt(square), -LARGEST), LARGEST)


@njit(cache=True)
def scale(rows, counts, born, means, variances, n, Z):
    """Fills Z (m, d) with scaled rows, all by the same statistics."""
    for i in range(len(rows)):
        scale_row(rows[i], counts, born, means, variances, n[0], Z[i])


@njit(cache=True)
def learn(rows, counts, born, means, variances, n, Z):
    """Fills Z (m, d) with scaled rows, each by the statistics of the rows before it, and learns them."""
    rows, Z = borrowed(rows), borrowed(Z)
    for i in range(len(rows)):
        scale_row(rows[i], counts, born, means, variances, n[0], Z[i])
        see_row(rows[i], counts, born, means, variances, n)
