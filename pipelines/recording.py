"""What the tasks of a real early fit took, and its leading process between them: records for `simulate.py`. Linux.

    python pipelines/recording.py ADDRESS STORE MODEL [--tasks N] [--hasty]

leads a fit on the cluster at ADDRESS, or N tasks that do nothing, and prints what it saw of itself as JSON; `Recorder`
starts that and the cluster. CPU seconds are counted, as other programs may use the cores, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import dask
import psutil
import traffic
from distributed import Client, LocalCluster, SchedulerPlugin, WorkerPlugin
from distributed.utils import key_split
from measure import Run, run
from simulation import Overheads, Record, Stage, Task

from streamsvm.parallel.contact import ENVIRONMENT

SAMPLE_S = 0.02  # between looks of the leading process at itself
IDLE_S = 2.0
ASIDE = "aside"  # `fits/dcsvm.py`: the thread of what is wanted in the end alone
TOL, HASTY_TOL = 1e-3, 2.0  # of the second, 0 is a solution
NOTHING = 2000  # tasks
WORKER_BYTES = "2GiB"


class Seen(SchedulerPlugin):
    """When each task came to the scheduler and ended, its CPU seconds by then, and bytes of results."""

    name = "seen"

    def __init__(self) -> None:
        self.came: dict[Any, tuple[float, float]] = {}
        self.ended: dict[Any, tuple[float, float, int]] = {}

    def update_graph(self, scheduler: Any, *, tasks: Sequence[Any], **rest: Any) -> None:
        now = time.time(), time.process_time()
        for key in tasks:
            self.came.setdefault(key, now)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **facts: Any) -> None:
        if (start, finish) == ("processing", "memory"):
            self.ended[key] = time.time(), time.process_time(), facts["nbytes"] or 0


class Spent(WorkerPlugin):
    """What each task takes of its process, which has one thread for tasks: CPU seconds, bytes of files."""

    name = "spent"

    def setup(self, worker: Any) -> None:
        self.found: dict[Any, tuple[float, float]] = {}
        self._process, self._before = psutil.Process(), (0.0, 0.0)

    def transition(self, key: Any, start: str, finish: str, **rest: Any) -> None:
        if finish == "executing":
            self._before = self._now()
        elif (start, finish) == ("executing", "memory"):
            now, before = self._now(), self._before
            self.found[key] = now[0] - before[0], now[1] - before[1]

    def _now(self) -> tuple[float, float]:
        files = self._process.io_counters()  # of read() and write(), to which sockets do not add
        return time.process_time(), float(files.read_chars + files.write_chars)


def _spent(dask_worker: Any) -> tuple[dict[Any, tuple[float, float]], float, float]:
    """Of a worker so far: what tasks took, CPU seconds of the process, bytes of values from other workers."""
    moved = sum(sum(log["keys"].values()) for log in dask_worker.transfer_incoming_log)
    return dask_worker.plugins["spent"].found, time.process_time(), moved


class Recorder:
    """Fits on a cluster of so many processes of one thread, whose scheduler is in this process."""

    def __init__(self, client: Client, cluster: LocalCluster, work: Path) -> None:
        self._client, self._cluster, self._work = client, cluster, work
        self._workers = len(cluster.workers)
        client.register_plugin(Spent())
        self._seen = Seen()
        scheduler: Any = cluster.scheduler  # in this process
        scheduler.add_plugin(self._seen)

    def fit(self, store: Path, *options: str) -> tuple[Run, float]:
        """One fit of a child process, and the share of the cores' time that was others'."""
        before, own = psutil.cpu_times(), self._cpu_s()
        ended = self._led(store, self._work / "simulated.model", *options)
        after = psutil.cpu_times()
        total = sum(after[:8]) - sum(before[:8])
        busy = total - (after.idle + after.iowait - before.idle - before.iowait)
        return ended, max(0.0, busy - ended.cpu_seconds - (self._cpu_s() - own)) / total

    def _led(self, *words: Any) -> Run:
        return run([sys.executable, __file__, self._cluster.scheduler_address, *map(str, words)])

    def _cpu_s(self) -> float:
        """Of the workers and of the scheduler, which is here."""
        return time.process_time() + sum(cpu for _, cpu, _ in self._client.run(_spent).values())

    def record(self, store: Path, overheads: Overheads, *options: str) -> Record:
        """options: --hasty."""
        before = self._client.run(_spent)
        self._forget()
        ended, others = self.fit(store, *options)
        own, looks = ended.result, Looks(ended.result, overheads.idle)
        after = self._client.run(_spent)
        spent = {key: took for found, *_ in after.values() for key, took in found.items()}
        moved = sum(found[2] for found in after.values()) - sum(found[2] for found in before.values())
        stages, last = self._stages(looks, spent, moved / max(1, len(self._seen.ended)))
        tail = max(0.0, looks.began + ended.seconds - last)
        facts = (own["n"], self._workers, ended.seconds, others, own["parts"], own["peak_rss_bytes"], tail)
        return Record(*facts, overheads, stages)

    def _stages(self, looks: Looks, spent: dict[Any, tuple[float, float]], moved: float) -> tuple[list[Stage], float]:
        """In order, and the time at which the last ended. moved: bytes between workers for a task, on average.

        Tasks of a function are of the phase under way when most of them end, or of none.
        """
        came, ended, last, stages = self._seen.came, self._seen.ended, looks.began, []
        named: list[tuple[str, list[Any]]] = []
        for name, group in groupby(sorted(ended, key=lambda key: came[key][0]), key_split):
            mine = list(group)
            phases = Counter(looks.phase(ended[key][0]) for key in mine)
            named.append((phases.most_common(1)[0][0] or name, mine))
        for name, groups in groupby(named, itemgetter(0)):
            mine = [key for _, keys in groups for key in keys]
            begins = max(last, came[mine[0]][0])
            ends = max(begins, *(ended[key][0] for key in mine))
            tasks = [Task(spent[key][0], ended[key][2], moved, spent[key][1]) for key in mine]
            gap_s, lead_s = (looks.during(*span)[0] for span in ((last, begins), (begins, ends)))
            wait_s = max(0.0, begins - last - gap_s)
            stages.append(Stage(name, tasks, gap_s, wait_s, lead_s / len(mine), *looks.during(last, ends)[1:]))
            last = ends
        return stages, last

    def _forget(self) -> None:
        self._seen.came.clear()
        self._seen.ended.clear()

    def nothing(self, tasks: int = NOTHING) -> tuple[Overheads, float]:
        """CPU seconds for a task that does nothing, and how many of these end in a second."""
        self._forget()
        workers = sum(cpu for _, cpu, _ in self._client.run(_spent).values())
        own = self._led("-", "-", "--tasks", tasks).result
        workers = sum(cpu for _, cpu, _ in self._client.run(_spent).values()) - workers
        scheduler = max(cpu for _, cpu, _ in self._seen.ended.values()) - min(
            cpu for _, cpu in self._seen.came.values()
        )
        overheads = Overheads(scheduler / tasks, workers / tasks, own["cpu_s"] / tasks, own["idle"])
        return overheads, tasks / own["seconds"]


@contextmanager
def recorder(workers: int, work: Path, warm: Path) -> Iterator[Recorder]:
    """On workers that have fitted the store `warm` before."""
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.nanny.pre-spawn-environ": ENVIRONMENT}))
        options: dict[str, Any] = {"host": "127.0.0.1", "dashboard_address": None}
        cluster = stack.enter_context(
            LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=WORKER_BYTES, **options)
        )
        found = Recorder(stack.enter_context(Client(cluster, set_as_default=False)), cluster, work)
        found.fit(warm)
        yield found


class Looks:
    """What a leading process saw of itself. idle: CPU seconds a second that it takes while nothing happens."""

    def __init__(self, own: dict[str, Any], idle: float) -> None:
        self.began, self._rows, self._phases, self._idle = own["began"], own["looks"], own["phases"], idle
        self._times = [row[0] for row in self._rows]

    def during(self, start: float, stop: float) -> list[float]:
        """CPU seconds, bytes sent, bytes received."""
        found = [now - then for now, then in zip(self._at(stop), self._at(start), strict=True)]
        return [max(0.0, found[0] - self._idle * (stop - start)), *found[1:]]

    def _at(self, when: float) -> list[float]:
        if when < self._times[0]:
            return [0.0, 0.0, 0.0]
        return self._rows[min(bisect_right(self._times, when), len(self._rows) - 1)][1:]

    def phase(self, when: float) -> str | None:
        """The name of the phase that is under way; None between phases."""
        under_way: str | None = None
        for at, name, is_over in self._phases:
            if at <= when:
                under_way = None if is_over else name
        return under_way


def _aside_s() -> float:
    """CPU seconds of this process's thread that nothing waits for before the end."""
    found = 0.0
    for thread in threading.enumerate():
        if thread.name.startswith(ASIDE):
            with suppress(OSError):  # it has just ended
                stat = Path(f"/proc/self/task/{thread.native_id}/stat").read_text(encoding="ascii")
                ticks = stat.rpartition(")")[2].split()[11:13]
                found += sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
    return found


