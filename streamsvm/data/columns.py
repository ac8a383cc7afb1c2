"""Per-row columns that are being written to a store: kept on disk until all values, and so their type, are known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import zarr

from streamsvm.data.growing import GrowingArray
from streamsvm.errors import DataError

COLUMN_CHUNK = 1 << 16  # entries


class Column:
    """One value per row: integers, floats or text, not mixed. Memory: one block, and the distinct texts.

    With `integral`, floats are stored as int64 if all are whole numbers.
    """

    def __init__(self, name: str, folder: str | None, *, integral: bool = False) -> None:
        self.name = name
        self.n = 0
        self._integral = integral
        self._kind = ""
        self._codes: dict[str, int] = {}
        self._file = tempfile.TemporaryFile(dir=folder)

    def append(self, values: np.ndarray) -> None:
        """Adds (m,) values. Raises DataError if text follows numbers or the reverse."""
        kind = {"b": "i", "u": "i", "O": "U", "T": "U", "S": "U"}.get(values.dtype.kind, values.dtype.kind)
        self._kind = self._kind or kind
        if kind != self._kind and (self._kind, kind) != ("f", "i"):
            kinds = {"i": "integers", "f": "floats", "U": "text"}
            raise DataError(
                f"{self.name} holds {kinds.get(kind, kind)} from row {self.n} on, "
                f"after {kinds.get(self._kind, self._kind)}; expected one type"
            )
        if self._kind == "U":
            stored = self._encode(values.astype(str))
        else:
            stored = values.astype(np.int64 if self._kind == "i" else np.float64)
        if self._kind == "f" and self._integral:
            self._integral = bool(np.all(stored == np.rint(stored)) and np.all(np.abs(stored) < 2**53))
        self._file.write(stored.tobytes())
        self._file.flush()
        self.n += len(values)

    def _encode(self, values: np.ndarray) -> np.ndarray:
        texts, inverse = np.unique(values, return_inverse=True)
        codes = [self._codes.setdefault(str(t), len(self._codes)) for t in texts]
        return np.asarray(codes, dtype=np.int64)[inverse]

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
        integers = self._kind == "i" or (self._kind == "f" and self._integral)
        return np.dtype(np.int64 if integers else np.float64)

    @property
    def _texts(self) -> np.ndarray:
        return np.array(list(self._codes), dtype=str)

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
