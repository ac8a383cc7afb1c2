"""`streamsvm predict`: labels of the rows of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from streamsvm.cli.app import importing
from streamsvm.cli.inputs import ROWS, TO_PREDICT, GivenRows, file_options, kept_columns, takes_rows
from streamsvm.cli.options import (
    BUDGET_TEXT,
    POINTS,
    THREADS,
    AsJson,
    Cluster,
    ModelIn,
    PlaceFlag,
    Tolerance,
    on_cluster,
    option,
    place_option,
)
from streamsvm.cli.output import emit, progress
from streamsvm.errors import ConfigError, StorageError
from streamsvm.runs.phases import usage_so_far

if TYPE_CHECKING:
    from streamsvm.events import Events
    from streamsvm.models.base import Model
    from streamsvm.predict import PredictionOptions
    from streamsvm.storage.paths import Place


@on_cluster
@takes_rows(*ROWS, files=TO_PREDICT, store="Rows to predict, unscaled.", has_labels=False)
def predict(
    model: ModelIn,
    given: GivenRows,
    out: Annotated[
        PlaceFlag | None, place_option("--out", "File to write: .csv, .npy or .zarr. Default: CSV on stdout.", "FILE")
    ] = None,
    keep: Annotated[
        str | None, option("--keep", "Columns of FILE to write with the predictions.", "COL[,COL...]")
    ] = None,
    decision: Annotated[bool, option("--decision", "Write decision values too (.npy: instead).")] = False,
    proba: Annotated[bool, option("--proba", "Write probabilities too (.npy: instead).")] = False,
    interval: Annotated[
        float | None,
        option(
            "--interval",
            "Write prediction intervals with this coverage. Default: the fit's, if it made any (.npy: instead).",
            "LEVEL",
        ),
    ] = None,
    predict_budget: Annotated[
        float | None, option("--predict-budget", f"{BUDGET_TEXT} See thin.", "ROWS_PER_S")
    ] = None,
    tolerance: Tolerance = POINTS,
    cluster: Cluster = THREADS,
    force: Annotated[bool, option("--force", "Replace an existing file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write the predicted label of every row, block by block.

    \b
    streamsvm predict --model model.zarr --store test.zarr --out answers.csv
    streamsvm predict --model model.zarr new.csv --keep id > answers.csv
    """
    if out is None and as_json:
        raise ConfigError("--json prints one object on stdout, where predictions would go; name a file with --out")
    if keep is not None and not given.files:
        raise ConfigError("--keep names columns of a FILE, found no FILE")
    with importing():
        from streamsvm.models.files import load_model
        from streamsvm.predict import PredictionOptions, write_predictions
        from streamsvm.storage.paths import kind_at

    given.require_other(out)
    if out is not None and not force and (existing := kind_at(out)) is not None:
        raise StorageError(f"--out {out}: found {existing}; --force replaces it, or take another --out")
    loaded = load_model(model)
    also = PredictionOptions(decision, proba, interval)
    is_plain = cluster.is_this_process and given.store is None and given.x is None
    counts = out is not None and out.suffix == ".npy"  # needs the number of rows before it can be written
    thinning: dict[str, Any] = {}
    with progress(prints_rows=out is None) as events:
        is_table = bool(given.files) and is_plain and not counts and predict_budget is None
        n = _write_as_read(loaded, given, out, also, keep, events) if is_table else None
        if n is None:
            with (
                given.opened(events, loaded.layout, loaded.categories, label="none") as rows,
                kept_columns(rows.files, keep) as columns,
                cluster.engine(events) as tasks,
            ):
                if predict_budget is not None:
                    from streamsvm.judging.thinning import thinned

                    how: Any = {"by_labels": False, "engine": tasks, "events": events}
                    loaded, thinning = thinned(loaded, rows.store, predict_budget, tolerance, **how)
                n = write_predictions(loaded, rows.store, out, also, engine=tasks, events=events, row_columns=columns)
    if out is not None:
        emit({"out": str(out), "n": n, **thinning, **usage_so_far()}, as_json=as_json, title="Predictions")


def _write_as_read(
    model: Model, given: GivenRows, out: Place | None, also: PredictionOptions, keep: str | None, events: Events
) -> int | None:
    """Predicts the rows of tables with columns that the model knows while they are read. Returns how many; None for
    other files."""
    from streamsvm.ingest.inputs import known_tables, rows_as_read
    from streamsvm.predict import answers_as_read, write_answers

    files, layout = given.files, model.layout
    options = known_tables(files, file_options({"label": "none", **given.read}, layout, files), layout)
    if options is None or layout is None:
        return None
    pieces = rows_as_read(files, options, layout, events)
    with kept_columns((files, options), keep) as columns:
        return write_answers(model, answers_as_read(model, pieces, ", ".join(files)), out, also, row_columns=columns)
