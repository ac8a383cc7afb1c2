"""Approximate neighbours against all distances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from streamsvm.data.rows import Rows
from streamsvm.hss.tree import nearest_neighbours
from streamsvm.parallel.engine import Engine


def digits(n: int = 1500) -> Rows:
    return Rows((load_digits().data[:n] / 16).astype(np.float32))


def near(rows: Rows, k: int = 5, trees: int = 8, threads: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return nearest_neighbours(rows, k, trees, [0], Engine(threads))


def check(rows: Rows, ids: np.ndarray, sq_distances: np.ndarray) -> None:
    """Each row's ids are others', each once, nearest first, at the distances told; -1 and infinity at the end."""
    exact = cdist(rows.dense().astype(np.float64), rows.dense().astype(np.float64), "sqeuclidean")
    scale = 1e-5 * max(1.0, rows.sq_norms.max())
    for i, (own, sq) in enumerate(zip(ids, sq_distances, strict=True)):
        met = int((own >= 0).sum())
        assert np.all(own[met:] == -1)
        assert np.all(np.isinf(sq[met:]))
        assert i not in own[:met]
        assert len(np.unique(own[:met])) == met
        assert np.all(np.diff(sq[:met]) >= 0)
        np.testing.assert_allclose(sq[:met], exact[i, own[:met]], rtol=1e-4, atol=scale)


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_most_of_the_nearest_are_found(layout):
    rows = digits()
    ids, sq_distances = near(Rows(layout(rows.X)), k=10)
    check(rows, ids, sq_distances)
    exact = cdist(rows.X, rows.X, "sqeuclidean")
    np.fill_diagonal(exact, np.inf)
    best = np.argsort(exact, axis=1, kind="stable")[:, :5]
    recall = np.mean([np.isin(b, own[:5]).mean() for b, own in zip(best, ids, strict=True)])
    assert recall >= 0.9


def test_one_leaf_finds_all():
    rows = digits(200)
    ids, sq_distances = near(rows, trees=1)
    check(rows, ids, sq_distances)
    exact = cdist(rows.X, rows.X, "sqeuclidean")
    np.fill_diagonal(exact, np.inf)
    np.testing.assert_allclose(sq_distances, np.sort(exact, axis=1)[:, :5], rtol=1e-4, atol=1e-4)


@settings(max_examples=25)
@given(n=st.integers(1, 30), k=st.integers(1, 12), few=st.integers(1, 5))
def test_duplicates_and_fewer_rows_than_k(n, k, few):
    rows = Rows(np.random.default_rng(n).integers(0, few, (n, 3)).astype(np.float32))
    ids, sq_distances = near(rows, k, trees=2)
    check(rows, ids, sq_distances)
    np.testing.assert_array_equal((ids >= 0).sum(axis=1), min(k, n - 1))


def test_threads_do_not_matter():
    for one, two in zip(near(digits(), threads=1), near(digits(), threads=2), strict=True):
        np.testing.assert_array_equal(one, two)
