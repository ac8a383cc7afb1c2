"""`fit --solver admm-hss` from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamsvm.cli.app import app, exit_status
from streamsvm.errors import StorageError


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    np.savetxt(tmp_path / "rows.csv", np.column_stack([X.round(3), y]), "%s", ",")
    options = ("--no-header", "--label", "last", "--split", 0.8, "--test-store", tmp_path / "t.zarr")
    assert run("ingest", tmp_path / "rows.csv", "--store", tmp_path / "s.zarr", *options) == 0
    return tmp_path / "s.zarr"


def fit(store, *more):
    model = store.parent / "m.zarr"
    return run("fit", "--no-search", "--store", store, "--model", model, "--solver", "admm-hss", *more), model


def test_trained_evaluated_and_repeated(store, capfd):
    capfd.readouterr()
    status, model = fit(store, "--C", 10, "--gamma", 1, "--json")
    assert status == 0
    report = json.loads(capfd.readouterr().out)
    assert report["solver"] == "admm-hss"
    assert {"n", "d", "n_support", "objective", "gap", "seconds", "peak_rss_bytes", "model"} <= set(report)
    assert run("evaluate", "--model", model, "--store", store.parent / "t.zarr", "--json") == 0
    scored = json.loads(capfd.readouterr().out)
    assert scored["accuracy"] > 0.9
    again = store.parent / "again.zarr"
    assert run("fit", "--store", store, "--model", again, "--config", model, "--json") == 0
    assert json.loads(capfd.readouterr().out)["objective"] == report["objective"]


def test_wrong_options_are_one_line(store, capfd):
    for option, message in (
        ("hss.rtol=2", "hss.rtol: found 2, expected"),
        ("hss.beta=fast", "admm_hss.beta: found 'fast'"),
        ("hss.ranks=3", "unknown option; did you mean admm_hss.max_rank"),
        ("hss.max_rank=0", "hss.max_rank: found 0, expected a number at least 1"),
    ):
        capfd.readouterr()
        status, model = fit(store, "--set", option)
        error = capfd.readouterr().err
        assert status == 2
        assert message in error
        assert not model.exists()


def test_a_saved_factorisation_is_no_model(store, capfd):
    run_dir = store.parent / "run"
    assert fit(store, "--gamma", 1, "--run-dir", run_dir)[0] == 0
    capfd.readouterr()
    assert run("predict", "--model", run_dir / "factor.zarr", "--store", store, "--out", "p.csv") == 2
    assert "found a model of kind 'hss', supported are kernel" in capfd.readouterr().err


def test_a_factorisation_that_has_no_room_ends_no_run(store, capfd, monkeypatch):
    def full(model, path):
        raise StorageError(f"writing {path} failed: No space left on device; nothing was kept")

    monkeypatch.setattr("streamsvm.fits.admm_hss.save_model", full)
    status, model = fit(store, "--gamma", 1, "--run-dir", store.parent / "run")
    assert status == 0
    assert "factor.zarr failed: No space left on device" in capfd.readouterr().err
    assert model.exists()


def test_many_classes_and_weights(tmp_path):
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    assert run("ingest", tmp_path / "X.npy", "--labels", tmp_path / "y.npy", "--store", tmp_path / "d.zarr") == 0
    model = tmp_path / "m.zarr"
    options = ("--solver", "admm-hss", "--scale", "minmax", "--class-weight", "balanced")
    assert run("fit", "--no-search", "--store", tmp_path / "d.zarr", "--model", model, *options) == 0
    assert run("evaluate", "--model", model, "--store", tmp_path / "d.zarr") == 0
