"""Nested values as TOML, which Python reads and does not write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping


def document(values: Mapping[str, object]) -> str:
    """A document of texts, numbers, truths, lists of these, and tables; None is left out."""
    return "\n".join(_lines(values, ())) + "\n"


def _lines(values: Mapping[str, object], path: tuple[str, ...]) -> Iterator[str]:
    given = {name: value for name, value in values.items() if value is not None}
    tables = {name: value for name, value in given.items() if isinstance(value, Mapping)}
    if path and (len(tables) < len(given) or not given):
        yield f"\n[{'.'.join(map(key, path))}]"
    yield from (f"{key(name)} = {_value(value)}" for name, value in given.items() if name not in tables)
    for name, table in tables.items():
        yield from _lines(table, (*path, name))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return string(str(value))


def key(name: str) -> str:
    """A name, bare where it may be."""
    is_bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if is_bare else string(name)


def string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
