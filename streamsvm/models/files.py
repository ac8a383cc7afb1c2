"""Models as files: a zarr group of arrays with JSON attributes. No pickle, no code on load, a closed list of kinds.

A model class has `kind`, `to_state() -> (arrays, attrs)` and `from_state(arrays, attrs)`. `arrays` maps names to
NumPy arrays; loaded ones are read from disk when sliced or converted, so a large model can be read piece by piece."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import zarr

from streamsvm.errors import CorruptDataError, ModelError, NotFoundError, StorageError, StreamSVMError
from streamsvm.parallel.imports import imported
from streamsvm.private.zarr import opened_as_is
from streamsvm.storage.arrays import Arrays, Attrs, State
from streamsvm.storage.atomic import AT, Target, Version, arrays_at
from streamsvm.storage.chunks import CheckedArray, GrowingArray, whole_metadata
from streamsvm.storage.paths import MODEL_FORMAT, STORE_MARK, Place, URLPath, nearest, place_of
from streamsvm.storage.text import jsonable
from streamsvm.texts.documented import described

if TYPE_CHECKING:
    from streamsvm.models.base import Model as AnyModel

KEEP_BYTES = 64 << 20
KEEP_CHUNKS = 4  # of an array that is larger: threads read different chunks
VERSION = 1  # of models, but for those with
OF_TARGETS = 2  # values of target-encoded columns
PACKED = 3  # arrays of one type as one, see `storage.arrays`
MODELS = {  # module:class by kind
    "kernel": "streamsvm.models:KernelModel",
    "local": "streamsvm.models:LocalModel",
    "budget": "streamsvm.models:BudgetModel",
    "local-budget": "streamsvm.models:LocalBudgetModel",
    "linear": "streamsvm.models:LinearModel",
    "expansion": "streamsvm.models:ExpansionModel",
    "experts": "streamsvm.models:ExpertsModel",
    "ensemble": "streamsvm.models:EnsembleModel",
}
FACTORISATIONS = {"hss": "streamsvm.hss.files:Factorisation", "hss-subtree": "streamsvm.hss.files:SubtreeFactorisation"}
_RESERVED = ("format", "version", "kind", "strings", AT)


class Model(Protocol):
    """The interface that saving and loading need."""

    kind: ClassVar[str]

    def to_state(self) -> State: ...

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> Self: ...


def block_length(array: Any) -> int:
    """Entries of an array, along its first axis, that are read at once."""
    return max(1, KEEP_BYTES // max(1, array.dtype.itemsize * math.prod(array.shape[1:])))


def save_model(model: Model, path: str | Place) -> None:
    """Writes the model completely or not at all, and replaces an older model at `path`. Raises StorageError. Arrays
    that are on disk, even at `path`, are copied block by block."""
    arrays, attrs = model.to_state()
    with ModelWriter(path, model.kind) as writer:
        for name, array in arrays.items():
            step = block_length(array)
            for start in range(0, max(1, len(array)), step):
                writer.append(name, array[start : start + step])
        writer.attrs = attrs


@described
def load_model(path: str | Place) -> AnyModel:
    """Reads a saved model, without running any code of it.

    Returns
    -------
    Model
        The model, of the class that its `kind` names.

    Raises
    ------
    NotFoundError, ModelError, CorruptDataError, StorageError

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamsvm import DCSVC, load_model
    >>> DCSVC().fit(*load_iris(return_X_y=True)).save("iris.model.zarr")
    >>> model = load_model("iris.model.zarr")
    >>> model  # doctest: +ELLIPSIS
    KernelModel(classify, rbf gamma=..., 4 features, 3 classes, ... support vectors)
    >>> model.classes
    array([0, 1, 2])
    """
    model: AnyModel = _load(place_of(path), MODELS)
    return model


def model_class(kind: str) -> type[AnyModel]:
    """The class of models of a kind, one of MODELS."""
    of_kind: type[AnyModel] = imported(MODELS[kind])
    return of_kind


def load_factorisation(path: str | Place) -> Any:
    """The factorisation that `save_model` wrote to `path`. Raises NotFoundError, ModelError, CorruptDataError."""
    return _load(place_of(path), FACTORISATIONS)


def _load(path: Place, classes: Mapping[str, str]) -> Any:
    attrs = read_attrs(path)
    kind = attrs.get("kind")
    if not isinstance(kind, str) or kind not in classes:
        raise ModelError(f"{path}: found a model of kind {kind!r}, supported are {', '.join(classes)}")
    class_of_kind: type[Model] = imported(classes[kind])
    with whole_metadata(str(path)):
        arrays = stored_arrays(path, attrs)
        return class_of_kind.from_state(arrays, {k: v for k, v in attrs.items() if k not in _RESERVED})


def stored_arrays(path: Place, attrs: Attrs) -> Mapping[str, Any]:
    """The arrays of the model with these attributes, opened on access; text is in the attributes."""
    strings = {name: _text(values) for name, values in attrs["strings"].items()}
    return _Arrays(arrays_at(path, attrs), strings)


def read_attrs(path: Place) -> Attrs:
    """A model's attributes, after a check of format and version; reads no array."""
    attrs = _group_attrs(path)
    if STORE_MARK in attrs:
        raise ModelError(f"{path}: found a store of data, expected a model; a store is given by --store")
    if attrs.get("format") != MODEL_FORMAT:
        raise ModelError(f"{path}: found a zarr group that is not a model, expected one written by streamsvm fit")
    if attrs.get("version") not in (VERSION, OF_TARGETS, PACKED):
        raise ModelError(
            f"{path}: found model version {attrs.get('version')!r}, this streamsvm reads versions {VERSION} to "
            f"{PACKED}; use the streamsvm that wrote it, or a newer one"
        )
    if not isinstance(attrs.setdefault("strings", {}), dict):
        raise CorruptDataError(f"{path}: the attribute 'strings' is damaged")
    return attrs


