"""Lines of a file or pipe, each of them an event: a JSON object, or a CSV row under a header."""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from streamsvm.errors import DataError
from streamsvm.online.kinds import MISSING, Event, require_unicode
from streamsvm.storage.text import number_or_text

if TYPE_CHECKING:
    from streamsvm.ingest.options import IngestOptions

_fast: Callable[[str], Any] = json.loads
with suppress(ImportError):
    import orjson

    _fast = orjson.loads

BUFFER_BYTES = 1 << 16
MOST_EXACT = 1 << 53  # up to which floats have all whole numbers
_COMMA = re.compile(r"\s*[-+]?\d*,\d+([eE][-+]?\d+)?\s*")  # a number with a decimal comma
Parse = Callable[[str], Event]


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int = -1, /) -> bytes: ...


class Interruptible:
    """A source of events whose wait for more ends when `stop` is called, also just before it begins to wait."""

    waiting = False
    stopped = False
    before_waiting: Callable[[], None]

    def wait(self) -> None:
        """Called before it waits; `waiting` is false again afterwards. Raises InterruptedError."""
        self.before_waiting()
        self.waiting = True
        if self.stopped:
            raise InterruptedError

    def stop(self) -> None:
        """Called by signal handlers. Raises InterruptedError if it waits; else it will as soon as it does."""
        self.stopped = True
        if self.waiting:
            raise InterruptedError


@dataclass
class Lines(Interruptible):
    """Lines of a file descriptor, or of a stream of an object store, as they come. It calls `before_waiting` before it
    waits for more. It holds at most one buffer and one line, so a slow reader of the answers slows the writer of the
    events."""

    source: int | Readable
    before_waiting: Callable[[], None]
    read_bytes: int = field(default=0, init=False)

    @property
    def share(self) -> float | None:
        """The share of the file that was read; None if its end is not known."""
        size = self._size
        return min(self.read_bytes / size, 0.999) if size else None

    @cached_property
    def _size(self) -> int:
        if not isinstance(self.source, int):
            return 0
        status = os.fstat(self.source)
        return status.st_size if stat.S_ISREG(status.st_mode) else 0

    def _read(self) -> bytes:
        return os.read(self.source, BUFFER_BYTES) if isinstance(self.source, int) else self.source.read(BUFFER_BYTES)

    def __iter__(self) -> Iterator[str]:
        rest, is_first = b"", True
        while True:
            self.wait()
            block = self._read()
            self.waiting = False
            self.read_bytes += len(block)
            if not block:
                break
            if is_first:  # a byte order mark does not belong to the first name
                block, is_first = block.removeprefix(codecs.BOM_UTF8), False
            *lines, rest = (rest + block).split(b"\n")
            yield from (line.decode("utf-8", errors="surrogateescape") for line in lines)
        if rest:
            yield rest.decode("utf-8", errors="surrogateescape")


def json_event(line: str) -> Event:
    """The event of a JSON line. Raises DataError."""
    try:
        event = _loaded(line)
    except UnicodeEncodeError:
        raise DataError(f"found {line.strip()[:40]!r}, expected text that is Unicode") from None
    except ValueError as error:
        raise DataError(f"broken JSON: {error}") from None
    except RecursionError:
        raise DataError("broken JSON: too many nested brackets") from None
    if not isinstance(event, dict):
        raise DataError(f"found {line.strip()[:40]!r}, expected a JSON object")
    return event


def _loaded(line: str) -> Any:
    """The value of a JSON line. orjson refuses NaN and numbers beyond float64; the check of features reports them.
    Raises ValueError; UnicodeEncodeError for bytes that are not UTF-8, and for half of a surrogate pair."""
    if _fast is not json.loads:
        with suppress(ValueError):
            return _fast(line)
    event = json.loads(line)
    if not line.isascii() or "\\u" in line:
        json.dumps(event, ensure_ascii=False).encode()
    return event


class Field(str):
    """A field of a CSV row: a number, a text, or missing, as the column has them."""

    def as_kind(self, kind: str | None) -> Any:
        """The value of this field in a column of this kind. None: the kind is not known yet."""
        if kind == "text" or self in MISSING:
            return str(self)
        if kind == "bool" and self.lower() in ("true", "false"):
            return self.lower() == "true"
        number = self if "_" in self else number_or_text(self)  # which Python alone reads in numbers
        return str(self) if isinstance(number, str) else number

    def as_label(self, example: object) -> Any:
        """The label of this field. example: another label, or None. Digits with zeros in front are a code, not a
        number."""
        digits = self.lstrip("+-")
        is_code = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        return str(self) if is_code else self.as_kind("text" if isinstance(example, str) else None)


