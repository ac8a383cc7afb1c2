"""`streamsvm calibrate`: probabilities for a model, from rows that it was not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from streamsvm.cli.choices import threshold as shown
from streamsvm.cli.flags import COSTS, OBJECTIVES, section_flag, section_layers
from streamsvm.cli.imports import importing
from streamsvm.cli.inputs import LABELLED, FilesIn, given_rows, reads
from streamsvm.cli.options import (
    THREADS,
    AsJson,
    Cluster,
    ForceModel,
    ModelIn,
    XName,
    YName,
    on_cluster,
    option,
    place_option,
    require_model_place,
)
from streamsvm.cli.output import emit, progress
from streamsvm.config import ProbabilityConfig, validated
from streamsvm.runs.phases import usage_so_far


@on_cluster
@reads(*LABELLED)
def calibrate(
    model: ModelIn,
    files: FilesIn = None,
    store: Annotated[
        str | None, option("--store", "Rows and labels that the model was not trained on.", "STORE")
    ] = None,
    read: Mapping[str, Any] = {},
    method: Annotated[
        Literal["sigmoid", "isotonic"] | None,
        option(
            "--method",
            "Isotonic needs many rows. Default: sigmoid, or none with --threshold or --costs alone.",
        ),
    ] = None,
    threshold: Annotated[Any, section_flag(ProbabilityConfig, "--threshold", metavar=OBJECTIVES, parser=str)] = None,
    costs: Annotated[Any, section_flag(ProbabilityConfig, "--costs", metavar=COSTS, parser=str)] = None,
    out: Annotated[
        Any, place_option("--out", "Path of the model with probabilities. Default: replace MODEL.", "MODEL")
    ] = None,
    force: ForceModel = False,
    x: XName = None,
    y: YName = None,
    cluster: Cluster = THREADS,
    as_json: AsJson = False,
) -> None:
    """Add probabilities, a threshold or costs to a model. They replace any that it has.

    \b
    streamsvm calibrate --model model.zarr --store more.zarr
    streamsvm calibrate --model model.zarr more.csv --method isotonic
    """
    flags = {"method": method, "threshold": threshold, "costs": costs}
    layers = section_layers(ProbabilityConfig, flags)
    options = validated(ProbabilityConfig, *(layers or [("--method", {"method": "sigmoid"})]))
    with importing():
        from streamsvm.judging.probabilities import held_out
        from streamsvm.models.files import load_model, save_model

    loaded, target = load_model(model), out or model
    if target != model:  # a model that is replaced loses nothing but probabilities
        require_model_place(target, force=force, option="--out")
    with (
        progress() as events,
        given_rows(files, store, read, loaded.layout, events, x, y, category=loaded.categories) as rows,
        cluster.engine(events) as tasks,
    ):
        calibrated, n = held_out(loaded, rows.store, options, engine=tasks, events=events)
        save_model(calibrated, target)
    chosen = (calibrated.header.certificate or {}).get("threshold") if options.threshold else None
    facts = {"model": str(target), "method": options.method, "n": n} | ({"threshold": chosen} if chosen else {})
    facts |= usage_so_far()
    emit(facts, as_json=as_json, title="Calibrated", rows=facts | (shown(chosen) if chosen else {}))
