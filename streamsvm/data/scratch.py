"""Arrays and rows in scratch files: raw bytes one after another; what they are is kept in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.errors import StorageError


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array lies in a file, and what it is."""

    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]

    def read(
        self, file: IO[bytes], start: int = 0, stop: int | None = None, out: np.ndarray | None = None
    ) -> np.ndarray:
        """Entries start..stop of the first axis, in `out` if given. Raises StorageError where there are fewer."""
        stop = self.shape[0] if stop is None else stop
        values = np.empty((stop - start, *self.shape[1:]), self.dtype) if out is None else out
        file.seek(self.offset + start * self.dtype.itemsize * math.prod(self.shape[1:]))
        found = file.readinto(_raw(values))  # type: ignore[attr-defined]
        if found != values.nbytes:
            raise StorageError(
                f"{file.name}: the scratch file was cut while in use: found {found} of {values.nbytes} bytes"
            )
        return values


@dataclass(frozen=True)
class RowsPlace:
    """Where a block of rows lies in a file: one array, or indptr, indices and data of CSR."""

    d: int
    arrays: tuple[ArrayPlace, ...]

    @property
    def is_sparse(self) -> bool:
        return len(self.arrays) > 1

    def read(self, file: IO[bytes], start: int = 0, stop: int | None = None) -> Rows:
        """Rows start..stop. Raises StorageError where the file was cut."""
        if not self.is_sparse:
            return Rows(self.arrays[0].read(file, start, stop))
        indptr, indices, data = self.arrays
        bounds = indptr.read(file, start, None if stop is None else stop + 1)
        entries = int(bounds[0]), int(bounds[-1])
        csr = data.read(file, *entries), indices.read(file, *entries), bounds - bounds[0]
        return Rows(sparse.csr_array(csr, shape=(len(bounds) - 1, self.d)))


def put_array(file: IO[bytes], values: np.ndarray) -> ArrayPlace:
    """Writes an array at the end of what is written. Raises OSError where the disk is full."""
    place = ArrayPlace(file.tell(), values.dtype, values.shape)
    file.write(_raw(np.ascontiguousarray(values)))
    return place


def put_rows(file: IO[bytes], rows: Rows) -> RowsPlace:
    """Writes a block of rows, dense or CSR. Raises OSError where the disk is full."""
    X: Any = rows.X
    arrays = (X.indptr, X.indices, X.data) if rows.is_sparse else (X,)
    return RowsPlace(rows.d, tuple(put_array(file, values) for values in arrays))


def _raw(values: np.ndarray) -> memoryview:
    return values.reshape(-1).view(np.uint8).data
