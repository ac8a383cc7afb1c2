"""Probabilities of DC-SVM next to scikit-learn's CalibratedClassifierCV around the same estimator. Linux.

    python pipelines/calibration_table.py --data DIR [--only a9a,partitions,...] [--quick] [--out table.md]

items, and the files of --data that they need:
    a9a          32,561 rows, exact, C 8, gamma 1/32 (a9a.bz2 a9a.t.bz2)
    covtype      50,000 rows, class 2 against the rest, early prediction, C 32, gamma 32 (covtype.csv.gz)
    electricity  31,718 rows, exact, C 1, gamma 50, in [0, 1] (electricity.csv.gz)
    partitions   early models, by a sigmoid for each partition and by one for all (magic04.csv.gz covtype.csv.gz)

Both cross-validate with five stratified folds. Ours trains once more on all rows, for which the calibration is taken;
CalibratedClassifierCV answers with the mean of its five. ECE has 15 bins of equal width; even of exact probabilities it
is not 0 on so many rows. --runs seeds draw rows to train and to test on, and the folds; scores are means over them. By
turns; a fit before the first counted one compiles.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from bench import Bench, print_tables
from binary_sets import arrays
from measure import Spread
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import StratifiedKFold
from tables import Share, Table

from streamsvm import DCSVC
from streamsvm.metrics import ProbabilityScores

SETS: dict[str, dict[str, Any]] = {
    "a9a": {"C": 8.0, "gamma": 1 / 32},
    "covtype": {"C": 32.0, "gamma": 32.0, "early": True},
    "electricity": {"C": 1.0, "gamma": 50.0},
}
PARTITIONED: dict[str, dict[str, Any]] = {
    "magic04": {"C": 10.0, "gamma": 4.0, "part_rows": 1500, "levels": 2},
    "covtype": {"C": 30.0, "gamma": 32.0, "part_rows": 2000, "levels": 3},
}
MOST_PARTITIONED = 100_000
METHODS = ("sigmoid", "isotonic")
MOST_ROWS = 50_000


def calibrated(name: str, bench: Bench) -> list[Table]:
    """Scores of ours and of the peer on the test rows."""
    X, y, X_test, y_test = arrays(name, bench)
    n, n_test = min(len(y), bench.sizes.train_rows or MOST_ROWS), len(y_test)
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test]) == y.max()
    DCSVC(**SETS[name]).fit(X[:1000], y[:1000])  # compiles
    rows, checks = [], []
    for method in METHODS:
        contestants = {
            "DCSVC": partial(_ours, name, method),
            "CalibratedClassifierCV": partial(_peer, name, method),
        }
        found: dict[str, list[dict[str, Any]]] = {who: [] for who in contestants}
        for seed in range(bench.sizes.runs):
            order = np.random.default_rng(seed).permutation(len(y))
            for who, make in contestants.items():
                found[who].append(_scores(make(seed), X, y, order[:n], order[-n_test:]))
        records = {who: _record(scores) for who, scores in found.items()}
        rows += [{"method": method, "who": who, "rows": n} | record for who, record in records.items()]
        apart = [ours["ece"] - peer["ece"] for ours, peer in zip(*found.values(), strict=True)]
        what = f"{name}, {method}: ECE not above CalibratedClassifierCV's ({np.mean(apart):+.5f}, by seed from"
        checks.append((f"{what} {min(apart):+.5f} to {max(apart):+.5f})", bool(np.mean(apart) <= 0)))
    notes = [
        f"means over {bench.sizes.runs} seeds, which draw rows and folds; ECE: expected calibration error, 15 bins",
        "CalibratedClassifierCV is around the same estimator and answers with the mean of five models, ours with one",
    ]
    options = ", ".join(o if value is True else f"{o} {value:g}" for o, value in SETS[name].items())
    return [Table(f"{name}: {options}", rows, notes, checks)]


def partitions(bench: Bench) -> list[Table]:
    """The same models with a sigmoid for each partition, and with one for all."""
    records = []
    few = {"part_rows": 100, "levels": 1} if bench.sizes.is_quick else {}
    for name, options in PARTITIONED.items():
        X, y, X_test, y_test = _split(name, bench)
        svm = DCSVC(**options | few, early=True, probability=True, random_state=0).fit(X, y)
        header = svm.model_.header
        one = replace(header, calibration=replace(header.calibration, by_part=None))
        for what, its in (("by partition", header), ("one", one)):
            svm.model_ = replace(svm.model_, header=its)
            scores = _scored(svm.predict_proba(X_test), y_test)
            of = {"data": name, "rows": len(y), "partitions": svm.model_.n_parts, "sigmoids": what}
            found = {"ECE": round(scores["ece"], 4), "log loss": round(scores["log_loss"], 4)}
            records.append(of | found | {"accuracy": Share(scores["accuracy"])})
    notes = ["early prediction, probabilities by five folds, a fifth of the rows to test on; ECE: 15 bins"]
    lost = max(a["log loss"] - b["log loss"] for a, b in zip(records[::2], records[1::2], strict=True))
    checks = [("log loss by partition not above that of one sigmoid", lost <= 0)]
    return [Table("Partitions with their own sigmoids", records, notes, checks)]


def _split(name: str, bench: Bench) -> tuple[np.ndarray, ...]:
    """Four fifths of a data set's first rows in [0, 1] and their labels, and the last fifth."""
    X, y, X_test, y_test = arrays(name, bench)
    X, y = np.concatenate([X, X_test]), np.concatenate([y, y_test]) > 0
    chosen = np.random.default_rng(0).permutation(len(y))[: bench.sizes.train_rows or MOST_PARTITIONED]
    train, test = np.split(chosen, [len(chosen) * 4 // 5])
    return X[train], y[train], X[test], y[test]


def _ours(name: str, method: str, seed: int) -> Any:
    return DCSVC(**SETS[name], probability=method, random_state=seed)


def _peer(name: str, method: str, seed: int) -> Any:
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return CalibratedClassifierCV(DCSVC(**SETS[name], random_state=seed), method=method, cv=folds)


def _scores(estimator: Any, X: Any, y: Any, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    start = time.perf_counter()
    estimator.fit(X[train], y[train])
    seconds = time.perf_counter() - start
    return {"seconds": seconds} | _scored(estimator.predict_proba(X[test]), y[test])


def _scored(proba: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    scores = ProbabilityScores(2)
    scores.add(y.astype(np.intp), proba)
    return {"accuracy": float(np.mean(proba.argmax(axis=1) == y))} | scores.result()


def _record(found: list[dict[str, Any]]) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [scores[name] for scores in found]

    return {
        "ECE": round(float(np.mean(values("ece"))), 4),
        "lowest": round(min(values("ece")), 4),
        "highest": round(max(values("ece")), 4),
        "Brier": round(float(np.mean(values("brier"))), 4),
        "log loss": round(float(np.mean(values("log_loss"))), 4),
        "accuracy": Share(np.mean(values("accuracy"))),
        "seconds": Spread.of(values("seconds")),
    }


ITEMS: dict[str, Callable[[Bench], list[Table]]] = {name: partial(calibrated, name) for name in SETS} | {
    "partitions": partitions
}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
