"""ALFPGMSVC and ALFPGMSVR: LIBSVM's problems, exactly, under the names of scikit-learn's SVC and SVR."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.estimators.base import PAIR, StoreClassifier, StoreEstimator, StoreRegressor
from streamsvm.estimators.inputs import (
    ClassWeight,
    Client,
    Columns,
    Costs,
    Data,
    MultiClass,
    Options,
    Probability,
    RandomState,
    Search,
    Searched,
    SearchedGamma,
    SearchedMetric,
    SearchedScale,
    TargetEncode,
)
from streamsvm.estimators.support_vectors import RegressionVectors, SupportVectors
from streamsvm.kernels.table import KernelName
from streamsvm.models import KernelModel
from streamsvm.options.base import Fill
from streamsvm.options.solvers import PUBLISHED, PairsMethod, Subproblem
from streamsvm.texts.documented import set_parameters

KernelFunction = Callable[[Any, Any], Any]  # of m rows and q rows: their kernel values (m, q)


class ALFPGMEstimator(StoreEstimator):
    """What classification and regression share.

    Parameters
    ----------
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "sigmoid", "linear", "precomputed", "search"} or callable
        Similarity of two rows: rbf exp(-gamma |a-b|^2), laplacian exp(-gamma |a-b|_1), matern p(s) exp(-s) with s =
        sqrt(2 nu) gamma |a-b|, cauchy 1 / (1 + gamma |a-b|^2), poly (gamma a'b + coef0)^degree, sigmoid tanh(gamma a'b
        + coef0), linear a'b. "precomputed": X has kernel values. A function returns those (m, q) of m rows with q rows.
        Both need data in memory, and exclude `probability`.
    coef0 : float
        Constant in the poly kernel, at least 0, and in sigmoid. Larger: low-order terms of poly count more. Other
        kernels ignore it.
    tol : float
        Stopping tolerance, above 0: LIBSVM's m - M. Larger: a shorter, less exact fit.
    shrinking : bool
        Leave out rows that are likely to stay at a bound, until the final check.
    max_iter : int
        Maximum number of rounds, at least 1. Larger: a more exact fit. -1: no limit.
    method : {"improved", "paper"}
        The paper's method with improvements, or as published. With "paper", parameters at their defaults have the
        paper's values: tol 1e-2, pairs 50, subproblem "fpg", min_alpha_check None, min_alpha_opt 5, max_alpha_opt 20,
        and no shrinking.
    pairs : int
        Number of pairs that join a working set, at least 1. Larger: fewer, longer rounds, and more memory.
    subproblem : {"pairs", "fpg"}
        How working sets are solved: two-variable steps, or the paper's augmented Lagrangian with fast projected
        gradient, which is slower.
    mu : float
        Scaling parameter of the augmented Lagrangian, above 0, with subproblem "fpg". Larger: the equality constraint
        counts more in each step.
    min_alpha_check : int or None
        Number of rows among which partners are sought, at least 1. Larger: better pairs, slower rounds. None: all.
    min_alpha_opt : int or None
        Rounds after which a row that rests at a bound is left out until the final check, at least 1. Larger: fewer rows
        are left out. None: never; the paper takes 5.
    max_alpha_opt : int or None
        Rounds after which any row is left out until the final check, at least 1. Larger: fewer rows are left out. None:
        never; the paper takes 20.
    delta_alpha : float
        Change of a dual variable below which its row rests, at least 0, see `min_alpha_opt`. Larger: more rows are left
        out.

    Attributes
    ----------
    fit_status_ : int
        0 if it converged, 1 if `max_iter` stopped it.
    shape_fit_ : tuple of int of shape (2,)
        Number of training rows and features.
    """

    _solver = "alfpgm"

    kernel: str | KernelFunction  # type: ignore[assignment]
    max_iter: int
    method: str
    shape_fit_: tuple[int, int]

    def _values(self) -> dict[str, Any]:
        return super()._values() | ({"kernel": {"name": "precomputed"}} if callable(self.kernel) else {})

    def _named(self, options: Collection[str]) -> dict[str, Any]:
        """Without the parameters at their defaults that the paper sets, if its method is chosen."""
        named = super()._named(options)
        if self.method != "paper":
            return named
        defaults = type(self)().get_params(deep=False)
        of_paper = {"tol", *PUBLISHED["alfpgm"]}
        return {name: value for name, value in named.items() if name not in of_paper or value != defaults[name]}

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"max_iter": None if self.max_iter == -1 else self.max_iter}

    def save(self, path: str | Path) -> None:
        """Writes `model_`. Raises OSError, and ConfigError if the kernel is a function.

        `streamsvm.load_model` and the command line read the folder.
        """
        if callable(self.kernel):
            raise ConfigError(
                "kernel is a function, which no model keeps; save one of kernel='precomputed', whose rows are values"
            )
        super().save(path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags

    def _store(self, X: Data, *, reset: bool) -> Store:
        if callable(self.kernel) and isinstance(X, Store):
            raise ConfigError("kernel is a function, which takes rows in memory; found a Store")
        return super()._store(X, reset=reset)

    def _checked(self, X: Data, y: Data, *, reset: bool) -> tuple[Any, Any]:
        """A function's values with the rows of fit take the place of X, as in `SVC`."""
        if callable(self.kernel):
            if reset:
                self._rows = X
            X = np.asarray(self.kernel(X, self._rows))
        return super()._checked(X, y, reset=reset)

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        self.n_iter_ = np.array(report["rounds"], np.int32)
        self.fit_status_ = int(not report["converged"])
        self.shape_fit_ = (store.n, store.d)


