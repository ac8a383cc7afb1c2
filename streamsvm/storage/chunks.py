"""Zarr arrays: each chunk is written once, with a checksum, and a missing or damaged one is an error, never zeros."""

from __future__ import annotations

import math
import sys
import time
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import psutil
import zarr
from numpy.typing import DTypeLike
from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec, ZstdCodec

from streamsvm.errors import CorruptDataError, DataError, StorageError, StreamSVMError
from streamsvm.private.zarr import fetch, file_key, first_codec, has_key, is_local
from streamsvm.storage.paths import is_remote_failure

CHUNK_BYTES = 4 << 20  # measured: zarr decodes 4 MiB chunks at 1.3 GB/s, 0.5 MiB ones at half that
PAUSES_S = (1.0, 4.0, 0.0)  # after a try to read from an object store; its client repeats each several times
MEMORY_BYTES = psutil.virtual_memory().total
_ABSENT = np.uint64(2**64 - 1)  # a shard index holds this for a chunk that was never written
_WITH_EMPTY = ", with write_empty_chunks=True, without which zarr leaves out chunks that hold only its fill value"


class CheckedArray:
    """A zarr array, chunked along its first axis only, whose every chunk must exist and be intact.

    zarr reads a missing chunk as the fill value. Here it raises CorruptDataError, for arrays of any writer, sharded
    ones included; so does a chunk that fails its checksum or codec. Arrays chunked along a second axis raise DataError.
    may_lack: chunks of the fill value alone, which zarr does not write, may be missing, as of a mask without entries.
    """

    def __init__(self, array: zarr.Array, name: str, *, may_lack: bool = False) -> None:
        self.array, self.name, self._may_lack = array, name, may_lack
        self.shape, self.dtype, self._is_local = array.shape, array.dtype, is_local(array)
        if not array.shape:
            raise DataError(f"array {name!r} is a scalar; expected one entry per row")
        self.chunk_rows = max(1, array.chunks[0])
        self._file_rows = max(1, (array.shards or array.chunks)[0])
        self._row_bytes = math.prod(array.shape[1:]) * array.dtype.itemsize
        self._require_room(self.chunk_rows, "a chunk")
        if any(c < s for c, s in zip(array.chunks[1:], array.shape[1:], strict=True)):
            raise DataError(
                f"array {name!r} of shape {array.shape} is chunked by columns (chunks {array.chunks}); rows must be "
                f"whole: rewrite it, e.g. dask.array.from_zarr(...).rechunk({{1: -1}}).to_zarr(...)"
            )

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Entries start..stop of the first axis. Raises CorruptDataError naming array, chunk and rows."""
        if start >= stop:
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        for pause in PAUSES_S:
            try:
                return self._read(start, stop)
            except Exception as error:
                if self._is_local or isinstance(error, StreamSVMError) or not is_remote_failure(error):
                    raise
                last = error
                time.sleep(pause)
        problem = f"array {self.name!r}: entries {start} to {stop - 1} could not be fetched, {len(PAUSES_S)} times"
        raise StorageError(f"{problem} ({_brief(last)}); is {self.array.store} still there?") from last

    def _require_room(self, rows: int, what: str) -> None:
        """Raises CorruptDataError for impossible sizes; metadata can claim any."""
        if rows * self._row_bytes > MEMORY_BYTES:
            problem = f"array {self.name!r}: {what} of {rows} entries would take {rows * self._row_bytes:,} bytes"
            raise CorruptDataError(f"{problem}, more than this machine's memory; is its shape {self.shape} damaged?")

    def _read(self, start: int, stop: int) -> np.ndarray:
        self._require_room(stop - start, "a stretch")
        for chunk in () if self._may_lack else range(start // self._file_rows, -(-stop // self._file_rows)):
            self._require(chunk, start, stop)
        try:
            return np.asarray(self.array[start:stop])
        except MemoryError:
            raise
        except Exception as error:  # codecs raise what they like: ValueError, RuntimeError, zlib.error, ...
            if not self._is_local:
                fetch(self.array, file_key(self.array, start // self._file_rows))  # raises an error that is no damage
            raise self._damage(start, stop, error) from error

    def all(self) -> np.ndarray:
        return self.read(0, len(self))

    def _damage(self, start: int, stop: int, error: Exception) -> CorruptDataError:
        """The error for the first chunk of rows start..stop that cannot be decoded."""
        first = start // self.chunk_rows * self.chunk_rows
        for lo in range(first, stop, self.chunk_rows):
            try:
                self.array[max(lo, start) : min(lo + self.chunk_rows, stop)]
            except Exception as cause:
                return self._corrupt(lo // self.chunk_rows, self.chunk_rows, f"is damaged ({_brief(cause)})")
        return self._corrupt(first // self.chunk_rows, self.chunk_rows, f"could not be read ({_brief(error)})")

    def _corrupt(self, chunk: int, chunk_rows: int, what: str, how: str = "") -> CorruptDataError:
        lo, hi = chunk * chunk_rows, min((chunk + 1) * chunk_rows, len(self))
        problem = f"array {self.name!r}: chunk {chunk} (entries {lo} to {hi - 1}) {what}"
        return CorruptDataError(f"{problem}; restore it from a copy or write the store again{how}")

    def _require(self, file: int, start: int, stop: int) -> None:
        """Raises unless chunk file `file` exists and, if it is a shard, holds all chunks of start..stop."""
        key = file_key(self.array, file)
        if not has_key(self.array, key):
            raise self._corrupt(file, self._file_rows, f"is missing (no {key!r})", _WITH_EMPTY)
        if self.array.shards is None:
            return
        is_present, first = self._shard_index(file, key), file * self._file_rows
        lo, hi = max(start, first) - first, min(stop, first + self._file_rows) - first
        for inner in range(lo // self.chunk_rows, -(-hi // self.chunk_rows)):
            if not is_present[inner]:
                chunk = first // self.chunk_rows + inner
                raise self._corrupt(chunk, self.chunk_rows, f"is missing (not in shard {key!r})", _WITH_EMPTY)

    def _shard_index(self, file: int, key: str) -> np.ndarray:
        """Which inner chunks a shard file holds, (chunks per shard,) bool, from the index at its end or start."""
        codec = first_codec(self.array)
        kinds = [type(c) for c in codec.index_codecs] if isinstance(codec, ShardingCodec) else []
        if kinds not in ([BytesCodec], [BytesCodec, Crc32cCodec]):
            raise DataError(f"array {self.name!r} has a shard index in a form that cannot be checked")
        n_chunks = self._file_rows // self.chunk_rows
        n_bytes, extra = 16 * n_chunks, 4 * (len(kinds) == 2)
        at_end = codec.index_location.value == "end"
        raw = fetch(self.array, key, n_bytes + extra if at_end else None) or b""
        if len(raw) < n_bytes:
            raise self._corrupt(file, self._file_rows, f"is damaged (shard {key!r} is cut short)")
        return np.frombuffer(raw, "<u8", count=2 * n_chunks)[::2] != _ABSENT


@contextmanager
def whole_metadata(place: str) -> Iterator[None]:
    """Turns errors about damaged metadata into CorruptDataError, and silences zarr's warnings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except StreamSVMError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{place}: damaged metadata ({_brief(error)}); restore it from a copy") from error


