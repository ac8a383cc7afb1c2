"""Values of files that anybody may have written."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def table(value: Any) -> Row:
    """A dictionary, empty for anything else."""
    return value if isinstance(value, dict) else {}


def table_rows(value: Any) -> list[Row]:
    """The dictionaries of a list, none for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
