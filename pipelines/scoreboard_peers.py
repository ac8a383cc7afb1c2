"""Who competes on the scoreboard, and what each one's search draws from.

The first configuration of a search is the library's own defaults; `space` says what the later ones are drawn from.
Text columns are codes for those who take categories as they are, and columns of 0 and 1, one for each value, for the
others, whose numbers are standardised. Libraries are imported when they are asked for, so that any may be missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.model_selection import train_test_split

Draw = Callable[[np.random.Generator], Any]
Config = dict[str, Any]


@dataclass(frozen=True)
class About:
    """What an estimator knows of the problem and the machine."""

    is_regression: bool
    n_classes: int
    text: tuple[int, ...]  # columns of codes
    d: int  # columns that it sees
    cores: int
    seed: int = 0

    @property
    def kind(self) -> str:
        return "Regressor" if self.is_regression else "Classifier"


def write_joblib(model: Any, path: Path) -> None:
    joblib.dump(model, path)


def fit_plainly(model: Any, X: np.ndarray, y: np.ndarray, about: About) -> Any:
    return model.fit(X, y)


@dataclass(frozen=True)
class Peer:
    """One library's learner: how it is made from a configuration, and where configurations come from."""

    package: str  # without which it is left out
    make: Callable[[Config, About], Any]
    first: Config
    space: dict[str, Draw]
    power: float = 1.0  # seconds grow as rows to this power,
    fixed_rows: int = 1_000  # and as many more as make up for the work that any number of rows takes
    cost: Callable[[Config], float] = lambda config: 1.0  # seconds of a configuration, next to others
    takes_text: bool = False
    fit: Callable[[Any, np.ndarray, np.ndarray, About], Any] = fit_plainly
    write: Callable[[Any, Path], None] = write_joblib  # the model, to a file or folder
    warm: Config = field(default_factory=dict)  # of the fit on a few rows that nobody times

    def left_out(self) -> str | None:
        return "not installed" if find_spec(self.package) is None else None

    def configs(self, most: int, seed: int) -> list[Config]:
        """The same for everyone who asks with this seed."""
        rng = np.random.default_rng(seed)
        drawn = [{name: draw(rng) for name, draw in self.space.items()} for _ in range(most - 1)]
        return [self.first, *(self.first | config for config in drawn)] if self.space else [self.first]


def log(low: float, high: float) -> Draw:
    """Evenly over the orders of magnitude."""
    return lambda rng: float(np.exp(rng.uniform(np.log(low), np.log(high))))


def whole(low: int, high: int) -> Draw:
    drawn = log(low, high)
    return lambda rng: round(drawn(rng))


def one_of(*values: Any) -> Draw:
    return lambda rng: values[int(rng.integers(len(values)))]


def between(low: float, high: float) -> Draw:
    return lambda rng: float(rng.uniform(low, high))


def _lightgbm(config: Config, about: About) -> Any:
    made = getattr(import_module("lightgbm"), f"LGBM{about.kind}")
    return made(**config, n_jobs=about.cores, random_state=about.seed, verbosity=-1)


def _fit_lightgbm(model: Any, X: np.ndarray, y: np.ndarray, about: About) -> Any:
    return model.fit(X, y, categorical_feature=list(about.text) or "auto")


def _xgboost(config: Config, about: About) -> Any:
    made = getattr(import_module("xgboost"), f"XGB{about.kind}")
    types = ["c" if j in about.text else "q" for j in range(about.d)] if about.text else None
    options = {"feature_types": types, "enable_categorical": bool(about.text), "random_state": about.seed}
    return made(**config, n_jobs=about.cores, **options)


def _histograms(config: Config, about: About) -> Any:
    """Its threads are OpenMP's: as many as the process may use."""
    made = getattr(import_module("sklearn.ensemble"), f"HistGradientBoosting{about.kind}")
    # its own early stopping would hold rows out once more
    return made(**config, categorical_features=list(about.text), early_stopping=False, random_state=about.seed)


def _forest(config: Config, about: About) -> Any:
    made = getattr(import_module("sklearn.ensemble"), f"RandomForest{about.kind}")
    return made(**config, n_jobs=about.cores, random_state=about.seed)


def _catboost(config: Config, about: About) -> Any:
    made = getattr(import_module("catboost"), f"CatBoost{about.kind}")
    options = {"thread_count": about.cores, "random_seed": about.seed, "allow_writing_files": False, "verbose": False}
    return WholeCategories(made(**config, **options), about.text)