class ALFPGMSVC(ALFPGMEstimator, SupportVectors, StoreClassifier):
    r"""Support vector classification with an intercept, exactly LIBSVM's problem; replaces scikit-learn's `SVC`.

    Improves many pairs of dual variables in each round. It is fastest on rows that fit in memory. With a y (n, k) of 0
    and 1 each row may have any number of k labels, and each label is decided against the rest.

    Parameters
    ----------
    max_iter : int
        Maximum number of rounds of each problem, at least 1. Larger: a more exact fit. -1: no limit.
    decision_function_shape : {"ovr", "ovo"}
        Columns of `decision_function` with more than two classes: one for each class, or one for each pair of classes.
    break_ties : bool
        Decide equal votes by the decision values, not for the first class. Needs decision_function_shape "ovr".
    random_state : int, RandomState or None
        Seed of cross-validation and search; the solver itself has no random choices.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_
    model_ : KernelModel or ExpansionModel
    chosen_, expected_, metric_, threshold_, objective_, dual_gap_
    n_iter_ : ndarray of shape (n_problems,)
        Number of rounds of each problem.
    fit_status_, shape_fit_
    class_weight_ : ndarray of shape (n_classes,)
        Factor on C of each class.
    coef_ : ndarray of shape (n_problems, n_features_in_)
        Weights of the features; linear kernel only.
    support_, support_vectors_, dual_coef_, intercept_, n_support_

    See Also
    --------
    DCSVC : for more rows, or with early prediction.
    HSSSVC : many values of C at once.
    ALFPGMSVR : regression.
    sklearn.svm.SVC : the same problem and names.

    Notes
    -----
    Each problem, with :math:`Q_{ij} = y_i y_j K(x_i, x_j)`, is

    .. math::

        \min_\alpha\: \tfrac12\, \alpha^\top Q\, \alpha - e^\top \alpha \quad
        \text{where} \quad 0 \le \alpha_i \le C_i, \: y^\top \alpha = 0

    References
    ----------
    * V. Aregbesola and I. Griva. A fast algorithm for training large scale support vector machines. JCC 10(12), 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import ALFPGMSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = ALFPGMSVC(C=10).fit(X[:1500], y[:1500])
    >>> round(svm.score(X[1500:], y[1500:]), 2)
    0.95
    """

    multi_class: str
    decision_function_shape: str
    break_ties: bool

    def __init__(
        self, *, C: Searched = 1.0,
        kernel: Literal[KernelName, Search] | KernelFunction = "rbf", degree: int = 3, gamma: SearchedGamma = "scale",
        coef0: float = 0.0, kernel_params: Options = None,
        shrinking: bool = True,
        tol: float = 1e-3,
        cache_size: float = 200,
        class_weight: ClassWeight = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        max_iter: int = -1, decision_function_shape: MultiClass = "ovr", break_ties: bool = False,
        multi_class: MultiClass = "ovo",
        random_state: RandomState = None, method: PairsMethod = "improved", pairs: int = 500,
        subproblem: Subproblem = "pairs", mu: float = 0.1,
        min_alpha_check: int | None = 2000, min_alpha_opt: int | None = None, max_alpha_opt: int | None = None,
        delta_alpha: float = 1e-6,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def fit(self, X: Data, y: Data = None, sample_weight: Data = None, groups: Data = None) -> Self:
        """Trains on all rows.

        Warns (ConvergenceWarning) if `max_iter` stops it. Raises ValueError for bad data or parameters, MemoryError if
        `memory_limit` is too small.
        """
        if self.decision_function_shape not in ("ovr", "ovo"):
            raise ValueError(f"decision_function_shape is {self.decision_function_shape!r}, expected 'ovr' or 'ovo'")
        if self.decision_function_shape == "ovo" and self.multi_class == "ovr":
            raise ValueError("decision_function_shape is 'ovo', and multi_class 'ovr' has no decisions of pairs")
        return super().fit(X, y, sample_weight, groups)

    def decision_function(self, X: Data) -> np.ndarray:
        """(n,) for two classes, positive for classes_[1], else (n, n_classes).

        With decision_function_shape "ovo" (n, n_classes * (n_classes - 1) / 2), positive for the first class of a pair.
        """
        check_is_fitted(self)
        has_pairs = len(self.classes_) > 2 and self.model_.is_pairwise
        if self.decision_function_shape == "ovr" or not has_pairs:
            return super().decision_function(X)
        return self._by_blocks(X, _of_pairs, PAIR)

    def predict(self, X: Data) -> np.ndarray:
        """(n,) labels by LIBSVM's vote. Equal votes go to the first class, or to the more confident (`break_ties`)."""
        check_is_fitted(self)
        if self.break_ties and self.decision_function_shape == "ovo":
            raise ValueError("break_ties must be False when decision_function_shape is 'ovo'")
        return super().predict(X)

    def _set_attributes(self, store: Store, config: FitConfig, report: dict[str, Any]) -> None:
        super()._set_attributes(store, config, report)
        self.class_weight_ = self._weights(config, store)

    def _weights(self, config: FitConfig, store: Store) -> np.ndarray:
        """(n_classes,) the factors on C."""
        labels, counts = store.classes.values, store.classes.counts
        if config.class_weight is None:
            return np.ones(len(self.model_.classes))
        if config.class_weight == "balanced":
            return store.n / (len(labels) * counts)
        return np.array(list(config.class_weight.values()))


def _of_pairs(model: KernelModel, rows: Rows) -> np.ndarray:
    """(m, pairs), positive for the first class of each pair."""
    return -model.binary_decisions(rows)


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
    fit_status_, shape_fit_
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

    random_state = None

    def __init__(
        self, *, kernel: Literal[KernelName, Search] | KernelFunction = "rbf", degree: int = 3,
        gamma: SearchedGamma = "scale", coef0: float = 0.0, kernel_params: Options = None,
        tol: float = 1e-3, C: Searched = 1.0, epsilon: float = 0.1, scale_targets: bool = False,
        quantile: float | None = None, interval: float | None = None,
        shrinking: bool = True, cache_size: float = 200, max_iter: int = -1,
        method: PairsMethod = "improved", pairs: int = 500,
        subproblem: Subproblem = "pairs", mu: float = 0.1, min_alpha_check: int | None = 2000,
        min_alpha_opt: int | None = None, max_alpha_opt: int | None = None, delta_alpha: float = 1e-6,
        metric: SearchedMetric = "none", metric_params: Options = None, search_params: Options = None,
        scale: SearchedScale = "none", gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None,
        target_encode: TargetEncode = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())
