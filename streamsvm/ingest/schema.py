"""Selects the columns of a table that are features, label and query id."""

from __future__ import annotations

from streamsvm.data.names import listed
from streamsvm.errors import DataError
from streamsvm.ingest.options import IngestOptions
from streamsvm.storage.quoted import names_in
from streamsvm.tables.schema import Feature, Schema, require_texts


def new_schema(path: str, kinds: dict[str, str], options: IngestOptions) -> Schema:
    """The schema for columns of these names and kinds. Raises DataError."""
    label = find_label(path, [*kinds], "last" if options.label is None else options.label)
    for name in (*options.text, *options.category):
        if name not in kinds:
            raise DataError(f"{path} has no column {name!r} to read as text; it has {listed([*kinds])}")
    left = {name: kind for name, kind in kinds.items() if name not in (*label, options.qid)}
    left |= dict.fromkeys(left.keys() & {*options.text, *options.category}, "text")
    if not left:
        raise DataError(f"{path} has no feature columns besides {listed(label)}; expected at least one")
    _require_text(path, left, options)
    return Schema([_feature(name, kind, options) for name, kind in left.items()], label)


def _feature(name: str, kind: str, options: IngestOptions) -> Feature:
    is_category = kind == "text" and name not in _named(options)
    least = options.min_frequency if is_category else None
    smooth = options.target_encode.get(name)
    hashed, is_code = options.hash.get(name, 0), name in options.category
    feature = Feature(name, kind, hash=hashed, least=least or 1, smooth=smooth, is_code=is_code)
    feature.is_wanted = is_code or name in options.text
    return feature


def _named(options: IngestOptions) -> dict[str, str]:
    """Text columns with a separate encoding, and what is done to them."""
    return dict.fromkeys(options.target_encode, "target-encode") | dict.fromkeys(options.hash, "hash")


def _require_text(path: str, kinds: dict[str, str], options: IngestOptions) -> None:
    """Raises DataError if a column to hash or to target-encode is not a feature or not text, or if no text column can
    have rare texts."""
    named = _named(options)
    require_texts(path, kinds, named, "; --category {quoted} takes numbers as categories")
    categories = [name for name, kind in kinds.items() if kind == "text" and name not in named]
    if options.min_frequency and not categories:
        raise DataError(f"{path} has no text column for --min-frequency; leave it out")


def find_label(path: str, names: list[str], wanted: str) -> tuple[str, ...]:
    """The names of the label columns: one by name, `first`, `last` or position, several by `a,b`, none by `none`.

    Raises DataError.
    """
    if wanted in names:
        return (wanted,)
    if wanted == "none":
        return ()
    if wanted in ("first", "last"):
        return (names[0 if wanted == "first" else -1],)
    if wanted.lstrip("-").isdigit() and -len(names) <= int(wanted) < len(names):
        return (names[int(wanted)],)
    several = tuple(dict.fromkeys(names_in(wanted)))
    missing = [name for name in several if name not in names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r} for the label; it has {listed(names)}")
    return several


def match(path: str, schema: Schema, names: set[str]) -> tuple[str, ...]:
    """Checks that a table has the schema's features. Returns the columns of its label. Raises DataError."""
    missing = [f.name for f in schema.features if f.name not in names]
    if missing:
        raise DataError(
            f"{path} lacks column {missing[0]!r}; expected {listed([f.name for f in schema.features])}"
        )
    return schema.label if names.issuperset(schema.label) else ()
