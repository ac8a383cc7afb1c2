"""Duplicates in a store and between two, as sets of tuples count them."""

from __future__ import annotations

import numpy as np
import pytest
from making import write
from pairwise import pairwise
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.tables.info import duplicates


def by_sets(X, y, Z, v):
    """Of rows alone, and of rows with their labels."""
    for here, there in ((X, Z), (np.column_stack([X, y]), np.column_stack([Z, v]))):
        rows_here = {tuple(row) for row in here.tolist()}
        yield len(here) - len(rows_here), sum(tuple(row) in rows_here for row in there.tolist())


@pytest.mark.parametrize(("text", "is_sparse", "seed"), pairwise([False, True], [False, True], range(3)))
def test_counts_are_those_of_sets(tmp_path, seed, is_sparse, text):
    rng = np.random.default_rng(seed)
    X, Z = (rng.integers(0, 3, (n, 4)).astype(np.float32) for n in (120, 70))
    y, v = (rng.integers(0, 2, n) for n in (120, 70))
    rows = Rows(sparse.csr_array(Z) if is_sparse else Z)
    names = np.array(["no", "yes"])
    first = write(tmp_path / "known", Rows(X.astype(np.uint8)), names[y] if text else y, chunk_rows=50)
    other = write(tmp_path / "other", rows, names[v] if text else v.astype(np.float64), chunk_rows=30)
    counts = duplicates(first, other)
    (inside, across), (inside_alike, across_alike) = by_sets(X, y, Z, v)
    assert counts["duplicates"] == {"rows": inside, "same_label": inside_alike}
    assert counts["against"]["duplicates"] == {"rows": across, "same_label": across_alike}
    assert counts["against"]["rows"] == 70
    assert duplicates(first) == {"duplicates": counts["duplicates"]}


def test_zeros_and_gaps_are_like_others():
    other_nan = np.uint64(0xFFF8_0000_0000_0001).view(np.float64)
    store = Store.from_arrays(np.array([[0.0, np.nan], [-0.0, other_nan], [np.nan, 0.0]]))
    assert duplicates(store) == {"duplicates": {"rows": 1}}
    stored_zero = sparse.csr_array((np.array([0.0, 5.0]), [0, 1], [0, 2]), shape=(1, 2))
    counts = duplicates(Store.from_arrays(stored_zero), Store.from_arrays(np.array([[0, 5], [5, 0]], np.uint8)))
    assert counts["against"]["duplicates"] == {"rows": 1}
    assert stored_zero.nnz == 2  # what is counted stays as it is


def test_columns_have_to_be_the_same():
    one = Store.from_arrays(np.eye(2), feature_names=("a", "b"))
    for other in (Store.from_arrays(np.eye(3)), Store.from_arrays(np.eye(2), feature_names=("b", "a"))):
        with pytest.raises(DataError, match="has other columns than the data, so no rows are equal; ingest it"):
            duplicates(one, other)
    assert duplicates(one, Store.from_arrays(np.eye(2)))["against"]["duplicates"] == {"rows": 2}
