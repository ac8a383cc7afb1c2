"""Compression: bases from entries in near and random columns, no n x n block ever formed (HSS-ANN); its
options, and its size in bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.events import Events, ignore
from streamsvm.hss.matrix import HSSMatrix
from streamsvm.hss.tree import ClusterTree, level_of
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import MiB, process_bytes
from streamsvm.storage.text import human_bytes

COLUMNS = 128  # sampled at first; their number doubles while fresh columns show an error
MOST_COLUMNS = 8  # for each row of a block
FEW_COLUMNS = 4096  # at most, of small blocks
SLACK = 3.0  # the error on fresh columns may be so many times the tolerance
GRAM_RTOL = 1e-6  # finer tolerances need QR: a Gram matrix has singular values down to 1e-8 of the largest
TIGHTER = 0.25  # times the tolerances, where a definite basis has a larger error than a fitted one
FINE, FINEST = 1e-14, 1e-200  # an rtol next to which pivots are rounding, and one that takes every row but zeros
JITTERS = (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 1e3)  # of the largest entry, where a skeleton's block is inverted
TINY = 1e-290  # a first pivot below it is zero: its inverse would overflow

Entries = Callable[[np.ndarray, np.ndarray], np.ndarray]
OnLevel = Callable[[int, int, np.ndarray], None]


@dataclass(frozen=True)
class Tolerances:
    """The end of a basis, and how it interpolates.

    A basis has at most max_rank columns, and none whose pivot (the norm of a row's residual) is below rtol of the first
    or below atol for each entry in root mean square. It is computed from at least twice as many columns of the far
    block, and its error on others is at most SLACK times the tolerance, unless max_rank ends it.

    definite: a node's rows I are K(I, J) K(J, J)^-1 times the rows of its skeleton J, which keeps every positive
    semidefinite matrix so, however coarse; else they are a least squares fit over the sampled columns, whose error can
    follow a finer rtol, and which is indefinite by that error. None: the caller of `compress` decides; `compress`
    itself takes it as False.

    tightens: a definite basis, whose error can exceed that of a fitted one, becomes finer until it is accurate, too.
    noise: rounding of the entries, added to the diagonal of K(J, J). dtype: of the matrix's numbers."""

    rtol: float
    atol: float | None  # None: `approximate` decides; 0 for `compress`
    max_rank: int
    definite: bool | None = True
    tightens: bool = False
    noise: float = 0.0
    dtype: np.dtype = np.dtype(np.float64)

    def times(self, factor: float) -> Tolerances:
        """With rtol and atol times this factor."""
        return replace(self, rtol=factor * self.rtol, atol=None if self.atol is None else factor * self.atol)


class Sampling(NamedTuple):
    """The columns that represent a node's far block: the neighbours of its rows outside of it, and random ones."""

    ids: np.ndarray  # (n, k) neighbours of each row, as `nearest_neighbours` finds them; -1: none
    sq_distances: np.ndarray  # (n, k)
    seed: list[int]
    rows: np.ndarray | None = None  # whose neighbours these are, rising; None: of all rows

    def among(self, rows: np.ndarray) -> Sampling:
        """The sampling of these rows only, which rise."""
        return Sampling(self.ids[rows], self.sq_distances[rows], self.seed, rows)

    def of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours of these rows, and squared distances."""
        at = rows if self.rows is None else np.searchsorted(self.rows, rows)
        return self.ids[at], self.sq_distances[at]


@dataclass(frozen=True)
class Nodes:
    """Nodes of a tree by level, the lowest first; below: skeletons of the nodes under them."""

    tree: ClusterTree
    levels: Sequence[range]
    below: dict[int, np.ndarray]


def compress(
    entries: Entries,
    tree: ClusterTree,
    sampling: Sampling,
    tolerances: Tolerances,
    engine: Engine,
    *,
    events: Events = ignore,
    on_level: OnLevel = lambda level, nbytes, ranks: None,
) -> HSSMatrix:
    """The symmetric matrix entries(rows, columns) approximated, ids in tree order. Chavez et al. 2020 (HSS-ANN): a
    node's skeleton is chosen by an interpolative decomposition from those of the nodes below. on_level(level, bytes so
    far, ranks) is called after each level, the leaves' first; what it raises ends the compression."""
    shared = engine.share(entries), engine.share(sampling)
    nodes = Nodes(tree, tree.levels(), {})
    return compress_nodes(shared, nodes, tolerances, engine, events=events, on_level=on_level)[0]


