"""The tables of what cutting planes do on linear problems, next to LIBLINEAR. Linux.

    python pipelines/linear_table.py --data DIR [--only objective,C,...] [--quick] [--out linear.md]

items, and the files of --data that they need (`text` is a store that text_rows.py generates):
    outofcore  infinite digits: a pass over a store four times larger than the memory limit
    objective  reuters.bz2 reuters.t.bz2 w8a.bz2 a9a.bz2 a9a.t.bz2 covtype.csv.gz, text: objective and time
    sgd        the same: SGDClassifier, which needs no memory either
    C          the same without text: passes and test scores over C (figures 3 and 8 of Joachims 2006)
    tol        covtype, text: passes over tol (figure 5)
    plain      covtype: passes with and without the line search
    growing    text: time and passes over rows (figures 1 and 2)
    ranking    mq2008.s1.bz2 to .s5.bz2 abalone.bz2 reuters.bz2 reuters.t.bz2 w8a.bz2: queries, ranks, ROC area
    ordinal    covtype.csv.gz: 500,000 rows as two ranks, next to two classes

Peers are LIBLINEAR, through scikit-learn's LinearSVC with loss="hinge", and SGDClassifier, in memory; ours reads
stores. Run it on a machine that does nothing else. Fits before the first counted one compile, and are not counted.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench, print_tables
from measure import Spread, run
from scipy import sparse
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC, LinearSVC
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm import CuttingPlaneRanker, CuttingPlaneSVC, Store
from streamsvm.events import Step
from streamsvm.metrics import break_even, ranking, roc_auc
from streamsvm.report.read import read_run

GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TOLS = (1e-1, 1e-2, 1e-3, 1e-4)
TEXT_ROWS = 804_414
GROWING = (10_000, 30_000, 100_000, 300_000, TEXT_ROWS)
BEST_C = {"reuters": 0.3, "w8a": 10.0, "a9a": 3.0, "covtype": 1.0, "text": 10.0}
PAPERS_C = 1e6  # of covtype, over n
FOLDS = 5
Score = Callable[[np.ndarray, np.ndarray], float]


def accuracy(y: np.ndarray, f: np.ndarray) -> float:
    return float(np.mean((f > 0) == (y > 0)))


def precision_is_recall(y: np.ndarray, f: np.ndarray) -> float:
    return break_even(y > 0, f) or 0.0


@dataclass(frozen=True)
class Problem:
    """Rows to train on and to test on, labels -1 and +1, and the score that fits them."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    score: Score


@cache
def problem(name: str, bench: Bench) -> Problem:
    if name == "covtype":
        parts = [Store.open(store) for store in bench.stores("covtype")]
        (X, y), (X_test, y_test) = (_rows(store, slice(0, bench.sizes.train_rows)) for store in parts)
        low, span = X.min(axis=0), X.max(axis=0) - X.min(axis=0)
        X, X_test = ((rows - low) / np.where(span > 0, span, 1) for rows in (X, X_test))
        return Problem(X, np.where(y == 2, 1, -1), X_test, np.where(y_test == 2, 1, -1), accuracy)
    if name == "text":
        X, y = _rows(_text(bench))
        test = np.arange(len(y)) % 5 == 0
        return Problem(X[~test], y[~test], X[test], y[test], precision_is_recall)
    score = accuracy if name == "a9a" else precision_is_recall
    X, y = _svmlight(bench.data / f"{name}.bz2")
    y = np.where(y == y.max(), 1, -1)
    there = bench.data / f"{name}.t.bz2"
    if not there.exists():
        X, X_test, y, y_test = train_test_split(X, y, train_size=0.8, random_state=0, stratify=y)
        return Problem(X, y, X_test, y_test, score)
    X_test, y_test = load_svmlight_file(str(there), n_features=X.shape[1], dtype=np.float32)
    return Problem(X, y, X_test, np.where(y_test == y_test.max(), 1, -1), score)


def _grid(bench: Bench, most: float = 30.0) -> list[float]:
    return [C for C in GRID if C <= most] if bench.sizes.train_rows is None else [0.1, 1.0]


def _papers_C(bench: Bench) -> float:
    return PAPERS_C if bench.sizes.train_rows is None else 1e3


