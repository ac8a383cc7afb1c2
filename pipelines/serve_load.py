"""Load on `streamsvm serve`: predictions a second, and how long they take, while it learns and is killed. Linux.

    python pipelines/serve_load.py --data DIR [--seconds 60] [--connections 4] [--batch 100] [--learn 0] [--kills 0]
        [--quick] [--out serve.md]

Events are rows of ijcnn1.bz2 and ijcnn1.t.bz2 in --data: `streamsvm stream` learns the first 20,000 with a budget of
500, then the server gets batches to predict on each connection, one after the other, and, over one more, --learn events
a second to learn. This process makes the load; the server is a separate one, with --durable. --kills times it gets
SIGKILL and is started again; a request to learn that was not answered is sent again by its number. In the end the
snapshot must be, bit by bit, that of `streamsvm stream` over the same events.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from bench import STREAMSVM, Bench, from_arguments
from measure import Failed
from stream_kills import OPTIONS, state_of
from tables import Bytes, Report, Table

from streamsvm.parallel.machine import rss_bytes

BEFORE = 20_000  # events that are learnt before
LESSON = 20  # events of a request to learn
BODIES = 50  # requests to predict that differ
PARTS = 10
RETRY_S, START_S = 0.05, 60.0
HOST = "127.0.0.1"
GONE = (OSError, asyncio.IncompleteReadError)  # what a client hears of a server that was killed


@dataclass
class Load:
    """What is asked for, and what came of it: of each answer when it came and how long it took, seconds."""

    seconds: float
    batch: int
    learn: int
    learnt: int  # events that the server has acknowledged, in all
    began: float = 0.0
    answers: list[tuple[float, float]] = field(default_factory=list)
    lessons: list[tuple[float, float]] = field(default_factory=list)
    kills: list[tuple[float, float]] = field(default_factory=list)  # when, and when it answered again
    memory: list[tuple[float, int]] = field(default_factory=list)

    @property
    def at(self) -> float:
        return time.perf_counter() - self.began


class Server:
    """`streamsvm serve`, at one port over all its lives."""

    def __init__(self, model: Path) -> None:
        with socket.create_server((HOST, 0)) as free:
            self.port = free.getsockname()[1]
        self._log = model.with_suffix(".stderr")
        self._command = [*STREAMSVM, "serve", "--model", str(model), "--port", str(self.port), "--durable"]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as out:
            self.child = subprocess.Popen(self._command, stderr=out)

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def end(self) -> None:
        self.child.send_signal(signal.SIGTERM)
        if self.child.wait(START_S) != 0:
            raise Failed(f"exit status {self.child.returncode} of the server: {self._log.read_text()}")


class Connection:
    """One that is kept, and made again if the server is gone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._pair: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> list[Any]:
        """The answer. Raises one of GONE, Failed for another status than 200."""
        try:
            if self._pair is None:
                self._pair = await asyncio.open_connection(HOST, self._port, limit=1 << 20)
            reader, writer = self._pair
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length))
        except GONE:
            self._pair = None
            await asyncio.sleep(RETRY_S)
            raise
        if not head.startswith(b"http/1.1 200"):
            raise Failed(f"the server said {body.decode()}")
        return json.loads(body)


def request(path: str, events: list[Any]) -> bytes:
    body = json.dumps(events).encode()
    return b"POST %b HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


async def predicting(load: Load, port: int, requests: list[bytes], first: int) -> None:
    connection = Connection(port)
    for one in islice(cycle(requests), first, None):
        if load.at > load.seconds:
            return
        start = time.perf_counter()
        with suppress(*GONE):
            labels = await connection.ask(one)
            if len(labels) != load.batch:
                raise Failed(f"{len(labels)} answers to {load.batch} events")
            load.answers.append((load.at, time.perf_counter() - start))


async def learning(load: Load, port: int, events: list[Any]) -> None:
    """Sends events at a steady rate, each request until it is answered: a kill may have come after it was learned."""
    connection, before = Connection(port), load.learnt
    while load.learn and load.at < load.seconds and load.learnt + LESSON <= len(events):
        first, start = load.learnt + 1, time.perf_counter()
        lesson = request(f"/learn?from={first}", events[load.learnt : load.learnt + LESSON])
        while load.learnt < first:
            with suppress(*GONE):
                answers = await connection.ask(lesson)
                if [a["event"] for a in answers] != list(range(first, first + LESSON)):
                    raise Failed(f"the server learned other events than {first:,} on: {str(answers)[:200]}")
                load.lessons.append((load.at, time.perf_counter() - start))
                load.learnt += LESSON
        due = (load.learnt - before) / load.learn
        await asyncio.sleep(max(0.0, due - load.at))


async def killing(load: Load, server: Server, one: bytes, kills: int) -> None:
    """SIGKILL at random moments, one in each stretch of the time."""
    rng = np.random.default_rng(0)
    for number in range(kills):
        due = load.seconds * (number + rng.uniform(0.2, 0.8)) / kills
        await asyncio.sleep(max(0.0, due - load.at))
        at = load.at
        await asyncio.to_thread(server.kill)
        server.start()
        await answering(server.port, one)
        load.kills.append((at, load.at))


async def watching(load: Load, server: Server) -> None:
    while load.at < load.seconds:
        with suppress(psutil.Error):  # between two lives
            load.memory.append((load.at, rss_bytes(server.child.pid)))
        await asyncio.sleep(min(1.0, load.seconds / PARTS / 4))


