"""Outlier detection on a budget with river's interface."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from streamsvm.data.scaling import Scaling
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import StreamModel
from streamsvm.online.base import MOST_FEATURES, BudgetLearnerBase
from streamsvm.online.kinds import Features
from streamsvm.options.solvers import Strategy
from streamsvm.tasks.oneclass import NU, OneClass
from streamsvm.texts.documented import set_parameters

try:
    from river.base import AnomalyDetector
except ImportError:  # river before 0.23
    from river.anomaly.base import AnomalyDetector  # type: ignore[no-redef]

_INLIER = np.ones(1)


class BSGDOneClass(BudgetLearnerBase, AnomalyDetector):
    r"""Online outlier detection on a budget of support vectors.

    An event outside becomes a support vector and lowers the threshold rho, any other event raises it. So a share `nu`
    of the events is outside in the long run.

    Parameters
    ----------
    nu : float
        Share of the events that are outside. Above 0, at most 1. Larger: more outliers.

    See Also
    --------
    online.BSGDClassifier : classification.
    DCOneClassSVM : exact, on stored rows.
    river.anomaly.OneClassSVM : linear.

    Notes
    -----
    It minimises, in steps of :math:`1 / t`,

    .. math:: \tfrac12 \lVert w \rVert^2 - \nu \rho + \operatorname{mean}_t \max(0,\, \rho - w^\top \varphi(x_t))

    There is no lambda: it would scale w and rho alike.

    References
    ----------
    * B. Schoelkopf et al. Estimating the support of a high-dimensional distribution. Neural Computation 13, 2001.
    * J. Kivinen, A. J. Smola and R. C. Williamson. Online learning with kernels. IEEE TSP 52, 2004.

    Examples
    --------
    >>> import random
    >>> from streamsvm.online import BSGDOneClass
    >>> rng, model = random.Random(0), BSGDOneClass(nu=0.1, budget=50)
    >>> for _ in range(1000):
    ...     model.learn_one({"a": rng.gauss(0, 1), "b": rng.gauss(0, 1)})
    >>> model.score_one({"a": 5.0, "b": 5.0}) > 0 > model.score_one({"a": 0.0, "b": 0.1})
    True
    """

    task = "oneclass"

    def __init__(
        self, nu: float = NU, gamma: float | Literal["scale", "auto"] = "scale", kernel: DefiniteKernel = "rbf",
        degree: int = 3, coef0: float = 0.0,
        budget: int = 500, merge: int = 3, strategy: Strategy | None = None,
        max_features: int = MOST_FEATURES, kernel_params: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
        self._start({"max_features": 1}, 1)

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, object]]:
        yield {"nu": 0.1, "budget": 20}

    def learn_one(self, x: Features) -> None:
        """One step for the event x. For a bad event it raises DataError, a ValueError, and learns nothing."""
        row = self._row(x, grow=True)
        self._learner.learn_one(row, self._decide(row)[1], _INLIER)
        self._after_steps(row)

    def score_one(self, x: Features) -> float:
        """1 - w'phi(x) / rho: above 0 of events outside, 1 far from all support vectors; 0 before rho is known."""
        return float(self.scores_of(self._decide(self._row(x, grow=False))[0])[0])

    def scores_of(self, decisions: np.ndarray) -> np.ndarray:
        """(m,) scores from decision values (m,)."""
        rho = self.rho
        return -decisions / rho if rho > 0 else np.zeros(len(decisions))

    @property
    def rho(self) -> float:
        return -float(self._learner.coefficients()[1][0])

    def to_model(self, scaling: Scaling | None = None, **more: object) -> StreamModel:
        """The model as `fit` writes it, with all that further learning needs, and `more` that the caller wants kept."""
        return self._model(np.array(OneClass.own_classes), scaling, more)

    @classmethod
    def from_model(cls, model: StreamModel) -> BSGDOneClass:
        """A learner that continues exactly from where `to_model` stopped."""
        return cls._resumed(model)[0]
