"""Fits one detector of outliers on arrays in memory and scores it: one JSON object on stdout.

    python oneclass_worker.py exact|early|libsvm|nystroem|forest TRAIN.npy TEST.npz NU [GAMMA]

TEST.npz: X, and y, 1 of outliers. `first` are the seconds of a fit on few rows before, which compiles and imports.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from fit_worker import peak_rss_bytes

FEW = 2_000


def detector(kind: str, nu: float, gamma: float) -> Any:
    if kind in ("exact", "early"):
        from streamsvm import DCOneClassSVM

        return DCOneClassSVM(nu=nu, gamma=gamma, early=kind == "early", random_state=0)
    if kind == "libsvm":
        from sklearn.svm import OneClassSVM

        return OneClassSVM(nu=nu, gamma=gamma, cache_size=200)
    if kind == "nystroem":
        from sklearn.kernel_approximation import Nystroem
        from sklearn.linear_model import SGDOneClassSVM
        from sklearn.pipeline import make_pipeline

        features = Nystroem(gamma=gamma, n_components=300, random_state=0)
        return make_pipeline(features, SGDOneClassSVM(nu=nu, random_state=0))
    from sklearn.ensemble import IsolationForest

    return IsolationForest(contamination=min(nu, 0.5), n_jobs=-1, random_state=0)


def main(words: list[str]) -> dict[str, Any]:
    kind, train, test, nu, *given = words
    X, held = np.load(train), np.load(test)
    gamma = float(given[0]) if given else 1.0 / (X.shape[1] * float(X[:100_000].var()))
    began = time.perf_counter()
    detector(kind, float(nu), gamma).fit(X[:FEW])
    first, svm = time.perf_counter() - began, detector(kind, float(nu), gamma)
    began = time.perf_counter()
    svm.fit(X)
    seconds = time.perf_counter() - began
    few = X[:: max(1, len(X) // 100_000)]
    return {
        "first": first,
        "seconds": seconds,
        "outliers": float(np.mean(svm.predict(few) == -1)),
        "roc_auc": _roc_auc(held["y"] == 1, -svm.decision_function(held["X"])),
        "peak_rss_bytes": peak_rss_bytes(),
        "gamma": gamma,
        **_certificate(svm, gamma),
    }


def _certificate(svm: Any, gamma: float) -> dict[str, float]:
    """rho, and the objective, of those that have one; LIBSVM's is computed here, block by block."""
    if not hasattr(svm, "dual_coef_") or not hasattr(svm, "n_support_"):
        return {}
    found = {"rho": float(np.ravel(svm.offset_)[0]), "n_support": int(np.sum(svm.n_support_))}
    if hasattr(svm, "objective_"):
        return found | {"objective": float(svm.objective_), "gap": float(svm.dual_gap_)}
    a, f = svm.dual_coef_[0], np.empty(len(svm.support_))
    for start in range(0, len(f), 2000):
        f[start : start + 2000] = svm.score_samples(svm.support_vectors_[start : start + 2000])
    return found | {"objective": 0.5 * float(a @ f)}


def _roc_auc(is_outlier: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(is_outlier, scores))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
