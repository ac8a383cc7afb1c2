"""Outliers by one-class SVMs next to scikit-learn's detectors, on synthetic rows. Linux.

    python pipelines/oneclass_table.py [--only exact,early] [--nu 0.05,0.5] [--rows N] [--quick] [--out oneclass.md]

Items, none of which needs data:
    exact    100,000 rows of two columns: streamsvm, OneClassSVM (LIBSVM), SGDOneClassSVM over Nystroem features, and
             IsolationForest, each in a separate process; seconds of a fit after one of few rows
    early    a million rows of eight columns: early prediction by the command, within 2 GiB, next to the exact solution
             on 50,000 of the rows, Nystroem features and IsolationForest; at the first --nu

Rows are of eight clouds, one in twenty a row from anywhere around them; so are the 20,000 rows that the area under the
ROC curve is of, whose labels say which is which. LIBSVM at nu 0.5 takes many minutes; --peers leaves some out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench, from_arguments, stored
from measure import run
from tables import Bytes, Factor, Report, Seconds, Share, Table

from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter

CLOUDS, WRONG, TEST_ROWS, BLOCK_ROWS = 8, 0.05, 20_000, 50_000
EXACT_ROWS, EARLY_ROWS, WHOLE_ROWS, QUICK_ROWS = 100_000, 1_000_000, 50_000, 600
CLOUDED = (
    "rows of eight clouds, one in twenty from anywhere around them, and the ROC area of 20,000 others. Fits in memory, "
    "each in a separate process after one of few rows"
)
PEERS = {
    "libsvm": "OneClassSVM (LIBSVM)",
    "nystroem": "SGDOneClassSVM, 300 Nystroem features",
    "forest": "IsolationForest",
}


def block(number: int, rows: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and 1 of those that are outliers."""
    centres = np.random.default_rng(d).uniform(-6, 6, (CLOUDS, d))
    rng = np.random.default_rng([25, number])
    is_outlier = rng.random(rows) < WRONG
    near = centres[rng.integers(0, CLOUDS, rows)] + rng.normal(size=(rows, d))
    anywhere = rng.uniform(-10, 10, (rows, d))
    return np.where(is_outlier[:, None], anywhere, near).astype(np.float32), is_outlier.astype(np.int64)


def made(work: Path, rows: int, d: int) -> tuple[Path, Path, Path]:
    """A store without labels and the same rows as an array, and rows to test on."""
    store, array, test = (
        work / f"clouds{d}.{rows}.zarr",
        work / f"clouds{d}.{rows}.npy",
        work / f"clouds{d}.npz",
    )
    if not store.exists():
        blocks = [block(i, min(BLOCK_ROWS, rows - start), d) for i, start in enumerate(range(0, rows, BLOCK_ROWS))]
        with StoreWriter(str(store), d=d, dtype=np.dtype(np.float32), is_sparse=False) as writer:
            for X, _ in blocks:
                writer.append(Rows(X), None)
        np.save(array, np.concatenate([X for X, _ in blocks]))
    if not test.exists():
        X, y = block(1 << 20, TEST_ROWS, d)
        np.savez(test, X=X, y=y)
    return store, array, test


def fitted(bench: Bench, kind: str, *words: Any) -> dict[str, Any]:
    """What `oneclass_worker.py` says, in a separate process; in a quick run here."""
    given = [kind, *map(str, words)]
    if bench.sizes.is_quick:
        import oneclass_worker

        return oneclass_worker.main(given)
    found: dict[str, Any] = run([sys.executable, HERE / "oneclass_worker.py", *given]).result
    return found


def record(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "detector": name,
        "seconds": Seconds(found["seconds"]),
        "outliers": Share(found["outliers"]),
        "ROC area": f"{found['roc_auc']:.4f}",
        "objective": f"{found['objective']:.6g}" if "objective" in found else None,
        "rho": f"{found['rho']:.6g}" if found.get("rho") else None,
        "peak memory": Bytes(found["peak_rss_bytes"]),
    }


def exact(bench: Bench, args: argparse.Namespace) -> list[Table]:
    rows = QUICK_ROWS if bench.sizes.is_quick else args.rows or EXACT_ROWS
    _, array, test = made(bench.work, rows, 2)
    return [_exact(bench, array, test, rows, nu, args.peers) for nu in args.nu]


