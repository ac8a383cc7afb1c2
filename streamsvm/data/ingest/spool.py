"""Blocks of samples on disk on their way into a store: in order, or in uniformly random order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.lib import format as npy
from scipy import sparse

from streamsvm.data.ingest.block import Block
from streamsvm.data.rows import Rows, concat

_BUCKETS = 32


class Spool:
    """Blocks in a temporary file without a name (a kill leaves nothing), read back in order."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)
        self._kept: list[tuple[int | None, bool, bool]] = []  # columns if CSR else None, has y, has qid
        self.n = 0

    @property
    def nbytes(self) -> int:
        return self._file.tell()

    def append(self, block: Block) -> None:
        X = block.rows.X
        features = [X] if isinstance(X, np.ndarray) else [X.data, X.indices, X.indptr]
        for values in (*features, block.y, block.qid):
            if values is not None:
                npy.write_array(self._file, values, allow_pickle=False)
        self._file.flush()
        self._kept.append((block.rows.d if block.rows.is_sparse else None, block.y is not None, block.qid is not None))
        self.n += len(block.rows)

    def __iter__(self) -> Iterator[Block]:
        self._file.seek(0)
        for d, has_y, has_qid in self._kept:
            X = self._read() if d is None else self._read_csr(d)
            yield Block(Rows(X), self._read() if has_y else None, self._read() if has_qid else None)

    def _read(self) -> np.ndarray:
        return npy.read_array(self._file, allow_pickle=False)

    def _read_csr(self, d: int) -> sparse.csr_array:
        parts = self._read(), self._read(), self._read()
        return sparse.csr_array(parts, shape=(len(parts[2]) - 1, d))

    def close(self) -> None:
        with suppress(OSError):  # a full disk is reported by append; the file is gone either way
            self._file.close()


class Shuffler:
    """Blocks whose rows come back in uniformly random order.

    Each row goes to one of 32 buckets on disk at random, and each bucket is shuffled in memory: every order is
    equally likely (Sanders 1998). A bucket of more than `limit_bytes` is spread over 32 more.
    """

    def __init__(self, folder: str | None, limit_bytes: int, rng: np.random.Generator) -> None:
        self._folder, self._limit, self._rng = folder, limit_bytes, rng
        self._buckets = [Spool(folder) for _ in range(_BUCKETS)]
        self.n = 0

    def append(self, block: Block) -> None:
        bucket = self._rng.integers(_BUCKETS, size=len(block.rows))
        order = np.argsort(bucket, kind="stable")
        edges = np.searchsorted(bucket[order], np.arange(_BUCKETS + 1))
        ordered = block.take(order)
        for spool, lo, hi in zip(self._buckets, edges, edges[1:], strict=False):
            if hi > lo:
                spool.append(ordered.take(slice(lo, hi)))
        self.n += len(block.rows)

    def __iter__(self) -> Iterator[Block]:
        for spool in self._buckets:
            yield from self._shuffled(spool)
            spool.close()

    def _shuffled(self, spool: Spool) -> Iterator[Block]:
        if spool.n == 0:
            return
        if spool.nbytes <= self._limit or spool.n == 1:
            whole = _join(list(spool))
            yield whole.take(self._rng.permutation(spool.n))
            return
        inner = Shuffler(self._folder, self._limit, self._rng)
        try:
            for block in spool:
                inner.append(block)
            yield from inner
        finally:
            inner.close()

    def close(self) -> None:
        for spool in self._buckets:
            spool.close()


def _join(blocks: list[Block]) -> Block:
    columns = zip(*((b.y, b.qid) for b in blocks), strict=True)
    y, qid = (None if c[0] is None else np.concatenate(c) for c in columns)
    return Block(concat([b.rows for b in blocks]), y, qid)
