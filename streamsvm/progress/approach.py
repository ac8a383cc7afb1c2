"""How far what converges is on its way to its tolerance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from streamsvm.events import Events, Phase, Round


class Approach:
    """How far a number that falls about geometrically, a violation or a gap, is on its way from the first to `tol`.

    In [0, 0.999], and it never falls: the number may rise in between, and its end is told by others.
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
    """The same for problems that are solved one after the other: those behind it, and the share of the one at hand."""

    def __init__(self, tol: float) -> None:
        self._tol, self._problem, self._approach = tol, -1, Approach(tol)

    def __call__(self, problem: int, value: float) -> float:
        if problem != self._problem:
            self._problem, self._approach = problem, Approach(self._tol)
        return problem + self._approach(value)


class Rounds:
    """Tells of problems that are solved one after the other by rounds: each round, and how far they all are.

    facts: the fields of a `Round`, `violation` among them; tol is where it ends.
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
