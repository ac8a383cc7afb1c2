"""CPU time of a value in `streamsvm serve`, by the kind of its column: from parsed events to rows of a table.

    python pipelines/column_kinds.py [--columns 10] [--runs N] [--quick] [--out kinds.md]

For each kind a model of a table of 400 rows and --columns columns of it is fitted; then the rows of requests of 8,000
events are made, as the server makes them, several times. Numbers are those of a table that has other columns, too: a
table of numbers alone needs no encoding, and has a line by itself.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from bench import from_arguments
from measure import Spread
from tables import Report, Table

from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.serving.fixed import InputColumns
from streamsvm.train import train_in_memory

ROWS, EVENTS = 400, 8_000
COLOURS = ("red", "blue", "green", "grey", "black", "white", "brown", "pink")
KINDS = ("number, alone", "number", "true or false", "text", "hashed text", "time")


def value(kind: str, rng: np.random.Generator) -> Any:
    if kind.startswith("number"):
        return round(float(rng.normal()), 3)
    if kind == "true or false":
        return bool(rng.random() < 0.5)
    if kind == "time":
        return f"2026-01-{rng.integers(1, 29):02} {rng.integers(24):02}:{rng.integers(60):02}:00"
    return COLOURS[rng.integers(len(COLOURS))]


def columns_of(kind: str, count: int, folder: Path) -> tuple[InputColumns, list[dict[str, Any]]]:
    """What makes rows of a model with so many columns of a kind, and events for it."""
    rng = np.random.default_rng(0)
    names = [f"c{j}" for j in range(count)]
    events = [{name: value(kind, rng) for name in names} for _ in range(ROWS)]
    more = {} if kind == "number, alone" else {"colour": "red"}
    path = folder / "kinds.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*names, *more, "y"])
        writer.writeheader()
        writer.writerows(event | more | {"y": i % 2} for i, event in enumerate(events))
    hashed = dict.fromkeys(names, 16) if kind == "hashed text" else {}
    ingest([path], folder / "kinds.zarr", IngestOptions(label="y", hash=hashed, force=True))
    config = build_config(("recipe", {"solver": "cutting-plane", "kernel": {"name": "linear"}, "tol": 0.1}))
    with warnings.catch_warnings(action="ignore"):
        model, _ = train_in_memory(Store.open(folder / "kinds.zarr"), config)
    return InputColumns(model), [event | more for event in events]


def costs(kind: str, count: int, n: int, runs: int, folder: Path) -> Spread:
    """Microseconds of CPU time of a value, of each run; the first one does not count."""
    columns, some = columns_of(kind, count, folder)
    events = (some * (n // len(some) + 1))[:n]
    found = []
    for _ in range(runs + 1):
        began = time.process_time()
        columns.rows(events)
        found.append((time.process_time() - began) / (n * count) * 1e6)
    return Spread.of(found[1:])


def table(count: int, n: int, runs: int, folder: Path) -> Table:
    rows = []
    for kind in KINDS:
        found = costs(kind, count, n, runs, folder)
        low, high = min(found.values), max(found.values)
        told = {"µs a value": round(found.median, 2), "slowest": round(high, 2), "fastest": round(low, 2)}
        rows.append({"column": kind} | told)
    return Table("Columns by kind", rows)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", type=int, default=10, metavar="N")


if __name__ == "__main__":
    with from_arguments(__doc__, _options) as (bench, args):
        n, runs = (400, 1) if bench.sizes.is_quick else (EVENTS, max(5, bench.sizes.runs))
        Report(args.out).add([table(args.columns, n, runs, bench.work)])