def compress_nodes(
    shared: tuple[Any, Any],
    nodes: Nodes,
    tolerances: Tolerances,
    engine: Engine,
    *,
    events: Events = ignore,
    on_level: OnLevel = lambda level, nbytes, ranks: None,
) -> tuple[HSSMatrix, dict[int, np.ndarray]]:
    """The blocks of some nodes, and all skeletons; shared: entries and sampling, as the engine shares them."""
    dtype, every = tolerances.dtype, partial(engine.map, events=events, window=16 * engine.slots)
    tree, skeletons = nodes.tree, dict(nodes.below)
    matrix = HSSMatrix(tree, {}, {}, {})

    def rows_of(node: int) -> np.ndarray:
        if tree.is_leaf(node):
            return np.arange(*tree.span(node))
        return np.concatenate([skeletons[2 * node + 1], skeletons[2 * node + 2]])

    for level in nodes.levels:
        number = level_of(level.start)
        phase = f"compress level {number}"
        if number == tree.depth:
            leaves = [rows_of(leaf) for leaf in level]
            blocks = every(partial(_block, dtype), leaves, leaves, shared=shared[:1], phase=phase)
            matrix.D.update(zip(level, blocks, strict=True))
        else:
            left, right = ([skeletons[2 * node + side] for node in level] for side in (1, 2))
            blocks = every(partial(_block, dtype), left, right, shared=shared[:1], phase=phase)
            matrix.B.update(zip(level, blocks, strict=True))
        if number > 0:
            basis = partial(_basis, tree, tolerances)
            bases = every(basis, level, map(rows_of, level), shared=shared, phase=phase)
            for node, (skeleton, P) in zip(level, bases, strict=True):
                skeletons[node], matrix.P[node] = skeleton, P
            on_level(number, matrix.nbytes, np.array([len(skeletons[node]) for node in level]))
    return matrix, skeletons


