"""Stores and files that appear whole or not at all.

`whole_file` and `Target` write under a temporary name next to their target, which is renamed when complete. In an
object store a group can be replaced in one step: each `Version` is in its own folder, and one object, the metadata of
the group, names the current one.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import zarr

from streamsvm.errors import CorruptDataError, StorageError, StreamSVMError
from streamsvm.storage.locks import is_abandoned, owner_in, sync_folder, this_process, token
from streamsvm.storage.paths import (
    Place,
    URLPath,
    brief,
    filesystem,
    is_remote_failure,
    is_version,
    local_path,
    remove_tree,
)
from streamsvm.storage.text import JsonObject

_AT_FDCWD, _EXCHANGE = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
PARTIAL = "streamsvm_partial"  # group attribute while a writer is at work: such a group does not open as a store


@contextmanager
def storage_errors(url: str) -> Iterator[None]:
    """Turns errors of the operating system in writing to url into a StorageError of one line."""
    try:
        yield
    except StreamSVMError:
        raise
    except Exception as error:
        if not is_remote_failure(error):
            raise
        raise StorageError(f"writing {url} failed: {brief(error)}; nothing was kept") from error


@contextmanager
def whole_file(path: Place) -> Iterator[IO[bytes]]:
    """A binary file that takes the name `path` on a clean exit, when it is on disk, and is removed on an exception.

    For an object store it is written on this machine, and uploaded when complete.
    """
    with storage_errors(str(path)):
        if isinstance(path, URLPath):
            with TemporaryDirectory(prefix="streamsvm-") as folder:
                local = Path(folder, "file")
                with local.open("wb") as file:
                    yield file
                path.put(str(local))
            return
        part = path.with_name(f".{path.name}.{token()}.part")
        try:
            with part.open("wb") as file:
                yield file
            with part.open("rb+") as written:  # opened again, as a text wrapper has closed the file
                os.fsync(written.fileno())
            part.replace(path)
            sync_folder(path.parent)
        finally:
            part.unlink(missing_ok=True)


class Target:
    """A zarr group that is being written to `url`: begin, then commit or discard.

    Local stores are renamed in one step. On other file systems the group's own metadata is moved last, so that the
    target does not open as a group before all arrays are in place.
    """

    def __init__(self, url: str, overwrite: bool) -> None:
        self.url, self._overwrite, self._path = url, overwrite, local_path(url)
        name = f"partial-{token()}"
        if self._path is None:
            self._partial = f"{url.rstrip('/')}.{name}"
        else:
            self._partial = str(self._path.parent / f".{self._path.name}.{name}")

    @property
    def folder(self) -> str | None:
        """A local folder on the target's disk for temporary files, None if the target is not local."""
        return None if self._path is None else str(self._path.parent)

    def errors(self) -> AbstractContextManager[None]:
        return storage_errors(self.url)

    def begin(self) -> zarr.Group:
        """The empty group under its temporary name. Raises StorageError if the target exists."""
        if self._path is None:
            fs, path = filesystem(self.url)
            exists = fs.exists(path)
        else:
            exists = os.path.lexists(self._path)
        if exists and not self._overwrite:
            raise StorageError(f"{self.url} already exists; remove it or choose another name")
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for entry in self._path.parent.iterdir():  # those of writers that were killed here, and old ones of others
                writer = owner_in(entry.name, f".{self._path.name}.partial-")
                if writer is not None and is_abandoned(writer, _idle_s(entry)):
                    shutil.rmtree(entry, ignore_errors=True)
        return zarr.open_group(self._partial, mode="w-", zarr_format=3, attributes={PARTIAL: True})

    def place_for(self, folder: Place) -> Place:
        """The place where tasks write arrays that the group adopts: folder, emptied first."""
        remove_tree(folder)
        return folder

    def adopt(self, name: str, array: Place) -> None:
        """Moves an array that was written to another folder into the group; from an object store it is copied."""
        if isinstance(array, URLPath):
            array.fetch(f"{self._partial}/{name}")
        else:
            shutil.move(array, f"{self._partial}/{name}")

    def commit(self) -> None:
        if self._path is None:
            self._commit_remote()
        elif self._path.exists():
            if not _exchange(self._partial, str(self._path)):
                old = f"{self._partial}.old"
                os.rename(self._path, old)
                os.rename(self._partial, self._path)
                os.rename(old, self._partial)
            replaced = Path(self._partial)
            if replaced.is_dir() and not replaced.is_symlink():
                shutil.rmtree(replaced)
            else:
                replaced.unlink()
        else:
            os.rename(self._partial, self._path)

    def discard(self) -> None:
        """Removes all files under the temporary name; after a commit there are none."""
        if self._path is not None:
            _remove_for_good(Path(self._partial))
            return
        fs, partial = filesystem(self._partial)
        if fs.exists(partial):
            fs.rm(partial, recursive=True)

    def _commit_remote(self) -> None:
        fs, partial = filesystem(self._partial)
        _, target = filesystem(self.url)
        if fs.exists(target):
            fs.rm(target, recursive=True)
        root = f"{partial}/zarr.json"
        for key in [*(k for k in fs.find(partial) if k != root), root]:
            moved = target + key[len(partial) :]
            fs.makedirs(moved.rsplit("/", 1)[0], exist_ok=True)
            fs.mv(key, moved)