def _brief(error: BaseException) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__


AT_ONCE = 2  # chunks that zarr compresses in parallel


def create_array(
    group: zarr.Group, name: str, *, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: DTypeLike
) -> zarr.Array:
    """An array of `group` with zstd and crc32c. Chunks are written even if they hold only zeros.

    zstd level 1: on covtype and mnist as small as level 3 within 3 %, and 1.4 times as fast to write.
    """
    return group.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        compressors=[ZstdCodec(level=1), Crc32cCodec()],
        config={"write_empty_chunks": True},
    )


def default_rows(dtype: np.dtype, columns: tuple[int, ...]) -> int:
    """The number of rows of a chunk with this many columns: about 4 MiB."""
    return max(1, CHUNK_BYTES // max(1, dtype.itemsize * math.prod(columns)))


class GrowingArray:
    """An array of `group` whose first axis grows. Rows are held back until they fill chunks, which are compressed while
    more rows come.

    The first block sets the shape of rows. Without a block, no array is made. Rows are cast to `dtype`. If it is None,
    all must have the type of the first block. chunk_rows: None for about 4 MiB. If it starts as UNKNOWN, it has to be
    set before more rows come. crc: crc32 of the written bytes.
    """

    UNKNOWN = sys.maxsize

    def __init__(
        self, group: zarr.Group, name: str, dtype: np.dtype | None = None, chunk_rows: int | None = None
    ) -> None:
        self.chunk_rows, self.crc = chunk_rows, 0
        self._group, self._name, self._dtype = group, name, dtype
        self._first: np.ndarray | None = None  # without rows, only their shape and dtype
        self._buffer: list[np.ndarray] = []
        self._n_buffered = 0
        self._array: zarr.Array | None = None
        self._pool: ThreadPoolExecutor | None = None  # compresses a chunk while the next one comes
        self._writing: Future[None] | None = None

    def append(self, block: np.ndarray) -> None:
        """Adds the rows of `block` (m, ...). Raises ValueError if they differ in shape or type from earlier ones."""
        first = self._require_like_the_first(block)
        if self.chunk_rows is None:
            self.chunk_rows = default_rows(first.dtype, first.shape[1:])
        while len(block):
            if self._n_buffered == AT_ONCE * self.chunk_rows:
                self._write(first)
            room = AT_ONCE * self.chunk_rows - self._n_buffered
            self._buffer.append(block[:room].astype(first.dtype))
            self._n_buffered += len(self._buffer[-1])
            block = block[room:]

    def close(self) -> None:
        """Writes the rows held back."""
        try:
            if self._first is not None and (self._array is None or self._n_buffered):
                self._write(self._first)
            self._wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def _require_like_the_first(self, block: np.ndarray) -> np.ndarray:
        if block.ndim == 0:
            raise ValueError(f"{self._name}: a number belongs in the attributes, expected an array with rows")
        dtype = self._dtype or block.dtype
        if self._first is None:
            self._first = np.empty((0, *block.shape[1:]), dtype)
        actual, expected = (block.shape[1:], dtype), (self._first.shape[1:], self._first.dtype)
        if actual != expected:
            raise ValueError(f"{self._name}: found rows {actual}, expected {expected}")
        return self._first

    def _write(self, first: np.ndarray) -> None:
        rows = self._buffer[0] if len(self._buffer) == 1 else np.concatenate([first, *self._buffer])
        self._buffer, self._n_buffered = [], 0
        if self._array is None:
            n_rows = min(len(rows), self.chunk_rows or len(rows))
            chunks = tuple(max(1, size) for size in (n_rows, *rows.shape[1:]))
            dtype = str if rows.dtype.kind == "U" else rows.dtype
            self._array = create_array(self._group, self._name, shape=first.shape, chunks=chunks, dtype=dtype)
        self._wait()
        self._pool = self._pool or ThreadPoolExecutor(1)
        self._writing = self._pool.submit(self._put, self._array, rows)

    def _put(self, array: zarr.Array, rows: np.ndarray) -> None:
        start = array.shape[0]
        array.resize((start + len(rows), *rows.shape[1:]))
        array[start:] = rows
        self.crc = zlib.crc32(rows.tobytes(), self.crc)

    def _wait(self) -> None:
        """Waits for the chunk that is being written, and raises its error."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()
