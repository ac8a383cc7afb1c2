"""Qaadan and Glasmachers, Multi-merge budget maintenance (2018): their tables and figures next to ours. Linux.

    python pipelines/paper_multi_merge.py --data DIR [--only table-1,figure-2,...] [--quick] [--out tables.json]

items:
    table-1    ADULT, M 3: merged in sequence and at once, at several lambda; what a merge loses by golden section
               search, by table, by gradient ascent, and at best
    adult      ADULT, the budgets of table 1: which lambda gives the paper's accuracies
    table-2    the data sets and LIBSVM's accuracy on them
    figure-1   ADULT, IJCNN: share of the training time that merging takes
    figure-2   PHISHING, WEB, ADULT: accuracy and time over budgets and M
    figure-3   IJCNN, SKIN: the same
    figure-4   ADULT: accuracy against time, B and M 2 to 11
    figure-5   PHISHING: nine pairs of C and gamma
    default    six data sets, small and large budgets: sequences that end early against merging all M
    lambda     seven data sets: one pass with several lambda against the exact SVM of the same C

columns: B is the budget, M how many points become one, maintenances how often. Seconds are CPU seconds of one thread,
the median over seeds; accuracies are means over seeds, on test rows. "all": `merge_all`, M points always become one, as
in the paper; "early": a sequence may end early, as by default. "(paper)": the paper's value.

files of --data: a9a.bz2 a9a.t.bz2 ijcnn1.bz2 ijcnn1.t.bz2 phishing.bz2 w8a.bz2 skin_nonskin.tsv.gz, for default and
lambda electricity.csv.gz, and for lambda magic04.csv.gz. WEB is w6a.bz2 and w6a.t.bz2 of LIBSVM's page, which you would
have to bring; w8a is the same task with more rows. What comes without test rows is split at random, with as many
training rows as in the paper.
"""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import binary_sets
import numba
import numpy as np
from bench import Bench, print_tables
from papers import Arrays, beside
from scipy.optimize import minimize
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC
from tables import Factor, Seconds, Share, Table

from streamsvm import DCSVC, BudgetedSVC
from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.solvers.budget import merge
from streamsvm.solvers.budget.state import BORN, EVENTS

SHARES = (0.01, 0.05, 0.10, 0.15, 0.25, 0.50)  # of LIBSVM's support vectors
MERGES = (2, 3, 4, 5)
WAYS = {"early": False, "all": True}
STEPS = range(2, 12)  # M in figures 1 and 4
REPEATS = 5  # of a run whose blocks are timed: the least time of each counts
REFERENCE = {"lam": 1e-4, "fit_intercept": True}  # BudgetedSVM's defaults: its options -L and -b
SMALL, LARGE = 30, 500  # budgets
TRIES = 300  # groups of supports whose merges are compared


@dataclass(frozen=True)
class Problem:
    """Files and training rows of a data set, these where it has no test files. C, gamma, other columns of table 2."""

    files: tuple[str, ...]
    C: float
    gamma: float
    rows: int | None = None
    published: tuple[int, int, float] | None = None  # rows, features, accuracy


PROBLEMS = {
    "PHISHING": Problem(("phishing.bz2",), 8, 8, 8_315, (8_315, 68, 0.9755)),
    "WEB": Problem(("w6a.bz2", "w6a.t.bz2"), 8, 0.03, None, (17_188, 300, 0.9880)),
    "w8a, as WEB": Problem(("w8a.bz2",), 8, 0.03, 39_799),
    "ADULT": Problem(("a9a.bz2", "a9a.t.bz2"), 32, 0.008, None, (32_561, 123, 0.8482)),
    "IJCNN": Problem(("ijcnn1.bz2", "ijcnn1.t.bz2"), 32, 2, None, (49_990, 22, 0.9877)),
    "SKIN": Problem(("skin_nonskin.tsv.gz",), 8, 0.03, 164_788, (164_788, 3, 0.9896)),
}

