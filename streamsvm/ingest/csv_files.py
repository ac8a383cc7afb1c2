"""CSV and TSV files, plain or compressed, read through Arrow.

`Csv` reads a file. `columns_of` decides the kind of each of its columns and the marks of its numbers, from the first
rows or from all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from streamsvm.errors import DataError
from streamsvm.ingest.block import OpenStream
from streamsvm.ingest.dialect import (
    CANDIDATES,
    COMMAS,
    GROUPED_COMMAS,
    POINTS,
    SPACES,
    EditedStream,
    NumberMarks,
    has_decimal_commas,
    marks_given,
    marks_of,
    shape_of,
    spaces_as_tabs,
    survivors,
    without_comments,
)
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import Stream, binary_of
from streamsvm.ingest.table import NO_HINTS, Batches, ColumnHints, Table, require_different, unlike
from streamsvm.tables.arrow import MISSING, kind_of, of_texts, times
from streamsvm.tables.schema import KINDS

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
