"""Linear models, of the features or of landmarks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.kernels.inner import Linear
from streamsvm.models.base import Header, Model, known_task
from streamsvm.models.shapes import Expansion
from streamsvm.problems.products import times
from streamsvm.storage.arrays import Arrays, Attrs, State


@dataclass(frozen=True, repr=False)
class LinearModel(Model):
    """f_c(x) = w_c'x + b_c, one column for two classes, else one for each class against the rest.

    With landmarks z_j (Nystroem), f_c(x) = sum_j w_cj K(x, z_j) + b_c. Of a task with thresholds: one column, and the
    code of a row is the number of thresholds below it; of a task without labels: the score is the answer.
    """

    kind: ClassVar[str] = "linear"
    header: Header
    coef: np.ndarray  # (d or landmarks, columns)
    intercept: np.ndarray  # (columns,)
    task: str = "classify"
    thresholds: np.ndarray = field(default_factory=lambda: np.empty(0))  # (k - 1,) rising, see Task.thresholds
    landmarks: Rows | None = None

    def binary_decisions(self, rows: Rows) -> np.ndarray:
        """(m, columns) decision values; rows are raw."""
        rows = self.header.scaling.apply(rows)
        if self.landmarks is None:
            return times(rows, self.coef) + self.intercept
        return self.header.kernel.apply(rows, self.landmarks, self.coef) + self.intercept

    def as_expansion(self) -> Expansion:
        kernel, scaling = self.header.kernel, self.header.scaling
        if self.landmarks is not None:
            return Expansion(kernel, scaling, self.landmarks, self.coef, self.intercept)
        rows = Rows(self.coef.T.copy())  # w is its own support row
        return Expansion(Linear(), scaling, rows, np.eye(len(rows)), self.intercept, of_rows=False)

    def to_state(self) -> State:
        arrays, attrs = self.header.to_state()
        arrays |= {"coef": self.coef, "intercept": self.intercept, "thresholds": self.thresholds}
        if self.landmarks is not None:
            arrays |= rows_state("landmarks", self.landmarks)
        return arrays, attrs | {"task": self.task, "has_landmarks": self.landmarks is not None}

    @classmethod
    def from_state(cls, arrays: Arrays, attrs: Attrs) -> LinearModel:
        header = Header.from_state(arrays, attrs)
        landmarks = rows_from_state("landmarks", arrays, header.scaling.width) if attrs["has_landmarks"] else None
        coef, intercept, thresholds = (np.asarray(arrays[n]) for n in ("coef", "intercept", "thresholds"))
        return cls(header, coef, intercept, known_task(attrs["task"]), thresholds, landmarks)
