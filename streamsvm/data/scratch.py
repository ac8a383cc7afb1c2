"""Arrays and rows in scratch files: raw bytes one after another. Their types and shapes are kept in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import IO

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import StorageError

PIECE_BYTES = 1 << 20  # ordered at a time, so that they stay in cache until they are written


@dataclass(frozen=True)
class ArrayPlace:
    """The place of an array in a file, with its shape and type."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def read(self, file: IO[bytes]) -> np.ndarray:
        """The array. Raises StorageError if the file was cut off."""
        values = np.empty(self.shape, self.dtype)
        read_into(file, self.offset, raw(values))
        return values

    @cached_property
    def entry_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape[1:])

    def span(self, start: int, stop: int) -> tuple[int, int]:
        """The offsets in the file at which the bytes of entries start..stop begin and end."""
        return self.offset + start * self.entry_bytes, self.offset + stop * self.entry_bytes


@dataclass(frozen=True)
class RowsPlace:
    """The place of a block of rows in a file: one array, or indptr, indices and data of CSR."""

    d: int
    arrays: tuple[ArrayPlace, ...]

    @property
    def is_sparse(self) -> bool:
        return len(self.arrays) > 1

    def read(self, file: IO[bytes]) -> Rows:
        """The rows. Raises StorageError if the file was cut off."""
        if not self.is_sparse:
            return Rows(self.arrays[0].read(file))
        indptr, indices, data = (array.read(file) for array in self.arrays)
        return Rows(sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, self.d)))


def read_into(file: IO[bytes], offset: int, out: memoryview) -> None:
    """Reads the bytes of a file from this offset on. Raises StorageError if there are fewer."""
    file.seek(offset)
    n_read = file.readinto(out)  # type: ignore[attr-defined]
    if n_read != len(out):
        raise StorageError(f"{file.name}: the scratch file was cut while in use: found {n_read} of {len(out)} bytes")


def put_array(file: IO[bytes], values: np.ndarray) -> ArrayPlace:
    """Appends an array to a file. Raises OSError if the disk is full."""
    place = ArrayPlace(file.tell(), values.dtype, values.shape)
    file.write(raw(np.ascontiguousarray(values)))
    return place


def put_rows(file: IO[bytes], rows: Rows, order: np.ndarray | None = None) -> RowsPlace:
    """Appends a block of rows, dense or CSR, in this order. Raises OSError if the disk is full."""
    if isinstance(rows.X, np.ndarray):
        place = put_array(file, rows.X) if order is None else _put_ordered(file, rows.X, order)
        return RowsPlace(rows.d, (place,))
    X = rows.csr if order is None else rows.csr[order]
    return RowsPlace(rows.d, tuple(put_array(file, values) for values in (X.indptr, X.indices, X.data)))


def _put_ordered(file: IO[bytes], X: np.ndarray, order: np.ndarray) -> ArrayPlace:
    """X[order] in pieces through one buffer: new memory for all of it takes as long to allocate as to write."""
    place = ArrayPlace(file.tell(), X.dtype, (len(order), *X.shape[1:]))
    step = max(1, PIECE_BYTES // max(1, X.itemsize * math.prod(X.shape[1:])))
    buffer = np.empty((min(step, len(order)), *X.shape[1:]), X.dtype)
    for start in range(0, len(order), step):
        piece = order[start : start + step]
        file.write(raw(np.take(X, piece, axis=0, out=buffer[: len(piece)], mode="clip")))
    return place


def raw(values: np.ndarray) -> memoryview:
    """The bytes of an array, C-contiguous."""
    return values.reshape(-1).view(np.uint8).data
