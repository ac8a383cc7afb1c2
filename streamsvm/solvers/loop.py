"""The protocol every solver follows, and the one outer loop."""

from __future__ import annotations

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
) -> State:
    """Steps until `stop(state)`, from `state` or from the solver's own start."""
    state = solver.init(problem) if state is None else state
    while not stop(state):
        state = solver.step(problem, state)
        on_step(state)
    return state
