"""`streamsvm stream`: a learner in a shell pipe."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from streamsvm.cli.output import progress
from streamsvm.config import FitConfig, build_config, parse_set
from streamsvm.errors import DataError, NotFoundError

if TYPE_CHECKING:
    from streamsvm.online import BSGDClassifier
    from streamsvm.stream import Lines, Stream, Teller


def stream(
    model: Annotated[
        Path, typer.Option("--model", help="The snapshot: gone on from where it is there.", metavar="MODEL")
    ],
    input_: Annotated[
        str, typer.Option("--input", help="A file of events; - is stdin.", metavar="FILE")
    ] = "-",
    format_: Annotated[Literal["json", "csv"], typer.Option("--format", help="Lines of events.")] = "json",
    label: Annotated[str, typer.Option("--label", help="Field that holds the label.", metavar="FIELD")] = "y",
    every: Annotated[
        int, typer.Option("--snapshot-every", help="Events from snapshot to snapshot.", min=1, metavar="N")
    ] = 10_000,
    on_error: Annotated[
        Literal["skip", "stop"], typer.Option("--on-error", help="What a bad line does.")
    ] = "skip",
    scale: Annotated[
        Literal["none", "standard"],
        typer.Option("--scale", help="Of a new stream: standardise as it goes."),
    ] = "standard",
    gamma: Annotated[float, typer.Option("--gamma", help="Of a new stream.")] = 0.1,
    lam: Annotated[float, typer.Option("--lam", help="lambda of a new stream.")] = 1e-4,
    budget: Annotated[int, typer.Option("--budget", help="Most support vectors of a new stream.")] = 500,
    merge: Annotated[
        int, typer.Option("--merge", help="Support vectors that become one, of a new stream.")
    ] = 3,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any other option of a new stream, as bsgd.strategy=remove.", metavar="NAME=VALUE"
        ),
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="Folder for what report and top show.")
    ] = None,
) -> None:
    """Predict, then learn, event by event; one JSON line out for each line in.

    Every answer carries the event's number and the event of the last snapshot. A stream taken up again goes on after
    its snapshot: a file is read from there on, on stdin the next event is expected.
    """
    options: dict[str, Any] = {"solver": "bsgd", "kernel": {"gamma": gamma}}
    options["bsgd"] = {"lam": lam, "budget": budget, "merge": merge}
    config = build_config(("stream", options), *map(parse_set, set_ or []))
    if input_ != "-" and not Path(input_).is_file():
        raise NotFoundError(f"--input {input_}: no such file")

    from streamsvm.stream import Lines, Stream

    state = Stream.open(model, lambda: _learner(config), scale=scale == "standard", label=label)
    if state.events:
        typer.echo(f"going on after event {state.events}, the last of {model}", err=True)
    with _source(input_) as descriptor, _told(state, run_dir, input_, config) as tell:
        lines = Lines(descriptor, sys.stdout.flush)
        skip = state.events if input_ != "-" else 0
        try:
            with _stops(lines) as stopped:
                status = _run(state, lines, format_, stopped, every, on_error, skip=skip, tell=tell)
            sys.stdout.flush()
        finally:  # what was learnt is kept where nobody reads the answers any more, or their disk is full
            state.save()
    if state.events and not state.learner.n_labels:
        typer.echo(f"warning: no event had a label {label!r}; nothing was learnt, no model written", err=True)
    typer.echo(json.dumps(state.summary()), err=True)
    if status:
        raise typer.Exit(status)


def _learner(config: Any) -> BSGDClassifier:
    from streamsvm.online import BSGDClassifier, kernel_arguments

    o = config.bsgd
    own = {name: getattr(o, name) for name in ("lam", "budget", "merge", "strategy", "bias")}
    return BSGDClassifier(**own, **kernel_arguments(config.kernel.model_dump()))


def _run(
    state: Stream,
    lines: Lines,
    kind: str,
    stopped: list[int],
    every: int,
    on_error: str,
    *,
    skip: int,
    tell: Teller,
) -> int:
    """Answers all events but the first `skip`; the exit status."""
    from streamsvm.stream import events

    with suppress(InterruptedError):  # a signal came while it waited
        for number, line, parse in islice(events(lines, kind), skip, None):
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
def _told(state: Stream, run_dir: Path | None, source: str, config: FitConfig) -> Iterator[Teller]:
    """Who tells of the stream: a bar where stderr is a terminal that the answers do not go to; the run directory."""
    from streamsvm.compiling import compiling_told
    from streamsvm.events import Events
    from streamsvm.runs import end_with, recorded
    from streamsvm.stream import Teller

    bars: AbstractContextManager[Events] = nullcontext(Events()) if sys.stdout.isatty() else progress()
    with bars as events, compiling_told(events):
        if run_dir is None:
            yield Teller(state, events)
            return
        facts = {"store": source, "config": config.model_dump(mode="json")}
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
    """The signals that came: SIGTERM and SIGINT end the stream after the event at work, with a snapshot."""
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
