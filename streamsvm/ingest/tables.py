"""Tables in files and databases, read batch by batch through Arrow.

`TableReader` makes blocks of samples from any `Table`: it selects the columns of features, label and query id, and
`SplitColumns` those of groups and of values to split by. `table_of` opens a table: CSV (csv_files.py), a database
(databases.py), or `Parquet` and `ArrowFile`, which have typed columns. `OtherColumns` and `values_of` read columns by
name, next to their rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from operator import not_

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.data.labels import CUT, NAMED, is_cut, is_finite, lacks_name, parse_labels, set_texts
from streamsvm.data.layout import Layout, listed
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.block import Block, OpenStream, Reader, cast
from streamsvm.ingest.csv_files import Csv
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.ingest.paths import DataFile, FolderTable, Parts, files_of
from streamsvm.ingest.streams import CSV, DATABASES, TABLES, Stream, detect_format, open_raw
from streamsvm.ingest.table import (
    ARROW_ERRORS,
    NO_HINTS,
    ArrowTable,
    Batches,
    ColumnHints,
    Table,
    arrow_errors,
    library_errors,
    rows_at_once,
    unlike,
)
from streamsvm.storage.paths import local_path
from streamsvm.storage.text import names_in
from streamsvm.tables.arrow import (
    MISSING,
    as_written,
    days,
    is_text,
    lacks_value,
    milliseconds,
    numbers,
    raw_rows,
    take_numbers,
    texts,
    whole_numbers,
    written_numbers,
)
from streamsvm.tables.schema import AS_TEXT, DENSE_FROM, HEXADECIMAL, Feature, Schema, require_texts

SPLIT_AS = {"number": pa.float64(), "time": pa.timestamp("ms")}
READ_AS = {"number": pa.float64(), "bool": pa.bool_(), "time": pa.timestamp("us"), "text": pa.string()}
LACKS = "is missing; every row needs one: fill it in, or remove the row"
COMMAS = "decimal_commas"  # attribute of a store whose numbers had them in their file
WHETHER = "expected 1 if the row has this label, else 0"


class TableReader(Reader):
    """Reads tables with the same columns. By default, the label is the last column.

    A missing number is NaN in the store. Text is one-hot encoded or hashed. Empty text becomes all zeros, and with
    `like`, so does new text unless there is a column of rare texts. A first CSV column without a name, and a pandas
    index in parquet, are row numbers and are left out, as are empty columns without a name.
    """

    dense_below = DENSE_FROM

    def __init__(
        self,
        options: IngestOptions,
        like: Layout | None,
        format_: str,
        open_stream: OpenStream = Stream,
        parts: Mapping[str, Parts] | None = None,
        whole: Mapping[str, str] = NO_HINTS.whole,
    ) -> None:
        """`parts`: for each path, the values that its folder names give to all rows (`region=EU`). whole: columns whose
        kind follows from all rows, with the value that showed it."""
        self._open_stream, self._parts = open_stream, parts or {}
        self._options, self._format = options, format_
        self.dtype = options.feature_dtype()
        self._widens = options.dtype is None
        self._has_gaps = self.dtype != np.uint8  # uint8 has no NaN
        self._schema = None if like is None else Schema.from_attrs(like.attrs)
        self._has_label: bool | None = None
        self._qid = options.qid
        self._model_qid = None if like is None else like.attrs.get("qid")
        self._unused: set[str] = set()
        ignored = () if like is None else like.attrs.get("ignored", ())
        feature_names = [] if self._schema is None else [feature.name for feature in self._schema.features]
        group = {options.group}.difference(feature_names, [None])  # unless the model has it as a feature
        self._ignored = {*options.ignore, *ignored, *group}
        self._for_split = SplitColumns(options)
        self._n, self._nnz = 0, 0
        has_commas = like is not None and like.attrs.get(COMMAS, False)
        self._hints = ColumnHints(whole, has_commas)
        self._remarks: list[str] = []
        self._merged: str | None = None  # a label that is written in several ways
        self._hex: str | None = ""  # a label that is a hexadecimal number; None if others are not

    def blocks(self, path: str) -> Iterator[Block]:
        self._path = path
        with arrow_errors(path), closing(self._table(path)) as table:
            self._remarks += table.remarks
            self._hints = self._hints._replace(has_commas=self._hints.has_commas or table.has_commas)
            line = table.first_line
            for batch in self._batches(path, table):
                yield self._block(batch, path, line)
                line += batch.num_rows

    def _table(self, path: str) -> Table:
        file = DataFile(path, self._parts.get(path, {}))
        return table_of(file, self._format, self._options, self._open_stream, self._hints)

    def _batches(self, path: str, table: Table) -> Batches:
        all_kinds = table.kinds()
        if self._qid is None and self._model_qid in all_kinds and self._options.label != "none":
            self._qid = self._model_qid  # queries are those of the fit's column
        missing = [name for name in self._options.ignore if name not in all_kinds]
        if missing and self._schema is None:
            raise DataError(f"{path} has no column {missing[0]!r} to leave out; it has {listed([*all_kinds])}")
        left_out = (table.row_numbers() | self._ignored) - {self._qid}
        kinds = {name: kind for name, kind in all_kinds.items() if name not in left_out}
        if self._qid is not None and self._qid not in kinds:
            raise DataError(f"{path} has no column {self._qid!r} for the query id")
        if self._schema is None:
            self._schema = self._new_schema(path, kinds)
        self._label = self._match(path, self._schema, kinds)
        feature_kinds = {f.name: f.kind for f in self._schema.features}
        for_split = self._for_split.types(path, all_kinds | feature_kinds)
        self._written = table.written()
        types = self._types(path, self._schema, kinds)
        twice = types.keys() & {self._options.group}  # a group that is also a feature is read as one
        return table.batches(types | {name: type_ for name, type_ in for_split.items() if name not in twice})

    def _new_schema(self, path: str, kinds: dict[str, str]) -> Schema:
        """The schema of a first file. Texts that are numbers in all of it become numbers."""
        schema, whole = new_schema(path, kinds, self._options), self._hints.whole
        for feature in schema.features:
            feature.is_csv, feature.marker = self._format in CSV, whole.get(feature.name)
        texts = [f.name for f in schema.features if f.may_be_numbers and f.name not in whole]
        if texts and self._format not in CSV:
            with closing(self._table(path)) as table:
                take_numbers(schema, texts, table.batches(dict.fromkeys(texts, pa.string())))
        return schema

    def _types(self, path: str, schema: Schema, kinds: dict[str, str]) -> dict[str, pa.DataType]:
        """The types as which to read the needed columns. Raises DataError for a column of another kind."""
        alike = ("number", "bool")
        types = {}
        for f in schema.features:
            kind = kinds[f.name] if f.kind in alike and kinds[f.name] in alike else f.kind
            if kind == "number" and kinds[f.name] == "text" and self._format not in CSV:
                kind = "text"  # numbers stored as text
            types[f.name] = READ_AS.get(kind)
        has_sets = self._options.multilabel and len(self._label) == 1
        for name in filter(None, (*self._label, self._qid)):
            is_number = kinds[name] == "number" and not (has_sets and name in self._label)
            is_read_as_text = name in self._written and self._label == (name,)
            types[name] = pa.float64() if is_number and not is_read_as_text else pa.string()
        if self._qid is not None and kinds[self._qid] == "number":
            types[self._qid] = self._written.get(self._qid, pa.float64())
        for name, type_ in types.items():
            if type_ is None:
                raise DataError(f"{path}: column {name!r} holds {kinds[name]}; expected numbers, times or text")
        return types

    def _match(self, path: str, schema: Schema, kinds: dict[str, str]) -> tuple[str, ...]:
        names = [f.name for f in schema.features]
        if missing := [name for name in names if name not in kinds]:
            raise DataError(f"{path} lacks column {missing[0]!r}; expected {listed(names)}")
        label = schema.label if kinds.keys() >= {*schema.label} else ()
        if schema.frozen and self._options.label not in (None, ",".join(schema.label)):
            label = new_schema(path, kinds, self._options).label
        if self._has_label not in (None, bool(label)):
            problem = f"{path} has no label column {listed(schema.label)}"
            raise DataError(f"{problem}, but the sources before it have")
        self._has_label = bool(label)
        expected = {*names, *label, self._qid, self._options.split_by}
        extra = set(kinds) - expected
        if extra and not schema.frozen:
            raise DataError(f"{path} has an unexpected column {min(extra)!r}; all sources must have the same columns")
        self._unused |= extra.difference(schema.label, {self._model_qid})
        return label

    def _block(self, batch: pa.RecordBatch, path: str, line: int) -> Block:
        schema = self._known_schema
        raw = raw_rows(batch, schema, self.dtype, path, line, gaps=self._has_gaps, widens=self._widens)
        self._n, self._nnz = self._n + len(raw), self._nnz + int(np.count_nonzero(raw))
        X = cast(schema.values(raw), self.dtype, path, line - 1, gaps=self._has_gaps)
        qid = None
        if self._qid is not None:
            qid = whole_numbers(batch.column(self._qid), path, self._qid, line)
            qid = qid.astype(np.int64) if qid.dtype.kind == "f" else qid
        for_split = self._for_split.read(batch, path, line)
        return Block(Rows(raw if schema.has_text else X), self._labels(batch, path, line), qid, **for_split)

    def _labels(self, batch: pa.RecordBatch, path: str, line: int) -> np.ndarray | None:
        if not self._label:
            return None
        if len(self._label) > 1:
            return _names_of_ones(batch, path, self._label, line)
        [name] = self._label
        column = batch.column(name)
        if pa.types.is_dictionary(column.type) and not is_text(column.type):
            column = column.dictionary_decode()  # codes of numbers and booleans are those labels
        if not (is_text(column.type) or pa.types.is_boolean(column.type)):
            return whole_numbers(column, path, name, line)
        is_written = name in self._written and not self._options.multilabel
        if is_written and (plain := written_numbers(column)) is not None:
            return plain
        label_words, ids = texts(column)
        self._see_labels(label_words[:-1])
        if (cut_label := next(filter(is_cut, label_words), None)) is not None:
            bad_line = line + int(np.flatnonzero(ids == label_words.index(cut_label))[0])
            raise DataError(f"{path}:{bad_line}: the label (column {name!r}) is {cut_label!r}, {CUT}")
        if is_written:
            return self._written_labels(label_words, ids, path, line)
        is_bad = lacks_name if self._options.multilabel else not_
        bad = np.flatnonzero(np.array([is_bad(text) for text in label_words])[ids])
        if len(bad):
            problem = f"is {label_words[ids[bad[0]]]!r}, {NAMED}" if self._options.multilabel else LACKS
            raise DataError(f"{path}:{line + bad[0]}: the label (column {name!r}) {problem}")
        return np.array(label_words, dtype=str)[ids]

    def _see_labels(self, words: list[str]) -> None:
        """Notes whether all labels are hexadecimal numbers, and one that has spaces or quotes in some rows only."""
        if self._merged is None and len({*words}) < len(words):
            self._merged = next(text for text, count in Counter(words).items() if count > 1)
        if self._hex is not None and words:
            self._hex = words[0] if all(map(HEXADECIMAL.fullmatch, words)) else None

    def _written_labels(self, label_words: list[str], ids: np.ndarray, path: str, line: int) -> np.ndarray:
        """The labels of rows with these indices of texts that seemed to be numbers. Raises DataError."""
        [name] = self._label
        missing = np.flatnonzero(np.isin(label_words, MISSING)[ids])
        if len(missing):
            raise lacks_value(path, name, line + missing[0])
        labels = parse_labels(label_words[:-1])[ids]
        bad = np.flatnonzero(~np.array(list(map(is_finite, label_words)))[ids])
        if len(bad):
            raise unlike(path, line + int(bad[0]), name, label_words[ids[bad[0]]], "a number", self._hints)
        return labels

    @property
    def _known_schema(self) -> Schema:
        """The schema, after the first table."""
        assert self._schema is not None
        return self._schema

    def finish(self) -> None:
        self._known_schema.settle(self._path)

    def is_final(self) -> bool:
        return self._schema is not None and (self._schema.frozen or not self._schema.has_text)

    def assume_complete(self) -> bool:
        self._known_schema.settle(self._path)
        return self._known_schema.assume_complete()

    def width(self) -> int:
        return int(self._known_schema.offsets[-1])

    def density(self) -> float:
        return self._nnz / max(1, self._n * self.width())

    def encode(self, rows: Rows) -> Rows:
        return Rows(self._known_schema.encode(rows.dense())).astype(self.dtype)

    def remarks(self) -> list[str]:
        remarks, schema = [*self._remarks], self._known_schema
        if self._model_qid is not None and self._qid is None and self._has_label:
            remarks.append(f"no column {self._model_qid!r} of query ids, which the fit had: all rows are one query")
        if self._unused:
            remarks.append(f"left out {listed(sorted(self._unused))}: not among the known columns")
        if self._format in CSV and self._options.header:
            names = [f.name for f in schema.features if f.kind == "number"]
            if are_values(names):
                remarks.append(f"line 1 names the columns {listed(names)}; if it is a row, add --no-header")
        if schema.frozen:
            return remarks
        if self._hex:
            remarks.append(
                f"label column {self._label[0]!r} has hexadecimal numbers such as {self._hex[:40]!r}, which are read "
                "as text: each is a class; write them as decimal numbers if they are quantities"
            )
        if self._merged is not None:
            remarks.append(
                f"label column {self._label[0]!r} has {self._merged[:40]!r} with and without spaces or quotes around "
                "it; they are one label"
            )
        return [*remarks, *filter(None, [schema.numbers_remark(AS_TEXT)]), *schema.remarks(self._n)]

    def attrs(self) -> dict[str, object]:
        attrs = self._known_schema.to_attrs() | self._options.model_dump(include={*DIALECT}, exclude_defaults=True)
        if self._ignored:
            attrs["ignored"] = sorted(self._ignored)
        if self._qid is not None:
            attrs["qid"] = self._qid
        if self._hints.has_commas:
            attrs[COMMAS] = True
        if self._format in CSV and not self._options.header:  # Arrow names columns by position
            attrs["header"] = False
        return attrs


def are_values(names: Sequence[str]) -> bool:
    """Whether the names of columns are numbers, as in a first row of values. Whole numbers that rise in equal steps may
    be names, and 0 or 1 may be the name of a single column."""
    try:
        values = np.array(names, dtype=np.float64)
    except ValueError:
        return False
    steps = np.diff(values)
    are_names = bool((values == np.rint(values)).all() and (steps > 0).all() and (steps == steps[:1]).all())
    return len(values) > 0 and not (are_names and (len(values) > 1 or values[0] in (0, 1)))


def _names_of_ones(batch: pa.RecordBatch, path: str, names: tuple[str, ...], line: int) -> np.ndarray:
    """(m,) the names of the columns that are 1, as label sets. Raises DataError for values other than 0 and 1."""
    cells = np.empty((batch.num_rows, len(names)))
    for name, cells_of_name in zip(names, cells.T, strict=True):
        column = batch.column(name)
        if is_text(column.type):
            raise DataError(f"{path}: column {name!r} holds text; {WHETHER}")
        cells_of_name[:] = numbers(column, path, name, line)
    wrong = np.argwhere((cells != 0) & (cells != 1))
    if len(wrong):
        row, column_number = wrong[0]
        problem = f"column {names[column_number]!r} is {cells[row, column_number]:g}"
        raise DataError(f"{path}:{line + row}: {problem}; {WHETHER}")
    return set_texts(cells == 1, np.array(names))


def table_of(
    file: DataFile,
    format_: str,
    options: IngestOptions,
    open_stream: OpenStream = Stream,
    hints: ColumnHints = NO_HINTS,
) -> Table:
    """Opens a file of a table format."""
    table: Table
    if format_ in CSV:
        table = Csv(file.path, options, "\t" if format_ == "tsv" else ",", open_stream, hints)
    elif format_ == "postgresql":
        from streamsvm.ingest.databases import PostgreSql

        table = PostgreSql(file.path, options)
    elif format_ in DATABASES:
        from streamsvm.ingest.databases import DuckDb, Sqlite  # imports sqlite3, which files do not need

        table = (Sqlite if format_ == "sqlite" else DuckDb)(file.path, options)
    else:
        table = (Parquet if format_ == "parquet" else ArrowFile)(file.path, options)
    return FolderTable(table, file.parts) if file.parts else table


def new_schema(path: str, kinds: dict[str, str], options: IngestOptions) -> Schema:
    """The schema for columns of these names and kinds. Raises DataError, also if a column to hash or to target-encode
    is not a feature or not text, or if no text column can have rare texts."""
    label = find_label(path, [*kinds], "last" if options.label is None else options.label)
    for name in (*options.text, *options.category):
        if name not in kinds:
            raise DataError(f"{path} has no column {name!r} to read as text; it has {listed([*kinds])}")
    kinds = {name: kind for name, kind in kinds.items() if name not in (*label, options.qid)}
    kinds |= dict.fromkeys(kinds.keys() & {*options.text, *options.category}, "text")
    if not kinds:
        raise DataError(f"{path} has no feature columns besides {listed(label)}; expected at least one")
    encoded = dict.fromkeys(options.target_encode, "target-encode") | dict.fromkeys(options.hash, "hash")
    require_texts(path, kinds, encoded, "; --category {quoted} takes numbers as categories")
    categories = [name for name, kind in kinds.items() if kind == "text" and name not in encoded]
    if options.min_frequency and not categories:
        raise DataError(f"{path} has no text column for --min-frequency; leave it out")
    features = []
    for name, kind in kinds.items():
        min_rows = options.min_frequency if name in categories else None
        smooth, hashed, is_code = options.target_encode.get(name), options.hash.get(name, 0), name in options.category
        feature = Feature(name, kind, hash=hashed, min_rows=min_rows or 1, smooth=smooth, is_code=is_code)
        feature.stays_text = is_code or name in options.text
        features.append(feature)
    return Schema(features, label)


def find_label(path: str, names: list[str], label: str) -> tuple[str, ...]:
    """The names of the label columns: one by name, `first`, `last` or position, several by `a,b`, none by `none`.

    Raises DataError.
    """
    if label in names:
        return (label,)
    if label == "none":
        return ()
    if label in ("first", "last"):
        return (names[0 if label == "first" else -1],)
    if label.lstrip("-").isdigit() and -len(names) <= int(label) < len(names):
        return (names[int(label)],)
    several = tuple(dict.fromkeys(names_in(label)))
    missing = [name for name in several if name not in names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r} for the label; it has {listed(names)}")
    return several


class Parquet(ArrowTable):
    """A Parquet file, read row group by row group."""

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        self._raw = open_raw(path)
        try:
            with library_errors(f"{path} is not a whole parquet file", *ARROW_ERRORS):
                self._file = pq.ParquetFile(self._raw)
        except Exception:
            self._raw.close()
            raise
        self._schema = self._file.schema_arrow

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        rows = rows_at_once(self._options, len(types))
        with library_errors(f"{self._path} is damaged", *ARROW_ERRORS):
            yield from self._file.iter_batches(batch_size=rows, columns=[*types], use_threads=False)

    def close(self) -> None:
        self._raw.close()


class ArrowFile(ArrowTable):
    """Feather and other Arrow files, or streams in a file. One of their batches is decompressed at a time. From an
    uncompressed local file, only the needed bytes are read."""

    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        with open_raw(path) as raw:
            self._is_file = raw.read(6) == b"ARROW1"
        local = local_path(path)
        with library_errors(f"{path} is not a whole Arrow file", *ARROW_ERRORS):
            self._raw = open_raw(path) if local is None else pa.memory_map(str(local))
            try:
                open_ = pa.ipc.open_file if self._is_file else pa.ipc.open_stream
                self._reader = open_(self._raw)
            except Exception:
                self._raw.close()
                raise
        self._schema = self._reader.schema

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        rows, reader = rows_at_once(self._options, len(types)), self._reader
        with library_errors(f"{self._path} is damaged", *ARROW_ERRORS):
            stored = map(reader.get_batch, range(reader.num_record_batches)) if self._is_file else reader
            for batch in stored:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)

    def close(self) -> None:
        self._raw.close()


class SplitColumns:
    """Columns that are read in addition to features, and may be features, too."""

    def __init__(self, options: IngestOptions) -> None:
        self._key, self._group = options.split_by, options.group
        self._codes: dict[str, int] = {}  # of groups, in order of appearance

    def types(self, path: str, kinds: dict[str, str]) -> dict[str, pa.DataType]:
        """The types as which to read them from a table with columns of these kinds. Raises DataError."""
        for name, use in ((self._key, "to split by"), (self._group, "of groups")):
            if name is not None and name not in kinds:
                raise DataError(f"{path} has no column {name!r} {use}; it has {listed([*kinds])}")
        if self._group is not None:
            return {self._group: pa.string()}
        if self._key is None:
            return {}
        kind = kinds[self._key]
        if kind not in SPLIT_AS:
            raise DataError(f"{path}: column {self._key!r} to split by holds {kind}; expected times or numbers")
        return {self._key: SPLIT_AS[kind]}

    def read(self, batch: pa.RecordBatch, path: str, line: int) -> dict[str, np.ndarray]:
        """Their values by field of a block. Raises DataError if a value is missing."""
        if self._group is not None:
            group_texts, ids = texts(batch.column(self._group))
            missing = np.flatnonzero(np.array([not text for text in group_texts])[ids])
            if len(missing):
                raise DataError(f"{path}:{line + missing[0]}: the group (column {self._group!r}) is missing")
            codes = [self._codes.setdefault(text, len(self._codes)) if text else -1 for text in group_texts]
            return {"group": np.array(codes, np.int64)[ids]}
        if self._key is None:
            return {}
        column = batch.column(self._key)
        if not pa.types.is_temporal(column.type):
            return {"key": numbers(column, path, self._key, line).astype(np.float64, copy=False)}
        times_ms = numbers(milliseconds(column), path, self._key, line)
        return {"key": times_ms.astype(np.int64).view("M8[ms]")}


@dataclass(frozen=True)
class ReadColumn:
    """The values of a column of a kind (see `schema.KINDS`). values (n,): numbers, NaN if missing; for text, each row's
    index in `texts`, -1 if missing."""

    kind: str
    values: np.ndarray
    texts: tuple[str, ...] = ()


class OtherColumns:
    """Columns of tables as they are written there, as text to go next to the predictions of their rows."""

    def __init__(self, sources: Sequence[str], names: Sequence[str], options: IngestOptions) -> None:
        """Raises ConfigError if a file is not a table, DataError if it has no such column."""
        self._names, self._tables = names, _Tables(sources, options, "to keep")
        self._table: Table | None = None
        first, *others = self._tables.files
        begun = self._batches_of(first)  # fails before any prediction is written
        self._batches = chain(begun, chain.from_iterable(map(self._batches_of, others)))
        self._rest: pa.RecordBatch | None = None

    def _batches_of(self, file: DataFile) -> Batches:
        self.close()
        self._table = self._tables.opened(file, self._names)
        return self._table.batches(dict.fromkeys(self._names, pa.string()))

    def take(self, rows: int) -> dict[str, np.ndarray]:
        """The columns of the next `rows` rows, by name."""
        pieces: list[pa.RecordBatch] = []
        while rows:
            batch = self._rest or next(self._batches)
            piece, rest = batch.slice(0, rows), batch.slice(rows)
            self._rest = rest if rest.num_rows else None
            rows -= piece.num_rows
            pieces.append(piece)
        empty = np.empty(0, str)
        return {name: np.concatenate([empty, *(as_written(p.column(name)) for p in pieces)]) for name in self._names}

    def close(self) -> None:
        if self._table is not None:
            self._table.close()


def values_of(sources: Sequence[str], name: str, options: IngestOptions) -> ReadColumn:
    """A column of tables, as text if they differ in its kind. Raises ConfigError, DataError."""
    tables, codes = _Tables(sources, options, "to slice by"), {"": -1}
    kinds = set()
    for file in tables.files:
        with arrow_errors(file.path), closing(tables.opened(file, [name])) as table:
            kinds.add(kind := table.kinds()[name])
        if kind not in READ_AS:
            raise DataError(f"{file.path}: column {name!r} to slice by holds {kind}; expected numbers, times or text")
    kind = kinds.pop() if len(kinds) == 1 else "text"
    values = [batch_values for file in tables.files for batch_values in _values_in(tables, file, name, kind, codes)]
    return ReadColumn(kind, np.concatenate(values), tuple(codes)[1:])


def _values_in(tables: _Tables, file: DataFile, name: str, kind: str, codes: dict[str, int]) -> Iterator[np.ndarray]:
    """`ReadColumn.values` batch by batch. codes: index by text, to which new texts are added."""
    with arrow_errors(file.path), closing(tables.opened(file, [name])) as table:
        line = table.first_line
        for batch in table.batches({name: READ_AS[kind]}):
            column = batch.column(name)
            if kind == "text":
                batch_texts, ids = texts(column)
                yield np.array([codes.setdefault(text, len(codes) - 1) for text in batch_texts])[ids]
            else:
                plain = days(column) if kind == "time" else column
                yield numbers(plain, file.path, name, line, gaps=True)
            line += len(column)


class _Tables:
    """Files of one format, which is detected once. Some of their columns are read for a separate use."""

    def __init__(self, sources: Sequence[str], options: IngestOptions, use: str) -> None:
        """Raises ConfigError for files that are not tables."""
        self.files, self._options, self._use = files_of(sources), options, use
        path = self.files[0].path
        self._format = options.format or detect_format(path)
        if self._format not in TABLES:
            raise ConfigError(f"{path}: columns {use} need a table, found {self._format}")

    def opened(self, file: DataFile, names: Sequence[str]) -> Table:
        """A table that has these columns. Raises DataError."""
        table = table_of(file, self._format, self._options)
        has = [*table.kinds()]
        missing = [name for name in names if name not in has]
        if missing:
            table.close()
            raise DataError(f"{file.path} has no column {missing[0]!r} {self._use}; it has {listed(has)}")
        return table
