"""What the recipes of papers share: the paper's values next to ours, and data that cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import Bench


def beside(
    bench: Bench, published: Mapping[str, Any], needs: Sequence[str], measured: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """A row of a table: the paper's values, then ours, or the files that are not there to measure them.

    published: by column, "(paper)" in its name where ours has the same. needs: files in --data.
    """
    missing = [name for name in needs if not (bench.data / name).exists()]
    if missing:
        return {**published, "": f"not run: data ({', '.join(missing)})"}
    return {**published, **measured()}
