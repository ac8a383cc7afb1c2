"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from streamsvm.cli.app import CLUSTER, FILES, importing
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events
from streamsvm.parallel.devices import CPU, EXPECTED, computing_on, open_device
from streamsvm.storage.paths import Place, place_of
from streamsvm.storage.text import parse_time

if TYPE_CHECKING:
    from streamsvm.config import FitConfig
    from streamsvm.data.store import Store
    from streamsvm.parallel.engine import Engine


def option(name: str, help: str, metavar: str | None = None, group: str | None = None, **more: Any) -> Any:
    """An option by its name on the command line. metavar: the placeholder of its value. group: of `cli.app`."""
    return typer.Option(name, help=help, metavar=metavar, rich_help_panel=group, **more)


def place_option(name: str, help: str, metavar: str, group: str | None = None) -> Any:
    """An option whose value is a path or URL, as a `Place`."""
    return option(name, help, metavar, group, parser=place_of)


def _parsed(text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(f"found {text!r}, {error}") from None


def _time(text: str) -> float:
    return _parsed(text, parse_time)


def _size(text: str) -> int:
    from streamsvm.options.base import parse_size

    return _parsed(text, parse_size)


if TYPE_CHECKING:
    PlaceFlag: TypeAlias = Place
else:
    PlaceFlag = Any  # typer knows no unions; the parser makes a place
AsJson = Annotated[bool, option("--json", "Print one JSON object on stdout.")]
ModelIn = Annotated[PlaceFlag, place_option("--model", "A model written by fit.", "MODEL")]
BUDGET_TEXT = "Rows a second to predict, with fewer support vectors if it takes that."
POINTS = 0.2
Tolerance = Annotated[
    float,
    option(
        "--tolerance",
        "Points of accuracy that --predict-budget may cost; of rows with another label if labels are unknown.",
        "POINTS",
    ),
]
ForceModel = Annotated[bool, option("--force", "Replace an existing model.")]
XName = Annotated[
    str | None, option("--x", "Array or CSR group with the rows, in a store of another program.", "NAME", FILES)
]
YName = Annotated[str | None, option("--y", "Array with the labels, in a store of another program.", "NAME", FILES)]
PerformanceReport = Annotated[
    Path | None,
    option("--performance-report", "Write Dask's performance report of the workers here (HTML).", "FILE", CLUSTER),
]
CLUSTER_FLAGS = {
    "workers": Annotated[
        int | None,
        option("--workers", "Number of worker processes on this machine. Default: threads only.", "N", CLUSTER, min=1),
    ],
    "scheduler": Annotated[
        str | None,
        option(
            "--scheduler",
            "Address of a dask.distributed scheduler, or file:PATH of its file.",
            "tcp://HOST:PORT",
            CLUSTER,
        ),
    ],
    "wait_s": Annotated[
        Any,
        option(
            "--wait-for-scheduler",
            "How long to wait for a lost scheduler to return. Default: end at once.",
            "60s|10m|2h",
            CLUSTER,
            parser=_time,
        ),
    ],
    "performance_report": PerformanceReport,
}
DEVICE_FLAGS = {
    "device": Annotated[
        str | None,
        option("--device", f"Computes kernel sums of dense rows: {EXPECTED}. Default: cpu.", "NAME", CLUSTER),
    ],
    "device_memory": Annotated[
        Any,
        option(
            "--device-memory",
            "Memory of the device to use. Default: half of what is free.",
            "SIZE",
            CLUSTER,
            parser=_size,
        ),
    ],
}

Command = Callable[..., None]


def _parameters(flags: Mapping[str, Any]) -> list[Parameter]:
    """A command's parameters for flags, of annotations by name; None if they are not given."""
    return [
        Parameter(flag, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for flag, annotation in flags.items()
    ]


def with_flags(name: str, flags: Mapping[str, Any], collect: Callable[[dict[str, Any]], Any]) -> Callable:
    """Replaces a command's parameter of this name by flags, and passes collect(their values by name) as its argument.

    flags: annotations by the name of the flag's parameter; all are None if they are not given.
    """
    parameters = _parameters(flags)

    def decorate(function: Command) -> Command:
        inner = signature(function, eval_str=True)

        @wraps(function)
        def command(**arguments: Any) -> None:
            collected = collect({flag: arguments.pop(flag) for flag in flags})
            function(**arguments, **{name: collected})

        outer: list[Parameter] = []
        for parameter in inner.parameters.values():
            as_keyword = [parameter.replace(kind=Parameter.KEYWORD_ONLY)]
            outer += parameters if parameter.name == name else as_keyword
        command.__signature__ = inner.replace(parameters=outer)  # type: ignore[attr-defined]
        return command

    return decorate


@dataclass(frozen=True)
class Cluster:
    """Who computes, as the flags of `on_cluster` say."""

    workers: int | None = None
    scheduler: str | None = None
    wait_s: float | None = None
    performance_report: Path | None = None

    @property
    def is_this_process(self) -> bool:
        return self.workers is None and self.scheduler is None

    def engine(self, events: Events) -> closing[Engine]:
        """Threads, processes or a cluster, for as long as the command needs them."""
        from streamsvm.parallel.open import open_engine

        if self.wait_s is not None and self.scheduler is None:
            raise ConfigError("--wait-for-scheduler needs a cluster with a scheduler; give --scheduler too")
        return closing(open_engine(events=events, **vars(self)))


THREADS = Cluster()


def on_device(function: Command) -> Command:
    """Has a command compute on the device that flags name."""

    @wraps(function)
    def command(*, device: str | None, device_memory: int | None, **arguments: Any) -> None:
        with computing_on(open_device(device or CPU, device_memory)):
            function(**arguments)

    inner = signature(function, eval_str=True)
    outer = [*inner.parameters.values(), *_parameters(DEVICE_FLAGS)]
    command.__signature__ = inner.replace(parameters=outer)  # type: ignore[attr-defined]
    return command


def on_cluster(function: Command) -> Command:
    """As `on_device`, and passes who computes besides, `Cluster`, as flags say."""
    return on_device(with_flags("cluster", CLUSTER_FLAGS, lambda flags: Cluster(**flags))(function))


def open_store(url: str, x: str | None = None, y: str | None = None) -> Store:
    """The store at `url`. x, y: names of its arrays, if they differ."""
    with importing():
        from streamsvm.data.store import Store
        from streamsvm.models.files import is_model

    if is_model(place_of(url)):
        raise DataError(f"{url}: found a model, expected a store of rows; give a model with --model")
    names: dict[str, Any] = {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    return Store.open(url, **names)


def default_model(store: str) -> Place:
    """The default path of a model: next to its store, `data.zarr` -> `data.model.zarr`."""
    path = place_of(store)
    if path.name in ("", ".."):  # a store may be the current folder
        path = path.resolve()
    return path.with_suffix(".model.zarr")


def require_model_place(
    model: Place, *, force: bool, option: str = "--model", of: tuple[Store, list[FitConfig]] | None = None
) -> None:
    """Raises StorageError, before any work, if a model would be lost or something else is in the way.

    of: store and configurations of a resumed run, whose own model may exist already.
    """
    from streamsvm.models.files import is_model
    from streamsvm.storage.paths import require_place

    if of is not None and not force and is_model(model):
        from streamsvm.fits.earlier import is_made_by

        force = is_made_by(model, *of)
    require_place(option, model, "a model", force=force)
