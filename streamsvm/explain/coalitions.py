"""Shapley values of a pool's decision, whose experts know what to make of an absent column.

The game: a set S of features is worth v(S) = g of an event that has these alone. To the experts an absent column is one
at the stream's mean, or a text that is not there; so the event's features of that value, too, are worth nothing.

All sets of few other features are asked, which is exact. Of more, orders are drawn, each with its reverse (Mitchell,
Cooper, Frank and Holmes 2022): a value is the mean gain over them, and its error that of a mean of independent pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import NamedTuple

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import TILE_ENTRIES, PooledDecision

MOST_FEATURES = 4096
ALL_SETS = 10  # features up to which all are asked
LOOK = 16  # orders and their reverses, from one look at errors to the next
MOST_SETS = 1 << 14  # that are asked, if these are enough for so many orders
PRECISE = 0.01  # error, of the largest value: enough

Worth = Callable[[np.ndarray], np.ndarray]  # v (m,) of sets (m, p), True for the features in them


class Shapley(NamedTuple):
    """Values (d,) that add up to g(x) - base, v of no feature; their standard errors, None if they are exact."""

    values: np.ndarray
    base: float
    error: np.ndarray | None = None


def pool_values(decision: PooledDecision, row: Rows) -> Shapley:
    """Of the features of one scaled row. Raises ModelError if more than MOST_FEATURES are not absent."""
    x = row.dense()[0]
    own = np.flatnonzero(x)
    require_few(len(own), "row")
    step = max(1, TILE_ENTRIES // len(x))

    def worth(sets: np.ndarray) -> np.ndarray:
        found = []
        for start in range(0, len(sets), step):
            events = np.zeros((len(sets[start : start + step]), len(x)), np.float32)
            events[:, own] = sets[start : start + step] * x[own]
            found.append(decision.values(Rows(events)))
        return np.concatenate(found)

    base = float(worth(np.zeros((1, len(own)), bool))[0])
    if len(own) <= ALL_SETS:
        return Shapley(_over(exact(worth, len(own)), own, len(x)), base)
    values, error = sampled(worth, len(own))
    return Shapley(_over(values, own, len(x)), base, _over(error, own, len(x)))


def require_few(features: int, what: str) -> None:
    """Raises ModelError."""
    if features > MOST_FEATURES:
        raise ModelError(
            f"Shapley values are of at most {MOST_FEATURES:,} columns, the {what} has {features:,}; "
            "leave Shapley values out"
        )


def exact(worth: Worth, p: int) -> np.ndarray:
    """(p,) Shapley values, by all sets."""
    sets = np.indices((2,) * p).reshape(p, 2**p).T.astype(bool)
    v, sizes = worth(sets).reshape((2,) * p), sets.sum(axis=1).reshape((2,) * p)
    share = np.array(
        [1.0 / (p * comb(p - 1, size)) for size in range(p)]
    )  # of orders in which the set comes first
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


def _over(values: np.ndarray, own: np.ndarray, d: int) -> np.ndarray:
    out = np.zeros(d)
    out[own] = values
    return out