def is_model(path: Place) -> bool:
    """Whether `path` holds a model of any version."""
    try:
        return _group_attrs(path).get("format") == MODEL_FORMAT
    except StreamSVMError:
        return False


def _group_attrs(path: Place) -> Attrs:
    try:
        metadata = json.loads((path / "zarr.json").read_text(encoding="utf-8"))
    except StorageError:
        raise
    except OSError:
        if not path.exists():
            raise NotFoundError(f"{path}: no such model{nearest(path)}") from None
        raise ModelError(f"{path}: found no zarr.json, expected a model written by streamsvm fit") from None
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"{path}/zarr.json: damaged: {error}") from None
    attrs = metadata.get("attributes", {}) if isinstance(metadata, dict) else None
    if not isinstance(attrs, dict):
        raise CorruptDataError(f"{path}/zarr.json: damaged: expected the metadata of a zarr group")
    return attrs


def _text(values: Any) -> np.ndarray:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError("expected a list of texts")
    return np.array(values, dtype=str)


class StoredArray:
    """An array of a stored model: shape, dtype, len; rows are read when sliced, all by `np.asarray`. An array of at
    most KEEP_BYTES stays in memory after its first use; of a larger one the last chunks do, as partitions are read in
    order."""

    def __init__(self, checked: CheckedArray) -> None:
        self._checked = checked
        self.shape, self.dtype = checked.shape, np.dtype(checked.dtype)
        self._is_small = math.prod(self.shape) * self.dtype.itemsize <= KEEP_BYTES
        self._chunk = lru_cache(KEEP_CHUNKS)(self._read_chunk)

    def __reduce__(self) -> Any:
        return StoredArray, (self._checked,)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise IndexError(f"stored rows are read in order, found a step of {step}")
        return self._whole[start:stop] if self._is_small else self._read(start, stop)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self[:], dtype=dtype, copy=copy)

    @cached_property
    def _whole(self) -> np.ndarray:
        return self._read(0, len(self))

    def _read(self, start: int, stop: int) -> np.ndarray:
        if 0 in self.shape:  # no chunk is stored
            return np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        step = self._checked.chunk_rows
        if stop - start > step or start >= stop:
            return self._checked.read(start, stop)
        pieces = [
            self._chunk(c)[max(0, start - c * step) : stop - c * step] for c in range(start // step, -(-stop // step))
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _read_chunk(self, number: int) -> np.ndarray:
        step = self._checked.chunk_rows
        return self._checked.read(number * step, min(len(self), (number + 1) * step))


class _Arrays(Mapping[str, Any]):
    """The arrays of a stored model, opened on access."""

    def __init__(self, path: Place, strings: dict[str, np.ndarray]) -> None:
        self._path, self._strings = path, strings
        self._group = opened_as_is(str(path), zarr_format=3)

    def __getitem__(self, name: str) -> Any:
        if name in self._strings:
            return self._strings[name]
        try:
            array = self._group[name]
        except KeyError:
            raise CorruptDataError(f"{self._path}: array {name!r} is missing") from None
        except (ValueError, TypeError) as error:
            raise CorruptDataError(f"{self._path}/{name}: damaged metadata: {error}") from None
        if not isinstance(array, zarr.Array):
            raise CorruptDataError(f"{self._path}/{name}: found a group, expected an array")
        return StoredArray(CheckedArray(array, f"{self._path}/{name}"))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._strings or name in self._group)

    def __iter__(self) -> Iterator[str]:
        yield from self._strings
        yield from self._group.array_keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)


class ModelWriter:
    """Writes a model piece by piece: `append` grows an array's first axis, `attrs` is set before the end. A context
    manager: on a clean exit the model appears at `path`, on an exception nothing does."""

    def __init__(self, path: str | Place, kind: str) -> None:
        self.attrs: Attrs = {}
        self._kind = kind
        place = place_of(path)
        replaces = is_model(place)
        self._target = Version(place, replaces) if isinstance(place, URLPath) else Target(str(path), replaces)
        self._columns: dict[str, GrowingArray] = {}
        self._strings: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        with self._target.errors():
            self._group = self._target.begin()
        return self

    def append(self, name: str, block: np.ndarray) -> None:
        """Adds the rows of `block` (m, ...) to the array `name`; labels that are text (m,) go into the attributes."""
        block = np.asarray(block)
        if block.dtype.kind == "U":
            self._strings.setdefault(name, []).extend(block.tolist())
            return
        if name not in self._columns:
            self._columns[name] = GrowingArray(self._group, name)
        with self._target.errors():
            self._columns[name].append(block)

    def place_for(self, folder: Place) -> Place:
        """The place for tasks to write arrays that it adopts: folder, or, in an object store, the model itself."""
        return self._target.place_for(folder)

    def adopt(self, name: str, array: Place) -> None:
        """Takes an array that tasks wrote there as the array `name`."""
        with self._target.errors():
            self._target.adopt(name, array)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with self._target.errors():
                    self._finish()
        finally:
            self._target.discard()

    def _finish(self) -> None:
        for column in self._columns.values():
            column.close()
        clash = set(self.attrs) & set(_RESERVED)
        if clash:
            raise ValueError(f"model attributes may not be named {', '.join(sorted(clash))}")
        has_values = any("values" in column for column in self.attrs.get("layout", {}).get("columns", ()))
        version = PACKED if "packed" in self.attrs else OF_TARGETS if has_values else VERSION
        head = {"format": MODEL_FORMAT, "version": version, "kind": self._kind, "strings": self._strings}
        self._group.attrs.put(jsonable({**head, **self.attrs}))
        self._target.commit()
