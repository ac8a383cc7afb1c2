"""DCOneClassSVM: outliers by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.estimators.dcsvm import DCSVM_OPTIONS
from streamsvm.estimators.outliers import OutlierDetector
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import Gamma
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.models import ExpansionModel
from streamsvm.options.base import Fill, Scale
from streamsvm.options.solvers import Clustering

OPTIONS = tuple(name for name in DCSVM_OPTIONS if name not in ("combine", "part_metric"))


class DCOneClassSVM(RegressionVectors, OutlierDetector):
    r"""Outlier detection by divide and conquer: the support of a distribution, exact or with early prediction.

    The decision function is below 0 for outliers, which are at most a share `nu` of the training rows, up to `tol`.
    Partitions are those of `DCSVC`.

    Parameters
    ----------
    nu : float
        Largest share of outliers among the training rows, and smallest share of support vectors. Above 0, at most 1.
        Larger: more outliers.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear"}
    gamma : float, "scale" or "auto"
    tol : float
        Stopping tolerance, above 0: LIBSVM's m - M divided by rho. Larger: a shorter, less exact fit.
    random_state : int, RandomState or None
        Seed of the clustering. An exact model depends on it within `tol` only.
    early : bool
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile"}

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel or LocalModel
    objective_, dual_gap_
    offset_ : float
        rho: `decision_function` is `score_samples` minus this. 0 for an early model, whose partitions have their own.
    support_, support_vectors_
    dual_coef_ : ndarray of shape (1, n_SV)
        Coefficients of the support vectors.
    intercept_ : ndarray of shape (1,)
        Minus rho.
    n_support_ : ndarray of shape (1,)
        Number of support vectors.

    See Also
    --------
    CuttingPlaneOneClassSVM : linear, or with Nystroem features.
    online.BSGDOneClass : learns event by event.
    sklearn.svm.OneClassSVM : the same problem.

    Notes
    -----
    For :math:`f(x) = \sum_i \alpha_i K(x_i, x) - \rho` and sample weights :math:`w_i` it solves

    .. math::

        \min_\alpha\: \tfrac12\, \alpha^\top K \alpha \quad
        \text{where} \quad 0 \le \alpha_i \le w_i, \: \sum_i \alpha_i = \nu \sum_i w_i

    References
    ----------
    * B. Schoelkopf et al. Estimating the support of a high-dimensional distribution. Neural Computation 13, 2001.
    * C.-J. Hsieh, S. Si and I. S. Dhillon. A divide-and-conquer solver for kernel support vector machines. ICML 2014.

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
        kernel: DefiniteKernel = "rbf",
        gamma: Gamma = "scale",
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
        clustering: Clustering = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        neighbours: int = 1,
        cache_size: float = 200,
        scale: Scale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Any = None,
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
        self.mark_gaps = mark_gaps
        self.category = category
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Trains on all rows. y, and labels of a Store, are ignored.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
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
