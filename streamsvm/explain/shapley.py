"""Shapley values of decisions: of sums of kernels that are products over features exact, without subsets.

The game (PKeX-Shapley, Mohammadi et al. 2025): a set S of features is worth v(S) = sum_j c_j prod_{f in S} k_jf + b,
with k_jf = k(x_f - s_jf): the kernel restricted to them. By the definition of Shapley's value feature i then has

    phi_i = sum_j c_j (k_ji - 1) sum_q mu(q) e_q(k_j without i),    mu(q) = q! (d - 1 - q)! / d!,

e_q the elementary symmetric polynomials, whose recursion subtracts what it has added. But mu(q) is the integral of
t^q (1 - t)^(d - 1 - q) over [0, 1], so the inner sum is the integral of prod_{f != i} (1 - t + t k_jf): positive
throughout, and a polynomial of degree d - 1, for which d / 2 points of Gauss and Legendre are exact.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.coalitions import Shapley, pool_values, require_few
from streamsvm.explain.decisions import Decision, PooledDecision

TILE = 1 << 16  # differences at a time, 512 KiB


def require_shapley(decision: Decision | PooledDecision) -> None:
    """Raises ModelError if there are no Shapley values."""
    if isinstance(decision, PooledDecision):
        return
    decision.kernel.shortfall(np.zeros(1))
    metric = decision.scaling.metric
    if metric is not None and not metric.is_diagonal:
        raise ModelError(
            "the model's metric is full: its kernel sees mixed columns, and Shapley values are of single ones; leave "
            "Shapley values out, or fit with --metric diagonal"
        )
    require_few(decision.support.d, "model")


def shapley_values(decision: Decision | PooledDecision, row: Rows) -> Shapley:
    """Of the raw features of one scaled row.

    Those that a metric leaves out are 0: the kernel does not see them. Raises ModelError.
    """
    require_shapley(decision)
    if isinstance(decision, PooledDecision):
        return pool_values(decision, row)
    x, support, coef = row.astype(np.float64).dense()[0], decision.support, decision.coef
    out, step = np.zeros(len(x)), max(1, TILE // len(x))
    for first in range(0, len(support), step):
        here = slice(first, first + step)
        differences = support.take(here).astype(np.float64).dense() - x
        out += product_values(decision.kernel.shortfall(differences), coef[here])
    metric = decision.scaling.metric
    values = out if metric is None else metric.spread(out)
    return Shapley(decision.scaling.of_raw(values), decision.intercept + float(coef.sum()))


def product_values(shortfall: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """(d,) Shapley values of v(S) = sum_j coef_j prod_{f in S} (1 - shortfall_jf), of shortfall (s, d) in [0, 1]."""
    below = np.ascontiguousarray(shortfall.T)  # products run over whole rows
    out = np.zeros(len(below))
    for t, weight in zip(*_points(len(below)), strict=True):
        left = 1.0 - t * below  # above 0: t is inside (0, 1)
        out -= (below / left) @ (weight * coef * left.prod(axis=0))
    return out


def _points(d: int) -> tuple[np.ndarray, np.ndarray]:
    """Points in (0, 1) and their weights.

    The product falls from 1 no faster than (1 - t)^(d - 1), which about 4 sqrt(d) points integrate to 1e-13.
    """
    points, weights = np.polynomial.legendre.leggauss(min(ceil(d / 2), 8 + ceil(4 * sqrt(d))))
    return (points + 1.0) / 2.0, weights / 2.0
