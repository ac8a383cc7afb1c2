"""Kernel values of small pairs of classes, for those of one class with several later ones at a time.

A small pair is solved in less time than a call for its kernel values takes. So these are computed for many at once:
all values within classes, and those between a few classes and all later ones. They are float64, so that solutions are
certified by them, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.problems.dual import MATRIX_ROWS
from streamsvm.tasks.pairs import classes_of_pairs

ROWS, MOST_ROWS = 512, 1024  # that are taken at once, of each side: a partition is planned for three times as many
MOST_VALUES = MATRIX_ROWS**2 // 2  # in float64, that are computed at once: as many bytes as of MATRIX_ROWS in float32


@dataclass
class PairBlock:
    """See `PairsQP`."""

    first: tuple[np.ndarray, ...]
    later: tuple[np.ndarray, ...]
    begins: np.ndarray
    K: tuple[np.ndarray, np.ndarray, np.ndarray]
    bounds: tuple[np.ndarray, np.ndarray, np.ndarray]


class PairValues:
    """The kernel values of rows of classes with these codes (n,): of those whose errors cost something, of which each
    class has some. take: the rows with these numbers, a few at a time, so that they may be in files. bounds: see
    `PairsQP`."""

    def __init__(
        self,
        kernel: Kernel,
        take: Callable[[np.ndarray], Rows],
        codes: np.ndarray,
        bounds: tuple[np.ndarray, np.ndarray, np.ndarray],
        threads: int = 1,
    ) -> None:
        self._kernel, self._take, self._bounds, self._threads = kernel.in_float64(), take, bounds, threads
        ids = np.flatnonzero(bounds[-1] > 0)  # labels of rows that are kept out decide nothing
        self._order, counts = ids[np.argsort(codes[ids], kind="stable")], np.bincount(codes[ids])
        self._begins, self._classes = np.concatenate([[0], np.cumsum(counts)]), classes_of_pairs(len(counts))
        self._strip: SingleEntryCache[np.ndarray] = SingleEntryCache()

    @staticmethod
    def are_few(counts: np.ndarray) -> bool:
        """Whether classes of so many rows are several pairs, of few values each."""
        return len(counts) > 2 and 0 < counts.min() and counts.max() * counts.sum() <= MOST_VALUES

    def block(self, number: int) -> PairBlock:
        """Pairs from this one on, of the same first class, at most as many as do not take long."""
        begins, counts = self._begins, np.diff(self._begins)
        i, start = (int(classes[number]) for classes in self._classes)
        values = np.cumsum((counts[i] + counts[start:]) ** 2)
        stop = start + max(1, int(np.searchsorted(values, MOST_VALUES, side="right")))
        later = slice(begins[start], begins[stop])
        first_ids, later_ids = self._order[begins[i] : begins[i + 1]], self._order[later]
        both = np.concatenate([first_ids, later_ids])
        upper, ridge, cost = (values[both] for values in self._bounds)
        within, ends = self._within
        within_first = within[ends[i] : ends[i + 1]].reshape(counts[i], counts[i])
        return PairBlock(
            np.ix_(first_ids, np.arange(start, stop) - 1),  # compact coefficients, see `tasks.pairs`
            (later_ids, np.full(len(later_ids), i)),
            begins[start : stop + 1] - begins[start],
            (self._between(i, later), within_first, within[ends[start] : ends[stop]]),
            (upper, ridge, cost),
        )

    @cached_property
    def _within(self) -> tuple[np.ndarray, np.ndarray]:
        """The values within classes, one flat matrix after another, and where each begins and ends."""
        begins, counts = self._begins, np.diff(self._begins)
        ends = np.concatenate([[0], np.cumsum(counts**2)])
        values = np.empty(ends[-1])
        for first, last in pairwise(self._cuts(MOST_ROWS * len(self._order))):
            taken = self._rows(begins[first], begins[last])
            for c in range(first, last):
                rows = taken.take(slice(begins[c] - begins[first], begins[c + 1] - begins[first]))
                self._kernel.block(rows, rows, 1, values[ends[c] : ends[c + 1]].reshape(counts[c], counts[c]))
        return values, ends

    @cached_property
    def _strips(self) -> np.ndarray:
        """The classes where strips of values begin: the same strips wherever a fit starts, as others are rounded
        otherwise."""
        return np.array(self._cuts(MOST_VALUES))

    def _cuts(self, most_values: int) -> list[int]:
        """Between runs of classes with so many values with later rows, and at most MOST_ROWS rows, or one class."""
        begins, cuts = self._begins, [0]
        while (first := cuts[-1]) < len(begins) - 1:
            rows = min(MOST_ROWS, most_values // (begins[-1] - begins[first]))
            cuts.append(max(first + 1, int(np.searchsorted(begins, begins[first] + rows, side="right")) - 1))
        return cuts

    def _between(self, i: int, later: slice) -> np.ndarray:
        """The values between the rows of a class and some later ones."""
        number = np.searchsorted(self._strips, i, side="right") - 1
        start = self._begins[self._strips[number]]
        K = self._strip.of(self._strips[number : number + 2], self._made)
        rows = slice(self._begins[i] - start, self._begins[i + 1] - start)
        return np.ascontiguousarray(K[rows, later.start - start : later.stop - start])

    def _made(self, classes: np.ndarray) -> np.ndarray:
        """The values between the rows of a run of classes, from one to another, and all from there on."""
        start, stop = self._begins[classes].tolist()
        rows, n = self._rows(start, stop), len(self._order)
        K = np.empty((stop - start, n - start))
        for first in range(start, n, ROWS):
            some = slice(first - start, first - start + ROWS)
            K[:, some] = self._kernel.block(rows, self._rows(first, first + ROWS), self._threads)
        return K

    def _rows(self, start: int, stop: int) -> Rows:
        """Some rows in the order of their classes."""
        return self._take(self._order[start:stop])
