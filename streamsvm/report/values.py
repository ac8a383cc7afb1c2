"""Records and values of files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any

Record = dict[str, Any]


def parse(line: bytes) -> Record | None:
    """The record of a line of events; None where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("event"), str):
        return None
    return record if number(record.get("t")) is not None else None


def number(value: Any) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        return None
    return float(value)


def table(value: Any) -> Record:
    """A dictionary, empty for anything else."""
    return value if isinstance(value, dict) else {}


def table_rows(value: Any) -> list[Record]:
    """The dictionaries of a list, none for anything else."""
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
