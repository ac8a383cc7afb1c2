"""Kernels of inner products: linear, polynomial, sigmoid, and precomputed values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels import device, epilogues
from streamsvm.kernels.base import Kernel, OnnxGraph, composed, inner_products
from streamsvm.kernels.device import DeviceRows, namespace
from streamsvm.kernels.table import kernel_names
from streamsvm.kernels.tiles import INNER, Slopes, Tile, inner_tiles, of_inner_products

FAR = 1000.0  # typical squared distance of rows from the origin, over that from their mean


@dataclass(frozen=True)
class InnerProducts(Kernel):
    """K(a, b) = k(a'b)."""

    @abstractmethod
    def of(self, inner: np.ndarray) -> np.ndarray:
        """k of inner products, float64; or of arrays of a device, if the kernel is `on_device`."""

    @abstractmethod
    def slope(self, inner: np.ndarray) -> np.ndarray:
        """Its derivative."""

    def finish(self, tile: np.ndarray) -> None:
        """k of a tile of inner products, float32, in place."""

    @property
    def operand(self) -> Hashable:
        return INNER

    def operand_tiles(self, b: Rows) -> Tile:
        return inner_tiles(b)

    def finisher(self, b: Rows) -> Tile:
        return lambda _, tile: self.finish(tile)

    def tiles(self, b: Rows) -> Tile:
        return composed(inner_tiles(b), self.finisher(b))

    @property
    def is_zero_at_origin(self) -> bool:
        return bool(self.of(np.zeros(1)) == 0)

    def exact(self, a: Rows, b: Rows) -> np.ndarray:
        return self.of(inner_products(a, b, np.float64))

    def is_coarse(self, before: float, after: float) -> bool:
        return before > FAR * after

    def diag(self, a: Rows) -> np.ndarray:
        return self.of(a.sq_norms)

    def device_values(self, xp: Any, a: DeviceRows, b: DeviceRows) -> Any:
        return self.of(device.inner_products(xp, a, b))

    def device_gradients(self, xp: Any, a: DeviceRows, b: DeviceRows, coef: Any) -> Any:
        return device.weighted_rows(xp, self.slope(device.inner_products(xp, a, b)), b, coef)

    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        return np.asarray((self.slope(inner_products(a, b, np.float64)) * coef) @ b.astype(np.float64).X)

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        return of_inner_products(b, coef.astype(np.float32), self.finish_slope)

    def finish_slope(self, tile: np.ndarray) -> float:
        """As `finish`, for the slope of k divided by a constant factor, which is returned; by default by `slope`."""
        tile[:] = self.slope(tile.astype(np.float64))
        return 1.0

    def onnx(self, graph: OnnxGraph, x: str, rows: str) -> str:
        return self.onnx_of(graph, graph.inner_products(x, rows))

    @abstractmethod
    def onnx_of(self, graph: OnnxGraph, inner: str) -> str:
        """k of inner products in an ONNX graph."""


@dataclass(frozen=True)
class Linear(InnerProducts):
    """a'b."""

    name: ClassVar[str] = "linear"
    on_device: ClassVar[bool] = True
    libsvm: ClassVar[str | None] = "linear"

    def of(self, inner: np.ndarray) -> np.ndarray:
        return inner

    def slope(self, inner: np.ndarray) -> np.ndarray:
        return namespace(inner).ones_like(inner)

    def slopes(self, b: Rows, coef: np.ndarray) -> Slopes:
        """Sums of rows b, which are the same everywhere."""
        sums = np.asarray(coef @ b.astype(np.float64).X, np.float32)[:, None]

        def add(a: Rows, out: np.ndarray) -> None:
            out += sums

        return add

    def onnx_of(self, graph: OnnxGraph, inner: str) -> str:
        return inner


@dataclass(frozen=True)
class Precomputed(Linear):
    """Precomputed values: a row holds those with all training rows, a support row is a unit vector. So K(a, b) = a'b.
    While it is trained, `problems.dual.MatrixDual` reads the matrix itself."""

    name: ClassVar[str] = "precomputed"
    on_device: ClassVar[bool] = False
    libsvm: ClassVar[str | None] = None

    def gradient(self, a: Rows, b: Rows, coef: np.ndarray) -> np.ndarray:
        raise ConfigError(
            "precomputed kernel values have no gradient: they do not say what they were computed from; take one of "
            f"the kernels {', '.join(kernel_names())}"
        )

    def gradients(self, a: Rows, b: Rows, coef: np.ndarray, threads: int = 1) -> np.ndarray:
        return self.gradient(a, b, coef)

    def support(self, rows: Rows, ids: np.ndarray) -> Rows:
        ones = np.ones(len(ids), np.float32)
        return Rows(sparse.csr_array((ones, (np.arange(len(ids)), ids)), shape=(len(ids), rows.d)))


@dataclass(frozen=True)
class Poly(InnerProducts):
    """(gamma a'b + coef0)^degree."""

    name: ClassVar[str] = "poly"
    on_device: ClassVar[bool] = True
    libsvm: ClassVar[str | None] = "polynomial"
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def of(self, inner: np.ndarray) -> np.ndarray:
        return (self.gamma * inner + self.coef0) ** self.degree

    def slope(self, inner: np.ndarray) -> np.ndarray:
        return self.gamma * self.degree * (self.gamma * inner + self.coef0) ** (self.degree - 1)

    def finish(self, tile: np.ndarray) -> None:
        epilogues.poly(tile, np.float32(self.gamma), np.float32(self.coef0), self.degree)

    def finish_slope(self, tile: np.ndarray) -> float:
        epilogues.poly(tile, np.float32(self.gamma), np.float32(self.coef0), self.degree - 1)
        return self.gamma * self.degree

    def onnx_of(self, graph: OnnxGraph, inner: str) -> str:
        scaled = graph.op("Mul", inner, graph.constant(np.asarray(self.gamma, np.float64)))
        base = graph.op("Add", scaled, graph.constant(np.float64(self.coef0)))
        return graph.op("Pow", base, graph.constant(np.float64(self.degree)))


@dataclass(frozen=True)
class Sigmoid(InnerProducts):
    """tanh(gamma a'b + coef0): LIBSVM's, which is not positive semidefinite."""

    name: ClassVar[str] = "sigmoid"
    on_device: ClassVar[bool] = True
    libsvm: ClassVar[str | None] = "sigmoid"
    gamma: float = 1.0
    coef0: float = 0.0

    def of(self, inner: np.ndarray) -> np.ndarray:
        return namespace(inner).tanh(self.gamma * inner + self.coef0)

    def slope(self, inner: np.ndarray) -> np.ndarray:
        return self.gamma * (1 - self.of(inner) ** 2)

    def finish(self, tile: np.ndarray) -> None:
        epilogues.sigmoid(tile, np.float32(self.gamma), np.float32(self.coef0))

    def finish_slope(self, tile: np.ndarray) -> float:
        self.finish(tile)
        np.square(tile, out=tile)
        np.subtract(np.float32(1), tile, out=tile)
        return self.gamma

    def onnx_of(self, graph: OnnxGraph, inner: str) -> str:
        scaled = graph.op("Mul", inner, graph.constant(np.asarray(self.gamma, np.float64)))
        return graph.op("Tanh", graph.op("Add", scaled, graph.constant(np.float64(self.coef0))))
