"""`streamsvm info`: what is in a store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, XName, YName, open_store
from streamsvm.cli.output import emit, emit_table


def info(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.", metavar="STORE")],
    x: XName = None,
    y: YName = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, type, chunks, classes and their counts."""
    opened = open_store(store, x, y)
    from streamsvm.data.check import describe

    found: dict[str, Any] = describe(opened)
    emit(found, as_json=as_json, title=store)
    classes = found.get("classes")
    if classes and not as_json:
        emit_table("Classes", [{"label": label, "rows": count} for label, count in classes.items()])
