"""DCSVR: regression by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Literal, Self

from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.dcsvm import DCSVM_OPTIONS, loss_of
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import (
    Search,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
)
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Clustering

OPTIONS = tuple(
    name for name in DCSVM_OPTIONS if name != "combine"
)  # of parts that have constants of their own


class DCSVR(RegressionVectors, StoreRegressor):
    r"""Epsilon support vector regression by divide and conquer, exact or with early prediction.

    Partitions are those of `DCSVC`. By default it learns the standardised target t, and answers in units of y.

    Parameters
    ----------
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}
        Cost of a training error: xi = max(0, |t - f(x)| - epsilon), or xi^2, which has no upper bound of the dual
        variables.
    nu : float or None
        Train nu-SVR, as `sklearn.svm.NuSVR`, instead of using epsilon: the largest share of rows outside the tube.
        Above 0, at most 1. Larger: a narrower tube, more support vectors. None: epsilon decides.
    tol : float
        Stopping tolerance, above 0: LIBSVM's m - M, in the units of t. Larger: a shorter, less exact fit. Kernel values
        are float32, so values far below 1e-5 cannot be reached.
    random_state : int, RandomState or None
        Seed of the clustering. An exact model depends on it within `tol` only.

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel or LocalModel
    chosen_, expected_, metric_, objective_, dual_gap_
    epsilon_ : float
        Half-width of the tube that `nu` led to; exact models only.
    support_
    support_vectors_
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        Intercept, b.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.

    See Also
    --------
    ALFPGMSVR : exact, for rows that fit in memory.
    CuttingPlaneSVR : linear.
    BudgetedSVR : with a limited number of support vectors.
    sklearn.svm.SVR : without `scale_targets` the same problem.

    Notes
    -----
    For :math:`f(x) = \sum_i v_i K(x_i, x) + b` it solves

    .. math::

        \min_v\: \tfrac12\, v^\top K v + \epsilon \sum_i \lvert v_i \rvert - t^\top v \quad
        \text{where} \quad -C_i \le v_i \le C_i, \: \sum_i v_i = 0

    With `scale_targets`, C, epsilon and tol are in units of the standard deviation of y.

    References
    ----------
    * C.-J. Hsieh, S. Si and I. S. Dhillon. A divide-and-conquer solver for kernel support vector machines. ICML 2014.
    * J. Lei et al. Distribution-free predictive inference for regression. JASA 113, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import DCSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = DCSVR().fit(X[:350], y[:350])
    >>> round(svm.score(X[350:], y[350:]), 2)
    0.54
    """

    def __init__(
        self,
        *,
        C: Searched = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        kernel: SearchedKernel = "rbf",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        loss: Literal["epsilon_insensitive", "squared_epsilon_insensitive"] = "epsilon_insensitive",
        nu: float | None = None,
        interval: float | None = None,
        tol: float = 1e-3,
        metric: SearchedMetric = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
        early: bool | Search = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: Clustering = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        neighbours: int = 1,
        part_metric: int = 0,
        cache_size: float = 200,
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
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.loss = loss
        self.nu = nu
        self.interval = interval
        self.tol = tol
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.random_state = random_state
        self.early = early
        self.children = children
        self.levels = levels
        self.early_level = early_level
        self.sample = sample
        self.clustering = clustering
        self.part_rows = part_rows
        self.adaptive = adaptive
        self.refine = refine
        self.neighbours = neighbours
        self.part_metric = part_metric
        self.cache_size = cache_size
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
        report = self._learn(store, config)
        if "epsilon" in report:
            self.epsilon_ = report["epsilon"]
        return self

    def _values(self) -> dict[str, Any]:
        return {
            "task": "regress",
            "C": self.C,
            "epsilon": self.epsilon,
            "scale_targets": self.scale_targets,
            "nu": self.nu,
            "interval": self.interval,
            "tol": self.tol,
            "dcsvm": {name: getattr(self, name) for name in OPTIONS}
            | {"loss": loss_of(self.loss, "epsilon_insensitive", "squared_epsilon_insensitive")},
            "cache_size": f"{self.cache_size}MiB",
        }
