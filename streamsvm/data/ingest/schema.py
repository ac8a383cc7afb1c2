"""Which columns of a table are features, label and query id."""

from __future__ import annotations

from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.names import listed
from streamsvm.data.schema import Feature, Schema
from streamsvm.errors import DataError


def new_schema(path: str, kinds: dict[str, str], options: IngestOptions) -> Schema:
    """The schema for columns of these names and kinds. Raises DataError."""
    label = find_label(path, [*kinds], options.label or "last")
    left = {name: kind for name, kind in kinds.items() if name not in (label, options.qid)}
    if not left:
        raise DataError(f"{path} has no feature columns besides {label!r}; expected at least one")
    return Schema([Feature(name, kind) for name, kind in left.items()], label)


def find_label(path: str, names: list[str], wanted: str) -> str | None:
    """The name of the label column: by name, `first`, `last`, a position, or None for `none`. Raises DataError."""
    if wanted in names:
        return wanted
    if wanted == "none":
        return None
    if wanted in ("first", "last"):
        return names[0 if wanted == "first" else -1]
    if wanted.lstrip("-").isdigit() and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    raise DataError(f"{path} has no column {wanted!r} for the label; it has {listed(names)}")


def match(path: str, schema: Schema, names: set[str]) -> str | None:
    """Checks that a table has the schema's features; returns its label column, None without. Raises DataError."""
    missing = [f.name for f in schema.features if f.name not in names]
    if missing:
        raise DataError(
            f"{path} lacks column {missing[0]!r}; expected {listed([f.name for f in schema.features])}"
        )
    return schema.label if schema.label in names else None
