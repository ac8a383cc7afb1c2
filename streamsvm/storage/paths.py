"""Places: paths of this machine (`pathlib.Path`), and paths of object stores with the same methods (`URLPath`).

`require_place` checks the place for a model or a store, so that existing ones are not silently replaced.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from streamsvm.errors import ConfigError, StorageError, StreamSVMError

T = TypeVar("T")
FileSystem = Any  # of fsspec, which has no types
PAUSES_S = (1.0, 4.0)  # between tries at an object store; its client has tried several times in each
OF_FILES = ("file://", "sqlite:///", "duckdb:///")  # the last two as SQLAlchemy writes them
CLIENTS = ("aiohttp", "azure", "botocore", "gcsfs", "google")  # packages of object stores
GIVEN_UP_S = 60.0
MOST_NAMES = 1000  # of a folder, among which a similar name is searched
_gave_up: dict[str, float] = {}  # "at": the time of the last failure
FINAL = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)


def local_path(url: str | os.PathLike[str]) -> Path | None:
    """The local path of a url, or None for other file systems."""
    text = os.fspath(url)
    for scheme in OF_FILES:
        if text.startswith(scheme):
            return Path(text[len(scheme) :])
    return None if "://" in text or "::" in text else Path(text)


def is_remote_failure(error: BaseException) -> bool:
    """Whether a file system or the client of an object store, with its own error classes, raised this error."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in CLIENTS


def filesystem(url: str) -> tuple[FileSystem, str]:
    """The file system of a url, and its path in it. Raises ConfigError if its package is missing."""
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ConfigError(f"{url}: {error}; pip install s3fs, gcsfs or the like") from None
    except ValueError as error:
        raise ConfigError(f"{url}: {error}") from None
    return fs, path.rstrip("/")


@dataclass(frozen=True, order=True)
class URLPath:
    """A file or folder of an object store, with the methods of `pathlib.Path`.

    A file appears complete, by one put. A folder exists if it has entries, and is not created. Requests that the
    service does not answer are repeated; then StorageError is raised. A missing file is a FileNotFoundError.
    """

    url: str

    def __fspath__(self) -> str:
        return self.url

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> URLPath:
        return URLPath(f"{self.url}/{name}")

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def stem(self) -> str:
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> URLPath:
        return URLPath(self.url.rpartition("/")[0])

    def with_name(self, name: str) -> URLPath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> URLPath:
        return self.with_name(PurePosixPath(self.name).with_suffix(suffix).name)

    def resolve(self) -> URLPath:
        return self

    def absolute(self) -> URLPath:
        return self

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Does nothing: folders of object stores are not created."""

    def exists(self) -> bool:
        return bool(self._request(lambda fs, path: fs.exists(path)))

    def is_file(self) -> bool:
        return self._kind() == "file"

    def is_dir(self) -> bool:
        return self._kind() == "directory"

    def _kind(self) -> str:
        try:
            return str(self._request(lambda fs, path: fs.info(path)["type"]))
        except FileNotFoundError:
            return ""

    def iterdir(self) -> Iterator[URLPath]:
        """The entries of a folder, in order; none if it does not exist."""
        with suppress(FileNotFoundError, NotADirectoryError):
            path, entries = self._request(lambda fs, path: (path, fs.ls(path, detail=False)))
            names = {entry.rstrip("/").rpartition("/")[2] for entry in entries if entry.rstrip("/") != path}
            yield from (self / name for name in sorted(names))

    def glob(self, pattern: str) -> Iterator[URLPath]:
        """The entries of a folder whose names match the pattern."""
        return (entry for entry in self.iterdir() if fnmatchcase(entry.name, pattern))

    def files(self) -> list[str]:
        """URLs of all files below this folder; if its name has stars, of the files that match it."""

        def listed(fs: FileSystem, path: str) -> dict[str, Any]:
            try:
                return (fs.glob if "*" in path else fs.find)(path, detail=True)
            except FileNotFoundError:
                return {}

        head, _, tail = self.url.rpartition(filesystem(self.url)[1])
        entries = self._request(listed).items()
        return [f"{head}{path}{tail}" for path, entry in entries if entry["type"] == "file"]

    def read_bytes(self) -> bytes:
        return bytes(self._request(lambda fs, path: fs.cat_file(path)))

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def read_ranges(self, ranges: list[tuple[URLPath, int, int]]) -> list[bytes]:
        """Bytes (from, to) of several files of this file system, fetched in parallel."""

        def fetched(fs: FileSystem, path: str) -> list[bytes]:
            paths = [filesystem(place.url)[1] for place, _, _ in ranges]
            contents = fs.cat_ranges(paths, [lo for _, lo, _ in ranges], [hi for _, _, hi in ranges])
            for part in contents:
                if isinstance(part, Exception):
                    raise part
            return contents

        return self._request(fetched)

    def write_bytes(self, data: bytes) -> int:
        self._written(lambda fs, path: fs.pipe_file(path, data))
        return len(data)

    def put(self, source: str) -> None:
        """Uploads a local file to this place, completely or not at all."""
        self._written(lambda fs, path: fs.put_file(source, path))

    def fetch(self, folder: str) -> None:
        """Downloads the contents of this folder to a new one on this machine."""
        self._request(lambda fs, path: fs.get(path, folder, recursive=True))

    def unlink(self, *, missing_ok: bool = False) -> None:
        try:
            self._request(lambda fs, path: fs.rm_file(path))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def _request(self, act: Callable[[FileSystem, str], T]) -> T:
        fs, path = filesystem(self.url)

        def uncached() -> T:
            fs.invalidate_cache()  # others write to this place, too
            return act(fs, path)

        return again(self.url, uncached)

    def _written(self, act: Callable[[FileSystem, str], object]) -> None:
        """A missing bucket raises StorageError, not FileNotFoundError."""
        try:
            self._request(act)
        except FileNotFoundError as error:
            raise StorageError(f"writing {self.url} failed: {brief(error)}; nothing was kept") from error


Place = Path | URLPath


def was_url(path: Path) -> bool:
    """Whether a path was created from the text of a URL, which a Path does not keep."""
    return re.match(r"[a-z][a-z0-9+]+:/", str(path)) is not None


def place_of(place: str | os.PathLike[str]) -> Place:
    """A path of this machine, or of an object store if the text is a URL."""
    if isinstance(place, Path) and was_url(place):
        raise ConfigError(f"{place}: a URL is given as text, not as a Path")
    if isinstance(place, Path | URLPath):
        return place
    path = local_path(place)
    return URLPath(os.fspath(place).rstrip("/")) if path is None else path


def again(url: str, act: Callable[[], T]) -> T:
    """The result of act, with some retries if the service does not answer. Raises StorageError.

    Within a minute of such an error, for example at the end of the run that it ends, requests are not repeated.
    """
    is_away = time.monotonic() - _gave_up.get("at", -math.inf) < GIVEN_UP_S
    for pause in (*(() if is_away else PAUSES_S), None):
        try:
            result = act()
            _gave_up.clear()
            return result
        except (StreamSVMError, FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            if not is_remote_failure(error):
                raise
            if pause is None or isinstance(error, FINAL):
                if not isinstance(error, FINAL):
                    _gave_up["at"] = time.monotonic()
                raise StorageError(f"{url} cannot be reached: {brief(error)}") from error
            time.sleep(pause)
    raise AssertionError("unreachable")


def brief(error: BaseException) -> str:
    """The message of an error, in one line."""
    text = getattr(error, "strerror", None) or str(error)
    return " ".join(str(text).split()) or type(error).__name__


def nearest(path: str | os.PathLike[str] | Place) -> str:
    """A hint at a similar name in the folder of a path that does not exist; empty if there is none."""
    local = local_path(str(path))
    if local is None or not local.parent.is_dir():
        return ""
    names = (entry.name for entry in islice(os.scandir(local.parent), MOST_NAMES))
    similar = get_close_matches(local.name, names, n=1, cutoff=0.75)
    return f"; did you mean {local.with_name(similar[0])}?" if similar else ""


def remove_tree(place: Place) -> None:
    """Removes a folder and its contents, as far as possible; does nothing if it does not exist."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
        return
    with suppress(FileNotFoundError, StorageError):  # the next run removes the rest
        place._request(lambda fs, path: fs.rm(path, recursive=True))


