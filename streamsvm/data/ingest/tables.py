"""CSV, TSV and parquet tables, read batch by batch through Arrow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from operator import not_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streamsvm.data.ingest.block import Block, OpenStream, cast
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.schema import Schema, match, new_schema
from streamsvm.data.ingest.streams import Stream, open_raw
from streamsvm.data.label_sets import NAMED, lacks_name, set_texts
from streamsvm.data.names import listed
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import DataError

Batches = Iterator[pa.RecordBatch]
WHETHER = "expected 0 or 1, whether a row has this label"


class TableReader:
    """Reads tables with the same columns. The label is the last column unless told otherwise.

    Numbers must be finite and there; text is one-hot encoded (an empty text, and with `like` one that was not seen
    before, becomes all zeros). A first CSV column without a name, and a pandas index in parquet, are row numbers
    and left out.
    """

    dense_below = 0.05

    def __init__(
        self, options: IngestOptions, like: Store | None, format_: str, open_stream: OpenStream = Stream
    ) -> None:
        self._open_stream = open_stream
        self._options, self._format = options, format_
        self.dtype = options.feature_dtype()
        self._schema = None if like is None else Schema.from_attrs(like.attrs)
        self._has_label: bool | None = None
        self._n, self._nnz = 0, 0

    def blocks(self, path: str) -> Iterator[Block]:
        line = 1 + (self._format != "parquet" and self._options.header)
        try:
            with closing(self._table(path)) as table:
                for batch in self._batches(path, table):
                    yield self._block(batch, path, line)
                    line += batch.num_rows
        except pa.ArrowInvalid as error:
            raise DataError(_arrow_message(path, error)) from error

    def _table(self, path: str) -> _Csv | _Parquet:
        if self._format == "parquet":
            return _Parquet(path, self._options)
        return _Csv(path, self._options, "\t" if self._format == "tsv" else ",", self._open_stream)

    def _batches(self, path: str, table: _Csv | _Parquet) -> Batches:
        kinds = {name: kind for name, kind in table.kinds().items() if name not in table.row_numbers()}
        if self._options.qid is not None and self._options.qid not in kinds:
            raise DataError(f"{path} has no column {self._options.qid!r} for the query id")
        if self._schema is None:
            self._schema = new_schema(path, kinds, self._options)
        self._label = self._match(path, self._schema, kinds)
        forced = {f.name: "number" if f.categories is None else "text" for f in self._schema.features}
        if self._options.multilabel and len(self._label) == 1:
            forced[self._label[0]] = "text"
        return table.batches({**kinds, **forced}, self._number_type())

    def _match(self, path: str, schema: Schema, kinds: dict[str, str]) -> tuple[str, ...]:
        label = match(path, schema, set(kinds))
        if schema.frozen and self._options.label not in (None, ",".join(schema.label)):
            label = new_schema(path, kinds, self._options).label
        if self._has_label not in (None, bool(label)):
            found = f"{path} has no label column {listed(schema.label)}"
            raise DataError(f"{found}, but the sources before it have")
        self._has_label = bool(label)
        extra = set(kinds) - {f.name for f in schema.features} - {*label, self._options.qid}
        if extra:
            raise DataError(
                f"{path} has an unexpected column {min(extra)!r}; all sources need the same columns"
            )
        return label

    def _number_type(self) -> pa.DataType:
        return pa.float32() if self.dtype == np.float32 else pa.float64()

    def _block(self, batch: pa.RecordBatch, path: str, line: int) -> Block:
        schema = self._schema
        assert schema is not None
        raw = np.empty((batch.num_rows, len(schema.features)), self._number_type().to_pandas_dtype())
        for j, feature in enumerate(schema.features):
            column = batch.column(feature.name)
            if feature.categories is None:
                raw[:, j] = _numbers(column, path, feature.name, line)
            else:
                texts, ids = _texts(column)
                raw[:, j] = schema.codes(feature, texts, path)[ids]
        self._count(raw, schema)
        X = raw if schema.has_text else cast(raw, self.dtype, path, line - 1)
        qid = None
        if self._options.qid is not None:
            qid = _numbers(batch.column(self._options.qid), path, self._options.qid, line).astype(np.int64)
        return Block(Rows(X), self._labels(batch, path, line), qid)

    def _count(self, raw: np.ndarray, schema: Schema) -> None:
        for j, feature in enumerate(schema.features):
            text = feature.categories is not None
            self._nnz += int(np.count_nonzero(raw[:, j] >= 0 if text else raw[:, j]))
        self._n += len(raw)

    def _labels(self, batch: pa.RecordBatch, path: str, line: int) -> np.ndarray | None:
        if not self._label:
            return None
        if len(self._label) > 1:
            return _names_of_ones(batch, path, self._label, line)
        [name] = self._label
        column = batch.column(name)
        if not _is_text(column.type):
            return _numbers(column, path, name, line).astype(np.float64)
        texts, ids = _texts(column)
        is_bad = lacks_name if self._options.multilabel else not_
        bad = np.flatnonzero(np.array([is_bad(text) for text in texts])[ids])
        if len(bad):
            found = f"is {texts[ids[bad[0]]]!r}, {NAMED}" if self._options.multilabel else "is missing"
            raise DataError(f"{path}:{line + bad[0]}: the label (column {name!r}) {found}")
        return np.array(texts, dtype=str)[ids]

    def finish(self) -> None:
        self.width()

    def settled(self) -> bool:
        return self._schema is not None and (self._schema.frozen or not self._schema.has_text)

    def width(self) -> int:
        assert self._schema is not None
        self._schema.settle()
        return int(self._schema.offsets[-1])

    def density(self) -> float:
        return self._nnz / max(1, self._n * self.width())

    def encode(self, rows: Rows) -> Rows:
        assert self._schema is not None
        return Rows(cast(self._schema.encode(rows.dense()), self.dtype, "table", 0))

    def attrs(self) -> dict[str, Any]:
        assert self._schema is not None
        has_names = self._options.header or self._format == "parquet"  # else Arrow's own, by position
        return self._schema.to_attrs() | ({} if has_names else {"header": False})


class _Csv:
    """A CSV or TSV file, plain or packed. The kinds of its columns are told from its first MiB."""

    def __init__(self, path: str, options: IngestOptions, delimiter: str, open_stream: OpenStream) -> None:
        self._path, self._options, self._open = path, options, open_stream
        self._streams: list[Stream] = []
        self._parse = pa.csv.ParseOptions(delimiter=delimiter)
        with open_stream(path) as stream:
            row_bytes = stream.first_line_bytes()
        self._block_bytes = max(options.block_bytes, 8 * row_bytes)  # Arrow needs whole rows in two blocks
        self._schema = self._reader(max(1 << 20, 8 * row_bytes), None).schema
        _require_different(path, self._schema.names)

    def _reader(self, block_bytes: int, types: dict[str, pa.DataType] | None) -> Any:
        header = self._options.header
        read = pa.csv.ReadOptions(
            use_threads=False, block_size=block_bytes, autogenerate_column_names=not header
        )
        convert = pa.csv.ConvertOptions(column_types=types)
        self._streams.append(self._open(self._path))
        return pa.csv.open_csv(self._streams[-1], read, self._parse, convert)

    def kinds(self) -> dict[str, str]:
        return {f.name: "text" if _is_text(f.type) else "number" for f in self._schema}

    def row_numbers(self) -> set[str]:
        return {""} if self._options.header and self._schema.names[0] == "" else set()

    def batches(self, kinds: dict[str, str], number: pa.DataType) -> Batches:
        types = {name: number if kind == "number" else pa.string() for name, kind in kinds.items()}
        yield from self._reader(self._block_bytes, types)

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
        return {f.name: self._kind(f) for f in self._file.schema_arrow}

    def _kind(self, column: pa.Field) -> str:
        t = column.type
        value = t.value_type if pa.types.is_dictionary(t) else t
        if pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value):
            return "text"
        if _is_number(t):
            return "number"
        raise DataError(f"{self._path}: column {column.name!r} holds {t}; expected numbers or text")

    def row_numbers(self) -> set[str]:
        index = (self._file.schema_arrow.pandas_metadata or {}).get("index_columns", [])
        return {name for name in index if isinstance(name, str)}

    def batches(self, kinds: dict[str, str], number: pa.DataType) -> Batches:
        rows = max(1, self._options.block_bytes // (8 * len(kinds)))
        try:
            yield from self._file.iter_batches(batch_size=rows, columns=[*kinds], use_threads=False)
        except OSError as error:
            raise DataError(f"{self._path} is damaged: {_one_line(error)}") from error

    def close(self) -> None:
        self._raw.close()


def _require_different(path: str, names: list[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns named {twice[0]!r}; expected different names")


def _is_text(t: pa.DataType) -> bool:
    if pa.types.is_dictionary(t):
        return _is_text(t.value_type)
    return not (_is_number(t) or pa.types.is_null(t))


def _is_number(t: pa.DataType) -> bool:
    is_a = pa.types
    return is_a.is_integer(t) or is_a.is_floating(t) or is_a.is_boolean(t) or is_a.is_decimal(t)


def _numbers(column: pa.Array, path: str, name: str, line: int) -> np.ndarray:
    """(m,) finite numbers of a column whose first row is on this line. Raises DataError."""
    if column.null_count:
        at = column.is_null().to_pylist().index(True)
        raise DataError(f"{path}:{line + at}: column {name!r} is missing; fill in a number or remove the row")
    if column.type not in (pa.float32(), pa.float64()):
        column = column.cast(pa.float64(), safe=False)
    values = _buffer(column, np.float32 if column.type == pa.float32() else np.float64)
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise DataError(
            f"{path}:{line + bad[0]}: column {name!r} is {values[bad[0]]}; expected a finite number"
        )
    return values


def _names_of_ones(batch: pa.RecordBatch, path: str, names: tuple[str, ...], line: int) -> np.ndarray:
    """(m,) the names of those of these columns that are 1, as sets. Raises DataError for other than 0 and 1."""
    cells = np.empty((batch.num_rows, len(names)))
    for name, own in zip(names, cells.T, strict=True):
        column = batch.column(name)
        if _is_text(column.type):
            raise DataError(f"{path}: column {name!r} holds text; {WHETHER}")
        own[:] = _numbers(column, path, name, line)
    wrong = np.argwhere((cells != 0) & (cells != 1))
    if len(wrong):
        row, column = wrong[0]
        found = f"column {names[column]!r} is {cells[row, column]:g}"
        raise DataError(f"{path}:{line + row}: {found}; {WHETHER}")
    return set_texts(cells == 1, np.array(names))


def _texts(column: pa.Array) -> tuple[list[str], np.ndarray]:
    """The distinct texts of a column without spaces and quotes around them, and (m,) which one each row has."""
    encoded = column if pa.types.is_dictionary(column.type) else column.cast(pa.string()).dictionary_encode()
    texts = [_unquote(t) for t in encoded.dictionary.cast(pa.string()).to_pylist()]
    ids = _buffer(encoded.indices.cast(pa.int64()), np.int64)
    is_there = _buffer(encoded.indices.is_valid().cast(pa.uint8()), np.uint8)
    return [*texts, ""], np.where(is_there, ids, len(texts))


def _buffer(column: pa.Array, dtype: Any) -> np.ndarray:
    """(m,) values of a column of primitive type; Arrow's own to_numpy imports pandas."""
    if not len(column):
        return np.empty(0, dtype)
    offset = column.offset * np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, count=len(column), offset=offset)


def _unquote(text: str | None) -> str:
    text = (text or "").strip()
    while len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        text = text[1:-1].strip()
    return text


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _arrow_message(path: str, error: Exception) -> str:
    """Arrow's complaint, with its `Row #n` as the line it means."""
    text = _one_line(error)
    row = re.search(r"Row #(\d+): ", text)
    where = f"{path}:{row[1]}" if row else path
    return f"{where}: {text.replace(row[0], '') if row else text}"
