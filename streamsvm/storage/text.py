"""Values as text: as people read and write them, as JSON and TOML can hold them, and as lists of names in options."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

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
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.removesuffix("_estimated").endswith("bytes") and isinstance(value, int):
        return human_bytes(value)
    if isinstance(value, float):
        return f"{value:.1f} s" if name.startswith("seconds") else f"{value:.6g}"
    if isinstance(value, int):
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
    for kind in (float,) if "." in text else (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


JsonObject = dict[str, Any]  # a result, report or record: what JSON can hold


def jsonable(value: Any) -> Any:
    """NumPy scalars and arrays as numbers and lists; a float that is not finite as None, which JSON supports.

    Finite floats keep every bit through `json.dumps` and back.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def toml_document(values: Mapping[str, object]) -> str:
    """A toml_document of texts, numbers, truths, lists of these, and tables; None is left out."""
    return "\n".join(_toml_lines(values, ())) + "\n"


def _toml_lines(values: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    given = {name: value for name, value in values.items() if value is not None}
    tables = {name: value for name, value in given.items() if isinstance(value, Mapping)}
    if path and (len(tables) < len(given) or not given):
        yield f"\n[{'.'.join(map(toml_key, path))}]"
    yield from (f"{toml_key(name)} = {_toml_value(value)}" for name, value in given.items() if name not in tables)
    for name, table in tables.items():
        yield from _toml_lines(table, (*path, name))


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml_value, value))}]"
    return toml_string(str(value))


def toml_key(name: str) -> str:
    """A name, bare where it may be."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else toml_string(name)


def toml_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_MARKS = ",=>"
_PIECE = rf'(?:(?<![^{_MARKS}])\s*"(?:[^"]|"")*"|[^{{}}])*'


def split_quoted(text: str, mark: str = ",") -> list[str]:
    """The pieces of a text between marks that are outside of quotes, still with their quotes."""
    return [piece[1] for piece in re.finditer(rf"(?:^|{mark})({_PIECE.format(mark)})", text)]


def cut_quoted(text: str, mark: str) -> tuple[str, str]:
    """The text before the last mark outside of quotes, and after it; all of it, and nothing, if there is no mark."""
    first, *others = split_quoted(text, mark)
    return (mark.join([first, *others[:-1]]), others[-1]) if others else (first, "")


def name_of(text: str) -> str:
    """A piece as a name, without spaces around it and without its quotes."""
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text


def names_in(text: str) -> list[str]:
    """The names in a list such as a,"b,c"."""
    return [name_of(part) for part in split_quoted(text)]


def as_names(*names: str, end: str = "") -> str:
    """A list that `names_in` reads as these names, quoted for a shell. end: text after each name, for example =16."""
    return shlex.quote(",".join(f"{_marked(name)}{end}" for name in names))


def _marked(name: str) -> str:
    has_marks = any(mark in name for mark in (*_MARKS, '"')) or name != name.strip()
    return '"' + name.replace('"', '""') + '"' if has_marks else name


def number_text(value: float) -> str:
    """Four digits at most."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def brief(value: object) -> str:
    """Fractions with four digits at most, other values as they are."""
    return number_text(value) if isinstance(value, float) else str(value)
