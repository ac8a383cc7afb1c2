"""Whether a change of the code changes a number: 50 small fits, compared to the last bit with those before the change.

    PYTHONPATH=BEFORE python pipelines/same_decisions.py --out before.npz
    PYTHONPATH=AFTER python pipelines/same_decisions.py --against before.npz
    python pipelines/same_decisions.py --only "early" --out some.npz

Every estimator, every online learner, every solver and task, on data sets that come with scikit-learn, on one thread.
Of each fit it keeps decision values, predictions, probabilities, the objective, the gap and the number of support
vectors. The exit status is 1 if a number differs, or if a fit ends with an error. It needs pandas, and public names of
the package only, so that one copy of it runs with both versions. Half a minute, and two more to compile what is new.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
if __name__ == "__main__":
    os.environ |= dict.fromkeys(THREADS, "1")  # before NumPy is loaded: sums depend on the number of threads

import numpy as np  # noqa: E402
from scipy import sparse  # noqa: E402
from sklearn import datasets  # noqa: E402

import streamsvm  # noqa: E402
from streamsvm import Store, graph_of, load_model, online  # noqa: E402
from streamsvm.config import build_config  # noqa: E402
from streamsvm.train import train_in_memory, train_path  # noqa: E402

Numbers = dict[str, np.ndarray]
LIMIT = "4GiB"  # given, since sizes of blocks depend on it
EARLY: dict[str, Any] = {"early": True, "levels": 1, "part_rows": 150}
DIVIDED: dict[str, Any] = {"levels": 2, "part_rows": 100}
OF_ESTIMATORS = ("objective_", "dual_gap_", "n_support_", "threshold_", "coef_", "intercept_")
OF_REPORTS = ("objective", "gap", "n_support", "violation")
CASES: dict[str, Callable[[], Numbers]] = {}


@cache
def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d), standardised, and labels or numbers (n,), in random order."""
    rng = np.random.default_rng(0)
    X, y = getattr(datasets, f"load_{name.partition(' ')[0]}")(return_X_y=True)
    if name.endswith("even"):
        y = np.where(y % 2, "odd", "even")
    order = rng.permutation(len(X))[:700]
    spread = X.std(axis=0)
    return (((X - X.mean(axis=0)) / np.where(spread > 0, spread, 1))[order], y[order])


@cache
def moved() -> tuple[np.ndarray, np.ndarray]:
    """All digits, and each moved by a pixel in four directions: (8985, 64), odd or even."""
    X, y = datasets.load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8) / 16
    directions = ((0, 1), (1, 1), (-1, 1), (1, 2), (-1, 2))
    rows = np.concatenate([np.roll(images, *way) for way in directions]).reshape(-1, 64)
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order], np.where(np.tile(y, 5) % 2, "odd", "even")[order]


def numbers(found: Mapping[str, Any]) -> Numbers:
    """What can be compared: numbers, without those that are None."""
    arrays = {name: np.asarray(value if value is not None else np.nan, np.float64) for name, value in found.items()}
    return {name: array for name, array in arrays.items() if array.size}


def answers(model: Any, X: Any) -> dict[str, Any]:
    """What a fitted model or estimator says of rows."""
    found = {}
    for name in ("decision_function", "predict_proba", "predict_interval", "predict", "n_support"):
        said = getattr(model, name, None)
        try:
            said = said(X) if callable(said) else said
        except Exception as error:  # it has no probabilities, or no intervals
            if not name.startswith("predict_"):
                raise
            said = f"{type(error).__name__}"
        if said is not None and np.asarray(said).dtype.kind not in "USO":
            found[name] = said
        elif said is not None and name == "predict":
            found[name] = np.unique(said, return_inverse=True)[1]
    return found


