"""Regression on a budget with river's interface."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from river import base

from streamsvm.data.scaling import Scaling
from streamsvm.errors import DataError
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import StreamModel
from streamsvm.online.base import MOST_FEATURES, BudgetLearnerBase, is_doubled
from streamsvm.online.batches import rows_in, series_like, targets_in
from streamsvm.online.columns import LARGEST
from streamsvm.online.kinds import Features, as_float, kind_of, shown
from streamsvm.options.solvers import Strategy
from streamsvm.texts.documented import set_parameters

if TYPE_CHECKING:
    import pandas as pd


class BSGDRegressor(BudgetLearnerBase, base.MiniBatchRegressor):
    r"""Online kernel regression on a budget of support vectors.

    Learns in implicit steps, each of which ends where the loss of the event is 0. Targets may have any scale: f is
    their running mean plus what is learned in units of their running standard deviation. Both are measured again
    whenever the number of events has doubled.

    Parameters
    ----------
    lam : float
        lambda, the strength of the regularisation, above 0, for targets in units of their standard deviation. Larger: a
        smoother function.
    epsilon : float
        Largest error without a loss, at least 0, in units of the targets' standard deviation. Larger: fewer support
        vectors, coarser answers.
    bias : bool
        Learn an intercept in addition to the mean of the targets, regularised like the rest. At the start of a stream
        it takes half of every step, and answers are worse for a long time.

    See Also
    --------
    online.BSGDClassifier : classification.
    BudgetedSVR : the scikit-learn estimator.
    river.linear_model.LinearRegression : linear.

    Notes
    -----
    It minimises, in steps of at most :math:`1 / (\lambda t + 2)`,

    .. math::

        \tfrac{\lambda}{2} \lVert w \rVert^2 + \operatorname{mean}_t \max(0,\, \lvert y_t - f(x_t) \rvert - \epsilon)

    Support vectors merge only with those whose coefficients have the same sign.

    References
    ----------
    * B. Kulis and P. L. Bartlett. Implicit online learning. ICML 2010.
    * Z. Wang, K. Crammer and S. Vucetic. Breaking the curse of kernelization: budgeted stochastic gradient descent for
      large-scale SVM training. JMLR 13, 2012.

    Examples
    --------
    >>> from river import datasets, evaluate, metrics, preprocessing
    >>> from streamsvm.online import BSGDRegressor
    >>> model = preprocessing.StandardScaler() | BSGDRegressor(budget=100)
    >>> evaluate.progressive_val_score(datasets.TrumpApproval(), model, metrics.MAE())  # doctest: +ELLIPSIS
    MAE: 0.379...
    """

    task = "regress"

    def __init__(
        self, lam: float = 1e-3, epsilon: float = 0.1, gamma: float | Literal["scale", "auto"] = "scale",
        kernel: DefiniteKernel = "rbf", degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None, bias: bool = False, average: bool = False,
        max_features: int = MOST_FEATURES, kernel_params: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._start({"max_features": 1}, 1)
        self._targets = RunningMoments()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"budget": 20}

    def learn_one(self, x: Features, y: object) -> None:
        """One step for the event x with target y. For a bad event it raises DataError, a ValueError, and learns
        nothing."""
        target = np.array([number(y)])
        row = self._row(x, grow=True)
        self._see(target)
        self._learner.learn_one(row, self._decide(row)[1], target)
        self._after_steps(row)

    def predict_one(self, x: Features) -> float:
        """The value, 0 before the first event is learned."""
        return float(self._decide(self._row(x, grow=False))[0][0])

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """One step for each row of a data frame of pandas, polars or Arrow, in order: the same model as `learn_one` row
        by row, up to rounding. NaN and null are missing."""
        targets = np.array([number(value) for value in targets_in(y)])
        if len(targets) != (m := rows_in(X)):
            raise DataError(f"found {len(targets)} targets, expected one for each of {m} rows")
        rows = self._columns.matrix(X, grow=True)
        self._make_room()
        cuts = {0, len(targets)}  # where units or gamma change
        for i in range(len(targets)):
            cuts |= {i} if is_doubled(self.n_seen + i) or is_doubled(self.n_seen + i + 1) else set()
        if not self._targets.squares:
            cuts |= set(np.flatnonzero(np.diff(targets, prepend=self._targets.mean))[:2].tolist())
        for start, stop in pairwise(sorted(cuts)):
            rows_between = slice(start, stop)
            self._see(targets[rows_between])
            self._learner.learn(rows.take(rows_between), targets[rows_between, None])
            self._after_steps(rows.take(rows_between).dense())

    def predict_many(self, X: pd.DataFrame) -> pd.Series:
        """Values of the rows, by `predict_one`: in columns far from 0, products of blocks would cancel."""
        rows = self._columns.matrix(X, grow=False).dense()
        values = [float(self._learner.decide_one(row)[0][0]) for row in rows]
        return series_like(X, values, np.float64)

    def check(self, x: Features, y: object = None) -> None:
        """Raises DataError for an event that cannot be learned: a feature or the target is not a number."""
        super().check(x)
        if y is not None:
            number(y)

    def to_model(self, scaling: Scaling | None = None, **more: object) -> StreamModel:
        """The model as `fit` writes it, with all that further learning needs, and `more` that the caller wants kept."""
        return self._model(np.empty(0), scaling, {"targets": vars(self._targets)} | more)

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDRegressor:
        """A learner that continues exactly from where `to_model`, or a fit, stopped."""
        learner, stream = cls._resumed(model)
        origin, unit = learner._learner.units.tolist()
        fitted = {"n": learner.n_seen, "mean": origin, "squares": learner.n_seen * unit**2}
        learner._targets = RunningMoments(**stream.get("targets", fitted))
        return learner

    def _see(self, targets: np.ndarray) -> None:
        """Targets that are about to be learned: units are measured by the first of them, too."""
        first, *more = targets.tolist()
        had_none = not self._targets.squares
        self._targets.see(first)
        if is_doubled(self.n_seen + 1) or (had_none and self._targets.squares):
            self._learner.set_units(self._targets.mean, self._targets.spread or 1.0)
            self._last_decision = None
        for y in more:
            self._targets.see(y)


class RunningMoments:
    """Mean and spread of numbers seen one by one (Welford 1962)."""

    def __init__(self, n: int = 0, mean: float = 0.0, squares: float = 0.0) -> None:
        self.n, self.mean, self.squares = n, mean, squares

    def see(self, y: float) -> None:
        self.n += 1
        deviation = y - self.mean
        self.mean += deviation / self.n
        self.squares += deviation * (y - self.mean)

    @property
    def spread(self) -> float:
        """Their standard deviation; 0 of none."""
        return float(np.sqrt(self.squares / self.n)) if self.n else 0.0


def number(y: object) -> float:
    """A target. Raises DataError."""
    if kind_of(y) == "number" and abs(target := as_float(y)) < LARGEST:  # so NaN is none
        return target
    raise DataError(f"found target {shown(y)}, expected a finite number below {LARGEST:.0e}")
