"""An hour of `streamsvm stream` next to small fits, one after the other, on one cluster: the memory of all. Linux.

    python pipelines/soak.py --data DIR [--minutes 60] [--rate 1000] [--quick] [--work DIR] [--out soak.md]

The stream gets --rate events a second, the rows of ijcnn1.bz2 and ijcnn1.t.bz2 in --data over and over; fits of all
solvers alternating, on rows of ijcnn1, use the cluster by --scheduler. Every 10 s the memory that a process has for
itself (USS) is looked at: of scheduler, nannies, workers and stream; of each fit its peak (RSS). The samples are
written to soak.csv in --work as they come. Exits 1 where a process was replaced or grew: the median of the last
quarter over that of the second by more than 5 % and 8 MiB. The slope is Theil and Sen's, from the second quarter on,
with its interval of 95 %. So that growth is not a log or a cache that still fills, dask keeps half a minute of its
samples and events here, not an hour, and a hundred lines of its log, not 10,000. Its cache of 100,000 names of tasks is
full from the start.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle, takewhile
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from bench import STREAMSVM, Bench, asking_for, from_arguments
from measure import Failed
from processes import Cluster
from tables import Bytes, Report, Share, Table

from streamsvm.solvers.catalogue import SOLVERS as CATALOGUE

RBF = ("--gamma", "2", "--C", "8")
FIT = ("fit", "--no-search", "--force")
PARTS = ("--set", "dcsvm.levels=1", "--set", "dcsvm.part_rows=500")
MORE = {"dcsvm": PARTS, "bsgd": ("--set", "bsgd.partitions=2", "--budget", "200")}
SOLVERS: dict[str, tuple[str, ...]] = {
    name: (*(() if row.needs else RBF), *asking_for(name), *MORE.get(name, ())) for name, row in CATALOGUE.items()
} | {"early": (*RBF, "--early", *PARTS)}
FIT_ROWS = 3_000
EVENTS = 140_000  # before they come again
STREAM = ("--gamma", "2", "--lam", "1e-5", "--budget", "500", "--scale", "none", "--snapshot-every", "5000")
NAMES = "from dask.utils import key_split; any(not key_split(f'{i:064d}') for i in range(100_000))"
SETTINGS = {
    "DASK_DISTRIBUTED__SCHEDULER__EVENTS_CLEANUP_DELAY": "30s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__LOG_LENGTH": "60",  # one each half second
    "DASK_DISTRIBUTED__ADMIN__LOG_LENGTH": "100",
    "DASK_DISTRIBUTED__SCHEDULER__PRELOAD": repr([NAMES]),
    "DASK_DISTRIBUTED__WORKER__PRELOAD": repr([NAMES]),
}
SAMPLES_S = 10.0
TICK_S = 0.1
MOST_GROWTH, MOST_GROWTH_BYTES = 0.05, 8 << 20


@dataclass
class Memory:
    """(seconds, bytes) by process, each line written to a file too."""

    path: Path
    began: float = field(default_factory=time.monotonic)
    samples: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))
    replaced: list[str] = field(default_factory=list)
    _pids: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.unlink(missing_ok=True)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def add(self, name: str, value: int) -> None:
        self.samples[name].append((self.seconds, value))
        with self.path.open("a") as file:
            file.write(f"{self.seconds:.1f},{name},{value}\n")

    def look(self, processes: dict[str, int]) -> None:
        for name, pid in processes.items():
            if self._pids.setdefault(name, pid) != pid:
                self.replaced.append(name)
                self._pids[name] = pid
            with suppress(psutil.NoSuchProcess):
                self.add(name, psutil.Process(pid).memory_full_info().uss)


@contextmanager
def repeated(seconds: float, do: Any) -> Iterator[None]:
    """do() in a thread, every so many seconds."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(seconds):
            do()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def stream(bench: Bench, rate: int) -> Iterator[subprocess.Popen[bytes]]:
    """`streamsvm stream`, fed with events at a steady rate; it ends by SIGTERM, and says how many it has seen."""
    events, pipe = bench.work / "events", subprocess.PIPE
    bench.prepare("events", bench.data, events, "--rows", EVENTS)
    lines = cycle(events.read_bytes().splitlines(keepends=True))
    command = [*STREAMSVM, "stream", "--model", bench.work / "stream.model", *STREAM]
    shutil.rmtree(bench.work / "stream.model", ignore_errors=True)
    child = subprocess.Popen([*map(str, command)], stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, bufsize=0)

    def feed() -> None:
        with suppress(BrokenPipeError):
            child.stdin.write(b"".join(next(lines) for _ in range(int(rate * TICK_S))))

    try:
        with repeated(TICK_S, feed):
            yield child
            child.send_signal(signal.SIGTERM)
            child.wait()
    finally:
        child.kill()


