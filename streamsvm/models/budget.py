"""Models of learners on a budget, which can continue learning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.columns import StreamColumns
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.models.pooled import part_of
from streamsvm.models.shapes import Expansion
from streamsvm.storage.arrays import Arrays, Attrs, State


@dataclass(frozen=True, repr=False)
class BudgetModel(StreamColumns, Model):
    """f_c(x) = sum_j coef_jc K(x, s_j) + bias_c, one column for two classes, else one for each class against the rest.
    For regression the one column is the answer; for one class it is below 0 for outliers. It holds the learner's whole
    state, so that learning can continue from a saved model."""

    kind: ClassVar[str] = "budget"
    header: Header
    support: Rows
    coef: np.ndarray  # (s, columns)
    bias: np.ndarray  # (columns,)
    options: BudgetOptions
    state: Arrays  # of the learner, see BudgetLearner.to_state
    stream: Attrs | None = None  # what an online learner adds: features, labels, calibration
    task: str = "classify"

    @classmethod
    def of(
        cls, header: Header, learner: BudgetLearner, stream: Attrs | None = None, task: str = "classify"
    ) -> BudgetModel:
        """The model of a learner's present state; the learner may continue."""
        state = {name: array.copy() for name, array in learner.to_state().items()}
        return cls(header, learner.supports(), *learner.coefficients(), learner.options, state, stream, task)

    @property
    def n_support(self) -> int:
        return len(self.support)

    def learner(self) -> BudgetLearner:
        """A learner that continues from the point at which the model was taken."""
        learner = BudgetLearner(self.header.kernel, self.header.scaling.width, len(self.bias), self.options)
        learner.restore(self.state)
        return learner

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        return self.header.kernel.apply(rows, self.support, self.coef) + self.bias

    def as_expansion(self) -> Expansion:
        return Expansion(self.header.kernel, self.header.scaling, self.support, self.coef, self.bias)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        arrays |= {f"learner_{name}": np.asarray(array) for name, array in self.state.items()}
        attrs |= {"options": asdict(self.options), "stream": self.stream, "task": self.task}
        return arrays | {"coef": self.coef, "bias": self.bias}, attrs

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> BudgetModel:
        header, options = Header.from_state(arrays, attrs), BudgetOptions(**attrs["options"])
        state = part_of("learner", arrays)
        support, task = Rows(np.asarray(state["X"])), known_task(attrs.get("task", "classify"))
        coef, bias = np.asarray(arrays["coef"]), np.asarray(arrays["bias"])
        return cls(header, support, coef, bias, options, state, attrs["stream"], task)
