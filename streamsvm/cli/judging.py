"""`streamsvm evaluate`, `calibrate` and `thin`: a model, and rows that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from streamsvm.cli.app import importing
from streamsvm.cli.choices import threshold
from streamsvm.cli.inputs import LABELLED, TO_PREDICT, GivenRows, flag, section_layers, takes_rows
from streamsvm.cli.options import (
    BUDGET_TEXT,
    POINTS,
    THREADS,
    AsJson,
    Cluster,
    ForceModel,
    ModelIn,
    PlaceFlag,
    Tolerance,
    on_cluster,
    option,
    place_option,
    require_model_place,
    with_flags,
)
from streamsvm.cli.output import MOST_CLASSES_IN_A_TABLE, emit, emit_table, progress
from streamsvm.config import ProbabilityConfig, validated
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.text import heading, names_in

CURVES = {"roc", "precision_recall", "curves_by_class", "points", "coverages", "decisions", "histogram"}
CURVES |= {"reliability_before", "parts"}  # for reports, too long to print
RUN_TEXT = "The run that made the model. Its report will show these scores."
SLICE_TEXT = "Also score the rows of each value of a column, or of each quartile of numbers and times."


@on_cluster
@takes_rows(*LABELLED, "group", files=TO_PREDICT, store="Rows and labels to test on.")
def evaluate(
    model: ModelIn,
    given: GivenRows,
    interval: Annotated[
        float | None, option("--interval", "Coverage of prediction intervals. Default: the fit's.", "LEVEL")
    ] = None,
    sliced: Annotated[str | None, option("--slice", SLICE_TEXT, "COL[,COL...]")] = None,
    cluster: Cluster = THREADS,
    run_dir: Annotated[PlaceFlag | None, place_option("--run-dir", RUN_TEXT, "DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Score a model: accuracy, precision and recall by class, confusion, ROC AUC, and probabilities if it has any.

    \b
    streamsvm evaluate --model model.zarr --store test.zarr
    streamsvm evaluate --model model.zarr test.csv --slice region,day --group customer
    """
    with importing():
        from streamsvm.explain.slices import evaluate_by_part, evaluate_sliced, has_parts
        from streamsvm.models.files import load_model
        from streamsvm.predict import evaluate as score
        from streamsvm.runs.directory import EVALUATION, require_run, write_result
        from streamsvm.tasks.uncertainty import drawn_units

    if run_dir is not None:
        require_run(run_dir)
    loaded = load_model(model)
    with (
        progress() as events,
        given.opened(events, loaded.layout, loaded.categories) as rows,
        cluster.engine(events) as tasks,
    ):
        judged = loaded if interval is None else loaded.at_level(interval)
        how: Any = {"engine": tasks, "with_curves": run_dir is not None, "events": events}
        if sliced is None:
            by_part = run_dir is not None and has_parts(judged)
            result = (evaluate_by_part if by_part else score)(judged, rows.store, **how)
        else:
            result = evaluate_sliced(judged, rows.store, names_in(sliced), files=rows.files, **how)
    result |= usage_so_far()
    if run_dir is not None:
        write_result(run_dir, EVALUATION, {"model": model, "store": rows.name, **result})
    result = {name: value for name, value in result.items() if name not in CURVES}
    plain = {name: value for name, value in result.items() if not isinstance(value, list)}
    emit(result, as_json=as_json, title=f"{model} on {rows.name}", rows=plain)
    if as_json:
        return
    if "per_class" in result:
        emit_table("By class", result["per_class"])
        if "confusion" in result and len(result["classes"]) <= MOST_CLASSES_IN_A_TABLE:
            labels = [str(label) for label in result["classes"]]
            counts = zip(labels, result["confusion"], strict=True)
            table = [{"": label, **dict(zip(labels, row, strict=True))} for label, row in counts]
            emit_table("Confusion (rows: true, columns: predicted)", table)
    if "intervals" in result:
        rows_of_scores = [row | {"score": heading(row["score"])} for row in result["intervals"]]
        emit_table(f"95 % intervals, by {drawn_units(result)}", rows_of_scores)
    for column, values in result.get("slices", {}).items():
        emit_table(f"By {column}", values)
    if "reliability" in result:
        emit_table("Reliability (predicted and observed frequency)", result["reliability"])