def objective(bench: Bench) -> list[Table]:
    records, checks = [], []
    for name in ("reuters", "w8a", "a9a", "covtype", "text"):
        p = problem(name, bench)
        store = _stored(name, p, bench)
        C = max(_grid(bench), key=lambda C: p.score(p.y_test, _ours(store, C)[0].decision_function(p.X_test)))
        fits = [(_ours(store, C), _liblinear(p, C)) for _ in range(bench.sizes.runs)]
        ours, peers = zip(*fits, strict=True)
        svm, peer = ours[0][0], peers[0][0]
        found, best = _primal(svm, p, C), _primal(peer, p, C)
        seconds, peer_seconds = (Spread.of([s for _, s in those]) for those in (ours, peers))
        ratio = Factor(seconds.median / peer_seconds.median)
        records.append(
            {
                "data": name,
                "rows": len(p.y),
                "C": C,
                "objective / LIBLINEAR's": f"{found / best:.6f}",
                "seconds": seconds,
                "LIBLINEAR": peer_seconds,
                "ratio": ratio,
                "passes": svm.n_passes_,
                "score": Share(p.score(p.y_test, svm.decision_function(p.X_test))),
                "LIBLINEAR's": Share(p.score(p.y_test, peer.decision_function(p.X_test))),
                "LIBLINEAR ended": "yes" if peer.n_iter_ < peer.max_iter else "at 1,000 rounds",
            }
        )
        checks.append((f"{name}: objective at most 1e-3 above LIBLINEAR's", found <= best * (1 + 1e-3)))
        if name in ("covtype", "text"):
            most = {"covtype": 1, "text": 2}[name]
            checks.append((f"{name}: at most {most} times LIBLINEAR's time", ratio <= most))
    note = "C: the best of 0.01 to 30 on the test rows; score: accuracy (a9a, covtype), precision = recall elsewhere"
    notes = [note, "ours reads a store in each fit; text is generated, see text_rows.py"]
    return [Table("The same problem as LIBLINEAR's", records, notes, checks)]


def sgd(bench: Bench) -> list[Table]:
    """At the C that `objective` finds best."""
    records = []
    for name, best in BEST_C.items():
        p, C = problem(name, bench), min(best, _grid(bench)[-1])
        svm, seconds = _ours(_stored(name, p, bench), C)
        peer, peer_seconds = _timed(
            SGDClassifier(alpha=1 / (C * len(p.y)), random_state=0), _for_peers(p.X), p.y
        )
        records.append(
            {
                "data": name,
                "C": C,
                "seconds": Seconds(seconds),
                "SGDClassifier": Seconds(peer_seconds),
                "its objective / ours": f"{_primal(peer, p, C) / _primal(svm, p, C):.4f}",
                "score": Share(p.score(p.y_test, svm.decision_function(p.X_test))),
                "SGDClassifier's": Share(p.score(p.y_test, peer.decision_function(p.X_test))),
            }
        )
    return [Table("Next to stochastic gradient descent", records)]


def over_C(bench: Bench) -> list[Table]:
    tables = []
    for name in ("reuters", "w8a", "a9a", "covtype"):
        p, records = problem(name, bench), []
        for C in _grid(bench):
            (svm, seconds), (peer, peer_seconds) = _ours(_stored(name, p, bench), C), _liblinear(p, C)
            scores = [p.score(p.y_test, m.decision_function(p.X_test)) for m in (svm, peer)]
            records.append(
                {
                    "C": C,
                    "the paper's": f"{C * len(p.y):.3g}",
                    "passes": svm.n_passes_,
                    "seconds": Seconds(seconds),
                    "LIBLINEAR": Seconds(peer_seconds),
                    "score": Share(scores[0]),
                    "more than LIBLINEAR's": f"{100 * (scores[0] - scores[1]):+.2f} points",
                    "objective / LIBLINEAR's": f"{_primal(svm, p, C) / _primal(peer, p, C):.6f}",
                }
            )
        tables.append(Table(f"Over C: {name}", records))
    return tables


def over_tol(bench: Bench) -> list[Table]:
    records = []
    for name, C in (("covtype", 1.0), ("text", 1.0)):
        p = problem(name, bench)
        for tol in TOLS:
            svm, seconds = _ours(_stored(name, p, bench), C, tol=tol)
            score = Share(p.score(p.y_test, svm.decision_function(p.X_test)))
            records.append(
                {
                    "data": name,
                    "tol": tol,
                    "passes": svm.n_passes_,
                    "seconds": Seconds(seconds),
                    "score": score,
                }
            )
    return [Table("Over tol, C 1", records, ["tol: duality gap over the objective"])]


