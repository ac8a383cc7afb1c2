"""Kernels of distances. Of rbf, Matern and Cauchy these are Euclidean, and come from inner products and norms; of the
Laplacian kernel they are sums over features, which no inner product expresses."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from streamsvm.data.rows import Rows
from streamsvm.kernels import device, epilogues
from streamsvm.kernels.base import OnnxGraph, Stationary, composed, inner_products
from streamsvm.kernels.device import DeviceRows, namespace
from streamsvm.kernels.leaves import NEGLIGIBLE, near_rows
from streamsvm.kernels.tiles import INNER, Slopes, Tile, inner_tile, inner_tiles, of_distances, transposed

EPSILON = 2.0**-23  # of float32, times the squared norm: the error of a squared distance
SPREAD = np.float32(2.0**60)  # factor on rows: differences from 2^-60 on have a sign, see epilogues.l1_signs

Matrix: TypeAlias = np.ndarray | sparse.csr_array


@dataclass(frozen=True)
class Distances(Stationary):
    """K(a, b) = k(|a-b|^2)."""

    most: ClassVar[float] = 5e37  # of a squared norm: squared distances are up to four times it
    resolution: ClassVar[float] = 0.0  # of float32: squared distances below this share of |a|^2 + |b|^2 count as 0
    _gamma_power: ClassVar[int] = 2

    def largest(self, a: Rows) -> float:
        return float(a.sq_norms.max())

    @abstractmethod
    def of(self, sq: np.ndarray) -> np.ndarray:
        """k of squared distances, float64; or of arrays of a device, if the kernel is `on_device`."""

    @abstractmethod
    def slope(self, sq: np.ndarray) -> np.ndarray:
        """Its derivative by the squared distance."""

    @abstractmethod
    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        """k of a tile of inner products, float32, in place; norms are squared."""

    @abstractmethod
    def onnx_of(self, graph: OnnxGraph, sq: str) -> str:
        """k of squared distances in an ONNX graph."""

    def sq_radius(self, value: float) -> float:
        """The squared distance of rows from which on values are below this one; infinite if there is none."""
        return math.inf

    def near_sums(
        self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1, dtype: type = np.float32
    ) -> np.ndarray | None:
        near = near_rows(self.sq_radius(NEGLIGIBLE), a, b)
        finish = self.finish if dtype is np.float32 else self.finish_float64
        return None if near is None else near.apply(finish, coef, threads, dtype)

    @property
    def operand(self) -> Hashable:
        return INNER

    def operand_tiles(self, b: Rows) -> Tile:
        return inner_tiles(b)

    def finisher(self, b: Rows) -> Tile:
        b_norms = b.sq_norms.astype(np.float32)
        return lambda a, tile: self.finish(tile, a.sq_norms.astype(np.float32), b_norms)

    def tiles(self, b: Rows) -> Tile:
        return composed(inner_tiles(b), self.finisher(b))

    def float64_tiles(self, b: Rows) -> Tile:
        right, b_norms = transposed(b, np.float64), b.sq_norms

        def tile(a: Rows, out: np.ndarray) -> None:
            inner_tile(a, right, out)
            self.finish_float64(out, a.sq_norms, b_norms)

        return tile

    def finish_float64(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        """As `finish`, in float64; by default by `of`, in more passes over the tile."""
        tile[:] = self.of(_sq_distances(tile, a_norms, b_norms))

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        return self.of(sq_distances(a, b))

    def device_values(self, xp: Any, a: DeviceRows, b: DeviceRows) -> Any:
        return self.of(device.sq_distances(xp, a, b, self.resolution))

    def device_gradients(self, xp: Any, a: DeviceRows, b: DeviceRows, coef: Any) -> Any:
        slopes = 2.0 * self.slope(device.sq_distances(xp, a, b, self.resolution))
        sums = xp.matrix_transpose(slopes @ coef)[:, :, None]
        return sums * a.X - device.weighted_rows(xp, slopes, b, coef)

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
    return _sq_distances(inner_products(a, b, np.float64), a.sq_norms, b.sq_norms)


def _sq_distances(inner: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> np.ndarray:
    """Squared distances from inner products, in place."""
    inner *= 2.0
    inner -= a_norms[:, None]
    inner -= b_norms
    np.minimum(inner, 0.0, out=inner)
    return np.negative(inner, out=inner)


@dataclass(frozen=True)
class RBF(Distances):
    """exp(-gamma |a-b|^2)."""

    name: ClassVar[str] = "rbf"
    on_device: ClassVar[bool] = True
    libsvm: ClassVar[str | None] = "rbf"

    def of(self, sq: np.ndarray) -> np.ndarray:
        return namespace(sq).exp(-self.gamma * sq)

    def sq_radius(self, value: float) -> float:
        return -math.log(value) / self.gamma

    def slope(self, sq: np.ndarray) -> np.ndarray:
        return -self.gamma * self.of(sq)

    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        epilogues.rbf(tile, a_norms, b_norms, np.float32(self.gamma))

    def finish_float64(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        epilogues.rbf_float64(tile, a_norms, b_norms, self.gamma)

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
    on_device: ClassVar[bool] = True

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
    """p(s) exp(-s) with s = sqrt(2 nu) gamma |a-b|: p = 1 for nu = 1/2, 1 + s for 3/2, 1 + s + s^2/3 for 5/2. gamma is
    1 / length_scale of scikit-learn's `Matern`; nu says how smooth functions are: 2.5 twice differentiable, 0.5 not at
    all. Rows nearer than float32 resolves (see epilogues.NEAR) count as one."""

    name: ClassVar[str] = "matern"
    on_device: ClassVar[bool] = True
    resolution: ClassVar[float] = epilogues.NEAR
    _gamma_power: ClassVar[int] = 1
    nu: float = 1.5

    def __post_init__(self) -> None:
        if self.nu not in (0.5, 1.5, 2.5):  # from a damaged model
            raise ValueError(f"found nu {self.nu!r} of the matern kernel, expected 0.5, 1.5 or 2.5")

    @classmethod
    def typical_gamma(cls, d: int, variance: float) -> float:
        return 1.0 / variance**0.5

    def sq_radius(self, value: float) -> float:
        depth = s = -math.log(value)
        first, second = self._factors
        for _ in range(20):  # of s = depth + log p(s): each is nearer
            s = depth + math.log(1.0 + s * (first + second * s))
        return (s / self._rate) ** 2

    def of(self, sq: np.ndarray) -> np.ndarray:
        xp = namespace(sq)
        s = self._rate * xp.sqrt(sq)
        first, second = self._factors
        return (1.0 + s * (first + second * s)) * xp.exp(-s)

    def slope(self, sq: np.ndarray) -> np.ndarray:
        xp = namespace(sq)
        s, half = self._rate * xp.sqrt(sq), 0.5 * self._rate**2
        if self.nu == 0.5:  # not differentiable where the distance is 0: taken to be 0
            return -half * xp.where(s > 0, xp.exp(-s) / xp.where(s > 0, s, 1.0), 0.0)
        return -half * xp.exp(-s) * (1.0 if self.nu == 1.5 else (1.0 + s) / 3.0)

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


@dataclass(frozen=True)
class Laplacian(Stationary):
    """exp(-gamma |a-b|_1), scikit-learn's laplacian_kernel."""

    name: ClassVar[str] = "laplacian"
    on_device: ClassVar[bool] = True

    @classmethod
    def typical_gamma(cls, d: int, variance: float) -> float:
        return 1.0 / (d * variance) ** 0.5

    @property
    def operand(self) -> Hashable:
        return self.name

    def operand_tiles(self, b: Rows) -> Tile:
        right, norms = transposed(b), _norms(b.X).astype(np.float32)
        return lambda a, out: _distances(a.X.astype(np.float32, copy=False), right, norms, out)

    def finisher(self, b: Rows) -> Tile:
        gamma = np.float32(self.gamma)
        return lambda _, tile: epilogues.laplacian(tile, gamma)

    def tiles(self, b: Rows) -> Tile:
        return composed(self.operand_tiles(b), self.finisher(b))

    def device_values(self, xp: Any, a: DeviceRows, b: DeviceRows) -> Any:
        return xp.exp(-self.gamma * device.l1_distances(xp, a, b))

    def device_gradients(self, xp: Any, a: DeviceRows, b: DeviceRows, coef: Any) -> Any:
        return device.l1_gradients(xp, a, b, -self.gamma * self.device_values(xp, a, b), coef)

    def onnx(self, graph: OnnxGraph, x: str, rows: str) -> str:
        rate = graph.constant(-np.asarray(self.gamma, np.float64))
        return graph.op("Exp", graph.op("Mul", graph.l1_distances(x, rows), rate))

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        return np.exp(-self.gamma * self._exact_distances(a, b))

    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        """The derivative of |a_if - b_jf| is taken to be 0 where they are equal."""
        weights, A, B = -self.gamma * self.exact(a, b) * coef, a.dense(), b.dense()
        out = np.empty(A.shape)
        for f in range(a.d):  # a block of signs at a time
            out[:, f] = np.einsum("ij,ij->i", weights, np.sign(A[:, f, None].astype(np.float64) - B[:, f]))
        return out

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        rows, weights = b.astype(np.float32), np.ascontiguousarray(-self.gamma * coef, np.float32)
        return self._of_sparse(rows, weights) if b.is_sparse else self._of_dense(rows, weights)

    def _of_dense(self, b: Rows, weights: np.ndarray) -> Slopes:
        right, gamma = np.ascontiguousarray(_spread(b).T), np.float32(self.gamma / SPREAD)

        def add(a: Rows, out: np.ndarray) -> None:
            tile, spread = np.empty((len(a), len(b)), np.float32), _spread(a)
            epilogues.l1_dense(spread, right, tile)
            epilogues.laplacian(tile, gamma)
            sums = np.empty((len(out), *spread.shape), np.float32)
            epilogues.l1_signs(tile, weights, spread, right, sums)
            out += sums[..., : b.d]

        return add

    def _of_sparse(self, b: Rows, weights: np.ndarray) -> Slopes:
        columns = []
        for column in weights:
            ids = np.flatnonzero(column)
            X = sparse.csc_array(b.take(ids).X * SPREAD)
            columns.append((ids, column[ids, None], (X.indptr, X.indices, X.data)))

        def add(a: Rows, out: np.ndarray) -> None:
            a = a.astype(np.float32)
            tile = np.empty((len(b), len(a)), np.float32)
            _distances(b.X, transposed(a), _norms(a.X).astype(np.float32), tile)
            epilogues.laplacian(tile, np.float32(self.gamma))
            right = np.ascontiguousarray(a.dense().T) * SPREAD
            signs = np.clip(right, -1, 1)
            for gradient, (ids, column, by_feature) in zip(out, columns, strict=True):
                weighted = column * tile[ids]
                sums = signs * weighted.sum(axis=0)
                epilogues.l1_sign_columns(weighted, by_feature, right, signs, sums)
                gradient += sums.T

        return add

    def shortfall(self, differences: np.ndarray) -> np.ndarray:
        return -np.expm1(-self.gamma * np.abs(differences))

    def reach(self, a: Rows) -> float:
        return self.gamma * float(_norms(a.X).max())

    @staticmethod
    def _exact_distances(a: Rows, b: Rows) -> np.ndarray:
        if not (a.is_sparse or b.is_sparse):
            return cdist(a.astype(np.float64).X, b.astype(np.float64).X, "cityblock")
        left, right = (sparse.csr_array(rows.X, dtype=np.float64) for rows in (a, b))
        out = np.empty((len(a), len(b)))
        _distances(left, right.tocsc(), _norms(right), out)
        return out


