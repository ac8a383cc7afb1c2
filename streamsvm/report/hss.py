"""The cluster tree of a compressed matrix as a picture: which block has which rank."""

from __future__ import annotations

from pathlib import Path

from streamsvm.errors import ConfigError
from streamsvm.hss.matrix import HSSMatrix

DEEPEST = 7  # levels drawn: smaller blocks cannot be seen


def draw_ranks(matrix: HSSMatrix, path: str | Path) -> None:
    """Writes the matrix as nested blocks, coloured by the ranks of their two bases (the larger one is written in).

    path: .svg, .png or .pdf. Needs matplotlib; raises ConfigError without it.
    """
    try:
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError:
        raise ConfigError("pictures need matplotlib: pip install matplotlib") from None
    tree = matrix.tree
    most = max((int(ranks.max()) for ranks in matrix.ranks()), default=1)
    norm, colours = Normalize(0, most), colormaps["viridis"]
    figure = Figure(figsize=(7, 6), layout="constrained")
    axes = figure.add_subplot(xlim=(0, tree.n), ylim=(tree.n, 0), aspect="equal", xlabel="row", ylabel="row")

    def block(rows: tuple[int, int], columns: tuple[int, int], rank: int | None) -> None:
        colour = "0.85" if rank is None else colours(norm(rank))
        size = (columns[1] - columns[0], rows[1] - rows[0])
        axes.add_patch(
            Rectangle((columns[0], rows[0]), *size, facecolor=colour, edgecolor="white", linewidth=0.5)
        )
        if rank is not None and size[0] * 2**4 >= tree.n:
            middle = (sum(columns) / 2, sum(rows) / 2)
            axes.text(*middle, str(rank), ha="center", va="center", color="white", fontsize=8)

    bottom = min(tree.depth, DEEPEST)
    for level in range(bottom):
        for node in tree.level(level):
            left, right = tree.span(2 * node + 1), tree.span(2 * node + 2)
            rank = max(matrix.P[2 * node].shape[1], matrix.P[2 * node + 1].shape[1])
            block(left, right, rank)
            block(right, left, rank)
    for node in tree.level(bottom):
        block(tree.span(node), tree.span(node), None)
    figure.colorbar(ScalarMappable(norm, colours), ax=axes, label="rank; grey: diagonal blocks")
    figure.savefig(path)
