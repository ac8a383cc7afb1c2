"""ALFPGM: decomposition by many pairs at a time (Aregbesola and Griva 2022), for duals with y'a = 0.

Each round takes a working set B of p pairs (pWSS) and solves the dual restricted to B, with Q_BB in float64, by an
augmented Lagrangian whose minimisations over the box are fast projected gradient steps; or, which is faster here, by
the two-variable steps of `blockws`. All that does not depend on B (gradient, shrinking, certificate) is that solver's.

Additions to the paper: free support vectors of the block before, as many as there are new rows, join the next one. On
magic04 at C = 100 that divides the rounds of 50 pairs by 5. mu grows with the eigenvalues of a block, and momentum
restarts. `as_published` leaves all three out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from streamsvm.private.numba import njit, njit_inner
from streamsvm.problems.dual import BlockProblem, DualQP
from streamsvm.solvers.blockws import BlockSolver, BlockState, free_rows, levels, row_violations

INNER_TOL = 0.1  # of the largest violation: more in one block would be undone by the next
INNER_STEPS, OUTER_STEPS = 1000, 50  # most gradient steps for one multiplier, and most multipliers
POWER_STEPS = 10  # which find the largest eigenvalue to a few per cent
TRIES = 8  # solutions of a block, each finer than the one before, until the objective falls
FLAT = 1e-12  # least curvature of a pair, LIBSVM's


@dataclass(frozen=True)
class ALFPGMState(BlockState):
    """The block solver's state, and how often each row was in a working set, (n,); releases: how often the limits on
    that were doubled."""

    uses: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    stalled: np.ndarray = field(default_factory=lambda: np.empty(0, bool))
    releases: int = 0

    def to_arrays(self) -> dict[str, object]:
        more = {"uses": self.uses, "stalled": self.stalled, "releases": self.releases}
        return super().to_arrays() | more

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> ALFPGMState:
        plain = BlockState.from_arrays(arrays)
        uses, stalled = np.asarray(arrays["uses"]), np.asarray(arrays["stalled"])
        return cls(**vars(plain), uses=uses, stalled=stalled, releases=int(arrays["releases"]))


@dataclass(frozen=True)
class ALFPGM(BlockSolver):
    """Algorithm 1 of the paper with pWSS and the MinMaxLimiter; block_rows is 4 p, half of it for free rows of the
    block before.

    candidates (minAlphaCheck): rows with the least levels among which partners are sought; None: all.
    least_uses (minAlphaOpt): after so many working sets a row at a bound, or one that last moved by less than
    settled (delta_alpha), is left out; most_uses (maxAlphaOpt): and after so many any row. None: never. All come back
    before the last check of the KKT conditions, with twice the limits if they are not met.

    as_published: blocks are the p pairs alone; mu of fpg is as given, its momentum never restarts, and its
    minimisations end at half of tol."""

    bias: bool = True
    subproblem: Literal["pairs", "fpg"] = "pairs"
    mu: float = 0.1
    candidates: int | None = None
    least_uses: int | None = None
    most_uses: int | None = None
    settled: float = 1e-6
    shrinking: bool = True
    as_published: bool = False

    @property
    def pairs(self) -> int:
        return self.block_rows // 4

    def init(self, problem: DualQP, alpha: np.ndarray | None = None) -> ALFPGMState:
        n = len(problem.y)
        plain = vars(self._start(problem, alpha))
        start = ALFPGMState(**plain, uses=np.zeros(n, np.int32), stalled=np.zeros(n, bool))
        return self._checked(problem, self.measured(problem, start))  # type: ignore[return-value]

    def is_solved(self, state: BlockState) -> bool:
        return super().is_solved(state) and not self._left_out(state).any()

    def leaves_out(self, state: BlockState) -> bool:
        return super().leaves_out(state) or bool(self._left_out(state).any())

    def unshrunk(self, problem: DualQP, state: BlockState) -> BlockState:
        """All rows active again, those left out too, and measured."""
        assert isinstance(state, ALFPGMState)
        if self._left_out(state).any():
            n = len(state.alpha)
            zeros, none = np.zeros(n, np.int32), np.zeros(n, bool)
            state = replace(state, uses=zeros, stalled=none, releases=state.releases + 1)
        return super().unshrunk(problem, state)

    def _left_out(self, state: BlockState) -> np.ndarray:
        """(n,) bool: the MinMaxLimiter (section 3.2)."""
        assert isinstance(state, ALFPGMState)
        out = np.zeros(len(state.alpha), bool)
        patience = 2**state.releases
        if self.least_uses is not None:
            out |= (state.uses >= self.least_uses * patience) & state.stalled
        if self.most_uses is not None:
            out |= state.uses >= self.most_uses * patience
        return out

    def _candidates(self, state: BlockState) -> np.ndarray:
        active = np.arange(len(state.alpha)) if state.active is None else state.active
        return active[~self._left_out(state)[active]]

    def _shrink(self, problem: DualQP, state: BlockState) -> BlockState:
        return super()._shrink(problem, state) if self.shrinking else state

    def _select(self, problem: DualQP, state: BlockState) -> tuple[np.ndarray, np.ndarray]:
        """pWSS: the p rows of I_up with the largest levels, each with its best partner of I_low; and, unless as
        published, free ones of the block before."""
        rows = self._candidates(state)
        level, up, low = levels(problem, state, rows)
        m, M = level[up].max(), level[low].min()
        first = _least(np.flatnonzero(up & (level > M)), -level, self.pairs)
        second = _least(np.flatnonzero(low & (level < m)), level, self.candidates)
        second = second[np.isin(second, first, invert=True)]
        a, b = rows[first], rows[second]
        partners = _partners(problem.cross(a, b), problem.diagonal(a), problem.diagonal(b), level[first], level[second])
        if self.as_published:
            return np.union1d(a[partners >= 0], b[partners[partners >= 0]]), np.empty(0)
        # b[:1], the lowest level, too: near twins gain much by steps so small that a block of them alone would not move
        new = np.union1d(a, b[np.append(partners[partners >= 0], 0)])
        free = np.intersect1d(state.block, rows)
        free = np.setdiff1d(free[free_rows(problem, state, free)], new)
        worst = row_violations(problem, state, free)
        return np.union1d(new, free[_least(np.arange(len(free)), -worst, 2 * self.pairs)]), np.empty(0)

    def solve_block(self, problem: BlockProblem, state: BlockState, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.subproblem == "pairs":
            return super().solve_block(problem, state, block)
        Q = problem.gram(block).astype(np.float64)
        before, upper, y = state.alpha[block], problem.upper[block], problem.y[block]
        largest = spectral_norm(Q, y)
        mu, accuracy, lam = self.mu, self.row_tol, -state.bias
        if not self.as_published:
            mu = max(mu, largest / len(block))  # below it L gains nothing, and multipliers take long
            accuracy = max(INNER_TOL * state.violation, 0.25 * self.tol)
        L = largest + mu * len(block)  # (16)
        for _ in range(TRIES):
            piece = WorkingSetDual(Q, upper, y, mu, L)
            new, lam, fell = augmented_lagrangian(
                piece, before, state.gradient[block], lam, accuracy, as_published=self.as_published
            )
            if fell > 0:
                return new, new != before
            accuracy, L = 0.1 * accuracy, 1.5 * L  # an eigenvalue that the power steps missed shows so, too
        return before, np.zeros(len(block), bool)

    def _moved(self, problem: DualQP, before: BlockState, after: BlockState) -> BlockState:
        """Counts the rows of the block, and marks those that have settled."""
        assert isinstance(after, ALFPGMState)
        uses, stalled, block = after.uses.copy(), after.stalled.copy(), after.block
        uses[block] += 1
        still = np.abs(after.alpha[block] - before.alpha[block]) < self.settled
        stalled[block] = still | ~free_rows(problem, after, block)
        return replace(after, uses=uses, stalled=stalled)


class WorkingSetDual(NamedTuple):
    """The dual restricted to q rows, and the options of its solution."""

    Q: np.ndarray  # (q, q)
    upper: np.ndarray  # (q,)
    y: np.ndarray  # (q,)
    mu: float
    L: float  # no less than the norm of Q + mu yy'


def augmented_lagrangian(
    piece: WorkingSetDual,
    a0: np.ndarray,
    g0: np.ndarray,
    lam: float,
    accuracy: float,
    *,
    as_published: bool = False,
) -> tuple[np.ndarray, float, float]:
    """(a, lambda, how far f fell) of min f(a) over 0 <= a <= upper, y'a = y'a0, where f has gradient g0 at a0.

    Algorithm 2: minimise L_mu(a, lambda) = f - lambda h + mu/2 h^2, h = y'(a - a0), over the box to accuracy by fast
    projected gradient, then lambda -= mu h, until both KKT residuals, (11) and mu |h|, are below accuracy. What is
    left of h goes by a projection onto the plane. as_published: |h| must be below accuracy, and momentum does not
    restart."""
    a, g, h = a0.copy(), g0.copy(), 0.0
    Q, upper, y, mu, L = piece
    scale = 1.0 if as_published else mu
    for _ in range(OUTER_STEPS):
        h, residual = _fast_projected_gradient((Q, upper, y, mu, L), a, g, h, lam, accuracy, not as_published)
        lam -= mu * h
        if scale * abs(h) < accuracy and residual < accuracy:
            break
    _onto_plane(Q, a, g, upper, y, h)
    return a, lam, float(0.5 * (a0 - a) @ (g + g0))


def spectral_norm(Q: np.ndarray, y: np.ndarray) -> float:
    """The largest eigenvalue of Q by a few power steps, and a tenth more. They start near the eigenvector of kernels
    with positive values, whose signs are y, and at a row of Q for others."""
    v = y + Q[np.argmax(np.diag(Q))]
    for _ in range(POWER_STEPS):
        v /= max(float(np.linalg.norm(v)), 1e-300)
        v = Q @ v
    return 1.1 * float(np.linalg.norm(v))


def _least(ids: np.ndarray, key: np.ndarray, count: int | None) -> np.ndarray:
    """At most count of ids, those of least key, in its order."""
    if count is not None and len(ids) > count:
        ids = ids[np.argpartition(key[ids], count)[:count]]
    return ids[np.argsort(key[ids], kind="stable")]


@njit(cache=True)
def _partners(K, diag_i, diag_j, level_i, level_j):
    """For each i in turn the j, not yet taken, of the largest gain (15); -1 if none gains."""
    partners = np.full(len(K), -1)
    taken = np.zeros(len(level_j), np.bool_)
    for i in range(len(K)):
        best = 0.0
        for j in range(len(level_j)):
            violation = level_i[i] - level_j[j]
            if violation > 0 and not taken[j]:
                gain = violation * violation / max(diag_i[i] + diag_j[j] - 2.0 * K[i, j], FLAT)
                if gain > best:
                    best, partners[i] = gain, j
        if partners[i] >= 0:
            taken[partners[i]] = True
    return partners


@njit(cache=True, fastmath=True, error_model="numpy")
def _fast_projected_gradient(piece, a, g, h, lam, accuracy, restarts):
    """(h, residual (10)) of L_mu(a, lam) minimised over the box; a and g, f's gradient there, in place.

    piece: `WorkingSetDual` as a plain tuple.

    Nesterov's momentum; if restarts, from zero again when it points uphill (O'Donoghue and Candes 2015). Q is read once
    a step, and only where a moved: the gradient at the extrapolated point follows from the last two."""
    Q, upper, y, mu, L = piece
    q = len(a)
    a_before, g_before, step = a.copy(), g.copy(), np.empty(q)
    t, m, h_before, residual = 1.0, 0.0, h, np.inf
    for _ in range(INNER_STEPS):
        shift = mu * (h + m * (h - h_before)) - lam
        uphill, h_before = 0.0, h
        for j in range(q):
            ahead = a[j] + m * (a[j] - a_before[j])
            slope = g[j] + m * (g[j] - g_before[j]) + shift * y[j]
            new = min(max(ahead - slope / L, 0.0), upper[j])
            step[j] = new - a[j]
            uphill += (ahead - new) * step[j]
            h += y[j] * step[j]
            a_before[j], g_before[j] = a[j], g[j]
        _move(Q, a, g, step)
        residual = _residual(a, g, upper, y, mu * h - lam)
        if residual < accuracy:
            break
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t))
        t, m = (1.0, 0.0) if restarts and uphill > 0 else (faster, (t - 1.0) / faster)
    return h, residual


@njit_inner(fastmath=True)
def _move(Q, a, g, step):
    """a += step, g += Q step."""
    for j in range(len(a)):
        if step[j] != 0.0:
            a[j] += step[j]
            row, by = Q[j], step[j]
            for k in range(len(a)):
                g[k] += by * row[k]


@njit_inner(fastmath=True)
def _residual(a, g, upper, y, shift):
    """The largest nu_i (11): |gradient| inside, its part that points outward at a bound."""
    worst = 0.0
    for j in range(len(a)):
        slope = g[j] + shift * y[j]
        down = max(slope, 0.0) if a[j] > 0 else 0.0
        up = max(-slope, 0.0) if a[j] < upper[j] else 0.0
        worst = max(worst, max(down, up))
    return worst


@njit(cache=True)
def _onto_plane(Q, a, g, upper, y, h):
    """Projects a onto the box where y'a is less by h; g follows. The shift comes from bisection."""
    if h == 0.0:
        return
    wanted = np.sum(y * a) - h
    high = abs(h) + np.max(upper)
    low = -high
    for _ in range(100):
        middle = 0.5 * (low + high)
        if np.sum(y * np.minimum(np.maximum(a - middle * y, 0.0), upper)) > wanted:
            low = middle
        else:
            high = middle
    _move(Q, a, g, np.minimum(np.maximum(a - high * y, 0.0), upper) - a)
