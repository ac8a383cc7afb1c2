"""`streamsvm report`: one run or several as a page of HTML or Markdown, or the card of a model. `streamsvm ui`: runs as
pages that follow them."""

from __future__ import annotations

import os
import socket
from contextlib import closing, suppress
from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from streamsvm.cli.app import importing
from streamsvm.cli.options import AsJson, PlaceFlag, option, place_option
from streamsvm.cli.output import emit
from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.runs.phases import usage_so_far
from streamsvm.storage.paths import Place, place_of

if TYPE_CHECKING:
    from streamsvm.report.read import Run


class PageFormat(StrEnum):
    html = "html"
    md = "md"


CARD_TEXT = "Instead of the page, write the card of this model in Markdown, with the scores of its run."
FORMAT_TEXT = "Format of the page (default: md if --out ends in .md, otherwise html)."


def report(
    out: Annotated[PlaceFlag, place_option("--out", "Page or model card to write.", "FILE")],
    runs: Annotated[
        list[str] | None, typer.Argument(help="Run directories of fit, stream or tune (--run-dir).", metavar="RUN_DIR")
    ] = None,
    model: Annotated[PlaceFlag | None, place_option("--model", CARD_TEXT, "MODEL")] = None,
    form: Annotated[PageFormat | None, option("--format", FORMAT_TEXT, show_default=False)] = None,
    plots: Annotated[Path | None, option("--plots", "Folder in which to save each plot as PNG and SVG.", "DIR")] = None,
    as_json: AsJson = False,
) -> None:
    """Show one run, or several side by side, as one HTML page: convergence, levels, time, memory, scores.

    \b
    streamsvm report run --out report.html
    streamsvm report run --format md --out report.md --plots pictures
    """
    from streamsvm.report.html import contents, lead, page, title
    from streamsvm.report.markdown import markdown_page
    from streamsvm.report.read import read_run
    from streamsvm.storage.atomic import whole_file

    read = [read_run(place_of(folder)) for folder in runs or []]
    if model is not None:
        _write_card(model, out, read, plots)
        emit({"out": out, "model": model} | usage_so_far(), as_json=as_json, title="Model card")
        return
    if not read:
        raise ConfigError("found no run, expected a RUN_DIR, or --model MODEL for the card of a model")
    shown = contents(read)
    if form is None and out.suffix not in ("", ".html", ".htm", ".md"):
        raise ConfigError(f"--out {out}: expected a name ending in .html or .md, or --format")
    if (form or (PageFormat.md if out.suffix == ".md" else PageFormat.html)) is PageFormat.md:
        # pictures as the page links them
        pictures = PurePath(os.path.relpath(plots, out.parent)) if plots and isinstance(out, Path) else plots
        text = markdown_page(title(read), lead(read), shown, pictures)
    else:
        text = page(read, shown)
    written = _write_plots(plots, shown) if plots is not None else []
    with whole_file(out) as file:
        file.write(text.encode("utf-8", errors="replace"))
    result = {"out": out, "runs": len(read), "sections": [section.id for section, _ in shown], "plots": written}
    emit(result | usage_so_far(), as_json=as_json, title="Report")


def _write_card(model: Place, out: Place, runs: list[Run], plots: Path | None) -> None:
    """Writes a model's card. Raises ConfigError for options that apply to pages only."""
    from streamsvm.models.files import load_model
    from streamsvm.report.card import card
    from streamsvm.storage.atomic import whole_file

    if out.suffix != ".md":
        raise ConfigError(f"--out {out}: expected a name ending in .md for the card of a model")
    if len(runs) > 1:
        raise ConfigError(f"found {len(runs)} runs, expected the run that made the model, or none")
    if plots is not None:
        raise ConfigError("--plots applies to a page, found a card; leave it out")
    loaded, scores = load_model(model), None
    if (stream := getattr(loaded, "stream", None)) is not None:
        from streamsvm.online.scores import scores_of  # river, which other models do without

        scores = scores_of(loaded.task, stream)
    text = card(loaded, model.name, runs[0] if runs else None, scores)
    with whole_file(out) as file:
        file.write(text.encode("utf-8", errors="replace"))


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


def ui(
    runs: Annotated[Path, typer.Argument(help="A folder of run directories, at any depth, or one.", metavar="RUNS")],
    host: Annotated[
        str, option("--host", "Address to listen at; other than 127.0.0.1, others can read the runs.", "HOST")
    ] = "127.0.0.1",
    port: Annotated[int, option("--port", "0: a free one.", min=0, max=65535)] = 8321,
) -> None:
    """Show runs on a live page: lists, compares and follows them. Read-only, on this machine.

    \b
    streamsvm ui runs
    streamsvm ui runs --port 0
    """
    if not runs.is_dir():
        raise NotFoundError(f"{runs}: no such folder, expected one of run directories; fit --run-dir makes them")
    with importing():
        try:
            import uvicorn
        except ImportError:
            raise ConfigError("ui needs uvicorn (the extra serve): pip install uvicorn") from None
        import matplotlib.figure  # noqa: F401 - the first page need not wait for it

        from streamsvm.report.live import LOCAL, LivePages
    with closing(_listening(host, port)) as sock:
        at = sock.getsockname()[:2]
        shown = f"[{at[0]}]" if ":" in at[0] else at[0]
        typer.echo(f"http://{shown}:{at[1]}/ (Ctrl+C ends it)", err=True)
        app = LivePages(runs, host if host in LOCAL else None)
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning", server_header=False))
        with suppress(KeyboardInterrupt):  # how one ends it
            server.run(sockets=[sock])


def _listening(host: str, port: int) -> socket.socket:
    """Raises ConfigError."""
    try:
        family = socket.getaddrinfo(host, port)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConfigError(f"--host {host} --port {port}: {why}; take another, --port 0 finds a free one") from None
