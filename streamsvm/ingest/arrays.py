"""npy, npz and MNIST idx: arrays with samples as rows, read from the stream a block at a time."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from streamsvm.data.labels import parse_labels, plain_labels
from streamsvm.data.layout import Layout
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import NeedsFloat64, first_rounded_in
from streamsvm.errors import DataError
from streamsvm.ingest.block import Block, OpenStream, Reader, cast
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import Stream, detect_format, open_raw

_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_X_NAMES, _Y_NAMES = ("X", "x", "data", "features"), ("y", "Y", "labels", "target")


class ArrayReader(Reader):
    """Reads arrays (n, ...) whose trailing axes are flattened into features.

    Labels: a second array of an npz, or `labels`, a file with one label for each row of all sources together.
    """

    dense_below = 0.0

    def __init__(
        self, options: IngestOptions, like: Layout | None, format_: str, open_stream: OpenStream = Stream
    ) -> None:
        self._open = open_stream
        self._options, self._format = options, format_
        self._labels = None if options.labels is None else read_labels(options.labels)
        self._d = None if like is None else like.d
        self.dtype = options.feature_dtype()
        self._n = 0

    def blocks(self, path: str) -> Iterator[Block]:
        if self._format == "npz":
            with open_raw(path) as raw:
                try:
                    archive = zipfile.ZipFile(raw)
                except zipfile.BadZipFile as error:
                    raise DataError(f"{path} is not a whole npz file: {error}") from error
                with archive:
                    yield from self._archive(path, archive)
        else:
            with self._open(path) as stream:
                header = read_idx_header if self._format == "idx" else read_npy_header
                yield from self._rows(path, stream, *header(path, stream), None)

    def _archive(self, path: str, archive: zipfile.ZipFile) -> Iterator[Block]:
        names = [n.removesuffix(".npy") for n in archive.namelist()]
        x = next((n for n in _X_NAMES if n in names), None) or (names[0] if len(names) == 1 else None)
        if x is None:
            raise DataError(f"{path} holds {', '.join(names)}; expected an array named X, and one named y for labels")
        labels, y = None, next((n for n in _Y_NAMES if n in names), None)
        if y is not None and self._labels is None:
            with archive.open(f"{y}.npy") as file:
                labels = _as_labels(_read_npy(path, _Member(path, file), file), path)
        with archive.open(f"{x}.npy") as file:
            yield from self._rows(path, _Member(path, file), *read_npy_header(path, file), labels)

    def _rows(
        self, path: str, stream: Stream | _Member, shape: tuple[int, ...], dtype: np.dtype, labels: np.ndarray | None
    ) -> Iterator[Block]:
        n, d = self._check(path, shape, dtype, labels)
        row_bytes = d * dtype.itemsize
        step = max(1, self._options.block_bytes // row_bytes)
        for start in range(0, n, step):
            rows = min(step, n - start)
            raw = stream.read_exactly(rows * row_bytes)
            if len(raw) < rows * row_bytes:
                n_read = start + len(raw) // row_bytes
                raise DataError(f"{path} is cut off: expected {n} rows, found {n_read}")
            X = np.frombuffer(raw, dtype).reshape(rows, d)
            may_be_rounded = self._options.dtype is None and dtype.itemsize > 2 and dtype != np.float32
            if may_be_rounded and (rounded := first_rounded_in(X)) is not None:
                raise NeedsFloat64.of(f"column {rounded.column}", rounded)
            self.dtype = self._options.feature_dtype(dtype)
            y = self._labels_for(rows) if labels is None else labels[start : start + rows]
            yield Block(Rows(cast(X, self.dtype, path, start)), y)

    def _check(self, path: str, shape: tuple[int, ...], dtype: np.dtype, labels: np.ndarray | None) -> tuple[int, int]:
        if dtype.kind not in "biuf":
            raise DataError(f"{path} holds {dtype}; expected numbers")
        if len(shape) < 2 or 0 in shape:
            raise DataError(f"{path} has shape {shape}; expected (rows, features), neither of them 0")
        d = math.prod(shape[1:])
        if self._d not in (None, d):
            raise DataError(f"{path} has {d} features, the data before it {self._d}; expected as many")
        if labels is not None and len(labels) != shape[0]:
            raise DataError(f"{path} has {shape[0]} rows and {len(labels)} labels; expected as many")
        self._d = d
        return shape[0], d

    def _labels_for(self, rows: int) -> np.ndarray | None:
        self._n += rows
        if self._labels is None:
            return None
        if self._n > len(self._labels):
            raise DataError(f"{self._options.labels} has {len(self._labels)} labels, but there are more rows")
        return self._labels[self._n - rows : self._n]

    def finish(self) -> None:
        if self._labels is not None and self._n != len(self._labels):
            path = self._options.labels
            raise DataError(f"{path} has {len(self._labels)} labels for {self._n} rows; expected as many")

    def is_final(self) -> bool:
        return True

    def width(self) -> int:
        assert self._d is not None
        return self._d


class _Member:
    """An array inside an npz file as a stream."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self._path, self._file = path, file

    def read_exactly(self, size: int) -> bytes:
        try:
            return self._file.read(size)
        except (zipfile.BadZipFile, EOFError, OSError) as error:
            raise DataError(f"{self._path} is damaged: {error}") from error


