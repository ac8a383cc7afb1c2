"""Rows in a buffer against rows that are joined anew each time."""

from __future__ import annotations

import numpy as np
import pytest
from making import samples

from streamsvm.data import row_buffer
from streamsvm.data.row_buffer import RowBuffer
from streamsvm.data.rows import Rows, concat


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_rows_come_and_go(is_sparse, dtype, monkeypatch):
    monkeypatch.setattr(row_buffer, "MOVED", 3)
    rng, buffer, expected = np.random.default_rng(0), RowBuffer(2000), samples(0, 5, dtype, is_sparse)
    for step in range(30):
        more = samples(int(rng.integers(0, 12)), 5, dtype, is_sparse, seed=step)
        has_room = buffer.nbytes + more.nbytes <= 2000
        assert buffer.has_room(more) == has_room
        if not has_room:
            places = np.flatnonzero(rng.random(len(expected)) < rng.choice([0.0, 0.6, 1.0]))
            buffer.keep(places)
            expected = expected.take(places)
        buffer.append(more)  # which may be too large all the same
        expected = concat([expected, more])
        require_same(buffer.rows, expected)
        assert len(buffer) == len(expected)


def require_same(found: Rows, expected: Rows) -> None:
    assert (found.is_sparse, found.X.dtype, found.X.shape) == (expected.is_sparse, expected.X.dtype, expected.X.shape)
    np.testing.assert_array_equal(found.dense(), expected.dense())


def test_room_is_made_once():
    buffer = RowBuffer(200)
    buffer.append(samples(10, 5, is_sparse=True))
    first = buffer.rows.csr.data
    buffer.keep(np.arange(1, 9))
    buffer.append(samples(3, 5, is_sparse=True))
    assert np.shares_memory(first, buffer.rows.csr.data)
