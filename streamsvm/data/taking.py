"""Rows by their ids, in any order, from stretches of rows that are each read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np


def taken(
    ids: np.ndarray,
    stretches: np.ndarray,
    read: Callable[[list[np.ndarray]], Iterable[Any]],
    joined: Callable[[list[Any]], Any],
) -> Any:
    """The rows `ids`, at least one, in their order. stretches (m,): the number of each row's stretch, in id order.

    read: returns the rows of sorted ids, split by stretch. joined: joins these.
    """
    order = np.argsort(ids, kind="stable")
    cuts = np.flatnonzero(np.diff(stretches[order])) + 1
    rows = joined(list(read(np.split(ids[order], cuts))))
    if np.all(order[1:] > order[:-1]):
        return rows
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return rows.take(back)
