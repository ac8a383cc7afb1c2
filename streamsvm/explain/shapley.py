"""Shapley values of decisions: exact for sums of product kernels and small pools, sampled for large pools.

The game of a kernel expansion (PKeX-Shapley, Mohammadi et al. 2025): a set S of features is worth

    v(S) = sum_j c_j prod_{f in S} k_jf + b,    k_jf = k(x_f - s_jf),

the kernel restricted to them. By the definition of Shapley's value feature i then has

    phi_i = sum_j c_j (k_ji - 1) sum_q mu(q) e_q(k_j without i),    mu(q) = q! (d - 1 - q)! / d!,

e_q the elementary symmetric polynomials, whose recursion subtracts what it has added. But mu(q) is the integral of
t^q (1 - t)^(d - 1 - q) over [0, 1], so the inner sum is the integral of prod_{f != i} (1 - t + t k_jf): positive
throughout, and a polynomial of degree d - 1, for which d / 2 points of Gauss and Legendre are exact.

The game of a pool: v(S) = g of an event that has the features of S alone. The experts take an absent column as the
stream's mean, or a text as absent; so features of the event with that value are worth nothing. With few others, all
sets are evaluated, which is exact. With more, orders are drawn, each with its reverse (Mitchell, Cooper, Frank and
Holmes 2022): a value is the mean gain over them, and its error that of a mean of independent pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, comb, sqrt
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import TILE_ENTRIES, AnyDecision, Decision, EnsembleDecision, PooledDecision

TILE = 1 << 16  # differences at a time, 512 KiB
MOST_FEATURES = 4096
ALL_SETS = 10  # features up to which all sets are evaluated
LOOK = 16  # orders, each with its reverse, between looks at the errors
MOST_SETS = 1 << 14  # that are evaluated; more if LOOK orders take more
PRECISE = 0.01  # error, of the largest value: enough

Worth = Callable[[np.ndarray], np.ndarray]  # v (m,) of sets (m, p), True for the features in them


class Shapley(NamedTuple):
    """Values (d,) that add up to g(x) - base, v of no feature; their standard errors, None if they are exact."""

    values: np.ndarray
    base: float
    error: np.ndarray | None = None


def require_shapley(decision: AnyDecision) -> None:
    """Raises ModelError if there are no Shapley values."""
    if isinstance(decision, PooledDecision):
        return
    if isinstance(decision, EnsembleDecision):
        raise ModelError(
            "the model is an ensemble, of which there are no Shapley values, as none of its sums decides alone; leave "
            "them out, or fit without --ensemble"
        )
    decision.kernel.shortfall(np.zeros(1))
    metric = decision.scaling.metric
    if metric is not None and not metric.is_diagonal:
        raise ModelError(
            "the model's metric is full: its kernel sees mixed columns, and Shapley values are of single ones; leave "
            "Shapley values out, or fit with --metric diagonal"
        )
    require_few(decision.support.d, "model")


def require_few(features: int, what: str) -> None:
    """Raises ModelError."""
    if features > MOST_FEATURES:
        raise ModelError(
            f"Shapley values are of at most {MOST_FEATURES:,} columns, the {what} has {features:,}; "
            "leave Shapley values out"
        )


def shapley_values(decision: AnyDecision, row: Rows) -> Shapley:
    """Of the raw features of one scaled row.

    Those that a metric leaves out are 0: the kernel does not see them. Raises ModelError.
    """
    require_shapley(decision)
    if isinstance(decision, PooledDecision):
        return pool_values(decision, row)
    assert isinstance(decision, Decision)  # the others have none
    x, support, coef = row.astype(np.float64).dense()[0], decision.support, decision.coef
    out, step = np.zeros(len(x)), max(1, TILE // len(x))
    for first in range(0, len(support), step):
        some = slice(first, first + step)
        differences = support.take(some).astype(np.float64).dense() - x
        out += product_values(decision.kernel.shortfall(differences), coef[some])
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


def pool_values(decision: PooledDecision, row: Rows) -> Shapley:
    """Of the features of one scaled row. Raises ModelError if more than MOST_FEATURES are not absent."""
    x = row.dense()[0]
    present = np.flatnonzero(x)
    require_few(len(present), "row")
    step = max(1, TILE_ENTRIES // len(x))

    def worth(sets: np.ndarray) -> np.ndarray:
        values = []
        for start in range(0, len(sets), step):
            events = np.zeros((len(sets[start : start + step]), len(x)), np.float32)
            events[:, present] = sets[start : start + step] * x[present]
            values.append(decision.values(Rows(events)))
        return np.concatenate(values)

    base = float(worth(np.zeros((1, len(present)), bool))[0])
    if len(present) <= ALL_SETS:
        return Shapley(_over(exact(worth, len(present)), present, len(x)), base)
    values, error = sampled(worth, len(present))
    return Shapley(_over(values, present, len(x)), base, _over(error, present, len(x)))


def exact(worth: Worth, p: int) -> np.ndarray:
    """(p,) Shapley values, by all sets."""
    sets = np.indices((2,) * p).reshape(p, 2**p).T.astype(bool)
    v, sizes = worth(sets).reshape((2,) * p), sets.sum(axis=1).reshape((2,) * p)
    share = np.array([1.0 / (p * comb(p - 1, size)) for size in range(p)])  # of orders in which the set comes first
    return np.array([(share[sizes.take(0, i)] * (v.take(1, i) - v.take(0, i))).sum() for i in range(p)])


def sampled(worth: Worth, p: int) -> tuple[np.ndarray, np.ndarray]:
    """(p,) Shapley values and their standard errors, by orders that are drawn, always the same ones."""
    rng, pairs = np.random.default_rng(0), []
    while True:
        for _ in range(LOOK):
            order = rng.permutation(p)
            pairs.append((_gains(worth, order) + _gains(worth, order[::-1])) / 2.0)
        values, error = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1) / np.sqrt(len(pairs))
        if 2 * len(pairs) * p >= MOST_SETS or error.max() <= PRECISE * np.abs(values).max():
            return values, error


def _gains(worth: Worth, order: np.ndarray) -> np.ndarray:
    """(p,) what each feature adds as they come in this order."""
    sets, out = np.empty((len(order) + 1, len(order)), bool), np.empty(len(order))
    sets[:, order] = np.tri(len(order) + 1, len(order), -1, bool)
    out[order] = np.diff(worth(sets))
    return out


def _over(values: np.ndarray, places: np.ndarray, d: int) -> np.ndarray:
    out = np.zeros(d)
    out[places] = values
    return out
