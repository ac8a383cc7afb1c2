"""What a command prints: one JSON object or a short table on stdout, progress and warnings on stderr.

While it is at work, Ctrl-C is answered at once, by a thread that waits for the signal.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import typer

from streamsvm.cli.app import INTERRUPTED
from streamsvm.events import Event, Events, Joined, Record, Warned
from streamsvm.progress.lines import MinuteLines
from streamsvm.storage.text import heading, human, jsonable

MOST_CLASSES_IN_A_TABLE = 30
FIRST = "interrupted: stopping; press Ctrl-C again to stop at once"  # the answer to the first Ctrl-C


def emit(result: dict[str, Any], *, as_json: bool, title: str, rows: dict[str, Any] | None = None) -> None:
    """Prints `result` as JSON, or `rows` (by default the result's plain values) as a small table."""
    if as_json:
        typer.echo(json.dumps(jsonable(result)))
        return
    pairs = {name: human(name, value) for name, value in (rows or result).items() if is_plain(value)}
    print_table(title, [], [(heading(name), text) for name, text in pairs.items() if text])


def is_plain(value: Any) -> bool:
    """Whether a value, or list of values, can be a line of a table."""
    several = value if isinstance(value, list) else [value]
    return not any(isinstance(item, dict) for item in several)


def emit_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints records of the same keys as a table."""
    cells = [[human(name, value) for name, value in row.items()] for row in rows]
    print_table(title, [heading(name) for name in rows[0]], cells)


def print_table(title: str, headings: list[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints texts as a table, or as pairs if there are no headings."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=bool(headings), box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for text in headings or ["", ""]:
        table.add_column(text, justify="right" if headings else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    typer.echo(title)
    width = None if sys.stdout.isatty() else 200
    Console(highlight=False, markup=False, width=width).print(table)
    typer.echo("")


@contextmanager
def progress(*, prints_rows: bool = False) -> Iterator[Events]:
    """Progress on stderr: bars on a terminal, else one line a minute. Warnings and Ctrl-C are reported at once.

    prints_rows: the command prints rows to stdout as it proceeds. On a terminal these take the place of bars, which
    would break into their lines.
    """
    if prints_rows and sys.stdout.isatty():
        with answered(_echo):
            yield Events(partial(_say, _echo))
        return
    if not sys.stderr.isatty():
        with answered(_echo):
            yield Events(partial(_say, _echo), MinuteLines(_echo))
        return
    from streamsvm.progress.bars import Bars

    with Bars() as bars, answered(bars.say):
        yield Events(partial(_say, bars.say), bars)


def _echo(line: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)


def _say(say: Callable[[str], None], record: Record[Event]) -> None:
    event = record.event
    if isinstance(event, Warned):
        say(f"warning: {event.message}")
    if isinstance(event, Joined) and event.dashboard:
        say(f"dashboard: {event.dashboard}")


@contextmanager
def answered(say: Callable[[str], None]) -> Iterator[None]:
    """Inside, `say` answers the first Ctrl-C at once, and a second one ends the process.

    Python handles a signal only when the main thread returns from compiled code, which may take seconds. Here a
    thread waits for the byte that a signal writes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    before = signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    listener = threading.Thread(target=_listen, args=(ours, say), name="interrupts", daemon=True)
    listener.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        theirs.close()  # which ends the thread
        listener.join()
        ours.close()


def _listen(signals: socket.socket, say: Callable[[str], None]) -> None:
    count = 0
    while number := signals.recv(1):
        if number[0] != signal.SIGINT:
            continue
        count += 1
        if count == 1:
            say(FIRST)
        else:
            os._exit(INTERRUPTED)
