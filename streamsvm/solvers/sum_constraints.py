"""Sums that the variables of duals keep: feasible starts, and the thresholds that are their multipliers. With a bias
that is y'a; of one class all variables have one sum, and of nu-SVC and nu-SVR those of each sign of y."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamsvm.parallel.strips import evenly
from streamsvm.problems.dual import DualQP

SAMPLE = 2048  # rows to estimate how dense the others are
ROUNDING = 1e-9  # of the sum


class LevelRange(NamedTuple):
    """Of rows with one threshold: level -y g; up: may y a rise; low: may it fall; m, the largest level of the first,
    and M, the least of the second (infinite: there are none)."""

    level: np.ndarray
    up: np.ndarray
    low: np.ndarray
    m: float
    M: float

    @classmethod
    def of(cls, level: np.ndarray, up: np.ndarray, low: np.ndarray, members: np.ndarray | None = None) -> LevelRange:
        """members: of these rows alone."""
        if members is not None:
            level, up, low = level[members], up[members], low[members]
        return cls(level, up, low, level[up].max(initial=-np.inf), level[low].min(initial=np.inf))

    @property
    def violation(self) -> float:
        return max(float(self.m - self.M), 0.0)

    def threshold(self, is_solved: bool, before: float = 0.0) -> float:
        """The threshold of least violation; of a solution LIBSVM's, the mean level of free rows. before: the value if
        no row determines one."""
        if is_solved and (free := self.up & self.low).any():
            return float(self.level[free].mean())
        ends = [float(end) for end in (self.m, self.M) if np.isfinite(end)]
        return sum(ends) / len(ends) if ends else before


def balanced(alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y'a = 0: the class with the larger sum scaled down to the other."""
    positive, negative = alpha[y > 0].sum(), alpha[y < 0].sum()
    excess = positive - negative
    if abs(excess) <= 1e-7 * (positive + negative):  # rounding: scaled, rows at their bound would leave it
        return alpha
    larger = y * excess > 0
    return np.where(larger, alpha * min(positive, negative) / max(positive, negative), alpha)


def keeps_signs(problem: DualQP) -> bool:
    """Whether the variables of either sign keep a sum, and both are there."""
    return problem.nu is not None and bool(problem.y.min() < problem.y.max())


def feasible(problem: DualQP, alpha: np.ndarray) -> np.ndarray:
    """alpha (n,), changed as little as makes that of each sign add up to nu sum_i upper_i over the number of signs.

    Variables rise to their bound where y f is likely to be smallest, and fall to 0 where it is likely to be largest, as
    support vectors have the smallest. Of one class those are the rows with the fewest others around; of regression,
    which starts from f = 0, the first ones, so that each row's two variables cancel."""
    assert problem.nu is not None
    signs = [problem.y == sign for sign in np.unique(problem.y)]
    total = problem.nu * float(problem.upper.sum())
    missing = [total / len(signs) - float(alpha[members].sum()) for members in signs]
    if max(map(abs, missing)) <= ROUNDING * float(problem.upper.sum()):
        return alpha
    order, alpha = np.arange(len(problem.upper)), alpha.copy()
    if not isinstance(problem.linear, np.ndarray):  # by the decision values of all of them together, from some rows
        some = evenly(len(order), SAMPLE)
        order = np.argsort(problem.apply(some, problem.upper[some]), kind="stable")
    for members, lacks in zip(signs, missing, strict=True):
        rows = order[members[order]][:: 1 if lacks > 0 else -1]
        room = problem.upper[rows] - alpha[rows] if lacks > 0 else alpha[rows]
        moved = np.clip(abs(lacks) - (np.cumsum(room) - room), 0.0, room)
        alpha[rows] = np.clip(alpha[rows] + np.sign(lacks) * moved, 0.0, problem.upper[rows])
    return alpha
