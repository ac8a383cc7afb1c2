"""The subproblems of a task over some rows, made one at a time, and the gradients of their solutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.dual import DualQP, KernelDual, MatrixDual, dual_of, is_wide
from streamsvm.problems.squared import SquaredDual
from streamsvm.tasks.base import Subproblem, Targets, Task

MOST_SUBPROBLEMS = 2000  # whose gradients are computed
MATRIX_ROWS = (
    2048  # of a dual whose kernel values are made once: as many as a working set of `solvers.blockws`
)


@dataclass(frozen=True)
class DualData(SizedInBytes):
    """The targets of rows, their task, and bounds upper (n,) of their duals, C times the weights.

    close (n,): a number that rows share which are close to each other. left_out (k,): bounds of rows that are not here,
    by their codes: sums that duals keep are those of all rows.
    """

    task: Task
    targets: Targets
    upper: np.ndarray
    close: np.ndarray
    left_out: np.ndarray | None = None

    def take(self, ids: np.ndarray | slice) -> DualData:
        return DualData(self.task, self.targets.take(ids), self.upper[ids], self.close[ids])

    def times(self, factors: np.ndarray) -> DualData:
        """With bounds times these factors: (k,) by class, (1,) without classes, or (2, k), see `Targets.factors`."""
        if factors.ndim == 2:
            own = self.targets.factors
            return replace(
                self, targets=replace(self.targets, factors=factors if own is None else own * factors)
            )
        return replace(self, upper=self.upper * factors[self.targets.codes])

    def among(self, ids: np.ndarray) -> DualData:
        """Of rows without which all variables are 0, and stay so: sums that are kept are those of all rows."""
        own = self.take(ids)
        return replace(own, left_out=self.weights - own.weights) if self.targets.nu is not None else own

    @property
    def weights(self) -> np.ndarray:
        """(k,) sums of the bounds of rows by their codes; (1,) without classes."""
        return np.bincount(self.targets.codes, self.upper, max(1, len(self.targets.classes)))

    @property
    def most_nu(self) -> float:
        """That its duals allow."""
        return self.task.most_nu(self.weights)

    @property
    def present(self) -> np.ndarray:
        """What rows that are learned from there are, see `Task.present`."""
        return self.task.present(self.targets.take(self.upper > 0))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the coefficients of all rows."""
        return len(self.upper), self.task.coefficients(len(self.targets.classes))

    @property
    def count(self) -> int:
        """Subproblems, where rows of all classes are here."""
        return self.task.n_subproblems(len(self.targets.classes))


