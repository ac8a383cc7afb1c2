"""AutoSVC: classification whose every option is chosen from the data."""

from __future__ import annotations

from typing import Any, Self

from streamsvm.config import FitConfig
from streamsvm.estimators.base import StoreClassifier
from streamsvm.search.bare import completed


class AutoSVC(StoreClassifier):
    """Support vector classification with nothing to set: what `streamsvm fit --store` makes of the data.

    Scaling, kernel, C, gamma, what each column counts for, and exact or early prediction are chosen by fits on a
    sample, compared on held-out rows. Then all rows are learned that way: the problem is that of `DCSVC`, min
    1/2 a'Qa - e'a, 0 <= a_i <= C_i, for each pair of classes. Columns may be in any units.

    Parameters
    ----------
    time_budget : float, str or None, default=None
        Time of `fit`, in seconds, at least 5, or as "60s", "10m" or "2h". None: the search takes about as long as
        the fit, or ten seconds where that is longer, on a machine of two cores.
    class_weight : dict, "balanced" or None, default=None
        Factors on C by class, above 0; "balanced" is n_samples / (n_classes * count).
    probability : bool, "sigmoid" or "isotonic", default=False
        Cross-validate to calibrate: five more fits, by what was chosen. `predict_proba` is there then, and `predict`
        gives the class of the largest probability. True: sigmoid.
    threshold, costs : as in `DCSVC`
    search_params : dict or None, default=None
        How it is chosen: {"trials": 20} is the most steps of the search; with it time decides nothing, and the same
        random_state chooses the same. {"sample": 20000} is the rows that are chosen by. {"scoring":
        "balanced_accuracy"} compares the mean recall of all classes, and weights of classes are tried, too.
    gaps : as in `DCSVC`
    random_state : int, RandomState or None, default=None
        Seeds the sample, its folds and the fit.
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
    chosen_ : dict
        What was chosen, under the names that `DCSVC` has for it; solver is "dcsvm", or "cutting-plane" where a linear
        kernel is best.
    expected_ : dict
        The accuracy to expect on new rows: score, low and high (for 19 of 20 tests of as many new rows), rows that
        told, and whether they were decided by the model itself; scoring is its name. Absent where rows are too few to
        choose by.
    metric_ : dict
        How it was chosen: scores on held-out rows as chosen, without a metric and as the defaults are; each step; the
        columns that count.
    model_ : object
        The trained model; `save` writes it, `streamsvm.load_model` reads it.
    objective_, dual_gap_ : float
        Dual objective, and primal minus dual objective, summed over pairs (and parts).

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from streamsvm import AutoSVC
    >>> X, y = load_wine(return_X_y=True)  # columns in different units
    >>> svm = AutoSVC(random_state=0).fit(X[::2], y[::2])
    >>> svm.score(X[1::2], y[1::2]) > 0.9
    True
    >>> sorted(svm.chosen_)
    ['C', 'early', 'gamma', 'kernel', 'metric', 'scale', 'solver']
    """

    def __init__(
        self,
        time_budget: float | str | None = None,
        *,
        class_weight: Any = None,
        probability: bool | str = False,
        threshold: str | None = None,
        costs: Any = None,
        search_params: dict[str, Any] | None = None,
        gaps: str | None = None,
        random_state: Any = None,
        memory_limit: int | str | None = None,
        n_jobs: int | None = None,
        client: Any = None,
        verbose: int = 0,
    ) -> None:
        self.time_budget = time_budget
        self.class_weight = class_weight
        self.probability = probability
        self.threshold = threshold
        self.costs = costs
        self.search_params = search_params
        self.gaps = gaps
        self.random_state = random_state
        self.memory_limit = memory_limit
        self.n_jobs = n_jobs
        self.client = client
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Chooses and trains on X (n, d): numpy, scipy CSR, a dask array or a `Store` with its own labels and weights.

        y, sample_weight: (n,). groups: (n,), of which rows are held out together. A dask array or Store is never loaded
        whole where memory is short. Raises ValueError for bad data or parameters, MemoryError where memory_limit is too
        small.
        """
        self._train(X, y, sample_weight, groups=groups)
        return self

    def _config(self, **own: Any) -> FitConfig:
        return completed([(type(self).__name__, self._common() | self._values() | own)])

    def _values(self) -> dict[str, Any]:
        search = {"time_budget": self.time_budget} | (self.search_params or {})
        # by its labels' texts once they are known: here it is one that is given
        weight = {} if self.class_weight is None else {"class_weight": "balanced"}
        return {"task": "classify", "search": search} | weight
