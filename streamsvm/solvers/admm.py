"""ADMM for the SVM dual with a bias, many problems at a time (Cipolla and Gondzio 2021, algorithms 2 and 3).

Of each column: min over x of 1/2 x'YKYx - e'x, y'x = 0, 0 <= x <= upper, split as x = z with x on the hyperplane and
z in the box. All columns (classes, values of C) are right-hand sides of the same solves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numba as nb
import numpy as np

from streamsvm.solvers import blockws

RELAX = 1.6  # over-relaxation (Boyd et al. 2011, 3.4.3): about half as many iterations as 1, the paper's
GRID = 10**0.5  # balanced betas are its powers, so that few factors are made


class Shifted(Protocol):
    """The oracle: y (n, c) of -1 and +1, upper (n, c), and solve(beta, V) -> (K + beta I)^-1 V for V (n, k)."""

    y: np.ndarray
    upper: np.ndarray

    def solve(self, beta: float, V: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class ADMMState:
    """z and multipliers mu (n, c); beta and w = (K + beta I)^-1 e (n,); relative residuals (c,)."""

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

    def to_arrays(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: dict[str, Any]) -> ADMMState:
        z, mu, w, primal, dual = (np.asarray(arrays[name]) for name in ("z", "mu", "w", "primal", "dual"))
        return cls(z, mu, float(arrays["beta"]), w, primal, dual, int(arrays["steps"]))


@dataclass(frozen=True)
class ADMM:
    """Algorithm 2: x by one solve, z by projection, then the multipliers.

    beta balances how far x and z are apart against how far z moves; balance_every > 0 mends it every so many steps
    by the residuals (Stellato et al. 2020, section 5.2), which costs a factorisation.
    """

    beta: float
    balance_every: int = 0

    def init(self, problem: Shifted) -> ADMMState:
        zeros, columns = np.zeros(problem.y.shape), problem.y.shape[1]
        return ADMMState(
            zeros,
            zeros,
            self.beta,
            problem.solve(self.beta, np.ones(len(zeros))),
            np.full(columns, np.inf),
            np.full(columns, np.inf),
        )

    def step(self, problem: Shifted, state: ADMMState) -> ADMMState:
        y, beta, z, mu, w = problem.y, state.beta, state.z, state.mu, state.w
        right = np.empty_like(z)
        _right_side(y, z, mu, beta, right)
        s = problem.solve(beta, right)
        sums, new, moved = _project(s, w, s.sum(axis=0) / w.sum(), (y, problem.upper), (z, mu, beta))
        apart, size_x, size_z, step, size_mu = np.sqrt(sums)
        primal = apart / np.maximum(np.maximum(size_x, size_z), 1e-300)
        dual = beta * step / np.maximum(size_mu, np.sqrt(len(z)))
        state = ADMMState(new, moved, beta, w, primal, dual, state.steps + 1)
        if self.balance_every and state.steps % self.balance_every == 0:
            return self._balanced(problem, state)
        return state

    def _balanced(self, problem: Shifted, state: ADMMState) -> ADMMState:
        """beta of the median column's residuals, where that is far from the one in use."""
        ratio = np.sqrt(np.maximum(state.primal, 1e-9) / np.maximum(state.dual, 1e-9))
        wanted = state.beta * float(np.clip(np.median(ratio), 0.1, 10.0))
        beta = float(GRID ** np.round(np.log(wanted) / np.log(GRID)))
        if 0.3 < beta / state.beta < 3.0:
            return state
        w = problem.solve(beta, np.ones(len(state.z)))
        return ADMMState(state.z, state.mu, beta, w, state.primal, state.dual, state.steps)


def paper_beta(n: int) -> float:
    """The paper's rule: 1e2 up to 1e5 rows, 1e3 up to 1e6, 1e4 above; and 10 below 1e4, where it says nothing."""
    return 1e1 if n < 10**4 else 1e2 if n <= 10**5 else 1e3 if n <= 10**6 else 1e4


def balanced(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """z (n, c) made feasible: y'z = 0 in each column."""
    return np.stack([blockws.balanced(a, sign) for a, sign in zip(z.T, y.T, strict=True)], axis=1)


def draw_margin(z: np.ndarray, upper: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count,) ids drawn among margin support vectors, the likelier the farther z is from both bounds.

    Where ADMM has not converged, what has only just left a bound is often no margin support vector. Any rows where
    there are none.
    """
    share = z / np.maximum(upper, 1e-300)
    weight = share * (1.0 - share)
    weight = weight if weight.any() else upper  # and never rows without a bound: they are held out
    return rng.choice(len(z), count, p=weight / weight.sum())


def intercept(f: np.ndarray, y: np.ndarray, z: np.ndarray, upper: np.ndarray) -> float:
    """Mean of y - f over rows drawn by `draw_margin` (Cipolla and Gondzio 2021, (7)); f = K (y z), all (m,).

    Without margin support vectors, the middle of what the bounds allow: y - f is at most b where z may move towards
    y, and at least b elsewhere.
    """
    gap, grows = y - f, (y > 0) == (z < upper)
    if np.any((z > 0) & (z < upper)):
        return float(gap.mean())
    ends = [*([gap[grows].max()] if grows.any() else []), *([gap[~grows].min()] if not grows.all() else [])]
    return float(np.mean(ends))


@nb.njit(nogil=True, cache=True)
def _right_side(y, z, mu, beta, right):  # y (1 + mu + beta z)
    for i in range(z.shape[0]):
        for c in range(z.shape[1]):
            right[i, c] = y[i, c] * (1.0 + mu[i, c] + beta * z[i, c])


@nb.njit(nogil=True, cache=True)
def _project(s, w, lam, problem, state):
    """(5, c) squared norms of x - new z, x, new z, new z - z and new mu; new z and new mu: in one pass."""
    y, upper = problem
    z, mu, beta = state
    new, moved = np.empty_like(z), np.empty_like(z)
    sums = np.zeros((5, z.shape[1]))
    for i in range(z.shape[0]):
        for c in range(z.shape[1]):
            x = y[i, c] * (s[i, c] - w[i] * lam[c])
            ahead = RELAX * x + (1.0 - RELAX) * z[i, c] - mu[i, c] / beta
            found = min(max(ahead, 0.0), upper[i, c])
            new[i, c] = found
            moved[i, c] = beta * (found - ahead)
            sums[0, c] += (x - found) ** 2
            sums[1, c] += x**2
            sums[2, c] += found**2
            sums[3, c] += (found - z[i, c]) ** 2
            sums[4, c] += moved[i, c] ** 2
    return sums, new, moved
