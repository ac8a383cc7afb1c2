"""How the gallery is built: its pages in the order in which to read them, and the style of its pictures."""

from __future__ import annotations

from typing import Any

import matplotlib

ORDER = (
    "early",
    "decision_maps",
    "metric",
    "c_path",
    "probabilities",
    "costs",
    "intervals",
    "outliers",
    "ranking",
    "explain",
    "drift",
    "kafka",
    "pipeline",
    "memory",
    "dask",
    "cluster",
)
# on a white card, which is read as well on a dark page as on a light one
STYLE = {"axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.3, "axes.titlesize": "medium"}


def order(script: str) -> int:
    """Place of a script, `plot_NAME.py`. Raises ValueError for one that ORDER lacks."""
    return ORDER.index(script.removeprefix("plot_").removesuffix(".py"))


def style(gallery_conf: dict[str, Any], script: str) -> None:
    """Before each script: sphinx-gallery has put back the defaults of matplotlib."""
    matplotlib.rcParams.update(STYLE)
