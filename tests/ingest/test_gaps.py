"""Missing values: counted, filled as scikit-learn's SimpleImputer does, and kept in the model."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from making import write
from scipy import sparse
from sklearn.impute import SimpleImputer

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import merge, moments_of
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.events import Events, Warned
from streamsvm.exchange.onnx import write_onnx
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.train import train_in_memory

KINDS = ("mean", "median", "most_frequent")


def gapped(seed, n=300, d=4, share=0.15):
    """Rows with gaps in all columns but the last, of few different values; and labels."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, d)) + 0.5
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    X[:, :-1][rng.random((n, d - 1)) < share] = np.nan
    return X, y


def fitted(X, y, events=None, **options):
    store = X if isinstance(X, Store) else Store.from_arrays(X, y)
    config = build_config(("test", {"kernel": {"gamma": 0.3}, "scale": "standard", **options}))
    return train_in_memory(store, config, events or Events())[0]


@given(
    st.integers(0, 1000),
    st.integers(1, 5),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.3, 0.9, 1.0]),
    st.booleans(),
)
def test_moments_are_those_of_the_values_that_are_there(seed, pieces, n, share, is_sparse):
    X, _ = gapped(seed, n=n * pieces, share=share)
    X[:, 1] *= np.random.default_rng(seed).random(len(X)) < 0.5  # zeros
    blocks = [Rows(sparse.csr_array(part) if is_sparse else part) for part in np.split(X, pieces)]
    moments = reduce(merge, map(moments_of, blocks))
    gaps = np.isnan(X).sum(axis=0)
    np.testing.assert_array_equal(0 if moments.gaps is None else moments.gaps, gaps if moments.gaps is not None else 0)
    for column, values in enumerate(X.T):
        there = values[~np.isnan(values)]
        if not len(there):
            assert (moments.low[column], moments.high[column], moments.mean[column]) == (np.inf, -np.inf, 0)
            continue
        assert moments.low[column] == there.min()
        assert moments.high[column] == there.max()
        np.testing.assert_allclose(moments.mean[column], there.mean(), atol=1e-12)
        np.testing.assert_allclose(moments.m2[column], there.var() * len(there), atol=1e-9)
    fill = np.arange(4.0)
    filled, twin = moments.filled(fill), moments_of(Rows(np.where(np.isnan(X), fill, X)))
    for name in ("low", "high", "mean", "m2"):
        np.testing.assert_allclose(getattr(filled, name), getattr(twin, name), atol=1e-9)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_is_one_of_rows_that_scikit_learn_filled(kind, is_sparse):
    X, y = gapped(0)
    imputer = SimpleImputer(strategy=kind).fit(X)
    scale = "maxabs" if is_sparse else "standard"
    model = fitted(sparse.csr_array(X) if is_sparse else X, y, gaps=kind, scale=scale)
    np.testing.assert_allclose(model.header.scaling.fill, imputer.statistics_)
    twin = fitted(imputer.transform(X), y, scale=scale)
    new, _ = gapped(1)
    rows_new = sparse.csr_array(new) if is_sparse else new
    np.testing.assert_allclose(
        model.decision_function(rows_new), twin.decision_function(imputer.transform(new)), atol=2e-3
    )


@pytest.mark.parametrize(
    "options",
    [
        {"solver": "bsgd"},
        {"solver": "cutting-plane", "kernel": {"name": "linear"}},
        {"solver": "alfpgm"},
        {"solver": "admm-hss"},
        {"dcsvm": {"early": True, "levels": 1}},
        {"scale": "none", "gaps": "median"},
        {"scale": "robust"},
        {"holdout": 40, "probability": {"method": "sigmoid"}},
    ],
)
def test_every_solver_fills_them(options):
    X, y = gapped(0)
    events = []
    model = fitted(X, y, Events(lambda record: events.append(record.event)), **{"gaps": "mean", **options})
    warned = [event.message for event in events if isinstance(event, Warned) and "missing values" in event.message]
    assert not warned  # as nobody has to be told of what they asked for
    assert np.isfinite(model.decision_function(X)).all()
    filled = SimpleImputer(strategy=options.get("gaps", "mean")).fit(X).transform(X)
    np.testing.assert_allclose(model.decision_function(X), model.decision_function(filled), atol=1e-5)


def test_folds_and_intervals_know_of_the_gaps(tmp_path):
    X, y = gapped(0)
    store = table_of(tmp_path, X, np.nan_to_num(X).sum(axis=1))
    model = fitted(store, None, task="regress", interval=0.9)
    assert np.isfinite(model.predict_interval(X)).all()
    folded = fitted(table_of(tmp_path, X, y), None, probability={"method": "sigmoid"})
    assert np.isfinite(folded.predict_proba(X)).all()


def test_models_of_rows_without_gaps_refuse_them_unless_asked():
    X, y = gapped(0)
    whole = np.nan_to_num(X)
    with pytest.raises(DataError, match=r"row 0, column 0 .* is nan; .* or fit with gaps=.mean."):
        fitted(whole, y).decision_function(np.full((1, 4), np.nan))
    model = fitted(whole, y, gaps="median")
    np.testing.assert_array_equal(
        model.decision_function(np.full((1, 4), np.nan)),
        model.decision_function(np.median(whole, axis=0)[None]),
    )
    with pytest.raises(DataError, match="is inf"):
        model.decision_function(np.full((1, 4), np.inf))
    for own in ({}, {"gaps": "refuse"}):
        with pytest.raises(DataError, match="is nan"):
            fitted(X, y, **own)


def table_of(folder, X, y):
    """A store of a CSV file of these rows."""
    text = "\n".join(
        ",".join("" if np.isnan(v) else f"{v:g}" for v in row) + f",{c}" for row, c in zip(X, y, strict=True)
    )
    (folder / "t.csv").write_text(f"a,b,c,d,y\n{text}\n")
    ingest([folder / "t.csv"], folder / "s", IngestOptions(force=True))
    return Store.open(folder / "s")


def test_a_store_knows_its_gaps_and_models_keep_their_fill(tmp_path):
    X, y = gapped(0)
    store = table_of(tmp_path, X, y)
    np.testing.assert_array_equal(store.statistics["missing"], np.isnan(X).sum(axis=0))
    np.testing.assert_array_equal(store.read(0, store.n).X, X.astype(np.float32))
    for own in ({}, {"scale": "none"}):  # with a pass over the rows, and without one but for the gaps
        events = []
        model = fitted(store, None, Events(lambda record, events=events: events.append(record.event)), **own)
        [warned] = [event.message for event in events if isinstance(event, Warned)]
        assert "3 columns have missing values, most 'b' in 16.7% of the rows; the mean of the column replaces" in warned
        again = type(model.header).from_state(*model.header.to_state())
        np.testing.assert_array_equal(again.scaling.fill, model.header.scaling.fill)
        np.testing.assert_allclose(again.scaling.fill, np.nanmean(X, axis=0))


def test_a_store_of_others_is_looked_at_where_asked(tmp_path):
    X, y = gapped(0)
    store = write(tmp_path / "s", Rows(X), y)
    with pytest.raises(DataError, match="fit with --gaps mean"):
        fitted(store, None, scale="none")
    assert fitted(store, None, scale="none", gaps="median").takes_gaps


def test_onnx_fills_them(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    X, y = gapped(0)
    model = fitted(X, y, gaps="median")
    write_onnx(model, tmp_path / "m.onnx")
    session = ort.InferenceSession(str(tmp_path / "m.onnx"))
    label, *_ = session.run(None, {"X": X.astype(np.float32)})
    np.testing.assert_array_equal(label, model.predict(X))
