"""Fits one solver on arrays in memory as often as it is asked to: `fit` and `score` on stdin, JSON on stdout.

    python fit_worker.py streamsvm|libsvm|intelex|liquidsvm|liblinear|sgd|nystroem|lightgbm|neighbours TRAIN.npz \
        TEST.npz OPTIONS

Other names are those of functions of `dcsvm_peers.py`.
OPTIONS is a JSON object like a configuration file; for liquidsvm, liblinear, sgd and lightgbm the parameters of mcSVM,
LinearSVC, SGDClassifier and LGBMClassifier, for nystroem those of both Nystroem and LinearSVC, for neighbours those of
KNeighborsClassifier, and `columns`, of which the first so many count. `rows` trains on so many, drawn at random. A peer
may run in an interpreter without streamsvm.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

Predict = Callable[[np.ndarray], np.ndarray]
BLOCK_ROWS = 4096


def streamsvm(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from streamsvm import Store
    from streamsvm.config import build_config
    from streamsvm.data.rows import Rows
    from streamsvm.train import train_in_memory

    config = build_config(("options", options))

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        model, report = train_in_memory(Store.from_arrays(X, y), config)
        facts = {name: report.get(name) for name in ("n_support", "objective", "gap", "seconds_by_phase")}
        return lambda rows: model.predict(Rows(rows)), facts

    return fit


def libsvm(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearn.svm import SVC

    return _scikit(SVC, options, np.float64)


def intelex(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearnex.svm import SVC

    if "threads" in options:
        import daal4py

        daal4py.daalinit(options["threads"])
    return _scikit(SVC, options, np.float32)


def _scikit(
    SVC: Any, options: dict[str, Any], dtype: type[np.floating]
) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    kernel = dict(options["kernel"])
    name = kernel.pop("name", "rbf")
    given: dict[str, Any] = {"C": options["C"], "tol": options.get("tol", 1e-3), "kernel": name, **kernel}

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        model = SVC(**given).fit(X.astype(dtype, copy=False), y)
        return lambda rows: model.predict(rows.astype(dtype)), {"n_support": int(model.n_support_.sum())}

    return fit


def liquidsvm(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    # It finds its library by a name that Python has under another key now.
    sysconfig.get_config_vars()["SO"] = sysconfig.get_config_var("EXT_SUFFIX")
    from liquidSVM import mcSVM

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        model = mcSVM(X, y, threads=len(os.sched_getaffinity(0)), **options)
        labels = np.unique(y)

        def predict(rows: np.ndarray) -> np.ndarray:
            # Its own `predict` passes labels of 0, which are refused where the training rows have none.
            return model.test(rows, np.resize(labels, len(rows)))[0][:, model.predictCols]

        return predict, {"n_support": None}

    return fit


def liblinear(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearn.svm import LinearSVC

    return _plain(LinearSVC(random_state=0, **options))


def sgd(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearn.linear_model import SGDClassifier

    return _plain(SGDClassifier(random_state=0, **options))


def nystroem(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    features = {name: value for name, value in options.items() if name in ("gamma", "n_components")}
    rest = {name: value for name, value in options.items() if name not in features}
    return _plain(make_pipeline(Nystroem(random_state=0, **features), LinearSVC(random_state=0, **rest)))


def lightgbm(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from lightgbm import LGBMClassifier

    return _plain(LGBMClassifier(verbose=-1, random_state=0, **options))


def neighbours(options: dict[str, Any]) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    from sklearn.neighbors import KNeighborsClassifier

    columns = options.pop("columns", None)  # all
    model = KNeighborsClassifier(n_jobs=-1, **options)

    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        model.fit(X[:, :columns], y)
        return lambda rows: model.predict(rows[:, :columns]), {"n_support": None}

    return fit


def _plain(model: Any) -> Callable[..., tuple[Predict, dict[str, Any]]]:
    def fit(X: np.ndarray, y: np.ndarray) -> tuple[Predict, dict[str, Any]]:
        model.fit(X, y)
        return model.predict, {"n_support": None}

    return fit


SOLVERS = {
    f.__name__: f for f in (streamsvm, libsvm, intelex, liquidsvm, liblinear, sgd, nystroem, lightgbm, neighbours)
}


def load(path: str) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return arrays["X"], arrays["y"]


def accuracy(predict: Predict, X: np.ndarray, y: np.ndarray) -> float:
    starts = range(0, len(y), BLOCK_ROWS)
    return sum(int((predict(X[i : i + BLOCK_ROWS]) == y[i : i + BLOCK_ROWS]).sum()) for i in starts) / len(y)


def timed(fit: Callable[..., tuple[Predict, dict[str, Any]]], X: Any, y: Any) -> tuple[Predict, dict[str, Any]]:
    start, cpu_start = time.perf_counter(), time.process_time()
    predict, facts = fit(X, y)
    facts["seconds"] = time.perf_counter() - start
    facts["cpu_seconds"] = time.process_time() - cpu_start
    facts["peak_rss_bytes"] = peak_rss_bytes()
    return predict, facts


def peak_rss_bytes() -> int:
    """The most memory that this process has held, without that of the one which started it. Linux."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


class Fits:
    """A solver and its data. who, options: as on the command line."""

    def __init__(self, who: str, train: str, test: str, options: dict[str, Any]) -> None:
        rows = options.pop("rows", None)
        self._answer: dict[str, Any] = {}
        self._fit: Callable[..., tuple[Predict, dict[str, Any]]] | None = None
        try:
            self._fit = (SOLVERS[who] if who in SOLVERS else getattr(import_module("dcsvm_peers"), who))(options)
        except ImportError as error:
            self._answer = {"missing": str(error)}
        self._test = test
        self._predict: Predict | None = None
        self._X, self._y = load(train)
        if rows is not None:
            chosen = np.sort(np.random.default_rng(0).permutation(len(self._y))[:rows])
            self._X, self._y = self._X[chosen], self._y[chosen]

    def ask(self, question: str) -> dict[str, Any]:
        """Fits, or scores the last fit on the test rows."""
        if self._fit is not None and question == "fit":
            self._predict = None  # the old model's memory is not the new fit's
            self._predict, self._answer = timed(self._fit, self._X, self._y)
        elif self._predict is not None:
            self._answer = {"accuracy": accuracy(self._predict, *load(self._test))}
        return self._answer


def main() -> None:
    who, train, test, options = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, only answers to stdout
    fits = Fits(who, train, test, json.loads(options))
    for line in sys.stdin:
        answers.write(json.dumps(fits.ask(line.strip())) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
