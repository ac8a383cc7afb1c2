"""Regions of about as many rows each: shares, what tells nothing apart, and where rows of a part go."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.kernels.kmeans import balanced, partition_from_state, partition_state


def blobs(n: int = 500) -> np.ndarray:
    """Most rows in one of four places."""
    rng = np.random.default_rng(0)
    places = np.array([[0, 0, 0], [4, 0, 0], [0, 4, 0], [0, 0, 9]], np.float32)
    return (places[rng.choice(4, n, p=[0.7, 0.1, 0.1, 0.1])] + rng.normal(size=(n, 3))).astype(np.float32)


def parts(X: np.ndarray, n_parts: int, *, is_sparse: bool = False) -> np.ndarray:
    rows = Rows(sparse.csr_array(X) if is_sparse else X)
    return balanced(rows, n_parts, np.random.default_rng(1)).assign(rows)


@pytest.mark.parametrize(("n_parts", "is_sparse"), [(2, False), (5, True), (13, False)])
def test_every_part_has_its_share_of_the_rows(n_parts, is_sparse):
    counts = np.bincount(parts(blobs(), n_parts, is_sparse=is_sparse))
    assert len(counts) == n_parts
    assert counts.max() <= 500 / n_parts + 2


def test_parts_are_regions():
    """Neighbours are mostly in the same part."""
    X = blobs()
    assigned = parts(X, 8)
    nearest = ((X[:, None] - X) ** 2).sum(axis=2) + 1e9 * np.eye(500)
    assert np.mean(assigned == assigned[nearest.argmin(axis=1)]) > 0.7


def test_rows_that_nothing_tells_apart_are_one_part():
    assert not parts(np.ones((50, 3), np.float32), 4).any()
    few = np.repeat(np.eye(3, dtype=np.float32), 20, axis=0)
    own = parts(few, 8)
    assert own.max() == 2
    assert all(len(set(own[20 * i : 20 * i + 20])) == 1 for i in range(3))
    assert not parts(np.zeros((1, 3), np.float32), 2).any()


def test_a_file_keeps_where_rows_go():
    X = blobs()
    tree = balanced(Rows(X), 6, np.random.default_rng(1))
    again = partition_from_state(*partition_state(tree), 3)
    np.testing.assert_array_equal(again.assign(Rows(X)), tree.assign(Rows(X)))
