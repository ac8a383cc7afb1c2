"""HSSSVC: kernel classification for many values of C by one factorisation, as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.config import build_config
from streamsvm.errors import ConfigError
from streamsvm.estimators.base import StoreEstimator
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.estimators.searched import SEARCH, asked
from streamsvm.train import train_path

HSS_OPTIONS = (
    "rtol",
    "atol",
    "max_rank",
    "definite",
    "leaf",
    "neighbours",
    "landmarks",
    "storage",
    "beta",
    "iterations",
    "residual",
    "polish",
)


class HSSPath(StoreEstimator):
    """A model for each C, of which one predicts."""

    C: float | Sequence[float] | str
    tol: float

    def choose(self, C: float) -> Self:
        """Lets the model of this C predict. Raises ValueError where there is none."""
        check_is_fitted(self, "path_")
        if C not in self.path_:
            raise ValueError(f"C={C} is not on the path; expected one of {', '.join(map(str, self.path_))}")
        self.C_, self.model_, report = C, self.path_[C], self.reports_[C]
        self.objective_, self.dual_gap_, self.n_iter_ = report["objective"], report["gap"], report["steps"]
        return self

    def _learn(self, store: Any, config: Any, *sinks: Any) -> dict[str, Any]:
        Cs = () if "C" in config.search.chosen else self._Cs()
        found = self._heard(partial(train_path, store, config, Cs), store, *sinks)
        self.path_ = {report["C"]: model for model, report in found}
        self.reports_ = {report["C"]: report for _, report in found}
        report = self.choose(max(self.path_)).reports_[self.C_]
        self._tell_choices(report)
        return report

    def _Cs(self) -> list[float]:
        """The values of C, each checked by the configuration. Raises ConfigError."""
        values = list(np.ravel(np.asarray(self.C, dtype=object)))
        if not values or len(set(values)) < len(values):
            raise ConfigError(f"C: found {self.C!r}, expected one number above 0, or several different ones")
        return [build_config((type(self).__name__, {"C": C})).C for C in values]

    def _values(self) -> dict[str, Any]:
        options = {name: getattr(self, name) for name in HSS_OPTIONS}
        C = SEARCH if "C" in asked(self) else self._Cs()[0]
        return {"solver": "admm-hss", "C": C, "tol": self.tol, "admm_hss": options}


class HSSSVC(HSSPath, SetClassifier):
    """Support vector classification with a bias, for one C or a whole path of them at about the same cost.

    Minimises 1/2 a'YKYa - sum_i a_i over 0 <= a_i <= C_i, y'a = 0, as `SVC` does, approximately: the kernel matrix is
    compressed (hierarchically semi-separable, HSS) and K + beta I factorised once; each step of ADMM is then a solve
    of linear cost, of which every class and every C is one more right-hand side (Cipolla and Gondzio 2021). More than
    two classes, and the labels of a y (n, k) of 0 and 1: each against the rest. `polish` goes on with the exact solver.

    Parameters
    ----------
    C : float, sequence of float or "search", default=1.0
        Upper bound of the dual variables, times class and sample weights. Of several, `path_` holds the models, and
        `choose` says which one predicts: at first that of the largest C.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear"}, default="rbf"
    gamma, degree, coef0, kernel_params : as in `DCSVC`, default="scale", 3, 0.0, None
    tol : float, default=1e-3
        Largest KKT violation at the end of polishing.
    class_weight : dict, "balanced", "search" or None, default=None
        Factors on C by class.
    probability : bool, "sigmoid" or "isotonic", default=False
        Cross-validate to calibrate: five more fits. `predict_proba` is there then, and `predict` gives the class of the
        largest probability. True: sigmoid.
    threshold, costs : as in `DCSVC`
    metric : {"none", "diagonal", "full", "search"}, default="none"
        Learn from a sample what each column, or direction, counts for (Radhakrishnan et al. 2024), and along with it
        kernel, C and gamma where these are at their defaults. It is kept where held-out rows are decided better.
    metric_params : dict or None, default=None
        Its options: iterations, and rank of a full one.
    search_params : dict or None, default=None
        How C, kernel, gamma, scale and metric are chosen where they are "search", see `DCSVC`.
    random_state : int, RandomState or None, default=None
        Draws samples of columns, landmarks and trees.
    rtol, atol, max_rank : float, float, int, default=1e-3, 1e-3, 300
        A basis ends where the pivots fall below rtol of the first, or what is left below atol an entry, or there.
    definite : bool or None, default=None
        True: bases that keep the matrix positive semidefinite at any tolerance. False: least squares, whose error goes
        on falling with rtol, and which needs a beta above it. None: least squares where landmarks explain little,
        which tells of a narrow kernel, and definite bases elsewhere, or where those turn out not to be enough.
    leaf, neighbours, landmarks : int, default=128, 32, 256
        Rows of a leaf of the cluster tree; near rows whose columns are compressed; rows that explain the smooth part
        of the kernel beforehand, where they explain half of it and more (0: never).
    storage : {"float64", "float32"}, default="float64"
        Numbers of matrix and factor.
    beta : float, "paper" or "balance", default="paper"
        Shift of ADMM. "paper": 1e2 up to 1e5 rows, 1e3 up to 1e6, 1e4 above, and 10 below 1e4; "balance": mended by
        the residuals, at a factorisation each time.
    iterations, residual : int, float, default=50, 0.0
        Most steps of ADMM, and the relative residuals at which it ends sooner.
    polish : int, default=0
        Most rounds of the exact solver from there on, until the KKT violation is below tol.
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile", "search"}, default="none"
        Scaling of the features by the training rows, kept in the model: for a `Store` and dask arrays, which no
        scaler of a pipeline reads block by block. Support vectors and `coef_` are of scaled features then.
    gaps : as in `DCSVC`
    memory_limit : int, str or None, default=None
        Bytes, or as "2GiB"; bounds the whole process. Rows and matrix have to fit.
    n_jobs : int or None, default=None
        Threads; None or -1 is every core.
    client : distributed.Client, False or None, default=None
        The cluster that fits; None: that of the active dask client, if there is one, else threads; False: threads.
    verbose : int, default=0
        1 shows progress on stderr: bars on a terminal, lines elsewhere; above 1 each step of the solver, too.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are all strings.
    chosen_, expected_, metric_ : dict
        Where something is "search", or with a metric: as in `DCSVC`.
    path_ : dict of float to ExpansionModel
        The model of each C.
    reports_ : dict of float to dict
        What `streamsvm fit --json` prints: ranks, bytes, estimated errors, residuals, seconds by phase.
    C_ : float
        The C that predicts.
    model_ : ExpansionModel
        Its model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_ : float
        Dual objective and gap: under the compressed kernel, or exact after polishing; summed over classes.
    n_iter_ : int
        Steps of ADMM.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import HSSSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = HSSSVC(C=[0.1, 0.3, 1], random_state=0).fit(X[:1500], y[:1500])
    >>> {C: round(svm.choose(C).score(X[1500:], y[1500:]), 2) for C in svm.path_}
    {0.1: 0.9, 0.3: 0.92, 1.0: 0.93}
    """

    def __init__(
        self,
        *,
        C: float | Sequence[float] | str = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        tol: float = 1e-3,
        class_weight: Any = None,
        probability: bool | str = False,
        threshold: str | None = None,
        costs: Any = None,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
        rtol: float = 1e-3,
        atol: float = 1e-3,
        max_rank: int = 300,
        definite: bool | None = None,
        leaf: int = 128,
        neighbours: int = 32,
        landmarks: int = 256,
        storage: str = "float64",
        beta: float | str = "paper",
        iterations: int = 50,
        residual: float = 0.0,
        polish: int = 0,
        scale: str = "none",
        gaps: str | None = None,
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
        self.tol = tol
        self.class_weight = class_weight
        self.probability = probability
        self.threshold = threshold
        self.costs = costs
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.random_state = random_state
        self.rtol = rtol
        self.atol = atol
        self.max_rank = max_rank
        self.definite = definite
        self.leaf = leaf
        self.neighbours = neighbours
        self.landmarks = landmarks
        self.storage = storage
        self.beta = beta
        self.iterations = iterations
        self.residual = residual
        self.polish = polish
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d): numpy, scipy CSR, a dask array or a `Store`, which brings its own labels and weights.

        groups: as in `DCSVC.fit`. Warns where the kernel matrix compresses badly, and which solver to take. Raises
        ValueError for bad data or parameters, MemoryError where memory_limit is too small.
        """
        self._train(X, y, sample_weight, groups=groups)
        return self
