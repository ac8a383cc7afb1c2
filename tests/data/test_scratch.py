"""Arrays and rows in scratch files come back as they were; a file that was cut is an error."""

from __future__ import annotations

import numpy as np
import pytest
from every_case import every_case
from scipy import sparse

from streamsvm.data import scratch
from streamsvm.data.rows import Rows
from streamsvm.data.scratch import put_array, put_rows
from streamsvm.errors import StorageError

RNG = np.random.default_rng(0)
DENSE = RNG.integers(0, 3, (20, 4)).astype(np.uint8)
CSR = sparse.csr_array(DENSE.astype(np.float32))


@pytest.mark.parametrize("X", [DENSE, DENSE.astype(np.float64), CSR, CSR[:0], DENSE[:0]])
def test_rows_come_back(tmp_path, X):
    with (tmp_path / "rows").open("w+b") as file:
        label = put_array(file, np.array(["a", "bc"]))
        place = put_rows(file, Rows(X))
        read_back = place.read(file)
        assert label.read(file).tolist() == ["a", "bc"]
    assert (read_back.X.dtype, read_back.is_sparse, read_back.d) == (X.dtype, sparse.issparse(X), 4)
    np.testing.assert_array_equal(read_back.dense(), Rows(X).dense())


def test_rows_that_are_a_view_are_written_in_order(tmp_path):
    with (tmp_path / "rows").open("w+b") as file:
        place = put_rows(file, Rows(np.asfortranarray(DENSE)[::2]))
        np.testing.assert_array_equal(place.read(file).dense(), DENSE[::2])


@every_case("X", [DENSE, DENSE.astype(np.float64), np.asfortranarray(DENSE), CSR, DENSE[:0]])
@every_case("piece_bytes", [1, 50, 1 << 20])
def test_rows_are_put_into_an_order(tmp_path, X, piece_bytes, monkeypatch):
    monkeypatch.setattr(scratch, "PIECE_BYTES", piece_bytes)
    order = np.random.default_rng(1).permutation(X.shape[0])
    with (tmp_path / "rows").open("w+b") as file:
        put_array(file, np.ones(3, np.uint8))
        place = put_rows(file, Rows(X), order)
        read_back = place.read(file)
    assert read_back.X.dtype == X.dtype
    np.testing.assert_array_equal(read_back.dense(), Rows(X).dense()[order])


@pytest.mark.parametrize("X", [DENSE, CSR])
def test_a_file_that_was_cut_is_one_error(tmp_path, X):
    with (tmp_path / "rows").open("w+b") as file:
        place = put_rows(file, Rows(X))
        file.truncate(10)
        with pytest.raises(StorageError, match="rows: the scratch file was cut while in use"):
            place.read(file)
