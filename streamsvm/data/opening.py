"""Opens the zarr group of a store. Every problem is an error of one line."""

from __future__ import annotations

import os

import zarr

from streamsvm.data.sources import CSRSource, DenseSource, Source
from streamsvm.errors import ConfigError, CorruptDataError, DataError, NotFoundError, StorageError
from streamsvm.private.zarr import has_key, member_of, opened_as_is
from streamsvm.storage.paths import is_remote_failure, local_path, nearest


def open_group(url: str | os.PathLike[str]) -> zarr.Group:
    """The zarr group at url, read-only. Raises NotFoundError, ConfigError, StorageError or DataError of one line."""
    path = local_path(url)
    if path is not None and not path.exists():
        raise NotFoundError(f"{url} does not exist; expected a zarr store{nearest(path)}")
    if path is not None and not path.is_dir():
        raise DataError(
            f"{url} is a file, not a zarr store; make one with `streamsvm ingest {url} --store S`"
        )
    try:
        return opened_as_is(path or str(url))
    except FileNotFoundError:
        what = "is a directory but not a zarr group" if path else "holds no zarr group"
        raise NotFoundError(f"{url} {what}; expected a store that `streamsvm ingest` or zarr wrote") from None
    except ImportError as error:
        raise ConfigError(f"{url}: {error}; pip install s3fs, gcsfs or the like") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        if path is None and is_remote_failure(error):
            raise StorageError(f"{url} cannot be reached: {reason}") from error
        if isinstance(error, ValueError | LookupError | TypeError | AttributeError | RuntimeError | OSError):
            raise DataError(f"{url} cannot be opened as a zarr group: {reason}") from error
        raise


def open_source(group: zarr.Group, x: str, url: str) -> Source:
    """The rows of array or CSR group `x`. Raises DataError, CorruptDataError."""
    if x not in group:
        if any(has_key(group, f"{x}/{name}") for name in ("zarr.json", ".zarray")):
            raise CorruptDataError(f"{url}: the metadata of array {x!r} is damaged; restore it from a copy")
        there = ", ".join(sorted(k for k, _ in group.members())) or "nothing"
        raise DataError(f"{url} has no array {x!r} (it holds: {there}); name the feature array with --x")
    member = member_of(group, x)
    return DenseSource(member, x) if isinstance(member, zarr.Array) else CSRSource(member, x)
