"""DCSVC: divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Literal

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.estimators.base import StoreEstimator, set_parameters
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.estimators.support_vectors import SupportVectors
from streamsvm.estimators.types import (
    ClassWeight,
    Client,
    Columns,
    Costs,
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
from streamsvm.events import Event, Phase, Record, Round, Sink
from streamsvm.options.base import Fill
from streamsvm.options.solvers import Clustering, Combine

DCSVM_OPTIONS = (
    "early",
    "children",
    "levels",
    "early_level",
    "sample",
    "clustering",
    "part_rows",
    "adaptive",
    "refine",
    "neighbours",
)


class DCSVMEstimator(StoreEstimator):
    """What classification, regression and outlier detection by divide and conquer share.

    Parameters
    ----------
    random_state : int, RandomState or None
        Seed of the clustering. An exact model depends on it within `tol` only.
    """

    _solver_options: tuple[str, ...] = DCSVM_OPTIONS

    early: bool | str
    children: int
    levels: int | None
    early_level: int | None
    sample: int
    clustering: Clustering
    part_rows: int | None
    adaptive: bool
    refine: bool
    neighbours: int
    cache_size: float

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"cache_size": f"{self.cache_size}MiB"}


class DCSVC(DCSVMEstimator, SupportVectors, SetClassifier):
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

    _fields = ("C", "nu", "tol")
    _solver_options = (*DCSVM_OPTIONS, "combine", "part_metric")

    fit_intercept: bool | None
    multi_class: str

    def __init__(
        self,
        *,
        C: Searched = 1.0,
        kernel: SearchedKernel = "rbf",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: Options = None,
        fit_intercept: bool | None = None,
        loss: Literal["hinge", "squared_hinge"] = "hinge",
        multi_class: MultiClass = "ovo",
        nu: float | None = None,
        tol: float = 1e-3,
        class_weight: ClassWeight = None,
        probability: Probability = False,
        threshold: str | None = None,
        costs: Costs = None,
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
        combine: Combine = "nearest",
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

    def _learn(self, store: Store, config: FitConfig, *sinks: Sink) -> dict[str, Any]:
        rounds = _RoundCounter()
        report = super()._learn(store, config, *sinks, rounds)
        self.n_iter_ = rounds.n
        return report

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"multiclass": multiclass_of(self.multi_class)}

    def _options(self) -> dict[str, Any]:
        loss = loss_of(self.loss, "hinge", "squared_hinge")
        return super()._options() | {"bias": self.fit_intercept, "loss": loss}


def loss_of(loss: str, linear: str, squared: str) -> str:
    """The option of the parameter `loss`, whose values are called linear and squared. Raises ConfigError."""
    return _one_of("loss", loss, {linear: "linear", squared: "squared"})


def multiclass_of(multi_class: str) -> str:
    """The option of the parameter `multi_class`. Raises ConfigError."""
    return _one_of("multi_class", multi_class, {"ovo": "pairs", "ovr": "rest"})


def _one_of(parameter: str, value: object, options: dict[str, str]) -> str:
    """The option that a value of a parameter stands for. Raises ConfigError for an unknown value."""
    if not isinstance(value, str) or value not in options:
        raise ConfigError(f"{parameter}: found {value!r}, expected {' or '.join(map(repr, options))}")
    return options[value]


class _RoundCounter:
    """Counts the solver's rounds on the whole problem."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, record: Record[Event]) -> None:
        self.n += isinstance(record.event, Round) and record.event.phase == Phase.TOP
