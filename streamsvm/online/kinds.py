"""The kinds of a stream's features: numbers, booleans, times or texts. The first value of a feature decides."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from streamsvm.data.labels import is_unicode
from streamsvm.errors import DataError

Features: TypeAlias = Mapping[Any, Any]  # of an event, by name; `FeatureKinds` checks the values
Event: TypeAlias = dict[str, Any]  # as it comes: a JSON object, or the fields of a CSV row
State: TypeAlias = Mapping[str, Any]  # in a snapshot: JSON
EPOCH = datetime(1970, 1, 1)
REALS = frozenset({int, float, np.float64, np.float32, np.int64, np.int32})
BOOLS = frozenset({bool, np.bool_})
EXPECTED = {"number": "a number", "bool": "true or false", "time": "a time", "text": "a text"}
OF_TIMES = (".hour", ".weekday")  # columns of a time, besides its days
MISSING = frozenset(  # texts that Arrow, and so `ingest`, reads as missing in columns that are not text
    ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "N/A", "NA"]
    + ["NULL", "NaN", "n/a", "nan", "null"]
)


class FeatureKinds:
    """The kind of each feature, as events have them. A text becomes a column of ones, `colour=red`, a time three
    columns."""

    def __init__(self, columns: Collection[Hashable] = (), state: Iterable[tuple[Hashable, str]] | None = ()) -> None:
        """columns: names so far. state: what `to_state` gave; None: of an earlier version, that had no kinds."""
        if state is None:
            heads = [_text_feature(name) for name in columns]
            state = [(head, "text") for head in heads if head is not None and head not in columns]
        self._kinds: dict[Hashable, str] = dict(state)
        self._kinds |= {name: "number" for name in columns if name not in self._kinds and not self._is_derived(name)}

    def to_state(self) -> list[tuple[Hashable, str]]:
        return [(name, kind) for name, kind in self._kinds.items() if kind != "number" or self._is_derived(name)]

    def copy(self) -> FeatureKinds:
        new = FeatureKinds()
        new._kinds = dict(self._kinds)
        return new

    def kind(self, name: Hashable) -> str | None:
        """The kind of a feature; None of one that has none yet."""
        return self._kinds.get(name)

    def named(self, kind: str) -> set[Hashable]:
        """The features of a kind."""
        return {name for name, kind_of_name in self._kinds.items() if kind_of_name == kind}

    def are(self, kind: str, names: Iterable[Hashable]) -> bool:
        """Whether all are features of this kind, or new ones whose names are free."""
        return all((self._kinds.get(name) or self._new_kind(name, kind)) == kind for name in names)

    def _new_kind(self, name: Hashable, kind: str) -> str | None:
        return None if self._is_derived(name) or not is_unicode(name) else kind

    def plain(self, x: Features) -> Features:
        """The features as numbers, without missing ones. Raises DataError for a value of another kind than the
        feature's, and for names and texts that are not Unicode."""
        if REALS.issuperset(map(type, x.values())) and self.are("number", x):
            return x
        plain: dict[Hashable, Any] = {}
        for name, value in x.items():
            kind = self._kind(name, value)
            if kind == "number":
                plain[name] = value
            elif kind is not None:
                plain |= _derived_columns(name, value, kind)
        return plain

    def learn(self, x: Features, columns: Collection[Hashable]) -> None:
        """Adds the kinds of an event's features that have some of these columns. `plain` has accepted the event."""
        for name, value in x.items():
            if name not in self._kinds and (kind := self._kind(name, value)) is not None:
                made = (name,) if kind == "number" else _derived_columns(name, value, kind)
                if any(column in columns for column in made) and not self._is_derived(name):
                    self._kinds[name] = kind

    def _kind(self, name: Hashable, value: object) -> str | None:
        """The kind of a feature's value; None where it is missing. Raises DataError."""
        known_kind = self._kinds.get(name)
        kind = kind_of(value)
        if kind == "text" and (value == "" or (known_kind != "text" and value in MISSING)):
            kind = None
        if kind == "other" or (known_kind is not None and kind not in (known_kind, None)):
            expected = EXPECTED[known_kind or "number"] + ", as before" * (known_kind is not None)
            raise DataError(f"feature {shown(name)}: found {shown(value)}, expected {expected}")
        if known_kind is None:
            require_unicode(name, f"feature {shown(name)}")
            is_flag = kind == "number" and as_float(value) in (0, 1)
            if kind is not None and self._is_derived(name) and not is_flag:
                raise DataError(
                    f"feature {shown(name)}: found {shown(value)}, expected no feature of this name, which is that of "
                    "a column of another feature's texts or times; rename it"
                )
        if kind == "text":
            require_unicode(value, f"feature {shown(name)}")
        return kind

    def _is_derived(self, name: Hashable) -> bool:
        """Whether it is the name of a column that a feature's texts or times are made into."""
        if not isinstance(name, str):
            return False
        ends = (i for i, character in enumerate(name) if character == "=")
        if any(self._kinds.get(name[:i]) == "text" for i in ends):
            return True
        head, dot, end = name.rpartition(".")
        return dot + end in OF_TIMES and self._kinds.get(head) == "time"


def require_unicode(text: object, what: str) -> None:
    """Raises DataError for text that is not Unicode. what: has the text, in words."""
    if not is_unicode(text):
        raise DataError(f"{what}: found {shown(text)}, expected text that is Unicode")


def kind_of(value: object) -> str | None:
    """The kind of a value, or "other"; None if it is missing."""
    if isinstance(value, bool | np.bool_):
        return "bool"
    if isinstance(value, str):
        return "text"
    if isinstance(value, np.timedelta64):  # which NumPy counts among integers
        return "other"
    if isinstance(value, Real | Decimal | np.integer | np.floating):
        return "number"
    if isinstance(value, date):
        return "time" if value == value else None  # pandas' NaT is not
    return None if value is None else "other"


def as_float(value: Any) -> float:
    """A number; infinite if it is too large, NaN if it is none."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan


def _derived_columns(name: Any, value: Any, kind: str) -> dict[Hashable, float]:
    """The columns of a feature that is not a number, and their values."""
    if kind == "text":
        return {f"{name}={value}": 1.0}
    if kind == "bool":
        return {name: float(value)}
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:  # all of UTC, as in tables
        value = value.astimezone(UTC).replace(tzinfo=None)
    seconds = (value - EPOCH).total_seconds()
    hour, weekday = (f"{name}{end}" for end in OF_TIMES)
    return {str(name): seconds / 86_400, hour: seconds % 86_400 / 3_600, weekday: float(value.weekday())}


def _text_feature(name: Hashable) -> str | None:
    """The feature of a column `colour=red`."""
    head, is_text, _ = name.partition("=") if isinstance(name, str) else ("", "", "")
    return head if is_text else None


def shown(value: object) -> str:
    """On one line, cut where it is long."""
    try:
        return " ".join(repr(value).split())[:40]
    except ValueError:  # an integer of thousands of digits
        return f"an {type(value).__name__} of thousands of digits"
