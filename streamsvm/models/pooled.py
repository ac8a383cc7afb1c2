"""Experts and their pooled decision: additive functions of the columns, budgeted kernel expansions, and the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Self

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.running import RunningScaling
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.models.learner import BudgetLearner, BudgetOptions, supports_of
from streamsvm.models.one_row import bind, buffers_for, decide_pooled, learn_kernel, learn_pooled, one_row_block
from streamsvm.parallel.machine import cores
from streamsvm.parallel.strips import strips
from streamsvm.private.numba import direct
from streamsvm.solvers.additive import TRACKS, AdditiveLearner
from streamsvm.solvers.pooling import Pool
from streamsvm.storage.arrays import Arrays, Attrs, arrays_of

WIDTHS = (1.0, 4.0, 16.0)  # gamma, times 1 / (sum of the scaled columns' variances)
LAMBDAS = (1e-5, 1e-4, 1e-3)  # of these widths: narrow kernels are regularised more
SHOWN = 2048  # rows after which it has shown which kernels are right
KEPT = 2  # kernels, from there on
WORTH_A_THREAD = 64  # rows: fewer take less than waking one
ROW_BY_ROW = 128  # columns up to which rows meet supports one by one: beyond, products of blocks are faster


@dataclass(frozen=True)
class Expert:
    """A kernel expansion on a budget. factor: gamma times the sum of the columns' variances; None: gamma is fixed."""

    kernel: Kernel
    options: BudgetOptions
    factor: float | None = None

    def to_attrs(self) -> Attrs:
        return {"kernel": self.kernel.to_attrs(), "options": asdict(self.options), "factor": self.factor}

    @classmethod
    def from_attrs(cls, attrs: Attrs) -> Expert:
        return cls(kernel_from(attrs["kernel"]), BudgetOptions(**attrs["options"]), attrs["factor"])


def parallel_experts(
    kernel: Kernel, options: BudgetOptions, lam: float | None, gamma: float | str | None, *, has_gamma: bool
) -> list[Expert]:
    """Experts of several widths and lambdas; given ones are fixed. gamma: a number, or text if it follows
    the columns' variances."""
    lambdas = LAMBDAS if lam is None else (lam,) * len(WIDTHS)
    fixed = None if isinstance(gamma, float | int) or not has_gamma else 1.0
    widths = WIDTHS if gamma is None and has_gamma else (fixed,) * len(LAMBDAS)
    pairs = zip(lambdas, widths, strict=True)
    return [Expert(kernel, replace(options, lam=lam), width) for lam, width in pairs]


class _Compiled(NamedTuple):
    """Functions that decide and learn one row."""

    decide: Callable[[np.ndarray], np.ndarray]
    learn: Callable[[np.ndarray, np.ndarray, float], None]


