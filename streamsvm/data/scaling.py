"""Scaling of features: x' = (x - offset) * scale, from statistics of one streamed pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.moments import Moments
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.parallel.sizes import Weighed


@dataclass(frozen=True)
class Scaling(Weighed):
    """x' = (x - offset) * scale, per feature; offset and scale (d,) float64.

    minmax maps each feature to [0, 1], standard to mean 0 and variance 1, maxabs to [-1, 1].
    A constant feature becomes 0 (under maxabs only one that is 0 throughout).
    """

    kind: str
    offset: np.ndarray
    scale: np.ndarray

    @classmethod
    def none(cls, d: int) -> Scaling:
        return cls("none", np.zeros(d), np.ones(d))

    def apply(self, rows: Rows) -> Rows:
        """The scaled rows as float32 (computed in float64 only where float32 would cancel)."""
        if self.kind == "none":
            return rows.astype(np.float32)
        if isinstance(rows.X, np.ndarray):
            return Rows(self._apply_dense(rows.X))
        if np.any(self.offset):
            require_zeros_kept(self.kind)
        X = rows.X
        data = (X.data * self.scale[X.indices]).astype(np.float32)
        return Rows(sparse.csr_array((data, X.indices, X.indptr), shape=X.shape))

    def _apply_dense(self, X: np.ndarray) -> np.ndarray:
        out = np.empty(X.shape, np.float32)
        step = max(1, (1 << 15) // max(1, X.shape[1]))  # a tile of 256 KiB of float64 stays in L2
        for lo in range(0, len(X), step):
            tile = X[lo : lo + step] - self.offset
            tile *= self.scale
            out[lo : lo + step] = tile
        return out

    def pull_back(self, gradients: np.ndarray) -> np.ndarray:
        """Derivatives by raw features, (m, d) float64, from those by scaled ones: the chain rule."""
        return gradients if self.kind == "none" else gradients * self.scale

    def undone(self, rows: Rows) -> np.ndarray | None:
        """Raw rows (m, d) float64 of scaled ones, None where they cannot be told; a constant feature has its value."""
        X = rows.dense().astype(np.float64)
        if self.kind == "none":
            return X
        return self.offset + np.divide(X, self.scale, out=np.zeros_like(X), where=self.scale != 0)

    def wider(self, d: int) -> Scaling:
        """For rows of d features, no fewer than now; the new ones become 0."""
        more = np.zeros(d - len(self.offset))
        return Scaling(self.kind, np.append(self.offset, more), np.append(self.scale, more))

    def to_arrays(self) -> dict[str, np.ndarray]:
        return {"offset": self.offset, "scale": self.scale}

    @classmethod
    def from_arrays(cls, kind: str, arrays: dict[str, np.ndarray]) -> Scaling:
        return cls(kind, np.asarray(arrays["offset"], np.float64), np.asarray(arrays["scale"], np.float64))


def require_zeros_kept(kind: str) -> None:
    """Raises ConfigError for a scaling that would fill a sparse store."""
    if kind not in ("none", "maxabs"):
        raise ConfigError(f"{kind} scaling would fill a sparse store; use maxabs, or ingest with --dense")


def from_moments(kind: str, stats: Moments) -> Scaling:
    """The scaling of `kind` (not none) that these statistics give."""
    if kind == "minmax":
        return Scaling(kind, stats.low, _inverse(stats.high - stats.low))
    if kind == "standard":
        # Rounding leaves a constant feature with a variance of about (eps * mean)^2: still constant.
        constant = stats.m2 <= stats.n * (np.finfo(np.float64).eps * 10 * np.abs(stats.mean)) ** 2
        return Scaling(kind, stats.mean, np.where(constant, 0.0, _inverse(np.sqrt(stats.m2 / stats.n))))
    peak = np.maximum(np.abs(stats.low), np.abs(stats.high))
    return Scaling(kind, np.zeros_like(peak), _inverse(peak))


def _inverse(width: np.ndarray) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.divide(1.0, width, out=np.zeros_like(width), where=width > 0)
