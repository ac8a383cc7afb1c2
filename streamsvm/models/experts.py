"""Learners side by side, pooled: no parameter of any of them has to be known before a stream begins.

Rows are standardised as they come. Additive functions of the columns with three step sizes, and budgeted kernel
expansions of several widths and lambdas, learn each row by the logistic loss, each on its own; a pool weighs what they
say by how right it was. Of the kernels the least right ones are left out when the stream has shown which these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamsvm.data.layout import Layout
from streamsvm.data.names import Names
from streamsvm.data.rows import Rows
from streamsvm.data.running import LARGEST, RunningScaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.models.base import Header, Model
from streamsvm.models.learner import BudgetLearner, BudgetOptions, BudgetStats, together
from streamsvm.models.shapes import Expansion
from streamsvm.solvers.additive import TRACKS, AdditiveLearner
from streamsvm.solvers.one_row import learn as learn_row
from streamsvm.solvers.one_row import meet
from streamsvm.solvers.pooling import Pool

WIDTHS = (1.0, 4.0, 16.0)  # gamma, times 1 / (sum of the scaled columns' variances)
LAMBDAS = (1e-5, 1e-4, 1e-3)  # of these widths: narrow kernels are regularised more
SHOWN = 2048  # rows after which it has shown which kernels are right
KEPT = 2  # kernels, from there on
BEAT = 128  # rows from one look at the errors to the next
TRIAL = 2048  # rows after which a second pool that is no better goes
ROWS, ALARMS, SWITCHES = range(3)  # counts
OUT = 2  # in the room of `Parts`
SETS = ("experts", "first", "second")  # of a model


@dataclass(frozen=True)
class Expert:
    """A kernel expansion on a budget. factor: gamma times the sum of the columns' variances; None: gamma is fixed."""

    kernel: Kernel
    options: BudgetOptions
    factor: float | None = None

    def to_attrs(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel.to_attrs(),
            "options": asdict(self.options),
            "factor": self.factor,
        }

    @classmethod
    def from_attrs(cls, attrs: Mapping[str, Any]) -> Expert:
        return cls(kernel_from(attrs["kernel"]), BudgetOptions(**attrs["options"]), attrs["factor"])


def side_by_side(
    kernel: Kernel, options: BudgetOptions, lam: float | None, gamma: float | str | None, *, has_gamma: bool
) -> list[Expert]:
    """Experts of several widths and lambdas; those that are given are fixed. gamma: a number, or text where it follows
    the columns' variances."""
    lambdas = LAMBDAS if lam is None else (lam,) * len(WIDTHS)
    fixed = None if isinstance(gamma, float | int) or not has_gamma else 1.0
    widths = WIDTHS if gamma is None and has_gamma else (fixed,) * len(LAMBDAS)
    pairs = zip(lambdas, widths, strict=True)
    return [Expert(kernel, replace(options, lam=lam), width) for lam, width in pairs]


class Parts(NamedTuple):
    """What `solvers.one_row` reads and changes, as plain tuples."""

    scaling: tuple[np.ndarray, ...]
    coefficients: tuple[np.ndarray, ...]
    pool: tuple[np.ndarray, ...]
    kernels: tuple[tuple[Any, ...], ...]
    room: tuple[np.ndarray, ...]


