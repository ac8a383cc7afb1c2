"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.imports import importing
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events
from streamsvm.storage.human import parse_time
from streamsvm.storage.paths import Place, place_of

if TYPE_CHECKING:
    from streamsvm.config import FitConfig
    from streamsvm.data.store import Store
    from streamsvm.parallel.engine import Engine

DATA, KERNEL, SOLVER, CHOICE, RUN, CLUSTER = (
    "Data",
    "Kernel",
    "Solver",
    "Choice",
    "Run",
    "Cluster",
)  # option groups in the help

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ModelIn = Annotated[
    Any, typer.Option("--model", parser=place_of, help="A model written by fit.", metavar="MODEL")
]
ForceModel = Annotated[bool, typer.Option("--force", help="Replace an existing model.")]
XName = Annotated[
    str | None,
    typer.Option(
        "--x",
        help="Array or CSR group with the rows, in a store of another program.",
        metavar="NAME",
        rich_help_panel=DATA,
    ),
]
YName = Annotated[
    str | None,
    typer.Option(
        "--y",
        help="Array with the labels, in a store of another program.",
        metavar="NAME",
        rich_help_panel=DATA,
    ),
]

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Number of worker processes on this machine. Default: threads only.",
        metavar="N",
        rich_help_panel=CLUSTER,
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        help="Address of a dask.distributed scheduler, or file:PATH of its file.",
        metavar="tcp://HOST:PORT",
        rich_help_panel=CLUSTER,
    ),
]


def _time(text: str) -> float:
    try:
        return parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(f"found {text!r}, {error}") from None


WaitForScheduler = Annotated[
    Any,
    typer.Option(
        "--wait-for-scheduler",
        parser=_time,
        help="How long to wait for a lost scheduler to return. Default: end at once.",
        metavar="60s|10m|2h",
        rich_help_panel=CLUSTER,
    ),
]
PerformanceReport = Annotated[
    Path | None,
    typer.Option(
        help="Write Dask's performance report of the workers here (HTML).",
        metavar="FILE",
        rich_help_panel=CLUSTER,
    ),
]


@contextmanager
def engine(
    workers: int | None,
    scheduler: str | None,
    wait_s: float | None,
    performance_report: Path | None,
    events: Events,
) -> Iterator[Engine]:
    """Threads, processes or a cluster, for as long as the command needs them."""
    from streamsvm.parallel.open import open_engine

    if wait_s is not None and scheduler is None:
        raise ConfigError("--wait-for-scheduler needs a cluster with a scheduler; give --scheduler too")
    opened = open_engine(
        workers=workers,
        scheduler=scheduler,
        events=events,
        performance_report=performance_report,
        wait_s=wait_s,
    )
    with closing(opened):
        yield opened


def open_store(url: str, x: str | None = None, y: str | None = None) -> Store:
    """The store at `url`. x, y: names of its arrays, if they differ."""
    with importing():
        from streamsvm.data.store import Store
        from streamsvm.models.files import is_model

    if is_model(place_of(url)):
        raise DataError(f"{url}: found a model, expected a store of rows; give a model with --model")
    names: dict[str, Any] = {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    return Store.open(url, **names)


def model_beside(store: str) -> Place:
    """The default path of a model: next to its store, `data.zarr` -> `data.model.zarr`."""
    path = place_of(store)
    if path.name in ("", ".."):  # a store may be the current folder
        path = path.resolve()
    return path.with_suffix(".model.zarr")


def require_model_place(
    model: Place,
    *,
    force: bool,
    option: str = "--model",
    of: tuple[Store, list[FitConfig]] | None = None,
) -> None:
    """Raises StorageError, before any work, if a model would be lost or something else is in the way.

    of: store and configurations of a resumed run, whose own model may exist already.
    """
    from streamsvm.models.files import is_model
    from streamsvm.storage.place import require_place

    if of is not None and not force and is_model(model):
        from streamsvm.fits.earlier import is_made_by

        force = is_made_by(model, *of)
    require_place(option, model, "a model", force=force)
