"""The score that a search expects of its choice, and the rows that it held out to estimate it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.judging.expected import ExpectedScore
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.base import LabelScale


class Decider(Protocol):
    """A model, with the methods that its score needs."""

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def answers_from(self, binary: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...


@dataclass(frozen=True)
class SearchExpectation(SizedInBytes):
    """The score that a search expects of the model, and the rows as stored (h, d) that this is based on.

    The model may learn from these rows: if it decides them worse than is expected of new ones, its fit has failed.
    samples: their targets, with the weights of their scores, sample by sample.
    """

    rows: Rows
    samples: Sequence[DualData]
    expected: ExpectedScore

    def losses(self, model: Decider, units: LabelScale, decided: np.ndarray | None = None) -> np.ndarray:
        """(h,) losses of a model. decided (h, pairs): its decision values, if its arrays are in a file."""
        if not self.samples[0].task.has_classes:
            values = model.answers(self.rows)[0] if decided is None else decided[:, 0]
            predicted = (values - units.offset) / units.scale
        else:
            answers = model.answers(self.rows) if decided is None else model.answers_from(decided, self.rows)
            predicted = model.codes_of(*answers)
        ends = np.cumsum([len(sample.upper) for sample in self.samples])[:-1]
        return np.concatenate(
            [losses_of(part, sample) for part, sample in zip(np.split(predicted, ends), self.samples, strict=True)]
        )


def losses_of(predicted: np.ndarray, held_out_data: DualData) -> np.ndarray:
    """(h,) losses of held-out rows by their predicted codes or scaled numbers: 0 or 1 for classes, the mean over
    several labels of a row, squared errors over the variance of numbers.

    They are weighted as rows are; 1 less their mean is the accuracy, or R2.
    """
    task = held_out_data.task
    if task.has_classes:
        wrong = predicted != task.truth(held_out_data.targets)
        cost = held_out_data.upper[:, None] * held_out_data.targets.weights
        losses = cost * wrong.reshape(len(wrong), -1)
        return np.asarray(losses.mean(axis=1) / cost.mean())
    t, weights = _numbers(held_out_data), held_out_data.upper / held_out_data.upper.mean()
    mean = float(np.average(t, weights=weights))
    spread = float(np.average((t - mean) ** 2, weights=weights))
    return np.asarray(weights * (t - predicted) ** 2 / max(spread, np.finfo(np.float64).tiny))


def _numbers(dual_data: DualData) -> np.ndarray:
    """(m,) scaled numbers t of rows of task regress: half of (epsilon + t) - (epsilon - t)."""
    linear = dual_data.targets.linear
    assert linear is not None  # of a task without pairs
    return 0.5 * (linear[:, 1] - linear[:, 0])