def estimator(kind: str, data: str | tuple[Any, Any] = "digits even", **parameters: Any) -> Callable[[], Numbers]:
    """An estimator, fitted to two rows of three; its answers for all."""

    def fitted() -> Numbers:
        fits = {name: parameters.pop(name) for name in ("sample_weight", "qid") if name in parameters}
        X, y = table(data) if isinstance(data, str) else data
        n = X.shape[0]
        own = np.flatnonzero(np.arange(n) % 3)
        svm = getattr(streamsvm, kind)(n_jobs=1, memory_limit=LIMIT)
        seed = {"random_state": 0} if "random_state" in svm.get_params() else {}
        svm.set_params(**seed | parameters)
        rows = X.iloc[own] if hasattr(X, "iloc") else X[own]
        svm.fit(rows, y[own], **{name: value[own] for name, value in fits.items()})
        facts = {}
        for name in OF_ESTIMATORS:
            try:
                facts[name] = getattr(svm, name)
            except AttributeError:  # of others
                continue
        facts = {name: value for name, value in facts.items() if not isinstance(value, Mapping)}
        return numbers(answers(svm, X) | facts)

    return fitted


def configured(data: str = "digits even", **values: Any) -> Callable[[], Numbers]:
    """A fit by its configuration; the answers for all rows."""

    def fitted() -> Numbers:
        X, y = table(data)
        config = build_config(("recipe", {"threads": 1, "memory_limit": LIMIT} | values))
        model, report = train_in_memory(Store.from_arrays(X, y), config)
        return numbers(answers(model, X) | {name: report.get(name) for name in OF_REPORTS})

    return fitted


def with_gaps() -> tuple[np.ndarray, np.ndarray]:
    X, y = table("wine")
    return np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X), y


def sparse_rows() -> tuple[Any, np.ndarray]:
    X, y = datasets.load_digits(return_X_y=True)
    return sparse.csr_array(X[:600] / 16), y[:600]


def data_frame() -> tuple[Any, np.ndarray]:
    import pandas as pd

    X, y = table("wine")
    frame = pd.DataFrame({"size": X[:, 0], "colour": np.digitize(X[:, 9], [-0.5, 0.5]), "hue": X[:, 10]})
    frame["colour"] = frame["colour"].map({0: "red", 1: "dark", 2: "black"})
    return frame, y


def label_sets() -> tuple[np.ndarray, np.ndarray]:
    X, y = table("digits")
    return X, np.stack([y % 2 == 0, y > 4, y % 3 == 0], axis=1).astype(int)


def kernel_values() -> tuple[np.ndarray, np.ndarray]:
    """Rows are values with the training rows, those of `estimator`."""
    X, y = table("breast_cancer")
    return X @ X[np.arange(len(X)) % 3 > 0].T / X.shape[1], y


def ordered() -> tuple[np.ndarray, np.ndarray]:
    X, y = table("diabetes")
    return X, np.digitize(y, [90, 150, 220])


def graph() -> Numbers:
    X, y = table("digits even")
    values = {"C": 5.0, "threads": 1, "memory_limit": LIMIT, "dcsvm": EARLY}
    model = graph_of(Store.from_arrays(X, y), values).compute(scheduler="synchronous")
    return numbers(answers(model, X))


def path(**values: Any) -> Callable[[], Numbers]:
    """A model for each C."""

    def fitted() -> Numbers:
        X, y = table("breast_cancer")
        config = build_config(("recipe", {"threads": 1, "memory_limit": LIMIT} | values))
        found = train_path(Store.from_arrays(X, y), config, (0.1, 1.0, 10.0))
        facts = {f"{i} {k}": report.get(k) for i, (_, report) in enumerate(found) for k in OF_REPORTS}
        decided = {f"{i} decisions": model.decision_function(X) for i, (model, _) in enumerate(found)}
        return numbers(facts | decided)

    return fitted


