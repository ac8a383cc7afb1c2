"""`streamsvm import`: reads a LIBSVM model as a streamsvm model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson, ForceModel, option, place_option, require_model_place
from streamsvm.cli.output import emit, progress


def import_(
    source: Annotated[Path, typer.Argument(help="A model file of LIBSVM.", metavar="FILE")],
    model: Annotated[Any, place_option("--model", "Model to write.", "MODEL")],
    ranges: Annotated[Path | None, option("--range", "Scaling file of svm-scale -s, to predict unscaled rows.")] = None,
    labels: Annotated[Path | None, option("--labels", "Labels for the numbers 0, 1, ...: a JSON list.")] = None,
    features: Annotated[
        int | None, option("--features", "Number of features, if rows to predict have more.", min=1)
    ] = None,
    names: Annotated[Path | None, option("--names", "Names of the features in order: a JSON list.")] = None,
    force: ForceModel = False,
    as_json: AsJson = False,
) -> None:
    """Read a model that LIBSVM or `streamsvm export` wrote."""
    from streamsvm.exchange.libsvm import import_libsvm
    from streamsvm.models.files import save_model

    require_model_place(model, force=force)
    with progress() as events:
        more = {"ranges": ranges, "labels": labels, "names": names}
        imported = import_libsvm(source, **more, features=features, events=events)
    save_model(imported, model)
    result = {
        "model": str(model),
        "kind": imported.kind,
        "kernel": imported.header.kernel.name,
        "d": imported.d,
        "classes": imported.classes.tolist(),
        "n_support": getattr(imported, "n_support", None),
    }
    emit(result, as_json=as_json, title=f"Imported {source}")
