"""How many points to merge at once: time and accuracy over budgets and data sets. Linux.

    python pipelines/bsgd_study.py --data DIR [--only phishing,w8a,...] [--quick] [--out study.md] [--plots DIR]

The study of Qaadan and Glasmachers 2018 (figures 1 to 3, tables 1 and 2): M = 2 to 11 points become one, budgets of
1 to 50 % of LIBSVM's support vectors, one epoch, the paper's C and gamma. Needs phishing.bz2, w8a.bz2, a9a.bz2,
a9a.t.bz2, ijcnn1.bz2, ijcnn1.t.bz2 and skin_nonskin.tsv.gz in --data; what comes without test rows is split at random.
Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from bench import Bench, from_arguments
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from tables import Factor, Report, Seconds, Share, Table

from streamsvm import BudgetedSVC

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

MERGES = range(2, 12)
SHARES = (0.01, 0.05, 0.10, 0.15, 0.25, 0.50)


@dataclass(frozen=True)
class Problem:
    """Files, the share of the rows to train on where there are no test files, and the paper's C and gamma."""

    files: tuple[str, ...]
    train_share: float
    C: float
    gamma: float


PROBLEMS = {
    "phishing": Problem(("phishing.bz2",), 0.8, 8, 8),
    "w8a": Problem(("w8a.bz2",), 0.8, 8, 0.03),
    "a9a": Problem(("a9a.bz2", "a9a.t.bz2"), 1.0, 32, 0.008),
    "ijcnn1": Problem(("ijcnn1.bz2", "ijcnn1.t.bz2"), 1.0, 32, 2),
    "skin": Problem(("skin_nonskin.tsv.gz",), 2 / 3, 8, 0.03),
}


