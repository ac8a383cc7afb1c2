"""Sums of losses of single rows: known by one pass for each set of planes, and nothing of each row is kept between
passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

import numpy as np

from streamsvm.data.pass_cache import Columns
from streamsvm.data.rows import Rows
from streamsvm.problems.passes import Passes, View, scores
from streamsvm.problems.products import add_transposed_times, no_slopes
from streamsvm.tasks.base import Targets

STRETCH_BYTES = 1 << 20  # of rows that are in cache from their scores to the slope
NOTHING = np.empty(0)


class LossTerms(Protocol):
    """What the loss of a row in a column is made of: functions of c - y f, its score f, y -1 or +1; or
    both times a factor on the loss.

    columns: how many there are. row_bytes: of what is known of a row.
    """

    row_bytes: ClassVar[int]

    @property
    def columns(self) -> int: ...

    def known(self, targets: Targets) -> Columns:
        """Of rows, (m,) each."""

    def of(self, column: int, known: Columns) -> Iterator[np.ndarray]:
        """(2, m) y and c of the rows, one piece after the other."""


@dataclass(frozen=True)
class OneVsRestTerms:
    """1 - y f, y = +1 where the row has the code that the column stands for, else -1.

    Two classes make one column, of the second; more make one each (one-vs-rest).
    """

    k: int
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return 1 if self.k == 2 else self.k

    def known(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def of(self, column: int, known: Columns) -> Iterator[np.ndarray]:
        (codes,) = known
        pieces = np.ones((2, len(codes)))
        np.multiply(codes == (1 if self.k == 2 else column), 2.0, out=pieces[0])
        pieces[0] -= 1.0
        yield pieces


@dataclass(frozen=True)
class MultilabelTerms:
    """1 - y f, y = +1 where the set that is the row's code has the label of the column, else -1. sets (l, columns).

    factors (2, columns): on the loss of rows that lack a label, and of those that have it.
    """

    sets: np.ndarray
    factors: np.ndarray | None = None
    row_bytes: ClassVar[int] = 4

    @property
    def columns(self) -> int:
        return self.sets.shape[1]

    def known(self, targets: Targets) -> Columns:
        return (targets.codes,)

    def of(self, column: int, known: Columns) -> Iterator[np.ndarray]:
        (codes,) = known
        has = self.sets[codes, column].astype(np.intp)
        weight = np.ones(len(codes)) if self.factors is None else self.factors[has, column]
        yield np.stack([(2.0 * has - 1.0) * weight, weight])


@dataclass(frozen=True)
class TubeTerms:
    """t - f - epsilon and f - t - epsilon, t the target of the row: at most one of them is above 0."""

    epsilon: float
    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 8

    def known(self, targets: Targets) -> Columns:
        assert targets.linear is not None  # that of regression
        return ((targets.linear[:, 1] - targets.linear[:, 0]) / 2,)

    def of(self, column: int, known: Columns) -> Iterator[np.ndarray]:
        (t,) = known
        for y in (1.0, -1.0):
            yield np.stack([np.full(len(t), y), y * t - self.epsilon])


@dataclass(frozen=True)
class MarginTerms:
    """-f, of a score that is to be above 0."""

    columns: ClassVar[int] = 1
    row_bytes: ClassVar[int] = 4

    def known(self, targets: Targets) -> Columns:
        return (targets.codes,)  # all alike

    def of(self, column: int, known: Columns) -> Iterator[np.ndarray]:
        pieces = np.zeros((2, len(known[0])))
        pieces[0] = 1.0
        yield pieces


class RowRisk(ABC):
    """R_c(w) = sum_i upper_i loss(pieces of row i in column c at w'x_i).

    Beside the rows of each block is what the pieces know of them, and upper (m,).
    """

    reward = 0.0

    def __init__(self, passes: Passes, pieces: LossTerms) -> None:
        self._passes, self._pieces = passes, pieces
        self.d, self.columns = passes.d, pieces.columns

    def start(self) -> np.ndarray:
        return NOTHING

    def at(self, columns: np.ndarray, W: np.ndarray, Q: np.ndarray, known: list[np.ndarray]) -> list[View]:
        both = np.stack([W, Q], axis=2).reshape(self.d, -1)
        visit = partial(_sums_of, type(self), self._pieces, columns, self._passes.bias)
        _, (values, A, lines) = self._passes.over(visit, shared=(both,))
        return [self.view(float(value), a, line) for value, a, line in zip(values, A.T, lines, strict=True)]

    @abstractmethod
    def support(self, W: np.ndarray, known: list[np.ndarray]) -> int:
        """How many rows have a loss in any column at W (d, columns)."""

    line_shape: ClassVar[tuple[int, ...]]  # of the sums that give how the risk runs from w to q

    @staticmethod
    @abstractmethod
    def add(
        F: np.ndarray,
        c: int,
        pieces: np.ndarray,
        upper: np.ndarray,
        G: np.ndarray,
        sums: np.ndarray,
        lines: np.ndarray,
    ) -> None:
        """Adds of column c, by its scores at w and q, F[:, 2 c : 2 c + 2], and one of its pieces (2, m).

        To G (m, q) the slopes of the losses with respect to the scores at q. To sums (2, q) the losses there, and these
        slopes. To lines (q, *line_shape) what describes the way.
        """

    @staticmethod
    @abstractmethod
    def view(value: float, slope: np.ndarray, line: np.ndarray) -> View:
        """What follows from the sums of a column."""


def stretches(rows: Rows, columns: int) -> Iterator[tuple[int, int]]:
    """Of a block's rows, with so many numbers for each."""
    m = len(rows)
    step = max(1, STRETCH_BYTES * m // (rows.nbytes + 8 * columns * m))
    return ((start, min(m, start + step)) for start in range(0, m, step))


def _sums_of(
    risk: type[RowRisk],
    pieces: LossTerms,
    columns: np.ndarray,
    bias: float,
    both: np.ndarray,
    block: tuple[Rows, Columns],
) -> tuple[None, tuple[np.ndarray, ...]]:
    """Values and slopes at q, and how the risks run from w to q; both (d, 2 q): their columns alternate."""
    (rows, (*known, upper)), q = block, len(columns)
    sums, lines, A = np.zeros((2, q)), np.zeros((q, *risk.line_shape)), no_slopes(rows, q)
    for start, stop in stretches(rows, 3 * q):
        F, G = scores(rows, both, bias, start, stop), np.zeros((stop - start, q))
        here = tuple(values[start:stop] for values in known)
        for c, column in enumerate(columns):
            for own in pieces.of(column, here):
                risk.add(F, c, own, upper[start:stop], G, sums, lines)
        add_transposed_times(rows, G, start, A)
    return None, (sums[0], np.vstack([A, bias * sums[1]]) if bias else A, lines)
