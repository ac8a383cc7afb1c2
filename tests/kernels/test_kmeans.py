"""Kernel k-means against its definition; partitions keep their bound whatever the rows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.samples import SampleBlocks, SamplesInMemory
from streamsvm.data.vectors import VectorFactory, VectorInMemory
from streamsvm.kernels import division, kmeans
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF, Cauchy, Laplacian, Matern
from streamsvm.kernels.division import (
    PartitionOptions,
    TreeGrowth,
    before_each,
    leaf_counts,
    most_rounds,
    partition,
    relabelled,
    rows_of_ranks,
)
from streamsvm.kernels.inner import Linear, Poly
from streamsvm.kernels.kmeans import (
    Centres,
    Partition,
    fit_centres,
    kernel_kmeans,
    partition_from_state,
    partition_state,
)
from streamsvm.parallel.engine import Engine

GAUSS, LINEAR = RBF(0.5), Linear()
ENGINE = Engine(2)


def blobs(n=120, k=4, d=3, seed=0, spread=0.1) -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, k, n)
    return Rows((4 * np.eye(k, d + k)[truth] + spread * rng.normal(size=(n, d + k))).astype(np.float32)), truth


def same_grouping(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two labellings are the same up to names."""
    pairs = np.unique(np.stack([a, b]), axis=1).shape[1]
    return pairs == len(np.unique(a)) == len(np.unique(b))


@pytest.mark.parametrize("kernel", [GAUSS, LINEAR], ids=["rbf", "linear"])
def test_finds_separate_blobs(kernel):
    rows, truth = blobs()
    labels = kernel_kmeans(kernel.block(rows, rows), 4, np.random.default_rng(0))
    assert same_grouping(labels, truth)


def test_labels_are_a_local_minimum_of_the_scatter():
    """Every row is nearest to the mean of its own cluster, by the definition, and beats a random labelling."""
    rows = Rows(np.random.default_rng(1).normal(size=(80, 2)).astype(np.float32))
    K = reference.kernel_matrix(GAUSS, rows.X, rows.X)
    labels = kernel_kmeans(K.astype(np.float32), 5, np.random.default_rng(0))
    distances = np.stack(
        [reference.feature_distances(K, np.diag(K), (np.flatnonzero(labels == c), K)) for c in range(5)],
        axis=1,
    )
    to_centre = distances[np.arange(80), labels]
    assert np.all(to_centre <= distances.min(axis=1) + 1e-5)
    shuffled = np.random.default_rng(2).permutation(labels)
    assert reference.scatter(K, labels) < 0.9 * reference.scatter(K, shuffled)


@pytest.mark.parametrize("seed", range(5))
def test_no_cluster_is_empty_where_rows_differ(seed):
    """Ten far copies of one row and seven single ones: random starts often leave clusters empty."""
    X = np.concatenate([np.full((30, 1), 50.0), np.arange(7.0)[:, None]]).astype(np.float32)
    K = RBF(1.0).block(Rows(X), Rows(X))
    labels = kernel_kmeans(K, 8, np.random.default_rng(seed))
    assert np.bincount(labels, minlength=8).min() >= 1


def test_fewer_distinct_rows_than_clusters():
    X = np.repeat(np.array([[0.0], [1.0]], np.float32), 10, axis=0)
    labels = kernel_kmeans(GAUSS.block(Rows(X), Rows(X)), 6, np.random.default_rng(0))
    assert len(np.unique(labels[:10])) == len(np.unique(labels[10:])) == 1
    assert labels[0] != labels[10]


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kernel", [GAUSS, LINEAR, Poly(0.3, 2, 1.0)], ids=["rbf", "linear", "poly"])
def test_assignment_is_the_nearest_centre_by_definition(kernel, layout):
    rng = np.random.default_rng(3)
    wrap = sparse.csr_array if layout == "csr" else np.asarray
    sample = Rows(wrap(rng.normal(size=(60, 3)).astype(np.float32)))
    others = Rows(wrap(rng.normal(size=(200, 3)).astype(np.float32)))
    centres = fit_centres(sample, 4, kernel, np.random.default_rng(0))
    kernel = centres.kernel  # an rbf kernel may have been widened
    nearest = centres.assign(sample)
    K_sample = reference.kernel_matrix(kernel, sample.X, sample.X)
    K = reference.kernel_matrix(kernel, others.X, sample.X)
    diag = np.diag(reference.kernel_matrix(kernel, others.X, others.X))
    distances = [reference.feature_distances(K, diag, (np.flatnonzero(nearest == c), K_sample)) for c in range(4)]
    best = np.stack(distances, axis=1)
    assigned = centres.assign(others)
    # the sample's own clusters are those of the last iteration: rows on a border may differ
    assert np.mean(assigned == best.argmin(axis=1)) > 0.95


