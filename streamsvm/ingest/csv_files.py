"""CSV and TSV files, plain or compressed, read through Arrow.

`shape_of` finds the dialect of a file: its delimiter, and the lines before its rows. `Csv` reads a file. `columns_of`
decides the kind of each of its columns and the marks of its numbers, from the first rows or from all of them.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamsvm.errors import DataError
from streamsvm.ingest.block import OpenStream
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import Stream, binary_of, require_bytes
from streamsvm.ingest.table import NO_HINTS, Batches, ColumnHints, Table, require_different, unlike
from streamsvm.tables.arrow import MISSING, kind_of, of_texts, times
from streamsvm.tables.schema import KINDS

DELIMITERS = (",", ";", "\t", "|")
SPACES = " "  # the delimiter of columns that any number of spaces and tabs separates
PROBED_ROWS = 100
PROBED_CELLS = 1000  # of a row
_QUOTED_OR_SPACES = re.compile(rb'"[^"]*"|[ \t]+')
SEPARATOR = re.compile(r"sep=(.)\r?(\n|$)", re.IGNORECASE)  # Excel reads and writes it
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


_CONVERSION = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\S+): invalid value '(.*)'", re.DOTALL
)
_EXPECTED = {"double": "a number", "int64": "a whole number", "bool": "true or false"}
_HEX = r"^\s*[-+]?0[xX]"  # Arrow infers integers, and cannot read them as float64

Texts = Callable[[str], Iterable[pa.Array]]


class Column(NamedTuple):
    """A column. kind: see `schema.KINDS`. marks: of its numbers; None: they are whole, and read with any marks."""

    kind: str
    marks: NumberMarks | None = None


class Csv(Table):
    """A CSV or TSV file, plain or compressed. Its dialect and the kinds of its columns follow from its first MiB; the
    kinds of the columns `hints.whole`, from all rows."""

    def __init__(
        self, path: str, options: IngestOptions, delimiter: str, open_stream: OpenStream, hints: ColumnHints = NO_HINTS
    ) -> None:
        """delimiter: the usual one of files with this name."""
        self._path, self._options, self._open, self._hints = path, options, open_stream, hints
        self._streams: list[EditedStream | Stream] = []
        self._edits: list[Callable[[bytes], bytes]] = []
        with open_stream(path) as stream:
            head = stream.head()
        if (problem := binary_of(path, head)) is not None:
            raise DataError(f"{path}: {problem}")
        if options.comment is not None:
            self._edits.append(partial(without_comments, mark=options.comment.encode()))
            head = self._edits[0](head)
        if not head.strip():
            raise DataError(f"{path} is empty; expected {'names of columns, and ' if options.header else ''}rows")
        shape = shape_of(path, head, delimiter, options.delimiter, options.skip_rows, header=options.header)
        self._shape = shape
        self.first_line = shape.skip_lines + 1 + (options.header and shape.names is None)
        self.remarks = [shape.remark] if shape.remark is not None else []
        is_spaced = shape.delimiter == SPACES
        self._edits += [spaces_as_tabs] * is_spaced
        # quotes may come after the first MiB, and cost nothing in one thread
        self._parse = pa.csv.ParseOptions(delimiter="\t" if is_spaced else shape.delimiter, newlines_in_values=True)
        longest = 8 * max(map(len, head.split(b"\n")[: shape.skip_lines + 1]))
        self._block_bytes = max(options.block_bytes, longest)  # Arrow needs a whole row within two blocks
        self._point = "."
        self._schema = self._reader(max(1 << 20, longest), None).schema
        if options.header:
            self._require_names()
        hint = ", or --no-header if line 1 is a row" * options.header
        require_different(path, [*filter(None, self._schema.names)], hint)
        self._columns = self._judged_columns(max(1 << 20, longest))

    def _reader(self, block_bytes: int, types: dict[str, pa.DataType] | None) -> Any:
        read = pa.csv.ReadOptions(
            use_threads=False,
            block_size=block_bytes,
            skip_rows=self._shape.skip_lines,
            column_names=self._shape.names,
            autogenerate_column_names=not self._options.header and self._shape.names is None,
        )
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=None if types is None else [*types],
            decimal_point=self._point,
            null_values=[*MISSING, *self._options.missing],
        )
        stream = self._open(self._path)
        self._streams.append(EditedStream(stream, self._edits) if self._edits else stream)
        return pa.csv.open_csv(self._streams[-1], read, self._parse, convert)

    def _judged_columns(self, first: int) -> dict[str, Column]:
        """All named columns. Sets the decimal mark with which Arrow reads most of them."""
        options, hints = self._options, self._hints
        types = {f.name: f.type for f in self._schema if f.name}
        forced = {*options.text, *options.category}.intersection(types)
        judged = {name: type_ for name, type_ in types.items() if name not in forced}
        whole = hints.whole.keys() & judged
        head = next(iter(self._reader(first, dict.fromkeys(judged, pa.string()))), None) if judged else None

        def texts(name: str) -> Iterator[pa.Array]:
            if name in whole:
                for batch in self._reader(self._block_bytes, {name: pa.string()}):
                    yield self._present(batch.column(name))
            elif head is not None:
                yield self._present(head.column(name))

        given = marks_given(options)
        columns, self.has_commas = columns_of(judged, texts, whole=whole, given=given, commas=hints.has_commas)
        if given is None:
            self.remarks = [*self.remarks, *filter(None, [remark_of_commas(columns, texts)])]
        marks = {column.marks for column in columns.values()}
        self._point = "," if COMMAS in marks and POINTS not in marks else "."
        return {name: columns.get(name, Column("text")) for name in types}

    def _present(self, texts: pa.Array) -> pa.Array:
        """The values of a column that are not missing."""
        return texts.filter(pc.invert(self._are_missing(texts, (*MISSING, *self._options.missing))))

    def _are_missing(self, texts: pa.Array, markers: tuple[str, ...]) -> pa.Array:
        marker_texts = of_texts(markers).cast(pa.string())
        return pc.is_in(pc.utf8_trim_whitespace(texts), marker_texts, skip_nulls=False)

    def kinds(self) -> dict[str, str]:
        return {name: column.kind for name, column in self._columns.items()}

    def written(self) -> dict[str, pa.DataType]:
        types = {None: pa.int64(), POINTS: pa.float64()}
        columns = {name: column.marks for name, column in self._columns.items() if column.kind == "number"}
        return {name: types[marks] for name, marks in columns.items() if marks in types}

    def _require_names(self) -> None:
        """Raises DataError for values of a column without a name, unless it is the first: row numbers of pandas."""
        for at, f in enumerate(self._schema):
            if at and not f.name and not pa.types.is_null(f.type):
                problem = f"{self._path}:{self._shape.skip_lines + 1}: column {at + 1} has no name"
                raise DataError(f"{problem}; give it one, or add --no-header if this line is a row")

    def batches(self, types: dict[str, pa.DataType]) -> Batches:
        numbers = {name: self._columns[name].marks for name, t in types.items() if pa.types.is_floating(t)}
        edited = {
            name: marks for name, marks in numbers.items() if marks is not None and not marks.is_read_with(self._point)
        }
        of_times = {name: t for name, t in types.items() if pa.types.is_timestamp(t)}
        line = self.first_line
        as_text = dict.fromkeys((*edited, *of_times), pa.string())
        ends = {name: pa.string() for name in self._schema.names[-1:] if name and self._columns[name].kind == "text"}
        end: pa.Scalar | None = None
        try:
            for batch in self._reader(self._block_bytes, ends | types | as_text):
                yield self._converted(batch.select([*(types | as_text)]), edited, of_times, line)
                line += batch.num_rows
                end = batch.column(next(iter(ends)))[-1] if ends and batch.num_rows else end
            self._require_closed_quote(end, line - 1)
        except pa.ArrowInvalid as error:
            if (m := _CONVERSION.search(str(error))) is None:
                raise
            expected = _EXPECTED.get(m[3], m[3])
            raise unlike(self._path, int(m[2]), self._schema.names[int(m[1])], m[4], expected, self._hints) from error

    def _require_closed_quote(self, end: pa.Scalar | None, line: int) -> None:
        """Raises DataError if the last value of the last row, at this line, has lines to the end of the file, and no
        quote after them. Arrow reads them all as its text."""
        text = None if end is None else end.as_py()
        if not text or "\n" not in text:
            return
        last = b""
        with self._open(self._path) as stream:
            while piece := stream.read(1 << 20):
                last = (last + piece)[-1024:]
        if not last.rstrip().endswith(b'"'):
            rest = text.rstrip("\n").count("\n")
            raise DataError(
                f"{self._path}:{line}: nothing closes the quote before {text[:40].splitlines()[0]!r}, so that "
                f"{rest} more line{'s' * (rest != 1)} would be part of this value; close the quote, or remove it"
            )

    def _converted(
        self, batch: pa.RecordBatch, edited: dict[str, NumberMarks], of_times: dict[str, pa.DataType], line: int
    ) -> pa.RecordBatch:
        """The batch with missing texts as gaps, and the numbers and times of these columns. line: of its first row."""
        for at, f in enumerate(batch.schema):
            if not pa.types.is_string(f.type):
                continue
            is_number, is_time = f.name in edited, f.name in of_times
            is_text = not (is_number or is_time)
            markers = self._options.missing if is_text else ("", *MISSING, *self._options.missing)
            column = batch.column(at)
            if markers:
                gaps = pa.nulls(len(column), pa.string())
                column = pc.if_else(self._are_missing(column, markers), gaps, column)
            if is_number:
                column = self._numbers(f.name, column, edited[f.name], line)
            if is_time:
                column = self._moments(f.name, column, of_times[f.name], line)
            batch = batch.set_column(at, f.name, column)
        return batch

    def _numbers(self, name: str, column: pa.Array, marks: NumberMarks, line: int) -> pa.Array:
        fit = pc.match_substring_regex(column, marks.pattern)
        if pc.all(fit).as_py() is False:
            wrong = fit.to_pylist().index(False)
            raise unlike(self._path, line + wrong, name, column[wrong].as_py(), "a number", self._hints)
        return marks.numbers(column)

    def _moments(self, name: str, column: pa.Array, type_: pa.DataType, line: int) -> pa.Array:
        try:
            return times(column).cast(type_, safe=False)
        except pa.ArrowInvalid:
            wrong = next(at for at in range(len(column)) if not are_times(column[at : at + 1]))
            raise unlike(self._path, line + wrong, name, column[wrong].as_py(), "a time", self._hints) from None

    def close(self) -> None:
        for stream in self._streams:
            stream.close()


def columns_of(
    types: Mapping[str, pa.DataType], texts: Texts, *, whole: Set[str], given: NumberMarks | None, commas: bool
) -> tuple[dict[str, Column], bool]:
    """The columns by name, and whether numbers of the file have decimal commas.

    types: as Arrow infers them from the first rows. texts: the values of a column that are not missing, of the first
    rows, and of all rows for the columns `whole`. given: the marks of all numbers, if the user has named them. commas:
    whether numbers of earlier files have decimal commas.
    """
    candidates = CANDIDATES if given is None else (given,)
    judged = {
        name
        for name, t in types.items()
        if name in whole or _kind(t) == "text" or (given is not None and pa.types.is_floating(t))
    }
    fits = {name: survivors(texts(name), candidates) for name in judged}
    has_commas = given is None and (commas or any(map(has_decimal_commas, fits.values())))
    if has_commas:
        floats = [name for name, t in types.items() if pa.types.is_floating(t) and name not in fits]
        fits |= {name: survivors(texts(name), (POINTS, *GROUPED_COMMAS)) or (POINTS,) for name in floats}
    marks = {
        name: next(iter(column_marks), None) if given is not None else marks_of(column_marks, commas=has_commas)
        for name, column_marks in fits.items()
    }
    columns = {}
    for name, t in types.items():
        if name not in fits:
            found = (pc.match_substring_regex(piece, _HEX) for piece in texts(name)) if pa.types.is_integer(t) else ()
            is_hex = any(pc.any(flags).as_py() for flags in found)
            columns[name] = Column("text" if is_hex else _kind(t), POINTS if pa.types.is_floating(t) else None)
        elif (column_marks := marks[name]) is not None:
            columns[name] = Column("number", column_marks)
        else:
            pieces = [are_times(piece) for piece in texts(name) if len(piece)]
            columns[name] = Column("time" if pieces and all(pieces) else "text")
    return columns, has_commas


def remark_of_commas(columns: Mapping[str, Column], texts: Texts) -> str | None:
    """A warning with an example if a mark between thousands could be the decimal mark."""
    grouped = {
        name: column.marks.thousands for name, column in columns.items() if column.marks and column.marks.thousands
    }
    if not grouped:
        return None
    name, mark = next(iter(grouped.items()))
    matching = (piece.filter(pc.match_substring(piece, mark)) for piece in texts(name))
    example = next((found[0].as_py() for found in matching if len(found)), mark)
    return (
        f"column {name!r} has {mark!r} between thousands, as in {example!r}, because other numbers of the file have "
        "decimal commas; if it is the decimal mark, add --decimal ."
    )


def _kind(t: pa.DataType) -> str:
    kind = kind_of(t)
    return kind if kind in KINDS else "text"


def are_times(texts: pa.Array) -> bool:
    """Whether all of them are times, or missing."""
    try:
        times(texts[:1])  # most texts are not, which a first one tells at once
        times(texts)
    except pa.ArrowInvalid:
        return False
    return True
