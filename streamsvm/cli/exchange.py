"""`streamsvm export` and `streamsvm import`: models for other systems, and from LIBSVM."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from streamsvm.cli.options import AsJson, ForceModel, ModelIn, PlaceFlag, option, place_option, require_model_place
from streamsvm.cli.output import emit, progress
from streamsvm.errors import ConfigError


def export(
    model: ModelIn,
    format: Annotated[Literal["libsvm", "onnx"], option("--format", "LIBSVM's text format, or an ONNX graph.")],
    out: Annotated[Path, option("--out", "File to write.", "FILE", dir_okay=False)],
    inputs: Annotated[
        Literal["auto", "columns", "rows"],
        option(
            "--inputs", "Of an ONNX graph: the table's columns, or rows X as numbers. auto: columns if any is text."
        ),
    ] = "auto",
    as_json: AsJson = False,
) -> None:
    """Write a model for other systems. What the format cannot store is reported and saved next to the file."""
    from streamsvm.models.files import load_model

    loaded = load_model(model)
    if format == "libsvm":
        from streamsvm.exchange.libsvm import write_libsvm

        if inputs != "auto":
            raise ConfigError("--inputs is of ONNX graphs: --format onnx")
        facts = write_libsvm(loaded, out)
    else:
        try:
            import onnx  # noqa: F401
        except ImportError:
            raise ConfigError("writing ONNX files needs the package onnx: pip install onnx") from None
        from streamsvm.exchange.onnx import write_onnx

        facts = write_onnx(loaded, out, inputs=inputs)
    if loaded.header.calibration is not None and format == "libsvm":
        facts["notes"].append("probabilities are left out; labels follow the decision values")
    for note in facts["notes"]:
        typer.echo(note, err=True)
    result = {"format": format, "out": str(out), "bytes": out.stat().st_size, **facts}
    shown = {name: value for name, value in result.items() if name != "notes"}
    emit(result, as_json=as_json, title=f"Exported {model}", rows=shown)


def import_(
    source: Annotated[Path, typer.Argument(help="A model file of LIBSVM.", metavar="FILE")],
    model: Annotated[PlaceFlag, place_option("--model", "Model to write.", "MODEL")],
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
        imported = import_libsvm(source, ranges=ranges, labels=labels, names=names, features=features, events=events)
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
