"""A fit on a cluster, replayed: discrete events over what its tasks took when they were recorded.

A run is stages, one after the other; each waits for all tasks of the one before, then for the leading process. On its
way a task takes the leading process, the scheduler, the leader's link, a thread of a worker (values of other workers,
files, a core), the scheduler's and the link's way back, and the leading process again, which takes results in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

import numpy as np

WHO = ("leader", "scheduler", "workers")
MOST_TASKS, LEAST_WAVES = 20_000, 8  # of a stage that are replayed: tasks, and tasks of a thread
AHEAD = 8  # tasks under way for each thread, as of `ClusterEngine.wide`: two windows of four
Resume = Callable[[], None]
Wait = Callable[[Resume], None]  # begins something, and resumes after it


class Task(NamedTuple):
    """What a task took: CPU seconds; bytes of its result, of what came from other workers, of its files."""

    cpu_s: float
    result: float = 0.0
    moved: float = 0.0
    files: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Tasks that are under way together.

    Of the leading process: gap_s, CPU seconds alone before it, and wait_s, others of that time. lead_s: CPU seconds for
    each task. sent, received: bytes in all.
    """

    name: str
    tasks: list[Task]
    gap_s: float = 0.0
    wait_s: float = 0.0
    lead_s: float = 0.0
    sent: float = 0.0
    received: float = 0.0


@dataclass(frozen=True)
class Overheads:
    """CPU seconds of each process for a task that does nothing; and a second, of the leading process that waits."""

    scheduler_s: float = 0.0
    worker_s: float = 0.0
    leader_s: float = 0.0
    idle: float = 0.0


@dataclass(frozen=True)
class Record:
    """A whole command, from its start to its end. others: share of the cores' time that other programs had.

    tail_s: of the leading process alone, after the last stage. leader_bytes: its peak memory.
    """

    n: int
    workers: int
    seconds: float
    others: float
    parts: int
    leader_bytes: float
    tail_s: float
    overheads: Overheads
    stages: list[Stage]

    @classmethod
    def of(cls, facts: dict[str, Any]) -> Record:
        """From JSON."""
        stages = [Stage(**{**own, "tasks": [Task(*t) for t in own["tasks"]]}) for own in facts["stages"]]
        return cls(**{**facts, "overheads": Overheads(**facts["overheads"]), "stages": stages})


@dataclass(frozen=True)
class Site:
    """The machines that it runs on. cores: of the one machine that all processes are on, or None if each has enough.

    link_bytes_s: of each worker, and of the leading process. files_bytes_s: of the storage that all share.
    """

    workers: int
    threads: int = 1
    cores: float | None = None
    link_bytes_s: float = 1.25e9
    files_bytes_s: float = 1e10

    @property
    def slots(self) -> int:
        return self.workers * self.threads


@dataclass
class Outcome:
    """seconds: that it took. busy_s: CPU seconds, by who took them."""

    seconds: float = 0.0
    busy_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WHO, 0.0))

    def __add__(self, after: Outcome) -> Outcome:
        busy = {who: seconds + after.busy_s[who] for who, seconds in self.busy_s.items()}
        return Outcome(self.seconds + after.seconds, busy)


class Clock:
    """What happens when; what is due at the same time happens in the order in which that was said."""

    def __init__(self) -> None:
        self.now, self._due, self._count = 0.0, list[tuple[float, int, Resume]](), 0

    def after(self, seconds: float, resume: Resume) -> None:
        self._count += 1
        heappush(self._due, (self.now + seconds, self._count, resume))

    def run(self) -> None:
        while self._due:
            self.now, _, resume = heappop(self._due)
            resume()


class Shared:
    """What is divided equally among those who use it, of whom none gets more than `most`: cores, links, storage."""

    def __init__(self, clock: Clock, capacity: float, most: float = 1.0) -> None:
        self._clock, self._capacity, self._most = clock, capacity, most
        self._jobs: list[tuple[float, int, Resume]] = []  # each ends when everybody has had so much
        self._had, self._at, self._plan, self._count = 0.0, 0.0, 0, 0

    def use(self, amount: float) -> Wait:
        return partial(self._begin, amount)

    def _begin(self, amount: float, resume: Resume) -> None:
        if self._capacity == inf:
            self._clock.after(amount / self._most, resume)
            return
        self._pass()
        self._count += 1
        heappush(self._jobs, (self._had + amount, self._count, resume))
        self._next()

    @property
    def _rate(self) -> float:
        return min(self._most, self._capacity / max(1, len(self._jobs)))

    def _pass(self) -> None:
        self._had += (self._clock.now - self._at) * self._rate
        self._at = self._clock.now

    def _next(self) -> None:
        self._plan += 1
        if self._jobs:
            left = max(0.0, self._jobs[0][0] - self._had)
            self._clock.after(left / self._rate, partial(self._end, self._plan))

    def _end(self, plan: int) -> None:
        if plan != self._plan:
            return  # others came or went meanwhile
        self._pass()
        _, _, resume = heappop(self._jobs)
        self._next()
        resume()


