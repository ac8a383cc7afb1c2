"""What a section of a report is made of, and how runs become it: plots, tables, facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from streamsvm.report.drawing import WIDTH, look
from streamsvm.report.read import Run
from streamsvm.runs.records import Row
from streamsvm.storage.text import heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELS = {
    "max_rows": "rows of the largest",
    "parts": "partitions",
    "seconds_clustering": "clustering",
    "seconds_training": "training",
    "store": "data",
}


@dataclass(frozen=True)
class Plot:
    """A figure; name: of its file, without an ending."""

    name: str
    title: str
    caption: str
    figure: Figure

    @property
    def is_wide(self) -> bool:
        """Whether it is drawn for twice the width."""
        return float(self.figure.get_figwidth()) > WIDTH


@dataclass(frozen=True)
class Table:
    """Records of the same keys. folded: shown when asked for."""

    title: str
    rows: list[Row]
    caption: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Facts:
    """A few values to be seen first."""

    values: Row


@dataclass(frozen=True)
class Lines:
    """Texts, one below the other."""

    lines: list[str]


@dataclass(frozen=True)
class Code:
    """Lines to be copied."""

    title: str
    text: str


Part = Plot | Table | Facts | Lines | Code
Caption = str | Callable[[Sequence[Run]], str]
Content = Callable[[Sequence[Run]], Iterable[Part]]  # nothing where the runs have no such data


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    contents: tuple[Content, ...] = ()

    def parts(self, runs: Sequence[Run]) -> list[Part]:
        return [*chain.from_iterable(show(runs) for show in self.contents)]


@dataclass(frozen=True)
class RunPlot:
    """A plot of each run, or one of all. drawing: a figure of it or them; None if they have no such data."""

    name: str
    title: str
    caption: Caption
    drawing: Callable[[Any], Figure | None]
    of_each: bool

    def draw(self, of: Run | Sequence[Run]) -> Figure | None:
        with look():
            return self.drawing(of)

    def __call__(self, runs: Sequence[Run]) -> Iterator[Plot]:
        caption = self.caption if isinstance(self.caption, str) else self.caption(runs)
        named: list[tuple[str, str, Any]] = [(self.name, self.title, runs[0] if self.of_each else runs)]
        if self.of_each and len(runs) > 1:
            named = [(f"{self.name}-{i}", titled(self.title, run, runs), run) for i, run in enumerate(runs, 1)]
        for name, title, of in named:
            if (figure := self.draw(of)) is not None:
                yield Plot(name, title, caption, figure)


Decorator = Callable[[Callable[[Any], Any]], RunPlot]


def plot_each(name: str, title: str, caption: Caption = "", *, each: bool = True) -> Decorator:
    """Makes a function that draws a run a `RunPlot`. Without another caption, that is its docstring."""
    return lambda drawing: RunPlot(name, title, caption or " ".join((drawing.__doc__ or "").split()), drawing, each)


def plot_all(name: str, title: str, caption: Caption = "") -> Decorator:
    """As `plot_each`, for a function that draws several runs in one figure."""
    return plot_each(name, title, caption, each=False)


def titled(title: str, run: Run, runs: Sequence[Run]) -> str:
    """With the name of the run, where there are several."""
    return title if len(runs) == 1 else f"{title}: {run.name}"


def facts_of(facts: Callable[[Run], Row]) -> Content:
    """What `facts` says of a single run, to be seen first, or of several, a row for each that has some."""

    def show(runs: Sequence[Run]) -> Iterator[Part]:
        found = [(run, values) for run in runs if (values := facts(run))]
        if len(runs) > 1 and found:
            yield Table("", filled_columns([{"run": run.name} | values for run, values in found]))
        elif found:
            yield Facts(found[0][1])

    return show


def tables_of(title: str, rows_of: Callable[[Run], list[Row]], caption: str = "", most: float = math.inf) -> Content:
    """A table for each run that has rows, folded if they are more than `most`."""

    def show(runs: Sequence[Run]) -> Iterator[Table]:
        for run in runs:
            if rows := rows_of(run):
                yield Table(titled(title, run, runs), filled_columns(rows), caption, folded=len(rows) > most)

    return show


def filled_columns(rows: list[Row]) -> list[Row]:
    """The same keys for all, those that say something in any."""
    names = dict.fromkeys(name for row in rows for name in row)
    filled = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    return [{name: row.get(name) for name in filled} for row in rows]


def label(name: str) -> str:
    """A value's name as a page has it."""
    return LABELS.get(name, heading(name))
