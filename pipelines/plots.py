"""Draws the plots of the documentation: `python pipelines/plots.py [NAME ...]`, by default all that are out of date.

configs/plots.toml lists them; each becomes docs/pictures/NAME.svg, drawn from files of docs/figures, which recipes
write. A picture holds a digest of its entry and of the figures in it: by that a test, and rerun.py, see which are out
of date.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from figures import DOCS, FIGURES
from measure import Spread
from tables import HERE, Bytes, Malformed, Share, read, text

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

CONFIG = HERE.parent / "configs" / "plots.toml"
PICTURES = DOCS / "pictures"
INK = "#808080"  # can be read on white and on black
COLOURS = ("#d9480f", "#1c7ed6", "#37b24d", "#ae3ec9", "#e8a200", "#0c8599", INK)
MARKERS = "osD^vPX"
INKS = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
STYLE = dict.fromkeys(INKS, INK) | {"svg.fonttype": "none", "svg.hashsalt": "streamsvm", "font.size": 11}

Points = list[tuple[Any, Any]]


def plots() -> dict[str, dict[str, Any]]:
    """The entries of configs/plots.toml, which explains them, by name; each series with what all of them share."""
    found = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["plot"]
    return {
        plot["name"]: plot | {"series": [plot.get("all", {}) | series for series in plot["series"]]} for plot in found
    }


def redraw(names: Sequence[str] = ()) -> None:
    """Draws these plots, or those that do not show what their files say. Raises Malformed and OSError."""
    for name, plot in plots().items():
        path = PICTURES / f"{name}.svg"
        if name in names or not names and not is_current(plot, path):
            draw(plot, path)


def is_current(plot: dict[str, Any], path: Path) -> bool:
    return path.exists() and digest(plot) in path.read_text(encoding="utf-8")


def digest(plot: dict[str, Any]) -> str:
    drawn = [plot, [points(series) for series in plot["series"]]]
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()


def points(series: dict[str, Any]) -> Points:
    """(x, y) of each row of the tables that a series is of. Raises Malformed."""
    path, where = FIGURES / f"{series['figures']}.json", series.get("where", {})
    tables = [table for run in read(path) for table in run.tables]
    rows = [row for table in tables if table.title.startswith(series.get("table", "")) for row in table.rows]
    rows = [row for row in rows if where.items() <= row.items()]
    if "over" in series:
        columns = re.compile(re.escape(series["over"]) + r"(\d+)")
        pairs = [(int(at[1]), row[name]) for row in rows for name in row if (at := columns.fullmatch(name))]
    else:
        pairs = [(row.get(series["x"]), row.get(series["y"])) for row in rows]
    found = [(number(x), number(y)) for x, y in pairs if x is not None and y is not None]
    if not found:
        raise Malformed(f"{path}: nothing to draw of '{series['label']}', as configs/plots.toml expects")
    return found


def number(value: Any) -> Any:
    """A cell as plots show it: medians, per cent, MiB; a text is itself."""
    if isinstance(value, Spread):
        return float(value.median)
    if isinstance(value, Share):
        return 100 * value
    return value / 2**20 if isinstance(value, Bytes) else value


def draw(plot: dict[str, Any], out: Path) -> None:
    """On no ground, so that it can be read on light and dark pages."""
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, plot.get("height", 4.2)), layout="constrained")
        axes.set_title(plot["title"], fontsize=11)
        looks = zip(plot["series"], cycle(COLOURS), cycle(MARKERS), strict=False)
        for series, colour, marker in looks:
            _draw_series(axes, series, series.get("colour", colour), series.get("marker", marker))
        for side in "xy":
            _set_axis(axes, side, plot.get(side, {}))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        for note in plot.get("note", ()):
            axes.annotate(note["text"], note["at"], color=INK, fontsize=10, ha="center")
        if any("at" not in series for series in plot["series"]):
            axes.legend(frameon=False, fontsize=10, **plot.get("legend", {}))
        figure.savefig(out, transparent=True, metadata={"Date": None, "Description": digest(plot)})
        plt.close(figure)


def _draw_series(axes: Any, series: dict[str, Any], colour: str, marker: str) -> None:
    found = points(series)
    ordered = found if isinstance(found[0][1], str) else sorted(found)
    line = "none" if series.get("dots") else "--" if series.get("dashed") else "-"
    look = {"mfc": "none"} if series.get("hollow") else {}
    name = "_" if "at" in series else series["label"]
    look |= {"linestyle": line, "marker": marker, "ms": 6, "lw": 2, "color": colour, "label": name}
    [drawn] = axes.plot(*zip(*ordered, strict=True), **look)
    if "at" in series:
        placed = {"xytext": series["at"], "textcoords": "offset points"}
        last = (drawn.get_xdata()[-1], drawn.get_ydata()[-1])
        axes.annotate(series["label"], last, color=colour, fontsize=10, **placed)


def _set_axis(axes: Any, side: str, about: dict[str, Any]) -> None:
    axis = getattr(axes, f"{side}axis")
    scale = about.get("scale", "linear")
    if scale == "error":  # accuracy by the logarithm of what is missing to 100 %
        way, back = (lambda y: -np.log(np.maximum(100 - y, 1e-9))), (lambda e: 100 - np.exp(-e))
        getattr(axes, f"set_{side}scale")("function", functions=(way, back))
    elif scale != "linear":
        getattr(axes, f"set_{side}scale")(scale)
    axes.set(**{f"{side}label": about.get("label", "")})
    if "limits" in about:
        axes.set(**{f"{side}lim": about["limits"]})
    if "ticks" in about:
        axis.set_ticks(about["ticks"], about.get("names", [text(tick) for tick in about["ticks"]]))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())


def main(names: Sequence[str]) -> None:
    unknown = set(names) - plots().keys()
    if unknown:
        sys.exit(f"plots.py: no plot {', '.join(sorted(unknown))}; there are {', '.join(plots())}")
    try:
        redraw(names)
    except (OSError, Malformed) as error:
        sys.exit(f"plots.py: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