def _exchange(a: str, b: str) -> bool:
    """Swaps two paths in one step, so that a kill leaves one of them intact; False if the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    return rename is not None and rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _EXCHANGE) == 0


def _remove_for_good(path: Path) -> None:
    """Removes a folder which other writes that have not ended yet may create again for a moment."""
    absent = 0 if path.exists() else 3
    for _ in range(100):
        if absent == 3:
            return
        shutil.rmtree(path, ignore_errors=True)
        time.sleep(0.01)
        absent = 0 if path.exists() else absent + 1


def _idle_s(folder: Path) -> float:
    """Seconds since a file was last added somewhere in a folder."""
    with suppress(OSError):  # it was just removed, or is another user's
        return time.time() - max(os.stat(name).st_mtime for name, _, _ in os.walk(folder))
    return 0.0


AT = "streamsvm_at"  # attribute of a group: the folder of its current version


def arrays_at(place: Place, attrs: JsonObject) -> Place:
    """The place of the arrays of the group with these attributes. Raises CorruptDataError."""
    if AT not in attrs:
        return place
    if not isinstance(attrs[AT], str) or not is_version(place / attrs[AT]):
        raise CorruptDataError(f"{place}/zarr.json: damaged: the attribute {AT!r} names no version")
    return place / attrs[AT]


class Version:
    """A new version of the group at `place`: begin, then commit or discard, as `atomic.Target`.

    Readers of the version before can continue until the next one begins.
    """

    folder = None  # of temporary files: none next to it

    def __init__(self, place: URLPath, overwrite: bool) -> None:
        self.url = place.url
        self._place, self._overwrite = place, overwrite
        self._folder = place / f"version-{os.getpid()}-{secrets.token_hex(4)}"
        self._is_whole = False

    def errors(self) -> AbstractContextManager[None]:
        return storage_errors(self.url)

    def begin(self) -> zarr.Group:
        """The empty group of the version. Raises StorageError if there is a group already, unless it may be replaced.

        Removes versions that were replaced, and those of killed writers.
        """
        if not self._overwrite and (self._place / "zarr.json").exists():
            raise StorageError(f"{self.url} already exists; remove it or choose another name")
        current = _attributes(self._place).get(AT)
        for version in filter(is_version, list(self._place.iterdir())):
            if version.name != current and _is_left(version):
                remove_tree(version)
        return zarr.open_group(str(self._folder), mode="w", zarr_format=3, attributes={PARTIAL: this_process()})

    def place_for(self, folder: Place) -> Place:
        """The place where tasks write arrays of the group: in the group, as objects are not moved."""
        return self._folder

    def adopt(self, name: str, array: Place) -> None:
        """Does nothing: the array is in the group already."""
        assert array == self._folder / name

    def commit(self) -> None:
        """One put: readers of the group get the old version or this one."""
        metadata = json.loads((self._folder / "zarr.json").read_bytes())
        metadata["attributes"][AT] = self._folder.name
        (self._place / "zarr.json").write_bytes(json.dumps(metadata).encode())
        self._is_whole = True

    def discard(self) -> None:
        """Removes the version unless it was committed."""
        if not self._is_whole:
            remove_tree(self._folder)


def _attributes(group: URLPath) -> JsonObject:
    """None if there are none, or they are damaged."""
    try:
        return dict(json.loads((group / "zarr.json").read_bytes())["attributes"])
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _is_left(version: URLPath) -> bool:
    """Whether nobody writes it any more."""
    attributes = _attributes(version)
    if attributes and PARTIAL not in attributes:
        return True
    fs, path = filesystem(version.url)
    entries = fs.find(path, detail=True).values()
    times = [info.get("LastModified") or info.get("updated") or info.get("created") for info in entries]
    stamps = [when.timestamp() for when in times if hasattr(when, "timestamp")]
    idle_s = time.time() - max(stamps) if stamps else 0.0  # if the service says when objects were written
    writer = attributes.get(PARTIAL)
    return is_abandoned(writer if isinstance(writer, dict) else {}, idle_s)
