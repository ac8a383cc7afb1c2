"""scikit-learn's GridSearchCV over scikit-learn-intelex's SVC (SVC itself where that is missing): JSON on stdout.

    python grid_worker.py ROWS.npz OPTIONS

ROWS.npz has X, y and fold (n,), the fold in which each row is held out. OPTIONS is a JSON object: grid, tol, n_jobs.
It runs in an interpreter without streamsvm, too.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np
from sklearn.model_selection import GridSearchCV, PredefinedSplit

try:
    from sklearnex.svm import SVC
except ImportError:
    from sklearn.svm import SVC


def main() -> None:
    rows, options = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, only the answer to stdout
    with np.load(rows, allow_pickle=False) as arrays:
        X, y, fold = arrays["X"].astype(np.float32), arrays["y"], arrays["fold"]
    search = GridSearchCV(
        SVC(tol=options["tol"]),
        options["grid"],
        cv=PredefinedSplit(fold),
        n_jobs=options["n_jobs"],
        refit=False,
    )
    start = time.perf_counter()
    search.fit(X, y)
    seconds, found = time.perf_counter() - start, search.cv_results_
    best = int(np.argmax(found["mean_test_score"]))
    answer = {"seconds": seconds, "solver": SVC.__module__.partition(".")[0], "params": found["params"][best]}
    answers.write(json.dumps(answer | {"score": float(found["mean_test_score"][best])}) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
