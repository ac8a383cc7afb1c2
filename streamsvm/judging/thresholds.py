"""A threshold on the decision values of two classes, chosen for an objective on held-out rows.

Every cut between two decision values is tried. Unlike scikit-learn's TunedThresholdClassifierCV, which takes the mean
of a score over the folds, the decision values of all folds are counted together.

The chosen threshold looks better on the rows that chose it than it is on new rows. The bootstrap estimates by how
much (Efron 1983), and the reported scores are lower by that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
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

    def codes_by(self, model: Any) -> np.ndarray | None:
        """(n,) codes of these rows by the model's threshold or costs, as `Model.codes_of`, but with one sigmoid for
        all partitions; None if not all of its problems decided them."""
        if self.rows is None or self.rows.binary is None:
            return None
        binary, k, pairwise, p = self.rows.binary, len(model.classes), model.is_pairwise, None
        if (calibration := model.header.calibration) is not None:
            in_sets = model.learned.in_sets
            p = calibration.of_problems(binary) if in_sets else calibration.probabilities(binary, k, pairwise=pairwise)
        codes: np.ndarray = model.codes_of(joined(binary, k, pairwise=pairwise), p)
        return codes


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
    """The header of a model that decides by these costs instead of at a threshold; unchanged without costs.

    Raises ConfigError for labels that it does not know, and without probabilities.
    """
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
    """The rows that the bootstrap draws from: all of h rows of k values, or so many at random that there are MOST_ROWS
    values."""
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
