"""The tables of what cutting planes do on linear problems, next to LIBLINEAR; those of their paper are in
paper_cutting_planes.py. Linux.

    python pipelines/linear_table.py --data DIR [--only objective,sgd,...] [--quick] [--out linear.md]

items, and the files of --data that they need (`text` is a store that text_rows.py generates):
    outofcore  infinite digits: a pass over a store four times larger than the memory limit
    blocks     text, with rows of equal and of unequal length: beyond memory, by blocks, by planes, and in memory
    objective  reuters.bz2 reuters.t.bz2 w8a.bz2 a9a.bz2 a9a.t.bz2 covtype.csv.gz, text: objective and time
    sgd        the same: SGDClassifier, which needs no memory either
    sparse     reuters, w8a and a9a, sector.bz2 sector.t.bz2, generated topics: ours to LIBLINEAR's own objective
    ranking    mq2008.s1.bz2 to .s5.bz2 abalone.bz2: queries, ranks

Peers are LIBLINEAR, through scikit-learn's LinearSVC with loss="hinge", and SGDClassifier, in memory; ours reads
stores. Run it on a machine that does nothing else. Fits before the first counted one compile, and are not counted.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench, print_tables
from linear_problems import (
    Problem,
    accuracy,
    for_peers,
    grid,
    problem,
    sector,
    stored,
    text,
    timed,
    topics,
)
from linear_ranks import rankings
from measure import Spread, run
from scipy import sparse
from sklearn.linear_model import SGDClassifier
from sklearn.svm import LinearSVC
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm import CuttingPlaneRanker, CuttingPlaneSVC, Store
from streamsvm.events import Step
from streamsvm.report.read import read_run

BLOCKS_ROWS = 400_000  # of text, for `blocks`
LEAST_TOL = 1e-6  # of ours, which LIBLINEAR's objective may be nearer to its minimum than
BEST_C = {"reuters": 0.3, "w8a": 10.0, "a9a": 3.0, "covtype": 1.0, "text": 10.0}


def objective(bench: Bench) -> list[Table]:
    records, checks = [], []
    for name in ("reuters", "w8a", "a9a", "covtype", "text"):
        p = problem(name, bench)
        store = stored(name, p, bench)
        C = max(grid(bench), key=lambda C: p.score(p.y_test, _ours(store, C)[0].decision_function(p.X_test)))
        row = _against_liblinear(name, p, store, C, bench.sizes.runs)
        records.append(row)
        checks.append(_is_as_low(row, 1e-3))
        if name in ("covtype", "text"):
            most = {"covtype": 1, "text": 2}[name]
            checks.append((f"{name}: at most {most} times LIBLINEAR's time", row["ratio"] <= most))
    note = "C: the best of 0.01 to 30 on the test rows; score: accuracy (a9a, covtype), precision = recall elsewhere"
    notes = [note, "ours reads a store in each fit; text is generated, see text_rows.py"]
    return [Table("The same problem as LIBLINEAR's", records, notes, checks)]


def sparse_rows(bench: Bench) -> list[Table]:
    """Dual coordinate descent of ours, which `auto` takes, until its objective is as near the minimum as LIBLINEAR's
    is."""
    records = []
    made = {name: partial(problem, name, bench) for name in ("reuters", "w8a", "a9a")} | {
        "sector": partial(sector, bench),
        "topics": partial(topics, bench),
        "topics as counts": partial(topics, bench, counted=True),
    }
    for name, make in made.items():
        p, C = replace(make(), score=accuracy), 1.0
        store = stored(name.replace(" ", "-"), p, bench)
        tol = max(_excess(_liblinear(p, C)[0], _ours(store, C, tol=LEAST_TOL)[0], p, C), LEAST_TOL)
        records.append(_against_liblinear(name, p, store, C, bench.sizes.runs, tol=tol) | {"tol": f"{tol:.1e}"})
    notes = [
        "tol of ours: the share of its objective by which LIBLINEAR, with its default tol, may be above the minimum; "
        f"at least {LEAST_TOL:g}",
        "C: the default of both; score: accuracy; ours reads a store in each fit",
        "topics are generated in the shape of news20, 20 classes, each against the rest",
    ]
    return [Table("Sparse rows", records, notes, [_is_as_low(row, 1e-5) for row in records])]


def _against_liblinear(name: str, p: Problem, store: Store, C: float, runs: int, **options: Any) -> dict[str, Any]:
    """Ours and LIBLINEAR in turn, after fits that are not counted."""
    fits = [(_ours(store, C, **options), _liblinear(p, C)) for _ in range(runs)]
    ours, peers = zip(*fits, strict=True)
    svm, peer = ours[0][0], peers[0][0]
    found, best = _primal(svm, p, C), _primal(peer, p, C)
    seconds, peer_seconds = (Spread.of([s for _, s in those]) for those in (ours, peers))
    return {
        "data": name,
        "rows": len(p.y),
        "features": p.X.shape[1],
        "C": C,
        "objective": f"{found:.7g}",
        "LIBLINEAR's objective": f"{best:.7g}",
        "objective / LIBLINEAR's": f"{found / best:.6f}",
        "seconds": seconds,
        "LIBLINEAR": peer_seconds,
        "ratio": Factor(seconds.median / peer_seconds.median),
        "passes": svm.n_passes_,
        "score": Share(p.score(p.y_test, svm.decision_function(p.X_test))),
        "LIBLINEAR's": Share(p.score(p.y_test, peer.decision_function(p.X_test))),
        "LIBLINEAR ended": "yes" if peer.n_iter_ < peer.max_iter else "at 1,000 rounds",
    }


def _is_as_low(row: dict[str, Any], more: float) -> tuple[str, bool]:
    what = f"{row['data']}: objective at most {more:.0e} above LIBLINEAR's".replace("e-0", "e-")
    return what, float(row["objective / LIBLINEAR's"]) <= 1 + more


def sgd(bench: Bench) -> list[Table]:
    """At the C that `objective` finds best."""
    records = []
    for name, best in BEST_C.items():
        p, C = problem(name, bench), min(best, grid(bench)[-1])
        svm, seconds = _ours(stored(name, p, bench), C)
        peer, peer_seconds = timed(SGDClassifier(alpha=1 / (C * len(p.y)), random_state=0), for_peers(p.X), p.y)
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
    notes = ["at the C that is best for ours; SGDClassifier has its rows in memory, ours reads a store"]
    return [Table("Next to stochastic gradient descent", records, notes)]


def outofcore(bench: Bench) -> list[Table]:
    large, small = (8_100_000, 1_000_000) if bench.sizes.train_rows is None else (600, 200)
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
            "--no-search",
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


def blocks(bench: Bench) -> list[Table]:
    """Blocks of rows, which `auto` takes, next to planes, and to the same rows in memory."""
    limit_mib, passes = 1500 if bench.sizes.is_quick else 480, 300
    limit = f"{limit_mib}MiB"
    records, checks = [], []
    ways = {
        "blocks": ("--memory-limit", limit),
        "planes": ("--memory-limit", limit, "--set", "cutting_plane.method=ocas"),
        "in memory": ("--set", "cutting_plane.method=dual"),
    }
    for name, is_unequal in (("text", False), ("text, unequal lengths", True)):
        url, fits = str(text(bench, BLOCKS_ROWS, is_unequal=is_unequal).url), {}
        for way, options in ways.items():
            common = ("--no-search", "--solver", "cutting-plane", "--kernel", "linear", "--scale", "none", "--force")
            most = ("--set", f"cutting_plane.passes={passes}")
            fit = bench.command("fit", "--store", url, "--model", bench.work / "text.model", *common, *most, *options)
            fits[way] = fit
            records.append(
                {
                    "data": name,
                    "way": way,
                    "peak memory": Bytes(fit.peak_rss_bytes),
                    "seconds": Seconds(fit.seconds),
                    "CPU seconds": Seconds(fit.cpu_seconds),
                    "passes": fit.result["passes"],
                    "gap / objective": f"{fit.result['gap'] / fit.result['objective']:.1e}",
                    "converged": "yes" if fit.result["converged"] else f"no, at {passes} passes",
                }
            )
        most_bytes, ratio = fits["blocks"].peak_rss_bytes, fits["blocks"].cpu_seconds / fits["in memory"].cpu_seconds
        checks += [
            (f"{name}: blocks are under the limit", most_bytes <= limit_mib << 20),
            (
                f"{name}: blocks take fewer passes than planes",
                fits["blocks"].result["passes"] < fits["planes"].result["passes"],
            ),
            (f"{name}: blocks take at most 3 times the CPU time of rows in memory", ratio <= 3),
        ]
    notes = [
        f"blocks and planes with --memory-limit {limit}, whole commands",
        "passes: the times that rows were read; in memory, visits of rows by their number",
        "text is generated, see text_rows.py; with unequal lengths each row is multiplied by lognormal(2.5, 1)",
    ]
    return [Table("Beyond memory: sparse rows", records, notes, checks)]


def _ours(store: Store, C: float, **options: Any) -> tuple[CuttingPlaneSVC, float]:
    return timed(CuttingPlaneSVC(C=C, **options), store)


def _liblinear(p: Problem, C: float) -> tuple[LinearSVC, float]:
    return timed(LinearSVC(C=C, loss="hinge", random_state=0), for_peers(p.X), p.y)


def _primal(svm: Any, p: Problem, C: float) -> float:
    """The objective, summed over the classes if each is against the rest."""
    W, b = svm.coef_, np.ravel(svm.intercept_)
    loss = np.maximum(0, 1 - p.signs() * (p.X @ W.T + b)).sum()
    return 0.5 * float((W * W).sum() + b @ b) + C * float(loss)


def _excess(peer: LinearSVC, precise: CuttingPlaneSVC, p: Problem, C: float) -> float:
    """The share of a peer's objective by which it is above a bound below the minimum, that of a precise fit."""
    objective = _primal(peer, p, C)
    return 1 - (precise.objective_ - precise.dual_gap_) / objective


def _pass_seconds(run_dir: Path) -> float:
    """The median time of a step but the first, from a run's log."""
    return float(np.median(np.diff([step.t for step in read_run(run_dir).of(Step)])))


ITEMS = {
    "outofcore": outofcore,  # first: a command starts as a copy of this process, whose memory is small only now
    "blocks": blocks,  # the same
    "objective": objective,
    "sgd": sgd,
    "sparse": sparse_rows,
    "ranking": rankings,
}


if __name__ == "__main__":
    CuttingPlaneSVC().fit([[0.0], [1.0]], [0, 1])  # compiles
    for method in ("ocas", "dual"):
        CuttingPlaneSVC(method=method).fit(sparse.csr_array([[0.0], [1.0]]), [0, 1])
    CuttingPlaneRanker().fit([[0.0], [1.0]], [0, 1])
    print_tables(__doc__, ITEMS)