@contextmanager
def _looked() -> Iterator[list[tuple[float, ...]]]:
    """Looks of this process at itself: the time, CPU seconds, bytes sent and received."""
    traffic.count()
    looks, ended = list[tuple[float, ...]](), threading.Event()

    def look() -> None:
        aside = 0.0
        while not ended.wait(SAMPLE_S):
            aside, (read, written) = max(aside, _aside_s()), traffic.seen()
            cpu_s = time.process_time() - aside
            looks.append((time.time(), cpu_s, sum(written.values()), sum(read.values())))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield looks
    finally:
        ended.set()
        watcher.join()


def lead(address: str, store: str, model: str, tol: float) -> dict[str, Any]:
    """A fit that this process leads."""
    from streamsvm import Store
    from streamsvm.config import build_config
    from streamsvm.events import Event, Events, Progress
    from streamsvm.events import Record as Told
    from streamsvm.train import train

    phases: list[tuple[float, str, bool]] = []

    def sink(record: Told[Event]) -> None:
        event = record.event
        if isinstance(event, Progress) and (event.done == 0 or event.has_ended):
            phases.append((time.time(), event.phase, event.has_ended))

    config = build_config(("options", {"dcsvm": {"early": True}, "scheduler": address, "tol": tol}))
    shutil.rmtree(model, ignore_errors=True)
    with _looked() as looks:
        report = train(Store.open(store), config, model_path=Path(model), events=Events(sink))
    facts = {"n": report["n"], "parts": report["n_parts"], "peak_rss_bytes": report["peak_rss_bytes"]}
    return facts | {"began": psutil.Process().create_time(), "looks": looks, "phases": phases}


def lead_nothing(address: str, tasks: int) -> dict[str, float]:
    """Tasks that do nothing; before, some seconds of waiting for one."""
    from streamsvm.parallel.cluster import open_cluster

    engine = open_cluster(address, None, None)
    with _looked():
        for seconds in (0.0, IDLE_S):  # the first sees to imports
            cpu_before = time.process_time()
            list(engine.map(time.sleep, [seconds]))
        idle = (time.process_time() - cpu_before) / IDLE_S
        began, cpu_began = time.perf_counter(), time.process_time()
        for _ in engine.map(abs, range(tasks)):
            pass
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
    engine.close()
    return {"idle": idle, "seconds": seconds, "cpu_s": max(0.0, cpu - idle * seconds)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("address", "store", "model"):
        parser.add_argument(name)
    parser.add_argument("--tasks", type=int, metavar="N")
    parser.add_argument("--hasty", action="store_true", help="solve no part")
    args = parser.parse_args()
    with redirect_stdout(sys.stderr):
        found = (
            lead_nothing(args.address, args.tasks)
            if args.tasks
            else lead(args.address, args.store, args.model, HASTY_TOL if args.hasty else TOL)
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
