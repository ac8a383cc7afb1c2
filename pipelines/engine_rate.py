"""Tasks that do nothing, a second: through the engine of a fit on a cluster, next to dask's own `map` and `gather`.

    python pipelines/engine_rate.py [--workers 3] [--tasks 3000] [--repeat 5] [--quick] [--out rate.md]

Workers are processes of one thread on this machine, the scheduler is in the process that leads. Alternating:
plain `Client.map` of all tasks and one `Client.gather`, and `ClusterEngine.map`, which bounds what is under way, keeps
order, counts progress and survives lost workers. Ranges are over the turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import dask
from bench import from_arguments
from distributed import Client, LocalCluster
from tables import Report, Table

from streamsvm.parallel.cluster import ClusterEngine, open_cluster
from streamsvm.parallel.contact import ENVIRONMENT

LEAST, LEAST_RATE = 0.9, 500


def nothing(x: int) -> int:
    return x


def plain(client: Client, count: int) -> None:
    assert client.gather(client.map(nothing, range(count), pure=False)) == list(range(count))


def mapped(engine: ClusterEngine, count: int) -> None:
    assert list(engine.map(nothing, range(count))) == list(range(count))


def rates(workers: int, count: int, repeat: int) -> dict[str, list[float]]:
    """Tasks a second of each way, alternating, after one that does not count."""
    with dask.config.set({"distributed.nanny.pre-spawn-environ": ENVIRONMENT}):
        cluster = LocalCluster(n_workers=workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None)
    with cluster, Client(cluster, set_as_default=False) as client:
        engine = open_cluster(cluster.scheduler_address, None, None)
        ways: dict[str, Callable[[], None]] = {
            "Client.map and gather": lambda: plain(client, count),
            "ClusterEngine.map": lambda: mapped(engine, count),
        }
        found: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(-1, repeat):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                if turn >= 0:
                    found[name].append(count / (time.perf_counter() - began))
        engine.close()
    return found


def table(workers: int, count: int, repeat: int) -> Table:
    found = rates(workers, count, repeat)
    base, ours = found.values()
    records = [
        {
            "way": name,
            "tasks a second": _range(values, "{:,.0f}"),
            "of plain, of each turn": _range([x / y for x, y in zip(values, base, strict=True)], "{:.2f}"),
        }
        for name, values in found.items()
    ]
    ratio, rate = statistics.median(x / y for x, y in zip(ours, base, strict=True)), statistics.median(ours)
    checks = [(f"at least {LEAST} of plain dask ({ratio:.2f})", ratio >= LEAST)]
    if statistics.median(base) >= LEAST_RATE:
        checks.append((f"at least {LEAST_RATE} tasks a second ({rate:.0f})", rate >= LEAST_RATE))
    return Table(f"{count:,} tasks on {workers} workers", records, checks=checks)


def _range(values: list[float], how: str) -> str:
    middle, low, high = (how.format(f(values)) for f in (statistics.median, min, max))
    return f"{middle} ({low} to {high})"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=3, metavar="N")
    parser.add_argument("--tasks", type=int, default=3000, metavar="N")
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="turns that count")


if __name__ == "__main__":  # workers import this file
    with from_arguments(__doc__, _options) as (bench, args):
        tasks, repeat = (40, 1) if bench.sizes.is_quick else (args.tasks, args.repeat)
        Report(args.out).add([table(args.workers, tasks, repeat)])
