"""The protocol every solver follows, and the one outer loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Solver(Protocol):
    """An oracle, a state and a step; the state is arrays and scalars, so saving it is saving the run."""

    def init(self, problem: Any) -> Any: ...

    def step(self, problem: Any, state: Any) -> Any: ...


def run(
    solver: Solver,
    problem: Any,
    state: Any = None,
    *,
    stop: Callable[[Any], bool],
    on_step: Callable[[Any], None] = lambda state: None,
) -> Any:
    """Steps until `stop(state)`, from `state` or from the solver's own start."""
    state = solver.init(problem) if state is None else state
    while not stop(state):
        state = solver.step(problem, state)
        on_step(state)
    return state
