"""Partitions of rows by nearest centres. `balanced` makes them of equal sizes.

`fit_centres` is two-step kernel k-means: cluster a sample in feature space, then every row goes to its nearest centre.

|phi(x) - c|^2 = K(x,x) - 2/|V_c| sum_{j in V_c} K(x, x_j) + 1/|V_c|^2 sum_{i,j in V_c} K(x_i, x_j)
(Ghitta et al. 2011; Hsieh et al. 2014, section 3). k-means in input space is the same with the linear kernel,
where a centre is one vector."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from streamsvm.data.regroup import rows_by_part
from streamsvm.data.rows import Rows, concat, rows_state
from streamsvm.kernels.base import Kernel, Stationary, kernel_from
from streamsvm.kernels.inner import Linear
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.numba import njit
from streamsvm.storage.arrays import Arrays, Attrs

RESTARTS = 3
DISTANCE_BYTES = 4 << 20  # of distances that one thread holds
MOST_DENSE = 1 << 16  # columns of centres of sparse rows up to which these are dense
MOST_CENTRES = 64  # of one node: a sample of a thousand rows places no more of them well
ITERATIONS = 30
FLAT = 1e-2  # reach of a kernel that hardly distinguishes rows
SAMPLE = 1000  # rows that place the two centres


@dataclass(frozen=True)
class Centres(SizedInBytes):
    """k centres c = sum_j weights[j, c] phi(x_j), with offsets[c] = |c|^2."""

    kernel: Kernel
    rows: Rows
    weights: np.ndarray  # (m, k) float32
    offsets: np.ndarray  # (k,) float64

    @property
    def k(self) -> int:
        return len(self.offsets)

    def assign(self, rows: Rows) -> np.ndarray:
        """(n,) int32: the nearest centre of each row."""
        out = np.empty(len(rows), np.int32)
        for strip in _strips(len(rows), self.k):
            _nearest(self._products(rows.take(strip)), self.offsets, out[strip])
        return out

    def distances(self, rows: Rows) -> np.ndarray:
        """(n, k) |phi(x) - c|^2 - K(x, x)."""
        return self.offsets - 2.0 * self._products(rows)

    def _products(self, rows: Rows) -> np.ndarray:
        """<phi(x), c>, (m, k); with the linear kernel a centre is itself a row."""
        if self.kernel.is_linear:
            return self.kernel.block(rows, self.rows)
        return self.kernel.apply(rows, self.rows, self.weights)


@njit(cache=True)
def _nearest(products, offsets, out):  # out (m,) = argmin_c offsets[c] - 2 products[:, c]
    for i in range(len(out)):
        nearest, least = 0, offsets[0] - 2.0 * products[i, 0]
        for c in range(1, len(offsets)):
            distance = offsets[c] - 2.0 * products[i, c]
            if distance < least:
                nearest, least = c, distance
        out[i] = nearest


def _strips(n: int, k: int) -> Iterator[slice]:
    """Strips of n rows whose distances to k centres take DISTANCE_BYTES."""
    step = max(1, DISTANCE_BYTES // (8 * k))
    return (slice(start, start + step) for start in range(0, n, step))


def fit_centres(sample: Rows, k: int, kernel: Kernel, rng: np.random.Generator) -> Centres:
    """k-means of a sample in the feature space of `kernel`; at most k clusters, none of them empty. A kernel too narrow
    for its sample sends every far row to the most diffuse centre. It is widened to twice the length until, on the other
    half of the sample, no cluster takes more than half of the rows."""
    half = np.array_split(rng.permutation(len(sample)), 2)
    while isinstance(kernel, Stationary) and k > 2:
        trial = _fit(sample.take(half[0]), k, kernel, rng)
        counts = np.bincount(trial.assign(sample.take(half[1])), minlength=k)
        if counts.max() <= max(0.5 * len(half[1]), 1) or kernel.reach(sample) < FLAT:
            break
        kernel = kernel.widened()
    return _fit(sample, k, kernel, rng)


def _fit(sample: Rows, k: int, kernel: Kernel, rng: np.random.Generator) -> Centres:
    labels = kernel_kmeans(kernel.block(sample, sample), k, rng)
    members = (labels[:, None] == np.unique(labels)).astype(np.float32)
    weights = members / members.sum(axis=0)
    if kernel.is_linear:
        sample, weights = _means(sample, weights), np.eye(weights.shape[1], dtype=np.float32)
    products = kernel.apply(sample, sample, weights)
    return Centres(kernel, sample, weights, np.einsum("jc,jc->c", weights.astype(np.float64), products))


def _means(sample: Rows, weights: np.ndarray) -> Rows:
    """(k, d) float32 of weights (m, k); sparse where rows are, and too wide to be dense."""
    if sample.is_sparse and sample.d > MOST_DENSE:
        return Rows(sparse.csr_array(sparse.csr_array(weights.T) @ sample.X.astype(np.float32)))
    return Rows(np.ascontiguousarray(weights.T @ sample.dense().astype(np.float32)))


def kernel_kmeans(K: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Labels (m,) in 0..k-1 that (locally) minimise the within-cluster scatter in feature space; best of RESTARTS. K:
    (m, m) kernel matrix of the sample."""
    k = min(k, len(K))
    runs = [_lloyd(K, _seed(K, k, rng), k) for _ in range(RESTARTS)]
    return min(runs, key=lambda run: run[1])[0]


