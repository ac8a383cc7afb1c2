"""Arrays that grow: blocks of any size add up, in whole chunks that are each written once."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import zarr
from every_case import every_case

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.storage.chunks import GrowingArray

X = np.random.default_rng(0).normal(size=(100, 3))


@pytest.fixture
def group(tmp_path):
    return zarr.open_group(tmp_path / "g", mode="w-", zarr_format=3)


@every_case("step", [1, 7, 100])
@every_case("chunk_rows", [1, 8, 100, 1000])
def test_blocks_add_up_to_whole_chunks(tmp_path, step, chunk_rows):
    group = zarr.open_group(tmp_path / "g", mode="w-", zarr_format=3)
    array = GrowingArray(group, "a", np.dtype(np.float32), chunk_rows)
    for start in range(0, len(X), step):
        array.append(X[start : start + step])
    array.close()
    assert group["a"].chunks == (min(chunk_rows, 100), 3)
    np.testing.assert_array_equal(group["a"][:], X.astype(np.float32))
    assert array.crc == zlib.crc32(X.astype(np.float32).tobytes())


def test_the_size_of_a_chunk_may_be_told_late(group):
    array = GrowingArray(group, "a", chunk_rows=GrowingArray.UNKNOWN)
    array.append(X[:40])
    array.chunk_rows = 40
    array.append(X[40:])
    array.close()
    assert group["a"].chunks == (40, 3)
    np.testing.assert_array_equal(group["a"][:], X)


def test_a_block_that_its_maker_uses_again_was_taken_before(group):
    array, block = GrowingArray(group, "a"), X.copy()
    array.append(block)
    block[:] = 0
    array.close()
    np.testing.assert_array_equal(group["a"][:], X)


def test_without_a_block_there_is_no_array_and_without_rows_an_empty_one(group):
    GrowingArray(group, "none").close()
    array = GrowingArray(group, "empty")
    array.append(X[:0])
    array.close()
    assert list(group.array_keys()) == ["empty"]
    assert group["empty"].shape == (0, 3)


@pytest.mark.parametrize("block", [X[:, :2], X.astype(np.float32)])
def test_rows_of_another_kind_are_refused(group, block):
    array = GrowingArray(group, "a")
    array.append(X)
    with pytest.raises(ValueError, match="a: found rows"):
        array.append(block)


def test_a_chunk_may_be_larger_than_memory(tmp_path):
    """Only rows that have come take any."""
    with StoreWriter(tmp_path / "s", d=3, dtype=np.float32, chunk_rows=1 << 50) as writer:
        writer.append(Rows(X), np.zeros(100))
    assert Store.open(tmp_path / "s").n == 100
