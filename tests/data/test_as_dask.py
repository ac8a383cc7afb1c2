"""A store as dask arrays: its rows and labels, block by block."""

from __future__ import annotations

import pickle

import dask.array as da
import numpy as np
import pytest
from making import samples, write
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_and_labels_are_those_of_the_store(is_sparse, tmp_path):
    dense = samples(500, 4).X
    rows = Rows(sparse.csr_array(dense) if is_sparse else dense)
    store = write(tmp_path / "s.zarr", rows, np.array(["a", "b"])[np.arange(500) % 2], chunk_rows=64)
    X, y = store.to_dask()
    assert isinstance(X, da.Array)
    assert (X.shape, X.dtype, X.chunks[0]) == (store.read(0, 500).X.shape, store.dtype, y.chunks[0])
    computed = X.compute()
    assert sparse.issparse(computed) == is_sparse
    np.testing.assert_array_equal(computed.toarray() if is_sparse else computed, dense)
    np.testing.assert_array_equal(y, store.y)
    assert len(pickle.dumps(X)) < 50_000  # the place, not the rows


def test_blocks_of_a_store_in_memory_and_without_labels():
    dense = samples(50, 3).X
    X, y = Store.from_arrays(dense).to_dask()
    np.testing.assert_array_equal(X, dense)
    assert y is None


def test_what_is_damaged_is_named_when_it_is_read(tmp_path):
    store = write(tmp_path / "s.zarr", samples(100, 3), np.arange(100) % 2, step=100, chunk_rows=30)
    X, _ = store.to_dask()
    (tmp_path / "s.zarr" / "X" / "c" / "1" / "0").unlink()
    with pytest.raises(CorruptDataError, match="chunk 1"):
        X.compute()
