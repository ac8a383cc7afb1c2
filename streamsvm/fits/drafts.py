"""A model under construction: partitions that come while it is trained, then the whole; in memory or in a file.

The arrays of a model whose partitions are in files: tasks join them chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import zarr

from streamsvm.data.growing import create_array, default_rows
from streamsvm.data.samples import Block
from streamsvm.models import LocalModel
from streamsvm.models.files import Model, ModelWriter, save_model
from streamsvm.parallel.engine import Engine, several
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.zarr import open_for_writing
from streamsvm.runs.part_log import PartFiles
from streamsvm.runs.phases import Phases
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.paths import Place


class _Discarded(Exception):  # noqa: N818  ends a draft, and is no error
    pass


class ModelDraft(Protocol):
    """Takes blocks of a model's arrays as they come."""

    def append(self, name: str, block: np.ndarray) -> None: ...

    def join(self, arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> None:
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
def opened_draft(path: Place | None, phase: Phases) -> Iterator[ModelDraft]:
    """A draft of the file at `path`, which appears, whole, at the end; None: of a model that stays in memory."""
    if path is None:
        yield DraftInMemory()
        return
    with ExitStack() as stack:
        yield DraftInFile(path, stack, phase)


class DraftInMemory:
    """A draft of a model that stays in memory."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        self._blocks.setdefault(name, []).append(block)

    def join(self, arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> None:
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


class DraftInFile:
    """A draft in a file; a model that comes in partitions is written from the first one on, until the stack ends."""

    def __init__(self, path: Place, stack: ExitStack, phase: Phases) -> None:
        self._path, self._stack, self._phase = path, stack, phase
        self._writer: ModelWriter | None = None

    def append(self, name: str, block: np.ndarray) -> None:
        self._begun().append(name, block)

    def join(self, arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> None:
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


INDPTR = "support_indptr"
MOST_TOGETHER = 32  # chunks that one task writes


@dataclass(frozen=True)
class JoinedArray(SizedInBytes):
    """One array of the model, made of those of all partitions, one after another.

    bounds (partitions + 1,): where each begins. before (partitions,): what is added to the ends of a partition's
    sparse rows.
    """

    files: PartFiles
    name: str
    bounds: np.ndarray
    like: np.ndarray  # none of its rows
    before: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def chunk_rows(self) -> int:
        """As of an array that grew: the bytes of its files are the same."""
        return max(1, min(default_rows(self.like.dtype, self.like.shape[1:]), len(self)))

    @property
    def blocks(self) -> list[Block]:
        step = self.chunk_rows
        return [(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start..stop, at least one. Raises CorruptDataError."""
        first, last = np.searchsorted(self.bounds, (start, stop - 1), side="right") - 1
        own = [self._of(part, start, stop) for part in range(first, last + 1)]
        return own[0] if len(own) == 1 else np.concatenate(own)

    def _of(self, part: int, start: int, stop: int) -> np.ndarray:
        found, begins = self.files.array(part, self.name), int(self.bounds[part])
        if self.before is not None:
            found = indptr_after(found, part, int(self.before[part]))
        return found[max(0, start - begins) : stop - begins]


def joined(files: PartFiles, rows: np.ndarray, entries: np.ndarray) -> list[JoinedArray]:
    """The support rows, coefficients and codes of partitions in files; rows, entries (partitions,): support rows of
    each, and nonzeros of these."""
    first = files.read(0)
    assert first is not None  # a model has partitions
    bounds, of_entries = (np.cumsum([0, *own], dtype=np.int64) for own in (rows, entries))
    found = []
    for name in (name for name in first if name in ("alpha", "codes") or name.startswith("support")):
        like = first[name][:0]
        if name == INDPTR:
            found.append(JoinedArray(files, name, bounds + (np.arange(len(bounds)) > 0), like, of_entries))
        else:
            is_entry = name in ("support_indices", "support_data")
            found.append(JoinedArray(files, name, of_entries if is_entry else bounds, like))
    return found


def indptr_after(indptr: np.ndarray, part: int, entries: int) -> np.ndarray:
    """The ends of a partition's sparse rows, after so many entries of the partitions before: all start with a single
    0."""
    return indptr[part > 0 :] + entries


def write(arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> Iterator[tuple[str, Place]]:
    """Names and places of these arrays, as tasks have written them to a folder that they see."""
    with storage_errors(str(folder)):
        group = zarr.open_group(str(folder), mode="a", zarr_format=3)
        for own in arrays:
            shape, chunks = (len(own), *own.like.shape[1:]), (own.chunk_rows, *own.like.shape[1:])
            create_array(group, own.name, shape=shape, chunks=chunks, dtype=own.like.dtype)
    for own in arrays:
        place = folder / own.name
        together = max(1, min(MOST_TOGETHER, len(own.blocks) // (4 * engine.slots)))
        for _ in engine.map(_write, several(own.blocks, together), shared=(engine.share(own), place)):
            pass
        yield own.name, place


def blocks_of(own: JoinedArray, engine: Engine) -> Iterator[np.ndarray]:
    """An array, read by tasks."""
    yield from engine.map(_read, own.blocks, shared=(engine.share(own),))


def _write(own: JoinedArray, place: Place, blocks: Sequence[Block]) -> None:
    array: Any = open_for_writing(str(place))
    for block in blocks:
        with storage_errors(str(place)):
            array[slice(*block)] = own.read(*block)


def _read(own: JoinedArray, block: Block) -> np.ndarray:
    return own.read(*block)
