"""The state of an unfinished run in its folder: numbered files, each written whole or not at all, the last two kept.

A state is named arrays and numbers in an uncompressed .npz; reading one takes no pickle and no more memory than the
file has bytes.
"""

from __future__ import annotations

import json
import os
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from copy import copy
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamsvm._version import __version__
from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, CorruptDataError, StorageError
from streamsvm.events import Events, Warned, ignore
from streamsvm.solvers.catalogue import renamed_option
from streamsvm.storage.atomic import storage_errors, whole_file
from streamsvm.storage.leases import require_held
from streamsvm.storage.locks import InUse, is_locked, locked, sync_folder
from streamsvm.storage.paths import Place, URLPath, remove_tree

KEPT = 2
LOCK = "lock"  # a file of the run directory
SCRATCH = "streamsvm-scratch-"  # folders of it, of what a fit needs while it runs, begin with
ROWS = "rows"  # a folder of it, of an unfinished run: what there is of each row, and parts that are solved
MOST_SHARE = 0.05  # of a run's time that goes into keeping its state
# how a run is done, not what it comes to: these may differ when it goes on
EXECUTION = ("memory_limit", "threads", "workers", "scheduler", "wait_for_scheduler", "checkpoint_every")


class Checkpoints:
    """The states of a run, in the run directory; without one nothing is kept."""

    def __init__(
        self, run_dir: Place | None, store: Store, config: FitConfig, resume: bool, events: Events = ignore
    ) -> None:
        self.run_dir, self.resume = run_dir, resume
        self._store, self._config = store, config
        self._events = events
        self._every = config.checkpoint_every
        self._steps, self._saved_at, self._cost_s = 0, time.perf_counter(), 0.0
        if run_dir is not None and not resume and _numbered(run_dir):
            message = f"{run_dir} holds the state of an earlier run, which this one starts to replace"
            events(Warned(f"{message}; --resume would go on from it"))

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What tells this run from others; asked where a state is kept, as all labels are read for it."""
        return identity(self._store, self._config)

    def inside(self, name: str) -> Checkpoints:
        """Those of a search before the fit, in a folder of the run directory."""
        found = copy(self)
        found._steps, found._saved_at = 0, time.perf_counter()
        if self.run_dir is not None:
            found.run_dir = self.run_dir / name
            found.run_dir.mkdir(exist_ok=True)
            found.resume = self.resume and has_state(found.run_dir)
        return found

    def offer(self, state: Callable[[], Mapping[str, Any]], *, last: bool = False) -> None:
        """To be called after every step: keeps `state()` where it is time to, and after the last step.

        A disk that is full ends no run: the state before is kept, and a warning says so.
        """
        self._steps += 1
        if self.run_dir is None or not (last or self._is_time()):
            return
        began = time.perf_counter()
        try:
            self._save(self.run_dir, {"identity": json.dumps(self.identity), **state()})
        except OSError as error:
            message = f"no state could be kept in {self.run_dir} ({error.strerror or error})"
            self._events(Warned(f"{message}: --resume would go on from an older one"))
        self._steps, self._saved_at = 0, time.perf_counter()
        self._cost_s = self._saved_at - began

    def _is_time(self) -> bool:
        if isinstance(self._every, str):
            return self._steps >= int(self._every.split()[0])
        return time.perf_counter() - self._saved_at >= max(self._every, self._cost_s / MOST_SHARE)

    @staticmethod
    def _save(run_dir: Place, arrays: Mapping[str, Any]) -> None:
        numbered = _numbered(run_dir)
        number = max(numbered, default=0) + 1
        _write_state(run_dir, f"state-{number:06d}.npz", arrays)
        for old in sorted(numbered)[: 1 - KEPT]:
            numbered[old].unlink()

    def load(self) -> dict[str, np.ndarray] | None:
        """The newest whole state to go on from, or None. Raises ConfigError where it is another run's."""
        if not self.resume or self.run_dir is None:
            return None
        numbered = _numbered(self.run_dir)
        for number in sorted(numbered, reverse=True):
            try:
                state = read_state(numbered[number])
            except CorruptDataError as error:
                self._events(Warned(f"{error}; going on from the state before, if there is one"))
                continue
            require_own(numbered[number], str(state.pop("identity", "{}")), self.identity)
            return state
        self._events(Warned(f"{self.run_dir} holds no whole state: the run starts anew"))
        return None


