"""A model under construction: its partitions come while it is trained, then the rest; in memory or in a file.

If the partitions of a model are in files, tasks join each of its arrays chunk by chunk (`JoinedArray`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from streamsvm.data.samples import Block
from streamsvm.models import LocalModel
from streamsvm.models.files import Model, ModelWriter, save_model
from streamsvm.parallel.engine import Engine, several
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.private.zarr import open_for_writing
from streamsvm.runs.checkpoints import PartFiles
from streamsvm.runs.phases import Phases
from streamsvm.storage.atomic import storage_errors
from streamsvm.storage.chunks import create_array, default_rows
from streamsvm.storage.paths import Place

INDPTR = "support_indptr"
MOST_TOGETHER = 32  # chunks that one task writes


@dataclass(frozen=True)
class JoinedArray(SizedInBytes):
    """One array of the model: those of all partitions, concatenated. bounds (partitions + 1,): the first row of each.
    like: the array without rows. before (partitions,): entries of the sparse rows before each partition, which are
    added to the ends of its rows."""

    files: PartFiles
    name: str
    bounds: np.ndarray
    like: np.ndarray  # none of its rows
    before: np.ndarray | None = None

    def __len__(self) -> int:
        return int(self.bounds[-1])

    @property
    def chunk_rows(self) -> int:
        """As of an array that grew block by block: the bytes of its files are the same."""
        return max(1, min(default_rows(self.like.dtype, self.like.shape[1:]), len(self)))

    @property
    def blocks(self) -> list[Block]:
        step = self.chunk_rows
        return [(start, min(start + step, len(self))) for start in range(0, len(self), step)]

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start..stop, at least one. Raises CorruptDataError."""
        first, last = np.searchsorted(self.bounds, (start, stop - 1), side="right") - 1
        pieces = [self._of(part, start, stop) for part in range(first, last + 1)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _of(self, part: int, start: int, stop: int) -> np.ndarray:
        array, first = self.files.array(part, self.name), int(self.bounds[part])
        if self.before is not None:
            array = indptr_after(array, part, int(self.before[part]))
        return array[max(0, start - first) : stop - first]


def joined(files: PartFiles, rows: np.ndarray, entries: np.ndarray) -> list[JoinedArray]:
    """Of partitions in files the support rows, (partitions,) rows each with so many entries, coefficients and codes."""
    first = files.read(0)
    assert first is not None  # a model has partitions
    bounds, of_entries = (np.cumsum([0, *counts], dtype=np.int64) for counts in (rows, entries))
    arrays = []
    for name in (name for name in first if name in ("alpha", "codes") or name.startswith("support")):
        like = first[name][:0]
        if name == INDPTR:
            arrays.append(JoinedArray(files, name, bounds + (np.arange(len(bounds)) > 0), like, of_entries))
        else:
            is_entry = name in ("support_indices", "support_data")
            arrays.append(JoinedArray(files, name, of_entries if is_entry else bounds, like))
    return arrays


def indptr_after(indptr: np.ndarray, part: int, entries: int) -> np.ndarray:
    """The ends of a partition's sparse rows, after `entries` of partitions before; only the first one starts with 0."""
    return indptr[part > 0 :] + entries


def write(arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> Iterator[tuple[str, Place]]:
    """Names and places of these arrays, after tasks have written them to a folder that they see."""
    with storage_errors(str(folder)):
        group = zarr.open_group(str(folder), mode="a", zarr_format=3)
        for array in arrays:
            shape, chunks = (len(array), *array.like.shape[1:]), (array.chunk_rows, *array.like.shape[1:])
            create_array(group, array.name, shape=shape, chunks=chunks, dtype=array.like.dtype)
    for array in arrays:
        place = folder / array.name
        together = max(1, min(MOST_TOGETHER, len(array.blocks) // (4 * engine.slots)))
        for _ in engine.map(_write, several(array.blocks, together), shared=(engine.share(array), place)):
            pass
        yield array.name, place


def _write(joined_array: JoinedArray, place: Place, blocks: Sequence[Block]) -> None:
    array: Any = open_for_writing(str(place))
    for block in blocks:
        with storage_errors(str(place)):
            array[slice(*block)] = joined_array.read(*block)


def _read(array: JoinedArray, block: Block) -> np.ndarray:
    return array.read(*block)


class _Discarded(Exception):  # noqa: N818  ends a draft, and is no error
    pass


class ModelDraft:
    """Takes blocks of a model's arrays as they come: into memory."""

    has_begun = False  # whether the arrays of a model are in a file only

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        self._blocks.setdefault(name, []).append(block)

    def join(self, arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> None:
        """Takes arrays of partitions in files; folder: where tasks write."""
        for array in arrays:
            blocks = engine.map(_read, array.blocks, shared=(engine.share(array),))
            self._blocks[array.name] = [array.like, *blocks]

    def discard(self) -> None:
        """Drops all blocks, before another fit."""
        self._blocks = {}

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The appended arrays, for the model; empty if they are in a file."""
        return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}

    def save(self, model: Model) -> None:
        """Stores the rest of a model, after it is certified; in memory, a model holds its arrays."""


@contextmanager
def opened_draft(path: Place | None, phase: Phases) -> Iterator[ModelDraft]:
    """A draft of the file at `path`, which appears, complete, at the end; None: of a model that stays in memory."""
    if path is None:
        yield ModelDraft()
        return
    with ExitStack() as stack:
        yield DraftInFile(path, stack, phase)


class DraftInFile(ModelDraft):
    """A draft in a file; a model that comes in partitions is written from the first one on, until the stack ends."""

    def __init__(self, path: Place, stack: ExitStack, phase: Phases) -> None:
        super().__init__()
        self._path, self._stack, self._phase = path, stack, phase
        self._writer: ModelWriter | None = None

    def append(self, name: str, block: np.ndarray) -> None:
        self._open_writer().append(name, block)

    def join(self, arrays: Sequence[JoinedArray], folder: Place, engine: Engine) -> None:
        writer = self._open_writer()
        for name, place in write(arrays, writer.place_for(folder), engine):
            writer.adopt(name, place)

    def _open_writer(self) -> ModelWriter:
        if self._writer is None:
            self._writer = self._stack.enter_context(ModelWriter(self._path, LocalModel.kind))
        return self._writer

    def discard(self) -> None:
        with suppress(_Discarded), self._stack.pop_all():  # so that no file appears
            raise _Discarded
        self._writer = None

    @property
    def has_begun(self) -> bool:  # type: ignore[override]
        return self._writer is not None

    def save(self, model: Model) -> None:
        with self._phase("save"):
            if self._writer is None:
                save_model(model, self._path)
                return
            assert isinstance(model, LocalModel)  # the one kind that comes in partitions
            arrays, self._writer.attrs = model.small_state()
            for name, array in arrays.items():
                self._writer.append(name, array)