BUDGETS = (120, 600, 1200, 1800, 2500)  # of table 1
PUBLISHED = {  # of table 1, by budget: seconds of merging and accuracy, in sequence and at once
    120: (10.562, 0.7632, 6.042, 0.7632),
    600: (27.222, 0.8297, 25.982, 0.8330),
    1200: (53.362, 0.8336, 50.641, 0.8369),
    1800: (79.896, 0.8404, 75.560, 0.8404),
    2500: (109.922, 0.8398, 96.686, 0.8394),
}
GRID = {  # of figure 5, by C and gamma: LIBSVM's accuracy and support vectors
    (2, 2): (0.963490, 1367),
    (2, 8): (0.975904, 2852),
    (2, 32): (0.972983, 5073),
    (8, 2): (0.969697, 1191),
    (8, 8): (0.975173, 2751),
    (8, 32): (0.972983, 5073),
    (32, 2): (0.971522, 1106),
    (32, 8): (0.974804, 2756),
    (32, 32): (0.972983, 5073),
}


@dataclass(frozen=True)
class Runs:
    """Fits of all seeds: CPU seconds, test accuracies, maintenances, seconds of the sequential steps."""

    seconds: np.ndarray
    accuracy: np.ndarray
    maintenances: np.ndarray
    step_seconds: np.ndarray
    merged: np.ndarray  # points that become one at a maintenance, on average; 0 where there was none

    @classmethod
    def of(cls, arrays: Arrays, seeds: Sequence[int], **options: Any) -> Runs:
        return cls(*np.array([_fit(arrays, random_state=seed, **options) for seed in seeds]).T)


def _fit(arrays: Arrays, *, by_default: bool = False, **options: Any) -> tuple[float, ...]:
    """With the published steps, 1 / (lambda t), lambda = 1 / (n C), unless by_default."""
    if not by_default:
        options = {"lam": 1 / (len(arrays.y) * options.pop("C", 1.0))} | options
    svm = BudgetedSVC(n_jobs=1, **options)
    start = time.process_time()
    svm.fit(arrays.X, arrays.y)
    seconds = time.process_time() - start
    learner = svm.model_.learner()
    stats, counts = learner.stats(), learner.counts
    inserted = counts[BORN] - counts[EVENTS]  # a merge makes a point, too
    merged = (inserted - stats.supports) / stats.maintenances + 1 if stats.maintenances else 0.0
    accuracy = svm.score(arrays.X_test, arrays.y_test)
    return seconds, accuracy, stats.maintenances, stats.step_seconds, merged


def table_1(bench: Bench) -> list[Table]:
    arrays = read(bench, "ADULT")
    problem, budgets = PROBLEMS["ADULT"], _few(bench, BUDGETS)
    settings: dict[str, dict[str, Any]] = {
        "by default": {"C": problem.C, "by_default": True},
        "at lambda 1/(nC)": {"C": problem.C},
        "at lambda 1e-4": {"lam": 1e-4},
        "at lambda 1e-4 and a bias": REFERENCE,
    }
    tables = []
    for label, setting in settings.items():
        rows = []
        for budget in budgets:
            ways = {
                strategy: Runs.of(
                    arrays, many_seeds(bench), **setting, gamma=problem.gamma, budget=budget, merge=3, merge_all=True,
                    strategy=strategy,
                )
                for strategy in ("sequence", "gradient")
            }  # fmt: skip
            steps = [np.median(ways[name].step_seconds) for name in ("gradient", "sequence")]
            s_1, a_1, s_2, a_2 = PUBLISHED[budget]
            rows.append(
                {
                    "B": budget,
                    "sequence (paper)": Share(a_1),
                    "sequence": Share(ways["sequence"].accuracy.mean()),
                    "at once (paper)": Share(a_2),
                    "at once": Share(ways["gradient"].accuracy.mean()),
                    "deviation": Share(ways["sequence"].accuracy.std()),
                    "seconds at once / in sequence (paper)": Factor(s_2 / s_1),
                    "seconds at once / in sequence": Factor(steps[0] / steps[1]),
                }
            )
        notes = [
            f"ADULT, gamma {problem.gamma}, M 3, one epoch, {len(many_seeds(bench))} seeds; the paper has one run",
            "seconds: in the paper of merging, here of all sequential steps",
            "1e-4 and a bias: defaults of the program that the paper builds on, BudgetedSVM",
            "by default: lambda 1/(nC), steps at most to the margin, which fall to 0 over the last fifth of the rows",
        ]
        tables.append(Table(f"Accuracy {label}", rows, notes))
    return [*tables, _merging_error(bench, arrays)]


