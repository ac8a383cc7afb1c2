"""The tables of ADMM on a compressed kernel matrix, next to LIBSVM, scikit-learn-intelex and Nystroem. Linux.

    python pipelines/hss_table.py --data DIR [--only ijcnn1,path,...] [--quick] [--out hss.md] [--peer-python PYTHON]

items, and the files of --data that they need:
    ijcnn1, a9a, electricity, skin, covtype-100k, w8a, covtype-465k: the table of Cipolla and Gondzio 2021, h and C from
             0.1, 1, 10, gamma = 1 / (2 h^2); electricity has the size of their cod-rna. Needs ijcnn1.bz2 ijcnn1.t.bz2
             a9a.bz2 a9a.t.bz2 w8a.bz2 skin_nonskin.tsv.gz electricity.csv.gz covtype.csv.gz
    path, path-covtype: ten values of C against one; three h and ten C against as many fits of scikit-learn-intelex,
             alternating
    polish   ijcnn1, a9a: the exact solver from ADMM's point and from zero, against LIBSVM's objective
    scaling  synthetic rows in 18 dimensions, 10,000 to 1,000,000: seconds and bytes over rows
    errors   ijcnn1: errors of product and solve over tolerances
    picture  ijcnn1: the ranks of its blocks as hss-h.svg, for the three widths, in the current folder

LIBSVM is scikit-learn's SVC with a cache of 2 GB; it and scikit-learn-intelex are stopped after two minutes, or twice
our time, but for paths and `polish`. Run it on a machine that does nothing else; a fit before the first counted one
compiles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bench import HERE, Bench, print_tables
from binary_sets import arrays
from measure import Spread
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm import HSSSVC
from streamsvm.data.rows import Rows
from streamsvm.hss.compress import HSSOptions, Tolerances
from streamsvm.hss.kernel_matrix import approximate, estimated_errors
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import KernelDual
from streamsvm.report.drawing import write_plot
from streamsvm.report.part_plots import rank_blocks
from streamsvm.solvers import blockws

WIDTHS = (0.1, 1.0, 10.0)
GRID = (0.1, 1.0, 10.0)
MISSING = set[str]()  # peers that were not there, and are not asked again
PATH = tuple(float(C) for C in np.logspace(-1, 1, 10))
LIMIT_S = 120.0
MOST_COMPONENTS = 2000
SETS = ("ijcnn1", "a9a", "electricity", "skin", "covtype-100k", "w8a", "covtype-465k")
SCALING = (10_000, 31_623, 100_000, 316_228, 1_000_000)
OURS: dict[str, Any] = {"random_state": 0, "beta": 30.0, "storage": "float32"}


@dataclass(frozen=True)
class Data:
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    file: Path  # of both as arrays, for peers: .train.npz and .test.npz


@cache
def data(name: str, bench: Bench) -> Data:
    few = slice(0, bench.sizes.train_rows)
    X, y, X_test, y_test = (array[few] for array in arrays(name, bench))
    file = bench.work / f"hss.{name}.{len(y)}"
    for part, rows, labels in (("train", X, y), ("test", X_test, y_test)):
        if not Path(f"{file}.{part}.npz").exists():
            np.savez(f"{file}.{part}.npz", X=rows, y=labels)
    return Data(X, y, X_test, y_test, file)


def compared(name: str, bench: Bench) -> list[Table]:
    """The grid of ours on a data set, then the peers where ours is best."""
    checks = []
    d = data(name, bench)
    fits = [(h, _ours(d, GRID, h)) for h in WIDTHS]
    scored = [(svm.choose(C).score(d.X_test, d.y_test), h, C, s, svm) for h, (svm, s) in fits for C in GRID]
    accuracy, h, C, seconds, svm = max(scored, key=lambda found: found[0])
    report, phases = svm.reports_[C], svm.reports_[C]["seconds_by_phase"]
    limit = max(LIMIT_S, 2 * seconds)
    libsvm, intelex = (_peer(bench, kind, d, C, h, limit) for kind in ("libsvm", "intelex"))
    nystroem = _nystroem(d, seconds, C, h)
    record = {
        "rows": len(d.y),
        "h": h,
        "C": C,
        "compression": Seconds(phases["compress"]),
        "factorisation": Seconds(phases["factorise"]),
        "memory": Bytes(report["hss_bytes"] + report["factor_bytes"]),
        "ADMM, three C": Seconds(phases["admm"]),
        "all": Seconds(seconds),
        "accuracy": Share(accuracy),
        "LIBSVM": Seconds(libsvm["seconds"]) if libsvm else f"> {limit:.0f} s",
        "its accuracy": Share(libsvm["accuracy"]) if libsvm else None,
        "intelex": Seconds(intelex["seconds"]) if intelex else None,
        "its": Share(intelex["accuracy"]) if intelex else None,
        "Nystroem + LinearSVC": Share(nystroem[1]),
        "components": nystroem[0],
        "product error": f"{report['product_error']:.1e}",
    }
    if name.startswith(("ijcnn1", "covtype")):
        slower = libsvm["seconds"] if libsvm else limit
        checks.append((f"{name}: faster than LIBSVM ({slower / seconds:.1f} times)", slower > seconds))
        best = [peer["accuracy"] for peer in (libsvm, intelex) if peer]
        if best:
            lost = max(best) - accuracy
            checks.append((f"{name}: within a point of its accuracy there ({100 * lost:+.2f})", lost <= 0.01))
    notes = [
        f"three values of C at once by each of h = {', '.join(map(str, WIDTHS))}, gamma = 1 / (2 h^2), one run each",
        "seconds are of the best h, `all` of the fit with all three C; peers once, at the best h and C, stopped after "
        f"{LIMIT_S:.0f} s or twice our time",
        "Nystroem + LinearSVC: accuracy with the most components that take no longer",
    ]
    return [Table(name, [record], notes, checks)]


def path(name: str, bench: Bench) -> list[Table]:
    """Ten values of C against one, and a grid of three widths against as many fits of a peer, alternating."""
    one_or_ten, grids, checks = [], [], []
    d = data(name, bench)
    ours_s = peers_s = 0.0
    for h in WIDTHS:
        singles, tens, peers = list[float](), list[float](), []
        for Cs in np.array_split(PATH, bench.sizes.runs):
            singles.append(_ours(d, (1.0,), h)[1])
            svm, seconds = _ours(d, PATH, h)
            tens.append(seconds)
            peers += [_peer(bench, "intelex", d, float(C), h, limit=None) for C in Cs]
        ratio = Factor(np.median(tens) / np.median(singles))
        record = {
            "data": name,
            "h": h,
            "one C": Spread.of(singles),
            "ten C": Spread.of(tens),
        }
        spread = Factor(max(t / s for t, s in zip(tens, singles, strict=True)))
        one_or_ten.append(record | {"ratio": ratio, "largest": spread})
        checks.append((f"{name}, h = {h:g}: ten values of C at most 1.3 times one ({ratio})", ratio <= 1.3))
        peer_s = sum(peer["seconds"] if peer else np.nan for peer in peers)
        ours_s, peers_s = ours_s + float(np.median(tens)), peers_s + peer_s
        accuracies = {C: svm.choose(C).score(d.X_test, d.y_test) for C in PATH}
        best = max(accuracies, key=lambda C: accuracies[C])
        theirs = max((peer["accuracy"] for peer in peers if peer), default=np.nan)
        grids.append(
            {
                "data": name,
                "h": h,
                "ours, ten C": Seconds(np.median(tens)),
                "intelex, ten C": Seconds(peer_s),
                "ratio": Factor(peer_s / np.median(tens)),
                "best accuracy": Share(accuracies[best]),
                "at C": best,
                "intelex's best": Share(theirs),
            }
        )
    faster = peers_s / ours_s
    checks.append((f"{name}: the grid at least 5 times as fast as intelex ({faster:.1f})", faster >= 5))
    notes = [f"C from {PATH[0]:g} to {PATH[-1]:g}; intelex: a fit for each C, alternating with ours"]
    return [
        Table(f"{name}, ten values of C", one_or_ten, ["largest: of the ratios of single runs"]),
        Table(f"{name}, grids against intelex", grids, notes, checks),
    ]


def polish(bench: Bench) -> list[Table]:
    """The exact solver from ADMM's point and from zero."""
    records, checks = [], []
    for name, h, C in (("ijcnn1", 1.0, 1.0), ("ijcnn1", 1.0, 10.0), ("a9a", 10.0, 1.0)):
        d = data(name, bench)
        warm, warm_s = _ours(d, (C,), h, polish=100_000)
        report = warm.reports_[C]
        dual = _dual(d, C, h)
        start = time.perf_counter()
        with Engine().serial_blas():
            cold = blockws.solve(dual, tol=1e-3, bias=True)
        cold_s = time.perf_counter() - start
        start = time.perf_counter()
        libsvm = SVC(C=C, gamma=1 / (2 * h * h), cache_size=2000).fit(d.X, d.y)
        libsvm_s = time.perf_counter() - start
        best = _objective(dual, libsvm)
        against = abs(report["objective"] / best - 1)
        checks.append((f"{name}, C = {C:g}: objective within 1e-4 of LIBSVM's ({against:.1e})", against <= 1e-4))
        records.append(
            {
                "data": name,
                "h": h,
                "C": C,
                "gap at ADMM's point": f"{report['gap_before_polish'] / -report['objective']:.1e}",
                "gap after": f"{report['gap'] / -report['objective']:.1e}",
                "rounds from there": report["polish_rounds"],
                "rounds from zero": cold.rounds,
                "polishing": Seconds(report["seconds_by_phase"]["polish"]),
                "from zero": Seconds(cold_s),
                "all": Seconds(warm_s),
                "LIBSVM": Seconds(libsvm_s),
                "from zero against LIBSVM's objective": f"{abs(blockws.objective(dual, cold) / best - 1):.1e}",
                "against LIBSVM's": f"{against:.1e}",
            }
        )
    notes = ["seconds of ADMM with polishing (all), of the polishing alone, of the exact solver from zero, of LIBSVM"]
    return [Table("Polished by the exact solver", records, notes, checks)]


