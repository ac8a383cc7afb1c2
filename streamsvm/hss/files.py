"""A compressed kernel matrix and its factor as arrays, to be saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamsvm.hss.kernel_matrix import KernelMatrix, ShiftedKernel
from streamsvm.hss.matrix import HSSMatrix
from streamsvm.hss.tree import ClusterTree
from streamsvm.hss.ulv import ULVFactor, ULVNode


@dataclass(frozen=True)
class Factorisation:
    """K(X, X) compressed, its rows those of X in this order, and the factor of K + beta I."""

    kind: ClassVar[str] = "hss"
    order: np.ndarray
    matrix: KernelMatrix
    inverse: ShiftedKernel
    key: str = ""  # of the data and options that it was made from

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        H, nodes = self.matrix.H, self.inverse.factor.nodes
        arrays = {"order": self.order, "Z": self.matrix.Z, "W": self.inverse.W, "inner": self.inverse.inner}
        lists = {"D": H.D, "P": H.P, "B": H.B} | {
            name: [getattr(node, name) for node in nodes] for name in ("Linv", "Q", "R")
        }
        for name, blocks in lists.items():
            arrays |= _packed(name, blocks)
        return arrays, {
            "n": H.tree.n,
            "depth": H.tree.depth,
            "explained": self.matrix.explained,
            "beta": self.inverse.factor.beta,
            "key": self.key,
        }

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> Factorisation:
        H = HSSMatrix(ClusterTree(attrs["n"], attrs["depth"]), *(_unpacked(name, arrays) for name in "DPB"))
        blocks = zip(*(_unpacked(name, arrays) for name in ("Linv", "Q", "R")), strict=True)
        factor = ULVFactor(H, attrs["beta"], [ULVNode(*node) for node in blocks])
        order, Z, W, inner = (np.asarray(arrays[name]) for name in ("order", "Z", "W", "inner"))
        n, m = attrs["n"], Z.shape[1]
        if not (len(order) == len(Z) == n and W.shape == Z.shape and inner.shape == (m, m)):
            raise ValueError(f"order, Z, W and inner do not agree with each other and with {n} rows")
        matrix = KernelMatrix(H, Z, attrs["explained"])
        return cls(order, matrix, ShiftedKernel(factor, W, inner), attrs["key"])


def _packed(name: str, blocks: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices one after another, and their shapes."""
    shapes = np.array([block.shape for block in blocks], np.int64).reshape(-1, 2)
    flat = np.concatenate([block.ravel() for block in blocks]) if blocks else np.empty(0)
    return {name: flat, f"{name}_shapes": shapes}


def _unpacked(name: str, arrays: Mapping[str, Any]) -> list[np.ndarray]:
    flat, shapes = np.asarray(arrays[name]), np.asarray(arrays[f"{name}_shapes"])
    if not len(shapes):
        return []
    ends = np.cumsum(shapes[:, 0] * shapes[:, 1])
    if ends[-1] != len(flat):
        raise ValueError(f"{name}: found {len(flat)} values, expected {ends[-1]}")
    return [block.reshape(shape) for block, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
