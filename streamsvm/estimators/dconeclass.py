"""DCOneClassSVM: outliers by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.estimators.dcsvm import DCSVM_OPTIONS
from streamsvm.estimators.outliers import OutlierDetector
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.models import ExpansionModel

OPTIONS = tuple(name for name in DCSVM_OPTIONS if name not in ("combine", "part_metric"))


class DCOneClassSVM(RegressionVectors, OutlierDetector):
    """Outliers by divide and conquer: the support of a distribution, exact or with early prediction.

    Minimises 1/2 a'Ka over 0 <= a_i <= w_i with sum a = nu sum w, w_i the weight of a row, 1 without weights: the
    problem of `OneClassSVM` (Schoelkopf et al. 2001). f(x) = sum_i a_i K(x_i, x) - rho is below 0 of outliers: of at
    most a share nu of the rows, up to `tol`. Parts are those of `DCSVC` (Hsieh, Si and Dhillon 2014); in an early model
    each has a rho of its own, and with it the same share of outliers.

    Parameters
    ----------
    nu : float, default=0.5
        Largest share of outliers among the rows of X, and smallest share of support vectors; above 0, at most 1.
    kernel, gamma, degree, coef0, kernel_params, random_state, early, children, levels, early_level, sample, \
clustering, part_rows, adaptive, refine, neighbours, cache_size, scale, gaps, memory_limit, n_jobs, client, verbose :
        As in `DCSVC`.
    tol : float, default=1e-3
        LIBSVM's m - M at the end, over rho: decision values grow with the rows.

    Attributes
    ----------
    n_features_in_, feature_names_in_, model_, objective_, dual_gap_ : as in `DCSVC`
    offset_ : float
        rho, by which `decision_function` is less than `score_samples`; 0 of an early model, which has one of each part.
    support_, support_vectors_, dual_coef_, intercept_, n_support_ : as in `OneClassSVM`
        Of exact models only.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import DCOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> svm = DCOneClassSVM(nu=0.1).fit(X)
    >>> svm.predict([[0, 0], [5, 5]])
    array([ 1, -1])
    >>> round(float(np.mean(svm.predict(X) == -1)), 2)
    0.1
    """

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-3,
        random_state: Any = None,
        early: bool = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: str = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        neighbours: int = 1,
        cache_size: float = 200,
        scale: str = "none",
        gaps: str | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.nu = nu
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.tol = tol
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
        self.cache_size = cache_size
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Trains on X (n, d), inputs and errors as `DCSVC.fit`; y, and labels of a Store, are not read."""
        config = self._config()
        self._learn(self._rows(X, sample_weight), config)
        model = self.model_
        self.offset_ = -float(model.intercept[0]) if isinstance(model, ExpansionModel) else 0.0
        return self

    def _values(self) -> dict[str, Any]:
        return {
            "task": "oneclass",
            "nu": self.nu,
            "tol": self.tol,
            "dcsvm": {name: getattr(self, name) for name in OPTIONS},
            "cache_size": f"{self.cache_size}MiB",
        }
