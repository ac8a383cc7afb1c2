"""Random numbers that belong to an id, whatever is asked for with it."""

from __future__ import annotations

import numpy as np

STEP, *FACTORS = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def splitmix64(ids: np.ndarray, seed: int) -> np.ndarray:
    """(m,) uint64 of ids (m,) and a seed (Steele, Lea and Flood 2014)."""
    found = (ids.astype(np.uint64) + np.uint64(seed) + np.uint64(1)) * STEP
    for shift, factor in zip((30, 27), FACTORS, strict=True):
        found = (found ^ (found >> np.uint64(shift))) * factor
    return found ^ (found >> np.uint64(31))