def _merging_error(bench: Bench, arrays: Arrays) -> Table:
    """What merges of a trained model's supports lose: each weakest point with its M - 1 best partners."""
    problem, rng, rows = PROBLEMS["ADULT"], np.random.default_rng(0), []
    svm = BudgetedSVC(lam=1e-4, gamma=problem.gamma, budget=_few(bench, (600,))[0], random_state=0, n_jobs=1)
    svm.fit(arrays.X, arrays.y)
    S, a = svm.support_vectors_.astype(np.float64), svm.dual_coef_[0]
    for size in (2, 3, 5, 10):
        lost: dict[str, list[float]] = {name: [] for name in ("golden section", "table", "gradient", "best")}
        for _ in range(bench.sizes.train_rows and 5 or TRIES):
            ids = _group(S, a, problem.gamma, size, rng)
            for name, value in _losses(S[ids], a[ids], problem.gamma).items():
                lost[name].append(value)
        best = np.mean(lost["best"])
        rows.append(
            {"M": size, "best |Delta|^2": float(f"{best:.4g}")}
            | {f"{name} / best": float(f"{np.mean(lost[name]) / best:.6f}") for name in lost if name != "best"}
        )
    notes = [
        f"means over {TRIES} groups: a random support of a model of ADULT, B 600, and the M - 1 that lose least",
        "best: a minimisation of |Delta|^2 over z from all of the other answers",
    ]
    return Table("What a merge loses", rows, notes)


