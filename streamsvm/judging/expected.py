"""The score to expect on new rows, with an interval, from rows that a model was not trained on: held out, of folds, or
of a search for options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.judging.log_loss import D2_LOG_LOSS, likelihoods, log_losses, probability_losses
from streamsvm.metrics import constant_pinball_loss, pinball_losses
from streamsvm.options.search import BALANCED
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.subproblems import DualData
from streamsvm.tasks.base import LABELS, LabelScale
from streamsvm.tasks.weights import cheapest, label_weights, row_weights

DRAWS = 500  # samples of the bootstrap
Z = 1.96 * 2**0.5  # for 19 of 20 scores of as many new rows: both these and the held-out rows scatter
# The variance between fits on other rows, which the scores of folds and of a search have besides that of their held-out
# rows (Bates, Hastie and Tibshirani 2023), as a share of the latter: as large as 300 fits of twelve tables say
OTHER_FITS = 0.3
SURE = 2.5  # standard errors by which a candidate has to be better on held-out rows, to be taken
STEEPEST = 0.5  # the largest power of the number of rows by which errors fall


@dataclass(frozen=True)
class ExpectedScore:
    """A score to expect, the ends of an interval for 19 of 20 tests of as many new rows, and the number of rows that
    they are based on. model: whether the model itself decided these rows, else fits on fewer rows did: of the search,
    or of folds with the chosen options (folds), by the model's threshold or costs. cost: if errors have costs, that of
    a row, and cost_of_likeliest with the most probable labels."""

    scoring: str
    score: float
    low: float
    high: float
    rows: int
    model: bool
    folds: bool = False
    cost: float | None = None
    cost_of_likeliest: float | None = None

    def facts(self) -> dict[str, Any]:
        left_out = {"folds": False, "cost": None, "cost_of_likeliest": None}
        return {name: value for name, value in asdict(self).items() if name not in left_out or value != left_out[name]}


def of_candidates(scoring: str, pool: Sequence[np.ndarray], gain: float, seed: int) -> ExpectedScore:
    """The score to expect of the best of several candidates, each with losses (h,) on the same held-out rows.

    The best of many looks better than it is: so it is chosen in bootstrap samples of the rows, and judged on the rows
    outside of each, if there are any (Tsamardinos, Greasidou and Borboudakis 2018). gain: the share of errors that
    more training rows will save, see `gain_of_rows`.
    """
    losses = np.stack(pool).astype(np.float64)
    rng = np.random.default_rng([seed, 25])
    h = losses.shape[1]
    scores = []
    for _ in range(DRAWS):
        drawn = np.bincount(rng.integers(0, h, h), minlength=h)
        best, outside = int(np.argmin(losses @ drawn)), drawn == 0
        if outside.any():
            scores.append(losses[best, outside].mean())
    mean = float(np.mean(scores) if scores else losses.mean(axis=1).min())
    low, high = _interval(losses[int(np.argmin(losses.mean(axis=1)))], mean, of_other_fits=True)
    return ExpectedScore(scoring, 1 - mean * (1 - gain), 1 - high, 1 - low * (1 - gain), h, model=False)


def of_model(scoring: str, losses: np.ndarray, *, folds: bool = False) -> ExpectedScore:
    """The score to expect of a model with losses (h,) on held-out rows; folds: these were decided by fits of folds."""
    mean = float(losses.mean())
    low, high = _interval(losses, mean, of_other_fits=folds)
    return ExpectedScore(scoring, 1 - mean, 1 - high, 1 - low, len(losses), model=not folds, folds=folds)


def with_row_costs(
    expected: ExpectedScore, C: np.ndarray | None, p: np.ndarray | None, truth: np.ndarray
) -> ExpectedScore:
    """The score with the mean costs of these rows. C: (k, k) of predicting j where i is true, if errors have costs;
    p: (h, k) probabilities; truth: codes (h,)."""
    if C is None or p is None or truth.ndim > 1:
        return expected
    cost, cost_of_likeliest = (float(C[truth, codes].mean()) for codes in (cheapest(p, C), p.argmax(axis=1)))
    return replace(expected, cost=cost, cost_of_likeliest=cost_of_likeliest)


def of_threshold(scoring: str, report: Mapping[str, Any], *, folds: bool) -> ExpectedScore | None:
    """The score that the report on a threshold expects on new rows; None if it has no such score."""
    interval = (report.get("expected") or {}).get(scoring)
    return interval and ExpectedScore(scoring, **interval, rows=report["rows"], model=not folds, folds=folds)


def losses_of(
    scoring: str, model: Decider, answers: tuple[np.ndarray, np.ndarray | None], truth: np.ndarray
) -> np.ndarray:
    """(h,) losses, whose mean is 1 less the score, of a model with these decision values and probabilities; truth:
    codes (h,), or labels (h, k)."""
    if scoring == D2_LOG_LOSS:
        assert answers[1] is not None  # which this score implies
        return probability_losses(answers[1], truth)
    wrong = (model.codes_of(*answers) != truth).reshape(len(truth), -1)
    if scoring == BALANCED:
        weights = label_weights if truth.ndim == 2 else row_weights
        return (wrong * weights(truth, model.classes, "balanced", None).reshape(wrong.shape)).mean(axis=1)
    return wrong.mean(axis=1) if scoring == LABELS else wrong.any(axis=1).astype(np.float64)


def _interval(losses: np.ndarray, mean: float, *, of_other_fits: bool) -> tuple[float, float]:
    """The ends of an interval for the mean loss of as many new rows, by the standard error: both these and the held-out
    rows scatter, and the fits that decided the latter, if they are not the model itself. For losses 0 or 1 the means m'
    with (m' - m)^2 <= z^2 p(1 - p) / h, where p = (m + m') / 2, which also holds for few errors."""
    h, z = len(losses), Z * (1 + of_other_fits * OTHER_FITS / 2) ** 0.5
    if not np.all((losses == 0) | (losses == 1)):
        error = z * float(losses.std()) / h**0.5
        return max(0.0, mean - error), mean + error
    a = z**2 / h
    centre, factor = mean + a / 4 * (1 - mean), 1 + a / 4
    error = (centre**2 - factor * (mean**2 - a / 4 * mean * (2 - mean))) ** 0.5
    return max(0.0, (centre - error) / factor), min(1.0, (centre + error) / factor)


def gain_of_rows(steps: Sequence[tuple[int, float]], m: int, n: int) -> float:
    """The share of errors that n rows will save over m, the most rows of a search, by its steps (rows, score)."""
    best: dict[int, float] = {}
    for rows, score in steps:
        best[rows] = max(score, best.get(rows, -np.inf))
    if len(best) < 2:
        return 0.0
    (m0, s0), (m1, s1) = sorted(best.items())[-2:]
    errors = max(1 - s0, 1e-9), max(1 - s1, 1e-9)
    power = float(np.clip(np.log(errors[0] / errors[1]) / np.log(m1 / m0), 0.0, STEEPEST))
    return 1.0 - (m / max(m, n)) ** power


def is_surely_better(candidate: np.ndarray, baseline: np.ndarray) -> bool:
    """Whether the mean of paired differences is above 0 by `SURE` of its standard errors."""
    differences = candidate - baseline
    return float(differences.sum()) > SURE * float(np.sqrt(np.sum(differences**2)))


class Decider(Protocol):
    """A model, with what its score needs."""

    @property
    def classes(self) -> np.ndarray: ...

    @property
    def is_pairwise(self) -> bool: ...

    def binary_decisions(self, rows: Rows) -> np.ndarray: ...

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def answers_from(self, binary: np.ndarray, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def codes_of(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...


@dataclass(frozen=True)
class SearchExpectation(SizedInBytes):
    """The score that a search expects of the model, and the rows as stored (h, d) that this is based on. The model may
    learn from these rows: if it decides them worse than is expected of new ones, its fit has failed. samples: their
    targets, with the weights of their scores, sample by sample."""

    rows: Rows
    samples: Sequence[DualData]
    expected: ExpectedScore

    def losses(self, model: Decider, units: LabelScale, decided: np.ndarray | None = None) -> np.ndarray:
        """(h,) losses of a model. decided (h, pairs): its decision values, if its arrays are in a file."""
        if self.expected.scoring == D2_LOG_LOSS:
            return self._log_losses(model, model.binary_decisions(self.rows) if decided is None else decided)
        if not self.samples[0].task.has_classes:
            values = model.answers(self.rows)[0] if decided is None else decided[:, 0]
            predicted = (values - units.offset) / units.scale
        else:
            answers = model.answers(self.rows) if decided is None else model.answers_from(decided, self.rows)
            predicted = model.codes_of(*answers)
        ends = np.cumsum([len(sample.upper) for sample in self.samples])[:-1]
        return np.concatenate(
            [
                weighted_losses(part, sample)
                for part, sample in zip(np.split(predicted, ends), self.samples, strict=True)
            ]
        )

    def _log_losses(self, model: Decider, decisions: np.ndarray) -> np.ndarray:
        losses, ends = [], np.cumsum([len(sample.upper) for sample in self.samples])[:-1]
        for part, sample in zip(np.split(decisions, ends), self.samples, strict=True):
            codes, k = sample.task.truth(sample.targets), len(model.classes)
            losses.append(log_losses(likelihoods(part, codes, k, pairwise=model.is_pairwise), sample))
        return np.concatenate(losses)


def weighted_losses(predicted: np.ndarray, held_out_data: DualData) -> np.ndarray:
    """(h,) losses of held-out rows by their predicted codes or scaled numbers: 0 or 1 for classes, the mean over
    several labels of a row, squared errors over the variance of numbers, or pinball losses over those of the best
    constant. They are weighted as rows are; 1 less their mean is the accuracy, R2, or D2."""
    task = held_out_data.task
    if task.has_classes:
        wrong = predicted != task.truth(held_out_data.targets)
        cost = held_out_data.upper[:, None] * held_out_data.targets.weights
        losses = cost * wrong.reshape(len(wrong), -1)
        return np.asarray(losses.mean(axis=1) / cost.mean())
    t, weights = _numbers(held_out_data), held_out_data.upper / held_out_data.upper.mean()
    if (quantile := held_out_data.targets.quantile) is not None:
        least = constant_pinball_loss(t, quantile, weights)
        return weights * pinball_losses(t, predicted, quantile) / max(least, np.finfo(np.float64).tiny)
    mean = float(np.average(t, weights=weights))
    spread = float(np.average((t - mean) ** 2, weights=weights))
    return np.asarray(weights * (t - predicted) ** 2 / max(spread, np.finfo(np.float64).tiny))


def _numbers(dual_data: DualData) -> np.ndarray:
    """(m,) scaled numbers t of rows of task regress: half of (epsilon + t) - (epsilon - t)."""
    linear = dual_data.targets.linear
    assert linear is not None  # of a task without pairs
    return 0.5 * (linear[:, 1] - linear[:, 0])