class WholeCategories:
    """CatBoost, whose categories are whole numbers, not floats: columns of these codes are objects."""

    def __init__(self, model: Any, text: tuple[int, ...]) -> None:
        self._model, self._text = model, text

    def fit(self, X: np.ndarray, y: np.ndarray) -> WholeCategories:
        self._model.fit(self._columns(X), y, cat_features=list(self._text))
        return self

    def _columns(self, X: np.ndarray) -> Any:
        if not self._text:
            return X
        columns = X.astype(object)
        for column in self._text:
            columns[:, column] = X[:, column].astype(np.int64)
        return columns

    def save_model(self, path: Path) -> None:
        self._model.save_model(str(path))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        decide = getattr(self._model, name)
        return lambda X: decide(self._columns(X))


def _neighbours(config: Config, about: About) -> Any:
    made = getattr(import_module("sklearn.neighbors"), f"KNeighbors{about.kind}")
    return made(**config, n_jobs=about.cores)


def _svc(config: Config, about: About) -> Any:
    """One thread: LIBSVM has no more."""
    svm = import_module("sklearn.svm")
    options = {"C": config["C"], "gamma": config["gamma_d"] / about.d, "cache_size": 1000}
    if about.is_regression:
        return svm.SVR(**options, epsilon=config["epsilon"])
    return svm.SVC(**options, random_state=about.seed)


def _linear(config: Config, about: About) -> Any:
    """One thread: LIBLINEAR has no more."""
    svm = import_module("sklearn.svm")
    if about.is_regression:
        return svm.LinearSVR(**config, dual="auto", random_state=about.seed)
    return svm.LinearSVC(**config, dual="auto", random_state=about.seed)


class XRFM:
    """xRFM in scikit-learn's form; a fifth of the rows is the validation part that its fit asks for."""

    def __init__(self, config: Config, about: About) -> None:
        self._config, self._about = config, about

    def fit(self, X: np.ndarray, y: np.ndarray) -> XRFM:
        import_module("torch").set_num_threads(self._about.cores)
        c, about = self._config, self._about
        kernel = {name: c[name] for name in ("kernel", "bandwidth", "exponent", "diag")}
        params = {
            "model": kernel | {"bandwidth_mode": c["bandwidth_mode"]},
            "fit": {"reg": c["reg"], "iters": c["iters"], "verbose": False, "early_stop_rfm": True},
        }
        self._model = import_module("xrfm").xRFM(
            rfm_params=params,
            max_leaf_size=c["max_leaf_size"],
            device="cpu",
            tuning_metric="mse" if about.is_regression else "accuracy",
            n_threads=about.cores,
            random_state=about.seed,
            verbose=False,
        )
        strata = None if about.is_regression or np.bincount(y).min() < 2 else y
        X, X_val, y, y_val = train_test_split(X, y, test_size=0.2, random_state=about.seed, stratify=strata)
        if about.is_regression:
            y, y_val = (part.astype(np.float32)[:, None] for part in (y, y_val))
        self._model.fit(X, y, X_val, y_val)
        return self

    def __getattr__(self, name: str) -> Any:
        if name not in ("predict", "predict_proba") or (name == "predict_proba" and self._about.is_regression):
            raise AttributeError(name)
        return lambda X: np.asarray(getattr(self._model, name)(X))


HISTOGRAM_ROWS = 10_000  # histograms of a tree's leaves cost about as much


def _flexible(config: Config) -> float:
    """LIBSVM takes longer for large C and gamma, above all for regression: measured on abalone."""
    return 1 + (config["C"] * config["gamma_d"]) ** 0.5


BOOSTED_LEAVES = whole(8, 255)
SVM = {"C": log(0.1, 300), "gamma_d": log(0.03, 100), "epsilon": log(0.01, 0.5)}
SVM_FIRST = {"C": 1.0, "gamma_d": 1.0, "epsilon": 0.1}


def _trees_by_leaves(trees: str, leaves: str) -> Callable[[Config], float]:
    return lambda config: config[trees] * config[leaves] ** 0.7


