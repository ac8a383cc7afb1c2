"""Writing zarr groups that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import BytesCodec, Crc32cCodec, ZstdCodec

from streamsvm.errors import StorageError

CHUNK_BYTES = 4 << 20


@contextmanager
def staged(target: Path, *, may_replace: Callable[[Path], bool]) -> Iterator[Path]:
    """A temporary path beside `target` that takes its name on a clean exit and is removed on an exception.

    What is at `target` already is replaced where `may_replace(target)` allows it; StorageError otherwise, or
    where the disk is full or may not be written.
    """
    _refuse_to_replace(target, may_replace)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with disk_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            yield part
            _swap_in(part, target)
    finally:
        _remove(part)


def _refuse_to_replace(target: Path, may_replace: Callable[[Path], bool]) -> None:
    if target.exists() and not may_replace(target):
        raise StorageError(
            f"{target}: exists already and is something else; remove it or choose another name"
        )


def _swap_in(part: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    if target.is_dir():
        target.rename(old)
    part.replace(target)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()


@contextmanager
def disk_errors(target: Path) -> Iterator[None]:
    """What the operating system refuses while `target` is written becomes a StorageError that names it."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StorageError(f"{target}: the disk is full; free some space and run again") from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            raise StorageError(f"{target}: not written: {error.filename}: {error.strerror}") from error
        raise


def create_array(
    group: zarr.Group, name: str, shape: tuple[int, ...], dtype: np.dtype, chunk_rows: int
) -> zarr.Array:
    """An array chunked by rows only, zstd and crc32c, every chunk written even where it is all zero."""
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(max(1, chunk_rows), *(max(1, size) for size in shape[1:])),
        compressors=[ZstdCodec(level=3), Crc32cCodec()],
        serializer=BytesCodec(),
        config={"write_empty_chunks": True},
    )
