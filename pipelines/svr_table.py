"""Kernel regression next to LIBSVM and scikit-learn-intelex, on synthetic rows. Linux.

    python pipelines/svr_table.py [--only exact,early] [--peers libsvm,intelex] [--rows N] [--quick] [--out svr.md]

Items, none of which needs data:
    exact    50,000 rows: DCSVR, SVR (LIBSVM) and, where --peers asks for it, scikit-learn-intelex's (--peer-python: an
             interpreter that has it), each in a separate process; seconds of a fit after one of few rows
    early    a million rows: early prediction by the command, within 2 GiB, next to the exact solution on 50,000 of them

Rows have eight columns, uniform in -1..1, and a smooth function of them as labels, with noise of deviation 0.1, which
leaves an R2 of 0.985; R2 is of 50,000 others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench, from_arguments
from measure import run
from oneclass_table import listed
from tables import Bytes, Factor, Report, Seconds, Table

from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter

COLUMNS, NOISE, C, GAMMA, EPSILON = 8, 0.1, 10, 1, 0.1
EXACT_ROWS, EARLY_ROWS, TEST_ROWS, BLOCK_ROWS, QUICK_ROWS = 50_000, 1_000_000, 50_000, 50_000, 600
PEERS = {"libsvm": "SVR (LIBSVM)", "intelex": "scikit-learn-intelex"}
TEST = 1 << 20  # the number of the block to test on


def block(number: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([24, number])
    X = rng.uniform(-1, 1, (rows, COLUMNS)).astype(np.float32)
    smooth = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(4 * X[:, 3]) + 0.3 * X[:, 4] ** 2
    return X, smooth + NOISE * rng.normal(size=rows)


def arrays(work: Path, name: str, number: int, rows: int) -> Path:
    path = work / f"smooth.{name}.{rows}.npz"
    if not path.exists():
        X, y = block(number, rows)
        np.savez(path, X=X, y=y)
    return path


def stored(work: Path, name: str, first: int, rows: int) -> Path:
    path = work / f"smooth.{name}.{rows}.zarr"
    if not path.exists():
        with StoreWriter(str(path), d=COLUMNS, dtype=np.dtype(np.float32), is_sparse=False) as writer:
            for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
                X, y = block(first + number, min(BLOCK_ROWS, rows - start))
                writer.append(Rows(X), y)
    return path


def fitted(bench: Bench, kind: str, train: Path, test: Path) -> dict[str, Any]:
    """What `svr_worker.py` says, in a separate process; in a quick run here."""
    given = [kind, *map(str, (train, test, C, GAMMA, EPSILON))]
    if bench.sizes.is_quick and kind != "intelex":
        import svr_worker

        return svr_worker.main(given)
    python = bench.peer_python if kind == "intelex" else sys.executable
    found: dict[str, Any] = run([python, HERE / "svr_worker.py", *given]).result
    return found


def record(name: str, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "solver": name,
        "seconds": Seconds(found["seconds"]),
        "R2": f"{found['r2']:.4f}",
        "objective": f"{found['objective']:.7g}" if "objective" in found else None,
        "support vectors": found["n_support"],
        "peak memory": Bytes(found["peak_rss_bytes"]),
    }


def exact(bench: Bench, args: argparse.Namespace) -> Table:
    rows = QUICK_ROWS if bench.sizes.is_quick else args.rows or EXACT_ROWS
    files = arrays(bench.work, "train", 0, rows), arrays(bench.work, "test", TEST, min(rows, TEST_ROWS))
    ours = fitted(bench, "exact", *files)
    records, checks = [record("streamsvm, exact", ours)], []
    for kind in args.peers:
        found = fitted(bench, kind, *files)
        times, off = found["seconds"] / ours["seconds"], abs(ours["objective"] / found["objective"] - 1)
        records.append(record(PEERS[kind], found) | {"times ours": Factor(times)})
        checks += [
            (f"5 times as fast as {PEERS[kind]}", times >= 5),
            (f"objective within 1e-4 of that of {PEERS[kind]}", off <= 1e-4),
        ]
    notes = [
        "a smooth function of uniform columns, with noise that leaves an R2 of 0.985; fits in memory, each in a "
        "separate process after one of few rows",
        f"C {C}, gamma {GAMMA}, epsilon {EPSILON}; gap of ours {ours['gap'] / abs(ours['objective']):.1e}",
    ]
    return Table(f"Exact: {rows:,} rows of {COLUMNS} columns", records, notes, checks)


def early(bench: Bench, args: argparse.Namespace) -> Table:
    rows = 4 * QUICK_ROWS if bench.sizes.is_quick else args.rows or EARLY_ROWS
    few = min(EXACT_ROWS, rows // 4)
    store, held = stored(bench.work, "train", 0, rows), stored(bench.work, "test", TEST, min(rows, TEST_ROWS))
    files = arrays(bench.work, "train", 0, few), arrays(bench.work, "test", TEST, min(rows, TEST_ROWS))
    model = bench.work / "svr.model"
    fit = bench.command(
        *("fit", "--task", "regress", "--no-search", "--early", "--memory-limit", "2GiB", "--seed", 0),
        *("--C", C, "--gamma", GAMMA, "--set", f"epsilon={EPSILON}", "--set", "scale_targets=false"),
        *("--store", store, "--model", model, "--force"),
        *(("--set", "dcsvm.levels=1") if bench.sizes.is_quick else ()),
    )
    score = bench.command("evaluate", "--model", model, "--store", held).result
    whole = fitted(bench, "exact", *files)
    found = {
        "seconds": fit.seconds,
        "r2": score["r2"],
        "n_support": fit.result["n_support"],
        "peak_rss_bytes": fit.peak_rss_bytes,
    }
    records = [
        record("streamsvm, early, whole command", found),
        record(f"streamsvm, exact, {few:,} rows", whole),
    ]
    checks = [
        ("60 s", fit.seconds <= 60),
        ("R2 within 0.005 of exact on few", score["r2"] >= whole["r2"] - 0.005),
    ]
    notes = [f"within 2 GiB, {fit.result.get('n_parts')} partitions; R2 of {TEST_ROWS:,} others, noise leaves 0.985"]
    return Table(f"Early: {rows:,} rows", records, notes, checks)


ITEMS = {"exact": exact, "early": early}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=listed(ITEMS), default=list(ITEMS), metavar="ITEM[,ITEM...]")
    parser.add_argument("--peers", type=listed(PEERS), default=["libsvm"], metavar="PEER[,PEER...]")
    parser.add_argument("--rows", type=int, metavar="N")


if __name__ == "__main__":
    with from_arguments(__doc__, add) as (bench, args):
        report = Report(args.out)
        for item in args.only:
            report.add([ITEMS[item](bench, args)])
