"""Columns that mark where values were missing, against scikit-learn's SimpleImputer(add_indicator=True)."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from ingest.test_gaps import fitted, gapped, table_of
from scipy import sparse
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, StandardScaler

from streamsvm.cli.app import app, exit_status
from streamsvm.config import build_config
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.data.statistics import moments_of
from streamsvm.data.store import Store
from streamsvm.errors import ModelError
from streamsvm.exchange.libsvm import write_libsvm
from streamsvm.exchange.onnx import onnx_model
from streamsvm.explain.decisions import gradients
from streamsvm.explain.importances import importances
from streamsvm.explain.rows import explain_rows
from streamsvm.fits.prepare import prepare
from streamsvm.models.files import load_model, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.report.card import card

PEERS = {
    "none": FunctionTransformer,
    "standard": StandardScaler,
    "minmax": MinMaxScaler,
    "maxabs": MaxAbsScaler,
}


def prepared(X, **options):
    config = build_config(("test", {"mark_gaps": True, **options}))
    return prepare(Store.from_arrays(X, np.arange(X.shape[0]) % 2), config, Engine(1))


@pytest.mark.parametrize(
    ("scale", "is_sparse"), [*((scale, False) for scale in PEERS), ("none", True), ("maxabs", True)]
)
def test_rows_are_those_of_scikit_learn(scale, is_sparse):
    X, new = gapped(0)[0], gapped(1)[0]
    new[:, 3] = np.nan  # which no row of the fit had: filled, not marked
    peer = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), PEERS[scale]()).fit(X)
    layout = sparse.csr_array if is_sparse else np.asarray
    data = prepared(layout(X), scale=scale, gaps="median")
    assert (data.scaling.d, data.scaling.width) == (4, 7)
    scaled = data.scaling.apply(Rows(layout(new)))
    assert scaled.is_sparse == is_sparse
    np.testing.assert_allclose(scaled.dense(), peer.transform(new), rtol=1e-5, atol=1e-6)
    assert data.kernel.gamma == pytest.approx(1 / (7 * peer.transform(X).var()))


@pytest.mark.parametrize("scale", ["robust", "quantile"])
def test_marks_are_scaled_by_a_sample_as_other_columns_are(scale):
    X = gapped(0)[0]
    scaling = prepared(X, scale=scale).scaling
    twin = prepared(SimpleImputer(add_indicator=True).fit_transform(X), scale=scale).scaling
    filled = SimpleImputer(add_indicator=True).fit(X)
    np.testing.assert_allclose(scaling.apply(Rows(X)).X, twin.apply(Rows(filled.transform(X))).X, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_moments_are_those_of_marked_rows(is_sparse):
    X = gapped(0)[0]
    X[:, 1] = np.nan
    raw, fill = Rows(sparse.csr_array(X) if is_sparse else X), np.arange(4.0)
    moments = moments_of(raw)
    moments = moments.filled(fill).marked(moments.gaps)
    scaling = Scaling("none", np.zeros(7), np.ones(7), fill=fill, marks=moments.marks)
    twin = moments_of(scaling.completed(raw))
    for name in ("low", "high", "mean", "m2"):
        np.testing.assert_allclose(getattr(moments, name), getattr(twin, name), atol=1e-9)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale": "quantile"},
        {"scale": "none"},
        {"solver": "bsgd"},
        {"solver": "cutting-plane", "kernel": {"name": "linear"}},
        {"metric": {"kind": "diagonal", "factor": [1.0, 0.5, 0.0, 1.0, 2.0, 0.0, 1.0]}},
        {"metric": {"kind": "full", "factor": np.eye(7)[:, ::2].tolist()}},
        {"dcsvm": {"early": True, "levels": 1}},
        {"probability": {"method": "sigmoid"}},
    ],
)
def test_a_fit_is_one_of_marked_rows_kept_and_exported(options, tmp_path):
    X, y = gapped(0)
    model, new = fitted(X, y, mark_gaps=True, **options), gapped(1)[0].astype(np.float32)
    imputer = SimpleImputer(add_indicator=True).fit(X)
    twin = fitted(imputer.transform(X), y, **options)
    expected = twin.decision_function(imputer.transform(new))
    np.testing.assert_allclose(model.decision_function(new), expected, atol=5e-3)
    save_model(model, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.d == 4
    np.testing.assert_array_equal(again.decision_function(new), model.decision_function(new))
    session = onnxruntime.InferenceSession(onnx_model(model).SerializeToString())
    np.testing.assert_allclose(session.run(["scores"], {"X": new})[0], model.decision_function(new), atol=1e-5)


@pytest.mark.parametrize("scale", ["standard", "quantile"])
@pytest.mark.parametrize("metric", [None, [1.0, 0.5, 0.0, 1.0, 2.0, 0.0, 1.0]])
def test_explanations_are_of_raw_columns(scale, metric):
    X, y = gapped(0)
    X = X + np.random.default_rng(1).normal(size=X.shape)  # between quantiles
    arrays = {} if metric is None else {"metric": {"kind": "diagonal", "factor": metric}}
    model, h = fitted(X, y, mark_gaps=True, scale=scale, **arrays), 2e-4
    actual = gradients(model, Rows(X[:9]))
    for column, step in enumerate(h * np.eye(4)):
        ends = [model.decision_function(x) for x in (X[:9] + step, X[:9] - step)]
        there = ~np.isnan(X[:9, column])
        expected = ((ends[0] - ends[1]) / (2 * h))[there]
        np.testing.assert_allclose(actual[there, column], expected, rtol=0.02, atol=1e-2)
    store = Store.from_arrays(X, y)
    for told in explain_rows(model, store, np.arange(9), np.ones(4), shapley=True):
        np.testing.assert_array_equal(told.values, X[told.row])
        assert told.shapley.shape == told.gradient.shape == (4,)
        assert told.base + told.shapley.sum() == pytest.approx(told.decision)
        assert told.decision == pytest.approx(model.decision_function(X[told.row : told.row + 1])[0], abs=1e-4)
        assert {vector.values.shape for vector in told.nearest} == {(4,)}
    for X_or_none in (X, None):
        assert importances(model, X_or_none).values.shape == (4,)
        assert importances(model, X_or_none).values.sum() == pytest.approx(1)


def test_what_a_mark_counts_for_is_its_columns():
    scaling = Scaling("none", np.zeros(5), np.ones(5), Metric(np.sqrt([4.0, 2, 1, 2, 1])), marks=np.array([0, 2]))
    np.testing.assert_allclose(scaling.importances, [0.6, 0.2, 0.2])


def test_undone_rows_have_their_gaps_again_and_wider_ones_their_marks():
    X = gapped(0)[0]
    scaling = prepared(X, scale="standard").scaling
    np.testing.assert_allclose(scaling.undone(scaling.apply(Rows(X))), X, rtol=1e-5)
    X6 = np.hstack([X, X[:, :2]])
    metric = Metric(np.arange(1.0, 8))
    for own in (scaling, scaling.under(metric), scaling.under(Metric(np.eye(7)[:, :6]))):
        wider = own.wider(6)
        found, old = wider.apply(Rows(np.nan_to_num(X6, nan=9.0))), own.apply(Rows(np.nan_to_num(X, nan=9.0)))
        assert wider.d == 6
        kept = [0, 1, 2, 3, 6, 7, 8] if own.metric is None else slice(None)
        np.testing.assert_array_equal(found.X[:, kept], old.X)


def test_damaged_marks_are_refused():
    arrays = prepared(gapped(0)[0]).scaling.to_arrays()
    for marks in (np.array([0, 1, 4]), np.array([-1, 0, 1])):
        with pytest.raises(ValueError, match="found marks of columns .*, expected below 4"):
            Scaling.from_arrays("none", arrays | {"marks": marks})


def test_rows_without_gaps_have_no_marks_and_later_ones_are_filled():
    X, y = gapped(0, share=0.0)
    model, twin = fitted(X, y, mark_gaps=True), fitted(X, y)
    assert model.header.scaling.marks is None
    np.testing.assert_array_equal(model.decision_function(X), twin.decision_function(X))
    assert np.isfinite(model.decision_function(gapped(1)[0])).all()


def test_libsvm_has_no_marks(tmp_path):
    model = fitted(*gapped(0), mark_gaps=True)
    with pytest.raises(ModelError, match=r"marks missing values, .*; fit without --mark-gaps, or export --format onnx"):
        write_libsvm(model, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def test_a_fit_of_a_file_marks_them_where_asked(tmp_path, capsys):
    X, y = gapped(0)
    store, made = table_of(tmp_path, X, y), tmp_path / "m"

    def fit(*args):
        words = ["fit", "--store", store.url, "--no-search", "--model", str(made), "--mark-gaps", *args]
        return exit_status(lambda: app(words, standalone_mode=False))

    assert fit("--gaps", "refuse") == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: --mark-gaps: mark_gaps is read by a fit that fills missing values only, found gaps")
    assert "\n" not in error
    assert not made.exists()
    assert fit() == 0
    model = load_model(made)
    np.testing.assert_array_equal(model.header.scaling.marks, [0, 1, 2])
    lines = card(model, "m").splitlines()
    assert sum(line.endswith(", marked |") for line in lines) == 3
