"""What a command prints: one JSON object or a short table on stdout, progress and warnings on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

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
    """Progress bars on stderr where it is a terminal; warnings and dashboards are told everywhere."""
    if not sys.stderr.isatty():
        yield Events(_say)
        return
    from streamsvm.cli.bars import Bars

    with Bars() as bars:
        yield Events(_say, bars)


def _say(record: dict[str, Any]) -> None:
    if record["event"] == "warning":
        typer.echo(f"warning: {record['message']}", err=True)
    if record["event"] == "cluster" and record["dashboard"]:
        typer.echo(f"dashboard: {record['dashboard']}", err=True)