def _seed(K: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """k-means++ in feature space: centres drawn with probability by squared distance to the nearest one so far."""
    diag = np.diag(K).astype(np.float64)
    chosen = [int(rng.integers(len(K)))]
    nearest = np.maximum(diag + diag[chosen[0]] - 2 * K[:, chosen[0]], 0)
    while len(chosen) < k and nearest.sum() > 0:
        chosen.append(int(rng.choice(len(K), p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, np.maximum(diag + diag[chosen[-1]] - 2 * K[:, chosen[-1]], 0))
    distances = diag[chosen] - 2 * K[:, chosen]
    return np.argmin(distances, axis=1)


def _lloyd(K: np.ndarray, labels: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """Labels and scatter after at most ITERATIONS rounds; a cluster that runs empty takes the worst-placed row."""
    for _ in range(ITERATIONS):
        members = (labels[:, None] == np.arange(k)).astype(np.float32)
        sizes = np.maximum(members.sum(axis=0), 1)
        products = K @ members / sizes  # (m, k)
        offsets = np.einsum("jc,jc->c", members, products) / sizes
        distances = np.diag(K)[:, None] + offsets - 2 * products
        updated = _fill_empty(np.argmin(distances, axis=1), distances, k)
        if np.array_equal(updated, labels):
            break
        labels = updated
    return labels, float(distances[np.arange(len(K)), labels].sum())


def _fill_empty(labels: np.ndarray, distances: np.ndarray, k: int) -> np.ndarray:
    sizes = np.bincount(labels, minlength=k)
    to_centre = distances[np.arange(len(labels)), labels]
    for empty in np.flatnonzero(sizes == 0):
        candidates = np.where(sizes[labels] > 1, to_centre, -np.inf)
        worst = int(np.argmax(candidates))
        if not candidates[worst] > 1e-7:  # fewer distinct rows than clusters
            break
        sizes[labels[worst]] -= 1
        labels[worst], sizes[empty], to_centre[worst] = empty, 1, 0.0
    return labels


@dataclass(frozen=True)
class Partition(SizedInBytes):
    """A tree of centres: each row ends in one partition, 0..n_parts-1. nodes[i] is the i-th inner node; children[i][c]
    is a partition (>= 0) or, if negative, inner node ~children[i][c]."""

    nodes: tuple[Centres, ...]
    children: tuple[tuple[int, ...], ...]

    def assign(self, rows: Rows) -> np.ndarray:
        """(n,) int32: the partition of each row."""
        parts = np.zeros(len(rows), np.int32)
        if self.nodes:
            self._descend(0, rows, np.arange(len(rows)), parts)
        return parts

    @property
    def depth(self) -> int:
        """Maximum number of nodes that a row goes through: the rounds that the tree was made in."""
        depths = [0] * len(self.nodes)
        for node, children in reversed(list(enumerate(self.children))):
            depths[node] = 1 + max((depths[~c] for c in children if c < 0), default=0)
        return depths[0] if depths else 0

    def nearest(self, rows: Rows, m: int) -> np.ndarray:
        """(n, m) int32: the partition of each row, then those with the nearest centres, by centres in input space;
        fewer columns if there are fewer partitions."""
        parts = self.assign(rows)[:, None]
        leaves = [
            (node, c, part)
            for node, children in zip(self.nodes, self.children, strict=True)
            for c, part in enumerate(children)
            if part >= 0 and np.isfinite(node.offsets[c])
        ]
        m = min(m, len(leaves))
        if m <= 1:
            return parts
        numbers = np.array([part for _, _, part in leaves], np.int32)
        centres = _joined([(node, c) for node, c, _ in leaves])
        out = np.empty((len(rows), m), np.int32)
        for strip in _strips(len(rows), centres.k):
            distances = centres.distances(rows.take(strip))
            distances[numbers == parts[strip]] = -np.inf
            out[strip] = numbers[np.argsort(distances, axis=1, kind="stable")[:, :m]]
        return out

    def _descend(self, node: int, rows: Rows, ids: np.ndarray, parts: np.ndarray) -> None:
        below = self.nodes[node].assign(rows)
        targets = np.asarray(self.children[node], np.int32)[below]
        parts[ids] = targets
        for child in (c for c in self.children[node] if c < 0):
            members = np.flatnonzero(targets == child)
            if len(members):
                self._descend(~child, rows.take(members), ids[members], parts)


def by_their_part(parts: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each partition that has rows, and their numbers, both rising, from the partitions of rows (n,) or (n, m)."""
    for part, ids in zip(*rows_by_part(parts.ravel()), strict=True):
        yield part, ids // (parts.size // len(parts))


def _joined(centres: list[tuple[Centres, int]]) -> Centres:
    """One of centres in input space, from nodes and the numbers of their centres."""
    rows = concat([node.rows.take(np.array([c])) for node, c in centres])
    offsets = np.array([node.offsets[c] for node, c in centres])
    return Centres(centres[0][0].kernel, rows, np.eye(len(rows), dtype=np.float32), offsets)


def partition_state(partition: Partition) -> tuple[dict[str, np.ndarray], list[Attrs]]:
    """Arrays of all nodes one after another, and attributes by which `partition_from_state` separates them."""
    nodes = partition.nodes
    if not nodes:
        return {}, []
    blocks = [rows_state("node_rows", node.rows) for node in nodes]
    arrays = {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}
    arrays["node_weights"] = np.concatenate([node.weights.ravel() for node in nodes])
    arrays["node_offsets"] = np.concatenate([node.offsets for node in nodes])
    attrs = [
        {"kernel": node.kernel.to_attrs(), "m": len(node.rows), "children": list(children)}
        for node, children in zip(nodes, partition.children, strict=True)
    ]
    return arrays, attrs


def partition_from_state(arrays: Arrays, attrs: list[Attrs], d: int) -> Partition:
    loaded = {key: np.asarray(arrays[key]) for key in arrays if key.startswith("node_")}
    nodes = tuple(_nodes_from(loaded, attrs, d))
    return Partition(nodes, tuple(tuple(node["children"]) for node in attrs))


def _nodes_from(loaded: dict[str, np.ndarray], attrs: list[Attrs], d: int) -> Iterator[Centres]:
    row = entry = weight = offset = 0
    for number, node in enumerate(attrs):
        m, k = node["m"], len(node["children"])
        if "node_rows" in loaded:
            rows = Rows(loaded["node_rows"][row : row + m])
        else:
            indptr = loaded["node_rows_indptr"][row + number : row + number + m + 1]
            entries = slice(entry, entry + int(indptr[-1]))
            data, indices = loaded["node_rows_data"][entries], loaded["node_rows_indices"][entries]
            rows = Rows(sparse.csr_array((data, indices, indptr), shape=(m, d)))
        weights = loaded["node_weights"][weight : weight + m * k].reshape(m, k)
        kernel = kernel_from(node["kernel"])
        yield Centres(kernel, rows, weights, loaded["node_offsets"][offset : offset + k])
        if rows.is_sparse:
            entry = entries.stop
        row, weight, offset = row + m, weight + m * k, offset + k


def balanced(sample: Rows, n_parts: int, rng: np.random.Generator) -> Partition:
    """At most n_parts partitions of about equal numbers of rows, by a sample of them; fewer if its rows are too similar
    to be separated. By repeated 2-means, whose borders are moved to halve the rows."""
    halves = _GrowingTree()
    halves.divide(sample, n_parts, rng)
    return Partition(tuple(halves.nodes), tuple(halves.children))


class _GrowingTree:
    """A partition under construction: a node comes before those below it."""

    def __init__(self) -> None:
        self.nodes: list[Centres] = []
        self.children: list[tuple[int, ...]] = []
        self._n_parts = 0

    def divide(self, rows: Rows, n_parts: int, rng: np.random.Generator) -> int:
        """The child that these rows become, see `Partition.children`: a partition, or ~ a node with two sides."""
        halves = _halved(rows, n_parts, rng) if n_parts > 1 else None
        if halves is None:
            self._n_parts += 1
            return self._n_parts - 1
        centres, is_first = halves
        number, share = len(self.nodes), round(n_parts * float(is_first.mean()))
        share = min(max(share, 1), n_parts - 1)
        self.nodes.append(centres)
        self.children.append(())
        sides = ((is_first, share), (~is_first, n_parts - share))
        self.children[number] = tuple(self.divide(rows.take(np.flatnonzero(side)), parts, rng) for side, parts in sides)
        return ~number


def _halved(rows: Rows, n_parts: int, rng: np.random.Generator) -> tuple[Centres, np.ndarray] | None:
    """Two centres with a border between them, and the rows (m,) of the first; None if nothing separates the rows."""
    few = np.sort(rng.choice(len(rows), min(SAMPLE, len(rows)), replace=False))
    centres = fit_centres(rows.take(few), 2, Linear(), rng)
    if centres.k < 2:
        return None
    lead = np.subtract(*centres.distances(rows).T[::-1])  # of the first centre
    ordered = np.sort(lead)
    places = np.flatnonzero(ordered[:-1] < ordered[1:]) + 1  # between rows that differ
    if not len(places):
        return None
    wanted = len(rows) * (n_parts // 2) / n_parts  # of the second side
    place = places[np.argmin(np.abs(places - wanted))]
    border = (ordered[place - 1] + ordered[place]) / 2
    return replace(centres, offsets=centres.offsets - [0.0, border]), lead >= border
