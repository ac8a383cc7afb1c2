"""BudgetedSVR: regression by budgeted stochastic gradient descent as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.budgeted import BSGD_OPTIONS


class BudgetedSVR(StoreRegressor):
    """Kernel regression by stochastic gradient descent with at most `budget` support vectors.

    Minimises lambda/2 |w|^2 + mean max(0, |y - f(x)| - epsilon), lambda = 1 / (n C), the problem of `SVR` over n C, for
    f(x) = w'phi(x) + b, b the mean of y. One row at a time, in implicit steps (Kulis and Bartlett 2010) in units of the
    spread of y, which answers do not depend on; where the budget is full, `merge` support vectors become one, as in
    `BudgetedSVC`.

    Parameters
    ----------
    C, epsilon : float, default=1.0 and 0.1
        As in `SVR`, of y less its mean over its deviation, as in `DCSVR`.
    scale_targets : bool, default=True
        False: C and epsilon are in units of y, as those of `SVR`.
    kernel, gamma, degree, coef0, kernel_params, budget, merge, strategy, epochs, average, metric, metric_params, \
search_params, random_state, scale, gaps, memory_limit, n_jobs, client, verbose : as in `BudgetedSVC`
    interval : float or None, default=None
        As in `DCSVR`: rows that are not learned from make `predict_interval`.
    lam : float or None, default=None
        lambda itself. None: 1 / (n C).
    fit_intercept : bool, default=False
        Learn a constant too, beside the mean of y, regularised like the rest.

    Attributes
    ----------
    n_features_in_, feature_names_in_, model_, chosen_, expected_, metric_, objective_, support_vectors_ : as in \
`BudgetedSVC`
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        b.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from streamsvm import BudgetedSVR
    >>> X, y = make_friedman1(2000, noise=1, random_state=0)
    >>> svm = BudgetedSVR(budget=200, epochs=3, random_state=0).fit(X[:1500], y[:1500])
    >>> round(svm.score(X[1500:], y[1500:]), 1)
    0.8
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        budget: int = 500,
        merge: int = 3,
        strategy: str = "sequence",
        epochs: int = 1,
        lam: float | None = None,
        fit_intercept: bool = False,
        average: bool = False,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
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
        self.budget = budget
        self.merge = merge
        self.strategy = strategy
        self.epochs = epochs
        self.lam = lam
        self.fit_intercept = fit_intercept
        self.average = average
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.random_state = random_state
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Learns X (n, d) and targets y (n,) in shuffled order; inputs and errors as `BudgetedSVC.fit`."""
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._learn(store, config)
        return self

    @property
    def support_vectors_(self) -> np.ndarray:
        return self.model_.support.X

    @property
    def dual_coef_(self) -> np.ndarray:
        return self.model_.coef.T

    @property
    def intercept_(self) -> np.ndarray:
        return self.model_.bias

    def _values(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in BSGD_OPTIONS} | {"bias": self.fit_intercept}
        own = {name: getattr(self, name) for name in ("C", "epsilon", "scale_targets", "interval")}
        return {"solver": "bsgd", "task": "regress", "bsgd": options} | own
