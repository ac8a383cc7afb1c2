"""Scaling of features: x' = (x - offset) * scale, from statistics of one streamed pass; or by quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.special import ndtri

from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import Moments
from streamsvm.errors import ConfigError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.numba import njit

INNER = 254  # quantiles between the lowest and the highest value
TOGETHER = 64  # values per search


@dataclass(frozen=True)
class Quantiles(SizedInBytes):
    """knots (d, q) float64: sorted values of each column. levels (q,): the share of rows below each, in (0, 1).

    A value at knots[j, i] becomes the quantile of a normal distribution at levels[i]. A value with several knots, which
    many rows share, gets the middle of their levels. Beyond the outer knots the map is constant.
    """

    knots: np.ndarray
    levels: np.ndarray

    @classmethod
    def of_rows(cls, X: np.ndarray, low: np.ndarray, high: np.ndarray) -> Quantiles:
        """The quantiles of some rows (m, d), with the lowest and highest values (d,) of all rows."""
        m = len(X)
        levels = (np.arange(min(m, INNER)) + 0.5) / min(m, INNER)
        inner = np.quantile(X.astype(np.float64), levels, axis=0, method="hazen")
        knots = np.concatenate([[low], inner, [high]]).T
        # by rounding, an interpolated quantile may be below the previous one, or beyond the ends
        knots = np.maximum.accumulate(np.clip(knots, low[:, None], high[:, None]), axis=1)
        return cls(np.ascontiguousarray(knots), np.concatenate([[0.5 / m], levels, [1 - 0.5 / m]]))

    @property
    def d(self) -> int:
        return len(self.knots)

    @cached_property
    def heights(self) -> np.ndarray:
        """(d, q) the images of the knots."""
        places = np.arange(len(self.levels))
        is_new = np.diff(self.knots, axis=1) > 0
        edge = np.ones((self.d, 1), bool)
        first = np.maximum.accumulate(np.where(np.hstack([edge, is_new]), places, 0), axis=1)
        last = np.where(np.hstack([is_new, edge]), places, places[-1])
        last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
        return ndtri((self.levels[first] + self.levels[last]) / 2)

    def normal(self, X: np.ndarray) -> np.ndarray:
        """(m, d) float64 the images of rows without gaps."""
        out = np.empty(X.shape)
        _heights_at(X, self.knots, self.heights, out)
        return out

    def raw(self, Z: np.ndarray) -> np.ndarray:
        """(m, d) float64 the inverse: rows with these images. A column of NaN stays NaN."""
        columns = zip(Z.T, self.heights, self.knots, strict=True)
        return np.stack([np.interp(z, height, knot) for z, height, knot in columns], axis=1)

    def slopes(self, X: np.ndarray) -> np.ndarray:
        """(m, d) float64 derivatives of `normal`, at knots from the right."""
        steps = np.diff(self.knots, axis=1)
        slopes = np.divide(np.diff(self.heights, axis=1), steps, out=np.zeros_like(steps), where=steps > 0)
        slopes = np.pad(slopes, [(0, 0), (1, 1)])
        columns = zip(X.T, self.knots, slopes, strict=True)
        return np.stack([slope[np.searchsorted(knot, x, side="right")] for x, knot, slope in columns], axis=1)

    def moments(self, n: float) -> Moments:
        """Statistics of n transformed rows, by the inner quantiles, between which the rows are spread equally."""
        low, inner, high = np.split(self.heights, [1, -1], axis=1)
        return Moments(n, low[:, 0], high[:, 0], inner.mean(axis=1), n * inner.var(axis=1))


@njit(cache=True)
def _heights_at(X: np.ndarray, knots: np.ndarray, heights: np.ndarray, out: np.ndarray) -> None:
    """out (m, d): for each value the heights (d, q) of its column, interpolated between the knots (d, q) next to it.

    TOGETHER searches advance side by side, in loops that the compiler vectorises: 9 ns a value instead of 45.
    """
    m, d = X.shape
    q = knots.shape[1]
    place, x = np.empty(TOGETHER, np.int64), np.empty(TOGETHER)
    for j in range(d):
        knot, height = knots[j], heights[j]
        for lo in range(0, m, TOGETHER):
            count = min(TOGETHER, m - lo)
            for i in range(count):
                place[i], x[i] = 0, min(max(np.float64(X[lo + i, j]), knot[0]), knot[q - 1])
            left = q  # from `at` on, among which the last knot is that is not above x
            while left > 1:
                half = left >> 1
                for i in range(count):
                    place[i] += half * np.int64(knot[place[i] + half] <= x[i])
                left -= half
            for i in range(count):
                low, high = place[i], min(place[i] + 1, q - 1)
                width = knot[high] - knot[low]
                share = (x[i] - knot[low]) / width if width > 0 else 0.0
                out[lo + i, j] = height[low] + share * (height[high] - height[low])


ROUNDED = 2.0**-22  # relative rounding error of a float32 entry that stands for 0
NORMAL = 1.349  # between the quartiles of a normal distribution, in standard deviations


@dataclass(frozen=True)
class Scaling(SizedInBytes):
    """x' = (x - offset) * scale, per feature; offset and scale (d + marks,) float64.

    minmax maps each feature to [0, 1], standard to mean 0 and variance 1, maxabs to [-1, 1], robust to median 0 and
    quartiles as far apart as those of a normal distribution of variance 1, quantile to a normal distribution.
    A constant feature becomes 0 (under maxabs only a feature that is always 0).

    Before scaling, if set: fill (d,) replaces NaN, marks appends an indicator after all d columns for each of these raw
    columns (1 if it was NaN, else 0), and quantiles maps each column to a normal distribution. After scaling, a learned
    metric maps x' to weighted columns (see `Metric`).
    """

    kind: str
    offset: np.ndarray
    scale: np.ndarray
    metric: Metric | None = None
    fill: np.ndarray | None = None
    quantiles: Quantiles | None = None
    marks: np.ndarray | None = None

    @classmethod
    def none(cls, d: int) -> Scaling:
        return cls("none", np.zeros(d), np.ones(d))

    @property
    def is_none(self) -> bool:
        """Whether rows stay unchanged."""
        has_stages = any(stage is not None for stage in (self.fill, self.quantiles, self.metric))
        return self.kind == "none" and not has_stages

    @property
    def d(self) -> int:
        """The number of columns of raw rows."""
        return len(self.offset) - (0 if self.marks is None else len(self.marks))

    @property
    def width(self) -> int:
        """The number of columns of scaled rows."""
        return len(self.offset) if self.metric is None else self.metric.width

    def apply(self, rows: Rows) -> Rows:
        """The scaled rows as float32 (computed in float64 only if float32 would cancel)."""
        if self.is_none:
            return rows.astype(np.float32)
        if isinstance(rows.X, np.ndarray):
            return Rows(self._apply_dense(rows.X))
        if np.any(self.offset) or self.quantiles is not None:
            require_zeros_kept(self.kind)
        X = self.completed(rows).csr
        data = (X.data * self.scale[X.indices]).astype(np.float32)
        scaled = Rows(sparse.csr_array((data, X.indices, X.indptr), shape=X.shape))
        return scaled if self.metric is None else self.metric.of_rows(scaled)

    def filled(self, rows: Rows) -> Rows:
        """Raw rows without gaps, in float64 if there were any, so that a fill and its offset cancel exactly."""
        X = rows.X
        entries = X if isinstance(X, np.ndarray) else X.data
        if self.fill is None or entries.dtype.kind != "f" or not np.isnan(np.add.reduce(entries, axis=None)):
            return rows
        if isinstance(X, np.ndarray):
            return Rows(np.where(np.isnan(X), self.fill, X))
        entries = np.where(np.isnan(entries), self.fill[X.indices], entries)
        return Rows(sparse.csr_array((entries, X.indices, X.indptr), shape=X.shape))

    def completed(self, rows: Rows) -> Rows:
        """Raw rows without gaps, and the indicator columns of gaps."""
        filled, marks = self.filled(rows).X, self.marks
        if marks is None:
            return Rows(filled)
        if isinstance(filled, np.ndarray):
            return Rows(np.hstack([filled, np.isnan(rows.X[:, marks])]))
        X = rows.csr
        is_gap = np.isnan(X.data).astype(filled.dtype)
        gaps = sparse.csr_array((is_gap, X.indices, X.indptr), X.shape)[:, marks]
        gaps.eliminate_zeros()
        return Rows(sparse.csr_array(sparse.hstack([filled, gaps], format="csr")))

    def _apply_dense(self, X: np.ndarray) -> np.ndarray:
        columns, offset, scale, factor = self._dense_parts
        out = np.empty((len(X), self.width), np.float32)
        step = max(1, (1 << 15) // max(1, X.shape[1]))  # a tile of 256 KiB of float64 stays in L2
        for lo in range(0, len(X), step):
            tile = self.completed(Rows(X[lo : lo + step])).X
            if self.quantiles is not None:
                tile = self.quantiles.normal(tile)
            tile = tile[:, columns] - offset
            tile *= scale
            out[lo : lo + step] = tile if factor is None else tile @ factor
        return out

    @cached_property
    def _dense_parts(self) -> tuple[slice | np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """The columns to read, their offsets and scales, and the matrix that mixes them, if there is one."""
        metric, every = self.metric, slice(None)
        if metric is None:
            return every, self.offset, self.scale, None
        if metric.is_diagonal:
            columns = metric.columns
            return columns, self.offset[columns], self.scale[columns] * metric.weights, None
        return every, self.offset, self.scale, metric.factor

    def pull_back(self, gradients: np.ndarray, rows: Rows) -> np.ndarray:
        """Derivatives with respect to raw features, (m, d) float64, at these raw rows, by the chain rule."""
        if self.metric is not None:
            gradients = self.metric.pull_back(gradients)
        gradients = gradients * self.scale
        if self.quantiles is not None:
            gradients = gradients * self.quantiles.slopes(self.completed(rows).X)
        return gradients[:, : self.d]

    def of_raw(self, values: np.ndarray) -> np.ndarray:
        """(d,) weights of raw columns, including their indicators, from weights of the columns before the metric."""
        if self.marks is None:
            return values
        out = values[: self.d].copy()
        out[self.marks] += values[self.d :]
        return out

    @property
    def importances(self) -> np.ndarray | None:
        """(d,) weights of raw columns in the metric, if there is one. Their sum is 1."""
        return None if self.metric is None else self.of_raw(self.metric.importances)

    def undone(self, rows: Rows) -> np.ndarray | None:
        """Raw rows (m, d) float64 from scaled ones. A constant feature gets its value, a marked gap NaN.

        Columns that the metric left out are NaN, too. None for a full metric, which mixes columns.
        """
        scaled = rows.dense().astype(np.float64)
        X = scaled if self.metric is None else self.metric.undone(scaled)
        if X is None:
            return None
        centred = np.divide(X, self.scale, out=np.zeros_like(X), where=self.scale != 0)
        X = self.offset + centred
        X[np.abs(X) < ROUNDED * np.abs(centred)] = 0.0  # rounding errors of 0, as of texts that a row lacks
        X = X if self.quantiles is None else self.quantiles.raw(X)
        raw = X[:, : self.d]
        if self.marks is not None:
            raw[:, self.marks] = np.where(X[:, self.d :] > 0.5, np.nan, raw[:, self.marks])
        return raw

    def wider(self, d: int) -> Scaling:
        """The scaling for rows of d features, at least as many as now. New ones become 0, with weight 0 in a metric."""
        places = np.full(d - self.d, self.d)  # before the marks

        def wide(values: np.ndarray) -> np.ndarray:
            return np.insert(values, places, 0.0, axis=0)

        return replace(
            self,
            offset=wide(self.offset),
            scale=wide(self.scale),
            metric=self.metric and Metric(wide(self.metric.factor)),
            fill=None if self.fill is None else wide(self.fill),
            quantiles=self.quantiles and replace(self.quantiles, knots=wide(self.quantiles.knots)),
        )

    def under(self, metric: Metric) -> Scaling:
        """This scaling, followed by this metric instead of the present one."""
        return replace(self, metric=metric)

    def times(self, weights: np.ndarray) -> Scaling:
        """This scaling, followed by positive weights (width,) of the columns of scaled rows."""
        return self.under(Metric(weights) if self.metric is None else self.metric.times(weights))

    def to_arrays(self) -> dict[str, np.ndarray]:
        arrays = {"offset": self.offset, "scale": self.scale}
        if self.fill is not None:
            arrays["fill"] = self.fill
        if self.quantiles is not None:
            arrays |= {"quantiles": self.quantiles.knots, "levels": self.quantiles.levels}
        if self.marks is not None:
            arrays["marks"] = self.marks
        return arrays if self.metric is None else arrays | {"metric": self.metric.factor}

    @classmethod
    def from_arrays(cls, kind: str, arrays: Mapping[str, ArrayLike]) -> Scaling:
        offset, scale = (np.asarray(arrays[name], np.float64) for name in ("offset", "scale"))
        metric = Metric(np.asarray(arrays["metric"], np.float64)) if "metric" in arrays else None
        if metric is not None and metric.d != len(offset):
            raise ValueError(f"found a metric of {metric.d} columns, expected {len(offset)}")
        fill = np.asarray(arrays["fill"], np.float64) if "fill" in arrays else None
        quantiles = None
        if "quantiles" in arrays:
            quantiles = Quantiles(*(np.asarray(arrays[name], np.float64) for name in ("quantiles", "levels")))
            if quantiles.knots.shape != (len(offset), len(quantiles.levels)):
                problem = f"found quantiles of shape {quantiles.knots.shape}"
                raise ValueError(f"{problem}, expected {len(offset)} columns at {len(quantiles.levels)} levels")
        marks = np.asarray(arrays["marks"], np.int64) if "marks" in arrays else None
        scaling = cls(kind, offset, scale, metric, fill, quantiles, marks)
        if marks is not None and not np.isin(marks, np.arange(scaling.d)).all():
            raise ValueError(f"found marks of columns up to {marks.max()}, expected below {scaling.d}")
        return scaling


def require_zeros_kept(kind: str) -> None:
    """Raises ConfigError for a scaling that would fill a sparse store."""
    if kind not in ("none", "maxabs"):
        raise ConfigError(f"{kind} scaling would fill a sparse store; use maxabs, or dense rows (ingest --dense)")


def from_moments(kind: str, stats: Moments) -> Scaling:
    """The scaling of `kind` by these statistics. Not for kinds that need sample rows."""
    scaling = replace(Scaling.none(len(stats.mean)), kind=kind, fill=stats.fill, marks=stats.marks)
    if kind == "none":
        return scaling
    if kind == "minmax":
        return replace(scaling, offset=stats.low, scale=_inverse(stats.high - stats.low))
    if kind == "standard":
        # Rounding leaves a constant feature with a variance of about (eps * mean)^2: still constant.
        constant = stats.m2 <= stats.n * (np.finfo(np.float64).eps * 10 * np.abs(stats.mean)) ** 2
        constant |= stats.low == stats.high  # however far the mean of many rows is rounded
        scale = np.where(constant, 0.0, _inverse(np.sqrt(stats.m2 / stats.n)))
        return replace(scaling, offset=stats.mean, scale=scale)
    return replace(scaling, scale=_inverse(np.maximum(np.abs(stats.low), np.abs(stats.high))))


def from_quartiles(rows: Rows, standard: Scaling) -> Scaling:
    """The robust scaling, by the quartiles of some rows. If quartiles are equal, the standard one."""
    low, middle, high = np.quantile(standard.completed(rows).dense().astype(np.float64), [0.25, 0.5, 0.75], axis=0)
    spread = (high > low) & (standard.scale > 0)
    offset = np.where(spread, middle, standard.offset)
    scale = np.where(spread, NORMAL * _inverse(high - low), standard.scale)
    return replace(standard, kind="robust", offset=offset, scale=scale)


def from_quantiles(rows: Rows, stats: Moments) -> Scaling:
    """The quantile scaling, by some rows and the extremes of all rows."""
    unscaled = from_moments("none", stats)
    quantiles = Quantiles.of_rows(unscaled.completed(rows).dense(), stats.low, stats.high)
    return replace(unscaled, kind="quantile", quantiles=quantiles)


def _inverse(width: np.ndarray) -> np.ndarray:
    return np.divide(1.0, width, out=np.zeros_like(width), where=width > 0)
