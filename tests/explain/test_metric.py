"""Models whose scaling has a metric: what is left out counts for nothing, what is mixed is not told as columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from explain.made import MEAN, METRICS, SPREAD, SUMS, animals, under_metric
from explain.test_shapley import by_subsets, decision
from making import write

from streamsvm import DCSVC
from streamsvm.cli.app import app, exit_status
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.explain.decisions import answered, decisions, gradients
from streamsvm.explain.importances import importances, importances_table, support_rows
from streamsvm.explain.rows import explain_rows, rows_tables
from streamsvm.explain.shapley import shapley_values
from streamsvm.models.files import save_model

ROWS = Rows((np.random.default_rng(7).normal(size=(9, 4)) * SPREAD + MEAN).astype(np.float32))
KERNELS = [kind for kind in SUMS if kind != "cutting-plane"]


def decided(model, X):
    """(m,) what decides about raw rows of float64, their classes those of `ROWS`."""
    scaling, out = model.header.scaling, np.empty(len(X))
    scaled = (X - scaling.offset) * scaling.scale @ scaling.metric.matrix
    for here, g in decisions(model, ROWS, answered(model, ROWS)[1]):
        out[here] = g.values(Rows(scaled[here]))
    return out


@pytest.mark.filterwarnings("ignore:dcsvm.clustering=kernel. gamma")  # for these rows
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", SUMS)
def test_gradients_are_those_of_finite_differences(kind, metric):
    model, X = under_metric(kind, 3, metric), ROWS.X.astype(np.float64)
    found = gradients(model, ROWS)
    for f, h in enumerate(1e-5 * SPREAD):
        step = h * np.eye(4)[f]
        expected = (decided(model, X + step) - decided(model, X - step)) / (2 * h)
        np.testing.assert_allclose(found[:, f] * SPREAD[f], expected * SPREAD[f], atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", ["dcsvm", "dcsvm early", "cutting-plane"])
def test_importances_without_rows_are_the_metrics_own(kind, metric):
    model = under_metric(kind, 2, metric)
    found = importances(model)
    assert found.source == importances_table(model, None)["importances_from"] == "metric"
    np.testing.assert_array_equal(found.values, METRICS[metric].importances)
    svm = DCSVC()
    svm.model_ = model
    np.testing.assert_array_equal(svm.feature_importances_, found.values)
    over = importances(model, Store.from_arrays(animals(2)[0]))
    assert over.source == "300 rows"
    assert over.values.sum() == pytest.approx(1)
    assert (over.values[3] == 0) == (metric == "diagonal")


@pytest.mark.filterwarnings("ignore:dcsvm.clustering=kernel. gamma")  # for these rows
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("kind", KERNELS)
def test_support_vectors_show_the_columns_that_can_be_told(kind, metric):
    (X, _), model = animals(3), under_metric(kind, 3, metric)
    (row,) = explain_rows(model, Store.from_arrays(X), np.array([5]), SPREAD)
    for vector in row.weightiest + row.nearest:
        if metric == "full":
            assert vector.values is None
            continue
        assert np.isnan(vector.values).tolist() == [False, False, False, True]
        if vector.id is not None:
            np.testing.assert_allclose(vector.values[:3], X[vector.id, :3], rtol=1e-4, atol=1e-4)


def test_tables_say_null_of_what_is_not_known():
    (X, _), model = animals(2), under_metric("dcsvm", 2, "diagonal")
    (row,) = rows_tables(model, Store.from_arrays(X), [5], shapley=True, support=1)
    assert row["features"][-1] == {
        "feature": "3",
        "value": X[5, 3],
        "gradient": 0.0,
        "effect": 0.0,
        "shapley": 0.0,
        "shapley_error": None,
    }
    assert row["support_by_weight"][0]["values"]["3"] is None
    assert row["support_by_weight"][0]["values"]["0"] is not None
    (row,) = rows_tables(under_metric("dcsvm", 2, "full"), Store.from_arrays(X), [5], shapley=False, support=1)
    assert row["support_by_weight"][0]["values"] is None


@pytest.mark.parametrize("metric", METRICS)
def test_raw_support_rows_are_not_made_up(metric):
    with pytest.raises(ModelError, match="metric leaves out or mixes columns.*give rows to explain, with --store"):
        support_rows(under_metric("dcsvm", 2, metric))


@pytest.mark.parametrize("factor", [[1.0, 0.0, 2.0, 0.5, 0.0, 1.5], [0.0, 0.7, 0.0], [0.3], [2.0, 1.0]], ids=str)
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_shapley_values_are_the_mean_gains_over_all_subsets_of_raw_columns(kernel, factor):
    """Those left out are players of the game, too, and gain nothing."""
    metric = Metric(np.array(factor))
    scaling = Scaling("standard", np.linspace(-1, 1, metric.d), np.linspace(0.5, 2, metric.d), metric)
    every = decision(kernel, 6, metric.d)
    raw = Rows(np.random.default_rng(3).normal(size=(1, metric.d)))
    weighed = Rows((raw.X - scaling.offset) * scaling.scale * metric.factor)  # all columns, some of them 0
    expected = by_subsets(replace(every, support=Rows(every.support.X * metric.factor)), weighed)
    own = replace(every, scaling=scaling, support=metric.of_rows(every.support))
    found, base, _ = shapley_values(own, Rows(weighed.X[:, metric.columns]))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
    assert (found[metric.factor == 0] == 0).all()
    assert base + found.sum() == pytest.approx(own.values(Rows(weighed.X[:, metric.columns]))[0], abs=1e-9)


def test_shapley_values_of_a_model_add_up_to_its_decision():
    X, _ = animals(3)
    told = explain_rows(under_metric("dcsvm", 3, "diagonal"), Store.from_arrays(X), np.arange(4), SPREAD, shapley=True)
    for row in told:
        assert row.base + row.shapley.sum() == pytest.approx(row.decision, abs=1e-9)
        assert row.shapley[3] == 0
        assert all(a >= b for a, b in pairwise(np.abs(row.shapley[row.order()])))


def run(*words):
    return exit_status(lambda: app(["explain", *map(str, words)], standalone_mode=False))


@pytest.mark.parametrize("metric", METRICS)
def test_the_command_line(tmp_path, capfd, metric):
    save_model(under_metric("dcsvm", 2, metric), tmp_path / "m")
    write(tmp_path / "s", Rows(animals(2)[0]))
    words = "--model", tmp_path / "m", "--store", tmp_path / "s", "--rows", 3
    assert run("--model", tmp_path / "m") == 0
    assert "from metric" in capfd.readouterr().out
    assert run(*words) == 0
    lines = capfd.readouterr().out.splitlines()
    heading = next(line for line in lines if "contribution" in line).split()
    assert sorted(heading[heading.index("distance") + 1 :]) == (["0", "1", "2"] if metric == "diagonal" else [])
    assert run(*words, "--shapley") == (0 if metric == "diagonal" else 2)
    out, err = capfd.readouterr()
    if metric == "full":
        line = "error: the model's metric is full: its kernel sees mixed columns, and Shapley values are of single ones"
        assert err.startswith(line)
        assert (out, err.count("\n")) == ("", 1)
