"""A simulated cluster: early fits are recorded on this machine, replayed on others, and checked against real ones.

    python pipelines/simulate.py --work DIR [--only ITEM[,ITEM...]] [--runs 3] [--out OUT]

items; the last three read `records.json`, which the first leaves in --work:
    record     fits of synthetic rows (8 columns) on 1, 2 and 4 processes of one thread, the fastest of --runs each
    validate   simulated from one process and fewer rows, against those fits: within 15 %
    weak       1 to 100 workers, 10^7 rows each
    sizes      8 to 1,000 workers, 10^7 to 10^10 rows: what is busy, memory and bytes of the leader, machine hours

Needs no data. What is assumed stands below each table. Linux.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench import Bench, from_arguments
from measure import CORES
from recording import NOTHING, recorder
from scale_table import made
from simulated_growth import MOST_CENTRES, SEED, grown
from simulation import AHEAD, Outcome, Overheads, Record, Replay, Site, Stage, Task, simulate
from tables import Factor, Gigabytes, Report, Seconds, Share, Table

SIZES = (
    125_000,
    500_000,
    2_000_000,
    8_000_000,
)  # parts of as many rows in each; the last on one process alone
QUICK_SIZES = (20_000, 40_000, 80_000)
# of which no part is solved, on two processes
LEADS, QUICK_LEADS = (8_000_000, 32_000_000), (40_000, 80_000)
WORKERS, QUICK_WORKERS = (1, 2, 4), (1, 2)
MOST_OFF = 0.15
THREADS = 8
WEAK_ROWS, WEAK, LEAST, AIM = 10**7, (1, 2, 8, 32, 100), 0.85, 0.95
ROWS, MANY = (10**7, 10**8, 10**9, 10**10), (8, 100, 1000)


def record(bench: Bench) -> list[Table]:
    """All fits, what is kept of each, and what a task costs that does nothing."""
    is_quick, runs = bench.sizes.is_quick, max(1, bench.sizes.runs)
    sizes, numbers = (QUICK_SIZES, QUICK_WORKERS) if is_quick else (SIZES, WORKERS)
    stores = {n: made(bench.work, n) for n in {*sizes, *(QUICK_LEADS if is_quick else LEADS)}}
    found, leads, rates = list[Record](), list[Record](), []
    for workers in numbers:
        with recorder(workers, bench.work, stores[sizes[0]]) as at:
            overheads, rate = at.nothing(NOTHING // 10 if is_quick else NOTHING)
            rates.append(_rates(workers, overheads, rate))
            for n in sizes if workers == 1 else sizes[1:3]:
                found.append(_fastest([at.record(stores[n], overheads) for _ in range(runs)]))
            if workers == 2:
                for n in QUICK_LEADS if is_quick else LEADS:
                    leads.append(_fastest([at.record(stores[n], overheads, "--hasty") for _ in range(runs)]))
    kept = {"fits": list(map(_kept, found)), "leads": list(map(_kept, leads))}
    _records(bench).write_text(json.dumps(kept))
    hasty = Table("No part solved", list(map(_recorded, leads)))
    return [Table("Recorded", list(map(_recorded, found))), hasty, Table("Tasks that do nothing", rates)]


def _fastest(runs: list[Record]) -> Record:
    """Of several records of a fit, with the least that the leading process took and waited between stages."""
    best = min(runs, key=lambda run: run.seconds)
    names = [stage.name for stage in best.stages]
    like = [run for run in runs if [stage.name for stage in run.stages] == names]
    stages = [
        replace(own[0], wait_s=min(stage.wait_s for stage in own), gap_s=min(stage.gap_s for stage in own))
        for own in zip(best.stages, *(run.stages for run in like), strict=True)
    ]
    return replace(best, stages=stages, tail_s=min(run.tail_s for run in like))


def _rates(workers: int, overheads: Overheads, rate: float) -> dict[str, Any]:
    """Measured and simulated tasks a second that do nothing, and CPU seconds of each process for one."""
    said = Replay(Site(workers, cores=CORES), overheads).run(Stage("nothing", [Task(0.0)] * NOTHING))
    costs = {f"{name.partition('_')[0]}, ms": Factor(1e3 * s) for name, s in vars(overheads).items() if name != "idle"}
    return {
        "processes": workers,
        "tasks a second": round(rate),
        "simulated": round(NOTHING / said.seconds),
    } | costs


def _kept(own: Record) -> dict[str, Any]:
    return {**asdict(own), "stages": [_plain(stage) for stage in own.stages]}


def _plain(stage: Stage) -> dict[str, Any]:
    return {**vars(stage), "tasks": [list(task) for task in stage.tasks]}


def _records(bench: Bench) -> Path:
    return bench.work / "records.json"


def _recorded(own: Record) -> dict[str, Any]:
    return {
        "rows": own.n,
        "processes": own.workers,
        "seconds": Seconds(own.seconds),
        "others had": Share(own.others),
        "partitions": own.parts,
        "tasks": sum(len(stage.tasks) for stage in own.stages),
        "their CPU": Seconds(_cpu_s(own)),
        "leader alone": Seconds(sum(stage.gap_s for stage in own.stages)),
        "and waiting": Seconds(sum(stage.wait_s for stage in own.stages) + own.tail_s),
    }


def _slowed(own: Record, times: float) -> Record:
    """Whose tasks take so many times the CPU seconds."""
    stages = [
        replace(stage, tasks=[task._replace(cpu_s=times * task.cpu_s) for task in stage.tasks]) for stage in own.stages
    ]
    return replace(own, stages=stages)


def _cpu_s(own: Record) -> float:
    """Of all tasks."""
    return sum(task.cpu_s for stage in own.stages for task in stage.tasks)


def _loaded(bench: Bench) -> tuple[dict[tuple[int, int], Record], tuple[Record, Record]]:
    """Fits by rows and processes, and those of which no part was solved."""
    kept = json.loads(_records(bench).read_text())
    few, many = map(Record.of, kept["leads"])
    return {(own.n, own.workers): own for own in map(Record.of, kept["fits"])}, (few, many)


def validate(bench: Bench) -> list[Table]:
    found, leads = _loaded(bench)
    numbers = sorted({workers for _, workers in found})
    less, most = sorted({n for n, workers in found if workers == numbers[-1]})
    rows, off = [], []
    sources = {
        f"{less:,} rows, 1 process": grown(leads, found[less, 1], most),
        f"{most:,} rows, 1 process": found[most, 1],
    }
    for name, source in sources.items():
        for workers in numbers:
            real = found[most, workers]
            left = CORES * (1 - real.others)
            slower = _cpu_s(found[less, workers]) / _cpu_s(found[less, 1])
            said = simulate(_slowed(source, slower), Site(workers, cores=left))
            off.append(said.seconds / real.seconds - 1)
            rows.append(
                {
                    "from": name,
                    "processes": workers,
                    "simulated": Seconds(said.seconds),
                    "real": Seconds(real.seconds),
                    "off": Share(off[-1]),
                    "cores left": Factor(left),
                    "slower": Factor(slower),
                    "CPU of its tasks": Seconds(_cpu_s(real)),
                    "of those replayed": Seconds(_cpu_s(source) * slower),
                }
            )
    worst = max(map(abs, off))
    check = (f"within {MOST_OFF:.0%} ({worst:.1%})", worst <= MOST_OFF)
    notes = [
        "whole commands, on what other programs left of the cores in the real run",
        f"slower: CPU seconds of the tasks of {less:,} rows over those on one process, as processes share cores and"
        " caches. With a core for each thread the factor is 1",
    ]
    return [Table(f"Early prediction of {most:,} rows on {CORES} cores, simulated", rows, notes, [check])]


def weak(bench: Bench) -> list[Table]:
    source_of = _source(bench)
    tables: list[Table] = []
    for threads in (1, THREADS):
        rows: list[dict[str, Any]] = []
        for workers in WEAK[:2] if bench.sizes.is_quick else WEAK:
            n = WEAK_ROWS // (1000 if bench.sizes.is_quick else 1) * workers
            source, site = grown(*source_of, n), Site(workers, threads)
            said = simulate(source, site)
            rows.append(_row(said, source, site))
            rows[-1]["efficiency"] = Share(float(rows[0]["seconds"]) / said.seconds)
        last = rows[-1]["efficiency"]
        checks = [(f"{what} {least:.0%} ({last})", last >= least) for what, least in (("floor", LEAST), ("aim", AIM))]
        title = f"Weak scaling, workers of {threads} threads"
        notes = [] if tables else _assumed(source_of[1], Site(1, threads))
        tables.append(Table(title, rows, notes, checks))
    return tables


def sizes(bench: Bench) -> list[Table]:
    source_of, rows = _source(bench), []
    for n in (10**4, 10**5) if bench.sizes.is_quick else ROWS:
        source = grown(*source_of, n)
        for workers in MANY[:2] if bench.sizes.is_quick else MANY:
            site = Site(workers, THREADS)
            said = simulate(source, site)
            rows.append(_row(said, source, site) | _needs(said, source, site))
    title = f"Workers of {THREADS} threads"
    return [Table(title, rows, _assumed(source_of[1], Site(1, THREADS)))]


def _source(bench: Bench) -> tuple[tuple[Record, Record], Record]:
    """What grows: the largest record of one process; bytes between workers are those of the most processes."""
    found, leads = _loaded(bench)
    most = max(n for n, workers in found if workers == 1)
    several = max((workers, n) for n, workers in found)
    [moved] = {task.moved for stage in found[several[::-1]].stages for task in stage.tasks}
    own = found[most, 1]
    stages = [replace(stage, tasks=[t._replace(moved=moved) for t in stage.tasks]) for stage in own.stages]
    return leads, replace(own, stages=stages)


def _row(said: Outcome, source: Record, site: Site) -> dict[str, Any]:
    busy = {f"{who} busy": Share(s / said.seconds) for who, s in said.busy_s.items() if who != "workers"}
    threads = Share(said.busy_s["workers"] / said.seconds / site.slots)
    tasks = sum(len(stage.tasks) for stage in source.stages)
    return {
        "rows": source.n,
        "workers": site.workers,
        "tasks": tasks,
        "seconds": Seconds(said.seconds),
        "threads busy": threads,
    } | busy


def _needs(said: Outcome, source: Record, site: Site) -> dict[str, Any]:
    """Memory, bytes, and hours of machines: the workers, and that of the leading process and the scheduler."""
    stages = source.stages
    return {
        "leader's memory": Gigabytes(source.leader_bytes),
        "leader sends": Gigabytes(sum(stage.sent for stage in stages)),
        "receives": Gigabytes(sum(stage.received for stage in stages)),
        "between workers": Gigabytes(sum(task.moved for stage in stages for task in stage.tasks)),
        "machine hours": Factor((site.workers + 1) * said.seconds / 3600),
    }


def _assumed(source: Record, site: Site) -> list[str]:
    """What a table rests on, as its notes."""
    each, part = source.overheads, source.n / source.parts
    return [
        f"task times are CPU seconds of {source.n:,} rows on one process of {CORES} cores, replayed in their order"
        f" (seed {SEED}); each thread of a worker is as fast, and none of them fails or is slower than others",
        f"partitions stay as large as theirs, {part:,.0f} rows on average: levels round that to between a half and"
        " twice as many unless they are given, and take as long",
        "tasks grow with the blocks, which are larger ones of many rows, those that fit centres with the number of"
        f" partitions that are divided, passes with the depth of a tree of {MOST_CENTRES} centres a node",
        "CPU seconds of the leading process between stages, its memory and its end grow by a line through"
        f" {' and '.join(f'{n:,}' for n in LEADS)} rows, whose partitions were not solved. Its waiting time there"
        " does not grow. A digest of all labels runs on another core of its machine and is done before the end",
        f"a task that does nothing costs the scheduler {1e3 * each.scheduler_s:.2f} ms, a worker"
        f" {1e3 * each.worker_s:.2f}, the leading process {1e3 * each.leader_s:.2f}, measured; scheduler and leading"
        " process have a core each, of one machine, which is counted in the hours",
        f"{AHEAD} tasks under way for each thread; any idle thread takes the next",
        f"workers send each other as much for a task as {WORKERS[-1]} processes do; every thread has a core",
        f"{8e-9 * site.link_bytes_s:.0f} Gbit/s for each worker and for the leading process,"
        f" {1e-9 * site.files_bytes_s:.0f} GB/s of storage for all; blocks stay in the workers' memory",
    ]


ITEMS = {"record": record, "validate": validate, "weak": weak, "sizes": sizes}


def _items(text: str) -> list[str]:
    unknown = [name for name in text.split(",") if name not in ITEMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: no such item; there are {', '.join(ITEMS)}")
    return text.split(",")


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=_items, default=list(ITEMS), metavar="ITEM[,ITEM...]")


def main() -> None:
    with from_arguments(__doc__, _options) as (bench, args):
        report = Report(args.out)
        for name in args.only:
            report.add(ITEMS[name](bench))


if __name__ == "__main__":  # workers import this file
    main()
