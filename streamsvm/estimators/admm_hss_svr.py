"""HSSSVR: kernel regression for many values of C by one factorisation, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence

from streamsvm.estimators.admm_hss import HSSPath
from streamsvm.estimators.base import REGRESSION_FIELDS, StoreRegressor, set_parameters
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import (
    Client,
    Columns,
    Options,
    RandomState,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
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

    _fixed = HSSPath._fixed | {"task": "regress"}
    _fields = (*REGRESSION_FIELDS, "tol")

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
        kernel_params: Options = None,
        tol: float = 1e-3,
        metric: SearchedMetric = "none",
        metric_params: Options = None,
        search_params: Options = None,
        random_state: RandomState = None,
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
        category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())
