"""`streamsvm stream`: a learner in a shell pipe.

The command opens the snapshot or makes a learner, reads events from a file, stdin or a broker, and writes an answer for
each. Below it: the run of the stream, its sources and signals, and the options of the learner: which ones a new one
takes, and that a learner from a snapshot keeps its own.
"""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from inspect import signature
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from streamsvm.cli.app import FAILED, LATE_LABELS, LEARNER
from streamsvm.cli.inputs import class_weights, flag_of, reads, section_layers
from streamsvm.cli.options import PlaceFlag, option, place_option, require_model_place, with_flags
from streamsvm.cli.output import progress
from streamsvm.config import validated
from streamsvm.errors import ConfigError, DataError, NotFoundError, StorageError
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.options.layers import parse_set
from streamsvm.storage.paths import Place, local_path, nearest
from streamsvm.storage.text import jsonable, number_or_text

if TYPE_CHECKING:
    from streamsvm.online.brokers import Messages
    from streamsvm.online.lines import Lines, Parse
    from streamsvm.online.stream import Stream, StreamReporter

_encode = json.JSONEncoder(allow_nan=False).encode
KAFKA = "kafka://"
BROKERS = (KAFKA, "nats://")
Given = dict[str, tuple[str, Any]]  # by parameter of the learner: the option as it was given, and its value
RAW: dict[str, Any] = {"lam": 1e-4, "gamma": "scale"}  # of one learner, which takes columns as they are
SETTABLE = {f"kernel.{name}": name for name in ("gamma", "degree", "coef0")}
SETTABLE |= {"kernel.name": "kernel", "kernel.nu": "kernel_params"}
SETTABLE |= {"epsilon": "epsilon", "nu": "nu"}
SETTABLE |= {
    f"bsgd.{name}": name for name in ("lam", "budget", "merge", "merge_all", "strategy", "loss", "bias", "average")
}


INPUT_TEXT = (
    "Events: a file or its URL, plain or compressed, - for stdin, kafka://HOST:PORT/TOPIC, or nats://HOST:PORT/STREAM."
)
TASK_TEXT = "Task of a new stream: classify (default), multilabel, regress, or oneclass, which needs no label."
GAMMA_TEXT = (
    "Of a new stream: scale is 1 / sum of the columns' variances, auto is 1 / columns. Default: tuned while training."
)
BUDGET_TEXT = "Maximum number of support vectors of each kernel expansion of a new stream (500)."
FEATURES_TEXT = "Maximum number of columns; features beyond it are left out (65,536)."
CLASSES_TEXT = "Maximum number of labels; events with further labels are bad lines (256)."
WEIGHT_TEXT = "Weight of errors on this label, of a new stream (1)."
SET_TEXT = (
    "Other options of a new stream: kernel.name, .degree, .coef0, .nu, bsgd.merge_all, .strategy, .loss, .bias, "
    ".average, epsilon, nu."
)
WAIT_TEXT = "Events that may wait for labels, which come later by their ids. Default: labels come with events."
LEARNER_FLAGS: dict[str, Any] = {  # by parameter of the learner
    "gamma": Annotated[Any, option("--gamma", GAMMA_TEXT, "NUMBER|scale|auto", LEARNER, parser=number_or_text)],
    "lam": Annotated[
        float | None, option("--lam", "lambda of a new stream. Default: tuned while training.", group=LEARNER)
    ],
    "budget": Annotated[int | None, option("--budget", BUDGET_TEXT, group=LEARNER)],
    "merge": Annotated[
        int | None, option("--merge", "Support vectors merged at a time, of a new stream (3).", group=LEARNER)
    ],
    "max_features": Annotated[int | None, option("--max-features", FEATURES_TEXT, group=LEARNER, min=1)],
    "max_classes": Annotated[int | None, option("--max-classes", CLASSES_TEXT, group=LEARNER, min=2)],
    "class_weight": Annotated[Any, option("--class-weight", WEIGHT_TEXT, "LABEL=WEIGHT[,...]", parser=class_weights)],
}


