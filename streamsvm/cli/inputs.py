"""Flags that set options of configurations, and the rows that a command is given: a store, or files read into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer
from pydantic.fields import FieldInfo

from streamsvm.cli.app import CLUSTER, DATA, FILES, RUN, importing
from streamsvm.cli.options import XName, YName, open_store, option, with_flags
from streamsvm.cli.output import progress
from streamsvm.config import Options, field_values, option_field, option_names, option_values, validated
from streamsvm.errors import ConfigError
from streamsvm.events import Events
from streamsvm.ingest.options import DIALECT, IngestOptions
from streamsvm.ingest.streams import is_server, without_password
from streamsvm.options.layers import Layer, parse_set, read_layer
from streamsvm.storage.paths import Place, is_same
from streamsvm.storage.text import cut_quoted, human_bytes, name_of, names_in, number_or_text, split_quoted

if TYPE_CHECKING:
    from streamsvm.data.layout import Layout
    from streamsvm.data.store import Store
    from streamsvm.ingest.tables import OtherColumns

ROWS = ("format", "query", *DIALECT, "header")  # options of a file with rows like a model's
LABELLED = ("label", *ROWS)  # with labels
ENCODED = ("hash", "target_encode", "min_frequency")
LEARNT = ("label", "ignore", "text", "category", *ENCODED, "dtype", *ROWS, "qid", "group")  # of a file to train on
USUAL = ("label", "ignore")  # flags of files that --help shows, too
PLACEHOLDERS = {  # of values that have a form of their own, by option
    "query": "TABLE|SELECT",
    "delimiter": "CHARACTER",
    "label": "COL[,COL...]",
    "labels": "FILE",
    "qid": "COL",
    "group": "COL",
    "ignore": "COL[,COL...]",
    "text": "COL[,COL...]",
    "category": "COL[,COL...]",
    "decimal": "CHARACTER",
    "thousands": "CHARACTER",
    "missing": "VALUE[,VALUE...]",
    "comment": "TEXT",
    "hash": "COL=WIDTH[,COL=WIDTH...]",
    "target_encode": "COL[=SMOOTH][,COL...]",
    "split": "FRACTION",
    "split_by": "COL",
    "test_store": "STORE",
    "like": "STORE",
    "memory_limit": "SIZE",
    "positive": "L[,L...]",
    "class_weight": "L=W[,...]",
    "gamma": "NUMBER",
    "threshold": "f1|balanced_accuracy|precision=P|recall=R",
    "costs": "TRUE>PREDICTED=COST[,...]",
    "must_export": "FORMAT",
    "time_budget": "60s|10m|2h",
    "checkpoint_every": "SECONDS|'N steps'",
    "scheduler": "tcp://HOST:PORT",
    "wait_for_scheduler": "60s|10m|2h",
    "device": "NAME",
    "device_memory": "SIZE",
}
NAMES_OF_VALUES = {"probability": "METHOD"}  # of a list of values, other than the flag's
SWITCHES = {"header": "--header/--no-header", "dense": "--dense/--sparse"}
IN_SECTIONS = {  # options that flags set, where they have other names
    "early": "dcsvm.early",
    **{name: f"bsgd.{name}" for name in ("budget", "merge", "epochs")},
    "probability": "probability.method",
    **{name: f"probability.{name}" for name in ("threshold", "costs")},
    "kernel": "kernel.name",
    **{name: f"kernel.{name}" for name in ("gamma", "degree", "coef0")},
    "metric": "metric.kind",
    **{name: f"search.{name}" for name in ("time_budget", "trials", "scoring", "ensemble")},
}


def class_weights(text: str) -> Any:
    """`balanced`, or a table parsed from text such as 1=2.0,2=1. Raises ConfigError for a label that is named twice."""
    if "=" not in text:
        return text
    pairs = [cut_quoted(pair, "=") for pair in split_quoted(text)]
    weights = {name_of(label): number_or_text(weight) for label, weight in pairs}
    if len(weights) < len(pairs):
        raise ConfigError(f"--class-weight: found {text!r}, expected each label once")
    return weights


PARSERS: dict[str, Callable[[str], Any]] = {
    "class_weight": class_weights,
    "gamma": number_or_text,
    "split": number_or_text,
}


def flag_of(name: str) -> str:
    """The flag of an option or parameter."""
    return f"--{name.replace('_', '-')}"


def flag(name: str, field: FieldInfo, group: str | None = None) -> Any:
    """The flag, or pair such as --dense/--sparse, of an option, which owns text, values and default. The configuration
    validates its value, so that errors are worded once."""
    values, shown = field_values(field), SWITCHES.get(name, flag_of(name))
    more: dict[str, Any] = {}
    text, is_switch = str(field.description).replace("`", ""), field.annotation in (bool, bool | None)
    if name in PLACEHOLDERS:
        more = {"metavar": PLACEHOLDERS[name], "parser": PARSERS.get(name, str)}
    elif values:
        text += f"; one of {', '.join(values)}"
    if field.default not in (None, (), {}) and not isinstance(field.default, bool):
        is_size = field.json_schema_extra == {"format": "size"}
        text += f" (default {human_bytes(field.default).replace('.0 ', '') if is_size else field.default})"
    if not (is_switch or more):
        more = (
            {"metavar": NAMES_OF_VALUES.get(name, name.upper()), "parser": str}
            if values
            else {"metavar": "N", "parser": number_or_text}
        )
    kind: Any = bool | None if is_switch else Any
    if values:
        more["autocompletion"] = lambda incomplete: [value for value in values if value.startswith(incomplete)]
    info = typer.Option(shown, help=text, rich_help_panel=group, **more)
    return Annotated[kind, info]


def configured(groups: Mapping[str, Sequence[str]]) -> Callable:
    """Replaces a command's parameter `flags` by those of options of a fit, by group, and passes their values."""
    return with_flags("flags", {name: _fit_flag(name, group) for group in groups for name in groups[group]}, dict)


