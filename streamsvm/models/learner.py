"""Budgeted stochastic gradient descent (Wang, Crammer and Vucetic 2012), with multi-merge budget maintenance.

Minimises, for each column c of labels,

    lambda/2 |w_c|^2 + 1/n sum_i weight_i max(0, 1 - y_ic f_c(x_i)),    f_c(x) = w_c'phi(x) + b_c,

one row at a time with step 1 / (lambda t), t counted from `BudgetOptions.first`. Coefficients are kept times lambda t:
a step adds y to them, and the shrinking of w costs nothing. A bias is the weight of a constant feature, regularised
like the others. Other losses are those of `solvers.budget.losses`: of targets, in the units of `set_units`, or of rows
alone, where the bias is -rho. All columns share one support set of at most `budget` points, so that kernel work is paid
once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF
from streamsvm.options.solvers import Strategy
from streamsvm.parallel.strips import strips
from streamsvm.solvers.budget.losses import LOSSES
from streamsvm.solvers.budget.merge import merge_tables
from streamsvm.solvers.budget.state import (
    DEGRADATION,
    EVENTS,
    GRADIENT_ERROR,
    NANOSECONDS,
    STEPS,
    SUPPORTS,
    StepOptions,
    Supports,
)
from streamsvm.solvers.budget.steps import steps
from streamsvm.solvers.budget.values import decide, exponents, exponents_of_row, sq_norms, transpose
from streamsvm.storage.arrays import Arrays
from streamsvm.tasks.base import Loss, Task

LONGEST = {"epsilon": 0.5}  # step, of the targets' spread: values count, of classes signs alone
LONGEST_BY_ROW = {"hinge": 1.0, "logistic": 0.5}  # change of a decision by a row of typical weight, in a fit
MERGING, FORGETTING = ("sequence", "gradient"), ("forget", "lru")
NARROW = 64  # columns up to which computing values between supports is faster than reading them
THREADS_FROM = 3_000_000  # products: fewer take less than waking a thread
STRIP = 256  # supports whose values one thread computes at once: results do not depend on the threads
INSIDE = 32  # the same for rows of the block itself, with those after them
WORTH_TAKING = 0.9  # share of the columns: if more are not 0 in a block, products of all take less than a copy
LIKELY = 1.2  # margin below which a row will probably be inside the margin (of 1) when its turn comes

Maintenance = tuple[tuple[np.ndarray, np.ndarray, np.ndarray] | None, bool | None, bool | None]

_FIRST = np.zeros(1, int)
supports_of = attrgetter(*Supports._fields)  # the `Supports` of a learner, as a tuple


@dataclass(frozen=True)
class BudgetOptions:
    """lam: lambda; merge: points that become one, M; average: decide by the mean of all w_t, not by the last.

    The mean weighs w_t by t (Lacoste-Julien, Schmidt and Bach 2012). Merges fit the last w, not the mean, so it pays
    only where the budget is rarely full. epsilon, nu: of the losses "epsilon", in units of the targets, and "support".
    longest: step, which t is counted for: from 1 / (lambda longest) on. 0: none is too long. merge_all: M points become
    one at every maintenance, however much that loses; models of 0.2.0 end a sequence early."""

    lam: float
    budget: int = 500
    merge: int = 3
    strategy: Strategy = "sequence"
    bias: bool = False
    average: bool = False
    loss: Loss = "hinge"
    epsilon: float = 0.0
    nu: float = 0.0
    longest: float = 0.0
    merge_all: bool = False

    @classmethod
    def of(cls, config: FitConfig, task: Task, n: int, unit: float = 1.0) -> BudgetOptions:
        """lambda is 1 / (n C) unless the options have one, with C = 1 for a task that reads no C. unit: of targets, in
        which lambda and epsilon of the options are."""
        o = config.bsgd
        loss: Loss = o.loss if task.has_probabilities else task.loss
        C = config.C if task.reads_labels else 1.0
        lam = unit * (o.lam if o.lam is not None else 1.0 / (n * C))
        return cls(
            lam,
            o.budget,
            o.merge,
            o.strategy,
            o.bias,
            o.average,
            loss,
            epsilon=config.epsilon / unit,
            nu=task.nu(config) or 0.0,
            longest=LONGEST.get(loss, 0.0),
            merge_all=o.merge_all,
        )

    def bounded(self, weight: float) -> BudgetOptions:
        """Steps of classes that change the decision of a row by no more than the margin, or half a logarithm of odds.
        weight: of a typical row, times K(x, x). From a step of 1 / lambda on, with lambda = 1 / (n C), a row changes
        decisions by far more until nC rows have come, and merges of what it made stay in the model."""
        return replace(self, longest=LONGEST_BY_ROW[self.loss] / weight) if weight > 0 else self

    @property
    def first(self) -> float:
        """The step from which on t is counted."""
        return 1 / (self.lam * self.longest) if self.longest else 0.0


@dataclass
class BudgetStats:
    """Counters of a learner's work."""

    steps: int
    supports: int
    maintenances: int
    step_seconds: float  # of the steps one after the other, maintenance in them
    degradation: float  # sum of |w' - w|^2 over maintenances
    mean_gradient_error: float  # |w' - w| / eta_t by step: E-bar of Qaadan and Glasmachers 2018, theorem 1


