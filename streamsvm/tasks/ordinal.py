"""Ordinal regression: one score for all rows, and thresholds on it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import mean_absolute_error
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import Targets, Task, TaskOptions
from streamsvm.tasks.classify import coded
from streamsvm.tasks.scores import DecisionRule, LabelScores

MOST_RANKS = 1000


class Ordinal(Task):
    name = "ordinal"
    scoring = "neg_mean_absolute_error"
    compares_rows = True

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        targets = coded(store, config.positive)
        if len(targets.classes) > MOST_RANKS:
            raise DataError(f"found {len(targets.classes)} different labels, expected at most {MOST_RANKS} ranks")
        return replace(targets, groups=np.zeros(store.n, np.int64))

    def thresholds(self, f: np.ndarray, targets: Targets, weight: np.ndarray) -> np.ndarray:
        return rank_thresholds(f, targets.codes, len(targets.classes), weight)

    def codes(self, decision: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
        return np.searchsorted(thresholds, decision)

    def cuts(self, thresholds: np.ndarray) -> np.ndarray:
        return thresholds

    def against_rest(
        self, coef: np.ndarray, intercept: np.ndarray, thresholds: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rank is argmax_c of c f - (theta_1 + ... + theta_c)."""
        ranks = np.arange(len(thresholds) + 1)
        return coef * ranks, intercept * ranks - np.cumsum([0.0, *thresholds])

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> LabelScores:
        return _RankScores(judge, store, with_curves, orders_rows=True)


class _RankScores(LabelScores):
    """Scores of labels that have an order."""

    def summary(self) -> JsonObject:
        return super().summary() | {"mean_absolute_error": mean_absolute_error(self.counts)}


def rank_thresholds(f: np.ndarray, ranks: np.ndarray, k: int, weight: np.ndarray) -> np.ndarray:
    """(k - 1,) rising thresholds for which the ranks 0..k-1 predicted from scores f (n,) have the least absolute error.
    Threshold r splits ranks up to r from those above with the least weight on the wrong side; the sum of these is the
    absolute error of the ranks. Of equally good splits the lowest is taken: so the thresholds rise with r."""
    order = np.argsort(f, kind="stable")
    f, ranks, weight = f[order], ranks[order], weight[order]
    borders = np.append(np.append(-np.inf, (f[1:] + f[:-1]) / 2), np.inf)
    splits = np.append(np.append(True, f[1:] > f[:-1]), True)  # equal scores stay on one side
    thresholds = np.empty(k - 1)
    for r in range(k - 1):
        above = ranks > r
        wrong_below = np.append(0.0, np.cumsum(weight * above))
        right_below = np.append(0.0, np.cumsum(weight * ~above))
        wrong = wrong_below + right_below[-1] - right_below
        thresholds[r] = borders[np.argmin(np.where(splits, wrong, np.inf))]
    return thresholds