def scaling(bench: Bench) -> list[Table]:
    """Seconds and bytes over rows, the rank limited to 100."""
    records = []
    rows = SCALING if bench.sizes.train_rows is None else (400, 800)
    engine, kernel = Engine(), RBF(0.5)
    options = HSSOptions(Tolerances(1e-2, 1e-3, 100), landmarks=0)
    approximate(kernel, Rows(_susy(1000)), options, engine)  # compiles
    for n in rows:
        X = Rows(_susy(n))
        lap = [time.perf_counter()]
        _, matrix = approximate(kernel, X, options, engine)
        lap.append(time.perf_counter())
        inverse = matrix.shifted(100.0, engine)
        lap.append(time.perf_counter())
        with engine.serial_blas():
            inverse.solve(np.ones(n), engine.threads)
        lap.append(time.perf_counter())
        record: dict[str, Any] = {"rows": n}
        record |= {
            name: Seconds(s) for name, s in zip(("compression", "factorisation", "solve"), np.diff(lap), strict=True)
        }
        record["bytes a row"] = (matrix.nbytes + inverse.nbytes) // n
        record["mean rank of leaves"] = round(float(matrix.ranks()[-1].mean()), 1)
        records.append(record)
    logs = np.log([float(record["rows"]) for record in records])
    checks = []
    for name in ("compression", "factorisation", "solve"):
        slope = float(np.polyfit(logs, np.log([float(record[name]) for record in records]), 1)[0])
        checks.append((f"slope of log {name} seconds over log rows at most 1.15 ({slope:.2f})", slope <= 1.15))
    spread = records[-1]["bytes a row"] / records[0]["bytes a row"]
    checks.append((f"bytes a row flat (the last {spread:.2f} times the first)", spread <= 1.15))
    notes = ["synthetic rows of 18 columns, gamma 0.5, ranks limited to 100; bytes of matrix and factor"]
    return [Table("Linear cost", records, notes, checks)]


