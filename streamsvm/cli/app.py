"""The `streamsvm` command: its subcommands, and every error as one line and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated

import typer

from streamsvm import __version__
from streamsvm.cli.calibrate import calibrate
from streamsvm.cli.check import check
from streamsvm.cli.demo import demo
from streamsvm.cli.evaluate import evaluate
from streamsvm.cli.export import export
from streamsvm.cli.fit import fit
from streamsvm.cli.import_ import import_
from streamsvm.cli.info import info
from streamsvm.cli.ingest import ingest
from streamsvm.cli.predict import predict
from streamsvm.cli.report import report
from streamsvm.cli.stream import stream
from streamsvm.cli.top import top
from streamsvm.cli.tune import tune
from streamsvm.errors import StreamSVMError

OK, FAILED, INTERRUPTED = 0, 2, 130

app = typer.Typer(
    name="streamsvm",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (
    ingest,
    info,
    check,
    fit,
    tune,
    calibrate,
    predict,
    evaluate,
    report,
    top,
    stream,
    export,
    demo,
):
    app.command()(command)
app.command(name="import")(import_)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamsvm {__version__}")
        raise typer.Exit


@app.callback()
def _streamsvm(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Support vector machines for data that does not fit in memory."""


def main() -> None:
    """The entry point: exits 0, 2 after an error of one line, 130 when interrupted."""
    status = exit_status(lambda: app(prog_name="streamsvm", standalone_mode=False))
    if (
        status == INTERRUPTED
    ):  # all is cleaned up; a plain exit would wait for the tasks at work in other threads
        sys.stdout.flush()
        os._exit(status)
    sys.exit(status)


def exit_status(run: Callable[[], object]) -> int:
    """Runs a command; says what went wrong on stderr, in one line."""
    try:
        status = run()
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except StreamSVMError as error:
        return _fail(str(error))
    except typer.TyperException as error:
        return _fail(_usage(error))
    except MemoryError as error:
        return _fail(f"out of memory: {error}; give a --memory-limit below what is free")
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if status == INTERRUPTED:
        _say("interrupted; nothing half-written was left")
    return status if isinstance(status, int) else OK


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context else ""
    return error.format_message().rstrip(".") + hint


def _fail(message: str) -> int:
    _say(f"error: {' '.join(message.split())}")
    return FAILED


def _say(line: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)
