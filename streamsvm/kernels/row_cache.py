"""A cache of kernel rows within a budget of bytes."""

from __future__ import annotations

import numpy as np

from streamsvm.parallel.strips import strips
from streamsvm.private.numba import njit

WIDE = 128  # nonzeros of a data row below which making its kernel row again is as fast as reading it
LEAST_ROWS = 256  # a cache of fewer is not worth its bookkeeping
STRIP = 4096  # columns that one thread adds up: their sums (32 KiB) stay in L1


class RowCache:
    """Rows K(x_i, columns) of a problem of n rows; the least recently used ones make room. The columns are the
    problem's active rows: where they become fewer the cached rows stay; other columns empty it."""

    def __init__(self, n: int, budget_bytes: int) -> None:
        floats = min(budget_bytes // 4, n * n)  # `admit` looks through all places
        self._buffer = np.empty(floats, np.float32)  # the system gives memory as it is written
        self._columns = np.arange(n)
        self._position = np.arange(n)  # of each row among the columns, -1 where it is none
        self._place = np.full(n, -1)  # of each row in the buffer, -1 where it has none
        self._reset()

    @property
    def capacity(self) -> int:
        """Rows that fit."""
        return len(self._rows)

    def focus(self, columns: np.ndarray | None) -> bool:
        """Makes these the columns, None all; whether a cache of such rows is worth it."""
        n = len(self._place)
        if columns is None and len(self._columns) < n:
            columns = np.arange(n)
        if columns is not None and not np.array_equal(columns, self._columns):
            among = self._position[columns]
            self._columns = columns.copy()  # the caller's may change in place
            self._position = np.full(n, -1)
            self._position[columns] = np.arange(len(columns))
            if among.min() >= 0:
                self._narrow(among)
            else:
                self._reset()
        return self.capacity >= LEAST_ROWS

    def find(self, ids: np.ndarray) -> np.ndarray:
        """(len(ids),) places of rows, -1 where not cached; the others count as used now."""
        places = self._place[ids]
        self._clock += 1
        self._used[places[places >= 0]] = self._clock
        return places

    def admit(self, ids: np.ndarray) -> np.ndarray:
        """(len(ids),) places for rows not cached yet, -1 where only rows in use could make room."""
        oldest = np.argsort(self._used, kind="stable")[: len(ids)]
        oldest = oldest[self._used[oldest] < self._clock]
        evicted = self._owner[oldest]
        self._place[evicted[evicted >= 0]] = -1
        places = np.full(len(ids), -1)
        places[: len(oldest)] = oldest
        self._place[ids] = places
        self._owner[oldest] = ids[: len(oldest)]
        self._used[oldest] = self._clock
        return places

    def store(self, places: np.ndarray, start: int, tile: np.ndarray) -> None:
        """Stores a tile (m, q) of K(columns from start on, rows at these q places)."""
        _store(tile, self._rows, places, start)

    def product(self, places: np.ndarray, coef: np.ndarray, threads: int) -> np.ndarray:
        """(n columns,) float64: sum_k coef_k row_k."""
        out = np.zeros(len(self._columns))
        coef = coef.astype(np.float64)
        strips(lambda i, j: add_rows(self._rows, places, coef, i, out[i:j]), len(out), STRIP, threads)
        return out

    def block(self, ids: np.ndarray, out: np.ndarray, threads: int) -> np.ndarray:
        """Writes the cached rows of K(ids, ids) into out; returns which they are, (len(ids),) bool."""
        at, places = self._position[ids], self._place[ids]
        if at.min() < 0:
            return np.zeros(len(ids), bool)
        strips(lambda i, j: gather(self._rows, places[i:j], at, out[i:j]), len(ids), 64, threads)
        return places >= 0

    def _reset(self) -> None:
        width = len(self._columns)
        self._rows = self._buffer[: len(self._buffer) // width * width].reshape(-1, width)
        self._place[:] = -1
        self._owner = np.full(self.capacity, -1)
        self._used = np.zeros(self.capacity, np.int64)
        self._clock = 0

    def _narrow(self, columns: np.ndarray) -> None:
        """Moves the rows together, with some of their columns; there is room for more rows then."""
        width, before = len(columns), self.capacity
        n_rows = 1 + int(np.flatnonzero(self._owner >= 0).max(initial=-1))  # places fill up from the first
        _compact(self._buffer, self._rows.shape[1], n_rows, columns)
        self._rows = self._buffer[: len(self._buffer) // width * width].reshape(-1, width)
        more = self.capacity - before
        self._owner = np.concatenate([self._owner, np.full(more, -1)])
        self._used = np.concatenate([self._used, np.zeros(more, np.int64)])


@njit(cache=True)
def _store(tile, rows, places, start):  # transposed, in patches of 16 x 16: whole cache lines of few pages
    m, q = tile.shape
    for left in range(0, q, 16):
        for top in range(0, m, 16):
            bottom = min(top + 16, m)
            for j in range(left, min(left + 16, q)):
                if places[j] >= 0:
                    row = rows[places[j]]
                    for i in range(top, bottom):
                        row[start + i] = tile[i, j]


@njit(cache=True, fastmath=True)
def add_rows(rows, places, coef, start, out):
    """out += sum_k coef_k row_k, columns from start on: four rows a pass, as out is loaded and stored less often."""
    q, stop = len(places), start + len(out)
    fours = q // 4 * 4
    for k in range(0, fours, 4):
        r, s, t, u = coef[k], coef[k + 1], coef[k + 2], coef[k + 3]
        R, S = rows[places[k], start:stop], rows[places[k + 1], start:stop]
        T, U = rows[places[k + 2], start:stop], rows[places[k + 3], start:stop]
        for j in range(len(out)):
            out[j] += r * R[j] + s * S[j] + t * T[j] + u * U[j]
    for k in range(fours, q):
        r, R = coef[k], rows[places[k], start:stop]
        for j in range(len(out)):
            out[j] += r * R[j]


@njit(cache=True)
def gather(rows, places, at, out):  # out = rows[places][:, at], but for places below 0
    for i in range(len(places)):
        if places[i] >= 0:
            row, to = rows[places[i]], out[i]
            for j in range(len(at)):
                to[j] = row[at[j]]


@njit(cache=True)
def _compact(buffer, width, n_rows, columns):  # forward and in place: nothing is written before it was read
    to = 0
    for k in range(n_rows):
        for j in range(len(columns)):
            buffer[to] = buffer[k * width + columns[j]]
            to += 1


@njit(cache=True)
def multiply_signs(K, row_signs, column_signs):  # in one pass: memory is what it waits for
    for i in range(len(row_signs)):
        for j in range(len(column_signs)):
            K[i, j] *= row_signs[i] * column_signs[j]