@reads(*DIALECT, "category")
@with_flags("learner", LEARNER_FLAGS, dict)
def stream(
    model: Annotated[
        PlaceFlag, place_option("--model", "Snapshot file. If it exists, training continues from it.", "MODEL")
    ],
    input_: Annotated[str, option("--input", INPUT_TEXT, "SOURCE")] = "-",
    format_: Annotated[Literal["json", "csv"], option("--format", "Format of the lines.")] = "json",
    read: Mapping[str, Any] = {},
    label: Annotated[str, option("--label", "Field that holds the label.", "FIELD")] = "y",
    every: Annotated[int, option("--snapshot-every", "Events between snapshots.", "N", min=1)] = 10_000,
    on_error: Annotated[Literal["skip", "stop"], option("--on-error", "What to do with a bad line.")] = "skip",
    task: Annotated[str | None, option("--task", TASK_TEXT, "TASK")] = None,
    scale: Annotated[
        Literal["none", "standard"] | None,
        option("--scale", "Of a new stream: standardise features while training (the default).", group=LEARNER),
    ] = None,
    learner: Mapping[str, Any] = {},
    set_: Annotated[list[str] | None, option("--set", SET_TEXT, "NAME=VALUE")] = None,
    ask: Annotated[
        float | None,
        option("--ask", "Maximum share of the events whose answers ask for a label.", "SHARE", group=LATE_LABELS),
    ] = None,
    wait: Annotated[int | None, option("--wait-for-labels", WAIT_TEXT, "N", LATE_LABELS, min=0)] = None,
    id_: Annotated[
        str | None, option("--id", "Field that holds the id of an event (id).", "FIELD", LATE_LABELS)
    ] = None,
    force: Annotated[bool, option("--force", "Start a new stream and replace an existing model.")] = False,
    run_dir: Annotated[
        PlaceFlag | None, place_option("--run-dir", "Folder for the records that report and top show.", "DIR")
    ] = None,
) -> None:
    """Predict, then learn, event by event; one JSON line out for each line in.

    Each answer has the event's number and that of the last snapshot. When restarted, the stream continues after the
    last snapshot: a file is read from there, and stdin has to begin with the next event.
    """
    options_given = options_of(learner, set_ or [])
    line_options = lines_options(read, format_)
    make = partial(new_learner, task or "classify", options_given, raw=scale == "none")

    from streamsvm.storage.paths import kind_at

    if force or kind_at(model) is None:
        make()  # so that bad options are reported before anything is written
    _require_source(input_, format_)
    if force:
        require_model_place(model, force=True)

    from streamsvm.online.lines import Lines, events
    from streamsvm.online.stream import Stream

    with alone(model):
        is_new = force or kind_at(model) is None
        state = Stream.open(
            model, make, scale=scale != "none", label=label, anew=force, categories=line_options.category
        )
        if not is_new:
            named = {"task": task, "scale": scale}
            flags = {name: (f"--{name} {value}", value) for name, value in named.items() if value is not None}
            require_same(state, options_given | flags)
            require_same_categories(state, line_options.category)
        if ask is not None:
            let_ask(state, ask)
        state.wait(wait, id_)
        if state.events:
            typer.echo(f"continuing after event {state.events}, the last in {model}", err=True)
        with _source(input_, state) as lines, _reporting(state, run_dir, input_) as reporter:
            is_file = isinstance(lines, Lines) and input_ != "-"
            todo = islice(events(lines, format_, line_options), state.events if is_file else 0, None)
            try:
                with _stops(lines) as stopped, _warnings_to(reporter):
                    status = _run(state, lines, todo, stopped, reporter, every=every, on_error=on_error)
                sys.stdout.flush()
            finally:  # save the model even if nobody reads the answers any more, or their disk is full
                state.save()
    if state.events and not state.learner.n_seen:
        typer.echo(f"warning: no event had a label {label!r}; nothing was learned, and no model was written", err=True)
    if state.waiting is not None and (gone := state.waiting.gone):
        _warn(gone)
    typer.echo(_as_line(state.summary()), nl=False, err=True)
    if not status and state.events and state.bad == state.events:
        status = FAILED
    if status:
        raise typer.Exit(status)


