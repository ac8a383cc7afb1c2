"""The command as a process: exit statuses, one line for every error, nothing but JSON where JSON was asked for."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer
from every_case import every_case

from streamsvm import __version__
from streamsvm.cli import app as app_module
from streamsvm.cli.app import exit_status, importing
from streamsvm.cli.output import FIRST
from streamsvm.errors import DataError, MemoryLimitError


def streamsvm(*args, **more):
    command = [sys.executable, "-m", "streamsvm", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def test_version_and_help():
    assert streamsvm("--version").stdout == f"streamsvm {__version__}\n"
    run = streamsvm("--help")
    assert run.returncode == 0
    for command in app_module.COMMANDS:
        assert f" {command} " in run.stdout


def test_the_list_says_what_the_command_says():
    told = {name: app_module.command(name).help.split("\n\n")[0] for name in app_module.COMMANDS}
    assert told == app_module.COMMANDS


def test_help_needs_no_configuration():
    asked = "import sys; from streamsvm.cli.app import app; app(['--help'], standalone_mode=False)"
    asked += "; assert 'pydantic' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert "calibrate" in run.stdout


def test_a_shell_completes_commands():
    asked = {"_STREAMSVM_COMPLETE": "complete_bash", "COMP_WORDS": "streamsvm pre", "COMP_CWORD": "1"}
    assert streamsvm(env=os.environ | asked).stdout.split() == ["predict"]


@every_case(
    ("args", "message"),
    [
        (["fti"], "No such command 'fti'. Did you mean 'fit'? (see streamsvm --help)"),
        (["predict"], "Missing option '--model' (see streamsvm predict --help)"),
        (
            ["export", "--model", "m", "--format", "libsvm", "--out", "s3://bucket/m.svm"],
            "--out: found a URL, expected a local path; copy the file to or from this machine",
        ),
        (
            ["fit", "--store", "s", "--model", "m", "--resume"],
            "--resume needs the --run-dir of the interrupted run",
        ),
        (
            ["fit", "--store", "s", "--model", "m", "--gama", "1"],
            "No such option: --gama",
        ),
        (["fit", "x.csv", "--label", "y", "--split", "0.8"], "No such option: --split (it is one of streamsvm ingest)"),
        (
            ["fit", "--store", "s", "--model", "m", "--gamma", "-1"],
            "--gamma: found -1, expected a number above 0, 'scale' or 'auto'",
        ),
        (
            ["fit", "--store", "s", "--model", "m", "--set", "dcsvm.levls=2"],
            "--set dcsvm.levls=2: dcsvm.levls: unknown option; did you mean dcsvm.levels?",
        ),
        (
            ["fit", "--store", "s", "--model", "m", "--config", "none.toml"],
            "none.toml: no such configuration file",
        ),
        (["fit", "--store", "no.zarr", "--model", "m"], "no.zarr does not exist; expected a zarr store"),
        (["info", "no.zarr"], "no.zarr does not exist; expected a zarr store"),
        (
            ["demo", "--rows", "1"],
            "Invalid value for '--rows': ",
        ),
        (
            ["demo", "--rows", "many"],
            "Invalid value for '--rows': expected a valid integer (see streamsvm demo --help)",
        ),
        (
            ["stream", "--model", "m", "--format", "xml"],
            "Invalid value for '--format': 'xml' is not one of 'json', 'csv' (see streamsvm stream --help)",
        ),
        (
            ["fit", "--store", "s", "--early", "true"],
            "--early is a switch, found --early true; give it alone (see streamsvm fit --help)",
        ),
        (
            ["fit", "--store", "s", "--early", "False"],
            "--early is a switch, found --early False; leave it out (see streamsvm fit --help)",
        ),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(tmp_path, monkeypatch, capsys, args, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["streamsvm", *args])
    monkeypatch.setattr(gc, "freeze", lambda: None)  # for this process goes on
    monkeypatch.setattr(app_module, "own_process", lambda: None)
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_so_is_it_of_a_process(tmp_path):
    run = streamsvm("info", "no.zarr", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "error: no.zarr does not exist; expected a zarr store\n"


def raising(error):
    def run():
        raise error

    return run


@every_case(
    ("error", "line"),
    [
        (DataError("row 3: found 'x',\n expected a number"), "error: row 3: found 'x', expected a number"),
        (MemoryLimitError("at least 1 GiB works"), "error: at least 1 GiB works"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/disk/f"),
            "error: /disk/f: No space left on device",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "error: input or output: No space left on device"),
        (MemoryError("8 GiB"), "error: out of memory: 8 GiB; give a --memory-limit below the free memory"),
    ],
)
def test_errors_on_the_way_are_one_line(capsys, error, line):
    assert exit_status(raising(error)) == 2
    assert capsys.readouterr() == ("", line + "\n")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interrupt_is_said_and_130(capsys, error):
    assert exit_status(raising(error)) == 130
    assert capsys.readouterr().err == "interrupted; no half-written files were left\n"


def test_our_own_mistakes_are_not_hidden():
    with pytest.raises(ZeroDivisionError):
        exit_status(lambda: 1 / 0)


def test_a_reader_that_goes_away_is_no_error():
    command = f"{sys.executable} -m streamsvm --help | true; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in run.stderr
    assert run.stderr == ""


SLOW = """
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from streamsvm.cli import app
import streamsvm.demo
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
pool = ThreadPoolExecutor()
def run_demo(*args, **options):
    task = pool.submit(time.sleep, 60)
    print("running", flush=True)
    task.result()
streamsvm.demo.run_demo = run_demo
app.main()
"""


def test_ctrl_c_ends_cleanly_and_at_once(tmp_path):
    command = [sys.executable, "-c", SLOW, "demo"]
    env = os.environ | {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    assert process.stdout.readline() == "running\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 30  # half of what the task sleeps: the machine may be busy
    assert err == f"{FIRST}\ninterrupted; no half-written files were left\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_main_exits_with_the_status(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["streamsvm", "--version"])
    monkeypatch.setattr(gc, "freeze", lambda: None)  # for this process goes on
    monkeypatch.setattr(app_module, "own_process", lambda: None)
    with pytest.raises(SystemExit) as caught:
        app_module.main()
    assert caught.value.code == 0


def test_seconds_and_memory_are_of_the_whole_process():
    code = (
        "import json, time; time.sleep(0.5); from streamsvm.runs.phases import usage_so_far; "
        "print(json.dumps(usage_so_far()))"
    )
    # from a shell: the peak of a process starts with that of the one it is a copy of, and this one may be large
    small = ["bash", "-c", '"$@"; exit $?', "-", sys.executable, "-c", code]
    start = time.perf_counter()
    usage = json.loads(subprocess.run(small, capture_output=True, text=True, check=True).stdout)
    assert 0.5 <= usage["seconds"] <= time.perf_counter() - start + 0.02  # the start is known to 0.01 s
    assert 5 << 20 < usage["peak_rss_bytes"] < 1 << 30


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_is_looked_for_after_imports_as_before(collects, monkeypatch):
    monkeypatch.setattr(gc, "isenabled", lambda: collects)
    switched = []
    monkeypatch.setattr(gc, "disable", lambda: switched.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: switched.append("on"))
    with pytest.raises(ImportError), importing():
        raise ImportError
    assert switched == (["off", "on"] if collects else ["off"])