def over_margins(
    asked: DualData, alpha: np.ndarray, bias: np.ndarray, margin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Variables (n, columns) and biases (subproblems,) over the margins of subproblems that are reported over it.

    What leaves no margin, as it separates nothing, stays as it is.
    """
    if asked.targets.nu is None:
        return alpha, bias
    alpha, bias = alpha.copy(), bias.copy()
    for part in asked.task.subproblems(asked.targets):
        if part.over_margin and margin[part.number] > 0:
            alpha[part.places] /= margin[part.number]
            bias[part.number] /= margin[part.number]
    return alpha, bias


def coefficients_of(task: Task, targets: Targets, alpha: np.ndarray) -> np.ndarray:
    """`sums_of`, in units of the labels."""
    return sums_of(task, targets, alpha) * targets.units.scale


def sums_of(task: Task, targets: Targets, alpha: np.ndarray) -> np.ndarray:
    """(n, subproblems) what the variables alpha (n, columns) make of each row in each subproblem's sum."""
    coef = np.zeros((len(alpha), task.n_subproblems(len(targets.classes))))
    for part in task.subproblems(targets, single=True):
        coef[part.ids, part.number] = part.coefficients(alpha[part.places])
    return coef


MakeDual = Callable[
    [Subproblem, np.ndarray, "np.ndarray | None"], DualQP
]  # of upper (m,), and partitions if several


class TaskDuals:
    """The duals of a task's subproblems, made one at a time. single: of one class, too."""

    def __init__(self, asked: DualData, make: MakeDual, *, single: bool = True) -> None:
        self.asked, self.shape = asked, asked.shape
        self._make, self._single = make, single
        self._begin()

    def _begin(self) -> None:
        coming = self.asked.task.subproblems(self.asked.targets, single=self._single)
        self._coming = coming if self._single else filter(self._has_two, coming)
        self._number = -1
        self._part: Subproblem | None = None
        self._dual: DualQP | None = None

    def _has_two(self, part: Subproblem) -> bool:
        """Whether rows of both signs have a weight."""
        y = part.y[np.tile(self.asked.upper[part.ids] > 0, part.copies)]
        return len(y) > 0 and bool(y.min() < y.max())

    def _at(self, number: int) -> Subproblem | None:
        if number < self._number:
            self._begin()
        if number > self._number:
            self._dual = None  # let it go before the next one is made
            self._part = next(islice(self._coming, number - self._number - 1, None), None)
            self._number = number
        return self._part

    def places(self, number: int) -> tuple[np.ndarray, np.ndarray] | None:
        part = self._at(number)
        return None if part is None else part.places

    @property
    def count(self) -> int:
        return self.asked.count

    def which(self, number: int) -> int:
        part = self._at(number)
        assert part is not None  # it has places
        return part.number

    def dual(self, number: int) -> DualQP:
        part = self._at(number)
        if self._dual is None:
            assert part is not None  # it has places
            close = self.asked.close[part.ids]
            several = close if len(close) and np.any(close != close[0]) else None
            self._dual = self._make(*self._feasible(part), several)
        return self._dual

    def _feasible(self, part: Subproblem) -> tuple[Subproblem, np.ndarray]:
        """With a share of the bounds that are here, and no more of them than either sign has; and these."""
        upper, left_out = part.bounds(self.asked.upper), self.asked.left_out
        here = float(upper.sum())
        if part.nu is None or here <= 0:
            return part, upper
        nu = part.nu
        if left_out is not None:
            nu *= 1 + float(left_out[np.unique(self.asked.targets.codes[part.ids])].sum()) / here
        if part.copies == 1 and part.over_margin:
            nu = min(nu, 2 * min(float(upper[part.y == sign].sum()) for sign in (1.0, -1.0)) / here)
        return replace(part, nu=nu), upper


def in_memory(kernel: Kernel, rows: Rows, threads: int, cache_bytes: int) -> MakeDual:
    """Duals over rows in memory. Few wide ones, as of a pair of many classes, have their kernel values made once, and
    so have duals of the same few rows, as of each class against the rest, one after another."""
    wide, matrix = is_wide(rows), SingleEntryCache[np.ndarray]()

    def dual(part: Subproblem, upper: np.ndarray, parts: np.ndarray | None) -> DualQP:
        own = rows if len(part.ids) == len(rows) else rows.take(part.ids)
        if wide and parts is None and len(own) <= MATRIX_ROWS:
            K = matrix.of(part.ids, lambda ids: kernel.block(own, own, threads))
            return dual_of(
                part,
                lambda y: MatrixDual(K, y, upper, threads, KernelDual(kernel, own, y, upper, threads)),
            )
        return dual_of(part, lambda y: KernelDual(kernel, own, y, upper, threads, parts, cache_bytes))

    return dual


def with_loss(make: MakeDual, *, squared: bool) -> MakeDual:
    """The same duals; squared: of squared losses."""
    return (lambda part, upper, parts: SquaredDual(make(part, upper, parts))) if squared else make


def task_gradients(
    kernel: Kernel, rows: Rows, asked: DualData, alpha: np.ndarray, at: np.ndarray, threads: int = 1
) -> np.ndarray:
    """(g, d) float32 derivatives of what each subproblem has learned, at those of some rows that it is about.

    alpha: of all rows, as its solver left it. at: rising numbers of rows. Each is weighted by the root of its bound,
    so that a mean square is one over weighted rows. Of thousands of subproblems, some are enough.
    """
    step = -(-asked.task.n_subproblems(len(asked.targets.classes)) // MOST_SUBPROBLEMS)
    root = np.sqrt(asked.upper / asked.upper.max())
    found = [np.empty((0, rows.d), np.float32)]
    for part in islice(asked.task.subproblems(asked.targets), 0, None, step):
        coef = part.coefficients(alpha[part.places])
        support, here = np.flatnonzero(coef), np.intersect1d(part.ids, at, assume_unique=True)
        if len(support) and len(here):
            learned = rows.take(part.ids[support]), coef[support]
            gradients = kernel.gradients(rows.take(here), *learned, threads)
            found.append(gradients * root[here, None].astype(np.float32))
    return np.concatenate(found)