def together(every: Sequence[BudgetStats]) -> BudgetStats:
    """Counters of several learners, added up."""
    sums = {name: sum(getattr(stats, name) for stats in every) for name in BudgetStats.__dataclass_fields__}
    errors = sum(stats.mean_gradient_error * stats.steps for stats in every)
    return BudgetStats(**sums | {"mean_gradient_error": errors / max(sums["steps"], 1)})


class BudgetLearner:
    """The state of the descent: supports, their mutual values, coefficients, counters. It learns in place. The state is
    arrays (`to_state`), and learning from a restored state is bitwise the same as never having stopped, if the rows
    come in the same blocks; in other blocks it is the same up to rounding."""

    def __init__(
        self, kernel: Kernel, d: int, columns: int, options: BudgetOptions, units: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """units: origin and unit of targets, which are learned as (y - origin) / unit."""
        self.options = options
        self.is_rbf = isinstance(kernel, RBF)  # values between supports are gamma |a - b|^2, else K(a, b)
        self._set_kernel(kernel)
        slots = options.budget + 1
        self.X = np.zeros((slots, d), np.float32)
        self.norms = np.zeros(slots, np.float32)
        self.born = np.zeros(slots, np.int64)
        self._buffer = np.empty(slots * self.block_rows, np.float32)  # for values of one block after another
        self.A = np.zeros((slots, columns))
        self.U = np.zeros((slots + 1, columns if options.average else 0))  # the last row is of the bias
        self.bias = np.zeros(columns)
        self.counts = np.zeros(5, np.int64)
        self.sums = np.zeros(2)
        self.used = np.zeros(slots if options.strategy == "lru" else 0, np.int64)
        self.units = np.array(units)
        together, projects = (options.strategy == name or None for name in ("gradient", "project"))
        self._merges, self._strategy = options.strategy in MERGING, (together, projects)
        self._lay_out()

    @property
    def _is_narrow(self) -> bool:
        """Whether values between supports are computed from T when needed, not kept."""
        return len(self.T) > 0

    def _lay_out(self) -> None:
        """Sets T, or the values, of the existing supports."""
        slots = len(self.X)
        if self.is_rbf and self._merges and 0 < self.d <= NARROW:
            self.T, self.values = np.ascontiguousarray(self.X.T), np.zeros((0, 0), np.float32)
        else:
            self.T, self.values = np.zeros((0, slots), np.float32), np.zeros((slots, slots), np.float32)
            self.values[: self.n_support, : self.n_support] = self._between()

    def _between(self) -> np.ndarray:
        """(n_support, n_support) values, computed."""
        n = self.n_support
        X, norms, values = self.X[:n], self.norms[:n], np.empty((n, n), np.float32)
        self._values(X, norms, X, norms, values)
        return values

    def _set_kernel(self, kernel: Kernel) -> None:
        self.kernel, o = kernel, self.options
        self.gamma = np.float32(kernel.gamma if isinstance(kernel, RBF) else 0)
        loss = LOSSES[o.loss], o.epsilon, o.nu, o.first
        maintenance = o.strategy in FORGETTING, o.merge_all
        self.step_options = tuple(
            StepOptions(o.lam, o.merge, o.budget, o.bias, self.is_rbf, self.gamma, *loss, *maintenance)
        )

    @property
    def maintenance(self) -> Maintenance:
        """The arguments of `steps` for maintenance: tables, together and projects."""
        return merge_tables() if self._merges else None, *self._strategy

    @property
    def n_support(self) -> int:
        return int(self.counts[SUPPORTS])

    @property
    def d(self) -> int:
        return self.X.shape[1]

    @property
    def t(self) -> int:
        """Rows learned."""
        return int(self.counts[STEPS])

    @property
    def block_rows(self) -> int:
        """Rows whose values with the supports are computed at once: few against the budget, as those between the rows
        are computed, too."""
        return int(np.clip(self.options.budget // 2, 32, 512))

    def stats(self) -> BudgetStats:
        counts, sums = self.counts, self.sums
        return BudgetStats(
            steps=self.t,
            supports=self.n_support,
            maintenances=int(counts[EVENTS]),
            step_seconds=float(counts[NANOSECONDS] * 1e-9),
            degradation=float(sums[DEGRADATION]),
            mean_gradient_error=float(sums[GRADIENT_ERROR] / max(self.t, 1)),
        )

    def learn(self, rows: Rows, Y: np.ndarray, weight: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
        """One step for each row (m, d), in order; its decision values before its step, (m, columns). Y (m, columns): -1
        or +1, or targets. weight (m,): of each row's loss."""
        origin, unit = self.units
        Y = (Y - origin) / unit
        weight = np.ones(len(rows)) if weight is None else weight
        decisions = np.empty((len(rows), self.A.shape[1]))
        for start in range(0, len(rows), self.block_rows):
            block = slice(start, start + self.block_rows)
            self._learn_block(rows.take(block), Y[block], weight[block], threads, decisions[block])
        return origin + unit * decisions

    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """(n_support, columns) coefficients and (columns,) bias of the function learned so far."""
        n, t, (origin, unit) = self.n_support, self.t, self.units
        if t == 0:
            return self.A[:n].copy(), self.bias + origin
        if self.options.average:
            factor = 2 * unit / (self._sum * t)
            return (self.A[:n] * t - self.U[:n]) * factor, origin + (self.bias * t - self.U[-1]) * factor
        return unit * self.A[:n] / self._step, origin + unit * self.bias / self._step

    @property
    def _step(self) -> float:
        """lambda t, t counted from `first`: the factor of the coefficients A."""
        return self.options.lam * (self.t + self.options.first)

    @property
    def _sum(self) -> float:
        """2 / t of the sum of lambda t over all steps, t counted from `first`."""
        return self.options.lam * (self.t + 1 + 2 * self.options.first)

    def _always(self, bias: np.ndarray) -> np.ndarray:
        """The entries of U of a bias (columns,), times lambda t, that was the same after every step so far."""
        return bias * (self.t * (self.t - 1) / (2 * max(self.t + self.options.first, 1)))

    def supports(self) -> Rows:
        return Rows(self.X[: self.n_support].copy())

    def decide(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values of rows (m, d)."""
        A, bias = self.coefficients()
        return self.kernel.apply(rows, self.supports(), A) + bias

    def decide_one(self, x: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """(columns,) decision values of one row x (d,) float32; and its (W, F), for `learn_one`. W (slots, 1) are its
        values with the supports, F (columns, 1) its decisions in units of A."""
        n = self.n_support
        if self.is_rbf:
            W = np.empty((len(self.X), 1), np.float32)
            exponents_of_row(self.X, self.T, self.norms, n, x, self.gamma, W)
        else:
            W = np.zeros((len(self.X), 1), np.float32)
            W[:n] = self.kernel.block(Rows(self.X[:n]), Rows(x[None]))
        F = np.empty((self.A.shape[1], 1))
        decide(W, n, self.A, F, self.is_rbf)
        return self._decided(W, F), (W, F)

    def _decided(self, W: np.ndarray, F: np.ndarray) -> np.ndarray:
        """(columns,) decision values of the row whose values are W: by the mean of all w where that decides."""
        origin, unit = self.units
        if not self.t:
            return np.full(len(self.bias), origin)
        if not self.options.average:
            return origin + unit * (F[:, 0] + self.bias) / self._step
        (A, bias), mean = self.coefficients(), np.empty(F.shape)
        decide(W, self.n_support, A, mean, self.is_rbf)
        return mean[:, 0] + bias

    def learn_one(
        self, x: np.ndarray, values: tuple[np.ndarray, np.ndarray], y: np.ndarray, weight: float = 1.0
    ) -> None:
        """One step for the row of the last `decide_one`, with the values it returned. y (columns,): -1 or +1."""
        W, F = values
        with_itself = 0.0 if self.is_rbf else self.kernel.diag(Rows(x[None]))[0]
        V, decisions = np.array([[with_itself]], np.float32), np.empty((1, len(y)))
        Y = ((y - self.units[0]) / self.units[1])[None]
        self._steps((x[None], W, V[:0], _FIRST, V, F, Y, np.array([weight]), decisions))

    def set_gamma(self, gamma: float) -> None:
        """Continues with another gamma: supports and coefficients stay, the values between supports become
        those of that gamma."""
        before, n = self.gamma, self.n_support
        self._set_kernel(replace(self.kernel, **{"gamma": gamma}))
        if self.is_rbf:
            self.values[:n, :n] *= self.gamma / before
        else:
            self.values[:n, :n] = self._between()

    def set_units(self, origin: float, unit: float) -> None:
        """Targets are learned as (y - origin) / unit from here on. The function so far stays; without a bias, up to the
        origin."""
        before, unit_before = self.units
        factor = unit_before / unit
        self.A[: self.n_support] *= factor
        self.U *= factor
        self.bias *= factor
        if self.options.bias:
            shift = np.full(len(self.bias), (before - origin) / unit * self._step)
            self.bias += shift
            if self.options.average:
                self.U[-1] += self._always(shift)
        self.units[:] = origin, unit

    def nearest(self) -> np.ndarray:
        """(n_support,) gamma |a - b|^2 of each support with the nearest other one; rbf with two at least, else (0,)."""
        if not self.is_rbf or self.n_support < 2:
            return np.empty(0)
        values = self._values_now().copy()
        np.fill_diagonal(values, np.inf)
        return values.min(axis=0)

    def widen(self, d: int) -> None:
        """Room for d features; rows so far have 0 in the new ones."""
        X = np.zeros((len(self.X), d), np.float32)
        X[:, : self.X.shape[1]] = self.X
        self.X = X
        self._lay_out()

    def add_column(self) -> None:
        """One more class against the rest, so far the constant -1; the third one turns the column into one for each."""
        if self.A.shape[1] == 1:
            both = (np.concatenate([-array, array], axis=-1) for array in (self.A, self.U, self.bias))
            self.A, self.U, self.bias = both
        self.add_alone()

    def add_alone(self) -> None:
        """One more column, so far the constant -1, next to all others."""
        bias = np.array([-self._step])
        self.A = np.hstack([self.A, np.zeros((len(self.A), 1))])
        self.bias = np.append(self.bias, bias)
        if self.options.average:
            self.U = np.hstack([self.U, np.zeros((len(self.U), 1))])
            self.U[-1, -1:] = self._always(bias)

    def _learn_block(self, rows: Rows, Y: np.ndarray, weight: np.ndarray, threads: int, decisions: np.ndarray) -> None:
        block = np.ascontiguousarray(rows.dense(), np.float32)
        norms = sq_norms(block)
        Y, weight = np.ascontiguousarray(Y, np.float64), np.ascontiguousarray(weight, np.float64)
        used = self._used(block)
        seen = block[:, used]
        W, F = self._support_values(seen, used, norms, threads)
        N, entries, V = self._block_values(seen, norms, Y, W, F, threads)
        self._steps((block, W, N, entries, V, F, Y, weight, decisions))

    def _steps(self, block: tuple[np.ndarray, ...]) -> None:
        """block: `BlockValues` as a plain tuple."""
        start = time.perf_counter_ns()
        steps(supports_of(self), block, self.step_options, *self.maintenance)
        self.counts[NANOSECONDS] += time.perf_counter_ns() - start

    def _used(self, block: np.ndarray) -> np.ndarray | slice:
        """The columns that products with these rows need: those that are not all 0, if these are few enough."""
        if not self.is_rbf or self._is_narrow:
            return slice(None)
        used = np.flatnonzero(block.any(axis=0))
        return used if len(used) < WORTH_TAKING * self.d else slice(None)

    def _support_values(
        self, block: np.ndarray, used: np.ndarray | slice, norms: np.ndarray, threads: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Values of the supports with a block of b rows (slots, b), and its decisions in units of A (columns, b).
        block: its columns `used`; norms: of all."""
        n, b = self.n_support, len(block)
        slots, columns = self.A.shape
        W, F = self._buffer[: slots * b].reshape(slots, b), np.zeros((-(-n // STRIP), columns, b))

        def fill(start: int, stop: int) -> None:
            self._values(self.X[start:stop, used], self.norms[start:stop], block, norms, W[start:stop])
            decide(W[start:stop], stop - start, self.A[start:stop], F[start // STRIP], self.is_rbf)

        strips(fill, n, STRIP, self._threads_for(n * b, threads))
        return W, F.sum(axis=0)

    def _block_values(
        self, block: np.ndarray, norms: np.ndarray, Y: np.ndarray, W: np.ndarray, F: np.ndarray, threads: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values of the rows that will probably become supports: with the supports, N, and with the rows after them in
        the block, V. entries (b,): the index of a row in N and V, or -1: the steps compute its values if they need
        them."""
        scale = 1 / self._step if self.t else 0.0
        likely = (Y.T * scale * (F + self.bias[:, None]) < LIKELY).any(axis=0)
        ids = np.flatnonzero(likely | (not self.is_rbf or self.options.loss not in ("hinge", "logistic")))
        entries = np.full(len(block), -1)
        entries[ids] = np.arange(len(ids))
        V = np.empty((len(ids), len(block)), np.float32)
        N = np.empty((0 if self._is_narrow else len(ids), len(W)), np.float32)

        def fill(start: int, stop: int) -> None:
            first = ids[start]
            some = ids[start:stop]
            tile = np.empty((len(some), len(block) - first), np.float32)
            self._values(block[some], norms[some], block[first:], norms[first:], tile)
            V[start:stop, first:] = tile
            if len(N):
                transpose(W, self.n_support, some, N[start:stop])

        strips(fill, len(ids), INSIDE, self._threads_for(V.size / 2, threads))
        if self.is_rbf:
            V[np.arange(len(ids)), ids] = 0
        return N, entries, V

    def _threads_for(self, values: float, threads: int) -> int:
        return threads if values * self.X.shape[1] > THREADS_FROM else 1

    def _values(self, a: np.ndarray, a_norms: np.ndarray, b: np.ndarray, b_norms: np.ndarray, out: np.ndarray) -> None:
        """gamma |a - b|^2 for rbf, else K(a, b), into out (m, q) float32."""
        if not self.is_rbf:
            out[:] = self.kernel.block(Rows(a), Rows(b))
            return
        np.matmul(a, b.T, out=out)
        exponents(out, a_norms, b_norms, self.gamma)

    ARRAYS = ("bias", "counts", "sums", "units")

    @property
    def _of_supports(self) -> tuple[str, ...]:
        """Names of the arrays with a row for each slot."""
        return "X", "norms", "born", "A", "U", *(("used",) if len(self.used) else ())

    def to_state(self) -> dict[str, np.ndarray]:
        """Arrays of the supports in use, for `restore`."""
        n = self.n_support
        state = {name: getattr(self, name)[:n] for name in self._of_supports}
        state |= {name: getattr(self, name) for name in self.ARRAYS}
        state |= {"U_bias": self.U[-1]} if self.options.average else {}
        return state if self._is_narrow else state | {"values": self._values_now()}

    def _values_now(self) -> np.ndarray:
        """(n, n) between supports."""
        return self._between() if self._is_narrow else self.values[: self.n_support, : self.n_support]

    def restore(self, state: Arrays) -> None:
        """Restores a state of `to_state`."""
        n = int(np.asarray(state["counts"])[SUPPORTS])
        for name in self._of_supports:
            getattr(self, name)[:n] = np.asarray(state[name])
        for name in state.keys() & self.ARRAYS:  # models of earlier versions have no units
            getattr(self, name)[:] = np.asarray(state[name])
        if self.options.average:  # earlier versions decided by the last bias
            self.U[-1] = state["U_bias"] if "U_bias" in state else self._always(self.bias)
        self._lay_out()
        if not self._is_narrow and "values" in state:
            self.values[:n, :n] = np.asarray(state["values"])
