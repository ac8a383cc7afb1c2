"""The tables and figures of Hsieh, Si and Dhillon, "A divide-and-conquer solver for kernel SVMs", ICML 2014. Linux.

    python pipelines/paper_dcsvm.py --data DIR [--only table-1,figure-2,...] [--quick] [--out tables.json]

items:
    figure-1  theorem 1: f(a_bar) - f(a*) next to its bound C^2 D(pi) / 2, kernel k-means and random partitions
    figure-2  support vectors that each level finds, next to a cascade and to LIBSVM's shrinking; rbf and poly
    table-1   early prediction by the nearest partition (11), by the sum of all (10), by a Bayesian committee
    table-2   the data sets
    table-3-ijcnn1, table-3-census, table-3-covtype, table-3-others    seconds and accuracy of all solvers
    bias      ijcnn1 without and with a bias, features as they are and in [0, 1], three values of C
    figure-3  objective and accuracy over seconds, rbf: ijcnn1 and covtype
    figure-4  the same for a polynomial of degree 3: covtype
    table-6   seconds of clustering and training by level: covtype
    table-7, table-8, table-9, table-10    C x gamma: ijcnn1, webspam, covtype, census (figures 5 to 8 draw them).
              The last row is that of table 5: the time of all points.

--rows N trains on so many random rows in table 1 and tables 7 to 10, and --test-rows N tests on so many in table 1.

"(paper)" is a value of the paper, on a 2.66 GHz Xeon X5355. Times compare as ratios: "LIBSVM / this" is LIBSVM's
seconds over those of the row, in the paper and here. precision: the share of the support vectors found that are in the
solution; recall: the share of the solution's that are found. D(pi): the sum of |K| between partitions.

`dcsvm_sets.py` names the files of --data and says how they are prepared: ijcnn1, census and covtype; and for those who
have them webspam.bz2, kddcup.data.gz with corrected.gz, and cifar10.bz2 with cifar10.t.bz2. mnist8m has its own recipe,
mnist8m.py. `dcsvm_peers.py` has the other solvers. Without scikit-learn-intelex or liquidSVM their rows say so.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from bench import Bench, Solver, among, from_arguments
from dcsvm_peers import cascaded, fastfood, llsvm
from dcsvm_published import GRIDS, TABLE_2, TABLE_3, TABLE_5, TABLE_6
from dcsvm_sets import SETS
from papers import Arrays, beside
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC
from tables import Factor, Report, Seconds, Share, Table

from streamsvm import Store
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.events import Event, Events, LevelSolved, Phase, Record, Round, SupportCompared
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF
from streamsvm.kernels.inner import Poly
from streamsvm.kernels.kmeans import kernel_kmeans
from streamsvm.models import LocalModel
from streamsvm.problems.dual import KernelDual
from streamsvm.solvers import blockws
from streamsvm.train import train_in_memory

BOUND_ROWS = 10_000  # of figure 1
CLUSTERS = (2, 4, 8, 16, 32, 64)  # of figure 1
LEVEL_ROWS = 10_000  # of figure 2
CURVE_ROWS = 10_000  # of figures 3 and 4
FEW_ROWS = 20_000  # on which all solvers of table 3 are compared where the set has many more
GRID_ROWS = {"ijcnn1": None, "webspam": 20_000, "covtype": 20_000, "census": 10_000}  # so that LIBSVM takes minutes
TEST_ROWS = 20_000  # random ones, of figures 3 and 4
LEVELS = 4  # 256, 64, 16, 4 partitions and the whole, by children of 4
LEVELLED = {"levels": LEVELS}
EARLY = {"early": True, "levels": 4, "early_level": 3}  # the level of 64 partitions
FEATURES = 3000
SEEDS = range(5)
POLY = Poly(1.0, 3, 0.0)
POLY_C = 2.0
GRID = tuple(2.0**power for power in (-10, -6, 1, 6, 10))
TOL = 1e-3
Curve = list[dict[str, Any]]


def few(bench: Bench, rows: int) -> int:
    """So many rows, but in a quick run."""
    return min(rows, 240) if bench.sizes.is_quick else rows


def arrays_of(bench: Bench, name: str, rows: int | None = None, test_rows: int | None = None) -> Arrays:
    """At most so many rows of a data set; few in a quick run."""
    arrays = SETS[name].arrays(bench.data)
    if bench.sizes.is_quick:
        return arrays.few(min(rows or 240, 240), 60)
    return arrays.few(rows, test_rows)


def is_missing(bench: Bench, name: str) -> bool:
    return any(not (bench.data / file).exists() for file in SETS[name].files)


def trained(
    arrays: Arrays, kernel: Mapping[str, Any], C: float, events: Events | None = None, **dcsvm: Any
) -> tuple[Any, dict[str, Any], float]:
    """A model of these rows by dcsvm, its report, and the seconds."""
    values = {"C": C, "kernel": dict(kernel), "dcsvm": dcsvm}
    config = build_config(("recipe", values))
    start = time.perf_counter()
    model, report = train_in_memory(Store.from_arrays(arrays.X, arrays.y), config, events or Events())
    return model, report, time.perf_counter() - start


def gaussian(gamma: float) -> dict[str, Any]:
    return {"name": "rbf", "gamma": float(gamma)}


def right(model: Any, arrays: Arrays) -> Share:
    return Share(np.mean(model.predict(Rows(arrays.X_test)) == arrays.y_test))


def figure_1(bench: Bench) -> list[Table]:
    data, rows = SETS["covtype"], few(bench, BOUND_ROWS)
    published = {"set": "covtype, 10,000 rows"}
    if is_missing(bench, "covtype"):
        return [Table("Figure 1: the bound of theorem 1", [beside(bench, published, data.files, dict)])]
    arrays = arrays_of(bench, "covtype", rows)
    bounds = Bounds(arrays, RBF(data.gamma), data.C)
    rng = np.random.default_rng(0)
    records = []
    for k in CLUSTERS[:2] if bench.sizes.is_quick else CLUSTERS:
        random = rng.integers(0, k, rows)
        for name, parts in (("kernel k-means", kernel_kmeans(bounds.K, k, rng)), ("random", random)):
            records.append({"partitions": k, "by": name, **bounds.of(parts)})
    notes = [
        f"covtype, {rows:,} rows, C {data.C}, gamma {data.gamma}; f(a*) = {bounds.least:.6g}; k-means of all rows",
        "bound / |f(a*)| and gap / |f(a*)|: the paper draws C^2 D(pi) / 2 and f(a_bar) - f(a*), and gives no numbers",
    ]
    held = all(row["gap f(a_bar) - f(a*)"] <= row["bound C^2 D / 2"] for row in records)
    return [Table("Figure 1: the bound of theorem 1", records, notes, [("no gap above its bound", held)])]


class Bounds:
    """f(a*) of problem (1), and the bound of theorem 1 for partitions."""

    def __init__(self, arrays: Arrays, kernel: Kernel, C: float) -> None:
        self._rows, self._y, self._kernel, self._C = Rows(arrays.X), arrays.y.astype(float), kernel, C
        self.K = kernel.block(self._rows, self._rows)
        self._whole = self._dual(np.arange(len(self._y)))
        self.least = blockws.objective(self._whole, blockws.solve(self._whole, tol=TOL))

    def _dual(self, ids: np.ndarray) -> KernelDual:
        return KernelDual(self._kernel, self._rows.take(ids), self._y[ids], np.full(len(ids), self._C))

    def of(self, parts: np.ndarray) -> dict[str, Any]:
        """f(a_bar) - f(a*), and C^2 D(pi) / 2, of partitions (n,)."""
        alpha, within = np.zeros(len(parts)), 0.0
        for part in np.unique(parts):
            ids = np.flatnonzero(parts == part)
            alpha[ids] = blockws.solve(self._dual(ids), tol=TOL).alpha
            within += float(np.abs(self.K[np.ix_(ids, ids)]).sum(dtype=np.float64))
        between = float(np.abs(self.K).sum(dtype=np.float64)) - within
        state = blockws.BlockSolver(TOL).init(self._whole, alpha)
        gap, bound = blockws.objective(self._whole, state) - self.least, 0.5 * self._C**2 * between
        return {
            "largest partition": int(np.bincount(parts).max()),
            "D(pi)": float(f"{between:.6g}"),
            "bound C^2 D / 2": float(f"{bound:.6g}"),
            "gap f(a_bar) - f(a*)": float(f"{gap:.6g}"),
            "bound / |f(a*)|": Factor(bound / abs(self.least)),
            "gap / |f(a*)|": float(f"{gap / abs(self.least):.3g}"),
        }


def figure_2(bench: Bench) -> list[Table]:
    rows, data = few(bench, LEVEL_ROWS), SETS["covtype"]
    if is_missing(bench, "covtype"):
        return [Table("Figure 2: support vectors found", [beside(bench, {"set": "covtype"}, data.files, dict)])]
    arrays, tables = arrays_of(bench, "covtype", rows), []
    svc = {
        "rbf": {"kernel": "rbf", "gamma": data.gamma, "C": data.C},
        "poly": {"kernel": "poly", "degree": 3, "gamma": 1.0, "coef0": 0.0, "C": POLY_C},
    }
    for name, kernel, C in (("rbf", RBF(data.gamma), data.C), ("poly", POLY, POLY_C)):
        records, support = _levels(arrays, kernel, C)
        records += _cascade(arrays, kernel, C, support)
        records += _shrinking(arrays, svc[name])
        note = f"covtype, {rows:,} rows, C {C:g}; LIBSVM has a bias, and is compared with its own solution"
        tables.append(Table(f"Figure 2: support vectors found, {name}", records, [note]))
    return tables


def _options(kernel: Kernel) -> dict[str, Any]:
    if isinstance(kernel, Poly):
        return {"name": "poly", "gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
    assert isinstance(kernel, RBF)
    return gaussian(kernel.gamma)


def _levels(arrays: Arrays, kernel: Kernel, C: float) -> tuple[Curve, np.ndarray]:
    """What each level of DC-SVM knows, and the support vectors of the solution."""
    heard: list[Record[Event]] = []
    events = Events(heard.append)
    model, _, _ = trained(arrays, _options(kernel), C, events, levels=LEVELS, bias=False)
    seconds = {record.event.level: record for record in heard if isinstance(record.event, LevelSolved)}
    records: Curve = []
    for record in heard:
        if isinstance(record.event, SupportCompared):
            level = record.event.level
            solved = seconds[level]
            records.append(
                {
                    "solver": "DC-SVM",
                    "partitions": solved.event.parts,
                    "seconds so far": Seconds(solved.t),
                    "support vectors": solved.event.n_support,
                    "precision": Share(record.event.precision or 0.0),
                    "recall": Share(record.event.recall or 0.0),
                }
            )
    whole = np.flatnonzero(np.isin(_keys(arrays.X), _keys(model.support.dense())))
    end = {"solver": "DC-SVM", "partitions": 1, "seconds so far": Seconds(heard[-1].t)}
    return [*records, end | _compared(whole, whole)], whole


def _keys(X: np.ndarray) -> np.ndarray:
    """Rows as bytes."""
    return np.ascontiguousarray(X, np.float32).view(f"V{4 * X.shape[1]}").ravel()


def _cascade(arrays: Arrays, kernel: Kernel, C: float, support: np.ndarray) -> Curve:
    records, start = [], time.perf_counter()
    for level, alpha in cascaded(Rows(arrays.X), arrays.y.astype(float), kernel, C, LEVELS):
        found = np.flatnonzero(alpha)
        records.append(
            {
                "solver": "CascadeSVM",
                "partitions": 4**level,
                "seconds so far": Seconds(time.perf_counter() - start),
                **_compared(found, support),
            }
        )
    return records


def _compared(found: np.ndarray, support: np.ndarray) -> dict[str, Any]:
    hits = len(np.intersect1d(found, support))
    shares = {"precision": hits / max(len(found), 1), "recall": hits / max(len(support), 1)}
    return {"support vectors": len(found), **{name: Share(share) for name, share in shares.items()}}


def _shrinking(arrays: Arrays, options: dict[str, Any]) -> Curve:
    """LIBSVM, ended early: its support vectors after a part of its steps."""
    records: Curve = []
    start = time.perf_counter()
    whole = SVC(**options, cache_size=1000).fit(arrays.X, arrays.y)
    seconds, steps = time.perf_counter() - start, int(whole.n_iter_.sum())
    for share in (1 / 8, 1 / 4, 1 / 2):
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            part = SVC(**options, cache_size=1000, max_iter=max(1, round(share * steps))).fit(arrays.X, arrays.y)
        name = f"LIBSVM, shrinking, {share:g} of its steps"
        so_far = Seconds(time.perf_counter() - start)
        records.append({"solver": name, "seconds so far": so_far, **_compared(part.support_, whole.support_)})
    end = {"solver": "LIBSVM, shrinking", "seconds so far": Seconds(seconds)}
    return [*records, end | _compared(whole.support_, whole.support_)]


def table_1(bench: Bench) -> list[Table]:
    """One fit a seed and number of clusters, whose partitions predict in three ways."""
    records: Curve = []
    for name in ("covtype", "webspam"):
        data = SETS[name]
        if is_missing(bench, name):
            records.append(beside(bench, {"set": name}, data.files, dict))
            continue
        arrays = arrays_of(bench, name, bench.sizes.grid_rows, bench.sizes.test_rows)
        for k in (4,) if bench.sizes.is_quick else (50, 100):
            records += _combinations(bench, name, arrays, k)
    notes = [
        "mean, lowest and highest accuracy over the seeds",
        "the paper has 50 and 100 clusters of both sets; its text here has lost the values",
    ]
    return [Table("Table 1: partitions that predict together", records, notes)]


def _combinations(bench: Bench, name: str, arrays: Arrays, k: int) -> Curve:
    data = SETS[name]
    seeds = SEEDS[:2] if bench.sizes.is_quick else SEEDS
    found: dict[str, list[tuple[float, float]]] = {}
    for seed in seeds:
        values = {"C": data.C, "kernel": gaussian(data.gamma), "seed": seed}
        # for "naive" partitions of one class have support vectors, too; the others decide the same with them
        dcsvm = {"early": True, "levels": 1, "children": k, "combine": "naive"}
        config = build_config(("recipe", values | {"dcsvm": dcsvm}))
        model, _ = train_in_memory(Store.from_arrays(arrays.X, arrays.y), config, Events())
        assert isinstance(model, LocalModel)
        for combine in ("nearest", "naive", "committee"):
            found.setdefault(combine, []).append(_combined(replace(model, combine=combine), arrays))
    names = {"nearest": "nearest (11)", "naive": "sum (10)", "committee": "committee (BCM)"}
    return [
        {
            "set": name,
            "clusters": k,
            "partitions": len(model.present),
            "rows": len(arrays.y),
            "test rows": len(arrays.y_test),
            "by": names[combine],
            "accuracy": Share(np.mean([accuracy for accuracy, _ in each])),
            "lowest": Share(min(accuracy for accuracy, _ in each)),
            "highest": Share(max(accuracy for accuracy, _ in each)),
            "microseconds a row": float(f"{1e6 * np.median([seconds for _, seconds in each]):.3g}"),
            "seeds": len(seeds),
        }
        for combine, each in found.items()
    ]


def _combined(model: LocalModel, arrays: Arrays) -> tuple[float, float]:
    start, hits, step = time.perf_counter(), 0, 4096
    for i in range(0, len(arrays.y_test), step):
        rows = Rows(arrays.X_test[i : i + step])
        hits += int(np.sum(model.predict(rows) == arrays.y_test[i : i + step]))
    return hits / len(arrays.y_test), (time.perf_counter() - start) / len(arrays.y_test)


def table_2(bench: Bench) -> list[Table]:
    return [Table("Table 2: data sets", [_described(bench, name) for name in TABLE_2])]


def _described(bench: Bench, name: str) -> dict[str, Any]:
    counts = dict(zip(("training rows", "test rows", "features"), TABLE_2[name], strict=True))
    published = {"set": name} | {f"{what} (paper)": count for what, count in counts.items()}
    if name not in SETS:
        return published | {"": "see `mnist8m.py`"}

    def measured() -> dict[str, Any]:
        arrays = SETS[name].arrays(bench.data)
        n, d = arrays.X.shape
        share = Share(np.mean(arrays.y > 0))
        return {"training rows": n, "test rows": len(arrays.y_test), "features": d, "positive": share}

    return beside(bench, published, SETS[name].files, measured)


def table_3(bench: Bench, *names: str) -> list[Table]:
    return [table for name in names for table in _table_3(bench, name)]


def _table_3(bench: Bench, name: str) -> list[Table]:
    published = [_published(name, solver) for solver in TABLE_3[name]]
    if name not in SETS:
        note = "not run: `mnist8m.py` generates digits like those of mnist8m, and trains on them"
        return [Table(f"Table 3: {name}", published, [note])]
    if is_missing(bench, name):
        return [Table(f"Table 3: {name}", [beside(bench, row, SETS[name].files, dict) for row in published])]
    data, arrays = SETS[name], arrays_of(bench, name)
    tables = []
    if len(arrays.y) > FEW_ROWS * 3:
        solvers = _solvers(bench, name, "DC-SVM")
        tables.append(_beside(bench, name, arrays, solvers, f"Table 3: {name}", bench.sizes.long_runs))
        arrays = arrays_of(bench, name, FEW_ROWS)
    rows = "" if not tables else f", {len(arrays.y):,} rows"
    table = _beside(bench, name, arrays, _solvers(bench, name), f"Table 3: {name}{rows}", 1)
    table.notes += [
        f"C {data.C:g}, gamma {data.gamma:g}; fits in alternation on arrays in memory, "
        f"{len(arrays.y):,} training rows, {len(arrays.y_test):,} test rows",
        "64 clusters: the level at which the paper's early prediction stops; else the levels are chosen from the rows",
        "LLSVM, FastFood, LTPU: LIBLINEAR with squared hinge loss, ended after 100 sweeps; LIBSVM is scikit-learn's, "
        "with a bias",
    ]
    return [*tables, table]


def _solvers(bench: Bench, name: str, only: str = "") -> list[tuple[Solver, str | None]]:
    """Solvers, and the rows of the paper that they belong to."""
    data = SETS[name]
    ours = {"C": data.C, "kernel": gaussian(data.gamma)}
    features = 20 if bench.sizes.is_quick else FEATURES
    peer = {"C": data.C, "gamma": data.gamma, "features": features, "levels": LEVELS}
    grids = {"min_gamma": data.gamma**-0.5, "max_gamma": data.gamma**-0.5}
    listed = [
        (Solver("DC-SVM (early), 64 clusters", "streamsvm", ours | {"dcsvm": EARLY}), "DC-SVM (early)"),
        (Solver("DC-SVM (early)", "streamsvm", ours | {"dcsvm": {"early": True}}), "DC-SVM (early)"),
        (Solver("DC-SVM, 256 to 4 clusters", "streamsvm", ours | {"dcsvm": LEVELLED}, compiles=False), "DC-SVM"),
        (Solver("DC-SVM", "streamsvm", ours, compiles=False), "DC-SVM"),
        (Solver("DC-SVM with a bias", "streamsvm", ours | {"dcsvm": {"bias": True}}, compiles=False), None),
        (Solver("LIBSVM", "libsvm", ours, compiles=False), "LIBSVM"),
        (Solver("scikit-learn-intelex", "intelex", ours), None),
        (Solver("liquidSVM", "liquidsvm", grids), None),
        (Solver("LaSVM", "lasvm", peer), "LaSVM"),
        (Solver("CascadeSVM", "cascade", peer), "CascadeSVM"),
        (Solver("LLSVM", "llsvm", peer, compiles=False), "LLSVM"),
        (Solver("Nystroem and SGD", "llsvm_sgd", peer, compiles=False), None),
        (Solver("FastFood", "fastfood", peer, compiles=False), "FastFood"),
        (Solver("FastFood and SGD", "fastfood_sgd", peer, compiles=False), None),
        (Solver("LTPU", "ltpu", peer, compiles=False), "LTPU"),
    ]
    return [(solver, row) for solver, row in listed if solver.name.startswith(only)]


def _published(name: str, solver: str | None) -> dict[str, Any]:
    if solver is None:
        return {}
    seconds, accuracy = TABLE_3[name][solver]
    return {
        "solver": solver,
        "seconds (paper)": Seconds(seconds),
        "LIBSVM / this (paper)": Factor(TABLE_3[name]["LIBSVM"][0] / seconds),
        "accuracy (paper)": Share(accuracy / 100),
    }


def _beside(
    bench: Bench, name: str, arrays: Arrays, solvers: list[tuple[Solver, str | None]], title: str, runs: int
) -> Table:
    files = arrays.files(bench.work, f"{name}.{len(arrays.y)}")
    found = bench.compare(*files, [solver for solver, _ in solvers], runs)
    libsvm = next((row["seconds"].median for row in found if row["solver"] == "LIBSVM"), None)
    records: Curve = []
    for row, (solver, published) in zip(found, solvers, strict=True):
        records.append({"solver": solver.name} | _published(name, published) | {"solver": row["solver"]})
        if "seconds" not in row:
            continue
        ratio = None if libsvm is None else Factor(libsvm / row["seconds"].median)
        kept = {key: row.get(key) for key in ("support vectors", "accuracy")}
        records[-1] |= {"seconds": row["seconds"], "LIBSVM / this": ratio, **kept}
    if libsvm is not None:
        records.append(_published(name, "SpSVM") | {"": "not run: no program"})
    return Table(title, records)


def bias(bench: Bench) -> list[Table]:
    data, title = SETS["ijcnn1"], "A bias: ijcnn1"
    if is_missing(bench, "ijcnn1"):
        published = {"bias": False, "accuracy (paper)": Share(0.9869)}
        return [Table(title, [beside(bench, published, data.files, dict)])]
    plain = data.read(bench.data)
    features = {"as they are": plain, "in [0, 1]": plain.scaled()}
    cases = [("as they are", C) for C in (2.0, 8.0, data.C)] + [("in [0, 1]", data.C)]
    records: Curve = []
    for name, C in cases:
        arrays = features[name].few(240, 60) if bench.sizes.is_quick else features[name]
        for has_bias in (False, True):
            model, _, _ = trained(arrays, gaussian(data.gamma), C, bias=has_bias)
            paper = Share(0.9869) if C == data.C and not has_bias else None
            row = {"features": name, "C": C, "bias": has_bias, "accuracy (paper)": paper}
            records.append(row | {"accuracy": right(model, arrays), "support vectors": model.n_support})
    svc = SVC(C=data.C, gamma=data.gamma, cache_size=1000).fit(arrays.X, arrays.y)
    row = {"features": f"{cases[-1][0]}, LIBSVM", "C": data.C, "bias": True}
    support = int(svc.n_support_.sum())
    accuracy = svc_accuracy(svc, arrays, RBF(data.gamma))
    records.append(row | {"accuracy": accuracy, "support vectors": support})
    return [
        Table(title, records, [f"gamma {data.gamma:g}; 98.69 % is the paper's exact solution, C 32 as it is quoted"])
    ]


def figure_3(bench: Bench) -> list[Table]:
    return [_curves(bench, name, RBF(SETS[name].gamma), SETS[name].C, "3") for name in ("ijcnn1", "covtype", "webspam")]


def figure_4(bench: Bench) -> list[Table]:
    return [_curves(bench, name, POLY, POLY_C, "4") for name in ("covtype", "webspam")]


def _curves(bench: Bench, name: str, kernel: Kernel, C: float, number: str) -> Table:
    title = f"Figure {number}: {name}"
    if is_missing(bench, name):
        return Table(title, [beside(bench, {"set": name}, SETS[name].files, dict)])
    rows = few(bench, CURVE_ROWS)
    arrays = arrays_of(bench, name, rows, TEST_ROWS)
    dual = KernelDual(kernel, Rows(arrays.X), arrays.y.astype(float), np.full(len(arrays.y), C))
    least = blockws.objective(dual, blockws.solve(dual, tol=1e-5))
    records = [*_ours(arrays, kernel, C, least), *_libsvms(arrays, kernel, C)]
    if isinstance(kernel, RBF):
        records += _approximate(bench, arrays, kernel.gamma, C)
    notes = [
        f"{rows:,} training rows, {len(arrays.y_test):,} test rows, {_options(kernel)['name']}, C {C:g}",
        "error: (f(a) - f(a*)) / |f(a*)|, of the problem without a bias; LIBSVM's of the one with a bias",
    ]
    return Table(title, records, notes)


def _ours(arrays: Arrays, kernel: Kernel, C: float, least: float) -> Iterator[dict[str, Any]]:
    options = _options(kernel)
    trained(arrays.few(200), options, C, levels=2)  # compiles
    for level in range(LEVELS, 0, -1):
        model, _, seconds = trained(arrays, options, C, levels=LEVELS, early=True, early_level=level, bias=False)
        setting = f"early, {4**level} clusters"
        yield {"solver": "DC-SVM", "setting": setting, "seconds": Seconds(seconds), "accuracy": right(model, arrays)}
    for tol in (1e-1, 1e-2, 1e-3):
        heard: list[Record[Event]] = []
        values = {"C": C, "kernel": options, "tol": tol, "dcsvm": {"levels": LEVELS, "bias": False}}
        start, config = time.perf_counter(), build_config(("recipe", values))
        store = Store.from_arrays(arrays.X, arrays.y)
        model, report = train_in_memory(store, config, Events(heard.append))
        if tol == 1e-1:  # the first rounds over all rows, before any is left out
            for record in heard:
                event = record.event
                if isinstance(event, Round) and event.phase == Phase.TOP and event.objective is not None:
                    setting = f"first rounds over all rows, tol {tol:g}"
                    error = _error(event.objective, least)
                    yield {"solver": "DC-SVM", "setting": setting, "seconds": Seconds(record.t), "error": error}
                    break
        yield {
            "solver": "DC-SVM",
            "setting": f"exact, tol {tol:g}",
            "seconds": Seconds(time.perf_counter() - start),
            "error": _error(report["objective"], least),
            "accuracy": right(model, arrays),
        }


def _error(objective: float, least: float) -> str:
    return f"{max(0.0, (objective - least) / abs(least)):.1e}"


def _libsvms(arrays: Arrays, kernel: Kernel, C: float) -> Curve:
    options = _options(kernel)
    name = options.pop("name")
    found = []
    for tol in (1e-4, 1.0, 1e-1, 1e-2, 1e-3):
        start = time.perf_counter()
        model = SVC(kernel=name, C=C, tol=tol, cache_size=1000, **options).fit(arrays.X, arrays.y)
        found.append((tol, time.perf_counter() - start, model, _svc_objective(model, arrays, kernel)))
    (_, _, _, least), *found = found
    return [
        {
            "solver": "LIBSVM",
            "setting": f"tol {tol:g}",
            "seconds": Seconds(seconds),
            "error": _error(objective, least),
            "accuracy": svc_accuracy(model, arrays, kernel),
        }
        for tol, seconds, model, objective in found
    ]


def svc_accuracy(model: SVC, arrays: Arrays, kernel: Kernel) -> Share:
    """As its `score`, in less time."""
    support, signed = Rows(arrays.X[model.support_]), model.dual_coef_[0].astype(np.float64)
    values = kernel.apply(Rows(arrays.X_test), support, signed) + model.intercept_[0]
    return Share(np.mean(np.where(values > 0, 1, -1) == arrays.y_test))


def _svc_objective(model: SVC, arrays: Arrays, kernel: Kernel) -> float:
    """1/2 a'Qa - e'a."""
    support, signed = Rows(arrays.X[model.support_]), model.dual_coef_[0]
    squared = float(signed @ kernel.apply(support, support, signed.astype(np.float64)))
    return 0.5 * squared - float(np.abs(signed).sum())


def _approximate(bench: Bench, arrays: Arrays, gamma: float, C: float) -> Iterator[dict[str, Any]]:
    for name, make in (("LLSVM", llsvm), ("FastFood", fastfood)):
        for features in (20,) if bench.sizes.is_quick else (100, 300, 1000, 3000):
            fit = make({"C": C, "gamma": gamma, "features": features})
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                predict, _ = fit(arrays.X, arrays.y)
            seconds = Seconds(time.perf_counter() - start)
            cuts = range(0, len(arrays.y_test), 4096)
            hits = sum(int(np.sum(predict(arrays.X_test[i : i + 4096]) == arrays.y_test[i : i + 4096])) for i in cuts)
            accuracy = Share(hits / len(arrays.y_test))
            yield {"solver": name, "setting": f"{features} features", "seconds": seconds, "accuracy": accuracy}


def table_6(bench: Bench) -> list[Table]:
    data, title = SETS["covtype"], "Table 6: clustering and training by level, covtype"
    published = {
        level: {"level": level, "clustering (paper)": Seconds(one), "training (paper)": Seconds(other)}
        for level, (one, other) in TABLE_6.items()
    }
    if is_missing(bench, "covtype"):
        return [Table(title, [beside(bench, row, data.files, dict) for row in published.values()])]
    arrays = arrays_of(bench, "covtype")
    trained(arrays.few(500), gaussian(data.gamma), data.C, levels=2)  # compiles
    heard: list[Record[Event]] = []
    kernel = gaussian(data.gamma)
    _, report, _ = trained(arrays, kernel, data.C, Events(heard.append), levels=LEVELS)
    records = []
    for event in (record.event for record in heard):
        if isinstance(event, LevelSolved):
            clustering, training = (Seconds(s or 0) for s in (event.seconds_clustering, event.seconds_training))
            spent = {"clustering": clustering, "training": training}
            facts = {"partitions": event.parts, "largest": event.max_rows, "support vectors": event.n_support}
            records.append(published[event.level] | spent | facts)
    top = sum(report["seconds_by_phase"].get(name, 0.0) for name in ("refine", "top"))
    support = report["n_support"]
    records.append(published[0] | {"training": Seconds(top), "partitions": 1, "support vectors": support})
    note = "the last level: the support vectors of level 1, then the whole; nothing is clustered for it here"
    return [Table(title, records, [f"{len(arrays.y):,} rows, C {data.C:g}, gamma {data.gamma:g}", note])]


def grid(bench: Bench, number: int, name: str) -> list[Table]:
    """Points of C and gamma; the last row is that of table 5."""
    title = f"Table {number}: C and gamma, {name}"
    points = [(C, gamma) for C in GRID for gamma in GRID]
    pairs = list(zip(points, GRIDS[name], strict=True))
    if bench.sizes.is_quick:
        pairs = pairs[6:19:6]
    if is_missing(bench, name):
        records = [beside(bench, _grid_published(*pair), SETS[name].files, dict) for pair in pairs]
        return [Table(title, [*records, _total_published(name)])]
    arrays = arrays_of(bench, name, bench.sizes.grid_rows or GRID_ROWS[name])
    trained(arrays.few(200), gaussian(1), 1.0, levels=3, early=True)  # compiles
    measured = {point: _point(arrays, *point) for point, _ in pairs}
    records = [_grid_published(*pair) | _shown(measured[pair[0]]) for pair in pairs]
    sums = {solver: sum(each[solver][1] for each in measured.values()) for solver in GRID_SOLVERS}
    accuracies = {f"{solver}, accuracy": None for solver in GRID_SOLVERS}
    total = _total_published(name) | accuracies | _times(sums)
    notes = [
        f"{len(arrays.y):,} training rows, {len(arrays.y_test):,} test rows; the paper: all rows. early: 64 clusters",
        "LIBSVM is scikit-learn's, with a bias; the paper's and ours have none, which decides the accuracy where C or "
        "gamma is extreme",
        "all points: the paper's table 5",
    ]
    return [Table(title, [*records, total], notes)]


GRID_SOLVERS = ("early", "DC-SVM", "LIBSVM")


def _grid_published(point: tuple[float, float], values: list[float | None]) -> dict[str, Any]:
    C, gamma = (f"2^{round(np.log2(value))}" for value in point)
    row: dict[str, Any] = {"C": C, "gamma": gamma}
    for solver, accuracy in zip(GRID_SOLVERS, values[::2], strict=True):
        row[f"{solver}, accuracy (paper)"] = None if accuracy is None else Share(accuracy / 100)
    early, exact, libsvm = values[1::2]
    row["LIBSVM / DC-SVM (paper)"] = Factor(libsvm / exact) if libsvm and exact else None
    row["LIBSVM / early (paper)"] = Factor(libsvm / early) if libsvm and early else None
    return row


def _total_published(name: str) -> dict[str, Any]:
    early, exact, libsvm = TABLE_5[name]
    ratios = {"LIBSVM / DC-SVM (paper)": Factor(libsvm / exact), "LIBSVM / early (paper)": Factor(libsvm / early)}
    return {"C": "all points", "gamma": ""} | ratios


def _shown(point: Mapping[str, tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {f"{solver}, accuracy": Share(point[solver][0]) for solver in GRID_SOLVERS}
    return row | _times({solver: point[solver][1] for solver in GRID_SOLVERS})


def _times(seconds: Mapping[str, float]) -> dict[str, Any]:
    row: dict[str, Any] = {f"{solver}, seconds": Seconds(seconds[solver]) for solver in GRID_SOLVERS}
    row["LIBSVM / DC-SVM"] = Factor(seconds["LIBSVM"] / seconds["DC-SVM"])
    return row | {"LIBSVM / early": Factor(seconds["LIBSVM"] / seconds["early"])}


def _point(arrays: Arrays, C: float, gamma: float) -> dict[str, tuple[float, float]]:
    """Accuracy and seconds of each solver."""
    ours: dict[str, dict[str, Any]] = {"early": {"early": True, "levels": 3}, "DC-SVM": {}}
    found = {}
    for name, dcsvm in ours.items():
        model, _, seconds = trained(arrays, gaussian(gamma), C, **dcsvm)
        found[name] = float(right(model, arrays)), seconds
    start = time.perf_counter()
    svc = SVC(C=C, gamma=gamma, cache_size=1000).fit(arrays.X, arrays.y)
    seconds = time.perf_counter() - start
    return found | {"LIBSVM": (svc_accuracy(svc, arrays, RBF(gamma)), seconds)}


ITEMS: dict[str, Callable[[Bench], list[Table]]] = {
    "figure-1": figure_1,
    "figure-2": figure_2,
    "table-1": table_1,
    "table-2": table_2,
    "table-3-ijcnn1": lambda bench: table_3(bench, "ijcnn1"),
    "table-3-census": lambda bench: table_3(bench, "census"),
    "table-3-covtype": lambda bench: table_3(bench, "covtype"),
    "table-3-others": lambda bench: table_3(bench, "cifar", "webspam", "kddcup99", "mnist8m"),
    "bias": bias,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "table-6": table_6,
    "table-7": partial(grid, number=7, name="ijcnn1"),
    "table-8": partial(grid, number=8, name="webspam"),
    "table-9": partial(grid, number=9, name="covtype"),
    "table-10": partial(grid, number=10, name="census"),
}


def main() -> None:
    def own(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", type=among(ITEMS), default=list(ITEMS), metavar="ITEM[,ITEM...]")
        parser.add_argument("--rows", type=int, metavar="N", help="of table 1, and of tables 7 to 10")
        parser.add_argument("--test-rows", type=int, metavar="N", help="of table 1 (default all)")

    with from_arguments(__doc__, own) as (bench, args):
        report = Report(args.out)
        sized = replace(bench, sizes=replace(bench.sizes, grid_rows=args.rows, test_rows=args.test_rows))
        for name in args.only:
            report.add(ITEMS[name](sized))


if __name__ == "__main__":
    main()
