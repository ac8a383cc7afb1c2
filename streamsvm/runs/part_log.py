"""The parts of a model that are solved, in a folder of an unfinished run: a file each, written whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from streamsvm.errors import CorruptDataError
from streamsvm.events import Events, Warned
from streamsvm.runs.checkpoints import read_state, write_arrays


class PartLog:
    """Parts by number, from 0 on; folder: of what there is of each row, None where nothing is kept."""

    def __init__(self, folder: Path | None, events: Events) -> None:
        self._folder, self._events = None if folder is None else folder / "solved", events

    def add(self, number: int, arrays: Mapping[str, np.ndarray]) -> None:
        """A disk that is full ends no run: a warning says that parts from here on would be solved again."""
        if self._folder is None:
            return
        path = self._path(self._folder, number)
        whole = path.with_suffix(".part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with whole.open("wb") as file:
                write_arrays(file, arrays)
            whole.replace(path)
        except OSError as error:
            self._events(
                Warned(
                    f"part {number} could not be kept in {self._folder} ({error.strerror or error}): --resume would "
                    "solve all parts of this level again"
                )
            )
            shutil.rmtree(self._folder, ignore_errors=True)  # room for others
            self._folder = None

    def read(self, number: int) -> dict[str, np.ndarray] | None:
        """None of one that is not there, or damaged."""
        path = None if self._folder is None else self._path(self._folder, number)
        if path is None or not path.exists():
            return None
        try:
            return read_state(path)
        except CorruptDataError as error:
            self._events(Warned(f"{error}; it is solved again, and those after it"))
            return None

    @staticmethod
    def _path(folder: Path, number: int) -> Path:
        return folder / f"{number:07d}.npz"