@contextmanager
def alone(model: Place) -> Iterator[None]:
    """Locks the model against a second stream. Raises StorageError."""
    from streamsvm.storage.atomic import storage_errors
    from streamsvm.storage.locks import InUse, locked

    with ExitStack() as stack:
        with storage_errors(str(model)):
            model.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(locked(model.with_name(f"{model.name}.lock"), _warn))
            except InUse as owner:
                raise StorageError(
                    f"{model} is in use by {owner}; wait until it ends, or use another --model"
                ) from None
        yield


def _warn(message: str) -> None:
    typer.echo(f"warning: {message}", err=True)


@contextmanager
def _warnings_to(reporter: StreamReporter) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: reporter.warn(str(message))
        yield


def _run(
    state: Stream,
    lines: Lines | Messages,
    todo: Iterator[tuple[int, str, Parse]],
    stopped: list[int],
    reporter: StreamReporter,
    *,
    every: int,
    on_error: str,
) -> int:
    """Answers the events. Returns the exit status."""
    with suppress(InterruptedError):  # a signal came while waiting
        for number, line, parse in todo:
            answer = state.answer(line, parse)
            sys.stdout.write(_as_line(answer))
            if "error" in answer and on_error == "stop":
                raise DataError(f"line {number}: {answer['error']}")
            if "error" in answer:
                typer.echo(f"line {number}: {answer['error']}; skipped", err=True)
            reporter(lines.share)
            if (remark := state.remark(line, parse)) is not None:
                reporter.warn(remark)
            if state.events - state.saved >= every:
                state.save()
            if stopped:
                break
    return 128 + stopped[0] if stopped else 0


def _as_line(answer: dict[str, Any]) -> str:
    """One line of JSON, which has no NaN."""
    try:
        return _encode(answer) + "\n"
    except ValueError:
        return json.dumps(jsonable(answer)) + "\n"


@contextmanager
def _reporting(state: Stream, run_dir: Place | None, source: str) -> Iterator[StreamReporter]:
    """Reports on the stream: a bar if stderr is a terminal and answers go elsewhere, and the run directory."""
    from streamsvm.online.stream import StreamReporter
    from streamsvm.parallel.compiling import CompileNotice, compile_notices
    from streamsvm.runs.directory import end_with, recorded
    from streamsvm.runs.phases import Phases, used_s, whole_command

    start, phase = used_s(), Phases()
    compiles = CompileNotice(partial(typer.echo, err=True))
    with progress(prints_rows=True) as shown, compile_notices(events := shown.also(compiles)):
        if run_dir is None:
            yield StreamReporter(state, events)
            return
        facts = {"store": source, "config": state.learner.config.model_dump(mode="json")}
        with recorded(run_dir, events, bool(state.events), **facts) as events:
            reporter = StreamReporter(state, events)
            with phase("stream"):
                yield reporter
            reporter.end()
            end_with(run_dir, events, whole_command({"solver": "bsgd", **state.summary(), **phase.report()}, start))


def _require_source(name: str, format_: str) -> None:
    """Raises ConfigError, NotFoundError."""
    if name.startswith(BROKERS):
        if format_ == "csv":
            raise ConfigError("--format csv: messages of Kafka and NATS have no header, expected JSON")
    elif name != "-" and (path := local_path(name)) is not None:
        if path.is_dir():
            raise ConfigError(f"--input {name}: found a folder, expected a file or a pipe")
        if not path.exists():
            raise NotFoundError(f"--input {name}: no such file{nearest(name)}")


@contextmanager
def _source(name: str, state: Stream) -> Iterator[Lines | Messages]:
    from streamsvm.ingest.streams import Stream as Unpacked
    from streamsvm.ingest.streams import is_packed
    from streamsvm.online.brokers import JetStream, Topic
    from streamsvm.online.lines import Lines

    with ExitStack() as stack:
        if name.startswith(BROKERS):
            opened = Topic if name.startswith(KAFKA) else JetStream
            place = state.topics.setdefault(urlsplit(name).path.strip("/"), {})
            yield stack.enter_context(closing(opened(name, place, sys.stdout.flush)))
        elif name == "-":
            yield Lines(0, sys.stdout.flush)
        elif local_path(name) is None or is_packed(name):
            yield Lines(stack.enter_context(closing(Unpacked(name))), sys.stdout.flush)
        else:
            file = stack.enter_context(open(local_path(name) or name, "rb", buffering=0))
            yield Lines(file.fileno(), sys.stdout.flush)


