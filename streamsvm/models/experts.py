"""A pool of parallel learners: none of their parameters has to be known before a stream begins.

Rows are standardised as they come. Additive functions of the columns with three step sizes, and budgeted kernel
expansions of several widths and lambdas, learn each row by the logistic loss, each separately. A pool weights their
outputs by how right they were. The worst kernels are dropped once the stream has shown which these are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.running import LARGEST, RunningScaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.models.base import Header, Model
from streamsvm.models.columns import StreamColumns
from streamsvm.models.learner import BudgetOptions, BudgetStats, together
from streamsvm.models.pooled import Expert, ExpertPool, part_of
from streamsvm.models.shapes import Expansion
from streamsvm.solvers.additive import TRACKS
from streamsvm.solvers.pooling import LOOK
from streamsvm.storage.arrays import Arrays, Attrs, State, packed, unpacked

TRIAL = 2048  # rows after which a second pool that is no better goes
BEHIND = 25.0  # or once its loss is so much larger, in nats
BLOCK = 1024  # rows that experts learn at once
SETS = ("experts", "first", "second")  # of a model


class ExpertsLearner:
    """A pool that decides and, once its errors rise, a second pool that begins then. The second takes its place as
    soon as its loss, summed over the rows that both have learned, is lower, and goes when it falls far behind: a chance
    run of errors costs a few hundred rows of work and no accuracy. Learning from a restored state is bitwise the same,
    if rows come in the same blocks.

    t: rows learned. alarms: second pools that began. switches: those that took over."""

    def __init__(self, experts: Sequence[Expert], d: int, columns: int) -> None:
        self.experts = tuple(experts)
        self.first = ExpertPool(experts, d, columns)
        self.second: ExpertPool | None = None
        self.d = d
        self.t = self.alarms = self.switches = 0
        self._left = 0  # rows until something may change

    @property
    def kernel(self) -> Kernel:
        """That of the most weight."""
        return self.first.kernels[int(np.argmax(self.first.pool.v[len(TRACKS) :]))].kernel

    @property
    def scaling(self) -> RunningScaling:
        return self.first.scaling

    @property
    def columns(self) -> int:
        return self.first.columns

    @property
    def drifts(self) -> dict[str, int]:
        return {"alarms": self.alarms, "switches": self.switches}

    @property
    def _pools(self) -> list[ExpertPool]:
        return [self.first] if self.second is None else [self.first, self.second]

    @property
    def n_support(self) -> int:
        """Of all kernels that decide."""
        return sum(learner.n_support for learner in self.first.kernels)

    def stats(self) -> BudgetStats:
        return replace(together([learner.stats() for learner in self.first.kernels]), steps=self.t)

    def decide(self, rows: Rows) -> np.ndarray:
        """(m, columns) logarithms of odds of raw rows."""
        return self.first.decide(rows.dense())

    def decide_one(self, x: np.ndarray) -> tuple[np.ndarray, None]:
        """(columns,) logarithms of odds for one row (d,); None, as `learn_one` needs no values of it."""
        return self.first.decide_one(x), None

    def learn_one(self, x: np.ndarray, values: None, y: np.ndarray, weight: float = 1.0) -> None:
        """One step for the row of the last `decide_one`. y (columns,): -1 or +1."""
        self.first.learn_one(x, y, weight)
        if self.second is not None:
            self.second.decide_one(x)
            self.second.learn_one(x, y, weight)
        self._passed(1)

    def learn(self, rows: Rows, Y: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """One step for each row (m, d), in order; its decision before its step, (m, columns)."""
        X, out, start = rows.dense(), np.empty(Y.shape), 0
        while start < len(X):
            block = slice(start, start + min(BLOCK, self.first.to_settle))
            start += self._learn_block(X[block], Y[block], weight[block], out[block])
        return out

    def _learn_block(self, X: np.ndarray, Y: np.ndarray, weight: np.ndarray, out: np.ndarray) -> int:
        """Steps up to a row where the second pool takes over; returns their number. The experts of the first pool learn
        the whole block before their pool does: their steps do not depend on it."""
        first, done = self.first, 0
        D = first.learn(X, Y, weight)
        while done < len(X) and self.first is first:
            part = slice(done, len(X) if self.second is None else done + self._to_next)
            decisions = first.weigh(D[:, part], Y[part], weight[part])
            part = slice(done, done + len(decisions))
            out[part] = decisions
            if self.second is not None:
                of_experts = self.second.learn(X[part], Y[part], weight[part])
                self.second.weigh(of_experts, Y[part], weight[part])
            self._passed(len(decisions))
            done = part.stop
        return done

    @property
    def _to_next(self) -> int:
        """Rows until something may change."""
        return min(LOOK - self.t % LOOK, *(pooled.to_settle for pooled in self._pools))

    def _passed(self, rows: int) -> None:
        """Called after steps."""
        self.t += rows
        self._left -= rows
        if self._left > 0:
            return
        for pooled in self._pools:
            if pooled.to_settle == pooled.n:
                pooled.settle()
        if self.t % LOOK == 0:
            self._watch()
        self._left = self._to_next

    def _watch(self) -> None:
        """Begins a second pool if the first one's errors rise; later it replaces the first, or is dropped."""
        if self.second is None:
            if self.first.pool.is_alarmed:
                self.alarms += 1
                self.first.pool.count_anew()
                self.second = ExpertPool(self.experts, self.d, self.columns)
            return
        behind = self.second.pool.loss - self.first.pool.loss
        if behind < 0:
            self.switches += 1
            self.first, self.second = self.second, None
        elif behind > BEHIND or self.second.n >= TRIAL:
            self.second = None

    def widen(self, d: int) -> None:
        """Room for d columns."""
        self.d = d
        for pooled in self._pools:
            pooled.widen(d)

    def add_column(self) -> None:
        """One more class; the third one turns the single column into one for each class."""
        for pooled in self._pools:
            pooled.add_column()


