"""Rows that a search held out, by which it promises how well the model with its choice will decide."""

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
    """A model, as far as its score needs it."""

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def answers_from(self, binary: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...


@dataclass(frozen=True)
class SearchExpectation(SizedInBytes):
    """What a search expects of the model, and the rows as stored (h, d) that this is based on.

    The model may learn from these rows, so if it decides them worse than is expected of new ones, it is not the model
    that was chosen. samples: their targets, with the weights of their scores, sample by sample.
    """

    rows: Rows
    samples: Sequence[DualData]
    expected: ExpectedScore

    def losses(self, model: Decider, units: LabelScale, decided: np.ndarray | None = None) -> np.ndarray:
        """(h,) losses of a model. decided (h, pairs): its decision values, if its arrays are in a file."""
        if not self.samples[0].task.has_classes:
            values = model.answers(self.rows)[0] if decided is None else decided[:, 0]
            found = (values - units.offset) / units.scale
        else:
            answers = model.answers(self.rows) if decided is None else model.answers_from(decided, self.rows)
            found = model.codes_of(*answers)
        ends = np.cumsum([len(own.upper) for own in self.samples])[:-1]
        return np.concatenate(
            [losses_of(one, own) for one, own in zip(np.split(found, ends), self.samples, strict=True)]
        )


def losses_of(found: np.ndarray, of_held: DualData) -> np.ndarray:
    """(h,) losses of held-out rows by codes or scaled numbers that were found for them: 0 or 1 of classes, of several
    labels a row their mean, squared errors over the variance of numbers.

    They are weighted as rows are; 1 less their mean is the accuracy, or R2.
    """
    task = of_held.task
    if task.has_classes:
        wrong = found != task.truth(of_held.targets)
        cost = of_held.upper[:, None] * of_held.targets.weights
        losses = cost * wrong.reshape(len(wrong), -1)
        return np.asarray(losses.mean(axis=1) / cost.mean())
    t, weights = _numbers(of_held), of_held.upper / of_held.upper.mean()
    mean = float(np.average(t, weights=weights))
    spread = float(np.average((t - mean) ** 2, weights=weights))
    return np.asarray(weights * (t - found) ** 2 / max(spread, np.finfo(np.float64).tiny))


def _numbers(asked: DualData) -> np.ndarray:
    """(m,) the scaled numbers that rows of task regress are learned by: half of epsilon + t less epsilon - t."""
    linear = asked.targets.linear
    assert linear is not None  # of a task without pairs
    return 0.5 * (linear[:, 1] - linear[:, 0])
