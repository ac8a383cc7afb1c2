"""The files of sources: a file, a pattern or a folder with any number of files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import PurePath
from typing import NamedTuple, NoReturn
from urllib.parse import unquote

import pyarrow as pa

from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.ingest.streams import is_data_name, is_server, without_password
from streamsvm.ingest.table import Batches, Table
from streamsvm.storage.paths import Place, URLPath, kind_at, local_path, place_of
from streamsvm.tables.arrow import of_texts

NOTHING = "__HIVE_DEFAULT_PARTITION__"  # value in a folder name with which Hive and Spark write a gap
_NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")


class FolderValue(NamedTuple):
    """A value from a folder's name. text None: a gap. kind: `number` if it is a number in all folders."""

    text: str | None
    kind: str


Parts = dict[str, FolderValue]


class DataFile(NamedTuple):
    """A file. `parts`: columns from folder names, such as `region=EU`."""

    path: str
    parts: Parts


def files_of(sources: Sequence[str]) -> list[DataFile]:
    """The files of all sources. Those of a pattern or folder are sorted by name. Raises NotFoundError, and ConfigError
    for a file found twice."""
    files = [(path, {} if path == source else _folder_values(path)) for source, path in paths_of(sources)]
    pairs = [pair for _, values in files for pair in values.items()]
    words = {name for name, text in pairs if text is not None and not _NUMBER.fullmatch(text)}
    kinds = {name: "text" if name in words else "number" for name, text in pairs if text is not None}
    return [
        DataFile(path, {name: FolderValue(text, kinds.get(name, "text")) for name, text in values.items()})
        for path, values in files
    ]


def paths_of(sources: Sequence[str]) -> list[tuple[str, str]]:
    """(source, path) of each file of `files_of`."""
    by_place: dict[Place, tuple[str, str]] = {}
    for source in map(without_password, sources):
        for path in _files_below(source) or [source]:
            file = place_of(path).resolve()
            if file in by_place:
                first, path_before = by_place[file]
                name = path if path == path_before else f"{path}, which is {path_before},"
                problem = f"{name} is found twice, by {first!r} and by {source!r}"
                raise ConfigError(f"{problem}; expected each file once, leave one out")
            by_place[file] = source, path
    return [*by_place.values()]


def root_of(source: str) -> str:
    """The folder of a source's files. For a pattern, the folder that it begins with."""
    local = local_path(source)
    if local is not None and local.is_dir():
        return str(local)
    return re.split(r"[^/\\]*[*?[]", source, maxsplit=1)[0] if is_pattern(source) else os.path.dirname(source)


def is_pattern(source: str) -> bool:
    """Whether the source is a pattern. In a URL only stars count, because other marks have a meaning there."""
    local = local_path(source)
    return "*" in source if local is None else has_magic(source) and not local.exists()


def has_files(folder: str) -> bool:
    """Whether a folder has files that ingest reads, at any depth."""
    try:
        return bool(_files_below(folder))
    except NotFoundError:
        return False


def _files_below(source: str) -> list[str] | None:
    """The files that match a pattern, or the data files below a folder. None if the source is neither."""
    local, is_one = local_path(source), is_pattern(source)
    if is_server(source):
        return None
    if local is None:
        place = URLPath(source.rstrip("/"))
        files = place.files() if is_one or place.is_dir() else None
    elif local.is_dir():
        if (kind := kind_at(local)) in ("a store", "a model"):
            raise ConfigError(f"{source}: found {kind}, expected files; give a store with --store")
        files = [os.path.join(folder, name) for folder, _, names in os.walk(local, onerror=_fail) for name in names]
    else:
        files = [p for p in glob(str(local), recursive=True) if os.path.isfile(p)] if is_one else None
    if files is None:
        return None
    if not is_one:
        below = [(path, PurePath(path[len(source) :]).parts) for path in files if is_data_name(path)]
        files = [path for path, names in below if not any(name.startswith((".", "_")) for name in names)]
    if not files:
        problem = "matches" if is_one else "of a format that ingest reads is in this folder"
        raise NotFoundError(f"{source}: no file {problem}; expected at least one")
    return sorted(set(files))  # recursive patterns may find a file twice


def _fail(error: OSError) -> NoReturn:
    raise error


def _folder_values(path: str) -> dict[str, str | None]:
    pairs = [name.partition("=") for name in re.split(r"[/\\]", path)[:-1]]
    return {name: None if text == NOTHING else unquote(text) for name, mark, text in pairs if name and mark}


class FolderTable(Table):
    """A table in folders whose names add columns before those of the table, which take precedence."""

    def __init__(self, table: Table, parts: Parts) -> None:
        self.first_line, self.has_commas, self.remarks = table.first_line, table.has_commas, table.remarks
        table_columns = table.kinds()
        self._table, self._parts = table, {name: p for name, p in parts.items() if name not in table_columns}

    def kinds(self) -> dict[str, str]:
        return {name: part.kind for name, part in self._parts.items()} | self._table.kinds()

    def row_numbers(self) -> set[str]:
        return self._table.row_numbers()

    def written(self) -> dict[str, pa.DataType]:
        types = {name: pa.float64() for name, part in self._parts.items() if part.kind == "number"}
        return types | self._table.written()

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        table_types = {name: type_ for name, type_ in types.items() if name not in self._parts}
        needed = table_types or {next(iter(self._table.kinds())): pa.string()}  # at least one, for the number of rows
        for batch in self._table.batches(needed):
            for name in types.keys() & self._parts:
                texts = of_texts([self._parts[name].text] * batch.num_rows)
                batch = batch.append_column(name, texts.cast(types[name]))
            yield batch

    def close(self) -> None:
        self._table.close()