def _write_state(run_dir: Place, name: str, arrays: Mapping[str, Any]) -> None:
    if isinstance(run_dir, URLPath):
        require_held(run_dir / LOCK)
        with whole_file(run_dir / name) as file:
            write_arrays(file, arrays)
        return
    part = run_dir / "state.part"
    try:
        with part.open("wb") as file:
            write_arrays(file, arrays)
            file.flush()
            os.fsync(file.fileno())
        part.replace(run_dir / name)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(run_dir)


def has_state(run_dir: Place) -> bool:
    """Whether a run has kept a state to go on from."""
    return bool(_numbered(run_dir))


def require_own(path: Place, found: str, own: Mapping[str, Any]) -> None:
    """Raises ConfigError where a state's identity, as JSON, is of other data, options or another version."""
    try:
        named = {renamed_option(name): was for name, was in dict(json.loads(found)).items()}
    except (ValueError, TypeError):
        named = {}
    for name, expected in own.items():
        was = named.get(name)
        if was != expected:
            raise ConfigError(
                f"{path} is the state of another store or configuration ({name} was {was}, is {expected}); "
                "drop --resume to start anew"
            )


def read_state(path: Place) -> dict[str, np.ndarray]:
    """The arrays of a state. Raises CorruptDataError."""
    try:
        source = _source(path)
        _require_whole(source)
        if isinstance(source, BytesIO):
            source.seek(0)
        with np.load(source, allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays}
        if not all(isinstance(values, np.ndarray) for values in state.values()):
            raise ValueError("members that are no arrays")
    except StorageError:
        raise
    except Exception as error:  # at bytes that nobody wrote so, zipfile and NumPy raise a dozen kinds
        raise CorruptDataError(f"{path}: the state is damaged ({error})") from None
    return state


def read_array(path: Place, name: str) -> np.ndarray:
    """One array of a state. Raises CorruptDataError."""
    try:
        with np.load(_source(path), allow_pickle=False) as arrays:
            found = arrays[name]
        if not isinstance(found, np.ndarray):
            raise ValueError(f"{name} is no array")
    except StorageError:
        raise
    except Exception as error:  # as above; a member's checksum is looked at as it is read
        raise CorruptDataError(f"{path}: the state is damaged ({error})") from None
    return found


def _source(path: Place) -> Path | BytesIO:
    """What NumPy and zipfile read: a file, or the bytes of an object."""
    return path if isinstance(path, Path) else BytesIO(path.read_bytes())


def _require_whole(path: Path | BytesIO) -> None:
    """Raises ValueError where a zip file has wrong checksums, or would unpack to more than it has bytes."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(m.compress_type != zipfile.ZIP_STORED for m in members):
            raise ValueError("compressed members, expected plain ones")
        size = path.stat().st_size if isinstance(path, Path) else len(path.getbuffer())
        if sum(m.file_size for m in members) > size:
            raise ValueError("members larger than the file")
        if damaged := archive.testzip():
            raise ValueError(f"the checksum of {damaged} is wrong")


def write_arrays(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """What np.savez writes, which before NumPy 2.2 cannot be told to refuse pickles."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def _numbered(run_dir: Place) -> dict[int, Place]:
    """The states in a run directory by number."""
    found = (path for path in run_dir.glob("state-*.npz") if path.stem[6:].isdecimal())
    return {int(path.stem[6:]): path for path in found}


def digest(config: FitConfig) -> str:
    """Of what a fit is asked for, wherever it runs."""
    asked = config.model_dump(mode="json", exclude=set(EXECUTION))
    return sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def identity(store: Store, config: FitConfig) -> dict[str, Any]:
    """What tells a run's data, options and program from others."""
    options = config.model_dump(mode="json", exclude=set(EXECUTION))
    flat = {
        f"{group}.{name}": value
        for group, values in options.items()
        for name, value in (values.items() if isinstance(values, dict) else [("", values)])
    }
    options = {name.removesuffix("."): value for name, value in flat.items()}
    return {"store": store.fingerprint(), "streamsvm": __version__, **options}


def is_at_work(run_dir: Place) -> bool:
    """Whether a process holds the folder of a run."""
    return is_locked(run_dir / LOCK)


@contextmanager
def run_folder(path: Place, events: Events = ignore) -> Iterator[Place]:
    """The folder of a run, made where it is not there, and locked against a second writer. Raises StorageError.

    Scratch files of a run that was killed in it are removed.
    """
    with ExitStack() as held:
        with storage_errors(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(locked(path / LOCK, lambda message: events(Warned(message))))
            except InUse as owner:
                raise StorageError(
                    f"{path} is in use by {owner}; wait until that has ended, or take another --run-dir"
                ) from None
            for left in path.glob(f"{SCRATCH}*"):
                remove_tree(left)
        yield path
