"""Samples for many passes: from memory or from plain files, the same rows."""

from __future__ import annotations

import numpy as np
import pytest
from making import Beside, samples, write

from streamsvm.data import cache
from streamsvm.data.cache import CachedSamples
from streamsvm.data.rows import concat
from streamsvm.data.samples import SamplesInStore
from streamsvm.data.scaling import Scaling


@pytest.fixture(params=["dense", "csr"])
def source(request, tmp_path, monkeypatch):
    """Samples in many small blocks, and how often each was read."""
    monkeypatch.setattr(cache, "PASS_BYTES", 600)
    rows = samples(200, 6, is_sparse=request.param == "csr")
    there = SamplesInStore(write(tmp_path / "s", rows, chunk_rows=16), Scaling.none(6))
    monkeypatch.setattr(there, "blocks", lambda: there.store.blocks(16))
    reads, read = [], there.read
    monkeypatch.setattr(there, "read", lambda *block: reads.append(block) or read(*block))
    return there, rows, reads


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_every_pass_gives_the_rows_and_the_source_is_read_once(source, share, tmp_path):
    there, rows, reads = source
    folder = tmp_path / "scratch"
    folder.mkdir()
    numbers = np.arange(len(rows))
    most = there.nbytes + numbers.nbytes
    cached = CachedSamples(there, int(share * most) + (share == 1), lambda: folder, Beside(numbers))
    blocks = cached.blocks()
    assert [start for start, _ in blocks[1:]] == [stop for _, stop in blocks[:-1]]
    assert len(blocks) > 3
    for _ in range(3):
        parts, beside = zip(*(cached.read(*block) for block in blocks), strict=True)
        rows_read = concat(parts)
        np.testing.assert_array_equal(rows_read.dense(), rows.dense())
        np.testing.assert_array_equal(np.concatenate([own for (own,) in beside]), numbers)
        assert rows_read.X.dtype == np.float32
    assert len(reads) == len(set(reads)) == len(there.blocks())
    files = len(list(folder.iterdir()))
    assert (files == 0, files == len(blocks)) == (share == 1, share == 0)


def test_without_need_there_is_no_folder(source):
    there, _, _ = source

    def none():
        raise AssertionError("asked for a folder")

    CachedSamples(there, 1 << 30, none).read(*CachedSamples(there, 1 << 30, none).blocks()[0])
