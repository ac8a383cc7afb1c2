"""Values as people read and write them."""

from __future__ import annotations

import re

PERCENT = ("accuracy", "balanced_accuracy", "label_accuracy")  # scores that are read so
HEADINGS = {  # of fields whose names are too short for people
    "d": "columns",
    "ece": "ECE",
    "learnt": "learned",
    "n": "rows",
    "n_parts": "partitions",
    "n_support": "support vectors",
    "n_unknown_labels": "unknown labels",
    "peak_rss_bytes": "peak memory",
    "roc_auc": "ROC AUC",
}
UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def human(name: str, value: object) -> str:
    """A value as text, with the unit that its name implies; empty if it is not known."""
    if value is None:
        return ""
    if name.removesuffix("_estimated").endswith("bytes") and isinstance(value, int):
        return human_bytes(value)
    if isinstance(value, float):
        return f"{value:.1f} s" if name.startswith("seconds") else f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return ", ".join(human("", item) for item in value)
    return str(value)


def human_bytes(n: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while n >= 1024 and len(units) > 1:
        n /= 1024
        units.pop(0)
    return f"{n:.0f} B" if units[0] == "B" else f"{n:.1f} {units[0]}"


def human_seconds(seconds: float) -> str:
    unit, size = next(((unit, UNITS[unit[0]]) for unit in ("h", "min") if seconds % UNITS[unit[0]] == 0), ("s", 1.0))
    return f"{seconds / size:g} {unit}"


def parse_time(value: object) -> float:
    """Seconds of a time: `60s`, `10m`, `1.5h` or a number. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", str(value).strip().lower())
    if match is None or isinstance(value, bool):
        raise ValueError("expected a time like 60s, 10m or 2h, or a number of seconds")
    return float(match[1]) * UNITS[match[2]]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def score_text(scoring: str | None, value: float) -> str:
    """A score as people read it: accuracies in percent."""
    return percent(value) if scoring in PERCENT else f"{value:.4f}"


def heading(name: str) -> str:
    """A field's name over a column, or in a table."""
    plain = name.replace("_bytes_", "_").removesuffix("_bytes").replace("_", " ")
    return HEADINGS.get(name, plain)


def number_or_text(text: str) -> int | float | str:
    """The number that a text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
