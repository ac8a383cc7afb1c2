"""The events of a run, as typed records: solvers and readers emit them; progress bars, logs and reports only read
them."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

Scope = Literal["whole", "some rows", "part"]
Facts = Mapping[str, Any]  # further fields of a record by name: numbers, texts, or other JSON
PACKAGE = __name__.partition(".")[0]


class Phase(str):
    """A section of a run that consists of rounds: its name, and the problem that its objective belongs to.

    scope: "whole", the whole problem. "some rows", the whole problem at a point at which the variables of other rows
    are 0. "part", another problem. A custom solver brings its own phases.
    """

    scope: Scope
    REFINE: ClassVar[Phase]
    TOP: ClassVar[Phase]
    SOLVE: ClassVar[Phase]
    POLISH: ClassVar[Phase]

    def __new__(cls, name: str, scope: Scope = "part") -> Phase:
        phase = super().__new__(cls, name)
        phase.scope = scope
        return phase

    @staticmethod
    def named(name: str) -> Phase:
        """The phase of this package with this name, or a new one."""
        return next((phase for phase in PHASES if phase == name), Phase(name))


Phase.REFINE = Phase("refine", "some rows")
Phase.TOP = Phase("top", "whole")
Phase.SOLVE = Phase("solve", "whole")
Phase.POLISH = Phase("polish", "whole")
PHASES = (Phase.REFINE, Phase.TOP, Phase.SOLVE, Phase.POLISH)


class Event:
    """Base of all events. kind: its name in `events.jsonl`."""

    kind: ClassVar[str]

    def __init_subclass__(cls, kind: str | None = None) -> None:
        if kind is not None:
            cls.kind = kind


@dataclass(frozen=True)
class Started(Event, kind="start"):
    """A run was started, or resumed (resume). limit_bytes: of memory. process: its id. time: ISO 8601, UTC. command:
    the command line, if it was started from one."""

    resume: bool | None = None
    time: str | None = None
    versions: Facts | None = None
    host: str | None = None
    process: int | None = None
    cores: int | None = None
    store: str | None = None
    n: int | None = None
    d: int | None = None
    limit_bytes: int | None = None
    config: Facts | None = None
    command: str | None = None


@dataclass(frozen=True)
class Planned(Event, kind="plan"):
    """A fit is about to start. kernel: with its gamma as a number; facts: what `fit --dry-run` prints about it."""

    kernel: Facts | None = None
    scaling: str | None = None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Progress(Event, kind="progress"):
    """The progress of a phase; total is None if it is not known, and `done == total` ends the phase.

    If one iteration converges, done is a share, see `progress.Convergence`. rows_s: rows per second.
    """

    phase: str
    done: float
    total: float | None
    rows_s: float | None = None
    facts: Facts = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.done == self.total


@dataclass(frozen=True)
class Round(Event, kind="round"):
    """A working set was optimised. problem: the number of the problem, if several are solved one after the other.
    violation: the largest violation of the KKT conditions.

    objective, gap: only if no row is left out. working_set, active: numbers of rows optimised together, and not left
    out.
    """

    phase: Phase
    problem: int | None
    round: int
    violation: float | None
    objective: float | None = None
    gap: float | None = None
    working_set: int | None = None
    active: int | None = None


@dataclass(frozen=True)
class Step(Event, kind="step"):
    """A step over all rows: of cutting planes (passes to rows_s; gap is relative), or of ADMM (relative residuals)."""

    step: int
    passes: int | None = None
    objective: float | None = None
    bound: float | None = None
    planes: int | None = None
    gap: float | None = None
    rows_s: float | None = None
    primal: float | None = None
    dual: float | None = None
    beta: float | None = None


@dataclass(frozen=True)
class LevelSolved(Event, kind="level"):
    """All partitions of a level of the division are solved. objective: summed over them; max_rows: of the largest."""

    level: int
    parts: int | None
    max_rows: int | None
    n_support: int | None
    objective: float | None
    seconds_clustering: float | None
    seconds_training: float | None


@dataclass(frozen=True)
class PartsSolved(Event, kind="parts"):
    """The partitions of a level, one by one. places: centres [x, y], projected from scaled rows. None: unknown."""

    level: int
    rows: Sequence[Any]
    n_support: Sequence[Any]
    seconds: Sequence[Any]
    places: Sequence[Any] | None = None


@dataclass(frozen=True)
class TasksRun(Event, kind="tasks"):
    """Tasks of a phase, for a plot: spans [lane, start, end], in seconds since the run started. A lane is a thread: of
    this process, or on a cluster of the worker whose name is in its place in workers."""

    phase: str
    spans: Sequence[Any]
    workers: Sequence[Any] | None = None


@dataclass(frozen=True)
class SupportCompared(Event, kind="support"):
    """precision: share of a level's support vectors that are in the solution. recall: share of the solution's support
    vectors that the level had."""

    level: int
    precision: float | None
    recall: float | None


@dataclass(frozen=True, kw_only=True)
class Learnt(Event):
    """The state of a learner on a budget: `BudgetStats`. accuracy: of rows before their steps."""

    accuracy: float | None
    steps: int
    supports: int | None
    maintenances: int | None
    step_seconds: float | None
    degradation: float | None
    mean_gradient_error: float | None


@dataclass(frozen=True, kw_only=True)
class Window(Learnt, kind="window"):
    """Some neighbouring rows were learned. loss: their mean loss."""

    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Epoch(Learnt, kind="epoch"):
    """All rows were learned once more; epoch counts from 1. loss: their mean loss."""

    epoch: int
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Stretch(Learnt, kind="stretch"):
    """Some events of a stream were learned. events, bad: all so far, and unreadable ones. labels: counts by text.
    answer_s, slowest_s: mean and largest time to answer and learn an event."""

    events: int | None
    bad: int | None
    labels: Facts | None = None
    answer_s: float | None = None
    slowest_s: float | None = None


@dataclass(frozen=True)
class Compressed(Event, kind="hss"):
    """The kernel matrix in hierarchical form. hss_ranks: mean and maximum by level; ranks: of each level's nodes."""

    rows: int | None
    depth: int | None
    ranks: Sequence[Any] | None
    hss_ranks: Sequence[Any] | None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class HeldOut(Event, kind="held-out"):
    """A model's answers to held-out rows of a regression. points: some [label, answer]; rows: the number of all.

    level, half_width: of intervals about answers, if there are enough rows.
    """

    rows: int
    points: Sequence[Any]
    level: float | None = None
    half_width: float | None = None


