"""`streamsvm top`: a run as it goes, wherever it was started."""

from __future__ import annotations

import sys
import time
from collections import deque
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.human import heading, human, human_bytes
from streamsvm.kernels.table import has_gamma
from streamsvm.report.values import number, table

if TYPE_CHECKING:
    from rich.console import Console, Group

    from streamsvm.report.follow import Tail

WIDTH = 120  # of what is not a terminal
WARNINGS = 3  # last ones shown
NUMBERS = (
    "round",
    "step",
    "passes",
    "violation",
    "primal",
    "dual",
    "objective",
    "bound",
    "gap",
    "planes",
    "supports",
    "accuracy",
    "degradation",
)


def top(
    run_dir: Annotated[Path, typer.Argument(help="A folder by --run-dir.", metavar="RUN_DIR")],
    once: Annotated[bool, typer.Option("--once", help="Print what is known now, and end.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between looks.", min=0.1)] = 1.0,
) -> None:
    """Follow a run that was started elsewhere: phases, rates, gap, memory, warnings. Ends when the run has ended."""
    from rich.console import Console

    from streamsvm.report.follow import Tail
    from streamsvm.runs import require_run

    require_run(run_dir)
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDTH)
    watch, tail = Watch(run_dir, console), Tail(run_dir)
    watch.take(tail())
    if once or not console.is_terminal:
        watch.is_running = tail.is_running
        console.print(watch.frame())
        return
    try:
        _follow(watch, tail, console, interval)
    except KeyboardInterrupt:  # how one leaves it: the run goes on
        return


def _follow(watch: Watch, tail: Tail, console: Console, interval: float) -> None:
    from rich.live import Live

    with Live(get_renderable=watch.frame, console=console, refresh_per_second=4):
        while not watch.has_ended:
            time.sleep(interval)
            if not watch.take(tail()):
                watch.is_running = tail.is_running


class Watch:
    """What is known of a run from its records so far; `frame` draws it."""

    def __init__(self, run_dir: Path, console: Console) -> None:
        self._run_dir, self._console = run_dir, console
        self.is_running, self._is_taking = True, False
        self._begin()

    def _begin(self) -> None:
        from streamsvm.cli.bars import Bars

        self._bars = Bars(self._console, self._now)
        self._t, self._start = 0.0, time.time()
        self._last: dict[str, dict[str, Any]] = {}
        self._levels: dict[Any, dict[str, Any]] = {}
        self._peak_bytes = 0
        self._warnings: deque[str] = deque(maxlen=WARNINGS)

    @property
    def has_ended(self) -> bool:
        return not self.is_running or "done" in self._last or "failed" in self._last

    def take(self, records: list[dict[str, Any]]) -> bool:
        """Takes the next records; whether there were any."""
        self._is_taking = True
        for record in records:
            self._take(record)
        self._is_taking = False
        return bool(records)

    def _take(self, record: dict[str, Any]) -> None:
        kind = record["event"]
        if kind == "start":
            self._begin()
            self._start = _started(record)
        self._t = record["t"]
        self._last[kind] = record
        if kind == "progress" and _is_progress(record):
            self._bars(record)
        elif kind == "level":
            self._levels[str(record.get("level"))] = record
        elif kind == "warning":
            self._warnings.append(str(record.get("message", "")))
        elif kind == "memory":
            self._peak_bytes = max(self._peak_bytes, int(number(record.get("rss_bytes")) or 0))

    def _now(self) -> float:
        """Seconds since the run began: of a record that is being taken, which rates are made of, else by the clock."""
        return self._t if self.has_ended or self._is_taking else max(self._t, time.time() - self._start)

    def frame(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        parts: list[Any] = [Text(self._title(), style="bold"), Text(self._state())]
        if not self.has_ended:
            parts.append(self._bars.progress)
        parts += filter(None, (self._level_table(), self._numbers(), self._memory()))
        parts += [Text(f"warning: {message}", style="yellow") for message in self._warnings]
        return Group(*parts)

    def _title(self) -> str:
        start, plan = self._last.get("start", {}), self._last.get("plan", {})
        config, kernel = table(start.get("config")), table(plan.get("kernel"))
        size = " x ".join(human("", start[name]) for name in ("n", "d") if name in start)
        words = [config.get("solver"), start.get("store"), size, kernel.get("name")]
        if has_gamma(str(kernel.get("name", ""))):
            words.append(f"gamma {human('', kernel.get('gamma'))}")
        if "C" in config:
            words.append(f"C {human('', config['C'])}")
        return "  ".join(str(word) for word in words if word) or str(self._run_dir)

    def _state(self) -> str:
        after = str(timedelta(seconds=round(self._now())))
        if "failed" in self._last:
            return f"ended after {after}: {self._last['failed'].get('message', '')}"
        if "done" in self._last:
            return f"finished after {after}"
        return (
            f"at work for {after}" if self.is_running else f"no longer at work; last heard of after {after}"
        )

    def _level_table(self) -> Any:
        from rich import box
        from rich.table import Table

        if not self._levels:
            return None
        names = ("level", "parts", "max_rows", "n_support", "seconds_clustering", "seconds_training")
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for name in names:
            shown.add_column(heading(name), justify="right")
        for level in self._levels.values():
            shown.add_row(*(human(name, level.get(name)) for name in names))
        return shown

    def _numbers(self) -> Any:
        """The last of what tells how far it is."""
        from rich.text import Text

        kinds = [kind for kind in ("round", "step", "window", "stretch") if kind in self._last]
        if not kinds:
            return None
        record = max((self._last[kind] for kind in kinds), key=lambda record: record["t"])
        told = [f"{heading(name)} {human('', record[name])}" for name in NUMBERS if name in record]
        tol = table(self._last.get("start", {}).get("config")).get("tol")
        ends = ("violation" in record or "gap" in record) and tol is not None
        return Text("  ".join([*told, f"(tol {human('', tol)})"] if ends else told))

    def _memory(self) -> Any:
        from rich.text import Text

        now = number(self._last.get("memory", {}).get("rss_bytes"))
        if now is None:
            return None
        limit = number(self._last.get("start", {}).get("limit_bytes"))
        of = "" if limit is None else f" of {human_bytes(limit)}"
        return Text(f"memory {human_bytes(now)}{of}, at most {human_bytes(self._peak_bytes)}")


def _started(record: dict[str, Any]) -> float:
    """When the run began, in seconds since the epoch; now, where its record does not tell."""
    try:
        return datetime.fromisoformat(record["time"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return time.time()


def _is_progress(record: dict[str, Any]) -> bool:
    done, total = number(record.get("done")), number(record.get("total"))
    known = total is not None or record.get("total", 0) is None
    return isinstance(record.get("phase"), str) and done is not None and known
