"""Checkpoints of an unfinished run in its folder: numbered files, each written completely or not at all. Two are kept.

A checkpoint is an uncompressed .npz of named arrays and numbers. Reading it needs no pickle, and no more memory than
the file has bytes. Solved partitions of a model have such a file each (`PartFiles`).
"""

from __future__ import annotations

import json
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import dataclass
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
from streamsvm.events import Events, ignore
from streamsvm.parallel.devices import CPU, current_device
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.catalogue import renamed_option
from streamsvm.storage.atomic import storage_errors, whole_file
from streamsvm.storage.locks import InUse, is_locked, locked, require_lease
from streamsvm.storage.paths import Place, URLPath, kind_at, remove_tree
from streamsvm.storage.text import JsonObject

KEPT = 2
LOCK = "lock"  # a file of the run directory
SCRATCH = "streamsvm-scratch-"  # prefix of its folders for scratch files of a running fit
ROWS = "rows"  # a folder of the run directory, for an unfinished run: values for each row, and solved partitions
MOST_SHARE = 0.05  # of a run's time, for checkpoints
# options that do not change the result of a run: they may differ when it is resumed
EXECUTION = (
    "memory_limit", "device", "device_memory", "threads", "workers", "scheduler", "wait_for_scheduler",
    "checkpoint_every",
)  # fmt: skip


class Checkpoints:
    """The checkpoints of a run, in the run directory. Without one, none are saved."""

    def __init__(
        self, run_dir: Place | None, store: Store, config: FitConfig, resume: bool, events: Events = ignore
    ) -> None:
        self.run_dir, self.resume = run_dir, resume
        self.store, self._config = store, config
        self._events = events
        self._every = config.checkpoint_every
        self._steps, self._saved_at, self._cost_s = 0, time.perf_counter(), 0.0
        self._is_resumed = False  # whether a search before the fit was
        self.has_other_tol = False  # whether the loaded checkpoint is of a run with another tolerance
        self.is_loaded = False  # whether there was a state to continue from
        self.choice: Mapping[str, Any] = {}  # the choice of the fit whose states these are
        if run_dir is not None and not resume and _numbered(run_dir):
            message = f"{run_dir} holds a checkpoint of an earlier run, which this run replaces"
            events.warn(f"{message}; with --resume it would continue from it")

    @cached_property
    def identity(self) -> JsonObject:
        """Identifies this run. Computed only when a checkpoint is saved or read, because it reads all labels."""
        return identity(self.store, self._config)

    def inside(self, name: str) -> Checkpoints:
        """The checkpoints of a search before the fit, in a folder of the run directory."""
        checkpoints = copy(self)
        checkpoints._steps, checkpoints._saved_at = 0, time.perf_counter()
        checkpoints.choice, checkpoints.is_loaded = {}, False
        if self.run_dir is not None:
            checkpoints.run_dir = self.run_dir / name
            checkpoints.run_dir.mkdir(exist_ok=True)
            checkpoints.resume = self.resume and has_state(checkpoints.run_dir)
            self._is_resumed |= checkpoints.resume
        return checkpoints

    def has_state_of(self, name: str) -> bool:
        """Whether a search before the fit, see `inside`, has a state to resume from."""
        return self.run_dir is not None and has_state(self.run_dir / name)

    def offer(self, state: Callable[[], Mapping[str, Any]], *, last: bool = False) -> None:
        """Saves `state()` as a checkpoint if one is due, and after the last step. Called after every step. A full disk
        does not end a run: the previous checkpoint is kept, with a warning."""
        self._steps += 1
        if self.run_dir is None or not (last or self._is_time()):
            return
        began = time.perf_counter()
        try:
            header = {"identity": json.dumps(self.identity), "choice": json.dumps(self.choice)}
            self._save(self.run_dir, {**header, **_computed_by(), **state()})
        except OSError as error:
            message = f"no checkpoint could be saved in {self.run_dir} ({error.strerror or error})"
            self._events.warn(f"{message}: --resume would continue from an older one")
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
        if isinstance(run_dir, URLPath):
            require_lease(run_dir / LOCK)
        with whole_file(run_dir / f"state-{number:06d}.npz") as file:
            write_arrays(file, arrays)
        for old in sorted(numbered)[: 1 - KEPT]:
            numbered[old].unlink()

    def load(self) -> dict[str, np.ndarray] | None:
        """The newest whole checkpoint to resume from, or None. Raises ConfigError if it belongs to another run. A run
        with another tol continues from the same states. States of a fit with another choice, by a search or by the time
        left, cannot be used."""
        if not self.resume or self.run_dir is None:
            return None
        numbered = _numbered(self.run_dir)
        for number in sorted(numbered, reverse=True):
            try:
                state = read_state(numbered[number])
            except CorruptDataError as error:
                self._events.warn(f"{error}; using the checkpoint before it, if there is one")
                continue
            saved_identity = str(state.pop("identity", "{}"))
            require_same_run(numbered[number], saved_identity, without_tol(self.identity), self.store, self._events)
            self.has_other_tol = json.loads(saved_identity).get("tol") != self.identity["tol"]
            self._warn_of_device(numbered[number], str(state.pop("device", CPU)))
            choice = json.loads(str(state.pop("choice", "{}")))
            if choice and choice != self.choice:
                reason = f"is of a fit of {choice.get('rows')} rows with other options than are chosen now"
                self._events.warn(f"{numbered[number]} {reason}: this fit starts from scratch")
                return None
            self.is_loaded = True
            return state
        if not self._is_resumed:
            self._events.warn(f"{self.run_dir} holds no whole checkpoint: the run starts from scratch")
        return None

    def _warn_of_device(self, path: Place, saved: str) -> None:
        now = _computed_by().get("device", CPU)
        if saved != now:
            self._events.warn(
                f"{path} was computed on {saved}, and this run computes on {now}: the objective is the same within the "
                "tolerance, the last digits are not"
            )

    def saved_choice(self) -> Mapping[str, Any]:
        """The choice of the fit whose state can be resumed; empty if there is none."""
        if not self.resume or self.run_dir is None:
            return {}
        numbered = _numbered(self.run_dir)
        for number in sorted(numbered, reverse=True):
            with suppress(CorruptDataError, ValueError):
                return dict(json.loads(str(read_array(numbered[number], "choice"))))
        return {}