def _fit_flag(name: str, group: str) -> Any:
    return flag(name, option_field(IN_SECTIONS.get(name, name)), group)


def _complete_set(incomplete: str) -> list[str]:
    """Options that `--set` may name, and their values if they are listed."""
    given, equals, _ = incomplete.partition("=")
    names = list(option_names())
    if equals and given in names:
        return [f"{given}={value}" for value in option_values(given)]
    return [f"{name}=" for name in names if name.startswith(incomplete)]


SET_TEXT = "Set any option by name; overrides flags and file."
SetOption = Annotated[list[str] | None, option("--set", SET_TEXT, "NAME=VALUE", RUN, autocompletion=_complete_set)]
if TYPE_CHECKING:
    MemoryLimit: TypeAlias = str | None
    WorkersFlag: TypeAlias = int | None
else:
    MemoryLimit, WorkersFlag = _fit_flag("memory_limit", RUN), _fit_flag("workers", CLUSTER)


def given_layers(flags: Mapping[str, Any], config: Place | None, sets: list[str] | None) -> list[Layer]:
    """The layers of a file, then of the flags that were given (are not None), then of `--set`. Raises ConfigError."""
    layers = [read_layer(config)] if config else []
    for name, value in flags.items():
        if value is not None:
            section, _, member = IN_SECTIONS.get(name, name).rpartition(".")
            layers.append((flag_of(name), {section: {member: value}} if section else {member: value}))
    return [*layers, *map(parse_set, sets or [])]


def section_layers(section: type[Options], flags: Mapping[str, Any]) -> list[Layer]:
    """A layer for each flag of a section that was given (is not None)."""
    return [(flag_of(name), {name: flags[name]}) for name in section.model_fields if flags.get(name) is not None]


def plain_sources(sources: list[str] | None) -> list[str] | None:
    """Sources as all that is written and shown has them: without passwords."""
    return sources and [*map(without_password, sources)]


