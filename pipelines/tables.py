"""Measured numbers with their units, the tables they stand in, and the runs that measured them."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
from measure import CORES, Spread

HERE = Path(__file__).resolve().parent
PACKAGES = ("streamsvm", "numpy", "scipy", "numba", "zarr", "dask", "scikit-learn", "river")
BAR = re.compile(r"(?<!\\)\|")  # one that would begin a cell
WIDTH = 200  # of a line in a file of figures
PEERS = ("lightgbm", "xgboost", "xrfm", "scikit-learn-intelex")


class Seconds(float):
    def __str__(self) -> str:
        return f"{float(self):,.{0 if self >= 100 else 1 if self >= 10 else 2}f} s"


class Bytes(int):
    def __str__(self) -> str:
        return f"{int(self) / 2**20:,.0f} MiB"


class Megabytes(int):
    def __str__(self) -> str:
        return f"{int(self) / 1e6:,.1f} MB"


class Gigabytes(float):
    def __str__(self) -> str:
        return f"{float(self) / 1e9:,.{0 if self >= 1e10 else 2}f} GB"


class Share(float):
    """A fraction, read as per cent."""

    def __str__(self) -> str:
        return f"{100 * self:.2f} %"


class Factor(float):
    def __str__(self) -> str:
        return f"{float(self):.2f}"


UNITS: dict[str, type] = {
    "s": Seconds,
    "bytes": Bytes,
    "MB": Megabytes,
    "GB": Gigabytes,
    "share": Share,
    "factor": Factor,
}


@dataclass
class Table:
    """Records with the same keys; `checks` are what was asked for, and whether it came out."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def markdown(self, heading: str = "### {}") -> str:
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [_line(columns), _line(["---"] * len(columns))] if columns else []
        lines += [_line([text(row.get(name)) for name in columns]) for row in self.rows]
        listed = [*self.notes, *(f"{'met' if met else '**not met**'}: {what}" for what, met in self.checks)]
        title = heading.format(self.title) if self.title else ""
        parts = [title, "\n".join(lines), "\n".join(f"- {line}" for line in listed)]
        return "\n\n".join(part for part in parts if part) + "\n"


def _line(cells: Sequence[str]) -> str:
    whole = " | ".join(BAR.sub(r"\\|", cell) for cell in cells)
    return f"| {whole} |"


def text(value: Any) -> str:
    """A cell as people read it: the median and, of several runs, the range."""
    if value is None:
        return ""
    if isinstance(value, Spread):
        middle, low, high = (str(Seconds(x)) for x in (value.median, min(value.values), max(value.values)))
        return middle if len(value.values) == 1 else f"{middle} ({low.removesuffix(' s')} to {high.removesuffix(' s')})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if type(value) is float:
        return f"{value:.6g}"
    return f"{value:,}" if type(value) is int else str(value)


@dataclass
class Measured:
    """One run of a command: its tables, and where and with what they were measured."""

    command: str
    date: str
    machine: dict[str, Any]
    tables: list[Table]
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None
    seconds: float | None = None  # that all of it took

    def about(self) -> str:
        """A line."""
        facts = self.machine | {"commit": self.commit} | self.versions
        return ", ".join([self.command, self.date, *(f"{name} {value}" for name, value in facts.items())])


def this_run() -> Measured:
    """What is known before anything is measured."""
    memory, load = psutil.virtual_memory().total, psutil.getloadavg()[0]
    installed = {name: _version(name) for name in (*PACKAGES, *PEERS)}
    return Measured(
        command=_command(),
        date=time.strftime("%Y-%m-%d"),
        machine={
            "cpu": _cpu(),
            "cores": CORES,
            "memory": f"{memory / 2**30:.0f} GiB",
            "load": f"{load:.1f} at the start",
            "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
        },
        tables=[],
        versions={"python": platform.python_version()} | {k: v for k, v in installed.items() if v},
        commit=_commit(),
    )


