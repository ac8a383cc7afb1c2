"""Puts what recipes measured into the pages that show it: `python pipelines/figures.py [PAGE.md ...]`.

A page (by default those of docs/, and README's) has a block for each file of figures:

    <!-- figures: NAME -->
    the tables of docs/figures/NAME.json, with their command, machine and date
    <!-- end of figures -->

`<!-- figures: NAME by COLUMN -->` makes one table of all: their titles become its first column.
`<!-- figures: NAME only TITLE -->` shows the tables whose titles begin like this.

Or it has single figures, each the median in the column of a row that has a cell which begins with these words:

    <!-- figure: NAME/TITLE/ROW/COLUMN -->9.2 s<!-- end -->

README.md is docs/templates/README.md.in without the marks of its figures, for those who read it as it is.
Recipes write the files (`--out docs/figures/NAME.json`), and rerun.py runs them again.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from measure import Spread
from tables import HERE, Malformed, Measured, Seconds, Table, read, text

DOCS = HERE.parent / "docs"
FIGURES = DOCS / "figures"
README, TEMPLATE = DOCS.parent / "README.md", DOCS / "templates" / "README.md.in"
PAGES = (*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("*/*.md")), TEMPLATE)
BLOCK = re.compile(
    r"^(?P<begins><!-- figures: (?P<name>\S+)(?: by (?P<column>.+?))?(?: only (?P<title>.+?))? -->)\n"
    r".*?^(?P<ends><!-- end of figures -->)$",
    re.M | re.S,
)


MARKS = re.compile(r"<!-- figure: .*? -->|<!-- end -->")
CELL = re.compile(r"(<!-- figure: (\S+?)/(.*?)/(.*?)/(.*?) -->).*?(<!-- end -->)")


def refreshed(page: str, folder: Path = FIGURES, link: str = "figures") -> str:
    """The text of a page with its blocks made again. link: from the page to the folder. Raises Malformed."""

    def filled(m: re.Match[str]) -> str:
        made = block(folder / f"{m['name']}.json", m["column"], m["title"] or "", link)
        return f"{m['begins']}\n\n{made}\n\n{m['ends']}"

    def looked_up(m: re.Match[str]) -> str:
        return f"{m[1]}{cell(folder / f'{m[2]}.json', m[3], m[4], m[5])}{m[6]}"

    return CELL.sub(looked_up, BLOCK.sub(filled, page))


def names(page: str) -> list[str]:
    """The files of figures that a page shows."""
    return [found["name"] for found in BLOCK.finditer(page)]


def refresh(pages: Sequence[Path]) -> None:
    """Writes pages again that other figures change, and README. Raises Malformed and OSError."""
    for page in pages:
        made = refreshed(page.read_text(encoding="utf-8"), link=link_from(page))
        write_if_changed(page, made)
        if page.samefile(TEMPLATE):
            write_if_changed(README, MARKS.sub("", made))


def write_if_changed(page: Path, made: str) -> None:
    if not page.exists() or page.read_text(encoding="utf-8") != made:
        page.write_text(made, encoding="utf-8")


def link_from(page: Path) -> str:
    return Path(os.path.relpath(FIGURES, page.parent)).as_posix()


def block(path: Path, column: str | None = None, title: str = "", link: str = "figures") -> str:
    """Markdown of a file of figures: in one table if a column for the titles is named."""
    if not path.exists():
        raise Malformed(f"{path}: no such file; a recipe writes it with --out {path}")
    runs = [replace(run, tables=_titled(run.tables, title)) for run in read(path)]
    if not any(run.tables for run in runs):
        raise Malformed(f"{path}: no table's title begins with '{title}', as a page expects")
    if column is not None:
        parts = [in_one([table for run in runs for table in run.tables], column).markdown()]
    else:
        parts = [table.markdown("**{}**") for run in runs for table in run.tables]
    parts.append(caption(f"{link}/{path.name}", runs))
    return "\n\n".join(part.strip("\n") for part in parts)


def cell(path: Path, title: str, row: str, column: str) -> str:
    """A figure of a table, as text shows it. Raises Malformed."""
    for table in (table for run in read(path) for table in _titled(run.tables, title)):
        for found in table.rows:
            if column in found and any(f"{text(value)} ".startswith(f"{row} ") for value in found.values()):
                value = found[column]
                return str(Seconds(value.median)) if isinstance(value, Spread) else text(value)
    raise Malformed(f"{path}: no '{column}' of '{row}' in a table '{title}', as a page expects")


def _titled(tables: Sequence[Table], begins: str) -> list[Table]:
    return [table for table in tables if table.title.startswith(begins)]


def caption(file: str, runs: Sequence[Measured]) -> str:
    """Command, machine and date of runs."""
    commands = list(dict.fromkeys(run.command for run in runs))
    by = f"By `{commands[0]}`" if len(commands) == 1 else f"By {len(commands)} commands"
    places = "; ".join(dict.fromkeys(_place(run) for run in runs))
    return f"{by}: {places}. All versions: [`{Path(file).name}`]({file})."


def _place(run: Measured) -> str:
    about, versions = run.machine, run.versions
    facts = [run.date, f"{about['cores']} cores of {about['cpu']}", about["memory"], f"load: {about['load']}"]
    facts += [f"Python {versions['python']}", f"streamsvm {versions['streamsvm']}"]
    return ", ".join([*facts, f"commit {run.commit}"] if run.commit else facts)


def in_one(tables: Sequence[Table], column: str) -> Table:
    """One table of several, with their titles in a first column; notes that several share once, and all checks."""
    order = dict.fromkeys(name for table in tables for row in table.rows for name in row)
    rows = [
        ({column: table.title} if table.title else {}) | {name: row.get(name) for name in order}
        for table in tables
        for row in table.rows
    ]
    notes = list(dict.fromkeys(note for table in tables for note in table.notes))
    checks = [check for table in tables for check in table.checks]
    return Table("", rows, notes, checks)


def main(pages: Sequence[str]) -> None:
    try:
        refresh([Path(page) for page in pages] or PAGES)
    except (OSError, Malformed) as error:
        sys.exit(f"figures.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
