"""`streamsvm info`: what is in a store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import LEARNT, RowsIn, StoreToLookAt, reads, rows_against, rows_to_look_at
from streamsvm.cli.options import AsJson, XName, YName, option
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress


@reads(*LEARNT)
def info(
    rows: RowsIn = None,
    store: StoreToLookAt = None,
    duplicates: Annotated[bool, option("--duplicates", "Read all rows and count those equal to earlier ones.")] = False,
    against: Annotated[
        str | None,
        option(
            "--against",
            "Like --duplicates, and also count the rows of this other store that are in the first one.",
            "STORE|FILE",
        ),
    ] = None,
    read: Mapping[str, Any] = {},
    x: XName = None,
    y: YName = None,
    as_json: AsJson = False,
) -> None:
    """Show shape, type, chunks, classes and their counts.

    \b
    streamsvm info train.zarr
    streamsvm info sales.csv --label returned --against later.csv
    """
    with importing():
        from streamsvm.data.layout import listed
        from streamsvm.tables.info import describe

    with (
        progress() as events,
        rows_to_look_at(rows, store, read, events, x, y) as described,
        rows_against(against, described.store, read, events, x, y) as other,
    ):
        facts = describe(described.store) | {"store": described.name}
        if duplicates or other is not None:
            from streamsvm.tables.info import duplicates as count

            facts |= count(described.store, other and other.store, events)
            if other is not None:
                facts["against"] |= {"store": other.name}
    names = facts["feature_names"]
    shown = facts if names is None else facts | {"feature_names": listed(names, most=5, of=facts["features"])}
    emit(facts, as_json=as_json, title=described.name, rows=shown)
    if not as_json:
        _print_more(facts)


def _print_more(facts: dict[str, Any]) -> None:
    labels = facts["labels"]
    if labels and len(labels.get("classes", [])) > MOST_CLASSES_IN_A_TABLE:
        emit_table("Labels", [{"dtype": labels["dtype"], "classes": len(labels["classes"])}])
    elif labels and "classes" in labels:
        pairs = zip(labels["classes"], labels["counts"], strict=True)
        emit_table("Labels", [{"label": str(label), "rows": count} for label, count in pairs])
    elif labels:
        emit_table("Labels", [labels])
    if "duplicates" in facts:
        _print_duplicates(facts["store"], facts["duplicates"], facts.get("against"))
    if "statistics" in facts:
        emit_table("Features", [{k: v for k, v in facts["statistics"].items() if not isinstance(v, list)}])


def _print_duplicates(store: str, counts: dict[str, int], against: dict[str, Any] | None) -> None:
    rows = [{"duplicates": f"rows of {store} equal to earlier ones", **counts}]
    if against:
        rows.append({"duplicates": f"rows of {against['store']} that are in {store}", **against["duplicates"]})
    emit_table("Duplicates", rows)
