"""CuttingPlaneOneClassSVM: outliers by cutting planes, as a scikit-learn estimator."""

from __future__ import annotations

from streamsvm.estimators.base import set_parameters
from streamsvm.estimators.cutting_plane import LinearEstimator
from streamsvm.estimators.outliers import OutlierDetector
from streamsvm.estimators.types import Client, Columns, Gamma, Options, RandomState
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill, Scale
from streamsvm.options.solvers import Method


class CuttingPlaneOneClassSVM(OutlierDetector, LinearEstimator):
    r"""Outlier detection in a few passes over any number of rows: a half-space away from 0 that holds most of them.

    The decision function is below 0 for outliers, a share `nu` of the training rows. Without `landmarks` it is linear,
    and rows that lie all around 0 do not form a class.

    Parameters
    ----------
    nu : float
        Share of outliers among the training rows. Above 0, at most 1. Larger: more outliers.
    gamma : float, "scale" or "auto"
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile"}

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_, model_
    objective_ : float
        Value of the dual objective, as `sklearn.svm.OneClassSVM` has it.
    dual_gap_
    coef_ : ndarray of shape (1, n_features_in_)
        Weights of the features; without landmarks only.
    offset_
    n_iter_ : int
        Number of planes.
    n_passes_

    See Also
    --------
    DCOneClassSVM : with a kernel, exact.
    online.BSGDOneClass : learns event by event.
    sklearn.linear_model.SGDOneClassSVM : about the same problem.

    Notes
    -----
    For :math:`f(x) = w^\top x - \rho` and sample weights :math:`v_i` it solves

    .. math::

        \min_{w, \rho}\: \tfrac12 \lVert w \rVert^2 - \rho\, \nu \sum_i v_i + \sum_i v_i \max(0,\, \rho - w^\top x_i)

    With `landmarks`, x stands for the Nystroem features of the kernel.

    References
    ----------
    * B. Schoelkopf et al. Estimating the support of a high-dimensional distribution. Neural Computation 13, 2001.
    * T. Joachims. Training linear SVMs in linear time. KDD 2006.
    * V. Franc and S. Sonnenburg. Optimized cutting plane algorithm for large-scale risk minimization. JMLR 10, 2009.

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

    _fixed = LinearEstimator._fixed | {"task": "oneclass"}
    _fields = ("nu", "tol")

    def __init__(
        self,
        *,
        nu: float = 0.5,
        kernel: DefiniteKernel = "linear",
        gamma: Gamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: Options = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        method: Method = "ocas",
        max_passes: int = 1000,
        random_state: RandomState = None,
        scale: Scale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Columns = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())
