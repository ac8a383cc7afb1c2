"""Centres of the partitions in a few numbers, and in the plane, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamsvm.data.hashes import splitmix64
from streamsvm.data.rows import Rows

WIDTH = 32  # numbers of a centre that leave its task
ENTRIES = 1 << 13  # whose signs are made at once: 2 MiB


def sketch(rows: Rows) -> np.ndarray:
    """(min(d, WIDTH),) float32 the mean of the rows; of more columns as sums of them with random signs, which keep
    distances about (Achlioptas 2003). Of sparse rows only entries are read, a few at a time."""
    X: Any = rows.X
    if rows.d <= WIDTH:
        return np.asarray(X.mean(axis=0, dtype=np.float64), np.float32).ravel()
    columns, values = (
        (X.indices, X.data) if rows.is_sparse else (np.arange(rows.d), X.mean(axis=0, dtype=np.float64))
    )
    total = np.zeros(WIDTH)
    for start in range(0, len(columns), ENTRIES):
        here = slice(start, start + ENTRIES)
        total += values[here].astype(np.float64) @ _signs(columns[here])
    return (total / (WIDTH**0.5 * (len(rows) if rows.is_sparse else 1))).astype(np.float32)


def _signs(columns: np.ndarray) -> np.ndarray:
    """(m, WIDTH) the signs of these columns, 1 or -1, the same in every partition."""
    bits = splitmix64(columns, WIDTH)[:, None] >> np.arange(WIDTH, dtype=np.uint64)
    return 1.0 - 2.0 * (bits & np.uint64(1))


def in_plane(centres: Sequence[np.ndarray]) -> list[list[float]]:
    """Points (partitions, 2): the centres on the two axes along which they differ most (PCA)."""
    points = np.array(centres, np.float64)
    points -= points.mean(axis=0)
    plane = np.zeros((len(points), 2))
    axes = np.linalg.eigh(points.T @ points)[1][:, :-3:-1]  # of the largest spread
    plane[:, : axes.shape[1]] = points @ axes
    return [[float(f"{x:.5g}") for x in point] for point in plane.tolist()]