def command_line() -> Numbers:
    """Rows in a file become a store, two models and their predictions, and a table of points."""
    X, y = table("breast_cancer")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        np.savetxt(Path(folder, "rows.csv"), np.column_stack([y, X]), "%.17g", ",")
        run(folder, "ingest rows.csv --store s.zarr --label first --no-header --rows-per-chunk 100")
        for name, options in (("exact", "--C 3"), ("early", "--early --set dcsvm.levels=1")):
            fit = f"fit --store s.zarr --model {name}.zarr --no-search {options} --memory-limit {LIMIT}"
            report = json.loads(run(folder, f"{fit} --set threads=1 --json"))
            run(folder, f"predict --model {name}.zarr --store s.zarr --out {name}.npy --decision")
            own = answers(load_model(Path(folder, f"{name}.zarr")), X)
            own |= {fact: report.get(fact) for fact in OF_REPORTS}
            own |= {"written": np.load(Path(folder, f"{name}.npy"))}
            found |= {f"{name} {key}": value for key, value in own.items()}
        tune = "tune --store s.zarr --set tune.folds=3 --set tune.grid.C=[0.1,1.0] --set threads=1 --json"
        points = json.loads(run(folder, tune))["results"]
        found["scores"] = [[point["C"], *point["fold_scores"]] for point in points]
    return numbers(found)


def run(folder: str, words: str) -> str:
    """What `streamsvm WORDS` prints in a folder."""
    command = [sys.executable, "-m", "streamsvm", *words.split()]
    env = os.environ | {"PYTHONPATH": str(Path(streamsvm.__file__).parents[1])}
    ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"streamsvm {words}: {ended.stderr}")
    return ended.stdout


def one_by_one(kind: str, data: str, ask: str, **parameters: Any) -> Callable[[], Numbers]:
    """An online learner: the answer for each event, then it learns the event."""

    def learned() -> Numbers:
        X, y = label_sets() if "Multi" in kind else table(data)
        learner, found = getattr(online, kind)(**parameters), []
        for row, label in zip(X, y.tolist(), strict=True):
            event = dict(enumerate(row.tolist()))
            said = getattr(learner, ask)(event)
            said = list(said.values()) if isinstance(said, dict) else said
            found.append(np.ravel([list(s.values()) if isinstance(s, dict) else s for s in np.atleast_1d(said)]))
            if "OneClass" in kind:
                learner.learn_one(event)
            else:
                learner.learn_one(event, dict(enumerate(map(bool, label))) if "Multi" in kind else label)
        return numbers({"answers": np.concatenate(found)} | answers(learner.to_model(), X))

    return learned


def in_blocks(kind: str, data: str, ask: str, **parameters: Any) -> Callable[[], Numbers]:
    """An online learner: the answers for each block of events, then it learns them."""

    def learned() -> Numbers:
        import pandas as pd

        X, y = table(data)
        learner, found = getattr(online, kind)(**parameters), []
        for start in range(0, len(X), 50):
            frame = pd.DataFrame(X[start : start + 50])
            if start:
                found.append(np.ravel(getattr(learner, ask)(frame)))
            learner.learn_many(frame, pd.Series(y[start : start + 50]))
        return numbers({"answers": np.concatenate(found)} | answers(learner.to_model(), X))

    return learned


WEIGHTS = np.random.default_rng(2).uniform(0.5, 2.0, 700)
QUERIES = np.arange(442) // 20
SEARCHED = {"trials": 2, "sample": 200}
METRIC: dict[str, Any] = {"C": 3.0, "search_params": SEARCHED, "metric_params": {"iterations": 2}}

