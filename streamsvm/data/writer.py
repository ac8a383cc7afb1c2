"""StoreWriter: writes samples into a checksummed zarr store, whole or not at all."""

from __future__ import annotations

import os

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamsvm.data.columns import ColumnWriter
from streamsvm.data.labels import count_labels
from streamsvm.data.layout import Attrs
from streamsvm.data.rows import Rows
from streamsvm.data.sources import default_chunk_rows
from streamsvm.data.statistics import Moments, write_statistics
from streamsvm.errors import ConfigError, DataError
from streamsvm.storage.atomic import Target
from streamsvm.storage.chunks import CHUNK_BYTES, GrowingArray
from streamsvm.storage.paths import STORE_MARK, kind_at


class StoreWriter:
    """Writes a store block by block; use it as a context manager.

    Memory: one chunk and one appended block. On a clean exit the whole store appears at `url` by renaming.
    After an exception or a kill, nothing at `url` opens as a store.
    Rows must have d columns and the layout `is_sparse`. Their entries are cast to `dtype` (uint8, float32, float64).
    `chunk_rows`: rows in a chunk (None: about 4 MiB). With `integral_labels`, labels may be
    integers, floats and text in turn: see `columns.ColumnWriter`.
    Raises StorageError if the disk is full or something is at `url`. With `overwrite`, a store there is replaced.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        d: int,
        dtype: DTypeLike,
        is_sparse: bool = False,
        chunk_rows: int | None = None,
        attrs: Attrs | None = None,
        overwrite: bool = False,
    ) -> None:
        dtype = np.dtype(dtype)
        if dtype not in (np.dtype(np.uint8), np.dtype(np.float32), np.dtype(np.float64)):
            raise ConfigError(f"a store holds uint8, float32 or float64, not {dtype}")
        if chunk_rows is not None and chunk_rows < 1:
            raise ConfigError(f"chunk_rows is {chunk_rows}; expected at least 1")
        self._target = Target(os.fspath(url), overwrite=overwrite and kind_at(url) == "a store")
        self._d, self._dtype, self._is_sparse, self._chunk_rows = d, dtype, is_sparse, chunk_rows
        self.integral_labels, self.attrs, self.n = False, dict(attrs or {}), 0
        self.statistics: Moments | None = None  # saved in the store if set before the end

    def __enter__(self) -> StoreWriter:
        self._columns: dict[str, ColumnWriter] = {}
        rows_writer = _CSRWriter if self._is_sparse else _DenseWriter
        try:
            with self._target.errors():
                self._group = self._target.begin()
                self._X = rows_writer(self._group, self._d, self._dtype, self._chunk_rows, self._target.folder)
        except BaseException:
            self._target.discard()
            raise
        return self

    def append(
        self,
        rows: Rows,
        y: np.ndarray | None = None,
        *,
        qid: np.ndarray | None = None,
        group: np.ndarray | None = None,
        sample_weight: np.ndarray | None = None,
    ) -> None:
        """Adds rows with their labels and columns, which must always be the same. Raises DataError, StorageError."""
        if rows.d != self._d or rows.is_sparse != self._is_sparse:
            raise DataError(f"found {_layout(rows.is_sparse, rows.d)}, expected {_layout(self._is_sparse, self._d)}")
        given = {"y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
        columns = {name: np.asarray(values) for name, values in given.items() if values is not None}
        with self._target.errors():
            if self.n == 0 and not self._columns:
                for name in columns:
                    is_labels = name == "y" and self.integral_labels
                    self._columns[name] = ColumnWriter(name, self._target.folder, labels=is_labels)
            if set(columns) != set(self._columns):
                before = sorted(self._columns)
                raise DataError(f"rows from {self.n} on have columns {sorted(columns)}, the rows before {before}")
            for name, values in columns.items():
                if values.shape != (len(rows),):
                    raise DataError(f"{len(rows)} rows have {name} of shape {values.shape}; expected ({len(rows)},)")
                self._columns[name].append(values)
            self._X.append(rows)
        self.n += len(rows)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        try:
            if kind is None:
                with self._target.errors():
                    self._finish()
        finally:
            for column in self._columns.values():
                column.close()
            self._X.close()
            self._target.discard()

    def _finish(self) -> None:
        if self.n == 0:
            raise DataError(f"no rows to write to {self._target.url}; expected at least one")
        content = self._X.finish()
        for column in self._columns.values():
            column.write(self._group)
        labels = self._columns.get("y")
        classes = None if labels is None else count_labels(labels.pieces())
        write_statistics(self._group, self.statistics, classes)
        self._group.attrs.put({STORE_MARK: 1, **self.attrs, "content": content})
        self._target.commit()


def _layout(is_sparse: bool, d: int) -> str:
    return f"{'CSR' if is_sparse else 'dense'} rows of {d} columns"


class _DenseWriter:
    """Dense rows: one array, in chunks of rows."""

    def __init__(self, group: zarr.Group, d: int, dtype: np.dtype, chunk_rows: int | None, folder: str | None) -> None:
        self._array = GrowingArray(group, "X", dtype, chunk_rows or default_chunk_rows(d * dtype.itemsize))

    def append(self, rows: Rows) -> None:
        self._array.append(rows.dense())

    def finish(self) -> str:
        self._array.close()
        return f"{self._array.crc:08x}"

    def close(self) -> None:
        del self._array


class _CSRWriter:
    """anndata's csr_matrix: data and indices in chunks of equally many entries."""

    def __init__(self, group: zarr.Group, d: int, dtype: np.dtype, chunk_rows: int | None, folder: str | None) -> None:
        self._group = group.create_group("X")
        self._d, self._chunk_rows = d, chunk_rows
        chunk = GrowingArray.UNKNOWN if chunk_rows else CHUNK_BYTES // (dtype.itemsize + 4)
        index_dtype = np.dtype(np.int32 if d < 2**31 else np.int64)
        self._data = GrowingArray(self._group, "data", dtype, chunk)
        self._indices = GrowingArray(self._group, "indices", index_dtype, chunk)
        self._n, self._nnz = 0, 0
        self._indptr = ColumnWriter("indptr", folder)
        self._indptr.append(np.zeros(1, np.int64))

    def append(self, rows: Rows) -> None:
        X = rows.csr
        indptr = X.indptr.astype(np.int64)
        if self._chunk_rows and self._n < self._chunk_rows <= self._n + len(rows):
            entries = self._nnz + int(indptr[self._chunk_rows - self._n])
            self._data.chunk_rows = self._indices.chunk_rows = max(1, entries)
        self._indptr.append(indptr[1:] + self._nnz)
        self._nnz += X.nnz
        self._n += len(rows)
        self._data.append(X.data)
        self._indices.append(X.indices)

    def finish(self) -> str:
        self._data.close()
        self._indices.close()
        self._indptr.write(self._group)
        self._group.attrs.put({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [self._n, self._d]})
        return f"{self._data.crc ^ self._indices.crc:08x}"

    def close(self) -> None:
        self._indptr.close()
