"""Checks a model file, and that it contains no code: every file has to belong to a model, every byte is read."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from streamsvm.errors import CorruptDataError, ModelError
from streamsvm.models.files import block_length, load_model, read_attrs, stored_arrays
from streamsvm.storage.arrays import Attrs
from streamsvm.storage.atomic import arrays_at
from streamsvm.storage.chunks import whole_metadata
from streamsvm.storage.paths import Place, URLPath, place_of
from streamsvm.texts.documented import described

CODECS = frozenset({"bytes", "crc32c", "zstd"})  # what models are packed by: no codec that makes objects
NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
_ARRAY = re.compile(r"([\w.-]+)/zarr\.json")
_CHUNK = re.compile(r"([\w.-]+)/c(/\d+)+")


@described
def audit(path: str | Place) -> dict[str, Any]:
    """Reads a whole model, compares it with its checksums, and lists what it holds. None of it is code.

    A model is one JSON file, and arrays of numbers, each with its own JSON. `kind` selects a class from a closed list.

    Returns
    -------
    dict
        `model`, `kind`, `version`, `attributes` (the names in the JSON), `files`, `bytes` of the arrays in memory, and
        `arrays`, each with `array`, `shape`, `dtype`, `codecs` and `bytes`.

    Raises
    ------
    ModelError
        Anything else in the model, with the name of the file: a link, an unknown file, an array that is not numeric, a
        codec beyond `CODECS`.
    NotFoundError, CorruptDataError, StorageError
        As `load_model`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from streamsvm import DCSVC, audit
    >>> DCSVC().fit(*load_iris(return_X_y=True)).save("iris.model.zarr")
    >>> report = audit("iris.model.zarr")
    >>> report["kind"], report["arrays"][0]["array"], report["arrays"][0]["codecs"]
    ('kernel', 'alpha', ['bytes', 'zstd', 'crc32c'])
    """
    place = place_of(path)
    attrs = read_attrs(place)
    home = arrays_at(place, attrs)
    files = list(_files(home))
    for name in files:
        chunk = _CHUNK.fullmatch(name)
        if not (name == "zarr.json" or _ARRAY.fullmatch(name) or (chunk and f"{chunk[1]}/zarr.json" in files)):
            raise ModelError(f"{home}/{name}: found a file that does not belong to a model; inspect it and remove it")
    entries = [_array(home, match[1]) for name in files if (match := _ARRAY.fullmatch(name))]
    load_model(place)
    with whole_metadata(str(place)):
        arrays = stored_arrays(place, attrs)
        entries = [entry | {"bytes": _read(arrays[entry["array"]])} for entry in entries]
    return {
        "model": str(path),
        "kind": attrs["kind"],
        "version": attrs["version"],
        "attributes": sorted(attrs),
        "files": len(files),
        "bytes": sum(entry["bytes"] for entry in entries),
        "arrays": entries,
    }


def _files(home: Place) -> Iterator[str]:
    """Names of all files below a folder, relative to it, in order. Raises ModelError for a link."""
    if isinstance(home, URLPath):
        yield from sorted(url.removeprefix(f"{home.url}/") for url in home.files())
        return
    for folder, folders, names in os.walk(home):
        folders.sort()
        for name in sorted(folders + names):
            if (Path(folder) / name).is_symlink():
                raise ModelError(f"{folder}/{name}: found a link, expected a model to hold only files")
        yield from ((Path(folder) / name).relative_to(home).as_posix() for name in sorted(names))


def _array(home: Place, name: str) -> Attrs:
    """Name, shape, dtype and codecs of an array, from its metadata. Raises ModelError unless it holds plain numbers."""
    where = f"{home}/{name}/zarr.json"
    try:
        metadata = json.loads((home / name / "zarr.json").read_text(encoding="utf-8"))
        dtype, shape = metadata["data_type"], metadata["shape"]
        codecs = [codec["name"] for codec in metadata["codecs"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CorruptDataError(f"{where}: damaged: {error}") from None
    if not (isinstance(dtype, str) and NUMBERS.fullmatch(dtype)):
        raise ModelError(f"{where}: found values of type {dtype!r}, expected numbers")
    for codec in codecs:
        if codec not in CODECS:
            raise ModelError(f"{where}: found the codec {codec!r}, expected {', '.join(sorted(CODECS))}")
    return {"array": name, "shape": shape, "dtype": dtype, "codecs": codecs}


def _read(array: Any) -> int:
    """Bytes of an array, all of which is read, block by block. Raises CorruptDataError."""
    step = block_length(array)
    return sum(array[start : start + step].nbytes for start in range(0, len(array), step))
