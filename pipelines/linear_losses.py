"""Linear regression, logistic regression and one class by cutting planes, next to scikit-learn's. Linux.

    python pipelines/linear_losses.py --data DIR [--only numbers,logistic,outliers] [--quick] [--out losses.md]

Items, and the data that each needs:
    numbers   covtype: its elevation from the other columns, 100,000 rows of the training part; LinearSVR (LIBLINEAR)
    logistic  a9a: probabilities; LogisticRegression by LIBLINEAR, whose constant is regularised, too, and by L-BFGS
    outliers  none: 100,000 rows of eight clouds, as in oneclass_table.py; 300 Nystroem features and SGDOneClassSVM

Seconds are CPU time of a fit, user and system, after one of few rows.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from bench import Bench, print_tables
from linear_problems import problem, rows_of
from oneclass_table import TEST_ROWS, block
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, SGDOneClassSVM
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVR
from tables import Factor, Seconds, Share, Table

from streamsvm import CuttingPlaneOneClassSVM, CuttingPlaneSVC, CuttingPlaneSVR, Store

ROWS, FEW, EPSILON, NU, LANDMARKS = 100_000, 500, 0.1, 0.05, 300


def timed(estimator: Any, *data: Any) -> tuple[Any, Seconds]:
    """A fit, and its CPU seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(*(values[:FEW] for values in data))
        start = time.process_time()
        estimator.fit(*data)
        return estimator, Seconds(time.process_time() - start)


def numbers(bench: Bench) -> list[Table]:
    """Both learn scaled numbers, so that C and epsilon are the same."""
    many = bench.sizes.train_rows or ROWS
    (X, _), (T, _) = (rows_of(Store.open(store), slice(0, many)) for store in bench.stores("covtype"))
    X, T = X.astype(np.float64), T.astype(np.float64)
    mean, spread = X.mean(axis=0), np.maximum(X.std(axis=0), 1e-9)
    X, T = (X - mean) / spread, (T - mean) / spread
    records = []
    for name, svr in (
        ("streamsvm", CuttingPlaneSVR(epsilon=EPSILON)),
        ("LinearSVR", LinearSVR(epsilon=EPSILON, random_state=0)),
    ):
        found, seconds = timed(svr, X[:, 1:], X[:, 0])
        w, errors = np.append(found.coef_, found.intercept_), np.abs(found.predict(X[:, 1:]) - X[:, 0])
        records.append(
            {
                "solver": name,
                "objective": round(0.5 * float(w @ w) + float(np.maximum(0, errors - EPSILON).sum()), 2),
                "R2": Factor(r2_score(T[:, 0], found.predict(T[:, 1:]))),
                "CPU seconds": seconds,
                "passes": int(found.n_passes_ if name == "streamsvm" else found.n_iter_),
            }
        )
    notes = [f"both sides scaled, C 1, epsilon {EPSILON}, R2 on test rows; LinearSVR ends after its 1,000 rounds"]
    return [Table(f"Numbers: covtype's elevation, {len(X):,} rows", records, notes, [_same(records)])]


def logistic(bench: Bench) -> list[Table]:
    p, records = problem("a9a", bench), []
    X = sparse.csr_array(p.X, dtype=np.float64)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    for name, svm in (
        ("streamsvm", CuttingPlaneSVC(loss="logistic")),
        ("LogisticRegression, liblinear", LogisticRegression(solver="liblinear")),
        ("LogisticRegression, lbfgs", LogisticRegression(max_iter=1000)),
    ):
        found, seconds = timed(svm, X, p.y)
        w, b = found.coef_[0], float(found.intercept_[0])
        losses = np.logaddexp(0, -p.y * (X @ w + b)).sum()
        records.append(
            {
                "solver": name,
                "objective": round(0.5 * (float(w @ w) + b * b) + float(losses), 2),
                "log loss, test": round(log_loss(p.y_test, found.predict_proba(p.X_test)[:, 1]), 4),
                "accuracy": Share(np.mean(found.predict(p.X_test) == p.y_test)),
                "CPU seconds": seconds,
                "passes": int(found.n_passes_ if name == "streamsvm" else np.max(found.n_iter_)),
            }
        )
    notes = ["C 1; L-BFGS does not regularise the constant, so its objective is a different one"]
    return [Table("Logistic regression: a9a", records, notes, [_same(records)])]


def outliers(bench: Bench) -> list[Table]:
    (X, _), (T, is_outlier) = block(0, bench.sizes.train_rows or ROWS, 8), block(1 << 20, TEST_ROWS, 8)
    gamma = 1.0 / (X.shape[1] * float(X.var()))
    ours = CuttingPlaneOneClassSVM(nu=NU, kernel="rbf", gamma=gamma, landmarks=LANDMARKS, random_state=0)
    features = Nystroem(gamma=gamma, n_components=LANDMARKS, random_state=0)
    peer = make_pipeline(features, SGDOneClassSVM(nu=NU, random_state=0))
    records = []
    for name, svm in (("streamsvm", ours), ("SGDOneClassSVM", peer)):
        found, seconds = timed(svm, X)
        records.append(
            {
                "solver": name,
                "outliers": Share(np.mean(found.predict(X) == -1)),
                "ROC area": round(roc_auc_score(is_outlier, -found.decision_function(T)), 4),
                "CPU seconds": seconds,
            }
        )
    share = abs(float(records[0]["outliers"]) - NU) <= 0.005
    title = f"Outliers: {len(X):,} rows, {LANDMARKS} features, nu {NU}"
    notes = ["eight clouds, and one row of twenty from anywhere; outliers: share of the training rows"]
    return [Table(title, records, notes, [("the share is within 0.5 % of nu", share)])]


def _same(records: list[dict[str, Any]]) -> tuple[str, bool]:
    first, second = (record["objective"] for record in records[:2])
    return "the objective is at most 1.001 times the peer's", first <= 1.001 * second


ITEMS = {"numbers": numbers, "logistic": logistic, "outliers": outliers}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
