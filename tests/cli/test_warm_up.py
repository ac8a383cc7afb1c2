"""`warm-up`: what it compiles is there for the commands that follow."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from sklearn.datasets import load_breast_cancer

from streamsvm.cli import warm_up
from streamsvm.cli.app import app, exit_status
from streamsvm.kernels import leaves, row_cache
from streamsvm.solvers.catalogue import SOLVERS


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
    assert capfd.readouterr().err.startswith("error: found solver 'smo', expected one of dcsvm, bsgd, ")


@pytest.mark.parametrize(("solver", "kept"), [("bsgd", set()), ("dcsvm", {"leaves", "row_cache"})])
def test_products_of_large_fits_belong_to_the_default_solver(solver, kept, monkeypatch, capfd):
    """Small fits make none, so that a large one would compile them."""
    seen = set()
    for module, name in ((leaves, "_near"), (row_cache, "_store"), (row_cache, "_compact")):
        called = getattr(module, name)
        where = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, name, lambda *args, f=called, where=where: seen.add(where) or f(*args))
    monkeypatch.setattr(warm_up, "_fits", lambda solvers: iter(()))
    app(["warm-up", "--solver", solver], standalone_mode=False)
    assert seen == kept


def test_searches_take_one_step():
    """The others compile nothing."""
    searched = [config for config, _ in warm_up._fits(list(SOLVERS)) if len(config.search.chosen) > 1]
    assert len(searched) >= len(SOLVERS)
    assert all(config.search.trials == 1 for config in searched)
