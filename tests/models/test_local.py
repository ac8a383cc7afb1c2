"""Parts with metrics of their own: decisions by their formula, files, derivatives by raw features, explanations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import reference
from exchange.made import local_model, raw_rows

from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.explain.decisions import answered, decisions, gradients
from streamsvm.explain.importances import importances
from streamsvm.models import LocalModel
from streamsvm.models.files import load_model, save_model

ROWS = raw_rows(200)


def weighed_model(k: int = 2, kernel: str = "rbf", scale: str = "minmax", combine: str = "nearest") -> LocalModel:
    return replace(local_model(kernel, k, scale, weighed=True), combine=combine)


def said(model: LocalModel, p: int) -> np.ndarray:
    """(m, pairs) what a part says of ROWS, by the kernel matrix of weighed rows."""
    support, coef = model.part(p)
    rows = model.header.scaling.apply(ROWS)
    K = reference.kernel_matrix(model.header.kernel, rows.X * model.weights[p], support.X * model.weights[p])
    return K @ coef


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kernel", ["rbf", "matern 1/2", "cauchy", "poly"])
def test_a_part_weighs_the_columns_of_rows_and_support_rows(kernel, k):
    model = weighed_model(k, kernel)
    parts = model.partition.assign(model.header.scaling.apply(ROWS))
    expected = np.array([said(model, p)[i] + model.intercept[p] for i, p in enumerate(parts)])
    found = model.binary_decisions(ROWS)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    plain = replace(model, weights=None).binary_decisions(ROWS)
    assert not np.allclose(found, plain, atol=1e-3 * np.abs(expected).max())


def test_a_sum_over_all_parts_weighs_rows_for_each():
    model = weighed_model(combine="naive")
    expected = sum(said(model, p) for p in range(len(model.present)))
    np.testing.assert_allclose(model.binary_decisions(ROWS), expected, atol=1e-5)


def test_a_committee_asks_each_part_in_its_own_metric():
    """A model whose weights are all w is the plain one of rows times w."""
    model, w = weighed_model(combine="committee", scale="none"), np.array([0.5, 2.0, 1.0, 0.25])
    same = replace(model, weights=np.tile(w, (len(model.present), 1)))
    support = (model.arrays["support"] * w).astype(np.float32)
    plain = replace(model, weights=None, arrays={**model.arrays, "support": support})
    found, expected = same.binary_decisions(ROWS), plain.binary_decisions(ROWS.times(w))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weighed", [True, False])
def test_files_keep_the_weights_where_there_are_any(weighed, tmp_path):
    model = local_model("rbf", 3, "standard", weighed=weighed)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert (loaded.weights is not None) == weighed == ("weights" in model.to_state()[0])
    np.testing.assert_array_equal(loaded.decision_function(ROWS), model.decision_function(ROWS))


def test_weights_of_another_shape_are_refused():
    arrays, attrs = weighed_model().to_state()
    with pytest.raises(ValueError, match=r"found weights of partitions \(7, 3\), expected \(7, 4\)"):
        LocalModel.from_state(arrays | {"weights": arrays["weights"][:, :3]}, attrs)


METRICS = {
    "none": None,
    "diagonal": Metric(np.array([2.0, 0.5, 1.0, 1.5])),
    "full": Metric(np.random.default_rng(3).normal(size=(4, 4))),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [2, 3])
def test_gradients_by_raw_features_are_those_of_finite_differences(k, metric):
    """Through the part's weights, the metric of all parts, and the scaling; steps are too small to leave a part."""
    model = weighed_model(k)
    scaling = replace(model.header.scaling, metric=METRICS[metric])
    model = replace(model, header=replace(model.header, scaling=scaling))
    codes, h, met = answered(model, ROWS)[1], 1e-6, 0
    slopes = gradients(model, ROWS)
    for here, g in decisions(model, ROWS, codes):
        X = ROWS.X[here].astype(np.float64)
        met += len(np.unique(here))
        for f in range(4):
            ends = [g.values(exact(g.scaling, X + sign * h * np.eye(4)[f])) for sign in (1, -1)]
            np.testing.assert_allclose(slopes[here, f], (ends[0] - ends[1]) / (2 * h), atol=1e-4)
    assert met == len(ROWS)


def exact(scaling, X):
    """Scaled rows in float64."""
    X = (X - scaling.offset) * scaling.scale if scaling.kind != "none" else X
    return Rows(X if scaling.metric is None else X @ scaling.metric.matrix)


def test_what_decides_is_what_the_model_decides_by():
    model, out = weighed_model(), np.empty(len(ROWS))
    for here, g in decisions(model, ROWS, answered(model, ROWS)[1]):
        out[here] = g.values(g.scaling.apply(ROWS.take(here)))
    np.testing.assert_allclose(out, model.decision_function(ROWS), atol=1e-5)


def test_importances_are_taken_at_support_vectors_as_they_were():
    model = weighed_model(scale="none")
    found, same = importances(model), importances(model, model.part(0)[0])
    assert found.source == "support vectors"
    assert found.values.sum() == pytest.approx(1) == same.values.sum()
