"""Memory and rows a second as the rows grow: whole commands on synthetic stores of 8 columns. Linux or macOS.

    python pipelines/scale_table.py [--rows 1000000,10000000] [--only ITEM[,ITEM...]] [--part-rows N]
                                    [--workers N] [--quick] [--work DIR] [--out OUT]

Items, none of which needs data; each is a `streamsvm fit` in a separate process, within 2 GiB:
    budget    one epoch of descent on a budget of 50
    early     DC-SVM with early prediction
    linear    cutting planes, within 440 MiB, which leaves no memory for rows
    killed    early prediction, killed when half of its partitions are solved, resumed, and evaluated on other rows;
              with --part-rows, of at least as many levels as make partitions of N rows at most, on average.
              --workers: by as many local processes, within 2 GiB together
    plan      `--dry-run` of all on stores of 128 columns, of which all is there but the rows after the first chunk

Stores are written block by block: block i of 65,536 rows is a function of i alone, so that a smaller store is the
beginning of a larger one. A row takes 8 bytes of the disk, and 25 more while a fit divides the rows. Plans are of a
billion rows where nobody says how many.
"""

from __future__ import annotations

import argparse
import math
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import zarr
from bench import STREAMSVM, Bench, among, from_arguments
from measure import Run
from tables import Bytes, Factor, Report, Seconds, Share, Table

from streamsvm.data.labels import Classes
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import moments_of, write_statistics
from streamsvm.data.writer import StoreWriter
from streamsvm.events import Progress
from streamsvm.options.solvers import DCSVMConfig
from streamsvm.parallel.machine import peak_rss_bytes
from streamsvm.runs.directory import Tail
from streamsvm.storage.chunks import create_array
from streamsvm.storage.paths import STORE_MARK

ROWS, QUICK_ROWS = (1_000_000, 10_000_000), (20_000, 40_000)
COLUMNS, BLOCK_ROWS, CHUNK_ROWS = 8, 1 << 16, 1 << 13
WRONG = 0.02  # of the labels
TEST_ROWS = 10_000_000
LIMIT = "2GiB"
LINEAR = "--solver", "cutting-plane", "--kernel", "linear", "--scale", "standard", "--memory-limit", "440MiB"
PLAN_ROWS, PLAN_COLUMNS = (1_000_000_000,), 128
FITS = {
    "budget": ("Descent on a budget of 50", ("--solver", "bsgd", "--set", "bsgd.budget=50")),
    "early": ("Early prediction", ("--set", "dcsvm.early=true")),
    "linear": ("Cutting planes", LINEAR),
}
ITEMS = (*FITS, "killed", "plan")
CHILDREN = DCSVMConfig().children
FAR = 1 << 20  # the number of the first block of rows to test on
POLL_S = 0.5


