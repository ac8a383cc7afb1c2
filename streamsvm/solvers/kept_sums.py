"""Sums that the variables of duals keep: where to begin, the thresholds that go with them, and the units that f is
reported in.

With a bias that is y'a; of one class all variables have one sum, and of nu-SVC and nu-SVR those of each sign of y.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamsvm.parallel.strips import evenly
from streamsvm.problems.dual import DualQP

if TYPE_CHECKING:
    from streamsvm.solvers.blockws import BlockState

SAMPLE = 2048  # rows to estimate how dense the others are
ROUNDING = 1e-9  # of the sum
SLACK = 2e-6  # of decision values, which are sums of float32
LEAST = 0.01  # of one row's: float32 kernel values resolve no less


class Ends(NamedTuple):
    """Of rows with one threshold: their levels, which may rise and which may fall; m, the largest level of the first,
    and M, the least of the others (infinite: there are none)."""

    level: np.ndarray
    up: np.ndarray
    low: np.ndarray
    m: float
    M: float

    @classmethod
    def of(
        cls, level: np.ndarray, up: np.ndarray, low: np.ndarray, members: np.ndarray | None = None
    ) -> Ends:
        """members: of these rows alone."""
        if members is not None:
            level, up, low = level[members], up[members], low[members]
        return cls(level, up, low, level[up].max(initial=-np.inf), level[low].min(initial=np.inf))

    @property
    def violation(self) -> float:
        return max(float(self.m - self.M), 0.0)

    def threshold(self, is_solved: bool, before: float = 0.0) -> float:
        """The one that violates least, if solved as LIBSVM reports it; before: if no row determines one."""
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

    Variables rise to their bound where y f is least likely to be large, and fall to 0 where it is most: so lie the
    support vectors. Of one class those are rows where others are fewest; of regression, where f = 0 to begin with, the
    first ones, so that each row's two variables cancel.
    """
    assert problem.nu is not None
    signs = [problem.y == sign for sign in np.unique(problem.y)]
    total = problem.nu * float(problem.upper.sum())
    missing = [total / len(signs) - float(alpha[own].sum()) for own in signs]
    if max(map(abs, missing)) <= ROUNDING * float(problem.upper.sum()):
        return alpha
    order, alpha = _weakest_first(problem), alpha.copy()
    for own, lacks in zip(signs, missing, strict=True):
        rows = order[own[order]][:: 1 if lacks > 0 else -1]
        room = problem.upper[rows] - alpha[rows] if lacks > 0 else alpha[rows]
        moved = np.clip(abs(lacks) - (np.cumsum(room) - room), 0.0, room)
        alpha[rows] = np.clip(alpha[rows] + np.sign(lacks) * moved, 0.0, problem.upper[rows])
    return alpha


def _weakest_first(problem: DualQP) -> np.ndarray:
    """The order of variables by the decision values of all of them together."""
    if isinstance(problem.linear, np.ndarray):
        return np.arange(len(problem.upper))
    return np.argsort(_density(problem), kind="stable")


def best_bias(problem: DualQP, state: BlockState) -> float:
    """b = -rho of one class with the least primal objective, -rho nu sum_i upper_i + sum_i upper_i max(0, rho - f_i):
    rho is the share nu of all f, so that as much is outside. Of other duals, whose y are not all 1, that of the state.

    Many rows may be at the margin, where all lie far apart: LIBSVM's rho, their mean, has half of them outside.
    """
    if problem.nu is None or np.any(problem.y < 0):
        return state.bias
    counted = np.flatnonzero(problem.upper > 0)
    if not len(counted):
        return state.bias
    order = counted[np.argsort(state.gradient[counted], kind="stable")]
    f, weight = state.gradient[order], np.cumsum(problem.upper[order])
    outside, rounding = problem.nu * weight[-1], ROUNDING * weight[-1]
    first = min(int(np.searchsorted(weight, outside + rounding, side="right")), len(f) - 1)  # that is inside
    below = f[first] - f[first - 1] if first else np.inf
    if first and abs(weight[first - 1] - outside) <= rounding:  # any rho between the two is best
        return -float(f[first] - 0.5 * below)
    return -float(f[first] - min(0.5 * below, SLACK * abs(f[first])))


def _density(problem: DualQP) -> np.ndarray:
    """(n,) sum_j Q_ij upper_j over some rows j."""
    n = len(problem.upper)
    ids = evenly(n, SAMPLE)
    return problem.apply(ids, problem.upper[ids])


def unit(problem: DualQP, state: BlockState) -> float:
    """What decision values are measured in: rho = -b, or the margin r, or a share of what one row brings about, where
    that is more; of regression what labels are in.

    They add up over nu n rows and more, so that no difference of a given size would mean the same for few and many.
    rho is about 0 where rows lie all around the origin, as of a linear kernel.
    """
    if isinstance(problem.linear, np.ndarray):
        return 1.0
    first = np.arange(min(len(problem.upper), SAMPLE))
    own = float(problem.upper.max(initial=0.0)) * float(np.abs(problem.diagonal(first)).max(initial=0.0))
    threshold = abs(state.margin if problem.over_margin else state.bias)
    return max(threshold, LEAST * own, float(np.finfo(np.float32).tiny))
