"""The kernels side by side: what their values take, and how well they distinguish classes.

    python pipelines/kernels_table.py --data DIR [--only ITEM[,ITEM...]] [--quick] [--out kernels.md]

Items, and the files they need in --data DIR:
    tiles     none                                        values a second on one core, each multiplied and added up at
                                                          once, by the number of features
    sets      covtype.csv.gz ijcnn1.bz2 ijcnn1.t.bz2      fits of 20,000 rows, gamma "scale", C = 10, and test accuracy
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from bench import Bench, print_tables
from scipy import sparse
from tables import Factor, Seconds, Share, Table
from threadpoolctl import threadpool_limits

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel, kernel_from
from streamsvm.kernels.table import KERNELS, kernel_names

ROWS, COLUMNS, FIT_ROWS = 40_000, 2_048, 20_000
WIDTHS = ((8, 1.0), (54, 1.0), (123, 0.11), (784, 1.0))  # features, and the share that is not zero
SMOOTHNESS = (0.5, 1.5, 2.5)


def named(name: str) -> list[tuple[str, dict[str, Any]]]:
    """A kernel by its name and options; of matern all three."""
    if "nu" not in KERNELS[name].parameters:
        return [(name, {"name": name})]
    return [(f"{name}, nu {nu}", {"name": name, "nu": nu}) for nu in SMOOTHNESS]


def tiles(bench: Bench) -> list[Table]:
    records: list[dict[str, Any]] = []
    rows = 200 if bench.sizes.is_quick else ROWS
    with threadpool_limits(1):
        for shown, options in (pair for name in kernel_names() for pair in named(name)):
            speeds = {}
            for d, share in WIDTHS:
                kernel = kernel_from({"gamma": 1 / d, "degree": 3, "coef0": 1.0, "nu": 1.5} | options)
                layout = f"{d} features" + (f", {share:.0%} filled" if share < 1 else "")
                speeds[layout] = Factor(1e-9 * _values_a_second(kernel, rows, d, share))
            records.append({"kernel": shown, **speeds})
    notes = [
        "values are multiplied by coefficients and added up at once; the best of five, by the CPU time of one core",
        "laplacian needs absolute differences, which are not a matrix product",
    ]
    return [Table(f"1e9 values a second and core, {COLUMNS:,} columns", records, notes)]


def _values_a_second(kernel: Kernel, rows: int, d: int, share: float) -> float:
    """The best of five, by the processor's clock of this thread."""
    rng = np.random.default_rng(0)
    a, b = (_random(rng, n, d, share) for n in (max(64, rows * 54 // max(d, 54)), COLUMNS))
    coef, seconds = rng.normal(size=COLUMNS), []
    for _ in range(6):  # the first one compiles
        start = time.thread_time()
        kernel.apply(a, b, coef)
        seconds.append(time.thread_time() - start)
    return len(a) * COLUMNS / min(seconds[1:])


def _random(rng: np.random.Generator, n: int, d: int, share: float) -> Rows:
    X = rng.normal(size=(n, d)).astype(np.float32)
    return Rows(X if share == 1 else sparse.csr_array(X * (rng.random(X.shape) < share)))


def sets(bench: Bench) -> list[Table]:
    return [_fits(bench, name) for name in ("covtype", "ijcnn1")]


def _fits(bench: Bench, data: str) -> Table:
    train, test = bench.stores(data)
    train = bench.copies(train, min(FIT_ROWS, bench.sizes.train_rows or FIT_ROWS))
    records, model = [], bench.work / "model"
    kernels = [pair for name in kernel_names() for pair in named(name)]
    for shown, options in kernels:
        solver = "cutting-plane" if KERNELS[options["name"]].is_linear else "alfpgm"  # LIBSVM's problem
        words = [word for key, value in options.items() for word in ("--set", f"kernel.{key}={value}")]
        common = (
            "--no-search",
            "--store",
            train,
            "--model",
            model,
            "--force",
            "--scale",
            "standard",
            "--C",
            10,
            "--solver",
            solver,
        )
        fits = [bench.command("fit", *common, *words) for _ in range(1 if bench.sizes.is_quick else 2)]
        score = bench.command("evaluate", "--model", model, "--store", test)
        found = fits[-1].result  # the first one compiles
        records.append(
            {
                "kernel": shown,
                "gamma": found["gamma"],
                "CPU": Seconds(fits[-1].cpu_seconds),
                "support vectors": found["n_support"],
                "accuracy": Share(score.result["accuracy"]),
            }
        )
    notes = [
        "LIBSVM's problem (alfpgm, linear by cutting-plane), gamma `scale`, nothing tuned",
        "CPU seconds of the whole command, one run after one that compiles; accuracy on the test rows",
    ]
    return Table(f"{data}, {FIT_ROWS:,} rows, standardised, C = 10", records, notes)


ITEMS = {"tiles": tiles, "sets": sets}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
