"""`streamsvm ui`: a folder of runs as pages that follow them."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import option
from streamsvm.errors import ConfigError, NotFoundError


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
