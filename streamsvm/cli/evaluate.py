"""`streamsvm evaluate`: how good a model is on a store with labels."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, ModelIn, Scheduler, Workers, XName, YName, engine, open_store
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress
from streamsvm.phases import usage_so_far


def evaluate(
    model: ModelIn,
    store: Annotated[str, typer.Option("--store", help="Rows and labels to test on.", metavar="STORE")],
    x: XName = None,
    y: YName = None,
    workers: Workers = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
) -> None:
    """Score a model: accuracy, precision and recall by class, confusion, ROC AUC."""
    from streamsvm.persist import load_model
    from streamsvm.predict import evaluate as score

    rows = open_store(store, x, y)
    with progress() as events, engine(workers, scheduler, events) as tasks:
        result = score(load_model(model), rows, engine=tasks, events=events)
    result |= usage_so_far()
    emit(result, as_json=as_json, title=f"{model} on {store}", rows=_headline(result))
    if not as_json and "per_class" in result:
        emit_table("By class", result["per_class"])
        if len(result["classes"]) <= MOST_CLASSES_IN_A_TABLE:
            emit_table("Confusion (rows: true, columns: predicted)", _confusion_rows(result))


def _headline(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if not isinstance(value, list)}


def _confusion_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    labels = [str(label) for label in result["classes"]]
    counts = zip(labels, result["confusion"], strict=True)
    return [{"": label, **dict(zip(labels, row, strict=True))} for label, row in counts]
