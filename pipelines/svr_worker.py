"""Fits one regression on arrays in memory and scores it: one JSON object on stdout.

    python svr_worker.py exact|libsvm|intelex TRAIN.npz TEST.npz C GAMMA EPSILON

The files: X and y. Seconds are of a fit after one of few rows, which compiles and imports.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
from fit_worker import peak_rss_bytes

FEW = 2_000


def regression(kind: str, options: dict[str, float]) -> Any:
    if kind == "exact":
        from streamsvm import DCSVR

        return DCSVR(**options, scale_targets=False, random_state=0)
    if kind == "intelex":
        from sklearnex.svm import SVR  # type: ignore[import-not-found]  # of another environment
    else:
        from sklearn.svm import SVR
    return SVR(**options, cache_size=1000)


def main(words: list[str]) -> dict[str, Any]:
    kind, train, test, *given = words
    options = dict(zip(("C", "gamma", "epsilon"), map(float, given), strict=True))
    with np.load(train) as own, np.load(test) as held:
        X, y, T, t = own["X"], own["y"], held["X"], held["y"]
    regression(kind, options).fit(X[:FEW], y[:FEW])
    svr, began = regression(kind, options), time.perf_counter()
    svr.fit(X, y)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "r2": float(svr.score(T, t)),
        "n_support": len(svr.support_),
        "peak_rss_bytes": peak_rss_bytes(),
        **_certificate(svr, y, options["epsilon"]),
    }


def _certificate(svr: Any, y: np.ndarray, epsilon: float) -> dict[str, float]:
    """The dual objective; that of peers is computed here, from what they say of their support vectors."""
    if hasattr(svr, "objective_"):
        return {"objective": float(svr.objective_), "gap": float(svr.dual_gap_)}
    a, f = svr.dual_coef_[0], np.empty(len(svr.support_))
    for start in range(0, len(f), 2000):
        f[start : start + 2000] = svr.predict(svr.support_vectors_[start : start + 2000])
    f -= float(np.ravel(svr.intercept_)[0])
    return {"objective": float(0.5 * a @ f - y[svr.support_] @ a + epsilon * np.abs(a).sum())}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
