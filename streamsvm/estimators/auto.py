"""AutoSVC: classification whose every option is chosen from the data."""

from __future__ import annotations

from typing import Any, Literal

from streamsvm.config import FitConfig
from streamsvm.estimators.base import StoreClassifier
from streamsvm.estimators.inputs import (
    Balanced,
    Client,
    Columns,
    Costs,
    Options,
    Probability,
    RandomState,
    TargetEncode,
)
from streamsvm.options.base import Fill
from streamsvm.search.options import completed
from streamsvm.texts.documented import set_parameters


class AutoSVC(StoreClassifier):
    """Support vector classification that chooses every parameter from the data, as `streamsvm fit` does.

    Compares scalings, kernels, C, gamma, feature weights, and exact or early prediction by fits on a sample, scored on
    held-out rows. Then it trains on all rows with the best values. The features may have any units.

    Parameters
    ----------
    time_budget : float, str or None
        Time for the whole fit, in seconds, at least 5, or like "60s", "10m" or "2h". Larger: a more thorough search.
        None: the search takes at most about ten seconds, or as long as the fit if that is longer, up to 30.
    ensemble : int or None
        Number of models to combine, for example 3: the chosen one, and those among the others that the search tries
        that go with it best. More accurate, with better probabilities, in two to three times the time. None: 3 if a
        time budget has room for them, else one.
    class_weight : dict, "balanced" or None
    scoring : {"accuracy", "balanced_accuracy", "log_loss"} or None
        What is compared on held-out rows. "balanced_accuracy": the mean recall of all classes, which also tries class
        weights. "log_loss": that of probabilities, which the model then has. None: "accuracy".
    must_export : {"onnx", "libsvm"} or None
        Choose only models that `streamsvm export` can write in this format. None: any.
    search_params : dict or None
        Options of the search. "trials" is its maximum number of steps. "sample" is its number of rows (20,000).
    random_state : int, RandomState or None
        Seed of the sample, its folds and the fit.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_, feature_importances_, model_
    chosen_ : dict
        The values that were chosen, by the names of parameters of `DCSVC`; solver is "dcsvm", or "cutting-plane" if a
        linear kernel is best for two classes, or for many. With 20 classes or more also multi_class of "dcsvm";
        "cutting-plane" has each class against the rest.
    expected_ : dict
        The accuracy to expect on new rows, `score`, with a 95 % interval from `low` to `high`; of several labels a row
        the mean of theirs. `rows` is the number of held-out rows, `model` says whether the final model itself decided
        them, and `scoring` is the name of the score, of "log_loss"
        d2_log_loss: 1 less the log loss over that of the frequencies of classes. Absent if there are too few rows.
    metric_ : dict
        Scores on held-out rows with the chosen values, without a metric and with the defaults, each step, and the
        features that count.
    threshold_, objective_, dual_gap_

    See Also
    --------
    DCSVC : the estimator whose parameters it chooses.
    CuttingPlaneSVC : the linear one.

    References
    ----------
    * A. Radhakrishnan et al. Mechanism for feature learning in neural networks and backpropagation-free machine
      learning models. Science 383, 2024.

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

    time_budget: float | str | None
    ensemble: int | None
    scoring: str | None

    def __init__(
        self, time_budget: float | str | None = None, *, ensemble: int | None = None, class_weight: Balanced = None,
        scoring: Literal["accuracy", "balanced_accuracy", "log_loss"] | None = None,
        probability: Probability = False, threshold: str | None = None, costs: Costs = None,
        must_export: Literal["onnx", "libsvm"] | None = None, search_params: Options = None,
        gaps: Fill | None = None, mark_gaps: bool = False, category: Columns = None, target_encode: TargetEncode = None,
        random_state: RandomState = None,
        memory_limit: int | str | None = None, n_jobs: int | None = None, device: str = "cpu", client: Client = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        set_parameters(self, locals())

    def _config(self, **overrides: Any) -> FitConfig:
        return completed([(type(self).__name__, self._common() | self._values() | overrides)])

    def _values(self) -> dict[str, Any]:
        search = {"time_budget": self.time_budget} | (self.search_params or {})
        if self.ensemble is not None:
            search["ensemble"] = self.ensemble
        if self.scoring is not None:
            search["scoring"] = self.scoring
        # "balanced" says that there are weights; `fit` replaces it by those of the labels' texts
        weight = {} if self.class_weight is None else {"class_weight": "balanced"}
        return {"task": "classify", "search": search, "must_export": self.must_export} | weight
