"""A solver that is registered from one file (toy_solver.py) is everywhere: nothing else was touched for it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from contracts.toys import HERE, KILLED, PATHS, Toy

TOY = Toy("toy_solver")
NAME = ("--solver", "toy-descent", "--gamma", "0.5", "--C", "5")


@pytest.mark.slow  # processes, which import a solver of others
def test_the_command_line_and_its_help_know_it(store):
    help_text = "".join(TOY.command("fit", "--help").stdout.split())  # lines are broken at hyphens, too
    assert "alfpgm,toy-descent--task" in help_text
    refused = {
        "'alfpgm' or 'toy-descent'": ["--solver", "toy"],
        "toy_descent.steps is read by solver toy-descent only, found solver dcsvm": [
            "--set",
            "toy_descent.steps=3",
        ],
        "unknown option; did you mean toy_descent.steps?": [*NAME, "--set", "toy_descent.stepps=3"],
        "toy_descent.steps: found 0, expected a number at least 1": [*NAME, "--set", "toy_descent.steps=0"],
    }
    told = TOY.commands(*(["fit", "--store", store, *more] for more in refused.values()), status=2)
    assert [said in line for said, (_, line) in zip(refused, told, strict=True)] == [True] * len(refused)


@pytest.mark.slow  # processes, which import a solver of others
def test_it_is_planned_with_small_fits(store):
    plan = json.loads(
        TOY.command(
            "fit",
            "--no-search",
            "--store",
            store,
            *NAME,
            "--dry-run",
            "--pilot",
            "1",
            "--workers",
            "2",
            "--json",
        ).stdout
    )
    assert plan["matrix_bytes"] == 8 * 300**2
    assert plan["seconds_estimated_by_phase"]["descend"] > 0
    assert plan["network_bytes_estimated"] == 300 * 3 * 4


@pytest.mark.slow  # several processes of the command
def test_a_run_goes_on_is_reported_and_its_model_is_as_any(store, tmp_path):
    run, whole, model = (tmp_path / name for name in ("r", "whole", "m"))
    words = ("--store", store, *NAME, "--set", "checkpoint_every='1 step'", "--json")
    fit = ("fit", "--no-search", "--model", model, "--run-dir", run, *words)
    TOY.says(KILLED, *fit, status=130)
    (first, _), (resumed, _), _, (scored, _), *_ = TOY.commands(
        ["fit", "--no-search", "--model", whole, *words],
        [*fit, "--resume"],
        ["report", run, "--out", tmp_path / "r.html"],
        ["evaluate", "--model", model, "--store", store, "--json"],
        ["export", "--model", model, "--format", "libsvm", "--out", tmp_path / "m.svm"],
        ["fit", "--store", store, "--config", model, "--model", tmp_path / "again"],
    )
    said = json.loads(resumed)
    assert (said["converged"], said["objective"]) == (True, json.loads(first)["objective"])
    page = (tmp_path / "r.html").read_text()
    assert "toy_descent.steps" in page
    assert "dcsvm.children" not in page
    assert json.loads(scored)["accuracy"] > 0.8


@pytest.mark.slow  # several fits in a process of the command
def test_it_is_searched_over(store, tmp_path):
    (tmp_path / "t.toml").write_text(
        'solver = "toy-descent"\n[kernel]\ngamma = 0.5\n[tune]\nfolds = 2\n'
        "[tune.grid]\nC = [0.5, 5.0]\n[tune.grid.toy_descent]\nsteps = [50, 1000]\n"
    )
    words = ("tune", "--store", store, "--config", tmp_path / "t.toml", "--model", tmp_path / "m", "--json")
    found = json.loads(TOY.command(*words).stdout)
    assert {trial["toy_descent.steps"] for trial in found["results"]} == {50, 1000}
    assert found["best"]["score"] > 0.8


@pytest.mark.slow  # processes, which import a solver of others
def test_the_tables_of_the_documentation_have_it():
    tables = TOY.says("from tables import option_tables, solver_table\nprint(option_tables(), solver_table())").stdout
    assert "## toy_descent\n\nAccelerated projected gradients" in tables
    assert "| `toy_descent.steps` | whole number, at least 1 | `20000` | Most steps |" in tables
    assert "| `toy-descent` | `toy_descent` | classify | all that are definite | `ToySVC` |" in tables


@pytest.mark.slow  # a process, which imports a solver of others
def test_its_estimator_is_public():
    TOY.says("import streamsvm\nassert streamsvm.ToySVC is toy_solver.ToySVC\nassert 'ToySVC' in dir(streamsvm)")


@pytest.mark.slow  # the contracts of one more solver, in a process of pytest
def test_it_keeps_to_the_contracts():
    words = ["-q", "-p", "toy_solver", "-p", "no:cacheprovider", "-n", "0", "-k", "toy-descent", "-m", ""]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *words, HERE],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": PATHS},
        cwd=HERE.parents[1],
        timeout=280,
    )
    assert run.returncode == 0, run.stdout
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= 21


WRONG = {
    "already": "register('alfpgm', SolverRow('toy_solver:ToyFit', 'toy_solver:ToyConfig'))",
    "toy_solver:Toy' is not there": "register('new', SolverRow('toy_solver:Toy', 'toy_solver:ToyConfig'))",
    "has no plan and no solve": "register('new', SolverRow('streamsvm.fits.base:Fit', 'toy_solver:ToyConfig'))",
    "expected a SolverOptions": "register('new', SolverRow('toy_solver:ToyFit', 'toy_solver:State'))",
    "and a name that is not an option": "register('kernel', SolverRow('toy_solver:ToyFit', 'toy_solver:ToyConfig'))",
    "rules name wrong.shape": "register('wrong', SolverRow('toy_solver:ToyFit', '__main__:Wrong'))",
    "solver 'own': found options": "register('own', SolverRow('toy_solver:ToyFit', 'toy_solver:ToyConfig'))",
    "solver 'a b': found options": "register('a b', SolverRow('toy_solver:ToyFit', 'toy_solver:ToyConfig'))",
    "found 'tool' in reads": "register('new', SolverRow('toy_solver:ToyFit', 'toy_solver:ToyConfig', reads=('tool',)))",
}


def test_what_is_forgotten_is_an_error_where_it_is_registered():
    lines = [f"with pytest.raises(ConfigError, match={said!r}): {wrong}" for said, wrong in WRONG.items()]
    TOY.says(
        "\n".join(
            [
                "import pytest",
                "from streamsvm.errors import ConfigError",
                "from streamsvm.solvers.catalogue import SolverRow, register, solver_names",
                "from streamsvm.options.base import ReadRule, SolverOptions",
                "class Wrong(SolverOptions):",
                "    rules = (ReadRule('C', 'wrong of one shape', 'wrong.shape', bool),)",
                *lines,
                "assert solver_names()[-1] == 'toy-descent'",
            ]
        )
    )
