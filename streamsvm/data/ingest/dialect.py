"""The dialect of a CSV file: the delimiter of its columns, and the decimal mark of its numbers."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.csv

from streamsvm.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"?')
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def delimiter_of(path: str, line: bytes, usual: str) -> str:
    """The delimiter of a first line: the most frequent candidate outside quotes, or the usual one if there is none.
    Raises DataError if the line is not UTF-8."""
    if line.startswith(_UTF16):
        raise DataError(f"{path}: found UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8`")
    try:
        text = _QUOTED.sub("", line.decode("utf-8"))
    except UnicodeDecodeError as error:
        found = line[error.start : error.start + 1]
        raise DataError(
            f"{path}:1: found the byte {found!r}, which is not UTF-8; try `iconv -f LATIN1 -t UTF-8`"
        ) from None
    counts = {mark: text.count(mark) for mark in (usual, *DELIMITERS)}
    return max(counts, key=lambda mark: counts[mark])  # the first, if several are equally frequent


def has_newlines_inside(head: bytes) -> bool:
    """Whether values contain line breaks: some line has a quote that does not end in it."""
    return any(line.count(b'"') % 2 for line in head.split(b"\n")[:-1])


def decimal_point_of(schema_with: dict[str, pa.Schema]) -> str:
    """The decimal mark whose schema has more numeric columns; `.` if both have the same number."""
    counts = {point: sum(map(_is_float, schema.types)) for point, schema in schema_with.items()}
    return max(counts, key=lambda point: counts[point])


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