SOURCES = "CSV, parquet, databases and all else that ingest reads, folders, patterns such as 'data/*.csv'; - is stdin"
TO_PREDICT = f"Rows in files, instead of a store: {SOURCES}."
TO_LEARN = (
    f"{TO_PREDICT} They are read into a store, next to them or at --store, which is used again until they change."
)
TO_LOOK_AT = f"Path or URL of a store, or files: {SOURCES}."


def reads(*names: str, usual: Sequence[str] = USUAL) -> Callable:
    """Replaces a command's parameter `read` by flags for these options of files, and passes their values as `read`.

    usual: those that --help shows, too.
    """
    return with_flags("read", _file_flags(names, usual), dict)


def _file_flags(names: Sequence[str], usual: Sequence[str] = USUAL) -> dict[str, Any]:
    fields = IngestOptions.model_fields
    return {name: flag(name, fields[name], DATA if name in usual else FILES) for name in names}


def takes_rows(*names: str, files: str, store: str, group: str | None = None, has_labels: bool = True) -> Callable:
    """Replaces a command's parameter `given` by flags for its rows, and passes their values as `given`, `GivenRows`.

    names: of these options. files, store: texts of the argument and of --store, whose group this is.
    """
    metavar = "[STORE|FILE]" if files is TO_LOOK_AT else "[FILE]"
    argument = typer.Argument(help=files, metavar=metavar, rich_help_panel=DATA, callback=plain_sources)
    flags = {"files": Annotated[list[str] | None, argument]}
    flags |= {"store": Annotated[str | None, option("--store", store, "STORE", group)]}
    flags |= _file_flags(names) | {"x": XName} | ({"y": YName} if has_labels else {})

    def collected(values: dict[str, Any]) -> GivenRows:
        first = {name: values.pop(name, None) for name in ("files", "store", "x", "y")}
        return GivenRows(**first | {"files": first["files"] or []}, read=values)

    return with_flags("given", flags, collected)


class InputRows(NamedTuple):
    """The rows that a command was given: their store, their name, and for files the paths and options to read them
    again."""

    store: Store
    name: str
    files: tuple[list[str], IngestOptions] | None = None


