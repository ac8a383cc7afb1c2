"""ADMM for SVM duals with a bias, many problems at a time (Cipolla and Gondzio 2021, algorithms 2 and 3).

Of each column, in the coefficients x of f = sum_i x_i K(x_i, .) + b: min over x of 1/2 x'Kx - t'x + epsilon |x|_1,
e'x = 0, lower <= x <= upper, split as x = z with x on the hyperplane and z in the box. The paper's problem has t = y,
epsilon = 0 and x = y a; regression has targets t and x = a - a*. All columns (classes, values of C) are right-hand
sides of the same solves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from streamsvm.private.numba import njit
from streamsvm.solvers import sum_constraints

RELAX = 1.6  # over-relaxation (Boyd et al. 2011, 3.4.3): about half as many iterations as 1, the paper's
NEGLIGIBLE = 1e-3  # change of decision values that dropped coefficients may cause
GRID = 10**0.5  # balanced betas are its powers, so that few factors are made


@dataclass(frozen=True)
class ADMMColumns:
    """target t, lower <= 0 and upper >= 0, (n, c) each, and epsilon."""

    target: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    epsilon: float = 0.0

    def take(self, some: slice) -> ADMMColumns:
        """Some of the columns."""
        return ADMMColumns(self.target[:, some], self.lower[:, some], self.upper[:, some], self.epsilon)


class ShiftedSystem(Protocol):
    """The oracle: the columns, and solve(beta, V) -> (K + beta I)^-1 V for V (n, k)."""

    columns: ADMMColumns

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class ADMMState:
    """z and multipliers mu (n, c), beta and w = (K + beta I)^-1 e (n,), and relative residuals (c,)."""

    z: np.ndarray
    mu: np.ndarray
    beta: float
    w: np.ndarray
    primal: np.ndarray
    dual: np.ndarray
    steps: int = 0

    @property
    def residual(self) -> float:
        """The largest of all columns'."""
        return float(max(self.primal.max(), self.dual.max()))

    def to_arrays(self) -> dict[str, object]:
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ADMMState:
        z, mu, w, primal, dual = (np.asarray(arrays[name]) for name in ("z", "mu", "w", "primal", "dual"))
        return cls(z, mu, float(arrays["beta"]), w, primal, dual, int(arrays["steps"]))


@dataclass(frozen=True)
class ADMM:
    """Algorithm 2: x by one solve, z by projection, then the multipliers. beta balances the distance of x and z against
    the movement of z; balance_every > 0 adapts it every so many steps by the residuals (Stellato et al. 2020, section
    5.2), which costs a factorisation."""

    beta: float
    balance_every: int = 0

    def init(self, problem: ShiftedSystem) -> ADMMState:
        zeros, columns = np.zeros(problem.columns.target.shape), problem.columns.target.shape[1]
        return ADMMState(
            zeros,
            zeros,
            self.beta,
            problem.solve(self.beta, np.ones(len(zeros))),
            np.full(columns, np.inf),
            np.full(columns, np.inf),
        )

    def step(self, problem: ShiftedSystem, state: ADMMState) -> ADMMState:
        beta, z, mu, w, columns = state.beta, state.z, state.mu, state.w, problem.columns
        right = np.empty_like(z)
        _right_side(columns.target, z, mu, beta, right)
        s = problem.solve(beta, right)
        terms = columns.target, columns.lower, columns.upper, columns.epsilon
        sums, new_z, new_mu = _project(s, w, s.sum(axis=0) / w.sum(), terms, (z, mu, beta))
        distance, size_x, size_z, step, size_mu, size_t = np.sqrt(sums)
        primal = distance / np.maximum(np.maximum(size_x, size_z), 1e-300)
        dual = beta * step / np.maximum(np.maximum(size_mu, size_t), 1e-300)
        state = ADMMState(new_z, new_mu, beta, w, primal, dual, state.steps + 1)
        if self.balance_every and state.steps % self.balance_every == 0:
            return self._balanced(problem, state)
        return state

    def _balanced(self, problem: ShiftedSystem, state: ADMMState) -> ADMMState:
        """beta of the median column's residuals, where that is far from the one in use."""
        ratio = np.sqrt(np.maximum(state.primal, 1e-9) / np.maximum(state.dual, 1e-9))
        wanted = state.beta * float(np.clip(np.median(ratio), 0.1, 10.0))
        beta = float(GRID ** np.round(np.log(wanted) / np.log(GRID)))
        if 0.3 < beta / state.beta < 3.0:
            return state
        w = problem.solve(beta, np.ones(len(state.z)))
        return ADMMState(state.z, state.mu, beta, w, state.primal, state.dual, state.steps)


def paper_beta(n: int) -> float:
    """The paper's rule: 1e2 up to 1e5 rows, 1e3 up to 1e6, 1e4 above; and 10 below 1e4, which it does not cover."""
    return 1e1 if n < 10**4 else 1e2 if n <= 10**5 else 1e3 if n <= 10**6 else 1e4


