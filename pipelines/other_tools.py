"""What works with other libraries, tried: their own functions around estimators and online learners. Without data.

    python pipelines/other_tools.py [--quick] [--out OUT]

Needs `pip install '.[dask-ml,mlflow]' imbalanced-learn shap`. A trial ends with a score on rows that no fit has seen,
which has to be good, or with what is equal to what.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import numpy as np
from bench import Bench, Missing, print_tables
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from tables import Table

from streamsvm import DCSVC, DCSVR, AutoSVC, BudgetedSVC, DCOneClassSVM
from streamsvm.online import BSGDClassifier, BSGDOneClass

Trial = tuple[str, str]  # what was tried, and its result
X, X_TEST, Y, Y_TEST = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
SVM = {"C": 10.0, "scale": "standard"}
GOOD = 0.93  # accuracy on breast cancer; a constant has 0.63


def good(score: float, least: float = GOOD) -> str:
    assert score >= least, score
    return f"{score:.3f}"


def of_scikit_learn() -> Iterator[Trial]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.ensemble import BaggingClassifier, StackingClassifier
    from sklearn.feature_selection import RFE, SelectFromModel
    from sklearn.inspection import PartialDependenceDisplay, permutation_importance
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, TunedThresholdClassifierCV, cross_val_score
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(StandardScaler(), DCSVC())
    search = GridSearchCV(pipeline, {"dcsvc__C": [1.0, 10.0]}, n_jobs=2).fit(X, Y)
    yield "`GridSearchCV` of a pipeline, two processes", good(search.score(X_TEST, Y_TEST))
    yield "`cross_val_score` of `AutoSVC`", good(cross_val_score(AutoSVC(time_budget="5s"), X, Y, cv=3).mean())
    for model in (
        CalibratedClassifierCV(DCSVC(**SVM)),
        TunedThresholdClassifierCV(DCSVC(**SVM)),
        BaggingClassifier(DCSVC(**SVM), n_estimators=3, random_state=0),
        StackingClassifier([("svm", DCSVC(**SVM)), ("linear", LogisticRegression(max_iter=10_000))]),
        make_pipeline(SelectFromModel(DCSVC(metric="diagonal", **SVM)), DCSVC(**SVM)),
        RFE(DCSVC(kernel="linear", **SVM), n_features_to_select=10, step=0.2),
    ):
        names = [type(step).__name__ for step in (model[0] if hasattr(model, "steps") else model,)]
        yield f"`{names[0]}`", good(model.fit(X, Y).score(X_TEST, Y_TEST))
    svm = DCSVC(**SVM).fit(X, Y)
    importance = permutation_importance(svm, X_TEST, Y_TEST, n_repeats=2, random_state=0)
    assert importance.importances_mean.max() > 0
    yield "`permutation_importance`", "runs"
    if find_spec("matplotlib"):
        PartialDependenceDisplay.from_estimator(svm, X_TEST, [0, 1], grid_resolution=5)
        yield "`PartialDependenceDisplay`", "runs"


def of_imbalanced_learn() -> Iterator[Trial]:
    from imblearn.ensemble import BalancedBaggingClassifier
    from imblearn.over_sampling import SMOTE, SVMSMOTE
    from imblearn.pipeline import make_pipeline
    from sklearn.metrics import balanced_accuracy_score

    rows = make_classification(4_000, 8, n_informative=6, weights=[0.95], class_sep=1.5, random_state=0)
    X, X_test, y, y_test = train_test_split(*rows, stratify=rows[1], random_state=0)
    for name, model in {
        "`SVMSMOTE(svm_estimator=DCSVC())`": make_pipeline(
            SVMSMOTE(svm_estimator=DCSVC(**SVM), random_state=0), DCSVC(**SVM)
        ),
        "`SMOTE` in its pipeline": make_pipeline(SMOTE(random_state=0), DCSVC(**SVM)),
        "`BalancedBaggingClassifier`": BalancedBaggingClassifier(DCSVC(**SVM), n_estimators=3, random_state=0),
    }.items():
        predicted = model.fit(X, y).predict(X_test)
        yield f"{name}, balanced accuracy", good(balanced_accuracy_score(y_test, predicted), 0.85)


def of_river() -> Iterator[Trial]:
    from river import anomaly, compose, evaluate, metrics, multiclass, preprocessing
    from river.datasets import Phishing

    for model in (
        BSGDClassifier(),
        preprocessing.StandardScaler() | BSGDClassifier(lam=1e-3, gamma=0.5),
        (compose.SelectType(float, int) | preprocessing.MinMaxScaler()) + compose.Discard() | BSGDClassifier(),
        multiclass.OneVsRestClassifier(BSGDClassifier(lam=1e-3, gamma=0.5)),
    ):
        name = " | ".join(type(step).__name__ for step in getattr(model, "steps", {"": model}).values())
        score = evaluate.progressive_val_score(Phishing(), model, metrics.Accuracy())
        yield f"`progressive_val_score` of `{name}`", good(score.get(), 0.85)
    detector = anomaly.QuantileFilter(BSGDOneClass(), q=0.95)
    for x, _ in islice(Phishing(), 300):
        detector.learn_one(x)
    yield "`QuantileFilter` of `BSGDOneClass`", f"score {detector.score_one(x):.2f}"


def of_dask_ml() -> Iterator[Trial]:
    import dask
    import dask.array as da
    from dask.distributed import Client
    from dask_ml.model_selection import IncrementalSearchCV
    from dask_ml.wrappers import Incremental, ParallelPostFit

    labels = da.from_array(Y, chunks=100)
    after = ParallelPostFit(DCSVC(**SVM)).fit(X, Y)
    yield "`ParallelPostFit`", good(float(np.mean(after.predict(da.from_array(X_TEST)).compute() == Y_TEST)))
    scaler = StandardScaler().fit(X)
    rows, unseen = da.from_array(scaler.transform(X), chunks=(100, X.shape[1])), scaler.transform(X_TEST)
    model = BudgetedSVC(C=10.0, random_state=0)
    blocks = Incremental(model, shuffle_blocks=False).fit(rows, labels, classes=[0, 1])
    yield "`Incremental` of `BudgetedSVC`", good(float(np.mean(blocks.predict(unseen) == Y_TEST)))

    with Client(processes=False, dashboard_address=":0") as client, dask.config.set(scheduler=client.get):
        search = IncrementalSearchCV(model, {"C": [1.0, 10.0]}, n_initial_parameters=2, max_iter=10, random_state=0)
        search.fit(rows, labels, classes=[0, 1])
        yield "`IncrementalSearchCV`", good(float(np.mean(search.predict(unseen) == Y_TEST)))


def of_mlflow() -> Iterator[Trial]:
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    import mlflow

    from streamsvm.report.mlflow import log_model

    svm = DCSVC(**SVM).fit(X, Y)
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri((Path(folder) / "mlruns").as_uri())
        with mlflow.start_run():
            info = log_model(svm)
        loaded = mlflow.pyfunc.load_model(info.model_uri)
        assert np.array_equal(loaded.predict(X_TEST), svm.predict(X_TEST))
    yield "`log_model`, then `mlflow.pyfunc.load_model`", "the same labels"


def of_shap() -> Iterator[Trial]:
    import shap

    svr = DCSVR(scale="standard", C=100.0).fit(*load_diabetes(return_X_y=True))
    svm, detector = DCSVC(probability=True, **SVM).fit(X, Y), DCOneClassSVM(scale="standard").fit(X)
    for name, decide, rows in (
        ("`DCSVC.predict_proba`", lambda rows: svm.predict_proba(rows)[:, 1], X),
        ("`DCOneClassSVM.score_samples`", detector.score_samples, X),
        ("`DCSVR.predict`", svr.predict, load_diabetes().data),
    ):
        explained = shap.Explainer(decide, shap.maskers.Independent(rows, 20), seed=0)(rows[:5])
        np.testing.assert_allclose(explained.values.sum(1) + explained.base_values, decide(rows[:5]), atol=1e-4)
        yield f"`Explainer` of {name}", "values and base add up to the answers"


TRIALS: dict[str, tuple[str, Callable[[], Iterator[Trial]]]] = {
    "scikit-learn": ("sklearn", of_scikit_learn),
    "imbalanced-learn": ("imblearn", of_imbalanced_learn),
    "river": ("river", of_river),
    "dask-ml": ("dask_ml", of_dask_ml),
    "mlflow": ("mlflow", of_mlflow),
    "shap": ("shap", of_shap),
}


def tables(bench: Bench) -> list[Table]:
    """A row for each trial."""
    missing = [name for name, (module, _) in TRIALS.items() if not find_spec(module)]
    if missing:
        raise Missing(f"pip install {' '.join(missing)}")
    records = []
    for name, (_, trials) in TRIALS.items():
        package = "mlflow-skinny" if name == "mlflow" and find_spec("mlflow") else name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Warning)  # their own
            records += [
                {"library": package, "version": version(package), "tried": tried, "result": result}
                for tried, result in islice(trials(), 1 if bench.sizes.is_quick else None)
            ]
    note = "numbers: accuracy on rows that no fit has seen, or before they are learned, unless the row says otherwise"
    return [Table("Other libraries", records, [note])]


if __name__ == "__main__":
    print_tables(__doc__, {"tools": tables})
