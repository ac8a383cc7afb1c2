"""Columns with a value per row: labels, query ids, groups and weights.

`ColumnValues` reads a column of a file, of memory or of dask as numpy values, `labels_of`, `weights_of` and
`queries_of` check them, and `ColumnWriter` writes a column of a new store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cached_property
from typing import Any, TypeGuard

import numpy as np
import zarr

from streamsvm.data.labels import FALSE, TRUE, with_one_spelling
from streamsvm.data.rows import take_in_parts
from streamsvm.errors import DataError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.zarr import member_of
from streamsvm.storage.chunks import CheckedArray, GrowingArray

PIECE_ROWS = 1 << 16  # labels read at once
LARGEST = 1e30  # weight, so that sums of them stay below the largest float32
COLUMN_CHUNK = 1 << 16  # entries


class _EncodedColumn:
    """A column in two arrays, as anndata writes it: integer codes into an array of categories, or the values of
    integers, booleans and text, and a mask of missing ones."""

    def __init__(self, group: zarr.Group, name: str) -> None:
        self._name, self._has_codes = name, "codes" in group and "categories" in group
        codes, values = ("codes", "categories") if self._has_codes else ("mask", "values")
        self._codes = CheckedArray(group[codes], f"{name}/{codes}", may_lack=codes == "mask")  # type: ignore[arg-type]
        self._values = CheckedArray(group[values], f"{name}/{values}")  # type: ignore[arg-type]
        by_row = self._codes if self._has_codes else self._values
        self.shape, self.chunk_rows, self.dtype = by_row.shape, by_row.chunk_rows, self._values.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        codes = self._codes.read(start, stop)
        is_missing = (codes < 0) | (codes >= len(self._values)) if self._has_codes else codes
        rows = np.flatnonzero(is_missing)
        if len(rows):
            raise DataError(f"{self._name!r} is missing in row {start + rows[0]}; every row needs a value")
        return self._categories[codes] if self._has_codes else self._values.read(start, stop)

    def all(self) -> np.ndarray:
        return self.read(0, self.shape[0])

    @cached_property
    def _categories(self) -> np.ndarray:
        return self._values.all()


StoredColumn = CheckedArray | _EncodedColumn


def open_column(group: zarr.Group, name: str) -> StoredColumn:
    """The column in this array or group of a store. Raises DataError."""
    member = member_of(group, name)
    if isinstance(member, zarr.Array):
        return CheckedArray(member, name)
    if any(names <= set(member.keys()) for names in ({"codes", "categories"}, {"values", "mask"})):
        return _EncodedColumn(member, name)
    problem = f"{name!r} is a group without 'codes' and 'categories' or 'values' and 'mask'"
    raise DataError(f"{problem}; expected an array of labels")


def check_column(name: str, column: np.ndarray | StoredColumn, n: int) -> None:
    """Raises DataError unless a column has one value for each of n rows."""
    shape = tuple(column.shape)
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise DataError(f"{name} has shape {shape}; expected one value per row, ({n},)")
    if shape[0] != n:
        raise DataError(f"X has {n} rows but {name} has {shape[0]}; expected as many")


def is_stored(column: object) -> TypeGuard[StoredColumn]:
    """Whether a column comes from `open_column`, which reads from a file."""
    return isinstance(column, StoredColumn)


def values_of(column: Any, start: int = 0) -> np.ndarray:
    """(n,) numpy values of a column of any source, text as fixed-width str. start: the row of the first value."""
    if is_stored(column):
        column = column.all()
    elif hasattr(column, "compute"):
        column = column.compute(scheduler="synchronous")
    values = np.asarray(column).reshape(-1)
    return _texts(values, start) if values.dtype.kind in "OT" else values


class ColumnValues(SizedInBytes):
    """The values of a column of n rows. convert: checks and converts stored values, and gets the row of the first."""

    def __init__(self, column: Any, n: int, convert: Callable[[np.ndarray, int], np.ndarray]) -> None:
        self._column, self._n, self._convert = column, n, convert
        # only all objects together show whether they are numbers or text
        self.in_parts = is_stored(column) and column.dtype.kind != "O"
        self._step = column.chunk_rows if self.in_parts else n

    @cached_property
    def all(self) -> np.ndarray:
        return self._convert(values_of(self._column), 0)

    def read(self, start: int, stop: int) -> np.ndarray:
        """The values of rows start..stop. Of a file, only these are read."""
        if not self.in_parts:
            return self.all[start:stop]
        return self._convert(values_of(self._column.read(start, stop), start), start)

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The values of the rows `ids`, in their order. Each chunk that holds some is read once."""
        if not self.in_parts or not len(ids):
            return self.all[ids] if not self.in_parts else self.read(0, 0)

        def read(parts: list[np.ndarray]) -> Iterator[np.ndarray]:
            return (self.read(int(ids[0]), int(ids[-1]) + 1)[ids - ids[0]] for ids in parts)

        return take_in_parts(ids, ids // self._step, read, np.concatenate)

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Stretches that cover all rows, each of rows that are unpacked together."""
        chunk = self._step if self.in_parts else 1
        step = max(1, PIECE_ROWS // chunk) * chunk
        return ((start, min(self._n, start + step)) for start in range(0, self._n, step))

    def pieces(self) -> Iterator[np.ndarray]:
        """All values in order, a block at a time."""
        return (self.read(*block) for block in self.blocks())


def _texts(values: np.ndarray, start: int = 0) -> np.ndarray:
    """Python objects or variable-width text as fixed-width text, or as numbers if all are. Raises DataError."""
    items = values.tolist()
    missing = next((i for i, v in enumerate(items) if v is None or v != v), None)
    if missing is not None:
        raise DataError(f"the label of row {start + missing} is missing; every row needs one")
    plain = np.asarray(items)
    return plain.astype(str) if plain.dtype.kind == "O" else plain


def labels_of(values: np.ndarray, start: int = 0) -> np.ndarray:
    """Checks labels (n,). start: the row of the first one. Raises DataError."""
    kind, row = values.dtype.kind, "the label of row"
    if kind == "b":
        return values
    if kind in "iu":
        large = np.flatnonzero(values > np.iinfo(np.int64).max)
        if len(large):
            found = f"{row} {start + large[0]} is {values[large[0]]}"
            raise DataError(f"{found}; integers go up to 2^63 - 1, give larger ones as text")
        return values.astype(np.int64)
    if kind == "f":
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            raise DataError(f"{row} {start + missing[0]} is {values[missing[0]]}; every row needs a finite label")
        return values.astype(np.float64)
    if kind in "US":
        return values.astype(str)
    raise DataError(f"labels have dtype {values.dtype}; expected integers, floats or text")


def weights_of(values: np.ndarray, start: int = 0) -> np.ndarray:
    """float64 weights from 0 to LARGEST. start: the row of the first one. Raises DataError."""
    weight = values.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0) & (weight <= LARGEST)))
    if len(bad):
        row = start + bad[0]
        problem = f"sample_weight of row {row} is {weight[bad[0]]}"
        raise DataError(f"{problem}; expected a finite number >= 0 and at most {LARGEST:g}")
    return weight


def queries_of(qid: np.ndarray, source: str) -> np.ndarray:
    """Query ids, whole numbers >= 0 or text. source: names the data in errors. Raises DataError."""
    if qid.dtype.kind in "fi":
        bad = np.flatnonzero(~((qid >= 0) & (qid == np.floor(qid))))
        if len(bad):
            raise DataError(f"{source}: the qid of row {bad[0]} is {qid[bad[0]]}; expected a whole number >= 0")
    return qid


class ColumnWriter:
    """One value per row: integers, floats or text, not mixed. Memory: one block, and the distinct texts.

    With `labels`, integers may come with floats or text: the column is int64 if all are whole numbers, text if any is.
    Booleans in text have one spelling, if the column has nothing else.
    """

    def __init__(self, name: str, folder: str | None, *, labels: bool = False) -> None:
        self.name, self.n = name, 0
        self._labels, self._kind, self._folder = labels, "", folder
        self._codes: dict[str, int] = {}
        self._file = tempfile.TemporaryFile(dir=folder)

    def append(self, values: np.ndarray) -> None:
        """Adds (m,) values. Raises DataError if text follows numbers or the reverse."""
        if self._labels and values.dtype.kind == "f" and _are_whole(values):
            values = values.astype(np.int64)
        kind = {"b": "i", "u": "i", "O": "U", "T": "U", "S": "U"}.get(values.dtype.kind, values.dtype.kind)
        self._kind = self._kind or kind
        if kind != self._kind and (self._kind, kind) != ("f", "i"):
            if not (self._labels and "i" in (self._kind, kind)):
                kinds = {"i": "integers", "f": "floats", "U": "text"}
                problem = f"{self.name} holds {kinds.get(kind, kind)} from row {self.n} on"
                raise DataError(f"{problem}, after {kinds.get(self._kind, self._kind)}; expected one type")
            if self._kind == "i":
                self._convert(kind)
        self._write(values)
        self.n += len(values)

    def _write(self, values: np.ndarray) -> None:
        if self._kind == "U":
            texts, inverse = np.unique(values.astype(str), return_inverse=True)
            codes = [self._codes.setdefault(str(text), len(self._codes)) for text in texts]
            stored = np.asarray(codes, dtype=np.int64)[inverse]
        else:
            stored = values.astype(np.int64 if self._kind == "i" else np.float64)
        self._file.write(stored.tobytes())
        self._file.flush()

    def _convert(self, kind: str) -> None:
        """Makes the integers so far floats or text."""
        before, self._kind = self._file, kind
        self._file = tempfile.TemporaryFile(dir=self._folder)
        with closing(before):
            before.seek(0)
            while raw := before.read(8 * COLUMN_CHUNK):
                self._write(np.frombuffer(raw, np.int64))

    def write(self, group: zarr.Group) -> None:
        """Writes the column as array `name` of `group`."""
        array = GrowingArray(group, self.name, self._dtype, COLUMN_CHUNK)
        array.append(np.empty(0, self._dtype))
        for piece in self.pieces():
            array.append(piece)
        array.close()

    @property
    def _dtype(self) -> np.dtype:
        if self._kind == "U":
            return self._texts.dtype
        return np.dtype(np.int64 if self._kind == "i" else np.float64)

    @property
    def _texts(self) -> np.ndarray:
        texts = np.array(list(self._codes), dtype=str)
        plain = with_one_spelling(texts) if self._labels else texts
        return plain if np.isin(plain, (FALSE, TRUE)).all() else texts

    def pieces(self) -> Iterator[np.ndarray]:
        """All values in order, as written."""
        texts, dtype = self._texts, self._dtype
        self._file.seek(0)
        while raw := self._file.read(8 * COLUMN_CHUNK):
            values = np.frombuffer(raw, np.float64 if self._kind == "f" else np.int64)
            yield texts[values] if self._kind == "U" else values.astype(dtype, copy=False)

    def close(self) -> None:
        with suppress(OSError):  # a full disk is reported by append; the file is gone either way
            self._file.close()


def _are_whole(values: np.ndarray) -> bool:
    """Whether these float64 are whole numbers that float64 represents."""
    return bool(np.all(values == np.rint(values)) and np.all(np.abs(values) < 2**53))
