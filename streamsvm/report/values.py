"""Values of files that anybody may have written."""

from __future__ import annotations

from typing import Any

from streamsvm.storage.text import heading

Row = dict[str, Any]
LABELS = {
    "max_rows": "rows of the largest",
    "parts": "partitions",
    "seconds_clustering": "clustering",
    "seconds_training": "training",
    "store": "data",
}


def table(value: object) -> Row:
    """A dictionary, empty for anything else."""
    return value if isinstance(value, dict) else {}


def table_rows(value: object) -> list[Row]:
    """The dictionaries of a list, none for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def label(name: str) -> str:
    """A value's name as a page has it."""
    return LABELS.get(name, heading(name))
