"""Measured numbers with their units, and the tables they stand in."""

from __future__ import annotations

import json
import os
import platform
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
PEERS = ("lightgbm", "scikit-learn-intelex")


class Seconds(float):
    def __str__(self) -> str:
        return f"{float(self):.{0 if self >= 100 else 1 if self >= 10 else 2}f} s"


class Bytes(int):
    def __str__(self) -> str:
        return f"{int(self) / 2**20:,.0f} MiB"


class Share(float):
    """A fraction, read as per cent."""

    def __str__(self) -> str:
        return f"{100 * self:.2f} %"


class Factor(float):
    def __str__(self) -> str:
        return f"{float(self):.2f}"


@dataclass
class Table:
    """Records with the same keys; `checks` are what was asked for, and whether it came out."""

    title: str
    rows: list[dict[str, Any]]
    notes: list[str] = field(default_factory=list)
    checks: list[tuple[str, bool]] = field(default_factory=list)

    def markdown(self) -> str:
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [f"### {self.title}", "", _line(columns), _line(["---"] * len(columns))]
        lines += [_line([text(row.get(name)) for name in columns]) for row in self.rows]
        listed = [*self.notes, *(f"{'met' if met else '**not met**'}: {what}" for what, met in self.checks)]
        return "\n".join([*lines, "", *(f"- {line}" for line in listed), ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def text(value: Any) -> str:
    """A cell as people read it: the median and, of several runs, the range."""
    if value is None:
        return ""
    if isinstance(value, Spread):
        middle, low, high = Seconds(value.median), Seconds(min(value.values)), Seconds(max(value.values))
        return str(middle) if len(value.values) == 1 else f"{middle} ({low} to {high})"
    if type(value) is float:
        return f"{value:.6g}"
    return f"{value:,}" if type(value) is int else str(value)


def machine() -> dict[str, Any]:
    """Where and with what these numbers were measured."""
    memory = psutil.virtual_memory().total
    return {
        "command": shlex.join(["python", *(_without_place(word) for word in sys.argv)]),
        "date": time.strftime("%Y-%m-%d"),
        "cpu": _cpu(),
        "cores": CORES,
        "memory": f"{memory / 2**30:.0f} GiB",
        "python": platform.python_version(),
        "commit": _commit(),
        **{name: _version(name) for name in (*PACKAGES, *PEERS)},
        "OPENBLAS_CORETYPE": os.environ.get("OPENBLAS_CORETYPE", "not set"),
    }


def _without_place(word: str) -> str:
    """A path as its name: where the folder of data lies matters to nobody else."""
    return Path(word).name if Path(word).is_absolute() else word


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Of the checkout that this file is in, `+` if something in it has changed since."""
    words = ["git", "-C", str(HERE), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
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
        self._out, self._machine, self._tables = out, machine(), list[Table]()
        print(self._head(), flush=True)

    def add(self, tables: Sequence[Table]) -> None:
        for table in tables:
            print(table.markdown(), flush=True)
        self._tables += tables
        if self._out is not None:
            self._out.write_text(self._json() if self._out.suffix == ".json" else self._markdown())

    def _head(self) -> str:
        return f"{', '.join(f'{name} {value}' for name, value in self._machine.items())}\n"

    def _markdown(self) -> str:
        return "\n".join([self._head(), *(table.markdown() for table in self._tables)])

    def _json(self) -> str:
        return json.dumps({"machine": self._machine, "tables": self._tables}, default=vars, indent=1) + "\n"


def keep(path: Path, about: dict[str, Any], tables: Sequence[Table]) -> None:
    """Writes tables to a file of figures, each with its machine; those of other titles in it stay as they are.

    about: what `machine` said before anything was measured.
    """
    new = {table.title: {"machine": about, **vars(table)} for table in tables}
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    merged = [new.pop(table["title"], table) for table in old] + list(new.values())
    path.write_text(json.dumps(merged, default=vars, indent=1) + "\n", encoding="utf-8")


def kept(path: Path) -> list[dict[str, Any]]:
    """The tables that `keep` wrote, with Spread where several runs were measured."""
    return json.loads(path.read_text(encoding="utf-8"), object_hook=_spread)


def _spread(value: dict[str, Any]) -> Any:
    return Spread.of(value["values"]) if value.keys() == {"values"} else value