CASES |= {
    "exact": lambda: estimator("DCSVC", moved(), C=20.0, cache_size=20, gamma=0.1)(),
    "exact, squared losses and a bias": estimator("DCSVC", loss="squared_hinge", fit_intercept=True),
    "exact, nu, polynomial": estimator("DCSVC", "breast_cancer", nu=0.2, kernel="poly", degree=2, coef0=1.0),
    "divided": lambda: estimator("DCSVC", moved(), C=5.0, levels=2, part_rows=1000)(),
    "divided by the kernel, Laplacian": estimator("DCSVC", kernel="laplacian", clustering="kernel", **DIVIDED),
    "early": lambda: estimator("DCSVC", moved(), C=5.0, early=True, part_rows=500)(),
    "early, ten classes, two threads": estimator("DCSVC", "digits", n_jobs=2, **EARLY),
    "early, committee": estimator("DCSVC", "breast_cancer", kernel="cauchy", combine="committee", **EARLY),
    "early, neighbours and a bias": estimator("DCSVC", kernel="matern", neighbours=3, fit_intercept=True, **EARLY),
    "early, metrics of partitions": estimator("DCSVC", part_metric=1, **EARLY),
    "probabilities, sigmoid": estimator("DCSVC", "wine", probability=True, **DIVIDED),
    "probabilities, isotonic, and costs": estimator(
        "DCSVC", "breast_cancer", probability="isotonic", costs={(0, 1): 5.0}, scale="minmax"
    ),
    "threshold, linear": estimator("DCSVC", "breast_cancer", kernel="linear", threshold="f1", scale="standard"),
    "class weights and weights of rows": estimator(
        "DCSVC", class_weight={"even": 2.0, "odd": 1.0}, sample_weight=WEIGHTS, scale="maxabs"
    ),
    "metric, diagonal": estimator("DCSVC", "wine", metric="diagonal", **METRIC),
    "metric, full": estimator("DCSVC", "breast_cancer", metric="full", **METRIC),
    "missing values": lambda: estimator("DCSVC", with_gaps(), gaps="median", mark_gaps=True)(),
    "sparse rows, against the rest": lambda: estimator("DCSVC", sparse_rows(), multi_class="ovr")(),
    "data frame": lambda: estimator("DCSVC", data_frame(), scale="standard")(),
    "several labels a row": lambda: estimator("DCSVC", label_sets(), probability=True)(),
    "regression": estimator("DCSVR", "diabetes"),
    "regression, early, interval": estimator("DCSVR", "diabetes", interval=0.9, **EARLY),
    "one class, early": estimator("DCOneClassSVM", nu=0.1, **EARLY),
    "one class": estimator("DCOneClassSVM", "wine", nu=0.1),
    "pairs": estimator("ALFPGMSVC", "digits", pairs=50),
    "pairs, given kernel values": lambda: estimator("ALFPGMSVC", kernel_values(), kernel="precomputed")(),
    "fast gradients, sigmoid kernel": estimator(
        "ALFPGMSVC", "breast_cancer", kernel="sigmoid", subproblem="fpg", pairs=50
    ),
    "regression by pairs": estimator("ALFPGMSVR", "diabetes"),
    "compressed": lambda: estimator("HSSSVC", moved(), gamma=0.1)(),
    "compressed and polished, several C": estimator("HSSSVC", C=[0.1, 10.0], leaf=64, landmarks=64, polish=100),
    "compressed, regression": estimator("HSSSVR", "diabetes", leaf=64, beta="balance", storage="float32"),
    "planes": estimator("CuttingPlaneSVC", "digits"),
    "planes, logistic, landmarks": lambda: estimator(
        "CuttingPlaneSVC", moved(), loss="logistic", kernel="rbf", landmarks=50
    )(),
    "planes, regression": estimator("CuttingPlaneSVR", "diabetes", epsilon=0.1, method="plain"),
    "planes, one class": estimator("CuttingPlaneOneClassSVM", nu=0.2, kernel="rbf", landmarks=40),
    "planes, ordinal": lambda: estimator("CuttingPlaneRanker", ordered())(),
    "planes, queries": lambda: estimator("CuttingPlaneRanker", ordered(), qid=QUERIES)(),
    "budget": estimator("BudgetedSVC", "digits", budget=50, epochs=2),
    "budget, logistic": estimator(
        "BudgetedSVC", loss="logistic", strategy="project", budget=30, average=True, fit_intercept=True
    ),
    "budget, regression": estimator("BudgetedSVR", "diabetes", budget=40, strategy="remove"),
    "budget, regions": configured(solver="bsgd", bsgd={"budget": 30, "partitions": 3, "strategy": "gradient"}),
    "chosen": estimator("AutoSVC", "wine", search_params=SEARCHED),
    "graph": graph,
    "path": path(solver="admm-hss", admm_hss={"leaf": 64}),
    "command line": command_line,
    "stream, tunes itself": one_by_one("BSGDClassifier", "digits even", "predict_proba_one", budget=50),
    "stream, in blocks": in_blocks("BSGDClassifier", "digits", "predict_proba_many", gamma=0.02, lam=1e-3, budget=60),
    "stream, regression": one_by_one("BSGDRegressor", "diabetes", "predict_one", budget=30, average=True),
    "stream, one class": one_by_one("BSGDOneClass", "breast_cancer", "score_one", budget=30, nu=0.1),
    "stream, several labels": one_by_one("BSGDMultiLabelClassifier", "digits", "decision_one", budget=40),
}