MODEL_FORMAT = "streamsvm-model"
STORE_MARK = "streamsvm_store"
_VERSION = re.compile(r"version-\d+-[0-9a-f]{8}")


def is_version(place: Place) -> bool:
    """Whether its name is that of a version folder of a model in an object store, see `storage.atomic`."""
    return _VERSION.fullmatch(place.name) is not None


def kind_at(url: str | os.PathLike[str]) -> str | None:
    """What exists at this place, in words: `a model`, `a store`, or something else; None: nothing. Raises StorageError.

    Versions of a model in an object store that a killed run left, and nothing names, do not count.
    """
    path = place_of(url)
    if isinstance(path, Path):
        if path.is_dir():
            with suppress(OSError):
                return _kind_of((path / "zarr.json").read_bytes())
            return "a folder of other things"
        exists = "a file" if path.exists() else "a link that leads nowhere"
        return exists if os.path.lexists(path) else None
    with suppress(FileNotFoundError):
        return _kind_of((path / "zarr.json").read_bytes())
    if path.is_file():
        return "a file"
    return "a folder of other things" if any(not is_version(entry) for entry in path.iterdir()) else None


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
        problem = f"{option} {url}: found {existing}, expected nothing or {kind}"
        raise StorageError(f"{problem}; it is not replaced, take another {option}")
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


def _kind_of(metadata: bytes) -> str:
    """What a zarr.json describes, in words."""
    try:
        attributes: Any = json.loads(metadata)["attributes"]
    except (ValueError, TypeError, KeyError, RecursionError):
        attributes = {}
    if not isinstance(attributes, Mapping):
        attributes = {}
    if STORE_MARK in attributes:
        return "a store"
    return "a model" if attributes.get("format") == MODEL_FORMAT else "a zarr group of others"
