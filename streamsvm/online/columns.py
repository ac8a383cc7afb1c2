"""Columns of a stream's features: dicts and frames become rows of numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from numbers import Real
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
        self._given: tuple[list[Hashable], list[Any]] = [], []  # what the last row was made of
        self._row = np.empty(0, np.float32)

    def row(self, x: Mapping[Any, Any], *, grow: bool) -> np.ndarray:
        """(width,) float32; features not known yet get a column where `grow`, else they are left out.

        The same array for the same event twice: it is predicted, then learned. Raises DataError.
        """
        given = list(x), list(x.values())
        if self._is_placed(given):
            return self._row
        x = self._plain(x)
        names, vector = list(x), numbers(x)
        if names != self._order:
            if grow:
                self.take_up(names)
            known = [i for i, name in enumerate(names) if name in self._places]
            columns = np.array([self._places[names[i]] for i in known], np.intp)
            if len(known) < len(names):
                return self._row_of(columns, vector[known])
            self._order, self._columns = names, columns
        self._given, self._row = given, self._row_of(self._columns, vector)
        return self._row

    def check(self, x: Mapping[Any, Any]) -> None:
        """Raises DataError for an event that cannot be a row."""
        if not self._is_placed((list(x), list(x.values()))):
            numbers(self._plain(x))

    def _is_placed(self, given: tuple[list[Hashable], list[Any]]) -> bool:
        """Whether the row is that of these names and values: of the last event, or, as most, of one with the same
        features, all numbers."""
        if given == self._given and len(self._row) == self.width:
            return True
        names, values = given
        if names != self._order or not set(map(type, values)) <= _NUMBERS:
            return False
        row = np.empty(self.width, np.float32)
        if place(_vector(values), self._columns, self._absent, row):
            self._given, self._row = given, row
            return True
        return False

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
            self.width = min(-(-room // lanes) * lanes, self.most)

    def _tell(self, name: Hashable) -> None:
        if not self._told:
            self._told = True
            warnings.warn(
                f"feature {name!r} is left out, as are all new ones from here on: there are {self.most} columns "
                "already; give a larger max_features, or find out why new names keep coming",
                stacklevel=2,
            )

    def _row_of(self, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        row = np.empty(self.width, np.float32)
        place(values, columns, self._absent, row)
        return row


class Spread:
    """The sum of the columns' variances over the rows seen, from running sums about the first row."""

    def __init__(self, n: int = 0, squares: float = 0.0, origin: Any = (), sums: Any = ()) -> None:
        self.n, self.squares = n, squares
        self.origin, self.sums = np.array(origin, np.float64), np.array(sums, np.float64)

    def see(self, rows: np.ndarray) -> None:
        """Rows (m, d); d may have grown, with zeros before."""
        if self.n == 0:
            self.origin, self.sums = rows[0].astype(np.float64), np.zeros(rows.shape[1])
        grown = rows.shape[1] - len(self.sums)
        if grown:
            self.origin, self.sums = np.pad(self.origin, (0, grown)), np.pad(self.sums, (0, grown))
        apart = rows - self.origin
        self.n += len(rows)
        self.squares += float(np.vdot(apart, apart))
        self.sums += apart.sum(axis=0)

    def variance(self) -> float:
        return max(self.squares / self.n - float(self.sums @ self.sums) / self.n**2, 0.0)

    def to_state(self) -> dict[str, Any]:
        sums = {"origin": self.origin.tolist(), "sums": self.sums.tolist()}
        return {"n": self.n, "squares": self.squares} | sums


def _times(name: Any, value: date) -> dict[str, float]:
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    seconds = (value.replace(tzinfo=None) - EPOCH).total_seconds()
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


def _vector(values: list[Any]) -> np.ndarray:
    """Numbers as float64; infinite if too large."""
    try:
        return np.fromiter(values, np.float64, len(values))  # three times as fast as np.array
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
    """Fills the row; returns whether all values are below LARGEST (NaN is not), else the row must not be used."""
    row[:] = absent
    for i in range(len(columns)):
        if not abs(values[i]) < LARGEST:
            return False
        row[columns[i]] = values[i]
    return True
