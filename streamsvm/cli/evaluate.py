"""`streamsvm evaluate`: how good a model is on a store with labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import LABELLED, FilesIn, given_rows, reads
from streamsvm.cli.options import THREADS, AsJson, Cluster, ModelIn, XName, YName, on_cluster, option, place_option
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.text import heading, names_in

CURVES = (
    "roc",
    "precision_recall",
    "curves_by_class",
    "points",
    "coverages",
    "decisions",
    "histogram",
    "reliability_before",
    "parts",
)  # for reports, too long to print


@on_cluster
@reads(*LABELLED, "group")
def evaluate(
    model: ModelIn,
    files: FilesIn = None,
    store: Annotated[str | None, option("--store", "Rows and labels to test on.", "STORE")] = None,
    interval: Annotated[
        float | None, option("--interval", "Coverage of prediction intervals. Default: the fit's.", "LEVEL")
    ] = None,
    sliced: Annotated[
        str | None,
        option(
            "--slice",
            "Also score the rows of each value of a column, or of each quartile of numbers and times.",
            "COL[,COL...]",
        ),
    ] = None,
    read: Mapping[str, Any] = {},
    x: XName = None,
    y: YName = None,
    cluster: Cluster = THREADS,
    run_dir: Annotated[
        Any,
        place_option("--run-dir", "The run that made the model. Its report will show these scores.", "DIR"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a model: accuracy, precision and recall by class, confusion, ROC AUC, and probabilities if it has any.

    \b
    streamsvm evaluate --model model.zarr --store test.zarr
    streamsvm evaluate --model model.zarr test.csv --slice region,day --group customer
    """
    with importing():
        from streamsvm.explain.parts import evaluate_by_part as score_parts
        from streamsvm.explain.parts import has_parts
        from streamsvm.models.files import load_model
        from streamsvm.predict import evaluate as score
        from streamsvm.runs.directory import EVALUATION, require_run, write_result
        from streamsvm.tasks.uncertainty import drawn_units

    if run_dir is not None:
        require_run(run_dir)
    loaded = load_model(model)
    with (
        progress() as events,
        given_rows(files, store, read, loaded.layout, events, x, y, category=loaded.categories) as rows,
        cluster.engine(events) as tasks,
    ):
        judged = loaded if interval is None else loaded.at_level(interval)
        how: Any = {"engine": tasks, "with_curves": run_dir is not None, "events": events}
        if sliced is None:
            result = (score_parts if run_dir is not None and has_parts(judged) else score)(judged, rows.store, **how)
        else:
            from streamsvm.explain.slices import evaluate_sliced

            result = evaluate_sliced(judged, rows.store, names_in(sliced), files=rows.files, **how)
    result |= usage_so_far()
    if run_dir is not None:
        write_result(run_dir, EVALUATION, {"model": model, "store": rows.name, **result})
    result = {name: value for name, value in result.items() if name not in CURVES}
    emit(result, as_json=as_json, title=f"{model} on {rows.name}", rows=_headline(result))
    if not as_json and "per_class" in result:
        emit_table("By class", result["per_class"])
        if "confusion" in result and len(result["classes"]) <= MOST_CLASSES_IN_A_TABLE:
            emit_table("Confusion (rows: true, columns: predicted)", _confusion_rows(result))
    if not as_json and "intervals" in result:
        rows_of_scores = [row | {"score": heading(row["score"])} for row in result["intervals"]]
        emit_table(f"95 % intervals, by {drawn_units(result)}", rows_of_scores)
    for column, values in result.get("slices", {}).items():
        if not as_json:
            emit_table(f"By {column}", values)
    if not as_json and "reliability" in result:
        emit_table("Reliability (predicted and observed frequency)", result["reliability"])


def _headline(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if not isinstance(value, list)}


def _confusion_rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    labels = [str(label) for label in result["classes"]]
    counts = zip(labels, result["confusion"], strict=True)
    return [{"": label, **dict(zip(labels, row, strict=True))} for label, row in counts]
