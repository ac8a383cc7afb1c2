"""HSSSVR: kernel regression for many values of C by one factorisation, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from streamsvm.estimators.admm_hss import HSSPath
from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.support_vectors import RegressionVectors


class HSSSVR(RegressionVectors, StoreRegressor, HSSPath):
    """Epsilon support vector regression, for one C or a whole path of them at about the same cost.

    Minimises 1/2 v'Kv + epsilon |v|_1 - t'v over -C_i <= v_i <= C_i, e'v = 0, the problem of `SVR` with v = a - a*, for
    f(x) = sum_i v_i K(x_i, x) + b, approximately: by ADMM on a compressed kernel matrix, as `HSSSVC`. `polish` goes on
    with the exact solver. t is y less its mean over its deviation, and answers are in units of y, as in `DCSVR`.

    Parameters
    ----------
    C : float, sequence of float or "search", default=1.0
        Upper bound of |v_i|, times sample weights. Of several, `path_` holds the models, and `choose` says which one
        predicts: at first that of the largest C.
    epsilon : float, default=0.1
        Largest error without a loss, in units of t, as C and tol.
    scale_targets : bool, default=True
        Whether y is scaled; False is the problem of `SVR` with the same C and epsilon.
    interval : float or None, default=None
        As in `DCSVR`: rows that are not learned from make `predict_interval`.
    kernel, gamma, degree, coef0, kernel_params, tol, metric, metric_params, search_params, random_state, rtol, atol, \
max_rank, definite, leaf, neighbours, landmarks, storage, beta, iterations, residual, polish, scale, gaps, \
memory_limit, n_jobs, client, verbose : as in `HSSSVC`

    Attributes
    ----------
    n_features_in_, feature_names_in_, chosen_, expected_, metric_, path_, reports_, C_, model_, objective_, \
dual_gap_, n_iter_ : as in `HSSSVC`
        Objective and gap are in units of t.
    support_, support_vectors_, dual_coef_, intercept_, n_support_ : as in `SVR`
        Of the model that predicts.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import HSSSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = HSSSVR(C=[0.1, 1], random_state=0).fit(X[:350], y[:350])
    >>> {C: round(svm.choose(C).score(X[350:], y[350:]), 1) for C in svm.path_}
    {0.1: 0.5, 1.0: 0.5}
    """

    def __init__(
        self,
        *,
        C: float | Sequence[float] | str = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-3,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
        rtol: float = 1e-3,
        atol: float = 1e-3,
        max_rank: int = 300,
        definite: bool | None = None,
        leaf: int = 128,
        neighbours: int = 32,
        landmarks: int = 256,
        storage: str = "float64",
        beta: float | str = "paper",
        iterations: int = 50,
        residual: float = 0.0,
        polish: int = 0,
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
        self.tol = tol
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.random_state = random_state
        self.rtol = rtol
        self.atol = atol
        self.max_rank = max_rank
        self.definite = definite
        self.leaf = leaf
        self.neighbours = neighbours
        self.landmarks = landmarks
        self.storage = storage
        self.beta = beta
        self.iterations = iterations
        self.residual = residual
        self.polish = polish
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d) and targets y (n,); inputs, warnings and errors as `HSSSVC.fit`."""
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._learn(store, config)
        return self

    def _values(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("epsilon", "scale_targets", "interval")}
        return super()._values() | {"task": "regress"} | own
