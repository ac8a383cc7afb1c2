"""The subproblems of a task over some rows, made one at a time, and the gradients of their solutions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.dual import (
    MATRIX_ROWS,
    DualQP,
    KernelDual,
    MatrixDual,
    SquaredDual,
    dual_of,
    gathered,
    is_wide,
    loss_terms,
)
from streamsvm.problems.pair_values import PairBlock, PairValues
from streamsvm.tasks.base import Subproblem, Targets, Task
from streamsvm.tasks.pairs import class_coefficients

MOST_SUBPROBLEMS = 2000  # whose gradients are computed


@dataclass(frozen=True)
class DualData(SizedInBytes):
    """The targets of rows, their task, and bounds upper (n,) of their duals, C times the weights. left_out
    (k,): sums of the bounds of rows that are left out, by their codes: sums that duals keep are those of all rows."""

    task: Task
    targets: Targets
    upper: np.ndarray
    left_out: np.ndarray | None = None

    def take(self, ids: np.ndarray | slice) -> DualData:
        return DualData(self.task, self.targets.take(ids), self.upper[ids])

    def times(self, factors: np.ndarray) -> DualData:
        """With bounds times these factors: (k,) by class, (1,) without classes, or (2, k), see `Targets.factors`."""
        if factors.ndim == 2:
            before = self.targets.factors
            factors = factors if before is None else before * factors
            return replace(self, targets=replace(self.targets, factors=factors))
        return replace(self, upper=self.upper * factors[self.targets.codes])

    def among(self, ids: np.ndarray) -> DualData:
        """The data of some rows, where the variables of all others stay 0: sums that duals keep are those of all
        rows."""
        some = self.take(ids)
        return replace(some, left_out=self.weights - some.weights) if self.targets.nu is not None else some

    @property
    def weights(self) -> np.ndarray:
        """(k,) sums of the bounds of rows by their codes; (1,) without classes."""
        return np.bincount(self.targets.codes, self.upper, max(1, len(self.targets.classes)))

    @property
    def most_nu(self) -> float:
        """The largest nu that its duals allow."""
        return self.task.most_nu(self.weights)

    @property
    def present(self) -> np.ndarray:
        """`Task.present` of the rows with a bound above 0."""
        return self.task.present(self.targets.take(self.upper > 0))

    @property
    def shape(self) -> tuple[int, int]:
        """Of the coefficients of all rows."""
        return len(self.upper), self.task.coefficients(len(self.targets.classes))

    @property
    def count(self) -> int:
        """Of subproblems, where all classes have rows."""
        return self.task.n_subproblems(len(self.targets.classes))


def over_margins(
    dual_data: DualData, alpha: np.ndarray, bias: np.ndarray, margin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Variables (n, columns) and biases (subproblems,) divided by the margin, of subproblems with `over_margin`. A
    subproblem without a margin, as it separates nothing, stays as it is."""
    if dual_data.targets.nu is None:
        return alpha, bias
    alpha, bias = alpha.copy(), bias.copy()
    for part in dual_data.task.subproblems(dual_data.targets):
        if part.over_margin and margin[part.number] > 0:
            alpha[part.places] /= margin[part.number]
            bias[part.number] /= margin[part.number]
    return alpha, bias


def coefficients_of(task: Task, targets: Targets, alpha: np.ndarray) -> np.ndarray:
    """`sums_of`, in units of the labels."""
    return sums_of(task, targets, alpha) * targets.units.scale


def sums_of(task: Task, targets: Targets, alpha: np.ndarray) -> np.ndarray:
    """(n, subproblems) coefficients of the rows in each subproblem's expansion, from the variables alpha (n,
    columns)."""
    coef = np.zeros((len(alpha), task.n_subproblems(len(targets.classes))))
    for part in task.subproblems(targets, single=True):
        coef[part.ids, part.number] = part.coefficients(alpha[part.places])
    return coef


# the dual of a subproblem, its upper (m,), and the partitions of its rows if there are several
MakeDual = Callable[[Subproblem, np.ndarray], DualQP]


class TaskDuals:
    """The duals of a task's subproblems, made one at a time. single: also those whose rows have only one sign. pairs:
    the kernel values of pairs of classes, if they are few."""

    def __init__(
        self, dual_data: DualData, make: MakeDual, *, single: bool = True, pairs: PairValues | None = None
    ) -> None:
        self.dual_data, self.shape = dual_data, dual_data.shape
        self._make, self._single, self._pairs = make, single, pairs
        self._restart()

    def _restart(self) -> None:
        coming = self.dual_data.task.subproblems(self.dual_data.targets, single=self._single)
        self._coming = coming if self._single else filter(self._has_two, coming)
        self._number = -1
        self._part: Subproblem | None = None
        self._dual: DualQP | None = None

    def _has_two(self, part: Subproblem) -> bool:
        """Whether rows of both signs have a weight."""
        y = part.y[np.tile(self.dual_data.upper[part.ids] > 0, part.copies)]
        return len(y) > 0 and bool(y.min() < y.max())

    def _at(self, number: int) -> Subproblem | None:
        if number >= self.count:  # those before need not be made
            return None
        if number < self._number:
            self._restart()
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
        return self.dual_data.count

    def which(self, number: int) -> int:
        part = self._at(number)
        assert part is not None  # it has places
        return part.number

    def dual(self, number: int) -> DualQP:
        part = self._at(number)
        if self._dual is None:
            assert part is not None  # it has places
            self._dual = self._make(*self._feasible(part))
        return self._dual

    def together(self, number: int) -> PairBlock | None:
        """The pairs of a class with some later ones, from this subproblem on; None if they are many, or no pairs."""
        return None if self._pairs is None or number >= self.count else self._pairs.block(number)

    def _feasible(self, part: Subproblem) -> tuple[Subproblem, np.ndarray]:
        """The subproblem, with a nu relative to the bounds of these rows and no larger than either sign allows; and the
        bounds."""
        upper, left_out = part.bounds(self.dual_data.upper), self.dual_data.left_out
        total = float(upper.sum())
        if part.nu is None or total <= 0:
            return part, upper
        nu = part.nu
        if left_out is not None:
            nu *= 1 + float(left_out[np.unique(self.dual_data.targets.codes[part.ids])].sum()) / total
        if part.copies == 1 and part.over_margin:
            nu = min(nu, 2 * min(float(upper[part.y == sign].sum()) for sign in (1.0, -1.0)) / total)
        return replace(part, nu=nu), upper