def read_npy_header(path: str, file: IO[bytes] | Stream) -> tuple[tuple[int, ...], np.dtype]:
    """(shape, dtype) of the npy stream; the rows follow. Raises DataError."""
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except ValueError as error:
        raise DataError(f"{path} is not a npy array: {error}") from error
    if fortran and len(shape) > 1:
        raise DataError(f"{path} is stored by columns (Fortran order); save it with np.ascontiguousarray")
    return shape, dtype


def read_idx_header(path: str, stream: Stream) -> tuple[tuple[int, ...], np.dtype]:
    """(shape, dtype) of the idx stream; the rows follow. Raises DataError."""
    magic = stream.read_exactly(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES:
        raise DataError(f"{path} is not an idx file: it starts with {magic.hex()}, expected 0000, a type and the axes")
    sizes = stream.read_exactly(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{path} is cut off within its header")
    dtype = np.dtype(_IDX_TYPES[magic[2]])
    return tuple(int(s) for s in np.frombuffer(sizes, ">u4")), dtype.newbyteorder("=") if dtype.itemsize == 1 else dtype


def read_labels(path: str) -> np.ndarray:
    """(n,) labels, int64, float64 or text, from an idx, npy or text file with one label a line. Raises DataError."""
    try:
        format_ = detect_format(path)
    except DataError:
        format_ = "text"
    with Stream(path) as stream:
        if format_ == "idx":
            values = _flat(path, stream, *read_idx_header(path, stream))
        elif format_ == "npy":
            values = _read_npy(path, stream, stream)
        else:
            lines = stream.read_exactly(1 << 62).decode("utf-8", "replace").splitlines()
            values = np.array([line.strip() for line in lines])
            if np.any(values == ""):
                raise DataError(f"{path}:{int(np.argmax(values == '')) + 1}: the label is missing")
    return _as_labels(values, path)


def _read_npy(path: str, stream: Stream | _Member, file: IO[bytes] | Stream) -> np.ndarray:
    return _flat(path, stream, *read_npy_header(path, file))


def _flat(path: str, stream: Stream | _Member, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    n = math.prod(shape)
    raw = stream.read_exactly(n * dtype.itemsize)
    if len(raw) < n * dtype.itemsize:
        raise DataError(f"{path} is cut off: expected {n} labels, found {len(raw) // dtype.itemsize}")
    return np.frombuffer(raw, dtype)


def _as_labels(values: np.ndarray, path: str) -> np.ndarray:
    kind = values.dtype.kind
    if kind not in "biufUS":
        raise DataError(f"{path} holds {values.dtype}; expected labels, numbers or text")
    labels = parse_labels(values.astype(str).tolist()) if kind in "US" else plain_labels(values)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise DataError(f"{path}: the label of row {int(np.argmin(np.isfinite(labels))) + 1} is not finite")
    return labels