def errors(bench: Bench) -> list[Table]:
    """Errors of product and solve over tolerances, by both kinds of bases; rows 2,000."""
    X, engine, records = Rows(data("ijcnn1", bench).X[:2000]), Engine(), []
    for h in WIDTHS:
        kernel = RBF(1 / (2 * h * h))
        for rtol in (1e-1, 1e-2, 1e-4, 1e-6):
            record: dict[str, Any] = {"h": h, "rtol": rtol}
            for name, definite in (("definite", True), ("least squares", False)):
                options = HSSOptions(Tolerances(rtol, 0.0, 10**6, definite), leaf_rows=64, landmarks=0)
                order, matrix = approximate(kernel, X, options, engine)
                inverse = matrix.shifted(100.0, engine)
                found = estimated_errors(kernel, X.take(order), matrix, inverse, 0, engine.threads)
                record |= {f"{name}: product": found["product_error"], "solve": found["solve_error"]}
                record["largest rank"] = int(max(ranks.max() for ranks in matrix.ranks()))
            records.append(record)
    return [Table("Errors over tolerances", records)]


def picture(bench: Bench) -> list[Table]:
    """Ranks by level, as a table and as pictures."""
    X, engine, records = Rows(data("ijcnn1", bench).X), Engine(), []
    for h in WIDTHS:
        options = HSSOptions(Tolerances(1e-3, 1e-3, 300, None))
        _, matrix = approximate(RBF(1 / (2 * h * h)), X, options, engine)
        ranks = matrix.ranks()
        write_plot(rank_blocks(matrix.tree.n, [level.tolist() for level in ranks]), f"hss-{h:g}.svg")
        levels = {f"level {i + 1}": f"{r.mean():.0f}, {r.max()}" for i, r in enumerate(ranks)}
        records.append({"h": h, "landmarks explain": Share(matrix.explained)} | levels)
    return [Table("Ranks by level, mean and largest", records)]