def balanced(z: np.ndarray) -> np.ndarray:
    """z (n, c) made feasible: e'z = 0 in each column."""
    return np.stack([np.copysign(sum_constraints.balanced(np.abs(a), np.sign(a)), a) for a in z.T], axis=1)


def draw_margin(z: np.ndarray, most: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) ids drawn among margin support vectors, the likelier the farther |z| is from 0 and from its bound. If
    ADMM has not converged, what has only just left a bound is often not a margin support vector. Any rows if there are
    no such rows."""
    share = np.abs(z) / np.maximum(most, 1e-300)
    weight = share * (1.0 - share)
    weight = weight if weight.any() else most  # and never rows without a bound: they are held out
    return rng.choice(len(z), count, p=weight / weight.sum())


def intercept(error: np.ndarray, z: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], epsilon: float) -> float:
    """Mean of t - f - epsilon sign(z) over rows drawn by `draw_margin` (Cipolla and Gondzio 2021, (7)); error = t - Kz.
    Without margin support vectors, the middle of what the bounds (lower, upper) allow: b is at least that value where z
    may rise, and at most that where it may fall."""
    lower, upper = bounds
    rises, falls = z < upper, z > lower
    if np.any(rises & falls & (z != 0.0)):
        return float((error - epsilon * np.sign(z)).mean())
    least = error[rises] - epsilon * np.where(z[rises] >= 0.0, 1.0, -1.0)
    most = error[falls] - epsilon * np.where(z[falls] > 0.0, 1.0, -1.0)
    return float(np.mean([*([least.max()] if len(least) else []), *([most.min()] if len(most) else [])]))


def certificate(columns: ADMMColumns, z: np.ndarray, f: np.ndarray, bias: np.ndarray) -> tuple[float, float]:
    """Dual objective and duality gap of feasible z (n, c), summed over columns; f = Kz. A row's loss in the primal
    problem is upper_i max(0, r - epsilon) - lower_i max(0, -r - epsilon), r = t - f - b."""
    r, epsilon = columns.target - (f + bias), columns.epsilon
    quadratic = float(np.sum(z * f))
    linear = epsilon * float(np.abs(z).sum()) - float(np.sum(columns.target * z))
    losses = columns.upper * np.maximum(0.0, r - epsilon) - columns.lower * np.maximum(0.0, -r - epsilon)
    return 0.5 * quadratic + linear, quadratic + linear + float(losses.sum())


def without_negligible(coef: np.ndarray, diagonal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients without the smallest of each column, and a bound on the change in its decision values. |K(x_i,
    x)| is at most sqrt(K_ii) sqrt(K(x, x)): the bound is for x of the largest norm among the rows."""
    coef, reach = coef.copy(), np.sqrt(diagonal * diagonal.max())
    dropped = np.zeros(coef.shape[1])
    for c in range(coef.shape[1]):
        sizes = np.abs(coef[:, c]) * reach
        order = np.argsort(sizes, kind="stable")
        total = np.cumsum(sizes[order])
        count = int(np.searchsorted(total, NEGLIGIBLE, side="right"))
        coef[order[:count], c] = 0.0
        dropped[c] = total[count - 1] if count else 0.0
    return coef, dropped


@njit(cache=True)
def _right_side(target, z, mu, beta, right):  # t + mu + beta z
    for i in range(z.shape[0]):
        for c in range(z.shape[1]):
            right[i, c] = target[i, c] + mu[i, c] + beta * z[i, c]


@njit(cache=True)
def _project(s, w, lam, terms, state):
    """(6, c) squared norms of x - new z, x, new z, new z - z, new mu and t; new z and new mu: in one pass. New z is the
    relaxed point less mu / beta, soft-thresholded by epsilon / beta, then clipped to the box."""
    target, lower, upper, epsilon = terms
    z, mu, beta = state
    new_z, new_mu, least = np.empty_like(z), np.empty_like(z), epsilon / beta
    sums = np.zeros((6, z.shape[1]))
    for i in range(z.shape[0]):
        for c in range(z.shape[1]):
            x = s[i, c] - w[i] * lam[c]
            ahead = RELAX * x + (1.0 - RELAX) * z[i, c] - mu[i, c] / beta
            soft = max(ahead - least, 0.0) + min(ahead + least, 0.0)
            clipped = min(max(soft, lower[i, c]), upper[i, c])
            new_z[i, c] = clipped
            new_mu[i, c] = beta * (clipped - ahead)
            sums[0, c] += (x - clipped) ** 2
            sums[1, c] += x**2
            sums[2, c] += clipped**2
            sums[3, c] += (clipped - z[i, c]) ** 2
            sums[4, c] += new_mu[i, c] ** 2
            sums[5, c] += target[i, c] ** 2
    return sums, new_z, new_mu