METHOD_TEXT = "Isotonic needs many rows. Default: sigmoid, or none with --threshold or --costs alone."
COSTLY = {name: flag(name, ProbabilityConfig.model_fields[name]) for name in ("threshold", "costs")}


@on_cluster
@takes_rows(*LABELLED, files=TO_PREDICT, store="Rows and labels that the model was not trained on.")
@with_flags("flags", COSTLY, dict)
def calibrate(
    model: ModelIn,
    given: GivenRows,
    method: Annotated[Literal["sigmoid", "isotonic"] | None, option("--method", METHOD_TEXT)] = None,
    flags: Mapping[str, Any] = {},
    out: Annotated[
        PlaceFlag | None,
        place_option("--out", "Path of the model with probabilities. Default: replace MODEL.", "MODEL"),
    ] = None,
    force: ForceModel = False,
    cluster: Cluster = THREADS,
    as_json: AsJson = False,
) -> None:
    """Add probabilities, a threshold or costs to a model. They replace any that it has.

    \b
    streamsvm calibrate --model model.zarr --store more.zarr
    streamsvm calibrate --model model.zarr more.csv --method isotonic
    """
    layers = section_layers(ProbabilityConfig, {"method": method, **flags})
    options = validated(ProbabilityConfig, *(layers or [("--method", {"method": "sigmoid"})]))
    with importing():
        from streamsvm.judging.probabilities import held_out
        from streamsvm.models.files import load_model, save_model

    loaded, target = load_model(model), out or model
    if target != model:  # a model that is replaced loses nothing but probabilities
        require_model_place(target, force=force, option="--out")
    with (
        progress() as events,
        given.opened(events, loaded.layout, loaded.categories) as rows,
        cluster.engine(events) as tasks,
    ):
        calibrated, n = held_out(loaded, rows.store, options, engine=tasks, events=events)
        save_model(calibrated, target)
    chosen = (calibrated.header.certificate or {}).get("threshold") if options.threshold else None
    facts = {"model": str(target), "method": options.method, "n": n} | ({"threshold": chosen} if chosen else {})
    facts |= usage_so_far()
    emit(facts, as_json=as_json, title="Calibrated", rows=facts | (threshold(chosen) if chosen else {}))


@on_cluster
@takes_rows(*LABELLED, files=TO_PREDICT, store="Rows and labels that the model was not trained on.")
def thin(
    model: ModelIn,
    given: GivenRows,
    out: Annotated[PlaceFlag, place_option("--out", "Path of the new model.", "MODEL")],
    predict_budget: Annotated[float, option("--predict-budget", BUDGET_TEXT, "ROWS_PER_S")],
    tolerance: Tolerance = POINTS,
    force: ForceModel = False,
    cluster: Cluster = THREADS,
    as_json: AsJson = False,
) -> None:
    """Leave out support vectors of a model, so that it predicts more rows a second.

    \b
    streamsvm thin --model model.zarr --store more.zarr --out fast.zarr --predict-budget 1e6
    streamsvm thin --model model.zarr more.csv --out fast.zarr --predict-budget 1e6 --tolerance 0.5
    """
    with importing():
        from streamsvm.judging.thinning import thinned
        from streamsvm.models.files import load_model, save_model

    require_model_place(out, force=force, option="--out")
    loaded = load_model(model)
    with (
        progress() as events,
        given.opened(events, loaded.layout, loaded.categories) as rows,
        cluster.engine(events) as tasks,
    ):
        smaller, report = thinned(loaded, rows.store, predict_budget, tolerance, engine=tasks, events=events)
        save_model(smaller, out)
    emit({"model": str(out), **report, **usage_so_far()}, as_json=as_json, title="Thinned")
