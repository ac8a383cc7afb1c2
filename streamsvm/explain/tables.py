"""Explanations as plain records: what the command prints, as JSON, and as files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.data.layout import Names
from streamsvm.data.store import Store
from streamsvm.explain.importances import column_names, importances
from streamsvm.explain.rows import RowExplanation, SupportVector, deviations, explain_rows
from streamsvm.explain.sample import sampled
from streamsvm.models.base import Model
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.text import jsonable


def importances_table(model: Model, store: Store | None, label: str | None = None) -> dict[str, Any]:
    """`importances`, all columns, those that count most first, and what they are from. Raises ModelError, DataError."""
    measured = importances(model, store, label)
    records = [{"feature": name, "importance": value} for name, value in measured.ordered()]
    return {"importances_from": measured.source, "importances": records}


def rows_tables(
    model: Model, store: Store, ids: list[int], *, shapley: bool, support: int, label: str | None = None
) -> list[dict[str, Any]]:
    """Each row with its features, those that count most there first, and its support vectors. See `explain_rows`."""
    deviation, names = deviations(sampled(model, store)), column_names(model)
    explained = explain_rows(model, store, np.array(ids), deviation, shapley=shapley, support=support, label=label)
    return [_row(row, names) for row in explained]


def _row(row: RowExplanation, names: Names) -> dict[str, Any]:
    return {
        "row": row.row,
        "answer": row.answer,
        "decision": row.decision,
        "for_class": row.for_class,
        "shapley_base": row.base,
        "features": [_feature(row, names, f) for f in row.order().tolist() if f < len(names)],
        "support_by_weight": [_vector(vector, names) for vector in row.weightiest],
        "support_by_distance": [_vector(vector, names) for vector in row.nearest],
    }


def _feature(row: RowExplanation, names: Names, f: int) -> dict[str, Any]:
    return {
        "feature": names[f],
        "value": float(row.values[f]),
        "gradient": float(row.gradient[f]),
        "effect": float(row.effect[f]),
        "shapley": None if row.shapley is None else float(row.shapley[f]),
        "shapley_error": None if row.shapley_error is None else float(row.shapley_error[f]),
    }


def _vector(vector: SupportVector, names: Names) -> dict[str, Any]:
    """Its raw values by name, None in columns that a metric leaves out."""
    facts = {"training_row" if name == "id" else name: value for name, value in vars(vector).items()}
    if vector.values is not None:
        shown = (None if np.isnan(value) else value for value in vector.values[: len(names)].tolist())
        facts["values"] = dict(zip(names, shown, strict=True))
    return facts


def write(result: dict[str, Any], out: Path) -> None:
    """A result with importances, and rows where there are any, as .json, or as .csv a line for each row and feature.

    Without rows .csv has a line for each column. Whole or not at all. Raises StorageError.
    """
    with whole_file(out) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        if out.suffix == ".json":
            text.write(json.dumps(jsonable(result)) + "\n")
            return
        records = list(_lines(result))
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def _lines(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "rows" not in result:
        yield from result["importances"]
    for row in result.get("rows", []):
        of_row = {name: row[name] for name in ("row", "answer", "decision")}
        yield from ({**of_row, **feature} for feature in row["features"])
