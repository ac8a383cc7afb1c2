"""DCSVC: divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Literal, Self

from streamsvm.errors import ConfigError
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.estimators.support_vectors import SupportVectors
from streamsvm.estimators.types import (
    ClassWeight,
    MultiClass,
    Probability,
    Search,
    Searched,
    SearchedGamma,
    SearchedKernel,
    SearchedMetric,
    SearchedScale,
)
from streamsvm.events import Event, Phase, Record, Round
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
    "combine",
    "neighbours",
    "part_metric",
)


class DCSVC(SupportVectors, SetClassifier):
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
    random_state : int, RandomState or None
        Seed of the clustering. An exact model depends on it within `tol` only.
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

    def __init__(
        self,
        *,
        C: Searched = 1.0,
        kernel: SearchedKernel = "rbf",
        gamma: SearchedGamma = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        fit_intercept: bool | None = None,
        loss: Literal["hinge", "squared_hinge"] = "hinge",
        multi_class: MultiClass = "ovo",
        nu: float | None = None,
        tol: float = 1e-3,
        class_weight: ClassWeight = None,
        probability: Probability = False,
        threshold: str | None = None,
        costs: Any = None,
        metric: SearchedMetric = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
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
        category: Any = None,
        target_encode: Any = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.fit_intercept = fit_intercept
        self.loss = loss
        self.multi_class = multi_class
        self.nu = nu
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.threshold = threshold
        self.costs = costs
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.random_state = random_state
        self.early = early
        self.children = children
        self.levels = levels
        self.early_level = early_level
        self.sample = sample
        self.clustering = clustering
        self.part_rows = part_rows
        self.adaptive = adaptive
        self.refine = refine
        self.combine = combine
        self.neighbours = neighbours
        self.part_metric = part_metric
        self.cache_size = cache_size
        self.scale = scale
        self.gaps = gaps
        self.mark_gaps = mark_gaps
        self.category = category
        self.target_encode = target_encode
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on all rows.

        Raises ValueError for bad data or parameters, MemoryError if `memory_limit` is too small.
        """
        rounds = _RoundCounter()
        self._train(X, y, sample_weight, rounds, groups=groups)
        self.n_iter_ = rounds.n
        return self

    def _values(self) -> dict[str, Any]:
        return {
            "C": self.C,
            "nu": self.nu,
            "tol": self.tol,
            "dcsvm": {name: getattr(self, name) for name in DCSVM_OPTIONS}
            | {"bias": self.fit_intercept, "loss": loss_of(self.loss, "hinge", "squared_hinge")},
            "multiclass": multiclass_of(self.multi_class),
            "cache_size": f"{self.cache_size}MiB",
        }


def loss_of(found: str, linear: str, squared: str) -> str:
    """The option that this parameter is. Raises ConfigError unless it is one of the names."""
    return one_of("loss", found, {linear: "linear", squared: "squared"})


def multiclass_of(found: str) -> str:
    """The option that multi_class is. Raises ConfigError unless it is one of its names."""
    return one_of("multi_class", found, {"ovo": "pairs", "ovr": "rest"})


def one_of(parameter: str, found: Any, names: dict[str, str]) -> str:
    """The value of an option by that of a parameter. Raises ConfigError for one without."""
    if not isinstance(found, str) or found not in names:
        raise ConfigError(f"{parameter}: found {found!r}, expected {' or '.join(map(repr, names))}")
    return names[found]


class _RoundCounter:
    """Counts the solver's rounds on the whole problem."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, record: Record[Event]) -> None:
        self.n += isinstance(record.event, Round) and record.event.phase == Phase.TOP
