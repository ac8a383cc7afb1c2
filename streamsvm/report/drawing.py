"""What all plots share: the look, colours that a page can replace, SVG and PNG. matplotlib is imported by a plot."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from streamsvm.storage.atomic import whole_file
from streamsvm.storage.text import number_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches of a figure: text of 10 points can be read where it fills the width of a phone
SPREAD = 50  # between the least and the largest number from which an axis is logarithmic
POINTS = 500  # most of a line
LONGEST = 28  # characters of a name in a plot
LEGEND = 56  # characters of a line of names above one
# Each colour once, so that a page can put its own in place: light on dark, or dark on light.
INK, MUTED, GRID, PAPER = "#1b2431", "#667182", "#dfe3ea", "#fefefd"
SERIES = ("#1768c4", "#c9570f", "#12855c", "#a8327c", "#8a6a05", "#5a4fc0", "#0d7c94", "#a33a2c")
ALERT = "#c62f2f"
NAMES = {"ink": INK, "muted": MUTED, "grid": GRID, "paper": PAPER, "alert": ALERT} | {
    f"series-{i}": colour for i, colour in enumerate(SERIES)
}
VARIABLES = {colour: f"var(--{name})" for name, colour in NAMES.items()}
DASHES = ("-", "--", "-.", ":")  # no series is told from another by its colour alone
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "figure.facecolor": PAPER,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": GRID,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "patch.linewidth": 0,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "streamsvm",
    "text.color": INK,
    "text.parse_math": False,  # names and labels are what they are
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}

Draw = TypeVar("Draw", bound=Callable[..., Any])


@contextmanager
def look() -> Iterator[None]:
    """Inside, plots have their style."""
    from matplotlib import rc_context

    with rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def plot(draw: Draw) -> Draw:
    """A function that draws in this look."""

    @wraps(draw)
    def styled(*args: Any, **more: Any) -> Any:
        with look():
            return draw(*args, **more)

    return styled  # type: ignore[return-value]


def new(height: float = 3.2, rows: int = 1, width: float = WIDTH, **axes: Any) -> tuple[Figure, Any]:
    """A figure, and its axes or those of all rows, which share x."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, 1, sharex=True, subplot_kw=axes)


def finish(figure: Figure, axes: Axes, *, is_shared: bool = False) -> Figure:
    """With a legend above where there is more than one line, or where several runs share the picture: one of them may
    be the only one that has a line."""
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) > (0 if is_shared else 1):
        columns = min(3, max(1, LEGEND // (max(map(len, labels)) + 6)))
        figure.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=9)
    return figure


def scale_y(axes: Axes, *values: np.ndarray) -> None:
    """Logarithmic where the values (m,) are positive and far from each other."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    every = np.concatenate(values)
    if every.min() > 0 and every.max() > SPREAD * every.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def whole_x(axes: Axes) -> None:
    """Ticks at whole numbers alone: rounds and steps are counted."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def few_x(axes: Axes) -> None:
    """Few ticks, as their numbers may be long."""
    axes.locator_params(axis="x", nbins=5)
    axes.xaxis.set_major_formatter(lambda value, _: number_text(value))


def from_zero(axes: Axes) -> None:
    """The axis of sizes, from 0 to a little above the largest."""
    axes.set_ylim(0, 1.06 * max(axes.dataLim.y1, 1e-9))


# of phases whose names in records say little
PHASES = {
    "start": "imports and options",
    "folds": "fits on folds",
    "levels": "partitions",
    "refine": "support vectors",
    "top": "whole problem",
    "read": "read rows",
    "keep": "keep factors",
    "save": "write the model",
}


def phase_name(phase: str) -> str:
    """A phase in words."""
    return PHASES.get(phase, short(phase))


def short(name: object) -> str:
    text = str(name)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most POINTS of a line (m,): of each stretch the largest y, and both ends."""
    if len(x) <= POINTS:
        return x, y
    stretches = np.array_split(np.arange(1, len(x) - 1), POINTS - 2)
    shown = [0, *(int(s[np.argmax(y[s])]) for s in stretches), len(x) - 1]
    return x[shown], y[shown]


def time_unit(seconds: float) -> tuple[float, str]:
    """(seconds of it, its name) for an axis that long."""
    return (1.0, "seconds") if seconds < 600 else (60.0, "minutes") if seconds < 36_000 else (3600.0, "hours")


def bytes_unit(most: float) -> tuple[float, str]:
    return (float(1 << 20), "MiB") if most < 4 << 30 else (float(1 << 30), "GiB")


def uncrowd(figure: Figure) -> None:
    """Takes ticks from axes of numbers whose labels would meet, as those of a short span far from 0 do."""
    from matplotlib.ticker import MaxNLocator

    figure.draw_without_rendering()
    for axes in figure.axes:
        locator = axes.xaxis.get_major_locator()
        if isinstance(locator, MaxNLocator) and _overlap(axes):
            for bins in (4, 3, 2):
                locator.set_params(nbins=bins)
                figure.draw_without_rendering()
                if not _overlap(axes):
                    break


def _overlap(axes: Axes) -> bool:
    """Whether some of its labels below the ticks are nearer than a letter to each other."""
    low, high = sorted(axes.get_xlim())
    shown = [tick.label1 for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [label.get_window_extent() for label in shown if label.get_visible() and label.get_text()]
    return any(one.x1 + 0.5 * one.height > other.x0 for one, other in pairwise(boxes))


def to_svg(figure: Figure) -> str:
    """The figure as an SVG element without its header, on nothing."""
    out = io.StringIO()
    with look():
        uncrowd(figure)
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    return out.getvalue()[out.getvalue().index("<svg") :]


def inline(figure: Figure, name: str, label: str) -> str:
    """The figure for inside a page: unique ids, no sizes, colours as the page's variables; nothing is fetched."""
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", to_svg(figure), flags=re.S)
    head, _, body = svg.partition(">")
    hints = {artist.get_gid(): escape(str(artist.get_label())[1:]) for artist in figure.findobj()}
    body = re.sub(r'<g id="(hint-\d+)">', lambda group: f"{group[0]}<title>{hints[group[1]]}</title>", body)

    def in_page(tag: re.Match[str]) -> str:
        text = re.sub(r'\bid="|url\(#|href="#', lambda start: f"{start[0]}{name}-", tag[0])
        text = re.sub(r"font-family:[^;]*;\s", "", text)
        return re.sub("#[0-9a-f]{6}", lambda colour: VARIABLES.get(colour[0], colour[0]), text)

    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None
    return f'<svg {box[0]} role="img" aria-label="{label}">{re.sub("<[^>]*>", in_page, body)}'


def hint(artist: Artist, number: int, text: str) -> None:
    """A text that `inline` shows when the pointer rests on this artist; number: another one for each of a figure."""
    artist.set_gid(f"hint-{number}")
    artist.set_label(f"_{text}")  # the underscore keeps it out of legends


def write_plot(figure: Figure, path: str | Path) -> None:
    """Writes the figure, dark on light, in the format of the name's ending, whole or not at all."""
    path = Path(path)
    with look(), whole_file(path) as file:
        uncrowd(figure)
        figure.savefig(file, format=path.suffix[1:], dpi=200)
