"""The exact dual solver: block working sets with or without a bias, shrinking, and warm start.

Each round takes a block B of the worst violators, solves the dual restricted to B, and streams one product
Q[active, B] @ delta. The block problem is solved the same way once more, over sub-blocks that fit in L1 and L2,
by greedy coordinate descent. Without a bias every step moves all decision values, so a block mixes the classes and
keeps half of the block before; the plain top violators stall.

With a bias, the constraint y'a = 0 has the multiplier b, and the KKT conditions hold for the shifted gradient
g + y b = y (f + b) - 1. Then blocks mix rows that may rise (I_up) with rows that may fall (I_low) in y a, and steps
move two coefficients, one of each (Fan, Chen and Lin 2005, as in LIBSVM).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numba as nb
import numpy as np

from streamsvm.errors import ConfigError
from streamsvm.problems import Block, Bounds, DualQP
from streamsvm.solvers.base import run

BLOCK = 2048  # rows of a working set: on ijcnn1 and a9a 1024 and 3072 take as long or longer
SUBBLOCK = 512  # rows of a sub-block: its Gram matrix (1 MiB) stays in L2
MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Shrunk:
    """Rows taken out of the active set: their gradients are those of the coefficients at that time."""

    ids: np.ndarray
    alpha: np.ndarray


_SAVED = ("alpha", "gradient", "active", "block", "violation", "rounds", "bias")


@dataclass(frozen=True)
class BlockState:
    """alpha (n,), gradient Qa + p (n,; stale on shrunk rows), the last block, what is shrunk, and the violation.

    bias: b of f(x) = sum_i y_i a_i K(x_i, x) + b; 0 without. Then violation is LIBSVM's m - M.
    """

    alpha: np.ndarray
    gradient: np.ndarray
    active: np.ndarray | None = None  # None: all rows
    block: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))
    shrunk: tuple[Shrunk, ...] = ()
    violation: float = np.inf
    rounds: int = 0
    bias: float = 0.0

    def to_arrays(self) -> dict[str, Any]:
        """All of it under names, for a checkpoint."""
        arrays = {name: value for name, value in vars(self).items() if name in _SAVED and value is not None}
        for number, group in enumerate(self.shrunk):
            arrays |= {f"shrunk{number}_ids": group.ids, f"shrunk{number}_alpha": group.alpha}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> BlockState:
        numbers = range(sum(name.endswith("_ids") for name in arrays))
        shrunk = (Shrunk(arrays[f"shrunk{i}_ids"], arrays[f"shrunk{i}_alpha"]) for i in numbers)
        found = {name: np.asarray(arrays[name]) for name in _SAVED if name in arrays}
        plain: dict[str, Any] = {name: v if v.ndim else v.item() for name, v in found.items()}
        return BlockState(**plain, shrunk=tuple(shrunk))


def objective(problem: DualQP, state: BlockState) -> float:
    """1/2 a'Qa + p'a; exact where nothing is shrunk."""
    return float(0.5 * state.alpha @ (state.gradient + problem.linear))


def duality_gap(problem: DualQP, state: BlockState) -> float:
    """Primal minus dual objective: a'g + sum_i upper_i max(0, -g_i - y_i b); exact where nothing is shrunk."""
    shifted = _shifted(problem, state, slice(None))
    return float(state.alpha @ state.gradient + problem.upper @ np.maximum(-shifted, 0.0))


def facts(problem: DualQP, state: BlockState) -> dict[str, float]:
    """What an event tells of a round; objective and gap where nothing is shrunk, or they would not be exact."""
    known = {"round": state.rounds, "violation": state.violation}
    if state.active is not None:
        return known
    return known | {"objective": objective(problem, state), "gap": duality_gap(problem, state)}


def solve(
    problem: DualQP,
    alpha: np.ndarray | None = None,
    *,
    tol: float,
    bias: bool = False,
    max_rounds: int = MOST_ROUNDS,
) -> BlockState:
    """The dual solved to a largest KKT violation of at most tol, from alpha or from zero.

    bias: with the constraint y'a = 0; tol then bounds m - M, as LIBSVM's does. Raises ConfigError where tol is
    finer than float32 kernel values can reach.
    """
    solver = BlockSolver(tol, bias=bias)
    return solver.solve(problem, solver.init(problem, alpha), max_rounds=max_rounds)


