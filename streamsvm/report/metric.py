"""What the columns count for, from the entries `metric` and `parts` of `result.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.report.drawing import new, plot, short
from streamsvm.report.plots import cells, colour
from streamsvm.report.read import Run, matrix
from streamsvm.report.values import Row, table
from streamsvm.runs.records import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTS = {  # and what a page calls them
    "kind": "metric",
    "reason": "reason",
    "columns": "columns that count",
}
MOST_BARS = 20
MOST_PARTS = 24  # that fit into a picture
WRITTEN = 8  # columns up to which shares are written into cells


@dataclass(frozen=True)
class Parts:
    """Names of partitions and columns, and shares (partitions, columns)."""

    names: list[str]
    columns: list[str]
    shares: np.ndarray


def facts(run: Run) -> Row:
    """What was learned."""
    told = table(run.result.get("metric"))
    found = {label: value for name, label in FACTS.items() if is_single(value := told.get(name))}
    own = _of_parts(run).get("own")
    return found if number(own) is None else found | {"partitions with a separate metric": own}


def shares(run: Run) -> list[Row]:
    """Columns and their share of what all count for, the largest first."""
    told = table(run.result.get("metric")).get("importances")
    pairs = filter(_is_pair, told if isinstance(told, list) else [])
    found = [{"column": str(name), "share": number(share)} for name, share in pairs]
    return sorted(found, key=lambda row: -row["share"])


def _is_pair(value: Any) -> bool:
    """Whether it is a column and its share."""
    share = number(value[1]) if isinstance(value, list) and len(value) == 2 else None
    return share is not None and share >= 0


def parts(run: Run) -> Parts | None:
    """The column importances of each partition, the largest first, at most MOST_PARTS; None if all share one metric."""
    told = _of_parts(run)
    columns, every = told.get("columns"), matrix(told.get("shares"))
    if not isinstance(columns, list) or every is None or every.shape[1] != len(columns):
        return None
    sizes = matrix([[size] for size in told["rows"]]) if isinstance(told.get("rows"), list) else None
    rows = None if sizes is None or len(sizes) != len(every) else sizes[:, 0]
    largest = np.arange(len(every)) if rows is None else np.argsort(-rows, kind="stable")
    kept = largest[:MOST_PARTS].tolist()
    names = [str(p) if rows is None else f"{rows[p]:,.0f} rows" for p in kept]
    return Parts(names, list(map(str, columns)), np.clip(every[kept], 0, 1))


def _of_parts(run: Run) -> Row:
    return table(run.result.get("parts")) or table(table(run.result.get("metric")).get("parts"))


def is_single(value: Any) -> bool:
    return isinstance(value, str) or number(value) is not None


@plot
def importances(run: Run) -> Figure | None:
    """Bars of the columns that count most, the longest on top."""
    found = shares(run)[:MOST_BARS]
    if not found:
        return None
    figure, axes = new(0.9 + 0.24 * len(found), xlabel="share, %", ylabel="column")
    lengths = [100 * row["share"] for row in found]
    bars = axes.barh(range(len(found)), lengths, 0.7, color=colour(0))
    axes.bar_label(bars, [f"{share:.1f}" for share in lengths], padding=3, fontsize=9)
    axes.set_yticks(range(len(found)), [short(row["column"]) for row in found])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    return figure


@plot
def looks(run: Run) -> Figure | None:
    """Shares of columns (across) in partitions (down); darker cells are larger."""
    found = parts(run)
    if found is None:
        return None
    texts = np.array([[f"{100 * share:.0f}" for share in row] for row in found.shares])
    figure, axes = new(1.1 + 0.3 * len(found.names), ylabel="partition")
    shade = found.shares / max(float(found.shares.max()), np.finfo(np.float64).tiny)
    is_written = len(found.columns) <= WRITTEN
    cells(axes, shade, texts if is_written else None, found.names, found.columns)
    return figure