def in_memory(kernel: Kernel, rows: Rows, threads: int, cache_bytes: int, K: np.ndarray | None = None) -> MakeDual:
    """Duals over rows in memory. K: the kernel values of all rows, if they are known. Those of few wide rows, as of a
    pair of many classes, are computed once, also for successive duals of the same few rows, as of each class against
    the rest."""
    wide, matrix = is_wide(rows), SingleEntryCache[np.ndarray]()

    def dual(part: Subproblem, upper: np.ndarray) -> DualQP:
        is_all = len(part.ids) == len(rows)
        members, values = rows if is_all else rows.take(part.ids), None
        if K is not None:
            values = K if is_all else gathered(K, part.ids, part.ids)
        elif wide and len(members) <= MATRIX_ROWS:
            values = matrix.of(part.ids, lambda ids: kernel.block(members, members, threads))
        if values is not None:
            return dual_of(
                part, lambda y: MatrixDual(values, y, upper, threads, KernelDual(kernel, members, y, upper, threads))
            )
        return dual_of(part, lambda y: KernelDual(kernel, members, y, upper, threads, cache_bytes))

    return dual


def with_loss(make: MakeDual, *, squared: bool) -> MakeDual:
    """The same duals; squared: of squared losses."""
    return (lambda part, upper: SquaredDual(make(part, upper))) if squared else make


def duals_in_memory(
    kernel: Kernel, rows: Rows, data: DualData, threads: int, cache_bytes: int, *, squared: bool, single: bool = True
) -> TaskDuals:
    """The duals of a task over rows in memory; squared: of squared losses."""
    make = with_loss(in_memory(kernel, rows, threads, cache_bytes), squared=squared)
    return TaskDuals(data, make, single=single, pairs=pair_values(kernel, rows.take, data, threads, squared=squared))


def pair_values(
    kernel: Kernel, take: Callable[[np.ndarray], Rows], data: DualData, threads: int, *, squared: bool
) -> PairValues | None:
    """The kernel values of pairs of classes, if they are few, and their duals without a sum that is kept."""
    codes, k = data.targets.codes, len(data.targets.classes)
    has_all = data.task.in_pairs and data.targets.nu is None and bool(data.weights.min() > 0)
    if not (has_all and PairValues.are_few(np.bincount(codes[data.upper > 0], minlength=k))):
        return None
    return PairValues(kernel, take, codes, (*loss_terms(data.upper, squared=squared), data.upper), threads)


def task_gradients(
    kernel: Kernel, rows: Rows, dual_data: DualData, alpha: np.ndarray, at: np.ndarray, threads: int = 1
) -> np.ndarray:
    """(g, d) float32 gradients of each subproblem's decision function, at those of the rows `at` that are its own.

    alpha (n, columns): the solution. at: rising numbers of rows. A gradient is multiplied by the root of the row's
    bound over the largest, so that a mean of squares is one over weighted rows. Of thousands of subproblems, evenly
    spaced ones are enough."""
    root = np.sqrt(dual_data.upper / dual_data.upper.max()).astype(np.float32)
    gradients = [np.empty((0, rows.d), np.float32)]
    for points, support, coef in _expansions(dual_data, alpha, at):
        if len(support) and len(points):
            G = kernel.gradients(rows.take(points), rows.take(support), coef, threads)
            gradients.append((G * root[points, None]).reshape(-1, rows.d))
    return np.concatenate(gradients)


def _expansions(
    dual_data: DualData, alpha: np.ndarray, at: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Decision functions: the rows of `at` that are their own, support rows, and coefficients of these, (s, functions).
    Pairs of many classes come class by class, all pairs of a class at its rows, as they share kernel values there."""
    task, targets = dual_data.task, dual_data.targets
    step = -(-task.n_subproblems(len(targets.classes)) // MOST_SUBPROBLEMS)
    if not task.in_pairs or len(targets.classes) == 2:
        for part in islice(task.subproblems(targets), 0, None, step):
            coef = part.coefficients(alpha[part.places])
            support = np.flatnonzero(coef)
            yield np.intersect1d(part.ids, at, assume_unique=True), part.ids[support], coef[support, None]
        return
    classes = np.unique(targets.codes)
    chosen = np.array([*combinations(classes, 2)], np.intp).reshape(-1, 2)[::step]
    for c in classes:
        others = chosen[(chosen == c).any(axis=1)].sum(axis=1) - c
        yield at[targets.codes[at] == c], *class_coefficients(alpha, targets.codes, c, others)
