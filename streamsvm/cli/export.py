"""`streamsvm export`: a model for other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from streamsvm.cli.options import AsJson, ModelIn, option
from streamsvm.cli.output import emit
from streamsvm.errors import ConfigError


def export(
    model: ModelIn,
    format: Annotated[
        Literal["libsvm", "onnx"],
        option("--format", "LIBSVM's text format, or an ONNX graph."),
    ],
    out: Annotated[Path, option("--out", "File to write.", "FILE", dir_okay=False)],
    as_json: AsJson = False,
) -> None:
    """Write a model for other systems. What the format cannot store is reported and saved next to the file."""
    from streamsvm.models.files import load_model

    loaded = load_model(model)
    facts = _writer(format)(loaded, out)
    if loaded.header.calibration is not None and format == "libsvm":
        facts["notes"].append("probabilities are left out; labels follow the decision values")
    for note in facts["notes"]:
        typer.echo(note, err=True)
    result = {"format": format, "out": str(out), "bytes": out.stat().st_size, **facts}
    emit(
        result,
        as_json=as_json,
        title=f"Exported {model}",
        rows={k: v for k, v in result.items() if k != "notes"},
    )


def _writer(format: str) -> Any:
    if format == "libsvm":
        from streamsvm.exchange.libsvm import write_libsvm

        return write_libsvm
    try:
        import onnx  # noqa: F401
    except ImportError:
        raise ConfigError("writing ONNX files needs the package onnx: pip install onnx") from None
    from streamsvm.exchange.onnx import write_onnx

    return write_onnx
