"""A compressed kernel matrix and its shifted inverse whose subtrees are held by the workers of a cluster.

A worker keeps what it has computed for a subtree, blocks or factors of its nodes and features of its rows, and dask
computes it again if the worker is lost. The driver has the nodes above all subtrees, and vectors while they are
multiplied. Every number is the same as that of `kernel_matrix` in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Events, ignore
from streamsvm.hss.budget import Budget, HSSOptions
from streamsvm.hss.compress import Nodes, Sampling, compress_nodes
from streamsvm.hss.landmarks import (
    STRIP_ROWS,
    Landmarks,
    NystroemRemainder,
    column_strips,
    partial_products,
    subtract_product,
    woodbury,
)
from streamsvm.hss.matrix import (
    HSSMatrix,
    Shapes,
    TreeOperator,
    TreeSweep,
    fullness,
    ranks_of,
    shapes_of,
    sweep_above,
    sweep_down,
    sweep_up,
)
from streamsvm.hss.tree import ClusterTree, strips_of
from streamsvm.hss.ulv import ULVFactor, factorise_nodes
from streamsvm.parallel.engine import Engine, SerialEngine
from streamsvm.parallel.machine import MiB
from streamsvm.parallel.sizes import SizedInBytes

WORKER_BYTES = 256 * MiB  # of a worker's process and what it loads, and
USED_SHARE = 0.8  # of its memory that it may use

Subtrees = Sequence[Any]  # a `Subtree` of each root, held by an engine: in this process, or by workers as futures


@dataclass(frozen=True)
class Subtree(SizedInBytes):
    """Blocks or factors of the nodes under a root, and features (m, landmarks) of their rows. skeleton: the root's,
    until all are compressed."""

    root: int
    operator: HSSMatrix | ULVFactor
    features: np.ndarray
    skeleton: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def within(self) -> list[tuple[int, int]]:
        return strips_of(0, len(self.features), STRIP_ROWS)


@dataclass(frozen=True)
class SpreadKernel:
    """Z Z' + H, as a `KernelMatrix`. top: H above all subtrees; subtrees: of each root, held by the engine. shapes: of
    all bases; nbytes: in all processes together."""

    engine: Engine
    top: HSSMatrix
    subtrees: Subtrees
    shapes: Shapes
    nbytes: int
    landmarks: int
    explained: float

    @property
    def tree(self) -> ClusterTree:
        return self.top.tree

    def ranks(self) -> list[np.ndarray]:
        """Ranks of the nodes, level by level from the top; the root has none."""
        return ranks_of(self.tree, self.shapes)

    def fullness(self, max_rank: int) -> float:
        """Mean over nodes of the rank over the largest possible one."""
        return fullness(self.shapes, max_rank)

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        return _applied(self.engine, self.top, self.subtrees, V, lambda sums: -sums)

    def shifted(self, beta: float, engine: Engine, events: Events = ignore) -> SpreadInverse:
        """The factor of K + beta I. Raises ConfigError if that is not positive definite."""
        factors = engine.hold(_factorised, self.subtrees, shared=(beta,))
        summaries = list(engine.map(_factor_summary, factors, phase="factorise", events=events))
        R = {root: R for root, (R, _) in zip(self.tree.roots, summaries, strict=True)}
        with engine.serial_blas():
            top = factorise_nodes(self.top, beta, self.tree.levels_above(), R, engine.local, events)
        nbytes = top.nbytes + sum(nbytes for _, nbytes in summaries)
        if not self.landmarks:
            return SpreadInverse(engine, top, factors, np.empty((0, 0)), nbytes)
        strips = []
        for columns in column_strips(self.landmarks):
            bounds = columns.start, columns.stop
            risen = engine.hold(_rise_features, factors, self.subtrees, shared=(bounds,))
            down = _down(top, [up for up, _ in engine.map(_sums, risen)])
            strips.append(engine.hold(_fall_features, factors, risen, down))
            events.progress("factorise landmarks", columns.stop, self.landmarks)
        inverses = engine.hold(_with_features, factors, *strips)
        with engine.serial_blas():
            inner = woodbury(list(engine.map(_inner, self.subtrees, inverses)))
        for values in (factors, *strips):
            engine.release(values)
        itemsize = np.dtype(np.float32).itemsize
        return SpreadInverse(engine, top, inverses, inner, nbytes + self.tree.n * self.landmarks * itemsize)


@dataclass(frozen=True)
class SpreadInverse:
    """(Z Z' + H + beta I)^-1, as a `ShiftedKernel`. top: the factor above all subtrees."""

    engine: Engine
    top: ULVFactor
    subtrees: Subtrees
    inner: np.ndarray
    nbytes: int

    @property
    def beta(self) -> float:
        return self.top.beta

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        return _applied(self.engine, self.top, self.subtrees, V, lambda sums: self.inner @ sums)


def spread_kernel(
    rows: Rows,
    tree: ClusterTree,
    landmarks: Landmarks,
    sampling: Sampling,
    options: HSSOptions,
    engine: Engine,
    events: Events = ignore,
) -> SpreadKernel:
    """K of these rows, in tree order, compressed by the workers. Raises MemoryLimitError."""
    row_bytes = rows.nbytes / tree.n + 4 * landmarks.M.shape[1]
    limit_bytes = _subtree_bytes(tree, row_bytes, engine)
    shared_rows, shared_landmarks = engine.share(rows), engine.share(landmarks)
    features = engine.hold(_features, tree.roots, shared=(shared_landmarks, shared_rows, tree))
    of_subtrees = [[part] for part in features]
    entries = engine.hold(_remainder, [shared_landmarks], *of_subtrees, shared=(shared_rows,))[0]
    near = [sampling.among(np.arange(*tree.span(root))) for root in tree.roots]
    work = _SubtreeOptions(tree, options, limit_bytes)
    subtrees = engine.hold(_compressed, tree.roots, features, near, shared=(entries, work))
    summaries = list(engine.map(_matrix_summary, subtrees, phase="compress", events=events))
    skeletons = {root: skeleton for root, (skeleton, _, _) in zip(tree.roots, summaries, strict=True)}
    rest = engine.share(sampling.among(np.sort(np.concatenate(list(skeletons.values())))))
    above = Nodes(tree, tree.levels_above(), skeletons)
    top, _ = compress_nodes((entries, rest), above, options.tolerances, engine, events=events)
    engine.release([shared_rows, shared_landmarks, entries, *features])
    return _kernel(engine, top, subtrees, summaries, landmarks.M.shape[1], landmarks.explained)


def spread_pair(
    H: HSSMatrix,
    factor: ULVFactor,
    blocks: Subtrees,
    factors: Subtrees,
    inner: np.ndarray,
    explained: float,
    engine: Engine,
) -> tuple[SpreadKernel, SpreadInverse]:
    """Matrix and inverse from H and factor above the subtrees, and the subtrees' blocks and factors held by workers."""
    summaries = list(engine.map(_matrix_summary, blocks))
    matrix = _kernel(engine, H, blocks, summaries, len(inner), explained)
    nbytes = factor.nbytes + sum(nbytes for _, nbytes in engine.map(_factor_summary, factors))
    return matrix, SpreadInverse(engine, factor, factors, inner, nbytes)


def _kernel(
    engine: Engine,
    top: HSSMatrix,
    subtrees: Subtrees,
    summaries: Sequence[tuple[np.ndarray, Shapes, int]],
    landmarks: int,
    explained: float,
) -> SpreadKernel:
    """summaries: of each subtree, by `_matrix_summary`."""
    shapes = shapes_of(top.P)
    for _, subtree_shapes, _ in summaries:
        shapes |= subtree_shapes
    nbytes = top.nbytes + sum(nbytes for _, _, nbytes in summaries)
    return SpreadKernel(engine, top, subtrees, dict(sorted(shapes.items())), nbytes, landmarks, explained)


def _applied(
    engine: Engine, top: TreeOperator, subtrees: Subtrees, V: np.ndarray, inside: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """The product or solve of subtrees and top, less features times inside(features' V)."""
    spans = [slice(*top.tree.span(root)) for root in top.tree.roots]
    risen = engine.hold(_rise, subtrees, [V[rows] for rows in spans])
    ups, sums = zip(*engine.map(_sums, risen), strict=True)
    total = np.concatenate(sums).sum(axis=0, dtype=np.float64)
    B = engine.share(inside(total) if len(total) else total)
    out = np.empty(V.shape)
    for rows, part in zip(spans, engine.map(_fall, subtrees, risen, _down(top, ups), shared=(B,)), strict=True):
        out[rows] = part
    return out


def _down(top: TreeOperator, ups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The vectors that each subtree receives, from those that they send up."""
    down = sweep_above(top, dict(zip(top.tree.roots, ups, strict=True)))
    return [down[root] for root in top.tree.roots]


def require_workers(tree: ClusterTree, row_bytes: float, options: HSSOptions, engine: Engine) -> None:
    """Raises MemoryLimitError if workers have too little memory, whatever the ranks."""
    Budget(tree.n // len(tree.roots), options, _subtree_bytes(tree, row_bytes, engine), of_worker=True)


def _subtree_bytes(tree: ClusterTree, row_bytes: float, engine: Engine) -> int | None:
    """The workers' memory for each subtree, besides all rows; None if they have no limit."""
    limit, _ = engine.worker_memory()
    if limit is None:
        return None
    free = USED_SHARE * limit - WORKER_BYTES - tree.n * row_bytes
    return max(0, int(free * engine.facts().get("workers", 1) / len(tree.roots)))


@dataclass(frozen=True)
class _SubtreeOptions(SizedInBytes):
    """The options that compress a subtree. limit_bytes: of matrix and factor."""

    tree: ClusterTree
    options: HSSOptions
    limit_bytes: int | None


def _features(landmarks: Landmarks, rows: Rows, tree: ClusterTree, root: int) -> np.ndarray:
    start, stop = tree.span(root)
    return landmarks.features(rows.take(slice(start, stop)), strips_of(0, stop - start, STRIP_ROWS))


def _remainder(rows: Rows, landmarks: Landmarks, *features: np.ndarray) -> NystroemRemainder:
    return NystroemRemainder(landmarks.kernel, rows, np.concatenate(features))


def _compressed(
    entries: NystroemRemainder, work: _SubtreeOptions, root: int, features: np.ndarray, near: Sampling
) -> Subtree:
    tree = work.tree
    budget = Budget(len(features), work.options, work.limit_bytes, of_worker=True)
    nodes = Nodes(tree, tree.levels(root), {})
    shared = entries, near
    matrix, skeletons = compress_nodes(shared, nodes, work.options.tolerances, SerialEngine(), on_level=budget.check)
    return Subtree(root, matrix, features, skeletons[root])


def _matrix_summary(subtree: Subtree) -> tuple[np.ndarray, Shapes, int]:
    """Skeleton of the root, shapes of bases, bytes."""
    assert isinstance(subtree.operator, HSSMatrix)
    nbytes = subtree.operator.nbytes + subtree.features.nbytes
    return subtree.skeleton, shapes_of(subtree.operator.P), nbytes


def _factorised(beta: float, subtree: Subtree) -> Subtree:
    matrix = subtree.operator
    assert isinstance(matrix, HSSMatrix)
    levels = matrix.tree.levels(subtree.root)
    factor = factorise_nodes(matrix, beta, levels, {}, SerialEngine())
    return Subtree(subtree.root, factor, np.empty((len(subtree.features), 0), np.float32))


def _factor_summary(subtree: Subtree) -> tuple[np.ndarray, int]:
    """R of the root, bytes."""
    assert isinstance(subtree.operator, ULVFactor)
    return subtree.operator.nodes[subtree.root].R, subtree.operator.nbytes + subtree.features.nbytes


class _Risen(NamedTuple):
    """A subtree after the way up: vectors that its root sends up, features' V by strip, and the state for the way
    down."""

    up: np.ndarray
    sums: np.ndarray
    at: TreeSweep


def _rise(subtree: Subtree, V: np.ndarray) -> _Risen:
    at = sweep_up(subtree.operator, subtree.root, V)
    return _Risen(at.up[subtree.root], partial_products(subtree.features, V, subtree.within), at)


def _sums(risen: _Risen) -> tuple[np.ndarray, np.ndarray]:
    return risen.up, risen.sums


def _fall(B: np.ndarray, subtree: Subtree, risen: _Risen, down: np.ndarray) -> np.ndarray:
    out = sweep_down(subtree.operator, subtree.root, risen.at, down).reshape(-1, *B.shape[1:])
    if len(B):
        subtract_product(out, subtree.features, B, subtree.within)
    return out


def _rise_features(columns: tuple[int, int], factor: Subtree, subtree: Subtree) -> _Risen:
    return _rise(factor, subtree.features[:, slice(*columns)])


def _fall_features(factor: Subtree, risen: _Risen, down: np.ndarray) -> np.ndarray:
    return sweep_down(factor.operator, factor.root, risen.at, down).astype(np.float32)


def _with_features(factor: Subtree, *strips: np.ndarray) -> Subtree:
    return Subtree(factor.root, factor.operator, np.hstack(strips))


def _inner(subtree: Subtree, inverse: Subtree) -> np.ndarray:
    return (subtree.features.T @ inverse.features).astype(np.float64)
