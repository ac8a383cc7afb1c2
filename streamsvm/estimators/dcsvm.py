"""DCSVC, DCSVR and DCOneClassSVM: divide and conquer as scikit-learn estimators."""

from __future__ import annotations

from typing import Any, Literal

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.estimators.base import OutlierDetector, StoreClassifier, StoreEstimator, StoreRegressor, one_of
from streamsvm.estimators.inputs import (
    ClassWeight,
    Client,
    Columns,
    Costs,
    Gamma,
    MultiClass,
    Options,
    Probability,
    RandomState,
    Search,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.estimators.support_vectors import RegressionVectors, SupportVectors
from streamsvm.events import Event, Phase, Record, Round, Sink
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill, Scale
from streamsvm.options.solvers import Clustering, Combine
from streamsvm.texts.documented import set_parameters


class DCSVMEstimator(StoreEstimator):
    """What classification, regression and outlier detection by divide and conquer share.

    Parameters
    ----------
    random_state : int, RandomState or None
        Seed of the clustering. An exact model depends on it within `tol` only.
    """


class DCSVC(DCSVMEstimator, SupportVectors, StoreClassifier):
    r"""Support vector classification by divide and conquer, exact or with early prediction.

    Clusters the rows, trains each partition, and uses the result as a start for the next, larger partitions, up to all
    rows. An early model stops before the top: each row is decided by the model of its nearest partition. With a y (n,
    k) of 0 and 1 each row may have any number of k labels, and each label is decided against the rest.

    Parameters
    ----------
    loss : {"hinge", "squared_hinge"}
        Cost of a training error: xi = max(0, 1 - y f(x)), or xi^2, which has no upper bound of the dual variables.
    fit_intercept : bool or None
        Learn an intercept, a constant that is added to the decision function. None: if the kernel is 0 at the origin,
        as "linear" is, and "poly" with `coef0` 0. "rbf" hardly needs one.
    combine : {"nearest", "naive", "committee"}
        How the partitions of an early model predict together: the nearest decides, the sum of all, or a mean of all,
        weighted by certainty.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_
    model_ : KernelModel, LocalModel or ExpansionModel
    chosen_, expected_, metric_, threshold_, objective_, dual_gap_
    n_iter_ : int
        Number of solver rounds on all rows, summed over the problems; 0 for an early model.
    support_, support_vectors_, dual_coef_, intercept_, n_support_

    See Also
    --------
    AutoSVC : chooses all parameters from the data.
    ALFPGMSVC : exact, for rows that fit in memory.
    CuttingPlaneSVC : linear.
    DCSVR : regression.
    sklearn.svm.SVC : with `fit_intercept=True` the same problem.

    Notes
    -----
    Each problem, with :math:`Q_{ij} = y_i y_j K(x_i, x_j)`, is

    .. math::

        \min_\alpha\: \tfrac12\, \alpha^\top Q\, \alpha - e^\top \alpha \quad
        \text{where} \quad 0 \le \alpha_i \le C_i

    With an intercept there is also the constraint :math:`y^\top \alpha = 0`.

    References
    ----------
    * C.-J. Hsieh, S. Si and I. S. Dhillon. A divide-and-conquer solver for kernel support vector machines. ICML 2014.
    * A. Radhakrishnan et al. Mechanism for feature learning in neural networks and backpropagation-free machine
      learning models. Science 383, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import DCSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = DCSVC(C=10).fit(X[:1500], y[:1500])
    >>> round(svm.score(X[1500:], y[1500:]), 2)
    0.96
    """

    fit_intercept: bool | None

    def __init__(
        self, *, C: Searched = 1.0,
        kernel: SearchedKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        fit_intercept: bool | None = None, loss: Literal["hinge", "squared_hinge"] = "hinge",
        multi_class: MultiClass = "ovo", nu: float | None = None, tol: float = 1e-3, class_weight: ClassWeight = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None, early: bool | Search = False, children: int = 4, levels: int | None = None,
        early_level: int | None = None, sample: int = 1000, clustering: Clustering = "input",
        part_rows: int | None = None, adaptive: bool = True, refine: bool = True, combine: Combine = "nearest",
        neighbours: int = 1, part_metric: int = 0, cache_size: float = 200,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def _learn(self, store: Store, config: FitConfig, *sinks: Sink) -> dict[str, Any]:
        n_rounds = 0

        def count(record: Record[Event]) -> None:
            nonlocal n_rounds
            n_rounds += isinstance(record.event, Round) and record.event.phase == Phase.TOP

        report = super()._learn(store, config, *sinks, count)
        self.n_iter_ = n_rounds
        return report

    def _options(self) -> dict[str, Any]:
        loss = one_of("loss", self.loss, {"hinge": "linear", "squared_hinge": "squared"})
        return super()._options() | {"bias": self.fit_intercept, "loss": loss}


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

    loss: str

    def __init__(
        self, *, C: Searched = 1.0, epsilon: float = 0.1, scale_targets: bool = True,
        kernel: SearchedKernel = "rbf", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        loss: Literal["epsilon_insensitive", "squared_epsilon_insensitive"] = "epsilon_insensitive",
        nu: float | None = None, quantile: float | None = None, interval: float | None = None, tol: float = 1e-3,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        random_state: RandomState = None, early: bool | Search = False, children: int = 4, levels: int | None = None,
        early_level: int | None = None, sample: int = 1000, clustering: Clustering = "input",
        part_rows: int | None = None, adaptive: bool = True, refine: bool = True, neighbours: int = 1,
        part_metric: int = 0, cache_size: float = 200,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        if "epsilon" in report:
            self.epsilon_ = report["epsilon"]

    def _options(self) -> dict[str, Any]:
        values = {"epsilon_insensitive": "linear", "squared_epsilon_insensitive": "squared"}
        return super()._options() | {"loss": one_of("loss", self.loss, values)}


class DCOneClassSVM(DCSVMEstimator, RegressionVectors, OutlierDetector):
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
    early : bool
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile"}

    Attributes
    ----------
    n_features_in_, feature_names_in_, feature_importances_
    model_ : ExpansionModel or LocalModel
    objective_, dual_gap_
    offset_ : float
        rho: `decision_function` is `score_samples` minus this. 0 for an early model, whose partitions have their own.
    support_, support_vectors_, dual_coef_
    intercept_ : ndarray of shape (1,)
        Minus rho.
    n_support_

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
        self, *, nu: float = 0.5,
        kernel: DefiniteKernel = "rbf", gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None,
        tol: float = 1e-3,
        random_state: RandomState = None, early: bool = False, children: int = 4, levels: int | None = None,
        early_level: int | None = None, sample: int = 1000, clustering: Clustering = "input",
        part_rows: int | None = None, adaptive: bool = True, refine: bool = True, neighbours: int = 1,
        cache_size: float = 200,
        scale: Scale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
