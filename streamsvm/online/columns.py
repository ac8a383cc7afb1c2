"""Columns of a stream's features: dicts and frames become rows of numbers."""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Hashable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from numbers import Real
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numba as nb
import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = frozenset({int, float, bool, np.float64, np.float32, np.int64, np.int32, np.bool_})
EPOCH = datetime(1970, 1, 1)
LARGEST = 1e18  # squares stay within float32
ONLY_TUNED = "; text and times need a learner that tunes itself, without a given lambda or gamma"
LEFT_OUT = "; leave it out of the event if it is missing"
LANES = (
    8  # of float32 that are computed at once: the width is a multiple of it, where the learner scales columns
)


class Columns:
    """A column for each feature, in order of arrival; at most `most`, later ones are left out.

    width: columns of rows, some of them for features to come. It is doubled when full, so that it rarely grows.
    absent: the value in columns that an event lacks. tables: features may be texts, each text a column of ones. They
    may be times, which become days since 1970, hours and days of the week, or None, which is absent.
    """

    def __init__(
        self, names: Iterable[Hashable], width: int, most: int, absent: float = 0.0, *, tables: bool = False
    ) -> None:
        self._absent, self._tables = absent, tables
        self.names, self.width, self.most = list(names), width, most
        self._places = {name: column for column, name in enumerate(self.names)}
        self._told = False
        self._order: list[Hashable] = []  # features, as numbers, of the last event, and their columns
        self._columns = np.empty(0, np.intp)
        self._plan: _Plan | None = None  # for them, where they come again
        self._given: Any = None  # names and values that the last row was made of
        self._row = np.empty(0, np.float32)

    def row(self, x: Mapping[Any, Any], *, grow: bool) -> np.ndarray:
        """(width,) float32; features not known yet get a column where `grow`, else they are left out.

        The same array for the same event twice: it is predicted, then learned. Raises DataError.
        """
        if self._plan is not None and (placed := self._plan.row(x)) is not None:
            return placed
        given = list(x), list(x.values())
        if len(self._row) == self.width and _are_equal(given, self._given):
            return self._row
        plain = self._plain(x)
        names, values = list(plain), numbers(plain)
        if names != self._order:
            if grow:
                self.take_up(names)
            known = [i for i, name in enumerate(names) if name in self._places]
            columns = np.array([self._places[names[i]] for i in known], np.intp)
            if len(known) < len(names):
                return self._row_of(columns, values[known])
            self._order, self._columns, self._plan = names, columns, None
            self._given, self._row = given, self._row_of(columns, values)
        else:
            self._given, self._row = given, self._row_of(self._columns, values)
            self._plan = _Plan.of(names, self._columns, self._row, x) if plain is x else None
        return self._row

    def _row_of(self, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        row = np.empty(self.width, np.float32)
        place(values, columns, self._absent, row)
        return row

    def check(self, x: Mapping[Any, Any]) -> None:
        """Raises DataError for an event that cannot be a row."""
        if self._plan is None or self._plan.row(x) is None:
            numbers(self._plain(x))

    def _plain(self, x: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """The features as numbers. Raises DataError for text in a column of numbers."""
        if not self._tables or _NUMBERS.issuperset(map(type, x.values())):
            return x
        found: dict[Any, Any] = {}
        for name, value in x.items():
            if isinstance(value, str):
                if name in self._places:
                    raise DataError(f"feature {name!r}: found {value!r}, expected a number, as before")
                found[f"{name}={value}"] = 1.0
            elif isinstance(value, date):
                found |= _times(name, value)
            elif value is not None:
                found[name] = value
        return found

    def matrix(self, X: pd.DataFrame, *, grow: bool) -> Rows:
        """Rows of a frame, as `row` makes them. Raises DataError."""
        if self._tables and any(dtype.kind not in "biuf" for dtype in X.dtypes):
            records = X.astype(object).where(X.notna(), None).to_dict("records")
            if grow:
                for x in records:
                    self.take_up(self._plain(x))
            rows = [self.row(x, grow=False) for x in records]
            return Rows(np.array(rows, np.float32).reshape(len(X), self.width))
        for name, dtype in zip(X.columns, X.dtypes, strict=True):
            if dtype.kind not in "biuf":
                raise DataError(f"feature {str(name)!r}: found {dtype}, expected numbers")
        values = X.to_numpy(np.float64, na_value=np.nan)
        if not np.abs(values).max(initial=0) < LARGEST:  # so is NaN
            row, column = np.argwhere(~(np.abs(values) < LARGEST))[0]
            found = f"row {row}, feature {X.columns[column]!r}: found {values[row, column]}"
            raise DataError(f"{found}, expected a number below {LARGEST:.0e}")
        if grow:
            self.take_up(X.columns)
        out = np.full((len(X), self.width), self._absent, np.float32)
        for position, name in enumerate(X.columns):
            if name in self._places:
                out[:, self._places[name]] = values[:, position]
        return Rows(out)

    def take_up(self, names: Iterable[Hashable]) -> None:
        """Columns for features not seen before, in a fixed order, not the event's."""
        new = [name for name in names if name not in self._places]
        new.sort(key=lambda name: (str(type(name)), str(name)))
        left = max(self.most - len(self.names), 0)
        for name in new[:left]:
            self._places[name] = len(self.names)
            self.names.append(name)
        if len(new) > left:
            self._tell(new[left])
        if len(self.names) > self.width:
            room, lanes = max(len(self.names), 2 * self.width), LANES if self._tables else 1
            self.width, self._plan = min(-(-room // lanes) * lanes, self.most), None

    def _tell(self, name: Hashable) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"feature {name!r} is left out, as are all new ones from here on: there are {self.most} columns "
                "already; give a larger max_features, or find out why new names keep coming",
                stacklevel=2,
            )


class _Plan:
    """How events with the same features, all of them numbers and in the first columns, become rows: most are such
    events, and their time counts."""

    def __init__(self, names: list[Hashable], row: np.ndarray, x: Mapping[Any, Any]) -> None:
        """names: of the first columns. row (width,): of the event x; its other columns stay."""
        self._names, self._row, self._take = names, row, itemgetter(*names)
        self._pack: Any = struct.Struct(f"{len(names)}f").pack_into
        self._values = self._take(x)  # of the row

    def __reduce__(self) -> tuple[Any, ...]:
        values = dict(zip(self._names, self._values, strict=True))
        return _Plan, (self._names, self._row, values)

    @classmethod
    def of(
        cls, names: list[Hashable], columns: np.ndarray, row: np.ndarray, x: Mapping[Any, Any]
    ) -> _Plan | None:
        """None if the features do not fill the first columns."""
        if len(names) < 2 or columns.max() >= len(names):
            return None
        return cls([names[i] for i in np.argsort(columns)], row, x)

    def row(self, x: Mapping[Any, Any]) -> np.ndarray | None:
        """The row of an event, the same array for the same event twice; None for events that it is not for."""
        if type(x) is not dict or len(x) != len(self._names):
            return None
        try:
            values = self._take(x)
            if values == self._values:
                return self._row
            if not (_NUMBERS.issuperset(map(type, values)) and math.hypot(*values) < LARGEST):
                return None
        except (KeyError, ValueError, OverflowError):  # arrays, and integers beyond float64
            return None
        row = self._row.copy()
        self._pack(row, 0, *values)
        self._values, self._row = values, row
        return row


class Spread:
    """The sum of the columns' variances over the rows seen (Chan, Golub and LeVeque 1979).

    means (d,): of the columns. squares: the sum of squared deviations from them, over all columns.
    """

    def __init__(self, n: int = 0, squares: float = 0.0, means: Any = ()) -> None:
        self.n, self.squares, self.means = n, squares, np.array(means, np.float64)

    def see(self, rows: np.ndarray) -> None:
        """Rows (m, d); d may have grown, with zeros before."""
        m, grown = len(rows), rows.shape[1] - len(self.means)
        if grown:
            self.means = np.pad(self.means, (0, grown))
        if m == 1:
            delta = rows[0] - self.means
        else:
            mean = rows.mean(axis=0, dtype=np.float64)
            inside, delta = rows - mean, mean - self.means
            self.squares += float(np.vdot(inside, inside))
        share = m / (self.n + m)
        self.squares += float(delta @ delta) * self.n * share
        self.means += delta * share
        self.n += m

    def variance(self) -> float:
        return self.squares / self.n

    def to_state(self) -> dict[str, Any]:
        return {"n": self.n, "squares": self.squares, "means": self.means.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Spread:
        """Also of a state of version 0.2, whose sums are about the first row, the origin."""
        if "origin" not in state:
            return cls(**state)
        n, shift = state["n"], np.array(state["sums"], np.float64) / max(state["n"], 1)
        squares = max(state["squares"] - n * float(shift @ shift), 0.0)
        return cls(n, squares, np.array(state["origin"], np.float64) + shift)


def _times(name: Any, value: date) -> dict[str, float]:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:  # all of UTC, as in tables
        value = value.astimezone(UTC).replace(tzinfo=None)
    seconds = (value - EPOCH).total_seconds()
    return {
        str(name): seconds / 86_400,
        f"{name}.hour": seconds % 86_400 / 3_600,
        f"{name}.weekday": float(value.weekday()),
    }


def numbers(x: Mapping[Any, Any]) -> np.ndarray:
    """The values of an event, finite float64. Raises DataError naming the feature that is not one."""
    if not _NUMBERS.issuperset(map(type, x.values())):
        for name, value in x.items():
            if not isinstance(value, Real | Decimal | np.number | np.bool_):
                told = f"feature {name!r}: found {value!r}, expected a number"
                raise DataError(
                    told + LEFT_OUT * (value is None) + ONLY_TUNED * isinstance(value, str | date)
                )
    values = _vector(list(x.values()))
    if not are_small(values):
        for name, value in x.items():
            if not abs(value) < LARGEST:
                found = str(value)[:40]
                told = f"feature {name!r}: found {found}, expected a finite number below {LARGEST:.0e}"
                raise DataError(told + LEFT_OUT * (value != value))
    return values


def _are_equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except ValueError:  # of arrays, which no event may have
        return False


def _vector(values: list[Any]) -> np.ndarray:
    """Numbers as float64; infinite if too large."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except OverflowError:  # an integer beyond float64
        return np.full(len(values), math.inf)


@nb.njit(nogil=True, cache=True)
def are_small(values):
    """Whether all are below LARGEST; NaN is not."""
    for value in values:
        if not abs(value) < LARGEST:
            return False
    return True


@nb.njit(nogil=True, cache=True)
def place(values, columns, absent, row):
    """Fills the row."""
    row[:] = absent
    for i in range(len(columns)):
        row[columns[i]] = values[i]
