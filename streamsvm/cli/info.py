"""`streamsvm info`: what is in a store."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, XName, YName, open_store
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress


def info(
    store: Annotated[str, typer.Argument(help="Path or URL of a store.", metavar="STORE")],
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Read all rows, and count those that are like earlier ones.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="As --duplicates, and count rows of this one that are in it, too.",
            metavar="STORE",
        ),
    ] = None,
    x: XName = None,
    y: YName = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, type, chunks, classes and their counts."""
    from streamsvm.data.info import describe
    from streamsvm.data.names import listed

    opened = open_store(store, x, y)
    found = describe(opened)
    if duplicates or against is not None:
        from streamsvm.data.duplicates import duplicates as count

        with progress() as events:
            found |= count(opened, None if against is None else open_store(against, x, y), events)
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
    if "duplicates" in found:
        _print_duplicates(found["store"], found["duplicates"], found.get("against"))
    if "statistics" in found:
        emit_table("Features", [{k: v for k, v in found["statistics"].items() if not isinstance(v, list)}])


def _print_duplicates(store: str, own: dict[str, int], against: dict[str, Any] | None) -> None:
    told = [{"duplicates": f"rows of {store} like earlier ones", **own}]
    if against:
        told.append(
            {"duplicates": f"rows of {against['store']} that are in {store}", **against["duplicates"]}
        )
    emit_table("Duplicates", told)
