"""`warm-up`: what it compiles is there for the commands that follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sklearn.datasets import load_breast_cancer

from streamsvm.cli.app import app, exit_status


@pytest.mark.slow  # compiles in a cache of its own
def test_what_is_compiled_once_no_command_compiles_again(tmp_path):
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(*args: str) -> dict:
        command = [sys.executable, "-m", "streamsvm", *args, "--json"]
        return json.loads(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)

    first = run("warm-up", "--solver", "cutting-plane")
    assert first["folder"].startswith(str(tmp_path / "cache"))
    assert first["cpu_seconds"] > 0
    assert run("warm-up", "--solver", "cutting-plane")["cpu_seconds"] == 0
    load_breast_cancer(as_frame=True).frame.to_csv(tmp_path / "cancer.csv", index=False)
    source, model = str(tmp_path / "cancer.csv"), str(tmp_path / "model")
    fit = run("fit", source, "--solver", "cutting-plane", "--kernel", "linear", "--model", model)
    assert "compile" not in fit["seconds_by_phase"]


def test_an_unknown_solver_is_one_line(capfd):
    assert exit_status(lambda: app(["warm-up", "--solver", "smo"], standalone_mode=False)) == 2
    assert capfd.readouterr().err.startswith("error: --solver: found 'smo', expected one of dcsvm, bsgd, ")
