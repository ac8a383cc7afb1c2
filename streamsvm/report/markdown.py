"""Contents of pages as Markdown: tables of pipes, lists, and pictures as links to files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePath
from urllib.parse import quote

from streamsvm.report.parts import Code, Facts, Lines, Part, Plot, Section, Table, label
from streamsvm.storage.text import human, jsonable


def markdown_page(
    title: str, lead: str, shown: Sequence[tuple[Section, list[Part]]], plots: PurePath | None = None
) -> str:
    """The page of these contents. plots: the folder of pictures, as seen from the page. None: a note
    reports that they are left out."""
    text = f"# {_line(title)}\n" + (f"\n{_line(lead)}\n" if lead else "")
    left_out = [part.title for _, parts in shown for part in parts if isinstance(part, Plot)]
    if left_out and plots is None:
        text += f"\n{len(left_out)} pictures are left out; `--plots DIR` writes and links them.\n"
    for section, parts in shown:
        texts = "".join(_with_plots(part, plots) for part in parts)
        text += f"\n## {section.title}\n{texts}" if texts else ""
    return text


def _with_plots(part: Part, plots: PurePath | None) -> str:
    if not isinstance(part, Plot):
        return markdown(part)
    if plots is None:
        return ""
    place = quote((plots / f"{part.name}.png").as_posix())
    return f"\n### {_line(part.title)}\n\n{_line(part.caption)}\n\n![{_line(part.title)}]({place})\n"


def markdown(part: Part) -> str:
    """A piece of content as Markdown; empty for plots, and if there is nothing to show."""
    match part:
        case Facts(values):
            named = {label(k): human(k, jsonable(v)) for k, v in values.items() if v not in (None, "", [])}
            return _table(["", ""], named.items()) if named else ""
        case Table(title, rows, caption):
            cells = ([human(name, jsonable(v)) for name, v in row.items()] for row in rows)
            head = f"\n{title}:\n" if title else ""
            about = f"\n{_line(caption)}\n" if caption else ""
            return head + about + _table([label(name) for name in rows[0]], cells) if rows else ""
        case Lines(lines):
            return "\n" + "".join(f"- {line}\n" for line in lines)
        case Code(title, text):
            indented = "".join(f"    {line}\n" for line in text.splitlines())  # no fence that a text could end
            return f"\n{title}:\n\n{indented}"
    return ""


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(headings)
    lines = [names, ["---"] * len(names), *rows]
    return "\n" + "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: object) -> str:
    """Text that neither ends a cell nor a line."""
    return _line(text).replace("|", "\\|")


def _line(text: object) -> str:
    """Text of one line, without tags."""
    return " ".join(str(text).replace("\\", "\\\\").replace("<", "&lt;").split())
