"""A compressed kernel matrix and its factor as arrays, to be saved and loaded: whole, or a file for each subtree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np

from streamsvm.hss.kernel_matrix import KernelMatrix, ShiftedKernel, Subtree, with_held_subtrees
from streamsvm.hss.matrix import HSSMatrix, ULVFactor, ULVNode
from streamsvm.hss.tree import ClusterTree
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.arrays import Arrays, Attrs, State


@dataclass(frozen=True)
class Factorisation:
    """K(X, X) compressed, its rows those of X in this order, and the factor of K + beta I. Of a tree of several
    subtrees the state has what is above them; each of them has a `SubtreeFactorisation`."""

    kind: ClassVar[str] = "hss"
    order: np.ndarray
    matrix: KernelMatrix
    inverse: ShiftedKernel
    key: str = ""  # of the data and options that it was computed from

    def to_state(self) -> State:
        H, factor, inner = self.matrix.H, self.inverse.factor, self.inverse.inner
        if H.tree.cut:
            arrays = _state(H.part(H.tree.above), factor.part(H.tree.above))
        else:
            arrays = {"Z": self.matrix.Z, "W": self.inverse.W} | _state(H, factor)
        attrs = _attrs(H.tree) | {"explained": self.matrix.explained, "error": self.matrix.error}
        attrs |= {"beta": factor.beta, "key": self.key}
        return {"order": self.order, "inner": inner} | arrays, attrs

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> Factorisation:
        tree = _tree(attrs)
        H, factor = _blocks(arrays, tree, attrs["beta"], tree.above if tree.cut else range(tree.size))
        order, inner = (np.asarray(arrays[name]) for name in ("order", "inner"))
        m = len(inner)
        Z, W = (np.empty((0, m), np.float32),) * 2 if tree.cut else (np.asarray(arrays[name]) for name in "ZW")
        rows = 0 if tree.cut else tree.n
        if not (len(order) == tree.n and len(Z) == rows and W.shape == Z.shape and inner.shape == (m, m)):
            raise ValueError(f"order, Z, W and inner do not agree with each other and with {tree.n} rows")
        if m != Z.shape[1]:
            raise ValueError(f"inner is of {m} landmarks, Z of {Z.shape[1]}")
        matrix = KernelMatrix(H, Z, attrs["explained"], error=attrs.get("error"))
        return cls(order, matrix, ShiftedKernel(factor, W, inner), attrs["key"])

    def parts(self, engine: Engine) -> Sequence[Any]:
        """A `SubtreeFactorisation` of each subtree, for an engine's tasks."""
        matrix, inverse = self.matrix, self.inverse
        if matrix.held is not None and inverse.held is not None:
            keys = [self.key] * len(matrix.held.subtrees)
            return engine.hold(SubtreeFactorisation, matrix.held.subtrees, inverse.held.subtrees, keys)
        parts = []
        for root in matrix.tree.roots:
            nodes, rows = list(matrix.tree.below(root)), slice(*matrix.tree.span(root))
            blocks = Subtree(root, matrix.H.part(nodes), matrix.Z[rows])
            factors = Subtree(root, inverse.factor.part(nodes), inverse.W[rows])
            parts.append(SubtreeFactorisation(blocks, factors, self.key))
        return parts

    def joined(self, parts: Sequence[SubtreeFactorisation]) -> Factorisation:
        """This, of the nodes above the subtrees, with all subtrees in this process."""
        H, factor = self.matrix.H, self.inverse.factor
        for part in parts:
            H, factor = H.with_part(part.blocks.operator), factor.with_part(part.factors.operator)
        Z = np.concatenate([part.blocks.features for part in parts])
        W = np.concatenate([part.factors.features for part in parts])
        return replace(self, matrix=replace(self.matrix, H=H, Z=Z), inverse=replace(self.inverse, factor=factor, W=W))

    def spread(self, parts: Sequence[Any], engine: Engine) -> Factorisation:
        """This, of the nodes above the subtrees, with subtrees held by the workers of a cluster."""
        blocks, factors = (engine.hold(attrgetter(name), parts) for name in ("blocks", "factors"))
        matrix, inverse = with_held_subtrees(self.matrix, self.inverse, blocks, factors, engine)
        engine.release(parts)
        return replace(self, matrix=matrix, inverse=inverse)


