"""Linear problems by cutting planes, as scikit-learn estimators: classes, numbers, ranks and outliers."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.estimators.base import (
    DECISION,
    PREDICTION,
    OutlierDetector,
    StoreClassifier,
    StoreEstimator,
    StoreRegressor,
    classes_of,
    labels_of,
)
from streamsvm.estimators.inputs import (
    ClassWeight,
    Client,
    Columns,
    Costs,
    Data,
    Gamma,
    Options,
    Probability,
    RandomState,
    Searched,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Fill, Scale
from streamsvm.options.solvers import Loss, Method
from streamsvm.predict import decisions_of
from streamsvm.tasks import task_of
from streamsvm.tasks.scores import ranking
from streamsvm.texts.documented import set_parameters


class LinearEstimator(StoreEstimator):
    """What classification, regression, ranking and outlier detection by cutting planes share.

    Parameters
    ----------
    kernel : {"linear", "rbf", "laplacian", "matern", "cauchy", "poly"}
        Similarity of two rows: linear a'b, rbf exp(-gamma |a-b|^2), laplacian exp(-gamma |a-b|_1), matern p(s) exp(-s)
        with s = sqrt(2 nu) gamma |a-b|, cauchy 1 / (1 + gamma |a-b|^2), poly (gamma a'b + coef0)^degree. All but linear
        are approximated, and need `landmarks`.
    landmarks : int or None
        Number of rows, drawn at random, by which a kernel is approximated (Nystroem), at least 1. Larger: more
        accurate, slower, more memory. None: the kernel is linear.
    tol : float
        Duality gap, relative to the objective, at which the fit stops, above 0. Larger: a shorter, less exact fit.
        Planes are stored in float32, so values far below 1e-6 cannot be reached.
    slack_tol : float or None
        Excess of the mean loss (of pairs, in ranking) over its lower bound at which the fit stops, instead of at `tol`:
        the paper's epsilon, above 0. Larger: a shorter, less exact fit. None: it stops at `tol`.
    method : {"auto", "ocas", "plain", "dual"}
        "ocas": planes near the best point of a line search. "plain": planes at the last minimum, as Joachims does; for
        comparison. "dual": dual coordinate descent over rows in memory, or over blocks of them, with the hinge or tube
        loss. "auto": "dual" for sparse rows if what each row needs fits in half of the memory limit, else "ocas".
    max_passes : int
        Maximum number of passes over the rows, at least 1. Larger: a more exact fit.
    random_state : int, RandomState or None
        Seed of the landmarks.

    Attributes
    ----------
    model_ : LinearModel
    objective_ : float
        Value of the primal objective, exact, summed over classes.
    dual_gap_ : float
        Bound on the distance of the objective from its minimum, summed over classes.
    n_iter_ : int
        Number of planes of each class.
    stopped_by_ : {"tol", "epsilon", "passes", "rounding", "time"}
        What ended the fit. "epsilon" stands for `slack_tol`, "passes" for `max_passes`. With "rounding" planes in
        float32 no longer improved the gap.
    slack_ : float or None
        Excess of the mean loss over its lower bound at the end, the largest of any class. None: outliers.
    coef_ : ndarray of shape (1 or n_classes, n_features_in_)
        Weights of the features; without landmarks only.
    """

    _solver = "cutting-plane"

    landmarks: int | None
    max_passes: int
    slack_tol: float | None = None

    @property
    def coef_(self) -> np.ndarray:
        if self.landmarks is not None:
            raise AttributeError("coef_ is there without landmarks only; model_.coef holds theirs")
        return super().coef_

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        self.n_iter_, self.n_passes_ = report["steps"], report["passes"]
        self.stopped_by_, self.slack_ = report["stopped_by"], report.get("slack")

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"passes": self.max_passes, "epsilon": self.slack_tol}


class WithIntercept(LinearEstimator):
    """Losses of single rows, weighed by C, and an intercept.

    Parameters
    ----------
    C : float or "search"
        Inverse strength of the regularisation: weight of the losses, times class and sample weights. Above 0. Larger:
        fewer training errors, larger weights, more passes.
    fit_intercept : bool
        Learn an intercept: the weight of a constant feature, regularised like the others.
    intercept_scaling : float
        Value of that constant feature, above 0. Larger: the intercept is regularised less.
    metric : {"none", "diagonal", "full", "search"}
        Learn feature weights ("diagonal") or a linear map of the features ("full") from a sample, and choose C and
        gamma with them if these are left at their defaults. It is kept only if it decides held-out rows better.
        "search": like "diagonal", but chosen with other values of "search" only.

    Attributes
    ----------
    intercept_ : ndarray of shape (1 or n_classes,)
        Intercepts.
    """

    fit_intercept: bool
    intercept_scaling: float

    @property
    def intercept_(self) -> np.ndarray:
        return self._intercept(self.model_.intercept)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"bias": self.intercept_scaling if self.fit_intercept else 0.0}


class CuttingPlaneSVC(WithIntercept, StoreClassifier):
    r"""Linear support vector classification in a few passes over any number of rows.

    Bounds the risk from below by planes, one for each step, with a line search. With more than two classes, and with a
    y (n, k) of 0 and 1, each class or label is decided against the rest, all in the same passes. With loss "logistic"
    it is logistic regression whose intercept is regularised.

    Parameters
    ----------

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_, model_, chosen_, expected_, metric_, threshold_
    coef_, intercept_, objective_, dual_gap_, n_iter_, n_passes_, stopped_by_, slack_

    See Also
    --------
    AutoSVC : chooses the kernel, too.
    CuttingPlaneSVR : regression.
    CuttingPlaneRanker : ranking and ordinal labels.
    sklearn.svm.LinearSVC : with loss "hinge" the same problem.

    Notes
    -----
    For each class it solves

    .. math:: \min_w\: \tfrac12 \lVert w \rVert^2 + \sum_i C_i \max(0,\, 1 - y_i w^\top x_i)

    The C of Joachims is n times this one.

    References
    ----------
    * T. Joachims. Training linear SVMs in linear time. KDD 2006.
    * V. Franc and S. Sonnenburg. Optimized cutting plane algorithm for large-scale risk minimization. JMLR 10, 2009.
    * A. Radhakrishnan et al. Mechanism for feature learning in neural networks and backpropagation-free machine
      learning models. Science 383, 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import CuttingPlaneSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = CuttingPlaneSVC(C=10).fit(X[:1500] / 16, y[:1500])
    >>> round(svm.score(X[1500:] / 16, y[1500:]), 2)
    0.89
    """

    _task = "classify"
    _probable_with = "probability=True, costs or loss='logistic'"

    def __init__(
        self, *, loss: Loss = "hinge", C: Searched = 1.0,
        kernel: DefiniteKernel = "linear", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None, landmarks: int | None = None,
        tol: float = 1e-3, slack_tol: float | None = None, fit_intercept: bool = True, intercept_scaling: float = 1.0,
        method: Method = "auto",
        class_weight: ClassWeight = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        max_passes: int = 1000, random_state: RandomState = None,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, client: Client = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())


class CuttingPlaneRanker(LinearEstimator):
    r"""Linear ranking: rows with higher labels score higher, within queries or over all rows.

    Learns from pairs of rows of one query, without listing them. Without queries this is ordinal regression, and
    thresholds on the scores predict the labels. With two labels it maximises the area under the ROC curve.

    Parameters
    ----------
    C : float
        Inverse strength of the regularisation: weight of the pairs' mean loss, times the number of rows. Above 0.
        Larger: fewer pairs in the wrong order, larger weights, more passes.
    gamma : float, "scale" or "auto"
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile"}

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_, model_
    coef_ : ndarray of shape (1, n_features_in_)
        Weights of the features; without landmarks only.
    thresholds_ : ndarray of shape (n_labels - 1,)
        Scores between the ranks; only if `fit` had no queries.
    objective_
    dual_gap_
    n_iter_ : int
        Number of planes, each of which takes two passes.
    n_passes_
    stopped_by_
    slack_

    See Also
    --------
    CuttingPlaneSVC : labels without an order.
    CuttingPlaneSVR : labels that are numbers.

    Notes
    -----
    P is the set of pairs of rows (i, j) of one query of which i has the higher label. It solves

    .. math::

        \min_w\: \tfrac12 \lVert w \rVert^2 + C n \operatorname{mean}_{(i,j) \in P} \max(0,\, 1 - w^\top (x_i - x_j))

    With sample weights v, pairs weigh :math:`v_i v_j`, and n is the sum of v. There is no intercept, which differences
    would cancel. The C of Joachims is n times this one.

    References
    ----------
    * T. Joachims. Training linear SVMs in linear time. KDD 2006.
    * V. Franc and S. Sonnenburg. Optimized cutting plane algorithm for large-scale risk minimization. JMLR 10, 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import CuttingPlaneRanker
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ranker = CuttingPlaneRanker().fit(X[:350], y[:350])
    >>> round(ranker.score(X[350:], y[350:]), 2)  # share of the pairs that are in the right order
    0.76
    """

    _task = "ordinal"

    def __init__(
        self, *, C: float = 1.0,
        kernel: DefiniteKernel = "linear", gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None, landmarks: int | None = None,
        tol: float = 1e-3, slack_tol: float | None = None,
        method: Method = "auto", max_passes: int = 1000, random_state: RandomState = None,
        scale: Scale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, client: Client = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def fit(self, X: Data, y: Data = None, qid: Data = None, sample_weight: Data = None) -> Self:
        """Trains on all rows. The order of the labels counts.

        Raises ValueError for bad data or parameters, and if no query has two labels.
        """
        config = self._config()
        store, y = self._training_store(X, y, sample_weight, qid)
        classes = classes_of(y, store.sample_weight)
        task = "rank" if store.has_qid else "ordinal"
        self._learn(store, config.model_copy(update={"task": task}))
        self.classes_ = classes
        return self

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) scores. Larger: later in the order of the labels."""
        return self._by_blocks(X, decisions_of, DECISION)

    def predict(self, X: Data) -> np.ndarray:
        """(n,) labels if `fit` had no queries, else scores."""
        check_is_fitted(self)
        has_labels = task_of(self.model_.task).has_labels
        return self._by_blocks(X, partial(labels_of, self.classes_) if has_labels else decisions_of, PREDICTION)

    def score(self, X: Data, y: Data = None, qid: Data = None) -> float:
        """Share of the pairs in the right order, ties count half. Raises ValueError if there are no pairs."""
        if isinstance(X, Store) and y is None:
            y, qid = X.y, X.qid
        groups = np.zeros(len(y), np.int64) if qid is None else np.unique(qid, return_inverse=True)[1]
        swapped = ranking(np.asarray(y), np.asarray(self.decision_function(X)), groups)["swapped_pairs"]
        if swapped is None:
            raise DataError("no query has rows of two labels; there are no pairs to score")
        return 1.0 - swapped

    @property
    def thresholds_(self) -> np.ndarray:
        check_is_fitted(self)
        if not len(self.model_.thresholds):
            raise AttributeError("thresholds_ are there where fit was given no queries only")
        return self.model_.thresholds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


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
    stopped_by_
    slack_

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

    def __init__(
        self, *, C: Searched = 1.0, epsilon: float = 0.0, scale_targets: bool = True, interval: float | None = None,
        kernel: DefiniteKernel = "linear", gamma: SearchedGamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None, landmarks: int | None = None,
        tol: float = 1e-3, slack_tol: float | None = None, fit_intercept: bool = True, intercept_scaling: float = 1.0,
        method: Method = "auto",
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        max_passes: int = 1000, random_state: RandomState = None,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, client: Client = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    @property
    def coef_(self) -> np.ndarray:
        return super().coef_[0]


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
    stopped_by_
    slack_

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

    def __init__(
        self, *, nu: float = 0.5,
        kernel: DefiniteKernel = "linear", gamma: Gamma = "scale", degree: int = 3, coef0: float = 0.0,
        kernel_params: Options = None, landmarks: int | None = None,
        tol: float = 1e-3,
        method: Method = "auto", max_passes: int = 1000, random_state: RandomState = None,
        scale: Scale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, client: Client = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