def finite_numbers(fields: Collection[Field]) -> list[float] | None:
    """The numbers that fields of columns of numbers are, all at once; None if one is missing, is none, or is so large
    that a whole number would lose digits."""
    try:
        numbers = list(map(float, fields))
    except ValueError:
        return None
    is_plain = math.hypot(*numbers) < MOST_EXACT and "_" not in "".join(fields)  # which Python alone reads in numbers
    return numbers if is_plain else None


@dataclass
class CsvEvents:
    """Turns CSV rows under a header into events; fields that are empty, or one of `missing`, are absent. plain: gives
    numbers a decimal point, and nothing between thousands; leaves other texts as they are."""

    header: list[str]
    delimiter: str = ","
    missing: frozenset[str] = frozenset()
    plain: Callable[[str], str] = str

    def __call__(self, line: str) -> Event:
        """Raises DataError."""
        require_unicode(line, "line")
        fields = _fields(line, self.delimiter)
        while len(fields) > len(self.header) and not fields[-1].strip():
            fields.pop()  # delimiters at the end
        if len(fields) != len(self.header):
            raise DataError(f"found {len(fields)} fields, expected {len(self.header)}")
        if self.missing:
            fields = ["" if text.strip() in self.missing else text for text in fields]
        texts = fields if self.plain is str else map(self.plain, fields)
        return {name: Field(text) for name, text in zip(self.header, texts, strict=True) if text}


def events(lines: Iterable[str], kind: str, dialect: IngestOptions | None = None) -> Iterator[tuple[int, str, Parse]]:
    """(line number, line, its parser) of each event; empty lines, a CSV header, and lines before it are none, nor are
    comments. dialect: of CSV lines, as far as it is given."""
    if kind != "csv":
        yield from ((number, line, json_event) for number, line in enumerate(lines, 1) if line.strip())
        return
    from streamsvm.ingest.options import IngestOptions  # pydantic

    dialect = dialect or IngestOptions()
    parse: Parse | None = None
    delimiter = None
    for number, line in enumerate(lines, 1):
        is_comment = dialect.comment is not None and line.lstrip(" \t").startswith(dialect.comment)
        if number <= dialect.skip_rows or is_comment or not line.strip():
            continue
        if parse is not None:
            yield number, line, parse
        elif delimiter is None and (delimiter := _separator_in(line)) is not None:
            continue
        else:
            parse = _under(line, dialect.delimiter or delimiter, dialect)


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of a CSV line. Raises DataError."""
    if delimiter == " ":  # any number of them
        from streamsvm.ingest.csv_files import spaces_as_tabs  # pyarrow

        line, delimiter = spaces_as_tabs(line.encode()).decode(), "\t"
    try:
        return next(csv.reader([line], delimiter=delimiter))
    except csv.Error as error:
        raise DataError(f"broken CSV: {error}") from None


def _separator_in(line: str) -> str | None:
    """The delimiter that a line `sep=;` names."""
    from streamsvm.ingest.csv_files import SEPARATOR  # pyarrow

    match = SEPARATOR.match(line)
    return None if match is None else match[1]


def _under(header: str, delimiter: str | None, dialect: IngestOptions) -> CsvEvents:
    """The parser of the rows under a CSV header, by the header's delimiter if none is given: a row may be wrong. Raises
    DataError."""
    from streamsvm.ingest.csv_files import delimiter_of  # pyarrow

    require_unicode(header, "header")
    delimiter = delimiter or delimiter_of(header, ",", header=True)
    names = _fields(header, delimiter)
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"header: found column {name!r} twice, expected names that differ")
    return CsvEvents(names, delimiter, frozenset(dialect.missing), _plain(delimiter, dialect))


def _plain(delimiter: str, dialect: IngestOptions) -> Callable[[str], str]:
    """A function that makes numbers plain, see `CsvEvents`. Without given marks, numbers may have a decimal comma where
    that is not the delimiter."""
    from streamsvm.ingest.csv_files import marks_given  # pyarrow

    marks = marks_given(dialect)
    if marks is None:
        if delimiter == ",":
            return str
        return lambda text: text.replace(",", ".") if _COMMA.fullmatch(text) else text
    is_number = re.compile(marks.pattern, re.ASCII)
    return lambda text: marks.plain(text) if is_number.match(text) else text