def _command() -> str:
    """As others would type it: without where its files lie, and where its tables go."""
    words = ["pipelines/" + Path(sys.argv[0]).name, *(_without_place(word) for word in sys.argv[1:])]
    for option in ("--out", "--work"):
        if option in words:
            at = words.index(option)
            del words[at : at + 2]
    for option, stands in (("--data", "DIR"), ("--peer-python", "PYTHON")):
        if option in words:
            words[words.index(option) + 1] = stands
    return shlex.join(["python", *words])


def _without_place(word: str) -> str:
    """A path as its name: where its folder lies matters to nobody else."""
    return Path(word).name if Path(word).is_absolute() else word


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """Of the checkout that this file is in, `+` if code has changed since: figures do while they are measured."""

    def git(*words: str) -> str:
        argv = ["git", "-C", str(HERE.parent), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "streamsvm", "pipelines", "configs")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "not a checkout"


def _cpu() -> str:
    about = Path("/proc/cpuinfo")  # Linux
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    names = [line for line in lines if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.processor()


class Report:
    """Prints each table when it is there, and writes all so far to `out`, as JSON or Markdown by its suffix."""

    def __init__(self, out: Path | None) -> None:
        self._out, self._run, self._start = out, this_run(), time.monotonic()
        print(f"{self._run.about()}\n", flush=True)

    def add(self, tables: Sequence[Table]) -> None:
        for table in tables:
            print(table.markdown(), flush=True)
        self._run.tables += tables
        self._run.seconds = max(0.1, round(time.monotonic() - self._start, 1))
        if self._out is None:
            return
        if self._out.suffix == ".json":
            write(self._out, [self._run])
        else:
            self._out.write_text(self._markdown(), encoding="utf-8")

    def _markdown(self) -> str:
        return "\n".join([f"{self._run.about()}\n", *(table.markdown() for table in self._run.tables)])


def keep(path: Path, run: Measured) -> None:
    """Writes a run of one table to a file of figures, in the place of the run that has this title."""
    runs = {old.tables[0].title: old for old in read(path)} if path.exists() else {}
    write(path, list((runs | {run.tables[0].title: run}).values()))


def write(path: Path, runs: Sequence[Measured]) -> None:
    """A file of figures: JSON in which numbers keep their units, and repetitions their order."""
    path.write_text(_lines([_encoded(run) for run in runs]) + "\n", encoding="utf-8")


def read(path: Path) -> list[Measured]:
    """What `write` wrote. Raises Malformed."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_hook=_quantity)
        return [Measured(**{**run, "tables": [Table(**table) for table in run["tables"]]}) for run in found]
    except (ValueError, TypeError, KeyError) as error:
        raise Malformed(f"{path}: not a file of figures ({error}); run its recipe again with --out {path}") from error


class Malformed(Exception):
    """A file that holds other things than figures."""


def _encoded(value: Any) -> Any:
    """As JSON: a quantity with its unit, several runs as a list of values; nothing that says nothing."""
    if isinstance(value, Spread):
        return {"unit": "s", "values": list(value.values)}
    if isinstance(value, (Measured, Table)):
        said = {name: _encoded(part) for name, part in vars(value).items()}
        return {
            name: part
            for name, part in said.items()
            if part not in (None, False) and (part or name in ("title", "rows"))
        }
    if isinstance(value, dict):
        return {name: _encoded(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encoded(part) for part in value]
    unit = next((name for name, kind in UNITS.items() if type(value) is kind), None)
    return value if unit is None else {"unit": unit, "value": value}


def _quantity(found: dict[str, Any]) -> Any:
    kind = UNITS.get(str(found.get("unit")))
    if kind is not None and found.keys() == {"unit", "value"}:
        return kind(found["value"])
    return Spread.of(found["values"]) if kind is Seconds and found.keys() == {"unit", "values"} else found


def _lines(value: Any, indent: str = "") -> str:
    """JSON that breaks only what is too long for a line: a row of a table is one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent + line) <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return line
    inner = indent + " "
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {_lines(part, inner)}" for name, part in value.items()]
    else:
        parts = [_lines(part, inner) for part in value]
    opens, closes = "{}" if isinstance(value, dict) else "[]"
    return f"{opens}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{closes}"