class Line:
    """Who comes first is served first, so many at a time."""

    def __init__(self, clock: Clock, servers: int) -> None:
        self._clock, self._free, self._waiting = clock, servers, deque[Resume]()

    def enter(self, resume: Resume) -> None:
        if self._free:
            self._free -= 1
            resume()
        else:
            self._waiting.append(resume)

    def leave(self) -> None:
        if self._waiting:
            self._clock.after(0.0, self._waiting.popleft())
        else:
            self._free += 1


class Replay:
    """A stage on a site; runs once."""

    def __init__(self, site: Site, overheads: Overheads) -> None:
        self.clock, self.outcome = Clock(), Outcome()
        self._site, self._overheads = site, overheads
        shared = inf if site.cores is None else site.cores
        self._cores = Shared(self.clock, shared)
        self._files = Shared(self.clock, site.files_bytes_s, site.link_bytes_s)
        self._up, self._down = (Shared(self.clock, site.link_bytes_s, site.link_bytes_s) for _ in range(2))
        self._leader, self._scheduler, self._workers = (Line(self.clock, servers) for servers in (1, 1, site.slots))

    def run(self, stage: Stage) -> Outcome:
        self._start(self._stage(stage))
        self.clock.run()
        self.outcome.seconds = self.clock.now
        return self.outcome

    def _start(self, steps: Generator[Wait, None, None]) -> None:
        """Runs a generator: it continues when what it yields has happened."""

        def resume() -> None:
            wait = next(steps, None)
            if wait is not None:
                wait(resume)

        resume()

    def _stage(self, stage: Stage) -> Generator[Wait, None, None]:
        yield from self._taken("leader", stage.gap_s)
        yield partial(self.clock.after, stage.wait_s)
        if stage.tasks:
            yield partial(self._map, stage)

    def _taken(self, who: str, cpu_s: float) -> Generator[Wait, None, None]:
        if cpu_s > 0:
            self.outcome.busy_s[who] += cpu_s
            yield self._cores.use(cpu_s)

    def _map(self, stage: Stage, done: Resume) -> None:
        """All tasks of a stage; the next begins as the leading process has taken the first of those under way."""
        begun, taken, back = 0, 0, set[int]()
        count, ahead = len(stage.tasks), AHEAD * self._site.slots

        def begin() -> None:
            nonlocal begun
            while begun < min(count, taken + ahead):
                number, begun = begun, begun + 1
                self._start(self._task(stage, stage.tasks[number], partial(ended, number)))

        def ended(number: int) -> None:
            nonlocal taken
            back.add(number)
            while taken in back:
                back.remove(taken)
                taken += 1
            begin()
            if taken == count:
                done()

        begin()

    def _task(self, stage: Stage, task: Task, done: Resume) -> Generator[Wait, None, None]:
        each, site, count = self._overheads, self._site, len(stage.tasks)
        lead = max(stage.lead_s, each.leader_s) / 2
        yield from self._served("leader", self._leader, lead)
        yield from self._served("scheduler", self._scheduler, each.scheduler_s)
        if stage.sent:
            yield self._up.use(stage.sent / count)
        yield self._workers.enter
        if task.moved:
            yield partial(self.clock.after, task.moved / site.link_bytes_s)
        if task.files:
            yield self._files.use(task.files)
        yield from self._taken("workers", task.cpu_s + each.worker_s)
        self._workers.leave()
        if stage.received:
            yield self._down.use(stage.received / count)
        yield from self._served("leader", self._leader, lead)
        done()

    def _served(self, who: str, line: Line, cpu_s: float) -> Generator[Wait, None, None]:
        """One at a time, on a core."""
        yield line.enter
        yield from self._taken(who, cpu_s)
        line.leave()


def simulate(record: Record, site: Site, most: int = MOST_TASKS) -> Outcome:
    """A record's stages on another site.

    Of a stage of many tasks only `most` of them are replayed, and half of these: it continues as between the two.
    """
    whole = Outcome()
    for stage in (*record.stages, Stage("end", [], record.tail_s)):
        whole += _of_stage(stage, record.overheads, site, max(most, LEAST_WAVES * site.slots))
    return whole


def _of_stage(stage: Stage, overheads: Overheads, site: Site, most: int) -> Outcome:
    count = len(stage.tasks)
    if count <= most:
        return Replay(site, overheads).run(stage)
    some, half = (Replay(site, overheads).run(_thinned(stage, m)) for m in (most, most // 2))
    beyond = (count - most) / (most - most // 2)
    busy = {who: s + beyond * (s - half.busy_s[who]) for who, s in some.busy_s.items()}
    return Outcome(some.seconds + beyond * (some.seconds - half.seconds), busy)


def _thinned(stage: Stage, most: int) -> Stage:
    count = len(stage.tasks)
    tasks = [stage.tasks[i * count // most] for i in range(most)]
    return replace(stage, tasks=tasks, sent=stage.sent * most / count, received=stage.received * most / count)


def stretched(tasks: list[Task], count: int, rng: np.random.Generator) -> list[Task]:
    """So many tasks that take what these took, drawn in their order: the largest stay first where they were."""
    at = (np.arange(count) + rng.random(count)) * (len(tasks) / count)
    return [tasks[i] for i in np.minimum(at.astype(np.intp), len(tasks) - 1).tolist()]
