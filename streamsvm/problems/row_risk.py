"""Sums of losses of single rows: computed by one pass for each set of planes, with nothing of a row between passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from streamsvm.data.cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.problems.passes import Passes, View, scores
from streamsvm.problems.products import add_transposed_times, no_slopes
from streamsvm.tasks.base import Targets

SLICE_BYTES = 1 << 20  # of rows that are in cache from their scores to the slope
NOTHING = np.empty(0)


class LossTerms(Protocol):
    """The loss of a row in a column as a sum of pieces, each a function of c - y f: f is the row's score, and y is -1
    or +1, or c and y are both times a factor on the loss.

    columns: how many there are. row_bytes: of a row in `row_columns`.
    """

    row_bytes: ClassVar[int]

    @property
    def columns(self) -> int: ...

    def row_columns(self, targets: Targets) -> Columns:
        """What `pieces` needs of rows, (m,) each."""

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        """(2, m) y and c of the rows, one piece after the other."""


@dataclass(frozen=True)
class OneVsRestTerms:
    """1 - y f, y = +1 where the row has the code that the column stands for, else -1. Two classes make one column, of
    the second; more make one each (one-vs-rest)."""

    k: int
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return 1 if self.k == 2 else self.k

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (codes,) = row_columns
        pieces = np.ones((2, len(codes)))
        np.multiply(codes == (1 if self.k == 2 else column), 2.0, out=pieces[0])
        pieces[0] -= 1.0
        yield pieces


@dataclass(frozen=True)
class MultilabelTerms:
    """1 - y f, y = +1 where the set that is the row's code has the label of the column, else -1. sets (l, columns).
    factors (2, columns): on the loss of rows that lack a label, and of those that have it."""

    sets: np.ndarray
    factors: np.ndarray | None = None
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return self.sets.shape[1]

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (codes,) = row_columns
        has = self.sets[codes, column].astype(np.intp)
        weight = np.ones(len(codes)) if self.factors is None else self.factors[has, column]
        yield np.stack([(2.0 * has - 1.0) * weight, weight])


@dataclass(frozen=True)
class TubeTerms:
    """t - f - epsilon and f - t - epsilon, t the target of the row: at most one of them is above 0."""

    epsilon: float
    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 8

    def row_columns(self, targets: Targets) -> Columns:
        assert targets.linear is not None  # that of regression
        return ((targets.linear[:, 1] - targets.linear[:, 0]) / 2,)

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        (t,) = row_columns
        for y in (1.0, -1.0):
            yield np.stack([np.full(len(t), y), y * t - self.epsilon])


@dataclass(frozen=True)
class MarginTerms:
    """-f, of a score that is to be above 0."""

    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 4

    def row_columns(self, targets: Targets) -> Columns:
        return (targets.codes,)  # all alike

    def pieces(self, column: int, row_columns: Columns) -> Iterator[np.ndarray]:
        pieces = np.zeros((2, len(row_columns[0])))
        pieces[0] = 1.0
        yield pieces


class RowRisk(ABC):
    """R_c(w) = sum_i upper_i loss_c(w'x_i), the loss a sum of the pieces of row i in column c. Each block of rows comes
    with `LossTerms.row_columns`, and upper (m,)."""

    reward = 0.0

    def __init__(self, passes: Passes, terms: LossTerms) -> None:
        self._passes, self._terms = passes, terms
        self.d, self.columns = passes.d, terms.columns

    def start(self) -> np.ndarray:
        return NOTHING

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, scores: list[np.ndarray]) -> list[View]:
        both = np.stack([W, Q], axis=2).reshape(self.d, -1)
        visit = partial(_sums_of, type(self), self._terms, columns, self._passes.bias)
        _, (values, A, lines) = self._passes.over(visit, shared=(both,))
        return [self.view(float(value), a, line) for value, a, line in zip(values, A.T, lines, strict=True)]

    @abstractmethod
    def support(self, W: np.ndarray, scores: list[np.ndarray]) -> int:
        """How many rows have a loss in any column at W (d, columns)."""

    line_shape: ClassVar[tuple[int, ...]]  # of the sums that say how the risk runs from w to q

    @staticmethod
    @abstractmethod
    def add(
        F: np.ndarray, c: int, piece: np.ndarray, upper: np.ndarray, G: np.ndarray, sums: np.ndarray, lines: np.ndarray
    ) -> None:
        """Adds one piece (2, m) of column c, whose scores at w and q are F[:, 2 c : 2 c + 2]. To G (m, q) the slopes of
        the losses by the scores at q, to sums (2, q) the losses at q and these slopes, to lines (q, *line_shape) what
        describes the risk from w to q."""

    @staticmethod
    @abstractmethod
    def view(value: float, slope: np.ndarray, line: np.ndarray) -> View:
        """The view of a column, from its sums."""


def row_slices(rows: Rows, columns: int) -> Iterator[tuple[int, int]]:
    """Start and stop of slices of a block's rows that fit in cache with so many numbers for each row."""
    m = len(rows)
    step = max(1, SLICE_BYTES * m // (rows.nbytes + 8 * columns * m))
    return ((start, min(m, start + step)) for start in range(0, m, step))


def _sums_of(
    risk: type[RowRisk],
    terms: LossTerms,
    columns: np.ndarray,
    bias: float,
    both: np.ndarray,
    block: tuple[Rows, Columns],
) -> tuple[None, tuple[np.ndarray, ...]]:
    """Values and slopes at q, and how the risks run from w to q; both (d, 2 q): their columns alternate."""
    (rows, (*row_columns, upper)), q = block, len(columns)
    sums, lines, A = np.zeros((2, q)), np.zeros((q, *risk.line_shape)), no_slopes(rows, q)
    for start, stop in row_slices(rows, 3 * q):
        F, G = scores(rows, both, bias, start, stop), np.zeros((stop - start, q))
        sliced = tuple(values[start:stop] for values in row_columns)
        for c, column in enumerate(columns):
            for piece in terms.pieces(column, sliced):
                risk.add(F, c, piece, upper[start:stop], G, sums, lines)
        add_transposed_times(rows, G, start, A)
    return None, (sums[0], np.vstack([A, bias * sums[1]]) if bias else A, lines)
