"""How much better a choice looks on the rows that it was made by than on new ones, by the bootstrap (Efron 1983)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from streamsvm.judging.expected import DRAWS, Z
from streamsvm.metrics import cuts_below

MOST_ROWS = 1 << 19  # of the bootstrap
MOST_ENTRIES, LEAST_DRAWS = 100_000_000, 40  # rows that are drawn in all; samples of them
Counts = TypeVar("Counts")
Place = TypeVar("Place")


class Ranked:
    """Rows, positive bool (h,), by falling values f (h,), which count as many as their weights."""

    def __init__(self, positive: np.ndarray, f: np.ndarray, weight: np.ndarray) -> None:
        self._order = np.argsort(-f, kind="stable")
        self._sides = np.stack([positive, ~positive])[:, self._order] * weight[self._order]
        falling = f[self._order]
        self._ends = np.flatnonzero(np.append(np.diff(falling) != 0, True))  # the last row of each value
        self._values = falling[self._ends]

    def above(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """(2, s) positive and other rows with each of the different values or above, each as often as drawn (h,)."""
        sides = self._sides if drawn is None else self._sides * drawn[self._order]
        return np.cumsum(sides, axis=1)[:, self._ends]

    @property
    def cuts(self) -> np.ndarray:
        """(s + 1,) the largest value, which no row is above, and one below each."""
        rising = self._values[::-1].astype(np.float64)
        return np.append(rising[-1], cuts_below(rising, rising)[::-1])


def some_rows(h: int, k: int, rng: np.random.Generator) -> slice | np.ndarray:
    """Those of h rows of k values that are drawn from: all, or so many at random that there are MOST_ROWS values."""
    most = MOST_ROWS // k
    return slice(None) if h <= most else rng.choice(h, most, replace=False)


def samples(h: int, k: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each of h rows of k values was drawn, sample by sample."""
    for _ in range(min(DRAWS, max(LEAST_DRAWS, MOST_ENTRIES // (h * k)))):
        yield np.bincount(rng.integers(0, h, h), minlength=h)


def expected(
    above: Counts,
    drawn: Iterable[Counts],
    best: Callable[[Counts], Place],
    at: Callable[[Counts, Place], np.ndarray],
) -> list[dict[str, float]]:
    """Scores to expect on new rows, and the ends of an interval for 19 of 20 tests of as many new rows.

    above: what a choice is made by, the counts of all rows; drawn: of samples. at: the scores (s,) of a choice. The
    best of many looks better than it is: by as much, in the mean, as one that is chosen in a sample scores higher there
    than on all rows. Empty without samples.
    """
    place, found = best(above), []
    for inside in drawn:
        there = best(inside)
        found.append([at(inside, there) - at(above, there), at(inside, place)])
    if not found:
        return []
    optimism, scattered = np.mean(found, axis=0)[0], np.std(found, axis=0)[1]
    mean, error = at(above, place) - optimism, Z * scattered
    told = np.clip([mean, mean - error, mean + error], 0.0, 1.0)
    return [dict(zip(("score", "low", "high"), own, strict=True)) for own in told.T.tolist()]
