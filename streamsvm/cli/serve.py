"""`streamsvm serve`: a model over HTTP."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.app import INTERRUPTED, importing
from streamsvm.cli.options import ModelIn, option
from streamsvm.cli.stream import alone
from streamsvm.errors import ConfigError, ModelError
from streamsvm.storage.paths import Place, local_path

if TYPE_CHECKING:
    from streamsvm.online.stream import Stream
    from streamsvm.serving.fixed import FixedModel
    from streamsvm.serving.learning import LearningModel
    from streamsvm.serving.log import RequestLog

LIMITS, LEARNING = "Limits", "Learning, of models that `stream` writes"  # groups of options in the help
EVERY = 10_000


def _size(text: str) -> int:
    from streamsvm.options.base import parse_size

    try:
        return parse_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"found {text!r}, {error}") from None


SNAPSHOT_TEXT = "Events from snapshot to snapshot (10,000)."
DURABLE_TEXT = "Keep events in MODEL.log before they are answered, and learn them again after a kill."
WAIT_TEXT = "Events sent to /learn that may wait for labels, which come later by their ids."
RATE_TEXT = "Maximum number of requests a second; more get 429 (default: no limit)."


def serve(
    model: ModelIn,
    host: Annotated[str, option("--host", "Address to listen at.", "HOST")] = "127.0.0.1",
    port: Annotated[int, option("--port", "Port to listen at; 0: a free one.", "N", min=0, max=65_535)] = 8000,
    label: Annotated[str | None, option("--label", "Field that holds the label (y).", "FIELD", LEARNING)] = None,
    every: Annotated[int | None, option("--snapshot-every", SNAPSHOT_TEXT, "N", LEARNING, min=1)] = None,
    durable: Annotated[bool, option("--durable", DURABLE_TEXT, group=LEARNING)] = False,
    wait: Annotated[int | None, option("--wait-for-labels", WAIT_TEXT, "N", LEARNING, min=0)] = None,
    id_: Annotated[str | None, option("--id", "Field that holds the id of an event (id).", "FIELD", LEARNING)] = None,
    max_body: Annotated[Any, option("--max-body", "Maximum size of a request.", "SIZE", LIMITS, parser=_size)] = "8MiB",
    max_events: Annotated[
        int, option("--max-events", "Maximum number of events in a request.", "N", LIMITS, min=1)
    ] = 10_000,
    max_waiting: Annotated[
        int, option("--max-waiting", "Requests at work or waiting; others get 503.", "N", LIMITS, min=1)
    ] = 64,
    max_rate: Annotated[float | None, option("--max-rate", RATE_TEXT, "N", LIMITS, min=0.001)] = None,
) -> None:
    """Predict and learn over HTTP, until Ctrl-C or SIGTERM.

    POST /predict and /learn take an event or a list of events as JSON; GET /model, /health and /metrics report.
    There is no password: anyone who can reach the port can teach the model.

    \b
    streamsvm serve --model weather.zarr
    curl -d '{"temp": 21.5, "wind": 3}' localhost:8000/predict
    """
    with importing():
        try:
            from streamsvm.events import Events
            from streamsvm.parallel.compiling import CompileNotice, compile_notices
            from streamsvm.serving.app import Limits, listening
            from streamsvm.serving.app import serve as answer
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"serve needs {error.name} (the extra serve): pip install httptools orjson uvicorn"
            ) from None
    given = {"--label": label, "--snapshot-every": every, "--durable": durable or None}
    given |= {"--wait-for-labels": wait, "--id": id_}
    stream_options = [name for name, value in given.items() if value is not None]
    with (
        listening(host, port) as at,
        _served(model, label or "y", wait, id_, every or EVERY, max_events, stream_options) as served,
    ):
        facts = f"{served.kind}, {'learns' if not served.refusal else 'predicts only'}"

        def ready() -> None:
            typer.echo(f"serving {model} ({facts}) at {_url(at.getsockname())}", err=True)

        with compile_notices(Events(CompileNotice(partial(typer.echo, err=True)))):
            number = answer(served, Limits(max_body, max_waiting, max_rate or 0.0), at, ready)
        typer.echo(f"stopped{served.closing_message}", err=True)
    if number == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _served(
    model: Place, label: str, wait: int | None, id_: str | None, every: int, most_events: int, stream_options: list[str]
) -> Iterator[FixedModel | LearningModel]:
    """The model that answers: a stream if it continues to learn, which no other process may do meanwhile.

    stream_options: the given options that only streams have. Raises what loading does, and ConfigError for options
    that nothing reads.
    """
    from streamsvm.models import StreamModel
    from streamsvm.models.files import load_model
    from streamsvm.serving.fixed import FixedModel
    from streamsvm.serving.learning import LearningModel

    loaded = load_model(model)
    refusal = f"the model is of kind {loaded.kind}, which does not learn; `streamsvm stream` writes models that do"
    if isinstance(loaded, StreamModel):
        with alone(model):
            stream = _stream(model, label)
            if not isinstance(stream, str):
                stream.wait(wait, id_)
                log = _log(model, stream.fields, "--durable" in stream_options)
                yield LearningModel(stream, most_events, every, log, lambda line: typer.echo(line, err=True))
                return
        refusal = stream
    if stream_options:
        raise ConfigError(f"{stream_options[0]} is of a model that learns: {refusal}")
    yield FixedModel(loaded, refusal, most_events)


def _stream(model: Place, label: str) -> Stream | str:
    """The stream of a model, or why there is none."""
    from streamsvm.online.stream import Stream
    from streamsvm.tasks import task_of

    try:
        stream = Stream.open(model, lambda: None, scale=False, label=label)
    except (ConfigError, ModelError) as error:
        return str(error)
    stream.needs_label = task_of(stream.learner.task).reads_labels
    return stream


def _log(model: Place, fields: str, is_asked: bool) -> RequestLog | None:
    """The log next to a model, if there is to be one. Raises ConfigError for one in an object store, and for events
    without --durable."""
    from streamsvm.serving.log import RequestLog

    path = local_path(model)
    if path is None:
        if not is_asked:
            return None
        raise ConfigError(f"--durable: {model} is in an object store, expected a model on a disk of this machine")
    folder = path.with_name(f"{path.name}.log")
    if is_asked:
        return RequestLog(folder, fields)
    if folder.is_dir() and not RequestLog(folder, fields).is_empty:
        raise ConfigError(
            f"{folder} holds events that the model may not have learned; give --durable, or move it away to lose them"
        )
    return None


def _url(address: tuple[Any, ...]) -> str:
    host, port = address[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
