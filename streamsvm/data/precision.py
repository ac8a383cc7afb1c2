"""Whether float32 is too narrow for the numbers of a column: it has 24 bits, and steps of 128 at 1.7e9."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHARE = 1e-3  # of the spread of a column that a step of float32 may be
SAMPLE = 256  # rows of a block that a column is judged by


class RoundedValue(NamedTuple):
    """A column, one of its values, and what float32 makes of it."""

    column: int
    value: float
    rounded: float


class NeedsFloat64(Exception):
    """Rows have to be read again, as float64. The message says why."""

    @classmethod
    def of(cls, column: str, rounded: RoundedValue, hint: str = "") -> NeedsFloat64:
        """The error for a rounded value. column: named as in `column 3`. hint: ends the message."""
        problem = f"float32 rounds numbers of {column}"
        return cls(f"{problem}, such as {rounded.value!r} to {rounded.rounded:.17g}: the rows are float64{hint}")


def first_rounded(columns: np.ndarray, values: np.ndarray) -> RoundedValue | None:
    """The first column that float32 rounds to steps of more than SHARE of the distance between its quartiles, if there
    is one. values (m,): of these columns (m,), some NaN."""
    order = np.lexsort((values, columns))
    order = order[~np.isnan(values[order])]
    columns, values = columns[order], values[order]
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if np.array_equal(values, rounded):
        return None
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    counts = np.diff(np.append(starts, len(columns)))
    low, middle, high = (values[starts + share * (counts - 1) // 4] for share in (1, 2, 3))
    spread = np.where(high > low, high - low, values[starts + counts - 1] - values[starts])
    differs = np.logical_or.reduceat(values != rounded, starts)
    with np.errstate(over="ignore"):
        steps = np.spacing(np.abs(middle).astype(np.float32))
    bad = np.flatnonzero(differs & (spread > 0) & (steps > SHARE * spread))
    if not len(bad):
        return None
    entry = int(starts[bad[0]])
    entry += int(np.argmax((values != rounded)[entry : entry + counts[bad[0]]]))
    return RoundedValue(int(columns[entry]), float(values[entry]), float(rounded[entry]))


def first_rounded_in(X: np.ndarray) -> RoundedValue | None:
    """`first_rounded` of some rows of X (m, d)."""
    sample = X[:: -(-len(X) // SAMPLE)].astype(np.float64)
    return first_rounded(np.tile(np.arange(X.shape[1]), len(sample)), sample.ravel())