def plain(bench: Bench) -> list[Table]:
    p, records = problem("covtype", bench), []
    papers_C, store, most = _papers_C(bench), _stored("covtype", p, bench), 5000
    for method in ("ocas", "plain"):
        svm, seconds = _ours(store, papers_C / len(p.y), method=method, max_passes=most)
        gap = f"{svm.dual_gap_ / svm.objective_:.1e}"
        records.append({"method": method, "passes": svm.n_passes_, "gap": gap, "seconds": Seconds(seconds)})
    check = ("a tenth of the plain passes", 10 * records[0]["passes"] <= records[1]["passes"])
    note = f"C {papers_C:.0e} over n, as in the paper; tol 1e-3; at most {most:,} passes"
    return [Table("With and without the line search: covtype", records, [note], [check])]


def growing(bench: Bench) -> list[Table]:
    X, y = _rows(_text(bench))
    records = []
    for n in GROWING if bench.sizes.train_rows is None else (1_000, 4_000):
        store = _store_of(X[:n], y[:n], bench.work / f"text.{n}.zarr")
        found = [_ours(store, 1.0) for _ in range(bench.sizes.runs)]
        seconds = Spread.of([seconds for _, seconds in found])
        records.append({"rows": n, "seconds": seconds, "passes": found[0][0].n_passes_})
    logs = np.log([[r["rows"], r["seconds"].median] for r in records])
    slope = float(np.polyfit(*logs.T, 1)[0])
    most, least = (choose(r["passes"] for r in records) for choose in (max, min))
    checks = [("slope at most 1", slope <= 1), ("passes flat, within a factor of 2", most <= 2 * least)]
    return [
        Table("Time over rows: text, C 1", records, [f"slope of log time on log rows: {slope:.2f}"], checks)
    ]


def outofcore(bench: Bench) -> list[Table]:
    large, small = (8_100_000, 1_000_000) if bench.sizes.train_rows is None else (2_000, 500)
    passes, limit = 20, "1500MiB"
    records = []
    for rows in (small, large):
        store = bench.work / ("mnist8m.zarr" if rows == 8_100_000 else f"digits.{rows}.zarr")
        if not store.exists():
            run(
                [
                    sys.executable,
                    HERE / "infinite_mnist.py",
                    "--data",
                    bench.data,
                    "--store",
                    store,
                    "--rows",
                    str(rows),
                ]
            )
        options = (
            "--solver",
            "cutting-plane",
            "--kernel",
            "linear",
            "--positive",
            "0,3,6,8,9",
            "--C",
            "1e-7",
        )
        planes = ("--set", f"cutting_plane.passes={passes}", "--run-dir", bench.work / f"digits.{rows}.run")
        fit = bench.command(
            "fit",
            "--store",
            store,
            "--model",
            bench.work / "linear.model",
            "--force",
            *options,
            *planes,
            "--memory-limit",
            limit,
        )
        steps = _pass_seconds(bench.work / f"digits.{rows}.run")
        records.append(
            {
                "rows": rows,
                "bytes": Bytes(Store.open(store).nbytes),
                "peak memory": Bytes(fit.peak_rss_bytes),
                "seconds": Seconds(fit.seconds),
                "passes": fit.result["passes"],
                "seconds a pass": Seconds(steps),
                "million rows a second": Factor(rows / steps / 1e6),
            }
        )
    ratio = records[0]["million rows a second"] / records[1]["million rows a second"]
    checks = [
        ("under the limit", records[1]["peak memory"] <= 1500 << 20),
        ("a pass over rows on disk takes at most 1.5 times as long", ratio <= 1.5),
    ]
    notes = [
        f"--memory-limit {limit}; the first pass, which unpacks the store, is not in the seconds a pass",
        f"a row takes {ratio:.2f} times as long where the store does not fit",
    ]
    return [Table("Beyond memory: infinite digits", records, notes, checks)]


def rankings(bench: Bench) -> list[Table]:
    return [_queries(bench), _abalone(bench), _roc_areas(bench)]


def ordinal(bench: Bench) -> list[Table]:
    p = problem("covtype", bench)
    X, y = np.concatenate([p.X, p.X_test])[:500_000], np.concatenate([p.y, p.y_test])[:500_000]
    C, store, records = _papers_C(bench) / len(y), Store.from_arrays(X, y), []
    for name, estimator in (("two classes", CuttingPlaneSVC(C=C)), ("two ranks", CuttingPlaneRanker(C=C))):
        found = [_timed(estimator, store) for _ in range(bench.sizes.runs)]
        svm = found[0][0]
        area = Share(roc_auc(y > 0, svm.decision_function(X)))
        seconds = Spread.of([seconds for _, seconds in found])
        records.append(
            {"task": name, "seconds": seconds, "passes": svm.n_passes_, "ROC area, trained on": area}
        )
    ratio = Factor(records[1]["seconds"].median / records[0]["seconds"].median)
    records[1]["times as long"] = ratio
    return [
        Table(
            f"Two classes and two ranks: {len(y):,} rows of covtype",
            records,
            [f"C {C * len(y):.0e} over n"],
            [("at most 5 times", ratio <= 5)],
        )
    ]


