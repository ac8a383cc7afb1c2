"""Checks of the place for a model or a store, so that existing ones are not silently replaced."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamsvm.errors import StorageError
from streamsvm.storage.paths import Place, URLPath, brief, place_of

MODEL_FORMAT = "streamsvm-model"
STORE_MARK = "streamsvm_store"
_VERSION = re.compile(r"version-\d+-[0-9a-f]{8}")


def is_version(place: Place) -> bool:
    """Whether its name is that of a version folder of a model in an object store, see `storage.versions`."""
    return _VERSION.fullmatch(place.name) is not None


def kind_at(url: str | os.PathLike[str]) -> str | None:
    """What exists at this place, in words: `a model`, `a store`, or something else; None: nothing. Raises
    StorageError."""
    path = place_of(url)
    if isinstance(path, URLPath):
        return _kind_of_remote(path)
    if not os.path.lexists(path):
        return None
    if path.is_dir():
        return _kind(path / "zarr.json") or "a folder of other things"
    return "a file" if path.exists() else "a link that leads nowhere"


def is_same(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Whether both are the same place, however they are written."""
    return place_of(one).resolve() == place_of(other).resolve()


def require_place(option: str, url: str | os.PathLike[str], kind: str, *, force: bool = False) -> None:
    """Raises StorageError unless `kind`, `a model` or `a store`, can be written there.

    Replacing an existing one takes force. Anything else is never replaced.
    """
    existing = kind_at(url)
    if existing is None:
        _require_writable(option, url)
    elif existing != kind:
        raise StorageError(
            f"{option} {url}: found {existing}, expected nothing or {kind}; it is not replaced, take another {option}"
        )
    elif not force:
        raise StorageError(f"{option} {url}: found {kind}; --force replaces it, or take another {option}")


def _require_writable(option: str, url: str | os.PathLike[str]) -> None:
    """Raises StorageError unless the folder or bucket can be written to, before the work whose result it will hold."""
    path = place_of(url)
    if isinstance(path, URLPath):
        probe = path.with_name(f".{path.name}.{secrets.token_hex(4)}.probe")
        try:
            probe.write_bytes(b"")
            probe.unlink(missing_ok=True)
        except StorageError as error:
            reason = brief(error.__cause__ or error)
            raise StorageError(f"{option} {url}: cannot be written to ({reason}); take another {option}") from None
        return
    folder = next(parent for parent in path.absolute().parents if os.path.lexists(parent))
    if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
        raise StorageError(f"{option} {url}: {folder} cannot be written to; take another {option}")


def _kind(metadata: Path) -> str | None:
    try:
        return _kind_of(metadata.read_bytes())
    except OSError:
        return None


def _kind_of(metadata: bytes) -> str:
    """What a zarr.json describes, in words."""
    try:
        attributes: Any = json.loads(metadata)["attributes"]
    except (ValueError, TypeError, KeyError, RecursionError):
        attributes = {}
    if isinstance(attributes, Mapping) and STORE_MARK in attributes:
        return "a store"
    is_model = isinstance(attributes, Mapping) and attributes.get("format") == MODEL_FORMAT
    return "a model" if is_model else "a zarr group of others"


def _kind_of_remote(place: URLPath) -> str | None:
    """As `kind_at`, of an object store. Versions of a model that a killed run left, and nothing names, do not count."""
    try:
        return _kind_of((place / "zarr.json").read_bytes())
    except FileNotFoundError:
        pass
    if place.is_file():
        return "a file"
    return "a folder of other things" if any(not is_version(entry) for entry in place.iterdir()) else None
