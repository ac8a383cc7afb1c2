"""Memory and rows a second as the rows grow: whole commands on made-up stores of 8 columns. Linux or macOS.

    python pipelines/scale_table.py [--rows 1000000,10000000] [--only ITEM[,ITEM...]] [--quick] [--work DIR] [--out OUT]

Items, none of which needs data; each is a `streamsvm fit` in a process of its own, within 2 GiB:
    budget    one epoch of descent on a budget of 50
    early     DC-SVM with early prediction

Stores are written block by block: block i of 65,536 rows is a function of i alone, so that a smaller store is the
beginning of a larger one. Of `--rows 100000000`, which are 3.2 GB of floats, about 1 GB goes to the disk.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench, from_arguments
from measure import Run
from tables import Bytes, Factor, Report, Seconds, Table

from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter

ROWS, QUICK_ROWS = (1_000_000, 10_000_000), (20_000, 40_000)
COLUMNS, BLOCK_ROWS = 8, 1 << 16
WRONG = 0.02  # of the labels
LIMIT = "2GiB"
FITS = {
    "budget": ("Descent on a budget of 50", ("--solver", "bsgd", "--set", "bsgd.budget=50")),
    "early": ("Early prediction", ("--set", "dcsvm.early=true")),
}


def block(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels: 256 values a column, of which three tell the class."""
    rng = np.random.default_rng([24, number])
    X = rng.integers(0, 256, (BLOCK_ROWS, COLUMNS)).astype(np.float32)
    inside = np.cos(X[:, :3] * (np.pi / 128)).sum(axis=1) > 0
    return X, (inside ^ (rng.random(BLOCK_ROWS) < WRONG)).astype(np.int64)


def made(work: Path, rows: int) -> Path:
    """The store of so many rows, where it is not there yet."""
    url = work / f"scale.{rows}.zarr"
    if url.exists():
        return url
    with StoreWriter(url, d=COLUMNS, dtype=np.float32, attrs={"generated": Path(__file__).name}) as store:
        for number in range(-(-rows // BLOCK_ROWS)):
            X, y = block(number)
            n = min(BLOCK_ROWS, rows - store.n)
            store.append(Rows(X[:n]), y[:n])
    return url


def table(bench: Bench, name: str, sizes: Sequence[int]) -> Table:
    """One fit at each size, and its memory over that of the fewest rows."""
    title, words = FITS[name]
    records: list[dict[str, Any]] = []
    for rows in sizes:
        model = bench.work / f"scale.{name}.model"
        fit = bench.told(
            *("fit", "--store", made(bench.work, rows), "--model", model, "--force", "--no-search"),
            *("--memory-limit", LIMIT, *words),
        )
        records.append(_record(rows, fit))
        records[-1]["memory / first"] = Factor(fit.peak_rss_bytes / records[0]["peak memory"])
    return Table(title, records, ["whole commands; peak memory of the leading process"])


def _record(rows: int, fit: Run) -> dict[str, Any]:
    return {
        "rows": rows,
        "seconds": Seconds(fit.seconds),
        "CPU seconds": Seconds(fit.cpu_seconds),
        "rows a second": round(rows / fit.seconds),
        "support vectors": fit.result["n_support"],
        "peak memory": Bytes(fit.peak_rss_bytes),
    }


def _sizes(text: str) -> list[int]:
    return [int(rows) for rows in text.split(",")]


def _items(text: str) -> list[str]:
    unknown = [name for name in text.split(",") if name not in FITS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: no such item; there are {', '.join(FITS)}")
    return text.split(",")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=_sizes, metavar="N[,N...]", help="sizes of the stores, rising")
    parser.add_argument("--only", type=_items, default=list(FITS), metavar="ITEM[,ITEM...]")


def main() -> None:
    with from_arguments(__doc__, _options) as (bench, args):
        sizes = args.rows or (QUICK_ROWS if args.quick else ROWS)
        report = Report(args.out)
        for name in args.only:
            report.add([table(bench, name, sizes)])


if __name__ == "__main__":
    main()
