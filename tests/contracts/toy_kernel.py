"""A kernel from outside the package, one class and one row: the inverse multiquadric 1 / sqrt(1 + gamma |a-b|^2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.kernels.distance import Distances
from streamsvm.kernels.table import KernelRow, register


@dataclass(frozen=True)
class Toy(Distances):
    """1 / sqrt(1 + gamma |a-b|^2)."""

    name: ClassVar[str] = "toy"
    on_device: ClassVar[bool] = True

    def of(self, sq: np.ndarray) -> np.ndarray:
        return (1 + self.gamma * sq) ** -0.5

    def slope(self, sq: np.ndarray) -> np.ndarray:
        return -0.5 * self.gamma * (1 + self.gamma * sq) ** -1.5

    def finish(self, tile: np.ndarray, a_norms: np.ndarray, b_norms: np.ndarray) -> None:
        sq = np.maximum(a_norms[:, None] + b_norms - 2 * tile, 0)
        tile[:] = 1 / np.sqrt(1 + np.float32(self.gamma) * sq)

    def onnx_of(self, graph: Any, sq: str) -> str:
        scaled = graph.op("Mul", sq, graph.constant(np.asarray(self.gamma, np.float64)))
        root = graph.op("Sqrt", graph.op("Add", scaled, graph.constant(np.float64(1))))
        return graph.op("Reciprocal", root)


register("toy", KernelRow("toy_kernel:Toy", "1 / sqrt(1 + gamma |a-b|^2)"))
