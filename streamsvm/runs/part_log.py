"""Solved partitions of a model, in a folder of an unfinished run: one file each, written whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from streamsvm.errors import CorruptDataError, StorageError
from streamsvm.events import Events, Warned
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.runs.checkpoints import read_array, read_state, write_arrays
from streamsvm.storage.atomic import storage_errors, whole_file
from streamsvm.storage.paths import Place, remove_tree


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
            self._events(Warned(f"{shown}: --resume would solve all partitions of this level again"))
            remove_tree(self.files.folder)  # frees the disk for others
            self.files = None

    def warn(self, error: CorruptDataError) -> None:
        """Warns of a damaged partition."""
        self._events(Warned(f"{error}; this partition and all later ones are solved again"))
