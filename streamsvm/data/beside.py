"""Columns beside the rows (labels, query ids, weights): from files or memory, as numpy values."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import zarr

from streamsvm.errors import DataError
from streamsvm.storage.checked_array import CheckedArray

PIECE_ROWS = 1 << 16  # labels that are looked at together


class _Categorical:
    """anndata's categorical encoding: integer codes into an array of categories."""

    def __init__(self, group: zarr.Group, name: str) -> None:
        self._codes = CheckedArray(group["codes"], f"{name}/codes")  # type: ignore[arg-type]
        self._categories = CheckedArray(group["categories"], f"{name}/categories")  # type: ignore[arg-type]
        self._name = name
        self.shape, self.dtype, self.chunk_rows = (
            self._codes.shape,
            self._categories.dtype,
            self._codes.chunk_rows,
        )

    def read(self, start: int, stop: int) -> np.ndarray:
        codes = self._codes.read(start, stop)
        _require_all(self._name, (codes < 0) | (codes >= len(self._categories)), start)
        return self._named[codes]

    @cached_property
    def _named(self) -> np.ndarray:
        return self._categories.all()

    def all(self) -> np.ndarray:
        return self.read(0, len(self._codes))


class _Nullable:
    """anndata's nullable encodings of integers, booleans and text: values, and a mask of those that are missing."""

    def __init__(self, group: zarr.Group, name: str) -> None:
        self._values = CheckedArray(group["values"], f"{name}/values")  # type: ignore[arg-type]
        self._mask = CheckedArray(group["mask"], f"{name}/mask", may_lack=True)  # type: ignore[arg-type]
        self._name = name
        self.shape, self.dtype, self.chunk_rows = (
            self._values.shape,
            self._values.dtype,
            self._values.chunk_rows,
        )

    def read(self, start: int, stop: int) -> np.ndarray:
        _require_all(self._name, self._mask.read(start, stop), start)
        return self._values.read(start, stop)

    def all(self) -> np.ndarray:
        return self.read(0, len(self._values))


def _require_all(name: str, missing: np.ndarray, start: int) -> None:
    rows = np.flatnonzero(missing)
    if len(rows):
        raise DataError(f"{name!r} is missing in row {start + rows[0]}; every row needs a value")


def open_column(group: zarr.Group, name: str) -> CheckedArray | _Categorical | _Nullable:
    member = group[name]
    if isinstance(member, zarr.Array):
        return CheckedArray(member, name)
    for kind, names in ((_Categorical, {"codes", "categories"}), (_Nullable, {"values", "mask"})):
        if names <= set(member.keys()):
            return kind(member, name)
    raise DataError(
        f"{name!r} is a group without 'codes' and 'categories' or 'values' and 'mask'; expected an array of labels"
    )


def check_column(name: str, column: Any, n: int) -> None:
    shape = tuple(column.shape)
    if len(shape) not in (1, 2) or (len(shape) == 2 and shape[1] != 1):
        raise DataError(f"{name} has shape {shape}; expected one value per row, ({n},)")
    if shape[0] != n:
        raise DataError(f"X has {n} rows but {name} has {shape[0]}; expected as many")


def is_stored(column: Any) -> bool:
    """Whether a column is one of `open_column`, which reads from a file."""
    return isinstance(column, CheckedArray | _Categorical | _Nullable)


def values_of(column: Any) -> np.ndarray:
    """(n,) numpy values of a column of any source; text as fixed-width str."""
    if is_stored(column):
        column = column.all()
    elif hasattr(column, "compute"):
        column = column.compute(scheduler="synchronous")
    values = np.asarray(column).reshape(-1)
    return _texts(values) if values.dtype.kind in "OT" else values


def label_pieces(column: Any, n: int) -> Iterator[np.ndarray]:
    """The labels of a column of a file, as many at a time as are unpacked together."""
    step = max(1, PIECE_ROWS // column.chunk_rows) * column.chunk_rows
    for start in range(0, n, step):
        values = column.read(start, min(n, start + step)).reshape(-1)
        yield labels_of(_texts(values, start) if values.dtype.kind == "T" else values, start)


def _texts(values: np.ndarray, start: int = 0) -> np.ndarray:
    """Python objects or variable-width text as fixed-width text, or as numbers where all are. Raises DataError."""
    items = values.tolist()
    missing = next((i for i, v in enumerate(items) if v is None or v != v), None)
    if missing is not None:
        raise DataError(f"the label of row {start + missing} is missing; every row needs one")
    plain = np.asarray(items)
    return plain.astype(str) if plain.dtype.kind == "O" else plain


def labels_of(values: np.ndarray, start: int = 0) -> np.ndarray:
    """start: the row of the first one."""
    kind = values.dtype.kind
    if kind in "biu":
        return values.astype(np.int64)
    if kind == "f":
        missing = np.flatnonzero(~np.isfinite(values))
        if len(missing):
            raise DataError(
                f"the label of row {start + missing[0]} is {values[missing[0]]}; every row needs a finite label"
            )
        return values.astype(np.float64)
    if kind in "US":
        return values.astype(str)
    raise DataError(f"labels have dtype {values.dtype}; expected integers, floats or text")
