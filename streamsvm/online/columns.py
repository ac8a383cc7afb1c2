"""Columns of a stream's features: dicts and frames become rows of numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from streamsvm.data.rows import Rows
from streamsvm.data.statistics import SHARE
from streamsvm.errors import DataError
from streamsvm.online.kinds import BOOLS, REALS, FeatureKinds, Features, State, as_float, shown
from streamsvm.private.numba import AN_OBJECT, direct, is_compiled, njit, numbers_of
from streamsvm.tables.answers import library_of

if TYPE_CHECKING:
    from streamsvm.tables.frames import Frame

LARGEST = 1e18  # squares stay within float32
LEFT_OUT = "; leave it out of the event if it is missing"
LOOKS = (64, 128, 256, 512)  # numbers of events after which the rounding of features is checked
LANES = 8  # of float32 that are computed at once: the width is a multiple of it, where the learner scales columns


class FeatureColumns:
    """A column for each feature, in order of arrival; at most `most`, later ones are left out.

    width: columns of rows, some of them for features to come. It is doubled when full, so that it rarely grows.
    absent: the value in columns that an event lacks. lanes: of which the width is a multiple. kinds: of the features,
    which may be numbers, true and false, texts, each of them a column of ones, and times, which become days since 1970,
    hours and days of the week; None is absent."""

    def __init__(
        self,
        names: Iterable[Hashable],
        width: int,
        most: int,
        absent: float = 0.0,
        *,
        lanes: int = 1,
        kinds: Iterable[tuple[Hashable, str]] | None = (),
    ) -> None:
        self._absent, self._lanes = absent, lanes
        self.names, self.width, self.most = list(names), width, most
        self._places = {name: column for column, name in enumerate(self.names)}
        self.kinds = FeatureKinds(self._places.keys(), kinds)
        self._has_warned = False
        self._ranges: FeatureRanges | None = FeatureRanges()  # of the first events
        self._order: list[Hashable] = []  # numeric features of the last event, and their columns
        self._columns = np.empty(0, np.intp)
        self._plan: _Plan | None = None  # for events with the same features
        self._source: tuple[list[Hashable], list[object]] | None = None  # of the last row
        self._row = np.empty(0, np.float32)

    def row(self, x: Features, *, grow: bool) -> np.ndarray:
        """(width,) float32; with `grow`, new features get a column, else they are left out. The same array for the same
        event twice: it is predicted, then learned. Raises DataError."""
        if self._plan is not None and (planned := self._plan.row(x)) is not None:
            if grow and self._ranges is not None:
                self._check_precision(x)
            return planned
        plain = self.kinds.plain(x)
        if not grow and not self._places.keys() >= plain.keys():
            plain = {name: value for name, value in plain.items() if name in self._places}
        source = list(plain), list(plain.values())
        is_known = len(self._row) == self.width and _are_equal(source, self._source)
        names, values = source[0], None if is_known else numbers(plain)
        if grow and self._ranges is not None:
            self._check_precision(plain)
        if values is None:
            return self._row
        if names != self._order:
            if grow:
                self._add_columns(x, names)
            placed = [i for i, name in enumerate(names) if name in self._places]
            columns = np.array([self._places[names[i]] for i in placed], np.intp)
            if len(placed) < len(names):
                return self._row_of(columns, values[placed])
            self._order, self._columns, self._plan = names, columns, None
            self._source, self._row = source, self._row_of(columns, values)
        else:
            self._source, self._row = source, self._row_of(self._columns, values)
            self._plan = _Plan.of(names, self._columns, self._row, x, self.kinds.named("bool"))
        return self._row

    def _row_of(self, columns: np.ndarray, values: np.ndarray) -> np.ndarray:
        row = np.empty(self.width, np.float32)
        place(values, columns, self._absent, row)
        return row

    def check(self, x: Features) -> None:
        """Raises DataError for an event that cannot be a row."""
        if self._plan is None or self._plan.row(x) is None:
            numbers(self.kinds.plain(x))

    def matrix(self, X: Frame, *, grow: bool) -> Rows:
        """Rows of a data frame, as `row` makes them; NaN is absent. Raises DataError, before anything is changed."""
        batch = Batch(X)
        of_numbers = [name for name in batch.names if name not in batch.bools]  # or new ones
        are_plain = self.kinds.are("number", of_numbers) and self.kinds.are("bool", batch.bools)
        if batch.values is None or not are_plain:
            records = batch.records()
            plain = self._checked(records)
            if grow:
                for x, features in zip(records, plain, strict=True):
                    self._add_columns(x, list(features))
                    self._check_precision(features)
            rows = [self.row(x, grow=False) for x in records]
            return Rows(np.array(rows, np.float32).reshape(len(records), self.width))
        values = batch.values
        is_whole = bool((np.abs(values) < LARGEST).all())  # nothing is missing
        wrong = () if is_whole else np.argwhere(~(np.abs(values) < LARGEST) & ~np.isnan(values))
        for row, column in wrong[:1]:
            problem = f"row {row}, feature {batch.names[column]!r}: found {values[row, column]}"
            raise DataError(f"{problem}, expected a number below {LARGEST:.0e}")
        if grow and not self._places.keys() >= set(batch.names):
            for row in batch.first_rows:
                self._add_columns(row, list(row))
        if grow and self._ranges is not None:
            for first in values[: LOOKS[-1]].tolist():
                self._check_precision({name: v for name, v in zip(batch.names, first, strict=True) if v == v})
        placed = [position for position, name in enumerate(batch.names) if name in self._places]
        columns = [self._places[batch.names[position]] for position in placed]
        out = np.full((len(values), self.width), self._absent, np.float32)
        out[:, columns] = values if len(placed) == len(batch.names) else values[:, placed]
        if not is_whole:
            out[np.isnan(out)] = self._absent
        return Rows(out)

    def _checked(self, records: Sequence[Features]) -> list[Features]:
        """The features of rows as numbers, of kinds that stand from the first row on. Raises DataError."""
        kinds, checked = self.kinds.copy(), []
        for i, x in enumerate(records):
            try:
                plain = kinds.plain(x)
                numbers(plain)
            except DataError as error:
                raise DataError(f"row {i}, {error}") from None
            kinds.learn(x, plain)
            checked.append(plain)
        return checked

    def _add_columns(self, x: Features, names: Iterable[Hashable]) -> None:
        """Adds columns for new features of an event, in a fixed order, not that of the event. names: of numeric
        columns."""
        new = [name for name in names if name not in self._places]
        if not new:
            return
        new.sort(key=lambda name: (str(type(name)), str(name)))
        n_free = max(self.most - len(self.names), 0)
        for name in new[:n_free]:
            self._places[name] = len(self.names)
            self.names.append(name)
        self.kinds.learn(x, new[:n_free])
        if len(new) > n_free:
            self._warn_of_limit(new[n_free])
        if len(self.names) > self.width:
            room = max(len(self.names), 2 * self.width)
            self.width, self._plan = min(-(-room // self._lanes) * self._lanes, self.most), None

    def _check_precision(self, x: Features) -> None:
        """Warns once if float32 is too narrow for the numbers of a feature, as the first events have them."""
        if self._ranges is None:
            return
        self._ranges.observe(x)
        message = self._ranges.rounding_warning(self.kinds) if self._ranges.n in LOOKS else None
        if message is not None or self._ranges.n >= LOOKS[-1]:
            self._ranges = None
        if message is not None:
            warnings.warn(message, stacklevel=2)

    def _warn_of_limit(self, name: Hashable) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"feature {name!r} is left out, as are all new ones from here on: there are {self.most} columns "
                "already, as many as max_features; find out why new names keep coming",
                stacklevel=2,
            )


class _Plan:
    """A fast conversion to rows, by one compiled call, of events with the same features of the same types, numbers or
    booleans in the first columns. Nearly all events are like this."""

    def __init__(self, names: list[Hashable], kinds: list[type], row: np.ndarray) -> None:
        """names, kinds: of the first columns, with the types of their values; float takes an int, too. row (width,): of
        the last event; its other columns stay."""
        self._names, self._kinds, self._row, self._next = names, kinds, row, row.copy()

    @classmethod
    def of(
        cls, names: list[Hashable], columns: np.ndarray, row: np.ndarray, x: Features, bools: set[Hashable]
    ) -> _Plan | None:
        """A plan for events like x. None if the features do not fill the first columns, or are not numbers and
        booleans."""
        if not names or columns.max() >= len(names) or names != list(x) or not is_compiled(_read):
            return None
        ordered = [names[i] for i in np.argsort(columns)]
        kinds = [type(x[name]) for name in ordered]
        if not all(kind in (BOOLS if name in bools else REALS) for name, kind in zip(ordered, kinds, strict=True)):
            return None
        return cls(ordered, [float if kind is int else kind for kind in kinds], row)

    def row(self, x: Features) -> np.ndarray | None:
        """The row of an event, the same array for the same event twice; None if the plan does not fit the event."""
        if type(x) is not dict or len(x) != len(self._names):
            return None
        found = _reader()(x, self._names, self._kinds, self._row, self._next)
        if found == NEW:
            self._row, self._next = self._next, self._next.copy()
        return None if found == MISFIT else self._row


MISFIT, SAME, NEW = range(3)


@njit(cache=True, nogil=False)
def _read(x, names, kinds, last, row):
    """Fills the start of the row. MISFIT if the event x does not fit, see `numbers_of`; SAME if the last row was the
    same."""
    n = numbers_of(x, names, kinds, LARGEST, row)
    if n < 0:
        return MISFIT
    for j in range(n):
        if row[j] != last[j]:
            return NEW
    return SAME


@cache
def _reader() -> Callable[..., int]:
    row = np.empty(1, np.float32)
    return direct(_read, AN_OBJECT, AN_OBJECT, AN_OBJECT, row, row)


class FeatureRanges:
    """The ranges of features in n events, and one value of each that float32 rounds."""

    def __init__(self) -> None:
        self.n = 0
        self._bounds: dict[Hashable, list[float]] = {}  # smallest, largest, and one that is rounded, or NaN

    def observe(self, x: Features) -> None:
        for name, value in x.items():
            number = float(value)
            bounds = self._bounds.setdefault(name, [number, number, math.nan])
            bounds[0], bounds[1] = min(bounds[0], number), max(bounds[1], number)
            if bounds[2] != bounds[2] and number != float(np.float32(number)):
                bounds[2] = number
        self.n += 1

    def rounding_warning(self, kinds: FeatureKinds) -> str | None:
        """A warning if a feature is rounded to steps of more than SHARE of its range. Times have their clock in other
        columns."""
        for name, (low, high, example) in self._bounds.items():
            if kinds.kind(name) == "time":
                continue
            step = float(np.spacing(np.float32(max(-low, high))))
            if example == example and low < high and step > SHARE * (high - low):
                return (
                    f"feature {shown(name)}: float32, in which events are learned, rounds {example!r} to "
                    f"{float(np.float32(example))!r}, and values so far differ by {high - low:.3g}; subtract a "
                    "constant, such as its first value, or send hour and weekday of a time"
                )
        return None


class TotalVariance:
    """The sum of the columns' variances over the rows seen (Chan, Golub and LeVeque 1979). means (d,): of the columns.
    squares: the sum of squared deviations from them, over all columns."""

    def __init__(self, n: int = 0, squares: float = 0.0, means: ArrayLike = ()) -> None:
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

    def to_state(self) -> dict[str, object]:
        return {"n": self.n, "squares": self.squares, "means": self.means.tolist()}

    @classmethod
    def from_state(cls, state: State) -> TotalVariance:
        """Also of a state of version 0.2, whose sums are about the first row, the origin."""
        if "origin" not in state:
            return cls(**state)
        n, shift = state["n"], np.array(state["sums"], np.float64) / max(state["n"], 1)
        squares = max(state["squares"] - n * float(shift @ shift), 0.0)
        return cls(n, squares, np.array(state["origin"], np.float64) + shift)


def numbers(x: Features) -> np.ndarray:
    """The values of an event of numbers, finite float64. Raises DataError naming the feature that is not one."""
    values = _vector(list(x.values()))
    if not are_small(values):
        for (name, value), number in zip(x.items(), values.tolist(), strict=True):
            if not abs(number) < LARGEST:
                message = f"feature {shown(name)}: found {shown(value)}, expected a finite number below {LARGEST:.0e}"
                raise DataError(message + LEFT_OUT * (number != number))
    return values


def _are_equal(a: object, b: object) -> bool:
    try:
        return bool(a == b)
    except (ValueError, ArithmeticError):  # of arrays and signalling NaN, which no event may have
        return False


def _vector(values: list[Any]) -> np.ndarray:
    """Numbers as float64; infinite if too large."""
    try:
        return np.fromiter(values, np.float64, len(values))
    except (OverflowError, ValueError):  # an integer beyond float64, a signalling NaN of decimal
        return np.array([as_float(value) for value in values])


@njit(cache=True)
def are_small(values):
    """Whether all are below LARGEST; NaN is not."""
    for value in values:
        if not abs(value) < LARGEST:
            return False
    return True


@njit(cache=True)
def place(values, columns, absent, row):
    """Fills the row."""
    row[:] = absent
    for i in range(len(columns)):
        row[columns[i]] = values[i]


class Batch:
    """The rows of a data frame. values: (m, columns) float64 if all columns are numbers, or true and false, NaN where
    they are missing; else None. bools: names of columns of true and false."""

    def __init__(self, X: Any) -> None:
        """Raises DataError for anything that is not a data frame, and for columns of one name."""
        self._frame = X if library_of(X) == "pandas" else _as_table(X)
        self.names: list[Any] = list(X.columns) if library_of(X) == "pandas" else self._frame.column_names
        if len({*self.names}) < len(self.names):
            twice = next(name for at, name in enumerate(self.names) if name in self.names[:at])
            raise DataError(f"X has two columns {twice!r}; expected different names")
        kinds = self._kinds()
        self.bools = {name for name, kind in zip(self.names, kinds, strict=True) if kind == "b"}
        self.values = self._values() if set("biuf").issuperset(kinds) else None

    def _kinds(self) -> list[str]:
        """NumPy's kind of each column: b, i, u, f, or O for others."""
        if library_of(self._frame) == "pandas":
            return [dtype.kind for dtype in self._frame.dtypes]
        from pyarrow import types

        tests = {"b": types.is_boolean, "i": types.is_integer, "f": types.is_floating}
        return [next((k for k, is_of in tests.items() if is_of(t)), "O") for t in self._frame.schema.types]

    def _values(self) -> np.ndarray:
        if library_of(self._frame) == "pandas":
            values: np.ndarray = self._frame.to_numpy(np.float64, na_value=np.nan)
            return values
        columns = [column.to_numpy().astype(np.float64) for column in self._frame.columns]
        return np.column_stack(columns) if columns else np.empty((self._frame.num_rows, 0))

    def records(self) -> list[dict[Hashable, Any]]:
        """The rows as events, without what is missing."""
        if library_of(self._frame) == "pandas":
            rows = self._frame.astype(object).where(self._frame.notna(), None).to_dict("records")
        else:
            rows = self._frame.to_pylist()
        return [
            {
                name: v
                for name, v in row.items()
                if not (v is None or (isinstance(v, float | np.floating) and np.isnan(v)))
            }
            for row in rows
        ]

    @property
    def first_rows(self) -> Iterator[dict[Hashable, Any]]:
        """Events of the rows with the first number of some column, with these numbers alone."""
        assert self.values is not None
        is_present = ~np.isnan(self.values)
        firsts = np.where(is_present.any(axis=0), is_present.argmax(axis=0), -1) if len(is_present) else np.empty(0)
        for row in np.unique(firsts[firsts >= 0]).tolist():
            places = np.flatnonzero(firsts == row).tolist()
            values = {self.names[j]: float(self.values[row, j]) for j in places}
            yield {name: bool(v) if name in self.bools else v for name, v in values.items()}


def targets_in(y: Iterable[Any]) -> list[Any]:
    """Labels or numbers of a column of pandas, polars or Arrow, of an array, or of anything else in order."""
    for name in ("tolist", "to_list", "to_pylist"):
        if hasattr(y, name):
            values: list[Any] = getattr(y, name)()
            return values
    return list(y)


def rows_in(X: Frame) -> int:
    """The rows of a data frame. Raises DataError for what has no number of them, as a lazy frame."""
    if not hasattr(X, "__len__"):
        raise _no_frame(X)
    return len(X)


def _no_frame(X: Frame) -> DataError:
    return DataError(f"found rows as {type(X).__name__}, expected a data frame of pandas, polars or Arrow")


def _as_table(X: Frame) -> Frame:
    from streamsvm.tables.frames import kinds_of, table_of

    if isinstance(X, np.ndarray | list | dict):
        raise _no_frame(X)
    table = table_of(X)
    kinds_of(table)  # names that differ
    return table
