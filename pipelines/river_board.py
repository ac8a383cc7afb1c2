"""Every classifier of river's and ours along the same streams: each event is predicted, then learned.

    python pipelines/river_board.py --data DIR --out DIR|FILE.json [--work DIR] [--events 10000] [--seeds 3] [--jobs 2]
        [--limit-s 300] [--only STREAM[,STREAM...]] [--without STREAM[,STREAM...]] [--models MODEL[,MODEL...]]

Streams are those of river's tracks that river ships, others that it makes, files of the data folder in their order, and
abrupt and gradual drifts in the middle of the events (streams.py). Models are by their defaults, those that know two
classes each against the rest where there are more, river's StandardScaler before those that need it; BSGDClassifier()
stands alone: it scales and tunes itself (board_models.py, which also says who is left out, and why). Nothing is set by
stream.

    accuracy, kappa    of all events
    ROC area           of several classes the mean of each against the rest, of those that occur
    events/s           predicted and learned, in a CPU second of the one process that does it; compiling comes before
    memory             of the model's objects, as river counts it, at tenths of the stream
    rank               in each stream, by accuracy, the mean over seeds, where equal ones share the mean of their ranks,
                       and who failed is last
    seeds              of the stream where it is made, and of the model where it draws numbers; else one run says it all

A model that has taken --limit-s CPU seconds on a stream is stopped and scored on the events until then, which the page
states. --out keeps results.jsonl as results come (what is there is not run again, except for what failed), board.md,
and board.html, a page of tables and plots. If --out is a file of figures, as in docs/figures, all these
are in --work, by default a folder of its name next to it, and the file is written once every result is there.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numba
from bench import HERE, add_results, among, folder_of
from board_models import MODELS, OURS
from board_page import page_of
from board_ranks import Board, board_tables, models_table, streams_table, whole
from prequential import prequential
from streams import ABRUPT, STREAMS, Event, Made, events
from tables import Report
from threadpoolctl import threadpool_limits

from streamsvm.runs.records import JsonLines, lines_of
from streamsvm.storage.atomic import whole_file

EVERY = STREAMS | ABRUPT
WARM = 2_200  # events until everything is compiled: a pool loses most of its learners at 2,048
SETTINGS = ("events", "limit_s")  # results of others are not gone on from
Record = dict[str, Any]


@dataclass(frozen=True)
class Task:
    stream: str
    seed: int
    model: str


def tasks(streams: Sequence[str], models: Sequence[str], seeds: int) -> list[Task]:
    """By stream and seed, so that a process reads a stream once; what no seed changes is run once."""
    return [
        Task(stream, seed, model)
        for stream in streams
        for seed in range(1, seeds + 1)
        for model in models
        if seed == 1 or isinstance(EVERY[stream], Made) or MODELS[model].is_seeded
    ]


@lru_cache(maxsize=1)
def loaded(stream: str, data: Path, n: int, seed: int) -> tuple[list[Event], list[Any]]:
    """Events, and all labels there are. Names of features are text; of two labels the larger one is True."""
    found = [({str(name): value for name, value in x.items()}, y) for x, y in events(stream, data, n, seed)]
    labels = sorted({y for _, y in found})
    if len(labels) == 2:
        return [(x, y == labels[1]) for x, y in found], [False, True]
    return found, labels


def measured(task: Task, *, data: Path, n: int, limit_s: float) -> Record:
    """One model along one stream, on one core. Whatever it raises is its result: others continue."""
    stream, labels = loaded(task.stream, data, n, task.seed if isinstance(EVERY[task.stream], Made) else 1)
    facts: Record = asdict(task) | {
        "events": n,
        "limit_s": limit_s,
        "length": len(stream),
        "classes": len(labels),
    }
    make = partial(MODELS[task.model], len(labels), task.seed)
    numba.set_num_threads(1)
    with threadpool_limits(1):
        if task.model == OURS:
            prequential(make(), stream[:WARM])
        try:
            told = prequential(make(), stream, limit_s)
        except Exception as error:
            return facts | {"outcome": f"failed: {type(error).__name__}: {error}"}
    is_whole = len(told.truth) == len(stream)
    outcome = "done" if is_whole else f"stopped after {len(told.truth):,} of {len(stream):,} events"
    rates = {"n": len(told.truth), "seconds": told.seconds, "events_per_s": len(told.truth) / told.seconds}
    traces = {"curve": told.curve(len(stream)), "memory": told.memory}
    return facts | {"outcome": outcome} | told.scores(labels) | rates | traces


def results(todo: Sequence[Task], jobs: int, **options: Any) -> Iterator[Record]:
    """As they come: of several processes, or of this one."""
    if jobs == 1:
        yield from map(partial(measured, **options), todo)
        return
    # fresh processes: threads of this one would not go on in a fork
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            for ended in as_completed([pool.submit(measured, task, **options) for task in todo]):
                yield ended.result()
        finally:
            pool.shutdown(cancel_futures=True)


def task_of(record: Record) -> Task:
    return Task(record["stream"], record["seed"], record["model"])


def kept_results(path: Path, args: argparse.Namespace) -> list[Record]:
    """The last result of each task. Raises ValueError where the file has those of other settings."""
    records = [json.loads(line) for line in lines_of(path) if line.endswith(b"\n")]
    asked = {"events": args.events, "limit_s": args.limit_s}
    for record in records:
        before = {name: record[name] for name in SETTINGS}
        if before != asked:
            raise ValueError(f"{path} has results of {before}, found {asked} asked for: choose another --out")
    return [*{task_of(record): record for record in records}.values()]


def write(out: Path, records: Sequence[Record]) -> None:
    """board.md and board.html, of the streams that all models have been along: in others ranks would be of few."""
    records = whole(records)
    if not records:
        return
    Report(out / "board.md").add(board_tables(records))
    with whole_file(out / "board.html") as file:
        file.write(page_of(records).encode())


def write_figures(report: Report, records: Sequence[Record]) -> None:
    board = Board(records)
    report.add([models_table(board), streams_table(board)])


def line(record: Record) -> str:
    head = f"{record['stream']}, {record['model']}, seed {record['seed']}: "
    if record["outcome"].startswith("failed"):
        return head + record["outcome"]
    rate = f"accuracy {record['accuracy']:.4f}, {record['events_per_s']:.0f} events/s"
    return head + rate + ("" if record["outcome"] == "done" else f", {record['outcome']}")


def arguments(words: list[str] | None) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = HERE.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, metavar="DIR")
    add_results(parser, "results, tables and a page")
    parser.add_argument("--events", type=_count, default=10_000, metavar="N", help="(default 10000)")
    parser.add_argument("--seeds", type=_count, default=3, metavar="K", help="(default 3)")
    parser.add_argument("--limit-s", type=float, default=300.0, metavar="S", help="(default 300)")
    parser.add_argument("--jobs", type=_count, default=1, metavar="J", help="processes (default 1)")
    parser.add_argument("--only", type=among(EVERY), default=list(EVERY), metavar="STREAM[,STREAM...]")
    parser.add_argument("--without", type=among(EVERY), default=[], metavar="STREAM[,STREAM...]")
    parser.add_argument("--models", type=among(MODELS), default=list(MODELS), metavar="MODEL[,MODEL...]")
    args = parser.parse_args(words)
    args.only = [stream for stream in args.only if stream not in args.without]
    return args, parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number above 0")
    return int(text)


def main(words: list[str] | None = None) -> None:
    args, parser = arguments(words)
    folder = folder_of(args)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.jsonl"
    try:
        kept = kept_results(path, args)
    except ValueError as error:
        parser.error(str(error))
    there = {task_of(record) for record in kept if not record["outcome"].startswith("failed")}
    todo = [task for task in tasks(args.only, args.models, args.seeds) if task not in there]
    found = {task_of(record): record for record in kept}
    figures = Report(args.out) if folder != args.out else None  # knows the machine as it is now
    write_line = JsonLines(path)
    try:
        options = {"data": args.data, "n": args.events, "limit_s": args.limit_s}
        for record in results(todo, args.jobs, **options):
            write_line(record)
            found[task_of(record)] = record
            print(line(record), flush=True)
    except FileNotFoundError as absent:
        parser.error(f"--data {args.data}: {absent.filename} is not there; --only chooses other streams")
    except BrokenProcessPool:
        parser.exit(
            1,
            f"a process was ended from outside: out of memory? {path} keeps results, this continues from them\n",
        )
    except KeyboardInterrupt:
        parser.exit(130, f"interrupted: the same command continues from {path}\n")
    finally:
        write_line.close()
        write(folder, list(found.values()))
    if figures is not None:
        write_figures(figures, [found[task] for task in tasks(args.only, args.models, args.seeds)])


if __name__ == "__main__":
    main()
