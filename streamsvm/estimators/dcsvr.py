"""DCSVR: regression by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.estimators.base import StoreRegressor
from streamsvm.estimators.dcsvm import DCSVM_OPTIONS, loss_of
from streamsvm.estimators.support_vectors import RegressionVectors

OPTIONS = tuple(
    name for name in DCSVM_OPTIONS if name != "combine"
)  # of parts that have constants of their own


class DCSVR(RegressionVectors, StoreRegressor):
    """Epsilon support vector regression by divide and conquer, exact or with early prediction.

    Minimises 1/2 (a - a*)'K(a - a*) + epsilon sum(a + a*) - t'(a - a*) over 0 <= a_i, a*_i <= C_i with
    sum(a - a*) = 0, the problem of `SVR`, for f(x) = sum_i (a_i - a*_i) K(x_i, x) + b; errors within epsilon cost
    nothing. t is y less its mean over its deviation, and answers are in units of y: with C, epsilon and tol times the
    deviation it is the problem of y itself. Parts are those of `DCSVC` (Hsieh, Si and Dhillon 2014); in an early
    model each has a b of its own.

    Parameters
    ----------
    C, kernel, gamma, degree, coef0, kernel_params, metric, metric_params, search_params, random_state, early, \
children, levels, early_level, sample, clustering, part_rows, adaptive, refine, neighbours, part_metric, cache_size, \
scale, gaps, memory_limit, n_jobs, client, verbose : as in `DCSVC`
    epsilon : float, default=0.1
        Largest error without a loss, in units of t, as C and tol.
    scale_targets : bool, default=True
        Whether y is scaled; False is the problem of `SVR` with the same C and epsilon.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, default="epsilon_insensitive"
        Of a row, times its C: xi = max(0, |t - f(x)| - epsilon), or xi^2, whose dual has no bound C but a ridge 1 / 2C.
    nu : float or None, default=None
        Makes nu-SVR, the problem of `NuSVR`: epsilon, which is not read then, is what leaves at most this share of the
        rows outside.
    interval : float or None, default=None
        Level in (0, 1) of `predict_interval`: a fifth of the rows, 10,000 at most, is not learned from then, and tells
        how far off f is (split conformal prediction, Lei et al. 2018).
    tol : float, default=1e-3
        LIBSVM's m - M at the end. Kernel values are float32: far below 1e-5 of the spread of t is out of reach.

    Attributes
    ----------
    n_features_in_, feature_names_in_, model_, chosen_, expected_, metric_, objective_, dual_gap_ : as in `DCSVC`
    epsilon_ : float
        That nu makes; of an early model each part has its own, and this is absent.
    support_, support_vectors_, dual_coef_, intercept_, n_support_ : as in `SVR`
        Of exact models only.

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
        C: float | str = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = True,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        loss: str = "epsilon_insensitive",
        nu: float | None = None,
        interval: float | None = None,
        tol: float = 1e-3,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
        early: bool | str = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: str = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        neighbours: int = 1,
        part_metric: int = 0,
        cache_size: float = 200,
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
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d) and targets y (n,); inputs and errors as `DCSVC.fit`."""
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
