"""A model under construction: partitions that come while it is trained, then the whole; in memory or in a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

import numpy as np

from streamsvm.fits.joined import Joined, blocks_of, write
from streamsvm.models import LocalModel
from streamsvm.models.files import Model, ModelWriter, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.runs.phases import Phases
from streamsvm.storage.paths import Place


class _Discarded(Exception):  # noqa: N818  ends a draft, and is no error
    pass


class Draft(Protocol):
    """Takes blocks of a model's arrays as they come."""

    def append(self, name: str, block: np.ndarray) -> None: ...

    def join(self, arrays: Sequence[Joined], folder: Place, engine: Engine) -> None:
        """Arrays of partitions in files; folder: for what tasks write."""
        ...

    def discard(self) -> None:
        """Forgets what came, for another fit."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the arrays of a model are in a file, and nowhere else."""
        ...

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The appended arrays, for the model; empty if they are in a file."""
        ...

    def save(self, model: Model) -> None:
        """Stores the rest of a model, now that it is certified."""
        ...


@contextmanager
def opened_draft(path: Place | None, phase: Phases) -> Iterator[Draft]:
    """A draft of the file at `path`, which appears, whole, at the end; None: of a model that stays in memory."""
    if path is None:
        yield InMemory()
        return
    with ExitStack() as stack:
        yield InFile(path, stack, phase)


class InMemory:
    """A draft of a model that stays in memory."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        self._blocks.setdefault(name, []).append(block)

    def join(self, arrays: Sequence[Joined], folder: Place, engine: Engine) -> None:
        for own in arrays:
            self._blocks[own.name] = [own.like, *blocks_of(own, engine)]

    def discard(self) -> None:
        self._blocks = {}

    @property
    def has_begun(self) -> bool:
        return False

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}

    def save(self, model: Model) -> None:
        """Nothing to do: a model holds its arrays."""


class InFile:
    """A draft in a file; a model that comes in partitions is written from the first one on, until the stack ends."""

    def __init__(self, path: Place, stack: ExitStack, phase: Phases) -> None:
        self._path, self._stack, self._phase = path, stack, phase
        self._writer: ModelWriter | None = None

    def append(self, name: str, block: np.ndarray) -> None:
        self._begun().append(name, block)

    def join(self, arrays: Sequence[Joined], folder: Place, engine: Engine) -> None:
        writer = self._begun()
        for name, place in write(arrays, writer.place_for(folder), engine):
            writer.adopt(name, place)

    def _begun(self) -> ModelWriter:
        if self._writer is None:
            self._writer = self._stack.enter_context(ModelWriter(self._path, LocalModel.kind))
        return self._writer

    def discard(self) -> None:
        with suppress(_Discarded), self._stack.pop_all():  # so that no file appears
            raise _Discarded
        self._writer = None

    @property
    def has_begun(self) -> bool:
        return self._writer is not None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def save(self, model: Model) -> None:
        with self._phase("save"):
            if self._writer is None:
                save_model(model, self._path)
                return
            assert isinstance(model, LocalModel)  # the one kind that comes in partitions
            arrays, self._writer.attrs = model.small_state()
            for name, array in arrays.items():
                self._writer.append(name, array)
