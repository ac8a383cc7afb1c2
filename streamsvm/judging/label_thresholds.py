"""Thresholds of several labels a row: each chosen by itself, or all together for F1 over all of their predictions.

With h_l rows of label l above its threshold, q_l others, and p_l rows that have it, micro F1 is the ratio

    sum_l 2 h_l / sum_l (h_l + q_l + p_l).

Some thresholds reach a ratio above r if, and only if, the maximum of sum_l [2 h_l - r (h_l + q_l + p_l)] is above 0,
and each term of the sum is the largest at a cut of its own label. So each round takes these cuts at the ratio so far,
until the ratio rises no more: it is then the largest over all combinations (Dinkelbach 1967, On nonlinear fractional
programming), after a few rounds. Pillai, Fumera and Roli (2013, Threshold optimisation for multi-label classifiers)
reach the same one by moving thresholds in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streamsvm.judging.thresholds import (
    SCORES,
    Ranked,
    ThresholdReport,
    bootstrap_counts,
    bootstrap_rows,
    choose_threshold,
    expected_scores,
    scores_at_cuts,
)
from streamsvm.options.probability import MICRO, ThresholdObjective

OF_LABEL = ("value", "met", *SCORES, "expected")  # fields of the report on one label
ONE_SIDED: ThresholdReport = {"value": 0.0, "met": False}  # the report on a label that all rows have, or none


def choose_thresholds(
    objective: ThresholdObjective, codes: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int
) -> ThresholdReport:
    """`choose_threshold` for the second of two classes, codes (h,) and f (h, 1), or for each label, codes bool (h, k)
    and f (h, k).

    Labels are chosen one by one, which makes the mean of their scores the largest, too. With MICRO they are chosen
    together, and the report has their common score by this name. For labels, `value` has one number a label, and
    `labels` the reports of `choose_threshold` without the curve. The threshold of a label that all rows have, or none,
    stays 0 and is not `met`.
    """
    if codes.ndim == 1:
        return choose_threshold(objective, codes == 1, f[:, 0], weight, seed)
    counted = codes if weight is None else codes[weight > 0]
    is_free = np.logical_and(counted.any(axis=0), ~counted.all(axis=0))
    labels: list[ThresholdReport] = []
    extra: ThresholdReport = {}
    if objective.score == MICRO:
        labels, extra = _together(codes, f, np.ones(len(f)) if weight is None else weight, is_free, seed)
    else:
        for free, positive, values in zip(is_free, codes.T, f.T, strict=True):
            report = choose_threshold(objective, positive, values, weight, seed) if free else ONE_SIDED
            labels.append({name: report[name] for name in OF_LABEL if name in report})
    values = [label["value"] for label in labels]
    met = all(label["met"] for label in labels)
    return {"wish": str(objective), "value": values, "met": met, "rows": len(f), "labels": labels, **extra}


class Terms(NamedTuple):
    """2 h (s,) and h + q + p (s,) of a label at falling cuts."""

    top: np.ndarray
    bottom: np.ndarray


def best(labels: Sequence[Terms]) -> list[int]:
    """The cut of each label, such that the ratio of the sums is the largest."""
    places, r = [0] * len(labels), 0.0
    while True:
        risen_places = [int(np.argmax(terms.top - r * terms.bottom)) for terms in labels]
        if not (risen := ratio(labels, risen_places)) > r:
            return places
        places, r = risen_places, risen


def ratio(labels: Sequence[Terms], places: Sequence[int]) -> float:
    top, bottom = (
        sum(values[place] for values, place in zip(each, places, strict=True)) for each in zip(*labels, strict=True)
    )
    return float(top / bottom) if bottom > 0 else 0.0


@dataclass(frozen=True)
class _Label:
    """The rows of a label, and the cuts to choose among: above all rows, and below each of their values."""

    ranked: Ranked
    free: slice

    @classmethod
    def of(cls, positive: np.ndarray, f: np.ndarray, weight: np.ndarray, *, is_free: bool) -> _Label:
        """Without a choice, the label is predicted above 0."""
        if is_free:
            return cls(Ranked(positive, f, weight), slice(None))
        above_0 = f > 0
        place = int(above_0.any())
        return cls(Ranked(positive, above_0.astype(np.float64), weight), slice(place, place + 1))

    def counts(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """(2, s) positive and other rows above all cuts, each row as often as drawn (h,)."""
        return np.pad(self.ranked.above(drawn), ((0, 0), (1, 0)))

    def terms(self, drawn: np.ndarray | None = None) -> Terms:
        hits, falls = self.counts(drawn)
        return Terms((2 * hits)[self.free], (hits + falls + hits[-1])[self.free])

    def report(self, place: int) -> ThresholdReport:
        if self.free != slice(None):
            return ONE_SIDED
        score_at = {name: float(values[place]) for name, values in scores_at_cuts(*self.counts()).items()}
        return {"value": float(self.ranked.cuts[place]), "met": True, **score_at, "expected": {}}


def _labels(codes: np.ndarray, f: np.ndarray, weight: np.ndarray, is_free: np.ndarray) -> list[_Label]:
    columns = zip(is_free, codes.T, f.T, strict=True)
    return [_Label.of(positive, values, weight, is_free=free) for free, positive, values in columns]


def _together(
    codes: np.ndarray, f: np.ndarray, weight: np.ndarray, is_free: np.ndarray, seed: int
) -> tuple[list[ThresholdReport], ThresholdReport]:
    """The reports on each label, and the fields on all labels together."""
    labels, rng = _labels(codes, f, weight, is_free), np.random.default_rng([seed, 28])
    terms = [label.terms() for label in labels]
    places = best(terms)
    subset = bootstrap_rows(len(f), len(labels), rng)
    subset_labels = _labels(codes[subset], f[subset], weight[subset], is_free)
    samples = (
        [label.terms(counts) for label in subset_labels]
        for counts in bootstrap_counts(len(f[subset]), len(labels), rng)
    )
    [expected] = expected_scores(
        [label.terms() for label in subset_labels],
        samples,
        best,
        lambda terms, places: np.array([ratio(terms, places)]),
    )
    reports = [label.report(place) for label, place in zip(labels, places, strict=True)]
    return reports, {MICRO: ratio(terms, places), "expected": {MICRO: expected}}
