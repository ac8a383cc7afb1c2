"""A threshold on the decision values of two classes, chosen for a purpose on held-out rows.

As in scikit-learn's TunedThresholdClassifierCV, but that the decision values of all folds are counted together, where
it takes the mean of a score over the folds, and that every cut between two of them is tried.

How much better a choice looks on the rows that it was made by than on new ones, by the bootstrap (Efron 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from streamsvm.errors import ConfigError, DataError
from streamsvm.judging.expected import DRAWS, Z
from streamsvm.metrics import ScoreCounts, cuts_below
from streamsvm.models import Header
from streamsvm.models.calibration import Calibration
from streamsvm.options.costs import Costs
from streamsvm.options.probability import ThresholdObjective
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import joined

SCORES = ("precision", "recall", "f1", "balanced_accuracy", "accuracy")
CURVE = 100  # points that a report draws
Told = Mapping[str, Any]


@dataclass(frozen=True)
class FoldDecisions:
    """Results from decision values of held-out rows: probabilities, a threshold; None if not requested.

    by: these rows, see `probabilities.by_parts`.
    """

    calibration: Calibration | None = None
    threshold: Told | None = None
    by: Mapping[str, Any] | None = None

    def codes_by(self, model: Any) -> np.ndarray | None:
        """(n,) what the model's threshold or costs make of these rows, as `Model.codes_of`, but with one map of all
        partitions; None if not all of its problems decided them."""
        if self.by is None or self.by["binary"] is None:
            return None
        binary, k, pairwise, p = self.by["binary"], len(model.classes), model.is_pairwise, None
        if (calibration := model.header.calibration) is not None:
            in_sets = model.learned.in_sets
            p = (
                calibration.of_problems(binary)
                if in_sets
                else calibration.probabilities(binary, k, pairwise=pairwise)
            )
        codes: np.ndarray = model.codes_of(joined(binary, k, pairwise=pairwise), p)
        return codes


def chosen(
    wish: ThresholdObjective, positive: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int
) -> Told:
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


def scores(hits: np.ndarray, falls: np.ndarray) -> dict[str, np.ndarray]:
    """The SCORES, (s,) each, of thresholds with so many positive and negative rows above; the last has all."""
    recall, spared = hits / hits[-1], 1 - falls / falls[-1]
    with np.errstate(invalid="ignore"):
        precision = np.where(hits > 0, hits / (hits + falls), 0.0)
    f1 = 2 * hits / (hits + falls + hits[-1])
    accuracy = (hits + falls[-1] - falls) / (hits[-1] + falls[-1])
    return dict(zip(SCORES, (precision, recall, f1, (recall + spared) / 2, accuracy), strict=True))


def _best(wish: ThresholdObjective, hits: np.ndarray, falls: np.ndarray) -> int:
    """Which of falling thresholds; of equally good ones the highest."""
    there = scores(hits, falls)
    own = there[wish.score]
    if wish.least is not None:
        other = there["recall" if wish.score == "precision" else "precision"]
        own = np.where(own >= wish.least, 1 + other, own)
    return int(np.argmax(own))


def _expected(
    wish: ThresholdObjective, positive: np.ndarray, f: np.ndarray, weight: np.ndarray, seed: int
) -> dict[str, dict[str, float]]:
    """The scores to expect on new rows, see `optimism.expected`. Empty if samples are of one class."""
    rng = np.random.default_rng([seed, 28])
    some = some_rows(len(f), 1, rng)
    ranked = Ranked(positive[some], f[some], weight[some])
    drawn = (ranked.above(own) for own in samples(len(f[some]), 1, rng))
    of_both = (above for above in drawn if above[:, -1].all())
    return dict(zip(SCORES, expected(ranked.above(), of_both, partial(_best_of, wish), _at), strict=False))


def _best_of(wish: ThresholdObjective, above: np.ndarray) -> int:
    return _best(wish, *above)


def _at(above: np.ndarray, place: int) -> np.ndarray:
    """The SCORES (5,) at one of falling thresholds, (2, s) positive and negative rows above which there are."""
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


def with_costs(header: Header, costs: Costs | None, task: Task) -> Header:
    """The header of a model that decides by these costs, instead of at a threshold; as it is if there are none.

    Raises ConfigError for labels that it does not know, and without probabilities.
    """
    if costs is None:
        return header
    if header.calibration is None:
        raise ConfigError("costs weigh probabilities, and the model has none: give --method sigmoid, too")
    told = {name: value for name, value in (header.certificate or {}).items() if name != "threshold"}
    return replace(header, costs=task.costs(costs, header.classes), threshold=None, certificate=told)


def unmet(told: Told | None) -> str | None:
    """What to report of a threshold that is not what was asked for; None if it is, or if there is none."""
    if told is None or told["met"]:
        return None
    wish = ThresholdObjective.of(told["wish"])
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


MOST_ROWS = 1 << 19  # of the bootstrap
MOST_ENTRIES, LEAST_DRAWS = 100_000_000, 40  # rows that are drawn in all; samples of them
Counts = TypeVar("Counts")
Place = TypeVar("Place")


class Ranked:
    """Rows, positive bool (h,), by falling values f (h,), which count as many as their weights."""

    def __init__(self, positive: np.ndarray, f: np.ndarray, weight: np.ndarray) -> None:
        self._order = np.argsort(-f, kind="stable")
        self._sides = np.stack([positive, ~positive])[:, self._order] * weight[self._order]
        falling = f[self._order]
        self._ends = np.flatnonzero(np.append(np.diff(falling) != 0, True))  # the last row of each value
        self._values = falling[self._ends]

    def above(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """(2, s) positive and other rows with each of the different values or above, each as often as drawn (h,)."""
        sides = self._sides if drawn is None else self._sides * drawn[self._order]
        return np.cumsum(sides, axis=1)[:, self._ends]

    @property
    def cuts(self) -> np.ndarray:
        """(s + 1,) the largest value, which no row is above, and one below each."""
        rising = self._values[::-1].astype(np.float64)
        return np.append(rising[-1], cuts_below(rising, rising)[::-1])


def some_rows(h: int, k: int, rng: np.random.Generator) -> slice | np.ndarray:
    """Those of h rows of k values that are drawn from: all, or so many at random that there are MOST_ROWS values."""
    most = MOST_ROWS // k
    return slice(None) if h <= most else rng.choice(h, most, replace=False)


def samples(h: int, k: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """How often each of h rows of k values was drawn, sample by sample."""
    for _ in range(min(DRAWS, max(LEAST_DRAWS, MOST_ENTRIES // (h * k)))):
        yield np.bincount(rng.integers(0, h, h), minlength=h)


def expected(
    above: Counts,
    drawn: Iterable[Counts],
    best: Callable[[Counts], Place],
    at: Callable[[Counts, Place], np.ndarray],
) -> list[dict[str, float]]:
    """Scores to expect on new rows, and the ends of an interval for 19 of 20 tests of as many new rows.

    above: what a choice is made by, the counts of all rows; drawn: of samples. at: the scores (s,) of a choice. The
    best of many looks better than it is: by as much, in the mean, as one that is chosen in a sample scores higher there
    than on all rows. Empty without samples.
    """
    place, found = best(above), []
    for inside in drawn:
        there = best(inside)
        found.append([at(inside, there) - at(above, there), at(inside, place)])
    if not found:
        return []
    optimism, scattered = np.mean(found, axis=0)[0], np.std(found, axis=0)[1]
    mean, error = at(above, place) - optimism, Z * scattered
    told = np.clip([mean, mean - error, mean + error], 0.0, 1.0)
    return [dict(zip(("score", "low", "high"), own, strict=True)) for own in told.T.tolist()]