@dataclass(frozen=True)
class GivenRows:
    """The rows of a command, as its arguments and flags say: files, or a store.

    x, y: names of the store's arrays. read: flags about reading a file, by option name; None: not given.
    """

    files: list[str]
    store: str | None = None
    x: str | None = None
    y: str | None = None
    read: Mapping[str, Any] = field(default_factory=dict)

    @contextmanager
    def opened(
        self, events: Events, layout: Layout | None = None, category: Sequence[str] = (), label: str | None = None
    ) -> Iterator[InputRows]:
        """Rows of files, laid out like a model's, or of a store. category: columns of number codes. label: the label
        column if no flag names one."""
        if not self.files:
            store = self._required_store()
            yield InputRows(open_store(store, self.x, self.y), store)
            return
        self._require_one()
        for name, value in (("--x", self.x), ("--y", self.y)):
            if value is not None:
                raise ConfigError(f"{name} applies to a store, found a file; leave it out")
        with importing():
            from streamsvm.ingest.inputs import opened

        options = file_options({"label": label, **self.read, "category": tuple(category) or None}, layout, self.files)
        with opened(self.files, options, layout, events) as (rows, paths):
            yield InputRows(rows, ", ".join(self.files), (paths, options))

    def to_look_at(self) -> GivenRows:
        """The rows if the argument may be a store, too. Raises ConfigError."""
        self._require_one()
        stores = [source for source in self.files if not _are_files(source)]
        if not stores:
            return self
        if len(self.files) > 1:
            raise ConfigError(f"found {stores[0]} among {len(self.files)} sources, expected one store, or files alone")
        return replace(self, files=[], store=stores[0])

    @contextmanager
    def against(self, other: str | None, first: Store, events: Events) -> Iterator[InputRows | None]:
        """Rows to compare with the first ones, if any: of a store, or of files that are laid out like the first."""
        other = other and without_password(other)
        if other is None:
            yield None
        elif not _are_files(other):
            yield InputRows(open_store(other, self.x, self.y), other)
        else:
            files = GivenRows([other], read={name: self.read[name] for name in LABELLED})
            with files.opened(events, first.layout) as opened:
                yield opened

    def to_learn_from(self) -> str:
        """The given store, or the store that files are read into, or were read into earlier."""
        if not self.files:
            return self._required_store()
        with importing():
            from streamsvm.ingest.inputs import store_of

        with progress() as events:
            place, was_there = store_of(self.files, self.store, file_options(self.read), events)
        how = "using the store of an earlier read," if was_there else "read into the store"
        typer.echo(f"{self.files[0]}: {how} {place}", err=True)
        return place

    def require_other(self, out: Place | None) -> None:
        """Raises ConfigError if the output of a command would replace a file of its rows."""
        if out is None or not self.files:
            return
        from streamsvm.ingest.paths import paths_of

        if any(is_same(path, out) for _, path in paths_of(self.files)):
            raise ConfigError(f"--out {out}: found a file of the rows, which it would replace; take another name")

    def require_other_than_store(self, **others: Place | None) -> None:
        """Raises ConfigError, before any row is read, if the command would write something to the place of the store
        that files are read into. others: places of what it writes, by option."""
        if not self.files:
            return
        with importing():
            from streamsvm.ingest.inputs import STDIN, default_store

        if self.store is None and STDIN in self.files:
            return
        place = self.store or str(default_store(self.files[0]))
        for name, other in others.items():
            if other is not None and is_same(other, place):
                raise ConfigError(
                    f"{flag_of(name)} {other}: found the place of the store that {self.files[0]} is read into; take "
                    f"another {flag_of(name)}, or give the store another path with --store"
                )

    def _require_one(self) -> None:
        if self.files and self.store is not None:
            raise ConfigError(f"found {self.files[0]} and --store {self.store}, expected one of them")

    def _required_store(self) -> str:
        """Raises ConfigError if there is neither a file nor a store, and for flags of files."""
        if self.store is None:
            raise ConfigError("found no rows, expected a FILE, or --store STORE")
        for name, value in self.read.items():
            if value is not None:
                raise ConfigError(f"{flag_of(name)} applies to a file, found a store; leave it out")
        return self.store


def _are_files(rows: str) -> bool:
    """Whether these are rows in files: stdin, the name of a data file, a pattern, a file, or a folder with data files
    that is not a store."""
    with importing():
        from streamsvm.ingest.inputs import STDIN
        from streamsvm.ingest.paths import has_files, is_pattern
        from streamsvm.ingest.streams import is_data_name
        from streamsvm.storage.paths import kind_at

    if rows == STDIN or is_server(rows) or is_data_name(rows) or is_pattern(rows):
        return True
    content = kind_at(rows)
    return content == "a file" or (content == "a folder of other things" and has_files(rows))


@contextmanager
def kept_columns(files: tuple[list[str], IngestOptions] | None, keep: str | None) -> Iterator[OtherColumns | None]:
    """Columns of files, to write next to the predictions of their rows."""
    if keep is None or files is None:
        yield None
        return
    from streamsvm.ingest.tables import OtherColumns

    paths, options = files
    with closing(OtherColumns(paths, names_in(keep), options)) as columns:
        yield columns


def file_options(read: Mapping[str, Any], layout: Layout | None = None, files: Sequence[str] = ()) -> IngestOptions:
    """How to read files: as flags say, else as the files that a model of this layout was trained on."""
    options = validated(IngestOptions, *section_layers(IngestOptions, read))
    if layout is None:
        return options
    from streamsvm.ingest.files import dialect_of, written_as
    from streamsvm.ingest.inputs import STDIN
    from streamsvm.ingest.paths import files_of

    if not (written := dialect_of(layout)):  # files are not looked at for nothing
        return options
    paths = [file.path for file in files_of([file for file in files if file != STDIN])]
    return written_as(options, written, paths, "the model")
