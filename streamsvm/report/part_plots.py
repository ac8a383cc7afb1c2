"""What a fit divided its rows into: levels and partitions of DC-SVM, blocks of a compressed matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamsvm.events import Compressed, LevelSolved, PartsSolved, SupportCompared
from streamsvm.hss.tree import ClusterTree
from streamsvm.report.drawing import INK, MUTED, SERIES, WIDTH, few_x, finish, from_zero, new, plot
from streamsvm.report.parts import Table, filled_columns, plot_each
from streamsvm.report.plots import colour, draw_lines
from streamsvm.report.read import Run, by_number, columns, matrix
from streamsvm.runs.records import Row, number, table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMED = 20  # parts that a map numbers
MOST_ROWS = 40  # of the table
LARGEST_AREA = 1000.0  # of the largest part on the map, in square points
FEW = 10  # parts, whose sizes need no histogram
FAR = 5.0
MAP, NAME = (190.0, 150.0), (52.0, 11.0)  # width and height of the map and of a name, in points
LEVEL_NAMES = {"objective": "sum of the partitions' objectives"}  # which is not that of the whole problem
DEEPEST = 7  # levels of blocks drawn: smaller ones cannot be seen
WRITTEN = 4  # levels whose ranks are written into the blocks


def levels_tables(runs: Sequence[Run]) -> Iterator[Table]:
    """Of the levels of each run, from many partitions to few."""
    for run in runs:
        compared = {event.level: event for event in run.events(SupportCompared)}
        rows = []
        for level, solved in sorted({event.level: event for event in run.events(LevelSolved)}.items(), reverse=True):
            facts = {LEVEL_NAMES.get(name, name): value for name, value in vars(solved).items()}
            both = compared.get(level)
            rows.append(facts if both is None else facts | {"precision": both.precision, "recall": both.recall})
        if rows:
            about = (
                "Precision: share of the level's support vectors that are support vectors of the solution. Recall: "
                "share of the solution's support vectors that the level had found."
            )
            title = run.name if len(runs) > 1 else "Level by level"
            yield Table(title, filled_columns(rows), about if compared else "")


@plot_each("levels", "Support vectors found")
def levels(run: Run) -> Figure | None:
    """How well each level had found the support vectors of the solution."""
    compared = by_number(run.events(SupportCompared), lambda event: event.level)
    number, precision, recall = columns(3, ((event.level, event.precision, event.recall) for event in compared))
    if len(number) < 2:  # the table says it
        return None
    figure, axes = new(xlabel="level, from many partitions to few", ylabel="share of support vectors", ylim=(0, 1.04))
    draw_lines(axes, [("precision", number, precision), ("recall", number, recall)])
    axes.set_xticks(number)
    axes.invert_xaxis()
    return finish(figure, axes)


def parts_of(run: Run) -> list[Row]:
    """Each partition of the level that was solved last: rows, support vectors, seconds, and accuracy in `evaluate`."""
    solved = run.last(PartsSolved)
    if solved is None:
        return []
    parts: list[Row] = [
        {"partition": i, "rows": number(rows), "n_support": number(support), "seconds": number(seconds)}
        for i, (rows, support, seconds) in enumerate(zip(solved.rows, solved.n_support, solved.seconds, strict=False))
    ]
    scores = table(run.evaluation.get("parts"))
    counts = matrix([scores.get("rows"), scores.get("right")])
    if counts is not None and counts.shape[1] == len(parts):
        for part, (n, right) in zip(parts, counts.T.tolist(), strict=True):
            part |= {"rows of evaluate": n, "accuracy": right / n if n else None}
    return [part for part in parts if part["rows"]]


def largest(run: Run) -> list[Row]:
    """The table of the largest partitions."""
    whole = ("rows", "n_support", "rows of evaluate")
    rows = sorted(parts_of(run), key=lambda row: -row["rows"])[:MOST_ROWS]
    return [row | {name: int(row[name]) for name in whole if row.get(name) is not None} for row in rows]


@plot_each("map", "Map of the partitions")
def part_map(run: Run) -> Figure | None:
    """Centres of the partitions, in the two directions in which they differ most (PCA); distances from the middle are
    logarithmic if a few lie far away. Areas show rows; darker partitions are more accurate, if evaluate has scored
    them."""
    solved, parts = run.last(PartsSolved), parts_of(run)
    places = None if solved is None else matrix(solved.places, 2)
    if places is None or len(places) != len(parts) or len(parts) < 2:
        return None
    rows = np.array([part["rows"] for part in parts])
    places = drawn_in(places)
    figure, axes = new(3.6, xlabel="first direction", ylabel="second direction")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.18)
    area = LARGEST_AREA * rows / rows.max()
    axes.scatter(*places.T, area, color=colour(0), alpha=_shades(parts), edgecolors=INK, linewidths=0.6)
    radius = np.sqrt(area / np.pi)
    for i in apart(places, radius, np.argsort(-rows, kind="stable")):
        above = (0.0, float(radius[i]) + 2)
        axes.annotate(_name(parts[i]), places[i], above, textcoords="offset points", ha="center", fontsize=9)
    return figure


def drawn_in(places: np.ndarray) -> np.ndarray:
    """(partitions, 2) places; if the farthest from their middle are FAR times as far as most, by the logarithm of the
    distance, in the same direction."""
    away = places - np.median(places, axis=0)
    distance = np.linalg.norm(away, axis=1, keepdims=True)
    usual = np.median(distance)
    if not 0 < FAR * usual < distance.max():
        return places
    return away * np.log1p(distance / usual) / np.maximum(distance, np.finfo(np.float64).tiny)


def apart(places: np.ndarray, radius: np.ndarray, order: np.ndarray) -> list[int]:
    """Those to name above their circles, the first in order before others: MOST_NAMED at most, and none where the name
    of one would lie on that of another."""
    at = (places - places.min(axis=0)) / np.maximum(np.ptp(places, axis=0), np.finfo(np.float64).tiny) * MAP
    at[:, 1] += radius
    named: list[int] = []
    for i in order.tolist():
        if all((np.abs(at[i] - at[j]) > NAME).any() for j in named):
            named.append(i)
    return named[:MOST_NAMED]


def _name(part: Row) -> str:
    accuracy = part.get("accuracy")
    return str(part["partition"]) if accuracy is None else f"{part['partition']}: {100 * accuracy:.0f} %"


def _shades(parts: Sequence[Row]) -> np.ndarray:
    """(partitions,) opacity, which rises with accuracy if that is known."""
    accuracies = np.array([np.nan if (a := part.get("accuracy")) is None else a for part in parts], np.float64)
    if np.isnan(accuracies).all():
        return np.full(len(parts), 0.4)
    low, high = np.nanmin(accuracies), np.nanmax(accuracies)
    return np.nan_to_num(0.2 + 0.6 * (accuracies - low) / ((high - low) or 1.0), nan=0.1)


@plot_each("part-sizes", "Size and time of the partitions")
def part_sizes(run: Run) -> Figure | None:
    """Seconds to solve each partition, by its rows. Of many partitions, also how many have so many rows."""
    parts = parts_of(run)
    if len(parts) < 2:
        return None
    rows = np.array([part["rows"] for part in parts])
    x, seconds = columns(2, ((part["rows"], part["seconds"]) for part in parts))
    if len(parts) < FEW:
        figure, below = new()
    else:
        figure, (above, below) = new(4.2, 2)
        above.hist(rows, bins=min(20, len(parts) // 2), color=colour(0))
        above.set_ylabel("partitions")
        figure.align_ylabels([above, below])
    below.plot(x, seconds, "o", ms=5, color=colour(1), alpha=0.7)
    below.set(ylabel="seconds", xlabel="rows in the partition")
    few_x(below)
    if len(x):
        from_zero(below)
    return figure


@plot
def rank_blocks(n: int, ranks: Sequence[Sequence[int]]) -> Figure:
    """The matrix of n rows as nested blocks, darker where the larger of their two bases has more columns.

    ranks: of the nodes, level by level from the top, without the root's. Diagonal blocks are grey.
    """
    from matplotlib.patches import Rectangle

    bottom = min(len(ranks), DEEPEST)
    tree, most = ClusterTree(n, bottom), max((max(level) for level in ranks), default=1) or 1
    figure, axes = new(WIDTH, xlim=(0, n), ylim=(n, 0), aspect="equal", xlabel="row", ylabel="row")
    axes.grid(visible=False)
    axes.locator_params(nbins=5)

    def block(down: tuple[int, int], across: tuple[int, int], **face: Any) -> None:
        size = (across[1] - across[0], down[1] - down[0])
        axes.add_patch(Rectangle((across[0], down[0]), *size, lw=0, **face))

    for level in range(bottom):
        for place, node in enumerate(tree.level(level)):
            left, right = tree.span(2 * node + 1), tree.span(2 * node + 2)
            rank = max(ranks[level][2 * place : 2 * place + 2])
            for down, across in ((left, right), (right, left)):
                block(down, across, facecolor=SERIES[0], alpha=0.08 + 0.62 * rank / most)
                if level < WRITTEN:
                    middle = sum(across) / 2, sum(down) / 2
                    size = 10 - 1.5 * level
                    axes.text(*middle, str(rank), ha="center", va="center", color=INK, fontsize=size)
    for node in tree.level(bottom):
        block(tree.span(node), tree.span(node), facecolor=MUTED, alpha=0.35)
    return figure


@plot_each("blocks", "Blocks")
def blocks(run: Run) -> Figure | None:
    """Blocks of the kernel matrix with their rank; rows in the order of the cluster tree."""
    compressed = run.last(Compressed)
    if compressed is None or compressed.rows is None or not compressed.ranks:
        return None
    n, levels = compressed.rows, compressed.ranks
    is_whole_tree = n >= 2 ** len(levels) and all(
        isinstance(level, list) and len(level) == 2**i and all(number(rank) is not None for rank in level)
        for i, level in enumerate(levels, 1)
    )
    return rank_blocks(n, levels) if is_whole_tree else None
