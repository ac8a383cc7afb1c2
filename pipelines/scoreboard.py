"""Kernel SVMs next to boosted trees, forests and others: every table, each library's own search in equal time. Linux.

    python pipelines/scoreboard.py --data DIR --out DIR|FILE.json [--work DIR] [--seconds 60] [--cores 2]
        [--sets a,b] [--peers a,b] [--rows N] [--seed 0] [--resume] [--quick]

Each peer has the same seconds on the same cores for search and last fit, in a separate process: random configurations
(scoreboard_peers.py, scoreboard_ours.py: what they are drawn from) on few rows, the best third on four times as many;
scores are of rows held out of the training part, the same for all, and of five folds below 5,000 rows. The best is
fitted on all training rows, or on as many as the rest of the time is expected to allow (`rows fitted`). A peer that has
nothing to search is fitted on the rows that are not held out and, where there is time, on all again. Search and fit
of a peer that takes 1.5 times the seconds are ended, and it has no figures; the answers may take three times as long.

    seconds        search, last fit and the encoding of columns; imports and compiling come before
    microseconds   a test row, its encoding included, all rows asked at once
    peak memory    the most that the process held, less what it held once it had loaded the library and the data
    tried          configurations, each on the rows of a rung
    model          bytes of the library's own format, else of joblib's
    log loss       decisions become probabilities by a sigmoid fitted on held-out rows; those below 1e-6 count as 1e-6
    ROC area       of more than two classes the mean of each against the rest, of those that occur
    rank           by accuracy or R2, equal scores share a rank, and who has no figures is last

A peer whose library is not there is named and left out: `pip install lightgbm xgboost catboost`, and xrfm, which needs
torch (the build for CPUs will do). --out keeps results.jsonl as results come, from which --resume continues,
scoreboard.md and scoreboard.csv; if it is a file of figures, as in docs/figures, --work keeps all but the tables, by
default a folder of its name next to it. --data needs, of the sets that are asked for: covtype.csv.gz
electricity.csv.gz magic04.csv.gz census.parquet census.t.parquet skin_nonskin.tsv.gz ijcnn1.bz2 ijcnn1.t.bz2 a9a.bz2
a9a.t.bz2 letter.bz2 letter.t.bz2 phishing.bz2 abalone.bz2, and w8a.bz2 for the set w8a, which is run by name only.
--quick: 300 rows, a second, and
everything in this process: only to see that it runs. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import add_results, among, folder_of
from scoreboard_data import ALL, SETS, Problem
from scoreboard_ranks import rows_by_set, scores, summary, with_ranks
from scoreboard_worker import EVERYONE, measure
from tables import Report

from streamsvm.parallel.machine import cores as machine_cores

WORKER = Path(__file__).with_name("scoreboard_worker.py")
LATE = 1.5  # times the seconds: search and fit that take longer are ended
START_S, ANSWERS = 600.0, 3.0  # until a process is ready, compiling too; for its answers, times the seconds
STAGES = {"ready": "loading", "fitted": "search and fit", "done": "answering"}
QUICK_ROWS, QUICK_SECONDS = 300, 1.0
SETTINGS = ("seconds_allowed", "cores", "row_limit", "seed")  # a result of others is not gone on from
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
Record = dict[str, Any]


def run(path: Path, peer: str, args: argparse.Namespace) -> Record:
    """One peer in a separate process, which is ended when it is late."""
    words = [WORKER, path, peer, args.seconds, args.cores, args.seed]
    env = os.environ | dict.fromkeys(THREADS, str(args.cores))
    limits = {"ready": START_S, "fitted": LATE * args.seconds, "done": max(60.0, ANSWERS * args.seconds)}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        command = [sys.executable, *map(str, words)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
        try:
            return _followed(child, limits) | {"peer": peer}
        except TimeoutError as late:
            return {"peer": peer, "outcome": f"not finished: {late}"}
        except EOFError:
            return {"peer": peer, "outcome": f"failed: {_last_words(child, errors)}"}
        finally:
            child.kill()
            child.communicate()


def _followed(child: subprocess.Popen[str], limits: dict[str, float]) -> Record:
    """The record, when all stages have come in time. Raises TimeoutError, and EOFError where the process has ended."""
    assert child.stdout is not None
    for stage, limit in limits.items():
        began = time.perf_counter()
        late = threading.Timer(limit, child.kill)
        late.start()
        line = child.stdout.readline()
        late.cancel()
        if not line:
            if time.perf_counter() - began >= limit:
                raise TimeoutError(f"{STAGES[stage]} took over {limit:.0f} s")
            raise EOFError
    return json.loads(line)["record"] | {"outcome": "done"}


def _last_words(child: subprocess.Popen[str], errors: Any) -> str:
    status = child.wait()
    errors.seek(0)
    said = [line for line in errors.read().splitlines() if line.strip()]
    return "killed: out of memory?" if status == -9 else said[-1] if said else f"exit status {status}"


def results(args: argparse.Namespace, kept: list[Record]) -> Iterator[Record]:
    """Those that are kept, and then each that is measured."""
    yield from kept
    settings = {
        "seconds_allowed": args.seconds,
        "cores": args.cores,
        "row_limit": args.rows,
        "seed": args.seed,
    }
    there = {(r["set"], r["peer"]) for r in kept if not r["outcome"].startswith("failed")}
    for name in args.sets:
        wanted = [peer for peer in args.peers if (name, peer) not in there]
        if not wanted:
            continue
        problem = ALL[name](args.data).capped(args.rows)
        facts = {"set": name, "n": len(problem.y), "n_test": len(problem.y_test), "d": problem.X.shape[1]}
        facts |= {"task": "regression" if problem.is_regression else f"{problem.n_classes} classes"}
        with tempfile.TemporaryDirectory(prefix="scoreboard-") as folder:
            path = Path(folder) / "problem.npz"
            problem.save(path)
            for peer in wanted:
                yield facts | settings | _measured(problem, path, peer, args)


def _measured(problem: Problem, path: Path, peer: str, args: argparse.Namespace) -> Record:
    if not args.quick:
        return run(path, peer, args)
    found = measure(
        problem,
        EVERYONE[peer],
        seconds=args.seconds,
        cores=args.cores,
        seed=args.seed,
        tell=lambda stage: None,
    )
    return found | {"peer": peer, "outcome": "done"}


def kept_results(args: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Record]:
    """What --resume continues from; another file of results is not written over."""
    path = args.work / "results.jsonl"
    if not path.exists():
        return []
    if not args.resume:
        parser.error(f"{path} is there: --resume continues from it, another --out or --work starts again")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    given = (args.seconds, args.cores, args.rows, args.seed)
    for record in records:
        before = tuple(record[name] for name in SETTINGS)
        if before != given:
            theirs = dict(zip(SETTINGS, before, strict=True))
            parser.error(f"{path} has results of {theirs}, found {given} asked for: choose another --out or --work")
    last = {(record["set"], record["peer"]): record for record in records}
    return [r for r in last.values() if not r["outcome"].startswith("failed")]


def write(args: argparse.Namespace, records: list[Record], report: Report, notes: list[str]) -> None:
    """The tables, and every record with its rank."""
    ranked = with_ranks(records)
    order = [name for name in ALL if name in {r["set"] for r in ranked}]
    tables = [*scores(ranked), summary(ranked, notes), *(rows_by_set(ranked, n) for n in order)]
    report.add(tables)
    columns = list(dict.fromkeys(name for record in ranked for name in record))
    with (args.work / "scoreboard.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(ranked)


def arguments(words: list[str] | None) -> tuple[argparse.Namespace, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = WORKER.parent.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=data, metavar="DIR")
    add_results(parser, "results and tables")
    parser.add_argument("--sets", type=among(ALL), default=list(SETS), metavar="SET[,SET...]")
    parser.add_argument("--peers", type=among(EVERYONE), default=list(EVERYONE), metavar="PEER[,PEER...]")
    parser.add_argument("--seconds", type=float, help="for search and fit (default 60)")
    parser.add_argument("--cores", type=int, default=min(2, machine_cores()), help="(default 2)")
    parser.add_argument("--rows", type=int, metavar="N", help="at most so many training rows (default all)")
    parser.add_argument("--seed", type=int, default=0, help="of the searches (default 0)")
    parser.add_argument("--resume", action="store_true", help="skip what --out has results of")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that everything runs")
    args = parser.parse_args(words)
    args.rows = args.rows or (QUICK_ROWS if args.quick else None)
    args.seconds = args.seconds or (QUICK_SECONDS if args.quick else 60.0)
    args.work = folder_of(args)
    return args, parser


def main(words: list[str] | None = None) -> None:
    args, parser = arguments(words)
    args.work.mkdir(parents=True, exist_ok=True)
    tables = args.work / "scoreboard.md" if args.out == args.work else args.out
    report = Report(tables)  # knows the load as it is now
    missing = {name: why for name in args.peers if (why := EVERYONE[name].left_out())}
    notes = [f"{name}: {why}, left out" for name, why in missing.items()]
    print("\n".join([*notes, ""]), flush=True)
    args.peers = [name for name in args.peers if name not in missing]
    kept = kept_results(args, parser)
    records = []
    with (args.work / "results.jsonl").open("a", encoding="utf-8") as file:
        try:
            for record in results(args, kept):
                records.append(record)
                if len(records) > len(kept):
                    file.write(json.dumps(record) + "\n")
                    file.flush()
                    print(_line(record), flush=True)
        except FileNotFoundError as absent:
            parser.error(f"--data {args.data}: {absent.filename} is not there; --sets chooses others")
    write(args, records, report, notes)


def _line(record: Record) -> str:
    if record["outcome"] != "done":
        return f"{record['set']}, {record['peer']}: {record['outcome']}"
    score = f"accuracy {record['accuracy']:.4f}" if "accuracy" in record else f"R2 {record['r2']:.4f}"
    return f"{record['set']}, {record['peer']}: {score} in {record['seconds']:.1f} s"


if __name__ == "__main__":
    main()
