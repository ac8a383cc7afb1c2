"""The kinds of the columns of a CSV file, and the marks of their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamsvm.ingest.dialect import (
    CANDIDATES,
    GROUPED_COMMAS,
    POINTS,
    Marks,
    has_decimal_commas,
    marks_of,
    survivors,
)
from streamsvm.tables.arrow import kind_of, times
from streamsvm.tables.schema import KINDS

_HEX = r"^\s*[-+]?0[xX]"  # Arrow infers integers, and cannot read them as float64

Texts = Callable[[str], Iterable[pa.Array]]


class Column(NamedTuple):
    """kind: see `schema.KINDS`. marks: of its numbers. None: they are whole, and those of the file will do."""

    kind: str
    marks: Marks | None = None


def columns_of(
    types: Mapping[str, pa.DataType], texts: Texts, *, whole: Set[str], given: Marks | None, commas: bool
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
        name: next(iter(own), None) if given is not None else marks_of(own, commas=has_commas)
        for name, own in fits.items()
    }
    columns = {}
    for name, t in types.items():
        if name not in fits:
            is_hex = pa.types.is_integer(t) and any(map(_has_hex, texts(name)))
            columns[name] = Column(
                "text" if is_hex else _kind(t), POINTS if pa.types.is_floating(t) else None
            )
        elif (own := marks[name]) is not None:
            columns[name] = Column("number", own)
        else:
            pieces = [are_times(piece) for piece in texts(name) if len(piece)]
            columns[name] = Column("time" if pieces and all(pieces) else "text")
    return columns, has_commas


def remark_of_commas(columns: Mapping[str, Column], texts: Texts) -> str | None:
    """What was chosen where numbers of one file have different marks, with an example."""
    grouped = {
        name: own.marks.thousands for name, own in columns.items() if own.marks and own.marks.thousands
    }
    if not grouped:
        return None
    name, mark = next(iter(grouped.items()))
    example = next((found for piece in texts(name) if (found := _with(piece, mark))), mark)
    return (
        f"column {name!r} has {mark!r} between thousands, as in {example!r}, because other numbers of the file have "
        "decimal commas; if it is the decimal mark, add --decimal ."
    )


def _with(texts: pa.Array, mark: str) -> str | None:
    found = texts.filter(pc.match_substring(texts, mark))
    return found[0].as_py() if len(found) else None


def _kind(t: pa.DataType) -> str:
    kind = kind_of(t)
    return kind if kind in KINDS else "text"


def _has_hex(texts: pa.Array) -> bool:
    return bool(pc.any(pc.match_substring_regex(texts, _HEX)).as_py())


def are_times(texts: pa.Array) -> bool:
    """Whether all of them are times, or missing."""
    try:
        times(texts[:1])  # most texts are not, which a first one tells at once
        times(texts)
    except pa.ArrowInvalid:
        return False
    return True
