"""CuttingPlaneSVR: linear regression by cutting planes, as a scikit-learn estimator."""

from __future__ import annotations

import numpy as np

from streamsvm.estimators.base import REGRESSION_FIELDS, StoreRegressor, set_parameters
from streamsvm.estimators.cutting_plane import WithIntercept
from streamsvm.estimators.types import (
    Client,
    Columns,
    Options,
    RandomState,
    Searched,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Method


class CuttingPlaneSVR(StoreRegressor, WithIntercept):
    r"""Linear support vector regression in a few passes over any number of rows.

    Bounds the risk from below by planes, as `CuttingPlaneSVC`. By default it learns the standardised target t, and
    answers in units of y.

    Parameters
    ----------

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_, model_, chosen_, expected_, metric_
    coef_ : ndarray of shape (n_features_in_,)
        Weights of the features, in units of y; without landmarks only.
    intercept_ : ndarray of shape (1,)
        Intercept, in units of y.
    objective_ : float
        Value of the primal objective in the units of t, exact.
    dual_gap_
    n_iter_ : int
        Number of planes.
    n_passes_

    See Also
    --------
    DCSVR : with a kernel.
    CuttingPlaneSVC : classification.
    sklearn.svm.LinearSVR : without `scale_targets` the same problem.

    Notes
    -----
    It solves

    .. math:: \min_w\: \tfrac12 \lVert w \rVert^2 + \sum_i C_i \max(0,\, \lvert t_i - w^\top x_i \rvert - \epsilon)

    References
    ----------
    * T. Joachims. Training linear SVMs in linear time. KDD 2006.
    * V. Franc and S. Sonnenburg. Optimized cutting plane algorithm for large-scale risk minimization. JMLR 10, 2009.
    * J. Lei et al. Distribution-free predictive inference for regression. JASA 113, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import CuttingPlaneSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = CuttingPlaneSVR(C=10).fit(X[:350], y[:350])
    >>> round(svm.score(X[350:], y[350:]), 1)
    0.5
    """

    _fixed = WithIntercept._fixed | {"task": "regress"}
    _fields = (*REGRESSION_FIELDS, "C", "tol")

    def __init__(
        self,
        *,
        C: Searched = 1.0,
        epsilon: float = 0.0,
        scale_targets: bool = True,
        interval: float | None = None,
        kernel: DefiniteKernel = "linear",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: Options = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        method: Method = "ocas",
        metric: SearchedMetric = "none",
        metric_params: Options = None,
        search_params: Options = None,
        max_passes: int = 1000,
        random_state: RandomState = None,
        scale: SearchedScale = "none",
        gaps: Fill | None = None,
        mark_gaps: bool = False,
        category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())

    @property
    def coef_(self) -> np.ndarray:
        return super().coef_[0]