@dataclass(frozen=True)
class Memory(Event, kind="memory"):
    """Resident bytes of this process and of those that it started."""

    rss_bytes: int


@dataclass(frozen=True)
class Joined(Event, kind="cluster"):
    """From now on, a cluster computes. scheduler, dashboard: addresses."""

    scheduler: str
    dashboard: str | None
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Warned(Event, kind="warning"):
    """A warning for users. about: "data", "convergence", or None."""

    message: str
    about: str | None = None


@dataclass(frozen=True)
class Failed(Event, kind="failed"):
    """An error ended the run; "KeyboardInterrupt" means that the user did."""

    message: str | None


@dataclass(frozen=True)
class Done(Event, kind="done"):
    """The run has ended without an error."""


STEPS = (Round, Step, LevelSolved, Window, Epoch)  # the steps of a solver
E_co = TypeVar("E_co", bound=Event, covariant=True)


class Record(NamedTuple, Generic[E_co]):
    """An event, and the seconds since the run started."""

    t: float
    event: E_co


Sink = Callable[[Record[Event]], None]


class Events:
    """Passes each event on to its sinks, stamped with the seconds since this object was made."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self._start = time.perf_counter()
        self._turn = RLock()  # events come from several threads, and reach a sink one by one
        self._advised: set[str] = set()

    def __repr__(self) -> str:
        return "Events(...)" if self._sinks else "ignore"

    @property
    def now(self) -> float:
        """Seconds since the run started."""
        return time.perf_counter() - self._start

    def __call__(self, event: Event) -> None:
        record = Record(round(self.now, 4), event)
        with self._turn:
            for sink in self._sinks:
                sink(record)

    def also(self, sink: Sink) -> Events:
        """These events, passed on to one more sink; the clock keeps running."""
        events = self.heard_by(*self._sinks, sink)
        events._turn, events._advised = self._turn, self._advised
        return events

    def heard_by(self, *sinks: Sink) -> Events:
        """Events for these sinks only, with the same clock."""
        events = Events(*sinks)
        events._start = self._start
        return events

    def warn(self, message: str, about: str | None = None) -> None:
        self(Warned(message, about))

    def advise(self, message: str) -> None:
        """Emits a warning about the data, once, however many fits use them."""
        if message not in self._advised:
            self._advised.add(message)
            self.warn(message, "data")

    def progress(
        self, phase: str, done: float, total: float | None, *, rows_s: float | None = None, **facts: Any
    ) -> None:
        self(Progress(phase, done, total, rows_s, facts))


ignore = Events()


def warn(record: Record[Event]) -> None:
    """A sink that raises Python warnings at the line that called this package: scikit-learn's ConvergenceWarning
    if a solver has not converged."""
    event = record.event
    if isinstance(event, Warned):
        warnings.warn(event.message, _category(event), stacklevel=_depth())


def _category(event: Warned) -> type[Warning]:
    if event.about != "convergence":
        return UserWarning
    from sklearn.exceptions import ConvergenceWarning

    return ConvergenceWarning


def _depth() -> int:
    """The depth of the frame that called the outermost frame of this package, as `warnings.warn` counts from our
    caller."""
    frame = inspect.currentframe()
    frame = frame and frame.f_back
    depth = outermost = 1
    while frame is not None:
        if str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE:
            outermost = depth + 1
        frame, depth = frame.f_back, depth + 1
    return outermost


class _Heard(Events):
    """For callers who give no events: warnings reach Python, once again in each fit."""

    def advise(self, message: str) -> None:
        self.warn(message, "data")

    def __repr__(self) -> str:
        return "heard"  # as a default in the reference


heard = _Heard(warn)
