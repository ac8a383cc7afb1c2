"""Working sets: which rows move in a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mixed(
    kept: np.ndarray, v: np.ndarray, sides: Sequence[tuple[np.ndarray, np.ndarray | bool]], rows: int
) -> np.ndarray:
    """A working set: half of it the worst of kept ids, by v (n,), and from each side a quarter of its worst; rising.

    sides: violations (n,), changed in place, and which rows are of the side.
    """
    kept = largest(kept, v, rows // 2)
    quarter = (rows - len(kept)) // 2
    for own, _ in sides:
        own[kept] = 0.0
    fresh = [largest(np.flatnonzero(members & (own > 0)), own, quarter) for own, members in sides]
    return np.union1d(kept, np.concatenate(fresh))


def largest(ids: np.ndarray, v: np.ndarray, k: int) -> np.ndarray:
    """The k of ids with the largest v."""
    return ids if len(ids) <= k else ids[np.argpartition(-v[ids], k)[:k]]
