"""The `streamsvm` command: its subcommands, their help, and every error as one line and an exit status.

A subcommand is a function in the module of its name, or in one of `HOMES`, imported when it is called or asked for its
help. The help lists
options by group, one below the other, as wide as the terminal: the usual ones, or with `--help-all` every one.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from streamsvm._version import __version__
from streamsvm.errors import StreamSVMError
from streamsvm.parallel.heaps import few_heaps
from streamsvm.parallel.imports import uncollected
from streamsvm.storage.paths import was_url

OK, FAILED, INTERRUPTED = 0, 2, 130
MOST_OTHERS = 3  # commands that an unknown option is proposed for
COMMANDS = {  # the first paragraph of each one's --help
    "ingest": "Read files into a store in bounded memory. The store is written whole or not at all.",
    "info": "Show shape, type, chunks, classes and their counts.",
    "check": "Read all of a store or model: checksums, NaN and infinity, labels, odd columns. Exits 2 on a fault.",
    "fit": "Train a model. Options that you leave out are chosen from the data.",
    "tune": "Choose options by cross-validation. Without a table of values to try, search the options that fit "
    "chooses.",
    "calibrate": "Add probabilities, a threshold or costs to a model. They replace any that it has.",
    "thin": "Leave out support vectors of a model, so that it predicts more rows a second.",
    "predict": "Write the predicted label of every row, block by block.",
    "evaluate": "Score a model: accuracy, precision and recall by class, confusion, ROC AUC, and probabilities if it "
    "has any.",
    "explain": "Show which columns matter to a model, and gradients, support vectors and Shapley values of rows.",
    "report": "Show one run, or several side by side, as one HTML page: convergence, levels, time, memory, scores.",
    "top": "Follow a run that was started elsewhere: phases, rates, gap, memory, warnings. Ends when the run ends.",
    "ui": "Show runs on a live page: lists, compares and follows them. Read-only, on this machine.",
    "stream": "Predict, then learn, event by event; one JSON line out for each line in.",
    "serve": "Predict and learn over HTTP, until Ctrl-C or SIGTERM.",
    "export": "Write a model for other systems. What the format cannot store is reported and saved next to the file.",
    "import": "Read a model that LIBSVM or `streamsvm export` wrote.",
    "warm-up": "Compile now, for this machine, what fits, predictions and streams would compile at their first use.",
    "demo": "Deform scikit-learn's digits into a large store, train DC-SVM on it, score on untouched digits.",
}
HOMES = {  # modules of commands that share one
    "ingest": "stores",
    "info": "stores",
    "check": "stores",
    "calibrate": "judging",
    "evaluate": "judging",
    "thin": "judging",
    "ui": "report",
    "export": "exchange",
    "import": "exchange",
}
SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # plain lines fit a narrow terminal, a page and a pipe
    "context_settings": {"help_option_names": ["-h", "--help"], "max_content_width": 100},
}

_is_ours = Event()  # set if this process ends with the command


def own_process() -> None:
    """Marks this process as one that ends with the command."""
    _is_ours.set()
    few_heaps()


@contextmanager
def importing() -> Iterator[None]:
    """If the process ends with the command, modules stay loaded, so the collector need not scan them again."""
    with uncollected():
        yield
        if _is_ours.is_set():
            gc.freeze()


class Commands(TyperGroup):
    """Every command by name and help. A command's module is imported when it is used, so `--help` answers at once."""

    def __init__(self, **attributes: Any) -> None:
        named = {name: TyperCommand(name, help=text, short_help=text) for name, text in COMMANDS.items()}
        super().__init__(**attributes | {"commands": named})

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and command(name), rest


def command(name: str) -> Any:
    """The command of this name, with its flags."""
    identifier = name.replace("-", "_")
    with importing():
        module = import_module(f"streamsvm.cli.{HOMES.get(name, identifier)}")
    function = getattr(module, f"{identifier}_" if iskeyword(identifier) else identifier)
    made = _command(name, function)
    made.params += _command("all", _all_options).params
    return made


