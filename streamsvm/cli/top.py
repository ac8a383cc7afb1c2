"""`streamsvm top`: follows a run, wherever it was started."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import fields
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.options import PlaceFlag, option
from streamsvm.events import (
    Done,
    Event,
    Failed,
    LevelSolved,
    Memory,
    Planned,
    Record,
    Round,
    Started,
    Step,
    Stretch,
    Warned,
    Window,
)
from streamsvm.kernels.table import has_gamma
from streamsvm.runs.records import table
from streamsvm.storage.paths import Place, place_of
from streamsvm.storage.text import heading, human, human_bytes

if TYPE_CHECKING:
    from rich.console import Console, Group

    from streamsvm.runs.directory import Tail

WIDTH = 120  # if the output is not a terminal
WARNINGS = 3  # the last ones are shown
NUMBERS = "round step passes violation primal dual objective bound gap planes supports accuracy degradation".split()


def top(
    run_dir: Annotated[
        PlaceFlag, typer.Argument(parser=place_of, help="Folder that --run-dir named.", metavar="RUN_DIR")
    ],
    once: Annotated[bool, option("--once", "Print the current state and end.")] = False,
    interval: Annotated[float, option("--interval", "Seconds between updates.", min=0.1)] = 1.0,
) -> None:
    """Follow a run that was started elsewhere: phases, rates, gap, memory, warnings. Ends when the run ends."""
    from rich.console import Console

    from streamsvm.runs.directory import Tail, require_run

    require_run(run_dir)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    watch, tail = RunMonitor(run_dir, console), Tail(run_dir)
    watch.take(tail())
    if once or not console.is_terminal:
        watch.is_running = tail.is_running
        console.print(watch.frame())
        return
    try:
        _follow(watch, tail, console, interval)
    except KeyboardInterrupt:  # leaves `top`; the run continues
        return


def _follow(watch: RunMonitor, tail: Tail, console: Console, interval: float) -> None:
    from rich.live import Live

    with Live(get_renderable=watch.frame, console=console, refresh_per_second=4):
        while not watch.has_ended:
            time.sleep(interval)
            if not watch.take(tail()):
                watch.is_running = tail.is_running


class RunMonitor:
    """The state of a run from its records so far. `frame` draws it."""

    def __init__(self, run_dir: Place, console: Console) -> None:
        self._run_dir, self._console = run_dir, console
        self.is_running, self._is_taking = True, False
        self._commands: list[str] = []  # that began the run, and that resumed it
        self._begin()

    def _begin(self) -> None:
        from streamsvm.progress.bars import Bars

        self._bars = Bars(self._console, self._now)
        self._t, self._start = 0.0, time.time()
        self._started, self._planned = Started(), Planned()
        self._last: Round | Step | Window | Stretch | None = None  # the latest measure of progress
        self._end: Done | Failed | None = None
        self._levels: dict[int, LevelSolved] = {}
        self._rss_bytes: int | None = None
        self._peak_bytes = 0
        self._warnings: deque[str] = deque(maxlen=WARNINGS)

    @property
    def has_ended(self) -> bool:
        return not self.is_running or self._end is not None

    def take(self, records: list[Record[Event]]) -> bool:
        """Reads the next records. Returns whether there were any."""
        self._is_taking = True
        for record in records:
            self._take(record)
        self._is_taking = False
        return bool(records)

    def _take(self, record: Record[Event]) -> None:
        if isinstance(record.event, Started):
            self._begin()
            self._started, self._start = record.event, _epoch_s(record.event)
            before = self._commands if record.event.resume else []
            self._commands = [*before, record.event.command or ""]
        self._t = record.t
        self._bars(record)
        match record.event:
            case Planned() as plan:
                self._planned = plan
            case Round() | Step() | Window() | Stretch() as numbers:
                self._last = numbers
            case Done() | Failed() as end:
                self._end = end
            case LevelSolved() as solved:
                self._levels[solved.level] = solved
            case Warned(message):
                self._warnings.append(message)
            case Memory(rss_bytes):
                self._rss_bytes, self._peak_bytes = rss_bytes, max(self._peak_bytes, rss_bytes)

    def _now(self) -> float:
        """Seconds since the run began: by the record being read, which rates depend on, else by the clock."""
        return self._t if self.has_ended or self._is_taking else max(self._t, time.time() - self._start)

    def frame(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(self._title(), style="bold"), Text(self._state())]
        if len(self._commands) > 1:
            names = ["begun by", *["resumed by"] * (len(self._commands) - 1)]
            commands = zip(names, self._commands, strict=True)
            parts += [Text(f"{name}: {command}") for name, command in commands if command]
        if not self.has_ended:
            parts.append(self._bars.progress)
        parts += filter(None, (self._level_table(), self._numbers(), self._memory()))
        parts += [Text(f"warning: {message}", style="yellow") for message in self._warnings]
        return Group(*parts)

    def _title(self) -> str:
        start = self._started
        config, kernel = table(start.config), table(self._planned.kernel)
        size = " x ".join(human("", length) for length in (start.n, start.d) if length is not None)
        settled = self._planned.facts
        words = [settled.get("solver", config.get("solver")), start.store, size, kernel.get("name")]
        if has_gamma(str(kernel.get("name", ""))):
            words.append(f"gamma {human('', kernel.get('gamma'))}")
        if "C" in config:
            words.append(f"C {human('', settled.get('C', config['C']))}")
        return "  ".join(str(word) for word in words if word) or str(self._run_dir)

    def _state(self) -> str:
        after = str(timedelta(seconds=round(self._now())))
        match self._end:
            case Failed(message):
                return f"ended after {after}: {message or ''}"
            case Done():
                return f"finished after {after}"
        return f"running for {after}" if self.is_running else f"no longer running; last record after {after}"

    def _level_table(self) -> Any:
        from rich import box
        from rich.table import Table

        if not self._levels:
            return None
        names = [field.name for field in fields(LevelSolved) if field.name != "objective"]
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in names:
            shown.add_column(heading(name), justify="right")
        for level in self._levels.values():
            shown.add_row(*(human(name, getattr(level, name)) for name in names))
        return shown

    def _numbers(self) -> Any:
        """The latest numbers that measure progress."""
        from rich.text import Text

        if self._last is None:
            return None
        values = {name: value for name, value in vars(self._last).items() if value is not None}
        texts = [f"{heading(name)} {human('', values[name])}" for name in NUMBERS if name in values]
        tol = table(self._started.config).get("tol")
        ends = ("violation" in values or "gap" in values) and tol is not None
        return Text("  ".join([*texts, f"(tol {human('', tol)})"] if ends else texts))

    def _memory(self) -> Any:
        from rich.text import Text

        if self._rss_bytes is None:
            return None
        limit = self._started.limit_bytes
        of = "" if limit is None else f" of {human_bytes(limit)}"
        return Text(f"memory {human_bytes(self._rss_bytes)}{of}, at most {human_bytes(self._peak_bytes)}")


def _epoch_s(started: Started) -> float:
    """When the run began, in seconds since the epoch, or now if its record has no time."""
    try:
        return datetime.fromisoformat(started.time or "").timestamp()
    except ValueError:
        return time.time()
