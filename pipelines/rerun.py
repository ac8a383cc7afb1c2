"""Measures again what takes less than an hour, and puts it into the pages of the documentation.

    python pipelines/rerun.py --data DIR [--list] [--only NAME[,NAME...]] [--skip NAME[,NAME...]]

Each file of docs/figures names the command that made it. That command runs, and its figures replace those of the file
when it has ended well. If it fails, or takes longer than --limit-s, the file stays as it is, and the next one follows.
The cheapest come first, by the seconds that each took the last time, or should take. --list shows all and runs
nothing. Some are left to you, and run only if --only names them: what takes longer than the limit, and what needs
programs or rights that are missing here. Other commands than recipes never run.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import among
from figures import FIGURES, PAGES, refresh
from plots import redraw
from tables import HERE, Malformed, Measured, Seconds, Table, read, write

HOUR_S = 3_600.0
PEERS = ("sklearnex", "lightgbm")  # modules that --peer-python has to have
# files whose recipe takes them from its own interpreter
OWN = {"choice_sets": PEERS[1:], "covtype": (*PEERS, "liquidSVM")}
NAMESPACES = ("unshare", "nsenter", "ip", "mount", "chroot")


def last(path: Path) -> Measured:
    return read(path)[-1]


def words(typed: str, data: Path, peer_python: str = sys.executable) -> list[str]:
    """A command as it runs here: DIR is the folder of the data, PYTHON the interpreter of the peers."""
    here = {"DIR": str(data), "PYTHON": peer_python}
    _, script, *options = (here.get(word, word) for word in shlex.split(typed))
    return [sys.executable, str(HERE / Path(script).name), *options]


def lacking(name: str, run: Measured, peer_python: str) -> str | None:
    """What a recipe needs and this machine has not."""
    if "netns.py" in run.command:
        missing = [program for program in NAMESPACES if shutil.which(program) is None]
        return "needs root and network namespaces" if missing or os.geteuid() else None
    if "PYTHON" in run.command and not _imports(peer_python, PEERS):
        return f"needs --peer-python with {' and '.join(PEERS)}: pip install '.[bench]'"
    if not _imports(sys.executable, OWN.get(name, ())):
        return f"needs {' and '.join(OWN[name])}; its --help says how to install them"
    return None


def _imports(python: str, modules: Sequence[str]) -> bool:
    if not modules:
        return True
    found = f"from importlib.util import find_spec; assert all(map(find_spec, {list(modules)}))"
    return subprocess.run([python, "-c", found], stderr=subprocess.DEVNULL, check=False).returncode == 0


def left(name: str, run: Measured, limit_s: float, peer_python: str) -> str | None:
    """Why a recipe is left to people, if it is."""
    if (run.seconds or 0) >= limit_s:
        return f"takes longer than {Seconds(limit_s)}"
    return lacking(name, run, peer_python)


def rerun(path: Path, argv: Sequence[str], limit_s: float | None) -> tuple[float, str]:
    """Runs the command of a file and replaces the file. Returns the seconds that it took, and what happened."""
    with tempfile.TemporaryDirectory(prefix="streamsvm-rerun-", ignore_cleanup_errors=True) as scratch:
        new, start = Path(scratch) / path.name, time.monotonic()
        ended = _ended([*argv, "--out", str(new)], limit_s, Path(scratch))
        took = round(time.monotonic() - start, 1)
        if ended is None:
            write(path, [*read(path)[:-1], replace(last(path), seconds=took)])
            return took, "stopped; its figures are the old ones"
        try:
            runs = read(new) if new.exists() else []
        except Malformed:
            runs = []
        unmet = [what for run in runs for table in run.tables for what, met in table.checks if not met]
        if ended or not runs:
            why = f" ({'; '.join(unmet)})" if unmet else ""
            what = f"failed with exit status {ended}{why}" if ended else "wrote no figures"
            return took, f"{what}; its figures are the old ones"
        _replace(path, [*runs[:-1], replace(runs[-1], seconds=took)])
        return took, f"measured; not met: {'; '.join(unmet)}" if unmet else "measured"


def _replace(path: Path, runs: Sequence[Measured]) -> None:
    """At once, so that an interruption leaves a whole file."""
    part = path.with_suffix(".part")
    write(part, runs)
    part.replace(path)


def _ended(argv: Sequence[str], limit_s: float | None, scratch: Path) -> int | None:
    """The exit status of a command, or None if it had to be stopped, with all that it started."""
    env = os.environ | {"TMPDIR": str(scratch)}
    child = subprocess.Popen(argv, cwd=scratch, env=env, start_new_session=True)
    try:
        return child.wait(limit_s)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.returncode is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def listed(recipes: dict[str, Measured], reasons: dict[str, str | None]) -> Table:
    rows = [
        {
            "name": name,
            "seconds": None if run.seconds is None else Seconds(run.seconds),
            "figures": run.date,
            "left to you": reasons[name],
            "command": f"`{run.command}`",
        }
        for name, run in recipes.items()
    ]
    total = Seconds(sum(run.seconds or 0 for name, run in recipes.items() if reasons[name] is None))
    return Table("Recipes", rows, [f"all that are not left to you: {total}"])


def measured_again(chosen: dict[str, Measured], args: argparse.Namespace, reasons: dict[str, str | None]) -> Table:
    """Runs recipes one after the other, and refreshes the pages after each."""
    rows: list[dict[str, Any]] = []
    for number, (name, run) in enumerate(chosen.items(), 1):
        if not args.only and reasons[name] is not None:
            rows.append({"name": name, "seconds": None, "outcome": f"left to you: {reasons[name]}"})
            continue
        about = "" if run.seconds is None else f", about {Seconds(run.seconds)}"
        print(f"\n{number} of {len(chosen)}: {name}{about}: {run.command}\n", flush=True)
        argv = words(run.command, args.data.absolute(), args.peer_python)
        limit_s = args.limit_s if reasons[name] is None else None
        took, outcome = rerun(FIGURES / f"{name}.json", argv, limit_s)
        print(f"{name}: {Seconds(took)}, {outcome}", flush=True)
        rows.append({"name": name, "seconds": Seconds(took), "outcome": outcome})
        try:
            refresh(PAGES)
            redraw()
        except Malformed as error:  # a page expects a table that the recipe no longer makes
            rows[-1]["outcome"] = f"{outcome}; the pages show the old ones: {error}"
    return Table("Measured again", rows)


def in_order() -> dict[str, Measured]:
    """The last run of each file that a recipe made, the cheapest first."""
    found = {path.stem: last(path) for path in sorted(FIGURES.glob("*.json"))}
    recipes = {name: run for name, run in found.items() if run.command.startswith("python pipelines/")}
    return dict(sorted(recipes.items(), key=lambda pair: pair[1].seconds or 0.0))


def _arguments(recipes: dict[str, Measured]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = {"type": among(recipes), "default": [], "metavar": "NAME[,NAME...]"}
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data", metavar="DIR")
    parser.add_argument("--only", **names, help="these, however long they take")
    parser.add_argument("--skip", **names, help="all but these")
    parser.add_argument("--list", action="store_true", help="print seconds and command of each")
    parser.add_argument("--peer-python", default=sys.executable, metavar="PYTHON", help="has the peers")
    parser.add_argument("--limit-s", type=float, default=HOUR_S, metavar="SECONDS", help="the default is an hour")
    return parser.parse_args()


def main() -> None:
    try:
        recipes = in_order()
    except Malformed as error:
        sys.exit(f"rerun.py: {error}")
    args = _arguments(recipes)
    chosen = {name: run for name, run in recipes.items() if name in (args.only or recipes) and name not in args.skip}
    reasons = {name: left(name, run, args.limit_s, args.peer_python) for name, run in chosen.items()}
    if args.list:
        print(listed(chosen, reasons).markdown())
        return
    done = measured_again(chosen, args, reasons)
    print(f"\n{done.markdown()}")
    sys.exit(any("old ones" in row["outcome"] for row in done.rows))


if __name__ == "__main__":
    main()
