"""The protocol every solver follows, and the one outer loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

Problem = TypeVar("Problem")
State = TypeVar("State")
Given = TypeVar("Given", contravariant=True)


class Solver(Protocol[Given, State]):
    """An oracle, a state and a step; the state is arrays and numbers, so saving it is saving the run."""

    def init(self, problem: Given) -> State: ...

    def step(self, problem: Given, state: State) -> State: ...


def run(
    solver: Solver[Problem, State],
    problem: Problem,
    state: State | None = None,
    *,
    stop: Callable[[State], bool],
    on_step: Callable[[State], object] = lambda state: None,
    until: float | None = None,
    least: int = 1,
) -> State:
    """Steps until `stop(state)`, from `state` or from the solver's own start. until: time.time(); no step follows that
    would pass it if as long as the last one. least: steps that are made all the same, as the start of a solver decides
    nothing."""
    state = solver.init(problem) if state is None else state
    while not stop(state):
        began = time.time()
        state = solver.step(problem, state)
        on_step(state)
        least -= 1
        if least <= 0 and is_late(until, time.time() - began):
            break
    return state


def is_late(until: float | None, step_s: float = 0.0) -> bool:
    """Whether `until`, a time.time(), is past; or will be after a step of so many seconds."""
    return until is not None and time.time() + step_s > until
