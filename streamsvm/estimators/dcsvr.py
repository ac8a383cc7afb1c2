"""DCSVR: regression by divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Literal

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.estimators.base import REGRESSION_FIELDS, StoreRegressor, set_parameters
from streamsvm.estimators.dcsvm import DCSVM_OPTIONS, DCSVMEstimator, loss_of
from streamsvm.estimators.support_vectors import RegressionVectors
from streamsvm.estimators.types import (
    Client,
    Columns,
    Options,
    RandomState,
    Search,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Clustering


class DCSVR(DCSVMEstimator, RegressionVectors, StoreRegressor):
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

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel or LocalModel
    chosen_, expected_, metric_, objective_, dual_gap_
    epsilon_ : float
        Half-width of the tube that `nu` led to; exact models only.
    support_, support_vectors_, dual_coef_, intercept_, n_support_

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

    _fixed = {"task": "regress"}
    _fields = (*REGRESSION_FIELDS, "C", "nu", "tol")
    _solver_options = (*DCSVM_OPTIONS, "part_metric")

    loss: str

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
        kernel_params: Options = None,
        loss: Literal["epsilon_insensitive", "squared_epsilon_insensitive"] = "epsilon_insensitive",
        nu: float | None = None,
        interval: float | None = None,
        tol: float = 1e-3,
        metric: SearchedMetric = "none",
        metric_params: Options = None,
        search_params: Options = None,
        random_state: RandomState = None,
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
        category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Client = None,
        verbose: int = 0,
    ) -> None:
        set_parameters(self, locals())

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        if "epsilon" in report:
            self.epsilon_ = report["epsilon"]

    def _options(self) -> dict[str, Any]:
        loss = loss_of(self.loss, "epsilon_insensitive", "squared_epsilon_insensitive")
        return super()._options() | {"loss": loss}