def _command(name: str, function: Callable[..., None]) -> Any:
    alone = typer.Typer(add_completion=False, **SETTINGS)
    alone.command(name, cls=Command)(function)
    return typer.main.get_command(alone)


def _show_all(ctx: typer.Context, is_given: bool) -> None:
    if is_given:
        ctx.command.shows_all = True  # type: ignore[attr-defined]
        typer.echo(ctx.get_help())
        raise typer.Exit


def _all_options(
    help_all: Annotated[
        bool,
        typer.Option("--help-all", is_eager=True, expose_value=False, callback=_show_all, help="Show all options."),
    ] = False,
) -> None:
    """An option of every command."""


app = typer.Typer(name="streamsvm", cls=Commands, **SETTINGS)


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
    """Support vector machines for data that does not fit in memory.

    \b
    streamsvm demo                                      # see it work
    streamsvm fit sales.csv --label returned            # train on your file
    streamsvm predict new.csv --model sales.model.zarr  # label new rows
    """


def main() -> None:
    """The entry point: exits 0, 2 after an error of one line, 130 when interrupted."""
    if isinstance(sys.stdout, TextIOWrapper):  # Windows code pages lack most letters that labels may have
        sys.stdout.reconfigure(errors="backslashreplace")
    own_process()
    status = exit_status(lambda: app(prog_name="streamsvm", standalone_mode=False))
    if status == INTERRUPTED:  # everything is cleaned up; a plain exit would wait for running tasks in other threads
        sys.stdout.flush()
        os._exit(status)
    gc.freeze()  # otherwise the interpreter scans all modules once more, for 0.3 s
    sys.exit(status)


def exit_status(run: Callable[[], object]) -> int:
    """Runs a command and prints what went wrong on stderr, in one line."""
    try:
        status = run()
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except StreamSVMError as error:
        return _fail(str(error))
    except typer.TyperException as error:
        return _fail(_usage(error))
    except MemoryError as error:
        return _fail(f"out of memory: {error}; give a --memory-limit below the free memory")
    except OSError as error:
        return _fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    if status == INTERRUPTED:
        _say("interrupted; no half-written files were left")
    return status if isinstance(status, int) else OK


def _usage(error: typer.TyperException) -> str:
    context, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if option and (others := [name for name in COMMANDS if _has_option(name, option)]):
        return f"No such option: {option} (it is one of streamsvm {', '.join(others[:MOST_OTHERS])})"
    hint = f" (see {context.command_path} --help)" if context else ""
    said = error.format_message().partition(", unable to parse")[0].replace("Value error, ", "")
    return said.replace("Input should be", "expected").rstrip(".") + hint


def _has_option(name: str, option: str) -> bool:
    return any(option in param.opts for param in command(name).params)


def _fail(message: str) -> int:
    _say(f"error: {' '.join(message.split())}")
    return FAILED


def _say(line: str) -> None:
    with suppress(BrokenPipeError):
        typer.echo(line, err=True)


# Groups of options in the help of a command,
DATA, MODEL, RUN = "Data", "Model", "Run"
# and those that only --help-all shows.
FILES, VALUES, ANSWERS = "Reading files", "Labels and gaps", "Predictions"
PAPERS, TUNING, LEARNER = "Papers' switches", "Fine tuning", "Learner"
RUNS, CLUSTER, LATE_LABELS = "Plans and checkpoints", "Cluster and device", "Labels that come later"
DETAILS = frozenset({FILES, VALUES, PAPERS, ANSWERS, TUNING, RUNS, CLUSTER, LEARNER, LATE_LABELS})
OTHERS = "Options"  # those without a group
NAME_SHARE = 3  # the names of options get at most this part of the width, 1 / 3
PLACEHOLDERS = {"<int>": "N", "<int range>": "N", "<float>": "NUMBER", "<float range>": "NUMBER", "<path>": "PATH"}
LONG_TEXT, LINE = 90, 52  # characters of an option's text that --help shows whole, and next to a list of values


