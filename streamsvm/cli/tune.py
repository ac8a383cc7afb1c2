"""`streamsvm tune`: the options that score best in cross-validation."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from streamsvm.cli.app import CLUSTER, RUN, importing
from streamsvm.cli.fit import hint_to_resume
from streamsvm.cli.inputs import (
    LEARNT,
    TO_LEARN,
    GivenRows,
    MemoryLimit,
    SetOption,
    WorkersFlag,
    configured,
    given_layers,
    takes_rows,
)
from streamsvm.cli.options import AsJson, ForceModel, PlaceFlag, open_store, option, place_option, require_model_place
from streamsvm.cli.output import emit, emit_table, progress
from streamsvm.errors import ConfigError
from streamsvm.search.options import completed
from streamsvm.storage.paths import Place

TABLE, PICTURE = (".csv", ".json", ".zarr"), (".png", ".svg")


CONFIG_TEXT = "A TOML file of options, with values to try in a table [tune]. Default: search what fit chooses."


@takes_rows(*LEARNT, files=TO_LEARN, store="Rows and labels to train on.")
@configured({RUN: ("time_budget", "seed"), CLUSTER: ("scheduler", "wait_for_scheduler", "device", "device_memory")})
def tune(
    given: GivenRows,
    config: Annotated[PlaceFlag | None, place_option("--config", CONFIG_TEXT, "FILE")] = None,
    model: Annotated[
        PlaceFlag | None, place_option("--model", "Train the best options on all rows and write this model.", "MODEL")
    ] = None,
    out: Annotated[
        PlaceFlag | None, place_option("--out", "Write the table to this file.", "FILE.csv|.json|.zarr")
    ] = None,
    heat_map: Annotated[Path | None, option("--heat-map", "Draw the scores over two options.", "FILE.png|.svg")] = None,
    flags: Mapping[str, Any] = {},
    set_: SetOption = None,
    memory_limit: MemoryLimit = None,
    run_dir: Annotated[
        PlaceFlag | None, place_option("--run-dir", "Folder for events, scores and the table.", "DIR", RUN)
    ] = None,
    resume: Annotated[bool, option("--resume", "Resume from the scores in --run-dir.", group=RUN)] = False,
    force: ForceModel = False,
    workers: WorkersFlag = None,
    as_json: AsJson = False,
) -> None:
    """Choose options by cross-validation. Without a table of values to try, search the options that fit chooses.

    \b
    streamsvm tune sales.csv --label returned
    streamsvm tune --store train.zarr
    streamsvm tune --store train.zarr --config tune.toml --model best.zarr
    """
    with importing():
        from streamsvm.report.drawing import write_plot
        from streamsvm.report.trials import heat_map as draw_heat_map
        from streamsvm.runs.checkpoints import has_state
        from streamsvm.search.options import search_of
        from streamsvm.search.score_table import has_scores, require_free, require_suffix, saved_result, write_records
        from streamsvm.search.search import tune as search
        from streamsvm.search.search import tune_as_fit

    for name, path, suffixes in (("--out", out, TABLE), ("--heat-map", heat_map, PICTURE)):
        if path is not None:
            require_suffix(name, path, *suffixes)
            require_free(name, path)
    if resume and run_dir is None:
        raise ConfigError("--resume needs the --run-dir of the interrupted search")
    layers = given_layers({**flags, "memory_limit": memory_limit, "workers": workers}, config, set_)
    if any("tune" in values for _, values in layers):
        options, tried = search_of(layers)
        axes = _axes(options.grid) if heat_map is not None else None
        work: Any = partial(search, options=options, points=tried)
    else:
        if heat_map is not None:
            raise ConfigError("--heat-map needs a table [tune] with two options; found none")
        base = completed(layers)
        axes, work, options, tried = None, partial(tune_as_fit, config=base), None, [({}, base)]
    given.require_other_than_store(model=model, run_dir=run_dir)
    if given.files and not resume:
        _require_place(model, force=force)
    rows = open_store(given.to_learn_from(), given.x, given.y)
    kept = run_dir if resume and not force else None
    result = None if kept is None else saved_result(kept, model, rows, tried, options)
    if result is not None:
        typer.echo(f"the search in {run_dir} has ended: nothing is left to resume", err=as_json)
    else:
        of = (rows, [point for _, point in tried]) if resume else None
        _require_place(model, force=force, of=of)
        with hint_to_resume(run_dir, lambda run: has_scores(run) or has_state(run / "search")), progress() as events:
            result = work(rows, model_path=model, run_dir=run_dir, resume=resume, events=events)
    if out is not None:
        write_records(result["results"], out)
    picture = draw_heat_map(result["results"], *axes) if axes is not None else None
    if heat_map is not None and picture is not None:
        write_plot(picture, heat_map)
    _print_result(result | ({"model": str(model)} if model else {}), as_json)


def _require_place(model: Place | None, **of: Any) -> None:
    """As `require_model_place`, if a model is to be written."""
    if model is not None:
        require_model_place(model, **of)


def _axes(tried: dict[str, list[Any]]) -> tuple[str, str]:
    """The two options of the heat map, checked before anything is fitted. Raises ConfigError."""
    from streamsvm.report.trials import axes_of

    axes = axes_of(tried)
    if axes is None:
        several = [name for name, values in tried.items() if len(values) > 1]
        varied = f"{several[0]} alone" if several else "no option"
        raise ConfigError(f"--heat-map: found {varied} with several values, expected two options")
    return axes


def _print_result(result: dict[str, Any], as_json: bool) -> None:
    if not as_json:
        columns = [name for name in result["results"][0] if name != "fold_scores"]
        emit_table("Best first", [{name: row[name] for name in columns} for row in result["results"]])
    best = {**result["best"]["params"], result["scoring"]: result["best"]["score"], "seconds": result["seconds"]}
    emit(result, as_json=as_json, title="Best", rows=best)
