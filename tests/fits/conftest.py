"""What tests of budgeted fits watch: the steps that learners take, on a clock that runs with these alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from streamsvm.models.learner import BudgetLearner


@dataclass
class Lessons:
    """Each call of `learn`: the factors on its steps, of rows without weights. It takes so many seconds on a clock that
    stands still otherwise, and is the real one while seconds are 0."""

    factors: list[np.ndarray] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # steps before each call
    seconds: float = 0.0
    now: float = 1000.0


@pytest.fixture
def lessons(monkeypatch) -> Lessons:
    seen, learn, real = Lessons(), BudgetLearner.learn, time.time

    def watched(learner, rows, Y, weight, threads):
        seen.factors.append(weight)
        seen.starts.append(learner.t)
        seen.now += seen.seconds
        return learn(learner, rows, Y, weight, threads)

    monkeypatch.setattr(BudgetLearner, "learn", watched)
    monkeypatch.setattr(time, "time", lambda: seen.now if seen.seconds else real())
    return seen
