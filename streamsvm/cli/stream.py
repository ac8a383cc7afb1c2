"""`streamsvm stream`: a learner in a shell pipe."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamsvm.cli.flags import class_weights
from streamsvm.cli.options import require_model_place
from streamsvm.cli.output import progress
from streamsvm.errors import ConfigError, DataError, NotFoundError, StorageError
from streamsvm.options.layers import parse_set
from streamsvm.storage.human import number_or_text
from streamsvm.storage.paths import Place, place_of

if TYPE_CHECKING:
    from streamsvm.online.pipe import Lines, Parse, Stream, Teller

Given = dict[str, tuple[str, Any]]  # parameter of the learner -> (as it was given, its value)
ALONE: dict[str, Any] = {
    "lam": 1e-4,
    "gamma": "scale",
}  # of a single learner; several standardise the columns
SETTABLE = {f"kernel.{name}": name for name in ("gamma", "degree", "coef0")}
SETTABLE |= {"kernel.name": "kernel", "kernel.nu": "kernel_params"}
SETTABLE |= {"epsilon": "epsilon", "nu": "nu"}
SETTABLE |= {
    f"bsgd.{name}": name for name in ("lam", "budget", "merge", "strategy", "loss", "bias", "average")
}


def stream(
    model: Annotated[
        Any,
        typer.Option(
            "--model",
            parser=place_of,
            help="Snapshot file. If it exists, training continues from it.",
            metavar="MODEL",
        ),
    ],
    input_: Annotated[str, typer.Option("--input", help="File of events; - is stdin.", metavar="FILE")] = "-",
    format_: Annotated[
        Literal["json", "csv"], typer.Option("--format", help="Format of the lines.")
    ] = "json",
    label: Annotated[str, typer.Option("--label", help="Field that holds the label.", metavar="FIELD")] = "y",
    every: Annotated[
        int, typer.Option("--snapshot-every", help="Events between snapshots.", min=1, metavar="N")
    ] = 10_000,
    on_error: Annotated[
        Literal["skip", "stop"], typer.Option("--on-error", help="What to do with a bad line.")
    ] = "skip",
    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            help="Task of a new stream: classify (the default), regress, or oneclass, which needs no label.",
            metavar="TASK",
        ),
    ] = None,
    scale: Annotated[
        Literal["none", "standard"] | None,
        typer.Option("--scale", help="Of a new stream: standardise features while training (the default)."),
    ] = None,
    gamma: Annotated[
        Any,
        typer.Option(
            "--gamma",
            parser=number_or_text,
            help="Of a new stream: scale is 1 / sum of the columns' variances, auto is 1 / columns. Default: tuned "
            "while training.",
            metavar="NUMBER|scale|auto",
        ),
    ] = None,
    lam: Annotated[
        float | None, typer.Option("--lam", help="lambda of a new stream. Default: tuned while training.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option("--budget", help="Maximum number of support vectors of a new stream (500).")
    ] = None,
    merge: Annotated[
        int | None, typer.Option("--merge", help="Support vectors merged at a time, of a new stream (3).")
    ] = None,
    max_features: Annotated[
        int | None,
        typer.Option(
            "--max-features",
            help="Maximum number of columns; features beyond it are left out (65,536).",
            min=1,
        ),
    ] = None,
    max_classes: Annotated[
        int | None,
        typer.Option(
            "--max-classes",
            help="Maximum number of labels; events with further labels are bad lines (256).",
            min=2,
        ),
    ] = None,
    class_weight: Annotated[
        Any,
        typer.Option(
            "--class-weight",
            parser=class_weights,
            help="Weight of errors on this label, of a new stream (1).",
            metavar="LABEL=WEIGHT[,...]",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Other options of a new stream: kernel.name, .degree, .coef0, .nu, bsgd.strategy, .loss, .bias, "
            ".average, epsilon, nu.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    ask: Annotated[
        float | None,
        typer.Option(
            "--ask",
            help="Maximum share of the events whose answers ask for a label.",
            metavar="SHARE",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start a new stream and replace an existing model.")
    ] = False,
    run_dir: Annotated[
        Any,
        typer.Option(
            "--run-dir",
            parser=place_of,
            help="Folder for the records that report and top show.",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    """Predict, then learn, event by event; one JSON line out for each line in.

    Each answer has the event's number and that of the last snapshot. When restarted, the stream continues after the
    last snapshot: a file is read from there, and stdin has to begin with the next event.
    """
    flags = {"gamma": gamma, "lam": lam, "budget": budget, "merge": merge, "class_weight": class_weight}
    given = _given(flags | {"max_features": max_features, "max_classes": max_classes}, set_ or [])
    make = partial(_learner, task or "classify", given, raw=scale == "none")

    from streamsvm.storage.place import found_at

    if force or found_at(model) is None:
        make()  # so that bad options are reported before anything is written
    if input_ != "-" and not Path(input_).is_file():
        raise NotFoundError(f"--input {input_}: no such file")
    if force:
        require_model_place(model, force=True)

    from streamsvm.online.pipe import Lines, Stream, events

    with alone(model):
        is_new = force or found_at(model) is None
        state = Stream.open(model, make, scale=scale != "none", label=label, anew=force)
        if not is_new:
            named = {"task": task, "scale": scale}
            flags = {name: (f"--{name} {value}", value) for name, value in named.items() if value is not None}
            _require_same(state, given | flags)
        if ask is not None:
            _let_ask(state, ask)
        if state.events:
            typer.echo(f"continuing after event {state.events}, the last in {model}", err=True)
        with _source(input_) as descriptor, _told(state, run_dir, input_) as tell:
            lines = Lines(descriptor, sys.stdout.flush)
            todo = islice(events(lines, format_), state.events if input_ != "-" else 0, None)
            try:
                with _stops(lines) as stopped, _warnings_to(tell):
                    status = _run(state, lines, todo, stopped, tell, every=every, on_error=on_error)
                sys.stdout.flush()
            finally:  # save the model even if nobody reads the answers any more, or their disk is full
                state.save()
    if state.events and not state.learner.n_seen:
        typer.echo(
            f"warning: no event had a label {label!r}; nothing was learned, and no model was written",
            err=True,
        )
    typer.echo(json.dumps(state.summary()), err=True)
    if status:
        raise typer.Exit(status)


def _given(flags: dict[str, Any], sets: list[str]) -> Given:
    """The parameters of the learner that were given: how, and their values. Raises ConfigError."""
    given: Given = {
        name: (f"--{name.replace('_', '-')} {value}", value)
        for name, value in flags.items()
        if value is not None
    }
    for text in sets:
        origin, values = parse_set(text)
        for name, value in _flat(values):
            if name not in SETTABLE:
                raise ConfigError(
                    f"{origin}: a stream has no such option, expected one of {', '.join(SETTABLE)}"
                )
            parameter = SETTABLE[name]
            given[parameter] = (
                origin,
                {name.rpartition(".")[2]: value} if parameter == "kernel_params" else value,
            )
    return given


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _learner(task: str, given: Given, *, raw: bool) -> Any:
    """A new learner. raw: it does not scale columns. Raises ConfigError for a task that has no online learner, or
    options that the task does not have."""
    from streamsvm.online import LEARNERS

    if task not in LEARNERS:
        raise ConfigError(f"--task {task}: expected one of {', '.join(LEARNERS)}")
    for name, (said, _) in given.items():
        if name not in signature(LEARNERS[task]).parameters:
            raise ConfigError(f"{said}: a stream of task {task} has no such option; leave it out")
    values = {name: value for name, (_, value) in given.items()}
    learner = LEARNERS[task](**values)
    return LEARNERS[task](**ALONE | values) if raw and learner.tunes_itself else learner


def _require_same(state: Stream, given: Given) -> None:
    """A stream that continues keeps its options; only bounds may change. Raises ConfigError."""
    learner = state.learner
    for name, (said, value) in given.items():
        if name not in ("task", "scale") and name not in signature(type(learner)).parameters:
            raise ConfigError(
                f"{said}: the stream of {state.path} has task {learner.task}, which has no such option"
            )
        if name in ("max_features", "max_classes"):
            learner.allow(**{name: value})
            continue
        is_raw = state.scaler is None and not learner.tunes_itself
        has = ("none" if is_raw else "standard") if name == "scale" else getattr(learner, name)
        if value != has:
            raise ConfigError(
                f"{said}: the stream of {state.path} has {name} {has}, which cannot change; leave the option out, "
                "use another --model, or start again with --force"
            )


def _let_ask(state: Stream, share: float) -> None:
    """Raises ConfigError for an invalid share, and for a task without classes."""
    from streamsvm.online.judges import OfClasses

    if not 0 < share <= 1:
        raise ConfigError(f"--ask {share}: expected a share above 0, at most 1")
    if not isinstance(state.judge, OfClasses):
        raise ConfigError(
            f"--ask {share}: a stream of task {state.judge.task} has no classes to be unsure of"
        )
    state.judge.asks = share


@contextmanager
def alone(model: Place) -> Iterator[None]:
    """Locks the model against a second stream. Raises StorageError."""
    from streamsvm.storage.atomic import storage_errors
    from streamsvm.storage.locks import InUse, locked

    with ExitStack() as held:
        with storage_errors(str(model)):
            model.parent.mkdir(parents=True, exist_ok=True)
            try:
                held.enter_context(locked(model.with_name(f"{model.name}.lock"), _warn))
            except InUse as owner:
                raise StorageError(
                    f"{model} is in use by {owner}; wait until it ends, or use another --model"
                ) from None
        yield


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)


@contextmanager
def _warnings_to(tell: Teller) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: tell.warn(str(message))
        yield


def _run(
    state: Stream,
    lines: Lines,
    todo: Iterator[tuple[int, str, Parse]],
    stopped: list[int],
    tell: Teller,
    *,
    every: int,
    on_error: str,
) -> int:
    """Answers the events. Returns the exit status."""
    with suppress(InterruptedError):  # a signal came while waiting
        for number, line, parse in todo:
            answer = state.answer(line, parse)
            sys.stdout.write(json.dumps(answer) + "\n")
            if "error" in answer:
                _tell(number, answer["error"], on_error)
            tell(lines.share)
            if state.events - state.saved >= every:
                state.save()
            if stopped:
                break
    return 128 + stopped[0] if stopped else 0


@contextmanager
def _told(state: Stream, run_dir: Place | None, source: str) -> Iterator[Teller]:
    """Reports on the stream: a bar if stderr is a terminal and answers go elsewhere, and the run directory."""
    from streamsvm.online.pipe import Teller
    from streamsvm.parallel.compiling import compiling_told
    from streamsvm.runs.directory import end_with, recorded

    with progress(prints_rows=True) as events, compiling_told(events):
        if run_dir is None:
            yield Teller(state, events)
            return
        facts = {"store": source, "config": state.learner.config.model_dump(mode="json")}
        with recorded(run_dir, events, bool(state.events), **facts) as events:
            teller = Teller(state, events)
            yield teller
            teller.end()
            end_with(run_dir, events, {"solver": "bsgd", **state.summary()})


def _tell(number: int, error: str, on_error: str) -> None:
    if on_error == "stop":
        raise DataError(f"line {number}: {error}")
    typer.echo(f"line {number}: {error}; skipped", err=True)


@contextmanager
def _source(name: str) -> Iterator[int]:
    if name == "-":
        yield 0
        return
    with open(name, "rb", buffering=0) as file:
        yield file.fileno()


@contextmanager
def _stops(lines: Lines) -> Iterator[list[int]]:
    """The signals received so far. SIGTERM and SIGINT end the stream after the current event, with a snapshot."""
    came: list[int] = []

    def stop(number: int, frame: Any) -> None:
        came.append(number)
        if lines.waiting:
            raise InterruptedError

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
