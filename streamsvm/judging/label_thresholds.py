"""Thresholds of several labels a row: each chosen by itself, or all together for F1 over all of their predictions.

With h_l rows of label l above its threshold, q_l others, and p_l rows that have it, micro F1 is the ratio

    sum_l 2 h_l / sum_l (h_l + q_l + p_l).

Some thresholds reach a ratio above r if, and only if, the maximum of sum_l [2 h_l - r (h_l + q_l + p_l)] is above 0,
which each label reaches at its own cut. So all take these cuts at the ratio so far, until it rises no more: it is
then the largest over all combinations (Dinkelbach 1967, On nonlinear fractional programming), in a few rounds. Pillai,
Fumera and Roli (2013, Threshold optimisation for multi-label classifiers) find the same one by moving thresholds in
turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streamsvm.judging.thresholds import SCORES, Ranked, Told, chosen, expected, samples, scores, some_rows
from streamsvm.options.probability import MICRO, ThresholdObjective

OF_LABEL = ("value", "met", *SCORES, "expected")  # what is told of each label's
ONE_SIDED = {"value": 0.0, "met": False}  # of a label that all rows have, or none


def chosen_of(
    wish: ThresholdObjective, codes: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int
) -> Told:
    """`chosen` for the second of two classes, codes (h,) and f (h, 1), or for each label, codes bool (h, k), f (h, k).

    Each label is a choice by itself, which makes their mean the largest, too; with MICRO all are one choice, whose
    score is there by this name. Of labels, `value` has one number for each, and `labels` what `chosen` returns, without
    the curve. What all rows have, or none, keeps 0, which is not `met`.
    """
    if codes.ndim == 1:
        return chosen(wish, codes == 1, f[:, 0], weight, seed)
    counted = codes if weight is None else codes[weight > 0]
    is_free = np.logical_and(counted.any(axis=0), ~counted.all(axis=0))
    labels: list[dict[str, Any]] = []
    more: dict[str, Any] = {}
    if wish.score == MICRO:
        labels, more = _together(codes, f, np.ones(len(f)) if weight is None else weight, is_free, seed)
    else:
        for free, own, values in zip(is_free, codes.T, f.T, strict=True):
            found = chosen(wish, own, values, weight, seed) if free else ONE_SIDED
            labels.append({name: found[name] for name in OF_LABEL if name in found})
    values = [own["value"] for own in labels]
    met = all(own["met"] for own in labels)
    return {"wish": str(wish), "value": values, "met": met, "rows": len(f), "labels": labels} | more


class Terms(NamedTuple):
    """2 h (s,) and h + q + p (s,) of a label at falling cuts."""

    top: np.ndarray
    bottom: np.ndarray


def best(labels: Sequence[Terms]) -> list[int]:
    """The cut of each label, such that the ratio of the sums is the largest."""
    places, r = [0] * len(labels), 0.0
    while True:
        found = [int(np.argmax(own.top - r * own.bottom)) for own in labels]
        if not (risen := ratio(labels, found)) > r:
            return places
        places, r = found, risen


def ratio(labels: Sequence[Terms], places: Sequence[int]) -> float:
    top, bottom = (
        sum(own[at] for own, at in zip(each, places, strict=True)) for each in zip(*labels, strict=True)
    )
    return float(top / bottom) if bottom > 0 else 0.0


@dataclass(frozen=True)
class _Label:
    """Its rows, and the cuts among which there is a choice: above all rows, and below each of their values."""

    ranked: Ranked
    free: slice

    @classmethod
    def of(cls, positive: np.ndarray, f: np.ndarray, weight: np.ndarray, *, is_free: bool) -> _Label:
        """Without a choice, it is predicted above 0."""
        if is_free:
            return cls(Ranked(positive, f, weight), slice(None))
        told = f > 0
        place = int(told.any())
        return cls(Ranked(positive, told.astype(np.float64), weight), slice(place, place + 1))

    def counts(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """(2, s) positive and other rows above all cuts, each row as often as drawn (h,)."""
        return np.pad(self.ranked.above(drawn), ((0, 0), (1, 0)))

    def terms(self, drawn: np.ndarray | None = None) -> Terms:
        hits, falls = self.counts(drawn)
        return Terms((2 * hits)[self.free], (hits + falls + hits[-1])[self.free])

    def told(self, place: int) -> dict[str, Any]:
        if self.free != slice(None):
            return ONE_SIDED
        own = {name: float(values[place]) for name, values in scores(*self.counts()).items()}
        return {"value": float(self.ranked.cuts[place]), "met": True, **own, "expected": {}}


def _labels(codes: np.ndarray, f: np.ndarray, weight: np.ndarray, is_free: np.ndarray) -> list[_Label]:
    columns = zip(is_free, codes.T, f.T, strict=True)
    return [_Label.of(own, values, weight, is_free=free) for free, own, values in columns]


def _together(
    codes: np.ndarray, f: np.ndarray, weight: np.ndarray, is_free: np.ndarray, seed: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What is reported of each label, and of all."""
    labels, rng = _labels(codes, f, weight, is_free), np.random.default_rng([seed, 28])
    terms = [label.terms() for label in labels]
    places = best(terms)
    some = some_rows(len(f), len(labels), rng)
    few = _labels(codes[some], f[some], weight[some], is_free)
    drawn = ([label.terms(own) for label in few] for own in samples(len(f[some]), len(labels), rng))
    [on_new] = expected([label.terms() for label in few], drawn, best, lambda *own: np.array([ratio(*own)]))
    own = [label.told(place) for label, place in zip(labels, places, strict=True)]
    return own, {MICRO: ratio(terms, places), "expected": {MICRO: on_new}}
