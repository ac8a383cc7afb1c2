"""DC-SVM and its peers in the house on processes and a cluster, next to the threads of one machine.

    python pipelines/cluster_table.py --data DIR [--only early,...] [--quick] [--out cluster.md]

items, and the files of --data that they need:
    early    covtype, early prediction: threads, clusters of 1, 2 and 4 workers that run already, and as many processes
             of the command's own, whose start is in its seconds (covtype.csv.gz)
    bsgd     descent on a budget by regions side by side: accuracy, seconds, supports (covtype.csv.gz, train-images-*,
             train-labels-*, t10k-*, a9a.bz2, a9a.t.bz2, ijcnn1.bz2, ijcnn1.t.bz2)
    bytes    covtype: what travels between the leading process, the scheduler and three workers (covtype.csv.gz)

By turns; whole commands. Differences are of decision values on the test rows, over the largest of threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import dask
import numpy as np
import traffic
from bench import CONFIGS, Bench, print_tables
from distributed import Client, LocalCluster
from measure import CORES, Spread, run_here
from tables import Bytes, Factor, Megabytes, Seconds, Share, Table

from streamsvm import DCSVC
from streamsvm.data.store import Store
from streamsvm.models.files import load_model
from streamsvm.parallel.contact import ENVIRONMENT

WORKERS = (1, 2, 4)
MOST_OVERHEAD = 0.15
PARTITIONS = (1, 2, 4, 8)
BUDGET = 1000
BUDGETED: dict[str, tuple[Any, ...]] = {
    "covtype": ("--C", 32, "--gamma", 32, "--scale", "minmax", "--positive", 2, "--epochs", 1),
    "mnist": ("--C", 1, "--gamma", 0.0438, "--scale", "minmax", "--epochs", 2),
    "ijcnn1": ("--C", 32, "--gamma", 2, "--epochs", 2),
    "a9a": ("--C", 8, "--gamma", 0.03125, "--epochs", 2),
}
MOST_LOST = 0.02  # of the accuracy of one learner
EXACT_ROWS = 40_000


def early(bench: Bench) -> list[Table]:
    """What processes cost, and what they change."""
    train, test = bench.stores("covtype")
    store = Store.open(str(test))
    rows = store.read(0, min(20_000, store.n))
    config = ("--config", CONFIGS / "covtype_early.toml")
    where: dict[str, Callable[[], AbstractContextManager[tuple[Any, ...]]]] = {"threads": nullcontext}
    counts = (2,) if bench.sizes.is_quick else WORKERS
    where |= {f"cluster of {n}": partial(_running, n) for n in counts}
    where |= {f"{n} process{'es' * (n > 1)}": partial(nullcontext, ("--workers", n)) for n in counts}
    seconds: dict[str, list[float]] = {name: [] for name in where}
    decisions, memory = {}, {}
    for number in bench.sizes.numbers:
        for name, started in where.items():
            model = bench.work / f"{name.replace(' ', '-')}.model"
            with started() as options:
                fit = bench.command("fit", "--store", train, "--model", model, "--force", *config, *(options or ()))
            if number >= 0:  # the one before compiles
                seconds[name].append(fit.result["seconds"])
            memory[name] = fit.result["peak_rss_bytes"]
            decisions[name] = load_model(model).decision_function(rows)
    threads, expected = Spread.of(seconds["threads"]), decisions["threads"]
    records = []
    for name in where:
        spread = Spread.of(seconds[name])
        records.append(
            {
                "on": name,
                "seconds": spread,
                "of threads": Factor(spread.median / threads.median),
                "difference": float(np.abs(decisions[name] - expected).max() / np.abs(expected).max()),
                "memory of the leading process": Bytes(memory[name]),
            }
        )
    overhead = Spread.of(seconds["cluster of 2"]).median / threads.median - 1
    checks = [(f"a cluster of two workers: at most 15 % over threads ({overhead:.1%})", overhead <= MOST_OVERHEAD)]
    notes = [
        "whole commands; workers of a cluster run already, and processes are started by the command",
        "difference: of decision values on the test rows, over the largest of threads",
    ]
    return [Table("Early prediction of covtype on processes", records, notes, checks)]


@contextmanager
def _running(n: int) -> Iterator[tuple[Any, ...]]:
    """A cluster whose workers have fitted before, as options of a command."""
    cores = max(1, CORES // n)
    with dask.config.set({"distributed.nanny.pre-spawn-environ": ENVIRONMENT}):
        cluster = LocalCluster(n_workers=n, threads_per_worker=cores, host="127.0.0.1", dashboard_address=None)
    with cluster, Client(cluster, set_as_default=False) as client:
        client.run(_warm)
        yield "--scheduler", cluster.scheduler_address


def _warm() -> None:
    """What a worker has loaded after its first fit."""
    rows = np.random.default_rng(0).normal(size=(6000, 5)).astype(np.float32)
    DCSVC(C=10, early=True, levels=1, n_jobs=1).fit(rows, rows[:, 0] > 0)


def bsgd(bench: Bench) -> list[Table]:
    """Regions side by side, each with the budget of one learner; of covtype also regions that share that one, and one
    learner with the budget of all."""
    tables = []
    for name, options in BUDGETED.items():
        chosen = [(partitions, BUDGET) for partitions in PARTITIONS]
        if name == "covtype":
            chosen += [(8, BUDGET // 8), (1, 8 * BUDGET)]
        records = [_budgeted(bench, name, options, *choice) for choice in chosen]
        one, *others = (float(record["accuracy"]) for record in records[: len(PARTITIONS)])
        lost = one - min(others)
        checks = [(f"{name}: at most two points below one learner ({lost:.2%})", lost <= MOST_LOST)]
        notes = [
            "budget: of each region, whose rows one learner learns; all regions together are one model",
            f"accuracy is the mean of {bench.sizes.runs} seeds, seconds and CPU seconds are medians",
            f"{name}: `fit --solver bsgd {' '.join(map(str, options))}`",
        ]
        tables.append(Table(name, records, notes, checks))
    return tables


def _budgeted(bench: Bench, name: str, options: tuple[Any, ...], partitions: int, budget: int) -> dict[str, Any]:
    """Fits of several seeds, and what their models say of the test rows."""
    train, test = bench.stores(name)
    model = bench.work / "budgeted.model"
    own = ("--no-search", "--solver", "bsgd", *options, "--budget", budget)
    fits, found = [], []
    for seed in range(bench.sizes.runs):
        more = ("--set", f"bsgd.partitions={partitions}", "--seed", seed)
        fits.append(bench.command("fit", "--store", train, "--model", model, "--force", *own, *more))
        found.append(bench.command("evaluate", "--model", model, "--store", test))
    scores = [run.result["accuracy"] for run in found]
    return {
        "partitions": partitions,
        "budget": budget,
        "supports": fits[-1].result["n_support"],
        "accuracy": Share(np.mean(scores)),
        "lowest": Share(min(scores)),
        "seconds": Spread.of([fit.result["seconds"] for fit in fits]),
        "learn, steps": Seconds(np.median([fit.result["step_seconds"] for fit in fits])),
        "CPU": Seconds(np.median([fit.cpu_seconds for fit in fits])),
        "evaluate, CPU": Seconds(np.median([run.cpu_seconds for run in found])),
    }


def bytes_sent(bench: Bench) -> list[Table]:
    """Who sends how much to whom in a fit, on three workers of one thread."""
    train, _ = bench.stores("covtype")
    few = train if bench.sizes.is_quick else bench.copies(train, EXACT_ROWS)
    early = ("--config", CONFIGS / "covtype_early.toml")
    planes = ("--no-search", "--solver", "cutting-plane", "--kernel", "linear", "--C", 1)
    fits: dict[str, tuple[Any, ...]] = {
        "cutting-plane": (train, "--scale", "minmax", "--positive", 2, *planes),
        "dcsvm early": (train, *early),
        "dcsvm exact, 2 levels": (few, *early, "--set", "dcsvm.early=false", "--set", "dcsvm.levels=2"),
    }
    with LocalCluster(
        n_workers=3, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, memory_limit="2GiB"
    ) as cluster:
        rows = [_traffic(bench, cluster, name, *fits[name]) for name in fits]
    notes = [
        "counted where distributed reads and writes; traffic between workers depends on which is free first",
        f"exact: {EXACT_ROWS:,} rows of covtype, else all; a row has 54 columns",
    ]
    return [Table("Bytes of a fit on three workers", rows, notes)]


def _traffic(bench: Bench, cluster: LocalCluster, name: str, store: Any, *options: Any) -> dict[str, Any]:
    """Of one fit, led by this process. Bytes as they travel: what stays inside a process is not counted."""
    with Client(cluster, set_as_default=False) as client:
        for count in (traffic.count, partial(client.run, traffic.count)):
            count()
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        before, at_workers = traffic.seen(), client.run(traffic.seen)
        model, where = bench.work / "traffic.model", ("--scheduler", cluster.scheduler_address)
        words = ("fit", "--store", store, "--model", model, "--force", *options, *where, "--json")
        fit = run_here([str(word) for word in words])
        read, written = (now - then for now, then in zip(traffic.seen(), before, strict=True))
        between = [_total(now[0] - at_workers[worker][0], workers) for worker, now in client.run(traffic.seen).items()]
    return {
        "fit": name,
        "rows": fit.result["n"],
        "leader to scheduler": Megabytes(written[cluster.scheduler_address]),
        "leader to workers": Megabytes(_total(written, workers)),
        "workers to leader": Megabytes(_total(read, workers)),
        "between workers": Megabytes(sum(between)),
        "seconds": Seconds(fit.seconds),
    }


def _total(counts: Counter[str], addresses: list[str]) -> int:
    return sum(counts[address] for address in addresses)


if __name__ == "__main__":  # workers import this file
    print_tables(__doc__, {"early": early, "bsgd": bsgd, "bytes": bytes_sent})