class ExpertPool:
    """Experts and their pool. They learn in place; rows are raw, NaN if a column is absent."""

    def __init__(self, experts: Sequence[Expert], d: int, columns: int) -> None:
        self.experts, self.d = list(experts), d
        self.scaling = RunningScaling(d)
        self.additive = AdditiveLearner(d, columns)
        self.kernels = [BudgetLearner(e.kernel, d, columns, e.options) for e in experts]
        self.pool = Pool(len(TRACKS) + len(self.kernels))
        self._compiled: _Compiled | None = None

    @property
    def n(self) -> int:
        """Rows learned."""
        return self.pool.n

    @property
    def to_settle(self) -> int:
        """Rows until it has learned a power of two, and has to `settle`."""
        return (1 << self.n.bit_length()) - self.n

    @property
    def columns(self) -> int:
        return self.additive.W.shape[2]

    def decide_one(self, x: np.ndarray) -> np.ndarray:
        """(columns,) logarithms of odds for one row (d,) float32, C-contiguous."""
        compiled = self._compile() if self._compiled is None else self._compiled
        return self.decide(x[None])[0] if compiled is None else compiled.decide(x)

    def learn_one(self, x: np.ndarray, y: np.ndarray, weight: float) -> None:
        """One step for the row of the last `decide_one`. y (columns,) float64: -1 or +1."""
        compiled = self._compile() if self._compiled is None else self._compiled
        if compiled is None:
            Y, weights = y[None], np.array([weight])
            self.weigh(self.learn(x[None], Y, weights), Y, weights)
            return
        compiled.learn(x, y, weight)

    @property
    def _is_compiled(self) -> bool:
        """Whether `models.one_row` can decide and learn."""
        return self.kernels[0].is_rbf

    def _compile(self) -> _Compiled | None:
        """The functions of `models.one_row`, bound to this pool's arrays; None if it cannot take these kernels."""
        if not self._is_compiled:
            return None
        kernels = list(map(self._compiled_kernel, self.kernels))
        scaling, coefficients, pool = map(arrays_of, (self.scaling, self.additive, self.pool))
        row, buffers = self.additive.row(), buffers_for(self.d, len(self.pool.v), self.columns)
        kernels += kernels[-1:] * (len(WIDTHS) - len(kernels))  # one type, so it is compiled once
        arrays = scaling, coefficients, row, pool, tuple(kernels), self.kernels[0].maintenance, buffers
        self._compiled = _compiled(self.d, self.columns, arrays)
        return self._compiled

    def _compiled_kernel(self, learner: BudgetLearner) -> tuple[Any, ...]:
        """A learner in `CompiledPool.kernels`."""
        W, F = np.empty((len(learner.A), 1), np.float32), np.empty((self.columns, 1))
        return supports_of(learner), learner.step_options, W, F

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"_compiled": None}

    def learn(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step of each expert for each row (m, d), in order; its decisions before, (experts, m, columns). The pool
        learns them in `weigh`. No expert needs another one, so that each has a thread."""
        Z = self.scaling.learn(X)
        D = np.empty((len(self.pool.v), *Y.shape))

        def learn(expert: int, _: int) -> None:
            if expert == len(self.kernels):
                D[: len(TRACKS)] = self.additive.learn(Z, _codes(Y), weight)
                return
            learner, out = self.kernels[expert], D[len(TRACKS) + expert]
            if self._is_compiled and self.d <= ROW_BY_ROW:
                learn_kernel(Z, Y, weight, self._compiled_kernel(learner), learner.maintenance, one_row_block(), out)
            else:
                out[:] = learner.learn(Rows(Z), Y, weight)

        strips(learn, len(self.kernels) + 1, 1, _threads() if len(X) >= WORTH_A_THREAD else 1)
        return D

    def weigh(self, D: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """The pool's step for each row of the result of `learn`, up to one where it is alarmed; its decisions before,
        (rows, columns)."""
        return self.pool.learn(D, len(TRACKS), _codes(Y), weight)

    def decide(self, X: np.ndarray) -> np.ndarray:
        """(m, columns) logarithms of odds of raw rows."""
        return self.decide_scaled(self.scaling.scale(X))

    def decide_scaled(self, Z: np.ndarray) -> np.ndarray:
        return self.pool.decide(self.each(Z), len(TRACKS))

    def each(self, Z: np.ndarray) -> np.ndarray:
        """(experts, m, columns) the decisions of each expert for scaled rows."""
        of_kernels = [learner.decide(Rows(Z)) for learner in self.kernels]
        return np.concatenate([self.additive.decide(Z), of_kernels])

    def settle(self) -> None:
        """Called when its rows have doubled: widths follow the columns' variances, and once it has shown which
        kernels are right, the others go."""
        self._compiled = None
        while self.n >= SHOWN and len(self.kernels) > KEPT:
            worst = int(np.argmax(self.pool.losses[len(TRACKS) :]))
            self.pool.drop(len(TRACKS) + worst)
            del self.kernels[worst], self.experts[worst]
        for expert, learner in zip(self.experts, self.kernels, strict=True):
            if expert.factor is not None:
                learner.set_gamma(expert.factor / (self.scaling.spread or 1.0))

    def widen(self, d: int) -> None:
        self.d, self._compiled = d, None
        self.scaling.widen(d)
        self.additive.widen(d)
        for learner in self.kernels:
            learner.widen(d)

    def add_column(self) -> None:
        self._compiled = None
        self.additive.add_column()
        for learner in self.kernels:
            learner.add_column()

    def now(self) -> tuple[Expert, ...]:
        """The experts, with their present gammas."""
        kernels = (learner.kernel for learner in self.kernels)
        return tuple(replace(e, kernel=kernel) for e, kernel in zip(self.experts, kernels, strict=True))

    def to_state(self) -> dict[str, np.ndarray]:
        """Arrays that `restore` reads."""
        parts: dict[str, Any] = {"scaling": self.scaling, "additive": self.additive, "pool": self.pool}
        parts |= {f"kernel{i}": learner for i, learner in enumerate(self.kernels)}
        states = {name: part.to_state() for name, part in parts.items()}
        return {f"{name}_{key}": array for name, state in states.items() for key, array in state.items()}

    def restore(self, state: Arrays) -> Self:
        """Restores a state of `to_state`."""
        for i, learner in enumerate(self.kernels):
            learner.restore(part_of(f"kernel{i}", state))
        self.scaling.restore(part_of("scaling", state))
        self.additive.restore(part_of("additive", state))
        self.pool.restore(part_of("pool", state))
        return self


def _compiled(d: int, columns: int, arrays: tuple[Any, ...]) -> _Compiled:
    """Plain functions over a `CompiledPool` of these arrays: of compiled ones, river would count 11 MB of the
    compiler's as the model's memory."""
    x, y, compiled = np.empty(d, np.float32), np.empty(columns), bind(*arrays)
    decide_direct, learn_direct = (direct(decide_pooled, x, compiled, y), direct(learn_pooled, x, y, 1.0, compiled))

    def decide(x: np.ndarray) -> np.ndarray:
        out = np.empty(columns)
        decide_direct(x, compiled, out)
        return out

    def learn(x: np.ndarray, y: np.ndarray, weight: float, _alive: object = arrays) -> None:
        learn_direct(x, y, weight, compiled)

    return _Compiled(decide, learn)


@cache
def _threads() -> int:
    return cores()


def part_of(name: str, state: Arrays) -> dict[str, np.ndarray]:
    """The entries under one prefix."""
    return {key.removeprefix(f"{name}_"): state[key] for key in state if key.startswith(f"{name}_")}


def _codes(Y: np.ndarray) -> np.ndarray:
    """(m,) the class of rows of targets Y (m, columns)."""
    return (Y[:, 0] > 0).astype(np.int64) if Y.shape[1] == 1 else np.argmax(Y, axis=1)
