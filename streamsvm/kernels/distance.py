"""Kernels of the Euclidean distance: rbf, Matern and Cauchy. Squared distances come from inner products and norms."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.kernels import epilogues
from streamsvm.kernels.base import OnnxGraph, Stationary, inner_products
from streamsvm.kernels.slopes import Slopes, of_distances
from streamsvm.kernels.tiles import Tile, inner_tile, transposed

EPSILON = 2.0**-23  # of float32, times the squared norm: the error of a squared distance


@dataclass(frozen=True)
class Distances(Stationary):
    """K(a, b) = k(|a-b|^2)."""

    most: ClassVar[float] = 5e37  # of a squared norm: squared distances are up to four times it
    _gamma_power: ClassVar[int] = 2

    def largest(self, a: Rows) -> float:
        return float(a.sq_norms.max())

    @abstractmethod
    def of(self, sq: np.ndarray) -> np.ndarray:
        """k of squared distances, float64."""

    @abstractmethod
    def slope(self, sq: np.ndarray) -> np.ndarray:
        """Its derivative by the squared distance."""

    @abstractmethod
    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        """k of a tile of inner products, float32, in place; norms are squared."""

    @abstractmethod
    def onnx_of(self, graph: OnnxGraph, sq: str) -> str:
        """k of squared distances in an ONNX graph."""

    def tiles(self, b: Rows) -> Tile:
        right, b_norms = transposed(b), b.sq_norms.astype(np.float32)

        def tile(a: Rows, out: np.ndarray) -> None:
            inner_tile(a, right, out)
            self.finish(out, a.sq_norms.astype(np.float32), b_norms)

        return tile

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        return self.of(sq_distances(a, b))

    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        weights = 2.0 * self.slope(sq_distances(a, b)) * coef
        sums = weights.sum(axis=1)[:, None] * a.astype(np.float64).dense()
        return sums - np.asarray(weights @ b.astype(np.float64).X)

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        return of_distances(b, coef.astype(np.float32), self.finish_slope)

    def finish_slope(self, tile: np.ndarray, b_norms: np.ndarray, a_norms: np.ndarray) -> float:
        """As `finish`, for the slope of k divided by a constant factor, which is returned; by default by `slope`."""
        tile *= -2.0
        tile += b_norms[:, None]
        tile += a_norms
        tile[:] = self.slope(np.maximum(tile, 0.0, out=tile).astype(np.float64))
        return 1.0

    def reach(self, a: Rows) -> float:
        return self.gamma * float(a.sq_norms.max())

    def rounding(self, sq_norm: float) -> float:
        return self.gamma * sq_norm * EPSILON

    def onnx(self, graph: OnnxGraph, x: str, rows: str) -> str:
        return self.onnx_of(graph, graph.sq_distances(x, rows))


def sq_distances(a: Rows, b: Rows) -> np.ndarray:
    """|a-b|^2, (m, q) float64."""
    out = inner_products(a, b, np.float64)
    out *= 2.0
    out -= a.sq_norms[:, None]
    out -= b.sq_norms
    np.minimum(out, 0.0, out=out)
    return np.negative(out, out=out)


@dataclass(frozen=True)
class RBF(Distances):
    """exp(-gamma |a-b|^2)."""

    name: ClassVar[str] = "rbf"
    libsvm: ClassVar[str | None] = "rbf"

    def of(self, sq: np.ndarray) -> np.ndarray:
        return np.exp(-self.gamma * sq)

    def slope(self, sq: np.ndarray) -> np.ndarray:
        return -self.gamma * self.of(sq)

    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        epilogues.rbf(tile, a_norms, b_norms, np.float32(self.gamma))

    def finish_slope(self, tile: np.ndarray, b_norms: np.ndarray, a_norms: np.ndarray) -> float:
        self.finish(tile, b_norms, a_norms)
        return -self.gamma

    def shortfall(self, differences: np.ndarray) -> np.ndarray:
        return -np.expm1(-self.gamma * differences**2)

    def onnx_of(self, graph: OnnxGraph, sq: str) -> str:
        return graph.op("Exp", graph.op("Mul", sq, graph.constant(-np.asarray(self.gamma, np.float64))))


@dataclass(frozen=True)
class Cauchy(Distances):
    """1 / (1 + gamma |a-b|^2): its tails do not vanish."""

    name: ClassVar[str] = "cauchy"

    def of(self, sq: np.ndarray) -> np.ndarray:
        return 1.0 / (1.0 + self.gamma * sq)

    def slope(self, sq: np.ndarray) -> np.ndarray:
        return -self.gamma * self.of(sq) ** 2

    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        epilogues.cauchy(tile, a_norms, b_norms, np.float32(self.gamma))

    def finish_slope(self, tile: np.ndarray, b_norms: np.ndarray, a_norms: np.ndarray) -> float:
        self.finish(tile, b_norms, a_norms)
        np.square(tile, out=tile)
        return -self.gamma

    def onnx_of(self, graph: OnnxGraph, sq: str) -> str:
        scaled = graph.op("Mul", sq, graph.constant(np.asarray(self.gamma, np.float64)))
        return graph.op("Reciprocal", graph.op("Add", scaled, graph.constant(np.float64(1))))


@dataclass(frozen=True)
class Matern(Distances):
    """p(s) exp(-s) with s = sqrt(2 nu) gamma |a-b|: p = 1 for nu = 1/2, 1 + s for 3/2, 1 + s + s^2/3 for 5/2.

    gamma is 1 / length_scale of scikit-learn's `Matern`; nu says how smooth functions are: 2.5 twice differentiable,
    0.5 not at all. Rows nearer than float32 resolves (see epilogues.NEAR) count as one.
    """

    name: ClassVar[str] = "matern"
    _gamma_power: ClassVar[int] = 1
    nu: float = 1.5

    def __post_init__(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):  # from a damaged model
            raise ValueError(f"found nu {self.nu!r} of the matern kernel, expected 0.5, 1.5 or 2.5")

    @classmethod
    def typical_gamma(cls, d: int, variance: float) -> float:
        return 1.0 / variance**0.5

    def of(self, sq: np.ndarray) -> np.ndarray:
        s = self._rate * np.sqrt(sq)
        first, second = self._factors
        return (1.0 + s * (first + second * s)) * np.exp(-s)

    def slope(self, sq: np.ndarray) -> np.ndarray:
        s, half = self._rate * np.sqrt(sq), 0.5 * self._rate**2
        if self.nu == 0.5:  # not differentiable where the distance is 0: taken to be 0
            return -half * np.divide(np.exp(-s), s, out=np.zeros_like(s), where=s > 0)
        return -half * np.exp(-s) * (1.0 if self.nu == 1.5 else (1.0 + s) / 3.0)

    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        first, second = self._factors
        rate = np.float32(self._rate)
        epilogues.matern(tile, a_norms, b_norms, rate, np.float32(first), np.float32(second))

    def finish_slope(self, tile: np.ndarray, b_norms: np.ndarray, a_norms: np.ndarray) -> float:
        rate, half = np.float32(self._rate), 0.5 * self._rate**2
        if self.nu == 0.5:
            epilogues.matern_edge(tile, b_norms, a_norms, rate)
            return -half
        first = np.float32(self.nu == 2.5)  # exp(-s), or (1 + s) exp(-s) / 3
        epilogues.matern(tile, b_norms, a_norms, rate, first, np.float32(0))
        return -half if self.nu == 1.5 else -half / 3

    def reach(self, a: Rows) -> float:
        return self.gamma * float(a.sq_norms.max()) ** 0.5

    def rounding(self, sq_norm: float) -> float:
        argument = self.gamma**2 * sq_norm * EPSILON
        return argument**0.5 if self.nu == 0.5 else argument

    def onnx_of(self, graph: OnnxGraph, sq: str) -> str:
        first, second = self._factors
        rate = graph.constant(np.asarray(self._rate, np.float64))
        s = graph.op("Mul", graph.op("Sqrt", sq), rate)
        decay = graph.op("Exp", graph.op("Neg", s))
        if not first:
            return decay
        inside = graph.op("Mul", s, graph.constant(np.float64(second)))
        line = graph.op("Mul", s, graph.op("Add", inside, graph.constant(np.float64(first))))
        return graph.op("Mul", decay, graph.op("Add", line, graph.constant(np.float64(1))))

    @property
    def _rate(self) -> float:
        return self.gamma * (2 * self.nu) ** 0.5

    @property
    def _factors(self) -> tuple[float, float]:
        """Of s and s^2 in p."""
        return {0.5: (0.0, 0.0), 1.5: (1.0, 0.0), 2.5: (1.0, 1.0 / 3.0)}[self.nu]