@dataclass(frozen=True)
class SubtreeFactorisation(SizedInBytes):
    """Blocks and factors of the nodes of a subtree, and features of its rows."""

    kind: ClassVar[str] = "hss-subtree"
    blocks: Subtree[HSSMatrix]
    factors: Subtree[ULVFactor]
    key: str = ""

    def to_state(self) -> State:
        H, factor = self.blocks.operator, self.factors.operator
        arrays = {"Z": self.blocks.features, "W": self.factors.features} | _state(H, factor)
        return arrays, _attrs(H.tree) | {"root": self.blocks.root, "beta": factor.beta, "key": self.key}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> SubtreeFactorisation:
        tree, root = _tree(attrs), attrs["root"]
        if root not in tree.roots:
            raise ValueError(f"found the subtree of node {root}, expected one of {tree.roots}")
        H, factor = _blocks(arrays, tree, attrs["beta"], sorted(tree.below(root)))
        Z, W = (np.asarray(arrays[name]) for name in "ZW")
        start, stop = tree.span(root)
        if not (len(Z) == stop - start and W.shape == Z.shape):
            raise ValueError(f"Z and W do not agree with each other and with {stop - start} rows")
        return cls(Subtree(root, H, Z), Subtree(root, factor, W), attrs["key"])


def _attrs(tree: ClusterTree) -> Attrs:
    return {"n": tree.n, "depth": tree.depth, "cut": tree.cut}


def _tree(attrs: Attrs) -> ClusterTree:
    return ClusterTree(attrs["n"], attrs["depth"], attrs.get("cut", 0))


def _state(H: HSSMatrix, factor: ULVFactor) -> dict[str, np.ndarray]:
    """The blocks of each kind, by number of their node."""
    nodes = [node for _, node in sorted(factor.nodes.items())]
    lists = {name: [block for _, block in sorted(getattr(H, name).items())] for name in "DPB"}
    lists |= {name: [getattr(node, name) for node in nodes] for name in ("Linv", "Q", "R")}
    arrays: dict[str, np.ndarray] = {}
    for name, blocks in lists.items():
        arrays |= _packed(name, blocks)
    return arrays


def _blocks(arrays: Arrays, tree: ClusterTree, beta: float, nodes: Iterable[int]) -> tuple[HSSMatrix, ULVFactor]:
    """Matrix and factor of these nodes, whose numbers rise, from the arrays of `_state`."""
    nodes = list(nodes)
    nodes_with = {
        "D": [node for node in nodes if tree.is_leaf(node)],
        "P": [node for node in nodes if node > 0],
        "B": [node for node in nodes if not tree.is_leaf(node)],
    }
    D, P, B = (dict(zip(i, _unpacked(name, arrays), strict=True)) for name, i in nodes_with.items())
    factors = map(ULVNode, *(_unpacked(name, arrays) for name in ("Linv", "Q", "R")))
    return HSSMatrix(tree, D, P, B), ULVFactor(tree, beta, dict(zip(nodes, factors, strict=True)))


def _packed(name: str, blocks: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Matrices one after another, and their shapes."""
    shapes = np.array([block.shape for block in blocks], np.int64).reshape(-1, 2)
    flat = np.concatenate([block.ravel() for block in blocks]) if blocks else np.empty(0)
    return {name: flat, f"{name}_shapes": shapes}


def _unpacked(name: str, arrays: Arrays) -> list[np.ndarray]:
    flat, shapes = np.asarray(arrays[name]), np.asarray(arrays[f"{name}_shapes"])
    if not len(shapes):
        return []
    ends = np.cumsum(shapes[:, 0] * shapes[:, 1])
    if ends[-1] != len(flat):
        raise ValueError(f"{name}: found {len(flat)} values, expected {ends[-1]}")
    return [block.reshape(shape) for block, shape in zip(np.split(flat, ends[:-1]), shapes, strict=True)]
