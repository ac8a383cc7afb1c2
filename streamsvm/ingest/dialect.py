"""The dialect of a CSV file: its delimiter, the lines before its rows, and the marks inside its numbers."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.errors import DataError

if TYPE_CHECKING:
    from streamsvm.ingest.options import IngestOptions
    from streamsvm.ingest.streams import Stream

DELIMITERS = (",", ";", "\t", "|")
SPACES = " "  # the delimiter of columns that any number of spaces and tabs separates
PROBED_ROWS = 100
PROBED_CELLS = 1000  # of a row
_QUOTED_OR_SPACES = re.compile(rb'"[^"]*"|[ \t]+')
SEPARATOR = re.compile(r"sep=(.)\r?(\n|$)", re.IGNORECASE)  # Excel reads and writes it
_WIDE = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_WIDE_LINE = re.compile(rb"([!-~]\0){2}|(\0[!-~]){2}")  # two letters, without a mark before them
_NUMBER = re.compile(r"\s*[-+]?(\d+|\d{1,3}([., ']\d{3})+)?([.,]\d*)?([eE][-+]?\d+)?\s*")


class NumberMarks(NamedTuple):
    """The decimal mark of numbers, and the mark between thousands, if there is one."""

    decimal: str = "."
    thousands: str = ""

    @property
    def pattern(self) -> str:
        """A regular expression of all numbers with these marks."""
        grouped = rf"|\d{{1,3}}({re.escape(self.thousands)}\d{{3}})+" if self.thousands else ""
        point = re.escape(self.decimal)
        return rf"^\s*[-+]?((\d+{grouped})({point}\d*)?|{point}\d+)([eE][-+]?\d+)?\s*$"

    def is_read_with(self, decimal: str) -> bool:
        """Whether Arrow reads such numbers with this decimal mark."""
        return self.decimal == decimal and not self.thousands

    def fit(self, texts: pa.Array) -> bool:
        """Whether all texts are numbers with these marks."""
        return bool(pc.all(pc.match_substring_regex(texts, self.pattern)).as_py() is not False)

    def plain(self, text: str) -> str:
        """A number without a mark between thousands, and with a decimal point."""
        text = text.strip()
        text = text.replace(self.thousands, "") if self.thousands else text
        return text.replace(self.decimal, ".")

    def numbers(self, texts: pa.Array) -> pa.Array:
        """float64 values of texts. Raises pa.ArrowInvalid."""
        plain = pc.utf8_trim_whitespace(texts)
        if self.thousands:
            plain = pc.replace_substring(plain, self.thousands, "")
        if self.decimal != ".":
            plain = pc.replace_substring(plain, self.decimal, ".")
        return plain.cast(pa.float64())


POINTS, COMMAS, THOUSANDS_COMMAS = NumberMarks("."), NumberMarks(","), NumberMarks(".", ",")
GROUPED_COMMAS = tuple(NumberMarks(",", mark) for mark in (".", " ", "\u00a0", "\u202f", "'"))
CANDIDATES = (POINTS, COMMAS, THOUSANDS_COMMAS, *GROUPED_COMMAS)


def marks_given(options: IngestOptions) -> NumberMarks | None:
    """The marks of all numbers, if the options name one of them."""
    decimal, thousands = options.decimal, options.thousands
    if decimal is None and thousands is None:
        return None
    return NumberMarks(decimal or ("," if thousands == "." else "."), thousands or "")


class TableShape(NamedTuple):
    """The lines and columns of a file. skip_lines: before the names, or before the rows if names are given. names: of
    the columns, if they differ from those in the file."""

    delimiter: str
    skip_lines: int
    names: tuple[str, ...] | None
    remark: str | None = None


def shape_of(path: str, head: bytes, usual: str, delimiter: str | None, skip: int, *, header: bool) -> TableShape:
    """The shape of a file that begins with these bytes. usual: the delimiter of files with this name. Raises DataError
    for text that is not UTF-8, and for lines that cannot be names of the columns after them."""
    text = _text_of(path, head)
    text = _below(text, skip)
    separator = SEPARATOR.match(text)
    if separator is not None:
        skip, text = skip + 1, _below(text, 1)
        delimiter = delimiter or separator[1]
    delimiter = delimiter or delimiter_of(text, usual, header=header)
    rows, ends = _rows_of(text, delimiter)
    if not header:
        return TableShape(delimiter, skip, _without_empty_end(rows))
    if len(rows) < 2:
        return TableShape(delimiter, skip, None)
    width = _usual_width(rows[1:])
    names, body = rows[0], [row for row in rows[1:] if len(row) == width]
    if len(names) >= width:
        return TableShape(delimiter, skip, None)
    if not any(filter(None, (cell for row in body for cell in row[len(names) :]))):
        return TableShape(delimiter, skip + ends[0], (*names, *[""] * (width - len(names))))
    first = [row[0] for row in body]
    if len(names) == width - 1 and len(names) > 1 and len({*first}) == len(first) > 1:
        remark = f"line {skip + 1} has {len(names)} names, for {width} columns: the first one is read as row names"
        return TableShape(delimiter, skip + ends[0], ("", *names), remark)
    titles = next(at for at, row in enumerate(rows) if len(row) == width)
    problem = f"found {len(names)} column{'s' * (len(names) > 1)}, and {width} in the lines below"
    problem = f"{path}:{skip + 1}: {problem}"
    raise DataError(f"{problem}; if the table begins further down, add --skip-rows {skip + ends[titles - 1]}")


def _without_empty_end(rows: list[list[str]]) -> tuple[str, ...] | None:
    """The columns of rows that end in a delimiter, as Arrow names them, the last one without a name. None: others."""
    if {len(row) for row in rows} != {len(rows[0])} or len(rows[0]) < 2 or any(row[-1] for row in rows):
        return None
    return (*(f"f{at}" for at in range(len(rows[0]) - 1)), "")


def require_bytes(path: str, head: bytes) -> None:
    """Raises DataError for a file whose first characters have two or four bytes each, with or without a mark."""
    encoding = next((name for mark, name in _WIDE.items() if head.startswith(mark)), None)
    if encoding is None and (m := _WIDE_LINE.match(head)) is not None:
        encoding = "UTF-16LE" if m[1] else "UTF-16BE"
    if encoding is not None:
        raise DataError(f"{path}: found {encoding}, expected UTF-8; convert it with `iconv -f {encoding} -t UTF-8`")


def _text_of(path: str, head: bytes) -> str:
    """The whole lines of these first bytes of a file. Raises DataError if they are not UTF-8."""
    require_bytes(path, head)
    whole = head if len(head) < 1 << 20 else head[: head.rfind(b"\n") + 1] or head
    try:
        return whole.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = whole.count(b"\n", 0, error.start) + 1, whole[error.start : error.start + 1]
        problem = f"{path}:{line}: found the byte {byte!r}, which is not UTF-8"
        raise DataError(f"{problem}; try `iconv -f LATIN1 -t UTF-8`") from None


def _below(text: str, lines: int) -> str:
    return text.split("\n", lines)[lines] if text.count("\n") >= lines else ""


def delimiter_of(text: str, usual: str, *, header: bool) -> str:
    """The delimiter that gives most lines the same number of columns; of several, the one with more numbers."""
    scores = {mark: _score(_rows_of(text, mark)[0], header) for mark in (usual, *DELIMITERS)}
    best = max(scores, key=lambda mark: scores[mark])  # the first, if several are alike
    if not scores[best][0]:
        rows, _ = _rows_of(text, SPACES)
        agreement, numbers, width = _score(rows, header)
        if agreement > 0.9 and numbers and len(rows[0]) in (width, width - 1 if header else width):
            return SPACES
    return best


def _score(rows: list[list[str]], header: bool) -> tuple[float, float, int]:
    """The share of rows with the usual number of columns, the numbers in such a row, and its columns."""
    body = rows[1:] if header and len(rows) > 1 else rows
    width = _usual_width(body)
    if width < 2:
        return 0.0, 0.0, 0
    usual = [row for row in body if len(row) == width]
    cells = (cell for row in usual for cell in row[:PROBED_CELLS])
    numbers = sum(_NUMBER.fullmatch(cell) is not None and any(map(str.isdigit, cell)) for cell in cells)
    return len(usual) / len(body), numbers / len(usual), width


def _usual_width(rows: list[list[str]]) -> int:
    return Counter(map(len, rows)).most_common(1)[0][0] if rows else 0


def _rows_of(text: str, delimiter: str) -> tuple[list[list[str]], list[int]]:
    """The first rows, and the number of lines up to the end of each."""
    if delimiter == SPACES:
        text, delimiter = spaces_as_tabs(text.encode()).decode(), "\t"
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows, ends = [], []
    try:
        for row in islice(filter(None, reader), PROBED_ROWS):
            rows.append(row)
            ends.append(reader.line_num)
    except csv.Error:  # a value above 128 KiB: judge by the rows before it
        pass
    return rows, ends


def spaces_as_tabs(text: bytes) -> bytes:
    """Whole lines with a tab for each run of spaces outside quotes, and none at their ends."""
    lines = re.sub(rb"(?m)^[ \t]+|[ \t]+(?=\r?$)", b"", text)
    if b'"' not in lines:
        return re.sub(rb"[ \t]+", b"\t", lines)
    return _QUOTED_OR_SPACES.sub(lambda m: m[0] if m[0].startswith(b'"') else b"\t", lines)


def without_comments(text: bytes, mark: bytes) -> bytes:
    """Whole lines, those that begin with the mark empty, so that line numbers stay."""
    return re.sub(rb"(?m)^[ \t]*" + re.escape(mark) + rb"[^\n]*", b"", text)


class EditedStream(io.RawIOBase):
    """A stream of text whose whole lines are edited as they are read."""

    def __init__(self, stream: Stream, edits: Sequence[Callable[[bytes], bytes]]) -> None:
        self._stream, self._edits = stream, edits
        self._rest, self._ready, self._is_over = b"", b"", False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while not self._is_over and (size < 0 or len(self._ready) < size):
            self._fill(max(size, 1 << 16))
        cut = len(self._ready) if size < 0 else size
        piece, self._ready = self._ready[:cut], self._ready[cut:]
        return piece

    def _fill(self, size: int) -> None:
        raw = self._stream.read(size)
        self._is_over = not raw
        text = self._rest + raw
        cut = len(text) if self._is_over else text.rfind(b"\n") + 1
        lines, self._rest = text[:cut], text[cut:]
        for edit in self._edits:
            lines = edit(lines)
        self._ready += lines

    def close(self) -> None:
        self._stream.close()
        super().close()


def survivors(texts: Iterable[pa.Array], candidates: Sequence[NumberMarks]) -> tuple[NumberMarks, ...]:
    """The marks with which all texts are numbers."""
    left = tuple(candidates)
    for piece in texts:
        left = tuple(marks for marks in left if marks.fit(piece))
    return left


def has_decimal_commas(fitting: tuple[NumberMarks, ...]) -> bool:
    """Whether numbers that fit these marks show that their decimal mark is a comma: it cannot divide thousands."""
    return COMMAS in fitting and POINTS not in fitting and THOUSANDS_COMMAS not in fitting


def marks_of(fitting: tuple[NumberMarks, ...], *, commas: bool) -> NumberMarks | None:
    """The marks of numbers that fit these, with decimal commas or not. None: it is not clear that they are numbers."""
    order = (COMMAS, *GROUPED_COMMAS, POINTS) if commas else (POINTS,)
    if commas and POINTS in fitting and COMMAS in fitting:  # whole numbers
        return POINTS
    return next((marks for marks in order if marks in fitting), None)