@pytest.mark.parametrize("kernel", [RBF(1000.0), Laplacian(300.0), Matern(300.0, 1.5), Cauchy(1e9)], ids=str)
def test_a_kernel_too_narrow_for_the_data_is_widened(kernel):
    rows = Rows(np.random.default_rng(0).normal(size=(400, 10)).astype(np.float32))
    centres = fit_centres(rows, 16, kernel, np.random.default_rng(0))
    assert centres.kernel.gamma < kernel.gamma
    assert type(centres.kernel) is type(kernel)
    assert np.bincount(centres.assign(rows), minlength=16).max() <= 250


def divide(
    rows: Rows, n_parts: int, max_rows: int, kernel: Kernel = LINEAR, folder: Path | None = None, **options
) -> tuple[Partition, np.ndarray]:
    samples = SamplesInMemory(rows)
    tree, parts, sizes = partition(
        SampleBlocks(samples, ENGINE),
        ENGINE,
        PartitionOptions(n_parts, max_rows, 50, kernel),
        np.random.default_rng(0),
        VectorFactory(samples.blocks(), folder),
        **options,
    )
    np.testing.assert_array_equal(sizes, np.bincount(parts.all()))
    return tree, parts.all()


def check_partition(tree: Partition, parts: np.ndarray, rows: Rows, max_rows: int) -> None:
    counts = np.bincount(parts)
    assert len(parts) == len(rows)
    assert counts.max() <= max_rows
    assert counts.min() > 0
    routed = tree.assign(rows)
    assert routed.max() < len(counts)
    differ = np.flatnonzero(routed != parts)
    for part in np.unique(routed[differ]):  # pieces cut by position: they are routed to the first of them
        group = np.flatnonzero(routed == part)
        assert len(group) > max_rows


@settings(max_examples=40)
@given(
    X=hnp.arrays(np.float32, st.tuples(st.integers(1, 200), st.integers(1, 3)), elements=st.integers(-4, 4)),
    n_parts=st.integers(1, 9),
    max_rows=st.integers(1, 60),
    kernel=st.sampled_from([LINEAR, GAUSS, RBF(100.0)]),
)
def test_the_bound_holds_with_duplicates_and_any_shape(X, n_parts, max_rows, kernel):
    rows = Rows(X)
    tree, parts = divide(rows, n_parts, max_rows, kernel)
    check_partition(tree, parts, rows, max_rows)


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("kernel", [GAUSS, LINEAR], ids=["rbf", "linear"])
def test_partition_of_continuous_rows_routes_them_as_trained(kernel, layout):
    X = np.random.default_rng(5).normal(size=(900, 4)).astype(np.float32)
    rows = Rows(sparse.csr_array(X) if layout == "csr" else X)
    tree, parts = divide(rows, 8, 150, kernel)
    assert 8 <= parts.max() + 1
    assert np.bincount(parts).max() <= 150
    np.testing.assert_array_equal(tree.assign(rows), parts)


def test_after_the_last_round_parts_are_cut_by_position(monkeypatch):
    """Rows far out take a centre each, so the others come to their parts late."""
    X = 10.0 ** np.random.default_rng(0).uniform(-8, 8, (900, 1)).astype(np.float32)
    wanted = PartitionOptions(2, 30, 50, LINEAR)
    depths = []
    for more in (4, 0):
        monkeypatch.setattr(division, "MORE_ROUNDS", more)
        tree, parts = divide(Rows(X), 2, 30)
        check_partition(tree, parts, Rows(X), 30)
        depths.append(tree.depth)
        assert tree.depth <= most_rounds(900, wanted) == 1 + more
    assert depths[0] > depths[1]