PEERS: dict[str, Peer] = {
    "LightGBM": Peer(
        "lightgbm",
        _lightgbm,
        first={"n_estimators": 100, "num_leaves": 31},
        space={
            "n_estimators": whole(50, 1000),
            "learning_rate": log(0.02, 0.3),
            "num_leaves": BOOSTED_LEAVES,
            "min_child_samples": whole(2, 100),
            "subsample": between(0.5, 1),
            "subsample_freq": one_of(1),
            "colsample_bytree": between(0.4, 1),
            "reg_lambda": log(1e-3, 10),
        },
        cost=_trees_by_leaves("n_estimators", "num_leaves"),
        fixed_rows=HISTOGRAM_ROWS,
        takes_text=True,
        fit=_fit_lightgbm,
        write=lambda model, path: model.booster_.save_model(path),
    ),
    "XGBoost": Peer(
        "xgboost",
        _xgboost,
        first={"n_estimators": 100, "max_depth": 6},
        space={
            "n_estimators": whole(50, 1000),
            "learning_rate": log(0.02, 0.3),
            "max_depth": one_of(3, 4, 5, 6, 7, 8, 9, 10, 12),
            "min_child_weight": log(0.5, 20),
            "subsample": between(0.5, 1),
            "colsample_bytree": between(0.4, 1),
            "reg_lambda": log(1e-2, 10),
        },
        cost=lambda config: config["n_estimators"] * 1.5 ** config["max_depth"],
        fixed_rows=HISTOGRAM_ROWS,
        takes_text=True,
        write=lambda model, path: model.save_model(path.with_suffix(".ubj")),
    ),
    "HistGradientBoosting": Peer(
        "sklearn",
        _histograms,
        first={"max_iter": 100, "max_leaf_nodes": 31},
        space={
            "max_iter": whole(50, 1000),
            "learning_rate": log(0.02, 0.3),
            "max_leaf_nodes": BOOSTED_LEAVES,
            "min_samples_leaf": whole(2, 100),
            "max_features": between(0.4, 1),
            "l2_regularization": log(1e-3, 10),
        },
        cost=_trees_by_leaves("max_iter", "max_leaf_nodes"),
        fixed_rows=HISTOGRAM_ROWS,
        takes_text=True,
    ),
    "RandomForest": Peer(
        "sklearn",
        _forest,
        first={"n_estimators": 100},
        space={
            "n_estimators": whole(100, 500),
            "max_features": one_of("sqrt", 0.2, 0.35, 0.5, 0.8),
            "min_samples_leaf": one_of(1, 1, 2, 3, 5, 10),
            "bootstrap": one_of(True, True, False),
        },
        cost=lambda config: config["n_estimators"],
        takes_text=True,
    ),
    "CatBoost": Peer(
        "catboost",
        _catboost,
        first={"iterations": 1000},
        space={
            "iterations": whole(100, 2000),
            "learning_rate": log(0.02, 0.3),
            "depth": one_of(4, 5, 6, 7, 8, 9),
            "l2_leaf_reg": log(0.5, 20),
            "random_strength": log(0.1, 10),
        },
        cost=lambda config: config["iterations"] * 1.5 ** config.get("depth", 6),
        fixed_rows=HISTOGRAM_ROWS,
        takes_text=True,
        write=lambda model, path: model.save_model(path),
        warm={"iterations": 10},
    ),
    "nearest neighbours": Peer(
        "sklearn",
        _neighbours,
        first={"n_neighbors": 5},
        space={
            "n_neighbors": one_of(1, 2, 3, 5, 8, 12, 20, 35),
            "weights": one_of("uniform", "distance"),
            "p": one_of(1, 2),
        },
    ),
    "SVC": Peer("sklearn", _svc, SVM_FIRST, SVM, power=2, fixed_rows=3_000, cost=_flexible),
    "LinearSVC": Peer("sklearn", _linear, first={"C": 1.0}, space={"C": log(1e-3, 100)}),
    "xRFM": Peer(
        "xrfm",
        XRFM,
        first={
            "kernel": "l2",  # its others are for a GPU, or slow
            "bandwidth": 10.0,
            "exponent": 1.0,
            "diag": False,
            "bandwidth_mode": "constant",
            "reg": 1e-3,
            "iters": 3,
            "max_leaf_size": 4000,  # its 60,000 are for 40 GB of a GPU
        },
        space={
            "bandwidth": log(1, 100),
            "exponent": between(0.7, 1.4),
            "diag": one_of(False, True),
            "bandwidth_mode": one_of("constant", "adaptive"),
            "reg": log(1e-6, 1),
            "max_leaf_size": one_of(2000, 4000, 8000),
        },
        cost=lambda config: config["max_leaf_size"],
    ),
}
