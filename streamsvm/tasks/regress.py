"""Regression with the epsilon-insensitive loss (Smola and Schoelkopf 2004), or the pinball loss of a quantile (Takeuchi
et al. 2006)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from streamsvm.data.labels import is_finite
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.metrics import D2, CoverageScores, RegressionScores, Spread, pinball_losses, quantile_score
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import LabelScale, Subproblem, Targets, Task, TaskOptions
from streamsvm.tasks.scores import DecisionRule, Scores
from streamsvm.tasks.uncertainty import MeanErrors, NumberErrors


class Regress(Task):
    """f(x) within epsilon of the target t of a row, else a loss.

    One dual with two variables a row, a and a* of f(x) = sum_i (a_i - a*_i) K(x_i, x) + b: labels +1 and -1, linear
    terms epsilon - t and epsilon + t. With nu, epsilon is what leaves at most a share nu of the rows outside: the sums
    of a and of a* are kept, and the margin of the dual is -epsilon (Schoelkopf et al. 2000). With a quantile q, epsilon
    is 0, and the bounds of a and a* are q and 1 - q times the row's: a share q of the rows is below f, up to those with
    f(x) = t.

    The learned numbers are (t - mean) / deviation, so that C, epsilon and tol mean the same for numbers of any size,
    and models answer in units of t. This is the problem of t itself with C, epsilon and tol times the deviation."""

    name = "regress"
    scoring = "r2"
    has_metric = has_choice_of_nu = True
    has_bias, variables = True, 2
    has_classes, has_intervals = False, True
    answer = "value"
    loss = "epsilon"
    libsvm_type, libsvm_nu_type = "epsilon_svr", "nu_svr"

    def nu(self, config: TaskOptions) -> float | None:
        return config.nu

    def margin_facts(self, margin: np.ndarray) -> dict[str, float]:
        return {"epsilon": -float(margin[0])}

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        return self.coder(store, config).targets(store.y)

    def coder(self, store: Store, config: TaskOptions) -> _NumberCoder:
        units, nu = _units(store) if config.scale_targets else LabelScale(), self.nu(config)
        epsilon = config.epsilon if nu is None and config.quantile is None else 0.0
        return _NumberCoder(store.url, store.n, units, epsilon, nu, config.quantile)

    def coefficients(self, k: int) -> int:
        return 2

    def subproblems(self, targets: Targets, *, single: bool = False) -> Iterator[Subproblem]:
        n = len(targets.codes)
        assert targets.linear is not None  # that of `targets`
        y, columns = np.repeat([1.0, -1.0], n), np.repeat([0, 1], n)
        shares = None if targets.quantile is None else (targets.quantile, 1 - targets.quantile)
        yield Subproblem(np.arange(n), y, columns, targets.linear.T.ravel(), nu=targets.nu, shares=shares)

    def learnable(self, targets: Targets) -> np.ndarray:
        assert targets.linear is not None  # that of `targets`
        return targets.units.labels((targets.linear[:, 1:] - targets.linear[:, :1]) / 2)

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> Scores:
        if judge.quantile is not None:
            return _QuantileScores(judge.quantile, store)
        return _ErrorScores(judge, store, with_curves)


@dataclass(frozen=True)
class _NumberCoder(SizedInBytes):
    """The learned numbers of the labels of a store with n rows."""

    url: str | None
    n: int
    units: LabelScale
    epsilon: float
    nu: float | None
    quantile: float | None
    classes: ClassVar[np.ndarray] = np.empty(0)

    @property
    def counts(self) -> np.ndarray:
        return np.array([self.n])

    def targets(self, labels: np.ndarray) -> Targets:
        t = (_numbers(self.url, labels) - self.units.offset) / self.units.scale
        linear = np.stack([self.epsilon - t, self.epsilon + t], axis=1)
        codes = np.zeros(len(t), np.int32)
        return Targets(self.classes, codes, linear, nu=self.nu, units=self.units, quantile=self.quantile)


def _units(store: Store) -> LabelScale:
    """The scale in which the labels of a store have mean 0 and deviation 1, a row of weight w counted as w rows; the
    same to the last bit for all block sizes. Raises DataError if all are equal, or too large for this."""

    def total(function: Callable[[np.ndarray], np.ndarray]) -> float:
        blocks = (
            weighted(function(_numbers(store.url, store.labels(*block))), block) for block in store.label_blocks()
        )
        return math.fsum(chain.from_iterable(block.tolist() for block in blocks))

    def weighted(values: np.ndarray, block: tuple[int, int]) -> np.ndarray:
        weight = store.weights(*block)
        return values if weight is None else values * weight

    first = float(_numbers(store.url, store.labels(0, 1))[0])
    if total(lambda t: (t != first).astype(float)) == 0:
        message = f"all labels are {first:g} (n_samples={store.n})"
        raise DataError(f"{store.url or 'y'}: {message}, expected different numbers to learn")
    n = store.n if store.weights(0, 1) is None else total(np.ones_like)
    with np.errstate(over="ignore"):
        offset = total(lambda t: t / n)
        scale = math.sqrt(total(lambda t: (t - offset) ** 2 / n))
    if not 0 < scale < math.inf:
        raise DataError(f"{store.url or 'y'}: the labels' deviation is {scale:g}; learn them in other units")
    return LabelScale(scale, offset)


class _ErrorScores:
    """The errors of predictions for the labels of a store, and how often the labels are inside the model's intervals.
    With curves: points, [label, prediction] of evenly spread rows, and the coverages of several levels."""

    def __init__(self, judge: DecisionRule, store: Store, with_curves: bool) -> None:
        self._store, self._scores, self._errors = store, RegressionScores(), NumberErrors(store)
        self._coverage = None if judge.intervals is None else CoverageScores(judge.intervals)
        self._spread = Spread(store.n) if with_curves else None

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        y = _numbers(self._store.url, self._store.labels(start, stop))
        self._scores.add(y, values)
        self._errors.add(start, y, values)
        if self._coverage is not None:
            self._coverage.add(y, values)
        if self._spread is not None:
            self._spread.add(start, y, values)

    def result(self) -> JsonObject:
        scores = self._scores.result()
        result = {"accuracy": None, "n": self._store.n, **scores, **self._errors.facts(scores)}
        result |= {} if self._coverage is None else self._coverage.result()
        if self._spread is None:
            return result
        result["points"] = self._spread.rows().tolist()
        return result | ({} if self._coverage is None else self._coverage.curve())


class _QuantileScores:
    """The pinball loss of a predicted quantile, d2_pinball, and the share of labels at or below the predictions, which
    is about the quantile for new rows."""

    def __init__(self, quantile: float, store: Store) -> None:
        self._store, self._quantile = store, quantile
        self._y, self._losses = np.empty((2, store.n))
        self._below = 0
        self._errors = MeanErrors(store, ("pinball_loss", "share_below"))

    def add(self, start: int, stop: int, values: np.ndarray, proba: np.ndarray | None) -> None:
        y = _numbers(self._store.url, self._store.labels(start, stop))
        losses, is_below = pinball_losses(y, values, self._quantile), y <= values
        self._y[start:stop], self._losses[start:stop] = y, losses
        self._below += int(np.count_nonzero(is_below))
        self._errors.add(start, np.ones(len(y), bool), (losses, is_below))

    def result(self) -> JsonObject:
        n = self._store.n
        scores = {"pinball_loss": float(self._losses.mean()), "share_below": self._below / n}
        facts = self._errors.facts(scores)
        d2 = quantile_score(self._y, self._losses, self._quantile)
        return {"accuracy": None, "n": n, "quantile": self._quantile, **scores, D2: d2, **facts}


def _numbers(url: str | None, labels: np.ndarray) -> np.ndarray:
    """Labels as float64, also if they are stored as text. Raises DataError for other texts."""
    if labels.dtype.kind not in "biuf":
        other = next((text for text in labels.tolist() if "_" in text or not is_finite(text)), None)
        if other is not None:
            raise DataError(
                f"{url or 'y'} holds text, expected numbers to regress on; found {other[:40]!r} among the labels"
            )
    return labels.astype(np.float64)
