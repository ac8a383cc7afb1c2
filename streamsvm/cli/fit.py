"""`streamsvm fit`: trains a model on a store."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamsvm.cli.imports import importing
from streamsvm.cli.options import (
    AsJson,
    ForceModel,
    PerformanceReport,
    XName,
    YName,
    model_beside,
    open_store,
    require_model_place,
)
from streamsvm.cli.output import emit, progress
from streamsvm.config import FitConfig, Layer, build_config, option_field, parse_set, read_layer
from streamsvm.errors import ConfigError
from streamsvm.phases import usage_so_far
from streamsvm.unread import require_read

if TYPE_CHECKING:
    from streamsvm.data.store import Store

_FLAGS: dict[str, str] = {}


def flag(name: str, option: str, **more: Any) -> Any:
    """The flag of a configuration option, which owns its description and default."""
    _FLAGS[name.lstrip("-").replace("-", "_")] = option
    field = option_field(option)
    unset = field.default is None or field.default is False or field.default == ()
    help_text = f"{field.description}" if unset else f"{field.description} (default {field.default})"
    return typer.Option(name, help=help_text, **more)


def fit(
    context: typer.Context,
    store: Annotated[str, typer.Option("--store", help="Rows and labels to train on.", metavar="STORE")],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Where the model goes; else next to the store, as STORE.model.zarr.",
            metavar="MODEL",
        ),
    ] = None,
    solver: Annotated[str | None, flag("--solver", "solver")] = None,
    task: Annotated[str | None, flag("--task", "task")] = None,
    kernel: Annotated[str | None, flag("--kernel", "kernel.name", metavar="rbf|poly|linear")] = None,
    gamma: Annotated[str | None, flag("--gamma", "kernel.gamma", metavar="NUMBER")] = None,
    degree: Annotated[int | None, flag("--degree", "kernel.degree")] = None,
    coef0: Annotated[float | None, flag("--coef0", "kernel.coef0")] = None,
    C: Annotated[float | None, flag("--C", "C")] = None,
    tol: Annotated[float | None, flag("--tol", "tol")] = None,
    early: Annotated[bool | None, flag("--early", "dcsvm.early")] = None,
    budget: Annotated[int | None, flag("--budget", "bsgd.budget")] = None,
    merge: Annotated[int | None, flag("--merge", "bsgd.merge")] = None,
    epochs: Annotated[int | None, flag("--epochs", "bsgd.epochs")] = None,
    positive: Annotated[str | None, flag("--positive", "positive", metavar="L[,L...]")] = None,
    scale: Annotated[str | None, flag("--scale", "scale", metavar="none|minmax|standard|maxabs")] = None,
    class_weight: Annotated[
        str | None, flag("--class-weight", "class_weight", metavar="balanced|L=W[,L=W...]")
    ] = None,
    probability: Annotated[
        str | None, flag("--probability", "probability.method", metavar="sigmoid|isotonic")
    ] = None,
    memory_limit: Annotated[str | None, flag("--memory-limit", "memory_limit", metavar="SIZE")] = None,
    workers: Annotated[int | None, flag("--workers", "workers")] = None,
    scheduler: Annotated[str | None, flag("--scheduler", "scheduler", metavar="tcp://HOST:PORT")] = None,
    performance_report: PerformanceReport = None,
    seed: Annotated[int | None, flag("--seed", "seed")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A TOML file, or a model to repeat.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any option by name, over flags and file.", metavar="NAME=VALUE"),
    ] = None,
    run_dir: Annotated[Path | None, typer.Option("--run-dir", help="Folder for events and state.")] = None,
    checkpoint_every: Annotated[
        str | None, flag("--checkpoint-every", "checkpoint_every", metavar="SECONDS|'N steps'")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the state in --run-dir.")] = False,
    force: ForceModel = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the memory and time plan only.")] = False,
    pilot: Annotated[
        float,
        typer.Option(
            "--pilot", min=0, help="With --dry-run: seconds for small fits that tell the time; 0: none."
        ),
    ] = 15.0,
    x: XName = None,
    y: YName = None,
    as_json: AsJson = False,
) -> None:
    """Train a model."""
    resolved = resolve(context.params, config, set_ or [])
    if resume and run_dir is None:
        raise ConfigError("--resume needs the --run-dir of the interrupted run")
    if dry_run:
        _print_plan(open_store(store, x, y), resolved, pilot, as_json)
        return
    model = model or model_beside(store)
    rows = open_store(store, x, y)
    require_model_place(model, force=force, of=(rows, [resolved]) if resume else None)
    with importing():
        from streamsvm.checkpoints import has_state
        from streamsvm.train import train

    with hint_to_resume(run_dir, has_state), progress() as events:
        report = train(
            rows,
            resolved,
            model_path=model,
            run_dir=run_dir,
            resume=resume,
            performance_report=performance_report,
            events=events,
        )
    emit(report, as_json=as_json, title="Trained")
    if not as_json:
        typer.echo(f"next: streamsvm evaluate --model {shlex.quote(str(model))} --store TEST_STORE")


def resolve(flags: dict[str, Any], config: Path | None, sets: list[str]) -> FitConfig:
    """The configuration from a file, then flags, then `--set`. Raises ConfigError, for what it does not read too."""
    layers = [*([read_layer(config)] if config else []), *flag_layers(flags), *map(parse_set, sets)]
    resolved = build_config(*layers)
    require_read(layers, resolved)
    return resolved


def flag_layers(flags: dict[str, Any]) -> list[Layer]:
    """What these flags of a command say, by name; None: not given."""
    layers: list[Layer] = []
    for name, option in _FLAGS.items():
        if flags.get(name) is not None:
            group, _, member = option.rpartition(".")
            value = _PARSERS.get(name, _as_is)(flags[name])
            layers.append(
                (f"--{name.replace('_', '-')}", {group: {member: value}} if group else {member: value})
            )
    return layers


def _as_is(value: Any) -> Any:
    return value


def _gamma(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def _class_weight(text: str) -> Any:
    """`balanced`, or the table that 1=2.0,2=1 means."""
    if "=" not in text:
        return text
    pairs = [pair.rpartition("=") for pair in text.split(",")]
    return {label.strip(): _gamma(weight) for label, _, weight in pairs}


_PARSERS = {"gamma": _gamma, "class_weight": _class_weight}


@contextmanager
def hint_to_resume(run_dir: Path | None, has_kept: Callable[[Path], bool]) -> Iterator[None]:
    """Says, where a run is interrupted that has kept something to go on from, how."""
    try:
        yield
    except KeyboardInterrupt:
        if run_dir is not None and has_kept(run_dir):
            typer.echo(f"the same command with --resume goes on from the state in {run_dir}", err=True)
        raise


def _print_plan(rows: Store, config: FitConfig, pilot_s: float, as_json: bool) -> None:
    from streamsvm.train import plan

    start_s = usage_so_far()["seconds"]
    found = plan(rows, config)
    if pilot_s > 0:
        from streamsvm.cost import does_not_fit, estimate

        found |= estimate(rows, config, pilot_s, start_s)
        if not found["fits"]:
            typer.echo(f"warning: {does_not_fit(found)}", err=True)
    emit(found, as_json=as_json, title="Plan (the model was not trained)")
