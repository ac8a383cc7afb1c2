"""The one outer loop: when it ends."""

from __future__ import annotations

import time

import pytest

from streamsvm.solvers.loop import is_late, run


class Counting:
    """Counts its steps, which take as long as the problem says."""

    def init(self, problem: float) -> int:
        return 0

    def step(self, problem: float, state: int) -> int:
        time.sleep(problem)
        return state + 1


def never(state: int) -> bool:
    return False


@pytest.mark.parametrize("least", [1, 3])
def test_where_time_is_up_the_least_steps_are_made_and_no_more(least):
    assert run(Counting(), 0.0, stop=never, until=0.0, least=least) == least
    assert run(Counting(), 0.0, stop=lambda state: state >= 2, until=0.0, least=9) == 2
    assert run(Counting(), 0.0, 7, stop=lambda state: True, until=0.0) == 7


def test_no_step_is_begun_that_would_end_late():
    began = time.time()
    steps = run(Counting(), 0.3, stop=never, until=began + 1.0)
    assert 1 <= steps <= 3
    assert time.time() - began < 1.0 + 0.3  # a busy machine may make one step longer than the last
    assert not is_late(None, 1e9)


def test_without_a_time_it_ends_where_it_stops():
    assert run(Counting(), 0.0, stop=lambda state: state == 50) == 50
