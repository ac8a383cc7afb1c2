"""What a section of a report is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamsvm.report.drawing import WIDTH
from streamsvm.report.read import Run
from streamsvm.report.values import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


@dataclass(frozen=True)
class Section:
    id: str
    title: str
    parts: Callable[[Sequence[Run]], Iterable[Part]]


def plot_one(name: str, title: str, caption: str, figure: Figure | None) -> Iterator[Plot]:
    """A plot, where there is something to show."""
    if figure is not None:
        yield Plot(name, title, caption, figure)


def plot_each(
    runs: Sequence[Run], name: str, title: str, caption: str, draw: Callable[[Run], Figure | None]
) -> Iterator[Plot]:
    """A plot for each run that has it."""
    for i, run in enumerate(runs):
        name_and_title = (name, title) if len(runs) == 1 else (f"{name}-{i + 1}", f"{title}: {run.name}")
        yield from plot_one(*name_and_title, caption, draw(run))


def filled_columns(rows: list[Row]) -> list[Row]:
    """The same keys for all, those that say something in any."""
    names = dict.fromkeys(name for row in rows for name in row)
    filled = [name for name in names if any(row.get(name) not in (None, "") for row in rows)]
    return [{name: row.get(name) for name in filled} for row in rows]
