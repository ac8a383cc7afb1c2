"""The cluster tree: spans tile the rows at every level, and an order puts every row somewhere once."""

from __future__ import annotations

import numpy as np
import pytest
from hss.compressed import cancer
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.hss.tree import ClusterTree, order_rows, principal_direction, random_direction
from streamsvm.parallel.engine import Engine

DIRECTIONS = [principal_direction, random_direction]


def order(rows: Rows, leaf: int = 16, direction=principal_direction, seed: int = 0, threads: int = 2):
    return order_rows(rows, ClusterTree.of(len(rows), leaf), direction, [seed], Engine(threads))


def spread(X: np.ndarray) -> float:
    """Of rows about their mean, in sum."""
    return float(((X - X.mean(axis=0)) ** 2).sum())


@given(n=st.integers(1, 5000), leaf=st.integers(2, 300))
def test_spans_tile_every_level_and_nest(n, leaf):
    tree = ClusterTree.of(n, leaf)
    for number in range(tree.depth + 1):
        spans = [tree.span(node) for node in tree.level(number)]
        assert [spans[0][0], spans[-1][1]] == [0, n]
        assert all(stop == start for (_, stop), (start, _) in zip(spans, spans[1:], strict=False))
        sizes = [stop - start for start, stop in spans]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) > 0
    assert max(sizes) <= leaf
    assert tree.depth == 0 or -(-n // 2 ** (tree.depth - 1)) > leaf  # the least depth
    for node in range(tree.size):
        assert tree.is_leaf(node) == (node in tree.level(tree.depth))
        if not tree.is_leaf(node):
            (start, middle), (again, stop) = tree.span(2 * node + 1), tree.span(2 * node + 2)
            assert (start, stop) == tree.span(node)
            assert middle == again


@given(depth=st.integers(0, 6), data=st.data())
def test_below_comes_before(depth, data):
    tree = ClusterTree(2**depth, depth)
    node = data.draw(st.integers(0, tree.size - 1))
    seen = list(tree.below(node))
    assert seen[-1] == node
    assert len(seen) == len(set(seen)) == 2 * (tree.span(node)[1] - tree.span(node)[0]) - 1
    for parent in seen:
        if not tree.is_leaf(parent):
            assert max(seen.index(2 * parent + 1), seen.index(2 * parent + 2)) < seen.index(parent)


@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=25)
@given(n=st.integers(1, 120), d=st.integers(1, 4), leaf=st.integers(2, 40), few=st.integers(1, 9))
def test_an_order_is_a_permutation_whatever_the_rows(direction, n, d, leaf, few):
    """Integers below `few`: duplicates and constant features are the rule."""
    X = np.random.default_rng(n).integers(0, few, (n, d)).astype(np.float32)
    np.testing.assert_array_equal(np.sort(order(Rows(X), leaf, direction)), np.arange(n))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_orders_depend_on_the_seed_not_on_threads(direction):
    rows = cancer()
    one = order(rows, direction=direction, threads=1)
    np.testing.assert_array_equal(one, order(rows, direction=direction, threads=2))
    assert np.any(order(rows, direction=random_direction, seed=1) != order(rows, direction=random_direction))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_sparse_rows_are_ordered_as_dense_ones(direction):
    rows = cancer()
    ordered = order(Rows(sparse.csr_array(rows.X)), direction=direction)
    np.testing.assert_array_equal(np.sort(ordered), np.arange(len(rows)))
    tree = ClusterTree.of(len(rows), 16)
    expected = order(rows, direction=direction)
    leaves = [slice(*tree.span(leaf)) for leaf in tree.level(tree.depth)]
    same = [len(np.intersect1d(ordered[leaf], expected[leaf])) for leaf in leaves]
    assert sum(same) > 0.95 * len(rows)  # rounding moves rows at a median


def test_leaves_hold_rows_that_are_near():
    rows = cancer()
    X = rows.X[order(rows)]
    tree = ClusterTree.of(len(rows), 16)
    within = sum(spread(X[slice(*tree.span(leaf))]) for leaf in tree.level(tree.depth))
    assert within < 0.5 * spread(X)


def test_principal_direction_is_the_first_principal_component():
    X = cancer().X.astype(np.float64)
    _, _, Vt = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    direction = principal_direction(cancer(), np.random.default_rng(0))
    assert abs(direction @ Vt[0]) > 1 - 1e-4


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_few_rows_are_one_leaf(n, direction):
    np.testing.assert_array_equal(order(cancer(n), direction=direction), np.arange(n))