@settings(max_examples=25)
@given(seed=st.integers(0, 99), n_parts=st.integers(1, 9), max_rows=st.integers(20, 200), m=st.integers(1, 12))
def test_nearest_parts_are_those_with_the_nearest_centres(seed, n_parts, max_rows, m):
    rows = Rows(np.random.default_rng(seed).normal(size=(300, 3)).astype(np.float32))
    tree, parts = divide(rows, n_parts, max_rows)
    centres = np.full((parts.max() + 1, 3), np.inf)
    for node, children in zip(tree.nodes, tree.children, strict=True):
        for centre, part in zip(node.rows.X, children, strict=True):
            if part >= 0 and np.any(parts == part):
                centres[part] = centre
    nearest, assigned = tree.nearest(rows, m), tree.assign(rows)
    assert nearest.shape == (300, min(m, len(centres)))
    np.testing.assert_array_equal(nearest[:, 0], assigned)
    distances = ((rows.X[:, None] - centres) ** 2).sum(axis=2) if len(centres) > 1 else np.zeros((300, 1))
    distances[np.arange(300), assigned] = -1
    np.testing.assert_allclose(
        np.take_along_axis(distances, nearest.astype(int), axis=1),
        np.sort(distances, axis=1)[:, : nearest.shape[1]],
        rtol=1e-4,
        atol=1e-5,
    )


def test_parts_are_numbered_from_the_largest_down():
    rows, _ = blobs(n=500)
    _, parts = divide(rows, 8, 1000)
    assert np.all(np.diff(np.bincount(parts)) <= 0)


def test_one_part_where_nothing_asks_for_more():
    rows, _ = blobs()
    tree, parts = divide(rows, 1, 1000)
    assert not parts.any()
    assert tree.nodes == ()
    assert not tree.assign(rows).any()


def test_identical_rows_are_cut_by_position():
    rows = Rows(np.ones((100, 2), np.float32))
    tree, parts = divide(rows, 4, 30)
    assert np.bincount(parts).max() <= 30
    assert len(np.unique(tree.assign(rows))) == 1


def test_candidates_alone_are_sampled():
    """Centres from the rows of one blob: the other blobs fall to them, none gets its own centre."""
    rows, truth = blobs(n=400, k=2)
    only = np.flatnonzero(truth == 0)
    tree, _ = divide(rows, 4, 1000, candidates=only)
    centres = tree.nodes[0].rows.X
    near = rows.X[only].mean(axis=0)
    assert np.abs(centres - near).max() < 1.0


def test_seeds_decide():
    rows = Rows(np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32))
    np.testing.assert_array_equal(divide(rows, 8, 100)[1], divide(rows, 8, 100)[1])


def test_an_empty_centre_takes_no_rows():
    centres = Centres(LINEAR, Rows(np.eye(2, dtype=np.float32)), np.eye(2, dtype=np.float32), np.array([np.inf, 1.0]))
    assert not np.any(centres.assign(Rows(np.ones((5, 2), np.float32))) == 0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 200), st.integers(1, 9), st.integers(1, 60))
def test_rows_are_found_by_their_rank_in_a_part(seed, n, n_parts, step):
    rng = np.random.default_rng(seed)
    parts = rng.integers(0, n_parts, n).astype(np.int32)
    ranks = {}
    for part, count in enumerate(np.bincount(parts)):
        if count and rng.random() < 0.7:
            ranks[part] = np.sort(rng.choice(count, rng.integers(1, count + 1), replace=False))
    blocks = [(start, min(n, start + step)) for start in range(0, n, step)]
    X = np.arange(n, dtype=np.float32)[:, None]
    pieces = [Rows(X[lo:hi]) for lo, hi in blocks]
    seen = before_each(np.array([np.bincount(parts[lo:hi], minlength=n_parts)[list(ranks)] for lo, hi in blocks]))
    drawn = rows_of_ranks(VectorInMemory(parts), pieces, blocks, ranks, seen, ENGINE) if ranks else []
    for (part, own), rows in zip(ranks.items(), drawn, strict=True):
        np.testing.assert_array_equal(rows.X[:, 0], np.flatnonzero(parts == part)[own])


