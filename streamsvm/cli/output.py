"""What a command prints: one JSON object or a short table on stdout, progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import typer

from streamsvm.cli.interrupts import answered
from streamsvm.events import Events
from streamsvm.human import heading, human
from streamsvm.jsonable import jsonable

MOST_CLASSES_IN_A_TABLE = 30


def emit(result: dict[str, Any], *, as_json: bool, title: str, rows: dict[str, Any] | None = None) -> None:
    """Prints `result` as JSON, or `rows` (by default the result's plain values) as a small table."""
    if as_json:
        typer.echo(json.dumps(jsonable(result)))
        return
    pairs = {name: human(name, value) for name, value in (rows or result).items() if _is_plain(value)}
    _print_table(title, [], [(heading(name), text) for name, text in pairs.items() if text])


def _is_plain(value: Any) -> bool:
    several = value if isinstance(value, list) else [value]
    return not any(isinstance(item, dict) for item in several)


def emit_table(title: str, rows: list[dict[str, Any]]) -> None:
    """Prints records of the same keys as a table."""
    cells = [[human(name, value) for name, value in row.items()] for row in rows]
    _print_table(title, [heading(name) for name in rows[0]], cells)


def _print_table(title: str, headings: list[str], rows: Iterable[Sequence[str]]) -> None:
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
def progress() -> Iterator[Events]:
    """Progress on stderr: bars where it is a terminal, else a line a minute. Warnings and Ctrl-C are told at once."""
    if not sys.stderr.isatty():
        with answered(_echo):
            yield Events(partial(_say, _echo), Minutes(_echo))
        return
    from streamsvm.cli.bars import Bars

    with Bars() as bars, answered(bars.say):
        yield Events(partial(_say, bars.say), bars)


def spoken() -> Events:
    """Warnings on stderr, and no progress."""
    return Events(partial(_say, _echo))


def _echo(line: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)


def _say(say: Callable[[str], None], record: dict[str, Any]) -> None:
    if record["event"] == "warning":
        say(f"warning: {record['message']}")
    if record["event"] == "cluster" and record["dashboard"]:
        say(f"dashboard: {record['dashboard']}")


class Minutes:
    """An event sink for logs of batch jobs: says a minute's last progress in a line."""

    def __init__(self, say: Callable[[str], None], every_s: float = 60.0) -> None:
        self._say, self._every_s, self._said = say, every_s, 0.0

    def __call__(self, record: dict[str, Any]) -> None:
        if record["event"] != "progress" or record["t"] - self._said < self._every_s:
            return
        self._said = record["t"]
        done, total, after = record["done"], record["total"], timedelta(seconds=round(record["t"]))
        many = f"{done:,.0f}" if total is None else f"{done:,.4g}/{total:,}"
        self._say(f"{record['phase']}  {many}  {after}")
