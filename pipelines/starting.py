"""What stands before the work of a fit: compiling, imports and silence. Linux or macOS.

    python pipelines/starting.py --data DIR [--only ITEM[,ITEM...]] [--quick] [--out starting.md]

Items, and the files they need in --data DIR:
    compile   ijcnn1.bz2 ijcnn1.t.bz2   CPU seconds of each solver's first fit, of 3,000 rows, with nothing compiled,
                                        beyond its second one
    outside   ijcnn1.bz2 ijcnn1.t.bz2   CPU seconds of a warm `fit --store` next to its phases: imports, options, exit
    silence   none                      the longest time without a progress record, in warm fits of 200,000 deformed
                                        digits
    help      none                      seconds of `streamsvm --help`
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import Any

from bench import STREAMSVM, Bench, asking_for, print_tables
from measure import Spread, run
from tables import Factor, Seconds, Table

from streamsvm.config import build_config
from streamsvm.demo import write_stores
from streamsvm.events import Event, Events, Progress, Record
from streamsvm.solvers.catalogue import solver_names
from streamsvm.train import train

COMPILED = {"dcsvm": 6, "cutting-plane": 5, "admm-hss": 5}  # CPU seconds that compiling may take
MOST_COMPILED = 8  # for other solvers
ROWS = 200_000
DIGITS: dict[str, dict[str, Any]] = {  # options of fits
    "dcsvm, early": {"dcsvm": {"early": True}},
    "dcsvm, exact": {},
    "cutting-plane": {"solver": "cutting-plane", "kernel": {"name": "linear"}, "tol": 0.01},
} | {name: {"solver": name} for name in solver_names() if name not in ("dcsvm", "cutting-plane")}


def compile_(bench: Bench) -> list[Table]:
    store = bench.copies(bench.stores("ijcnn1")[0], min(3_000, bench.sizes.subset_rows))
    records, checks = [], []
    for solver in solver_names():
        most = COMPILED.get(solver, MOST_COMPILED)
        model = ("--model", bench.work / "m", "--force")
        command = ("fit", "--no-search", "--store", store, *model, *asking_for(solver))
        with bench.nothing_compiled() as env:
            first, second = (bench.command(*command, env=env) for _ in range(2))
        more = first.cpu_seconds - second.cpu_seconds
        phase = first.result["seconds_by_phase"].get("compile", 0.0)
        records.append(
            {
                "solver": solver,
                "first, CPU": Seconds(first.cpu_seconds),
                "second, CPU": Seconds(second.cpu_seconds),
                "more": Seconds(more),
                "phase `compile`": Seconds(phase),
            }
        )
        checks.append((f"{solver}: at most {most} CPU seconds more ({more:.1f})", more <= most))
    notes = ["CPU seconds of whole fits of 3,000 rows of ijcnn1; more: of the first, which compiles, over the second"]
    return [Table("Compiling", records, notes, checks)]


def beside(bench: Bench) -> list[Table]:
    store = bench.stores("ijcnn1")[0]
    command = ("fit", "--no-search", "--store", store, "--force")
    found = []
    for number in bench.sizes.numbers:
        each = bench.command(*command)
        seconds, busy = each.result["seconds_by_phase"], each.result["cores_busy_by_phase"]
        work = sum(seconds[name] * busy[name] for name in seconds if name not in ("start", "other"))
        if number >= 0:
            found.append((each.cpu_seconds, each.cpu_seconds - work, each.seconds))
    whole, outside, wall = (Spread.of(values) for values in zip(*found, strict=True))
    record = {
        "command": "fit --no-search --store ijcnn1.zarr",
        "seconds": wall,
        "CPU": whole,
        "outside the phases": outside,
    }
    most = statistics.median(outside.values)
    notes = ["outside the phases: CPU seconds of imports, options and exit"]
    checks = [(f"at most 1.5 CPU seconds ({most:.2f})", most <= 1.5)]
    return [Table("Outside the solver", [record], notes, checks)]


def silence(bench: Bench) -> list[Table]:
    records = []
    rows = 20 * bench.sizes.subset_rows if bench.sizes.is_quick else ROWS
    folder = bench.work / f"digits-{rows}"
    if not folder.exists():
        folder.mkdir()
        write_stores(folder, rows)
    for name, options in DIGITS.items():
        config = build_config(("recipe", {"scale": "minmax", "C": 10.0, "kernel": {"gamma": 0.05}} | options))
        times: list[float] = []
        for _ in bench.sizes.numbers[:2]:  # the first one compiles
            times = _times(bench, folder, config)
        longest = max(b - a for a, b in pairwise(times))
        records.append(
            {
                "fit": f"{name}, {rows:,} rows",
                "seconds": Seconds(times[-1] - times[0]),
                "records": len(times) - 2,
                "longest silence": Seconds(longest),
            }
        )
    worst = max(record["longest silence"] for record in records)
    return [Table("Silence", records, [], [(f"at most 3 s without a word ({worst:.2f})", worst <= 3)])]


def _times(bench: Bench, folder: Any, config: Any) -> list[float]:
    """When a fit began, made progress, and ended."""
    from streamsvm.data.store import Store

    times = [time.perf_counter()]

    def listen(record: Record[Event]) -> None:
        if isinstance(record.event, Progress):
            times.append(time.perf_counter())

    train(Store.open(str(folder / "train.zarr")), config, model_path=bench.work / "m", events=Events(listen))
    return [*times, time.perf_counter()]


def help_(bench: Bench) -> list[Table]:
    shown = [run([*STREAMSVM, "--help"]) for _ in range(1 + max(3, bench.sizes.runs))][1:]
    seconds = Spread.of([each.seconds for each in shown])
    cpu = sum(each.cpu_seconds for each in shown) / sum(seconds.values)
    record = {"command": "--help", "seconds": seconds, "cores busy": Factor(cpu)}
    return [Table("Help", [record], [], [("--help in less than 0.5 s", seconds.median < 0.5)])]


ITEMS = {"compile": compile_, "outside": beside, "silence": silence, "help": help_}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