@dataclass(frozen=True)
class BlockSolver:
    tol: float
    block_rows: int = BLOCK
    bias: bool = False

    @property
    def row_tol(self) -> float:
        """What tol lets a row violate its condition by: with the best b, m - M is twice the largest violation."""
        return 0.5 * self.tol if self.bias else self.tol

    def solve(
        self,
        problem: DualQP,
        state: BlockState,
        *,
        max_rounds: int = MOST_ROUNDS,
        on_step: Callable[[BlockState], None] = lambda state: None,
    ) -> BlockState:
        """Steps from `state` until the problem is solved. Raises ConfigError as `solve`."""

        def stop(state: BlockState) -> bool:
            return self.is_solved(state) or self.out_of_rounds(state, max_rounds)

        return run(self, problem, state, stop=stop, on_step=on_step)

    def init(self, problem: DualQP, alpha: np.ndarray | None = None) -> BlockState:
        return self.measured(problem, self._start(problem, alpha))

    def _start(self, problem: DualQP, alpha: np.ndarray | None) -> BlockState:
        n = len(problem.y)
        if alpha is not None:
            alpha = np.clip(alpha.astype(np.float64), 0.0, problem.upper)
            alpha = balanced(alpha, problem.y) if self.bias else alpha
        if alpha is None or not alpha.any():
            return BlockState(np.zeros(n), np.zeros(n) + problem.linear)
        support = np.flatnonzero(alpha)
        gradient = problem.apply(support, alpha[support]) + problem.linear
        return BlockState(alpha, gradient)

    def is_solved(self, state: BlockState) -> bool:
        return state.violation <= self.tol and not state.shrunk

    def out_of_rounds(self, state: BlockState, max_rounds: int) -> bool:
        if state.rounds < max_rounds:
            return False
        raise self.stuck(state)

    def stuck(self, state: BlockState) -> ConfigError:
        return ConfigError(
            f"tol={self.tol:g} was not reached in {state.rounds} rounds (violation {state.violation:.2e}): "
            "kernel values are float32, ask for a larger tol or a smaller C, or scale the features"
        )

    def step(self, problem: DualQP, state: BlockState) -> BlockState:
        if state.violation <= self.tol:
            return self.unshrunk(problem, state)
        state = self._shrink(problem, state)
        block = self._select(problem, state)
        new, moved = self.solve_block(problem, state, block)
        if not moved.any():
            raise self.stuck(state)
        alpha, gradient = state.alpha.copy(), state.gradient.copy()
        delta = new[moved] - alpha[block[moved]]
        alpha[block] = new
        active = slice(None) if state.active is None else state.active
        gradient[active] += problem.apply(block[moved], delta, state.active)
        if self.bias and delta @ (state.gradient + gradient)[block[moved]] >= 0:
            raise self.stuck(state)  # twice what the objective gained: nothing, but for rounding
        after = replace(state, alpha=alpha, gradient=gradient, block=block, rounds=state.rounds + 1)
        return self.measured(problem, self._moved(problem, state, after))

    def unshrunk(self, problem: DualQP, state: BlockState) -> BlockState:
        """All rows active again, and measured: for a run that stops before its tolerance."""
        return self.measured(problem, _unshrink(problem, state))

    def _candidates(self, state: BlockState) -> np.ndarray | slice:
        """The rows that may move."""
        return slice(None) if state.active is None else state.active

    def _moved(self, problem: DualQP, before: BlockState, after: BlockState) -> BlockState:
        """What a solver notes of a block that has moved."""
        return after

    def measured(self, problem: Bounds, state: BlockState) -> BlockState:
        rows = self._candidates(state)
        if not self.bias:
            return replace(state, violation=float(row_violations(problem, state, rows).max()))
        level, up, low = levels(problem, state, rows)
        m, M = level[up].max(initial=-np.inf), level[low].min(initial=np.inf)
        state = replace(state, violation=max(float(m - M), 0.0), bias=_middle(m, M))
        free = up & low
        if self.is_solved(state) and free.any():  # as LIBSVM reports it
            return replace(state, bias=float(level[free].mean()))
        return state

    def held(self, problem: Bounds, state: BlockState, rows: np.ndarray, least: float) -> np.ndarray:
        """Which of some rows are held at a bound by more than `least`."""
        a, g = state.alpha[rows], _shifted(problem, state, rows)
        return ((a <= 0) & (g > least)) | ((a >= problem.upper[rows]) & (g < -least))

    def sides(self, problem: Bounds, state: BlockState, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of some rows: which are on the first side, of those that a block mixes, and their violations."""
        y = problem.y[rows]
        first = y * _shifted(problem, state, rows) < 0 if self.bias else y > 0
        return first, row_violations(problem, state, rows)

    def _shrink(self, problem: DualQP, state: BlockState) -> BlockState:
        """Drops rows at a bound whose gradient holds them there by more than the largest violation."""
        active = np.arange(len(state.alpha)) if state.active is None else state.active
        if state.rounds < 3 or len(active) <= 2 * self.block_rows:
            return state
        settled = self.held(problem, state, active, state.violation)
        if settled.mean() < 0.3:  # gathering the active rows again has to pay
            return state
        shrunk = (*state.shrunk, Shrunk(active[settled], state.alpha))
        return replace(state, active=active[~settled], shrunk=shrunk)

    def _select(self, problem: DualQP, state: BlockState) -> np.ndarray:
        """Half of the previous block and, from each side, a quarter of worst violators.

        The sides are the classes; with a bias, the rows whose y a should rise and those where it should fall.

        Where the problem knows parts of rows far from each other, only the parts that need it most take part, and
        free support vectors of theirs fill the block up: neighbours move against each other.
        """
        active = slice(None) if state.active is None else state.active
        v = np.zeros(len(state.alpha))
        v[active] = row_violations(problem, state, active)
        sides = -np.sign(problem.y * _shifted(problem, state, slice(None))) if self.bias else problem.y
        kept, free = state.block, np.empty(0, np.intp)
        if state.active is not None:  # a row shrunk since then has no gradient to go by
            kept = kept[np.isin(kept, state.active)]
        if problem.parts is not None:
            is_free = free_rows(problem, state, np.arange(len(v)))
            chosen = self._neediest(problem.parts, v, is_free)
            if self.bias:  # without its worst pair a block may have no pair to move
                chosen[[np.argmax(np.where(sides == side, v, 0.0)) for side in (1.0, -1.0)]] = True
            v[~chosen] = 0.0
            kept, free = kept[chosen[kept]], np.flatnonzero(chosen & is_free)
        kept = largest(kept, v, self.block_rows // 2)
        v[kept] = 0.0
        quarter = (self.block_rows - len(kept)) // 2
        fresh = [largest(np.flatnonzero((sides == side) & (v > 0)), v, quarter) for side in (1.0, -1.0)]
        block = np.union1d(kept, np.concatenate(fresh))
        room = self.block_rows - len(block)
        return np.union1d(block, np.setdiff1d(free, block)[:room]) if len(free) else block

    def _neediest(self, parts: np.ndarray, v: np.ndarray, free: np.ndarray) -> np.ndarray:
        """(n,) bool: rows of the parts with most violation that together hold a block of free or violating rows."""
        rows = np.bincount(parts, weights=free | (v > self.row_tol))
        order = np.argsort(-np.bincount(parts, weights=np.where(v > self.row_tol, v, 0.0)), kind="stable")
        count = 1 + int(np.searchsorted(np.cumsum(rows[order]), self.block_rows, side="right"))
        return np.isin(parts, order[:count])

    def solve_block(
        self, problem: Block, state: BlockState, block: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """New coefficients of the block, and which of them moved."""
        Q = problem.gram(block)
        number = np.float64 if self.bias else np.float32  # of a: y'a must not drift from 0
        a, upper = state.alpha[block].astype(number), problem.upper[block].astype(number)
        before = a.copy()
        # a tenth of the block's violation is enough: more would be undone by the next block
        worst = row_violations(problem, state, block).max()
        tol = np.float32(max(0.1 * worst, 0.5 * self.row_tol))
        _block_descent(
            Q,
            np.ascontiguousarray(np.diag(Q)),
            _shifted(problem, state, block).astype(np.float32),
            a,
            upper,
            problem.y[block].astype(np.float32) if self.bias else None,
            tol,
            min(SUBBLOCK, len(block)),
        )
        moved = a != before
        new = np.where(moved, np.clip(a.astype(np.float64), 0.0, problem.upper[block]), state.alpha[block])
        at_upper = a >= upper  # rows that were a hair below their bound, too: float32 cannot move them there
        new[at_upper] = problem.upper[block][at_upper]
        return new, new != state.alpha[block]


def violations(alpha: np.ndarray, gradient: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """(n,) absolute projected gradients: 0 where the KKT conditions hold."""
    down = np.where(alpha > 0, np.maximum(gradient, 0.0), 0.0)
    up = np.where(alpha < upper, np.maximum(-gradient, 0.0), 0.0)
    return np.maximum(down, up)


def _shifted(problem: Bounds, state: BlockState, rows: np.ndarray | slice) -> np.ndarray:
    """g + y b of some rows."""
    g = state.gradient[rows]
    return g + state.bias * problem.y[rows] if state.bias else g


def row_violations(problem: Bounds, state: BlockState, rows: np.ndarray | slice) -> np.ndarray:
    """`violations` of some rows, of the shifted gradient."""
    return violations(state.alpha[rows], _shifted(problem, state, rows), problem.upper[rows])


def free_rows(problem: Bounds, state: BlockState, rows: np.ndarray) -> np.ndarray:
    """Which of some rows have coefficients away from both bounds."""
    a = state.alpha[rows]
    return (a > 0) & (a < problem.upper[rows])


def levels(
    problem: Bounds, state: BlockState, rows: np.ndarray | slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-y g of some rows, the b with which each has y (f + b) = 1; in I_up: may y a rise; in I_low: may it fall."""
    a, y = state.alpha[rows], problem.y[rows]
    above, below = a > 0, a < problem.upper[rows]
    return -y * state.gradient[rows], np.where(y > 0, below, above), np.where(y > 0, above, below)


def _middle(m: float, M: float) -> float:
    """The b that violates least, between the largest level of I_up and the least of I_low; infinite: no such row."""
    ends = [float(end) for end in (m, M) if np.isfinite(end)]
    return sum(ends) / len(ends) if ends else 0.0


def balanced(alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
    """y'a = 0: the class with the larger sum scaled down to the other."""
    positive, negative = alpha[y > 0].sum(), alpha[y < 0].sum()
    excess = positive - negative
    if abs(excess) <= 1e-7 * (positive + negative):  # rounding: scaled, rows at their bound would leave it
        return alpha
    larger = y * excess > 0
    return np.where(larger, alpha * min(positive, negative) / max(positive, negative), alpha)


def _unshrink(problem: DualQP, state: BlockState) -> BlockState:
    """All rows active again: shrunk gradients catch up with what has moved since."""
    gradient = state.gradient.copy()
    for group in state.shrunk:
        moved = np.flatnonzero(state.alpha != group.alpha)
        gradient[group.ids] += problem.apply(moved, state.alpha[moved] - group.alpha[moved], group.ids)
    return replace(state, gradient=gradient, active=None, shrunk=())


def largest(ids: np.ndarray, v: np.ndarray, k: int) -> np.ndarray:
    """The k of ids with the largest v."""
    return ids if len(ids) <= k else ids[np.argpartition(-v[ids], k)[:k]]


_INDEX = np.int32(0xFFF)  # low mantissa bits that carry an index in _descent and _pair_descent


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _block_descent(Q, diag, g, a, upper, y, tol, s):
    """Minimises 1/2 a'Qa + ... over a block, in place: sub-blocks of s rows, each by _descent.

    With labels y (q,), by _pair_descent, which keeps y'a; then g moves by multiples of y, too. Without: y is None,
    and what is of labels is not compiled.
    """
    q = len(g)
    v = np.empty(q, np.float32)
    S = np.empty(s, np.int64)
    for k in range(s):
        S[k] = k
    Q_S, is_made = np.empty((s, s), np.float32), np.empty(s, np.bool_)
    for round_ in range(1000):
        if y is not None:
            _centre(g, a, upper, y)
        worst = _violations32(g, a, upper, v)
        if worst <= tol:
            break
        if s < q:
            if round_ > 0:
                _lift_half(v, S)
            _select(v, g, y, S)
        is_made[:] = False
        a_S = _taken(a, S)
        tol_S = max(tol, np.float32(0.3) * worst)
        _sub_descent(Q, S, Q_S, is_made, diag, g, a_S, upper, y, tol_S)
        for k in range(s):
            i = S[k]
            delta = np.float32(a_S[k] - a[i])
            if delta != 0:
                a[i] = a_S[k]
                row = Q[i]
                for j in range(q):
                    g[j] += delta * row[j]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _sub_descent(Q, S, Q_S, is_made, diag, g, a_S, upper, y, tol):
    diag_S, g_S, upper_S, most = _taken(diag, S), _taken(g, S), _taken(upper, S), 20 * len(S)
    if y is None:
        _descent(Q, S, Q_S, is_made, diag_S, g_S, a_S, upper_S, tol, most)
    else:
        _pair_descent(Q, S, Q_S, is_made, diag_S, g_S, a_S, upper_S, _taken(y, S), np.float32(2) * tol, most)


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _row(Q, S, Q_S, is_made, i, y):
    """Row i of Q[S, S], or with labels y of K[S, S]; gathered when first asked for, as most rows of S never move."""
    row = Q_S[i]
    if not is_made[i]:
        is_made[i] = True
        whole = Q[S[i]]
        for j in range(len(S)):
            row[j] = whole[S[j]]
        if y is not None:
            for j in range(len(S)):
                row[j] *= y[i] * y[j]
    return row


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _descent(Q, S, Q_S, is_made, diag, g, a, upper, tol, max_steps):
    """Greedy coordinate descent on at most 4096 rows, in place; Q_S and is_made are `_row`'s.

    The loops are split so that each vectorises; the arg max packs the index into the low bits of |violation|.
    """
    q = len(g)
    big, zero = np.float32(3e38), np.float32(0)
    v = np.empty(q, np.float32)
    bits = v.view(np.int32)
    low, high = np.empty(q, np.float32), np.empty(q, np.float32)
    for j in range(q):
        low[j] = -big if a[j] < upper[j] else zero
        high[j] = big if a[j] > 0 else zero
    delta, row = zero, np.zeros(q, np.float32)
    for _ in range(max_steps):
        for j in range(q):
            g[j] += delta * row[j]
        for j in range(q):
            v[j] = abs(min(max(g[j], low[j]), high[j]))
        key = np.int32(0)
        for j in range(q):
            key = max(key, (bits[j] & ~_INDEX) | np.int32(j))
        i = key & _INDEX
        if v[i] <= tol:
            break
        new = min(max(a[i] - g[i] / diag[i], zero), upper[i])
        delta = new - a[i]
        a[i] = new
        low[i] = -big if new < upper[i] else zero
        high[i] = big if new > 0 else zero
        row = _row(Q, S, Q_S, is_made, i, None)


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _pair_descent(Q, S, K_S, is_made, diag, g, a, upper, y, tol, max_steps):
    """Descent by pairs on at most 4096 rows until m - M <= tol, in place; K_S and is_made are `_row`'s.

    In z = y a, whose sum is kept: z_i rises and z_j falls by t. i is the row of I_up with the largest level
    f = -y g, and j that of I_low with which the objective falls most, by (f_i - f_j)^2 / 2 |phi_i - phi_j|^2
    (Fan, Chen and Lin 2005, WSS 2). Loops are split, and indices packed, as in _descent.
    """
    q = len(g)
    big, zero, two = np.float32(1e38), np.float32(0), np.float32(2)
    flat = np.float32(1e-12)  # least curvature, LIBSVM's
    f, z, least, most = np.empty(q, np.float32), np.empty(q), np.empty(q), np.empty(q)
    v, may_rise, may_fall = np.empty(q, np.float32), np.empty(q, np.float32), np.empty(q, np.float32)
    bits = v.view(np.int32)
    for k in range(q):
        f[k], z[k] = -y[k] * g[k], y[k] * a[k]
        least[k], most[k] = min(y[k] * upper[k], 0.0), max(y[k] * upper[k], 0.0)
        may_rise[k] = big if z[k] < most[k] else -big
        may_fall[k] = -big if z[k] > least[k] else big
    t, rising = zero, np.zeros(q, np.float32)  # loops, not array expressions: those are slow to compile
    falling = rising
    for _ in range(max_steps):
        for k in range(q):
            f[k] -= t * (rising[k] - falling[k])
        for k in range(q):
            v[k] = min(f[k], may_rise[k])
        key = np.int32(-0x80000000)
        for k in range(q):  # flipped, the bits of negative numbers are in order, too
            flipped = bits[k] ^ ((bits[k] >> 31) & np.int32(0x7FFFFFFF))
            key = max(key, (flipped & ~_INDEX) | np.int32(k))
        i = key & _INDEX
        top, rising, worst = v[i], _row(Q, S, K_S, is_made, i, y), zero
        for k in range(q):
            behind = max(top - max(f[k], may_fall[k]), zero)
            worst = max(worst, behind)
            v[k] = behind * behind / max(diag[i] + diag[k] - two * rising[k], flat)
        if worst <= tol:
            break
        key = np.int32(0)
        for k in range(q):
            key = max(key, (bits[k] & ~_INDEX) | np.int32(k))
        j = key & _INDEX
        falling = _row(Q, S, K_S, is_made, j, y)
        step = (f[i] - f[j]) / max(diag[i] + diag[j] - two * rising[j], flat)
        room_i, room_j = most[i] - z[i], z[j] - least[j]
        step = min(step, room_i, room_j)
        z[i] = most[i] if step >= room_i else z[i] + step
        z[j] = least[j] if step >= room_j else z[j] - step
        may_rise[i] = big if z[i] < most[i] else -big
        may_fall[i] = -big
        may_rise[j] = big
        may_fall[j] = -big if z[j] > least[j] else big
        t = np.float32(step)
    for k in range(q):
        a[k] = y[k] * z[k]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _centre(g, a, upper, y):
    """Shifts g by the multiple of y that leaves the smallest violations."""
    big = np.float32(1e38)
    m, M = -big, big
    for j in range(len(g)):
        level = -y[j] * g[j]
        above, below = a[j] > 0, a[j] < upper[j]
        if below if y[j] > 0 else above:
            m = max(m, level)
        if above if y[j] > 0 else below:
            M = min(M, level)
    if m > -big and M < big:
        shift = np.float32(0.5) * (m + M)
        for j in range(len(g)):
            g[j] += shift * y[j]


@nb.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
def _violations32(g, a, upper, v):
    """Fills v; returns the largest. At most tol counts as 0: it must not compete, by a tie, with what is above."""
    worst = np.float32(0)
    for j in range(len(g)):
        down = max(g[j], np.float32(0)) if a[j] > 0 else np.float32(0)
        up = max(-g[j], np.float32(0)) if a[j] < upper[j] else np.float32(0)
        v[j] = max(down, up)
        worst = max(worst, v[j])
    return worst


@nb.njit(nogil=True, cache=True)
def _taken(v, S):  # v[S]; numba compiles fancy indexing, with its messages of errors, for a second and a half
    out = np.empty(len(S), v.dtype)
    for k in range(len(S)):
        out[k] = v[S[k]]
    return out


@nb.njit(nogil=True, cache=True)
def _lift_half(v, S):
    """Lifts the worse half of S above all others, so that the next selection keeps it."""
    worse_half = np.empty(len(S) // 2, np.int64)
    _select_largest(_taken(v, S), worse_half)
    for k in worse_half:
        v[S[k]] += np.float32(1e20)


@nb.njit(nogil=True, cache=True)
def _select(v, g, y, S):
    """Fills S with rows of largest v; with labels, one half of rows whose y a should rise, one where it should fall.

    Of many equal ones the first might all be of one side, and then no pair could move.
    """
    if y is None:
        _select_largest(v, S)
        return
    half, least = len(S) // 2, np.float32(1e-30)
    side = np.empty_like(v)
    for j in range(len(v)):
        side[j] = v[j] if y[j] * g[j] < 0 else np.float32(0)
    _select_largest(side, S[:half])
    for j in range(len(v)):
        side[j] = max(v[j], least) if y[j] * g[j] >= 0 else least
    for j in S[:half]:
        side[j] = 0
    _select_largest(side, S[half:])


@nb.njit(nogil=True, cache=True)
def _select_largest(v, S):
    """Fills S with the indices of the len(S) largest v >= 0; of equals, the first."""
    bits = v.view(np.int32)
    smallest, room = 0, len(S)  # bits of the last value chosen, found digit by digit; how many places remain
    for shift, width in ((20, 11), (10, 10), (0, 10)):
        counts = np.zeros(1 << width, np.int64)
        for j in range(len(v)):
            if bits[j] >> (shift + width) == smallest:
                counts[(bits[j] >> shift) & ((1 << width) - 1)] += 1
        digit = len(counts) - 1
        while counts[digit] < room:
            room -= counts[digit]
            digit -= 1
        smallest = smallest << width | digit
    k = 0
    for j in range(len(v)):
        if bits[j] > smallest or (bits[j] == smallest and room > 0):
            room -= bits[j] == smallest
            S[k] = j
            k += 1