def _queries(bench: Bench) -> Table:
    """Train on three parts, choose C on the next, test on the last, as LETOR does."""
    parts = []
    for s in range(1, FOLDS + 1):
        X, y, qid = load_svmlight_file(str(bench.data / f"mq2008.s{s}.bz2"), query_id=True, n_features=46)
        parts.append((X.toarray(), y, qid))
    records = []
    for fold in range(FOLDS):
        chosen = [parts[(fold + i) % FOLDS] for i in range(FOLDS)]
        X, y, qid = (np.concatenate(columns) for columns in zip(*chosen[:3], strict=True))
        fits = [_timed(CuttingPlaneRanker(C=C), X, y, qid=qid) for C in _grid(bench)]
        svm, seconds = max(fits, key=lambda fit: _ranked(fit[0], chosen[3])["map"])
        found = _ranked(svm, chosen[4])
        D, count = _differences(X, y, qid)
        start = time.perf_counter()
        peer = SVC(kernel="linear", C=svm.C * len(y) / count, cache_size=1000).fit(*D)
        peer_seconds = time.perf_counter() - start
        theirs = _ranked(peer, chosen[4], sign=peer.coef_[0])
        records.append(
            {
                "fold": fold + 1,
                "C": svm.C,
                "NDCG@5": f"{found['ndcg@5']:.4f}",
                "LETOR's NDCG@5": f"{_letor_ndcg(svm.decision_function(chosen[4][0]), *chosen[4][1:]):.4f}",
                "MAP": f"{found['map']:.4f}",
                "seconds": Seconds(seconds),
                "pairs": count,
                "SVC on pairs: NDCG@5": f"{theirs['ndcg@5']:.4f}",
                "MAP ": f"{theirs['map']:.4f}",
                "seconds ": Seconds(peer_seconds),
            }
        )
    means = {key: float(np.mean([float(r[key]) for r in records])) for key in ("LETOR's NDCG@5", "MAP")}
    notes = [
        f"means: {', '.join(f'{k} {v:.4f}' for k, v in means.items())}; published for RankSVM: about 0.47 each",
        "C by MAP on the validation part; queries without a relevant document count as 0",
        "LETOR's NDCG discounts from the third place on",
    ]
    checks = [(f"mean {name} at least 0.46", value >= 0.46) for name, value in means.items()]
    return Table("MQ2008, five folds", records, notes, checks)


def _ranked(svm: Any, part: tuple[np.ndarray, ...], sign: np.ndarray | None = None) -> dict[str, Any]:
    X, y, qid = part
    f = svm.decision_function(X) if sign is None else X @ sign
    return ranking(y, f, np.unique(qid, return_inverse=True)[1])


def _letor_ndcg(f: np.ndarray, y: np.ndarray, qid: np.ndarray, cut: int = 5) -> float:
    """As LETOR's script has it: the first two places count alike."""
    discount = 1 / np.log2(np.maximum(2, np.arange(1, cut + 1)))
    found = []
    for q in np.unique(qid):
        gains = 2.0 ** y[qid == q] - 1
        best, ours = np.sort(gains)[::-1][:cut], gains[np.argsort(-f[qid == q], kind="stable")][:cut]
        most = best @ discount[: len(best)]
        found.append(ours @ discount[: len(ours)] / most if most else 0.0)
    return float(np.mean(found))


