"""Cutting planes for linear problems: min over w of 1/2 |w|^2 + R(w), R convex and known by passes over the data.

A plane R(w) >= a'w + b is taken at a point of each pass (Joachims 2006, algorithm 1, with one slack variable). The
planes so far make a small problem, whose dual over alpha >= 0, sum alpha <= 1 is

    max  b'alpha - 1/2 |A'alpha|^2,    w = -A'alpha,

a lower bound of the whole. The plain method takes the next plane at that w. The default continues from the best point
known, by a search along the line from it to w, and takes the next plane a little beyond it (OCAS, Franc and
Sonnenburg 2009). They need a pass for the scores of w and one more for the plane; here the length of the step is
predicted by the last one, so that the pass that takes the plane also gives the line. How far beyond the best point
is measured as well: a plane that cuts much deeper into the small problem than the gap is could have been nearer.

A column is solved if its gap is at most tol times its objective. Or, by the paper's rule, if its slack is known to
epsilon: the mean loss, R/C in the paper's C, exceeds its lower bound by the planes by no more than that.

If the risk has a reward, the last entry of w is free: it is not regularised but rewarded, 1/2 |w|^2 - reward rho +
R(w, rho). Its slopes r stand apart from A then, and the small problem keeps r'alpha = reward, whose multiplier is rho.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import piqp

from streamsvm.problems.passes import LinearRisk, View
from streamsvm.problems.products import dense_times, dense_transposed_times
from streamsvm.solvers.columns import Column, ColumnSolver, ColumnsState

Planes = Literal["ocas", "plain"]
NEAREST, FARTHEST = 0.01, 0.2  # of the way from the predicted best point to w: where planes are taken
DEEP = 2.25  # gaps that a plane should cut off the small problem at w
LEAST_STEP = 1e-3  # that is predicted
NOTHING = 1e-6  # multipliers below have no part: those of an interior point are never 0
QP_ACCURACY = 1e-10  # of the small problem, over its largest offset
MOST_IDLE = 100
MOST_STILL = 100  # steps in which the gap of a column does not fall by LEAST_FALL of itself: rounding has ended it
LEAST_FALL = 1e-3
LEAST_SHARE = 1e-9  # of a plane's size: an objective below it is 0
ARRAYS = ("w", "f", "target", "A", "r", "b", "H", "alpha", "idle")
NUMBERS = ("objective", "bound", "step", "beyond", "reward", "least_gap", "still", "weight", "excess")


@dataclass
class Bundle(Column):
    """The state of one column. A (T, d) float32 and b (T,): its planes. alpha (T,): their multipliers. r (T,): their
    slopes of a free last entry. w (d,) is the best point, f its scores if the risk needs them again; target (d,) the
    minimiser of the small problem. Planes are tight where they were taken, whatever A rounds."""

    w: np.ndarray
    f: np.ndarray
    target: np.ndarray
    step: float = 1.0  # the last one's length, as a share of the way
    beyond: float = 0.05  # and how far beyond it the plane is taken
    reward: float = 0.0  # of the last entry; 0: it is regularised like the others
    excess: float = np.inf  # of the mean loss over its lower bound by the planes, as `CuttingPlane` measures it
    A: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    r: np.ndarray = field(default_factory=lambda: np.zeros(0))
    b: np.ndarray = field(default_factory=lambda: np.zeros(0))
    H: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))  # A A'
    alpha: np.ndarray = field(default_factory=lambda: np.zeros(0))
    idle: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))

    _space: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32), init=False, repr=False)  # of A

    least_fall: ClassVar[float] = LEAST_FALL

    @property
    def reach(self) -> float:
        """How far on the way from w (0) to the target (1) the next plane is taken."""
        return self.step + self.beyond * (1 - self.step)

    @property
    def least(self) -> float:
        if not self.reward or not len(self.b):
            return 0.0
        return LEAST_SHARE * float(np.max(np.diag(self.H) * (self.reward / np.maximum(self.r, self.reward)) ** 2))

    def cost(self, w: np.ndarray) -> float:
        """The objective of w without R."""
        regularised, rho = self.split(w)
        return 0.5 * float(regularised @ regularised) - self.reward * rho

    def split(self, w: np.ndarray) -> tuple[np.ndarray, float]:
        """The regularised entries, and the free one."""
        return (w[:-1], float(w[-1])) if self.reward else (w, 0.0)

    def mean_loss_above_planes(self, value: float) -> float:
        """Violation of the most violated constraint (line 9 of algorithm 1, line 24 of algorithm 2): R at the target,
        value, less the slack of the small problem, over the paper's C."""
        slack = 0.0
        if len(self.b):
            products, rho = dense_times(self.A, self.target[:, None])[:, 0], self.split(self.target)[1]
            slack = max(0.0, float(np.max(self.b + products + self.r * rho)))
        return (value - slack) / self.weight

    def add(self, q: np.ndarray, value: float, slope: np.ndarray) -> None:
        """Adds the plane of R at q."""
        a, r = slope.astype(np.float32), 0.0
        if self.reward:
            a[-1], r = 0.0, float(slope[-1])
        exact = a.astype(np.float64)
        if not len(self.b):
            self.A = np.zeros((0, len(a)), np.float32)
        h, b = dense_times(self.A, exact[:, None]), float(value - exact @ q - r * q[-1])
        if len(self.b):
            self._aim(b - float(h[:, 0] @ self.alpha) + r * self.split(self.target)[1])
        self.H = np.block([[self.H, h], [h.T, exact @ exact]])
        self._append(a)
        self.r, self.b = np.append(self.r, r), np.append(self.b, b)
        self.alpha = np.append(self.alpha, 0.0)
        self.idle = np.append(self.idle, 0)

    def _append(self, a: np.ndarray) -> None:
        """Adds a row to A, in space that few steps replace: copies of all sizes leave gaps in the process's memory,
        which came to as much as the planes."""
        T = len(self.A)
        if T >= len(self._space):
            self._space = np.empty((T + T // 4 + 1, len(a)), np.float32)
            self._space[:T] = self.A
        self._space[T] = a
        self.A = self._space[: T + 1]

    def _aim(self, bound: float) -> None:
        """Sets how far beyond the best point planes are taken. bound: the new plane's lower bound of R at the
        target."""
        rho = self.split(self.target)[1]
        before = max(0.0, float(np.max(self.b - self.H @ self.alpha + self.r * rho)))  # A target = -H alpha
        is_shallow = bound - before < DEEP * self.gap
        self.beyond = min(1.3 * self.beyond, FARTHEST) if is_shallow else max(0.8 * self.beyond, NEAREST)

    def solve(self, most_idle: int, most_planes: int | None = None) -> None:
        """Solves the small problem for multipliers and lower bound; drops planes that were idle for longer. Of more
        than most_planes, those with the smallest multipliers become one, their mean, which is below R as they are, and
        leaves the small problem its solution (Kiwiel 1983)."""
        if self.reward:
            self.alpha, rho = fixed_sum_qp(self.H, self.b, self.r, self.reward, self.alpha)
        else:
            self.alpha, rho = simplex_qp(self.H, self.b), 0.0
        self.target = -dense_transposed_times(self.A, self.alpha[:, None])[:, 0]
        self.bound = max(self.bound, float(self.b @ self.alpha - 0.5 * self.target @ self.target))
        if self.reward:
            self.target[-1] = rho
        self.idle = np.where(self.alpha > NOTHING, 0, self.idle + 1)
        self._keep(self.idle <= most_idle)
        if most_planes is not None and len(self.b) > most_planes:
            self._join(np.argsort(self.alpha, kind="stable")[: len(self.b) - most_planes // 2])

    def _join(self, ids: np.ndarray) -> None:
        """Replaces planes by their mean, weighted by multipliers."""
        total = float(self.alpha[ids].sum())
        if total <= NOTHING:
            self._keep(~np.isin(np.arange(len(self.b)), ids))
            return
        share, last = np.zeros(len(self.b)), ids[-1]
        share[ids] = self.alpha[ids] / total
        self.A[last] = dense_transposed_times(self.A, share[:, None])[:, 0]
        self.r[last], self.b[last], self.alpha[last] = share @ self.r, share @ self.b, total
        h = dense_times(self.A, self.A[last].astype(np.float64)[:, None])[:, 0]
        self.H[last], self.H[:, last] = h, h
        self._keep(~np.isin(np.arange(len(self.b)), ids[:-1]))

    def _keep(self, mask: np.ndarray) -> None:
        if mask.all():
            return
        for place, row in enumerate(np.flatnonzero(mask)):
            self.A[place] = self.A[row]
        self.A = self.A[: np.count_nonzero(mask)]
        self.r, self.b, self.alpha, self.idle = (values[mask] for values in (self.r, self.b, self.alpha, self.idle))
        self.H = self.H[np.ix_(mask, mask)]


class BundleState(ColumnsState[Bundle]):
    """The bundles of all columns."""

    @property
    def points(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """The best w, (d, columns), and the scores of each, if the risk needs them again."""
        return np.stack([c.w for c in self.columns], axis=1), [c.f for c in self.columns]

    @property
    def planes(self) -> int:
        return sum(len(bundle.b) for bundle in self.columns)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Everything, as arrays: one after another where columns differ in length."""
        numbers = [(*(getattr(c, name) for name in NUMBERS), len(c.b)) for c in self.columns]
        joined = {name: np.concatenate([getattr(c, name).ravel() for c in self.columns]) for name in ARRAYS}
        return joined | {"numbers": np.array(numbers), "steps": np.array(self.steps)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> BundleState:
        numbers = arrays["numbers"]
        k, counts = len(numbers), numbers[:, -1].astype(np.int64)
        d, n = len(arrays["w"]) // k, len(arrays["f"]) // k
        sizes = {"w": np.full(k, d), "target": np.full(k, d), "f": np.full(k, n), "A": counts * d, "H": counts**2}
        parts = {name: np.split(arrays[name], np.cumsum(sizes.get(name, counts))[:-1]) for name in ARRAYS}
        columns = []
        for c, (*scalars, T) in enumerate(numbers.tolist()):
            values: Any = {name: part[c] for name, part in parts.items()}
            values |= {"A": values["A"].reshape(int(T), d), "H": values["H"].reshape(int(T), int(T))}
            values |= dict(zip(NUMBERS, scalars, strict=False))  # earlier versions have the first five
            columns.append(Bundle(**values))
        return cls(columns, int(arrays["steps"]))


@dataclass(frozen=True)
class CuttingPlane(ColumnSolver[Bundle]):
    """The solver; a step is one plane for each column whose gap is above tol times its objective. If epsilon is given,
    it is one for each column whose mean loss is more than epsilon above its lower bound. Plain, that excess is the
    paper's: how far the last minimum violates the most violated constraint. With the line search it is the gap over the
    paper's C, the same number at that minimum, but the best point is at least as good. most_idle: small problems in
    which a plane had no part before it is dropped. With 20 instead of 100 a separable problem came back to the same
    planes again and again. most_planes: of a column, for which there is memory."""

    tol: float = 1e-3
    method: Planes = "ocas"
    most_idle: int = MOST_IDLE
    most_planes: int | None = None
    epsilon: float | None = None
    most_still: ClassVar[int] = MOST_STILL

    def init(self, problem: LinearRisk) -> BundleState:
        """w = 0, without a pass; a free entry is 1."""
        w, reward = np.zeros(problem.d), problem.reward
        if reward:
            w[-1] = 1.0
        bound = -np.inf if reward else 0.0
        columns = (Bundle(w, problem.start(), w, bound=bound, reward=reward) for _ in range(problem.columns))
        return BundleState(list(columns))

    def step(self, problem: LinearRisk, state: BundleState) -> BundleState:
        open_columns = np.array(self.improvable(state))
        bundles = [state.columns[c] for c in open_columns]
        W, Q = (np.stack(points, axis=1) for points in zip(*((b.w, self._query(b)) for b in bundles), strict=True))
        views = problem.at(open_columns, W, Q, [bundle.f for bundle in bundles])
        for bundle, q, view in zip(bundles, Q.T, views, strict=True):
            bundle.weight = view.weight
            if self.method == "plain":
                bundle.excess = bundle.mean_loss_above_planes(view.value)
            bundle.add(q, view.value, view.slope)
            (self._move if self.method == "ocas" else self._replace)(bundle, q, view)
            bundle.solve(self.most_idle, self.most_planes)
            bundle.note_gap()
            if self.method == "ocas":
                bundle.excess = bundle.gap / bundle.weight
        return BundleState(state.columns, state.steps + 1)

    def _query(self, bundle: Bundle) -> np.ndarray:
        """The point at which the next plane is taken."""
        if self.method == "plain":
            return bundle.target
        return bundle.w + bundle.reach * (bundle.target - bundle.w)

    def _move(self, bundle: Bundle, q: np.ndarray, view: View) -> None:
        """To the best point of the line through w and q, of those at least as good as w."""
        dw = q - bundle.w
        if not dw.any():
            self._replace(bundle, q, view)
            return
        (w0, _), (direction, rise) = bundle.split(bundle.w), bundle.split(dw)
        slope, curvature = float(w0 @ direction) - bundle.reward * rise, float(direction @ direction)
        for k, risk, scores in view.lowest(slope, curvature):
            w = bundle.w + k * dw
            objective = bundle.cost(w) + risk
            if k == 0 or objective <= bundle.objective:
                bundle.step = float(np.clip(k * bundle.reach, LEAST_STEP, 1.0))
                bundle.w, bundle.f, bundle.objective = w, scores, min(objective, bundle.objective)
                return

    def _replace(self, bundle: Bundle, q: np.ndarray, view: View) -> None:
        objective = bundle.cost(q) + view.value
        if objective <= bundle.objective:
            bundle.w, bundle.f, bundle.objective = q, view.scores, objective


def simplex_qp(H: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(T,) argmin of 1/2 a'Ha - b'a over a >= 0, sum a <= 1."""
    a, _ = _solved(H, b, max(float(b.max()), 1e-300))  # about the optimum, too
    return a / max(1.0, a.sum())


def fixed_sum_qp(
    H: np.ndarray, b: np.ndarray, r: np.ndarray, total: float, start: np.ndarray
) -> tuple[np.ndarray, float]:
    """(T,) argmin of 1/2 a'Ha - b'a over a >= 0, sum a <= 1, r'a = total, and the multiplier of that sum. The first
    plane alone can have the sum. start: multipliers of the last planes, and 0 of a new one."""
    value = 0.5 * start @ H @ start - b @ start if len(b) > 1 else 0.5 * H[0, 0] * (total / r[0]) ** 2
    scale = max(float(value), 1e-12 * float(np.max(np.diag(H))), 1e-300)
    a, multipliers = _solved(H, b, scale, (r[None] / total, np.ones(1)))
    return a * (total / float(r @ a)), -float(multipliers[0]) * scale / total


def _solved(
    H: np.ndarray, b: np.ndarray, scale: float, equality: tuple[Any, Any] = (None, None)
) -> tuple[np.ndarray, np.ndarray]:
    """Argmin, and multipliers of the equality, by an interior point method (PIQP), whose accuracy is absolute: of the
    problem over this scale."""
    T, solver = len(b), piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_duality_gap_abs = QP_ACCURACY
    ones, none = np.ones((1, T)), np.full(1, -np.inf)
    solver.setup(H / scale, -b / scale, *equality, ones, none, np.ones(1), np.zeros(T), np.full(T, np.inf))
    solver.solve()
    return np.maximum(solver.result.x, 0.0), np.array(solver.result.y)
