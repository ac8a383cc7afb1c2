"""HSSSVR: kernel regression for many values of C by one factorisation, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from streamsvm.estimators.admm_hss import HSSPath
from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import Searched, SearchedGamma, SearchedKernel, SearchedMetric, SearchedScale
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Number, Shift


class HSSSVR(RegressionVectors, StoreRegressor, HSSPath):
    r"""Epsilon support vector regression, for one C or many at about the same cost; approximate.

    Runs ADMM on a compressed kernel matrix, as `HSSSVC`. `polish` continues with the exact solver. By default it learns
    the standardised target t, and answers in units of y.

    Parameters
    ----------

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel
    chosen_, expected_, metric_, path_, reports_, C_, objective_, dual_gap_, n_iter_
    support_
    support_vectors_
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors of the model that predicts.
    intercept_ : ndarray of shape (1,)
        Intercept, b, of this model.
    n_support_ : ndarray of shape (1,)
        Number of support vectors of this model.

    See Also
    --------
    ALFPGMSVR : the exact solution.
    HSSSVC : classification.
    sklearn.svm.SVR : the same problem, without `scale_targets`.

    Notes
    -----
    For :math:`f(x) = \sum_i v_i K(x_i, x) + b` it solves

    .. math::

        \min_v\: \tfrac12\, v^\top K v + \epsilon \lVert v \rVert_1 - t^\top v \quad
        \text{where} \quad -C_i \le v_i \le C_i, \: e^\top v = 0

    References
    ----------
    * S. Cipolla and J. Gondzio. Training very large scale nonlinear SVMs using ADMM coupled with HSS approximations.
      2021.
    * J. Lei et al. Distribution-free predictive inference for regression. JASA 113, 2018.

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
        C: Searched | Sequence[float] = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: SearchedKernel = "rbf",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-3,
        metric: SearchedMetric = "none",
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
        storage: Number = "float64",
        beta: float | Shift = "paper",
        iterations: int = 50,
        residual: float = 0.0,
        polish: int = 0,
        scale: SearchedScale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Any = None,
        target_encode: Any = None,
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
        self.mark_gaps = mark_gaps
        self.category = category
        self.target_encode = target_encode
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on all rows.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        config = self._config()
        store, _ = self._training_store(X, y, sample_weight, groups=groups)
        self._learn(store, config)
        return self

    def _values(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("epsilon", "scale_targets", "interval")}
        return super()._values() | {"task": "regress"} | own