def _exact(bench: Bench, array: Path, test: Path, rows: int, nu: float, peers: Sequence[str]) -> Table:
    ours = fitted(bench, "exact", array, test, nu)
    records, checks = [record("streamsvm, exact", ours)], []
    for kind in peers:
        found = fitted(bench, kind, array, test, nu)
        times = Factor(found["seconds"] / ours["seconds"])
        records.append(record(PEERS[kind], found) | {"times ours": times})
        if "objective" in found:
            off = abs(ours["objective"] / found["objective"] - 1)
            checks += [("objective within 1e-4 of LIBSVM's", off <= 1e-4), ("20 times as fast", times >= 20)]
    notes = [
        CLOUDED,
        f"gamma 'scale', {ours['gamma']:.3g}; gap of ours {ours['gap'] / ours['objective']:.1e} of its objective",
    ]
    return Table(f"Exact: {rows:,} rows of 2 columns, nu {nu:g}", records, notes, checks)


def early(bench: Bench, args: argparse.Namespace) -> list[Table]:
    rows = 4 * QUICK_ROWS if bench.sizes.is_quick else args.rows or EARLY_ROWS
    store, array, test = made(bench.work, rows, 8)
    _, few, _ = made(bench.work, min(WHOLE_ROWS, rows // 2), 8)
    return [_early(bench, (store, array, few, test), rows, args.nu[0], args.peers)]


def _early(bench: Bench, files: tuple[Path, ...], rows: int, nu: float, peers: Sequence[str]) -> Table:
    store, array, few, test = files
    model, labelled = bench.work / "early.model", bench.work / "clouds8.t.zarr"
    with np.load(test) as held:
        stored(labelled, held["X"], held["y"])
    fit = bench.command(
        *("fit", "--task", "oneclass", "--nu", nu, "--early", "--seed", 0, "--memory-limit", "2GiB"),
        *("--store", store, "--model", model, "--force"),
        *(("--set", "dcsvm.levels=1") if bench.sizes.is_quick else ()),
    )
    share, score = (bench.command("evaluate", "--model", model, "--store", s).result for s in (store, labelled))
    whole = fitted(bench, "exact", few, test, nu, fit.result["gamma"])
    found = {
        "seconds": fit.seconds,
        "outliers": share["outliers"],
        "roc_auc": score["roc_auc"],
        "peak_rss_bytes": fit.peak_rss_bytes,
    }
    few_rows = min(WHOLE_ROWS, rows // 2)
    records = [
        record("streamsvm, early, whole command", found),
        record(f"streamsvm, exact, {few_rows:,} rows", whole),
    ]
    others = [kind for kind in peers if kind != "libsvm"]
    records += [record(PEERS[kind], fitted(bench, kind, array, test, nu)) for kind in others]
    checks = [
        ("60 s", fit.seconds <= 60),
        ("share of outliers within 0.5 % of nu", abs(share["outliers"] - nu) <= 0.005),
        ("ROC area within 0.01 of exact", abs(score["roc_auc"] - whole["roc_auc"]) <= 0.01),
    ]
    notes = [
        "the exact solution is of some of the rows, by a fit in memory, as are the others",
        f"gamma 'scale', {fit.result['gamma']:.3g}; {fit.result.get('n_parts')} partitions",
    ]
    return Table(f"Early: {rows:,} rows of 8 columns, nu {nu:g}", records, notes, checks)


ITEMS = {"exact": exact, "early": early}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=listed(ITEMS), default=list(ITEMS), metavar="ITEM[,ITEM...]")
    parser.add_argument("--peers", type=listed(PEERS), default=list(PEERS), metavar="PEER[,PEER...]")
    parser.add_argument(
        "--nu",
        type=lambda text: [float(nu) for nu in text.split(",")],
        default=[0.05, 0.5],
        metavar="NU[,NU...]",
    )
    parser.add_argument("--rows", type=int, metavar="N")


def listed(known: dict[str, Any]) -> Any:
    def chosen(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]}: there is no such; there are {', '.join(known)}")
        return text.split(",")

    return chosen


if __name__ == "__main__":
    with from_arguments(__doc__, add) as (bench, args):
        report = Report(args.out)
        for item in args.only:
            report.add(ITEMS[item](bench, args))