def _computed_by() -> dict[str, str]:
    """The device that computes now, unless it is the CPU."""
    device = current_device()
    return {} if device is None else {"device": device.name}


def has_state(run_dir: Place) -> bool:
    """Whether a run has saved a checkpoint to resume from."""
    return bool(_numbered(run_dir))


def require_same_run(
    path: Place, saved: str, expected_identity: Mapping[str, Any], store: Store, events: Events
) -> None:
    """Raises ConfigError if the saved identity of a checkpoint, as JSON, has other data, options or another version.
    Warns if an earlier version wrote it, which did not identify all of the data."""
    try:
        saved_values = {renamed_option(name): saved_value for name, saved_value in dict(json.loads(saved)).items()}
    except (ValueError, TypeError):
        saved_values = {}
    defaults = default_options()
    for name, expected in expected_identity.items():
        saved_value = saved_values.get(name, defaults.get(name))
        if name == "store" and store.matches(str(saved_value)) is None:
            events.warn(
                f"{path} is of an earlier version of streamsvm, which did not note weights, queries, nor rows "
                "after the first 64: whether these are still the same is not known"
            )
        elif saved_value != expected:
            raise ConfigError(
                f"{path} is a checkpoint of another store or configuration ({name} was {saved_value}, is {expected}); "
                "drop --resume to start from scratch"
            )


@contextmanager
def _as_damage(path: Place) -> Iterator[None]:
    """Raises CorruptDataError for what damaged bytes make zipfile and NumPy raise, which is a dozen kinds."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        raise CorruptDataError(f"{path}: the checkpoint is damaged ({error})") from None


def read_state(path: Place) -> dict[str, np.ndarray]:
    """The arrays of a checkpoint. Raises CorruptDataError."""
    with _as_damage(path):
        source = _source(path)
        _require_whole(source)
        if isinstance(source, BytesIO):
            source.seek(0)
        with np.load(source, allow_pickle=False) as arrays:
            state = {name: arrays[name] for name in arrays}
        if not all(isinstance(values, np.ndarray) for values in state.values()):
            raise ValueError("members that are not arrays")
    return state


def read_array(path: Place, name: str) -> np.ndarray:
    """One array of a checkpoint, whose checksum is verified while it is read. Raises CorruptDataError."""
    with _as_damage(path):
        with np.load(_source(path), allow_pickle=False) as arrays:
            array = arrays[name]
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is not an array")
    return array


def _source(path: Place) -> Path | BytesIO:
    return path if isinstance(path, Path) else BytesIO(path.read_bytes())


def _require_whole(path: Path | BytesIO) -> None:
    """Raises ValueError if a zip file has wrong checksums, or would unpack to more bytes than it has."""
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
    """Writes the bytes that np.savez writes, which before NumPy 2.2 has no option to refuse pickles."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def _numbered(run_dir: Place) -> dict[int, Place]:
    paths = (path for path in run_dir.glob("state-*.npz") if path.stem[6:].isdecimal())
    return {int(path.stem[6:]): path for path in paths}