def _group(S: np.ndarray, a: np.ndarray, gamma: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """A random support and those that lose least when merged with it, best first."""
    p = rng.integers(len(a))
    same = np.flatnonzero((a * a[p] > 0) & (np.arange(len(a)) != p))
    kappa = np.exp(-gamma * ((S[same] - S[p]) ** 2).sum(axis=1))
    h = _golden(np.full(len(same), a[p]), a[same], kappa)
    kept = a[p] * kappa ** ((1 - h) ** 2) + a[same] * kappa ** (h**2)
    lost = a[p] ** 2 + a[same] ** 2 + 2 * a[p] * a[same] * kappa - kept**2
    return np.array([p, *same[np.argsort(lost)][: size - 1]])


def _golden(a: np.ndarray, b: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """h of z = h p + (1-h) q by golden section search."""
    m = np.abs(a) / (np.abs(a) + np.abs(b))
    h = merge.merge_weight(np.maximum(m, 1 - m), kappa)
    return np.where(m >= 0.5, h, 1 - h)


def _losses(S: np.ndarray, a: np.ndarray, gamma: float) -> dict[str, float]:
    """|Delta|^2 of merging all S into a point, by each way of finding it."""
    distances = gamma * ((S[:, None] - S[None]) ** 2).sum(axis=2)
    norm, column = a @ np.exp(-distances) @ a, a[:, None]

    def lost(z: np.ndarray) -> float:
        return float(norm - (a @ np.exp(-gamma * ((S - z) ** 2).sum(axis=1))) ** 2)

    z, size = S[0], a[0]
    for s, other in zip(S[1:], a[1:], strict=True):
        kappa = np.exp(-gamma * ((z - s) ** 2).sum())
        h = float(_golden(size, other, kappa))
        size = size * kappa ** ((1 - h) ** 2) + other * kappa ** (h**2)
        z = h * z + (1 - h) * s
    by_table, at_once = _weights(distances, column, merge.merge_tables()[0])
    starts = {"golden section": z, "table": by_table @ S, "gradient": at_once @ S}
    found = {name: lost(z) for name, z in starts.items()}
    to_mix = np.linalg.lstsq(S.T, np.stack(list(starts.values()), axis=1), rcond=None)[0].T  # z is a mix of the S
    scale = norm
    best = min(float(minimize(lambda c: lost(c @ S) / scale, c, tol=1e-12).fun) * scale for c in to_mix)
    return found | {"best": min(best, *found.values())}


@numba.njit
def _weights(distances, column, table):  # type: ignore[no-untyped-def]
    """Weights of a merge in sequence, and of one at once."""
    return merge._in_sequence(distances, column, np.inf, table), merge._together(distances, column)


def adult(bench: Bench) -> list[Table]:
    arrays, problem, rows = read(bench, "ADULT"), PROBLEMS["ADULT"], []
    for budget in _few(bench, BUDGETS):
        fit = partial(Runs.of, arrays, many_seeds(bench), gamma=problem.gamma, budget=budget, merge=3, merge_all=True)
        row: dict[str, Any] = {"B": budget, "paper": Share(PUBLISHED[budget][1])}
        for lam in (1e-5, 1e-4, 3e-4, 1e-3):
            accuracy = fit(lam=lam).accuracy
            row[f"lambda {lam:g}"] = Share(accuracy.mean())
            if lam == 3e-4:
                row["deviation"] = Share(accuracy.std())
        rows.append(row)
    notes = [
        f"gamma {problem.gamma}, M 3 in sequence, one epoch, {len(many_seeds(bench))} seeds. The paper has one run"
    ]
    return [Table("ADULT over lambda", rows, notes)]


def table_2(bench: Bench) -> list[Table]:
    rows = [{"data": name} | _beside(bench, name, partial(_libsvm_row, bench, name)) for name in _names(bench)]
    notes = ["C and gamma are the paper's; its scaling of SKIN is not known, here columns are standardised"]
    return [Table("Data sets", rows, notes)]


def _libsvm_row(bench: Bench, name: str) -> dict[str, Any]:
    arrays, (support, accuracy) = read(bench, name), libsvm(bench, name)
    rows, features = arrays.X.shape
    return {"rows": rows, "features": features, "support vectors": support, "accuracy": Share(accuracy)}


def _beside(bench: Bench, name: str, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    problem = PROBLEMS[name]
    published: dict[str, Any] = {"C": problem.C, "gamma": problem.gamma}
    if problem.published:
        rows, features, accuracy = problem.published
        published |= {"rows (paper)": rows, "features (paper)": features, "accuracy (paper)": Share(accuracy)}
    return beside(bench, published, problem.files, measured)


def figure_1(bench: Bench) -> list[Table]:
    rows = []
    for name, budget in product(_few(bench, ("ADULT", "IJCNN")), _few(bench, (100, 500))):
        rows += _time_shares(bench, name, budget)
    notes = [
        "M always become one, at lambda 1e-4. The least of some runs counts for every block of rows",
        "merging: a regression of the blocks' seconds on their rows, new supports and maintenances gives its seconds",
        "the paper's figure has no numbers; its text says up to 45 % at M = 2",
    ]
    return [Table("Share of the time that merging takes", rows, notes)]


def _time_shares(bench: Bench, name: str, budget: int) -> list[dict[str, Any]]:
    arrays, gamma, merges = read(bench, name), PROBLEMS[name].gamma, _few(bench, STEPS)
    order = np.random.default_rng(0).permutation(len(arrays.y))
    rows, Y = Rows(arrays.X[order]), np.where(arrays.y[order] > 0, 1.0, -1.0)[:, None]
    blocks = {M: _timed_blocks(rows, Y, gamma, BudgetOptions(1e-4, budget, M, merge_all=True)) for M in merges}
    parts, seconds = [], []
    for number, M in enumerate(merges):
        step_seconds, _, counts = blocks[M]
        events = np.zeros((len(counts), len(merges)))
        events[:, number] = counts[:, 2]
        parts.append(np.hstack([counts[:, :2], events]))
        seconds.append(step_seconds)
    factors = np.linalg.lstsq(np.vstack(parts), np.concatenate(seconds), rcond=None)[0]
    found = []
    for number, M in enumerate(merges):
        step_seconds, all_seconds, counts = blocks[M]
        merging = max(factors[2 + number], 0.0) * counts[:, 2].sum()
        found.append(
            {
                "data": name,
                "B": budget,
                "M": M,
                "maintenances": int(counts[:, 2].sum()),
                "merging": Share(merging / all_seconds),
                "all sequential steps": Share(step_seconds.sum() / all_seconds),
                "time / that of M = 2": Factor(all_seconds / blocks[merges[0]][1]),
            }
        )
    return found


def _timed_blocks(
    rows: Rows, Y: np.ndarray, gamma: float, options: BudgetOptions
) -> tuple[np.ndarray, float, np.ndarray]:
    """Seconds of the steps of each block, and of everything; rows, new supports and maintenances of each block."""
    steps, everything = [], []
    for _ in range(1 + REPEATS):  # the first compiles
        learner = BudgetLearner(RBF(gamma), rows.d, 1, options)
        before, size, counts = learner.stats(), learner.block_rows, []
        steps.append([])
        everything.append([])
        for start in range(0, len(rows), size):
            born = learner.counts[BORN]
            began = time.perf_counter()
            learner.learn(rows.take(slice(start, start + size)), Y[start : start + size])
            everything[-1].append(time.perf_counter() - began)
            now = learner.stats()
            events = now.maintenances - before.maintenances
            counts.append((now.steps - before.steps, learner.counts[BORN] - born - events, events))
            steps[-1].append(now.step_seconds - before.step_seconds)
            before = now
    return np.min(steps[1:], axis=0), float(np.min(everything[1:], axis=0).sum()), np.array(counts, float)


def figure_2(bench: Bench) -> list[Table]:
    return _studies(bench, ("PHISHING", "WEB", "w8a, as WEB", "ADULT"))


def figure_3(bench: Bench) -> list[Table]:
    return _studies(bench, ("IJCNN", "SKIN"))


def _studies(bench: Bench, names: Sequence[str]) -> list[Table]:
    tables = []
    for name in names:
        rows = list(_study(bench, name)) if has(bench, name) else [_beside(bench, name, dict)]
        notes = [f"C {PROBLEMS[name].C:g}, gamma {PROBLEMS[name].gamma:g}, lambda 1/(nC), one epoch"]
        tables.append(Table(f"{name}: budgets and M", rows, notes))
    return tables


def _study(bench: Bench, name: str) -> Iterator[dict[str, Any]]:
    problem, arrays, (support, accuracy) = PROBLEMS[name], read(bench, name), libsvm(bench, name)
    for share in SHARES[2:3] if bench.sizes.is_quick else SHARES:
        budget = max(20, round(share * support))
        fit = partial(Runs.of, arrays, C=problem.C, gamma=problem.gamma, budget=budget)
        fit(seeds(bench)[:1], merge=2)  # compiles, and warms up
        two = fit(seeds(bench), merge=2)
        for M in _few(bench, MERGES):
            ways = {way: two if M == 2 else fit(seeds(bench), merge=M, merge_all=on) for way, on in WAYS.items()}
            yield {
                "budget": f"{share:.0%}",
                "B": budget,
                "M": M,
                **{f"accuracy: {way}": Share(runs.accuracy.mean()) for way, runs in ways.items()},
                "deviation": Share(ways["all"].accuracy.std()),
                **{f"time / that of M = 2: {way}": _ratio(runs, two) for way, runs in ways.items()},
                **{f"maintenances: {way}": int(np.median(runs.maintenances)) for way, runs in ways.items()},
                "seconds: all": Seconds(np.median(ways["all"].seconds)),
            }
    yield {"budget": "LIBSVM", "B": support} | {f"accuracy: {way}": Share(accuracy) for way in WAYS}


def figure_4(bench: Bench) -> list[Table]:
    arrays, problem = read(bench, "ADULT"), PROBLEMS["ADULT"]
    found = []
    for budget, M in product(_few(bench, BUDGETS), _few(bench, STEPS)):
        runs = Runs.of(arrays, seeds(bench), **REFERENCE, gamma=problem.gamma, budget=budget, merge=M, merge_all=True)
        found.append((budget, M, float(np.median(runs.seconds)), float(runs.accuracy.mean())))
    rows = [
        {
            "B": budget,
            "M": M,
            "seconds": Seconds(seconds),
            "accuracy": Share(accuracy),
            "best trade-off": not any(s <= seconds and a > accuracy for _, _, s, a in found),
        }
        for budget, M, seconds, accuracy in found
    ]
    notes = ["lambda 1e-4 and a bias, M always become one; best trade-off: nothing as fast is more accurate"]
    return [Table("ADULT: accuracy against time", rows, notes)]


def figure_5(bench: Bench) -> list[Table]:
    arrays, rows = read(bench, "PHISHING"), []
    for (C, gamma), (published, vectors) in list(GRID.items())[: 1 if bench.sizes.is_quick else None]:
        full = SVC(C=C, gamma=gamma, cache_size=1000).fit(arrays.X, arrays.y)
        support = int(full.n_support_.sum())
        row = {
            "C": C,
            "gamma": gamma,
            "LIBSVM (paper)": Share(published),
            "LIBSVM": Share(full.score(arrays.X_test, arrays.y_test)),
            "support vectors (paper)": vectors,
            "support vectors": support,
        }
        for share in (0.1, 0.3):
            budget = max(20, round(share * support))
            for M in _few(bench, MERGES):
                runs = Runs.of(arrays, seeds(bench), C=C, gamma=gamma, budget=budget, merge=M, merge_all=True)
                row[f"{share:.0%}, M {M}"] = Share(runs.accuracy.mean())
        rows.append(row)
    notes = ["per cent: B as a share of LIBSVM's support vectors; M always become one, lambda 1/(nC), one epoch"]
    return [Table("PHISHING: C and gamma", rows, notes)]


def default(bench: Bench) -> list[Table]:
    rows, runs = [], {}
    names = _few(bench, ("PHISHING", "electricity", "w8a, as WEB", "ADULT", "IJCNN", "SKIN"))
    merges = _few(bench, (2, 3, 5, 10))
    for name, budget in product(names, (SMALL, LARGE)):
        if not has(bench, name):
            rows.append({"data": name, "B": budget, "": "not run: data"})
            continue
        fit = partial(Runs.of, read(bench, name), many_seeds(bench), **_options(bench, name), budget=budget)
        fit(merge=2)  # compiles, and warms up
        for way, M in product(WAYS, merges):
            runs[name, budget, way, M] = fit(merge=M, merge_all=WAYS[way])
        two, ten = runs[name, budget, "early", 2], {way: runs[name, budget, way, merges[-1]] for way in WAYS}
        rows.append(
            {
                "data": name,
                "B": budget,
                "maintenances of M = 2": int(np.median(two.maintenances)),
                **{f"M = {merges[-1]}, {way}": int(np.median(found.maintenances)) for way, found in ten.items()},
                "points that became one, all": Factor(np.median(ten["all"].merged)),
                "accuracy of M = 2": Share(two.accuracy.mean()),
                **{f"of M = {merges[-1]}, {way}": Share(found.accuracy.mean()) for way, found in ten.items()},
                "deviation": Share(two.accuracy.std()),
                **{f"time / that of M = 2, {way}": _ratio(found, two) for way, found in ten.items()},
            }
        )
    title = f"M = {merges[-1]} against M = 2"
    notes = ["one epoch, lambda 1/(nC); the paper's C and gamma, electricity: C 8, gamma 1 / (d var)"]
    return [Table(title, rows, notes), _gains(merges, runs)]


def _gains(merges: Sequence[int], runs: dict[tuple[Any, ...], Runs]) -> Table:
    rows = []
    for way, M in product(WAYS, merges):
        pairs = [
            (found, runs[name, budget, way, 2])
            for (name, budget, how, merge), found in runs.items()
            if how == way and merge == M
        ]
        points = [100 * (found.accuracy.mean() - two.accuracy.mean()) for found, two in pairs]
        fewer = [found.maintenances.sum() / max(two.maintenances.sum(), 1) for found, two in pairs]
        rows.append(
            {
                "merged": way,
                "M": M,
                "seconds / those of M = 2, geometric mean": Factor(_mean([_ratio(*pair) for pair in pairs])),
                "maintenances / those of M = 2, geometric mean": Factor(_mean(fewer)),
                "accuracy, points more than M = 2: mean": Factor(np.mean(points)),
                "lowest": Factor(min(points)),
                "highest": Factor(max(points)),
            }
        )
    notes = [f"six data sets, budgets of {SMALL} and {LARGE}, one epoch, means over seeds"]
    return Table("All data sets and budgets", rows, notes)


def lambdas(bench: Bench) -> list[Table]:
    names = ("phishing", "a9a", "magic04", "electricity", "w8a", "ijcnn1", "skin")
    paper = {"phishing": (8, 8), "a9a": (32, 0.008), "w8a": (8, 0.03), "ijcnn1": (32, 2)}
    rows = []
    for name in names[: 2 if bench.sizes.is_quick else None]:
        few = slice(bench.sizes.train_rows)
        X, y, X_test, y_test = binary_sets.arrays(name, bench)
        arrays = Arrays(X[few], y[few], X_test[few], y_test[few])
        large, gamma = paper.get(name, (8, 1 / (X.shape[1] * X.var())))
        for C in (1, large):
            exact = DCSVC(C=C, gamma=gamma, n_jobs=1).fit(arrays.X, arrays.y).score(arrays.X_test, arrays.y_test)
            row = {"data": name, "C": C, "gamma": float(f"{gamma:.3g}"), "exact": Share(exact)}
            for label, found in _rules(bench, arrays, C, gamma).items():
                row[label] = Factor(100 * (found - exact))
            rows.append(row)
    notes = [
        f"points of accuracy more than the exact SVM of C; B {LARGE}, M 3, one epoch if not said, means over seeds",
        "default: lambda 1/(nC), steps 1 / (1 + lambda t), at most to the margin, which fall to 0 over the last fifth",
        "the others have the published steps, 1 / (lambda t)",
    ]
    return [Table("One pass against the exact SVM", rows, notes)]


def _rules(bench: Bench, arrays: Arrays, C: float, gamma: float) -> dict[str, float]:
    """Test accuracy by rule for lambda and the steps."""
    n, default = len(arrays.y), {"by_default": True}
    rules: dict[str, dict[str, Any]] = {"default": default, "default, averaged": default | {"average": True}}
    rules |= {"1/(nC)": {}, "1e-4": {"lam": 1e-4}, "3/n": {"lam": 3 / n}, "10/n": {"lam": 10 / n}}
    rules |= {"averaged": {"average": True}}
    rules |= {"default, 5 epochs": default | {"epochs": 5}, "1/(nC), 5 epochs": {"epochs": 5}}
    fit = partial(Runs.of, arrays, seeds(bench), C=C, gamma=gamma, budget=LARGE)
    return {label: float(fit(**rule).accuracy.mean()) for label, rule in rules.items()}


def seeds(bench: Bench) -> list[int]:
    return list(range(bench.sizes.runs))


def many_seeds(bench: Bench) -> list[int]:
    """Of tables on which something is decided."""
    return list(range(1 if bench.sizes.is_quick else 5))


def _few(bench: Bench, values: Sequence[Any]) -> Sequence[Any]:
    return list(values)[:2] if bench.sizes.is_quick else list(values)


def _names(bench: Bench) -> list[str]:
    return ["PHISHING", "WEB"] if bench.sizes.is_quick else list(PROBLEMS)


def _ratio(found: Runs, two: Runs) -> Factor:
    return Factor(np.median(found.seconds) / max(np.median(two.seconds), 1e-9))


def _mean(ratios: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(np.maximum(ratios, 1e-9)))))


def _options(bench: Bench, name: str) -> dict[str, float]:
    if name in PROBLEMS:
        return {"C": PROBLEMS[name].C, "gamma": PROBLEMS[name].gamma}
    X = read(bench, name).X
    return {"C": 8.0, "gamma": float(1 / (X.shape[1] * X.var()))}


def has(bench: Bench, name: str) -> bool:
    files = PROBLEMS[name].files if name in PROBLEMS else (f"{name}.csv.gz",)
    return all((bench.data / file).exists() for file in files)


@cache
def libsvm(bench: Bench, name: str) -> tuple[int, float]:
    """LIBSVM's support vectors and test accuracy."""
    arrays, problem = read(bench, name), PROBLEMS[name]
    full = SVC(C=problem.C, gamma=problem.gamma, cache_size=1000).fit(arrays.X, arrays.y)
    return int(full.n_support_.sum()), float(full.score(arrays.X_test, arrays.y_test))


@cache
def read(bench: Bench, name: str) -> Arrays:
    """Test rows have their own files, or are those that the paper's number of training rows leaves."""
    few = slice(bench.sizes.train_rows)
    arrays = Arrays(*binary_sets.arrays(name, bench)) if name not in PROBLEMS else _read(bench, PROBLEMS[name])
    return Arrays(arrays.X[few], arrays.y[few], arrays.X_test[few], arrays.y_test[few])


def _read(bench: Bench, problem: Problem) -> Arrays:
    if problem.files[0].endswith(".bz2"):
        X, y = load_svmlight_file(str(bench.data / problem.files[0]), dtype=np.float32)
        if len(problem.files) == 2:
            path = str(bench.data / problem.files[1])
            X_test, y_test = load_svmlight_file(path, n_features=X.shape[1], dtype=np.float32)
            return Arrays(X.toarray(), y, X_test.toarray(), y_test)
        X = X.toarray()
    else:
        with gzip.open(bench.data / problem.files[0], "rt") as file:
            table = np.loadtxt(file)
        X, y = table[:, :-1], table[:, -1]
        X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
        y = np.where(y == 1, 1, -1)
    size = problem.rows if problem.rows is not None and problem.rows < len(y) else 0.8
    X, X_test, y, y_test = train_test_split(X, y, train_size=size, random_state=0)
    return Arrays(X, np.where(y > 0, 1, -1), X_test, np.where(y_test > 0, 1, -1))


ITEMS = {
    "table-1": table_1,
    "adult": adult,
    "table-2": table_2,
    "figure-1": figure_1,
    "figure-2": figure_2,
    "figure-3": figure_3,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "default": default,
    "lambda": lambdas,
}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