def soak(bench: Bench, seconds: float, rate: int, every: float, cluster: Cluster) -> Table:
    train, _ = bench.stores("ijcnn1")
    rows = bench.copies(train, bench.sizes.train_rows or FIT_ROWS)
    with stream(bench, rate) as streaming:
        memory = Memory(bench.work / "soak.csv")

        def look() -> None:
            scheduler, *nannies = cluster.processes
            named = {"scheduler": scheduler.pid, "stream": streaming.pid}
            named |= {f"nanny {i}": nanny.pid for i, nanny in enumerate(nannies)}
            named |= {f"worker {i}": worker.pid for i, worker in enumerate(cluster.workers())}
            memory.look(named)

        with repeated(every, look):
            for name in takewhile(lambda _: memory.seconds < seconds, cycle(SOLVERS)):
                fit = (*FIT, "--store", rows, "--model", bench.work / "fit.model", *SOLVERS[name])
                done = bench.command(*fit, "--scheduler", cluster.address)
                memory.add(f"fit {name}", done.peak_rss_bytes)
    said = streaming.stderr.read().decode()
    if streaming.returncode != 128 + signal.SIGTERM:
        raise Failed(f"exit status {streaming.returncode} of the stream, which said: {said}")
    return table(memory, json.loads(said.splitlines()[-1]))


def table(memory: Memory, said: dict[str, Any]) -> Table:
    records, checks = [], []
    for name, samples in sorted(memory.samples.items()):
        record = {"process": name, "samples": len(samples), "peak": Bytes(max(size for _, size in samples))}
        quarters = [samples[q * len(samples) // 4 : (q + 1) * len(samples) // 4] for q in range(4)]
        if not all(quarters):
            checks.append((f"{name}: too few samples", False))
            records.append(record)
            continue
        first, second, _, last = (median(size for _, size in quarter) for quarter in quarters)
        slope, low, high = (bytes_s * 3600 / 2**20 for bytes_s in _slope(samples[len(quarters[0]) :]))
        middles = {"first quarter": Bytes(first), "second": Bytes(second), "last": Bytes(last)}
        records.append(record | middles | {"MiB an hour": f"{slope:.1f} ({low:.1f} to {high:.1f})"})
        grown = last - second
        flat = grown < max(MOST_GROWTH * second, MOST_GROWTH_BYTES)
        checks.append((f"{name} flat: {grown / 2**20:+.1f} MiB, {Share(grown / second)}", flat))
    checks.append((f"no process replaced ({', '.join(memory.replaced) or 'none'})", not memory.replaced))
    fits = sum(record["samples"] for record in records if record["process"].startswith("fit "))
    events = f"{said['events']:,} events, accuracy {Share(said['accuracy'] or 0)}"
    note = f"{memory.seconds / 60:.1f} minutes: {events}; {fits:,} fits"
    what = "memory that a process has for itself (USS), of fits the peak (RSS); flat: the last quarter over the second"
    return Table("Memory on one cluster", records, [note, what], checks)


def _slope(samples: list[tuple[float, int]]) -> tuple[float, float, float]:
    """Bytes a second: the median of the slopes of all pairs, and its interval of 95 %."""
    from scipy.stats import theilslopes  # here, for fits start as copies of this process

    seconds, sizes = zip(*samples, strict=True)
    found = theilslopes(sizes, seconds)
    return found.slope, found.low_slope, found.high_slope


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=1000, metavar="N", help="events a second")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        seconds, every = (10.0, 0.5) if args.quick else (60 * args.minutes, SAMPLES_S)
        report = Report(args.out)
        with tempfile.TemporaryDirectory(dir=bench.work, ignore_cleanup_errors=True) as folder:
            with Cluster(Path(folder), settings=SETTINGS) as cluster:
                made = soak(bench, seconds, args.rate, every, cluster)
        report.add([made])
    sys.exit(not args.quick and not all(met for _, met in made.checks))


if __name__ == "__main__":
    main()