@pytest.mark.parametrize(("in_memory", "most"), [(False, 4), (True, 40)])
@pytest.mark.parametrize("count_bytes", [0, 1 << 20])
def test_samples_are_of_a_few_blocks(monkeypatch, count_bytes, in_memory, most):
    """A leaf whose rows all lie in another block is sampled from that one."""
    monkeypatch.setattr(division, "FEW_BLOCKS", 4)
    monkeypatch.setattr(division, "COUNT_BYTES", count_bytes)
    monkeypatch.setattr(division, "SAMPLED", 8)
    block = np.arange(16_000) // 400
    X = np.stack([1e-3 * block, 1e3 * (block == 39)], axis=1).astype(np.float32)
    blocks = [(start, start + 400) for start in range(0, len(X), 400)]
    rows = [Rows(X[lo:hi]) for lo, hi in blocks]

    def blocks_of(sample: Rows) -> np.ndarray:
        return np.unique(np.rint(1e3 * sample.X[:, 0]))

    table = SimpleNamespace(blocks=blocks, rows=rows, in_memory=in_memory, take=Rows(X).take)
    growth = TreeGrowth(len(X), PartitionOptions(2, 100, 400, LINEAR), np.random.default_rng(0))
    [whole] = growth.samples(None, table, ENGINE)
    assert len(whole) == 400
    assert most / 2 < len(blocks_of(whole)) <= most
    routes = growth.split(growth.fit([Rows(X)]))
    leaves = VectorInMemory(relabelled(routes, np.zeros(len(X), np.int32), Rows(X)))
    growth.end_round(leaf_counts(leaves.read(*block)) for block in blocks)
    assert len(growth.todo) == 2
    far, near = sorted(growth.samples(leaves, table, ENGINE), key=len)
    assert most / 2 < len(blocks_of(near)) <= most
    assert blocks_of(far).tolist() == [39]


def test_rows_of_leaves_are_counted_again_where_counts_are_large(monkeypatch):
    rows = Rows(np.random.default_rng(0).integers(0, 9, (500, 3)).astype(np.float32))
    expected = divide(rows, 8, 30)[1]
    monkeypatch.setattr(division, "COUNT_BYTES", 0)
    np.testing.assert_array_equal(expected, divide(rows, 8, 30)[1])


def test_parts_in_files_are_those_in_memory(tmp_path):
    rows = Rows(np.random.default_rng(0).integers(0, 9, (500, 3)).astype(np.float32))
    held, stored = divide(rows, 8, 30), divide(rows, 8, 30, folder=tmp_path)
    np.testing.assert_array_equal(held[1], stored[1])
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["parts"]  # of each round none is left


def test_centres_of_wide_sparse_rows_are_sparse_and_the_same(monkeypatch):
    """Those of 3 million columns would be gigabytes, and their sample many."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((400, 90_000), density=2e-4, format="csr", rng=rng, dtype=np.float32)
    rows = Rows(sparse.csr_array(X))
    wide = fit_centres(rows, 5, Linear(), np.random.default_rng(1))
    assert wide.rows.is_sparse
    assert wide.rows.nbytes < 1 << 20
    monkeypatch.setattr(kmeans, "MOST_DENSE", 1 << 20)
    dense = fit_centres(rows, 5, Linear(), np.random.default_rng(1))
    np.testing.assert_array_equal(wide.assign(rows), dense.assign(rows))
    np.testing.assert_allclose(wide.distances(rows), dense.distances(rows), atol=1e-5)
    partition = Partition((wide,), (tuple(range(wide.k)),))
    again = partition_from_state(*partition_state(partition), rows.d)
    np.testing.assert_array_equal(again.nearest(rows, 3), partition.nearest(rows, 3))
    assert len(SamplesInMemory(rows).blocks()) == 1  # not one for each row
