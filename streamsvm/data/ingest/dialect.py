"""How a CSV file is written: what stands between its columns, and inside its numbers."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.csv

from streamsvm.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
_QUOTED = re.compile(r'"[^"]*"?')
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def delimiter_of(path: str, line: bytes, usual: str) -> str:
    """What stands between the columns of a first line: the most frequent one outside quotes, the usual one where none
    is. Raises DataError where the line is not UTF-8."""
    if line.startswith(_UTF16):
        raise DataError(f"{path}: found UTF-16, expected UTF-8; `iconv -f UTF-16 -t UTF-8` makes it that")
    try:
        text = _QUOTED.sub("", line.decode("utf-8"))
    except UnicodeDecodeError as error:
        found = line[error.start : error.start + 1]
        raise DataError(
            f"{path}:1: found the byte {found!r}, which is no UTF-8; `iconv -f LATIN1 -t UTF-8` may make it that"
        ) from None
    counts = {mark: text.count(mark) for mark in (usual, *DELIMITERS)}
    return max(counts, key=lambda mark: counts[mark])  # of equally frequent ones the first


def has_newlines_inside(head: bytes) -> bool:
    """Whether values have lines in them: lines with a quote that does not end there."""
    return any(line.count(b'"') % 2 for line in head.split(b"\n")[:-1])


def decimal_point_of(schema_with: dict[str, pa.Schema]) -> str:
    """That under which more columns are numbers, of the schemas that they give; `.` where they are as many."""
    counts = {point: sum(map(_is_float, schema.types)) for point, schema in schema_with.items()}
    return max(counts, key=lambda point: counts[point])


def _is_float(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
