"""river's own checks of a model, and which of them it fails."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from river.checks import yield_checks

Check = Callable[[Any], None]


def checks_of(model: Any, place: int | None = None) -> list[Check]:
    """All, on each of river's data sets that suit it; with a place, each on one of them, another for each place."""
    if place is None:
        return list(yield_checks(model))
    sets = defaultdict(list)
    for check in yield_checks(model):
        sets[check.__name__].append(check)
    return [checks[place % len(checks)] for checks in sets.values()]


def failures(model: Any, checks: Iterable[Check]) -> list[str]:
    failed = []
    for number, check in enumerate(checks):
        try:
            check(model.clone())
        except Exception as error:
            failed.append(f"{check.__name__} ({number}): {error!r}")
    return failed