@dataclass(frozen=True)
class Arrays:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def study(name: str, bench: Bench) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What LIBSVM does on all rows, and a record for each budget and M."""
    problem = PROBLEMS[name]
    arrays = _few(_arrays(bench.data, problem), bench.sizes.train_rows)
    start = time.perf_counter()
    full = SVC(C=problem.C, gamma=problem.gamma, cache_size=2000).fit(arrays.X, arrays.y)
    libsvm = {
        "rows": len(arrays.y),
        "features": arrays.X.shape[1],
        "support vectors": int(full.n_support_.sum()),
        "seconds": Seconds(time.perf_counter() - start),
        "accuracy": Share(full.score(arrays.X_test, arrays.y_test)),
    }
    merges = MERGES if bench.sizes.train_rows is None else MERGES[:2]
    records = []
    for share in SHARES:
        budget = max(20, round(share * libsvm["support vectors"]))
        fit = partial(_fit, arrays, budget=budget, C=problem.C, gamma=problem.gamma)
        fit(merge=2, random_state=0)  # compiles, and warms up
        for merge in merges:
            found = [fit(merge=merge, random_state=seed) for seed in range(bench.sizes.runs)]
            seconds, accuracy, maintenances = np.array(found).T
            records.append(
                {
                    "share": Share(share),
                    "B": budget,
                    "M": merge,
                    "seconds": Seconds(np.median(seconds)),
                    "accuracy": Share(accuracy.mean()),
                    "deviation": Share(accuracy.std()),
                    "maintenances": int(np.median(maintenances)),
                }
            )
    return libsvm, records


def _fit(arrays: Arrays, **options: Any) -> tuple[float, float, float]:
    """Seconds, test accuracy, and how many times the budget was maintained."""
    start = time.perf_counter()
    svm = BudgetedSVC(**options).fit(arrays.X, arrays.y)
    seconds = time.perf_counter() - start
    maintenances = svm.model_.learner().stats().maintenances
    return seconds, svm.score(arrays.X_test, arrays.y_test), maintenances


def _arrays(data: Path, problem: Problem) -> Arrays:
    loaded = [_load(data / file) for file in problem.files]
    if len(loaded) == 2:
        (X, y), (X_test, y_test) = loaded
        missing = X.shape[1] - X_test.shape[1]  # features that no test row has
        return Arrays(X, y, np.pad(X_test, ((0, 0), (0, missing))), y_test)
    ((X, y),) = loaded
    X, X_test, y, y_test = train_test_split(X, y, train_size=problem.train_share, random_state=0)
    return Arrays(X, y, X_test, y_test)


def _load(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """svmlight rows as they are; the columns of a TSV file standardised, its last one the label."""
    if path.name.endswith(".bz2"):
        X, y = load_svmlight_file(str(path), dtype=np.float32)
        return X.toarray(), y
    with gzip.open(path, "rt") as file:
        table = np.loadtxt(file)
    X = table[:, :-1]
    return ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32), table[:, -1]


def _few(arrays: Arrays, rows: int | None) -> Arrays:
    return Arrays(arrays.X[:rows], arrays.y[:rows], arrays.X_test[:rows], arrays.y_test[:rows])


def tables(name: str, libsvm: dict[str, Any], records: list[dict[str, Any]]) -> list[Table]:
    problem = PROBLEMS[name]
    note = f"C {problem.C:g}, gamma {problem.gamma:g}, one epoch: means and deviations over seeds, else medians"
    return [
        Table(f"{name}: LIBSVM", [libsvm]),
        Table(f"{name}: budgets and M", records, [note]),
    ]


def gains(found: dict[str, list[dict[str, Any]]]) -> Table:
    """Time and accuracy of each M next to M = 2, over all data sets and budgets."""
    rows = []
    for merge in sorted({record["M"] for records in found.values() for record in records}):
        pairs = [
            (record, two)
            for records in found.values()
            for record in records
            for two in records
            if record["M"] == merge and two["M"] == 2 and two["B"] == record["B"]
        ]
        ratios = [record["seconds"] / two["seconds"] for record, two in pairs]
        points = [100 * (record["accuracy"] - two["accuracy"]) for record, two in pairs]
        rows.append(
            {
                "M": merge,
                "seconds / those of M = 2, geometric mean": Factor(np.exp(np.mean(np.log(ratios)))),
                "accuracy, points more than M = 2: mean": Factor(np.mean(points)),
                "lowest": Factor(min(points)),
                "highest": Factor(max(points)),
            }
        )
    notes = [
        f"{', '.join(found)}; budgets of 1 to 50 % of LIBSVM's support vectors, one epoch, means over seeds",
        "M points become one when the budget is full",
    ]
    return Table("All data sets and budgets", rows, notes)


def plot(name: str, libsvm: dict[str, Any], records: list[dict[str, Any]], folder: Path) -> None:
    """Accuracy, time and maintenances against M, a line for each budget."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for number, share in enumerate(SHARES):
        line = [record for record in records if record["share"] == share]
        label, colour = f"{share:.0%} (B = {line[0]['B']:,})", plt.get_cmap("viridis")(number / len(SHARES))
        for ax, quantity, factor in zip(axes, ("accuracy", "seconds", "maintenances"), (100, 1, 1), strict=True):
            values = [factor * record[quantity] for record in line]
            ax.plot([record["M"] for record in line], values, ".-", color=colour, label=label)
    axes[0].axhline(100 * libsvm["accuracy"], color="grey", linestyle=":", label="LIBSVM")
    for ax, title in zip(axes, ("test accuracy, %", "training time, s", "maintenances of the budget"), strict=True):
        ax.set(title=title, xlabel="points merged at once, M")
    axes[1].set_yscale("log")
    axes[2].set_ylim(0)
    axes[0].legend(title="budget, of LIBSVM's support vectors", fontsize="small")
    figure.suptitle(name)
    figure.savefig(folder / f"{name}.svg")
    plt.close(figure)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default=",".join(PROBLEMS), metavar="NAME[,NAME...]")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write a picture of each data set here")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report, found = Report(args.out), {}
        for name in args.only.split(","):
            libsvm, found[name] = study(name, bench)
            report.add(tables(name, libsvm, found[name]))
            if args.plots:
                args.plots.mkdir(parents=True, exist_ok=True)
                plot(name, libsvm, found[name], args.plots)
        report.add([gains(found)])


if __name__ == "__main__":
    main()
