"""Rows in memory that is allocated once: they come and go, and new ones do not wait until the system has freed it."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows

MOVED = 1024  # rows at a time


class RowBuffer:
    """Rows one after the other, all dense or all CSR, in about `most_bytes`."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._n = self._entries = 0
        self._d = 0
        self._data, self._indices, self._indptr = np.empty(0), np.empty(0, np.int32), np.zeros(1, np.int32)
        self._is_sparse: bool | None = None  # of no rows

    def __len__(self) -> int:
        return self._n

    @property
    def nbytes(self) -> int:
        return self._entries * self._entry_bytes + self._n * self._indptr.itemsize * (self._is_sparse is True)

    def has_room(self, rows: Rows) -> bool:
        return self.nbytes + rows.nbytes <= self._most_bytes

    @property
    def rows(self) -> Rows:
        """All rows, which change with the buffer."""
        data = self._data[: self._entries]
        if not self._is_sparse:
            return Rows(data.reshape(self._n, self._d))
        arrays = data, self._indices[: self._entries], self._indptr[: self._n + 1]
        return Rows(sparse.csr_array(arrays, shape=(self._n, self._d), copy=False))

    def append(self, rows: Rows) -> None:
        """Rows of which there are more than there is room for have it made for them."""
        if self._is_sparse is None:
            self._allocate(rows)
        X, start, n = rows.X, self._entries, self._n
        data = X.reshape(-1) if isinstance(X, np.ndarray) else X.data
        self._entries, self._n = start + len(data), n + len(rows)
        self._data = _of_length(self._data, start, self._entries)
        self._data[start : self._entries] = data
        if not isinstance(X, np.ndarray):
            self._indices = _of_length(self._indices, start, self._entries)
            self._indptr = _of_length(self._indptr, n + 1, self._n + 1)
            self._indices[start : self._entries] = X.indices
            self._indptr[n + 1 : self._n + 1] = X.indptr[1:]
            self._indptr[n + 1 : self._n + 1] += start

    def keep(self, places: np.ndarray) -> None:
        """These rows alone; places rise."""
        rows = self.rows
        self._n = self._entries = 0
        for start in range(0, len(places), MOVED):  # in place: each moves to where no later one is
            self.append(rows.take(places[start : start + MOVED]))

    def _allocate(self, rows: Rows) -> None:
        self._is_sparse, self._d = rows.is_sparse, rows.d
        dtype = np.dtype(rows.X.dtype)
        entries = self._most_bytes // (dtype.itemsize + (4 if rows.is_sparse else 0))
        self._data = np.empty(entries, dtype)
        if rows.is_sparse:
            index = np.int32 if max(2 * entries, rows.d) < 1 << 31 else np.int64
            self._indices, self._indptr = np.empty(entries, index), np.zeros(1, index)

    @property
    def _entry_bytes(self) -> int:
        return self._data.itemsize + self._indices.itemsize * (self._is_sparse is True)


def _of_length(values: np.ndarray, used: int, length: int) -> np.ndarray:
    """An array of at least this length that begins with the values used so far."""
    if len(values) >= length:
        return values
    longer = np.empty(max(length, len(values) + len(values) // 4), values.dtype)
    longer[:used] = values[:used]
    return longer
