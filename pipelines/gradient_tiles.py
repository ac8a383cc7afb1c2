"""What gradients of kernels take, next to their values: both by tiles, multiplied by coefficients and added up at once.

    python pipelines/gradient_tiles.py [--only ITEM[,ITEM...]] [--quick] [--out gradients.md]

Items, none of which needs data:
    ratio     gradients with one column of coefficients over `apply` on the same rows, on one core and two, by the
              number of features
    columns   the same with several columns, over the gradients with one

Both are timed alternating, in CPU seconds of all threads; a cell is the median ratio of the pairs and their range.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from bench import Bench, print_tables
from scipy import sparse
from tables import Table
from threadpoolctl import threadpool_limits

from streamsvm.data.rows import Rows
from streamsvm.kernels.base import Kernel, kernel_from

ROWS, SUPPORT, PAIRS, MOST = 8_192, 4_096, 7, 2.2
WIDTHS = (
    (8, 1.0),
    (16, 1.0),
    (54, 1.0),
    (123, 1.0),
    (123, 0.11),
    (784, 1.0),
)  # features, share that is not zero
NAMES = ("rbf", "matern", "laplacian")
COLUMNS = (3, 10, 45)


def ratio(bench: Bench) -> list[Table]:
    records: list[dict[str, Any]] = []
    medians: dict[str, list[float]] = {name: [] for name in NAMES}
    for d, share in WIDTHS:
        record: dict[str, Any] = {"features": f"{d}, {share:.0%} filled" if share < 1 else str(d)}
        for name in NAMES:
            kernel, a, b, coef = _made(bench, name, d, share)
            for threads, cores in ((1, "one core"), (2, "two")):
                found = _ratios(
                    bench,
                    lambda: kernel.apply(a, b, coef, threads),  # noqa: B023
                    lambda: kernel.gradients(a, b, coef, threads),  # noqa: B023
                )
                record[f"{name}, {cores}"] = _shown(found)
                medians[name].append(statistics.median(found))
        records.append(record)
    checks = [
        (f"{name}: at most {MOST} (the largest median is {max(found):.2f})", max(found) <= MOST)
        for name, found in medians.items()
    ]
    notes = [
        "CPU seconds of `Kernel.gradients` over those of `Kernel.apply`, one column of coefficients, alternating: "
        "the median of seven pairs and their range",
        f"{ROWS:,} rows, fewer from 123 features on, {SUPPORT:,} support vectors; matern has nu 0.5",
    ]
    return [Table("Gradients over values", records, notes, checks)]


def columns(bench: Bench) -> list[Table]:
    records = []
    for name in NAMES:
        kernel, a, b, coef = _made(bench, name, 54, 1.0)
        record: dict[str, Any] = {"kernel": name}
        for k in COLUMNS:
            many = np.tile(coef[:, None], k)
            found = _ratios(
                bench,
                lambda: kernel.gradients(a, b, coef),  # noqa: B023
                lambda: kernel.gradients(a, b, many),  # noqa: B023
            )
            record[f"{k} columns"] = _shown(found)
        records.append(record)
    notes = ["one tile of slopes serves all columns of coefficients; CPU seconds, as above"]
    return [Table("Several columns over one, 54 features", records, notes)]


def _made(bench: Bench, name: str, d: int, share: float) -> tuple[Kernel, Rows, Rows, np.ndarray]:
    """A kernel whose values are neither 0 nor 1, rows, support rows and coefficients."""
    rng, rows = np.random.default_rng(0), 200 if bench.sizes.is_quick else ROWS * 54 // max(54, d)
    gamma = d**-0.5 if name == "matern" else 1 / d
    kernel = kernel_from({"name": name, "gamma": gamma, "nu": 0.5})
    a, b = (_random(rng, n, d, share) for n in (rows, min(10 * rows, SUPPORT)))
    return kernel, a, b, rng.normal(size=len(b))


def _random(rng: np.random.Generator, n: int, d: int, share: float) -> Rows:
    X = rng.normal(size=(n, d)).astype(np.float32)
    return Rows(X if share == 1 else sparse.csr_array(X * (rng.random(X.shape) < share)))


def _ratios(bench: Bench, one: Callable[[], Any], other: Callable[[], Any]) -> list[float]:
    """Of the second over the first, alternating; the first pair compiles and is not counted."""
    with threadpool_limits(1):
        pairs = [(_seconds(one), _seconds(other)) for _ in range(2 if bench.sizes.is_quick else PAIRS + 1)]
    return [after / before for before, after in pairs[1:]]


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _shown(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


ITEMS = {"ratio": ratio, "columns": columns}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
