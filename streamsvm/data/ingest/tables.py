"""CSV, TSV and parquet tables, read batch by batch through Arrow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from operator import not_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamsvm.data.arrow import is_text, kind_of, numbers, raw_rows, texts
from streamsvm.data.ingest.block import Block, OpenStream, cast
from streamsvm.data.ingest.dialect import decimal_point_of, delimiter_of, has_newlines_inside
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.schema import match, new_schema
from streamsvm.data.ingest.split_columns import SplitColumns
from streamsvm.data.ingest.streams import Stream, open_raw
from streamsvm.data.label_sets import NAMED, lacks_name, set_texts
from streamsvm.data.layout import Layout
from streamsvm.data.names import listed
from streamsvm.data.rows import Rows
from streamsvm.data.schema import DENSE_FROM, KINDS, Schema
from streamsvm.errors import DataError

Batches = Iterator[pa.RecordBatch]
READ_AS = {"number": pa.float64(), "bool": pa.bool_(), "time": pa.timestamp("ms"), "text": pa.string()}
WHETHER = "expected 0 or 1, whether a row has this label"


class TableReader:
    """Reads tables with the same columns. The label is the last column unless told otherwise.

    A number that is missing is NaN in the store. Text is one-hot encoded, or hashed; an empty text becomes all zeros,
    and so, with `like`, does one that was not seen before, unless rare ones have a column. A first CSV column without a
    name, and a pandas index in parquet, are row numbers and left out.
    """

    dense_below = DENSE_FROM

    def __init__(
        self, options: IngestOptions, like: Layout | None, format_: str, open_stream: OpenStream = Stream
    ) -> None:
        self._open_stream = open_stream
        self._options, self._format = options, format_
        self.dtype = options.feature_dtype()
        self._has_gaps = self.dtype != np.uint8  # which has no NaN
        self._schema = None if like is None else Schema.from_attrs(like.attrs)
        self._has_label: bool | None = None
        self._unused: set[str] = set()
        ignored = () if like is None else like.attrs.get("ignored", ())
        known = [] if self._schema is None else [feature.name for feature in self._schema.features]
        group = {options.group}.difference(known, [None])  # which a model may know as a feature
        self._ignored = {*options.ignore, *ignored, *group}
        self._for_split = SplitColumns(options)
        self._n, self._nnz = 0, 0

    def blocks(self, path: str) -> Iterator[Block]:
        self._path = path
        line = 1 + (self._format != "parquet" and self._options.header)
        with (
            arrow_errors(path),
            closing(table_of(path, self._format, self._options, self._open_stream)) as table,
        ):
            for batch in self._batches(path, table):
                yield self._block(batch, path, line)
                line += batch.num_rows

    def _batches(self, path: str, table: Table) -> Batches:
        left_out = self._left_out(path, table) - {self._options.qid}
        all_kinds = table.kinds()
        kinds = {name: kind for name, kind in all_kinds.items() if name not in left_out}
        if self._options.qid is not None and self._options.qid not in kinds:
            raise DataError(f"{path} has no column {self._options.qid!r} for the query id")
        if self._schema is None:
            self._schema = new_schema(path, kinds, self._options)
        self._label = self._match(path, self._schema, kinds)
        of_features = {f.name: f.kind for f in self._schema.features}
        for_split = self._for_split.types(path, all_kinds | of_features)
        types = self._types(path, self._schema, kinds)
        twice = types.keys() & {self._options.group}  # a group that is a feature, too, is read as such
        return table.batches(types | {name: own for name, own in for_split.items() if name not in twice})

    def _types(self, path: str, schema: Schema, kinds: dict[str, str]) -> dict[str, pa.DataType]:
        """What the columns that are wanted are read as. Raises DataError for one that holds something else."""
        alike = ("number", "bool")
        types = {}
        for f in schema.features:
            kind = kinds[f.name] if f.kind in alike and kinds[f.name] in alike else f.kind
            types[f.name] = READ_AS.get(kind)
        sets = self._options.multilabel and len(self._label) == 1
        for name in filter(None, (*self._label, self._options.qid)):
            is_number = kinds[name] == "number" and not (sets and name in self._label)
            types[name] = pa.float64() if is_number else pa.string()
        for name, found in types.items():
            if found is None:
                raise DataError(
                    f"{path}: column {name!r} holds {kinds[name]}; expected numbers, times or text"
                )
        return types

    def _left_out(self, path: str, table: Table) -> set[str]:
        """Row numbers, and columns that are to be left out, all of which have to be there. Raises DataError."""
        names = [*table.kinds()]
        missing = [name for name in self._options.ignore if name not in names]
        if missing and self._schema is None:
            raise DataError(f"{path} has no column {missing[0]!r} to leave out; it has {listed(names)}")
        return table.row_numbers() | self._ignored

    def _match(self, path: str, schema: Schema, kinds: dict[str, str]) -> tuple[str, ...]:
        label = match(path, schema, set(kinds))
        if schema.frozen and self._options.label not in (None, ",".join(schema.label)):
            label = new_schema(path, kinds, self._options).label
        if self._has_label not in (None, bool(label)):
            found = f"{path} has no label column {listed(schema.label)}"
            raise DataError(f"{found}, but the sources before it have")
        self._has_label = bool(label)
        known = {f.name for f in schema.features} | {*label, self._options.qid, self._options.split_by}
        extra = set(kinds) - known
        if extra and not schema.frozen:
            raise DataError(
                f"{path} has an unexpected column {min(extra)!r}; all sources need the same columns"
            )
        self._unused |= extra.difference(schema.label)
        return label

    def _block(self, batch: pa.RecordBatch, path: str, line: int) -> Block:
        schema = self._schema
        assert schema is not None
        raw = raw_rows(batch, schema, self.dtype, path, line, gaps=self._has_gaps)
        self._n, self._nnz = self._n + len(raw), self._nnz + int(np.count_nonzero(raw))
        X = cast(schema.values(raw), self.dtype, path, line - 1, gaps=self._has_gaps)
        qid = None
        if self._options.qid is not None:
            qid = numbers(batch.column(self._options.qid), path, self._options.qid, line).astype(np.int64)
        for_split = self._for_split.read(batch, path, line)
        own = Rows(raw if schema.has_text else X)
        return Block(own, self._labels(batch, path, line), qid, **for_split)

    def _labels(self, batch: pa.RecordBatch, path: str, line: int) -> np.ndarray | None:
        if not self._label:
            return None
        if len(self._label) > 1:
            return _names_of_ones(batch, path, self._label, line)
        [name] = self._label
        column = batch.column(name)
        if not (is_text(column.type) or pa.types.is_boolean(column.type)):
            return numbers(column, path, name, line).astype(np.float64)
        found, ids = texts(column)
        is_bad = lacks_name if self._options.multilabel else not_
        bad = np.flatnonzero(np.array([is_bad(text) for text in found])[ids])
        if len(bad):
            what = f"is {found[ids[bad[0]]]!r}, {NAMED}" if self._options.multilabel else "is missing"
            raise DataError(f"{path}:{line + bad[0]}: the label (column {name!r}) {what}")
        return np.array(found, dtype=str)[ids]

    def finish(self) -> None:
        assert self._schema is not None
        self._schema.settle(self._path)

    def settled(self) -> bool:
        return self._schema is not None and (self._schema.frozen or not self._schema.has_text)

    def guess(self) -> bool:
        assert self._schema is not None
        self._schema.settle(self._path)
        return self._schema.close()

    def width(self) -> int:
        assert self._schema is not None
        return int(self._schema.offsets[-1])

    def density(self) -> float:
        return self._nnz / max(1, self._n * self.width())

    def encode(self, rows: Rows) -> Rows:
        assert self._schema is not None
        return Rows(self._schema.encode(rows.dense())).astype(self.dtype)

    def remarks(self) -> list[str]:
        found = []
        if self._unused:
            found.append(f"left out {listed(sorted(self._unused))}: not among the columns to be like")
        assert self._schema is not None
        return found if self._schema.frozen else found + self._schema.remarks(self._n)

    def attrs(self) -> dict[str, Any]:
        assert self._schema is not None
        has_names = self._options.header or self._format == "parquet"  # else Arrow's own, by position
        ignored = {"ignored": sorted(self._ignored)} if self._ignored else {}
        given = {} if self._options.delimiter is None else {"delimiter": self._options.delimiter}
        return self._schema.to_attrs() | ignored | given | ({} if has_names else {"header": False})


def _names_of_ones(batch: pa.RecordBatch, path: str, names: tuple[str, ...], line: int) -> np.ndarray:
    """(m,) the names of those of these columns that are 1, as sets. Raises DataError for other than 0 and 1."""
    cells = np.empty((batch.num_rows, len(names)))
    for name, own in zip(names, cells.T, strict=True):
        column = batch.column(name)
        if is_text(column.type):
            raise DataError(f"{path}: column {name!r} holds text; {WHETHER}")
        own[:] = numbers(column, path, name, line)
    wrong = np.argwhere((cells != 0) & (cells != 1))
    if len(wrong):
        row, at = wrong[0]
        found = f"column {names[at]!r} is {cells[row, at]:g}"
        raise DataError(f"{path}:{line + row}: {found}; {WHETHER}")
    return set_texts(cells == 1, np.array(names))


def table_of(path: str, format_: str, options: IngestOptions, open_stream: OpenStream = Stream) -> Table:
    """A file of one of the formats of tables."""
    if format_ == "parquet":
        return _Parquet(path, options)
    return _Csv(path, options, "\t" if format_ == "tsv" else ",", open_stream)


class _Csv:
    """A CSV or TSV file, plain or packed. The kinds of its columns, and its dialect, are told from its first MiB."""

    def __init__(self, path: str, options: IngestOptions, delimiter: str, open_stream: OpenStream) -> None:
        self._path, self._options, self._open = path, options, open_stream
        self._streams: list[Stream] = []
        with open_stream(path) as stream:
            head = stream.head()
        if not head.strip():
            raise DataError(
                f"{path} is empty; expected {'names of columns, and ' if options.header else ''}rows"
            )
        line = head.partition(b"\n")[0]
        own = options.delimiter or delimiter_of(path, line, delimiter)
        self._parse = pa.csv.ParseOptions(delimiter=own, newlines_in_values=has_newlines_inside(head))
        self._block_bytes = max(options.block_bytes, 8 * len(line))  # Arrow needs whole rows in two blocks
        points = (".",) if own == "," else (".", ",")
        first = max(1 << 20, 8 * len(line))
        schemas = {point: self._reader(first, None, point).schema for point in points}
        self._point = decimal_point_of(schemas)
        self._schema = schemas[self._point]
        _require_different(path, self._schema.names)

    def _reader(self, block_bytes: int, types: dict[str, pa.DataType] | None, decimal_point: str) -> Any:
        header = self._options.header
        read = pa.csv.ReadOptions(
            use_threads=False, block_size=block_bytes, autogenerate_column_names=not header
        )
        columns = None if types is None else [*types]
        convert = pa.csv.ConvertOptions(
            column_types=types, include_columns=columns, decimal_point=decimal_point
        )
        self._streams.append(self._open(self._path))
        return pa.csv.open_csv(self._streams[-1], read, self._parse, convert)

    def kinds(self) -> dict[str, str]:
        kinds = {f.name: kind_of(f.type) for f in self._schema}
        return {name: kind if kind in KINDS else "text" for name, kind in kinds.items()}

    def row_numbers(self) -> set[str]:
        return {""} if self._options.header and self._schema.names[0] == "" else set()

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        yield from self._reader(self._block_bytes, types, self._point)

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


class _Parquet:
    def __init__(self, path: str, options: IngestOptions) -> None:
        self._path, self._options = path, options
        self._raw = open_raw(path)
        try:
            self._file = pq.ParquetFile(self._raw)
        except (pa.ArrowInvalid, OSError) as error:
            self._raw.close()
            raise DataError(f"{path} is not a whole parquet file: {_one_line(error)}") from error

    def kinds(self) -> dict[str, str]:
        _require_different(self._path, self._file.schema_arrow.names)
        return {f.name: kind_of(f.type) for f in self._file.schema_arrow}

    def row_numbers(self) -> set[str]:
        index = (self._file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
        return {name for name in index if isinstance(name, str)}

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        rows = max(1, self._options.block_bytes // (8 * max(1, len(types))))
        try:
            yield from self._file.iter_batches(batch_size=rows, columns=[*types], use_threads=False)
        except OSError as error:
            raise DataError(f"{self._path} is damaged: {_one_line(error)}") from error

    def close(self) -> None:
        self._raw.close()


Table = _Csv | _Parquet


def _require_different(path: str, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns named {twice[0]!r}; expected different names")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


@contextmanager
def arrow_errors(path: str) -> Iterator[None]:
    """Arrow's complaints as DataError, with its `Row #n` as the line it means."""
    try:
        yield
    except pa.ArrowInvalid as error:
        text = _one_line(error)
        if "invalid UTF8" in text:
            text += "; expected UTF-8, `iconv -f LATIN1 -t UTF-8` may make it that"
        row = re.search(r"Row #(\d+): ", text)
        where = f"{path}:{row[1]}" if row else path
        raise DataError(f"{where}: {text.replace(row[0], '') if row else text}") from error
