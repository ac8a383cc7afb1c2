"""CuttingPlaneSVR: linear regression by cutting planes, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.cutting_plane import WithIntercept


class CuttingPlaneSVR(StoreRegressor, WithIntercept):
    """Linear support vector regression in a few passes over the rows, of any number.

    Minimises 1/2 |w|^2 + sum_i C_i max(0, |t_i - w'x_i| - epsilon), as `LinearSVR` does, by cutting planes (Joachims
    2006) with the line search of Franc and Sonnenburg 2009. t is y less its mean over its deviation, and answers are in
    units of y: with C, epsilon and tol times the deviation it is the problem of y itself.

    Parameters
    ----------
    C, kernel, gamma, degree, coef0, kernel_params, landmarks, tol, fit_intercept, intercept_scaling, method, metric, \
metric_params, search_params, max_passes, random_state, scale, gaps, memory_limit, n_jobs, client, verbose :
        As in `CuttingPlaneSVC`.
    epsilon : float, default=0.0
        Largest error without a loss, in units of t, as C.
    scale_targets : bool, default=True
        Whether y is scaled; False is the problem of `LinearSVR` with the same C and epsilon.
    interval : float or None, default=None
        As in `DCSVR`: rows that are not learned from make `predict_interval`.

    Attributes
    ----------
    n_features_in_, feature_names_in_, chosen_, expected_, metric_, model_, objective_, dual_gap_, n_iter_, n_passes_ :
        As in `CuttingPlaneSVC`; the objective is that of t.
    coef_ : ndarray of shape (n_features_in_,)
        Weights, in units of y; without landmarks only.
    intercept_ : ndarray of shape (1,)
        Constant, in units of y.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import CuttingPlaneSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = CuttingPlaneSVR(C=10).fit(X[:350], y[:350])
    >>> round(svm.score(X[350:], y[350:]), 1)
    0.5
    """

    def __init__(
        self,
        *,
        C: float | str = 1.0,
        epsilon: float = 0.0,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: str = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        method: str = "ocas",
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        max_passes: int = 1000,
        random_state: Any = None,
        scale: str = "none",
        gaps: str | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.epsilon = epsilon
        self.scale_targets = scale_targets
        self.interval = interval
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.landmarks = landmarks
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.method = method
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.max_passes = max_passes
        self.random_state = random_state
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d) and targets y (n,); inputs and errors as `CuttingPlaneSVC.fit`."""
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._found(self._learn(store, config))
        return self

    @property
    def coef_(self) -> np.ndarray:
        return super().coef_[0]

    def _values(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("epsilon", "scale_targets", "interval")}
        return super()._values() | {"task": "regress"} | own
