"""`streamsvm report`: what happened in a run, or several, as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from streamsvm.cli.options import AsJson
from streamsvm.cli.output import emit
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.paths import place_of


def report(
    runs: Annotated[
        list[str],
        typer.Argument(help="Run directories, by fit --run-dir, stream or tune.", metavar="RUN_DIR"),
    ],
    out: Annotated[
        Any,
        typer.Option("--out", parser=place_of, help="Where the HTML page goes.", metavar="FILE"),
    ],
    plots: Annotated[
        Path | None, typer.Option("--plots", help="A folder for each plot as PNG and SVG.", metavar="DIR")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show runs as one HTML page: convergence, levels, time, memory, scores; several side by side."""
    from streamsvm.report.html import contents, page
    from streamsvm.report.read import read_run
    from streamsvm.storage.atomic import whole_file

    read = [read_run(place_of(folder)) for folder in runs]
    shown = contents(read)
    with whole_file(out) as file:
        file.write(page(read, shown).encode("utf-8", errors="replace"))
    written = _write_plots(plots, shown) if plots is not None else []
    result = {
        "out": out,
        "runs": len(read),
        "sections": [section.id for section, _ in shown],
        "plots": written,
    }
    emit(result | usage_so_far(), as_json=as_json, title="Report")


def _write_plots(folder: Path, shown: list) -> list[str]:
    from streamsvm.report.drawing import write_plot
    from streamsvm.report.parts import Plot
    from streamsvm.storage.atomic import storage_errors

    names = []
    with storage_errors(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        for part in (part for _, parts in shown for part in parts if isinstance(part, Plot)):
            for name in (f"{part.name}.png", f"{part.name}.svg"):
                write_plot(part.figure, folder / name)
                names.append(name)
    return names
