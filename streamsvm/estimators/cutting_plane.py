"""CuttingPlaneSVC and CuttingPlaneRanker: linear problems by cutting planes, as scikit-learn estimators."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.estimators.base import StoreEstimator, classes_of, labels_of
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.metrics import ranking
from streamsvm.predict import decisions_of
from streamsvm.tasks import task_of


class LinearEstimator(StoreEstimator):
    """What all of these share: parameters of the solver, and what it found."""

    tol: float
    method: str
    landmarks: int | None
    max_passes: int

    @property
    def coef_(self) -> np.ndarray:
        if self.landmarks is not None:
            raise AttributeError("coef_ is there without landmarks only; model_.coef holds theirs")
        return self.model_.coef.T

    def _found(self, report: dict[str, Any]) -> None:
        self.n_iter_, self.n_passes_ = report["steps"], report["passes"]

    def _values(self) -> dict[str, Any]:
        options = {"method": self.method, "landmarks": self.landmarks, "passes": self.max_passes}
        return {"solver": "cutting-plane", "tol": self.tol, "cutting_plane": options}


class WithIntercept(LinearEstimator):
    """Of losses of single rows, weighed by C, with a constant."""

    C: float | str
    fit_intercept: bool
    intercept_scaling: float

    @property
    def intercept_(self) -> np.ndarray:
        return self.model_.intercept

    def _values(self) -> dict[str, Any]:
        values = super()._values() | {"C": self.C}
        values["cutting_plane"]["bias"] = self.intercept_scaling if self.fit_intercept else 0.0
        return values


class CuttingPlaneSVC(WithIntercept, SetClassifier):
    """Linear support vector classification in a few passes over the rows, of any number.

    Minimises 1/2 |w|^2 + sum_i C_i max(0, 1 - y_i w'x_i), as `LinearSVC` with loss="hinge" does, by cutting planes
    (Joachims 2006, whose C is n times this one) with the line search of Franc and Sonnenburg 2009. More than two
    classes, and the labels of a y (n, k) of 0 and 1: each against the rest, all in the same passes. With
    loss="logistic" it is `LogisticRegression`, but that the constant is regularised.

    Parameters
    ----------
    loss : {"hinge", "logistic"}, default="hinge"
        Logistic is log(1 + exp(-y_i w'x_i)): 1 / (1 + exp(-f)) is the probability of a class against the rest, which
        makes `predict_proba`, of more than two classes over their sum.
    C : float or "search", default=1.0
        Weight of the losses, times class and sample weights.
    kernel : {"linear", "rbf", "laplacian", "matern", "cauchy", "poly"}, default="linear"
        All but linear are approximated by `landmarks`.
    gamma, degree, coef0, kernel_params : as in `DCSVC`, default="scale", 3, 0.0, None
    landmarks : int or None, default=None
        Rows, drawn at random, by which the kernel is approximated (Nystroem).
    tol : float, default=1e-3
        Duality gap over the objective at the end. Planes are kept in float32: far below 1e-6 is out of reach.
    fit_intercept : bool, default=True
        Learn a constant too: the weight of a constant feature, regularised like the others.
    intercept_scaling : float, default=1.0
        Value of that feature; the larger, the less the constant is regularised.
    method : {"ocas", "plain"}, default="ocas"
        Plain takes each plane at the last minimum, as Joachims 2006 does: for comparison.
    class_weight : dict, "balanced", "search" or None, default=None
        Factors on C by class.
    max_passes : int, default=1000
        Most passes over the rows.
    probability : bool, "sigmoid" or "isotonic", default=False
        Cross-validate to calibrate: five more fits. `predict_proba` is there then, as it is with loss="logistic", and
        `predict` gives the class of the largest probability. True: sigmoid.
    threshold, costs : as in `DCSVC`
    metric : {"none", "diagonal", "full", "search"}, default="none"
        Learn from a sample what each column, or direction, counts for (Radhakrishnan et al. 2024), and along with it
        C and gamma where these are at their defaults. It is kept where held-out rows are decided better.
    metric_params : dict or None, default=None
        Its options: iterations, and rank of a full one.
    search_params : dict or None, default=None
        How C, gamma (with landmarks), scale and metric are chosen where they are "search", see `DCSVC`.
    random_state : int, RandomState or None, default=None
        Draws the landmarks.
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile", "search"}, default="none"
        Scaling of the features by the training rows, kept in the model: for a `Store` and dask arrays, which no
        scaler of a pipeline reads block by block. Support vectors and `coef_` are of scaled features then.
    gaps : as in `DCSVC`
    memory_limit : int, str or None, default=None
        Bytes, or as "2GiB"; bounds the whole process. Rows beyond it are read from a scratch folder in each pass.
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
    coef_ : ndarray of shape (1 or n_classes, n_features_in_)
        Weights; without landmarks only.
    intercept_ : ndarray of shape (1 or n_classes,)
        Constants.
    model_ : LinearModel
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_ : float
        Primal objective, exact, and a bound on its distance from the least; summed over classes.
    n_iter_, n_passes_ : int
        Planes taken (of each class), and passes over the rows.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from streamsvm import CuttingPlaneSVC
    >>> X, y = load_digits(return_X_y=True)
    >>> svm = CuttingPlaneSVC(C=10).fit(X[:1500] / 16, y[:1500])
    >>> round(svm.score(X[1500:] / 16, y[1500:]), 2)
    0.89
    """

    def __init__(
        self,
        *,
        loss: str = "hinge",
        C: float | str = 1.0,
        kernel: str = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        method: str = "ocas",
        class_weight: Any = None,
        probability: bool | str = False,
        threshold: str | None = None,
        costs: Any = None,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        max_passes: int = 1000,
        random_state: Any = None,
        scale: str = "none",
        gaps: str | None = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.loss = loss
        self.C = C
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.landmarks = landmarks
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.method = method
        self.class_weight = class_weight
        self.probability = probability
        self.threshold = threshold
        self.costs = costs
        self.metric = metric
        self.metric_params = metric_params
        self.search_params = search_params
        self.max_passes = max_passes
        self.random_state = random_state
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d): numpy, scipy CSR, a dask array or a `Store`, which brings its own labels and weights.

        groups: as in `DCSVC.fit`. Raises ValueError for bad data or parameters, MemoryError where memory_limit is too
        small.
        """
        self._found(self._train(X, y, sample_weight, groups=groups))
        return self

    _probable_with = "probability=True or loss='logistic'"

    def _values(self) -> dict[str, Any]:
        values = super()._values() | {"task": "classify"}
        values["cutting_plane"]["loss"] = self.loss
        return values


class CuttingPlaneRanker(LinearEstimator):
    """Linear ranking: rows of higher labels shall score higher, within queries or over all rows.

    Minimises 1/2 |w|^2 + C n mean over pairs of max(0, 1 - w'(x_i - x_j)), the pairs being the rows i and j of one
    query of which i has the higher label (Joachims 2006, OP4, whose C is n times this one). With weights v, pairs
    weigh v_i v_j, and n is the sum of v. Without queries this is ordinal regression, and thresholds on the scores
    predict the labels; with two labels it maximises the area under the ROC curve. Pairs are never listed.

    Parameters
    ----------
    C, kernel, gamma, degree, coef0, kernel_params, landmarks, tol, method, max_passes, random_state, scale, \
memory_limit, n_jobs, client, verbose :
        As in `CuttingPlaneSVC`; nothing is searched. There is no intercept: differences do not see it.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, where X has names that are all strings.
    coef_ : ndarray of shape (1, n_features_in_)
        Weights; without landmarks only.
    thresholds_ : ndarray of shape (n_labels - 1,)
        Scores between the ranks; where fit was given no queries.
    model_ : LinearModel
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_, n_iter_, n_passes_ :
        As in `CuttingPlaneSVC`; a step takes two passes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from streamsvm import CuttingPlaneRanker
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ranker = CuttingPlaneRanker().fit(X[:350], y[:350])
    >>> round(ranker.score(X[350:], y[350:]), 2)  # share of the pairs that are in the right order
    0.76
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        kernel: str = "linear",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        landmarks: int | None = None,
        tol: float = 1e-3,
        method: str = "ocas",
        max_passes: int = 1000,
        random_state: Any = None,
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
        self.landmarks = landmarks
        self.tol = tol
        self.method = method
        self.max_passes = max_passes
        self.random_state = random_state
        self.scale = scale
        self.gaps = gaps
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, qid: Any = None, sample_weight: Any = None) -> Self:
        """Trains on X (n, d) with labels y (n,), whose order counts. qid (n,): each row's query; None: one for all.

        X may be a `Store`, which brings its own labels, queries and weights. Raises ValueError for bad data or
        parameters, and where no query has two labels.
        """
        config = self._config()
        store, y = self._training_store(X, y, sample_weight, qid)
        classes = classes_of(y, store.sample_weight)
        task = "rank" if store.has_qid else "ordinal"
        self._found(self._learn(store, config.model_copy(update={"task": task})))
        self.classes_ = classes
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """(n,) scores: the higher, the later in the order of the labels."""
        return self._answers(X, decisions_of)

    def predict(self, X: Any) -> np.ndarray:
        """(n,) labels where fit was given no queries, else scores."""
        check_is_fitted(self)
        has_labels = task_of(self.model_.task).has_labels
        return self._answers(X, partial(labels_of, self.classes_) if has_labels else decisions_of)

    def score(self, X: Any, y: Any = None, qid: Any = None) -> float:
        """Share of the pairs of X that are in the right order, ties half. Raises ValueError where there are none."""
        if isinstance(X, Store) and y is None:
            y, qid = X.y, X.qid
        groups = np.zeros(len(y), np.int64) if qid is None else np.unique(qid, return_inverse=True)[1]
        swapped = ranking(np.asarray(y), np.asarray(self.decision_function(X)), groups)["swapped_pairs"]
        if swapped is None:
            raise DataError("no query has rows of two labels; there are no pairs to score")
        return 1.0 - swapped

    def _values(self) -> dict[str, Any]:
        return super()._values() | {"task": "ordinal", "C": self.C}

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
