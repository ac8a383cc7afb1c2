"""From a file to scores by the command line alone, as a user would."""

from __future__ import annotations

import json

import numpy as np
import pytest

from streamsvm import load_model
from streamsvm.cli.app import app, exit_status

pytestmark = pytest.mark.lowest


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three noisy rings as CSV, split into two stores, and an exact and an early model."""
    folder = tmp_path_factory.mktemp("job")
    rng = np.random.default_rng(12345)
    ring = rng.integers(3, size=3000)
    angle, radius = rng.uniform(0, 2 * np.pi, 3000), 1 + ring + rng.normal(0, 0.15, 3000)
    table = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), ring])
    np.savetxt(folder / "rings.csv", table, delimiter=",", header="x,y,ring", comments="", fmt=["%.6f", "%.6f", "%d"])
    split = ("--split", 0.8, "--test-store", folder / "test.zarr")
    assert run("ingest", folder / "rings.csv", "--store", folder / "train.zarr", *split) == 0
    train = ("fit", "--store", folder / "train.zarr", "--scale", "minmax", "--no-search")
    svm = ("--C", 10, "--gamma", 20)
    assert run(*train, *svm, "--model", folder / "exact.zarr") == 0
    two_levels = (*svm, "--set", "dcsvm.levels=1", "--memory-limit", "8GiB")
    assert run(*train, "--early", *two_levels, "--model", folder / "early.zarr") == 0
    return folder


@pytest.mark.parametrize("model", ["exact.zarr", "early.zarr"])
def test_the_rings_are_learned(folder, capfd, model):
    assert run("evaluate", "--model", folder / model, "--store", folder / "test.zarr", "--json") == 0
    result = json.loads(capfd.readouterr().out)
    assert result["accuracy"] > 0.97
    assert result["n"] == sum(map(sum, result["confusion"]))
    assert result["classes"] == [0, 1, 2]


@pytest.mark.parametrize("model", ["exact.zarr", "early.zarr"])
def test_predictions_are_the_models(folder, tmp_path, model):
    from streamsvm import Store

    assert run("predict", "--model", folder / model, "--store", folder / "test.zarr", "--out", tmp_path / "p.npy") == 0
    store = Store.open(folder / "test.zarr")
    assert np.array_equal(np.load(tmp_path / "p.npy"), load_model(folder / model).predict(store.read(0, store.n)))


def test_the_report_has_what_it_promises(folder, tmp_path, capfd):
    args = (
        "--store",
        folder / "train.zarr",
        "--model",
        tmp_path / "m",
        "--positive",
        "0,2",
        "--scale",
        "standard",
        "--no-search",
    )
    assert run("fit", *args, "--json") == 0
    report = json.loads(capfd.readouterr().out)
    promised = "solver n d n_support objective gap seconds seconds_by_phase peak_rss_bytes model".split()
    assert set(promised) <= set(report)
    assert (report["n"], report["d"], report["model"]) == (2400, 2, str(tmp_path / "m"))
    assert run("evaluate", "--model", tmp_path / "m", "--store", folder / "test.zarr", "--json") == 0
    result = json.loads(capfd.readouterr().out)
    assert len(result["classes"]) == 2
    assert 0.9 < result["roc_auc"] <= 1


def test_a_models_configuration_repeats_the_fit_bit_by_bit(folder, tmp_path):
    again = ("--config", folder / "exact.zarr", "--model", tmp_path / "again.zarr")
    assert run("fit", "--store", folder / "train.zarr", *again) == 0
    first, second = load_model(folder / "exact.zarr"), load_model(tmp_path / "again.zarr")
    assert first.header.config == second.header.config
    X = np.random.default_rng(1).normal(size=(50, 2)).astype(np.float32)
    from streamsvm.data.rows import Rows

    assert first.decision_function(Rows(X)).tobytes() == second.decision_function(Rows(X)).tobytes()


def test_a_dry_run_trains_nothing(folder, tmp_path, capfd):
    assert run("fit", "--store", folder / "train.zarr", "--no-search", "--dry-run", "--json") == 0
    assert json.loads(capfd.readouterr().out)["n"] == 2400
    assert list(tmp_path.iterdir()) == []


def test_the_run_directory_tells_what_happened_level_by_level(folder, tmp_path):
    where = ("--store", folder / "train.zarr", "--model", tmp_path / "m", "--run-dir", tmp_path / "run")
    assert run("fit", *where, "--no-search", "--scale", "minmax", "--set", "dcsvm.levels=2") == 0
    records = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    levels = [record for record in records if record["event"] == "level"]
    assert [record["level"] for record in levels] == [2, 1]
    assert all(record["n_support"] > 0 for record in levels)


def test_other_columns_are_one_line(folder, tmp_path, capfd):
    (tmp_path / "wide.csv").write_text("a,b,c,ring\n1,2,3,0\n4,5,6,1\n")
    assert run("ingest", tmp_path / "wide.csv", "--store", tmp_path / "wide") == 0
    capfd.readouterr()
    assert run("evaluate", "--model", folder / "exact.zarr", "--store", tmp_path / "wide") == 2
    assert "has 3 columns, the model was trained on 2" in capfd.readouterr().err
