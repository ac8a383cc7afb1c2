"""Runs as one HTML page that needs nothing else: tables, and plots as inline SVG, light and dark."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from streamsvm._version import __version__
from streamsvm.report.drawing import inline
from streamsvm.report.parts import Part, Plot, Section, Table, label
from streamsvm.report.read import Run
from streamsvm.report.sections import SECTIONS
from streamsvm.storage.text import human, jsonable

TILE_LETTERS = 12  # that a tile of one column holds


def contents(runs: Sequence[Run]) -> list[tuple[Section, list[Part]]]:
    """The sections that have something to show, with their content."""
    runs = _named(runs)
    return [(section, parts) for section in SECTIONS if (parts := section.parts(runs))]


def page(runs: Sequence[Run], shown: Sequence[tuple[Section, list[Part]]], live: str = "") -> str:
    """The page of these contents. live: tag of a page that is to be asked for again, by a server that has live.js."""
    return rendered(title(runs), lead(runs), shown, made_from="the run directories", live=live)


def rendered(
    title: str, lead: str, shown: Sequence[tuple[Section, list[Part]]], *, made_from: str, live: str = ""
) -> str:
    """A page of anything that sections can show."""
    facts = {"title": title, "lead": lead, "made_from": made_from, "live": live}
    return _template("page.html").render(**facts, sections=shown)


def run_list(name: str, runs: Sequence[dict[str, Any]], tag: str) -> str:
    """The page that lists the runs of a folder, and lets some be compared; tag: as of `page`."""
    return _template("runs.html").render(title=name, runs=runs, tag=tag)


def _css() -> Markup:
    return Markup(files("streamsvm.report").joinpath("page.css").read_text(encoding="utf-8"))


def title(runs: Sequence[Run]) -> str:
    return runs[0].name if len(runs) == 1 else f"{len(runs)} runs"


def _template(name: str) -> Template:
    """A template, which escapes all but `Markup`."""
    loader = PackageLoader("streamsvm.report", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    environment.globals |= {
        "version": __version__,
        "tile_letters": TILE_LETTERS,
        "css": _css,
        "svg": _svg,
        "text": _text,
        "alarm": _alarm,
        "columns_of": _columns,
        "csv_link": _csv_link,
        "is_plot": lambda part: isinstance(part, Plot),
    }
    environment.filters |= {"label": label, "breakable": _breakable}
    return environment.get_template(name)


def _named(runs: Sequence[Run]) -> list[Run]:
    """Runs with unique names."""
    counts, seen = Counter(run.name for run in runs), Counter[str]()
    named = []
    for run in runs:
        seen[run.name] += 1
        named.append(replace(run, name=f"{run.name} ({seen[run.name]})") if counts[run.name] > 1 else run)
    return named


def lead(runs: Sequence[Run]) -> str:
    """What the page is about, in a line."""
    stores = dict.fromkeys(run.data for run in runs if run.records)
    times = dict.fromkeys(run.started.time.replace("T", " ") for run in runs if run.started.time)
    what = [", ".join(stores), min(times, default="")]
    return " \u00b7 ".join(text for text in what if text)


def _csv_link(part: Table) -> dict[str, str]:
    """Attributes of a link that saves a table, values as they are; nothing is fetched."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(part.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: jsonable(value) for name, value in row.items()} for row in part.rows)
    data = base64.b64encode(out.getvalue().encode("utf-8", errors="replace")).decode()
    name = re.sub(r"\W+", "-", part.title.lower(), flags=re.ASCII).strip("-") or "table"
    return {"href": f"data:text/csv;base64,{data}", "download": f"{name}.csv"}


def _svg(part: Plot) -> Markup:
    return Markup(inline(part.figure, part.name, str(escape(part.title))))


def _breakable(text: str) -> Markup:
    """A path that may break into several lines where it is too long for its tile."""
    return escape(text).replace("/", Markup("/<wbr>"))


def _alarm(name: str, value: object) -> list[str]:
    """The classes by which the style knows what is alarming."""
    return [f"{name}-{value}"] if name in ("status", "converged") and value else []


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The classes of each column's cells: those of words are set as text."""
    return {name: ["text"] if any(isinstance(row[name], str) for row in rows) else [] for name in rows[0]}


def _text(name: str, value: object) -> str:
    """As `human`, with as many digits as are worth reading side by side."""
    value = jsonable(value)
    if isinstance(value, list):
        return ", ".join(_text("", item) for item in value)
    if isinstance(value, float) and not name.startswith("seconds"):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return human(name, value)
