"""`streamsvm info`: what is in a store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, XName, YName, open_store
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table


def info(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.", metavar="STORE")],
    x: XName = None,
    y: YName = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, type, chunks, classes and their counts."""
    from streamsvm.data.info import describe
    from streamsvm.data.names import listed

    found = describe(open_store(store, x, y))
    names = found["feature_names"]
    rows = found if names is None else found | {"feature_names": listed(names, most=5, of=found["features"])}
    emit(found, as_json=as_json, title=store, rows=rows)
    if not as_json:
        _print_more(found)


def _print_more(found: dict[str, Any]) -> None:
    labels = found["labels"]
    if labels and len(labels.get("classes", [])) > MOST_CLASSES_IN_A_TABLE:
        emit_table("Labels", [{"dtype": labels["dtype"], "classes": len(labels["classes"])}])
    elif labels and "classes" in labels:
        pairs = zip(labels["classes"], labels["counts"], strict=True)
        emit_table("Labels", [{"label": str(label), "rows": count} for label, count in pairs])
    elif labels:
        emit_table("Labels", [labels])
    if "statistics" in found:
        emit_table("Features", [{k: v for k, v in found["statistics"].items() if not isinstance(v, list)}])
