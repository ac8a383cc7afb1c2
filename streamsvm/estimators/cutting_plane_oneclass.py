"""CuttingPlaneOneClassSVM: outliers by cutting planes, as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.estimators.cutting_plane import LinearEstimator
from streamsvm.estimators.outliers import OutlierDetector


class CuttingPlaneOneClassSVM(OutlierDetector, LinearEstimator):
    """Outliers in a few passes over the rows, of any number: a half-space away from 0 that holds most of them.

    Minimises 1/2 |w|^2 - rho nu sum_i w_i + sum_i w_i max(0, rho - w'x_i) over w and rho, w_i the weight of a row, 1
    without weights: `OneClassSVM` with a linear kernel (Schoelkopf et al. 2001), by cutting planes (Joachims 2006), and
    about the problem of `SGDOneClassSVM`. f(x) = w'x - rho is below 0 of outliers, a share nu of the rows. With
    `landmarks` x stands for Nystroem features of a kernel, without which rows that lie all around 0 are no class.

    Parameters
    ----------
    nu : float, default=0.5
        Share of outliers among the rows of X; above 0, at most 1.
    kernel, gamma, degree, coef0, kernel_params, landmarks, method, max_passes, random_state, scale, gaps, \
memory_limit, n_jobs, client, verbose : as in `CuttingPlaneSVC`
    tol : float, default=1e-3
        Duality gap over the objective at the end.

    Attributes
    ----------
    n_features_in_, feature_names_in_, model_, dual_gap_, n_iter_, n_passes_ : as in `CuttingPlaneSVC`
    objective_ : float
        That of the dual, 1/2 |w|^2, as `OneClassSVM` has it.
    coef_ : ndarray of shape (1, n_features_in_)
        Weights; without landmarks only.
    offset_ : float
        rho, by which `decision_function` is less than `score_samples`.

    Examples
    --------
    >>> import numpy as np
    >>> from streamsvm import CuttingPlaneOneClassSVM
    >>> X = np.random.default_rng(0).normal(size=(1000, 2))
    >>> svm = CuttingPlaneOneClassSVM(nu=0.1, kernel="rbf", landmarks=100, random_state=0).fit(X)
    >>> svm.predict([[0, 0], [5, 5]])
    array([ 1, -1])
    >>> round(float(np.mean(svm.predict(X) == -1)), 2)
    0.1
    """

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: str = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        method: str = "ocas",
        max_passes: int = 1000,
        random_state: Any = None,
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
        self.landmarks = landmarks
        self.tol = tol
        self.method = method
        self.max_passes = max_passes
        self.random_state = random_state
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Trains on X (n, d), inputs and errors as `CuttingPlaneSVC.fit`; y, and labels of a Store, are not read."""
        config = self._config()
        self._found(self._learn(self._rows(X, sample_weight), config))
        self.offset_ = -float(self.model_.intercept[0])
        return self

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"task": "oneclass", "nu": self.nu}