def measured(names: list[str]) -> dict[str, Numbers]:
    """The numbers of each case by its name; of one that ends with an error none, and what it says is printed."""
    found = {}
    for name in names:
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[name] = CASES[name]()
        except Exception as error:
            found[name] = {}
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        print(f"{time.perf_counter() - began:6.1f} s  {name}", file=sys.stderr, flush=True)
    return found


def difference(a: Numbers, b: Numbers) -> str:
    """What differs, in words; "" if nothing does. NaN equals NaN."""
    if set(a) != set(b):
        return f"only one has {', '.join(sorted(set(a) ^ set(b)))}"
    found = []
    for name in a:
        if a[name].shape != b[name].shape:
            found.append(f"{name} has shape {a[name].shape}, not {b[name].shape}")
        elif not np.array_equal(a[name], b[name], equal_nan=True):
            apart = np.abs(a[name] - b[name])
            largest = f"{np.nanmax(apart):.3g}" if not np.isnan(apart).all() else "NaN"
            found.append(f"{name} by {largest}")
    return ", ".join(found)


def compared(now: Mapping[str, Numbers], before: Mapping[str, Numbers]) -> bool:
    """Whether all are equal; what differs is printed."""
    wrong = {name: difference(before.get(name, {}), own) for name, own in now.items()}
    wrong |= {name: "no numbers" for name, own in now.items() if not own}
    for name, what in wrong.items():
        if what:
            print(f"{name}: {what}")
    equal = sum(not what for what in wrong.values())
    print(f"{equal} of {len(now)} equal")
    return equal == len(now)


def saved(path: Path) -> dict[str, Numbers]:
    found: dict[str, Numbers] = {}
    with np.load(path) as file:
        for key in file.files:
            case, _, name = key.partition(": ")
            found.setdefault(case, {})[name] = file[key]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE.npz", help="where to save the numbers")
    parser.add_argument("--against", type=Path, metavar="FILE.npz", help="numbers to compare with")
    parser.add_argument("--only", default="", metavar="WORD", help="cases with this word in their names")
    args = parser.parse_args()
    names = [name for name in CASES if args.only in name]
    if not names:
        parser.error(f"--only {args.only}: no such case; there are {'; '.join(CASES)}")
    print(f"of {Path(streamsvm.__file__).parents[1]}", file=sys.stderr)
    found = measured(names)
    if args.out is not None:
        np.savez(args.out, **{f"{case}: {name}": a for case, own in found.items() for name, a in own.items()})
    ended = all(found.values())
    if args.against is not None:
        ended = compared(found, saved(args.against)) and ended
    sys.exit(not ended)


if __name__ == "__main__":
    main()
