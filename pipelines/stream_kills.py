"""A long `streamsvm stream`: memory and throughput over its length, then the same stream killed again and again. Linux.

    python pipelines/stream_kills.py --data DIR [--events 1000000] [--kills 10] [--quick] [--out stream.md]

Events are the rows of ijcnn1.bz2 and ijcnn1.t.bz2 in --data, shuffled again each time round. The second run gets
SIGKILL at random moments and is started again each time. Whatever it answered, before and after, must be what the first
run answered; the two snapshots at the end must be equal bit by bit.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bench import STREAMSVM, Bench, from_arguments
from measure import Failed
from tables import Bytes, Report, Share, Table

from streamsvm.models.files import load_model
from streamsvm.parallel.machine import rss_bytes

EVERY = 5_000  # events from snapshot to snapshot
PARTS = 10
SAMPLE_S = 0.05
OPTIONS = ("--gamma", "2", "--lam", "1e-5", "--budget", "500", "--scale", "none")


@dataclass
class Sample:
    """How far a stream was at a moment."""

    seconds: float
    bytes_answered: int
    rss_bytes: int


def start(bench: Bench, name: str) -> tuple[subprocess.Popen[bytes], Path]:
    """`streamsvm stream` over the events, its answers after the existing ones."""
    answers = bench.work / f"{name}.answers"
    command = [
        *STREAMSVM,
        "stream",
        "--model",
        bench.work / f"{name}.model",
        "--input",
        bench.work / "events",
    ]
    with answers.open("ab") as out:
        child = subprocess.Popen(
            [*map(str, command), *OPTIONS, "--snapshot-every", str(EVERY)],
            stdout=out,
            stderr=subprocess.DEVNULL,
        )
    return child, answers


def whole(bench: Bench, n: int) -> Table:
    """The stream from its first event to its last."""
    child, answers = start(bench, "whole")
    began, samples = time.perf_counter(), list[Sample]()
    while child.poll() is None:
        rss = _rss(child.pid)
        if rss:
            samples.append(Sample(time.perf_counter() - began, answers.stat().st_size, rss))
        time.sleep(SAMPLE_S)
    seconds = time.perf_counter() - began
    if child.returncode:
        raise Failed(f"exit status {child.returncode} of the stream")
    total = answers.stat().st_size
    answered = [sample for sample in samples if sample.bytes_answered > 0]
    records = []
    for part in range(PARTS):  # answers are of nearly one length: so many bytes are so many events
        here = [s for s in answered if part <= PARTS * s.bytes_answered / total <= part + 1]
        if len(here) > 1:
            share = (here[-1].bytes_answered - here[0].bytes_answered) / total
            rate = share * n / (here[-1].seconds - here[0].seconds)
            memory = Bytes(max(s.rss_bytes for s in here))
            records.append({"part": f"{part + 1} of {PARTS}", "events/s": int(rate), "peak memory": memory})
    right = sum(answer["prediction"] == answer["label"] for _, answer in _answers(answers))
    notes = [
        f"{n:,} rows of ijcnn1, budget 500, in {seconds:.0f} s, a snapshot every {EVERY:,}; accuracy {Share(right / n)}"
    ]
    rates = [record["events/s"] for record in records]
    growth = records[-1]["peak memory"] / records[0]["peak memory"]
    checks = [
        (f"memory flat: at the end {growth:.2f} times that of the first part", growth <= 1.02),
        ("throughput flat: no part below 0.9 of their median", bool(min(rates) >= 0.9 * np.median(rates))),
    ]
    return Table("One stream", records, notes, checks)


def killed(bench: Bench, n: int, kills: int) -> Table:
    """The same stream, killed at random moments and resumed."""
    rng, total = np.random.default_rng(0), (bench.work / "whole.answers").stat().st_size
    records = []
    for life in range(kills + 1):
        child, answers = start(bench, "killed")
        before = answers.stat().st_size
        if life < kills:
            enough = before + rng.uniform(0, total / (kills + 1))
            while answers.stat().st_size <= enough and child.poll() is None:
                time.sleep(0.01)
            child.send_signal(signal.SIGKILL)
        if child.wait() not in (0, -signal.SIGKILL):
            raise Failed(f"exit status {child.returncode} of the stream")
        records.append(_life(answers, before) | {"ended by": "SIGKILL" if child.returncode else "its end"})
    differ, seen = _compare(bench.work / "whole.answers", bench.work / "killed.answers")
    checks = [
        (f"every event answered ({seen:,} of {n:,})", seen == n),
        ("every answer the one of the stream that was not killed", differ == 0),
        (
            "each life continues right after a snapshot not older than the last one named",
            all(
                (later["first event"] - 1) % EVERY == 0
                and earlier["snapshot named"] < later["first event"] <= earlier["last event"] + 1 + EVERY
                for earlier, later in zip(records, records[1:], strict=False)
            ),
        ),
        (
            "both snapshots at the end equal bit by bit",
            state_of(bench.work / "whole.model") == state_of(bench.work / "killed.model"),
        ),
    ]
    notes = ["after each kill the same command starts again; events are numbers of answers"]
    return Table(f"The same, killed {kills} times", records, notes, checks)


def _life(answers: Path, offset: int) -> dict[str, Any]:
    numbers = [(answer["event"], answer["snapshot"]) for at, answer in _answers(answers) if at >= offset]
    if not numbers:
        return {"first event": 0, "last event": 0, "snapshot named": 0}
    return {"first event": numbers[0][0], "last event": numbers[-1][0], "snapshot named": numbers[-1][1]}


def _answers(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(offset, answer) of each whole line; a kill may have cut one off."""
    at = 0
    with path.open("rb") as file:
        for line in file:
            for piece in _whole(line):
                yield at, piece
            at += len(line)


def _whole(line: bytes) -> Iterator[dict[str, Any]]:
    """The answers in a line: after a kill, the next life's first one follows what was cut off."""
    start = line.rfind(b'{"event"')
    try:
        yield json.loads(line[start:])
    except ValueError:
        return


def _compare(one: Path, other: Path) -> tuple[int, int]:
    """Answers of `other` that differ from `one`'s to the same event, and events answered at least once."""
    keep = ("prediction", "probabilities", "label")
    expected = {answer["event"]: [answer[name] for name in keep] for _, answer in _answers(one)}
    seen, differ = set(), 0
    for _, answer in _answers(other):
        seen.add(answer["event"])
        differ += expected[answer["event"]] != [answer[name] for name in keep]
    return differ, len(seen)


def state_of(model: Path) -> dict[str, bytes]:
    """All arrays of a model of a stream, but for the time that it took."""
    arrays, _ = load_model(model).to_state()
    values = {key: np.asarray(array) for key, array in arrays.items()}
    values["learner_counts"] = np.delete(values["learner_counts"], 3)  # nanoseconds
    return {key: array.tobytes() for key, array in values.items()}


def _rss(pid: int) -> int:
    try:
        return rss_bytes(pid)
    except psutil.Error:  # it has ended
        return 0


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=10)


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        n, kills = (12_000, 2) if args.quick else (args.events, args.kills)
        for name in ("whole", "killed"):
            shutil.rmtree(bench.work / f"{name}.model", ignore_errors=True)
            (bench.work / f"{name}.answers").unlink(missing_ok=True)
        bench.prepare("events", bench.data, bench.work / "events", "--rows", n)
        report = Report(args.out)
        report.add([whole(bench, n)])
        report.add([killed(bench, n, kills)])


if __name__ == "__main__":
    main()