@contextmanager
def _stops(lines: Lines | Messages) -> Iterator[list[int]]:
    """The signals received so far. SIGTERM and SIGINT end the stream after the current event, with a snapshot."""
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        received.append(number)
        lines.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def options_of(flags: Mapping[str, Any], sets: list[str]) -> Given:
    """The parameters of the learner that were given: how, and their values. Raises ConfigError."""
    options: Given = {name: (f"{flag_of(name)} {value}", value) for name, value in flags.items() if value is not None}
    for text in sets:
        origin, values = parse_set(text)
        for name, value in _flat(values):
            if name not in SETTABLE:
                raise ConfigError(f"{origin}: a stream has no such option, expected one of {', '.join(SETTABLE)}")
            parameter = SETTABLE[name]
            options[parameter] = (origin, {name.rpartition(".")[2]: value} if parameter == "kernel_params" else value)
    return options


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def lines_options(read: Mapping[str, Any], format_: str) -> IngestOptions:
    """How to read the lines, as flags say. Raises ConfigError for the dialect of CSV if they are JSON."""
    given = [name for name in DIALECT if read[name] is not None]
    if given and format_ == "json":
        raise ConfigError(f"{flag_of(given[0])} applies to --format csv, found json; leave it out")
    return validated(IngestOptions, *section_layers(IngestOptions, read))


def new_learner(task: str, options: Given, *, raw: bool) -> Any:
    """A new learner. raw: it does not scale columns. Raises ConfigError for a task that has no online learner, or
    options that the task does not have."""
    from streamsvm.online import LEARNERS

    if task not in LEARNERS:
        raise ConfigError(f"--task {task}: expected one of {', '.join(LEARNERS)}")
    for name, (origin, _) in options.items():
        if name not in signature(LEARNERS[task]).parameters:
            raise ConfigError(f"{origin}: a stream of task {task} has no such option; leave it out")
    values = {name: value for name, (_, value) in options.items()}
    learner = LEARNERS[task](**values)
    return LEARNERS[task](**RAW | values) if raw and learner.tunes_itself else learner


def require_same(state: Stream, options: Given) -> None:
    """A stream that continues keeps its options; only bounds may change. Raises ConfigError."""
    learner = state.learner
    for name, (origin, value) in options.items():
        if name not in ("task", "scale") and name not in signature(type(learner)).parameters:
            raise ConfigError(f"{origin}: the stream of {state.path} has task {learner.task}, which has no such option")
        if name in ("max_features", "max_classes"):
            learner.allow(**{name: value})
            continue
        is_raw = state.scaler is None and not learner.tunes_itself
        has = ("none" if is_raw else "standard") if name == "scale" else getattr(learner, name)
        if value != has:
            raise ConfigError(
                f"{origin}: the stream of {state.path} has {name} {has}, which cannot change; leave the option out, "
                "use another --model, or start again with --force"
            )


def require_same_categories(state: Stream, categories: Collection[str]) -> None:
    """A stream that continues keeps its features of number codes. Raises ConfigError."""
    if categories and state.categories != {*categories}:
        saved = ", ".join(sorted(state.categories)) or "none"
        raise ConfigError(
            f"--category {','.join(categories)}: the stream of {state.path} has {saved}, which cannot change; leave "
            "the option out, use another --model, or start again with --force"
        )


def let_ask(state: Stream, share: float) -> None:
    """Raises ConfigError for an invalid share, and for a task without classes."""
    from streamsvm.online.scores import ClassScores

    if not 0 < share <= 1:
        raise ConfigError(f"--ask {share}: expected a share above 0, at most 1")
    if not isinstance(state.judge, ClassScores):
        raise ConfigError(f"--ask {share}: a stream of task {state.judge.task} has no single label to be unsure of")
    state.judge.asks = share
