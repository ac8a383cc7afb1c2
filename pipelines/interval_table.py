"""How often intervals of `fit --interval 0.9` hold: their coverage of new rows, over many draws of the rows.

    python pipelines/interval_table.py --data DIR [--only abalone,covtype,diabetes,noise] [--quick] [--out table.md]

items, and the files of --data that they need:
    diabetes  442 rows that come with scikit-learn, exact
    abalone   4,177 rows, exact (abalone.bz2)
    noise     synthetic rows with noise that grows with a column, exact and on a budget
    covtype   elevation from the 53 other columns, some rows at random, early prediction by partitions (covtype.csv.gz)

--runs seeds (20 by default; diabetes five times as many) draw the rows to train on, those of them that are kept out,
and the rows to test on. Over draws coverage is on average k / (m + 1) of m rows kept out, k = ceil(0.9 (m + 1)), and
that of one draw scatters by a beta-binomial law: its deviation stands next to the one that was found.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from typing import Any

import numpy as np
from bench import Bench, print_tables
from measure import Spread
from scipy.stats import betabinom
from sklearn.datasets import load_diabetes, load_svmlight_file
from tables import Share, Table

from streamsvm import DCSVR, BudgetedSVR, Store

LEVEL, RUNS, QUICK_RUNS = 0.9, 20, 2
MADE_ROWS, COVTYPE_ROWS, QUICK_ROWS = 6_000, 24_000, 600
COMMON: dict[str, Any] = {"interval": LEVEL, "scale": "standard"}
EXACT = DCSVR(**COMMON)
EARLY = DCSVR(**COMMON, early=True, levels=1, part_rows=3000, C=10, gamma=0.05)
BUDGET = BudgetedSVR(**COMMON, budget=200, epochs=3)


def diabetes(bench: Bench) -> list[Table]:
    return [_table("diabetes", bench, *load_diabetes(return_X_y=True), {"exact": EXACT}, times=5)]


def abalone(bench: Bench) -> list[Table]:
    X, y = load_svmlight_file(str(bench.data / "abalone.bz2"))
    return [_table("abalone", bench, X.toarray(), y, {"exact": EXACT})]


def noise(bench: Bench) -> list[Table]:
    rng, n = np.random.default_rng(0), QUICK_ROWS if bench.sizes.is_quick else MADE_ROWS
    X = rng.uniform(-1, 1, (n, 4))
    y = np.sin(3 * X[:, 0]) + X[:, 1] ** 2 + (0.1 + 0.5 * np.abs(X[:, 2])) * rng.normal(size=n)
    return [_table("noise", bench, X, y, {"exact": EXACT, "budget of 200": BUDGET})]


def covtype(bench: Bench) -> list[Table]:
    store = Store.open(str(bench.stores("covtype")[0]))
    n = min(store.n, QUICK_ROWS if bench.sizes.is_quick else COVTYPE_ROWS)
    ids = np.sort(np.random.default_rng(0).choice(store.n, n, replace=False))
    rows = np.asarray(store.take(ids).X, np.float64)
    return [_table("covtype", bench, rows[:, 1:], rows[:, 0], {"early": EARLY})]


def _table(name: str, bench: Bench, X: np.ndarray, y: np.ndarray, models: dict[str, Any], times: int = 1) -> Table:
    """A row for each model; two thirds of the rows are fitted."""
    X, n = X.astype(np.float32), 2 * len(y) // 3
    runs = QUICK_RUNS if bench.sizes.is_quick else times * max(bench.sizes.runs, RUNS)
    records, checks = [], []
    for kind, model in models.items():
        found = []
        for seed in range(runs):
            order = np.random.default_rng(seed).permutation(len(y))
            own = model.set_params(random_state=seed)
            found.append(_covered(own, X, y, order[:n], order[n:]))
        records.append({"model": kind} | _record(found, n, len(y) - n))
        mean = float(np.mean([one["coverage"] for one in found]))
        checks.append((f"{name}, {kind}: mean coverage from 89 to 91 %", 0.89 <= mean <= 0.91))
    title = f"{name}: {n:,} rows to fit, {X.shape[1]} columns, {runs} draws"
    notes = [
        f"intervals of `interval={LEVEL}`; the draws take rows to fit, rows kept out of them, and rows to test on",
        "expected, by the law: mean and deviation of a draw's coverage by the beta-binomial distribution",
    ]
    return Table(title, records, notes, checks)


def _covered(model: Any, X: np.ndarray, y: np.ndarray, fitted: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    start = time.process_time()
    model.fit(X[fitted], y[fitted])
    seconds, ends = time.process_time() - start, model.predict_interval(X[test])
    inside = (ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1])
    return {
        "kept out": len(model.model_.intervals.errors),
        "coverage": float(inside.mean()),
        "width": float(np.ptp(ends, axis=1).mean() / y[test].std()),
        "r2": float(model.score(X[test], y[test])),
        "seconds": seconds,
    }


def _record(found: list[dict[str, Any]], n: int, n_test: int) -> dict[str, Any]:
    def values(name: str) -> list[float]:
        return [one[name] for one in found]

    m = found[0]["kept out"]
    k = ceil(LEVEL * (m + 1))
    law = betabinom(n_test, k, m + 1 - k)
    return {
        "kept out": m,
        "coverage": Share(np.mean(values("coverage"))),
        "expected": Share(law.mean() / n_test),
        "deviation": Share(np.std(values("coverage"))),
        "by the law": Share(law.std() / n_test),
        "lowest": Share(min(values("coverage"))),
        "highest": Share(max(values("coverage"))),
        "width / deviation of y": round(float(np.mean(values("width"))), 3),
        "R2": round(float(np.mean(values("r2"))), 4),
        "CPU seconds of a fit": Spread.of(values("seconds")),
    }


ITEMS: dict[str, Callable[[Bench], list[Table]]] = {
    "diabetes": diabetes,
    "abalone": abalone,
    "noise": noise,
    "covtype": covtype,
}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