def _differences(X: np.ndarray, y: np.ndarray, qid: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """All pairs as rows x_i - x_j, every other one turned round, with their labels; how many."""
    first, second = [], []
    for q in np.unique(qid):
        rows = np.flatnonzero(qid == q)
        i, j = np.nonzero(y[rows][:, None] > y[rows])
        first.append(rows[i])
        second.append(rows[j])
    i, j = np.concatenate(first), np.concatenate(second)
    signs = np.where(np.arange(len(i)) % 2, 1.0, -1.0)
    return (signs[:, None] * (X[i] - X[j]), signs), len(i)


def _abalone(bench: Bench) -> Table:
    X, y = load_svmlight_file(str(bench.data / "abalone.bz2"))
    X = X.toarray()
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    X, X_test, y, y_test = train_test_split(X, y, train_size=0.8, random_state=0)
    records = []
    for C in (0.1, 1.0, 10.0):
        svm, seconds = _timed(CuttingPlaneRanker(C=C), X, y)
        records.append(
            {
                "C": C,
                "labels": len(svm.classes_),
                "swapped pairs": Share(1 - svm.score(X_test, y_test)),
                "mean absolute error": Factor(np.mean(np.abs(svm.predict(X_test) - y_test))),
                "of the median label": Factor(np.mean(np.abs(np.median(y) - y_test))),
                "seconds": Seconds(seconds),
            }
        )
    return Table("Abalone, ordinal", records, ["80 % of the rows to train on; standardised"])


def _roc_areas(bench: Bench) -> Table:
    records = []
    for name in ("reuters", "w8a"):
        p = problem(name, bench)
        areas = []
        for estimator in (CuttingPlaneSVC, CuttingPlaneRanker):
            fits = [_timed(estimator(C=C), p.X, p.y)[0] for C in _grid(bench, most=3.0)]
            areas.append(max(roc_auc(p.y_test > 0, svm.decision_function(p.X_test)) for svm in fits))
        records.append({"data": name, "trained for errors": Share(areas[0]), "for the area": Share(areas[1])})
    return Table("ROC area on test rows", records, ["the best C of 0.01 to 3 of each"])


def _ours(store: Store, C: float, **options: Any) -> tuple[CuttingPlaneSVC, float]:
    return _timed(CuttingPlaneSVC(C=C, **options), store)


def _timed(estimator: Any, *data: Any, **more: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        fitted = type(estimator)(**estimator.get_params()).fit(*data, **more)
        return fitted, time.perf_counter() - start


def _liblinear(p: Problem, C: float) -> tuple[LinearSVC, float]:
    return _timed(LinearSVC(C=C, loss="hinge"), _for_peers(p.X), p.y)


def _for_peers(X: Any) -> Any:
    """Rows as LIBLINEAR wants them, float64 with 32-bit indices: not in its time."""
    X = X.astype(np.float64)
    if sparse.issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def _primal(svm: Any, p: Problem, C: float) -> float:
    w, b = svm.coef_[0], float(svm.intercept_[0])
    loss = np.maximum(0, 1 - p.y * (p.X @ w + b)).sum()
    return 0.5 * (float(w @ w) + b * b) + C * float(loss)


def _pass_seconds(run_dir: Path) -> float:
    """The median time of a step but the first, from a run's log."""
    return float(np.median(np.diff([step.t for step in read_run(run_dir).of(Step)])))


def _svmlight(path: Path) -> tuple[sparse.csr_array, np.ndarray]:
    X, y = load_svmlight_file(str(path), dtype=np.float32)
    return sparse.csr_array(X), y


def _rows(store: Store, here: slice = slice(None)) -> tuple[Any, np.ndarray]:
    start, stop, _ = here.indices(store.n)
    return store.read(start, stop).X, store.y[start:stop]


def _text(bench: Bench) -> Store:
    rows = TEXT_ROWS if bench.sizes.train_rows is None else 20 * bench.sizes.train_rows
    made = bench.work / f"text.{rows}.zarr"
    if not made.exists():
        run([sys.executable, HERE / "text_rows.py", made, "--rows", str(rows)])
    return Store.open(made)


def _stored(name: str, p: Problem, bench: Bench) -> Store:
    """The training rows as a store on disk."""
    return _store_of(p.X, p.y, bench.work / f"linear.{name}.{len(p.y)}.zarr")


def _store_of(X: Any, y: np.ndarray, path: Path) -> Store:
    if not path.exists():
        from streamsvm.data.rows import Rows
        from streamsvm.data.writer import StoreWriter

        with StoreWriter(path, d=X.shape[1], dtype=np.float32, is_sparse=sparse.issparse(X)) as store:
            for start in range(0, len(y), 50_000):
                here = slice(start, start + 50_000)
                store.append(Rows(X[here]), y[here])
    return Store.open(path)


ITEMS = {
    "outofcore": outofcore,  # first: a command starts as a copy of this process, whose memory is small only now
    "objective": objective,
    "sgd": sgd,
    "C": over_C,
    "tol": over_tol,
    "plain": plain,
    "growing": growing,
    "ranking": rankings,
    "ordinal": ordinal,
}


if __name__ == "__main__":
    CuttingPlaneSVC().fit([[0.0], [1.0]], [0, 1])  # compiles
    CuttingPlaneSVC().fit(sparse.csr_array([[0.0], [1.0]]), [0, 1])
    CuttingPlaneRanker().fit([[0.0], [1.0]], [0, 1])
    print_tables(__doc__, ITEMS)
