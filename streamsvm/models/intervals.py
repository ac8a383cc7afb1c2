"""Intervals for the label of a new row: split conformal prediction, from rows that a model was not trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from streamsvm.errors import ModelError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.arrays import Arrays, Attrs, State

ROUNDING = 1e-12  # of a level times a number of rows, relative


@dataclass(frozen=True)
class Intervals(SizedInBytes):
    """f(x) - q to f(x) + q, which contains a new row's label with a probability of at least `level`.

    q is the smallest but k - 1 of the absolute errors of f on m rows that it was not trained on, k = ceil((m + 1)
    level) (Vovk, Gammerman and Shafer 2005; Lei, G'Sell, Rinaldo, Tibshirani and Wasserman 2018, algorithm 2). It holds
    for any f and any distribution of the rows, on average over these m rows, if they and the new one are exchangeable.
    Given them, the probability has a distribution Beta(k, m + 1 - k).

    level: the default, in (0, 1). errors (m,): rising."""

    level: float
    errors: np.ndarray

    @classmethod
    def of(cls, level: float, labels: np.ndarray, values: np.ndarray) -> Intervals:
        """labels, values (m,): of the rows, and the model's answers."""
        return cls(level, np.sort(np.abs(labels.astype(np.float64) - values)))

    def half_width(self, level: float | None = None) -> float:
        """q of a level, else of its own level. Raises ModelError for a level that needs more errors."""
        level, m = self.level if level is None else level, len(self.errors)
        if not 0 < level < 1:
            raise ModelError(f"interval is {level:g}, expected a level above 0 and below 1, for example 0.9")
        if rows_needed(level) > m:
            raise ModelError(
                f"interval is {level:g}, which needs {rows_needed(level):,} held-out rows, and there were {m:,}: "
                f"expected at most {m / (m + 1):.6g}; fit with more (holdout), or ask for a lower level"
            )
        return float(self.errors[rank(level, m) - 1])

    def levels(self, among: Iterable[float]) -> list[float]:
        """The levels in (0, 1), of some, that it has enough errors for."""
        return [level for level in among if rows_needed(level) <= len(self.errors)]

    def around(self, values: np.ndarray, level: float | None = None) -> np.ndarray:
        """(m, 2) lower and upper ends about answers (m,). Raises ModelError."""
        return values[:, None] + self.half_width(level) * np.array([-1.0, 1.0])

    def facts(self) -> dict[str, object]:
        """For reports: its level, the number of rows it is computed from, and q."""
        return {"level": self.level, "rows": len(self.errors), "half_width": self.half_width()}

    def to_state(self) -> State:
        return {"interval_errors": self.errors}, {"interval": self.level}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> Intervals | None:
        """None if a model has none. Raises ValueError for arrays that `to_state` cannot have written."""
        level = attrs.get("interval")
        if level is None:
            return None
        errors = np.asarray(arrays["interval_errors"])
        is_whole = errors.ndim == 1 and errors.dtype == np.float64 and np.isfinite(errors).all()
        is_whole = is_whole and len(errors) > 0 and errors[0] >= 0 and bool(np.all(np.diff(errors) >= 0))
        if not (is_whole and isinstance(level, float) and 0 < level < 1):
            raise ValueError("the errors of the intervals are incomplete")
        return cls(level, errors)


def rows_needed(level: float) -> int:
    """The least m with ceil((m + 1) level) <= m."""
    return _ceiling(level / (1 - level))


def rank(level: float, m: int) -> int:
    """ceil((m + 1) level), at least 1: which of m errors, rising, is the half width."""
    return max(1, _ceiling((m + 1) * level))


def _ceiling(number: float) -> int:
    return math.ceil(number - ROUNDING * max(1.0, number))
