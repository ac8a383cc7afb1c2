"""Events as rows of a table that a fit has read: texts, times, true and false as `ingest` encodes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.data.layout import Attrs, names_in_attrs
from streamsvm.errors import DataError
from streamsvm.models.base import Model
from streamsvm.online.kinds import MISSING, Event
from streamsvm.tables.schema import NUMBER, Feature, Schema, as_code

TYPES: dict[str, tuple[tuple[type, ...], str]] = {  # of values in JSON, by the kind of the column
    "number": ((float, int, bool), "a number"),
    "bool": ((bool, float, int), "true or false"),
    "time": ((str,), "a time such as 2024-01-31 12:00:00"),
    "text": ((str, int, bool), "a text"),
}
_NUMBER = re.compile(rf"\s*{NUMBER}\s*")
MOST_CODES = 10**15  # up to which float64 has all whole numbers
ColumnAttrs = Sequence[Attrs]  # of columns, as a store has them


class TableEvents:
    """Replaces values of a table's columns by those of a store's columns: colour, red by colour=red, 1. Others stay as
    they are, and missing ones are left out."""

    def __init__(self, columns: ColumnAttrs) -> None:
        features = Schema.from_attrs({"columns": columns}).features
        self._features = {f.name: f for f in features if f.kind != "number" or f.from_text}
        self.columns = [*columns] if self._features else []
        self._names = {c["name"]: names_in_attrs({"columns": [c]}, 1 << 31) or () for c in columns}

    @classmethod
    def of(cls, model: Model) -> TableEvents:
        """The events of the table that a model was fitted on."""
        layout = model.layout
        return cls([] if layout is None or model.feature_names is None else layout.attrs.get("columns", []))

    def kind(self, name: str) -> str | None:
        """The kind of a column that is encoded, as text where files have texts; None of others."""
        feature = self._features.get(name)
        return None if feature is None else "text" if feature.kind == "time" else feature.kind

    def __call__(self, x: Event) -> Event:
        """Raises DataError for values of other types."""
        if self._features.keys().isdisjoint(x):
            return x
        encoded: Event = {}
        for name, value in x.items():
            if name not in self._features:
                encoded[name] = value
            elif not is_missing(value, self._features[name].kind):
                encoded |= self._encoded(self._features[name], value)
        return encoded

    def _encoded(self, feature: Feature, value: Any) -> dict[str, float]:
        from streamsvm.tables.arrow import days, of_texts, times, unquoted

        types, expected = TYPES[feature.kind]
        value = as_number(value) if feature.from_text else category_code(value) if feature.is_code else value
        if type(value) not in types:
            raise DataError(f"feature {feature.name!r}: {unlike(value, expected)}")
        if feature.kind == "number":
            return {feature.name: value}
        if feature.kind == "bool":
            return {feature.name: float(value)}
        if feature.kind == "text":
            code = int(feature.codes([unquoted(as_text(value))])[0])
            return {self._names[feature.name][abs(code) - 1]: 1.0 if code > 0 else -1.0} if code else {}
        try:
            return {feature.name: days(times(of_texts([value])))[0].as_py()}
        except ValueError:
            raise DataError(f"feature {feature.name!r}: {unlike(value, expected)}") from None


def is_missing(value: object, kind: str) -> bool:
    """Whether a column of this kind has no value: null, or a text that files have in its place."""
    return value is None or (kind != "text" and isinstance(value, str) and value in MISSING)


def as_number(value: object) -> object:
    """The number that a text is; anything else as it is."""
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value


def category_code(value: Any) -> Any:
    """The text of a number code, 7 of 7, 7.0 and "007"; of anything else the value as it is."""
    if isinstance(value, str):
        return as_code(value)
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not (is_number and abs(value) < MOST_CODES):  # nor is NaN
        return value
    return str(int(value)) if value == int(value) else str(value)


def as_text(value: object) -> str | None:
    """A value of JSON as the text that a file would have."""
    return value if value is None or isinstance(value, str) else str(value).lower()


def unlike(value: object, expected: str) -> str:
    """The end of a message about a value that is not as expected."""
    return f"found {str(value)[:40]!r}, expected {expected}"