def _block(dtype: np.dtype, entries: Entries, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return entries(a, b).astype(dtype)


def _basis(
    tree: ClusterTree, tolerances: Tolerances, entries: Entries, sampling: Sampling, node: int, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A node's skeleton, some of `rows`, and its basis P."""
    columns = _Columns(tree, node, sampling, rows)
    J, P = _interpolated(entries, rows, columns, tolerances)
    return rows[J], np.ascontiguousarray(P, tolerances.dtype)


class _Columns:
    """The columns of a node's far block, nearest first. rows: of the node."""

    def __init__(self, tree: ClusterTree, node: int, sampling: Sampling, rows: np.ndarray) -> None:
        self._start, self._stop = tree.span(node)
        self.outside = tree.n - (self._stop - self._start)
        self._rng = np.random.default_rng([*sampling.seed, node])
        ids, sq_distances = sampling.of(rows)
        is_far = (ids >= 0) & ((ids < self._start) | (ids >= self._stop))
        ids = ids[is_far][np.argsort(sq_distances[is_far], kind="stable")]
        self._near = ids[np.sort(np.unique(ids, return_index=True)[1])]
        self._taken = 0

    def take(self, count: int) -> np.ndarray:
        """About `count` columns, half of them the nearest not taken yet; all once that many have been taken."""
        self._taken += count
        if self._taken >= self.outside:
            return np.delete(np.arange(self.outside + self._stop - self._start), slice(self._start, self._stop))
        near, self._near = self._near[: count // 2], self._near[count // 2 :]
        far = self._rng.integers(self.outside, size=count - len(near))
        return np.union1d(near, np.where(far < self._start, far, far + self._stop - self._start))


def _interpolated(
    entries: Entries, rows: np.ndarray, columns: _Columns, tolerances: Tolerances
) -> tuple[np.ndarray, np.ndarray]:
    """Positions J of the skeleton among rows, and P (m, r): K(rows, far) is about P K(rows[J], far)."""
    most = max(MOST_COLUMNS * len(rows), FEW_COLUMNS)
    seen, wanted = entries(rows, columns.take(COLUMNS)), tolerances
    is_tightened = bool(tolerances.definite) and tolerances.tightens
    while True:
        J, P = row_interpolation(seen, wanted)
        if is_tightened:
            P = _kernel_interpolation(entries, rows, J, tolerances.noise)
        sees_all = seen.shape[1] == columns.outside
        is_oversampled = sees_all or 2 * len(J) <= seen.shape[1]
        is_full = len(J) == min(len(rows), tolerances.max_rank)
        if seen.shape[1] >= most or (is_oversampled and (is_full or (sees_all and not is_tightened))):
            break
        new = seen if sees_all else entries(rows, columns.take(seen.shape[1]))
        # a fitted basis is known to be accurate on the columns seen
        blocks = (seen, new) if is_tightened and not sees_all else (new,)
        is_accurate = all(_is_accurate(block, J, P, tolerances) for block in blocks)
        is_finest = sees_all and wanted.rtol <= FINEST
        if is_oversampled and (is_accurate or is_finest):
            break
        if is_tightened and is_oversampled:
            wanted = wanted.times(TIGHTER if wanted.rtol > FINE else FINEST)
        if not sees_all:
            seen = new if new.shape[1] == columns.outside else np.concatenate([seen, new], axis=1)
    return J, _kernel_interpolation(entries, rows, J, tolerances.noise) if tolerances.definite else P


def _is_accurate(block: np.ndarray, J: np.ndarray, P: np.ndarray, tolerances: Tolerances) -> bool:
    """Whether the error of P on these columns is what the tolerances allow, and some slack."""
    allowed = max(tolerances.rtol * np.linalg.norm(block), (tolerances.atol or 0.0) * np.sqrt(block.size))
    return bool(np.linalg.norm(block - P @ block[J]) <= SLACK * allowed)


def _kernel_interpolation(entries: Entries, rows: np.ndarray, J: np.ndarray, noise: float) -> np.ndarray:
    """P = K(rows, J) K(J, J)^-1: the remainder K - P K(J, J) P' is a Schur complement, semidefinite as K is. So it is
    with a larger diagonal of K(J, J), which rounding may require. Raises ConfigError if no jitter is enough."""
    skeleton_rows = entries(rows[J], rows)
    K = skeleton_rows[:, J]
    diagonal, size = K.diagonal().copy(), max(float(np.abs(skeleton_rows).max()), 1e-300)
    for jitter in JITTERS:
        K.flat[:: len(K) + 1] = diagonal + jitter * size + noise
        factor, failed = lapack.dpotrf(K, lower=1)
        if not failed and np.isfinite(size):
            return lapack.dpotrs(factor, skeleton_rows, lower=1)[0].T
    raise ConfigError(
        f"the kernel matrix cannot be compressed: that of {len(J)} rows is not positive definite, even with "
        f"{JITTERS[-1]:g} times its largest value, {size:.3g}, on the diagonal; scale the features, or take another "
        "kernel or solver dcsvm"
    )


def row_interpolation(A: np.ndarray, tolerances: Tolerances) -> tuple[np.ndarray, np.ndarray]:
    """(rows J, P): A (m, s) is about P A[J], P[J] the identity: a pivoted QR of A' (Cheng et al. 2005)."""
    floor = (tolerances.atol or 0.0) * np.sqrt(A.shape[1])
    if tolerances.rtol >= GRAM_RTOL:
        R, pivots, sizes = _pivoted_gram(A, tolerances.rtol, floor)
    else:
        R, pivots = qr(A.T, mode="r", pivoting=True, check_finite=False)
        sizes = np.abs(np.diag(R))
    small = sizes <= max(floor, tolerances.rtol * sizes[0])
    end = int(np.argmax(small)) if small.any() else len(sizes)
    rank = max(1, min(end, tolerances.max_rank))
    P = np.zeros((len(A), rank))
    P[pivots[:rank]] = np.eye(rank)
    if sizes[0] > TINY:
        P[pivots[rank:]] = solve_triangular(R[:rank, :rank], R[:rank, rank:], check_finite=False).T
    return pivots[:rank], P


def _pivoted_gram(A: np.ndarray, rtol: float, floor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """R, pivots and their sizes as of a pivoted QR of A', by Cholesky of A A': at the rate of products."""
    G = A @ A.T
    tol = max(floor**2, rtol**2 * float(G.diagonal().max()))
    R, pivots, rank, _ = lapack.dpstrf(G, lower=0, tol=tol, overwrite_a=1)
    sizes = np.abs(np.diag(R))
    sizes[rank:] = 0.0
    return R, pivots - 1, sizes


@dataclass(frozen=True)
class HSSOptions:
    """The tolerances, rows of a leaf, neighbours of a row, landmarks (0: none). single: matrix and factor are float32.

    tolerances.atol is relative to the mean of K's diagonal. If it is None, rtol is the error of the whole matrix,
    |K~ - K| / |K| in the Frobenius norm, and the tolerances of the bases follow from it."""

    tolerances: Tolerances
    leaf_rows: int = 128
    neighbours: int = 32
    landmarks: int = 256
    seed: int = 0
    single: bool = False

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.single else np.float64)


def least_bytes(n: int, options: HSSOptions) -> int:
    """Of the diagonal blocks and their factors, neighbours and landmarks, whatever the ranks."""
    leaf = max(1, n // 2 ** ClusterTree.of(n, options.leaf_rows).depth)
    return n * 2 * leaf * options.dtype.itemsize + fixed_bytes(n, options)


def fixed_bytes(n: int, options: HSSOptions) -> int:
    """Of neighbours, and of the features Z of landmarks and W of the inverse."""
    return n * (8 * options.neighbours + 8 * options.landmarks)


class Budget:
    """Bytes that matrix and factor of n rows will take, estimated from the ranks so far. limit_bytes: of this process,
    None: no limit; with of_worker the share of a worker's memory for a subtree."""

    def __init__(self, n: int, options: HSSOptions, limit_bytes: int | None, *, of_worker: bool = False) -> None:
        self._n, self._options, self._limit = n, options, limit_bytes
        self._in_use = 0 if of_worker else process_bytes()
        self._whose = "the workers' memory for each subtree" if of_worker else "a memory limit"
        self._factor = 0.0
        if limit_bytes is not None:
            self._require(least_bytes(n, options), "before the first rank is known")

    def check(self, level: int, nbytes: int, ranks: np.ndarray) -> None:
        """Raises MemoryLimitError if the levels above will not fit at ranks like these."""
        if self._limit is None:
            return
        itemsize, nodes = self._options.dtype.itemsize, len(ranks)
        rank = float(ranks.mean())
        rows = self._n / nodes if self._factor == 0 else 2 * rank
        self._factor += nodes * itemsize * (rows**2 + rows * rank)
        # half as many nodes of 2 r rows on the next level, with B, P, Linv and Q; and half as many again on each other
        above = nodes * itemsize * 9 * rank**2
        when = f"a mean rank of {rank:.0f} and a maximum of {ranks.max()} at level {level}"
        self._require(int(nbytes + self._factor + above + fixed_bytes(self._n, self._options)), when)

    def _require(self, needed: int, when: str) -> None:
        assert self._limit is not None
        total = self._in_use + needed
        if total > self._limit:
            raise MemoryLimitError(
                f"{self._whose} of {human_bytes(self._limit)} is too small for the compressed kernel "
                f"matrix of {self._n} rows ({when}): give about {-(-total // MiB)} MiB, a larger "
                "admm_hss.rtol, a smaller admm_hss.max_rank or admm_hss.storage float32"
            )
