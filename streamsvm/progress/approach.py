"""How close an iteration is to its tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamsvm.events import Events, Phase, Round


class Approach:
    """How close a violation or gap, which falls about geometrically, is to `tol`, as a share of the distance from its
    first value.

    In [0, 0.999]. The share never falls, even if the number rises for a while. The caller reports the end.
    """

    def __init__(self, tol: float) -> None:
        self._tol, self._first, self._share = tol, math.nan, 0.0

    def __call__(self, value: float) -> float:
        if math.isnan(self._first) and self._tol < value < math.inf:
            self._first = value
        if 0 < value <= self._first:
            share = math.log(self._first / value) / math.log(self._first / self._tol)
            self._share = max(self._share, min(share, 0.999))
        return self._share


class Approaches:
    """As `Approach`, for problems solved one after the other: the finished ones, and the share of the current one."""

    def __init__(self, tol: float) -> None:
        self._tol, self._problem, self._approach = tol, -1, Approach(tol)

    def __call__(self, problem: int, value: float) -> float:
        if problem != self._problem:
            self._problem, self._approach = problem, Approach(self._tol)
        return problem + self._approach(value)


class Rounds:
    """Reports problems that are solved one after the other in rounds: each round, and the progress of all.

    facts: the fields of a `Round`, with `violation`. tol: the violation at which a problem ends.
    """

    def __init__(self, events: Events, phase: Phase, total: int, tol: float) -> None:
        self._events, self._phase, self._total = events, phase, total
        self._done = Approaches(tol)

    def __call__(self, problem: int, facts: Mapping[str, Any]) -> None:
        done = self._done(problem, facts["violation"])
        self._events(Round(self._phase, problem, **facts))
        shown = {name: facts[name] for name in ("round", "violation", "gap") if name in facts}
        self._events.progress(self._phase, done, self._total, **shown)

    def end(self) -> None:
        self._events.progress(self._phase, float(self._total), self._total)