async def answering(port: int, one: bytes) -> None:
    """Waits for the server. Raises Failed."""
    connection, deadline = Connection(port), time.monotonic() + START_S
    while time.monotonic() < deadline:
        with suppress(*GONE):
            await connection.ask(one)
            return
    raise Failed(f"no server in {START_S:.0f} s")


async def run(load: Load, server: Server, events: list[Any], connections: int, kills: int) -> None:
    """The whole load, side by side."""
    requests = [
        request("/predict", [event["x"] for event in events[start : start + load.batch]])
        for start in range(0, BODIES * load.batch, load.batch)
    ]
    await answering(server.port, requests[0])
    load.began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(connections):
            tasks.create_task(predicting(load, server.port, requests, number * BODIES // connections))
        tasks.create_task(learning(load, server.port, events))
        tasks.create_task(killing(load, server, requests[0], kills))
        tasks.create_task(watching(load, server))


def over_time(load: Load) -> Table:
    records = []
    for part in range(PARTS):
        start, stop = (load.seconds * edge / PARTS for edge in (part, part + 1))
        took = [seconds for at, seconds in load.answers if start < at <= stop]
        held = [size for at, size in load.memory if start < at <= stop]
        killed = any(at < stop and start < back for at, back in load.kills)
        records.append(
            {
                "part": f"{part + 1} of {PARTS}",
                "predictions/s": int(len(took) * load.batch / (stop - start)),
                **percentiles(took),
                "memory": Bytes(max(held, default=0)),
                "killed": "yes" if killed else "",
            }
        )
    every = [seconds for _, seconds in load.answers]
    rate, p99 = len(every) * load.batch / load.seconds, np.percentile(every, 99)
    quiet = [record for record in records if not record["killed"]] or records
    rates = [record["predictions/s"] for record in quiet]
    told = ", ".join(f"{name} {value}" for name, value in percentiles(every).items())
    back = [f"killed at {at:.1f} s, answers again {back - at:.1f} s later" for at, back in load.kills]
    notes = [
        f"{load.seconds:g} s: {len(every) * load.batch:,} predictions, {rate:,.0f} a second; {told}",
        *back,
    ]
    checks = [
        ("20,000 predictions a second", rate >= 20_000),
        ("99 of 100 within 50 ms", bool(p99 <= 0.05)),
        (
            "flat: no part without a kill below 0.9 of their median",
            bool(min(rates) >= 0.9 * np.median(rates)),
        ),
        (
            "memory flat: at the end at most 1.05 times that of the second part",
            bool(load.kills) or records[-1]["memory"] <= 1.05 * records[1]["memory"],
        ),
    ]
    return Table(f"Batches of {load.batch} events", records, notes, checks)


def lessons(load: Load, bench: Bench, before: int) -> Table:
    """What was learned meanwhile, and whether the model is what a stream makes of the same events."""
    took = [seconds for _, seconds in load.lessons]
    whole, events = bench.work / "whole.model", bench.work / "learnt"
    with (bench.work / "events").open("rb") as lines, events.open("wb") as out:
        out.writelines(islice(lines, load.learnt))
    learn(whole, events)
    is_same = state_of(whole) == state_of(bench.work / "served.model")
    record = {"events": load.learnt - before, "events/s": int((load.learnt - before) / load.seconds)}
    record |= percentiles(took) | {"same": "yes" if is_same else "no"}
    checks = [
        (
            f"after {len(load.kills)} kills the snapshot is bit by bit that of a stream over all events",
            is_same,
        )
    ]
    return Table("Learning at the same time", [record], [], checks)


def percentiles(took: list[float]) -> dict[str, str | None]:
    found = {"p50": 50, "p99": 99, "longest": 100}
    return {name: f"{1e3 * np.percentile(took, q):.1f} ms" if took else None for name, q in found.items()}


def learn(model: Path, events: Path) -> None:
    """`streamsvm stream` over a file of events, from its first one."""
    shutil.rmtree(model, ignore_errors=True)
    command = [*STREAMSVM, "stream", "--model", model, "--input", events, *OPTIONS, "--snapshot-every", 10**9]
    done = subprocess.run(
        [*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        raise Failed(f"exit status {done.returncode} of the stream: {done.stderr}")


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, default=4, metavar="N")
    parser.add_argument("--batch", type=int, default=100, metavar="N", help="events of a request to predict")
    parser.add_argument("--learn", type=int, default=0, metavar="N", help="events a second that are learned meanwhile")
    parser.add_argument("--kills", type=int, default=0, metavar="N")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        before, seconds = (1_000, min(args.seconds, 4.0)) if args.quick else (BEFORE, args.seconds)
        load = Load(seconds, args.batch, args.learn, before)
        more = max(int(seconds * args.learn) + LESSON, BODIES * args.batch - before)
        bench.prepare("events", bench.data, bench.work / "events", "--rows", before + more)
        events = [json.loads(line) for line in (bench.work / "events").read_text().splitlines()]
        first, model = bench.work / "first", bench.work / "served.model"
        first.write_text("".join(json.dumps(event) + "\n" for event in events[:before]))
        learn(model, first)
        shutil.rmtree(model.with_name(f"{model.name}.log"), ignore_errors=True)
        server = Server(model)
        try:
            asyncio.run(run(load, server, events, args.connections, args.kills))
            server.end()
        finally:
            server.kill()
        report = Report(args.out)
        made = [over_time(load), *([lessons(load, bench, before)] if args.learn else [])]
        report.add(made)
    sys.exit(not args.quick and not all(met for table in made for _, met in table.checks))


if __name__ == "__main__":
    main()
