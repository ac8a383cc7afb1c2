"""The main commands as on another system: Python's Unix-only names are gone, and files obey Windows's rules.

    python tests/parallel/elsewhere.py FOLDER

What other packages need of their own build is loaded first. The rules: a folder opens as no file, a name holds none of
<>:"|?*, a file in use is neither replaced nor removed, and a rename replaces nothing. Prints each command's exit status
as JSON, one line each.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

LOADED = [import_module(name) for name in ("distributed", "numba", "psutil", "scipy.sparse", "sklearn.base", "zarr")]
MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES = (
    "O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC fork forkpty geteuid getloadavg getpgid getuid killpg nice "
    "posix_fadvise posix_fallocate pread preadv pwrite sched_getaffinity sched_setaffinity setsid "
    "statvfs sysconf wait3 wait4 waitid"
).split()
SIGNALS = "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 alarm pause setitimer".split()
REFUSED = re.compile(r'[<>:"|?*\x00-\x1f]|[ .]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)
TMPFILE = os.O_TMPFILE
IN_USE = "The process cannot access the file because it is being used by another process"


def take_away() -> None:
    for module in MODULES:
        sys.modules[module] = None  # type: ignore[assignment]
    for place, names in ((os, NAMES), (signal, SIGNALS)):
        for name in names:
            if hasattr(place, name):
                delattr(place, name)
    os.process_cpu_count = os.cpu_count  # where the one that there is from Python 3.13 on asks for the affinity
    shutil._use_fd_functions = False  # type: ignore[attr-defined]  # rmtree as it works without these
    os.rename = rename
    sys.addaudithook(as_on_windows)


def rename(old: Any, new: Any, **options: Any) -> None:
    if Path(new).exists():
        raise FileExistsError(17, "Cannot create a file when that file already exists", str(new))
    os.replace(old, new, **options)


def as_on_windows(event: str, args: tuple[Any, ...]) -> None:
    """Raises what Windows would; all file operations of Python are told here before they are done."""
    if event not in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
        return
    paths = [Path(os.fsdecode(path)) for path in args[:2] if isinstance(path, str | bytes | os.PathLike)]
    if event == "open":
        paths = [] if isinstance(args[0], int) else paths[:1]
        nameless = args[1] is not None or args[2] & TMPFILE == TMPFILE  # which Windows has in another way
        if paths and not nameless and paths[0].is_dir():
            raise PermissionError(13, "Permission denied", str(paths[0]))
    else:
        for path in paths[: 2 if event == "os.rename" else 1]:
            require_free(path)
    for path in paths:
        if REFUSED.search(path.name):
            raise OSError(22, "The filename, directory name, or volume label syntax is incorrect", str(path))


def require_free(path: Path) -> None:
    path = path.resolve()
    for link in os.scandir("/proc/self/fd"):
        try:
            held = Path(os.readlink(link.path))
        except OSError:
            continue
        if held == path or path in held.parents:
            raise PermissionError(13, IN_USE, str(path))


KINDS = ("csv", "npy", "zarr")
SEARCH = """
C = 1.0
[tune]
folds = 2
[tune.grid]
"kernel.gamma" = [0.5, 1.0]
"""


def table(path: Path) -> None:
    """Two classes whose names no code page of the West has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    names = np.where(X[:, 0] * X[:, 1] + X[:, 2] > 0, "猫", "naïve")
    lines = [f"{a:.5f},{b:.5f},{c:.5f},{name}" for (a, b, c), name in zip(X, names, strict=True)]
    path.write_text("\n".join(["höhe,b,c,y", *lines]) + "\n", encoding="utf-8")


def commands(folder: Path) -> list[list[Any]]:
    s, t, run, model = folder / "s.zarr", folder / "t.zarr", folder / "run", folder / "dcsvm.model"
    fit = ["fit", "--store", s, "--gamma", 0.5, "--C", 10, "--no-search"]
    small = ["--tol", 0.1, "--set", "checkpoint_every='1 steps'"]
    return [
        ["ingest", folder / "a.csv", "--store", s, "--label", "y", "--split", 0.7, "--test-store", t],
        ["info", s],
        ["info", s, "--json"],
        ["check", s],
        [*fit, *small, "--model", model, "--run-dir", run],
        [*fit, *small, "--model", folder / "again.model", "--run-dir", run, "--resume"],
        [*fit, "--solver", "bsgd", "--model", folder / "b.model", "--run-dir", folder / "b"],
        [*fit, "--solver", "alfpgm", "--model", folder / "a.model", "--run-dir", folder / "a"],
        [*fit, "--solver", "admm-hss", "--model", folder / "h.model", "--run-dir", folder / "h"],
        ["fit", "--store", s, "--solver", "cutting-plane", "--kernel", "linear", "--model", folder / "l"]
        + ["--no-search"],
        ["tune", "--store", s, "--config", folder / "search.toml", "--out", folder / "tried.csv"]
        + ["--run-dir", folder / "tried", "--model", folder / "best.model"],
        ["calibrate", "--model", model, "--store", t],
        *(["predict", "--model", model, "--store", t, "--out", folder / f"p.{kind}"] for kind in KINDS),
        ["evaluate", "--model", model, "--store", t],
        ["evaluate", "--model", model, "--store", t, "--json"],
        *[
            ["stream", "--model", folder / "st.model", "--input", folder / "a.csv", "--format", "csv"]
            + ["--snapshot-every", 100, "--run-dir", folder / "st"]
        ]
        * 2,
        ["report", run, "--out", folder / "report.html"],
        ["top", run, "--once"],
        ["export", "--model", model, "--format", "libsvm", "--out", folder / "model.svm"],
        ["demo", "--rows", 1000],
    ]


def status(words: list[str]) -> Any:
    """Of the command, with the output of a console, or into a file, of the West."""
    from streamsvm.cli.app import main

    sys.argv = ["streamsvm", *words]
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="cp1252")):
        try:
            main()
        except SystemExit as ended:
            return ended.code


def run_all() -> None:
    folder = Path(sys.argv[1])
    take_away()
    warnings.filterwarnings("error", category=EncodingWarning, module="streamsvm")
    warnings.filterwarnings("ignore", message="only soft file lock")
    from streamsvm.storage import atomic

    atomic.sys = SimpleNamespace(platform="win32")  # two names are not exchanged in one step
    table(folder / "a.csv")
    (folder / "search.toml").write_text(SEARCH, encoding="utf-8")
    for words in commands(folder):
        given = [*map(str, words)]
        sys.stdout.write(json.dumps({"status": status(given), "words": given}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    run_all()
