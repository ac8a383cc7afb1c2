"""Thresholds on decision values, of two classes or of each label, chosen for an objective on held-out rows.

Every cut between two decision values is tried. Unlike scikit-learn's TunedThresholdClassifierCV, which takes the mean
of a score over the folds, the decision values of all folds are counted together.

The chosen threshold looks better on the rows that chose it than it is on new rows. The bootstrap estimates by how
much (Efron 1983), and the reported scores are lower by that.

Those of several labels a row are chosen one by one, or together for F1 over all of their predictions. With h_l rows of
label l above its threshold, q_l others, and p_l rows that have it, micro F1 is the ratio

    sum_l 2 h_l / sum_l (h_l + q_l + p_l).

Some thresholds reach a ratio above r if, and only if, the maximum of sum_l [2 h_l - r (h_l + q_l + p_l)] is above 0,
and each term of the sum is the largest at a cut of its own label. So each round takes these cuts at the ratio so far,
until the ratio rises no more: it is then the largest over all combinations (Dinkelbach 1967, On nonlinear fractional
programming), after a few rounds. Pillai, Fumera and Roli (2013, Threshold optimisation for multi-label classifiers)
reach the same one by moving thresholds in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from streamsvm.errors import ConfigError, DataError
from streamsvm.judging.expected import DRAWS, Z
from streamsvm.metrics import ScoreCounts, cuts_below
from streamsvm.models import Header
from streamsvm.models.calibration import Calibration
from streamsvm.options.probability import MICRO, Costs, ThresholdObjective
from streamsvm.tasks.base import Task
from streamsvm.tasks.pairs import joined

SCORES = ("precision", "recall", "f1", "balanced_accuracy", "accuracy")
CURVE = 100  # points that a report draws
ThresholdReport = Mapping[str, Any]  # what `choose_threshold` returns, stored in certificates as JSON


@dataclass(frozen=True)
class DecidedRows:
    """Held-out rows (n,) with their decision values, by which probabilities and a threshold are chosen.

    decisions: (n, problems) of the problems of each row's own class, see `calibration.own_problems`. binary: of all
    problems, or None if they were not computed. codes: (n,) of k classes, or bool (n, k) of several labels. groups:
    (n,) of rows that belong together, if any. pairwise: whether problems are pairs of classes. by_decisions: whether
    labels follow decision values, not probabilities.
    """

    decisions: np.ndarray
    codes: np.ndarray
    weight: np.ndarray
    k: int
    pairwise: bool
    groups: np.ndarray | None = None
    by_decisions: bool = False
    binary: np.ndarray | None = None


@dataclass(frozen=True)
class FoldDecisions:
    """Probabilities and a threshold from the decision values of held-out rows; None if not requested."""

    calibration: Calibration | None = None
    threshold: ThresholdReport | None = None
    rows: DecidedRows | None = None

    def answers_by(self, model: Any) -> tuple[np.ndarray, np.ndarray | None] | None:
        """Decision values and probabilities of these rows, as `Model.answers`, but with one sigmoid for all partitions;
        None if not all of its problems decided them."""
        if self.rows is None or self.rows.binary is None:
            return None
        binary, k, pairwise, p = self.rows.binary, len(model.classes), model.is_pairwise, None
        if (calibration := model.header.calibration) is not None:
            in_sets = model.learned.in_sets
            p = calibration.of_problems(binary) if in_sets else calibration.probabilities(binary, k, pairwise=pairwise)
        return joined(binary, k, pairwise=pairwise), p


def choose_threshold(
    objective: ThresholdObjective, positive: np.ndarray, f: np.ndarray, weight: np.ndarray | None, seed: int
) -> ThresholdReport:
    """The threshold that is best by the objective: rows whose decision value is above it are positive.

    positive, f (h,): of held-out rows, each counted as often as its weight says. Returns a report with `value`, the
    threshold, and the scores of these `rows` at it. `met` is whether it reaches the objective's least score. Otherwise
    it is the nearest to that. The report also has the scores `expected` of new rows, see `expected_scores`, and a
    `curve` of (recall, precision). Raises DataError if a class has no rows.
    """
    weight = np.ones(len(f)) if weight is None else np.asarray(weight, np.float64)
    counts = ScoreCounts()
    counts.add(positive, f, weight)
    cuts, hits, falls = counts.above_cuts()
    if not len(cuts) or hits[-1] == 0 or falls[-1] == 0:
        raise DataError(
            f"a threshold for {objective} needs held-out rows of both classes, found one only: hold out more"
        )
    place = _best(objective, hits, falls)
    all_scores = scores_at_cuts(hits, falls)
    at_place = {name: float(values[place]) for name, values in all_scores.items()}
    met = objective.least is None or at_place[objective.score] >= objective.least
    shown = np.unique(np.append(np.linspace(0, len(cuts) - 1, CURVE).astype(np.intp), place))
    return {
        "wish": str(objective),
        "value": float(cuts[place]),
        "met": met,
        **at_place,
        "rows": len(f),
        "expected": _expected(objective, positive, f, weight, seed),
        "curve": np.stack([all_scores["recall"], all_scores["precision"]], axis=1)[shown].tolist(),
    }


def scores_at_cuts(hits: np.ndarray, falls: np.ndarray) -> dict[str, np.ndarray]:
    """The SCORES, (s,) each, of thresholds with so many positive (hits) and negative (falls) rows above, (s,) each; all
    rows are above the last."""
    recall, spared = hits / hits[-1], 1 - falls / falls[-1]
    with np.errstate(invalid="ignore"):
        precision = np.where(hits > 0, hits / (hits + falls), 0.0)
    f1 = 2 * hits / (hits + falls + hits[-1])
    accuracy = (hits + falls[-1] - falls) / (hits[-1] + falls[-1])
    return dict(zip(SCORES, (precision, recall, f1, (recall + spared) / 2, accuracy), strict=True))


def _best(objective: ThresholdObjective, hits: np.ndarray, falls: np.ndarray) -> int:
    """The place of the best of falling thresholds; of equally good ones the highest."""
    all_scores = scores_at_cuts(hits, falls)
    values = all_scores[objective.score]
    if objective.least is not None:
        other = all_scores["recall" if objective.score == "precision" else "precision"]
        values = np.where(values >= objective.least, 1 + other, values)
    return int(np.argmax(values))


def _expected(
    objective: ThresholdObjective, positive: np.ndarray, f: np.ndarray, weight: np.ndarray, seed: int
) -> dict[str, dict[str, float]]:
    """The scores to expect on new rows, see `expected_scores`. Empty if all samples are of one class."""
    rng = np.random.default_rng([seed, 28])
    subset = bootstrap_rows(len(f), 1, rng)
    ranked = Ranked(positive[subset], f[subset], weight[subset])
    drawn = (ranked.above(counts) for counts in bootstrap_counts(len(f[subset]), 1, rng))
    of_both = (above for above in drawn if above[:, -1].all())
    best = expected_scores(ranked.above(), of_both, lambda above: _best(objective, *above), _at)
    return dict(zip(SCORES, best, strict=False))


def _at(above: np.ndarray, place: int) -> np.ndarray:
    """The SCORES (5,) at one of falling thresholds with (2, s) positive and negative rows above."""
    return np.array([values[0] for values in scores_at_cuts(*above[:, [place, -1]]).values()])


def with_threshold(header: Header, report: ThresholdReport) -> Header:
    """The header of a model that decides at this threshold instead of by costs, with the report in its certificate."""
    value = report["value"]
    if "labels" in report:
        value = np.array(value)
        labelled = zip(header.classes.tolist(), report["labels"], strict=True)
        report = {**report, "labels": [{"label": label} | of_label for label, of_label in labelled]}
    certificate = (header.certificate or {}) | {"threshold": report}
    return replace(header, threshold=value, costs=None, certificate=certificate)


def with_costs(header: Header, costs: Costs | None, task: Task) -> Header:
    """The header of a model that decides by these costs instead of at a threshold; unchanged without costs. Raises
    ConfigError for labels that it does not know, and without probabilities."""
    if costs is None:
        return header
    if header.calibration is None:
        raise ConfigError("costs weigh probabilities, and the model has none: give --method sigmoid, too")
    certificate = {name: value for name, value in (header.certificate or {}).items() if name != "threshold"}
    return replace(header, costs=task.costs(costs, header.classes), threshold=None, certificate=certificate)


def unmet(report: ThresholdReport | None) -> str | None:
    """The warning about a threshold that does not reach its objective; None if it does, or if there is none."""
    if report is None or report["met"]:
        return None
    objective = ThresholdObjective.of(report["wish"])
    if "labels" in report:
        missed = [of_label["label"] for of_label in report["labels"] if not of_label["met"]]
        return (
            f"threshold {objective}: no threshold on {report['rows']:,} held-out rows reaches it for {len(missed)} of "
            f"{len(report['labels'])} labels ({', '.join(missed[:10])}); they are decided at the nearest, or at 0 if "
            "all these rows have them, or none has"
        )
    return (
        f"threshold {objective}: no threshold on {report['rows']:,} held-out rows reaches it; the model decides at "
        f"{report['value']:.6g}, the nearest, with {objective.score} {report[objective.score]:.4f} "
        f"(recall {report['recall']:.4f})"
    )


def require_two(n_classes: int) -> None:
    """Raises ConfigError for a number of classes that no single threshold separates."""
    if n_classes > 2:
        raise ConfigError(
            f"threshold: found {n_classes} classes, expected two; give --positive LABEL to separate one from the rest"
        )


MOST_ROWS = 1 << 19  # rows of a bootstrap sample
MOST_ENTRIES, LEAST_DRAWS = 100_000_000, 40  # rows drawn in all samples; the least number of samples
Counts = TypeVar("Counts")
Place = TypeVar("Place")


class Ranked:
    """Rows in the order of falling decision values f (h,), each counted as often as its weight (h,) says."""

    def __init__(self, positive: np.ndarray, f: np.ndarray, weight: np.ndarray) -> None:
        self._order = np.argsort(-f, kind="stable")
        self._sides = np.stack([positive, ~positive])[:, self._order] * weight[self._order]
        falling = f[self._order]
        self._ends = np.flatnonzero(np.append(np.diff(falling) != 0, True))  # the last row of each value
        self._values = falling[self._ends]

    def above(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """(2, s) positive and other rows at or above each different value, each row counted as often as drawn (h,)."""
        sides = self._sides if drawn is None else self._sides * drawn[self._order]
        return np.cumsum(sides, axis=1)[:, self._ends]

    @property
    def cuts(self) -> np.ndarray:
        """(s + 1,) the largest value, which no row is above, and one below each."""
        rising = self._values[::-1].astype(np.float64)
        return np.append(rising[-1], cuts_below(rising, rising)[::-1])


def bootstrap_rows(h: int, k: int, rng: np.random.Generator) -> slice | np.ndarray:
    """The rows that the bootstrap draws from: all of h rows of k values, or at random so many with MOST_ROWS values."""
    most = MOST_ROWS // k
    return slice(None) if h <= most else rng.choice(h, most, replace=False)


def bootstrap_counts(h: int, k: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """(h,) how often each of h rows of k values was drawn, sample by sample."""
    for _ in range(min(DRAWS, max(LEAST_DRAWS, MOST_ENTRIES // (h * k)))):
        yield np.bincount(rng.integers(0, h, h), minlength=h)


def expected_scores(
    above: Counts,
    sample_counts: Iterable[Counts],
    best: Callable[[Counts], Place],
    scores_at: Callable[[Counts, Place], np.ndarray],
) -> list[dict[str, float]]:
    """Scores to expect on new rows, and the ends of an interval for 19 of 20 tests of as many new rows.

    above: the counts of all rows, by which the choice is made; sample_counts: those of bootstrap samples. best: makes
    the choice; scores_at: (s,) scores of a choice. The best of many looks better than it is, in the mean by as much
    as a choice made in a sample scores higher in that sample than on all rows. Empty without samples.
    """
    place, differences = best(above), []
    for sample in sample_counts:
        sample_place = best(sample)
        differences.append([scores_at(sample, sample_place) - scores_at(above, sample_place), scores_at(sample, place)])
    if not differences:
        return []
    optimism, scattered = np.mean(differences, axis=0)[0], np.std(differences, axis=0)[1]
    mean, error = scores_at(above, place) - optimism, Z * scattered
    clipped = np.clip([mean, mean - error, mean + error], 0.0, 1.0)
    return [dict(zip(("score", "low", "high"), row, strict=True)) for row in clipped.T.tolist()]


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


def best_cuts(labels: Sequence[Terms]) -> list[int]:
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
    labels, rng = _labels(codes, f, weight, is_free), np.random.default_rng([seed, 28])
    terms = [label.terms() for label in labels]
    places = best_cuts(terms)
    subset = bootstrap_rows(len(f), len(labels), rng)
    subset_labels = _labels(codes[subset], f[subset], weight[subset], is_free)
    draws = bootstrap_counts(len(f[subset]), len(labels), rng)
    samples = ([label.terms(counts) for label in subset_labels] for counts in draws)
    of_all = [label.terms() for label in subset_labels]
    [expected] = expected_scores(of_all, samples, best_cuts, lambda terms, at: np.array([ratio(terms, at)]))
    reports = [label.report(place) for label, place in zip(labels, places, strict=True)]
    return reports, {MICRO: ratio(terms, places), "expected": {MICRO: expected}}