@dataclass(frozen=True, repr=False)
class ExpertsModel(StreamColumns, Model):
    """The state of an `ExpertsLearner`, which decides, and from which learning can continue. Decision values are
    logarithms of odds, of the second class, or of each against the rest."""

    kind: ClassVar[str] = "experts"
    header: Header
    experts: tuple[Expert, ...]  # that a stream begins with
    first: tuple[Expert, ...]  # that decide
    second: tuple[Expert, ...]  # that learn with them; none if nothing has changed
    columns: int
    state: Arrays  # of both, and the counts
    stream: Attrs  # features, labels, and what else the stream keeps

    @classmethod
    def of(cls, header: Header, learner: ExpertsLearner, stream: Attrs) -> ExpertsModel:
        """The model of a learner's present state; the learner may continue."""
        state = {"counts": np.array([learner.t, learner.alarms, learner.switches])}
        pools = {"first": learner.first, "second": learner.second}
        for name, pooled in pools.items():
            if pooled is not None:
                state |= {f"{name}_{key}": array.copy() for key, array in pooled.to_state().items()}
        second = () if learner.second is None else learner.second.now()
        return cls(header, learner.experts, learner.first.now(), second, learner.columns, state, stream)

    @property
    def n_support(self) -> int:
        return sum(learner.n_support for learner in self._deciding.kernels)

    @property
    def options(self) -> BudgetOptions:
        """Of the first of its kernels."""
        return self.experts[0].options

    def learner(self) -> ExpertsLearner:
        """A learner that continues from the point at which the model was taken."""
        learner = ExpertsLearner(self.experts, self.header.d, self.columns)
        learner.t, learner.alarms, learner.switches = np.asarray(self.state["counts"]).tolist()
        learner.first = self._pooled("first", self.first)
        learner.second = self._pooled("second", self.second) if self.second else None
        return learner

    def _pooled(self, name: str, experts: tuple[Expert, ...]) -> ExpertPool:
        return ExpertPool(experts, self.header.d, self.columns).restore(part_of(name, self.state))

    @cached_property
    def _deciding(self) -> ExpertPool:
        return self._pooled("first", self.first)

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        return self._deciding.decide_scaled(self.bounded(self.header.scaling.apply(rows)))

    @staticmethod
    def bounded(scaled: Rows) -> np.ndarray:
        """(m, d) float32 scaled rows as experts see them."""
        return np.ascontiguousarray(scaled.dense().clip(-LARGEST, LARGEST), np.float32)

    def as_expansion(self) -> Expansion:
        raise ModelError(
            "the model pools additive functions with kernel expansions, so it is not a single expansion; "
            "give lambda and gamma for one"
        )

    def as_pooled(self) -> ExpertPool:
        return self._deciding

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        state, attrs["packed"] = packed({name: np.asarray(array) for name, array in self.state.items()})
        arrays |= {f"learner_{dtype}": array for dtype, array in state.items()}
        for name in SETS:
            attrs[name] = [expert.to_attrs() for expert in getattr(self, name)]
        return arrays, attrs | {"columns": self.columns, "stream": self.stream}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> ExpertsModel:
        sets = {name: tuple(map(Expert.from_attrs, attrs[name])) for name in SETS}
        header, state = Header.from_state(arrays, attrs), part_of("learner", arrays)
        if "packed" in attrs:  # not by versions before 0.2
            state = unpacked(state, attrs["packed"])
        return cls(header, **sets, columns=attrs["columns"], state=state, stream=attrs["stream"])
