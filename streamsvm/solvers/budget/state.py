"""The data that the steps read and change, by name.

Compiled code has groups of arrays as NamedTuples, which cost nothing there. Its callers pass plain tuples in the same
order: numba takes 1.8 us longer to see what a NamedTuple holds, and a cache that names a class of ours could not be
opened by a version where the class has another name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STEPS, SUPPORTS, EVENTS, NANOSECONDS, BORN = range(5)  # counts (int64)
FREE = 0  # what is born later counts from 1
DEGRADATION, GRADIENT_ERROR = range(2)  # sums (float64)


class Supports(NamedTuple):
    """The learner's arrays, which the steps change; coefficients stand for A / (lambda t)."""

    X: np.ndarray  # (slots, d) supports
    T: np.ndarray  # (d, slots) the same, of narrow ones; else (0, slots)
    norms: np.ndarray  # (slots,) their squared norms
    values: np.ndarray  # (slots, slots) between them; (0, 0) for narrow ones
    born: np.ndarray  # (slots,) their ages, or FREE; during steps the columns of younger supports are not up to date
    A: np.ndarray  # (slots, k) coefficients
    U: np.ndarray  # (slots + 1, k) what averaging needs, in the last row of the bias; else (slots + 1, 0)
    bias: np.ndarray  # (k,)
    counts: np.ndarray  # (5,) STEPS ...
    sums: np.ndarray  # (2,) DEGRADATION ...
    used: np.ndarray  # (slots,) the last step in which each was the nearest to the row; (0,) if no strategy needs it


class BlockValues(NamedTuple):
    """A block of b rows, and its values with the supports."""

    rows: np.ndarray  # (b, d)
    W: np.ndarray  # (slots, b) values with the supports
    N: np.ndarray  # (., slots) the same of the rows in V, before the first step; (0, 0): they are in W only
    entries: np.ndarray  # (b,) V[entries[i]] is of row i; -1: not computed yet
    V: np.ndarray  # (., b) values of a row with itself and those after it
    F: np.ndarray  # (k, b) sum_j A_j K(s_j, x)
    Y: np.ndarray  # (b, k) -1 or +1, or the targets of the epsilon loss
    weight: np.ndarray  # (b,) of the loss
    decisions: np.ndarray  # (b, k) of each row before its step: filled


class StepOptions(NamedTuple):
    """Options that do not change from row to row."""

    lam: float
    merge: int
    budget: int
    bias: bool
    is_rbf: bool
    gamma: np.float32
    loss: int = 0  # of losses.LOSSES
    epsilon: float = 0.0  # of the loss of that name
    nu: float = 0.0  # share of rows outside, of the loss "support"
    first: float = 0.0  # step from which on t is counted
    forgets: bool = False  # removes the oldest or least recently used support, not the smallest coefficient
    merges_all: bool = False  # M points always become one; else a sequence may end early, see `merge.unite`
