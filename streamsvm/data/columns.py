"""Per-row columns that are being written to a store: kept on disk until all values, and so their type, are known."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress

import numpy as np
import zarr

from streamsvm.data.growing import GrowingArray
from streamsvm.data.labels import FALSE, TRUE, spelled
from streamsvm.errors import DataError

COLUMN_CHUNK = 1 << 16  # entries


class Column:
    """One value per row: integers, floats or text, not mixed. Memory: one block, and the distinct texts.

    With `labels`, integers may come with floats or text: the column is int64 if all are whole numbers, text if any is.
    Booleans in text have one spelling, if the column has nothing else.
    """

    def __init__(self, name: str, folder: str | None, *, labels: bool = False) -> None:
        self.name = name
        self.n = 0
        self._labels = labels
        self._kind = ""
        self._codes: dict[str, int] = {}
        self._folder = folder
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
                raise DataError(
                    f"{self.name} holds {kinds.get(kind, kind)} from row {self.n} on, "
                    f"after {kinds.get(self._kind, self._kind)}; expected one type"
                )
            if self._kind == "i":
                self._convert(kind)
        self._write(values)
        self.n += len(values)

    def _write(self, values: np.ndarray) -> None:
        if self._kind == "U":
            stored = self._encode(values.astype(str))
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
        return np.dtype(np.int64 if self._kind == "i" else np.float64)

    @property
    def _texts(self) -> np.ndarray:
        texts = np.array(list(self._codes), dtype=str)
        plain = spelled(texts) if self._labels else texts
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
