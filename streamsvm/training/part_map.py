"""Centres of the partitions in a few numbers, and in the plane, for reports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamsvm.data.rows import Rows

WIDTH = 32  # numbers of a centre that leave its task


def sketch(rows: Rows) -> np.ndarray:
    """(min(d, WIDTH),) float32 the mean of the rows; of more columns as random sums of them, which keep distances about
    (Johnson and Lindenstrauss 1984)."""
    mean = np.asarray(rows.X.mean(axis=0, dtype=np.float64)).ravel()
    if rows.d > WIDTH:
        signs = np.random.default_rng(WIDTH).standard_normal((WIDTH, rows.d), np.float32)
        mean = signs @ mean / WIDTH**0.5
    return mean.astype(np.float32)


def in_plane(centres: Sequence[np.ndarray]) -> list[list[float]]:
    """Points (partitions, 2): the centres on the two axes along which they differ most (PCA)."""
    points = np.array(centres, np.float64)
    points -= points.mean(axis=0)
    plane = np.zeros((len(points), 2))
    axes = np.linalg.eigh(points.T @ points)[1][:, :-3:-1]  # of the largest spread
    plane[:, : axes.shape[1]] = points @ axes
    return [[float(f"{x:.5g}") for x in point] for point in plane.tolist()]