def _norms(X: Matrix) -> np.ndarray:
    """(m,) |x|_1."""
    return np.asarray(abs(X).sum(axis=1, dtype=np.float64)).ravel()


def _spread(a: Rows) -> np.ndarray:
    """a times SPREAD, (m, d), and columns of zeros up to a multiple of four."""
    out = np.zeros((len(a), -(-a.d // 4) * 4), np.float32)
    np.multiply(a.dense(), SPREAD, out=out[:, : a.d], casting="same_kind")
    return out


def _distances(X: Matrix, right: np.ndarray | sparse.csc_array, norms: np.ndarray, out: np.ndarray) -> None:
    """Writes |a-b|_1 into out. X is (m, d), right = b' (d, q), or by features, and norms (q,) are those of b."""
    if isinstance(right, sparse.csc_array):
        left = sparse.csr_array(X)
        out[:] = norms
        out += _norms(left)[:, None].astype(out.dtype)
        by_feature = right.indptr, right.indices, right.data
        epilogues.l1_scatter(left.indptr, left.indices, left.data, *by_feature, out)
    elif isinstance(X, np.ndarray):
        epilogues.l1_dense(X, right, out)
    else:
        out[:] = norms
        epilogues.l1_rows(X.indptr, X.indices, X.data, right, out)
