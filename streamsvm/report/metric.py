"""What the columns count for, from the entries `metric` and `parts` of `result.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    metric = table(run.result.get("metric"))
    labelled = {label: value for name, label in FACTS.items() if is_single(value := metric.get(name))}
    n_separate = _of_parts(run).get("own")
    return labelled if number(n_separate) is None else labelled | {"partitions with a separate metric": n_separate}


def shares(run: Run) -> list[Row]:
    """Columns and their share of what all count for, the largest first."""
    importances = table(run.result.get("metric")).get("importances")
    pairs = filter(_is_pair, importances if isinstance(importances, list) else [])
    columns = [{"column": str(name), "share": number(share)} for name, share in pairs]
    return sorted(columns, key=lambda row: -row["share"])


def _is_pair(value: object) -> bool:
    """Whether it is a column and its share."""
    share = number(value[1]) if isinstance(value, list) and len(value) == 2 else None
    return share is not None and share >= 0


def parts(run: Run) -> Parts | None:
    """The column importances of each partition, the largest first, at most MOST_PARTS; None if all share one metric."""
    by_part = _of_parts(run)
    columns, every = by_part.get("columns"), matrix(by_part.get("shares"))
    if not isinstance(columns, list) or every is None or every.shape[1] != len(columns):
        return None
    sizes = matrix([[size] for size in by_part["rows"]]) if isinstance(by_part.get("rows"), list) else None
    rows = None if sizes is None or len(sizes) != len(every) else sizes[:, 0]
    largest = np.arange(len(every)) if rows is None else np.argsort(-rows, kind="stable")
    shown = largest[:MOST_PARTS].tolist()
    names = [str(p) if rows is None else f"{rows[p]:,.0f} rows" for p in shown]
    return Parts(names, list(map(str, columns)), np.clip(every[shown], 0, 1))


def _of_parts(run: Run) -> Row:
    return table(run.result.get("parts")) or table(table(run.result.get("metric")).get("parts"))


def is_single(value: object) -> bool:
    return isinstance(value, str) or number(value) is not None


@plot
def importances(run: Run) -> Figure | None:
    """Bars of the columns that count most, the longest on top."""
    columns = shares(run)[:MOST_BARS]
    if not columns:
        return None
    figure, axes = new(0.9 + 0.24 * len(columns), xlabel="share, %", ylabel="column")
    lengths = [100 * row["share"] for row in columns]
    bars = axes.barh(range(len(columns)), lengths, 0.7, color=colour(0))
    axes.bar_label(bars, [f"{share:.1f}" for share in lengths], padding=3, fontsize=9)
    axes.set_yticks(range(len(columns)), [short(row["column"]) for row in columns])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18)
    return figure


@plot
def looks(run: Run) -> Figure | None:
    """Shares of columns (across) in partitions (down); darker cells are larger."""
    by_part = parts(run)
    if by_part is None:
        return None
    texts = np.array([[f"{100 * share:.0f}" for share in row] for row in by_part.shares])
    figure, axes = new(1.1 + 0.3 * len(by_part.names), ylabel="partition")
    shade = by_part.shares / max(float(by_part.shares.max()), np.finfo(np.float64).tiny)
    is_written = len(by_part.columns) <= WRITTEN
    cells(axes, shade, texts if is_written else None, by_part.names, by_part.columns)
    return figure