class Command(TyperCommand):
    """A command whose help has a section for each group of options.

    `--help` shows the options that people use, in a few words, and `--help-all` all of them: those of the groups in
    `DETAILS`, too. Switches explain that they take no value, and options of local files refuse URLs.
    """

    shows_all = False  # set by --help-all

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Required options by name, then arguments."""
        options = [p for p in self.params if p.param_type_name == "option" and p.required]
        arguments = [p for p in self.params if p.param_type_name == "argument"]
        return [*(f"{p.opts[0]} {_placeholder(p, ctx)}" for p in options), "[OPTIONS]", *map(_argument, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            other = "Arguments" if param.param_type_name == "argument" else OTHERS
            group = getattr(param, "rich_help_panel", None) or other
            if record := param.get_help_record(ctx):
                sections.setdefault(group, []).append((_name(param, record[0], ctx), record[1]))
        usual = [group for group in sections if group not in DETAILS]
        details = [group for group in sections if group in DETAILS]
        is_short = bool(details) and not self.shows_all
        also = f"Show all {len(self.params)}: also {', '.join(details).lower()}"
        for group in usual if is_short else [*usual, *details]:
            rows = sections[group]
            if is_short:
                rows = [(name, also if name == "--help-all" else _brief(text)) for name, text in rows]
            with formatter.section(group):
                formatter.write_dl(rows, col_max=min(30, formatter.width // NAME_SHARE))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        switches = {name for p in self.params if getattr(p, "is_flag", False) for name in p.opts}
        for name, value in pairwise(args):
            if name in switches and value.lower() in ("true", "false"):
                what = "give it alone" if value.lower() == "true" else "leave it out"
                ctx.fail(f"{name} is a switch, found {name} {value}; {what}")
        rest = super().parse_args(ctx, args)
        for param in self.params:
            value = ctx.params.get(param.name)
            if isinstance(value, Path) and was_url(value):
                shown = param.opts[0] if param.param_type_name == "option" else param.metavar
                ctx.fail(f"{shown}: found a URL, expected a local path; copy the file to or from this machine")
        return rest


def _name(param: Any, shown: str, ctx: Any) -> str:
    """The first column of a parameter, in words that people use for types."""
    if param.param_type_name == "argument":
        return _argument(param)
    kind = param.display_type_rich(ctx)
    return shown.replace(kind, _placeholder(param, ctx)) if kind else shown


def _argument(param: Any) -> str:
    return f"{param.metavar}{'' if param.nargs == 1 else '...'}"


def _placeholder(param: Any, ctx: Any) -> str:
    """That of an option's value: a word, or the list of values."""
    kind = param.display_type_rich(ctx) or ""
    return PLACEHOLDERS.get(kind, kind.strip("<>"))


def _brief(text: str) -> str:
    """The first sentence of an option's text, without asides. Of a list of values the text stays if there is room."""
    description, is_one_of, values = text.partition("; one of ")
    description = _without_asides(description).partition(". ")[0]
    if is_one_of:
        values = values.partition(" (default ")[0]
        whole = f"{description}: {values}"
        return whole if " " in description and len(whole) <= LINE else values
    for end in ("; ", ": "):
        if len(description) > LONG_TEXT:
            description = description.partition(end)[0]
    return description.removesuffix(".")


def _without_asides(text: str) -> str:
    """A text without what is in parentheses, but for a default that is a value."""
    text, bracket, default = text.partition(" (default ")
    outside, depth = "", 0
    for letter in text:
        depth += letter == "("
        outside += "" if depth else letter
        depth -= letter == ")"
    return outside.replace("  ", " ").replace(" ,", ",").strip() + bracket + default
