"""The score to expect on new rows, with an interval, from rows that a model was not trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamsvm.options.search import BALANCED
from streamsvm.tasks.base import LABELS
from streamsvm.tasks.weights import label_weights, row_weights

DRAWS = 500  # of the bootstrap
Z = 1.96 * 2**0.5  # 19 of 20 scores of as many new rows: these scatter, and so do the rows that estimate them
SURE = 2.5  # standard errors by which something has to be better on held-out rows, to be taken
STEEPEST = 0.5  # power of the rows by which errors fall


@dataclass(frozen=True)
class ExpectedScore:
    """A score to expect, the ends of an interval for 19 of 20 tests of as many new rows, and how many rows they are
    based on.

    model: whether these rows were decided by the model itself, else by fits on fewer rows: those of the search, or of
    folds with the chosen options, whose threshold or costs decide.
    """

    scoring: str
    score: float
    low: float
    high: float
    rows: int
    model: bool
    folds: bool = False

    def facts(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "folds" or value}


def of_candidates(scoring: str, pool: Sequence[np.ndarray], gain: float, seed: int) -> ExpectedScore:
    """The score to expect of the best of several candidates, each with losses (h,) on the same held-out rows.

    The best of many looks better than it is: so it is chosen in bootstrap samples of the rows, and judged on the rows
    outside, if there are any (Tsamardinos, Greasidou and Borboudakis 2018). gain: the share of errors that more
    training rows will save.
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
    low, high = _interval(losses[int(np.argmin(losses.mean(axis=1)))], mean)
    return ExpectedScore(scoring, 1 - mean * (1 - gain), 1 - high, 1 - low * (1 - gain), h, model=False)


def of_model(scoring: str, losses: np.ndarray, *, folds: bool = False) -> ExpectedScore:
    """The score to expect of a model with these losses (h,) on held-out rows; of fits of folds as the model's."""
    mean = float(losses.mean())
    low, high = _interval(losses, mean)
    return ExpectedScore(scoring, 1 - mean, 1 - high, 1 - low, len(losses), model=not folds, folds=folds)


def of_threshold(scoring: str, told: Mapping[str, Any], *, folds: bool) -> ExpectedScore | None:
    """The score that the choice of a threshold expects on new rows; None if it has no such score."""
    own = (told.get("expected") or {}).get(scoring)
    return own and ExpectedScore(scoring, **own, rows=told["rows"], model=not folds, folds=folds)


def losses_of(scoring: str, found: np.ndarray, truth: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """(h,) losses, whose mean is 1 less the score, of rows by their codes (h,), or of labels (h, k)."""
    wrong = (found != truth).reshape(len(truth), -1)
    if scoring == BALANCED:
        weights = label_weights if truth.ndim == 2 else row_weights
        return (wrong * weights(truth, classes, "balanced", None).reshape(wrong.shape)).mean(axis=1)
    return wrong.mean(axis=1) if scoring == LABELS else wrong.any(axis=1).astype(np.float64)


def _interval(losses: np.ndarray, mean: float) -> tuple[float, float]:
    """For the mean loss of as many new rows: by the standard error; for losses of 0 or 1, the means m' with
    (m' - m)^2 <= Z^2 p(1 - p) / h, p = (m + m') / 2 of both together, which also holds for few errors."""
    h = len(losses)
    if not np.all((losses == 0) | (losses == 1)):
        error = Z * float(losses.std()) / h**0.5
        return max(0.0, mean - error), mean + error
    a = Z**2 / h
    centre, factor = mean + a / 4 * (1 - mean), 1 + a / 4
    error = (centre**2 - factor * (mean**2 - a / 4 * mean * (2 - mean))) ** 0.5
    return max(0.0, (centre - error) / factor), min(1.0, (centre + error) / factor)


def gain_of_rows(steps: Sequence[tuple[int, float]], m: int, n: int) -> float:
    """The share of errors that n rows will save over m, the maximum rows of a search, by its scores at (rows,
    score)."""
    best: dict[int, float] = {}
    for rows, score in steps:
        best[rows] = max(score, best.get(rows, -np.inf))
    if len(best) < 2:
        return 0.0
    (m0, s0), (m1, s1) = sorted(best.items())[-2:]
    errors = max(1 - s0, 1e-9), max(1 - s1, 1e-9)
    power = float(np.clip(np.log(errors[0] / errors[1]) / np.log(m1 / m0), 0.0, STEEPEST))
    return 1.0 - (m / max(m, n)) ** power


def is_surely_better(found: np.ndarray, plain: np.ndarray) -> bool:
    """Whether the mean of paired differences is above 0 by `SURE` of its standard errors."""
    more = found - plain
    return float(more.sum()) > SURE * float(np.sqrt(np.sum(more**2)))
