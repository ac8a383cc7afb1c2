"""DCSVC: divide and conquer as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.errors import ConfigError
from streamsvm.estimators.multilabel import SetClassifier
from streamsvm.estimators.support_vectors import SupportVectors
from streamsvm.events import Event, Phase, Record, Round

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
    """Support vector classification by divide and conquer, exact or with early prediction.

    Each pair of classes, or each class and the rest, gives one problem, min 1/2 a'Qa - e'a, 0 <= a_i <= C_i, with
    Q_ij = y_i y_j K(x_i, x_j): the dual of an SVM without a bias term (Hsieh, Si and Dhillon 2014). With
    `fit_intercept` there is the constraint y'a = 0, too: then it is the problem of `SVC`, to the same `tol`. With a y
    (n, k) of 0 and 1 rows have any number of k labels, each of which is told from the rest.

    Parameters
    ----------
    C : float or "search", default=1.0
        Upper bound of the dual variables, times class and sample weights. This, `kernel`, `gamma`, `scale`, `metric`
        and `early` are chosen from the data where they are "search", see `search_params`.
    kernel : {"rbf", "laplacian", "matern", "cauchy", "poly", "linear", "search"}, default="rbf"
        rbf exp(-gamma |a-b|^2), laplacian exp(-gamma |a-b|_1), matern p(s) exp(-s) of s = sqrt(2 nu) gamma |a-b|,
        cauchy 1 / (1 + gamma |a-b|^2), poly (gamma a'b + coef0)^degree, linear a'b.
    gamma : float, "scale", "auto" or "search", default="scale"
        Above 0; "scale" is 1 / (n_features * X.var()), "auto" 1 / n_features. Where gamma multiplies a distance, not
        its square: of matern the square roots of these, and of laplacian "scale" is 1 / (n_features * X.std()).
    degree : int, default=3
        At least 1.
    coef0 : float, default=0.0
        At least 0. `SVC` takes negative values, but then the polynomial need not be a kernel, the dual is not convex,
        and "exact" means nothing; fit raises an error.
    kernel_params : dict or None, default=None
        Further options of the kernel: {"nu": 2.5} of matern, 0.5, 1.5 (default) or 2.5.
    fit_intercept : bool, default=False
        Add a constant to each decision function; in an early model each part has its own.
    loss : {"hinge", "squared_hinge"}, default="hinge"
        Of a row, times its C: xi = max(0, 1 - y f(x)), or xi^2, whose dual has no bound C but Q + I / 2C.
    multi_class : {"ovo", "ovr"}, default="ovo"
        Of more than two classes: a problem for each pair, which vote, or for each class against the rest, of which the
        largest decision value wins.
    nu : float or None, default=None
        Makes nu-SVC, the problem of `NuSVC`, in place of C and with a constant always: an upper bound of the share of
        rows beyond the margin, a lower one of that of support vectors. At most twice the share of its smaller side.
    tol : float, default=1e-3
        Largest violation of the KKT conditions at the end; with `fit_intercept` LIBSVM's m - M, twice that. Kernel
        values are float32: far below 1e-5 is out of reach.
    class_weight : dict, "balanced", "search" or None, default=None
        Factors on C by class, above 0; "balanced" is n_samples / (n_classes * count).
    probability : bool, "sigmoid" or "isotonic", default=False
        Cross-validate to calibrate: five more fits. `predict_proba` is there then, and `predict` gives the class of the
        largest probability. True: sigmoid.
    threshold : str or None, default=None
        Decide at a threshold other than 0, of two classes, chosen for "f1", "balanced_accuracy", "precision=0.9" (the
        most recall with at least that precision) or "recall=0.9", by cross-validation: five more fits. Precision,
        recall and F1 are those of classes_[1]. `decision_function` stays.
    costs : dict or None, default=None
        What errors cost, as {("yes", "no"): 5} for "no" where "yes" is true; 1 where none is named. `predict` gives
        the label of the least expected cost then; with `probability`, and without `threshold`.
    metric : {"none", "diagonal", "full", "search"}, default="none"
        Learn from a sample what each column, or direction, counts for (Radhakrishnan et al. 2024), and along with it
        kernel, C and gamma where these are at their defaults. It is kept where held-out rows are decided better.
        "search": as diagonal, along with what else is "search" alone.
    metric_params : dict or None, default=None
        Its options: iterations, the most times that it is learned anew, 12; rank of a full one, 64; or factor, a metric
        given as numbers.
    search_params : dict or None, default=None
        How what is "search", or goes along with a metric, is chosen by fits on a sample: time_budget of the whole of
        `fit`, in seconds or as "60s" or "10m"; trials, the most steps, with which time decides nothing; sample, the
        rows that are chosen by, 20,000; scoring, "accuracy" or "balanced_accuracy", the mean recall of all classes.
    random_state : int, RandomState or None, default=None
        Seeds the clustering. An exact model depends on it within `tol` only.
    early : bool or "search", default=False
        Stop at a level of parts, and let the nearest part's model decide (equation 11 of the paper). With fewer rows
        than about 16,000 and `levels` None there is nothing to divide, and the model is exact all the same.
    children, levels, early_level : int, default=4, None, None
        Parts that a part is divided into; levels of division (None: from n_samples); level of the early model.
    sample, clustering : int, {"input", "kernel"}, default=1000, "input"
        Rows that k-means clusters, and the space in which.
    part_rows : int or None, default=None
        Most rows of a part (None: from the memory limit).
    adaptive, refine : bool, default=True
        Sample k-means among support vectors; solve on the support vectors of level 1 before the whole problem.
    combine : {"nearest", "naive", "committee"}, default="nearest"
        How the parts of an early model predict together.
    neighbours : int, default=1
        Nearest parts whose mean decides, with combine="nearest" and clustering="input"; as many times slower to
        predict. More accurate where the kernel reaches beyond a part, as on digits; less on covtype.
    part_metric : int, default=0
        Times that each part of an early model is fitted again to learn weights of the columns that are its own, from
        the gradients of the fit before; they are kept where a fifth of the part's rows, held out, says so.
    cache_size : float, default=200
        MB of kernel rows kept while solving. Only wide rows are kept, of 128 nonzeros and more: others are made again
        as fast as they could be read.
    scale : {"none", "minmax", "standard", "maxabs", "robust", "quantile", "search"}, default="none"
        Scaling of the features by the training rows, kept in the model: for a `Store` and dask arrays, which no
        scaler of a pipeline reads block by block. Support vectors and `coef_` are of scaled features then.
    gaps : {"mean", "median", "most_frequent", "refuse"} or None, default=None
        What takes the place of NaN, by the training rows, kept in the model; "refuse": nothing does. None: the mean, in
        data frames and stores of tables; arrays with NaN are refused.
    memory_limit : int, str or None, default=None
        Bytes, or as "2GiB"; bounds the whole process (None: most of what is free). Data beyond it is read from disk.
    n_jobs : int or None, default=None
        Threads; None or -1 is every core (one, inside a parallel joblib worker).
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
    model_ : KernelModel, LocalModel or, with multi_class "ovr", ExpansionModel
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    chosen_ : dict
        Where something is "search", or with a metric: what was chosen, under the names of parameters.
    expected_ : dict
        Then, too: the accuracy to expect on new rows, score, between low and high in 19 of 20 tests of as many new
        rows; the rows that told; model: whether they were decided by the model itself. Absent where rows are too few.
    metric_ : dict
        Then, too: how it was chosen, the score on held-out rows and that without a metric, the columns that count, and
        each step.
    threshold_ : dict
        With `threshold`: its value, the scores there on held-out rows, and those to expect of new ones.
    objective_, dual_gap_ : float
        Dual objective, and primal minus dual objective, summed over problems (and parts).
    n_iter_ : int
        Block rounds of the solver on the whole problem, over all problems; 0 for an early model.
    support_ : ndarray of shape (n_SV,)
        Rows of X that are support vectors, class by class. This and the next four: exact models only. With multi_class
        "ovr" they are in the order of X, dual_coef_ has a row and intercept_ a number for each class against the rest
        (of two classes for the second), and n_support_ counts the support vectors of each of these problems.
    support_vectors_ : {ndarray, csr_array} of shape (n_SV, n_features_in_)
        Support vectors, class by class, as float32 (or uint8, as given).
    dual_coef_ : ndarray of shape (n_classes - 1, n_SV)
        Signed dual coefficients, as `SVC` lays them out.
    intercept_ : ndarray of shape (n_classes * (n_classes - 1) / 2,)
        Constants of pairs of classes, in the order and with the signs of `SVC`; 0 without `fit_intercept`.
    n_support_ : ndarray of shape (n_classes,)
        Support vectors of each class.

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
        C: float | str = 1.0,
        kernel: str = "rbf",
        gamma: float | str = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        fit_intercept: bool = False,
        loss: str = "hinge",
        multi_class: str = "ovo",
        nu: float | None = None,
        tol: float = 1e-3,
        class_weight: Any = None,
        probability: bool | str = False,
        threshold: str | None = None,
        costs: Any = None,
        metric: str = "none",
        metric_params: dict[str, Any] | None = None,
        search_params: dict[str, Any] | None = None,
        random_state: Any = None,
        early: bool | str = False,
        children: int = 4,
        levels: int | None = None,
        early_level: int | None = None,
        sample: int = 1000,
        clustering: str = "input",
        part_rows: int | None = None,
        adaptive: bool = True,
        refine: bool = True,
        combine: str = "nearest",
        neighbours: int = 1,
        part_metric: int = 0,
        cache_size: float = 200,
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
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Trains on X (n, d): numpy, scipy CSR, a dask array or a `Store`, which brings its own labels and weights.

        y: (n,), or of several labels a row (n, k). sample_weight: (n,). groups: (n,), of which rows are held out
        together where some are: for probabilities, a threshold, and by searches. A dask array or Store is never loaded
        whole where memory is short. Raises ValueError for bad data or parameters, MemoryError where memory_limit is too
        small.
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
