"""Measures again what takes less than an hour, and puts it into docs/measured.md.

    python pipelines/rerun.py --data DIR [--only NAME[,NAME...]] [--list]

Each file of docs/figures names the command that made it. That command runs, and its figures replace those of the file
when it has ended well: nothing changes where it fails, or takes longer than --limit-s. --list prints the seconds that
each took the last time (? where nobody noted them), and runs nothing. Other commands than recipes are left to you.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench import among
from figures import FIGURES, PAGE, refreshed
from tables import HERE, Malformed, read, write

HOUR_S = 3_600.0


def command(path: Path) -> str:
    """What made the last run of a file of figures."""
    return read(path)[-1].command


def seconds(path: Path) -> float | None:
    return read(path)[-1].seconds


def words(typed: str, data: Path) -> list[str]:
    """A command as it runs here: DIR is the folder of the data, PYTHON this interpreter."""
    here = {"DIR": str(data), "PYTHON": sys.executable}
    _, script, *options = (here.get(word, word) for word in shlex.split(typed))
    return [sys.executable, str(HERE / Path(script).name), *options]


def rerun(path: Path, data: Path, limit_s: float) -> str:
    """Runs the command of a file and replaces the file. Returns what happened, in words."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".rerun-") as folder:
        new, start = Path(folder) / path.name, time.monotonic()
        ended = _ended([*words(command(path), data), "--out", str(new)], limit_s)
        took = round(time.monotonic() - start, 1)
        if ended is None:
            *others, last = read(path)
            write(path, [*others, replace(last, seconds=took)])
            return f"stopped after {took} s; its figures are the old ones"
        if ended or not new.exists():
            return f"failed with exit status {ended}; its figures are the old ones"
        *others, last = read(new)
        write(new, [*others, replace(last, seconds=took)])
        new.replace(path)
        return f"{took} s"


def _ended(argv: Sequence[str], limit_s: float) -> int | None:
    """The exit status of a command, or None if it had to be stopped, with all that it started."""
    child = subprocess.Popen(argv, start_new_session=True)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def main() -> None:
    there = {path.stem: path for path in sorted(FIGURES.glob("*.json")) if _is_recipe(path)}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data", metavar="DIR")
    parser.add_argument(
        "--only", type=among(there), metavar="NAME[,NAME...]", help="these, however long they take"
    )
    parser.add_argument("--list", action="store_true", help="print seconds and command of each")
    parser.add_argument(
        "--limit-s", type=float, default=HOUR_S, metavar="SECONDS", help="the default is an hour"
    )
    args = parser.parse_args()
    chosen = args.only or [name for name, path in there.items() if (seconds(path) or 0) < args.limit_s]
    if args.list:
        for name, path in there.items():
            took = seconds(path)
            print(f"{name:24} {'?' if took is None else f'{took:.0f} s':>8}  {command(path)}")
        return
    failed = False
    for name in chosen:
        said = rerun(there[name], args.data.absolute(), args.limit_s)
        failed |= "old" in said
        print(f"{name}: {said}", flush=True)
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.exit(int(failed))


def _is_recipe(path: Path) -> bool:
    try:
        return command(path).startswith("python pipelines/")
    except Malformed as error:
        sys.exit(f"rerun.py: {error}")


if __name__ == "__main__":
    main()
