"""A fit that did not reach its tolerance: status 0, one warning, a model; and how it goes on with another tol."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from commands import run
from making import write

from streamsvm.data.rows import Rows

SOLVERS = {
    "dcsvm": ["--solver", "dcsvm"],
    "early": ["--solver", "dcsvm", "--early", "--set", "dcsvm.levels=1"],
    "alfpgm": ["--solver", "alfpgm"],
    "cutting-plane": ["--solver", "cutting-plane", "--kernel", "linear", "--set", "cutting_plane.passes=25"],
    "admm-hss": ["--solver", "admm-hss", "--set", "admm_hss.polish=500"],
}


@pytest.fixture
def store(tmp_path) -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=200), [-0.5, 0.5])
    return str(write(tmp_path / "rows.zarr", Rows(X.astype(np.float32)), y).url)


@pytest.fixture
def fitted(store, tmp_path, capsys) -> Callable[..., tuple[dict, str]]:
    def fit(name: str, *words: object) -> tuple[dict, str]:
        """The report, and what is on stderr."""
        where = ("--store", store, "--model", tmp_path / "m", "--run-dir", tmp_path / "run")
        assert run("fit", "--no-search", *where, "--json", *SOLVERS[name], *words) == 0
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    return fit


@pytest.mark.parametrize("name", SOLVERS)
def test_a_fit_that_cannot_reach_tol_ends_well_and_goes_on_to_another(name, fitted):
    first, warned = fitted(name, "--tol", "1e-30" if name != "cutting-plane" else "1e-12")
    assert first["converged"] is False
    assert warned.count("not converged") == 1
    later, warned = fitted(name, "--tol", "0.05", "--resume")
    assert later["converged"] is True
    assert "not converged" not in warned
    assert later["objective"] == pytest.approx(first["objective"], rel=1e-2)


@pytest.mark.parametrize("name", ["dcsvm", "early", "alfpgm"])
def test_a_finer_tol_goes_on_from_the_solution(name, fitted):
    rough, _ = fitted(name, "--tol", "0.5")
    assert rough["violation"] > 1e-4
    fine, _ = fitted(name, "--tol", "1e-4", "--resume")
    assert fine["converged"] is True
    assert fine["violation"] <= 1e-4
    whole, _ = fitted(name, "--tol", "1e-4", "--force")
    assert fine["objective"] == pytest.approx(whole["objective"], rel=1e-3)
