"""Fits of stores that are larger than the memory of a process, next to what others have for that. Linux.

    python pipelines/beyond_memory.py --data DIR [--only ITEM[,ITEM...]] [--quick] [--work DIR] [--out OUT]

Items; each fit is a process that may have 1 GiB, pages of files included, and some seconds:
    digits  {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz   2,000,000 deformed digits of 784 bytes
    rows    none                                              100,000,000 rows of 8 columns, as of scale_table.py

streamsvm chooses for itself, and descends on a budget. The others are XGBoost's external memory, LightGBM on sequences,
scikit-learn's SGD on features of Nystroem, block by block, and dask-ml's Incremental on the same ones: each grows or
repeats as long as it may, and shows the accuracy on other rows as it goes, whose time does not count.

Memory is limited by a control group: run it as root, and the folder of groups has to be writable, as on a machine or in
a privileged container. Needs the extra "bench", and 6 GB of disk for each item.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import HERE, STREAMSVM, Bench, print_tables
from beyond_worker import MISSING
from measure import CORES, Failed, Missing, Run, run
from scale_table import made, made_to_test
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm.parallel import cgroups

GiB = 1 << 30
SECONDS, QUICK_SECONDS = (30, 120, 480), (5,)  # budgets of streamsvm, the last one of all
DIGITS, ROWS, TEST_ROWS = 2_000_000, 100_000_000, 200_000
OURS = {"streamsvm": (), "streamsvm, budgeted descent": ("--solver", "bsgd")}
PEERS = {
    "xgboost": "XGBoost, external memory",
    "lightgbm": "LightGBM, sequences",
    "sgd": "scikit-learn, SGD on Nystroem features",
    "incremental": "dask-ml, Incremental on Nystroem features",
}


def digits(bench: Bench) -> list[Table]:
    n = bench.sizes.train_rows or DIGITS
    train = bench.work / f"digits.{n}.zarr"
    if not train.exists():
        run([sys.executable, HERE / "infinite_mnist.py", "--data", bench.data, "--store", train, "--rows", str(n)])
    return _tables(bench, "Deformed digits", train, bench.stores("mnist")[1], n)


def rows(bench: Bench) -> list[Table]:
    n = bench.sizes.train_rows or ROWS
    test = made_to_test(bench.work, min(n, TEST_ROWS))
    return _tables(bench, "Rows of 8 columns", made(bench.work, n), test, n)


def _tables(bench: Bench, title: str, train: Path, test: Path, n: int) -> list[Table]:
    budgets = QUICK_SECONDS if bench.sizes.is_quick else SECONDS
    records = [
        record
        for name, options in OURS.items()
        for seconds in budgets
        for record in _ours(bench, name, options, seconds, train, test, n)
    ]
    records += [record for kind in PEERS for record in _peer(bench, kind, budgets[-1], train, test)]
    for record in records:
        if "seconds" in record:
            record["rows a second and core"] = round(n * record["passes"] / record["seconds"] / CORES)
            del record["passes"]
    notes = [
        f"{n:,} rows, one run each; at most 1 GiB for a process, pages of files included, and {budgets[-1]} seconds; "
        "peak memory: without pages of files",
        f"streamsvm: as it chooses for itself within {', '.join(map(str, budgets))} seconds, without a limit of memory",
        "rows a second and core: counted as often as they were learned from, in the time of the whole command",
    ]
    return [Table(title, records, notes, _checks(records))]


def _checks(records: Sequence[dict[str, Any]]) -> list[tuple[str, bool]]:
    """Whether streamsvm is as accurate as XGBoost at its best, and as early."""
    accurate = [record for record in records if "accuracy" in record]
    theirs = max((r for r in accurate if r["method"] == PEERS["xgboost"]), key=lambda r: r["accuracy"], default=None)
    if theirs is None:
        return []
    ours = [r["seconds"] for r in accurate if r["method"] in OURS and r["accuracy"] >= theirs["accuracy"]]
    least = min(ours, default=float("inf"))
    what = f"as accurate as XGBoost, {Share(theirs['accuracy'])}, not behind its {Seconds(theirs['seconds'])}"
    return [(f"{what}: {Seconds(least)}" if ours else f"{what}: never", least <= theirs["seconds"])]


def _ours(
    bench: Bench, name: str, options: Sequence[str], seconds: int, train: Path, test: Path, n: int
) -> Iterator[dict[str, Any]]:
    model = bench.work / "beyond.model"
    budget = ("--time-budget", f"{seconds}s", "--force", "--json", *options)
    try:
        fit = _limited(bench, [*STREAMSVM, "fit", "--store", train, "--model", model, *budget])
        scores = _limited(bench, [*STREAMSVM, "evaluate", "--model", model, "--store", test, "--json"])
    except Failed as failure:
        yield {"method": name, "ended": _why(failure)}
        return
    yield _record(name, fit, fit.seconds, scores.result["accuracy"], fit.result["n"] / n)


def _peer(bench: Bench, kind: str, seconds: int, train: Path, test: Path) -> Iterator[dict[str, Any]]:
    points = bench.work / "beyond.jsonl"
    points.unlink(missing_ok=True)
    worker = [bench.peer_python, HERE / "beyond_worker.py", kind, train, test, str(seconds), bench.work, points]
    ended, fit = None, None
    try:
        fit = _limited(bench, worker)
    except Failed as failure:
        ended = _why(failure)
    for line in points.read_text(encoding="utf-8").splitlines() if points.exists() else ():
        point = json.loads(line)
        yield _record(PEERS[kind], fit, point["seconds"], point["accuracy"], point["passes"])
    if ended:
        yield {"method": PEERS[kind], "ended": ended}


def _record(name: str, fit: Run | None, seconds: float, accuracy: float, passes: float) -> dict[str, Any]:
    record = {"method": name, "seconds": Seconds(seconds), "accuracy": Share(accuracy), "passes": passes}
    return record | ({"peak memory": Bytes(fit.peak_rss_bytes), "cores busy": Factor(fit.cores)} if fit else {})


def _why(failure: Failed) -> str:
    status = str(failure).split(" of: ")[0]
    return {"exit status -9": "out of memory", f"exit status {MISSING}": "not installed"}.get(status, status)


def _limited(bench: Bench, command: Sequence[str | Path]) -> Run:
    """Runs a command within the limit. In a quick run, which measures nothing, without one."""
    if bench.sizes.is_quick:
        return run(command)
    with _group(GiB) as group:
        return run(["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', group, *command])


@contextmanager
def _group(limit_bytes: int) -> Iterator[Path]:
    """A control group that may have so many bytes. Raises Missing."""
    is_first = (cgroups.ROOT / "memory").is_dir()  # version 1
    folder = (cgroups.ROOT / "memory" if is_first else cgroups.ROOT) / f"streamsvm.{os.getpid()}"
    try:
        folder.mkdir()
        limit = folder / ("memory.limit_in_bytes" if is_first else "memory.max")
        limit.write_text(str(limit_bytes), encoding="ascii")
    except OSError as error:
        raise Missing(f"{folder}: {error.strerror}: run it as root where control groups can be made") from None
    try:
        yield folder
    finally:
        folder.rmdir()


ITEMS = {"digits": digits, "rows": rows}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
