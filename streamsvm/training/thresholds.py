"""A threshold on the decision values of two classes, chosen for a purpose on held-out rows.

As in scikit-learn's TunedThresholdClassifierCV, but that the decision values of all folds are counted together, where
it takes the mean of a score over the folds, and that every cut between two of them is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.errors import ConfigError, DataError
from streamsvm.metrics import ScoreCounts
from streamsvm.models import Header
from streamsvm.models.calibration import Calibration
from streamsvm.models.costs import cost_matrix
from streamsvm.options.costs import Costs
from streamsvm.options.wish import Wish
from streamsvm.training.expected import DRAWS, Z

MOST_ROWS = 1 << 19  # of the bootstrap
MOST_ENTRIES, LEAST_DRAWS = 100_000_000, 40  # rows that are drawn in all; samples of them
SCORES = ("precision", "recall", "f1", "balanced_accuracy")
OF_LABEL = ("value", "met", *SCORES, "expected")  # what is told of each label's
CURVE = 100  # points that a report draws
Told = Mapping[str, Any]


@dataclass(frozen=True)
class Decided:
    """Results from decision values of held-out rows: probabilities, a threshold; None if not requested.

    by: these rows, see `probabilities.by_parts`.
    """

    calibration: Calibration | None = None
    threshold: Told | None = None
    by: Mapping[str, Any] | None = None


def chosen(wish: Wish, positive: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int) -> Told:
    """The threshold that best meets the wish: rows whose decision value is above it are positive.

    positive, f (h,): of held-out rows, each of which counts as many as its weight. Returns `value`, the threshold.
    `met` is whether it reaches what was asked for, else it is the nearest to that. Also returns the scores there of
    these `rows`, those `expected` of new ones (see `_expected`) and a `curve` of (recall, precision). Raises DataError
    if a class has no rows.
    """
    weight = np.ones(len(f)) if weight is None else np.asarray(weight, np.float64)
    counts = ScoreCounts()
    counts.add(positive, f, weight)
    cuts, hits, falls = counts.above_cuts()
    if not len(cuts) or hits[-1] == 0 or falls[-1] == 0:
        raise DataError(
            f"a threshold for {wish} needs held-out rows of both classes, found one only: hold out more"
        )
    place = _best(wish, hits, falls)
    there = scores(hits, falls)
    own = {name: float(values[place]) for name, values in there.items()}
    met = wish.least is None or own[wish.score] >= wish.least
    shown = np.unique(np.append(np.linspace(0, len(cuts) - 1, CURVE).astype(np.intp), place))
    return {
        "wish": str(wish),
        "value": float(cuts[place]),
        "met": met,
        **own,
        "rows": len(f),
        "expected": _expected(wish, positive, f, weight, seed),
        "curve": np.stack([there["recall"], there["precision"]], axis=1)[shown].tolist(),
    }


def chosen_of(wish: Wish, codes: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int) -> Told:
    """`chosen` for the second of two classes, codes (h,) and f (h, 1), or for each label, codes bool (h, k), f (h, k).

    Each label is a choice by itself, which makes their mean the largest, too. Of labels, `value` has one number for
    each, and `labels` what `chosen` returns, without the curve. What all rows have, or none, keeps 0, which is not
    `met`.
    """
    if codes.ndim == 1:
        return chosen(wish, codes == 1, f[:, 0], weight, seed)
    told: list[dict[str, Any]] = []
    for own, values in zip(codes.T, f.T, strict=True):
        counted = own if weight is None else own[weight > 0]
        if counted.any() and not counted.all():
            found = dict(chosen(wish, own, values, weight, seed))
            told.append({name: found[name] for name in OF_LABEL})
        else:
            told.append({"value": 0.0, "met": False})
    values = [own["value"] for own in told]
    met = all(own["met"] for own in told)
    return {"wish": str(wish), "value": values, "met": met, "rows": len(f), "labels": told}


def scores(hits: np.ndarray, falls: np.ndarray) -> dict[str, np.ndarray]:
    """The SCORES, (s,) each, of thresholds with so many positive and negative rows above; the last has all."""
    recall, spared = hits / hits[-1], 1 - falls / falls[-1]
    with np.errstate(invalid="ignore"):
        precision = np.where(hits > 0, hits / (hits + falls), 0.0)
    f1 = 2 * hits / (hits + falls + hits[-1])
    return dict(zip(SCORES, (precision, recall, f1, (recall + spared) / 2), strict=True))


def _best(wish: Wish, hits: np.ndarray, falls: np.ndarray) -> int:
    """Which of falling thresholds; of equally good ones the highest."""
    there = scores(hits, falls)
    own = there[wish.score]
    if wish.least is not None:
        other = there["recall" if wish.score == "precision" else "precision"]
        own = np.where(own >= wish.least, 1 + other, own)
    return int(np.argmax(own))


def _expected(
    wish: Wish, positive: np.ndarray, f: np.ndarray, weight: np.ndarray, seed: int
) -> dict[str, dict[str, float]]:
    """The scores to expect on new rows, and the ends of an interval for 19 of 20 tests of as many new rows.

    The best threshold of many looks better than it is: by as much, in the mean, as one that is chosen in a bootstrap
    sample scores higher there than on all rows (Efron 1983). Beyond MOST_ROWS rows, that many are drawn at random.
    Empty if samples are of one class.
    """
    rng = np.random.default_rng([seed, 28])
    if len(f) > MOST_ROWS:
        some = rng.choice(len(f), MOST_ROWS, replace=False)
        positive, f, weight = positive[some], f[some], weight[some]
    order = np.argsort(-f, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(f[order]) != 0, True))  # the last row of each value
    sides = np.stack([positive, ~positive])[:, order] * weight[order]
    above = np.cumsum(sides, axis=1)[:, ends]
    place = _best(wish, *above)
    own, found = _at(above, place), []
    for drawn in _samples(len(f), rng):
        inside = np.cumsum(sides * drawn, axis=1)[:, ends]
        if inside[:, -1].all():
            best = _best(wish, *inside)
            found.append([_at(inside, best) - _at(above, best), _at(inside, place)])
    if not found:
        return {}
    optimism, scattered = np.mean(found, axis=0)[0], np.std(found, axis=0)[1]
    told = {}
    for name, score, error in zip(SCORES, own - optimism, Z * scattered, strict=True):
        low, mean, high = np.clip([score - error, score, score + error], 0.0, 1.0).tolist()
        told[name] = {"score": mean, "low": low, "high": high}
    return told


def _samples(h: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each of h rows was drawn, sample by sample."""
    for _ in range(min(DRAWS, max(LEAST_DRAWS, MOST_ENTRIES // h))):
        yield np.bincount(rng.integers(0, h, h), minlength=h)


def _at(above: np.ndarray, place: int) -> np.ndarray:
    """The SCORES (4,) at one of falling thresholds, (2, s) positive and negative rows above which there are."""
    return np.array([values[0] for values in scores(*above[:, [place, -1]]).values()])


def with_threshold(header: Header, told: Told) -> Header:
    """The header of a model that decides at this threshold, instead of by costs, and keeps the report on it in its
    certificate."""
    value = told["value"]
    if "labels" in told:
        value = np.array(value)
        named = zip(header.classes.tolist(), told["labels"], strict=True)
        told = {**told, "labels": [{"label": label} | own for label, own in named]}
    certificate = (header.certificate or {}) | {"threshold": told}
    return replace(header, threshold=value, costs=None, certificate=certificate)


def with_costs(header: Header, costs: Costs | None) -> Header:
    """The header of a model that decides by these costs, instead of at a threshold; as it is if there are none.

    Raises ConfigError for labels that it does not know, and without probabilities.
    """
    if costs is None:
        return header
    if header.calibration is None:
        raise ConfigError("costs weigh probabilities, and the model has none: give --method sigmoid, too")
    told = {name: value for name, value in (header.certificate or {}).items() if name != "threshold"}
    return replace(header, costs=cost_matrix(costs, header.classes), threshold=None, certificate=told)


def unmet(told: Told | None) -> str | None:
    """What to report of a threshold that is not what was asked for; None if it is, or if there is none."""
    if told is None or told["met"]:
        return None
    wish = Wish.of(told["wish"])
    if "labels" in told:
        missed = [own["label"] for own in told["labels"] if not own["met"]]
        return (
            f"threshold {wish}: no threshold on {told['rows']:,} held-out rows reaches it for {len(missed)} of "
            f"{len(told['labels'])} labels ({', '.join(missed[:10])}); they are decided at the nearest, or at 0 if all "
            "these rows have them, or none has"
        )
    return (
        f"threshold {wish}: no threshold on {told['rows']:,} held-out rows reaches it; the model decides at "
        f"{told['value']:.6g}, the nearest, with {wish.score} {told[wish.score]:.4f} "
        f"(recall {told['recall']:.4f})"
    )


def require_two(n_classes: int) -> None:
    """Raises ConfigError for a number of classes that no single threshold separates."""
    if n_classes > 2:
        raise ConfigError(
            f"threshold: found {n_classes} classes, expected two; give --positive LABEL to separate one from the rest"
        )
