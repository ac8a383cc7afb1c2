"""Opens sources, plain or compressed by gzip, bzip2 or xz, and detects their formats, both by their first bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import IO, Any

from streamsvm.errors import DataError, NotFoundError
from streamsvm.ingest.foreign import foreign_of
from streamsvm.ingest.servers import is_server
from streamsvm.storage.paths import local_path, nearest

_OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.GzipFile,
    b"BZh": bz2.BZ2File,
    b"\xfd7zXZ\x00": lzma.LZMAFile,
}
_MOST_AT_ONCE = 16 << 20  # a damaged header may claim any size
_PACKED = {".gz", ".bz2", ".xz"}
_SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".duckdb": "duckdb",
    ".npy": "npy",
    ".npz": "npz",
    ".svm": "svmlight",
    ".libsvm": "svmlight",
    ".svmlight": "svmlight",
    ".idx": "idx",
}
CSV, DATABASES = ("csv", "tsv"), ("sqlite", "duckdb", "postgresql")
TABLES = (*CSV, "parquet", "arrow", *DATABASES)
_IDX = re.compile(rb"\0\0[\x08\x09\x0b-\x0e][\x01-\x05]", re.DOTALL)
_MAGIC = {
    b"PAR1": "parquet",
    b"\x93NUMPY": "npy",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow",  # a stream
    b"SQLite format 3\0": "sqlite",
}
_NPZ = re.compile(rb"PK\x03\x04.{26}[^\0]{0,200}?\.npy", re.DOTALL)  # a zip archive of arrays
_DUCKDB = b"DUCK"  # after a checksum of 8 bytes
_SVMLIGHT = re.compile(rb"[-+.\w]+(\s+qid:\d+)?(\s+\d+:\S+)*\s*(#.*)?")


def open_raw(path: str) -> IO[bytes]:
    """The raw bytes of a local file or fsspec URL. Raises NotFoundError, DataError."""
    try:
        local = local_path(path)
        if local is None:
            import fsspec

            return fsspec.open(path, "rb").open()
        file = open(local, "rb")
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist; expected a data file{nearest(path)}") from None
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not file.seekable():
        file.close()
        raise DataError(f"{path}: found a pipe, which is read once only; give its rows as stdin, -, or write a file")
    return file


class Stream(io.RawIOBase):
    """A source that is decompressed while it is read. Damaged or cut-off data raises DataError naming the file."""

    def __init__(self, path: str, on_read: Callable[[int], None] | None = None) -> None:
        """on_read: called after each read with the number of stored bytes read so far."""
        self.path = path
        self._on_read = on_read
        self._raw = open_raw(path)
        head = self._raw.read(6)
        self._raw.seek(0)
        self._file = _unpack(head, self._raw)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            piece = self._file.read(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            raise DataError(f"{self.path} is damaged or cut off: {error}") from error
        if self._on_read is not None:
            self._on_read(self._raw.tell())
        return piece

    def read_exactly(self, size: int) -> bytes:
        """Up to size bytes, fewer only at the end, although compressed files may give less per read."""
        pieces, missing = [], size
        while missing and (piece := self.read(min(missing, _MOST_AT_ONCE))):
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def head(self) -> bytes:
        """The first MiB, or more if the first line is longer, up to 64 MiB."""
        head = self.read_exactly(1 << 20)
        while b"\n" not in head and len(head) < 64 << 20 and (piece := self.read_exactly(1 << 20)):
            head += piece
        return head

    def close(self) -> None:
        self._raw.close()
        super().close()


def _unpack(head: bytes, raw: IO[bytes]) -> IO[bytes] | gzip.GzipFile:
    """The raw bytes, decompressed if they begin as a format of _OPENERS."""
    opener = next((opener for magic, opener in _OPENERS.items() if head.startswith(magic)), None)
    if opener is None:
        return raw
    return opener(fileobj=raw) if opener is gzip.GzipFile else opener(raw)


def source_bytes(path: str) -> int:
    """The stored size of a source, or 0 if it is unknown."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def is_packed(name: str) -> bool:
    """Whether its name is that of a compressed file."""
    return PurePosixPath(name).suffix.lower() in _PACKED


def is_data_name(name: str) -> bool:
    """Whether its last suffix is that of data files or compressed files."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix in _PACKED or suffix in _SUFFIXES or suffix == ".db"  # either database


def detect_format(path: str) -> str:
    """The format of a source, by its name or else its first bytes. Raises DataError if it stays unclear."""
    if is_server(path):
        return "postgresql"
    name = PurePosixPath(path)
    name = name.with_suffix("") if name.suffix in _PACKED else name
    if name.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[name.suffix.lower()]
    if re.search(r"idx\d-ubyte", name.name):
        return "idx"
    with Stream(path) as stream:
        head = stream.read_exactly(1 << 16)
    if (format_ := _by_content(head)) is not None:
        return format_
    if (problem := foreign_of(path, head)) is not None:
        raise DataError(f"{path}: {problem}")
    raise DataError(f"{path}: the format is not clear from its name or first bytes; give --format")


def _by_content(head: bytes) -> str | None:
    """The format of a file with these first bytes, if it is clear."""
    for magic, format_ in _MAGIC.items():
        if head.startswith(magic):
            return format_
    for pattern, format_ in ((_NPZ, "npz"), (_IDX, "idx")):
        if pattern.match(head):
            return format_
    if head[8:12] == _DUCKDB:
        return "duckdb"
    lines = [line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#")]
    is_svmlight = lines and b":" in head and _SVMLIGHT.fullmatch(lines[0].strip())
    return "svmlight" if is_svmlight else None
