"""Zarr groups in object stores that are replaced in one step: each version is in its own folder, and one object, the
metadata of the group, names the current one."""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import AbstractContextManager

import zarr

from streamsvm.errors import CorruptDataError, StorageError
from streamsvm.storage.atomic import PARTIAL, storage_errors
from streamsvm.storage.jsonable import JsonObject
from streamsvm.storage.owners import is_abandoned, this_process
from streamsvm.storage.paths import Place, URLPath, filesystem, remove_tree
from streamsvm.storage.place import is_version

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
        """The empty group of the version. Raises StorageError if there is a group already, unless it may be
        replaced."""
        root = self._place / "zarr.json"
        if not self._overwrite and root.exists():
            raise StorageError(f"{self.url} already exists; remove it or choose another name")
        self._remove_others()
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

    def _remove_others(self) -> None:
        """Removes versions that were replaced, and those of killed writers."""
        current = _attributes(self._place).get(AT)
        for version in filter(is_version, list(self._place.iterdir())):
            if version.name != current and _is_left(version):
                remove_tree(version)


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
    writer = attributes.get(PARTIAL)
    return is_abandoned(writer if isinstance(writer, dict) else {}, _idle_s(version))


def _idle_s(version: URLPath) -> float:
    """Seconds since the last object was written; 0 if the service does not say."""
    fs, path = filesystem(version.url)
    entries = fs.find(path, detail=True).values()
    times = [info.get("LastModified") or info.get("updated") or info.get("created") for info in entries]
    stamps = [when.timestamp() for when in times if hasattr(when, "timestamp")]
    return time.time() - max(stamps) if stamps else 0.0
