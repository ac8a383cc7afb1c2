"""ALFPGMSVR: LIBSVM's problem, exactly, under the names of scikit-learn's SVR."""

from __future__ import annotations

from typing import Literal

from streamsvm.estimators.alfpgm import ALFPGMEstimator, KernelFunction
from streamsvm.estimators.base import REGRESSION_FIELDS, StoreRegressor, set_parameters
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import (
    Client,
    Columns,
    Options,
    Search,
    Searched,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.kernels.table import KernelName
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Subproblem


class ALFPGMSVR(ALFPGMEstimator, RegressionVectors, StoreRegressor):
    r"""Epsilon support vector regression, exactly LIBSVM's problem; replaces scikit-learn's `SVR`.

    Improves many pairs of dual variables in each round, as `ALFPGMSVC`.

    Parameters
    ----------

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel
    chosen_, expected_, metric_, objective_, dual_gap_
    n_iter_ : ndarray of shape (1,)
        Number of rounds.
    fit_status_ : int
        0 if it converged, 1 if `max_iter` stopped it.
    shape_fit_ : tuple of int of shape (2,)
        Number of training rows and features.
    coef_ : ndarray of shape (1, n_features_in_)
        Weights of the features; linear kernel only.
    support_, support_vectors_, dual_coef_, intercept_, n_support_

    See Also
    --------
    DCSVR : for more rows, or with early prediction.
    CuttingPlaneSVR : linear.
    ALFPGMSVC : classification.
    sklearn.svm.SVR : the same problem and names.

    Notes
    -----
    For :math:`f(x) = \sum_i v_i K(x_i, x) + b` it solves

    .. math::

        \min_v\: \tfrac12\, v^\top K v + \epsilon \sum_i \lvert v_i \rvert - t^\top v \quad
        \text{where} \quad -C_i \le v_i \le C_i, \: \sum_i v_i = 0

    References
    ----------
    * V. Aregbesola and I. Griva. A fast algorithm for training large scale support vector machines. JCC 10(12), 2022.
    * J. Lei et al. Distribution-free predictive inference for regression. JASA 113, 2018.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import ALFPGMSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> svm = ALFPGMSVR(C=1000, epsilon=10).fit(X[:350], y[:350])
    >>> round(svm.score(X[350:], y[350:]), 2)
    0.32
    """

    _fixed = ALFPGMEstimator._fixed | {"task": "regress"}
    _fields = (*REGRESSION_FIELDS, "C", "tol")

    random_state = None

    def __init__(
        self,
        *,
        kernel: Literal[KernelName, Search] | KernelFunction = "rbf",
        degree: int = 3,
        gamma: SearchedGamma = "scale",
        coef0: float = 0.0,
        kernel_params: Options = None,
        tol: float = 1e-3,
        C: Searched = 1.0,
        epsilon: float = 0.1,
        scale_targets: bool = False,
        interval: float | None = None,
        shrinking: bool = True,
        cache_size: float = 200,
        max_iter: int = -1,
        pairs: int = 500,
        subproblem: Subproblem = "pairs",
        mu: float = 0.1,
        min_alpha_check: int | None = 2000,
        min_alpha_opt: int | None = None,
        max_alpha_opt: int | None = None,
        delta_alpha: float = 1e-6,
        metric: SearchedMetric = "none",
        metric_params: Options = None,
        search_params: Options = None,
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