def digest(config: FitConfig) -> str:
    """Identifies the result of a fit with this configuration, on whatever machine."""
    options = config.model_dump(mode="json", exclude=set(EXECUTION))
    return sha256(json.dumps(options, sort_keys=True).encode()).hexdigest()[:16]


def identity(store: Store, config: FitConfig) -> JsonObject:
    """Identifies a run's data, options and program."""
    options = by_path(config.model_dump(mode="json", exclude=set(EXECUTION)))
    return {"store": store.fingerprint(), "streamsvm": __version__, **options}


def by_path(options: Mapping[str, Any]) -> JsonObject:
    """Nested options by their path, as `kernel.gamma`."""
    flat = {
        f"{group}.{name}": value
        for group, values in options.items()
        for name, value in (values.items() if isinstance(values, dict) else [("", values)])
    }
    return {name.removesuffix("."): value for name, value in flat.items()}


def default_options() -> JsonObject:
    """The defaults of all options by their path, which they had in runs before they were options."""
    return by_path(FitConfig().model_dump(mode="json"))


def without_tol(options: Mapping[str, Any]) -> JsonObject:
    """The options that a run shares with one that continues it with another tolerance."""
    return {name: value for name, value in options.items() if name != "tol"}


def is_at_work(run_dir: Place) -> bool:
    """Whether a process has locked the folder of a run."""
    return is_locked(run_dir / LOCK)


@contextmanager
def run_folder(path: Place, events: Events = ignore) -> Iterator[Place]:
    """Creates the folder of a run if needed, and locks it against a second writer. Raises StorageError. Removes scratch
    files of a run that was killed in it."""
    if (kind := kind_at(path)) in ("a store", "a model"):
        raise StorageError(f"{path}: found {kind}, expected the folder of a run; take another --run-dir")
    with ExitStack() as stack:
        with storage_errors(str(path)):
            path.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(path / LOCK, events.warn))
            except InUse as owner:
                raise StorageError(
                    f"{path} is in use by {owner}; wait until it ends, or use another --run-dir"
                ) from None
            for left in path.glob(f"{SCRATCH}*"):
                remove_tree(left)
        yield path


@dataclass(frozen=True)
class PartFiles(SizedInBytes):
    """Partitions by number, from 0 on, in a folder that all workers can read."""

    folder: Place

    def write(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises StorageError."""
        with storage_errors(str(self.folder)):
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(self._path(number)) as file:
                write_arrays(file, arrays)

    def read(self, number: int) -> dict[str, np.ndarray] | None:
        """The arrays of a partition, or None if it has no file. Raises CorruptDataError."""
        path = self._path(number)
        return read_state(path) if path.exists() else None

    def array(self, number: int, name: str) -> np.ndarray:
        """One array of a partition. Raises CorruptDataError."""
        return read_array(self._path(number), name)

    def _path(self, number: int) -> Place:
        return self.folder / f"{number:07d}.npz"


class PartLog:
    """Saves the solved partitions that this process receives. files: None if nothing is saved."""

    def __init__(self, files: PartFiles | None, events: Events) -> None:
        self.files, self._events = files, events

    def add(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Saves a partition. A full disk does not end a run: a warning says what would be solved again."""
        if self.files is None:
            return
        try:
            self.files.write(number, arrays)
        except StorageError as error:
            shown = f"partition {number} could not be saved ({error})"
            self._events.warn(f"{shown}: --resume would solve all partitions of this level again")
            remove_tree(self.files.folder)  # frees the disk for others
            self.files = None

    def warn(self, error: CorruptDataError) -> None:
        """Warns of a damaged partition."""
        self._events.warn(f"{error}; this partition and all later ones are solved again")
