"""CSV and TSV files, plain or compressed, read through Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.csv

from streamsvm.data.arrow import kind_of
from streamsvm.data.ingest.block import OpenStream
from streamsvm.data.ingest.dialect import decimal_point_of, delimiter_of, has_newlines_inside
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.ingest.streams import Stream
from streamsvm.data.ingest.table import Batches, require_different
from streamsvm.data.schema import KINDS
from streamsvm.errors import DataError

_CONVERSION = re.compile(r"In CSV column #(\d+): (Row #\d+: )?CSV conversion error to (\S+): invalid value")


class Csv:
    """A CSV or TSV file, plain or compressed. The kinds of its columns and its dialect follow from its first MiB."""

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
        self._block_bytes = max(
            options.block_bytes, 8 * len(line)
        )  # Arrow needs a whole row within two blocks
        points = (".",) if own == "," else (".", ",")
        first = max(1 << 20, 8 * len(line))
        schemas = {point: self._reader(first, None, point).schema for point in points}
        self._point = decimal_point_of(schemas)
        self._schema = schemas[self._point]
        if options.header:
            self._require_names()
        require_different(path, self._schema.names)

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
        return {""} if self._options.header and "" in self._schema.names else set()

    def _require_names(self) -> None:
        """Raises DataError for values of a column without a name, unless it is the first: row numbers of pandas."""
        for at, f in enumerate(self._schema):
            if at and not f.name and not pa.types.is_null(f.type):
                raise DataError(
                    f"{self._path}:1: column {at + 1} has no name; give it one, or add --no-header if line 1 is a row"
                )

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        try:
            yield from self._reader(self._block_bytes, types, self._point)
        except pa.ArrowInvalid as error:
            raise pa.ArrowInvalid(_CONVERSION.sub(self._expected, str(error))) from error

    def _expected(self, m: re.Match[str]) -> str:
        """Arrow's words on a value that is not of its column's type, in ours."""
        kind = {"double": "a number", "bool": "true or false", "timestamp[ms]": "a time"}.get(m[3], m[3])
        return f"{m[2] or ''}column {self._schema.names[int(m[1])]!r}: expected {kind}, found"

    def close(self) -> None:
        for stream in self._streams:
            stream.close()
