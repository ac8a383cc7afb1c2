"""A kernel matrix as landmarks plus an HSS matrix of the rest, and its shifted inverse.

On a cluster the workers hold the subtrees. A worker keeps what it has computed for one, blocks or factors of its nodes
and features of its rows, and dask computes it again if the worker is lost. The driver has the nodes above all subtrees,
and vectors while they are multiplied. Every number is the same as in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.events import Events, ignore
from streamsvm.hss.compress import Budget, HSSOptions, Nodes, Sampling, Tolerances, compress, compress_nodes
from streamsvm.hss.matrix import (
    HSSMatrix,
    Shapes,
    TreeSweep,
    ULVFactor,
    factorise,
    fullness,
    ranks_of,
    shapes_of,
    sweep_above,
    sweep_down,
    sweep_up,
    swept,
)
from streamsvm.hss.tree import ClusterTree, nearest_neighbours, order_rows, principal_direction, strips_of
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.engine import Engine, SerialEngine
from streamsvm.parallel.machine import WORKER_BYTES
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import strips

WORTH = 0.5  # share of the trace that landmarks must explain to be used: they cost each product n x landmarks
RANK_TOL = 1e-10  # of the largest eigenvalue: landmarks' values are float64
STRIP_ROWS, STRIP_COLUMNS = 4096, 64  # of features at a time

Strips = Sequence[tuple[int, int]]  # first and last row of each
TREES = 8  # random trees for neighbours: on ijcnn1 they have 98 % of the nearest 16
NOISE = 1e-6  # of the diagonal: rounding of the landmarks' float32 features in the remainder
BASIS_SHARE = 1 / 3  # of the error of a matrix: what a basis may add to it
ATTEMPTS = 3  # to reach the tolerance, each with finer ones of the bases
PROBES = 4  # random vectors, and
PROBED_ROWS = 300  # rows of the product, by which errors are estimated; all of them
SIGNS = 16  # random vectors by which it is seen whether rtol is reached
PROBED_VALUES = 1 << 22  # if these are few: of a narrow kernel, few entries make the error
USED_SHARE = 0.8  # of a worker's memory that it may use

Operator = TypeVar("Operator", HSSMatrix, ULVFactor)
Inside = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Landmarks(SizedInBytes):
    """Rows and M (rows, m), so that Z = K(X, rows) M gives Nystroem's Z Z'; m = 0 if they explain little. explained:
    share of the trace."""

    kernel: Kernel
    rows: Rows
    M: np.ndarray
    explained: float

    @classmethod
    def of(cls, kernel: Kernel, rows: Rows, most: int, seed: int) -> Landmarks:
        """Up to so many of these rows."""
        n, rng = len(rows), np.random.default_rng([seed, 3])
        count = min(most, n // 4)
        if count == 0:
            return cls(kernel, rows.take(slice(0)), np.empty((0, 0)), 0.0)
        chosen = rows.take(np.sort(rng.choice(n, count, replace=False)))
        values, vectors = np.linalg.eigh(kernel.exact(chosen, chosen))
        significant = values > RANK_TOL * values[-1]
        M = vectors[:, significant] / np.sqrt(values[significant])
        sample = rows.take(np.sort(rng.choice(n, min(n, 1000), replace=False)))
        squares = np.square(kernel.exact(sample, chosen) @ M).sum()
        explained = float(squares / max(kernel.diag(sample).sum(), 1e-300))
        return cls(kernel, chosen, M if explained >= WORTH else M[:, :0], explained)

    def features(self, rows: Rows, within: Strips, threads: int = 1) -> np.ndarray:
        """Z (n, m) float32 of these rows."""
        Z = np.empty((len(rows), self.M.shape[1]), np.float32)

        def fill(number: int, _: int) -> None:
            strip = slice(*within[number])
            Z[strip] = self.kernel.exact(rows.take(strip), self.rows) @ self.M

        if Z.shape[1]:
            strips(fill, len(within), 1, threads)
        return Z


@dataclass(frozen=True)
class NystroemRemainder(SizedInBytes):
    """Entries of K(X, X) - Z Z' by row and column ids."""

    kernel: Kernel
    rows: Rows
    Z: np.ndarray

    def __call__(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        values = self.kernel.exact(self.rows.take(a), self.rows.take(b))
        if self.Z.shape[1]:
            values -= self.Z[a] @ self.Z[b].T
        return values


def partial_products(Z: np.ndarray, V: np.ndarray, within: Strips, threads: int = 1) -> np.ndarray:
    """(strips, m) or (strips, m, k): Z'V of each strip, of long Z (n, m) and V (n,) or (n, k); their sum is Z'V."""
    parts = np.empty((len(within), Z.shape[1], *V.shape[1:]), Z.dtype)

    def fill(number: int, _: int) -> None:
        rows = slice(*within[number])
        parts[number] = Z[rows].T @ V[rows].astype(Z.dtype)

    strips(fill, len(within), 1, threads)
    return parts


def subtract_product(out: np.ndarray, Z: np.ndarray, B: np.ndarray, within: Strips, threads: int = 1) -> None:
    """out -= Z B, in place."""
    B = B.astype(Z.dtype)

    def subtract(number: int, _: int) -> None:
        rows = slice(*within[number])
        out[rows] -= Z[rows] @ B

    strips(subtract, len(within), 1, threads)


def column_strips(m: int) -> list[slice]:
    """Of m columns of features."""
    return [slice(first, min(m, first + STRIP_COLUMNS)) for first in range(0, m, STRIP_COLUMNS)]


def woodbury(products: Sequence[np.ndarray]) -> np.ndarray:
    """(I + Z'W)^-1, of Z'W of each subtree."""
    inner = np.linalg.inv(np.eye(len(products[0])) + sum(products))
    return (inner + inner.T) / 2


@dataclass(frozen=True)
class Subtree(SizedInBytes, Generic[Operator]):
    """Blocks or factors of the nodes under a root, and features (m, landmarks) of their rows. skeleton: the root's,
    until all are compressed."""

    root: int
    operator: Operator
    features: np.ndarray
    skeleton: np.ndarray = field(default_factory=lambda: np.empty(0, np.intp))

    @property
    def nbytes(self) -> int:
        return self.operator.nbytes + self.features.nbytes

    @property
    def within(self) -> list[tuple[int, int]]:
        return strips_of(0, len(self.features), STRIP_ROWS)


@dataclass(frozen=True)
class HeldSubtrees:
    """A `Subtree` of each root, held by an engine: by workers as futures. nbytes: in all processes together; shapes: of
    all bases."""

    engine: Engine
    subtrees: Sequence[Any]
    nbytes: int
    shapes: Shapes = field(default_factory=dict)


@dataclass(frozen=True)
class KernelMatrix:
    """K(X, X) as Z Z' + H: features Z (n, m) of m landmarks, m may be 0, and the HSS matrix H of the rest.

    Rows are in tree order. Of a smooth kernel the remainder H is small and local; of a narrow one landmarks explain
    little and are left out. Nystroem's remainder is positive semidefinite, and H may be, too.

    held: the subtrees, if workers have them; H is then what is above them, and Z has no rows."""

    H: HSSMatrix
    Z: np.ndarray
    explained: float  # share of the trace
    held: HeldSubtrees | None = None
    error: float | None = None  # estimated, |K~ - K| / |K| in the Frobenius norm

    @property
    def tree(self) -> ClusterTree:
        return self.H.tree

    @property
    def nbytes(self) -> int:
        return self.H.nbytes + self.Z.nbytes + (0 if self.held is None else self.held.nbytes)

    @property
    def landmarks(self) -> int:
        return self.Z.shape[1]

    @property
    def _shapes(self) -> Shapes:
        shapes = shapes_of(self.H.P)
        return shapes if self.held is None else dict(sorted((shapes | dict(self.held.shapes)).items()))

    def ranks(self) -> list[np.ndarray]:
        """Ranks of the nodes, level by level from the top; the root has none."""
        return ranks_of(self.tree, self._shapes)

    def fullness(self, max_rank: int) -> float:
        """Mean over nodes of the rank over the largest possible one."""
        return fullness(self._shapes, max_rank)

    def is_capped(self, max_rank: int) -> bool:
        """Whether max_rank has ended the basis of a node."""
        return any(rank == max_rank < rows for rows, rank in self._shapes.values())

    def product(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """K @ V for V (n,) or (n, k), float64."""
        return _applied(self.H, self.Z, self.held, V, threads, lambda sums: -sums)

    def shifted(self, beta: float, engine: Engine, events: Events = ignore) -> ShiftedKernel:
        """The factor of K + beta I. Raises ConfigError if that is not positive definite."""
        if self.held is not None:
            return _shifted_by_workers(self, self.held.subtrees, beta, engine, events)
        factor = factorise(self.H, beta, engine.local, events)
        if not self.landmarks:
            return ShiftedKernel(factor, self.Z, np.empty((0, 0)))
        with engine.serial_blas():
            W = np.empty_like(self.Z)
            for columns in column_strips(W.shape[1]):
                W[:, columns] = factor.solve(self.Z[:, columns], engine.threads)
                events.progress("factorise landmarks", columns.stop, W.shape[1])
            spans = [slice(*self.tree.span(root)) for root in self.tree.roots]
            inner = woodbury([(self.Z[rows].T @ W[rows]).astype(np.float64) for rows in spans])
        return ShiftedKernel(factor, W, inner)


@dataclass(frozen=True)
class ShiftedKernel:
    """(Z Z' + H + beta I)^-1 = F - W (I + Z'W)^-1 W', with F = (H + beta I)^-1 and W = F Z (Woodbury). held: as of
    `KernelMatrix`."""

    factor: ULVFactor
    W: np.ndarray  # (n, m)
    inner: np.ndarray  # (m, m)
    held: HeldSubtrees | None = None

    @property
    def beta(self) -> float:
        return self.factor.beta

    @property
    def nbytes(self) -> int:
        return self.factor.nbytes + self.W.nbytes + (0 if self.held is None else self.held.nbytes)

    def solve(self, V: np.ndarray, threads: int = 1) -> np.ndarray:
        """(K + beta I)^-1 V for V (n,) or (n, k), float64."""
        return _applied(self.factor, self.W, self.held, V, threads, lambda sums: self.inner @ sums)


def _applied(
    operator: HSSMatrix | ULVFactor,
    features: np.ndarray,
    held: HeldSubtrees | None,
    V: np.ndarray,
    threads: int,
    inside: Inside,
) -> np.ndarray:
    """The product or solve, less features times inside(features' V)."""
    if held is not None:
        return _applied_by_workers(operator, held, V, inside)
    out = swept(operator, V, threads)
    if features.shape[1]:
        within = operator.tree.strips(STRIP_ROWS)
        sums = partial_products(features, V, within, threads).sum(axis=0, dtype=np.float64)
        subtract_product(out, features, inside(sums), within, threads)
    return out


def facts_of(matrix: KernelMatrix) -> dict[str, Any]:
    """Ranks by level (mean, largest), bytes, and the share of the trace that landmarks explain, for reports."""
    levels = [{"mean": float(r.mean()), "most": int(r.max())} for r in matrix.ranks()]
    return {
        "hss_ranks": levels,
        "hss_bytes": matrix.nbytes,
        "landmarks": matrix.landmarks,
        "explained": matrix.explained,
    } | ({} if matrix.error is None else {"hss_error": float(f"{matrix.error:.3g}")})


def approximate(
    kernel: Kernel,
    rows: Rows,
    options: HSSOptions,
    engine: Engine,
    limit_bytes: int | None = None,
    events: Events = ignore,
) -> tuple[np.ndarray, KernelMatrix]:
    """(order, K): K(X, X) approximated, its rows those of X in this order. On a cluster the subtrees of a tree that has
    several stay with the workers. limit_bytes is for the whole process. Raises MemoryLimitError before it is reached,
    with the bytes that would be needed."""
    tree = ClusterTree.of(len(rows), options.leaf_rows)
    is_spread = tree.cut > 0 and not engine.is_local
    budget = Budget(len(rows), options, None if is_spread else limit_bytes)
    order = order_rows(rows, tree, principal_direction, [options.seed, 0], engine.local, events)
    rows = rows.take(order)
    landmarks = Landmarks.of(kernel, rows, options.landmarks, options.seed)
    seed = [options.seed, 1]
    neighbours = nearest_neighbours(rows, options.neighbours, TREES, seed, engine.local, events)
    sampling = Sampling(*neighbours, [options.seed, 2])
    Z = np.empty((0, 0), np.float32)
    if not is_spread:
        with engine.serial_blas():
            Z = landmarks.features(rows, tree.strips(STRIP_ROWS), engine.threads)
    entries = NystroemRemainder(kernel, rows, Z)

    def compressed(tolerances: Tolerances) -> KernelMatrix:
        if is_spread:
            chosen = replace(options, tolerances=tolerances)
            return _compressed_by_workers(rows, tree, landmarks, sampling, chosen, engine, events)
        H = compress(entries, tree, sampling, tolerances, engine, events=events, on_level=budget.check)
        return KernelMatrix(H, Z, landmarks.explained)

    scale, wanted, m = float(kernel.diag(rows).mean()), options.tolerances, landmarks.M.shape[1]
    noise = NOISE if m else 0.0  # bases ignore values below it
    wanted = replace(wanted, noise=noise * scale, dtype=options.dtype)
    if wanted.definite is None:
        # landmarks that explain little imply a narrow kernel: its norm is below beta
        wanted = replace(wanted, definite=m > 0 or options.landmarks == 0)
    if wanted.atol is not None:
        return order, compressed(replace(wanted, atol=max(wanted.atol, noise) * scale))
    with engine.serial_blas():
        probe = Probe.of(kernel, rows, options.seed)
    return order, _within(probe, wanted, noise * scale, compressed, engine, events)


def _within(
    probe: Probe,
    wanted: Tolerances,
    noise: float,
    compressed: Callable[[Tolerances], KernelMatrix],
    engine: Engine,
    events: Events,
) -> KernelMatrix:
    """The matrix whose error is at most rtol; else, after some attempts, a warning says how large it is."""
    share = BASIS_SHARE
    for attempts_left in reversed(range(ATTEMPTS)):
        rtol = share * wanted.rtol
        matrix = compressed(replace(wanted, rtol=rtol, atol=max(rtol * probe.entry, noise), tightens=True))
        with engine.serial_blas():
            error = probe.error(matrix, engine.threads)
        matrix = replace(matrix, error=error)
        is_capped, is_rounded = matrix.is_capped(wanted.max_rank), noise > rtol * probe.entry
        if error <= wanted.rtol or is_capped or is_rounded or not attempts_left:
            break
        # a power of two, so that rounding of the estimate does not change the matrix
        share *= 0.5 ** np.ceil(np.log2(2 * error / wanted.rtol))
    if error > wanted.rtol:
        advice = "take a larger rtol, or admm_hss.definite=false"
        if is_capped:
            advice = f"ranks reach admm_hss.max_rank, {wanted.max_rank}; take a larger one, or a larger rtol"
        elif is_rounded:
            advice = "landmarks are rounded to float32; take a larger rtol, or admm_hss.landmarks=0"
        events.warn(
            f"the compressed kernel matrix has a relative error of {error:.2g}, above admm_hss.rtol, {wanted.rtol:g}: "
            f"{advice}"
        )
    return matrix


@dataclass(frozen=True)
class Probe:
    """Some rows of K and their products with random signs, by which the error of an approximation is estimated."""

    ids: np.ndarray
    V: np.ndarray  # (n, probes)
    products: np.ndarray  # K[ids] V
    norm: float  # of K[ids], Frobenius

    @classmethod
    def of(cls, kernel: Kernel, rows: Rows, seed: int) -> Probe:
        """Of these rows, in tree order."""
        n, rng = len(rows), np.random.default_rng([seed, 7])
        V = rng.choice([-1.0, 1.0], size=(n, SIGNS))
        ids = np.sort(rng.choice(n, min(n, max(PROBED_ROWS, PROBED_VALUES // n)), replace=False))
        probed, products, squares = rows.take(ids), np.zeros((len(ids), SIGNS)), 0.0
        for start, stop in strips_of(0, n, STRIP_ROWS):
            values = kernel.exact(probed, rows.take(slice(start, stop)))
            products += values @ V[start:stop]
            squares += float(np.square(values).sum())
        return cls(ids, V, products, max(float(np.sqrt(squares)), 1e-300))

    @property
    def entry(self) -> float:
        """Root mean square of K's entries."""
        return float(self.norm / np.sqrt(len(self.ids) * len(self.V)))

    def error(self, matrix: KernelMatrix, threads: int) -> float:
        """|K~ - K| / |K|, Frobenius, estimated: a random sign v has E (a'v)^2 = |a|^2 for a row a."""
        residual = matrix.product(self.V, threads)[self.ids] - self.products
        return float(np.linalg.norm(residual) / np.sqrt(self.V.shape[1]) / self.norm)


def estimated_errors(
    kernel: Kernel, rows: Rows, matrix: KernelMatrix, inverse: ShiftedKernel, seed: int, threads: int
) -> dict[str, float]:
    """Relative errors on random vectors v: of the product, |(K~ - K) v| / |K v| on some rows, and of the solve,
    |(K~ + beta I) x - v| / |v|; rows in tree order, as the matrix."""
    rng = np.random.default_rng([seed, 4])
    V = rng.choice([-1.0, 1.0], size=(len(rows), PROBES))
    ids = np.sort(rng.choice(len(rows), min(PROBED_ROWS, len(rows)), replace=False))
    exact = kernel.apply(rows.take(ids), rows, V, threads)
    X = inverse.solve(V, threads)
    residual = matrix.product(X, threads) + inverse.beta * X - V
    error = matrix.product(V, threads)[ids] - exact
    return {
        "product_error": float(np.linalg.norm(error) / max(float(np.linalg.norm(exact)), 1e-300)),
        "solve_error": float(np.linalg.norm(residual) / np.linalg.norm(V)),
    }


def _applied_by_workers(top: HSSMatrix | ULVFactor, held: HeldSubtrees, V: np.ndarray, inside: Inside) -> np.ndarray:
    engine, subtrees = held.engine, held.subtrees
    spans = [slice(*top.tree.span(root)) for root in top.tree.roots]
    risen = engine.hold(_rise, subtrees, [V[rows] for rows in spans])
    ups, sums = zip(*engine.map(_sums, risen), strict=True)
    total = np.concatenate(sums).sum(axis=0, dtype=np.float64)
    B = engine.share(inside(total) if len(total) else total)
    out = np.empty(V.shape)
    for rows, part in zip(spans, engine.map(_fall, subtrees, risen, _down(top, ups), shared=(B,)), strict=True):
        out[rows] = part
    return out


def _down(top: HSSMatrix | ULVFactor, ups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The vectors that each subtree receives, from those that they send up."""
    down = sweep_above(top, dict(zip(top.tree.roots, ups, strict=True)))
    return [down[root] for root in top.tree.roots]


def _shifted_by_workers(
    matrix: KernelMatrix, subtrees: Sequence[Any], beta: float, engine: Engine, events: Events
) -> ShiftedKernel:
    factors = engine.hold(_factorised, subtrees, shared=(beta,))
    summaries = list(engine.map(_factor_summary, factors, phase="factorise", events=events))
    R = {root: R for root, (R, _) in zip(matrix.tree.roots, summaries, strict=True)}
    with engine.serial_blas():
        top = factorise(matrix.H, beta, engine.local, events, levels=matrix.tree.levels_above(), below=R)
    nbytes, m = sum(nbytes for _, nbytes in summaries), matrix.landmarks
    if not m:
        return ShiftedKernel(top, matrix.Z, np.empty((0, 0)), HeldSubtrees(engine, factors, nbytes))
    strips = []
    for columns in column_strips(m):
        bounds = columns.start, columns.stop
        risen = engine.hold(_rise_features, factors, subtrees, shared=(bounds,))
        down = _down(top, [up for up, _ in engine.map(_sums, risen)])
        strips.append(engine.hold(_fall_features, factors, risen, down))
        events.progress("factorise landmarks", columns.stop, m)
    inverses = engine.hold(_with_features, factors, *strips)
    with engine.serial_blas():
        inner = woodbury(list(engine.map(_inner, subtrees, inverses)))
    for values in (factors, *strips):
        engine.release(values)
    nbytes += matrix.tree.n * m * np.dtype(np.float32).itemsize
    return ShiftedKernel(top, matrix.Z, inner, HeldSubtrees(engine, inverses, nbytes))


def with_held_subtrees(
    matrix: KernelMatrix, inverse: ShiftedKernel, blocks: Sequence[Any], factors: Sequence[Any], engine: Engine
) -> tuple[KernelMatrix, ShiftedKernel]:
    """Both, of the nodes above the subtrees, with the subtrees' blocks and factors held by workers."""
    held_blocks = _held_matrix(engine, blocks, list(engine.map(_matrix_summary, blocks)))
    nbytes = sum(nbytes for _, nbytes in engine.map(_factor_summary, factors))
    return replace(matrix, held=held_blocks), replace(inverse, held=HeldSubtrees(engine, factors, nbytes))


def _held_matrix(
    engine: Engine, subtrees: Sequence[Any], summaries: Sequence[tuple[np.ndarray, Shapes, int]]
) -> HeldSubtrees:
    """summaries: of each subtree, by `_matrix_summary`."""
    shapes: dict[int, tuple[int, ...]] = {}
    for _, subtree_shapes, _ in summaries:
        shapes |= subtree_shapes
    return HeldSubtrees(engine, subtrees, sum(nbytes for _, _, nbytes in summaries), shapes)


def _compressed_by_workers(
    rows: Rows,
    tree: ClusterTree,
    landmarks: Landmarks,
    sampling: Sampling,
    options: HSSOptions,
    engine: Engine,
    events: Events = ignore,
) -> KernelMatrix:
    """K of these rows, in tree order, compressed by the workers. Raises MemoryLimitError."""
    row_bytes = rows.nbytes / tree.n + 4 * landmarks.M.shape[1]
    limit_bytes = _subtree_bytes(tree, row_bytes, engine)
    shared_rows, shared_landmarks = engine.share(rows), engine.share(landmarks)
    features = engine.hold(_features, tree.roots, shared=(shared_landmarks, shared_rows, tree))
    of_subtrees = [[part] for part in features]
    entries = engine.hold(_remainder, [shared_landmarks], *of_subtrees, shared=(shared_rows,))[0]
    near = [sampling.among(np.arange(*tree.span(root))) for root in tree.roots]
    shared = entries, tree, options, limit_bytes
    subtrees = engine.hold(_compressed, tree.roots, features, near, shared=shared)
    summaries = list(engine.map(_matrix_summary, subtrees, phase="compress", events=events))
    skeletons = {root: skeleton for root, (skeleton, _, _) in zip(tree.roots, summaries, strict=True)}
    rest = engine.share(sampling.among(np.sort(np.concatenate(list(skeletons.values())))))
    above = Nodes(tree, tree.levels_above(), skeletons)
    top, _ = compress_nodes((entries, rest), above, options.tolerances, engine, events=events)
    engine.release([shared_rows, shared_landmarks, entries, *features])
    Z, held = np.empty((0, landmarks.M.shape[1]), np.float32), _held_matrix(engine, subtrees, summaries)
    return KernelMatrix(top, Z, landmarks.explained, held)


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


def _features(landmarks: Landmarks, rows: Rows, tree: ClusterTree, root: int) -> np.ndarray:
    start, stop = tree.span(root)
    return landmarks.features(rows.take(slice(start, stop)), strips_of(0, stop - start, STRIP_ROWS))


def _remainder(rows: Rows, landmarks: Landmarks, *features: np.ndarray) -> NystroemRemainder:
    return NystroemRemainder(landmarks.kernel, rows, np.concatenate(features))


def _compressed(
    entries: NystroemRemainder,
    tree: ClusterTree,
    options: HSSOptions,
    limit_bytes: int | None,
    root: int,
    features: np.ndarray,
    near: Sampling,
) -> Subtree[HSSMatrix]:
    """limit_bytes: of matrix and factor."""
    on_level = Budget(len(features), options, limit_bytes, of_worker=True).check
    nodes = Nodes(tree, tree.levels(root), {})
    matrix, skeletons = compress_nodes((entries, near), nodes, options.tolerances, SerialEngine(), on_level=on_level)
    return Subtree(root, matrix, features, skeletons[root])


def _matrix_summary(subtree: Subtree[HSSMatrix]) -> tuple[np.ndarray, Shapes, int]:
    """Skeleton of the root, shapes of bases, bytes."""
    return subtree.skeleton, shapes_of(subtree.operator.P), subtree.nbytes


def _factorised(beta: float, subtree: Subtree[HSSMatrix]) -> Subtree[ULVFactor]:
    matrix = subtree.operator
    factor = factorise(matrix, beta, SerialEngine(), levels=matrix.tree.levels(subtree.root))
    return Subtree(subtree.root, factor, np.empty((len(subtree.features), 0), np.float32))


def _factor_summary(subtree: Subtree[ULVFactor]) -> tuple[np.ndarray, int]:
    """R of the root, bytes."""
    return subtree.operator.nodes[subtree.root].R, subtree.nbytes


class _UpwardPass(NamedTuple):
    """A subtree after the way up: vectors that its root sends up, features' V by strip, and the state for the way
    down."""

    up: np.ndarray
    sums: np.ndarray
    at: TreeSweep


def _rise(subtree: Subtree[Any], V: np.ndarray) -> _UpwardPass:
    at = sweep_up(subtree.operator, subtree.root, V)
    return _UpwardPass(at.up[subtree.root], partial_products(subtree.features, V, subtree.within), at)


def _sums(risen: _UpwardPass) -> tuple[np.ndarray, np.ndarray]:
    return risen.up, risen.sums


def _fall(B: np.ndarray, subtree: Subtree[Any], risen: _UpwardPass, down: np.ndarray) -> np.ndarray:
    out = sweep_down(subtree.operator, subtree.root, risen.at, down).reshape(-1, *B.shape[1:])
    if len(B):
        subtract_product(out, subtree.features, B, subtree.within)
    return out


def _rise_features(columns: tuple[int, int], factor: Subtree[ULVFactor], subtree: Subtree[HSSMatrix]) -> _UpwardPass:
    return _rise(factor, subtree.features[:, slice(*columns)])


def _fall_features(factor: Subtree[ULVFactor], risen: _UpwardPass, down: np.ndarray) -> np.ndarray:
    return sweep_down(factor.operator, factor.root, risen.at, down).astype(np.float32)


def _with_features(factor: Subtree[ULVFactor], *strips: np.ndarray) -> Subtree[ULVFactor]:
    return Subtree(factor.root, factor.operator, np.hstack(strips))


def _inner(subtree: Subtree[HSSMatrix], inverse: Subtree[ULVFactor]) -> np.ndarray:
    return (subtree.features.T @ inverse.features).astype(np.float64)
