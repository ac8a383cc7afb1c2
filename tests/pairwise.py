"""Covers of crossed axes: every two values of two axes come together in some case."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairwise(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases for `pytest.mark.parametrize`, in the order of the crossed axes, the first case of all among them.

    Greedy: each case is the first of those that have most pairs of values which no case before has. Faults that take
    three values of three axes to show may be missed: name such cases beside these.
    """
    values = [list(axis) for axis in axes]
    pairs_of = {
        case: {(i, case[i], j, case[j]) for i, j in combinations(range(len(case)), 2)}
        for case in product(*(range(len(axis)) for axis in values))
    }
    missing, chosen = set().union(*pairs_of.values()), []
    while missing:
        chosen.append(max(pairs_of, key=lambda case: len(pairs_of[case] & missing)))
        missing -= pairs_of[chosen[-1]]
    return [tuple(axis[i] for axis, i in zip(values, case, strict=True)) for case in sorted(chosen)]
