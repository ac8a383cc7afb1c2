"""Vectors with an entry per row, which tasks read and write by blocks: in memory, or chunked arrays in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
import zarr
from numpy.typing import DTypeLike

from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block
from streamsvm.errors import CorruptDataError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.zarr import open_for_writing
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.chunks import CheckedArray, create_array, whole_metadata
from streamsvm.storage.paths import Place, URLPath, again, remove_tree


class Vector(Protocol):
    """Entries of n rows, (n,) or (n, columns). A block is written by one task."""

    def read(self, start: int, stop: int) -> np.ndarray:
        """The entries of rows start..stop."""

    def write(self, start: int, values: np.ndarray) -> None:
        """Writes the entries of a block of rows from start on."""

    def take(self, ids: np.ndarray) -> np.ndarray:
        """The entries of the rows with these sorted ids, at least one."""

    def all(self) -> np.ndarray: ...

    def of(self, rows: Rows, start: int) -> np.ndarray:
        """The entries of these rows, from row number start on."""
        return self.read(start, start + len(rows))

    def remove(self) -> None:
        """Frees the vector, which nobody reads any more."""


class VectorInMemory(Vector, SizedInBytes):
    """A vector in memory, for tasks of this process."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._values[start:stop]

    def write(self, start: int, values: np.ndarray) -> None:
        self._values[start : start + len(values)] = values

    def take(self, ids: np.ndarray) -> np.ndarray:
        return self._values[ids]

    def all(self) -> np.ndarray:
        return self._values

    def remove(self) -> None:
        """Does nothing: Python frees the memory."""


class VectorOnDisk(Vector, SizedInBytes):
    """A zarr array at a path that all workers can read. It is opened at its first use.

    Raises CorruptDataError if a chunk is damaged or missing, StorageError if the disk is full.
    """

    def __init__(self, path: Place) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return VectorOnDisk, (self._path,)

    @cached_property
    def _array(self) -> zarr.Array:
        try:
            with whole_metadata(str(self._path)):
                return open_for_writing(str(self._path))
        except FileNotFoundError:
            raise CorruptDataError(f"{self._path} is missing") from None

    def require_whole(self) -> None:
        """Reads all of it. Raises CorruptDataError."""
        step = self._checked.chunk_rows
        for start in range(0, len(self._checked), step):
            self.read(start, min(start + step, len(self._checked)))

    @cached_property
    def _checked(self) -> CheckedArray:
        return CheckedArray(self._array, str(self._path))

    def read(self, start: int, stop: int) -> np.ndarray:
        return self._checked.read(start, stop)

    def write(self, start: int, values: np.ndarray) -> None:
        with storage_errors(str(self._path)):
            if isinstance(self._path, URLPath):
                again(str(self._path), lambda: self._put(start, values))
            else:
                self._put(start, values)

    def _put(self, start: int, values: np.ndarray) -> None:
        self._array[start : start + len(values)] = values

    def take(self, ids: np.ndarray) -> np.ndarray:
        parts = np.split(ids, np.flatnonzero(np.diff(ids // self._checked.chunk_rows)) + 1)
        return np.concatenate([self.read(int(part[0]), int(part[-1]) + 1)[part - part[0]] for part in parts])

    def all(self) -> np.ndarray:
        return self._checked.all()

    def remove(self) -> None:
        remove_tree(self._path)


class VectorFactory:
    """Makes vectors for rows in these blocks. folder: for arrays, or None to hold them in memory."""

    def __init__(self, blocks: Sequence[Block], folder: Place | None) -> None:
        self._n, self._chunk = blocks[-1][1], blocks[0][1]
        self._folder = folder

    def new(self, name: str, dtype: DTypeLike, columns: tuple[int, ...] = (), *, keeps: bool = False) -> Vector:
        """A vector to write block by block. It replaces one of the same name, or keeps its entries."""
        shape = (self._n, *columns)
        if self._folder is None:
            return VectorInMemory(np.empty(shape, dtype))
        with storage_errors(str(self._folder)):
            self._folder.mkdir(parents=True, exist_ok=True)
            if keeps and (self._folder / name / "zarr.json").exists():
                return VectorOnDisk(self._folder / name)
            remove_tree(self._folder / name)
            group = zarr.open_group(str(self._folder), mode="a")
            create_array(group, name, shape=shape, chunks=(self._chunk, *columns), dtype=dtype)
        return VectorOnDisk(self._folder / name)

    def copy(self, name: str, values: np.ndarray) -> Vector:
        """A vector of values in memory."""
        if self._folder is None:
            return VectorInMemory(values)
        vector = self.new(name, values.dtype, values.shape[1:])
        for start in range(0, self._n, self._chunk):
            vector.write(start, values[start : start + self._chunk])
        return vector
