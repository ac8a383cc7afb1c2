"""Runs as one HTML page that needs nothing else: tables, and plots as inline SVG, light and dark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files
from typing import Any

from streamsvm import __version__
from streamsvm.human import heading, human
from streamsvm.jsonable import jsonable
from streamsvm.report.drawing import inline
from streamsvm.report.read import Run
from streamsvm.report.sections import SECTIONS, Facts, Lines, Part, Plot, Section, Table

TILE_LETTERS = 12  # that a tile of one column holds
LABELS = {
    "d": "columns",
    "ece": "ECE",
    "max_rows": "most rows",
    "n": "rows",
    "n_support": "support vectors",
    "n_unknown_labels": "unknown labels",
    "peak_rss_bytes": "peak memory",
    "roc_auc": "ROC AUC",
    "seconds_clustering": "clustering",
    "seconds_training": "training",
    "store": "data",
}


def contents(runs: Sequence[Run]) -> list[tuple[Section, list[Part]]]:
    """The sections that have something to show, with their parts."""
    runs = _named(runs)
    return [(section, parts) for section in SECTIONS if (parts := list(section.parts(runs)))]


def page(runs: Sequence[Run], shown: Sequence[tuple[Section, list[Part]]]) -> str:
    """The page of these contents."""
    title = runs[0].name if len(runs) == 1 else f"{len(runs)} runs"
    links = "".join(f'<a href="#{section.id}">{escape(section.title)}</a>\n' for section, _ in shown)
    body = "".join(_section(section, parts) for section, parts in shown)
    css = files("streamsvm.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)} - streamsvm</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        f'<header>\n<h1>{escape(title)}</h1>\n<p class="lead">{escape(_lead(runs))}</p>\n'
        f"<nav>\n{links}</nav>\n</header>\n<main>\n{body}</main>\n"
        f"<footer>Made by streamsvm {__version__} from the run directories alone.</footer>\n</body>\n</html>\n"
    )


def _named(runs: Sequence[Run]) -> list[Run]:
    """Runs with names of their own."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    named = []
    for run in runs:
        seen[run.name] += 1
        named.append(replace(run, name=f"{run.name} ({seen[run.name]})") if counts[run.name] > 1 else run)
    return named


def _lead(runs: Sequence[Run]) -> str:
    """What the page is about, in a line."""
    starts = [run.first("start") for run in runs]
    stores = dict.fromkeys(str(start["store"]) for start in starts if start.get("store"))
    times = dict.fromkeys(str(start["time"]).replace("T", " ") for start in starts if start.get("time"))
    what = [", ".join(stores), min(times, default="")]
    return " \u00b7 ".join(text for text in what if text)


def _section(section: Section, parts: Sequence[Part]) -> str:
    """Tables, then plots, each side by side where there is room."""
    blocks = "".join(map(_block, (part for part in parts if not isinstance(part, Plot))))
    cards = "".join(map(_card, (part for part in parts if isinstance(part, Plot))))
    row = f'<div class="blocks">\n{blocks}</div>\n' if blocks else ""
    grid = f'<div class="cards">\n{cards}</div>\n' if cards else ""
    return f'<section id="{section.id}">\n<h2>{escape(section.title)}</h2>\n{row}{grid}</section>\n'


def _card(part: Plot) -> str:
    svg = inline(part.figure, part.name, escape(part.title, quote=True))
    return (
        f'<figure class="card" id="plot-{part.name}"><h3>{escape(part.title)}</h3>\n'
        f"<figcaption>{escape(part.caption)}</figcaption>\n{svg}</figure>\n"
    )


def _block(part: Table | Facts | Lines) -> str:
    if isinstance(part, Table) and not part.folded:
        title = f"<h3>{escape(part.title)}</h3>\n" if part.title else ""
        return f'<div class="block">\n{title}{_note(part)}</div>\n'
    if isinstance(part, Table):
        inside = f"<details><summary>{escape(part.title)}</summary>\n{_note(part)}</details>\n"
        return f'<div class="block wide folded">\n{inside}</div>\n'
    if isinstance(part, Facts):
        inside = f'<dl class="facts">\n{"".join(_fact(*item) for item in part.values.items())}</dl>\n'
    else:
        items = "".join(f"<li>{escape(line)}</li>\n" for line in part.lines)
        inside = f'<ul class="warnings">\n{items}</ul>\n'
    return f'<div class="block wide">\n{inside}</div>\n'


def _note(part: Table) -> str:
    caption = f'<p class="note">{escape(part.caption)}</p>\n' if part.caption else ""
    return f'{caption}<div class="scroll">{_table(part.rows)}</div>\n'


def _fact(name: str, value: Any) -> str:
    text = _text(name, value)
    wide = ' class="long"' if len(text) > TILE_LETTERS else ""
    breaks = escape(text).replace("/", "/<wbr>")  # a path that is too long for its tile
    return f"<div{wide}><dt>{escape(_label(name))}</dt><dd{_kind(name, value)}>{breaks}</dd></div>\n"


def _kind(name: str, value: Any, *more: str) -> str:
    """The attribute by which the style knows what is alarming."""
    names = [*more, *([f"{name}-{value}"] if name in ("status", "converged") and value else [])]
    return f' class="{escape(" ".join(names), quote=True)}"' if names else ""


def _table(rows: list[dict[str, Any]]) -> str:
    names = list(rows[0])
    words = {name for name in names if any(isinstance(row[name], str) for row in rows)}
    kinds = {name: ["text"] if name in words else [] for name in names}
    head = "".join(f"<th{_kind('', None, *kinds[name])}>{escape(_label(name))}</th>" for name in names)

    def cell(name: str, value: Any) -> str:
        return f"<td{_kind(name, value, *kinds[name])}>{escape(_text(name, value))}</td>"

    body = "".join(f"<tr>{''.join(cell(name, row[name]) for name in names)}</tr>\n" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _label(name: str) -> str:
    return LABELS.get(name, heading(name))


def _text(name: str, value: Any) -> str:
    """As `human`, with as many digits as are worth reading side by side."""
    value = jsonable(value)
    if isinstance(value, list):
        return ", ".join(_text("", item) for item in value)
    if isinstance(value, float) and not name.startswith("seconds"):
        return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"
    return human(name, value)