class Pooled:
    """Experts and their pool. They learn in place; rows are raw, NaN where a column is absent."""

    def __init__(self, experts: Sequence[Expert], d: int, columns: int) -> None:
        self.experts = list(experts)
        self.scaling = RunningScaling(d)
        self.additive = AdditiveLearner(d, columns)
        self.kernels = [BudgetLearner(e.kernel, d, columns, e.options) for e in experts]
        self.pool = Pool(len(TRACKS) + len(self.kernels))
        self._found: Parts | None = None
        self._of_row = np.empty(1, np.int64), np.empty(1)

    @property
    def n(self) -> int:
        """Rows learnt."""
        return int(self.scaling.n[0])

    @property
    def d(self) -> int:
        return len(self.scaling.counts)

    @property
    def columns(self) -> int:
        return self.additive.W.shape[2]

    def decide_one(self, x: np.ndarray) -> np.ndarray:
        """(columns,) logarithms of odds for one row (d,)."""
        parts = self._parts()
        if parts is None:
            return self.decide(x[None])[0]
        meet(x, *parts)
        return parts.room[OUT][0].copy()

    def learn_one(self, x: np.ndarray, y: np.ndarray, weight: float) -> None:
        """One step for the row that `decide_one` has just met. y (columns,): -1 or +1."""
        parts, Y, (code, weights) = self._parts(), y[None], self._of_row
        weights[0] = weight
        if parts is None:
            self.learn(x[None], Y, weights)
            return
        code[0] = y[0] > 0 if len(y) == 1 else y.argmax()
        learn_row(x, Y, code, weights, *parts, *self.kernels[0].ways)

    def _parts(self) -> Parts | None:
        """The arrays of an event's two compiled calls, found once; None where a kernel is none of theirs."""
        if self._found is None and all(learner.is_rbf for learner in self.kernels):
            kernels = []
            for learner in self.kernels:
                room = np.empty((len(learner.A), 1), np.float32), np.empty((self.columns, 1))
                kernels.append((*learner.compiled, *room))
            self._found = Parts(
                tuple(self.scaling.to_state().values()),
                tuple(self.additive.to_state().values()),
                tuple(self.pool.to_state().values()),
                tuple(kernels),
                (
                    np.empty((1, self.d), np.float32),
                    np.empty((len(TRACKS) + len(kernels), 1, self.columns)),
                    np.empty((1, self.columns)),
                    *self.additive.room(),
                    np.zeros(1, int),
                    np.zeros(1, int),
                    np.zeros((1, 1), np.float32),
                ),
            )
        return self._found

    def learn(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row (m, d), in order; its decision before its step, (m, columns)."""
        Z, codes = self.scaling.learn(X), _codes(Y)
        of_kernels = [learner.learn(Rows(Z), Y, weight) for learner in self.kernels]
        D = np.concatenate([self.additive.learn(Z, codes, weight), of_kernels])
        return self.pool.learn(D, len(TRACKS), codes, weight)

    def decide(self, X: np.ndarray) -> np.ndarray:
        """(m, columns) logarithms of odds of raw rows."""
        return self.decide_scaled(self.scaling.scale(X))

    def decide_scaled(self, Z: np.ndarray) -> np.ndarray:
        of_kernels = [learner.decide(Rows(Z)) for learner in self.kernels]
        return self.pool.decide(np.concatenate([self.additive.decide(Z), of_kernels]), len(TRACKS))

    def settle(self) -> None:
        """Called when the number of rows has doubled: widths follow the columns' variances, and once it has shown which
        kernels are right, the others go."""
        self._found = None
        while self.n >= SHOWN and len(self.kernels) > KEPT:
            worst = int(np.argmax(self.pool.losses[len(TRACKS) :]))
            self.pool.drop(len(TRACKS) + worst)
            del self.kernels[worst], self.experts[worst]
        for expert, learner in zip(self.experts, self.kernels, strict=True):
            if expert.factor is not None:
                learner.set_gamma(expert.factor / (self.scaling.spread or 1.0))

    def widen(self, d: int) -> None:
        self._found = None
        self.scaling.widen(d)
        self.additive.widen(d)
        for learner in self.kernels:
            learner.widen(d)

    def add_column(self) -> None:
        self._found = None
        self.additive.add_column()
        for learner in self.kernels:
            learner.add_column()

    def now(self) -> tuple[Expert, ...]:
        """The experts, with the gammas that they have come to."""
        kernels = (learner.kernel for learner in self.kernels)
        return tuple(replace(e, kernel=kernel) for e, kernel in zip(self.experts, kernels, strict=True))

    def to_state(self) -> dict[str, np.ndarray]:
        """Arrays that `restore` takes up."""
        parts: dict[str, Any] = {"scaling": self.scaling, "additive": self.additive, "pool": self.pool}
        parts |= {f"kernel{i}": learner for i, learner in enumerate(self.kernels)}
        return {
            f"{name}_{own}": array for name, part in parts.items() for own, array in part.to_state().items()
        }

    def restore(self, state: Mapping[str, Any]) -> Self:
        """Takes up a state that `to_state` gave."""
        for i, learner in enumerate(self.kernels):
            learner.restore(_of(f"kernel{i}", state))
        self.scaling.restore(_of("scaling", state))
        self.additive.restore(_of("additive", state))
        self.pool.restore(_of("pool", state))
        return self


class ExpertsLearner:
    """A pool that decides, and beside it, from where its errors rise, one that began there, which takes its place as
    soon as its loss is lower. Learning from a restored state is bitwise the same, where rows come in the same blocks.

    counts: rows learnt, ROWS; second pools that began, ALARMS; those that took over, SWITCHES.
    """

    def __init__(self, experts: Sequence[Expert], d: int, columns: int) -> None:
        self.experts = tuple(experts)
        self.first = Pooled(experts, d, columns)
        self.second: Pooled | None = None
        self.counts = np.zeros(3, np.int64)

    @property
    def kernel(self) -> Kernel:
        """That of the most weight."""
        return self.first.kernels[int(np.argmax(self.first.pool.v[len(TRACKS) :]))].kernel

    @property
    def scaling(self) -> RunningScaling:
        return self.first.scaling

    @property
    def d(self) -> int:
        return self.first.d

    @property
    def columns(self) -> int:
        return self.first.columns

    @property
    def drifts(self) -> tuple[int, int]:
        """Alarms and switches."""
        return int(self.counts[ALARMS]), int(self.counts[SWITCHES])

    @property
    def n_support(self) -> int:
        """Of all kernels that decide."""
        return sum(learner.n_support for learner in self.first.kernels)

    @property
    def t(self) -> int:
        """Rows learnt."""
        return int(self.counts[ROWS])

    def stats(self) -> BudgetStats:
        return replace(together([learner.stats() for learner in self.first.kernels]), steps=self.t)

    def decide(self, rows: Rows) -> np.ndarray:
        """(m, columns) logarithms of odds of raw rows."""
        return self.first.decide(rows.dense())

    def decide_one(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """(columns,) logarithms of odds for one row (d,), and what `learn_one` needs of it."""
        return self.first.decide_one(x), None

    def learn_one(self, x: np.ndarray, met: Any, y: np.ndarray, weight: float = 1.0) -> None:
        """One step for the row that `decide_one` has just met. y (columns,): -1 or +1."""
        self.first.learn_one(x, y, weight)
        if self.second is not None:
            self.second.decide_one(x)
            self.second.learn_one(x, y, weight)
        self._passed(1)

    def learn(self, rows: Rows, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row (m, d), in order; its decision before its step, (m, columns)."""
        X, found, start = rows.dense(), [], 0
        while start < len(X):
            here = slice(start, start + self._to_next(len(X) - start))
            found.append(self.first.learn(X[here], Y[here], weight[here]))
            if self.second is not None:
                self.second.learn(X[here], Y[here], weight[here])
            self._passed(here.stop - start)
            start = here.stop
        return np.concatenate(found)

    def _to_next(self, most: int) -> int:
        """Rows until something may change, at most so many."""
        steps = [most, BEAT - self.t % BEAT]
        for pooled in filter(None, (self.first, self.second)):
            steps.append((1 << pooled.n.bit_length()) - pooled.n)
        return min(steps)

    def _passed(self, rows: int) -> None:
        """After steps."""
        self.counts[ROWS] += rows
        for pooled in filter(None, (self.first, self.second)):
            if pooled.n & (pooled.n - 1) == 0:
                pooled.settle()
        if self.t % BEAT == 0:
            self._watch()

    def _watch(self) -> None:
        """Begins a second pool where the first one's errors rise; lets it take over, or go."""
        if self.second is None:
            if self.first.pool.is_alarmed:
                self.counts[ALARMS] += 1
                self.second = Pooled(self.experts, self.d, self.columns)
        elif self.second.n >= BEAT and self.second.pool.recent_loss < self.first.pool.recent_loss:
            self.counts[SWITCHES] += 1
            self.first, self.second = self.second, None
        elif self.second.n >= TRIAL:
            self.second = None

    def widen(self, d: int) -> None:
        """Room for d columns."""
        for pooled in filter(None, (self.first, self.second)):
            pooled.widen(d)

    def add_column(self) -> None:
        """One more class; the third one turns the single column into one for each class."""
        for pooled in filter(None, (self.first, self.second)):
            pooled.add_column()


@dataclass(frozen=True)
class ExpertsModel(Model):
    """What an `ExpertsLearner` knew when it was taken, with all that it needs to go on.

    Decision values are logarithms of odds, of the second class, or of each against the rest.
    """

    kind: ClassVar[str] = "experts"
    header: Header
    experts: tuple[Expert, ...]  # that a stream begins with
    first: tuple[Expert, ...]  # that decide
    second: tuple[Expert, ...]  # that learn beside them; none where nothing has changed
    columns: int
    state: Mapping[str, Any]  # of both, and the counts
    stream: dict[str, Any]  # features, labels, and what else the stream keeps

    @classmethod
    def of(cls, header: Header, learner: ExpertsLearner, stream: dict[str, Any]) -> ExpertsModel:
        """What a learner knows now; it may go on learning."""
        state, pools = {"counts": learner.counts.copy()}, {"first": learner.first, "second": learner.second}
        for name, pooled in pools.items():
            if pooled is not None:
                state |= {f"{name}_{own}": array.copy() for own, array in pooled.to_state().items()}
        second = () if learner.second is None else learner.second.now()
        return cls(header, learner.experts, learner.first.now(), second, learner.columns, state, stream)

    @property
    def n_support(self) -> int:
        return sum(learner.n_support for learner in self._deciding.kernels)

    @property
    def by_name(self) -> bool:  # type: ignore[override]
        return True

    @property
    def layout(self) -> Layout | None:
        return None  # streams have columns of their own

    @property
    def feature_names(self) -> Names | None:
        """Those it has met, in the order of their columns; there may be more columns, for those to come."""
        return tuple(map(str, self.stream["features"]))

    @property
    def options(self) -> BudgetOptions:
        """Of the first of its kernels."""
        return self.experts[0].options

    def learner(self) -> ExpertsLearner:
        """A learner that goes on where the model was taken."""
        learner = ExpertsLearner(self.experts, 0, self.columns)
        learner.counts[:] = np.asarray(self.state["counts"])
        learner.first = self._pooled("first", self.first)
        learner.second = self._pooled("second", self.second) if self.second else None
        return learner

    def _pooled(self, name: str, experts: tuple[Expert, ...]) -> Pooled:
        return Pooled(experts, self.header.d, self.columns).restore(_of(name, self.state))

    @cached_property
    def _deciding(self) -> Pooled:
        return self._pooled("first", self.first)

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        Z = self.header.scaling.apply(rows).dense().clip(-LARGEST, LARGEST)
        return self._deciding.decide_scaled(np.ascontiguousarray(Z, np.float32))

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model pools additive functions with kernel expansions, which is no single expansion; give lambda and "
            "gamma for one"
        )

    def to_state(self) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        arrays, attrs = self.header.to_state()
        arrays |= {f"learner_{name}": np.asarray(array) for name, array in self.state.items()}
        for name in SETS:
            attrs[name] = [expert.to_attrs() for expert in getattr(self, name)]
        return arrays, attrs | {"columns": self.columns, "stream": self.stream}

    @classmethod
    def from_state(cls, arrays: Mapping[str, Any], attrs: dict[str, Any]) -> ExpertsModel:
        sets = {name: tuple(map(Expert.from_attrs, attrs[name])) for name in SETS}
        header, state = Header.from_state(arrays, attrs), _of("learner", arrays)
        return cls(header, **sets, columns=attrs["columns"], state=state, stream=attrs["stream"])


def _of(name: str, state: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of one part."""
    return {key.removeprefix(f"{name}_"): state[key] for key in state if key.startswith(f"{name}_")}


def _codes(Y: np.ndarray) -> np.ndarray:
    """(m,) the class of rows of targets Y (m, columns)."""
    return (Y[:, 0] > 0).astype(np.int64) if Y.shape[1] == 1 else np.argmax(Y, axis=1)