def _ours(d: Data, Cs: tuple[float, ...], h: float, **more: Any) -> tuple[HSSSVC, float]:
    start = time.perf_counter()
    svm = HSSSVC(C=list(Cs), gamma=1 / (2 * h * h), **{**OURS, **more}).fit(d.X, d.y)
    return svm, time.perf_counter() - start


def _dual(d: Data, C: float, h: float) -> KernelDual:
    return KernelDual(RBF(1 / (2 * h * h)), Rows(d.X), d.y.astype(float), np.full(len(d.y), C), Engine().threads)


def _objective(dual: KernelDual, svm: SVC) -> float:
    """The dual objective of LIBSVM's coefficients."""
    alpha = np.abs(svm.dual_coef_[0])
    return float(0.5 * alpha @ dual.apply(svm.support_, alpha, svm.support_) - alpha.sum())


def _peer(bench: Bench, kind: str, d: Data, C: float, h: float, limit: float | None = LIMIT_S) -> dict[str, Any] | None:
    """Seconds, accuracy and objective of a peer, or None where it is missing or took too long."""
    if kind in MISSING:
        return None
    options = {"C": C, "kernel": {"gamma": 1 / (2 * h * h), "cache_size": 2000}}
    files = (f"{d.file}.train.npz", f"{d.file}.test.npz")
    python = sys.executable if kind == "libsvm" else bench.peer_python
    command = [python, HERE / "fit_worker.py", kind, *files, json.dumps(options)]
    try:
        ended = subprocess.run(
            command, input="fit\nscore\n", stdout=subprocess.PIPE, text=True, timeout=limit, check=True
        )
    except subprocess.TimeoutExpired:
        return None
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    if "missing" in answers[0]:
        MISSING.add(kind)
        return None
    return answers[0] | answers[1]


def _nystroem(d: Data, seconds: float, C: float, h: float) -> tuple[int, float]:
    """Components and accuracy of the largest Nystroem map that is not slower, and fits in memory."""
    found = (0, 0.0)
    components, memory = 50, psutil.virtual_memory().available
    while components < min(len(d.y), MOST_COMPONENTS) and 32 * components * len(d.y) < memory:
        start = time.perf_counter()
        features = Nystroem(gamma=1 / (2 * h * h), n_components=components, random_state=0)
        svm = make_pipeline(features, LinearSVC(C=C, loss="hinge", max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # its time is up
            svm.fit(d.X, d.y)
        if time.perf_counter() - start > seconds:
            break
        found = (components, svm.score(d.X_test, d.y_test))
        components *= 2
    return found


def _susy(n: int) -> np.ndarray:
    """(n, 18) float32: 8 independent measurements, and 10 quantities derived from them, as SUSY's."""
    rng = np.random.default_rng(n)
    low = rng.standard_normal((n, 8), np.float32)
    mixed = low @ np.random.default_rng(0).standard_normal((8, 10)).astype(np.float32) / np.float32(np.sqrt(8))
    return np.hstack([low, np.abs(mixed) + np.float32(0.1) * rng.standard_normal((n, 10), np.float32)])


ITEMS = {name: partial(compared, name) for name in SETS} | {
    "path": partial(path, "ijcnn1"),
    "path-covtype": partial(path, "covtype-100k"),
    "polish": polish,
    "scaling": scaling,
    "errors": errors,
    "picture": picture,
}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    HSSSVC(iterations=2, polish=1, **OURS).fit(rng.random((1000, 3)), np.arange(1000) % 2)  # compiles
    print_tables(__doc__, ITEMS)
