"""The cluster tree of a compressed matrix as a picture: which block has which rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamsvm.hss.tree import ClusterTree
from streamsvm.report.drawing import INK, MUTED, SERIES, WIDTH, new, plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEEPEST = 7  # levels drawn: smaller blocks cannot be seen
WRITTEN = 4  # levels whose ranks are written into the blocks


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

    def block(rows: tuple[int, int], columns: tuple[int, int], **face: Any) -> None:
        size = (columns[1] - columns[0], rows[1] - rows[0])
        axes.add_patch(Rectangle((columns[0], rows[0]), *size, lw=0, **face))

    for level in range(bottom):
        for place, node in enumerate(tree.level(level)):
            left, right = tree.span(2 * node + 1), tree.span(2 * node + 2)
            rank = max(ranks[level][2 * place : 2 * place + 2])
            for rows, columns in ((left, right), (right, left)):
                block(rows, columns, facecolor=SERIES[0], alpha=0.08 + 0.62 * rank / most)
                if level < WRITTEN:
                    middle = sum(columns) / 2, sum(rows) / 2
                    size = 10 - 1.5 * level
                    axes.text(*middle, str(rank), ha="center", va="center", color=INK, fontsize=size)
    for node in tree.level(bottom):
        block(tree.span(node), tree.span(node), facecolor=MUTED, alpha=0.35)
    return figure
