"""The one outer loop: when it ends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from streamsvm.solvers import loop
from streamsvm.solvers.loop import is_late, run


class Counting:
    """Counts its steps, which take as long by `clock` as the problem says."""

    clock = 0.0

    def init(self, problem: float) -> int:
        return 0

    def step(self, problem: float, state: int) -> int:
        self.clock += problem
        return state + 1


def never(state: int) -> bool:
    return False


@pytest.mark.parametrize("least", [1, 3])
def test_where_time_is_up_the_least_steps_are_made_and_no_more(least):
    assert run(Counting(), 0.0, stop=never, until=0.0, least=least) == least
    assert run(Counting(), 0.0, stop=lambda state: state >= 2, until=0.0, least=9) == 2
    assert run(Counting(), 0.0, 7, stop=lambda state: True, until=0.0) == 7


@pytest.mark.parametrize(("step_s", "steps"), [(0.25, 4), (0.3, 3), (0.6, 1), (9.0, 1)])
def test_no_step_is_begun_that_would_end_late(step_s, steps, monkeypatch):
    solver = Counting()
    monkeypatch.setattr(loop, "time", SimpleNamespace(time=lambda: solver.clock))
    assert run(solver, step_s, stop=never, until=1.0) == steps
    assert not is_late(None, 1e9)


def test_without_a_time_it_ends_where_it_stops():
    assert run(Counting(), 0.0, stop=lambda state: state == 50) == 50
