"""Options of `streamsvm stream` that belong to the learner: of a new one, and next to those of a snapshot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from streamsvm.cli.flags import section_layers
from streamsvm.config import validated
from streamsvm.errors import ConfigError
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.options.layers import parse_set

if TYPE_CHECKING:
    from streamsvm.online.pipe import Stream

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


def given_of(flags: dict[str, Any], sets: list[str]) -> Given:
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


def lines_options(read: Mapping[str, Any], format_: str) -> IngestOptions:
    """How to read the lines, as flags say. Raises ConfigError for the dialect of CSV if they are JSON."""
    named = [name for name in DIALECT if read[name] is not None]
    if named and format_ == "json":
        raise ConfigError(f"--{named[0].replace('_', '-')} applies to --format csv, found json; leave it out")
    return validated(IngestOptions, *section_layers(IngestOptions, dict(read)))


def new_learner(task: str, given: Given, *, raw: bool) -> Any:
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


def require_same(state: Stream, given: Given) -> None:
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


def require_same_categories(state: Stream, given: Collection[str]) -> None:
    """A stream that continues keeps its features of number codes. Raises ConfigError."""
    if given and state.categories != {*given}:
        has = ", ".join(sorted(state.categories)) or "none"
        raise ConfigError(
            f"--category {','.join(given)}: the stream of {state.path} has {has}, which cannot change; leave the "
            "option out, use another --model, or start again with --force"
        )


def let_ask(state: Stream, share: float) -> None:
    """Raises ConfigError for an invalid share, and for a task without classes."""
    from streamsvm.online.judges import OfClasses

    if not 0 < share <= 1:
        raise ConfigError(f"--ask {share}: expected a share above 0, at most 1")
    if not isinstance(state.judge, OfClasses):
        raise ConfigError(
            f"--ask {share}: a stream of task {state.judge.task} has no single label to be unsure of"
        )
    state.judge.asks = share
