"""Sigmoids of partitions: in a model whose partitions decide for their own rows, each may map decision values itself.

A partition has few rows for its sigmoid, so each sigmoid is drawn towards that of all rows, as if by `SHRINK` more
rows that the latter has given probabilities to. Held-out rows decide whether partitions have their own sigmoids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.judging.expected import is_surely_better
from streamsvm.kernels.kmeans import by_their_part
from streamsvm.models.calibration import Calibration, binary_problems, fit_sigmoid, sigmoid, targets

SHRINK = 100.0  # rows that the sigmoid of all counts as in a partition: of 0, 10, 30, 100, 300 the best on real rows
LEAST = 20  # rows of each class that a partition needs, to have its own sigmoid
FOLDS = 5


@dataclass(frozen=True)
class _Problem:
    """Of the rows of a binary problem: decision values, whether they are positive, weights with mean 1, and
    partitions."""

    f: np.ndarray
    positive: np.ndarray
    weight: np.ndarray
    parts: np.ndarray

    def take(self, ids: np.ndarray) -> _Problem:
        return _Problem(self.f[ids], self.positive[ids], self.weight[ids], self.parts[ids])

    def of_all(self) -> np.ndarray:
        """(2,) slope and offset."""
        return fit_sigmoid(self.f, targets(self.positive, self.weight), self.weight)[0]

    def of_parts(self, all_rows: np.ndarray, n_parts: int) -> np.ndarray:
        """(n_parts, 2): that of all rows, (2,), if a partition has too few of one class, else the one that minimises

            sum_i v_i H(y_i, p_i) + SHRINK / V sum_i v_i H(q_i, p_i)

        over the rows of the partition, H the cross entropy, p_i its probabilities, q_i those by all rows, V = sum_i
        v_i.
        """
        found = np.tile(all_rows, (n_parts, 1))
        for part, here in by_their_part(self.parts):
            f, positive, weight = self.f[here], self.positive[here], self.weight[here]
            if LEAST <= np.count_nonzero(positive) <= len(here) - LEAST:
                total = weight.sum()
                t = (total * positive + SHRINK * sigmoid(all_rows[0] * f + all_rows[1])) / (total + SHRINK)
                found[part] = fit_sigmoid(f, t, weight)[0]
        return found

    def log_likelihood(self, maps: np.ndarray) -> np.ndarray:
        """(n,) log p of what each row is, times its weight; maps (2,) or (n, 2)."""
        u = maps[..., 0] * self.f + maps[..., 1]
        return -self.weight * np.logaddexp(0, np.where(self.positive, -u, u))


def with_parts(
    calibration: Calibration, by: Mapping[str, Any], parts: np.ndarray, n_parts: int, seed: int
) -> Calibration:
    """The calibration that `calibrate` made, with sigmoids of partitions (n,) if these are surely better.

    by: its data, the decisions, codes, weight and, if any, groups of rows (n,), k and pairwise. That is
    if the log loss of rows is lower with maps of the other rows, in five folds.
    """
    decisions, codes, weight = (np.asarray(by[name]) for name in ("decisions", "codes", "weight"))
    units = np.arange(len(parts)) if by.get("groups") is None else by["groups"]
    fold = np.random.default_rng([seed, 29]).integers(0, FOLDS, int(units.max(initial=-1)) + 1)[units]
    problems, folds = [], []
    pairwise = bool(by["pairwise"])
    for ids, f, positive, w in binary_problems(decisions, codes, weight, by["k"], pairwise=pairwise):
        problems.append(_Problem(f, positive, w, parts[ids]))
        folds.append(fold[ids])
    told = list(_held_out(problems, folds, n_parts))
    if not told or not is_surely_better(*(np.concatenate(own) for own in zip(*told, strict=True))):
        return calibration
    own = [problem.of_parts(problem.of_all(), n_parts) for problem in problems]
    return replace(calibration, by_part=np.stack(own, axis=1))


def _held_out(
    problems: Sequence[_Problem], folds: Sequence[np.ndarray], n_parts: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Log likelihoods of the rows of each fold by the other rows: with sigmoids of partitions, and with one of all."""
    for problem, fold in zip(problems, folds, strict=True):
        for number in range(FOLDS):
            known, own = (problem.take(np.flatnonzero(ids)) for ids in (fold != number, fold == number))
            if not len(known.f) or not len(own.f):
                continue
            one = known.of_all()
            by_part = known.of_parts(one, n_parts)
            yield own.log_likelihood(by_part[own.parts]), own.log_likelihood(one)