def block(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels: 256 values a column, of which three decide the class."""
    rng = np.random.default_rng([24, number])
    X = rng.integers(0, 256, (BLOCK_ROWS, COLUMNS)).astype(np.uint8)
    inside = np.cos(X[:, :3] * (np.pi / 128)).sum(axis=1) > 0
    return X, (inside ^ (rng.random(BLOCK_ROWS) < WRONG)).astype(np.int64)


def made(work: Path, rows: int) -> Path:
    """The store of so many rows, where it is not there yet."""
    url = work / f"scale.{rows}.zarr"
    if url.exists():
        return url
    with StoreWriter(url, d=COLUMNS, dtype=np.uint8, attrs={"generated": Path(__file__).name}) as store:
        for number in range(-(-rows // BLOCK_ROWS)):
            X, y = block(number)
            n = min(BLOCK_ROWS, rows - store.n)
            store.append(Rows(X[:n]), y[:n])
    return url


def made_to_test(work: Path, rows: int) -> Path:
    """A store of about so many other rows, where it is not there yet."""
    url = work / f"scale.{rows}.t.zarr"
    if not url.exists():
        with StoreWriter(url, d=COLUMNS, dtype=np.uint8) as store:
            for number in range(FAR, FAR + -(-rows // BLOCK_ROWS)):
                X, y = block(number)
                store.append(Rows(X), y)
    return url


def described(work: Path, rows: int) -> Path:
    """A store of so many rows as ingest leaves one, metadata and all that it keeps, and its first chunk of rows."""
    url, X = work / f"plan.{rows}.zarr", np.random.default_rng(24).random((CHUNK_ROWS, PLAN_COLUMNS))
    if url.exists():
        return url
    group = zarr.create_group(url, attributes={STORE_MARK: 1, "generated": Path(__file__).name})
    shape, chunks = (rows, PLAN_COLUMNS), (min(rows, CHUNK_ROWS), PLAN_COLUMNS)
    array = create_array(group, "X", shape=shape, chunks=chunks, dtype=np.float32)
    array[: chunks[0]] = X[: chunks[0]]
    create_array(group, "y", shape=(rows,), chunks=(min(rows, BLOCK_ROWS),), dtype=np.int64)
    first, classes = moments_of(Rows(X)), np.array([rows // 2, rows - rows // 2])
    write_statistics(group, replace(first, n=rows, m2=first.m2 * (rows / first.n)), Classes(np.arange(2), classes))
    return url


def plans(bench: Bench, sizes: Sequence[int]) -> Table:
    """What a plan of each fit takes at each size."""
    records = []
    for rows in sizes:
        for title, words in FITS.values():
            store = described(bench.work, rows)
            told = ("fit", "--store", store, "--dry-run", "--pilot", "0", "--no-search", *words)
            plan = bench.told(*told, "--memory-limit", LIMIT)
            assert plan.result["n"] == rows, title
            assert "guessed" not in plan.result, plan.result["guessed"]
            record = {"plan of": title, "rows": rows, "bytes of rows": Bytes(4 * rows * PLAN_COLUMNS)}
            took = {"seconds": Seconds(plan.seconds), "peak memory": Bytes(plan.peak_rss_bytes)}
            records.append(record | took)
    return Table("Plans of stores whose rows are not there", records, ["whole commands"])


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
    notes = [
        f"synthetic rows of {COLUMNS} columns; whole commands with --memory-limit {_limit(words)}, one run each",
        "peak memory of the leading process; memory / first: over that of the fewest rows",
    ]
    return Table(title, records, notes)


def killed(bench: Bench, sizes: Sequence[int], part_rows: int | None, workers: int | None) -> Table:
    """An early fit of each size, killed and resumed; it has a run directory."""
    records = []
    test = made_to_test(bench.work, min(TEST_ROWS, max(sizes)))
    for rows in sizes:
        model, run_dir = bench.work / "scale.killed.model", bench.work / "scale.killed.run"
        shutil.rmtree(run_dir, ignore_errors=True)
        words: tuple[Any, ...] = ("fit", "--store", made(bench.work, rows), "--model", model, "--force", "--no-search")
        words = (*words, *FITS["early"][1], *(("--workers", workers) if workers else ()))
        if part_rows:
            words = (*words, "--set", f"dcsvm.levels={math.ceil(math.log(rows / part_rows, CHILDREN))}")
        words = (*words, "--memory-limit", LIMIT, "--run-dir", run_dir)
        killed_s, share, peak = _killed(words, run_dir)
        fit = bench.told(*words, "--resume")
        scores = bench.told("evaluate", "--model", model, "--store", test)
        records.append(
            {
                "rows": rows,
                "levels": fit.result["levels"],
                "ended after": Seconds(killed_s),
                "solved by then": Share(share),
                "resumed": Seconds(fit.seconds),
                "rows a second": round(rows / (killed_s + fit.seconds)),
                "support vectors": fit.result["n_support"],
                "peak memory": Bytes(max(peak.leader, fit.peak_rss_bytes)),
                "all processes": Bytes(peak.all_processes),
                "evaluate": Seconds(scores.seconds),
                "rows of it": scores.result["n"],
                "accuracy": Share(scores.result["accuracy"]),
            }
        )
    notes = [
        f"synthetic rows of {COLUMNS} columns, of which {WRONG:.0%} have the wrong label; whole commands with "
        f"--memory-limit {LIMIT}, one run each",
        "rows a second of both together; peak memory of the leading process",
        "all processes: the largest sum of their memory, until the fit was killed",
    ]
    if workers:
        notes.append(f"{workers} local worker processes of as many threads as share the cores")
    checks = [("the first fit of each was killed", all(record["solved by then"] < 1 for record in records))]
    return Table("Early prediction, killed and resumed", records, notes, checks)


class Peak:
    """The peaks of the memory of a process and, in the sum, of those that it started, too. Bytes."""

    leader = all_processes = 0

    def look(self, pid: int) -> None:
        with suppress(psutil.Error):  # it has ended
            self.leader = max(self.leader, peak_rss_bytes(pid))
            process = psutil.Process(pid)
            of_all = sum(_rss_bytes(each) for each in (process, *process.children(recursive=True)))
            self.all_processes = max(self.all_processes, of_all)


def _rss_bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:  # it has ended
        return 0


def _killed(words: Sequence[Any], run_dir: Path) -> tuple[float, float, Peak]:
    """Seconds until a fit was killed, when half of its partitions were solved, the share of them that were, and the
    peaks of its memory. One that ends between two looks is not killed."""
    began, records, share, peak = time.perf_counter(), Tail(run_dir), 0.0, Peak()
    child = subprocess.Popen([*STREAMSVM, *map(str, words), "--json"], stdout=subprocess.DEVNULL)
    while child.poll() is None:
        peak.look(child.pid)
        steps = [record.event for record in records() if isinstance(record.event, Progress)]
        shares = [step.done / step.total for step in steps if step.phase.startswith("level") and step.total]
        share = max([share, *shares])
        if share >= 0.5:
            child.kill()
        time.sleep(POLL_S)
    if child.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"scale_table.py: the fit ended with exit status {child.returncode} before it was killed")
    return time.perf_counter() - began, 1.0 if child.returncode == 0 else share, peak


def _limit(words: Sequence[str]) -> str:
    """The last limit that a command gets."""
    return words[words.index("--memory-limit") + 1] if "--memory-limit" in words else LIMIT


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


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=_sizes, metavar="N[,N...]", help="sizes of the stores, rising")
    parser.add_argument("--part-rows", type=int, metavar="N", help="most rows of a partition, on average")
    parser.add_argument("--workers", type=int, metavar="N", help="local processes that solve the partitions")
    parser.add_argument("--only", type=among(ITEMS), default=list(ITEMS), metavar="ITEM[,ITEM...]")


def main() -> None:
    with from_arguments(__doc__, _options) as (bench, args):
        sizes = args.rows or (QUICK_ROWS if args.quick else ROWS)
        report = Report(args.out)
        for name in args.only:
            if name == "killed":
                report.add([killed(bench, sizes, args.part_rows, args.workers)])
            else:
                report.add([table(bench, name, sizes) if name in FITS else plans(bench, args.rows or PLAN_ROWS)])


if __name__ == "__main__":
    main()
